package core

import (
	"slices"

	"tasker.example/tasker"
)

// Standing is the state of a dependency as its dependent steps see it.
type Standing string

// The possible standings.
const (
	Succeeded Standing = "succeeded" // complete or resolved manually
	Skipped   Standing = "skipped"
	Failed    Standing = "failed"    // in error without an automatic retry
	Open      Standing = "open"      // not finished, or waiting for a retry
	Cancelled Standing = "cancelled" // with its task
	Declined  Standing = "declined"  // a decision that succeeded and did not choose the step
)

// StandingOf returns the standing of a step in state s. If retries is set, a failed step is retried
// automatically and therefore still open.
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

// Verdict is the decision whether a step can run.
type Verdict string

// The possible verdicts.
const (
	VerdictRun       Verdict = "run"       // its join is satisfied
	VerdictSkip      Verdict = "skip"      // its join can no longer be satisfied
	VerdictWait      Verdict = "wait"      // a dependency is not finished
	VerdictBlocked   Verdict = "blocked"   // a failed dependency must be repaired first
	VerdictCancelled Verdict = "cancelled" // a dependency is cancelled
)

// ApplyJoin applies a join to the standings of a step's dependencies. A step without dependencies
// runs. Because a skip is final, a dependency that may still be repaired never causes one. A step
// that a decision did not choose is skipped regardless of its other dependencies.
func ApplyJoin(join tasker.Join, dependencies []Standing) Verdict {
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

// IsDue reports whether a pending step must be decided now, of whose parents some are open.
func IsDue(join tasker.Join, parents, open int) bool {
	return join != "" && (open == 0 || join == tasker.JoinAny && open < parents)
}

// IsWaiting reports whether the wait of a pending step begins now, of whose parents some are open.
func IsWaiting(s tasker.StepTemplate, join tasker.Join, open int) bool {
	return join == "" && open == 0 && !s.HasHandler()
}

// Dependency describes a dependency for [CanSkip] and [JoinRule].
type Dependency struct {
	Skippable bool // it may be skipped
	Decision  bool // its result chooses the steps to run
}

// CanSkip reports whether a step may be skipped because of its condition, its timeout, its child
// task, a decision that it depends on, or skipped dependencies.
func CanSkip(s tasker.StepTemplate, dependencies []Dependency) bool {
	switch {
	case s.When != "", s.OnTimeout == tasker.TimeoutSkips, slices.ContainsFunc(dependencies, func(d Dependency) bool { return d.Decision }),
		s.OnChild.Cancelled == tasker.ChildSkips, s.OnChild.PermanentlyFailed == tasker.ChildSkips:
		return true
	case s.Join == tasker.JoinNoneFailed:
		return false
	case s.Join == tasker.JoinAny:
		return len(dependencies) > 0 && !slices.ContainsFunc(dependencies, func(d Dependency) bool { return !d.Skippable })
	default:
		return slices.ContainsFunc(dependencies, func(d Dependency) bool { return d.Skippable })
	}
}

// JoinRule returns the join rule of a step, or "" if the step simply runs once all its dependencies
// are done. The latter requires that no dependency is skippable or a decision, and that the step
// has no condition, wait, items, child task, due time or person to notify.
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
