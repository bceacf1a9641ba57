package web

import (
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// A forecast is what an action on a step will most likely lead to.
type forecast struct {
	Step     tasker.StepState // of the step itself, once the task has gone on
	Enqueued []string         // other steps that a worker can take then
	Outside  []string         // other steps that wait for an answer from outside then
	Waiting  []string         // steps behind it that wait for something else, too
	Task     tasker.TaskState
}

// forecastOf plays an action through on a copy of the steps. Others may be faster:
// it says what will be if nothing else happens.
func forecastOf(steps []tasker.Step, id tasker.ID, action tasker.StepAction) forecast {
	after := slices.Clone(steps)
	done := map[tasker.ID]bool{}
	var f forecast
	for i, s := range after {
		if s.UUID == id {
			if next, err := lifecycle.Step.Next(s.State, lifecycle.StepEvent(action)); err == nil {
				after[i].State, after[i].NextRetryAt = next, nil
			}
		}
		done[s.UUID] = ended(after[i].State)
	}
	for i, s := range after {
		ready := s.State == tasker.StepPending && !slices.ContainsFunc(s.Parents, func(p tasker.ID) bool { return !done[p] })
		if ready && s.Type == tasker.StandardStep {
			after[i].State = tasker.StepEnqueued
		}
		switch {
		case s.UUID == id:
			f.Step = after[i].State
		case ready && s.Type == tasker.StandardStep:
			f.Enqueued = append(f.Enqueued, s.Name)
		case ready && slices.Contains(s.Parents, id):
			f.Outside = append(f.Outside, s.Name)
		case s.State == tasker.StepPending && slices.Contains(s.Parents, id):
			f.Waiting = append(f.Waiting, s.Name)
		}
	}
	f.Task = restingState(after)
	return f
}

func ended(s tasker.StepState) bool {
	return s == tasker.StepComplete || s == tasker.StepResolvedManually
}

// restingState is where a task with these steps comes to rest: the rule of the
// database, task_resting_state(), which a test holds it to.
func restingState(steps []tasker.Step) tasker.TaskState {
	var open, active, retrying, failed bool
	for _, s := range steps {
		open = open || !ended(s.State)
		active = active || lifecycle.Held(s.State)
		retrying = retrying || s.State == tasker.StepError && s.NextRetryAt != nil
		failed = failed || s.State == tasker.StepError
	}
	switch {
	case !open:
		return tasker.TaskComplete
	case active:
		return tasker.TaskStepsInProcess
	case retrying:
		return tasker.TaskWaitingForRetry
	case failed:
		return tasker.TaskError
	default:
		return tasker.TaskWaitingForDependencies
	}
}
