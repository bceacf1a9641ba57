package worker

import (
	"context"
	"regexp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// If a report gets no response, the cause may be one of its outcomes, the backend or the network.
// Its outcomes are resent apart from new ones, in batches that are halved after each failure. An
// outcome that fails alone is always sent alone from then on, with a backoff. It is dropped only
// when its lease is lost.

// slowReport limits the duration of a report with several outcomes. Slower reports count as too
// large.
const slowReport = 10 * time.Second

// retryState is the state of an outcome to resend.
type retryState struct {
	due     time.Time
	backoff backoff
	lost    bool      // the backend reported the lease as lost
	until   time.Time // when a lost outcome is dropped; zero before its first resend
}

// lostTimeout limits how long an outcome with a lost lease is resent. It is resent because the
// backend may have accepted it although the response was lost.
const lostTimeout = time.Minute

// resendQueue is a list of outcomes to resend. The mutex of the run guards it.
type resendQueue struct {
	list   []*attempt
	ready  chan struct{} // wakes the sender
	window window        // maximum batch
}

func newResendQueue(most int) resendQueue {
	return resendQueue{ready: make(chan struct{}, 1), window: window{most}}
}

// resendBatches resends outcomes in batches until earlier is closed and the queue is empty, or
// ctx ends.
func (s *run) resendBatches(ctx context.Context, earlier <-chan struct{}) {
	var b backoff
	for {
		batch := s.nextResendBatch(ctx, &s.resends, earlier)
		if batch == nil {
			return
		}
		err := s.resendBatch(ctx, batch)
		if err == nil {
			b.reset()
			continue
		}
		if !b.sleep(ctx, err) {
			return
		}
	}
}

func (s *run) resendBatch(ctx context.Context, batch []*attempt) error {
	limited, cancel := context.WithTimeout(ctx, slowReport)
	defer cancel()
	began := time.Now()
	receipt, err := s.deliver(limited, batch, 0)
	switch {
	case err == nil:
		s.resize(func(w *window) { w.grow() })
		s.resend(&s.resends, s.applyReceipt(ctx, batch, receipt))
	case len(batch) > 1:
		s.resize(func(w *window) { w.shrink(len(batch)) })
		s.delay(batch, min(retryAfter(err), maxRetryAfter))
		s.resend(&s.resends, batch)
	default:
		s.requeueFailed(ctx, batch[0], err, time.Since(began))
	}
	return err
}

// resendSingly resends outcomes one at a time until earlier is closed and the queue is empty, or
// ctx ends. It backs off after each failure, because all outcomes may be in this queue while the
// backend is down.
func (s *run) resendSingly(ctx context.Context, earlier <-chan struct{}) {
	var b backoff
	for {
		batch := s.nextResendBatch(ctx, &s.singleResends, earlier)
		if batch == nil {
			return
		}
		began := time.Now()
		receipt, err := s.deliver(ctx, batch, 0)
		if err == nil {
			b.reset()
			s.resend(&s.singleResends, s.applyReceipt(ctx, batch, receipt))
			continue
		}
		s.requeueFailed(ctx, batch[0], err, time.Since(began))
		if !b.sleep(ctx, err) {
			return
		}
	}
}

// nextResendBatch waits for due outcomes and returns as many as fit into a batch. It returns nil if the
// queue is finished or ctx ends.
func (s *run) nextResendBatch(ctx context.Context, l *resendQueue, earlier <-chan struct{}) []*attempt {
	for ctx.Err() == nil {
		batch, wait, left := s.takeDue(l)
		if len(batch) > 0 {
			return batch
		}
		over := earlier
		if left > 0 {
			over = nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-l.ready:
		case <-timer.C:
		case <-over:
			if s.countWaiting(l) == 0 {
				timer.Stop()
				return nil
			}
		}
		timer.Stop()
	}
	return nil
}

// takeDue takes the first due outcomes. If there are none, it returns when the next one is due
// and how many wait.
func (s *run) takeDue(l *resendQueue) (batch []*attempt, wait time.Duration, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = maxRetryAfter
	var due, later []*attempt
	for _, at := range l.list {
		if rest := at.due.Sub(now); rest > 0 {
			wait = min(wait, rest)
			later = append(later, at)
		} else {
			due = append(due, at)
		}
	}
	n := countFitting(due, l.window.size)
	l.list = slices.Concat(due[n:], later)
	return due[:n:n], wait, len(later)
}

func (s *run) countWaiting(l *resendQueue) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(l.list)
}

