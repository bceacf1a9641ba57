package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// The list is read from its start to the end of the page.
const selectStaleness = `
SELECT task_uuid, namespace_name AS namespace, task_name, current_state AS state, time_in_state_minutes, task_age_minutes,
    staleness_threshold_minutes AS threshold_minutes, health_status AS health, priority
FROM tasker.get_task_staleness($1::integer + $2::integer, p_namespaces => $3, p_health => nullif($4, ''), p_namespace => nullif($5, ''), p_name => nullif($6, ''))
OFFSET $2`

// Staleness returns watched tasks: stale, warning, then healthy ones, each by time in state.
func (db *DB) Staleness(ctx context.Context, f tasker.StalenessFilter) ([]tasker.StaleTask, error) {
	list, err := collect[tasker.StaleTask](ctx, db.pool, selectStaleness, f.Limit, f.Offset, access.ScopeOf(ctx).List(), f.Health, f.Namespace, f.Name)
	return list, wrap(err, "read staleness")
}

const countStaleness = `
SELECT l.namespace_name AS namespace, l.health_status AS health, count(*) AS tasks
FROM unnest($3::text[]) AS h (health)
CROSS JOIN LATERAL tasker.get_task_staleness($1, p_namespaces => $2, p_health => h.health, p_namespace => nullif($4, ''), p_name => nullif($5, '')) l
GROUP BY 1, 2
ORDER BY 3 DESC, 1`

// CountStaleness counts watched tasks by namespace and health, up to f.Limit per health.
func (db *DB) CountStaleness(ctx context.Context, f tasker.StalenessFilter, healths ...tasker.Health) ([]tasker.StalenessCount, error) {
	list, err := collect[tasker.StalenessCount](ctx, db.pool, countStaleness, f.Limit, access.ScopeOf(ctx).List(), healths, f.Namespace, f.Name)
	return list, wrap(err, "count staleness")
}

// SweepResult describes the action of the staleness sweep on a task.
type SweepResult struct {
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
	ErrorCode          string // SQLSTATE of a failure
	ErrorMessage       string
}

// SweepStale runs one batch of the staleness sweep, or simulates it. It skips the first overdue
// tasks, which concurrent batches process.
func (db *DB) SweepStale(ctx context.Context, dryRun bool, batch, skip int) ([]SweepResult, error) {
	var rows []SweepResult
	err := retry(ctx, func() (err error) {
		rows, err = collect[SweepResult](ctx, db.pool, `
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
