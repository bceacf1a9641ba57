package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// Time limits of work on rows. Rows that exceed them are deferred.
const (
	usualChunkTime = 5 * time.Second  // one chunk, in one transaction
	rowTime        = 3 * time.Second  // one row alone; see retryTimeout
	mostRowTime    = 30 * time.Second // one row that has failed often
	singlesTime    = 8 * time.Second  // all rows of a failed chunk, one by one
	passTime       = 10 * time.Second // a pass begins no further chunks after this time
)

// work describes one kind of timed work on tasks or steps. It is done in chunks, and rows that fail
// are deferred.
type work struct {
	name  string // name of its timer; empty for work on queues
	kind  string // kind under which rows are deferred
	chunk int    // rows in one transaction

	// graced work is suspended while workers reconnect after a start or an outage.
	graced bool

	// find returns up to limit due rows that are not deferred.
	find func(ctx context.Context, limit int) ([]tasker.StepRef, error)

	// more reports whether find has not yet scanned everything that is due. If nil, it always has.
	more func() bool

	// do performs the work on those rows that still need it. Its context ends at the time limit of
	// the chunk.
	do func(ctx context.Context, rows []tasker.StepRef) error
}

// widest limits how often a pass doubles its number of rows to find rows behind locked ones.
const widest = 5

// lockedHeadTracker doubles the number of rows while the first due row remains the same, so that
// locked rows do not hide others.
type lockedHeadTracker struct {
	first tasker.StepRef
	wider int // number of doublings
}

// watchFinder returns a find that tracks its first row.
func (h *lockedHeadTracker) watchFinder(find func(context.Context, int) ([]tasker.StepRef, error)) func(context.Context, int) ([]tasker.StepRef, error) {
	return func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		rows, err := find(ctx, limit)
		switch {
		case err != nil:
		case len(rows) == 0:
			*h = lockedHeadTracker{}
		case rows[0] != h.first:
			*h = lockedHeadTracker{first: rows[0]}
		case len(rows) >= limit && h.wider < widest:
			h.wider++
		}
		return rows, err
	}
}

// errNotReached is the error of a row in a failed chunk that could not be tried alone, because the
// time was used up.
var errNotReached = errors.New("the chunk of this row failed, and there was no time to try the row alone")

// runPass performs due work of one kind and returns the number of rows that it found. Rows that
// fail are deferred and do not cause an error.
func (e *Engine) runPass(ctx context.Context, w work, limit int) (int, error) {
	due, err := w.find(ctx, limit)
	if err != nil {
		return 0, err
	}
	found := len(due)
	if w.more != nil && w.more() {
		found++
	}
	e.recordFound(w.kind, found)
	begun := time.Now()
	for chunk := range slices.Chunk(due, w.chunk) {
		if time.Since(begun) > passTime || ctx.Err() != nil {
			break // the remaining rows are found again
		}
		if err := e.doChunk(ctx, w, chunk); err != nil {
			return len(due), err
		}
	}
	return len(due), nil
}

// doChunk works on rows together or, if that fails, on each alone. It defers rows that fail.
func (e *Engine) doChunk(ctx context.Context, w work, rows []tasker.StepRef) error {
	err := runWithTimeout(ctx, e.timers.chunkTime, rows, w.do)
	if err == nil || ctx.Err() != nil || postgres.IsUnavailable(err) {
		return err
	}
	if len(rows) == 1 {
		return e.deferRows(ctx, w.kind, []postgres.Failed{{StepRef: rows[0], Err: err}})
	}
	var failed []postgres.Failed
	begun := time.Now()
	for i := range rows {
		err := errNotReached
		if time.Since(begun) < singlesTime {
			err = runWithTimeout(ctx, rowTime, rows[i:i+1], w.do)
		}
		if ctx.Err() != nil || postgres.IsUnavailable(err) {
			return errors.Join(err, e.deferRows(ctx, w.kind, failed))
		}
		if err != nil {
			failed = append(failed, postgres.Failed{StepRef: rows[i], Err: err})
		}
	}
	return e.deferRows(ctx, w.kind, failed)
}

