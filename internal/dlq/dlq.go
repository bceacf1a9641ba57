// Package dlq opens, updates and resolves investigations. It also runs the staleness sweep, which
// finds stuck tasks.
//
// Investigations are opened by the engine, the sweep or an operator. The snapshot of an
// investigation never changes, and opening one does not change its task. A task has at most one
// open investigation, so concurrent detection is safe.
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

// Defaults of Options.
const (
	DefaultSweepEvery = 5 * time.Minute
	DefaultBatchSize  = 100
)

// Options configures a Service. The zero value uses the defaults.
type Options struct {
	SweepEvery time.Duration // interval between staleness sweeps; a negative value disables them
	BatchSize  int           // maximum number of tasks in one transaction of the sweep
	DryRun     bool          // the sweep logs its findings and changes nothing

	// Undo begins the compensation of a task in a transaction of the service. After the commit, the
	// service calls committed. If Undo is nil, tasks cannot be compensated.
	Undo func(ctx context.Context, tx *postgres.Tx, task tasker.ID, by postgres.Operator) (committed func(), err error)

	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// Service manages investigations. Its methods may be called concurrently.
type Service struct {
	db      *postgres.DB
	every   time.Duration
	batch   int
	dry     bool
	pass    time.Duration // a pass begins no further batches after this time
	undo    func(context.Context, *postgres.Tx, tasker.ID, postgres.Operator) (func(), error)
	metrics *metrics.Metrics
	log     *slog.Logger
}

// New returns a service on a database with the current schema.
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

// A changed threshold is applied in batches once it has remained unchanged for thresholdSettled.
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
	if err == nil && n > 0 && !s.dry { // repeat, since a pass is bounded and skips locked tasks
		return loop.AtOnce, nil
	}
	return 0, err
}

// Two concurrent batches bound the load. The time limit lets a pass end promptly on shutdown.
const (
	sweepLanes = 2
	sweepFor   = 2 * time.Second
)

// SweepAll runs batches until one is not full. It returns the number of tasks that it moved to
// error or opened an investigation for. In a dry run it runs a single batch and returns how many it
// would change.
func (s *Service) SweepAll(ctx context.Context) (int, error) {
	if s.dry {
		return s.Sweep(ctx)
	}
	all, until := 0, time.Now().Add(s.pass)
	for {
		var moved [sweepLanes]int
		var g errgroup.Group // the result of one batch is valid even if the other one fails
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

// sweepFailed is the action that the sweep reports for a task that it could not process.
const sweepFailed = "transition_failed"

// Sweep runs one batch: it moves stale tasks to error and opens investigations for tasks in error.
// It returns the number of affected tasks.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	return s.sweepBatch(ctx, 0)
}

// sweepBatch is Sweep, but skips the given number of most overdue tasks, which concurrent batches
// process.
func (s *Service) sweepBatch(ctx context.Context, skip int) (int, error) {
	start := time.Now()
	swept, err := s.db.SweepStale(ctx, s.dry, s.batch, skip)
	if skip > 0 && err == nil && len(swept) == 0 {
		return 0, nil // the first batch reports that there is nothing to do
	}
	s.metrics.Swept(ctx, time.Since(start), toStaleMetrics(swept), err)
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
			log.ErrorContext(ctx, "the sweep could not open an investigation; "+
				"retrying later", "sqlstate", t.ErrorCode, "err", t.ErrorMessage)
		} else {
			log.WarnContext(ctx, "the sweep found a task that needs an operator")
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

// toStaleMetrics converts the findings of a sweep for the metrics.
func toStaleMetrics(swept []postgres.SweepResult) []metrics.Stale {
	out := make([]metrics.Stale, len(swept))
	for i, t := range swept {
		out[i] = metrics.Stale{
			Reason: t.DlqReason, Namespace: t.NamespaceName, State: tasker.TaskState(t.CurrentState), Transitioned: t.TransitionSuccess,
			Failed: t.ActionTaken == sweepFailed, ErrorCode: t.ErrorCode,
		}
	}
	return out
}
