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

// attempt is a claimed step whose report the backend has not answered yet. The mutex of the run
// guards its fields except the assignment, which is immutable.
type attempt struct {
	tasker.Assignment

	ctx      context.Context
	cancel   context.CancelCauseFunc
	timer    context.CancelFunc // ends the deadline timer
	leaseEnd time.Time          // expiry of the lease by the local clock
	expires  time.Time          // expiry of the lease by the backend
	dropped  bool               // the lease is lost: the outcome is ignored

	finished bool // the handler returned
	outcome  tasker.Outcome

	retryState // of a finished attempt with an unanswered report
}

// run is one call of [Worker.Run]. Its goroutines claim steps, report outcomes, resend unanswered
// reports and extend leases.
//
// An attempt occupies a slot from its claim until its report is answered, so that a worker claims
// nothing from a backend that does not accept reports.
type run struct {
	*Worker

	slot         chan struct{} // wakes claim: a slot is free
	result       chan struct{} // wakes report: an outcome is ready
	renew        chan struct{} // wakes heartbeat: leases may be older than they seem
	broken       chan error    // the backend rejected this worker
	drained      chan struct{} // the backend requested a drain
	closing      chan struct{} // closed when no handler runs: report the rest and end
	reregistered chan struct{} // wakes the drain: a lease must be released

	handling sync.WaitGroup

	mu            sync.Mutex
	registration  tasker.Registration
	attempts      map[tasker.Lease]*attempt
	newest        map[tasker.ID]*attempt // latest attempt per step
	queue         []*attempt             // finished, to be reported
	resends       resendQueue            // unanswered outcomes, resent in batches
	singleResends resendQueue            // unanswered outcomes, resent one at a time
	unstarted     []tasker.Lease         // to be released
	reserved      int                    // slots of pending claims
	lastClaim     time.Time              // sending time of the latest claim that counts as a heartbeat, or zero
	running       int                    // running handlers
	draining      bool

	registering chan struct{} // semaphore for a new registration
	keyRejected atomic.Int64  // when the backend last rejected the key, in Unix ns; 0 if it accepts the key
}

func newRun(w *Worker) *run {
	return &run{
		Worker: w,
		slot:   make(chan struct{}, 1), result: make(chan struct{}, 1), renew: make(chan struct{}, 1),
		broken: make(chan error, 1), drained: make(chan struct{}, 1), closing: make(chan struct{}), reregistered: make(chan struct{}, 1),
		registering: make(chan struct{}, 1), attempts: map[tasker.Lease]*attempt{}, newest: map[tasker.ID]*attempt{},
		resends: newResendQueue(maxBatch), singleResends: newResendQueue(1),
	}
}

// signal sends to a channel with a buffer of one, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Defaults if the backend returns no intervals.
const (
	defaultInterval = 10 * time.Second
	defaultLease    = 30 * time.Second
)

// register registers the worker. It retries until it succeeds, ctx ends, or the error has one of
// the final codes.
func (s *run) register(ctx context.Context, final ...tasker.Code) error {
	var b backoff
	for {
		sent := time.Now()
		r, err := s.backend.RegisterWorker(ctx, s.workerSpec())
		if err == nil {
			s.mu.Lock()
			s.registration = tasker.Registration{
				WorkerUUID:        r.WorkerUUID,
				HeartbeatInterval: cmp.Or(max(r.HeartbeatInterval, 0), defaultInterval),
				LeaseDuration:     cmp.Or(max(r.LeaseDuration, 0), defaultLease),
				ClaimIsHeartbeat:  r.ClaimIsHeartbeat,
			}
			s.mu.Unlock()
			s.recordSuccess(ctx, sent)
			s.log.InfoContext(ctx, "worker registered", "worker_uuid", r.WorkerUUID, "handlers", len(s.handlers))
			return nil
		}
		if slices.Contains(final, tasker.CodeOf(err)) {
			return err
		}
		if !s.isKeyRejected(ctx, err) {
			s.log.WarnContext(ctx, "could not register the worker, retrying", "err", err)
		}
		if !b.sleep(ctx, err) {
			return ctx.Err()
		}
	}
}

// isKeyRejected reports whether the backend rejected the key of the worker. It logs only the first
// of consecutive rejections.
func (s *run) isKeyRejected(ctx context.Context, err error) bool {
	if !isAuthError(err) {
		return false
	}
	if s.keyRejected.Swap(time.Now().UnixNano()) == 0 {
		s.log.ErrorContext(ctx,
			"the backend rejected this worker's key; retrying until it is accepted, outcomes are kept", "err", err)
	}
	return true
}

// recordSuccess records that the backend accepted the key of a request sent at this time. Requests
// sent before the last rejection do not count.
func (s *run) recordSuccess(ctx context.Context, sent time.Time) {
	last := s.keyRejected.Load()
	if last != 0 && sent.UnixNano() > last && s.keyRejected.CompareAndSwap(last, 0) {
		s.log.InfoContext(ctx, "the backend accepts this worker's key again")
	}
}

