package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

var entryCommand = group(help{
	use: "dlq", short: "Manage investigations (DLQ entries)",
	long: `Manage investigations: tasks that need an operator.

An investigation records why a task is stuck and what was done about it. It does not change the
task: repair the step with task reset-step, resolve-step or complete-step, then resolve the
investigation with dlq update.`,
	example: `  tasker-ctl dlq queue
  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged"`,
},
	plain(endpoint.GetQueue, help{
		use: "queue", short: "List open investigations, most urgent first", limit: 100, quiet: true,
		example: `  tasker-ctl dlq queue --limit 10
  tasker-ctl dlq queue --recovered --state complete --quiet
  tasker-ctl dlq get $(tasker-ctl dlq queue --limit 1 --quiet)`,
	}, func(p *program, l []tasker.InvestigationQueueEntry) {
		p.printInvestigations(l)
		p.hintMorePages(len(l))
	}),
	casesCommand("cases", "dlq"),
	(*program).newRelatedCommand, (*program).newCountsCommand, (*program).newTimesCommand,
	list(endpoint.ListEntries, help{
		use: "list", short: "List investigations, newest first", limit: 50, quiet: true,
		example: `  tasker-ctl dlq list --status pending
  tasker-ctl dlq list --reason max_retries_exceeded -o json | jq -r '.[].task_uuid'`,
	}, "No investigations.", "entry, task?, reason, detail, status, task is, opened", func(e tasker.Entry) []any {
		return []any{
			e.UUID, e.TaskUUID, e.Reason, e.DetailCode, e.ResolutionStatus, e.CurrentTaskState, e.At,
		}
	}),
	(*program).newEntryGetCommand, (*program).newExportCommand, (*program).newHistoryCommand,
	(*program).newEntryUpdateCommand, (*program).newEntryCreateCommand,
	plain(endpoint.GetEntryStats, help{
		use: "stats", short: "Count investigations by reason",
		example: `  tasker-ctl dlq stats
  tasker-ctl dlq stats -o json | jq '[.[].pending] | add'`,
	}, (*program).printStats),
	list(endpoint.GetStaleness, help{
		use: "staleness", short: "List tasks by staleness, worst first", limit: 100,
		example: `  tasker-ctl dlq staleness
  tasker-ctl dlq staleness --health-status warning --namespace payments
  tasker-ctl dlq staleness --health-status warning --limit 1000 -o json | jq length`,
	}, "No matching task has a staleness threshold.", "health, task, template, state, in state, threshold, priority", formatStaleTask),
	(*program).newFollowCommand, (*program).newEmissionsCommand, (*program).newReEmitCommand,
	plain(endpoint.GetEmission, help{
		use: "emission EVENT", short: "Show an event and its deliveries",
		example: `  tasker-ctl dlq emission $EVENT
  tasker-ctl dlq emission $EVENT -o json | jq .data`,
	}, (*program).printEvent),
	plain(endpoint.ListSinks, help{
		use: "sinks", short: "List sinks and their delivery status",
		example: `  tasker-ctl dlq sinks
  tasker-ctl dlq sinks -o json | jq -r '.[] | select(.status == "failing") | .last_error'`,
	}, (*program).printSinks),
)

func formatStaleTask(s tasker.StaleTask) []any {
	return []any{
		s.Health, s.TaskUUID, s.Namespace + "/" + s.TaskName, s.State,
		formatMinutes(s.TimeInStateMinutes), formatMinutes(s.ThresholdMinutes), s.Priority,
	}
}

func (p *program) printStats(l []tasker.EntryStats) {
	header := "reason, total, pending, resolved, permanent, cancelled, oldest, newest, average"
	printList(p, l, "No investigations.", header, func(s tasker.EntryStats) []any {
		average := "-"
		if s.AvgResolutionTimeMinutes != nil {
			average = formatMinutes(*s.AvgResolutionTimeMinutes)
		}
		return []any{
			s.Reason, s.Total, s.Pending, s.ManuallyResolved, s.PermanentFailures, s.Cancelled, s.Oldest, s.Newest, average,
		}
	})
}

