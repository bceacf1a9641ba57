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

func (p *program) inboxCommand() *cobra.Command {
	var q client.InboxQuery
	var dueBefore string
	c := answer(p, help{
		use:   "inbox",
		short: "List human steps, earliest due first",
		long: `List what waits for people, what is due first before the rest.

An external step is here while it waits, if its template names an assignee or has a form, or
somebody assigned it. --mine, --assignee and --unassigned add to one another.`,
		example: `  tasker-ctl inbox --mine
  tasker-ctl inbox --assignee group:finance --unassigned --namespace billing
  tasker-ctl inbox --template refund --due-before 2026-01-31T07:30:00Z`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.Inbox, error) {
		if dueBefore != "" {
			at, err := time.Parse(time.RFC3339, dueBefore)
			if err != nil {
				return apiv1.Inbox{}, cli.Usagef("--due-before must be an instant such as 2026-01-31T07:30:00Z, not %q", dueBefore)
			}
			q.DueBefore = &at
		}
		return api.Inbox(ctx, q)
	}, func(l apiv1.Inbox) {
		header := []string{"step", "task", "namespace", "template", "assignee", "waits since", "due"}
		list(p, l.Steps, columns{none: "Nothing waits for people.", names: header}, func(s apiv1.HumanStep) []string {
			return []string{s.Step, s.TaskUUID, s.Namespace, s.Template, or(s.Assignee, "-"), at(s.WaitingSince), orDash(at(s.DueAt))}
		})
		if l.Pagination.NextAfter != nil {
			fmt.Fprintf(p.err, "There are more: --after %s\n", *l.Pagination.NextAfter)
		}
	})
	f := c.Flags()
	f.BoolVar(&q.Mine, "mine", false, "what waits for you, or for a group of yours")
	f.StringArrayVar(&q.Assignees, "assignee", nil, "what waits for this person, or for group: and a group (may be repeated)")
	f.BoolVar(&q.Unassigned, "unassigned", false, "what waits for nobody in particular")
	f.StringVarP(&q.Namespace, "namespace", "n", "", "only of this namespace")
	f.StringVar(&q.Template, "template", "", "only of tasks of this template")
	f.StringVar(&dueBefore, "due-before", "", "only what is due before this instant, such as 2026-01-31T07:30:00Z")
	f.BoolVar(&q.Overdue, "overdue", false, "only what should have been answered by now")
	f.StringVar(&q.After, "after", "", "go on behind this place, as the page before says")
	limitFlag(c, &q.Limit, 100)
	return c
}

func (p *program) assignCommand() *cobra.Command {
	var a apiv1.AssignStep
	var nobody bool
	c := answer(p, help{
		use:   "assign-step TASK STEP --to NAME",
		short: "Assign a human step",
		long: `Say who is to answer an external step that waits: a person, by the name with which they sign
in, or group: and the name of a group. ` + stepArgument,
		example: `  tasker-ctl task assign-step $TASK approve --to ann@example.com --reason "bob is away"
  tasker-ctl task assign-step $TASK approve --to group:finance
  tasker-ctl task assign-step $TASK approve --nobody`,
	}, func(ctx context.Context, api *client.Client, args arguments) (h apiv1.HumanStep, err error) {
		if (a.Assignee == "") != nobody {
			return h, cli.Usagef("say who is to answer: --to NAME, or --nobody, and one of them only")
		}
		if a.By, err = p.actor("by", a.By); err != nil {
			return h, err
		}
		return api.AssignStep(ctx, args.id[0], args.text[1], a)
	}, func(h apiv1.HumanStep) {
		p.done("The step is assigned.")
		p.fields("  ", field{"Step", h.Step}, field{"Assignee", or(h.Assignee, "nobody in particular")}, field{"Due", at(h.DueAt)})
	})
	c.Flags().StringVar(&a.Assignee, "to", "", "who is to answer")
	c.Flags().BoolVar(&nobody, "nobody", false, "remove the assignee")
	c.Flags().StringVar(&a.Reason, "reason", "", "why, for the history")
	actorFlag(c, &a.By, "by")
	return c
}

