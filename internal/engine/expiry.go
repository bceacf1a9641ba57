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
	expiryBatch     = 100              // each opens an investigation
	expiryChunk     = 10               // in one transaction: snapshots may be large
	letterTime      = 15 * time.Second // of one chunk of dead letters
	redispatchEvery = time.Second
	noWorkerEvery   = 5 * time.Second // at most, between two looks for queues without workers
	noWorkerLooks   = 6               // in the time after which they count as such
)

// queueLoops returns the loops that expire queued steps and return them when a worker is alive.
func (e *Engine) queueLoops(watch *timerScheduler) []*loop.Loop {
	list := []*loop.Loop{watch.timer(e.loop("queue limits", timerInterval, e.withGrace(e.ExpireSteps)), postgres.ExpireStep)}
	if e.noWorker != nil {
		pace := min(max(*e.noWorker/noWorkerLooks, minPollInterval), noWorkerEvery)
		list = append(list, watch.paced(e.loop("queues without workers", timerInterval, e.withGrace(e.ExpireUnserved)), postgres.ExpireUnserved, pace))
	}
	if e.autoRecover {
		list = append(list, watch.paced(e.loop("redispatch", timerInterval, e.Redispatch), postgres.RedispatchTask, redispatchEvery))
	}
	return list
}

// A grace delays expiry after a start or an outage, so that workers can take work first.
type grace struct {
	mu     sync.Mutex
	lasts  time.Duration
	looked time.Time // when the database last answered
	ends   time.Time
}

// over reports whether steps may be failed, now that the database is asked.
func (g *grace) over(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lasts < 0 {
		return true
	}
	if now.Sub(g.looked) > g.lasts {
		g.ends = now.Add(g.lasts)
	}
	return !now.Before(g.ends)
}

// remaining is for how long workers are still given.
func (g *grace) remaining(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.ends.Sub(now), 0)
}

// answered notes that the database did.
func (g *grace) answered(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked = now
}

// withGrace is the pass of an expiry loop that does nothing during the grace.
func (e *Engine) withGrace(expire func(context.Context) (int, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if !e.grace.over(e.now()) {
			err := e.db.Writable(ctx)
			if err == nil {
				e.grace.answered(e.now())
			}
			return e.grace.remaining(e.now()), err
		}
		n, err := expire(ctx)
		if n >= expiryBatch {
			return loop.AtOnce, err
		}
		return 0, err
	}
}

// ExpireSteps fails a batch of steps past their queue timeout, with investigations, sets failures
// aside and returns the number found.
func (e *Engine) ExpireSteps(ctx context.Context) (int, error) {
	return e.expirePass(ctx, e.work(postgres.ExpireStep))
}

// ExpireUnserved fails a batch of steps without a live worker and returns the number found.
func (e *Engine) ExpireUnserved(ctx context.Context) (int, error) {
	return e.expirePass(ctx, e.work(postgres.ExpireUnserved))
}

func (e *Engine) expirePass(ctx context.Context, w work) (int, error) {
	begun := e.now()
	find := w.find
	w.find = func(ctx context.Context, limit int) ([]tasker.StepRef, error) {
		due, err := find(ctx, limit)
		if err == nil {
			e.grace.answered(begun)
		}
		return due, err
	}
	return e.pass(ctx, w, expiryBatch)
}

// An expiring is how steps are failed that no worker took.
type expiring struct {
	lock     lockFunc
	evidence map[tasker.StepRef]json.RawMessage // of the broker; goes into the metadata of the investigation
	unserved *time.Duration                     // without a live worker, after which a step fails within its limit; nil: none does
}

// expire fails steps still past their limit, with investigations, in one transaction. Held steps
// and saturated queues wait on.
func (e *Engine) expire(ctx context.Context, steps []tasker.StepRef, how expiring) ([]postgres.ExpiredStep, error) {
	held, err := e.db.ParkHeldSteps(ctx, steps)
	if err != nil {
		return nil, err
	}
	if steps = leave(steps, held); len(steps) == 0 {
		return nil, nil
	}
	kept, err := e.db.ExtendQueueDeadline(ctx, steps)
	if err != nil {
		return nil, err
	}
	if steps = leave(steps, kept); len(steps) == 0 {
		return nil, nil
	}
	var expired []postgres.ExpiredStep
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		expired = nil
		locked, err := how.lock(ctx, tx, tasksOfSteps(steps))
		if err != nil || len(locked) == 0 {
			return err
		}
		mine := stepsOf(locked, steps)
		if expired, err = tx.ExpireSteps(ctx, mine, e.maxExpiries, how.unserved); err != nil || len(expired) == 0 {
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
			e.log.WarnContext(ctx, "no worker is alive for a step", attributes...)
		} else {
			e.log.WarnContext(ctx, "worker queue TTL expired", attributes...)
		}
		e.expired(ctx, x.Namespace, detector(how.evidence[x.StepRef]), expiryCode(x))
	}
	return expired, nil
}

// lockFunc is a way to lock tasks; it returns those that it locked.
type lockFunc func(context.Context, *postgres.Tx, []tasker.ID) ([]tasker.ID, error)

