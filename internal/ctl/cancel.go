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

func (p *program) newCancelCommand() *cobra.Command {
	var reason, by string
	var compensate bool
	c := newRequestCommand(p, help{
		use:   "cancel TASK",
		short: "Cancel a task",
		long: `Cancel a task and its unfinished steps.

With --compensate, completed steps are compensated first, in reverse order, by the handlers
that the template declares (on_failure). To stop that, cancel again without --compensate.`,
		example: `  tasker-ctl task cancel $TASK --reason "customer withdrew the order" --cancelled-by "ops-team@example.com"
  tasker-ctl task cancel $TASK --compensate --reason "customer withdrew the order"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Task, error) {
		if compensate {
			return api.CompensateTask(ctx, a.id[0], reason, by)
		}
		return api.CancelTask(ctx, a.id[0], reason, by)
	}, func(t apiv1.Task) {
		if orDefault(t.Phase, "") == string(tasker.Compensating) {
			p.printDone("Task is being compensated!")
		} else {
			p.printDone("Task cancelled!")
		}
		p.printFields("  ", field{"New state", t.Status}, field{"Compensation", formatUndo(t)}, field{"Reason", reason}, field{"Cancelled by", by})
	})
	c.Flags().BoolVar(&compensate, "compensate", false, "compensate completed steps before cancelling")
	c.Flags().StringVar(&reason, "reason", "cancelled with tasker-ctl", "reason, shown in the history")
	p.addActorFlag(c, &by, "cancelled-by")
	return c
}

func (p *program) newCancelAllCommand() *cobra.Command {
	var q apiv1.TaskSelection
	var r apiv1.CancelTasks
	c := p.newCommand(help{
		use:   "cancel-all --namespace NAMESPACE --reason TEXT",
		short: "Cancel all matching tasks",
		long: `Cancel the open tasks that match a filter, in batches of one transaction each. Filters with
only a status and times are rejected. Tasks that are being compensated do not change. With
--dry-run the first matching tasks are shown. The command can be interrupted and repeated.
The exit code is 1 if matching tasks remain.

With --compensate, completed steps are compensated before the tasks are cancelled.`,
		example: `  tasker-ctl task cancel-all --namespace orders --name fulfil --tag campaign-7 --dry-run
  tasker-ctl task cancel-all --namespace orders --attribute customer:4711 --reason "the customer has left"`,
	}, func(ctx context.Context, _ arguments) error {
		api := p.client
		all, err := p.cancelAll(ctx, api, q.TaskFilter, r)
		if err != nil {
			return err
		}
		return p.showCancelled(all, r.DryRun)
	})
	p.addQueryFlags(c, &q, 0)
	c.Flags().BoolVar(&r.Compensate, "compensate", false, "compensate completed steps before cancelling")
	addDryRunFlags(c, &r.DryRun, &r.Reason)
	p.addActorFlag(c, &r.By, "by")
	return c
}

// cancelAll requests batches until one cancels no task. The next batch contains tasks again that
// could not be cancelled.
func (p *program) cancelAll(ctx context.Context, api *client.Client, f tasker.TaskFilter, r apiv1.CancelTasks) (apiv1.CancelledTasks, error) {
	var all apiv1.CancelledTasks
	for {
		part, err := api.CancelTasks(ctx, f, r)
		if err != nil && all.Cancelled > 0 {
			return all, fmt.Errorf("stopped after cancelling %s: %w", formatPlural(all.Cancelled, "task"), err)
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
		p.printHint("%d cancelled so far", all.Cancelled)
	}
}

// showCancelled prints the result. If matching tasks remain, it returns an error with an exit code.
func (p *program) showCancelled(all apiv1.CancelledTasks, dry bool) error {
	err := p.show(all, func() { p.printCancelled(all, dry) })
	if err == nil && !dry && (all.Failed > 0 || all.More) {
		err = cli.Exit(cli.ExitError)
	}
	return err
}

func (p *program) printCancelled(all apiv1.CancelledTasks, dry bool) {
	if dry {
		text := formatPlural(all.Cancelled, "task")
		if all.More {
			text += " and more"
		}
		p.printDone("%s would be cancelled", text)
		printList(p, all.Sample, "No tasks.", "task, template, version, state, created", func(t apiv1.Task) []any {
			return []any{t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, formatState(t), t.CreatedAt}
		})
		return
	}
	p.printDone("%s cancelled!", formatPlural(all.Cancelled, "task"))
	if all.Failed > 0 {
		p.warn("%s could not be cancelled: see the log of the server", formatPlural(all.Failed, "task"))
	}
	if all.More {
		p.warn("More tasks match the filter, but no task of the next batch could be cancelled")
	}
}

// formatUndo describes the compensation of a task, or returns "" if none was requested.
func formatUndo(t apiv1.Task) string {
	switch tasker.TaskOutcome(orDefault(t.Outcome, "")) {
	case tasker.Compensated:
		return "completed"
	case tasker.CompensationStopped:
		return "stopped before the end"
	case tasker.NothingToCompensate:
		return "no step to compensate"
	}
	if orDefault(t.Phase, "") == "" {
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
	return fmt.Sprintf("%d of %d steps compensated", done, all)
}
