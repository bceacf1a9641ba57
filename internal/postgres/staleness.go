package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Staleness returns watched tasks: first the stale ones, then those in warning, then the healthy
// ones, each by time in state.
func (db *DB) Staleness(ctx context.Context, f tasker.StalenessFilter) ([]tasker.StaleTask, error) {
	list, err := collect[tasker.StaleTask](ctx, db.pool, statement("selectStaleness"), f.Limit, f.Offset, access.ScopeFromContext(ctx).List(), f.Health, f.Namespace, f.Name)
	return list, wrapError(err, "read staleness")
}

// CountStaleness counts watched tasks by namespace and health. It counts at most f.Limit per
// health.
func (db *DB) CountStaleness(ctx context.Context, f tasker.StalenessFilter, healths ...tasker.Health) ([]tasker.StalenessCount, error) {
	list, err := collect[tasker.StalenessCount](ctx, db.pool, statement("countStaleness"), f.Limit, access.ScopeFromContext(ctx).List(), healths, f.Namespace, f.Name)
	return list, wrapError(err, "count staleness")
}

// SweepResult describes how the staleness sweep handled a task.
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
	ErrorCode          string // SQLSTATE of an error, or empty
	ErrorMessage       string
}

// SweepStale runs a batch of the staleness sweep, or simulates it in a dry run. It skips the given
// number of most overdue tasks, which concurrent batches process.
func (db *DB) SweepStale(ctx context.Context, dryRun bool, batch, skip int) ([]SweepResult, error) {
	var rows []SweepResult
	err := retry(ctx, func() (err error) {
		rows, err = collect[SweepResult](ctx, db.pool, statement("sweepStale"), dryRun, batch, skip)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sweep for stale tasks: %w", err)
	}
	if len(rows) > 0 {
		db.runCommitHooks()
	}
	for _, r := range rows {
		if r.MovedToDlq {
			db.opened(ctx, r.DlqReason, r.NamespaceName)
		}
	}
	return rows, nil
}