// lockUncontended leaves out the tasks that somebody works on.
func lockUncontended(ctx context.Context, tx *postgres.Tx, tasks []tasker.ID) ([]tasker.ID, error) {
	return tx.LockFreeTasks(ctx, tasks)
}

func tasksOfSteps(steps []tasker.StepRef) []tasker.ID {
	tasks := make([]tasker.ID, len(steps))
	for i, s := range steps {
		tasks[i] = s.TaskUUID
	}
	return tasks
}

// stepsOf returns those of the steps that are of the tasks.
func stepsOf(tasks []tasker.ID, steps []tasker.StepRef) []tasker.StepRef {
	of := make(map[tasker.ID]bool, len(tasks))
	for _, id := range tasks {
		of[id] = true
	}
	var out []tasker.StepRef
	for _, s := range steps {
		if of[s.TaskUUID] {
			out = append(out, s)
		}
	}
	return out
}

func (e *Engine) investigateExpired(
	ctx context.Context, tx *postgres.Tx, expired []postgres.ExpiredStep, evidence map[tasker.StepRef]json.RawMessage,
) error {
	tasks := make([]tasker.ID, len(expired))
	for i, x := range expired {
		tasks[i] = x.TaskUUID
	}
	settled, err := tx.SettleTasks(ctx, tasks, postgres.Operator{})
	if err != nil {
		return err
	}
	was := byTask(settled)
	entries := map[string][]postgres.NewEntry{} // by who has found them
	for _, x := range expired {
		metadata, err := e.dispatchEvidence(x, evidence[x.StepRef])
		if err != nil {
			return err
		}
		s, by := was[x.TaskUUID], detector(evidence[x.StepRef])
		entries[by] = append(entries[by], postgres.NewEntry{
			TaskUUID: x.TaskUUID, StepUUID: &x.StepUUID, Reason: tasker.WorkerUnavailable, DetailCode: expiryCode(x),
			DetectedBy: by, OriginalState: s.Was, Since: s.Since, Actor: tasker.SystemActor, Metadata: metadata,
		})
	}
	for _, by := range slices.Sorted(maps.Keys(entries)) {
		if _, err := tx.OpenEntries(ctx, entries[by]); err != nil {
			return fmt.Errorf("investigate steps that no worker took: %w", err)
		}
	}
	return nil
}

// expiryCode says why nobody took a step.
func expiryCode(x postgres.ExpiredStep) string {
	if x.Workers == 0 {
		return tasker.NoWorkers
	}
	return tasker.DispatchExpired
}

func detector(evidence json.RawMessage) string {
	if evidence != nil {
		return tasker.DetectedBroker
	}
	return tasker.DetectedSweep
}

// dispatchEvidence is what an investigation keeps of a step that no worker took.
func (e *Engine) dispatchEvidence(x postgres.ExpiredStep, deadLetter json.RawMessage) (json.RawMessage, error) {
	transport := "postgres"
	if e.dispatch != nil {
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
		TTL: x.ExpiresAt.Sub(x.QueuedAt).Milliseconds(), LiveWorkers: x.Workers, Expiries: x.QueueExpiries, Returns: x.Returns && e.autoRecover,
		DeadLetter: deadLetter, NoWorkerFor: e.noWorkerFor(x), Kept: x.Kept, BusyAt: x.BusyAt,
	}})
}

// noWorkerFor is the minimum time without a live worker in ms; 0 for an exceeded limit.
func (e *Engine) noWorkerFor(x postgres.ExpiredStep) int64 {
	if !x.Unserved || e.noWorker == nil {
		return 0
	}
	return e.noWorker.Milliseconds()
}

// Redispatch returns expired steps with a live worker to the queue. It reruns at once if there are
// more.
func (e *Engine) Redispatch(ctx context.Context) (time.Duration, error) {
	return e.timed(e.work(postgres.RedispatchTask))(ctx)
}

// heartbeatsOfALease is how many heartbeats fit into a lease.
const heartbeatsOfALease = 3

// minOutage is how long workers may go unheard before their leases get more time.
const minOutage = 2 * time.Second

// A leaseGrace delays lease expiry after the database or this server could not hear workers.
type leaseGrace struct {
	mu     sync.Mutex
	outage time.Duration // without an answer of the database for longer than this
	lasts  time.Duration
	heard  time.Time // when the database last took writes
	ends   time.Time // zero: none is under way
}

// databaseDown notes that the database takes no writes.
func (g *leaseGrace) databaseDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = time.Time{}
}

// expired records that the database is writable and reports whether the grace has ended.
func (g *leaseGrace) expired(now time.Time) bool {
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

// left is for how long a grace that is under way still lasts.
func (g *leaseGrace) left(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.ends.Sub(now), 0)
}

// passed notes the end of a pass, which is not an outage however long it took.
func (g *leaseGrace) passed(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = now
}

// reclaimPass wraps a pass that takes back expired leases with the grace.
func (e *Engine) reclaimPass(pass func(context.Context) (time.Duration, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if err := e.db.Writable(ctx); err != nil {
			e.leaseGrace.databaseDown()
			return 0, err
		}
		if !e.leaseGrace.expired(e.now()) {
			return e.leaseGrace.left(e.now()), nil
		}
		next, err := pass(ctx)
		if err == nil {
			e.leaseGrace.passed(e.now())
		}
		return next, err
	}
}
