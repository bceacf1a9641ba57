// Package dlq opens, updates and resolves investigations, and runs the staleness sweep that finds
// stuck tasks.
//
// The engine, the sweep or a person opens an investigation. An entry never changes its task, and
// its snapshot never changes. A task has at most one open entry, so concurrent detection is safe.
package dlq

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/postgres"
)

// The sweep, unless configured otherwise.
const (
	DefaultSweepEvery = 5 * time.Minute
	DefaultBatchSize  = 100
)

// Options of a service; the zero value works.
type Options struct {
	SweepEvery time.Duration // between two sweeps; negative: never
	BatchSize  int           // tasks in one transaction of the sweep
	DryRun     bool          // the sweep only says in the log what it would do

	// Undo begins to undo a task, in a transaction of the service's. What it returns is called
	// once that is committed. Nil: no task is undone.
	Undo func(ctx context.Context, tx *postgres.Tx, task tasker.ID, by postgres.Operator) (committed func(), err error)

	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// Service works on investigations. Its methods may be called concurrently.
type Service struct {
	db      *postgres.DB
	every   time.Duration
	batch   int
	dry     bool
	pass    time.Duration // after which a pass begins no other batch
	undo    func(context.Context, *postgres.Tx, tasker.ID, postgres.Operator) (func(), error)
	metrics *metrics.Metrics
	log     *slog.Logger
}

// New returns a service on a database whose schema is current.
func New(db *postgres.DB, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		db: db, every: cmp.Or(o.SweepEvery, DefaultSweepEvery), batch: cmp.Or(o.BatchSize, DefaultBatchSize),
		dry: o.DryRun, pass: sweepFor, undo: o.Undo, metrics: o.Metrics, log: o.Log,
	}
}

const sweepDeadline = time.Minute

// Loops returns the background loops. Any number of processes may run them.
func (s *Service) Loops() []*loop.Loop {
	var applied postgres.ThresholdPass
	thresholds := &loop.Loop{
		Name: "staleness thresholds", Interval: thresholdEvery, Timeout: sweepDeadline, Log: s.log,
		Pass: func(ctx context.Context) (time.Duration, error) { return s.applyThresholds(ctx, &applied) },
	}
	if s.every < 0 {
		return []*loop.Loop{thresholds}
	}
	return []*loop.Loop{{Name: "staleness sweep", Interval: s.every, Timeout: sweepDeadline, Pass: s.sweep, Log: s.log}, thresholds}
}

// Changed thresholds are applied after a stable period, in batches with pauses.
const (
	thresholdEvery   = 30 * time.Second
	thresholdSettled = 30 * time.Second
	thresholdBatch   = 1000
	thresholdRest    = 20 * time.Millisecond
)

func (s *Service) applyThresholds(ctx context.Context, p *postgres.ThresholdPass) (time.Duration, error) {
	changed, more, err := s.db.ApplyThresholds(ctx, p, thresholdSettled, thresholdBatch)
	if err == nil && changed > 0 {
		s.log.DebugContext(ctx, "applied changed staleness thresholds", "tasks", changed)
	}
	if more {
		return thresholdRest, err
	}
	return 0, err
}

func (s *Service) sweep(ctx context.Context) (time.Duration, error) {
	n, err := s.SweepAll(ctx)
	if err == nil && n > 0 && !s.dry { // there may be more: it is bounded, and others hold tasks for a moment
		return loop.AtOnce, nil
	}
	return 0, err
}

// At most two concurrent batches protect the database; a pass has a time limit for shutdown.
const (
	sweepLanes = 2
	sweepFor   = 2 * time.Second
)

// SweepAll makes batches as long as they are full. It returns how many tasks went
// to error or got an investigation, or would in a dry run, which is one batch.
func (s *Service) SweepAll(ctx context.Context) (int, error) {
	if s.dry {
		return s.Sweep(ctx)
	}
	all, until := 0, time.Now().Add(s.pass)
	for {
		var moved [sweepLanes]int
		var g errgroup.Group // what one has moved stays, if the other fails
		for lane := range moved {
			g.Go(func() (err error) {
				moved[lane], err = s.sweepBatch(ctx, lane*s.batch)
				return err
			})
		}
		err := g.Wait()
		for _, n := range moved {
			all += n
		}
		if err != nil || moved[0] < s.batch || time.Now().After(until) {
			return all, err
		}
	}
}

// sweepFailed is the action of the sweep for a task at which something went wrong.
const sweepFailed = "transition_failed"

// Sweep runs one batch: stale tasks go to error, and tasks in error get an investigation. It
// returns how many.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	return s.sweepBatch(ctx, 0)
}

// sweepBatch is Sweep, beside others that take the longest overdue.
func (s *Service) sweepBatch(ctx context.Context, skip int) (int, error) {
	start := time.Now()
	swept, err := s.db.SweepStale(ctx, s.dry, s.batch, skip)
	if skip > 0 && err == nil && len(swept) == 0 {
		return 0, nil // it only helps
	}
	s.metrics.Swept(ctx, time.Since(start), stale(swept), err)
	if err != nil {
		return 0, err
	}
	actions, reasons := map[string]int{}, map[string]int{}
	for _, t := range swept {
		actions[t.ActionTaken]++
		reasons[string(t.DlqReason)]++
		log := s.log.With("task_uuid", t.TaskUUID, "namespace", t.NamespaceName, "task", t.TaskName,
			"state", t.CurrentState, "minutes", t.TimeInStateMinutes, "dlq_reason", t.DlqReason, "action", t.ActionTaken)
		if t.ActionTaken == sweepFailed {
			log.ErrorContext(ctx, "the sweep could not open an investigation; it is retried later", "sqlstate", t.ErrorCode, "err", t.ErrorMessage)
		} else {
			log.WarnContext(ctx, "the sweep found a task that needs a human")
		}
	}
	attributes := []any{slog.Int("tasks", len(swept)), slog.Duration("took", time.Since(start))}
	for _, counts := range []map[string]int{reasons, actions} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			attributes = append(attributes, slog.Int(name, counts[name]))
		}
	}
	s.log.InfoContext(ctx, "staleness sweep", attributes...)
	return len(swept) - actions[sweepFailed], nil
}

// stale is what the metrics count of what a sweep found.
func stale(swept []postgres.SweepResult) []metrics.Stale {
	out := make([]metrics.Stale, len(swept))
	for i, t := range swept {
		out[i] = metrics.Stale{
			Reason: t.DlqReason, Namespace: t.NamespaceName, State: tasker.TaskState(t.CurrentState), Transitioned: t.TransitionSuccess,
			Failed: t.ActionTaken == sweepFailed, ErrorCode: t.ErrorCode,
		}
	}
	return out
}
