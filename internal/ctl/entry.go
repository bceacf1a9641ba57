package ctl

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tasker"
	"tasker/apiv1"
	"tasker/client"
)

func (p *program) entryCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "dlq",
		Short: "Work on investigations: tasks that need a human",
		Long: `Work on investigations: tasks that need a human.

An investigation records why a task is stuck and who looked into it. It moves no
task: repair the step with task reset-step, resolve-step or complete-step, and then
end the investigation with dlq update.`,
		Example: `  tasker-ctl dlq queue
  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged"`,
	})
	c.AddCommand(
		p.queueCommand(), p.entriesCommand(), p.entryGetCommand(), p.historyCommand(),
		p.entryUpdateCommand(), p.entryCreateCommand(), p.statsCommand(), p.stalenessCommand(),
	)
	return c
}

func (p *program) entriesCommand() *cobra.Command {
	var q client.EntryQuery
	var status, reason string
	var ids bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List investigations, newest first",
		Example: `  tasker-ctl dlq list --status pending
  tasker-ctl dlq list --reason max_retries_exceeded -o json | jq -r '.[].task_uuid'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Status, err = choice("status", status, tasker.ResolutionStatuses()); err != nil {
				return err
			}
			if q.Reason, err = choice("reason", reason, tasker.Reasons()); err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Entries(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listEntries(list, ids) })
		},
	}
	c.Flags().StringVarP(&status, "status", "s", "", "only those with this status")
	c.Flags().StringVar(&reason, "reason", "", "only those with this reason")
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids only")
	pageFlags(c, &q.Page, 50)
	oneOf(c, "status", tasker.ResolutionStatuses())
	oneOf(c, "reason", tasker.Reasons())
	return c
}

func (p *program) listEntries(list []apiv1.Entry, ids bool) {
	if !ids && len(list) == 0 {
		fmt.Fprintln(p.err, "No investigations.")
		return
	}
	var rows [][]string
	for _, e := range list {
		if ids {
			fmt.Fprintln(p.out, clean(e.DLQEntryUUID))
		}
		rows = append(rows, []string{
			e.DLQEntryUUID, e.TaskUUID, e.DLQReason, e.DetailCode, e.ResolutionStatus, e.CurrentTaskState, at(&e.DLQTimestamp),
		})
	}
	if !ids {
		p.table([]string{"entry", "task", "reason", "detail", "status", "task is", "opened"}, rows)
	}
}

func (p *program) queueCommand() *cobra.Command {
	var limit int
	var ids bool
	c := &cobra.Command{
		Use:   "queue",
		Short: "List what needs a human, the most urgent first",
		Example: `  tasker-ctl dlq queue --limit 10
  tasker-ctl dlq get $(tasker-ctl dlq queue --limit 1 --quiet)`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Queue(c.Context(), limit)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listQueue(list, ids) })
		},
	}
	c.Flags().IntVarP(&limit, "limit", "l", 100, "at most so many")
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids only")
	return c
}

func (p *program) listQueue(list []apiv1.QueueEntry, ids bool) {
	if !ids && len(list) == 0 {
		fmt.Fprintln(p.err, "Nothing needs a human.")
		return
	}
	var rows [][]string
	for _, q := range list {
		if ids {
			fmt.Fprintln(p.out, clean(q.DLQEntryUUID))
		}
		rows = append(rows, []string{
			q.DLQEntryUUID, q.TaskUUID, q.NamespaceName + "/" + q.TaskName, q.DLQReason, q.DetailCode,
			q.CurrentState, number(q.PriorityScore), minutes(q.MinutesInDLQ),
		})
	}
	if !ids {
		p.table([]string{"entry", "task", "template", "reason", "detail", "task is", "priority", "waiting"}, rows)
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

// minutes spells a span that is told in minutes.
func minutes(f float64) string {
	d := time.Duration(f * float64(time.Minute)).Round(time.Second)
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	return d.String()
}

func (p *program) entryGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ENTRY|TASK",
		Short: "Show an investigation with its evidence; of a task, the newest",
		Example: `  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq get $TASK -o json | jq .task_snapshot`,
		Args: named("ENTRY"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("ENTRY", args[0])
			if err != nil {
				return err
			}
			e, err := p.entry(c.Context(), id)
			if err != nil {
				return err
			}
			return p.show(e, func() { p.oneEntry(e) })
		},
	}
}

// entry returns the investigation with this id, or else the newest of the task
// with this id, in both cases with its history.
func (p *program) entry(ctx context.Context, id tasker.ID) (apiv1.Entry, error) {
	api, err := p.api()
	if err != nil {
		return apiv1.Entry{}, err
	}
	e, err := api.Entry(ctx, id)
	if tasker.CodeOf(err) != tasker.NotFound {
		return e, err
	}
	ofTask, otherwise := api.EntryOfTask(ctx, id)
	if tasker.CodeOf(otherwise) == tasker.NotFound {
		return e, tasker.Errorf(tasker.NotFound, "%s is no investigation, and no task that has one", id)
	}
	if otherwise != nil {
		return e, otherwise
	}
	newest, err := readID("dlq_entry_uuid", ofTask.DLQEntryUUID)
	if err != nil {
		return e, tasker.Errorf(tasker.Internal, "the server answered without the id of the investigation")
	}
	return api.Entry(ctx, newest) // only by its own id it comes with its history
}

func (p *program) oneEntry(e apiv1.Entry) {
	p.done("DLQ Entry Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID}, field{"Step UUID", or(e.StepUUID, "")},
		field{"Reason", e.DLQReason}, field{"Detail", e.DetailCode}, field{"Severity", e.Severity},
		field{"What it means", e.Label}, field{"What to do", e.Guidance}, field{"Detected by", e.DetectedBy},
		field{"Original state", e.OriginalState}, field{"Current task state", e.CurrentTaskState},
		field{"DLQ timestamp", at(&e.DLQTimestamp)}, field{"Resolution status", e.ResolutionStatus},
		field{"Resolution notes", or(e.ResolutionNotes, "")}, field{"Resolved at", at(e.ResolvedAt)},
		field{"Resolved by", or(e.ResolvedBy, "")}, field{"Recovered at", at(e.RecoveredAt)},
		field{"Predecessor", or(e.PredecessorUUID, "")}, field{"Metadata", compact(e.Metadata)},
	)
	if compact(e.TaskSnapshot) != "" {
		fmt.Fprintf(p.out, "\n  Task Snapshot:\n  %s\n", indented(e.TaskSnapshot, "  "))
	}
	if len(e.History) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	p.listHistory(e.History)
}

func (p *program) entryUpdateCommand() *cobra.Command {
	var status, notes, by, metadata, unchanged string
	c := &cobra.Command{
		Use:   "update ENTRY",
		Short: "Note what was found, or end an investigation",
		Long: `Note what was found, or end an investigation with --status and --notes.

It moves no task. permanently_failed also blocks every further repair of the task.
With --if-unchanged-since, what somebody else has changed meanwhile is not overwritten.`,
		Example: `  tasker-ctl dlq update $ENTRY --notes "looking at the pool"
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged" \
    --resolved-by "ops-team@example.com" --metadata '{"root_cause": "database_connection_timeout"}'

  SEEN=$(tasker-ctl dlq get $ENTRY -o json | jq -r .updated_at)
  tasker-ctl dlq update $ENTRY --notes "mine now" --if-unchanged-since $SEEN`,
		Args: named("ENTRY"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("ENTRY", args[0])
			if err != nil {
				return err
			}
			if status == "" && notes == "" && metadata == "" && by == "" {
				return usage{"nothing to update: give --status, --notes or --metadata"}
			}
			var u apiv1.UpdateEntry
			chosen, err := choice("status", status, endings())
			if err != nil {
				return err
			}
			if u.Metadata, err = p.object("metadata", metadata); err != nil {
				return err
			}
			if chosen != "" {
				u.ResolutionStatus = new(string(chosen))
				if by, err = p.actor("resolved-by", by); err != nil {
					return err
				}
			}
			if notes != "" {
				u.ResolutionNotes = &notes
			}
			if by != "" {
				u.ResolvedBy = &by
			}
			if unchanged != "" {
				since, err := time.Parse(time.RFC3339Nano, unchanged)
				if err != nil {
					return usage{"--if-unchanged-since must be a time as updated_at has it, such as 2026-01-31T12:00:00.123456Z"}
				}
				u.ExpectedUpdatedAt = &since
			}
			return p.updateEntry(c, id, u)
		},
	}
	c.Flags().StringVarP(&status, "status", "s", "", "end it as manually_resolved, permanently_failed or cancelled")
	c.Flags().StringVarP(&notes, "notes", "n", "", "what was found and done; needed to end it")
	c.Flags().StringVarP(&by, "resolved-by", "b", "", "who ended it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().StringVar(&metadata, "metadata", "", "for programs: a JSON object, @file or @-; merged over what is there")
	c.Flags().StringVar(&unchanged, "if-unchanged-since", "", "only if it was last updated at this time, as updated_at has it (-o json)")
	oneOf(c, "status", endings())
	return c
}

// endings are the statuses that end an investigation.
func endings() []tasker.ResolutionStatus {
	return []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryPermanentlyFailed, tasker.EntryCancelled}
}

func (p *program) updateEntry(c *cobra.Command, id tasker.ID, u apiv1.UpdateEntry) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	e, err := api.UpdateEntry(c.Context(), id, u)
	if tasker.CodeOf(err) == tasker.Conflict && u.ExpectedUpdatedAt != nil && p.output != "json" {
		p.complain(c.CommandPath(), err)
		p.sayChanges(c.Context(), id, *u.ExpectedUpdatedAt)
		return silent(exitConflict)
	}
	if err != nil {
		return err
	}
	return p.show(e, func() {
		p.done("DLQ investigation updated successfully")
		p.fields("  ",
			field{"Resolution status", e.ResolutionStatus}, field{"Resolution notes", or(e.ResolutionNotes, "")},
			field{"Resolved by", or(e.ResolvedBy, "")}, field{"Current task state", e.CurrentTaskState},
		)
		for _, w := range e.Warnings {
			p.warn("%s", clean(w))
		}
	})
}

func (p *program) entryCreateCommand() *cobra.Command {
	var reason, by, metadata string
	c := &cobra.Command{
		Use:     "create TASK --reason TEXT",
		Short:   "Open an investigation of a task by hand; the task goes on as it did",
		Example: `  tasker-ctl dlq create $TASK --reason "customer says the parcel never came" --created-by "support@example.com"`,
		Args:    named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			task, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			if err := need("reason", reason, "it tells the investigator what to look for"); err != nil {
				return err
			}
			o := apiv1.OpenEntry{Reason: reason}
			if o.CreatedBy, err = p.actor("created-by", by); err != nil {
				return err
			}
			if o.Metadata, err = p.object("metadata", metadata); err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			e, err := api.OpenEntry(c.Context(), task, o)
			if err != nil {
				return err
			}
			return p.show(e, func() {
				p.done("Investigation opened!")
				p.fields("  ",
					field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID},
					field{"Reason", reason}, field{"Created by", o.CreatedBy},
				)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why a person should look at it (needed)")
	c.Flags().StringVar(&by, "created-by", "", "who opens it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().StringVar(&metadata, "metadata", "", "for programs: a JSON object, @file or @-")
	return c
}
