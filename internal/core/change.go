package core

import (
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// Change collects the effects of events on a task. The caller must store its fields.
type Change struct {
	Task *Task
	Now  time.Time

	Moved   []*Step // steps whose state changed, in the order of their first move
	Touched []*Step // other steps that changed
	Moves   []Move  // the history, in order

	// Takes reports whether the reporting worker Worker claims a step that has become ready, so that
	// it is not queued. It may be nil.
	Takes  func(*Step) bool
	Worker tasker.ID

	// recordsAll is set by events that are rare, so that the enqueuing of each step is a move.
	recordsAll bool

	written map[tasker.ID]bool
	items   []movedItem
	err     error
}

// movedItem is an item whose state changed.
type movedItem struct {
	*Step
	held bool // it occupied a slot before
}

// Move is a transition of a step in the history. The moves do not include the enqueuing of a step
// whose parents are done, which is recorded together with the end of its attempt.
type Move struct {
	Step      tasker.ID
	From, To  tasker.StepState
	Event     StepEvent
	Attempt   int
	Worker    *tasker.ID
	Actor     string
	Reason    string
	Detail    json.RawMessage // of a failure
	Operation *tasker.ID
}

// Begin begins a change of a locked task at a time, which is that of the database.
func Begin(t *Task, now time.Time) *Change {
	return &Change{Task: t, Now: now, written: map[tasker.ID]bool{}}
}

// Err returns the first internal error: an event needed a step that was not loaded, or a move that
// the lifecycle does not have. The change must then not be stored.
func (c *Change) Err() error { return c.err }

func (c *Change) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("task %s: "+format, append([]any{c.Task.ID}, args...)...)
	}
}

// touch records that a step changed in another way than by a move.
func (c *Change) touch(s *Step) {
	if !c.written[s.ID] {
		c.written[s.ID] = true
		c.Touched = append(c.Touched, s)
	}
}

// move applies an event to a step. It sets what follows from the new state alone.
func (c *Change) move(s *Step, m Move) {
	to, err := StepMoves.Next(s.State, m.Event)
	if err != nil {
		c.fail("step %s: %w", s.ID, err)
		return
	}
	m.Step, m.From, m.To, m.Attempt = s.ID, s.State, to, s.Attempts
	held := s.holdsSlot()
	s.State = to
	s.LeaseExpires, s.RetryAt, s.AwaitsWorker, s.DecideAt, s.WaitUntil, s.RemindAt = nil, nil, nil, nil, nil, nil
	s.Unclaimed = false
	if m.Event != Enqueue || c.recordsAll {
		c.Moves = append(c.Moves, m)
	}
	c.recordMoved(s)
	if s.Item != nil {
		c.items = append(c.items, movedItem{s, held})
	}
}

func (c *Change) recordMoved(s *Step) {
	for i, other := range c.Touched {
		if other == s {
			c.Touched = append(c.Touched[:i], c.Touched[i+1:]...)
			delete(c.written, s.ID)
			break
		}
	}
	if !c.written[s.ID] {
		c.written[s.ID] = true
		c.Moved = append(c.Moved, s)
	}
}