func (p *program) assigneeCommand() *cobra.Command {
	return answer(p, help{
		use:     "assignee TASK STEP",
		short:   "Show the assignee of a human step",
		long:    "Show who is to answer an external step, the form of the answer, and who changed that. " + stepArgument,
		example: `  tasker-ctl task assignee $TASK approve`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.HumanStepDetail, error) {
		return api.HumanStep(ctx, a.id[0], a.text[1])
	}, func(d apiv1.HumanStepDetail) {
		p.fields("", field{"Step", d.Step}, field{"Assignee", or(d.Assignee, "nobody in particular")}, field{"Assigned by", or(d.AssignedBy, "")},
			field{"Waits since", at(d.WaitingSince)}, field{"Due", at(d.DueAt)}, field{"Escalated", at(d.EscalatedAt)}, field{"Form", compact(d.Form)})
		for _, c := range d.History {
			fmt.Fprintf(p.out, "\n%s %s by %s%s%s\n", at(&c.At), clean(c.Event), clean(c.Actor), prefixed(": ", or(c.Assignee, "")), prefixed(": ", or(c.Reason, "")))
		}
	})
}

func (p *program) answerLinkCommand() *cobra.Command {
	var l apiv1.CreateAnswerLink
	var life time.Duration
	var server string
	c := answer(p, help{
		use:   "answer-link TASK STEP",
		short: "Create a one-time answer link",
		long: `Make a link by which the assignee answers an external step that waits, without signing in.

It is good for one answer, until it expires, while the step waits and is assigned to the same.
Whoever has it may answer: give it to nobody else. It is printed on standard output, and cannot
be had again. ` + stepArgument,
		example: `  tasker-ctl task answer-link $TASK approve
  tasker-ctl task answer-link $TASK approve --expires-in 4h | mail -s "Please answer" ann@example.com`,
	}, func(ctx context.Context, api *client.Client, a arguments) (made apiv1.NewAnswerLink, err error) {
		if life > 0 {
			seconds := int64(life / time.Second)
			l.ExpiresInSeconds = &seconds
		}
		if l.By, err = p.actor("by", l.By); err != nil {
			return made, err
		}
		server = api.URL()
		return api.CreateAnswerLink(ctx, a.id[0], a.text[1], l)
	}, func(made apiv1.NewAnswerLink) {
		p.hint("For %s, until %s. Whoever has it may answer.", made.Assignee, at(&made.ExpiresAt))
		fmt.Fprintln(p.out, clean(or(made.URL, strings.TrimSuffix(server, "/")+made.Path)))
	})
	c.Flags().Var(cli.Span(&life, tasker.MinAnswerLinkLife, tasker.MaxAnswerLinkLife), "expires-in", "how long it can be used, such as 4h or 7d (default: 3d)")
	actorFlag(c, &l.By, "by")
	return c
}

func (p *program) answerLinksCommand() *cobra.Command {
	return answer(p, help{
		use:     "answer-links TASK STEP",
		short:   "List answer links of a step",
		long:    "List the links by which an external step can be answered, and could be, newest first. " + stepArgument,
		example: `  tasker-ctl task answer-links $TASK approve`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.AnswerLinks, error) {
		return api.AnswerLinks(ctx, a.id[0], a.text[1])
	}, func(l apiv1.AnswerLinks) {
		list(p, l.Links, columns{none: "The step has no answer links.", names: []string{"link", "assignee", "state", "made by", "made", "expires"}}, func(l apiv1.AnswerLink) []string {
			return []string{l.UUID, l.Assignee, l.State, l.CreatedBy, at(&l.CreatedAt), at(&l.ExpiresAt)}
		})
	})
}

func (p *program) revokeLinkCommand() *cobra.Command {
	return answer(p, help{
		use:     "revoke-answer-link TASK STEP LINK",
		short:   "Revoke an answer link",
		long:    "Make an answer link worthless. " + stepArgument,
		example: `  tasker-ctl task revoke-answer-link $TASK approve $LINK`,
	}, func(ctx context.Context, api *client.Client, a arguments) (l apiv1.AnswerLink, err error) {
		var link tasker.ID
		if err := link.UnmarshalText([]byte(a.text[2])); err != nil {
			return l, cli.Usagef("LINK must be the UUID of a link, as answer-links lists them, not %q", a.text[2])
		}
		return api.RevokeAnswerLink(ctx, a.id[0], a.text[1], link)
	}, func(l apiv1.AnswerLink) {
		p.done("The link for %s is %s.", clean(l.Assignee), clean(l.State))
	})
}

// prefixed is a text after something, empty when there is none.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + clean(text)
}
