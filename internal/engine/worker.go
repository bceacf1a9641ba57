package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// A member is a worker that we have seen, remembered to spare a read a claim.
type member struct {
	spec  tasker.WorkerSpec
	lease time.Duration // that it was promised, by a server that may have had another one than this
	heard atomic.Int64  // when the database last heard of it from us, in Unix ns
	drain atomic.Bool   // it gets no new work, for ever
	gone  atomic.Bool   // it is not registered any more
}

func (m *member) size() int { return workerBytes(m.spec) }

// Limits of what a worker says of itself.
const (
	maxNamespaces = 100
	maxHandlers   = 1000
)

// RegisterWorker makes a worker known and says how often it must be heard of.
func (e *Engine) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	if w.MaxConcurrency == 0 {
		w.MaxConcurrency = 1
	}
	if err := checkWorker(w); err != nil {
		return tasker.Registration{}, err
	}
	r := tasker.Registration{WorkerUUID: tasker.NewID(), HeartbeatInterval: e.heartbeat, LeaseDuration: e.lease, ClaimIsHeartbeat: true}
	if e.dispatch != nil {
		d := *e.dispatch
		for _, n := range w.Namespaces {
			d.Queues = append(d.Queues, e.queueOf(n))
		}
		r.Dispatch = &d
	}
	if err := e.db.AddWorker(ctx, w, r, e.bounds.Workers); err != nil {
		return tasker.Registration{}, err
	}
	m := &member{spec: w, lease: r.LeaseDuration}
	m.heard.Store(time.Now().UnixNano())
	e.workers.put(r.WorkerUUID, m)
	return r, nil
}

func checkWorker(w tasker.WorkerSpec) error {
	var faults []tasker.Fault
	text := func(path, s string, most int, needed bool) {
		if wrong := textFault(s, most, needed); wrong != "" {
			faults = append(faults, tasker.Fault{Path: path, Message: wrong})
		}
	}
	words := func(path string, list []string, most int) {
		if len(list) == 0 || len(list) > most {
			faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf("1 to %d are needed, not %d", most, len(list))})
			return
		}
		for i, s := range list {
			text(fmt.Sprintf("%s[%d]", path, i), s, 128, true)
			if strings.Contains(s, "*") {
				faults = append(faults, tasker.Fault{Path: fmt.Sprintf("%s[%d]", path, i), Message: fmt.Sprintf("%.100q has a *, which is no wildcard: list each name", s)})
			}
		}
	}
	text("name", w.Name, 255, true)
	text("version", w.Version, 128, false)
	words("namespaces", w.Namespaces, maxNamespaces)
	words("handlers", w.Handlers, maxHandlers)
	if w.MaxConcurrency < 1 || w.MaxConcurrency > 10_000 {
		faults = append(faults, tasker.Fault{Path: "max_concurrency", Message: fmt.Sprintf("must be from 1 to 10000, not %d", w.MaxConcurrency)})
	}
	if bytes := workerBytes(w); bytes > tasker.MaxWorkerBytes {
		faults = append(faults, tasker.Fault{Path: "handlers", Message: fmt.Sprintf("name, namespaces and handlers have %d bytes together; %d is the limit", bytes, tasker.MaxWorkerBytes)})
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the worker cannot be registered: %s", faults[0]).WithDetails(faults)
	}
	return nil
}

// workerBytes is the size of what a worker says of itself.
func workerBytes(w tasker.WorkerSpec) int {
	n := len(w.Name) + len(w.Version)
	for _, s := range slices.Concat(w.Namespaces, w.Handlers) {
		n += len(s)
	}
	return n
}

// LeaveWorker ends a registration. Its leases expire unless released first.
func (e *Engine) LeaveWorker(ctx context.Context, id tasker.ID) error {
	e.workers.drop(id)
	return e.db.RemoveWorker(ctx, id)
}

// DrainWorker stops new work for a worker, which learns that with its next heartbeat, finishes its
// steps and leaves. Repeating it has no effect; only registering again undoes it. It returns
// NotFound for an unknown worker.
func (e *Engine) DrainWorker(ctx context.Context, id tasker.ID) error {
	if err := e.db.DrainWorker(ctx, id); err != nil {
		e.forget(id, err)
		return err
	}
	e.drains(id)
	e.notifier.wakeWorker(id)
	return nil
}

// drains remembers that a worker gets no new work.
func (e *Engine) drains(id tasker.ID) {
	if m, ok := e.workers.get(id); ok {
		m.drain.Store(true)
	}
}

// member returns a registered worker and records it as alive now and then.
func (e *Engine) member(ctx context.Context, id tasker.ID) (*member, error) {
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
	if time.Duration(now-heard) < e.heartbeat/2 || !m.heard.CompareAndSwap(heard, now) {
		return m, nil
	}
	if e.alive.note(id, time.Now()) {
		return m, nil // it is stored together with others
	}
	_, drains, err := e.db.ExtendLeases(ctx, id, e.lease, nil)
	if err != nil {
		e.forget(id, err)
		return nil, err
	}
	if drains {
		m.drain.Store(true)
	}
	return m, nil
}

// forget drops a worker that the database does not know any more.
func (e *Engine) forget(id tasker.ID, err error) {
	if tasker.CodeOf(err) == tasker.NotFound {
		e.workers.drop(id)
	}
}

// heartbeatBuffer collects workers that were heard of until they are stored together.
type heartbeatBuffer struct {
	mu     sync.Mutex
	noted  map[tasker.ID]bool
	since  time.Time     // when the first of them was noted
	passed time.Time     // the last pass of the loop that stores them
	wake   chan struct{} // of the loop
}

