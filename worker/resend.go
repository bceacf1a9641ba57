package worker

import (
	"context"
	"regexp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// A report without a response does not say which outcome caused that: it may be one of
// them, the backend, or the network. The outcomes are resent apart from new ones, in
// batches that are halved each time there is no response. An outcome that got none when it
// was sent alone is always sent alone from then on, with a backoff. An outcome is dropped
// only when its lease is lost.

// slowReport is how long a report may take before it counts as too large. Outcomes that are
// sent alone because of that have no such limit.
const slowReport = 10 * time.Second

// A retry is the state of an outcome that must be resent.
type retry struct {
	due   time.Time // when
	rests backoff
	lost  bool      // the backend has said that the lease is lost
	until time.Time // the outcome is not resent after this; zero before it was resent once
}

// lostPatience is how long an outcome is resent although its lease is lost: the backend may
// have accepted it, and the response was lost.
const lostPatience = time.Minute

// A resendQueue is a list of outcomes to resend. It is guarded by the shift's mutex.
type resendQueue struct {
	list  []*attempt
	ready chan struct{} // wakes the goroutine that sends them
	most  window        // that go together
}

func newLane(most int) resendQueue {
	return resendQueue{ready: make(chan struct{}, 1), most: window{most}}
}

// resendBatches resends outcomes in batches until earlier is closed and the lane is empty,
// or ctx ends.
func (s *run) resendBatches(ctx context.Context, earlier <-chan struct{}) {
	var b backoff
	for {
		batch := s.next(ctx, &s.unsure, earlier)
		if batch == nil {
			return
		}
		err := s.resendBatch(ctx, batch)
		if err == nil {
			b.reset()
			continue
		}
		if !b.rest(ctx, err) {
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
		s.resend(&s.unsure, s.answered(ctx, batch, receipt))
	case len(batch) > 1:
		s.resize(func(w *window) { w.shrink(len(batch)) })
		s.resend(&s.unsure, batch)
	default:
		s.failedAlone(ctx, batch[0], err, time.Since(began))
	}
	return err
}

// resendSingly resends outcomes one at a time until earlier is closed and the lane is
// empty, or ctx ends. It backs off after each failure as well: while the backend is down,
// all outcomes may be in this lane.
func (s *run) resendSingly(ctx context.Context, earlier <-chan struct{}) {
	var b backoff
	for {
		batch := s.next(ctx, &s.lone, earlier)
		if batch == nil {
			return
		}
		began := time.Now()
		receipt, err := s.deliver(ctx, batch, 0)
		if err == nil {
			b.reset()
			s.resend(&s.lone, s.answered(ctx, batch, receipt))
			continue
		}
		s.failedAlone(ctx, batch[0], err, time.Since(began))
		if !b.rest(ctx, err) {
			return
		}
	}
}

// next waits for outcomes of a lane that are due, and takes as many as may go
// together. It returns none when there are none and none will come, or ctx ends.
func (s *run) next(ctx context.Context, l *resendQueue, earlier <-chan struct{}) []*attempt {
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
			if s.waiting(l) == 0 {
				timer.Stop()
				return nil
			}
		}
		timer.Stop()
	}
	return nil
}

// takeDue takes the first outcomes of a lane that are due. If there are none, it returns
// when the next one is due, and how many wait.
func (s *run) takeDue(l *resendQueue) (batch []*attempt, wait time.Duration, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = longestRest
	var due, later []*attempt
	for _, at := range l.list {
		if rest := at.due.Sub(now); rest > 0 {
			wait = min(wait, rest)
			later = append(later, at)
		} else {
			due = append(due, at)
		}
	}
	n := fitting(due, l.most.size)
	l.list = slices.Concat(due[n:], later)
	return due[:n:n], wait, len(later)
}

func (s *run) waiting(l *resendQueue) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(l.list)
}

// resize changes how many outcomes are sent again together.
func (s *run) resize(change func(*window)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.unsure.most)
}

// failedAlone keeps an outcome that got no response when it was sent alone. Its backoff is
// at least as long as the attempt to send it, so that one that always takes long does not
// occupy the backend.
func (s *run) failedAlone(ctx context.Context, at *attempt, err error, took time.Duration) {
	limit := longRest
	if refused(err) {
		limit = longestRest
		s.log.ErrorContext(ctx, "the backend refuses the report of one outcome for its form; it is kept and sent again",
			"task", at.TaskUUID, "step", at.StepUUID, "err", err)
	}
	s.postpone(at, limit, took, min(retryAfter(err), longestRest))
	s.resend(&s.lone, []*attempt{at})
}

// postpone delays an outcome before it is resent: longer each time, up to limit, and at
// least by each of least.
func (s *run) postpone(at *attempt, limit time.Duration, least ...time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.due = time.Now().Add(max(at.rests.step(limit), slices.Max(append(least, 0))))
}

// resend adds outcomes to a lane. One whose lease is lost is resent for a while, then
// dropped.
func (s *run) resend(l *resendQueue, batch []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, at := range batch {
		switch {
		case at.lost && at.until.IsZero():
			at.until = now.Add(lostPatience)
		case at.lost && now.After(at.until):
			s.log.Error("outcome given up: its lease is lost, and its report is not answered", "task", at.TaskUUID, "step", at.StepUUID)
			s.forget(at)
			continue
		}
		l.list = append(l.list, at)
	}
	if len(l.list) > 0 {
		wake(l.ready)
	}
}

// aboutResult matches errors that are about the result.
var aboutResult = regexp.MustCompile(`^(results\[\d+\][.:] ?)?result\b`)

// revise changes an outcome that the backend rejects as invalid. It removes optional fields
// first. A result that cannot be stored becomes a permanent failure with the reason, so
// that operators see it. Any other outcome is kept: a backend of another version may not
// know a field yet.
func (s *run) revise(ctx context.Context, at *attempt, x tasker.Rejection) {
	o, revised := at.outcome, true
	switch {
	case len(o.Metadata) > 0:
		o.Metadata = nil
	case o.Failure != nil && len(o.Failure.Context) > 0:
		f := *o.Failure
		f.Context = nil
		o.Failure = &f
	case o.Success && aboutResult.MatchString(x.Message):
		o = tasker.Outcome{Lease: at.Lease(), Failure: &tasker.Failure{
			Message: "the engine refused the result: " + x.Message, Type: InvalidResult,
		}}
	default:
		revised = false
	}
	if !revised {
		s.postpone(at, longestRest)
		s.log.ErrorContext(ctx, "the backend refuses an outcome for its form; it is kept and sent again",
			"task", at.TaskUUID, "step", at.StepUUID, "code", x.Code, "err", x.Message)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at.outcome = o
	s.log.WarnContext(ctx, "outcome refused for its form, sending it in another", "task", at.TaskUUID, "step", at.StepUUID, "err", x.Message)
}
