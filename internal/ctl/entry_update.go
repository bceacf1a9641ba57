package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

// A finding is what the flags of dlq update say.
type finding struct{ status, notes, by, metadata, unchanged string }

func (p *program) entryUpdateCommand() *cobra.Command {
	var f finding
	c := &cobra.Command{
		Use:   "update ENTRY|TASK",
		Short: "Note what was found, or end an investigation; of a task, the open one",
		Long: `Note what was found, or end an investigation with --status and --notes.

It moves no task. permanently_failed also blocks every further repair of the task.
With --if-unchanged-since, what somebody else has changed meanwhile is not overwritten.`,
		Example: `  tasker-ctl dlq update $ENTRY --notes "looking at the pool"
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged" \
    --resolved-by "ops-team@example.com" --metadata '{"root_cause": "database_connection_timeout"}'

  SEEN=$(tasker-ctl dlq get $ENTRY -o json | jq -r .updated_at)
  tasker-ctl dlq update $ENTRY --notes "mine now" --if-unchanged-since $SEEN`,
		Args: named("ENTRY|TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("ENTRY|TASK", args[0])
			if err != nil {
				return err
			}
			u, err := p.readFinding(f)
			if err != nil {
				return err
			}
			return p.updateEntry(c, id, u)
		},
	}
	c.Flags().StringVarP(&f.status, "status", "s", "", "end it as manually_resolved, permanently_failed or cancelled")
	c.Flags().StringVarP(&f.notes, "notes", "n", "", "what was found and done; needed to end it")
	c.Flags().StringVarP(&f.by, "resolved-by", "b", "", "who does it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().StringVar(&f.metadata, "metadata", "", "for programs: a JSON object, @file or @-; merged over what is there")
	c.Flags().StringVar(&f.unchanged, "if-unchanged-since", "", "only if it was last updated at this time, as updated_at has it (-o json)")
	oneOf(c, "status", endings())
	return c
}

// readFinding checks what the flags say.
func (p *program) readFinding(f finding) (u apiv1.UpdateEntry, err error) {
	if f.status == "" && f.notes == "" && f.metadata == "" && f.by == "" {
		return u, usage{"nothing to update: give --status, --notes or --metadata"}
	}
	status, err := choice("status", f.status, endings())
	if err != nil {
		return u, err
	}
	if status != "" {
		if err := need("notes", f.notes, "who ends an investigation says what was found"); err != nil {
			return u, err
		}
		u.ResolutionStatus = new(string(status))
	}
	if u.UpdatedBy, err = p.actor("resolved-by", f.by); err != nil {
		return u, err
	}
	if u.Metadata, err = p.object("metadata", f.metadata); err != nil {
		return u, err
	}
	if f.notes != "" {
		u.ResolutionNotes = &f.notes
	}
	if f.by != "" || status != "" {
		u.ResolvedBy = &u.UpdatedBy
	}
	if f.unchanged != "" {
		since, err := time.Parse(time.RFC3339Nano, f.unchanged)
		if err != nil {
			return u, usage{"--if-unchanged-since must be a time as updated_at has it, such as 2026-01-31T12:00:00.123456Z"}
		}
		u.ExpectedUpdatedAt = &since
	}
	return u, nil
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
	var instead string // the investigation of the task that was named
	if tasker.CodeOf(err) == tasker.NotFound {
		if id, err = openEntryOf(c.Context(), api, id); err == nil {
			instead = id.String()
			e, err = api.UpdateEntry(c.Context(), id, u)
		}
	}
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
			field{"DLQ Entry UUID", instead},
			field{"Resolution status", e.ResolutionStatus}, field{"Resolution notes", or(e.ResolutionNotes, "")},
			field{"Resolved by", resolver(e.Entry)}, field{"Current task state", e.CurrentTaskState},
		)
		for _, w := range e.Warnings {
			p.warn("%s", clean(w))
		}
		if len(e.Warnings) > 0 && e.CurrentTaskState == string(tasker.TaskError) {
			fmt.Fprintf(p.err, "  tasker-ctl task reset-step %s %s --reason …\n", clean(e.TaskUUID), clean(or(e.StepUUID, "STEP")))
		}
	})
}

// openEntryOf returns the open investigation of a task.
func openEntryOf(ctx context.Context, api *client.Client, task tasker.ID) (tasker.ID, error) {
	e, err := api.EntryOfTask(ctx, task)
	switch {
	case tasker.CodeOf(err) == tasker.NotFound:
		return tasker.ID{}, tasker.Errorf(tasker.NotFound, "%s is no investigation, and no task that has one", task)
	case err != nil:
		return tasker.ID{}, err
	case e.ResolutionStatus != string(tasker.EntryPending):
		return tasker.ID{}, tasker.Errorf(tasker.Conflict,
			"%s is a task without an open investigation; its newest, %s, ended as %s", task, e.DLQEntryUUID, e.ResolutionStatus)
	}
	id, err := readID("dlq_entry_uuid", e.DLQEntryUUID)
	if err != nil {
		return id, tasker.Errorf(tasker.Internal, "the server answered without the id of the investigation")
	}
	return id, nil
}
