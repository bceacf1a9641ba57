package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const selectStaleness = `
SELECT task_uuid, namespace_name AS namespace, task_name, current_state AS state, time_in_state_minutes, task_age_minutes,
    staleness_threshold_minutes AS threshold_minutes, health_status AS health, priority
FROM tasker.get_task_staleness($1, p_namespaces => $2)`

// Staleness returns the watched tasks: stale, then warning, then healthy ones,
// the longest in their state first.
func (db *DB) Staleness(ctx context.Context, limit int) ([]tasker.StalenessLine, error) {
	list, err := collect[tasker.StalenessLine](ctx, db.pool, selectStaleness, limit, access.ScopeOf(ctx).List())
	if err != nil {
		return nil, fmt.Errorf("read staleness: %w", err)
	}
	return list, nil
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
	ErrorCode          string // SQLSTATE, if it failed at the task
	ErrorMessage       string
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
				dlq_reason::text, coalesce(error_code, '') AS error_code, coalesce(error_message, '') AS error_message
			FROM tasker.detect_and_transition_stale_tasks($1, $2, $3)`, dryRun, batch, skip)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sweep for stale tasks: %w", err)
	}
	if len(rows) > 0 {
		db.committed()
	}
	for _, r := range rows {
		if r.MovedToDlq {
			db.opened(ctx, r.DlqReason, r.NamespaceName)
		}
	}
	return rows, nil
}
