package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/enginetest"
)

// vary makes another version of a template: steps go, come, and change.
func vary(r *rand.Rand, steps []tasker.StepTemplate) []tasker.StepTemplate {
	var list []tasker.StepTemplate
	var names []string
	for _, s := range steps {
		if r.IntN(5) > 0 {
			list = append(list, s)
		}
		if r.IntN(5) == 0 {
			list = append(list, attempts(2, enginetest.Step(fmt.Sprintf("n%d", r.Uint32()))))
		}
	}
	if len(list) == 0 {
		list = append(list, enginetest.Step("n0"))
	}
	for i := range list {
		s := &list[i]
		s.Dependencies = slices.DeleteFunc(slices.Clone(s.Dependencies), func(d string) bool { return !slices.Contains(names, d) })
		switch r.IntN(12) {
		case 0:
			s.Retry.MaxAttempts = 1 + r.IntN(4)
		case 1:
			s.When = "false"
		case 2:
			s.When = "true"
		case 3:
			s.Join = tasker.JoinNoneFailed
		case 4:
			if len(s.Dependencies) > 1 {
				s.Join = tasker.JoinAny
			}
		case 5, 6:
			if i > 0 && !slices.Contains(s.Dependencies, names[i-1]) {
				s.Dependencies = append(s.Dependencies, names[i-1])
			}
		case 7:
			s.Description = "another one"
		}
		names = append(names, s.Name)
	}
	return list
}

// The invariants are checked at the end.
func TestRandomTaskChangesItsVersion(t *testing.T) {
	h := newHarness(t)
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const least, most = 18, 120 // as many as it takes for three that were changed
	tasks, changed := 0, 0
	for ; tasks < least || changed < least/6 && tasks < most; tasks++ {
		first := randomSteps(r)
		first = vary(r, first)
		second := vary(r, first)
		if h.randomVersions(r, fmt.Sprint("random", tasks), first, second) {
			changed++
		}
		require(t, !t.Failed(), "task %d: from %+v\nto %+v", tasks, first, second)
	}
	if t.Logf("%d of %d tasks were changed", changed, tasks); changed < least/6 || changed == tasks {
		t.Errorf("%d of %d tasks were changed: the test says little", changed, tasks)
	}
}

// randomVersions brings a task of one version, somewhere on its way, to the other, and to its
// end. It reports false when that was refused.
func (h *harness) randomVersions(r *rand.Rand, name string, first, second []tasker.StepTemplate) bool {
	h.Helper()
	for v, steps := range map[string][]tasker.StepTemplate{"1.0.0": first, "1.1.0": second} {
		h.RegisterTemplate(tasker.Template{Namespace: h.Space, Name: name, Version: v, Steps: steps})
	}
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Version: "1.0.0"})
	var held []tasker.Assignment
	for range r.IntN(5) {
		h.Tick()
		for _, a := range h.Claim() {
			switch r.IntN(6) {
			case 0:
				h.Accepted(failure(a, false))
			case 1:
				h.Accepted(failure(a, true))
			case 2:
				held = append(held, a)
			default:
				h.Accepted(success(a, `1`))
			}
		}
	}
	before, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	plan := h.plan(task, "1.1.0")
	if len(plan.Refusals) > 0 {
		h.finish(task, held)
		return false
	}
	h.change(task, "1.1.0")
	h.finish(task, held)
	after, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	want := map[string]tasker.StepState{}
	for _, s := range before {
		if s.State != tasker.StepPending {
			want[s.Name] = tasker.StepComplete
			if s.State == tasker.StepSkipped {
				want[s.Name] = tasker.StepSkipped
			}
		}
	}
	for _, s := range second {
		if _, begun := want[s.Name]; begun {
			continue
		}
		var standings []core.Standing
		for _, d := range s.Dependencies {
			standings = append(standings, core.StandingOf(want[d], false))
		}
		join := s.Join
		if join == "" {
			join = tasker.JoinAll
		}
		if want[s.Name] = tasker.StepComplete; core.ApplyJoin(join, standings) == core.VerdictSkip || s.When == "false" {
			want[s.Name] = tasker.StepSkipped
		}
	}
	equal(h, "steps", len(after), len(want))
	for _, s := range after {
		check(h, s.State == want[s.Name], "step %s is %s, want %q", s.Name, s.State, want[s.Name])
	}
	return true
}

// finish brings a task to its end: every report succeeds, and what has failed is reset.
func (h *harness) finish(task tasker.ID, held []tasker.Assignment) {
	h.Helper()
	h.Succeed(held...)
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); {
		h.Tick()
		h.Succeed(h.Claim()...)
		steps, err := h.DB.Steps(h.Context(), task)
		h.Must(err)
		open := false
		for _, s := range steps {
			open = open || !s.State.Done()
			if s.State == tasker.StepError && s.NextRetryAt == nil {
				_, err := h.Engine.OperateStep(h.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "x", Actor: "ann"})
				h.Must(err)
			}
		}
		if !open {
			h.WantState(task, tasker.TaskComplete)
			return
		}
	}
	h.Fatalf("the task %s does not end", task)
}