// resize changes the maximum batch of the resend queue.
func (s *run) resize(change func(*window)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.resends.window)
}

// requeueFailed queues an outcome that failed when it was sent alone. Its delay is at least the
// duration of the failed call, so that a slow outcome does not occupy the backend.
func (s *run) requeueFailed(ctx context.Context, at *attempt, err error, took time.Duration) {
	limit := maxBackoff
	switch {
	case tasker.CodeOf(err) == tasker.TooLarge && s.reduce(at, err):
		s.log.WarnContext(ctx, "the report of an outcome is too large; sending a reduced one",
			"task", at.TaskUUID, "step", at.StepUUID, "err", err)
	case isRejected(err):
		limit = maxRetryAfter
		s.log.ErrorContext(ctx, "the backend rejected an outcome report as invalid; it will be resent",
			"task", at.TaskUUID, "step", at.StepUUID, "err", err)
	}
	s.postpone(at, limit, took, min(retryAfter(err), maxRetryAfter))
	s.resend(&s.singleResends, []*attempt{at})
}

// reduce makes an outcome smaller whose report is too large by itself. A success becomes a permanent
// failure, because the handler would return the same result again. It returns false if nothing is
// left to omit.
func (s *run) reduce(at *attempt, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := at.outcome
	switch {
	case o.Success:
		at.outcome = tasker.Outcome{Lease: at.Lease(), Failure: &tasker.Failure{
			Message: "the engine rejected the report of the result: " + errorMessage(err), Type: InvalidResult,
		}}
	case len(o.Metadata) > 0 || len(o.Failure.Context) > 0:
		f := *o.Failure
		f.Context = nil
		at.outcome.Metadata, at.outcome.Failure = nil, &f
	default:
		return false
	}
	return true
}

// delay postpones the next resend of outcomes by at least d.
func (s *run) delay(batch []*attempt, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range batch {
		at.due = time.Now().Add(d)
	}
}

// postpone delays the next resend of an outcome. The delay grows each time up to limit, and is at
// least each of least.
func (s *run) postpone(at *attempt, limit time.Duration, least ...time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.due = time.Now().Add(max(at.backoff.advance(limit), slices.Max(append(least, 0))))
}

// resend adds outcomes to a queue. It drops an outcome after a while if its lease is lost.
func (s *run) resend(l *resendQueue, batch []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, at := range batch {
		switch {
		case at.lost && at.until.IsZero():
			at.until = now.Add(lostTimeout)
		case at.lost && now.After(at.until):
			s.log.Error("dropped an outcome: its lease is lost and its report was not "+
				"answered", "task", at.TaskUUID, "step", at.StepUUID)
			s.forgetAttempt(at)
			continue
		}
		l.list = append(l.list, at)
	}
	if len(l.list) > 0 {
		signal(l.ready)
	}
}

// resultFaultPattern matches rejections of the result.
var resultFaultPattern = regexp.MustCompile(`^(results\[\d+\][.:] ?)?result\b`)

// reviseOutcome changes an outcome that the backend rejects as invalid. It first removes optional
// fields. A result that cannot be stored becomes a permanent failure with the reason. Any other
// outcome is resent unchanged: a backend of another version may not know a field yet.
func (s *run) reviseOutcome(ctx context.Context, at *attempt, x tasker.Rejection) {
	o, revised := at.outcome, true
	switch {
	case len(o.Metadata) > 0:
		o.Metadata = nil
	case o.Failure != nil && len(o.Failure.Context) > 0:
		f := *o.Failure
		f.Context = nil
		o.Failure = &f
	case o.Success && resultFaultPattern.MatchString(x.Message):
		o = tasker.Outcome{Lease: at.Lease(), Failure: &tasker.Failure{
			Message: "the engine rejected the result: " + x.Message, Type: InvalidResult,
		}}
	default:
		revised = false
	}
	if !revised {
		s.postpone(at, maxRetryAfter)
		s.log.ErrorContext(ctx, "the backend rejected an outcome as invalid; it will be resent",
			"task", at.TaskUUID, "step", at.StepUUID, "code", x.Code, "err", x.Message)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at.outcome = o
	s.log.WarnContext(ctx, "outcome rejected as invalid; sending a "+
		"reduced one", "task", at.TaskUUID, "step", at.StepUUID, "err", x.Message)
}
