package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

const (
	expiryBatch     = 100              // each step opens an investigation
	expiryChunk     = 10               // steps per transaction, since snapshots may be large
	letterTime      = 15 * time.Second // for one chunk of dead letters
	redispatchEvery = time.Second
	noWorkerEvery   = 5 * time.Second // maximum between two scans for queues without workers
	noWorkerScans   = 6               // number of scans within Options.UnservedTimeout
)

// queueLoops returns the loops that expire queued steps, and the loop that enqueues expired steps
// again when a worker is online.
func (e *Engine) queueLoops(watch *timerScheduler) []*loop.Loop {
	list := []*loop.Loop{watch.newTimer(e.newLoop("queue limits", timerInterval, e.withGrace(e.ExpireSteps)), postgres.ExpireStep)}
	if e.noWorker != nil {
		pace := min(max(*e.noWorker/noWorkerScans, minPollInterval), noWorkerEvery)
		list = append(list, watch.newPacedTimer(e.newLoop("queues without workers", timerInterval, e.withGrace(e.ExpireUnserved)), postgres.ExpireUnserved, pace))
	}
	if !e.opts.Queues.DisableAutoRecovery {
		list = append(list, watch.newPacedTimer(e.newLoop("redispatch", timerInterval, e.Redispatch), postgres.RedispatchTask, redispatchEvery))
	}
	return list
}

// grace suspends expiry after a start or an outage, so that workers can first claim steps.
type grace struct {
	mu     sync.Mutex
	lasts  time.Duration
	polled time.Time // when the database last answered
	ends   time.Time
}

// isOver reports whether steps may expire. Call it before querying the database.
func (g *grace) isOver(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lasts < 0 {
		return true
	}
	if now.Sub(g.polled) > g.lasts {
		g.ends = now.Add(g.lasts)
	}
	return !now.Before(g.ends)
}

func (g *grace) remaining(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.ends.Sub(now), 0)
}

// recordAnswer records that the database has answered.
func (g *grace) recordAnswer(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.polled = now
}

// withGrace returns a pass that calls expire, but does nothing during the grace period.
func (e *Engine) withGrace(expire func(context.Context) (int, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if !e.outages.grace.isOver(e.now()) {
			err := e.db.CheckWritable(ctx)
			if err == nil {
				e.outages.grace.recordAnswer(e.now())
			}
			return e.outages.grace.remaining(e.now()), err
		}
		n, err := expire(ctx)
		if n >= expiryBatch {
			return loop.AtOnce, err
		}
		return 0, err
	}
}

// ExpireSteps fails a batch of steps whose queue timeout has passed and opens investigations for
// them. It returns how many steps it found. Rows that cause errors are deferred.
func (e *Engine) ExpireSteps(ctx context.Context) (int, error) {
	return e.expirePass(ctx, e.workOfKind(postgres.ExpireStep))
}

// ExpireUnserved fails a batch of steps for which no worker has been online. It returns how many
// steps it found.
func (e *Engine) ExpireUnserved(ctx context.Context) (int, error) {
	return e.expirePass(ctx, e.workOfKind(postgres.ExpireUnserved))
}

func (e *Engine) expirePass(ctx context.Context, w work) (int, error) {
	begun := e.now()
	find := w.find
	w.find = func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		due, err := find(ctx, limit)
		if err == nil {
			e.outages.grace.recordAnswer(begun)
		}
		return due, err
	}
	return e.runPass(ctx, w, expiryBatch)
}

// expiryMode contains the options of expire.
type expiryMode struct {
	wait     bool                               // wait for locked tasks instead of skipping them
	evidence map[tasker.StepRef]json.RawMessage // evidence from the broker, for the investigations
	unserved *time.Duration                     // if set, also fail steps that were unserved for this long
}