func (p *program) newRelatedCommand() *cobra.Command {
	r := newRequest(endpoint.GetRelatedEntries)
	r.prepare = func(ctx context.Context, a arguments) (err error) {
		a.id[0], err = p.findEntryID(ctx, a.id[0])
		return err
	}
	c := r.command(p, help{
		use: "related ENTRY|TASK", short: "List earlier investigations of the same case", without: []string{"limit"},
	}, func(r tasker.RelatedEntries) {
		more := ""
		if r.More {
			more = " or more"
		}
		p.printFields("", field{"Case", orDash(r.Case.String())}, field{"Other open investigations", formatInt(r.Open) + more})
		p.printFields("", formatEnded(r.Counts)...)
		header := "entry, status, ended, by, open for?, notes"
		printList(p, r.Last, "No investigation of this case has ended.", header, func(e tasker.EndedEntry) []any {
			return []any{
				e.EntryUUID, e.Status, e.At, e.By, formatMinutes(e.MinutesOpen), e.Notes,
			}
		})
	})
	r.query.Limit = 10
	c.Flags().VarP(cli.Number(&r.query.Limit, 1, 100), "limit", "l", "maximum number of ended investigations to list, at most 100")
	return c
}

// formatEnded formats the numbers of ended investigations by status. The server counts only the
// newest [tasker.MaxRelated].
func formatEnded(ended map[tasker.ResolutionStatus]int64) (fields []field) {
	total := int64(0)
	for _, n := range ended {
		total += n
	}
	for _, status := range tasker.ResolutionStatuses() {
		n := ended[status]
		if n == 0 {
			continue
		}
		value := formatInt(n)
		if total >= tasker.MaxRelated {
			value += " of the newest " + formatInt(total)
		}
		fields = append(fields, field{"Ended as " + string(status), value})
	}
	return fields
}

func (p *program) newCountsCommand() *cobra.Command {
	r := newRequest(endpoint.GetEntryCounts)
	r.query = apiv1.EntryCountQuery{Interval: time.Hour, Intervals: 24}
	c := r.command(p, help{
		use: "counts", short: "Count investigations over time", without: []string{"interval_minutes"},
		example: `  tasker-ctl dlq counts --interval 5m --intervals 12`,
	}, func(l []tasker.EntryCount) {
		printList(p, l, "No intervals.", "from, opened, ended, proved, open", func(n tasker.EntryCount) []any {
			open := "-"
			if n.Open != nil {
				open = formatInt(*n.Open)
			}
			return []any{n.From, n.Opened, n.Ended, n.Proved, open}
		})
	})
	c.Flags().Var(cli.Minutes(&r.query.Interval, time.Minute), "interval", "length of an interval, in whole minutes")
	return c
}

func (p *program) newTimesCommand() *cobra.Command {
	r := newRequest(endpoint.GetEntryTimes)
	r.query.Window = 24 * time.Hour
	c := r.command(p, help{
		use: "times", short: "Show time to acknowledge, repair and resolve", without: []string{"minutes"},
		long: `Show how long ended investigations took until an operator acted (acknowledge), their case had
an owner (own), the last repair (repair), its verification (prove) and the end (resolve). Each
case counts once, with the median of its investigations.`,
		example: `  tasker-ctl dlq times --window 8h`,
	}, func(t tasker.ResolutionTimes) {
		printList(p, t.Times, "No phases.", "phase, cases, half within, 95% within", func(f tasker.PhaseTime) []any {
			half, most := "-", "-"
			if f.Cases > 0 {
				half, most = formatMinutes(f.P50Seconds/60), formatMinutes(f.P95Seconds/60)
			}
			return []any{f.Phase, f.Cases, half, most}
		})
	})
	c.Flags().Var(cli.Minutes(&r.query.Window, time.Minute), "window", "time range in whole minutes, up to now")
	return c
}

