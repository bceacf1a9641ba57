package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newScheduleFiringsCommand() *cobra.Command {
	var q tasker.FiringFilter

	c := newRequestCommand(p, help{
		use:   "firings SCHEDULE",
		short: "List firings, newest first",
		example: `  tasker-ctl schedule firings $SCHEDULE
  tasker-ctl schedule firings $SCHEDULE --outcome missed`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.FiringList, error) {

		return api.Firings(ctx, a.id[0], q)
	}, func(l apiv1.FiringList) {
		p.printFirings(l.Firings)
		if next := l.Pagination.NextBefore; next != nil {
			fmt.Fprintf(p.err, "There are more: --before %s --before-kind %s shows the next.\n", next.UTC().Format(time.RFC3339Nano), clean(orDefault(l.Pagination.NextKind, "")))
		}
	})
	p.addQueryFlags(c, &q, 50)
	return c
}

func (p *program) newSchedulePauseCommand() *cobra.Command {
	var b apiv1.PauseSchedule

	c := newRequestCommand(p, help{
		use:   "pause SCHEDULE --reason TEXT",
		short: "Pause a schedule",
		example: `  tasker-ctl schedule pause $SCHEDULE --reason "the ledger is closed"
  tasker-ctl schedule pause $SCHEDULE --until 2026-01-31T07:30:00Z --reason "audit"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Schedule, error) {
		return api.PauseSchedule(ctx, a.id[0], b)
	}, p.printSchedule)
	c.Flags().Var(cli.Time(&b.Until), "until", "time at which it resumes, such as 2026-01-31T07:30:00Z (default: until resumed)")
	addReasonFlag(c, &b.Reason, "")
	p.addActorFlag(c, &b.By, "by")
	return c
}

// newScheduleActionCommand returns a command that changes a schedule.
func newScheduleActionCommand[T any](
	p *program, h help, act func(*client.Client, context.Context, tasker.ID, apiv1.ChangeSchedule) (T, error), asText func(T),
) *cobra.Command {
	var b apiv1.ChangeSchedule
	c := newRequestCommand(p, h, func(ctx context.Context, api *client.Client, a arguments) (T, error) {
		return act(api, ctx, a.id[0], b)
	}, asText)
	addOptionalReasonFlag(c, &b.Reason)
	p.addActorFlag(c, &b.By, "by")
	return c
}

func (p *program) newScheduleResumeCommand() *cobra.Command {
	return newScheduleActionCommand(p, help{
		use: "resume SCHEDULE", short: "Resume a schedule",
		example: `  tasker-ctl schedule resume $SCHEDULE --reason "the ledger is open again"`,
	}, (*client.Client).ResumeSchedule, p.printSchedule)
}

func (p *program) newScheduleTriggerCommand() *cobra.Command {
	return newScheduleActionCommand(p, help{
		use: "trigger SCHEDULE", short: "Run a schedule now",
		example: `  tasker-ctl schedule trigger $SCHEDULE --reason "the file came late"`,
	}, (*client.Client).TriggerSchedule, func(f apiv1.Firing) {
		p.printDone("Task %s was created",
			clean(orDefault(f.TaskUUID, "")))
	})
}

func (p *program) newScheduleDeleteCommand() *cobra.Command {
	return newScheduleActionCommand(p, help{
		use: "delete SCHEDULE", short: "Delete a schedule but not its tasks",
		example: `  tasker-ctl schedule delete $SCHEDULE --reason "the report is not used"`,
	}, (*client.Client).DeleteSchedule, p.printSchedule)
}

func (p *program) newScheduleBackfillCommand() *cobra.Command {
	var b apiv1.BackfillSchedule

	c := newRequestCommand(p, help{
		use:   "backfill SCHEDULE --from TIME --to TIME",
		short: "Create tasks for past firing times",
		long: `Create tasks for past firing times that have none, all at once, at most 500. A firing time
never gets a second task, so the command can be repeated.`,
		example: `  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --dry-run
  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --reason "the export was broken"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Backfill, error) {
		return api.BackfillSchedule(ctx, a.id[0], b)
	}, func(r apiv1.Backfill) {
		printList(p, r.Instants, "No firing times.", "instant, task, what?", func(x apiv1.BackfillInstant) []any {
			what := "created"
			if !x.Starts {
				what = orDefault(x.Reason, "")
			} else if r.DryRun {
				what = "would be created"
			}
			return []any{x.NominalAt, orDash(x.TaskUUID), what}
		})
	})
	f := c.Flags()
	f.Var(cli.Time(&b.From), "from", "first firing time (required)")
	f.Var(cli.Time(&b.To), "to", "last firing time (required)")
	markRequired(c, "from", "it is the first firing time, such as 2026-01-31T07:30:00Z")
	markRequired(c, "to", "it is the last firing time, such as 2026-01-31T07:30:00Z")
	f.BoolVar(&b.DryRun, "dry-run", false, "show the effect without changing anything")
	addOptionalReasonFlag(c, &b.Reason)
	p.addActorFlag(c, &b.By, "by")
	return c
}