// runWithTimeout calls do with a time limit. It converts a panic into an error.
func runWithTimeout(ctx context.Context, most time.Duration, rows []tasker.StepRef, do func(context.Context, []tasker.StepRef) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer loop.Recover(&err)
	return do(ctx, rows)
}

// loudRows limits how many deferred rows of a chunk are logged individually.
const loudRows = 10

// deferRows postpones failed rows. It opens an investigation if a row fails repeatedly.
func (e *Engine) deferRows(ctx context.Context, kind string, failed []postgres.Failed) error {
	if len(failed) == 0 {
		return nil
	}
	list, err := e.db.DeferWork(ctx, kind, failed)
	if err != nil {
		return err
	}
	e.requestPoll()
	why := make(map[tasker.StepRef]error, len(failed))
	for _, f := range failed {
		why[f.StepRef] = f.Err
	}
	for i, d := range list {
		if err := e.db.InvestigateDeferred(ctx, d, why[d.StepRef]); err != nil {
			e.log.ErrorContext(ctx,
				"could not open an investigation of failing work", "kind", d.Kind, "task_uuid", d.TaskUUID, "err", err)
		}
		if i == loudRows {
			e.log.ErrorContext(ctx, "more rows were deferred; see tasker.deferred_work", "kind", kind, "rows", len(list)-loudRows)
		}
		if i >= loudRows {
			continue
		}
		attributes := []any{slog.String("kind", kind), slog.Any("task_uuid", d.TaskUUID)}
		if d.StepUUID != (tasker.ID{}) {
			attributes = append(attributes, slog.Any("step_uuid", d.StepUUID))
		}
		attributes = append(attributes, slog.Int("failures", d.Failures), slog.Time("retry_at", d.RetryAt), slog.Any("err", why[d.StepRef]))
		e.log.ErrorContext(ctx, "could not process a row; deferred it", attributes...)
	}
	return nil
}

const (
	deferredBatch = 10
	deferredHold  = time.Minute // longer than a pass takes

	// deferralTime limits one pass over deferred rows. It includes the time of the last row, whose
	// failure would not be counted otherwise.
	deferralTime = passTime + mostRowTime + 10*time.Second
)

// retryTimeout returns the time limit of one row. It doubles with each failure, so that slow work,
// such as a large task on a slow database, eventually succeeds.
func retryTimeout(failures int) time.Duration {
	limit := rowTime
	for ; failures > 0 && limit < mostRowTime; failures-- {
		limit *= 2
	}
	return min(limit, mostRowTime)
}

// RetryDeferred retries deferred rows, fewest failures first. Rows that it does not reach are due
// again after deferredHold.
func (e *Engine) RetryDeferred(ctx context.Context) (time.Duration, error) {
	kinds := make(map[string]work, len(e.timers.works))
	var names []string
	for _, w := range e.timers.works {
		if w.graced && !e.outages.grace.isOver(e.now()) {
			continue
		}
		kinds[w.kind] = w
		names = append(names, w.kind)
	}
	list, err := e.db.TakeDeferredWork(ctx, names, deferredBatch, deferredHold)
	if err != nil {
		return 0, err
	}
	e.recordFound(postgres.RetryDeferred, len(list))
	slices.SortStableFunc(list, func(a, b postgres.Deferred) int { return cmp.Compare(a.Failures, b.Failures) })
	begun := time.Now()
	for _, d := range list {
		if time.Since(begun) > passTime {
			break
		}
		err := runWithTimeout(ctx, retryTimeout(d.Failures), []tasker.StepRef{d.StepRef}, kinds[d.Kind].do)
		switch {
		case ctx.Err() != nil || postgres.IsUnavailable(err):
			return 0, fmt.Errorf("retry deferred work: %w", err)
		case err != nil:
			err = e.deferRows(ctx, d.Kind, []postgres.Failed{{StepRef: d.StepRef, Err: err}})
		default:
			err = e.db.EndDeferral(ctx, d)
		}
		if err != nil {
			return 0, err
		}
	}
	if len(list) == deferredBatch {
		return loop.AtOnce, nil
	}
	return 0, nil
}
