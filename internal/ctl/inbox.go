package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) inboxCommand() *cobra.Command {
	var q client.InboxQuery
	var dueBefore string
	c := answer(p, help{
		use:   "inbox",
		short: "List what waits for people, what is due first before the rest",
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
	f.StringSliceVar(&q.Assignees, "assignee", nil, "what waits for this person, or for group: and a group (may be repeated)")
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
		short: "Say who is to answer an external step that waits",
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
	c.Flags().BoolVar(&nobody, "nobody", false, "nobody in particular is to answer")
	c.Flags().StringVar(&a.Reason, "reason", "", "why, for the history")
	actorFlag(c, &a.By, "by", "who says so")
	return c
}

func (p *program) assigneeCommand() *cobra.Command {
	return answer(p, help{
		use:     "assignee TASK STEP",
		short:   "Show who is to answer an external step, and who changed that",
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

// prefixed is a text after something, empty when there is none.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + clean(text)
}
