package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

// dueText says by when something is due, and how that stands; empty when it has no due time.
func dueText(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	var more []string
	if d.State != string(tasker.DeadlineAhead) {
		more = append(more, d.State)
	}
	if d.Overdue == string(tasker.OverdueInvestigate) {
		more = append(more, "investigated when overdue")
	}
	if d.SetBy != nil {
		more = append(more, "set by "+*d.SetBy)
	}
	if len(more) == 0 {
		return at(&d.DueAt)
	}
	return at(&d.DueAt) + " (" + strings.Join(more, ", ") + ")"
}

// dueShort says by when something is due, and whether it is; empty when it has no due time.
func dueShort(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	return dueText(&apiv1.Deadline{DueAt: d.DueAt, State: d.State})
}

// maxDurationText says when a task has run for as long as its template allows.
func maxDurationText(t apiv1.Task) string {
	if t.MaxDurationEndsAt == nil || t.Due == nil || or(t.FirstDeadline, "") != tasker.ByMaxDuration {
		return at(t.MaxDurationEndsAt)
	}
	return at(t.MaxDurationEndsAt) + " (before it is due)"
}

func (p *program) dueCommand() *cobra.Command {
	var d apiv1.ChangeDue
	var when string
	var none bool
	c := answer(p, help{
		use:   "due TASK --at TIME",
		short: "Set a due time",
		long: `Give a task, or a step of it, another due time. It takes the place of what the request or the
template said; people are told of it as of any other, and the history of the task says who
changed it.`,
		example: `  tasker-ctl task due $TASK --at 2026-01-31T12:00:00Z --reason "agreed with the customer"
  tasker-ctl task due $TASK --step approve --at +2h
  tasker-ctl task due $TASK --none`,
	}, func(ctx context.Context, api *client.Client, args arguments) (t apiv1.Task, err error) {
		if (when == "") != none {
			return t, cli.Usagef("say by when it is due: --at TIME, or --none, and one of them only")
		}
		if d.DueAt, err = instantOrSpan("at", when); err != nil {
			return t, err
		}
		if d.By, err = p.actor("by", d.By); err != nil {
			return t, err
		}
		return api.ChangeDue(ctx, args.id[0], d)
	}, func(t apiv1.Task) {
		p.done("The due time is changed.")
		due := t.Due
		for _, s := range t.Steps {
			if d.Step == s.Name || d.Step == s.StepUUID {
				due = s.Due
			}
		}
		text := dueText(due)
		if due == nil {
			text = "at no time"
		}
		p.fields("  ", field{"Task", t.TaskUUID}, field{"Step", d.Step}, field{"Due", text})
	})
	c.Flags().StringVar(&when, "at", "", "a time such as 2026-01-31T12:00:00Z, or +90m from now")
	c.Flags().BoolVar(&none, "none", false, "remove the due time")
	c.Flags().StringVar(&d.Step, "step", "", "the step that is due, by its name or UUID, in the place of the task")
	c.Flags().StringVar(&d.Reason, "reason", "", "why, for the history")
	actorFlag(c, &d.By, "by")
	return c
}
