package lifecycle

import (
	"slices"

	"tasker.example/tasker"
)

// A Standing is what a step is to the steps that depend on it.
type Standing string

// The standings.
const (
	Succeeded Standing = "succeeded" // complete or resolved by hand
	Skipped   Standing = "skipped"
	Failed    Standing = "failed"    // in error, and not retried by itself
	Open      Standing = "open"      // on its way, or resting before a retry
	Cancelled Standing = "cancelled" // with its task
	Declined  Standing = "declined"  // a decision that has succeeded, and has not named the step
)

// StandingOf returns the standing of a step in a state; retries tells that a failed step
// is retried by itself.
func StandingOf(s tasker.StepState, retries bool) Standing {
	switch {
	case s == tasker.StepComplete, s == tasker.StepResolvedManually:
		return Succeeded
	case s == tasker.StepSkipped:
		return Skipped
	case s == tasker.StepCancelled:
		return Cancelled
	case s == tasker.StepError && !retries:
		return Failed
	default:
		return Open
	}
}

// A Verdict says what becomes of a step, by what its dependencies have come to.
type Verdict string

// The verdicts.
const (
	VerdictRun       Verdict = "run"       // its join is met
	VerdictSkip      Verdict = "skip"      // its join cannot be met any more
	VerdictWait      Verdict = "wait"      // a dependency is on its way
	VerdictBlocked   Verdict = "blocked"   // a dependency has failed: a repair of it decides
	VerdictCancelled Verdict = "cancelled" // as its dependencies are
)

// Decide returns the verdict of a join on the dependencies of a step, of which only the
// standings that occur matter. A step without dependencies runs. Nothing that may still
// be repaired leads to a skip, because what is skipped stays so; what a decision has not
// named is skipped whatever else becomes of its dependencies.
func Decide(join tasker.Join, dependencies []Standing) Verdict {
	has := func(s Standing) bool { return slices.Contains(dependencies, s) }
	switch {
	case has(Cancelled):
		return VerdictCancelled
	case has(Declined):
		return VerdictSkip
	case join == tasker.JoinAny && has(Succeeded):
		return VerdictRun
	case has(Open):
		return VerdictWait
	case has(Failed):
		return VerdictBlocked
	case has(Skipped) && join != tasker.JoinNoneFailed:
		return VerdictSkip
	default:
		return VerdictRun
	}
}

// A Dependency is what of a dependency decides whether steps behind it are decided.
type Dependency struct {
	Skippable bool // it may come to be skipped
	Decision  bool // its result names which of the steps behind it go on
}

// Skippable reports whether a step may come to be skipped, by its own condition, timeout or
// child task, by a decision that it depends on, and by whether each of its dependencies may.
func Skippable(s tasker.StepTemplate, dependencies []Dependency) bool {
	may := func(d Dependency) bool { return d.Skippable }
	switch {
	case s.When != "", s.OnTimeout == tasker.TimeoutSkips, slices.ContainsFunc(dependencies, isDecision),
		s.OnChild.Cancelled == tasker.ChildSkips, s.OnChild.PermanentlyFailed == tasker.ChildSkips:
		return true
	case s.Join == tasker.JoinNoneFailed:
		return false
	case s.Join == tasker.JoinAny:
		return len(dependencies) > 0 && !slices.ContainsFunc(dependencies, func(d Dependency) bool { return !d.Skippable })
	default:
		return slices.ContainsFunc(dependencies, may)
	}
}

func isDecision(d Dependency) bool { return d.Decision }

// JoinRule returns the join by which a step is decided, empty for a step that runs as
// soon as its dependencies are done: it has no expression and no items, starts no child task, is
// not answered by a person, who is told of it when it waits, has no due time, which counts from then on, waits for all of them, and none of them can be skipped or is a decision.
func JoinRule(s tasker.StepTemplate, dependencies []Dependency) tasker.Join {
	switch {
	case s.Join != "" && s.Join != tasker.JoinAll:
		return s.Join
	case s.When != "" || s.WaitUntil != "" || s.ForPerson() || s.Due.HasDueTime(), s.Type == tasker.ChildStep, s.Type == tasker.MapStep,
		slices.ContainsFunc(dependencies, func(d Dependency) bool { return d.Skippable || d.Decision }):
		return tasker.JoinAll
	default:
		return ""
	}
}
