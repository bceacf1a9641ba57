package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) cancelCommand() *cobra.Command {
	var reason, by string
	var compensate bool
	c := answer(p, help{
		use:   "cancel TASK",
		short: "Cancel a task and those of its steps that have not ended",
		long: `Cancel a task and those of its steps that have not ended.

With --compensate what its completed steps have done is undone first, in the reverse
order of their completion, by the handlers that the template names (on_failure).
Cancelling it again without --compensate stops that.`,
		example: `  tasker-ctl task cancel $TASK --reason "customer withdrew the order" --cancelled-by "ops-team@example.com"
  tasker-ctl task cancel $TASK --compensate --reason "customer withdrew the order"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (t apiv1.Task, err error) {
		if by, err = p.actor("cancelled-by", by); err != nil {
			return t, err
		}
		if compensate {
			return api.CompensateTask(ctx, a.id[0], reason, by)
		}
		return api.CancelTask(ctx, a.id[0], reason, by)
	}, func(t apiv1.Task) {
		if or(t.Phase, "") == string(tasker.Compensating) {
			p.done("Task is being undone!")
		} else {
			p.done("Task cancelled!")
		}
		p.fields("  ", field{"New state", t.Status}, field{"Undo", undoText(t)}, field{"Reason", reason}, field{"Cancelled by", by})
	})
	c.Flags().BoolVar(&compensate, "compensate", false, "undo what its completed steps have done")
	c.Flags().StringVar(&reason, "reason", "cancelled with tasker-ctl", "why, for the history")
	actorFlag(c, &by, "cancelled-by", "who cancels it")
	return c
}

// undoText says what becomes, or became, of what a task had done; nothing for one that nobody
// wants undone.
func undoText(t apiv1.Task) string {
	switch tasker.TaskOutcome(or(t.Outcome, "")) {
	case tasker.Compensated:
		return "all that can be undone is undone"
	case tasker.CompensationStopped:
		return "stopped before all was undone"
	case tasker.NothingToCompensate:
		return "nothing was to be undone"
	}
	if or(t.Phase, "") == "" {
		return ""
	}
	var done, all int
	for _, s := range t.Steps {
		if s.UndoOf != nil {
			all++
		}
		if s.UndoOf != nil && tasker.StepState(s.CurrentState).Done() {
			done++
		}
	}
	return fmt.Sprintf("%d of %d steps undone", done, all)
}
