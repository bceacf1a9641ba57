package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Outcome ends an attempt or a wait of a step, or changes a step at an operator's request. It
// applies only if the step is in state From with fence Fence and, for a report, if Worker holds the
// lease.
type Outcome struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	From       tasker.StepState
	Fence      int64
	Event      StepEvent
	Body       json.RawMessage // StepResult or StepFailure; nil keeps the stored one
	ResultSize int             // size of the result as it is read back; 0 if unknown
	Retryable  bool            // for a failure; the retry policy of the step also applies
	RetryAfter time.Duration   // for a failure: minimum delay
	Jitter     float64         // for a failure: random number from 0 to 1
	Uncounted  bool            // for a failure: the attempt does not count
	Worker     *tasker.ID      // worker that must hold the lease; nil skips the check
	Digest     []byte          // identifies a repeated report
	Expired    bool            // apply only if the lease has expired
	RaiseFence bool            // revokes the lease
	Actor      string
	Reason     string
	KeepReport json.RawMessage // report to store for later; used with the event Keep
	Operation  *tasker.ID      // nil unless the step is an item of an operation
}

// To returns the state to which the outcome leads, or "" if the event is not allowed.
func (o Outcome) To() tasker.StepState {
	return StepMoves[cause[tasker.StepState, StepEvent]{o.From, o.Event}]
}

// Ref identifies the step.
func (o Outcome) Ref() tasker.StepRef {
	return tasker.StepRef{TaskUUID: o.TaskUUID, StepUUID: o.StepUUID}
}

// Conclude applies an outcome. It reports false, and changes nothing, if the step is no longer in
// the state that the outcome expects. A decision completes only if the reason of its outcome names
// the chosen steps.
func (c *Change) Conclude(o Outcome) bool {
	s := c.Task.Find(o.StepUUID)
	if s == nil || !c.matches(s, o) {
		return false
	}
	to, err := StepMoves.Next(s.State, o.Event)
	if err != nil {
		c.fail("step %s: %w", s.ID, err)
		return false
	}
	if s.Type == tasker.DecisionStep && to == tasker.StepComplete && o.Reason == "" {
		return false
	}
	fence := s.Fence
	if o.RaiseFence {
		s.Fence++
	}
	if o.Digest != nil || o.Event == Elapse || o.Event == JoinItems {
		s.Stored.Reported = &fence
	}
	s.Stored.NoDigest = o.Event == Elapse
	if o.Digest != nil && !s.Stored.NoDigest {
		s.Stored.Digest = o.Digest
	}
	m := Move{Event: o.Event, Worker: s.Worker, Actor: o.Actor, Reason: o.Reason, Operation: o.Operation}
	if to == tasker.StepError {
		o.Body = withAttempt(o.Body, s.Attempts)
		m.Detail = o.Body
	}
	c.move(s, m)
	c.enter(s, o)
	if s.State.Done() {
		c.release(s)
	}
	return true
}

// Tolerance describes how many more items of a map step may fail.
type Tolerance struct {
	Map  tasker.StepRef
	Name string // of the map step
	Left int
}

// Tolerate skips those of the items that belong to the map step and have failed for good, in order,
// as long as the tolerance lasts. It returns them. An item that no worker claimed has not failed.
func (c *Change) Tolerate(t Tolerance, items []tasker.StepRef) (skipped []tasker.ID) {
	var failed []*Step
	for _, ref := range items {
		s, m := c.Task.Find(ref.StepUUID), c.Task.Find(t.Map.StepUUID)
		if s != nil && s.Item != nil && m != nil && s.Item.Map == m.ID && s.FailedForGood() && !s.Unclaimed && m.State == tasker.StepPending {
			failed = append(failed, s)
		}
	}
	slices.SortFunc(failed, func(a, b *Step) int { return cmp.Compare(a.Item.Ordinal, b.Item.Ordinal) })
	for _, s := range failed[:max(0, min(t.Left, len(failed)))] {
		o := Outcome{StepUUID: s.ID, From: s.State, Fence: s.Fence, Event: Tolerate, Reason: "failed, which step " + t.Name + " tolerates"}
		if c.Conclude(o) {
			skipped = append(skipped, s.ID)
		}
	}
	c.Finish()
	return skipped
}

