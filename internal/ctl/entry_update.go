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

// endings are the statuses that end an investigation.
var endings = []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryPermanentlyFailed, tasker.EntryCancelled}

// An entryUpdate is what the flags of dlq update say.
type entryUpdate struct {
	status                         tasker.ResolutionStatus
	notes, by, metadata, unchanged string
	compensate                     bool
}

func (p *program) entryUpdateCommand() *cobra.Command {
	var f entryUpdate
	var c *cobra.Command
	c = p.command(help{
		use:   "update ENTRY|TASK",
		short: "Annotate or resolve an investigation",
		long: `Add a note to an investigation, or end it with --status and --notes.

It changes no task. permanently_failed also blocks every further repair of the task;
with --compensate what the task has done is undone, and what is open of it cancelled.
With --if-unchanged-since, a change by somebody else meanwhile is not overwritten.`,
		example: `  tasker-ctl dlq update $ENTRY --notes "looking at the pool"
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged" \
    --resolved-by "ops-team@example.com" --metadata '{"root_cause": "database_connection_timeout"}'

  SEEN=$(tasker-ctl dlq get $ENTRY -o json | jq -r .updated_at)
  tasker-ctl dlq update $ENTRY --notes "mine now" --if-unchanged-since $SEEN`,
	}, func(ctx context.Context, a arguments) error {
		u, err := p.readUpdate(f)
		if err != nil {
			return err
		}
		e, id, err := p.updateEntry(ctx, a.id[0], u)
		if tasker.CodeOf(err) == tasker.Conflict && u.ExpectedUpdatedAt != nil && p.output != "json" {
			p.complain(c.CommandPath(), err)
			p.printChanges(ctx, id, *u.ExpectedUpdatedAt)
			return cli.Exit(exitConflict)
		}
		if err != nil {
			return err
		}
		return p.show(e, func() { p.printUpdate(e, id != a.id[0]) })
	})
	c.Flags().VarP(cli.Choice(&f.status, endings), "status", "s", "end it as manually_resolved, permanently_failed or cancelled")
	c.Flags().BoolVar(&f.compensate, "compensate", false, "with permanently_failed: undo what the completed steps of the task have done")
	c.Flags().StringVarP(&f.notes, "notes", "n", "", "what was found and done; needed to end it")
	c.Flags().StringVarP(&f.by, "resolved-by", "b", "", "who does it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().StringVar(&f.metadata, "metadata", "", "for programs: a JSON object, @file or @-; merged over what is there")
	c.Flags().StringVar(&f.unchanged, "if-unchanged-since", "", "only if it was last updated at this time, as updated_at has it (-o json)")
	return c
}

// readUpdate checks the flags and returns the request.
func (p *program) readUpdate(f entryUpdate) (u apiv1.UpdateEntry, err error) {
	if f.status == "" && f.notes == "" && f.metadata == "" && f.by == "" {
		return u, cli.Usagef("nothing to update: give --status, --notes or --metadata")
	}
	if f.status != "" {
		if err := need("notes", f.notes, "an investigation ends with what was found"); err != nil {
			return u, err
		}
		u.ResolutionStatus = new(string(f.status))
	}
	if u.Compensate = f.compensate; u.Compensate && f.status != tasker.EntryPermanentlyFailed {
		return u, cli.Usagef("--compensate is for --status permanently_failed: to undo a task and leave its investigation open, use task cancel --compensate")
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
	if f.by != "" || f.status != "" {
		u.ResolvedBy = &u.UpdatedBy
	}
	if f.unchanged != "" {
		since, err := time.Parse(time.RFC3339Nano, f.unchanged)
		if err != nil {
			return u, cli.Usagef("--if-unchanged-since must be a time as updated_at has it, such as 2026-01-31T12:00:00.123456Z, not %q", f.unchanged)
		}
		u.ExpectedUpdatedAt = &since
	}
	return u, nil
}

// updateEntry updates the investigation with this id, or else the open one of the
// task with this id, and returns the id of the investigation.
func (p *program) updateEntry(ctx context.Context, id tasker.ID, u apiv1.UpdateEntry) (e apiv1.UpdatedEntry, entry tasker.ID, err error) {
	api, err := p.api()
	if err != nil {
		return e, id, err
	}
	if e, err = api.UpdateEntry(ctx, id, u); tasker.CodeOf(err) != tasker.NotFound {
		return e, id, err
	}
	if entry, err = openEntryOf(ctx, api, id); err == nil {
		e, err = api.UpdateEntry(ctx, entry, u)
	}
	return e, entry, err
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
	default:
		return answeredID("dlq_entry_uuid", e.DLQEntryUUID)
	}
}

// printUpdate prints an investigation after an update. ofTask says that the command
// named its task.
func (p *program) printUpdate(e apiv1.UpdatedEntry, ofTask bool) {
	p.done("DLQ investigation updated successfully")
	if ofTask {
		p.fields("  ", field{"DLQ Entry UUID", e.DLQEntryUUID})
	}
	p.fields("  ",
		field{"Resolution status", e.ResolutionStatus}, field{"Resolution notes", or(e.ResolutionNotes, "")},
		field{"Resolved by", resolver(e.Entry)}, field{"Current task state", e.CurrentTaskState},
	)
	for _, w := range e.Warnings {
		p.warn("%s", clean(w))
	}
	if len(e.Warnings) > 0 && e.CurrentTaskState == string(tasker.TaskError) {
		p.hint("tasker-ctl task reset-step %s %s --reason …", e.TaskUUID, or(e.StepUUID, "STEP"))
	}
}

// printChanges prints on stderr the changes of an investigation after an instant,
// which explain why an update was refused.
func (p *program) printChanges(ctx context.Context, id tasker.ID, since time.Time) {
	e, err := p.entry(ctx, id)
	if err != nil {
		return // the refusal has been printed; this only explains it
	}
	for _, h := range e.History {
		if !h.ChangedAt.After(since) {
			continue
		}
		line := fmt.Sprintf("%s: %s by %s, %s", at(&h.ChangedAt), h.Event, h.Actor, h.ToStatus)
		if text := short(note(h), maxNote); text != "" {
			line += ": " + text
		}
		p.hint("%s", line)
	}
}
