package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// member is a cached worker registration, which saves reading it for each claim.
type member struct {
	spec  tasker.WorkerSpec
	lease time.Duration // lease duration at registration; the registering server may be configured differently
	heard atomic.Int64  // last heartbeat stored by this server, in Unix nanoseconds
	drain atomic.Bool   // the worker gets no more work
	gone  atomic.Bool   // no longer registered
}

func (m *member) size() int { return workerSize(m.spec) }

// Maximum numbers in a registration.
const (
	maxNamespaces = 100
	maxHandlers   = 1000
)

// RegisterWorker registers a worker and returns its id with the heartbeat and lease settings.
func (e *Engine) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	if w.MaxConcurrency == 0 {
		w.MaxConcurrency = 1
	}
	if err := checkWorker(w); err != nil {
		return tasker.Registration{}, err
	}
	r := tasker.Registration{WorkerUUID: tasker.NewID(), HeartbeatInterval: e.opts.Leases.HeartbeatInterval, LeaseDuration: e.opts.Leases.Duration, ClaimIsHeartbeat: true}
	if e.opts.Broker.Dispatch != nil {
		d := *e.opts.Broker.Dispatch
		for _, n := range w.Namespaces {
			d.Queues = append(d.Queues, e.opts.Broker.QueueOf(n))
		}
		r.Dispatch = &d
	}
	if err := e.db.AddWorker(ctx, w, r, e.opts.Quotas.Workers); err != nil {
		return tasker.Registration{}, err
	}
	m := &member{spec: w, lease: r.LeaseDuration}
	m.heard.Store(time.Now().UnixNano())
	e.workers.put(r.WorkerUUID, m)
	return r, nil
}

func checkWorker(w tasker.WorkerSpec) error {
	var wrong faults
	words := func(path string, list []string, most int) {
		if len(list) == 0 || len(list) > most {
			wrong.add(path, "must have from 1 to %d elements, not %d", most, len(list))
			return
		}
		for i, s := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			wrong.checkText(at, s, 128, true)
			if strings.Contains(s, "*") {
				wrong.add(at, "%.100q contains *, but wildcards are not supported: list each name", s)
			}
		}
	}
	wrong.checkText("name", w.Name, 255, true)
	wrong.checkText("version", w.Version, 128, false)
	words("namespaces", w.Namespaces, maxNamespaces)
	words("handlers", w.Handlers, maxHandlers)
	if w.MaxConcurrency < 1 || w.MaxConcurrency > 10_000 {
		wrong.add("max_concurrency", "must be from 1 to 10000, not %d", w.MaxConcurrency)
	}
	if bytes := workerSize(w); bytes > tasker.MaxWorkerBytes {
		wrong.add("handlers",
			"name, namespaces and handlers have %d bytes in total; the limit is %d", bytes, tasker.MaxWorkerBytes)
	}
	return wrong.toError("the worker cannot be registered")
}

func workerSize(w tasker.WorkerSpec) int {
	n := len(w.Name) + len(w.Version)
	for _, s := range slices.Concat(w.Namespaces, w.Handlers) {
		n += len(s)
	}
	return n
}

// LeaveWorker marks a worker as offline. Leases that it has not released expire.
func (e *Engine) LeaveWorker(ctx context.Context, id tasker.ID) error {
	e.workers.drop(id)
	return e.db.RemoveWorker(ctx, id)
}

// DrainWorker assigns no more work to a worker. The worker receives this with its next heartbeat,
// finishes its steps and leaves. Repeating it has no effect, and only a new registration reverts
// it. It returns NotFound if the worker is not registered.
func (e *Engine) DrainWorker(ctx context.Context, id tasker.ID) error {
	if err := e.db.DrainWorker(ctx, id); err != nil {
		e.forgetWorker(id, err)
		return err
	}
	e.recordDrain(id)
	e.waiters.notifier.wakeWorker(id)
	return nil
}

// recordDrain marks a cached worker as draining.
func (e *Engine) recordDrain(id tasker.ID) {
	if m, ok := e.workers.get(id); ok {
		m.drain.Store(true)
	}
}

