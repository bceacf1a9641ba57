package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

type statsRow struct {
	DlqReason                string
	TotalEntries             int64
	Pending                  int64
	ManuallyResolved         int64
	PermanentFailures        int64
	Cancelled                int64
	OldestEntry              *time.Time
	NewestEntry              *time.Time
	AvgResolutionTimeMinutes *float64
}

// EntryStats counts the investigations of each reason that has any.
func (db *DB) EntryStats(ctx context.Context) ([]tasker.EntryStats, error) {
	rows, err := collect[statsRow](ctx, db.pool, `
		SELECT dlq_reason::text, total_entries, pending, manually_resolved, permanent_failures, cancelled,
			oldest_entry, newest_entry, avg_resolution_time_minutes::float8
		FROM tasker.v_dlq_dashboard
		ORDER BY total_entries DESC, dlq_reason`)
	if err != nil {
		return nil, fmt.Errorf("count investigations: %w", err)
	}
	out := make([]tasker.EntryStats, len(rows))
	for i, r := range rows {
		out[i] = tasker.EntryStats{
			Reason: tasker.Reason(r.DlqReason), Total: r.TotalEntries, Pending: r.Pending, ManuallyResolved: r.ManuallyResolved,
			PermanentFailures: r.PermanentFailures, Cancelled: r.Cancelled, Oldest: r.OldestEntry, Newest: r.NewestEntry,
			AvgResolutionTimeMinutes: r.AvgResolutionTimeMinutes,
		}
	}
	return out, nil
}

// The newest are counted, up to a limit: a month of a bad year is no reason to read
// for seconds. Each of the two reads an index from its end.
const selectEntryCounts = `
SELECT s.at, coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended
FROM generate_series($1::timestamptz, now(), $2::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($2, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (SELECT dlq_timestamp FROM tasker.tasks_dlq WHERE dlq_timestamp >= $1 ORDER BY dlq_timestamp DESC LIMIT $3) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($2, d.resolved_at, $1) AS at, count(*) AS n
    FROM (
        SELECT resolved_at FROM tasker.tasks_dlq WHERE resolution_status <> 'pending' AND resolved_at >= $1 ORDER BY resolved_at DESC LIMIT $3
    ) d
    GROUP BY 1
) e ON e.at = s.at
ORDER BY s.at`

// EntryCounts counts the investigations that were opened and that ended since an
// instant, in stretches of one width; of each the newest MaxEntryCount.
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	type row struct {
		At            time.Time
		Opened, Ended int64
	}
	rows, err := collect[row](ctx, db.pool, selectEntryCounts, since, width, tasker.MaxEntryCount)
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	out := make([]tasker.EntryCount, len(rows))
	for i, r := range rows {
		out[i] = tasker.EntryCount{From: r.At, Opened: r.Opened, Ended: r.Ended}
	}
	return out, nil
}

type queueRow struct {
	DlqEntryUUID       tasker.ID
	TaskUUID           tasker.ID
	StepUUID           *tasker.ID
	OriginalState      string
	DlqReason          string
	DetailCode         string
	DlqTimestamp       time.Time
	MinutesInDlq       float64
	NamespaceName      string
	TaskName           string
	CurrentState       string
	TimeInStateMinutes *float64
	PriorityScore      float64
	RecoveredAt        *time.Time
	StepName           string
	ErrorPattern       string
	CaseKey            tasker.ID
	Assignee           string
}

func (r queueRow) entry() tasker.QueueEntry {
	return tasker.QueueEntry{
		EntryUUID: r.DlqEntryUUID, TaskUUID: r.TaskUUID, StepUUID: r.StepUUID, OriginalState: tasker.TaskState(r.OriginalState),
		Reason: tasker.Reason(r.DlqReason), DetailCode: r.DetailCode, At: r.DlqTimestamp, MinutesInDLQ: r.MinutesInDlq,
		Namespace: r.NamespaceName, TaskName: r.TaskName, CurrentState: tasker.TaskState(r.CurrentState),
		TimeInStateMinutes: r.TimeInStateMinutes, PriorityScore: r.PriorityScore, RecoveredAt: r.RecoveredAt,
		StepName: r.StepName, ErrorPattern: r.ErrorPattern, CaseKey: r.CaseKey, Assignee: r.Assignee,
	}
}

const queueColumns = `
SELECT dlq_entry_uuid, task_uuid, step_uuid, original_state, dlq_reason::text, detail_code, dlq_timestamp,
    minutes_in_dlq::float8, namespace_name, task_name, current_state, time_in_state_minutes::float8,
    priority_score::float8, recovered_at, coalesce(step_name, '') AS step_name, coalesce(error_pattern, '') AS error_pattern, case_key,
    coalesce(assignee, '') AS assignee
FROM tasker.v_dlq_investigation_queue`

