package live

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/sdk/conformance/program"
)

// await waits until all tasks are complete. It fails early if a task has failed.
func (r *run) await(ctx context.Context, tasks []tasker.Task) error {
	left := slices.Clone(tasks)
	err := r.poll(ctx, runTime, "all tasks to complete", func() (bool, error) {
		if i := slices.IndexFunc(r.workers, exited); i >= 0 {
			return false, fmt.Errorf("a worker stopped unexpectedly:\n%s", r.workers[i].Tail())
		}
		for len(left) > 0 {
			t, err := r.task(ctx, left[0])
			switch {
			case tasker.CodeOf(err) == tasker.Unavailable:
				return false, nil
			case err != nil:
				return false, err
			case t.State == tasker.TaskComplete:
				left = left[1:]
			case t.Settled():
				doc, _ := json.MarshalIndent(t, "", "  ") //nolint:errchkjson // a task is JSON
				return false, fmt.Errorf("the task %s did not complete: %s", t.UUID, doc)
			default:
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && len(left) > 0 {
		return fmt.Errorf("task %s, %d of %d: %w", left[0].UUID, len(tasks)-len(left)+1, len(tasks), err)
	}
	return err
}

func exited(p *program.Program) bool {
	ended, _ := p.Exited()
	return ended
}

func (r *run) task(ctx context.Context, t tasker.Task) (tasker.Task, error) {
	return r.client.Task(ctx, t.UUID)
}

// check compares the results of all steps, and checks that each step was completed once.
func (r *run) check(ctx context.Context, tasks []tasker.Task) error {
	attempts := 0
	for i, t := range tasks {
		t, err := r.task(ctx, t)
		if err != nil {
			return err
		}
		for _, step := range t.Steps {
			var stored tasker.StepResult
			if err := json.Unmarshal(step.Results, &stored); err != nil {
				return fmt.Errorf("read the result of step %s: %w", step.Name, err)
			}
			if err := CheckResult(step.Name, stored.Result, i); err != nil {
				return fmt.Errorf("task %s: %w", t.UUID, err)
			}
			if err := r.checkOnce(ctx, t, step); err != nil {
				return err
			}
			attempts += step.Attempts
		}
	}
	r.Log("each step was completed once, in %d attempts; without faults there are %d", attempts, 6*len(tasks))
	return nil
}

// CheckResult returns an error if the result of a step is wrong. The number is that of its task.
func CheckResult(step string, result json.RawMessage, number int) error {
	var got struct {
		Row     int
		Context struct{ I int }
		Value   struct {
			Slept int `json:"slept_ms"`
		}
		Slept int `json:"slept_ms"`
	}
	if err := json.Unmarshal(result, &got); err != nil {
		return fmt.Errorf("read the result of step %s: %w", step, err)
	}
	ok := map[string]bool{
		"first": got.Context.I == number,
		"nap":   got.Slept == napTime,
		"save":  got.Row >= 3, // a worker that is killed between checkpoint 3 and its report causes one more row
		"last":  got.Value.Slept == napTime,
	}
	if !ok[step] {
		return fmt.Errorf("the result of step %s of task %d is wrong: %s", step, number, result)
	}
	return nil
}

// checkOnce checks that the history of a step has one transition to complete.
func (r *run) checkOnce(ctx context.Context, t tasker.Task, step tasker.Step) error {
	list, err := r.history(ctx, step)
	if err != nil {
		return err
	}
	if _, err := completion(list); err != nil {
		return fmt.Errorf("step %s of task %s %w", step.Name, t.UUID, err)
	}
	return nil
}

// history returns the transitions of a step.
func (r *run) history(ctx context.Context, step tasker.Step) ([]tasker.Transition, error) {
	return r.client.StepTransitions(ctx, step.TaskUUID, step.UUID, apiv1.Page{})
}

// completion returns the only transition to complete of a step.
func completion(history []tasker.Transition) (found tasker.Transition, err error) {
	completed := 0
	for _, t := range history {
		if t.To == string(tasker.StepComplete) {
			found = t
			completed++
		}
	}
	if completed != 1 {
		return found, fmt.Errorf("was completed %d times", completed)
	}
	return found, nil
}
