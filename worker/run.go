package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
)

// An attempt is a claimed step, until the backend has answered the report of its
// outcome. Its fields are guarded by the shift's mutex, except the
// assignment, which does not change.
type attempt struct {
	tasker.Assignment

	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   context.CancelFunc // of its deadline
	lapses  time.Time          // by when its lease has run out unless it is renewed, by our clock
	expires time.Time          // the end of its lease as the backend last gave it
	dropped bool               // the lease is no longer ours: the outcome does not count

	finished bool // the handler has returned
	outcome  tasker.Outcome

	retry // of a finished one whose report was not answered
}

// A run is one Run of a worker. Its loops share it: one claims, one reports and
// takes the next work with the answer, two send again what was not answered, one
// keeps the leases alive.
//
// A slot is taken from the claim to the answer to the report, so that a backend
// that takes no reports is asked for no work.
type run struct {
	*Worker

	slot    chan struct{} // wakes the claimer: a slot is free
	result  chan struct{} // wakes the reporter: there is something to report
	renew   chan struct{} // wakes the heartbeat: leases may be older than they look
	broken  chan error    // the backend refuses this worker; has room for one
	drained chan struct{} // has a value when the backend tells this worker to drain
	closing chan struct{} // closed when no handler runs: report what there is and end
	back    chan struct{} // wakes the drain: there is a lease to release

	handling sync.WaitGroup

	mu           sync.Mutex
	registration tasker.Registration
	attempts     map[tasker.Lease]*attempt
	newest       map[tasker.ID]*attempt // of each step among them, by its id
	queue        []*attempt             // finished, to be reported
	unsure       resendQueue            // reported without an answer, to be sent again
	lone         resendQueue            // the same, of those that are sent alone
	unstarted    []tasker.Lease         // to be given back
	reserved     int                    // slots for which claims are under way
	asked        time.Time              // when the last claim was sent that counts as a heartbeat; zero: none did
	running      int                    // handlers
	draining     bool

	registering chan struct{} // holds a value while a new registration is asked for
	keyRefused  atomic.Int64  // when the backend did not accept this worker's key, in ns; 0: it does
}

func newShift(w *Worker) *run {
	return &run{
		Worker: w,
		slot:   make(chan struct{}, 1), result: make(chan struct{}, 1), renew: make(chan struct{}, 1),
		broken: make(chan error, 1), drained: make(chan struct{}, 1), closing: make(chan struct{}), back: make(chan struct{}, 1),
		registering: make(chan struct{}, 1), attempts: map[tasker.Lease]*attempt{}, newest: map[tasker.ID]*attempt{},
		unsure: newLane(maxBatch), lone: newLane(1),
	}
}

// wake sends to a channel with a buffer of one; a second send changes nothing.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The defaults for a backend that sends no intervals.
const (
	defaultInterval = 10 * time.Second
	defaultLease    = 30 * time.Second
)

// register registers the worker. It retries while the backend cannot be reached or rejects
// the worker for a temporary reason; an error with one of the codes ends it.
func (s *run) register(ctx context.Context, final ...tasker.Code) error {
	var b backoff
	for {
		sent := time.Now()
		r, err := s.backend.RegisterWorker(ctx, s.spec())
		if err == nil {
			s.mu.Lock()
			s.registration = tasker.Registration{
				WorkerUUID:        r.WorkerUUID,
				HeartbeatInterval: cmp.Or(max(r.HeartbeatInterval, 0), defaultInterval),
				LeaseDuration:     cmp.Or(max(r.LeaseDuration, 0), defaultLease),
				ClaimIsHeartbeat:  r.ClaimIsHeartbeat,
			}
			s.mu.Unlock()
			s.succeeded(ctx, sent)
			s.log.InfoContext(ctx, "worker registered", "worker_uuid", r.WorkerUUID, "handlers", len(s.handlers))
			return nil
		}
		if slices.Contains(final, tasker.CodeOf(err)) {
			return err
		}
		if !s.refusesKey(ctx, err) {
			s.log.WarnContext(ctx, "worker could not be registered, trying again", "err", err)
		}
		if !b.rest(ctx, err) {
			return ctx.Err()
		}
	}
}

// refusesKey reports whether a request failed because the backend does not accept the
// worker's key. It refuses all of them then: that is logged once, until it accepts one.
func (s *run) refusesKey(ctx context.Context, err error) bool {
	if !isAuthError(err) {
		return false
	}
	if s.keyRefused.Swap(time.Now().UnixNano()) == 0 {
		s.log.ErrorContext(ctx, "the backend does not accept this worker's key; outcomes are kept, and requests are sent again until it does", "err", err)
	}
	return true
}

// succeeded notes that the backend has accepted the worker's key in a request of the time
// sent. A claim that has waited since before says nothing of the key.
func (s *run) succeeded(ctx context.Context, sent time.Time) {
	last := s.keyRefused.Load()
	if last != 0 && sent.UnixNano() > last && s.keyRefused.CompareAndSwap(last, 0) {
		s.log.InfoContext(ctx, "the backend accepts this worker's key again")
	}
}

