package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) cancelCommand() *cobra.Command {
	var reason, by string
	var compensate bool
	c := answer(p, help{
		use:   "cancel TASK",
		short: "Cancel a task",
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
	actorFlag(c, &by, "cancelled-by")
	return c
}

func (p *program) cancelAllCommand() *cobra.Command {
	var q taskQuery
	var r apiv1.CancelTasks
	c := p.command(help{
		use:   "cancel-all --namespace NAMESPACE --reason TEXT",
		short: "Cancel all matching tasks",
		long: `Cancel the open tasks that fit a filter, part by part, each in a transaction of its own. The
filter must name more than a status and a time. Tasks that undo what they have done stay as
they are. With --dry-run nothing changes, and the first tasks are shown. It may be
interrupted, and repeated. The exit code is 1 when tasks are left that fit the filter.

With --compensate what their completed steps have done is undone before they are cancelled.`,
		example: `  tasker-ctl task cancel-all --namespace orders --name fulfil --tag campaign-7 --dry-run
  tasker-ctl task cancel-all --namespace orders --attribute customer:4711 --reason "the customer has left"`,
	}, func(ctx context.Context, _ arguments) error {
		if err := q.read(); err != nil {
			return err
		}
		if !r.DryRun {
			if err := p.said(&r.By, &r.Reason, "it is kept in the history of each task"); err != nil {
				return err
			}
		}
		api, err := p.api()
		if err != nil {
			return err
		}
		all, err := p.cancelAll(ctx, api, q.TaskQuery, r)
		if err != nil {
			return err
		}
		return p.cancelled(all, r.DryRun)
	})
	q.flags(c)
	c.Flags().BoolVar(&r.Compensate, "compensate", false, "undo what their completed steps have done")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "change nothing, and show which tasks are the first")
	c.Flags().StringVar(&r.Reason, "reason", "", "why, for the history (needed)")
	actorFlag(c, &r.By, "by")
	return c
}

// cancelAll asks for part after part. A part of which no task could be cancelled is the last.
// Tasks that could not be cancelled still fit the filter, and are in the part after as well.
func (p *program) cancelAll(ctx context.Context, api *client.Client, q client.TaskQuery, r apiv1.CancelTasks) (apiv1.CancelledTasks, error) {
	var all apiv1.CancelledTasks
	for {
		part, err := api.CancelTasks(ctx, q, r)
		if err != nil && all.Cancelled > 0 {
			return all, fmt.Errorf("%s cancelled; the others: %w", plural(all.Cancelled, "task"), err)
		}
		if err != nil {
			return all, err
		}
		all.Cancelled, all.Failed, all.More = all.Cancelled+part.Cancelled, part.Failed, part.More
		if all.Sample == nil {
			all.Sample = part.Sample
		}
		if r.DryRun || !part.More || part.Cancelled == 0 {
			return all, nil
		}
		p.hint("%d cancelled; there are more", all.Cancelled)
	}
}

// cancelled prints what became of the tasks of a filter. The error is an exit code when some
// are left.
func (p *program) cancelled(all apiv1.CancelledTasks, dry bool) error {
	err := p.show(all, func() { p.printCancelled(all, dry) })
	if err == nil && !dry && (all.Failed > 0 || all.More) {
		err = cli.Exit(cli.ExitError)
	}
	return err
}

func (p *program) printCancelled(all apiv1.CancelledTasks, dry bool) {
	if dry {
		text := plural(all.Cancelled, "task")
		if all.More {
			text += " and more"
		}
		p.done("%s would be cancelled", text)
		list(p, all.Sample, columns{none: "No tasks.", names: []string{"task", "template", "version", "state", "created"}}, func(t apiv1.Task) []string {
			return []string{t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, stateText(t), at(&t.CreatedAt)}
		})
		return
	}
	p.done("%s cancelled!", plural(all.Cancelled, "task"))
	if all.Failed > 0 {
		p.warn("%s could not be cancelled: the log of the server says why", plural(all.Failed, "task"))
	}
	if all.More {
		p.warn("More tasks fit the filter and are not cancelled: none of the next part could be")
	}
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
