package core_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// The verdicts as they are promised: by which standings occur, for all, none_failed and any.
var verdicts = map[[4]bool][3]core.Verdict{ // succeeded, skipped, failed, open
	{false, false, false, false}: {"run", "run", "run"},
	{true, false, false, false}:  {"run", "run", "run"},
	{false, true, false, false}:  {"skip", "run", "skip"},
	{false, false, true, false}:  {"blocked", "blocked", "blocked"},
	{true, true, false, false}:   {"skip", "run", "run"},
	{true, false, true, false}:   {"blocked", "blocked", "run"},
	{false, true, true, false}:   {"blocked", "blocked", "blocked"},
	{true, true, true, false}:    {"blocked", "blocked", "run"},
	{false, false, false, true}:  {"wait", "wait", "wait"},
	{true, false, false, true}:   {"wait", "wait", "run"},
	{false, true, false, true}:   {"wait", "wait", "wait"},
	{false, false, true, true}:   {"wait", "wait", "wait"},
	{true, true, false, true}:    {"wait", "wait", "run"},
	{true, false, true, true}:    {"wait", "wait", "run"},
	{false, true, true, true}:    {"wait", "wait", "wait"},
	{true, true, true, true}:     {"wait", "wait", "run"},
}

var joins = []tasker.Join{tasker.JoinAll, tasker.JoinNoneFailed, tasker.JoinAny}

