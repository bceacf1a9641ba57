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

// Time limits of work on rows; slow rows are set aside.
const (
	usualChunkTime = 5 * time.Second  // of one chunk, in one transaction
	rowTime        = 3 * time.Second  // of one row by itself; see retryTimeout
	mostRowTime    = 30 * time.Second // of one row that has failed often
	singlesTime    = 8 * time.Second  // of all rows of a chunk that failed, each by itself
	passTime       = 10 * time.Second // after which a pass begins no other chunk
)

// A work is one kind of timed work on tasks or steps, done in chunks. A failing row is set aside.
type work struct {
	kind  string // of what is set aside
	chunk int    // rows in one transaction

	// graced work rests while workers that could take nothing get a moment to come back.
	graced bool

	// find returns what is due and not set aside, up to limit.
	find func(ctx context.Context, limit int) ([]tasker.StepRef, error)

	// more reports whether find has not looked at all that is due; nil: it always does.
	more func() bool

	// do does the work on those of the rows that still need it. The context is the
	// chunk's.
	do func(ctx context.Context, rows []tasker.StepRef) error
}

// widest bounds how far a pass looks behind rows that do not move: each step doubles the rows.
const widest = 5

// A lockedHeadTracker doubles the search while the first due row stays locked, so it hides no others.
type lockedHeadTracker struct {
	first tasker.StepRef
	wider int // how often the number of rows is doubled
}

// watched returns find, and has the head watch what it finds.
func (h *lockedHeadTracker) watched(find func(context.Context, int) ([]tasker.StepRef, error)) func(context.Context, int) ([]tasker.StepRef, error) {
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

// errNotReached is the error of a row of a failed chunk without time for a retry.
var errNotReached = errors.New("the chunk of this row failed, and there was no time to try the row by itself")

// pass does one kind of due work and returns the number of rows. Row failures are not errors.
func (e *Engine) pass(ctx context.Context, w work, limit int) (int, error) {
	due, err := w.find(ctx, limit)
	if err != nil {
		return 0, err
	}
	found := len(due)
	if w.more != nil && w.more() {
		found++
	}
	e.found(w.kind, found)
	begun := time.Now()
	for chunk := range slices.Chunk(due, w.chunk) {
		if time.Since(begun) > passTime || ctx.Err() != nil {
			break // what is left is found again
		}
		if err := e.doChunk(ctx, w, chunk); err != nil {
			return len(due), err
		}
	}
	return len(due), nil
}

// doChunk works on rows together, or each alone if that fails, and sets failures aside.
func (e *Engine) doChunk(ctx context.Context, w work, rows []tasker.StepRef) error {
	err := limited(ctx, e.chunkTime, rows, w.do)
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
			err = limited(ctx, rowTime, rows[i:i+1], w.do)
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

// limited does work within its time. A panic is an error of the rows, as any other.
func limited(ctx context.Context, most time.Duration, rows []tasker.StepRef, do func(context.Context, []tasker.StepRef) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer loop.Recover(&err)
	return do(ctx, rows)
}

// loudRows is how many rows of a chunk are logged when they are set aside.
const loudRows = 10

// deferRows has rows skipped that failed, until they are tried again.
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
			e.log.ErrorContext(ctx, "no investigation could be opened for work that keeps failing", "kind", d.Kind, "task_uuid", d.TaskUUID, "err", err)
		}
		if i == loudRows {
			e.log.ErrorContext(ctx, "more rows were set aside; see tasker.deferred_work", "kind", kind, "rows", len(list)-loudRows)
		}
		if i >= loudRows {
			continue
		}
		attributes := []any{slog.String("kind", kind), slog.Any("task_uuid", d.TaskUUID)}
		if d.StepUUID != (tasker.ID{}) {
			attributes = append(attributes, slog.Any("step_uuid", d.StepUUID))
		}
		attributes = append(attributes, slog.Int("failures", d.Failures), slog.Time("retry_at", d.RetryAt), slog.Any("err", why[d.StepRef]))
		e.log.ErrorContext(ctx, "a row could not be moved forward and was set aside", attributes...)
	}
	return nil
}

const (
	deferredBatch = 10
	deferredHold  = time.Minute // more than a pass takes

	// deferralTime is of one pass over what was set aside: more than its last row needs, or the failures of
	// that row would not be counted.
	deferralTime = passTime + mostRowTime + 10*time.Second
)

// retryTimeout is the time of one row that has failed so often. It doubles: what only takes long, as a
// large task does on a slow database, is done in the end.
func retryTimeout(failures int) time.Duration {
	most := rowTime
	for ; failures > 0 && most < mostRowTime; failures-- {
		most *= 2
	}
	return min(most, mostRowTime)
}

// RetryDeferred retries rows that were set aside, least failures first. Unreached ones are due
// again after deferredHold.
func (e *Engine) RetryDeferred(ctx context.Context) (time.Duration, error) {
	kinds := make(map[string]work, len(e.works))
	var names []string
	for _, w := range e.works {
		if w.graced && !e.grace.over(e.now()) {
			continue
		}
		kinds[w.kind] = w
		names = append(names, w.kind)
	}
	list, err := e.db.TakeDeferredWork(ctx, names, deferredBatch, deferredHold)
	if err != nil {
		return 0, err
	}
	e.found(postgres.RetryDeferred, len(list))
	slices.SortStableFunc(list, func(a, b postgres.Deferred) int { return cmp.Compare(a.Failures, b.Failures) })
	begun := time.Now()
	for _, d := range list {
		if time.Since(begun) > passTime {
			break
		}
		err := limited(ctx, retryTimeout(d.Failures), []tasker.StepRef{d.StepRef}, kinds[d.Kind].do)
		switch {
		case ctx.Err() != nil || postgres.IsUnavailable(err):
			return 0, fmt.Errorf("try again what was set aside: %w", err)
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
