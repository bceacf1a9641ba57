package ctl

import (
	"context"
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
)

func (p *program) newEntryCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "dlq",
		Short: "Manage investigations (DLQ entries)",
		Long: `Manage investigations: tasks that need an operator.

An investigation records why a task is stuck and what was done about it. It does not change the
task: repair the step with task reset-step, resolve-step or complete-step, then resolve the
investigation with dlq update.`,
		Example: `  tasker-ctl dlq queue
  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged"`,
	},
		p.newQueueCommand(), casesCommand("cases", "dlq")(p), p.newRelatedCommand(), p.newCountsCommand(), p.newTimesCommand(), p.newEntriesCommand(), p.newEntryGetCommand(), p.newExportCommand(), p.newHistoryCommand(),
		p.newEntryUpdateCommand(), p.newEntryCreateCommand(), p.newStatsCommand(), p.newStalenessCommand(),
		p.newFollowCommand(), p.newEmissionsCommand(), p.newEmissionCommand(), p.newReEmitCommand(), p.newSinksCommand(),
	)
}

func (p *program) newEntriesCommand() *cobra.Command {
	var q tasker.EntryFilter
	var c *cobra.Command
	c = newRequestCommand(p, help{
		use:   "list",
		short: "List investigations, newest first",
		example: `  tasker-ctl dlq list --status pending
  tasker-ctl dlq list --reason max_retries_exceeded -o json | jq -r '.[].task_uuid'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) ([]apiv1.Entry, error) {
		return api.Entries(ctx, q)
	}, func(l []apiv1.Entry) {
		printList(p, l, "No investigations.", "entry, task?, reason, detail, status, task is, opened",
			func(e apiv1.Entry) []any {
				return []any{e.DLQEntryUUID, e.TaskUUID, e.DLQReason, e.DetailCode, e.ResolutionStatus, e.CurrentTaskState, e.DLQTimestamp}
			})
		if !p.quiet || !c.Flags().Changed("limit") {
			p.hintMorePages(len(l))
		}
	})
	p.addQueryFlags(c, &q, 50)
	p.addQuietFlag(c)
	return c
}

func (p *program) newQueueCommand() *cobra.Command {
	var q tasker.InvestigationFilter
	var c *cobra.Command
	c = newRequestCommand(p, help{
		use:   "queue",
		short: "List open investigations, most urgent first",
		example: `  tasker-ctl dlq queue --limit 10
  tasker-ctl dlq queue --recovered --state complete --quiet
  tasker-ctl dlq get $(tasker-ctl dlq queue --limit 1 --quiet)`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (_ []apiv1.InvestigationQueueEntry, err error) {
		return api.InvestigationQueue(ctx, q)
	}, func(l []apiv1.InvestigationQueueEntry) {
		p.printInvestigations(l)
		if !p.quiet || !c.Flags().Changed("limit") {
			p.hintMorePages(len(l))
		}
	})
	p.addQueryFlags(c, &q, 100)
	p.addQuietFlag(c)
	return c
}

func (p *program) newRelatedCommand() *cobra.Command {
	var limit int
	c := newRequestCommand(p, help{
		use:     "related ENTRY|TASK",
		short:   "List earlier investigations of the same case",
		example: `  tasker-ctl dlq related $ENTRY`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.RelatedEntries, error) {
		id, err := p.findEntryID(ctx, a.id[0])
		if err != nil {
			return apiv1.RelatedEntries{}, err
		}
		return api.RelatedEntries(ctx, id, limit)
	}, func(r apiv1.RelatedEntries) {
		more := ""
		if r.OpenHasMore {
			more = " or more"
		}
		fields := []field{{"Case", orDash(r.CaseID)}, {"Other open investigations", formatInt(r.Open) + more}}
		p.printFields("", append(fields, formatEnded(r.Ended)...)...)
		printList(p, r.Last, "No investigation of this case has ended.", "entry, status, ended, by, open for?, notes", func(e apiv1.EndedEntry) []any {
			return []any{e.DLQEntryUUID, e.ResolutionStatus, e.ResolvedAt, e.ResolvedBy, formatMinutes(e.MinutesOpen), e.ResolutionNotes}
		})
	})
	limit = 10
	c.Flags().VarP(cli.Number(&limit, 1, 100), "limit", "l", "maximum number of ended investigations to list, at most 100")
	return c
}

// formatEnded formats the numbers of ended investigations by status. The server counts only the
// newest [tasker.MaxRelated].
func formatEnded(ended map[string]int64) (fields []field) {
	total := int64(0)
	for _, n := range ended {
		total += n
	}
	for _, status := range tasker.ResolutionStatuses() {
		n := ended[string(status)]
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
	width, intervals := time.Hour, 24
	c := newRequestCommand(p, help{
		use:     "counts",
		short:   "Count investigations over time",
		example: `  tasker-ctl dlq counts --interval 5m --intervals 12`,
	}, func(ctx context.Context, api *client.Client, _ arguments) ([]tasker.EntryCount, error) {
		return api.EntryCounts(ctx, width, intervals)
	}, func(l []tasker.EntryCount) {
		printList(p, l, "No intervals.", "from, opened, ended, proved, open", func(n tasker.EntryCount) []any {
			open := "-"
			if n.Open != nil {
				open = formatInt(*n.Open)
			}
			return []any{n.From, n.Opened, n.Ended, n.Proved, open}
		})
	})
	c.Flags().Var(cli.Minutes(&width, time.Minute), "interval", "length of an interval, in whole minutes")
	c.Flags().Var(cli.Number(&intervals, 1, 1000), "intervals", "number of intervals, including the current one")
	return c
}

func (p *program) newTimesCommand() *cobra.Command {
	window := 24 * time.Hour
	c := newRequestCommand(p, help{
		use:   "times",
		short: "Show time to acknowledge, repair and resolve",
		long: `Show how long ended investigations took until an operator acted (acknowledge), their case had
an owner (own), the last repair (repair), its verification (prove) and the end (resolve). Each
case counts once, with the median of its investigations.`,
		example: `  tasker-ctl dlq times --window 8h`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.EntryTimes, error) {
		return api.EntryTimes(ctx, window)
	}, func(t apiv1.EntryTimes) {
		printList(p, t.Phases, "No phases.", "phase, cases, half within, 95% within", func(f apiv1.PhaseTime) []any {
			half, most := "-", "-"
			if f.Cases > 0 {
				half, most = formatMinutes(f.P50Seconds/60), formatMinutes(f.P95Seconds/60)
			}
			return []any{f.Phase, f.Cases, half, most}
		})
	})
	c.Flags().Var(cli.Minutes(&window, time.Minute), "window", "time range in whole minutes, up to now")
	return c
}

func (p *program) printInvestigations(l []apiv1.InvestigationQueueEntry) {
	header := "entry, task?, template, reason, detail, task is, priority, waiting, failed now"
	due := slices.ContainsFunc(l, func(q apiv1.InvestigationQueueEntry) bool { return q.TaskDue != nil })
	if due {
		header += ", task due"
	}
	printList(p, l, "No open investigations.", header, func(q apiv1.InvestigationQueueEntry) []any {
		row := []any{
			q.DLQEntryUUID, q.TaskUUID, q.NamespaceName + "/" + q.TaskName, q.DLQReason, q.DetailCode, q.CurrentState,
			strconv.FormatFloat(q.PriorityScore, 'f', 0, 64), formatMinutes(q.MinutesInDLQ),
			orDash(formatFailedStep(q.FailedStep)),
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
	c := p.newCommand(help{
		use:   "get ENTRY|TASK",
		short: "Show an investigation",
		example: `  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq get $ENTRY --snapshot
  tasker-ctl dlq get $TASK -o json | jq .task_snapshot`,
	}, func(ctx context.Context, a arguments) error {
		e, err := p.findEntry(ctx, a.id[0])
		if err != nil {
			return err
		}
		return p.show(e, func() {
			p.printEntry(e, whole)
			if !whole {
				p.printStepsNow(ctx, e)
			}
		})
	})
	c.Flags().BoolVar(&whole, "snapshot", false, "print the whole snapshot as JSON")
	return c
}

// findEntry returns an investigation with its history. id is its id, or the id of a task, whose newest
// investigation it returns.
func (p *program) findEntry(ctx context.Context, id tasker.ID) (apiv1.Entry, error) {
	api, err := p.newClient()
	if err != nil {
		return apiv1.Entry{}, err
	}
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
	newest, err := parseResponseID("dlq_entry_uuid", ofTask.DLQEntryUUID)
	if err != nil {
		return e, err
	}
	return api.Entry(ctx, newest) // EntryOfTask returns no history
}

func (p *program) findEntryID(ctx context.Context, id tasker.ID) (tasker.ID, error) {
	e, err := p.findEntry(ctx, id)
	if err != nil {
		return id, err
	}
	return parseResponseID("dlq_entry_uuid", e.DLQEntryUUID)
}

func (p *program) newExportCommand() *cobra.Command {
	return p.newCommand(help{
		use:   "export ENTRY|TASK",
		short: "Export an investigation for local debugging",
		long: `Export an investigation as one JSON file: the failed step, the inputs of its handler, its
failures, and the history of the investigation. For a task, its newest investigation
is exported.

Secrets are replaced by "[redacted]"; the field "redacted" lists their locations. In Go,
workertest.Load reads the file and runs the handler with it.`,
		example: `  tasker-ctl dlq export $ENTRY > evidence.json
  tasker-ctl dlq export $TASK | jq .input.context`,
	}, func(ctx context.Context, a arguments) error {
		api, err := p.newClient()
		if err != nil {
			return err
		}
		f, err := api.EvidenceFile(ctx, a.id[0])
		if tasker.CodeOf(err) == tasker.NotFound {
			var id tasker.ID
			if id, err = p.findEntryID(ctx, a.id[0]); err != nil {
				return err
			}
			f, err = api.EvidenceFile(ctx, id)
		}
		if err != nil {
			return err
		}
		return p.printJSON(f)
	})
}

func (p *program) newHistoryCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "history ENTRY|TASK",
		short: "Show the history of an investigation",
		example: `  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq history $TASK -o json | jq -r '.[] | "\(.changed_at) \(.actor): \(.notes)"'`,
	}, p.fetchHistory, p.printHistory)
}

// fetchHistory returns all pages of the history of an investigation.
func (p *program) fetchHistory(ctx context.Context, api *client.Client, a arguments) ([]apiv1.EntryChange, error) {
	e, err := p.findEntry(ctx, a.id[0])
	if err != nil {
		return nil, err
	}
	history := append([]apiv1.EntryChange{}, e.History...) // [] in JSON if empty
	for e.HistoryHasMore && len(e.History) > 0 {
		id, err := parseResponseID("dlq_entry_uuid", e.DLQEntryUUID)
		if err != nil {
			return nil, err
		}
		if e, err = api.EntryFrom(ctx, id, len(history)); err != nil {
			return nil, err
		}
		history = append(history, e.History...)
	}
	return history, nil
}

func (p *program) printHistory(l []apiv1.EntryChange) {
	printList(p, l, "No history.", "time, event, from, to, actor, notes", func(h apiv1.EntryChange) []any {
		return []any{h.ChangedAt, h.Event, orDash(h.FromStatus), h.ToStatus, h.Actor, formatNote(h)}
	})
}

// formatNote returns the note of a change. If there is none, it lists the metadata keys that the change
// set.
func formatNote(h apiv1.EntryChange) string {
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
	var o apiv1.OpenEntry
	var metadata string
	c := newRequestCommand(p, help{
		use:     "create TASK --reason TEXT",
		short:   "Open an investigation manually",
		example: `  tasker-ctl dlq create $TASK --reason "customer did not receive the parcel" --created-by "support@example.com"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (e apiv1.Entry, err error) {
		if o.Metadata, err = p.readJSONObject("metadata", metadata); err != nil {
			return e, err
		}
		if e, err = api.OpenEntry(ctx, a.id[0], o); err != nil {
			return e, explainNotTask(ctx, api, a.id[0], err)
		}
		return e, nil
	}, func(e apiv1.Entry) {
		p.printDone("Investigation opened!")
		p.printFields("  ",
			field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID},
			field{"Reason", o.Reason}, field{"Created by", o.CreatedBy},
		)
	})
	addReasonFlag(c, &o.Reason, "")
	p.addActorFlag(c, &o.CreatedBy, "created-by")
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

func (p *program) newStatsCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "stats",
		short: "Count investigations by reason",
		example: `  tasker-ctl dlq stats
  tasker-ctl dlq stats -o json | jq '[.[].pending] | add'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) ([]tasker.EntryStats, error) {
		return api.Stats(ctx)
	}, func(l []tasker.EntryStats) {
		printList(p, l, "No investigations.", "reason, total, pending, resolved, permanent, cancelled, oldest, newest, average", func(s tasker.EntryStats) []any {
			row := []any{s.Reason}
			for _, n := range []int64{s.Total, s.Pending, s.ManuallyResolved, s.PermanentFailures, s.Cancelled} {
				row = append(row, n)
			}
			average := "-"
			if s.AvgResolutionTimeMinutes != nil {
				average = formatMinutes(*s.AvgResolutionTimeMinutes)
			}
			return append(row, s.Oldest, s.Newest, average)
		})
	})
}

func (p *program) newStalenessCommand() *cobra.Command {
	var q tasker.StalenessFilter
	c := newRequestCommand(p, help{
		use:   "staleness",
		short: "List tasks by staleness, worst first",
		example: `  tasker-ctl dlq staleness
  tasker-ctl dlq staleness --health-status warning --namespace payments
  tasker-ctl dlq staleness --health-status warning --limit 1000 -o json | jq length`,
	}, func(ctx context.Context, api *client.Client, _ arguments) ([]tasker.StaleTask, error) {
		return api.Staleness(ctx, q)
	}, func(l []tasker.StaleTask) {
		printList(p, l, "No matching task has a staleness threshold.", "health, task, template, state, in state, threshold, priority", func(s tasker.StaleTask) []any {
			return []any{
				string(s.Health), s.TaskUUID.String(), s.Namespace + "/" + s.TaskName, string(s.State),
				formatMinutes(s.TimeInStateMinutes), formatMinutes(s.ThresholdMinutes), s.Priority,
			}
		})
		p.hintMorePages(len(l))
	})
	p.addQueryFlags(c, &q, 100)
	return c
}
