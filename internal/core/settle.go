package core

import (
	"time"

	"tasker.example/tasker"
)

// Counts counts the steps of a task by what they mean for the state of the task.
type Counts struct {
	Open     int // neither done nor cancelled
	Active   int // with a worker, waiting for one, or due to be decided
	Retrying int // failed, and retried automatically
	Failed   int // failed, including those that are retried

	RetryAt   *time.Time // earliest retry
	WaitUntil *time.Time // earliest end of a wait
}

// Add counts a step.
func (n *Counts) Add(s *Step) {
	if s.State.Done() || s.State == tasker.StepCancelled {
		return
	}
	n.Open++
	if IsHeld(s.State) || s.State == tasker.StepPending && s.DecideAt != nil {
		n.Active++
	}
	if s.State == tasker.StepError {
		n.Failed++
	}
	if s.RetryAt != nil {
		n.Retrying++
	}
	n.RetryAt, n.WaitUntil = earlier(n.RetryAt, s.RetryAt), earlier(n.WaitUntil, s.WaitUntil)
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// RestingState returns the stable state of a task with these steps. While a step is active, the task
// is in process. A task that is compensated ends as cancelled.
func (n Counts) RestingState(phase tasker.TaskPhase) tasker.TaskState {
	switch {
	case n.Open == 0 && phase == tasker.Compensating:
		return tasker.TaskCancelled
	case n.Open == 0:
		return tasker.TaskComplete
	case n.Active > 0:
		return tasker.TaskStepsInProcess
	case n.Retrying > 0:
		return tasker.TaskWaitingForRetry
	case n.Failed > 0:
		return tasker.TaskError
	default:
		return tasker.TaskWaitingForDependencies
	}
}

// RestingState returns the stable state of a task with these steps, of which a map step counts its
// items.
func RestingState(steps []tasker.Step) tasker.TaskState {
	var n Counts
	var phase tasker.TaskPhase
	for _, s := range steps {
		n.Add(&Step{State: s.State, RetryAt: s.NextRetryAt})
		if s.DecisionDue {
			n.Active++
		}
		if m := s.Items; m != nil {
			n.Active, n.Retrying = n.Active+m.Enqueued+m.InProgress, n.Retrying+m.Retrying
		}
		if s.UndoOf() != "" {
			phase = tasker.Compensating
		}
	}
	return n.RestingState(phase)
}

// Count counts the steps of the task. It reports false if that requires the steps that were not
// loaded. They do not matter while a loaded step is active. If they were counted, the result is known
// unless the task has to wait: the times of their retries and waits are not known then.
func (t *Task) Count() (n Counts, known bool) {
	for _, s := range t.Steps {
		n.Add(s)
	}
	if t.Others == nil {
		return n, t.Whole || n.Active > 0
	}
	o := *t.Others
	n.Open, n.Active, n.Retrying, n.Failed = n.Open+o.Open, n.Active+o.Active, n.Retrying+o.Retrying, n.Failed+o.Failed
	return n, o.Open == 0 || n.Active > 0 || n.Retrying == 0 && n.Failed > 0
}

// Without returns the counts without those of some of the steps.
func (n Counts) Without(steps []*Step) Counts {
	var m Counts
	for _, s := range steps {
		m.Add(s)
	}
	return Counts{Open: n.Open - m.Open, Active: n.Active - m.Active, Retrying: n.Retrying - m.Retrying, Failed: n.Failed - m.Failed}
}
