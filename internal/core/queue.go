package core

import (
	"time"

	"tasker.example/tasker"
)

// Continue lets steps continue that an operator has reset. An item waits for a slot of its map step.
func (c *Change) Continue(steps []tasker.StepRef) {
	c.recordsAll = true
	for _, ref := range steps {
		s := c.Task.Find(ref.StepUUID)
		if ref.TaskUUID != c.Task.ID || s == nil || s.State != tasker.StepPending {
			continue
		}
		if c.canRun(s) {
			c.enqueue(s, Enqueue)
		} else if s.Item != nil {
			c.fill(c.Task.Find(s.Item.Map))
		}
	}
	c.items = nil
}

// Resume lets the pending steps of a task continue: after its start time has come, or after a change
// of its version. All steps must be loaded.
func (c *Change) Resume() {
	c.recordsAll = true
	for _, s := range c.Task.Steps {
		if s.State == tasker.StepPending && c.canRun(s) {
			c.enqueue(s, Enqueue)
		}
	}
	c.items = nil
	for _, m := range c.Task.Steps {
		if m.Items != nil && m.Items.Limit != nil && m.State == tasker.StepPending {
			c.recount(m)
		}
	}
}

// canRun reports whether a pending step is ready for workers. An item waits for a slot instead if
// its map step has a limit.
func (c *Change) canRun(s *Step) bool {
	switch {
	case !s.HasHandler():
		return false
	case s.Item != nil:
		m := c.Task.Find(s.Item.Map)
		return m != nil && (m.Items == nil || m.Items.Limit == nil)
	case s.Join != "":
		return s.DecidedAt != nil
	default:
		return s.OpenParents == 0
	}
}

// recount determines the free slots of a map step from its items and fills them.
func (c *Change) recount(m *Step) {
	m.Items.Free, m.Items.Next = *m.Items.Limit, 0
	for _, s := range c.Task.Steps {
		if s.Item != nil && s.Item.Map == m.ID && s.holdsSlot() {
			m.Items.Free--
		}
	}
	c.touch(m)
	c.fill(m)
}

// Retry enqueues failed steps whose backoff is over. The steps of a task in error are not retried
// automatically.
func (c *Change) Retry() {
	if c.Task.State == tasker.TaskError {
		return
	}
	for _, s := range c.Task.Steps {
		if s.State == tasker.StepError && s.RetryAt != nil && !s.RetryAt.After(c.Now) {
			c.enqueue(s, Retry)
		}
	}
}

// Redispatch enqueues those of the steps that no worker had claimed. A worker for them is online now.
func (c *Change) Redispatch(served []tasker.StepRef) {
	for _, ref := range served {
		if s := c.Task.Find(ref.StepUUID); ref.TaskUUID == c.Task.ID && s != nil && s.State == tasker.StepError && s.AwaitsWorker != nil {
			c.enqueue(s, Redispatch)
		}
	}
}

// Run lets a step that was decided to run continue. The wait of a step without a handler ends at
// until, or after its timeout if until is nil. It reports false if the step is not due to be decided.
func (c *Change) Run(id tasker.ID, until *time.Time) bool {
	s := c.Task.Find(id)
	if s == nil || s.State != tasker.StepPending || s.DecideAt == nil {
		return false
	}
	c.recordsAll = true
	s.DecideAt, s.DecidedAt = nil, &c.Now
	c.begin(s)
	if s.State == tasker.StepPending {
		s.Stored.Begun = true
		if until != nil {
			s.WaitUntil = until
		}
	}
	return true
}

// Cancel cancels all steps that have not ended. All steps must be loaded.
func (c *Change) Cancel(actor, reason string, operation *tasker.ID) {
	for _, s := range c.Task.Steps {
		if s.State.Done() || s.State == tasker.StepCancelled {
			continue
		}
		m := Move{Event: Cancel, Actor: actor, Reason: reason, Operation: operation}
		if s.State == tasker.StepInProgress {
			m.Worker = s.Worker
		}
		s.Fence++
		c.move(s, m)
	}
	c.items = nil // no slot is needed any more
}

// Compensate cancels the steps of a task that have not ended and begins the first one of a chain of
// steps that undo others. All steps must be loaded.
func (c *Change) Compensate(chain []*Step, actor, reason string, operation *tasker.ID) {
	c.Cancel(actor, reason, operation)
	c.Task.Phase = tasker.Compensating
	for i, s := range chain {
		s.State, s.OpenParents = tasker.StepPending, min(i, 1)
		s.MarkLoaded()
	}
	c.Task.add(chain)
	c.begin(chain[0])
}