// Finish gives the slots of ended items to waiting ones. Call it after the last outcome.
func (c *Change) Finish() { c.promote() }

func (c *Change) matches(s *Step, o Outcome) bool {
	switch {
	case s.State != o.From || s.Fence != o.Fence:
		return false
	case o.Worker != nil && (s.Worker == nil || *s.Worker != *o.Worker):
		return false
	default:
		return !o.Expired || s.LeaseExpires != nil && !s.LeaseExpires.After(c.Now)
	}
}

// enter sets what a step has in the state that an outcome has led to.
func (c *Change) enter(s *Step, o Outcome) {
	if s.Join == tasker.JoinAny {
		s.InputBytes = nil // which results it gets is known when it runs
	}
	switch s.State {
	case tasker.StepComplete:
		s.Stored.Result, s.Stored.ResultSize, s.ResultBytes = o.Body, o.ResultSize, nil
		if o.ResultSize > 0 {
			s.ResultBytes = &s.Stored.ResultSize
		}
	case tasker.StepSkipped:
		s.Stored.SkipReason = o.Reason
	case tasker.StepError:
		c.enterError(s, o)
	case tasker.StepPending:
		c.enterPending(s)
	case tasker.StepEnqueuedForOrchestration:
		s.Stored.Kept = o.KeepReport
	default: // the other states have nothing else
	}
}

// enterError schedules the retry of a failed step, unless it has failed for good.
func (c *Change) enterError(s *Step, o Outcome) {
	s.Stored.Error = o.Body
	if !o.Retryable || !s.Retry.Retryable || s.Attempts >= s.Retry.MaxAttempts && !o.Uncounted {
		return
	}
	at := c.Now.Add(max(Backoff(s.Retry, s.Attempts, o.Jitter), o.RetryAfter))
	s.RetryAt = &at
	if o.Uncounted {
		s.Attempts--
	}
}

// enterPending begins the life of a step again. If it was decided before that the step runs, this
// decision holds, except that a child step checks its child task again.
func (c *Change) enterPending(s *Step) {
	s.Attempts, s.QueueExpiries, s.Reminders = 0, 0, 0
	if s.Join != "" && (s.DecidedAt == nil || s.Type == tasker.ChildStep) {
		s.DecideAt = &c.Now
	}
	if s.Join == "" || s.DecidedAt != nil {
		c.wait(s)
	}
	if s.Item == nil {
		return
	}
	if m := c.Task.Find(s.Item.Map); m != nil && m.Items != nil && m.Items.Limit != nil {
		m.Items.Next = min(m.Items.Next, s.Item.Ordinal)
		c.touch(m)
	}
}

// withAttempt adds the number of the attempt to a failure, which is an object with fields.
func withAttempt(failure json.RawMessage, attempt int) json.RawMessage {
	object, ok := bytes.CutSuffix(bytes.TrimSpace(failure), []byte{'}'})
	if !ok {
		return failure
	}
	return fmt.Appendf(bytes.Clone(object), `,"attempt":%d}`, attempt)
}

// FailedForGood reports whether a step is in error and waits for an operator.
func (s *Step) FailedForGood() bool {
	return s.State == tasker.StepError && s.RetryAt == nil && s.AwaitsWorker == nil
}

// Backoff returns the delay before a failed step is enqueued again. The jitter, from 0 to 1, adds up
// to a quarter if the policy has jitter.
func Backoff(p tasker.Retry, attempts int, jitter float64) time.Duration {
	n, factor := max(attempts, 1), 1.0
	switch p.Backoff {
	case tasker.ExponentialBackoff:
		factor = math.Pow(2, float64(min(n, 31)-1))
	case tasker.LinearBackoff:
		factor = float64(n)
	case tasker.ConstantBackoff:
	}
	if !p.Jitter {
		jitter = 0
	}
	ms := (1 + jitter/4) * min(float64(p.MaxBackoffMS), float64(p.BaseMS)*factor)
	return time.Duration(ms * float64(time.Millisecond))
}