// findMember returns a registered worker. It periodically records that the worker is alive.
func (e *Engine) findMember(ctx context.Context, id tasker.ID) (*member, error) {
	m, ok := e.workers.get(id)
	if !ok {
		spec, lease, err := e.db.Worker(ctx, id)
		if err != nil {
			return nil, err
		}
		m = &member{spec: spec, lease: lease}
		e.workers.put(id, m)
	}
	heard, now := m.heard.Load(), time.Now().UnixNano()
	if time.Duration(now-heard) < e.opts.Leases.HeartbeatInterval/2 || !m.heard.CompareAndSwap(heard, now) {
		return m, nil
	}
	if e.alive.recordHeartbeat(id, time.Now()) {
		return m, nil // a loop will store it together with others
	}
	_, drains, err := e.db.ExtendLeases(ctx, id, e.opts.Leases.Duration, nil)
	if err != nil {
		e.forgetWorker(id, err)
		return nil, err
	}
	if drains {
		m.drain.Store(true)
	}
	return m, nil
}

// forgetWorker removes a worker from the cache if err is NotFound.
func (e *Engine) forgetWorker(id tasker.ID, err error) {
	if tasker.CodeOf(err) == tasker.NotFound {
		e.workers.drop(id)
	}
}

// heartbeatBuffer collects active workers until a loop stores them together.
type heartbeatBuffer struct {
	keyBuffer[tasker.ID]
	since time.Time // when the first worker was added
}

// keyBuffer collects keys until a loop stores them.
type keyBuffer[K comparable] struct {
	mu     sync.Mutex
	keys   map[K]bool
	passed time.Time     // time of the last pass of the loop
	wake   chan struct{} // wakes the loop
}

func newKeyBuffer[K comparable]() keyBuffer[K] {
	return keyBuffer[K]{keys: map[K]bool{}, wake: make(chan struct{}, 1)}
}

const (
	storeInterval = time.Second     // between two statements that store active workers or queues
	storeLate     = 2 * time.Second // age from which a caller does not wait for the loop
)

// recordHeartbeat adds an active worker. It returns false if the loop does not keep up, so that the
// caller must store the heartbeat itself.
func (a *heartbeatBuffer) recordHeartbeat(id tasker.ID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) == 0 {
		a.since = now
	}
	if now.Sub(a.passed) > 2*timerInterval || now.Sub(a.since) > storeLate {
		delete(a.keys, id)
		return false
	}
	a.keys[id] = true
	loop.Wake(a.wake)
	return true
}

// takeKeys removes and returns the keys to store now. If it is too early, it returns how long to
// wait.
func (a *keyBuffer[K]) takeKeys(now time.Time, every time.Duration) (keys []K, rest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rest = a.passed.Add(every).Sub(now); rest > 0 && len(a.keys) > 0 {
		return nil, rest
	}
	a.passed = now
	keys = slices.Collect(maps.Keys(a.keys))
	clear(a.keys)
	return keys, 0
}

// flushHeartbeats stores heartbeats of the workers that have claimed recently. It ends waiting
// claims of workers that must drain or are no longer registered.
func (e *Engine) flushHeartbeats(ctx context.Context) (time.Duration, error) {
	ids, rest := e.alive.takeKeys(time.Now(), min(storeInterval, e.opts.Leases.HeartbeatInterval/4))
	if len(ids) == 0 {
		return rest, nil
	}
	heard, err := e.db.RecordHeartbeats(ctx, ids)
	if err != nil {
		for _, id := range ids {
			if m, ok := e.workers.get(id); ok {
				m.heard.Store(0) // store its next claim again
			}
		}
		return 0, err
	}
	for _, id := range ids {
		drains, known := heard[id]
		m, ok := e.workers.get(id)
		switch {
		case !ok:
			continue
		case !known:
			e.workers.drop(id)
			m.gone.Store(true)
		case !drains || m.drain.Swap(true):
			continue
		}
		e.waiters.notifier.wakeWorker(id)
	}
	return 0, nil
}

// Heartbeat extends the leases that the worker holds. It returns the steps whose leases are lost
// and whether the worker must drain.
func (e *Engine) Heartbeat(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	ctx = postgres.WithConnClass(ctx, postgres.Heartbeats)
	if len(leases) > 0 {
		e.outages.reported.Store(e.now().UnixNano())
	}
	extended, drains, err := e.db.ExtendLeases(ctx, worker, e.opts.Leases.Duration, leases)
	if err != nil {
		e.forgetWorker(worker, err)
		return tasker.Beat{}, err
	}
	if m, ok := e.workers.get(worker); ok {
		m.heard.Store(time.Now().UnixNano())
	}
	if drains {
		e.recordDrain(worker)
	}
	return tasker.Beat{
		Extended: extended, Drain: drains,
		Lost: lostLeases(leases, newIDSet(extended, func(l tasker.LeaseExtension) tasker.ID { return l.StepUUID })),
	}, nil
}