// Every set of dependencies has the verdict that is promised, whatever their order and number.
func TestEverySetOfDependenciesHasAVerdict(t *testing.T) {
	t.Parallel()
	kinds := []core.Standing{core.Succeeded, core.Skipped, core.Failed, core.Open}
	for present, want := range verdicts {
		var list []core.Standing
		for i, k := range kinds {
			for range map[bool]int{true: 1 + rand.IntN(3)}[present[i]] {
				list = append(list, k)
			}
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, join := range joins {
			if got := core.ApplyJoin(join, list); got != want[i] {
				t.Errorf("%s of %v: %s, want %s", join, list, got, want[i])
			}
			if got := core.ApplyJoin(join, append(list, core.Cancelled)); got != core.VerdictCancelled {
				t.Errorf("%s of %v and a cancelled one: %s", join, list, got)
			}
		}
	}
	if len(verdicts) != 1<<len(kinds) {
		t.Errorf("%d sets are listed", len(slices.Collect(maps.Keys(verdicts))))
	}
}

// What may still be repaired or may still end never leads to a skip.
func TestNothingThatMayBeRepairedLeadsToASkip(t *testing.T) {
	t.Parallel()
	for _, join := range joins {
		for _, s := range []core.Standing{core.Failed, core.Open} {
			if got := core.ApplyJoin(join, []core.Standing{core.Skipped, s}); got == core.VerdictSkip {
				t.Errorf("%s of a skipped and a %s dependency: %s", join, s, got)
			}
		}
	}
}

// What a decision has not named is skipped, whatever its join and its other dependencies.
func TestWhatADecisionDeclinesIsSkipped(t *testing.T) {
	t.Parallel()
	for _, join := range joins {
		for _, other := range []core.Standing{core.Succeeded, core.Skipped, core.Failed, core.Open} {
			if got := core.ApplyJoin(join, []core.Standing{other, core.Declined}); got != core.VerdictSkip {
				t.Errorf("%s of a declined and a %s dependency: %s", join, other, got)
			}
		}
		if got := core.ApplyJoin(join, []core.Standing{core.Declined, core.Cancelled}); got != core.VerdictCancelled {
			t.Errorf("%s of a declined and a cancelled dependency: %s", join, got)
		}
	}
}

func TestStandings(t *testing.T) {
	t.Parallel()
	for _, s := range tasker.StepStates() {
		for _, retries := range []bool{false, true} {
			got := core.StandingOf(s, retries)
			if s.Done() != (got == core.Succeeded || got == core.Skipped) {
				t.Errorf("%s is %s, and Done says %t", s, got, s.Done())
			}
			if failed := s == tasker.StepError && !retries; failed != (got == core.Failed) {
				t.Errorf("%s, retries %t: %s", s, retries, got)
			}
		}
	}
}

// fixed returns dependencies of which each may or may not be skipped.
func fixed(skippable ...bool) []core.Dependency {
	list := make([]core.Dependency, len(skippable))
	for i, s := range skippable {
		list[i].Skippable = s
	}
	return list
}

var decision = []core.Dependency{{}, {Decision: true}}

// A step is decided only if it has a condition, a join of its own, or a dependency that may be
// skipped or is a decision.
func TestStepsThatAreDecided(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step         tasker.StepTemplate
		dependencies []core.Dependency
		rule         tasker.Join
		skippable    bool
	}{
		{tasker.StepTemplate{}, nil, "", false},
		{tasker.StepTemplate{}, fixed(false, false), "", false},
		{tasker.StepTemplate{Join: tasker.JoinAll}, fixed(false), "", false},
		{tasker.StepTemplate{When: "true"}, nil, tasker.JoinAll, true},
		{tasker.StepTemplate{OnTimeout: tasker.TimeoutSkips}, nil, "", true},
		{tasker.StepTemplate{OnTimeout: tasker.TimeoutFails}, nil, "", false},
		{tasker.StepTemplate{}, fixed(false, true), tasker.JoinAll, true},
		{tasker.StepTemplate{Join: tasker.JoinNoneFailed}, fixed(true), tasker.JoinNoneFailed, false},
		{tasker.StepTemplate{Join: tasker.JoinNoneFailed, When: "true"}, fixed(true), tasker.JoinNoneFailed, true},
		{tasker.StepTemplate{Join: tasker.JoinAny}, fixed(true, false), tasker.JoinAny, false},
		{tasker.StepTemplate{Join: tasker.JoinAny}, fixed(true, true), tasker.JoinAny, true},
		{tasker.StepTemplate{Join: tasker.JoinAny}, fixed(false, false), tasker.JoinAny, false},
		{tasker.StepTemplate{}, decision, tasker.JoinAll, true},
		{tasker.StepTemplate{Join: tasker.JoinNoneFailed}, decision, tasker.JoinNoneFailed, true},
		{tasker.StepTemplate{Type: tasker.DecisionStep}, fixed(false), "", false},
	} {
		if got := core.JoinRule(c.step, c.dependencies); got != c.rule {
			t.Errorf("%+v behind %v: rule %q, want %q", c.step, c.dependencies, got, c.rule)
		}
		if got := core.CanSkip(c.step, c.dependencies); got != c.skippable {
			t.Errorf("%+v behind %v: skippable %t, want %t", c.step, c.dependencies, got, c.skippable)
		}
	}
}

func TestHowANewStepBegins(t *testing.T) {
	t.Parallel()
	work, external := tasker.StepTemplate{Type: tasker.StandardStep}, tasker.StepTemplate{Type: tasker.ExternalStep}
	for _, tt := range []struct {
		step          tasker.StepTemplate
		join          tasker.Join
		parents, open int
		due, waits    bool
	}{
		{work, "", 0, 0, false, false},
		{external, "", 0, 0, false, true},
		{external, "", 2, 1, false, false},
		{external, tasker.JoinAll, 0, 0, true, false},
		{work, tasker.JoinAll, 2, 1, false, false},
		{work, tasker.JoinNoneFailed, 2, 0, true, false},
		{work, tasker.JoinAny, 2, 2, false, false},
		{work, tasker.JoinAny, 2, 1, true, false},
	} {
		due, waits := core.IsDue(tt.join, tt.parents, tt.open), core.IsWaiting(tt.step, tt.join, tt.open)
		if due != tt.due || waits != tt.waits {
			t.Errorf("%+v: due %v, waits %v", tt, due, waits)
		}
	}
}
