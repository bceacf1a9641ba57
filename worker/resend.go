package worker

import (
	"context"
	"regexp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// An unanswered report says nothing of its outcomes: one of them may be to blame,
// or the backend, or the way to it. They are sent again apart from new ones, in
// batches that are halved each time no answer comes, and an outcome that was not
// answered alone stays alone from then on and rests between two tries. None is
// dropped but one whose lease is lost.

// slowReport is how long a report may go without an answer before it counts as too
// large. Outcomes that are sent alone because of that get all the time there is.
const slowReport = 10 * time.Second

// A retry is what is known of an outcome that must be sent again.
type retry struct {
	due   time.Time // when
	rests backoff
	lost  bool      // the backend has said that the lease is lost
	until time.Time // and after this the outcome is not sent again; zero before it was sent once more
}

// lostPatience is how long an outcome is sent again although its lease is lost. The
// backend may have taken it, of which a bad connection said nothing: its answer tells.
const lostPatience = time.Minute

// A lane is a list of outcomes to send again. It is guarded by the shift's mutex.
type lane struct {
	list  []*attempt
	ready chan struct{} // wakes whoever sends them
	most  window        // that go together
}

func newLane(most int) lane { return lane{ready: make(chan struct{}, 1), most: window{most}} }

// resendBatches sends what was not answered until earlier is closed and nothing is
// left, or ctx ends.
func (s *shift) resendBatches(ctx context.Context, earlier <-chan struct{}) {
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

func (s *shift) resendBatch(ctx context.Context, batch []*attempt) error {
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

// resendSingly sends what was not answered alone until earlier is closed and
// nothing is left, or ctx ends. It rests after each failure too: when the backend is
// away, all that was not answered may have come here.
func (s *shift) resendSingly(ctx context.Context, earlier <-chan struct{}) {
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
func (s *shift) next(ctx context.Context, l *lane, earlier <-chan struct{}) []*attempt {
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

// takeDue takes the first outcomes of a lane that are due. When there are none it
// says how long the next one rests, and how many do.
func (s *shift) takeDue(l *lane) (batch []*attempt, wait time.Duration, left int) {
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

func (s *shift) waiting(l *lane) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(l.list)
}

// resize changes how many outcomes are sent again together.
func (s *shift) resize(change func(*window)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.unsure.most)
}

// failedAlone keeps an outcome that was not answered although it was alone. It rests
// as long as the try took at least, so that one that takes long every time is not
// all that the backend does.
func (s *shift) failedAlone(ctx context.Context, at *attempt, err error, took time.Duration) {
	limit := longRest
	if refused(err) {
		limit = longestRest
		s.log.ErrorContext(ctx, "the backend refuses the report of one outcome for its form; it is kept and sent again",
			"task", at.TaskUUID, "step", at.StepUUID, "err", err)
	}
	s.postpone(at, limit, took, min(askedRest(err), longestRest))
	s.resend(&s.lone, []*attempt{at})
}

// postpone has an outcome rest before it is sent again: longer each time, up to
// limit, and as long as each of the others.
func (s *shift) postpone(at *attempt, limit time.Duration, least ...time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.due = time.Now().Add(max(at.rests.step(limit), slices.Max(append(least, 0))))
}

// resend puts outcomes into a lane. One whose lease is lost was sent again since, for
// a while; when none of that was answered, nobody waits for it.
func (s *shift) resend(l *lane, batch []*attempt) {
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

// aboutResult matches refusals that name the result as their place.
var aboutResult = regexp.MustCompile(`^(results\[\d+\][.:] ?)?result\b`)

// revise changes an outcome whose form the backend does not take. What is not needed
// is left out first. A result that cannot be stored becomes a permanent failure
// that says why, so that somebody learns of it. Nothing else does: a backend of
// another version may not know a field, and will when it is upgraded.
func (s *shift) revise(ctx context.Context, at *attempt, x tasker.Rejection) {
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
