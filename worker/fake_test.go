package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// fake is an engine in memory, for what the real one cannot be made to do in a
// bubble of time: be slow, be gone, forget, refuse.
type fake struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when work arrives
	queue    []tasker.Assignment
	held     map[tasker.Lease]tasker.ID
	done     map[tasker.Lease]bool
	lost     map[tasker.ID]bool // steps whose lease a heartbeat will call lost
	known    map[tasker.ID]bool // workers
	accepted []tasker.Outcome
	released []tasker.Lease
	calls    []string
	reports  [][]tasker.Outcome
	beats    [][]tasker.Lease
	left     int
	results  map[tasker.ID]json.RawMessage // of steps
	saved    map[tasker.ID]json.RawMessage // checkpoints of steps
	drained  map[tasker.ID]bool            // workers
	hanging  map[string]bool               // calls that are not answered
	counts   bool                          // a claim is a heartbeat
	early    bool                          // a claim of a worker that drains returns early
	signs    []time.Time                   // claims and heartbeats

	reportTakes time.Duration
	fail        func(call string) error                 // before anything happens
	after       func(call string) error                 // when it has happened: the answer is lost
	next        func(tasker.Outcome) *tasker.Assignment // what an accepted outcome makes ready
	reject      func(tasker.Outcome) *tasker.Rejection
}

var _ worker.Backend = (*fake)(nil)

func newFake() *fake {
	return &fake{
		changed: make(chan struct{}), held: map[tasker.Lease]tasker.ID{}, done: map[tasker.Lease]bool{},
		lost: map[tasker.ID]bool{}, known: map[tasker.ID]bool{}, drained: map[tasker.ID]bool{},
	}
}

// step returns an assignment for a handler.
func step(handler string) tasker.Assignment {
	return tasker.Assignment{
		StepUUID: tasker.NewID(), TaskUUID: tasker.NewID(), Name: handler, Handler: handler, Attempt: 1, MaxAttempts: 3, Fence: 1,
		Context: json.RawMessage("{}"),
	}
}

func (f *fake) add(list ...tasker.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, list...)
	close(f.changed)
	f.changed = make(chan struct{})
}

// begin records a call, and blocks while the call hangs.
func (f *fake) begin(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	if call == "claim" || call == "heartbeat" {
		f.signs = append(f.signs, time.Now())
	}
	var err error
	if f.fail != nil {
		err = f.fail(call)
	}
	hangs := f.hanging[strings.Fields(call)[0]]
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// hang leaves calls unanswered from now on.
func (f *fake) hang(calls ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hanging = map[string]bool{}
	for _, call := range calls {
		f.hanging[call] = true
	}
}

// forget forgets all workers.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.known)
}

// end is called with the mutex held.
func (f *fake) end(call string) error {
	if f.after != nil {
		return f.after(call)
	}
	return nil
}

func (f *fake) worker(id tasker.ID) error {
	if !f.known[id] {
		return tasker.Errorf(tasker.NotFound, "worker %s is not registered", id)
	}
	return nil
}

