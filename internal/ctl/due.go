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

// formatDue formats a due time with its state. It returns "" for nil.
func formatDue(d *apiv1.Deadline) string {
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
		return formatTime(&d.DueAt)
	}
	return formatTime(&d.DueAt) + " (" + strings.Join(more, ", ") + ")"
}

// formatDueShort is like formatDue but omits details.
func formatDueShort(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	return formatDue(&apiv1.Deadline{DueAt: d.DueAt, State: d.State})
}

func formatMaxDuration(t apiv1.Task) string {
	if t.MaxDurationEndsAt == nil || t.Due == nil || orDefault(t.FirstDeadline, "") != tasker.ByMaxDuration {
		return formatTime(t.MaxDurationEndsAt)
	}
	return formatTime(t.MaxDurationEndsAt) + " (before it is due)"
}

func (p *program) newDueCommand() *cobra.Command {
	var d apiv1.ChangeDue
	var none bool
	c := newRequestCommand(p, help{
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
		p.printDone("Due time changed.")
		due := t.Due
		for _, s := range t.Steps {
			if d.Step == s.Name || d.Step == s.StepUUID {
				due = s.Due
			}
		}
		text := formatDue(due)
		if due == nil {
			text = "none"
		}
		p.printFields("  ", field{"Task", t.TaskUUID}, field{"Step", d.Step}, field{"Due", text})
	})
	c.Flags().Var(cli.TimeOrSpan(&d.DueAt), "at", "due time: 2026-01-31T12:00:00Z, or +90m from now")
	c.Flags().BoolVar(&none, "none", false, "remove the due time")
	c.Flags().StringVar(&d.Step, "step", "", "name or UUID of the step (default: the task)")
	addOptionalReasonFlag(c, &d.Reason)
	p.addActorFlag(c, &d.By, "by")
	return c
}