const (
	storeRest = time.Second     // between two statements that store which workers are alive
	storeLate = 2 * time.Second // after which the loop is not waited for
)

// note records a live worker for the loop; false if the loop does not run.
func (a *heartbeatBuffer) note(id tasker.ID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.noted) == 0 {
		a.since = now
	}
	if now.Sub(a.passed) > 2*timerInterval || now.Sub(a.since) > storeLate {
		delete(a.noted, id)
		return false
	}
	a.noted[id] = true
	loop.Wake(a.wake)
	return true
}

// take returns the workers to store now, or how long to wait for more of them.
func (a *heartbeatBuffer) take(now time.Time, every time.Duration) (ids []tasker.ID, rest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rest = a.passed.Add(every).Sub(now); rest > 0 && len(a.noted) > 0 {
		return nil, rest
	}
	a.passed = now
	for id := range a.noted {
		ids = append(ids, id)
	}
	clear(a.noted)
	return ids, 0
}

// flushHeartbeats stores which workers are alive that have claimed lately. Claims that wait are
// answered if their worker has to drain, or is not registered any more.
func (e *Engine) flushHeartbeats(ctx context.Context) (time.Duration, error) {
	ids, rest := e.alive.take(time.Now(), min(storeRest, e.heartbeat/4))
	if len(ids) == 0 {
		return rest, nil
	}
	heard, err := e.db.HearWorkers(ctx, ids)
	if err != nil {
		for _, id := range ids {
			if m, ok := e.workers.get(id); ok {
				m.heard.Store(0) // its next claim says so again
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
		e.notifier.wakeWorker(id)
	}
	return 0, nil
}

// Heartbeat extends the leases that the worker holds, reports lost ones and whether it drains.
func (e *Engine) Heartbeat(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	ctx = postgres.WithConnClass(ctx, postgres.Heartbeats)
	if len(leases) > 0 {
		e.reported.Store(e.now().UnixNano())
	}
	extended, drains, err := e.db.ExtendLeases(ctx, worker, e.lease, leases)
	if err != nil {
		e.forget(worker, err)
		return tasker.Beat{}, err
	}
	if m, ok := e.workers.get(worker); ok {
		m.heard.Store(time.Now().UnixNano())
	}
	if drains {
		e.drains(worker)
	}
	held := make(map[tasker.ID]bool, len(extended))
	for _, x := range extended {
		held[x.StepUUID] = true
	}
	beat := tasker.Beat{Extended: extended, Drain: drains}
	for _, l := range leases {
		if !held[l.StepUUID] {
			beat.Lost = append(beat.Lost, l.StepUUID)
		}
	}
	return beat, nil
}

const (
	pollEvery     = time.Second      // how often a waiting claim looks by itself while nothing else would wake it
	claimRest     = 10 * time.Second // the same while notifications arrive and the watch looks
	claimDeadline = 20 * time.Second
	maxClaim      = 1000
)

// drainRest bounds the wait of a claim of a draining worker.
const drainRest = time.Second

// Claim leases up to limit steps, waiting for work up to wait. A draining worker is answered early.
func (e *Engine) Claim(ctx context.Context, worker tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	if limit < 1 {
		return nil, tasker.Errorf(tasker.Invalid, "max must be at least 1, not %d", limit)
	}
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.member(ctx, worker)
	if err != nil {
		return nil, err
	}
	limit = min(limit, maxClaim)
	// Listening comes before looking, or what comes in between is missed.
	waiter := e.notifier.wait(worker, m.spec.Namespaces)
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
			_, err := e.member(ctx, worker)
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
				return nil, nil // it would have been notified
			}
		}
		timer.Stop()
	}
}

// pollInterval is the polling interval of a waiting claim.
func (e *Engine) pollInterval() time.Duration {
	if e.listening.Load() && e.due.Load().alive() {
		return claimRest
	}
	return pollEvery
}

// claim takes what there is now, and says after how long more may be there if steps wait for a limit.
func (e *Engine) claim(ctx context.Context, worker tasker.ID, m *member, limit int) (list []tasker.Assignment, again time.Duration, err error) {
	if m.drain.Load() {
		return nil, 0, nil
	}
	ctx, cancel := claimContext(ctx)
	defer cancel()
	claimed, again, err := e.claimAssignments(ctx, e.claimant(worker, m), limit)
	if err != nil {
		return nil, 0, err
	}
	if len(claimed) > 0 {
		e.requestPoll()
	}
	list, err = e.assignments(ctx, worker, claimed)
	return list, again, err
}

// claimContext is the context of a claim. Once that is sent, the answer matters: one
// that is committed and that nobody hears of costs an attempt.
func claimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), claimDeadline)
}

func (e *Engine) claimant(worker tasker.ID, m *member) postgres.Claimant {
	return postgres.Claimant{
		WorkerUUID: worker, Namespaces: m.spec.Namespaces, Handlers: m.spec.Handlers, Lease: max(e.lease, m.lease), Without: e.aside.ids(e.now()), Version: m.spec.Version,
	}
}

// Release returns unstarted steps of the worker to the queue without using an attempt.
func (e *Engine) Release(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (released, lost []tasker.ID, err error) {
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	m, err := e.member(ctx, worker)
	if err != nil {
		return nil, nil, err
	}
	if released, err = e.db.ReleaseSteps(ctx, worker, leases); err != nil {
		return nil, nil, err
	}
	if len(released) > 0 {
		e.notify(m.spec.Namespaces)
	}
	back := make(map[tasker.ID]bool, len(released))
	for _, id := range released {
		back[id] = true
	}
	for _, l := range leases {
		if !back[l.StepUUID] {
			lost = append(lost, l.StepUUID)
		}
	}
	return released, lost, nil
}