func (f *fake) SaveCheckpoint(ctx context.Context, _ tasker.ID, l tasker.Lease, value json.RawMessage) error {
	if err := f.begin(ctx, "checkpoint"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved == nil {
		f.saved = map[tasker.ID]json.RawMessage{}
	}
	f.saved[l.StepUUID] = value
	return nil
}

func (f *fake) RegisterWorker(ctx context.Context, _ tasker.WorkerSpec) (tasker.Registration, error) {
	if err := f.begin(ctx, "register"); err != nil {
		return tasker.Registration{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := tasker.Registration{WorkerUUID: tasker.NewID(), HeartbeatInterval: 10 * time.Second, LeaseDuration: 30 * time.Second, ClaimIsHeartbeat: f.counts}
	f.known[r.WorkerUUID] = true
	return r, nil
}

func (f *fake) Claim(ctx context.Context, id tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	if err := f.begin(ctx, "claim"); err != nil {
		return nil, err
	}
	timeout := time.After(wait)
	for {
		f.mu.Lock()
		drained := f.early && f.drained[id]
		err, list, changed := f.worker(id), f.take(id, limit), f.changed
		f.mu.Unlock()
		if err != nil || len(list) > 0 || drained {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout:
			return nil, nil
		case <-changed:
		}
	}
}

// take hands out work. The caller holds the mutex.
func (f *fake) take(id tasker.ID, limit int) []tasker.Assignment {
	n := min(limit, len(f.queue))
	list := slices.Clone(f.queue[:n])
	f.queue = f.queue[n:]
	for _, a := range list {
		f.held[a.Lease()] = id
	}
	return list
}

func (f *fake) Heartbeat(ctx context.Context, id tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	if err := f.begin(ctx, "heartbeat"); err != nil {
		return tasker.Beat{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats = append(f.beats, leases)
	if err := f.worker(id); err != nil {
		return tasker.Beat{}, err
	}
	b := tasker.Beat{Drain: f.drained[id]}
	for _, l := range leases {
		if f.lost[l.StepUUID] || f.held[l] != id {
			b.Lost = append(b.Lost, l.StepUUID)
		} else {
			b.Extended = append(b.Extended, tasker.LeaseExtension{StepUUID: l.StepUUID, ExpiresAt: time.Now().Add(30 * time.Second)})
		}
	}
	return b, nil
}

func (f *fake) Report(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	if err := f.begin(ctx, fmt.Sprintf("report %d", len(outcomes))); err != nil {
		return tasker.Receipt{}, err
	}
	time.Sleep(f.reportTakes) //nolint:forbidigo // in a bubble
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.worker(id); err != nil {
		return tasker.Receipt{}, err
	}
	f.reports = append(f.reports, outcomes)
	var r tasker.Receipt
	for _, o := range outcomes {
		f.judge(id, o, &r)
	}
	r.Next = f.take(id, claim)
	return r, f.end("report")
}

func (f *fake) judge(id tasker.ID, o tasker.Outcome, r *tasker.Receipt) {
	if f.reject != nil {
		if x := f.reject(o); x != nil {
			r.Rejected = append(r.Rejected, *x)
			return
		}
	}
	switch {
	case f.done[o.Lease]:
		r.Accepted = append(r.Accepted, o.StepUUID)
	case f.held[o.Lease] != id:
		r.Rejected = append(r.Rejected, tasker.Rejection{StepUUID: o.StepUUID, Code: tasker.StaleLease, Message: "held by another"})
	default:
		delete(f.held, o.Lease)
		f.done[o.Lease] = true
		f.accepted = append(f.accepted, o)
		r.Accepted = append(r.Accepted, o.StepUUID)
		if f.next == nil {
			return
		}
		if a := f.next(o); a != nil {
			f.queue = append(f.queue, *a)
		}
	}
}

func (f *fake) Release(ctx context.Context, id tasker.ID, leases []tasker.Lease) (released, lost []tasker.ID, err error) {
	if err := f.begin(ctx, "release"); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range leases {
		if f.held[l] != id {
			lost = append(lost, l.StepUUID)
			continue
		}
		delete(f.held, l)
		f.released = append(f.released, l)
		released = append(released, l.StepUUID)
	}
	return released, lost, nil
}

func (f *fake) DrainWorker(ctx context.Context, id tasker.ID) error {
	if err := f.begin(ctx, "drain"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained[id] = true
	return f.worker(id)
}

func (f *fake) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	if err := f.begin(ctx, "result"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	doc, ok := f.results[step]
	if !ok {
		return nil, tasker.Errorf(tasker.NotFound, "task %s has no step %s", task, step)
	}
	return doc, nil
}

func (f *fake) LeaveWorker(ctx context.Context, id tasker.ID) error {
	if err := f.begin(ctx, "leave"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left++
	return f.worker(id)
}

// steps returns the ids of the steps whose outcome was accepted, in order.
func (f *fake) steps() []tasker.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]tasker.ID, len(f.accepted))
	for i, o := range f.accepted {
		ids[i] = o.StepUUID
	}
	return ids
}

func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

// tellAllToDrain has every heartbeat say that its worker is to drain.
func (f *fake) tellAllToDrain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.known {
		f.drained[id] = true
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// running is a worker under way in a bubble.
type running struct {
	*testing.T
	stop context.CancelFunc
	end  chan error
}

func start(t *testing.T, w *worker.Worker) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{T: t, stop: stop, end: make(chan error, 1)}
	go func() { r.end <- w.Run(ctx) }()
	return r
}

// stopped tells the worker to end and returns what Run returned.
func (r *running) stopped() error {
	r.Helper()
	r.stop()
	return <-r.end
}

// finish stops the worker and fails the test if Run returned an error.
func (r *running) finish() {
	r.Helper()
	if err := r.stopped(); err != nil {
		r.Error(err)
	}
}

// elapse lets time pass in a bubble and everything that it sets off happen.
func elapse(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

// inBubble runs a subtest in a bubble of time.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
