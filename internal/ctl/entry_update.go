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

// endings are the final statuses of an investigation.
var endings = []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryPermanentlyFailed, tasker.EntryCancelled}

// entryUpdateFlags contains the flags of dlq update.
type entryUpdateFlags struct {
	status              tasker.ResolutionStatus
	notes, by, metadata string
	unchanged           *time.Time
	compensate          bool
}

func (p *program) newEntryUpdateCommand() *cobra.Command {
	var f entryUpdateFlags
	var c *cobra.Command
	c = p.newCommand(help{
		use:   "update ENTRY|TASK",
		short: "Annotate or resolve an investigation",
		long: `Add a note to an investigation, or resolve it with --status and --notes.

The task does not change. permanently_failed also rejects all later repairs of the task; with
--compensate its completed steps are compensated and its unfinished steps cancelled. With
--if-unchanged-since the update fails if the investigation has changed meanwhile.`,
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
			p.printError(c.CommandPath(), err)
			p.printChanges(ctx, id, *u.ExpectedUpdatedAt)
			return cli.Exit(exitConflict)
		}
		if err != nil {
			return err
		}
		return p.show(e, func() { p.printUpdate(e, id != a.id[0]) })
	})
	c.Flags().VarP(cli.Choice(&f.status, endings), "status", "s", "resolve it as manually_resolved, permanently_failed or cancelled")
	c.Flags().BoolVar(&f.compensate, "compensate", false, "with permanently_failed: compensate the completed steps of the task")
	c.Flags().StringVarP(&f.notes, "notes", "n", "", "findings and actions (required with --status)")
	c.Flags().StringVarP(&f.by, "resolved-by", "b", "", "name recorded as the actor (default $TASKER_ACTOR, else your login name)")
	c.Flags().StringVar(&f.metadata, "metadata", "", "JSON object, @file or @-, merged into the stored metadata")
	c.Flags().Var(cli.Time(&f.unchanged), "if-unchanged-since", "fail if the investigation changed since this updated_at")
	return c
}

func (p *program) readUpdate(f entryUpdateFlags) (u apiv1.UpdateEntry, err error) {
	if f.status == "" && f.notes == "" && f.metadata == "" && f.by == "" {
		return u, cli.Usagef("nothing to update: set --status, --notes or --metadata")
	}
	if f.status != "" {
		if err := requireValue("notes", f.notes, "it records the findings"); err != nil {
			return u, err
		}
		u.ResolutionStatus = new(string(f.status))
	}
	if u.Compensate = f.compensate; u.Compensate && f.status != tasker.EntryPermanentlyFailed {
		return u, cli.Usagef("--compensate requires --status permanently_failed: to compensate a task and leave its investigation open, use task cancel --compensate")
	}
	if u.UpdatedBy, err = p.resolveActor(f.by); err != nil {
		return u, err
	}
	if u.Metadata, err = p.readJSONObject("metadata", f.metadata); err != nil {
		return u, err
	}
	if f.notes != "" {
		u.ResolutionNotes = &f.notes
	}
	if f.by != "" || f.status != "" {
		u.ResolvedBy = &u.UpdatedBy
	}
	u.ExpectedUpdatedAt = f.unchanged
	return u, nil
}

// updateEntry updates an investigation by its id, or the open investigation of a task by the id of
// the task. It returns the id of the investigation.
func (p *program) updateEntry(ctx context.Context, id tasker.ID, u apiv1.UpdateEntry) (e apiv1.UpdatedEntry, entry tasker.ID, err error) {
	api, err := p.newClient()
	if err != nil {
		return e, id, err
	}
	if e, err = api.UpdateEntry(ctx, id, u); tasker.CodeOf(err) != tasker.NotFound {
		return e, id, err
	}
	if entry, err = findOpenEntry(ctx, api, id); err == nil {
		e, err = api.UpdateEntry(ctx, entry, u)
	}
	return e, entry, err
}

// findOpenEntry returns the open investigation of a task.
func findOpenEntry(ctx context.Context, api *client.Client, task tasker.ID) (tasker.ID, error) {
	e, err := api.EntryOfTask(ctx, task)
	switch {
	case tasker.CodeOf(err) == tasker.NotFound:
		return tasker.ID{}, tasker.Errorf(tasker.NotFound, "investigation %s not found, and no task with this id has one", task)
	case err != nil:
		return tasker.ID{}, err
	case e.ResolutionStatus != string(tasker.EntryPending):
		return tasker.ID{}, tasker.Errorf(tasker.Conflict,
			"%s has no open investigation: its newest, %s, ended as %s", task, e.DLQEntryUUID, e.ResolutionStatus)
	default:
		return parseResponseID("dlq_entry_uuid", e.DLQEntryUUID)
	}
}

// printUpdate prints an investigation after an update. ofTask means that the command identified it
// by its task.
func (p *program) printUpdate(e apiv1.UpdatedEntry, ofTask bool) {
	p.printDone("DLQ investigation updated successfully")
	if ofTask {
		p.printFields("  ", field{"DLQ Entry UUID", e.DLQEntryUUID})
	}
	p.printFields("  ",
		field{"Resolution status", e.ResolutionStatus}, field{"Resolution notes", e.ResolutionNotes},
		field{"Resolved by", formatResolver(e.Entry)}, field{"Current task state", e.CurrentTaskState},
	)
	for _, w := range e.Warnings {
		p.warn("%s", clean(w))
	}
	if len(e.Warnings) > 0 && e.CurrentTaskState == string(tasker.TaskError) {
		p.printHint("tasker-ctl task reset-step %s %s --reason …", e.TaskUUID, orDefault(e.StepUUID, "STEP"))
	}
}

// printChanges prints the changes since a time to stderr, to explain why an update was rejected.
func (p *program) printChanges(ctx context.Context, id tasker.ID, since time.Time) {
	e, err := p.findEntry(ctx, id)
	if err != nil {
		return // optional: the rejection is already printed
	}
	for _, h := range e.History {
		if !h.ChangedAt.After(since) {
			continue
		}
		line := fmt.Sprintf("%s: %s by %s, %s", formatTime(&h.ChangedAt), h.Event, h.Actor, h.ToStatus)
		if text := truncate(formatNote(h), maxNote); text != "" {
			line += ": " + text
		}
		p.printHint("%s", line)
	}
}