// registerAgain registers the worker at a backend that does not know worker id. Leases of
// that id are lost, as the answer to the next heartbeat will say. Only a backend that refuses
// the worker for what it is ends it: its key may be accepted again.
func (s *run) registerAgain(ctx context.Context, id tasker.ID) {
	select {
	case <-ctx.Done():
		return
	case s.registering <- struct{}{}:
	}
	defer func() { <-s.registering }()
	if s.id() != id {
		return // another loop was here first
	}
	s.log.WarnContext(ctx, "backend has forgotten this worker, registering again", "worker_uuid", id)
	err := s.register(ctx, tasker.Invalid)
	if err != nil && ctx.Err() == nil {
		select {
		case s.broken <- fmt.Errorf("register worker %s again: %w", s.options.Name, err):
		default:
		}
	}
}

func (s *run) id() tasker.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration.WorkerUUID
}

// start runs the handlers of what was claimed with slots reserved for it, and
// asked for then. The leases may be as old as the question: if the answer took
// long, they are renewed at once.
func (s *run) start(ctx context.Context, list []tasker.Assignment, slots int, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= slots
	if len(list) > 0 && time.Since(asked) > s.registration.HeartbeatInterval/2 {
		wake(s.renew)
	}
	for _, a := range list {
		if s.attempts[a.Lease()] != nil || !s.supersede(ctx, a) || s.draining {
			s.queueRelease(a)
			continue
		}
		at := s.newAttempt(a, asked)
		s.attempts[a.Lease()], s.newest[a.StepUUID] = at, at
		s.running++
		s.handling.Go(func() { s.handle(at) })
	}
	if s.free() > 0 {
		wake(s.slot)
	}
}

// supersede stops the attempt of a step that is handed out once more: its lease is lost, which no
// heartbeat says, since they name steps. It reports false if a is the older of the two, because its
// answer came late. The caller holds the mutex.
func (s *run) supersede(ctx context.Context, a tasker.Assignment) bool {
	at := s.newest[a.StepUUID]
	if at == nil {
		return true
	}
	if a.LeaseExpiresAt.Before(at.LeaseExpiresAt) {
		return false
	}
	s.lose(ctx, at)
	return true
}

// remove forgets an attempt. The caller holds the mutex.
func (s *run) remove(at *attempt) {
	delete(s.attempts, at.Lease())
	if s.newest[at.StepUUID] == at {
		delete(s.newest, at.StepUUID)
	}
}

// queueRelease keeps a step that was not started for the next release. A step that is already
// held, because the same response arrived twice, is not released.
func (s *run) queueRelease(a tasker.Assignment) {
	if s.attempts[a.Lease()] == nil {
		s.queueReleaseLocked(a.Lease())
	}
}

// queueReleaseLocked keeps a lease for the next release. The caller holds the mutex.
func (s *run) queueReleaseLocked(l tasker.Lease) {
	s.unstarted = append(s.unstarted, l)
	wake(s.back)
}

func (s *run) newAttempt(a tasker.Assignment, asked time.Time) *attempt {
	at := &attempt{Assignment: a, lapses: asked.Add(s.registration.LeaseDuration), expires: a.LeaseExpiresAt}
	at.ctx, at.cancel = context.WithCancelCause(context.Background())
	at.timer = func() {}
	if a.Deadline != nil {
		at.ctx, at.timer = context.WithTimeout(at.ctx, timeLeft(a, s.registration.LeaseDuration))
	}
	return at
}

// timeLeft returns how long an attempt may run. Its deadline is an instant of the
// database's clock; what is certain about that clock is that the lease began to
// run just now. A deadline within the first lease shortens that lease and hides
// its beginning: then our own clock is believed, as far as it can be right.
func timeLeft(a tasker.Assignment, lease time.Duration) time.Duration {
	most := a.Deadline.Sub(a.LeaseExpiresAt) + lease
	if ours := time.Until(*a.Deadline); !a.Deadline.After(a.LeaseExpiresAt) && ours > 0 && ours < most {
		return ours
	}
	return most
}

func (s *run) handle(at *attempt) {
	outcome := ended(at.Assignment)
	defer func() { s.finish(at, outcome) }() // also when the handler ends its goroutine
	c := newCall(at.ctx, s.Worker, at.Assignment)
	c.save = func(ctx context.Context, value json.RawMessage) error {
		id, _ := s.held()
		return s.backend.SaveCheckpoint(ctx, id, at.Lease(), value)
	}
	outcome, _ = s.execute(at.ctx, c)
}

// finish accepts the outcome of a handler. If the lease is lost, the outcome is dropped; if
// the handler failed because the drain cancelled it, its lease is released instead.
func (s *run) finish(at *attempt, o tasker.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	interrupted := errors.Is(context.Cause(at.ctx), ErrInterrupted)
	at.timer()
	at.cancel(nil)
	switch {
	case at.dropped:
		s.remove(at)
		wake(s.slot)
	case interrupted && !o.Success:
		s.remove(at)
		s.queueReleaseLocked(at.Lease())
	default:
		at.finished, at.outcome = true, o
		s.queue = append(s.queue, at)
		wake(s.result)
	}
}

// free returns how many steps more may be claimed. The caller holds the mutex.
func (s *run) free() int {
	return s.options.Concurrency - len(s.attempts) - s.reserved
}
