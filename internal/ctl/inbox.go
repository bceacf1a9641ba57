package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newInboxCommand() *cobra.Command {
	var q apiv1.InboxQuery

	c := newRequestCommand(p, help{
		use:   "inbox",
		short: "List human steps, earliest due first",
		long: `List human steps, earliest due first.

An external step is listed while it waits, if its template names an assignee or a form, or if
it was assigned. --mine, --assignee and --unassigned can be combined.`,
		example: `  tasker-ctl inbox --mine
  tasker-ctl inbox --assignee group:finance --unassigned --namespace billing
  tasker-ctl inbox --template refund --due-before 2026-01-31T07:30:00Z`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.Inbox, error) {

		return api.Inbox(ctx, q)
	}, func(l apiv1.Inbox) {
		printList(p, l.Steps, "No human steps.", "step, task, namespace, template, assignee, waits since, due", func(s apiv1.HumanStep) []any {
			return []any{s.Step, s.TaskUUID, s.Namespace, s.Template, orDash(s.Assignee), s.WaitingSince, orDash(s.DueAt)}
		})
		printNextPageFlag(p, "after", l.Pagination.NextAfter)
	})
	p.addQueryFlags(c, &q, 100)
	return c
}

func (p *program) newAssignCommand() *cobra.Command {
	var a apiv1.AssignStep
	var unassign bool
	c := newRequestCommand(p, help{
		use:   "assign-step TASK STEP --to NAME",
		short: "Assign a human step",
		long: `Assign an external step that waits to a person, by their sign-in name, or to group:NAME.
` + stepArgument,
		example: `  tasker-ctl task assign-step $TASK approve --to ann@example.com --reason "bob is away"
  tasker-ctl task assign-step $TASK approve --to group:finance
  tasker-ctl task assign-step $TASK approve --nobody`,
	}, func(ctx context.Context, api *client.Client, args arguments) (apiv1.HumanStep, error) {
		if (a.Assignee == "") != unassign {
			return apiv1.HumanStep{}, cli.Usagef("set either --to NAME or --nobody")
		}
		return api.AssignStep(ctx, args.id[0], args.text[1], a)
	}, func(h apiv1.HumanStep) {
		p.printDone("Step assigned.")
		p.printFields("  ", field{"Step", h.Step}, field{"Assignee", orDefault(h.Assignee, "none")},
			field{"Due", h.DueAt})
	})
	c.Flags().StringVar(&a.Assignee, "to", "", "assignee: a person, or group:NAME")
	c.Flags().BoolVar(&unassign, "nobody", false, "remove the assignee")
	addOptionalReasonFlag(c, &a.Reason)
	p.addActorFlag(c, &a.By, "by")
	return c
}

func (p *program) newAssigneeCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "assignee TASK STEP",
		short:   "Show the assignee of a human step",
		long:    "Show the assignee, the form and the assignment history of a human step. " + stepArgument,
		example: `  tasker-ctl task assignee $TASK approve`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.HumanStepDetail, error) {
		return api.HumanStep(ctx, a.id[0], a.text[1])
	}, func(d apiv1.HumanStepDetail) {
		p.printFields("", field{"Step", d.Step}, field{"Assignee", orDefault(d.Assignee, "none")}, field{"Assigned by", d.AssignedBy},
			field{"Waits since", d.WaitingSince}, field{"Due", d.DueAt}, field{"Escalated", d.EscalatedAt}, field{"Form", d.Form})
		for _, c := range d.History {
			fmt.Fprintf(p.out, "\n%s %s by %s%s%s\n", formatTime(&c.At), clean(c.Event), clean(c.Actor), addPrefix(": ", orDefault(c.Assignee, "")), addPrefix(": ", orDefault(c.Reason, "")))
		}
	})
}

func (p *program) newAnswerLinkCommand() *cobra.Command {
	var l apiv1.CreateAnswerLink
	var life time.Duration
	var server string
	c := newRequestCommand(p, help{
		use:   "answer-link TASK STEP",
		short: "Create a one-time answer link",
		long: `Create a link with which the assignee answers an external step without signing in.

The link is valid for one answer, until it expires, while the step waits and its assignee does
not change. Anyone with the link can answer, so keep it secret. It is printed once, on standard
output. ` + stepArgument,
		example: `  tasker-ctl task answer-link $TASK approve
  tasker-ctl task answer-link $TASK approve --expires-in 4h | mail -s "Please answer" ann@example.com`,
	}, func(ctx context.Context, api *client.Client, a arguments) (made apiv1.NewAnswerLink, err error) {
		if life > 0 {
			seconds := int64(life / time.Second)
			l.ExpiresInSeconds = &seconds
		}
		server = api.URL()
		return api.CreateAnswerLink(ctx, a.id[0], a.text[1], l)
	}, func(made apiv1.NewAnswerLink) {
		p.printHint("For %s, valid until %s. Anyone with this link can answer.", made.Assignee, formatTime(&made.ExpiresAt))
		fmt.Fprintln(p.out, clean(orDefault(made.URL, strings.TrimSuffix(server, "/")+made.Path)))
	})
	c.Flags().Var(cli.Span(&life, tasker.MinAnswerLinkLife, tasker.MaxAnswerLinkLife), "expires-in", "validity of the link, such as 4h or 7d (default: 3d)")
	p.addActorFlag(c, &l.By, "by")
	return c
}

func (p *program) newAnswerLinksCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "answer-links TASK STEP",
		short:   "List answer links of a step",
		long:    "List the current and former answer links of an external step, newest first. " + stepArgument,
		example: `  tasker-ctl task answer-links $TASK approve`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.AnswerLinks, error) {
		return api.AnswerLinks(ctx, a.id[0], a.text[1])
	}, func(l apiv1.AnswerLinks) {
		printList(p, l.Links, "The step has no answer links.", "link, assignee, state, made by, made, expires", func(l apiv1.AnswerLink) []any {
			return []any{l.UUID, l.Assignee, l.State, l.CreatedBy, l.CreatedAt, l.ExpiresAt}
		})
	})
}

func (p *program) newRevokeLinkCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "revoke-answer-link TASK STEP LINK",
		short:   "Revoke an answer link",
		long:    "Revoke an answer link. " + stepArgument,
		example: `  tasker-ctl task revoke-answer-link $TASK approve $LINK`,
	}, func(ctx context.Context, api *client.Client, a arguments) (l apiv1.AnswerLink, err error) {
		var link tasker.ID
		if err := link.UnmarshalText([]byte(a.text[2])); err != nil {
			return l, cli.Usagef("LINK must be a UUID from answer-links, not %q", a.text[2])
		}
		return api.RevokeAnswerLink(ctx, a.id[0], a.text[1], link)
	}, func(l apiv1.AnswerLink) {
		p.printDone("The link for %s is %s.", clean(l.Assignee), clean(l.State))
	})
}

// addPrefix returns text with a prefix, or "" if text is empty.
func addPrefix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + clean(text)
}