// registerAgain registers the worker again if the backend does not know worker id. Leases of that
// id are lost, as the next heartbeat reports. Only a rejection as invalid ends the run: a
// rejected key may be accepted later.
func (s *run) registerAgain(ctx context.Context, id tasker.ID) {
	select {
	case <-ctx.Done():
		return
	case s.registering <- struct{}{}:
	}
	defer func() { <-s.registering }()
	if s.workerID() != id {
		return // another goroutine has registered it
	}
	s.log.WarnContext(ctx, "the backend does not know this worker; registering again", "worker_uuid", id)
	err := s.register(ctx, tasker.Invalid)
	if err != nil && ctx.Err() == nil {
		select {
		case s.broken <- fmt.Errorf("register worker %s again: %w", s.options.Name, err):
		default:
		}
	}
}

func (s *run) workerID() tasker.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration.WorkerUUID
}

// startAttempts runs the handlers of the steps claimed with the reserved slots. The leases may be as old
// as the request, sent at asked: if the response took long, they are renewed immediately.
func (s *run) startAttempts(ctx context.Context, list []tasker.Assignment, slots int, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= slots
	if len(list) > 0 && time.Since(asked) > s.registration.HeartbeatInterval/2 {
		signal(s.renew)
	}
	for _, a := range list {
		if s.attempts[a.Lease()] != nil || !s.supersedeAttempt(ctx, a) || s.draining {
			s.queueRelease(a)
			continue
		}
		at := s.newAttempt(a, asked)
		s.attempts[a.Lease()], s.newest[a.StepUUID] = at, at
		s.running++
		s.handling.Go(func() { s.runHandler(at) })
	}
	if s.freeSlots() > 0 {
		signal(s.slot)
	}
}

// supersedeAttempt cancels an older attempt of a step that is assigned again: its lease is lost, but
// heartbeats identify steps and cannot report that. It returns false if a is the older attempt,
// from a late response. The caller holds the mutex.
func (s *run) supersedeAttempt(ctx context.Context, a tasker.Assignment) bool {
	at := s.newest[a.StepUUID]
	if at == nil {
		return true
	}
	if a.LeaseExpiresAt.Before(at.LeaseExpiresAt) {
		return false
	}
	s.cancelLost(ctx, at)
	return true
}

// removeAttempt removes an attempt. The caller holds the mutex.
func (s *run) removeAttempt(at *attempt) {
	delete(s.attempts, at.Lease())
	if s.newest[at.StepUUID] == at {
		delete(s.newest, at.StepUUID)
	}
}

// queueRelease queues an unstarted step for release, unless the same response arrived twice and
// the step is already held.
func (s *run) queueRelease(a tasker.Assignment) {
	if s.attempts[a.Lease()] == nil {
		s.queueReleaseLocked(a.Lease())
	}
}

// queueReleaseLocked queues a lease for release. The caller holds the mutex.
func (s *run) queueReleaseLocked(l tasker.Lease) {
	s.unstarted = append(s.unstarted, l)
	signal(s.reregistered)
}

func (s *run) newAttempt(a tasker.Assignment, asked time.Time) *attempt {
	at := &attempt{Assignment: a, leaseEnd: asked.Add(s.registration.LeaseDuration), expires: a.LeaseExpiresAt}
	at.ctx, at.cancel = context.WithCancelCause(context.Background())
	at.timer = func() {}
	if a.Deadline != nil {
		at.ctx, at.timer = context.WithTimeout(at.ctx, remainingTime(a, s.registration.LeaseDuration))
	}
	return at
}

// remainingTime returns how long an attempt may run. Its deadline uses the database clock, so it is
// measured from the start of the lease, which is just now. A deadline within the first lease
// shortens that lease, which hides its start; then the local clock is used, if plausible.
func remainingTime(a tasker.Assignment, lease time.Duration) time.Duration {
	most := a.Deadline.Sub(a.LeaseExpiresAt) + lease
	if ours := time.Until(*a.Deadline); !a.Deadline.After(a.LeaseExpiresAt) && ours > 0 && ours < most {
		return ours
	}
	return most
}

func (s *run) runHandler(at *attempt) {
	outcome := newGoexitOutcome(at.Assignment)
	defer func() { s.finishAttempt(at, outcome) }() // also when the handler ends its goroutine
	c := newCall(at.ctx, s.Worker, at.Assignment)
	c.save = func(ctx context.Context, value json.RawMessage) error {
		id, _ := s.collectLeases()
		return s.backend.SaveCheckpoint(ctx, id, at.Lease(), value)
	}
	outcome, _ = s.execute(at.ctx, c)
}

// finishAttempt accepts the outcome of a handler. It drops the outcome if the lease is lost, and
// releases the lease instead if the handler failed because the drain cancelled it.
func (s *run) finishAttempt(at *attempt, o tasker.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	interrupted := errors.Is(context.Cause(at.ctx), ErrInterrupted)
	at.timer()
	at.cancel(nil)
	switch {
	case at.dropped:
		s.removeAttempt(at)
		signal(s.slot)
	case interrupted && !o.Success:
		s.removeAttempt(at)
		s.queueReleaseLocked(at.Lease())
	default:
		at.finished, at.outcome = true, o
		s.queue = append(s.queue, at)
		signal(s.result)
	}
}

// freeSlots returns how many more steps may be claimed. The caller holds the mutex.
func (s *run) freeSlots() int {
	return s.options.Concurrency - len(s.attempts) - s.reserved
}
