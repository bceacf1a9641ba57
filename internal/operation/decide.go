package operation

import (
	"cmp"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// A nextStep is the next change of an operation. At most one field is set.
type nextStep struct {
	pause   *tasker.OperationPause
	begin   *int // wave to begin
	release int  // number of items to release
}

// decideNext decides what a running operation does next: pause, begin a wave, release items or
// nothing.
func decideNext(o *postgres.RunningOperation, p postgres.Progress, failures postgres.RoundFailures) nextStep {
	if pause := checkGuards(o, failures); pause != nil {
		return nextStep{pause: pause}
	}
	if o.Wave < len(o.Waves) {
		return decideNextInWave(o, p)
	}
	if !p.Planned || !o.Due || p.InFlight >= tasker.MaxOperationInFlight {
		return nextStep{}
	}
	return nextStep{release: chunkSize(o.RatePerMinute)}
}

// decideNextInWave is next during the waves. The next wave begins when all steps of the current one
// have succeeded.
func decideNextInWave(o *postgres.RunningOperation, p postgres.Progress) nextStep {
	var released, open int64
	for state, n := range p.Round {
		released += n
		if state == tasker.ItemReleased || state == tasker.ItemRunning {
			open += n
		}
	}
	remaining := int64(o.Waves[o.Wave]) - released
	switch {
	case remaining > 0 && p.Planned:
		if !o.Due {
			return nextStep{}
		}
		return nextStep{release: int(min(remaining, int64(chunkSize(o.RatePerMinute))))}
	case open > 0:
		if o.WaveSince != nil && o.Now.Sub(*o.WaveSince) > o.Guards.WaveTimeout {
			return nextStep{pause: &tasker.OperationPause{For: tasker.PausedWaveTimeout, By: tasker.SystemActor, Failures: int(open)}}
		}
		return nextStep{}
	case !p.Planned:
		return nextStep{} // no items left
	}
	wave := o.Wave + 1
	if p.Round[tasker.ItemVerified] == 0 {
		wave = o.Wave // repeat the wave: none of its steps was verified
	}
	return nextStep{begin: &wave}
}

const (
	// toleratedOfRest is the minimum number of failures that a percentage tolerates once all waves
	// have succeeded.
	toleratedOfRest = 4
	// minSameCause is the minimum number of failures with the same cause that pauses an operation.
	// A single failure may be retried.
	minSameCause = 2
)

// toleratedFailures returns how many steps may fail before the operation is paused. In a wave, it
// is a share of all steps of the wave, at least one of which must succeed. After the waves, it is a
// share of the steps released so far.
func toleratedFailures(o *postgres.RunningOperation, f postgres.RoundFailures) int {
	steps, inWave := f.Released, o.Wave < len(o.Waves)
	if inWave {
		steps = min(o.Waves[o.Wave], f.Released+f.Planned)
	}
	allowed := o.Guards.Tolerate.Max(steps)
	switch {
	case inWave:
		return min(allowed, max(steps-1, 0))
	case len(o.Waves) > 0 && o.Guards.Tolerate.Percent > 0:
		return max(allowed, toleratedOfRest)
	default:
		return allowed
	}
}

// checkGuards returns why to pause an operation, or nil. It ignores failures whose causes are
// tolerated.
func checkGuards(o *postgres.RunningOperation, f postgres.RoundFailures) *tasker.OperationPause {
	allowed := toleratedFailures(o, f)
	var all, unknown tasker.OperationPause // permanent failures; failures with unknown causes
	add := func(p *tasker.OperationPause, c postgres.FailureCount, items int) *tasker.OperationPause {
		if p.Causes == nil {
			*p = tasker.OperationPause{By: tasker.SystemActor, FailureText: c.Text, TaskUUID: &c.TaskUUID}
		}
		p.Failures, p.Causes = p.Failures+items, append(p.Causes, c.Cause)
		return p
	}
	for _, c := range f.Causes {
		if slices.Contains(o.Tolerated, c.Cause) {
			continue
		}
		if c.Items > allowed && c.Items >= minSameCause {
			pause := add(new(tasker.OperationPause), c, c.Items)
			pause.For = tasker.PausedSameCause
			return pause
		}
		if c.FailedAgain > 0 {
			add(&all, c, c.FailedAgain)
		}
		if o.Causes == nil || o.Guards.IgnoreNewCause || slices.Contains(o.Causes, c.Cause) {
			continue
		}
		if add(&unknown, c, c.Items).Failures > allowed {
			unknown.For = tasker.PausedNewCause
			return &unknown
		}
	}
	if all.Failures > allowed && f.Planned > 0 { // otherwise nothing remains to be paused
		all.For = tasker.PausedWaveFailed
		return &all
	}
	return nil
}

// releaseEvery is the interval at which items are released. In each interval, as many items are
// released as the rate allows, but at least one.
const releaseEvery = 250 * time.Millisecond

// chunkSize returns how many items are released together at the given rate.
func chunkSize(perMinute int) int {
	if perMinute == 0 {
		return tasker.MaxOperationChunk
	}
	n := perMinute * int(releaseEvery/time.Millisecond) / int(time.Minute/time.Millisecond)
	return min(max(n, 1), tasker.MaxOperationChunk)
}

// nextReleaseTime returns when the next items may be released. It makes up for delays of up to one
// second.
func nextReleaseTime(o *postgres.RunningOperation, released int) time.Time {
	if o.RatePerMinute == 0 || released == 0 {
		return o.Now
	}
	from := o.Now
	if o.Next != nil && o.Next.Before(from) {
		from = *o.Next
		if late := o.Now.Add(-time.Second); from.Before(late) {
			from = late
		}
	}
	return from.Add(time.Duration(released) * time.Minute / time.Duration(o.RatePerMinute))
}

// Codes for the outcomes of items.
const (
	outcomeBusy      = "busy"       // other transactions held the lock on the task in every try
	outcomeChanged   = "changed"    // the step has changed since it was planned
	outcomeRefused   = "refused"    // the state of the task or step does not allow the act
	outcomeError     = "error"      // the act failed; the server log contains the error
	outcomeGone      = "gone"       // the task or step no longer exists
	outcomeTakenOver = "taken_over" // something else acted on the step after its release
	outcomeCancelled = "cancelled"  // the task was cancelled after the release
	outcomeCompleted = "completed"  // an attempt that began after the release completed the step
	outcomeStands    = "stands"     // the step is in the state that the act set
	outcomeUndone    = "undone"     // the task is cancelled and compensated as far as possible
	outcomeNotRun    = "not_run"    // the template skipped the step after its release
	outcomeFailed    = "failed"     // the step failed permanently

	outcomeExpression = "expression_failed" // the result could not be computed

	// Reasons why a task could not be recreated.
	outcomeNoTemplate = "template_gone"   // the template no longer exists
	outcomeCycle      = "template_cycle"  // steps of the newest version depend on each other
	outcomeContext    = "context_invalid" // the newest version does not accept the context
)

// itemOutcome returns how a released item has changed, or nil if it has not.
func itemOutcome(act tasker.Act, i postgres.InFlightItem) *postgres.MovedItem {
	if i.Made {
		return replacementOutcome(act, i)
	}
	moved := postgres.MovedItem{Ordinal: i.Ordinal, State: i.State}
	to := func(state tasker.ItemState, outcome string) *postgres.MovedItem {
		moved.State, moved.Outcome = state, outcome
		return &moved
	}
	failed := i.LastFailureAt != nil && i.LastFailureAt.After(i.ReleasedAt) && !i.AwaitsWorker
	if failed && (i.FailedAt == nil || i.LastFailureAt.After(*i.FailedAt)) {
		moved.Failed, moved.Cause, moved.Text = i.LastFailureAt, failureCause(i.ItemFailure), fingerprint.Headline(i.ErrorShown, maxShown)
	}
	switch {
	case i.Task == "" || i.Step == "":
		return to(tasker.ItemSkipped, outcomeGone)
	case i.Step == tasker.StepCancelled:
		return to(tasker.ItemSkipped, outcomeCancelled)
	case act == tasker.ActResolve && i.Step == tasker.StepResolvedManually, act.TakesResult() && i.Step == tasker.StepComplete:
		return to(tasker.ItemVerified, outcomeStands)
	case act == tasker.ActReset && i.Step == tasker.StepSkipped:
		return to(tasker.ItemVerified, outcomeNotRun)
	case i.Step == tasker.StepResolvedManually, i.Step == tasker.StepSkipped, i.WrittenOff:
		return to(tasker.ItemSkipped, outcomeTakenOver)
	case i.Step == tasker.StepComplete && isProved(i):
		return to(tasker.ItemVerified, outcomeCompleted)
	case i.Step == tasker.StepComplete:
		return to(tasker.ItemSkipped, outcomeTakenOver)
	case i.Step == tasker.StepError && !i.WillRetry && !i.AwaitsWorker:
		moved.Cause, moved.Text = failureCause(i.ItemFailure), fingerprint.Headline(i.ErrorShown, maxShown)
		return to(tasker.ItemFailedAgain, outcomeFailed)
	case i.Step == tasker.StepInProgress && i.State == tasker.ItemReleased:
		return to(tasker.ItemRunning, "")
	case moved.Failed != nil:
		return &moved
	default:
		return nil
	}
}

// replacementOutcome is itemOutcome for an item that waits for a task to end: for the replacement
// of its task, or for its own task if that is being compensated.
func replacementOutcome(act tasker.Act, i postgres.InFlightItem) *postgres.MovedItem {
	moved := postgres.MovedItem{Ordinal: i.Ordinal}
	switch {
	case i.Task == "":
		moved.State, moved.Outcome = tasker.ItemSkipped, outcomeGone
	case i.Task == tasker.TaskComplete:
		moved.State, moved.Outcome = tasker.ItemVerified, outcomeCompleted
	case i.Task == tasker.TaskCancelled && act == tasker.ActCompensate && i.TaskOutcome != tasker.CompensationStopped:
		moved.State, moved.Outcome = tasker.ItemVerified, outcomeUndone
	case i.Task == tasker.TaskCancelled:
		moved.State, moved.Outcome = tasker.ItemSkipped, outcomeCancelled
	case i.WrittenOff:
		moved.State, moved.Outcome = tasker.ItemSkipped, outcomeTakenOver
	case i.StuckFor == "", i.AwaitsWorker:
		return nil
	default:
		failure := i.ItemFailure
		failure.ErrorType = cmp.Or(failure.ErrorType, i.StuckFor)
		moved.State, moved.Outcome = tasker.ItemFailedAgain, outcomeFailed
		moved.Failed, moved.Cause = i.StuckAt, failureCause(failure)
		moved.Text = cmp.Or(fingerprint.Headline(i.ErrorShown, maxShown), i.StuckFor)
	}
	return &moved
}

// isProved reports whether a step was completed by an attempt that was claimed after the release
// or, if the step is external, by an answer after the release.
func isProved(i postgres.InFlightItem) bool {
	switch {
	case i.ReportedFence == nil:
		return false
	case i.External:
		return *i.ReportedFence >= i.ReleasedFence
	default:
		return *i.ReportedFence > i.ReleasedFence
	}
}
