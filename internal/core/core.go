// Package core decides what happens to tasks and steps. It is given the state of a task, the time
// and an event, and determines the new state and what must be stored. It uses no database, no clock
// and no randomness, so every rule can be tested and simulated without them.
//
// The tables [TaskMoves], [StepMoves] and [EntryMoves] contain the legal transitions. Validation, the
// documentation and the checks of the history use them. The database has a copy of one part: the
// paths between the stable states of a task. A test compares the two.
//
// A caller loads a [Task] while it holds the lock on the task's row, begins a [Change], applies
// events to it, and stores the steps and moves that it contains. An event that is refused changes
// nothing.
package core

import (
	"encoding/json"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Task is a task as far as an event can affect it.
type Task struct {
	ID    tasker.ID
	State tasker.TaskState
	Phase tasker.TaskPhase

	// Steps contains the loaded steps, ordered by ID: all of them, or those that an event names, the
	// steps that depend on them, and the items that can get their slots.
	Steps []*Step

	// Others counts the steps that were not loaded. It is nil if they were not counted.
	Others *Counts

	// Whole is set if all steps were loaded.
	Whole bool
}

// Find returns a loaded step, or nil.
func (t *Task) Find(id tasker.ID) *Step {
	i, ok := slices.BinarySearchFunc(t.Steps, id, func(s *Step, id tasker.ID) int { return slices.Compare(s.ID[:], id[:]) })
	if !ok {
		return nil
	}
	return t.Steps[i]
}

// add adds new steps.
func (t *Task) add(steps []*Step) {
	t.Steps = append(t.Steps, steps...)
	slices.SortFunc(t.Steps, func(a, b *Step) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// Step is a step of a task. It contains no documents except those that a change stores.
type Step struct {
	ID       tasker.ID
	Type     tasker.StepType
	Join     tasker.Join // empty if the step runs as soon as its parents are done
	Children []tasker.ID
	Retry    tasker.Retry
	Timeout  time.Duration // of an attempt, or of the wait of a step without a handler; 0 means none
	Remind   time.Duration // first reminder after the wait begins; 0 means none

	State         tasker.StepState
	Attempts      int
	Fence         int64
	OpenParents   int        // parents that are not done; for a map step with items, the open items
	RetryAt       *time.Time // when a failed step is enqueued again automatically
	AwaitsWorker  *time.Time // set while an unclaimed step waits until a worker is online
	Unclaimed     bool       // the last failure is that no worker claimed the step
	QueueExpiries int        // consecutive times that no worker claimed it although one was online
	DecideAt      *time.Time // when the step is due to be decided
	DecidedAt     *time.Time // when it was decided that the step runs
	WaitUntil     *time.Time // when the wait of a pending step ends
	RemindAt      *time.Time // next reminder
	Reminders     int
	Worker        *tasker.ID // worker of the current or last attempt
	LeaseExpires  *time.Time

	Items *Items // of a map step whose items exist
	Item  *Item  // of an item of a map step

	ResultBytes *int   // size of the result; nil if unknown
	InputBytes  *int64 // size of the inputs; nil if unknown

	Stored Stored // what the change adds to the row

	was loaded
}

// loaded is the state in which a step was read. A claim can change it without the lock on the task,
// so it must still be the same when a move is stored.
type loaded struct {
	state tasker.StepState
	fence int64
}

// Stored contains what a change writes in addition to the state. Nil keeps the stored value.
type Stored struct {
	Result     json.RawMessage
	ResultSize int
	Error      json.RawMessage
	Kept       json.RawMessage // report to be applied later
	SkipReason string
	Reported   *int64 // fence of the report that counted
	Digest     []byte // identifies a repeated report
	NoDigest   bool   // removes the digest
	Begun      bool   // the wait of a pending step begins now, which counts as a new state
	Enqueued   bool   // the history has the enqueuing of the attempt that begins
}

// Items describes the items of a map step.
type Items struct {
	Total    int
	Limit    *int // maximum number of items in progress; nil means no limit
	Free     int  // unused slots, if there is a limit
	Next     int  // no item with a lower ordinal waits for a slot
	UnderWay *int // an ordinal near which an item may be in progress
}

// Item identifies a step as an item of a map step.
type Item struct {
	Map     tasker.ID
	Ordinal int
}

// MarkLoaded records the state in which a step was read. Call it once, after loading the step.
func (s *Step) MarkLoaded() { s.was = loaded{s.State, s.Fence} }

// Was returns the state and the fence with which the step was loaded.
func (s *Step) Was() (tasker.StepState, int64) { return s.was.state, s.was.fence }

// HasHandler reports whether workers execute the step.
func (s *Step) HasHandler() bool {
	return s.Type == tasker.StandardStep || s.Type == tasker.DecisionStep
}

// holdsSlot reports whether an item occupies a slot of its map step: it is in progress, will be
// retried, or was not claimed by a worker.
func (s *Step) holdsSlot() bool {
	return IsHeld(s.State) || s.State == tasker.StepError && (s.RetryAt != nil || s.Unclaimed)
}