func (p *program) printInvestigations(l []tasker.InvestigationQueueEntry) {
	header := "entry, task?, template, reason, detail, task is, priority, waiting, failed now"
	due := slices.ContainsFunc(l, func(q tasker.InvestigationQueueEntry) bool { return q.TaskDue != nil })
	if due {
		header += ", task due"
	}
	printList(p, l, "No open investigations.", header, func(q tasker.InvestigationQueueEntry) []any {
		row := []any{
			q.EntryUUID.String(), q.TaskUUID.String(), q.Namespace + "/" + q.TaskName, string(q.Reason), q.DetailCode, string(q.CurrentState),
			strconv.FormatFloat(q.PriorityScore, 'f', 0, 64), formatMinutes(q.MinutesInDLQ), orDash(formatFailedStep(q.FailedStep)),
		}
		if due {
			row = append(row, orDash(formatDueShort(q.TaskDue)))
		}
		return row
	})
}

// formatMinutes formats a duration of f minutes.
func formatMinutes(f float64) string {
	d := time.Duration(f * float64(time.Minute)).Round(time.Second)
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	return d.String()
}

func (p *program) newEntryGetCommand() *cobra.Command {
	var whole bool
	c := newRequestCommand(p, help{
		use: "get ENTRY|TASK", short: "Show an investigation",
		example: `  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq get $ENTRY --snapshot
  tasker-ctl dlq get $TASK -o json | jq .task_snapshot`,
	}, func(ctx context.Context, _ *client.Client, a arguments) (tasker.Entry, error) {
		return p.findEntry(ctx, a.id[0])
	}, func(e tasker.Entry) {
		p.printEntry(e, whole)
		if !whole {
			p.printStepsNow(p.command.Context(), e)
		}
	})
	c.Flags().BoolVar(&whole, "snapshot", false, "print the whole snapshot as JSON")
	return c
}

// findEntry returns an investigation with its history. id is its id, or the id of a task, whose newest
// investigation it returns.
func (p *program) findEntry(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	api := p.client
	e, err := api.Entry(ctx, id)
	if tasker.CodeOf(err) != tasker.NotFound {
		return e, err
	}
	ofTask, taskErr := api.EntryOfTask(ctx, id)
	if tasker.CodeOf(taskErr) == tasker.NotFound {
		return e, tasker.Errorf(tasker.NotFound, "investigation %s not found, and no task with this id has one", id)
	}
	if taskErr != nil {
		return e, taskErr
	}
	return api.Entry(ctx, ofTask.UUID) // EntryOfTask returns no history
}

func (p *program) findEntryID(ctx context.Context, id tasker.ID) (tasker.ID, error) {
	e, err := p.findEntry(ctx, id)
	return e.UUID, err
}

func (p *program) newExportCommand() *cobra.Command {
	return p.newCommand(help{
		use: "export ENTRY|TASK", short: "Export an investigation for local debugging",
		long: `Export an investigation as one JSON file: the failed step, the inputs of its handler, its
failures, and the history of the investigation. For a task, its newest investigation
is exported.

Secrets are replaced by "[redacted]"; the field "redacted" lists their locations. In Go,
workertest.Load reads the file and runs the handler with it.`,
		example: `  tasker-ctl dlq export $ENTRY > evidence.json
  tasker-ctl dlq export $TASK | jq .input.context`,
	}, func(ctx context.Context, a arguments) error {
		f, err := p.client.EvidenceFile(ctx, a.id[0])
		if tasker.CodeOf(err) == tasker.NotFound {
			var id tasker.ID
			if id, err = p.findEntryID(ctx, a.id[0]); err != nil {
				return err
			}
			f, err = p.client.EvidenceFile(ctx, id)
		}
		if err != nil {
			return err
		}
		return p.printJSON(f)
	})
}

