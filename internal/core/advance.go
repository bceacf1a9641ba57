package core

import (
	"cmp"
	"slices"
	"time"

	"tasker.example/tasker"
)

// release updates the steps that depend on a step that is done.
func (c *Change) release(done *Step) {
	for _, id := range done.Children {
		s := c.Task.Find(id)
		if s == nil {
			c.fail("step %s depends on %s and was not loaded", id, done.ID)
			return
		}
		if s.Items == nil || done.Item != nil {
			s.OpenParents--
		}
		s.InputBytes = addBytes(s.InputBytes, done)
		c.touch(s)
		c.advance(s)
	}
}

// addBytes returns the size of the inputs of a step after another one that it depends on is done.
func addBytes(inputs *int64, done *Step) *int64 {
	switch {
	case inputs == nil:
		return nil
	case done.State != tasker.StepComplete:
		return inputs
	case done.ResultBytes == nil:
		return nil
	}
	sum := *inputs + int64(*done.ResultBytes)
	return &sum
}

// advance lets a pending step continue as far as its parents allow. A step with a join rule must be
// decided first: after its last parent or, if the rule is any, after each one. A map step with items
// is due after the last of them.
func (c *Change) advance(s *Step) {
	switch {
	case s.State != tasker.StepPending:
	case s.Items != nil:
		if s.OpenParents == 0 {
			c.makeDue(s)
		}
	case s.Join != "":
		if s.DecidedAt == nil && (s.OpenParents == 0 || s.Join == tasker.JoinAny) {
			c.makeDue(s)
		}
	case s.OpenParents == 0:
		c.begin(s)
	}
}

func (c *Change) makeDue(s *Step) {
	s.DecideAt = &c.Now
	c.touch(s)
}

// begin enqueues a pending step or, if it has no handler, begins its wait.
func (c *Change) begin(s *Step) {
	if s.HasHandler() {
		c.enqueue(s, Enqueue)
		return
	}
	c.wait(s)
	c.touch(s)
}

// wait sets the times at which the wait of a pending step ends and at which people are reminded.
func (c *Change) wait(s *Step) {
	s.WaitUntil, s.RemindAt = nil, nil
	if s.Timeout > 0 && s.Type != tasker.MapStep && !s.HasHandler() {
		s.WaitUntil = c.after(s.Timeout)
	}
	if s.Remind > 0 {
		s.RemindAt = c.after(s.Remind)
	}
}

func (c *Change) after(d time.Duration) *time.Time {
	at := c.Now.Add(d)
	return &at
}

// enqueue makes a step ready for workers, which begins an attempt. A pending step is handed to the
// worker that reports, if it takes it.
func (c *Change) enqueue(s *Step, e StepEvent) {
	s.Attempts++
	c.move(s, Move{Event: e})
	s.Worker, s.Stored.Enqueued = nil, c.recordsAll
	if e == Enqueue && c.Takes != nil && c.Takes(s) {
		s.State, s.Worker, s.QueueExpiries = tasker.StepInProgress, &c.Worker, 0
		s.Fence++
	}
}

// Expand gives a map step that runs its items, which are in order, and enqueues the first ones: as
// many as the limit allows, or all if it is nil. Expand reports false if the step is not due to be
// decided.
func (c *Change) Expand(id tasker.ID, items []*Step, limit *int) bool {
	m := c.Task.Find(id)
	if m == nil || m.Type != tasker.MapStep || m.State != tasker.StepPending || m.DecideAt == nil || m.Items != nil {
		return false
	}
	m.DecideAt, m.DecidedAt, m.Stored.Begun = nil, &c.Now, true
	m.Items, m.OpenParents = &Items{Total: len(items), Limit: limit}, len(items)
	c.touch(m)
	for i, s := range items {
		s.Type, s.State, s.Retry, s.Children, s.Item = tasker.StandardStep, tasker.StepPending, m.Retry, []tasker.ID{id}, &Item{id, i}
		s.MarkLoaded()
	}
	c.Task.add(items)
	if limit != nil {
		m.Items.Free = *limit
		c.fill(m)
	} else {
		for _, s := range items {
			c.enqueue(s, Enqueue)
		}
		last := len(items) - 1
		m.Items.UnderWay = &last
	}
	c.items = nil
	return true
}

// promote gives the slots of ended items to waiting ones, lowest ordinal first.
func (c *Change) promote() {
	var maps []*Step
	for _, i := range c.items {
		m := c.Task.Find(i.Item.Map)
		if m == nil {
			c.fail("the map step of item %s was not loaded", i.ID)
			return
		}
		if m.Items == nil || m.Items.Limit == nil || m.State != tasker.StepPending || !i.held || i.holdsSlot() {
			continue
		}
		m.Items.Free++
		c.touch(m)
		if i.State != tasker.StepPending { // it was reset: Continue lets it wait for a slot
			maps = append(maps, m)
		}
	}
	c.items = nil
	for _, m := range maps {
		c.fill(m)
	}
}

// fill enqueues waiting items of a map step while it has free slots.
func (c *Change) fill(m *Step) {
	if m == nil || m.Items == nil || m.Items.Limit == nil || m.Items.Free <= 0 || m.State != tasker.StepPending {
		return
	}
	c.touch(m)
	var waiting []*Step
	for _, s := range c.Task.Steps {
		if s.Item != nil && s.Item.Map == m.ID && s.State == tasker.StepPending && s.Item.Ordinal >= m.Items.Next {
			waiting = append(waiting, s)
		}
	}
	slices.SortFunc(waiting, func(a, b *Step) int { return cmp.Compare(a.Item.Ordinal, b.Item.Ordinal) })
	for _, s := range waiting[:min(m.Items.Free, len(waiting))] {
		c.enqueue(s, Enqueue)
		m.Items.Free--
		ordinal := s.Item.Ordinal
		m.Items.Next, m.Items.UnderWay = ordinal+1, &ordinal
	}
	if m.Items.Free > 0 {
		m.Items.Next = m.Items.Total
	}
}
