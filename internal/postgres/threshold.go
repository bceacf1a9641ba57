package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// Thresholds contains the staleness thresholds of the server, in minutes. Templates can override
// them.
type Thresholds struct {
	WaitingForDependencies int
	WaitingForRetry        int
	StepsInProcess         int
	ErrorRecovery          int // for a task in error that has no investigation; templates cannot override it
}

// SetStalenessThresholds stores the thresholds and reports whether they have changed. A task uses
// the thresholds from when it entered its state. [DB.ApplyThresholds] applies changes to existing
// tasks.
func (db *DB) SetStalenessThresholds(ctx context.Context, th Thresholds) (changed bool, err error) {
	tag, err := db.pool.Exec(ctx, statement("setStalenessThresholds"),
		th.WaitingForDependencies, th.WaitingForRetry, th.StepsInProcess, th.ErrorRecovery)
	return tag.RowsAffected() > 0, wrapError(err, "set staleness thresholds")
}

// ThresholdPass records how far [DB.ApplyThresholds] has proceeded. The zero value is the
// beginning.
type ThresholdPass struct {
	version time.Time // updated_at of the thresholds that are applied
	held    bool      // a task was locked, so the pass must be repeated
	watched bool      // tasks in error are done; tasks in watched states follow

	attendBy *time.Time // where the last batch ended
	seconds  *float64
	since    *time.Time
	task     *tasker.ID
}

// ApplyThresholds applies changed thresholds to the next batch of tasks. It skips locked tasks. It
// returns the number of changed tasks and whether to continue at once. Thresholds that changed
// within the duration settled are ignored, because they may change back during a rolling upgrade.
// Several servers may call it.
func (db *DB) ApplyThresholds(ctx context.Context, p *ThresholdPass, settled time.Duration, batch int) (changed int, more bool, err error) {
	var version time.Time
	err = db.pool.QueryRow(ctx, statement("thresholdsToApply"), settled).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		*p = ThresholdPass{}
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("apply staleness thresholds: %w", err)
	}
	if !p.version.Equal(version) {
		*p = ThresholdPass{version: version}
	}
	var seen, due int
	if p.watched {
		err = db.pool.QueryRow(ctx, statement("applyStaleness"), p.seconds, p.since, p.task, batch).Scan(&seen, &due, &changed, &p.seconds, &p.since, &p.task)
	} else {
		err = db.pool.QueryRow(ctx, statement("applyRecovery"), p.attendBy, p.task, batch).Scan(&seen, &due, &changed, &p.attendBy, &p.task)
	}
	if err != nil {
		return 0, false, fmt.Errorf("apply staleness thresholds: %w", err)
	}
	p.held = p.held || changed < due
	switch {
	case seen == batch:
		return changed, true, nil
	case !p.watched:
		p.watched, p.task = true, nil
		return changed, true, nil
	case p.held:
		*p = ThresholdPass{} // repeat the pass after the usual interval
		return changed, false, nil
	}
	*p = ThresholdPass{}
	_, err = db.pool.Exec(ctx, statement("thresholdsApplied"), version)
	return changed, false, wrapError(err, "apply staleness thresholds")
}