// expire fails steps that are past their limit and opens investigations, in one transaction. Held
// steps and steps of saturated queues continue to wait.
func (e *Engine) expire(ctx context.Context, steps []tasker.StepRef, how expiryMode) ([]postgres.ExpiredStep, error) {
	held, err := e.db.ParkHeldSteps(ctx, steps)
	if err != nil {
		return nil, err
	}
	if steps = excludeSteps(steps, held); len(steps) == 0 {
		return nil, nil
	}
	extended, err := e.db.ExtendQueueDeadline(ctx, steps)
	if err != nil {
		return nil, err
	}
	if steps = excludeSteps(steps, extended); len(steps) == 0 {
		return nil, nil
	}
	var expired []postgres.ExpiredStep
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		expired = nil
		locked, err := uniqueTasks(steps), error(nil)
		if how.wait {
			err = tx.LockTasks(ctx, locked)
		} else {
			locked, err = tx.LockFreeTasks(ctx, locked)
		}
		if err != nil || len(locked) == 0 {
			return err
		}
		expired, err = tx.ExpireSteps(ctx, selectSteps(locked, steps), e.opts.Queues.MaxExpiries, how.unserved)
		if err != nil || len(expired) == 0 {
			return err
		}
		return e.investigateExpired(ctx, tx, expired, how.evidence)
	})
	if err != nil {
		return nil, err
	}
	for _, x := range expired {
		attributes := []any{"task_uuid", x.TaskUUID, "step_uuid", x.StepUUID, "namespace", x.Namespace, "handler", x.Handler, "live_workers", x.Workers}
		if x.Unserved {
			e.log.WarnContext(ctx, "step unserved: no worker online", attributes...)
		} else {
			e.log.WarnContext(ctx, "worker queue TTL expired", attributes...)
		}
		e.opts.Hooks.StepExpired(ctx, x.Namespace, detectorName(how.evidence[x.StepRef]), detailCode(x))
	}
	return expired, nil
}

func uniqueTasks(steps []tasker.StepRef) []tasker.ID {
	return mapSlice(steps, func(s tasker.StepRef) tasker.ID { return s.TaskUUID })
}

// selectSteps returns the steps of the given tasks.
func selectSteps(tasks []tasker.ID, steps []tasker.StepRef) []tasker.StepRef {
	of := newIDSet(tasks, func(id tasker.ID) tasker.ID { return id })
	return slices.DeleteFunc(slices.Clone(steps), func(s tasker.StepRef) bool { return !of[s.TaskUUID] })
}

