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

func (p *program) scheduleFiringsCommand() *cobra.Command {
	var q client.FiringQuery
	var before string
	c := answer(p, help{
		use:   "firings SCHEDULE",
		short: "List firings, newest first",
		example: `  tasker-ctl schedule firings $SCHEDULE
  tasker-ctl schedule firings $SCHEDULE --outcome missed`,
	}, func(ctx context.Context, api *client.Client, a arguments) (l apiv1.FiringList, err error) {
		if before != "" {
			t, err := time.Parse(time.RFC3339Nano, before)
			if err != nil {
				return l, cli.Usagef("--before must be an instant such as 2026-01-31T07:30:00Z, not %q", before)
			}
			q.Before = &t
		}
		return api.Firings(ctx, a.id[0], q)
	}, func(l apiv1.FiringList) {
		p.printFirings(l.Firings)
		if next := l.Pagination.NextBefore; next != nil {
			fmt.Fprintf(p.err, "There are more: --before %s --before-kind %s shows the next.\n", next.UTC().Format(time.RFC3339Nano), clean(or(l.Pagination.NextKind, "")))
		}
	})
	f := c.Flags()
	f.StringVar(&q.Outcome, "outcome", "", "only those with this outcome: started, queued, skipped, merged, missed or refused")
	f.StringVar(&before, "before", "", "only those behind this instant")
	f.StringVar(&q.BeforeKind, "before-kind", "", "with --before: the kind of the last firing before")
	limitFlag(c, &q.Limit, 50)
	return c
}

func (p *program) schedulePauseCommand() *cobra.Command {
	var b apiv1.PauseSchedule
	var until string
	c := answer(p, help{
		use:   "pause SCHEDULE --reason TEXT",
		short: "Pause a schedule",
		example: `  tasker-ctl schedule pause $SCHEDULE --reason "the ledger is closed"
  tasker-ctl schedule pause $SCHEDULE --until 2026-01-31T07:30:00Z --reason "audit"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (s apiv1.Schedule, err error) {
		if err := need("reason", b.Reason, "it is shown while the schedule is paused"); err != nil {
			return s, err
		}
		if until != "" {
			t, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return s, cli.Usagef("--until must be an instant such as 2026-01-31T07:30:00Z, not %q", until)
			}
			b.Until = &t
		}
		if b.By, err = p.actor("by", b.By); err != nil {
			return s, err
		}
		return api.PauseSchedule(ctx, a.id[0], b)
	}, p.printSchedule)
	c.Flags().StringVar(&until, "until", "", "when it goes on by itself, such as 2026-01-31T07:30:00Z (default: when it is resumed)")
	c.Flags().StringVar(&b.Reason, "reason", "", "why (needed)")
	actorFlag(c, &b.By, "by")
	return c
}

// scheduleAct is a command that acts on a schedule.
func scheduleAct[T any](p *program, h help, act func(context.Context, *client.Client, tasker.ID, apiv1.ChangeSchedule) (T, error), asText func(T)) *cobra.Command {
	var b apiv1.ChangeSchedule
	c := answer(p, h, func(ctx context.Context, api *client.Client, a arguments) (v T, err error) {
		if b.By, err = p.actor("by", b.By); err != nil {
			return v, err
		}
		return act(ctx, api, a.id[0], b)
	}, asText)
	c.Flags().StringVar(&b.Reason, "reason", "", "why, for its history")
	actorFlag(c, &b.By, "by")
	return c
}

func (p *program) scheduleResumeCommand() *cobra.Command {
	return scheduleAct(p, help{
		use: "resume SCHEDULE", short: "Resume a schedule",
		example: `  tasker-ctl schedule resume $SCHEDULE --reason "the ledger is open again"`,
	}, func(ctx context.Context, api *client.Client, id tasker.ID, b apiv1.ChangeSchedule) (apiv1.Schedule, error) {
		return api.ResumeSchedule(ctx, id, b)
	}, p.printSchedule)
}

func (p *program) scheduleTriggerCommand() *cobra.Command {
	return scheduleAct(p, help{
		use: "trigger SCHEDULE", short: "Run a schedule now",
		example: `  tasker-ctl schedule trigger $SCHEDULE --reason "the file came late"`,
	}, func(ctx context.Context, api *client.Client, id tasker.ID, b apiv1.ChangeSchedule) (apiv1.Firing, error) {
		return api.TriggerSchedule(ctx, id, b)
	}, func(f apiv1.Firing) { p.done("Task %s was created", clean(or(f.TaskUUID, ""))) })
}

func (p *program) scheduleDeleteCommand() *cobra.Command {
	return scheduleAct(p, help{
		use: "delete SCHEDULE", short: "Delete a schedule but not its tasks",
		example: `  tasker-ctl schedule delete $SCHEDULE --reason "nobody reads the report"`,
	}, func(ctx context.Context, api *client.Client, id tasker.ID, b apiv1.ChangeSchedule) (apiv1.Schedule, error) {
		return api.DeleteSchedule(ctx, id, b)
	}, p.printSchedule)
}

func (p *program) scheduleBackfillCommand() *cobra.Command {
	var b apiv1.BackfillSchedule
	var from, to string
	c := answer(p, help{
		use:   "backfill SCHEDULE --from INSTANT --to INSTANT",
		short: "Create tasks for past firing times",
		long: `Make the tasks of instants in the past that have none, all at once, at most 500. An instant
that has its task gets no other, so repeating is safe. --dry-run only says what would be done.`,
		example: `  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --dry-run
  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --reason "the export was broken"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (r apiv1.Backfill, err error) {
		for _, at := range []struct {
			flag, text string
			into       *time.Time
		}{{"from", from, &b.From}, {"to", to, &b.To}} {
			if *at.into, err = time.Parse(time.RFC3339, at.text); err != nil {
				return r, cli.Usagef("--%s must be an instant such as 2026-01-31T07:30:00Z, not %q", at.flag, at.text)
			}
		}
		if b.By, err = p.actor("by", b.By); err != nil {
			return r, err
		}
		return api.BackfillSchedule(ctx, a.id[0], b)
	}, func(r apiv1.Backfill) {
		list(p, r.Instants, columns{none: "No instants.", names: []string{"instant", "task", "what"}, spare: "what"}, func(x apiv1.BackfillInstant) []string {
			what := "a task is made"
			if !x.Starts {
				what = or(x.Reason, "")
			} else if r.DryRun {
				what = "a task would be made"
			}
			return []string{at(&x.NominalAt), orDash(or(x.TaskUUID, "")), what}
		})
	})
	f := c.Flags()
	f.StringVar(&from, "from", "", "the first instant (needed)")
	f.StringVar(&to, "to", "", "the last instant (needed)")
	f.BoolVar(&b.DryRun, "dry-run", false, "only say what would be done")
	f.StringVar(&b.Reason, "reason", "", "why, for its history")
	actorFlag(c, &b.By, "by")
	return c
}