func (p *program) newHistoryCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use: "history ENTRY|TASK", short: "Show the history of an investigation",
		example: `  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq history $TASK -o json | jq -r '.[] | "\(.changed_at) \(.actor): \(.notes)"'`,
	}, p.fetchHistory, p.printHistory)
}

// fetchHistory returns all pages of the history of an investigation.
func (p *program) fetchHistory(ctx context.Context, api *client.Client, a arguments) ([]tasker.EntryChange, error) {
	e, err := p.findEntry(ctx, a.id[0])
	if err != nil {
		return nil, err
	}
	history := append([]tasker.EntryChange{}, e.History...) // [] in JSON if empty
	for e.MoreHistory && len(e.History) > 0 {
		if e, err = api.EntryFrom(ctx, e.UUID, len(history)); err != nil {
			return nil, err
		}
		history = append(history, e.History...)
	}
	return history, nil
}

func (p *program) printHistory(l []tasker.EntryChange) {
	printList(p, l, "No history.", "time, event, from, to, actor, notes", func(h tasker.EntryChange) []any {
		return []any{h.At, h.Event, orDash(h.From), h.To, h.Actor, formatNote(h)}
	})
}

// formatNote returns the note of a change. If there is none, it lists the metadata keys that the change
// set.
func formatNote(h tasker.EntryChange) string {
	if notes := orDefault(h.Notes, ""); notes != "" {
		return notes
	}
	keys := slices.Sorted(maps.Keys(parseDocument(h.Metadata)))
	if len(keys) == 0 {
		return ""
	}
	return "metadata: " + strings.Join(keys, ", ")
}

