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

// dueText formats a due time with its state. It returns "" for nil.
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

// dueShort is like dueText but omits details.
func dueShort(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	return dueText(&apiv1.Deadline{DueAt: d.DueAt, State: d.State})
}

func maxDurationText(t apiv1.Task) string {
	if t.MaxDurationEndsAt == nil || t.Due == nil || or(t.FirstDeadline, "") != tasker.ByMaxDuration {
		return at(t.MaxDurationEndsAt)
	}
	return at(t.MaxDurationEndsAt) + " (before it is due)"
}

func (p *program) dueCommand() *cobra.Command {
	var d apiv1.ChangeDue
	var none bool
	c := answer(p, help{
		use:   "due TASK --at TIME",
		short: "Set a due time",
		long: `Set the due time of a task or of one of its steps. It replaces the due time of the request
or the template. The change is recorded in the history of the task.`,
		example: `  tasker-ctl task due $TASK --at 2026-01-31T12:00:00Z --reason "agreed with the customer"
  tasker-ctl task due $TASK --step approve --at +2h
  tasker-ctl task due $TASK --none`,
	}, func(ctx context.Context, api *client.Client, args arguments) (t apiv1.Task, err error) {
		if (d.DueAt == nil) != none {
			return t, cli.Usagef("set either --at TIME or --none")
		}
		return api.ChangeDue(ctx, args.id[0], d)
	}, func(t apiv1.Task) {
		p.done("Due time changed.")
		due := t.Due
		for _, s := range t.Steps {
			if d.Step == s.Name || d.Step == s.StepUUID {
				due = s.Due
			}
		}
		text := dueText(due)
		if due == nil {
			text = "none"
		}
		p.fields("  ", field{"Task", t.TaskUUID}, field{"Step", d.Step}, field{"Due", text})
	})
	c.Flags().Var(cli.TimeOrSpan(&d.DueAt), "at", "due time: 2026-01-31T12:00:00Z, or +90m from now")
	c.Flags().BoolVar(&none, "none", false, "remove the due time")
	c.Flags().StringVar(&d.Step, "step", "", "name or UUID of the step (default: the task)")
	optionalReasonFlag(c, &d.Reason)
	p.actorFlag(c, &d.By, "by")
	return c
}