const selectQueue = queueColumns + `
LIMIT $1`

// Queue returns the open investigations, the most urgent first, in the order of
// the view.
func (db *DB) Queue(ctx context.Context, limit int) ([]tasker.QueueEntry, error) {
	rows, err := collect[queueRow](ctx, db.pool, selectQueue, limit)
	if err != nil {
		return nil, fmt.Errorf("read the investigation queue: %w", err)
	}
	return queueEntries(ctx, db.pool, rows)
}

const selectStaleness = `SELECT * FROM tasker.get_task_staleness($1)`

type stalenessRow struct {
	TaskUUID                  tasker.ID
	NamespaceName             string
	TaskName                  string
	CurrentState              string
	TimeInStateMinutes        float64
	TaskAgeMinutes            float64
	StalenessThresholdMinutes float64
	HealthStatus              string
	Priority                  int
}

// Staleness returns the watched tasks: stale, then warning, then healthy ones,
// the longest in their state first.
func (db *DB) Staleness(ctx context.Context, limit int) ([]tasker.StalenessLine, error) {
	rows, err := collect[stalenessRow](ctx, db.pool, selectStaleness, limit)
	if err != nil {
		return nil, fmt.Errorf("read staleness: %w", err)
	}
	out := make([]tasker.StalenessLine, len(rows))
	for i, r := range rows {
		out[i] = tasker.StalenessLine{
			TaskUUID: r.TaskUUID, Namespace: r.NamespaceName, TaskName: r.TaskName, State: tasker.TaskState(r.CurrentState),
			TimeInStateMinutes: r.TimeInStateMinutes, TaskAgeMinutes: r.TaskAgeMinutes,
			ThresholdMinutes: r.StalenessThresholdMinutes, Health: tasker.Health(r.HealthStatus), Priority: r.Priority,
		}
	}
	return out, nil
}

// A Redaction is what evidence must not show: see package redact.
type Redaction struct {
	KeyPattern   string
	Document     string // empty when nothing is hidden
	TextPatterns []string
	Paths        [][]string
}

// SetRedaction stores what the evidence of investigations must not show from now
// on. What is on record stays as it is.
func (db *DB) SetRedaction(ctx context.Context, r Redaction) error {
	paths, err := json.Marshal(r.Paths)
	if err != nil {
		return fmt.Errorf("set redaction: %w", err)
	}
	_, err = db.pool.Exec(ctx, `
		UPDATE tasker.redaction
		SET key_pattern = $1, key_words = array_remove(ARRAY[$2], ''), text_patterns = $3, paths = $4::text::jsonb, updated_at = clock_timestamp()
		WHERE (key_pattern, key_words, text_patterns, paths) IS DISTINCT FROM ($1, array_remove(ARRAY[$2], ''), $3, $4::text::jsonb)`,
		r.KeyPattern, r.Document, r.TextPatterns, string(paths))
	if err != nil {
		return fmt.Errorf("set redaction: %w", err)
	}
	return nil
}

// A Swept is what the sweep did with one stale task.
type Swept struct {
	TaskUUID           tasker.ID
	NamespaceName      string
	TaskName           string
	CurrentState       string
	TimeInStateMinutes float64
	ActionTaken        string
	MovedToDlq         bool
	TransitionSuccess  bool
	StalenessThreshold float64
	DlqReason          tasker.Reason
}

// SweepStale makes one batch of the staleness sweep, or says what it would do. It
// leaves so many of the longest overdue to the batches that run at the same time.
func (db *DB) SweepStale(ctx context.Context, dryRun bool, batch, skip int) ([]Swept, error) {
	var rows []Swept
	err := retry(ctx, func() error {
		var err error
		rows, err = collect[Swept](ctx, db.pool, `
			SELECT task_uuid, namespace_name, task_name, current_state, time_in_state_minutes::float8, action_taken,
				moved_to_dlq, transition_success, staleness_threshold_minutes::float8 AS staleness_threshold,
				dlq_reason::text
			FROM tasker.detect_and_transition_stale_tasks($1, $2, $3)`, dryRun, batch, skip)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sweep for stale tasks: %w", err)
	}
	for _, r := range rows {
		if r.MovedToDlq {
			db.opened(ctx, r.DlqReason, r.NamespaceName)
		}
	}
	return rows, nil
}

// OpenEntries counts the open investigations, and lists the namespaces of the
// templates.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	err = db.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'),
			array(SELECT DISTINCT namespace FROM tasker.task_templates ORDER BY namespace)`).Scan(&pending, &namespaces)
	if err != nil {
		return 0, nil, fmt.Errorf("count open investigations: %w", err)
	}
	return pending, namespaces, nil
}