func (p *program) newEntryCreateCommand() *cobra.Command {
	r := newRequest(endpoint.OpenEntry)
	var metadata string
	c := newRequestCommand(p, help{
		use: "create TASK --reason TEXT", short: "Open an investigation manually",
		example: `  tasker-ctl dlq create $TASK --reason "customer did not receive the parcel" --created-by "support@example.com"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (e tasker.Entry, err error) {
		if r.body.Metadata, err = p.readJSONObject("metadata", metadata); err != nil {
			return e, err
		}
		e, err = r.send(ctx, api, a)
		return e, explainNotTask(ctx, api, a.id[0], err)
	}, func(e tasker.Entry) {
		p.printDone("Investigation opened!")
		p.printFields("  ",
			field{"DLQ Entry UUID", e.UUID}, field{"Task UUID", e.TaskUUID},
			field{"Reason", r.body.Reason}, field{"Created by", r.body.CreatedBy},
		)
	})
	p.addBodyFlags(c, &r.body)
	c.Flags().StringVar(&metadata, "metadata", "", "metadata: a JSON object, @file or @-")
	return c
}

// explainNotTask returns the rejection of dlq create. If id identifies an investigation instead of a
// task, it returns an error that explains this.
func explainNotTask(ctx context.Context, api *client.Client, id tasker.ID, refusal error) error {
	if tasker.CodeOf(refusal) != tasker.NotFound {
		return refusal
	}
	e, err := api.Entry(ctx, id)
	if err != nil {
		return refusal
	}
	return tasker.Errorf(tasker.NotFound, "%s is an investigation of task %s and is %s: use the id of a task", id, e.TaskUUID, e.ResolutionStatus)
}

// endings are the final statuses of an investigation.
var endings = []tasker.ResolutionStatus{tasker.EntryManuallyResolved, tasker.EntryPermanentlyFailed, tasker.EntryCancelled}

// entryUpdateFlags contains the flags of dlq update that its body does not declare.
type entryUpdateFlags struct {
	body                apiv1.UpdateEntry
	status              tasker.ResolutionStatus
	notes, by, metadata string
}

func (p *program) newEntryUpdateCommand() *cobra.Command {
	var f entryUpdateFlags
	c := p.newCommand(help{
		use: "update ENTRY|TASK", short: "Annotate or resolve an investigation",
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
			p.printError(p.command.CommandPath(), err)
			p.printChanges(ctx, id, *u.ExpectedUpdatedAt)
			return cli.Exit(exitConflict)
		}
		if err != nil {
			return err
		}
		return p.show(e, func() { p.printUpdate(e, id != a.id[0]) })
	})
	c.Flags().VarP(cli.Choice(&f.status, endings), "status", "s", "resolve it as manually_resolved, permanently_failed or cancelled")
	c.Flags().StringVarP(&f.notes, "notes", "n", "", "findings and actions (required with --status)")
	c.Flags().StringVarP(&f.by, "resolved-by", "b", "", actorUsage)
	c.Flags().StringVar(&f.metadata, "metadata", "", "JSON object, @file or @-, merged into the stored metadata")
	p.addBodyFlags(c, &f.body)
	return c
}

func (p *program) readUpdate(f entryUpdateFlags) (u apiv1.UpdateEntry, err error) {
	u = f.body
	if f.status == "" && f.notes == "" && f.metadata == "" && f.by == "" {
		return u, cli.Usagef("nothing to update: set --status, --notes or --metadata")
	}
	if f.status != "" {
		if err := requireValue("notes", f.notes, "it records the findings"); err != nil {
			return u, err
		}
		u.ResolutionStatus = new(string(f.status))
	}
	if u.Compensate && f.status != tasker.EntryPermanentlyFailed {
		return u, cli.Usagef("--compensate requires --status permanently_failed: " +
			"to compensate a task and leave its investigation open, use task cancel --compensate")
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
	return u, nil
}

// updateEntry updates an investigation by its id, or the open investigation of a task by the id of
// the task. It returns the id of the investigation.
func (p *program) updateEntry(ctx context.Context, id tasker.ID, u apiv1.UpdateEntry) (e apiv1.UpdatedEntry, entry tasker.ID, err error) {
	if e, err = p.client.UpdateEntry(ctx, id, u); tasker.CodeOf(err) != tasker.NotFound {
		return e, id, err
	}
	if entry, err = findOpenEntry(ctx, p.client, id); err == nil {
		e, err = p.client.UpdateEntry(ctx, entry, u)
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
	case e.ResolutionStatus != tasker.EntryPending:
		return tasker.ID{}, tasker.Errorf(tasker.Conflict,
			"%s has no open investigation: its newest, %s, ended as %s", task, e.UUID, e.ResolutionStatus)
	default:
		return e.UUID, nil
	}
}

// printUpdate prints an investigation after an update. ofTask means that the command identified it
// by its task.
func (p *program) printUpdate(e apiv1.UpdatedEntry, ofTask bool) {
	p.printDone("DLQ investigation updated successfully")
	if ofTask {
		p.printFields("  ", field{"DLQ Entry UUID", e.UUID})
	}
	p.printFields("  ",
		field{"Resolution status", e.ResolutionStatus}, field{"Resolution notes", e.ResolutionNotes},
		field{"Resolved by", formatResolver(e.Entry)}, field{"Current task state", e.CurrentTaskState},
	)
	for _, w := range e.Warnings {
		p.warn("%s", clean(w))
	}
	if len(e.Warnings) > 0 && e.CurrentTaskState == tasker.TaskError {
		p.printHint("tasker-ctl task reset-step %s %s --reason …", e.TaskUUID, cmp.Or(formatValue(e.StepUUID), "STEP"))
	}
}

// printChanges prints the changes since a time to stderr, to explain why an update was rejected.
func (p *program) printChanges(ctx context.Context, id tasker.ID, since time.Time) {
	e, err := p.findEntry(ctx, id)
	if err != nil {
		return // optional: the rejection is already printed
	}
	for _, h := range e.History {
		if !h.At.After(since) {
			continue
		}
		line := fmt.Sprintf("%s: %s by %s, %s", formatTime(&h.At), h.Event, h.Actor, h.To)
		if text := truncate(formatNote(h), maxNote); text != "" {
			line += ": " + text
		}
		p.printHint("%s", line)
	}
}
