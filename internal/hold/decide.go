package hold

import (
	"math/rand/v2"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// Timeouts for the outcome of a released step.
const (
	claimTimeout   = time.Minute        // a step that no worker claims although workers are idle
	probeTimeout   = 15 * time.Minute   // an unclaimed probe while workers are busy or a limit has no free slot
	reportTimeout  = 15 * time.Minute   // a claimed step without heartbeats
	attemptTimeout = tasker.MaxHoldTime // a claimed step with heartbeats
)

// holdStatus contains the facts on which [nextTransition] bases its decision.
type holdStatus struct {
	Now      time.Time
	Extended *time.Time                    // when the end was last moved; set only for a wave with failures
	Outcomes []tasker.HoldRelease          // outcomes of released steps since the last pass
	Probing  bool                          // a probe has no outcome yet; this ignores the steps of a failed wave
	Wave     map[tasker.ReleaseOutcome]int // number of steps in the current wave, by outcome
}

// countFailed returns the number of failures in the wave. A step without an answer counts as a
// failure.
func (l holdStatus) countFailed() int {
	return l.Wave[tasker.ReleaseFailed] + l.Wave[tasker.ReleaseNoAnswer]
}

// transition contains the next state of a hold and the effects of entering it.
type transition struct {
	Hold    tasker.Hold
	Lines   []postgres.HoldLine
	Release *postgres.ReleaseBatch // steps to release, or nil; afterRelease applies the result
	Moved   bool
}

func (m *transition) record(event string, data map[string]any) {
	m.Moved = true
	m.Lines = append(m.Lines, postgres.HoldLine{Event: event, Actor: tasker.SystemActor, Data: data})
}

// restSize is the number of steps that are released together after the last wave.
const restSize = 500

// nextTransition decides the next state of an open hold.
func nextTransition(h tasker.Hold, l holdStatus) transition {
	m := transition{Hold: h}
	m.followProbes(l)
	switch h := &m.Hold; {
	case h.State == tasker.HoldReleasing && !h.Blocks:
		m.Release = &postgres.ReleaseBatch{Hold: h.UUID, Limit: restSize}
	case h.State == tasker.HoldReleasing:
		m.followWave(l)
	case !l.Now.Before(h.EndsAt):
		beginWaves(h, tasker.DefaultHoldWaves(), l.Now)
		m.record(tasker.HoldReleaseBegan, map[string]any{"why": "its time is over"})
	case h.NextProbeAt != nil && !l.Now.Before(*h.NextProbeAt) && !l.Probing && h.Held > 0:
		probe := 0
		m.Release = &postgres.ReleaseBatch{Hold: h.UUID, Limit: 1, Wave: &probe, Fresh: true}
	case h.WarnedAt == nil && l.Now.Sub(h.BeganAt) >= h.EndsAt.Sub(h.BeganAt)*4/5:
		h.WarnedAt = &l.Now
		m.record(tasker.HoldWarned, map[string]any{"ends_at": h.EndsAt, "held": h.Held})
	}
	return m
}

// beginWaves starts the release of a hold in waves, or of all steps at once if waves is empty.
func beginWaves(h *tasker.Hold, waves []int, now time.Time) {
	h.State, h.Waves, h.Wave, h.WaveSince, h.WaveSteps = tasker.HoldReleasing, waves, 0, &now, 0
	h.Blocks, h.NextProbeAt = len(waves) > 0, nil
}

// followProbes applies the outcomes of probes. A successful probe starts the release of a breaker,
// but not of a manual hold.
func (m *transition) followProbes(l holdStatus) {
	h := &m.Hold
	for _, r := range l.Outcomes {
		if r.Wave != 0 || h.State != tasker.HoldActive || r.Outcome == tasker.ReleaseGone {
			continue
		}
		data := map[string]any{"task_uuid": r.TaskUUID, "step_uuid": r.StepUUID}
		if r.Outcome == tasker.ReleaseSucceeded {
			m.record(tasker.HoldProbeSucceeded, data)
			h.NextProbeAt = nil
			if h.Kind == tasker.BreakerHold {
				beginWaves(h, tasker.DefaultHoldWaves(), l.Now)
				m.record(tasker.HoldReleaseBegan, map[string]any{"why": "a probe succeeded"})
			}
			continue
		}
		h.FailedProbes++
		data["outcome"] = r.Outcome
		m.record(tasker.HoldProbeFailed, data)
	}
	if h.State == tasker.HoldActive && h.Kind == tasker.BreakerHold && h.NextProbeAt == nil && !l.Probing {
		at := l.Now.Add(probeInterval(h.FailedProbes, rand.Float64()))
		h.NextProbeAt, m.Moved = &at, true
	}
}

// probeInterval returns the delay before the next probe of a breaker: 5, 10, 20, 40 and then always
// 75 seconds, reduced by up to a tenth. The argument jitter is between 0 and 1.
func probeInterval(failed int, jitter float64) time.Duration {
	interval := 75 * time.Second
	if failed < 4 {
		interval = 5 * time.Second << failed
	}
	return interval - time.Duration(jitter*0.1*float64(interval))
}

// followWave starts the next wave after a success, and repeats a wave that had no outcome at all.
// If at least a tenth of the outcomes are failures, the hold becomes active again. A breaker then
// stays active until a probe succeeds, a manual hold for a quarter of its duration but not beyond
// its end.
func (m *transition) followWave(l holdStatus) {
	h := &m.Hold
	failed := l.countFailed()
	wave := h.Wave + 1
	if gone := l.Wave[tasker.ReleaseGone]; gone > 0 && gone == h.WaveSteps {
		wave = h.Wave
	}
	switch {
	case failed > 0 && failed*10 >= h.WaveSteps-l.Wave[tasker.ReleaseGone]:
		m.failWave(l, failed)
	case h.Wave > 0 && l.Wave[""] > 0: // the wave is not finished
	case wave <= len(h.Waves):
		m.Release = &postgres.ReleaseBatch{Hold: h.UUID, Limit: h.Waves[wave-1], Wave: &wave}
	default:
		m.releaseRemaining()
	}
}

func (m *transition) releaseRemaining() {
	m.Hold.Blocks = false
	m.record(tasker.HoldRestReleased, map[string]any{"held": m.Hold.Held})
}

func (m *transition) failWave(l holdStatus, failed int) {
	h := &m.Hold
	data := map[string]any{"wave": h.Wave, "failed": failed, "steps": h.WaveSteps}
	last := h.BeganAt.Add(tasker.MaxHoldTime)
	if l.Extended != nil {
		last = l.Extended.Add(tasker.MaxHoldTime)
	}
	if h.Kind == tasker.ManualHold && !l.Now.Before(last) {
		m.record(tasker.HoldWaveFailed, data)
		m.releaseRemaining()
		return
	}
	longer := min(max(h.EndsAt.Sub(h.BeganAt)/4, time.Minute), tasker.MaxHoldTime)
	h.State, h.WaveSince, h.Wave, h.WaveSteps, h.WarnedAt = tasker.HoldActive, nil, 0, 0, nil
	end := l.Now.Add(longer)
	if h.Kind == tasker.ManualHold && end.After(last) {
		end = last
	}
	if end.After(h.EndsAt) { // otherwise a breaker past its end would be released again immediately
		h.EndsAt = end
	}
	if h.Kind == tasker.BreakerHold {
		at := l.Now.Add(probeInterval(h.FailedProbes, rand.Float64()))
		h.NextProbeAt = &at
	}
	data["ends_at"] = h.EndsAt
	m.record(tasker.HoldWaveFailed, data)
}

// toHoldRelease returns the outcome of a released step, or nil if it has none yet.
func toHoldRelease(r postgres.ReleasedStep) *tasker.HoldRelease {
	out := r.HoldRelease
	within := claimTimeout
	switch {
	case r.StepFence > r.Fence:
		within = reportTimeout
	case r.Waits && r.Wave == 0:
		within = probeTimeout
	case r.Waits:
		within = attemptTimeout
	}
	if r.Leased && r.StepFence > r.Fence {
		within = attemptTimeout
	}
	switch step := tasker.StepState(r.Step); {
	case step == tasker.StepComplete && r.ReportedFence != nil && *r.ReportedFence > r.Fence:
		out.Outcome = tasker.ReleaseSucceeded
	case r.LastFailureAt != nil && r.LastFailureAt.After(r.ReleasedAt):
		shown := fingerprint.Headline(r.Shown, maxShown)
		out.Outcome, out.Failure = tasker.ReleaseFailed, &shown
	case step == "" || step.Done() || step == tasker.StepCancelled:
		out.Outcome = tasker.ReleaseGone
	case step == tasker.StepEnqueued && (r.StepFence > r.Fence || r.Elsewhere):
		// Its worker released it without using the attempt, or another hold covers it.
		out.Outcome = tasker.ReleaseGone
	case r.Age > within:
		out.Outcome = tasker.ReleaseNoAnswer
	default:
		return nil
	}
	return &out
}
