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
)

// Standings lists the standings of a dependency.
func Standings() []Standing { return []Standing{Succeeded, Skipped, Failed, Open, Cancelled} }

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
// be repaired leads to a skip, because what is skipped stays so.
func Decide(join tasker.Join, dependencies []Standing) Verdict {
	has := func(s Standing) bool { return slices.Contains(dependencies, s) }
	switch {
	case has(Cancelled):
		return VerdictCancelled
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

// Skippable reports whether a step may come to be skipped, by its own condition or timeout and
// by whether each of its dependencies may.
func Skippable(s tasker.StepTemplate, dependencies []bool) bool {
	switch {
	case s.When != "", s.OnTimeout == tasker.TimeoutSkips:
		return true
	case s.Join == tasker.JoinNoneFailed:
		return false
	case s.Join == tasker.JoinAny:
		return len(dependencies) > 0 && !slices.Contains(dependencies, false)
	default:
		return slices.Contains(dependencies, true)
	}
}

// JoinRule returns the join by which a step is decided, empty for a step that runs as
// soon as its dependencies are done: it has no expression, waits for all of them, and
// none of them can be skipped.
func JoinRule(s tasker.StepTemplate, dependencies []bool) tasker.Join {
	switch {
	case s.Join != "" && s.Join != tasker.JoinAll:
		return s.Join
	case s.When != "" || s.WaitUntil != "" || slices.Contains(dependencies, true):
		return tasker.JoinAll
	default:
		return ""
	}
}