func mapSlice[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

func newIDSet[T any](list []T, id func(T) tasker.ID) map[tasker.ID]bool {
	set := make(map[tasker.ID]bool, len(list))
	for _, x := range list {
		set[id(x)] = true
	}
	return set
}

func (e *Engine) investigateExpired(
	ctx context.Context, tx *postgres.Tx, expired []postgres.ExpiredStep, evidence map[tasker.StepRef]json.RawMessage,
) error {
	settled, err := tx.SettleTasks(ctx, mapSlice(expired, func(x postgres.ExpiredStep) tasker.ID { return x.TaskUUID }), postgres.Operator{})
	if err != nil {
		return err
	}
	was := indexByTask(settled)
	entries := map[string][]postgres.NewEntry{} // by the detector of the expiry
	for _, x := range expired {
		metadata, err := e.buildDispatchEvidence(x, evidence[x.StepRef])
		if err != nil {
			return err
		}
		s, by := was[x.TaskUUID], detectorName(evidence[x.StepRef])
		entries[by] = append(entries[by], postgres.NewEntry{
			TaskUUID: x.TaskUUID, StepUUID: &x.StepUUID, Reason: tasker.WorkerUnavailable, DetailCode: detailCode(x),
			DetectedBy: by, OriginalState: s.Was, Since: s.Since, Actor: tasker.SystemActor, Metadata: metadata,
		})
	}
	for _, by := range slices.Sorted(maps.Keys(entries)) {
		if _, err := tx.OpenEntries(ctx, entries[by]); err != nil {
			return fmt.Errorf("investigate unclaimed steps: %w", err)
		}
	}
	return nil
}

func detailCode(x postgres.ExpiredStep) string {
	if x.Workers == 0 {
		return tasker.NoWorkers
	}
	return tasker.DispatchExpired
}

func detectorName(evidence json.RawMessage) string {
	if evidence != nil {
		return tasker.DetectedBroker
	}
	return tasker.DetectedSweep
}

// buildDispatchEvidence returns the metadata for the investigation of a step that no worker
// claimed.
func (e *Engine) buildDispatchEvidence(x postgres.ExpiredStep, deadLetter json.RawMessage) (json.RawMessage, error) {
	noWorkerFor := int64(0) // milliseconds
	if x.Unserved && e.noWorker != nil {
		noWorkerFor = e.noWorker.Milliseconds()
	}
	transport := "postgres"
	if e.opts.Broker.Dispatch != nil {
		transport = "rabbitmq"
	}
	return json.Marshal(map[string]any{"dispatch": struct {
		Transport   string          `json:"transport"`
		Namespace   string          `json:"namespace"`
		Handler     string          `json:"handler"`
		QueuedAt    time.Time       `json:"queued_at"`
		ExpiresAt   time.Time       `json:"expires_at"`
		TTL         int64           `json:"worker_queue_ttl_ms"`
		LiveWorkers int64           `json:"live_workers"`
		Expiries    int             `json:"expiries_with_live_workers"`
		Returns     bool            `json:"returns_when_a_worker_lives"`
		Kept        bool            `json:"queue_was_saturated,omitempty"`
		BusyAt      *time.Time      `json:"queue_last_claimed_at,omitempty"`
		NoWorkerFor int64           `json:"no_live_worker_for_ms,omitempty"`
		DeadLetter  json.RawMessage `json:"dead_letter,omitempty"`
	}{
		Transport: transport, Namespace: x.Namespace, Handler: x.Handler, QueuedAt: x.QueuedAt, ExpiresAt: x.ExpiresAt,
		TTL: x.ExpiresAt.Sub(x.QueuedAt).Milliseconds(), LiveWorkers: x.Workers, Expiries: x.QueueExpiries, Returns: x.Returns && !e.opts.Queues.DisableAutoRecovery,
		DeadLetter: deadLetter, NoWorkerFor: noWorkerFor, Kept: x.Kept, BusyAt: x.BusyAt,
	}})
}

// Redispatch enqueues a batch of expired steps again if a worker for them is online. It returns
// [newLoop.AtOnce] if there may be more.
func (e *Engine) Redispatch(ctx context.Context) (time.Duration, error) {
	return e.newTimedPass(e.workOfKind(postgres.RedispatchTask))(ctx)
}

// heartbeatsOfALease is the number of heartbeats that a worker sends per lease duration.
const heartbeatsOfALease = 3

// minOutage is the minimum duration of an outage that extends leases.
const minOutage = 2 * time.Second

// leaseGrace suspends lease expiry after an outage of the database or of this server.
type leaseGrace struct {
	mu     sync.Mutex
	outage time.Duration // maximum time without a response from the database that does not count as an outage
	lasts  time.Duration
	heard  time.Time // when the database last accepted writes
	ends   time.Time // zero if no grace is active
}

// recordDatabaseDown records that the database does not accept writes.
func (g *leaseGrace) recordDatabaseDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = time.Time{}
}

// hasExpired records that the database accepts writes and reports whether the grace period is over.
func (g *leaseGrace) hasExpired(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ends.IsZero() && now.Sub(g.heard) > g.outage {
		g.ends = now.Add(g.lasts)
	}
	g.heard = now
	if now.Before(g.ends) {
		return false
	}
	g.ends = time.Time{}
	return true
}

func (g *leaseGrace) remaining(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.ends.Sub(now), 0)
}

// recordPass records the end of a pass. A long pass is not an outage.
func (g *leaseGrace) recordPass(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = now
}

// reclaimPass wraps a pass that reclaims expired leases. The wrapper suspends it during the grace
// period.
func (e *Engine) reclaimPass(pass func(context.Context) (time.Duration, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if err := e.db.CheckWritable(ctx); err != nil {
			e.outages.leaseGrace.recordDatabaseDown()
			return 0, err
		}
		if !e.outages.leaseGrace.hasExpired(e.now()) {
			return e.outages.leaseGrace.remaining(e.now()), nil
		}
		next, err := pass(ctx)
		if err == nil {
			e.outages.leaseGrace.recordPass(e.now())
		}
		return next, err
	}
}