// lostLeases returns the steps of the leases that the worker no longer holds.
func lostLeases(leases []tasker.Lease, held map[tasker.ID]bool) (lost []tasker.ID) {
	for _, l := range leases {
		if !held[l.StepUUID] {
			lost = append(lost, l.StepUUID)
		}
	}
	return lost
}

const (
	pollEvery     = time.Second      // polling interval of a waiting claim without notifications
	claimRest     = 10 * time.Second // polling interval with notifications
	claimDeadline = 20 * time.Second
	maxClaim      = 1000
)

// drainRest limits how long a claim of a draining worker waits.
const drainRest = time.Second

// Claim leases up to limit steps. If there are none, it waits for work, at most for the duration
// wait. A claim of a draining worker returns early.
func (e *Engine) Claim(ctx context.Context, worker tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	if limit < 1 {
		return nil, tasker.Errorf(tasker.Invalid, "max must be at least 1, not %d", limit)
	}
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.findMember(ctx, worker)
	if err != nil {
		return nil, err
	}
	limit = min(limit, maxClaim)
	// Register before claiming: work that arrives in between must wake the waiter.
	waiter := e.waiters.notifier.wait(worker, m.spec.Namespaces)
	defer waiter.stop()
	deadline := time.Now().Add(wait)
	if m.drain.Load() {
		deadline = time.Now().Add(min(wait, drainRest))
	}
	for drained := m.drain.Load(); ; {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case m.gone.Load():
			_, err := e.findMember(ctx, worker)
			return nil, err
		case m.drain.Load() && !drained:
			return nil, nil
		}
		steps, again, err := e.claim(ctx, worker, m, limit)
		rest := min(time.Until(deadline), e.pollInterval())
		if again > 0 {
			rest = min(rest, again)
		}
		if err != nil || len(steps) > 0 || rest <= 0 {
			return steps, err
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-waiter.notified:
		case <-timer.C:
			if again == 0 && len(waiter.notified) == 0 && !time.Now().Before(deadline) && e.pollInterval() == claimRest {
				return nil, nil // otherwise a notification would have arrived
			}
		}
		timer.Stop()
	}
}

func (e *Engine) pollInterval() time.Duration {
	if e.waiters.listening.Load() && e.timers.due.Load().isAlive() {
		return claimRest
	}
	return pollEvery
}

// claim claims available steps. If steps wait for a limit, it also returns when to try again.
func (e *Engine) claim(ctx context.Context, worker tasker.ID, m *member, limit int) (list []tasker.Assignment, again time.Duration, err error) {
	if m.drain.Load() {
		return nil, 0, nil
	}
	ctx, cancel := claimContext(ctx)
	defer cancel()
	claimed, again, err := e.claimAssignments(ctx, e.newClaimant(worker, m), limit)
	if err != nil {
		return nil, 0, err
	}
	if len(claimed) > 0 {
		e.requestPoll()
	}
	list, err = e.buildAssignments(ctx, worker, claimed)
	return list, again, err
}

// claimContext returns a context for a claim that ignores the cancellation of the request. A
// committed claim that does not reach the worker costs an attempt.
func claimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), claimDeadline)
}

func (e *Engine) newClaimant(worker tasker.ID, m *member) postgres.Claimant {
	return postgres.Claimant{
		WorkerUUID: worker, Namespaces: m.spec.Namespaces, Handlers: m.spec.Handlers, Lease: max(e.opts.Leases.Duration, m.lease), Without: e.skipped.ids(e.now()), Version: m.spec.Version,
	}
}

// Release returns steps that the worker has not started to the queue without using an attempt. It
// returns which steps were released and which were lost before.
func (e *Engine) Release(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (released, lost []tasker.ID, err error) {
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.findMember(ctx, worker)
	if err != nil {
		return nil, nil, err
	}
	if released, err = e.db.ReleaseSteps(ctx, worker, leases); err != nil {
		return nil, nil, err
	}
	if len(released) > 0 {
		e.notify(m.spec.Namespaces)
	}
	return released, lostLeases(leases, newIDSet(released, func(id tasker.ID) tasker.ID { return id })), nil
}
