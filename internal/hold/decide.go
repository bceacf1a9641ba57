package hold

import (
	"math/rand/v2"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// How long an answer is waited for.
const (
	claimTimeout   = time.Minute        // a step that is let go and that no worker takes, though they take no others
	probeTimeout   = 15 * time.Minute   // a probe that no worker takes, since they take others or a limit has no place for it
	reportTimeout  = 15 * time.Minute   // one that a worker took and of which nothing is heard
	attemptTimeout = tasker.MaxHoldTime // one whose worker sends heartbeats
)

// A holdStatus is what is known of a hold when it is decided what becomes of it.
type holdStatus struct {
	Now      time.Time
	Extended *time.Time                    // when somebody moved its end last; of a wave with failures only
	Judged   []tasker.HoldRelease          // what became of steps since the last look
	Probing  bool                          // the outcome of a probe is awaited; that of a wave which has failed keeps no probe back
	Wave     map[tasker.ReleaseOutcome]int // of the steps of the wave that is under way
}

// failed counts the failures of the wave. No answer is one.
func (l holdStatus) failed() int {
	return l.Wave[tasker.ReleaseFailed] + l.Wave[tasker.ReleaseNoAnswer]
}

// A transition is what becomes of a hold.
type transition struct {
	Hold  tasker.Hold
	Lines []postgres.HoldLine
	LetGo *postgres.ReleaseBatch // steps to let go; what comes of it is for whoever does it
	Moved bool
}

func (m *transition) say(event string, data map[string]any) {
	m.Moved = true
	m.Lines = append(m.Lines, postgres.HoldLine{Event: event, Actor: tasker.SystemActor, Data: data})
}

// restSize is how many steps are let go at once after the last wave.
const restSize = 500

// next decides what becomes of a hold that is open.
func next(h tasker.Hold, l holdStatus) transition {
	m := transition{Hold: h}
	m.followProbes(l)
	switch h := &m.Hold; {
	case h.State == tasker.HoldReleasing && !h.Blocks:
		m.LetGo = &postgres.ReleaseBatch{Hold: h.UUID, Limit: restSize}
	case h.State == tasker.HoldReleasing:
		m.followWave(l)
	case !l.Now.Before(h.EndsAt):
		begin(h, tasker.DefaultHoldWaves(), l.Now)
		m.say(tasker.HoldReleaseBegan, map[string]any{"why": "its time is over"})
	case h.NextProbeAt != nil && !l.Now.Before(*h.NextProbeAt) && !l.Probing && h.Held > 0:
		probe := 0
		m.LetGo = &postgres.ReleaseBatch{Hold: h.UUID, Limit: 1, Wave: &probe, Fresh: true}
	case h.WarnedAt == nil && l.Now.Sub(h.BeganAt) >= h.EndsAt.Sub(h.BeganAt)*4/5:
		h.WarnedAt = &l.Now
		m.say(tasker.HoldWarned, map[string]any{"ends_at": h.EndsAt, "held": h.Held})
	}
	return m
}

// begin has a hold let its steps go in waves; without waves all at once.
func begin(h *tasker.Hold, waves []int, now time.Time) {
	h.State, h.Waves, h.Wave, h.WaveSince, h.WaveSteps = tasker.HoldReleasing, waves, 0, &now, 0
	h.Blocks, h.NextProbeAt = len(waves) > 0, nil
}

// followProbes applies probe outcomes: a success ends a breaker, not a hold of a person.
func (m *transition) followProbes(l holdStatus) {
	h := &m.Hold
	for _, r := range l.Judged {
		if r.Wave != 0 || h.State != tasker.HoldActive || r.Outcome == tasker.ReleaseGone {
			continue
		}
		data := map[string]any{"task_uuid": r.TaskUUID, "step_uuid": r.StepUUID}
		if r.Outcome == tasker.ReleaseSucceeded {
			m.say(tasker.HoldProbeSucceeded, data)
			h.NextProbeAt = nil
			if h.Kind == tasker.BreakerHold {
				begin(h, tasker.DefaultHoldWaves(), l.Now)
				m.say(tasker.HoldReleaseBegan, map[string]any{"why": "a probe succeeded"})
			}
			continue
		}
		h.FailedProbes++
		data["outcome"] = r.Outcome
		m.say(tasker.HoldProbeFailed, data)
	}
	if h.State == tasker.HoldActive && h.Kind == tasker.BreakerHold && h.NextProbeAt == nil && !l.Probing {
		at := l.Now.Add(probeInterval(h.FailedProbes, rand.Float64()))
		h.NextProbeAt, m.Moved = &at, true
	}
}

// probeInterval is how long a breaker rests before the next probe: 5, 10, 20, 40 and then 75
// seconds, less up to a tenth.
func probeInterval(failed int, jitter float64) time.Duration {
	rest := 75 * time.Second
	if failed < 4 {
		rest = 5 * time.Second << failed
	}
	return rest - time.Duration(jitter*0.1*float64(rest))
}

// followWave begins the next wave after a success, or the same one again if it had no outcome. If
// a tenth or more fail, the hold is active again: a breaker until a probe succeeds, another one
// for a quarter of its time, within its end.
func (m *transition) followWave(l holdStatus) {
	h := &m.Hold
	failed := l.failed()
	wave := h.Wave + 1
	if gone := l.Wave[tasker.ReleaseGone]; gone > 0 && gone == h.WaveSteps {
		wave = h.Wave
	}
	switch {
	case failed > 0 && failed*10 >= h.WaveSteps-l.Wave[tasker.ReleaseGone]:
		m.failWave(l, failed)
	case h.Wave > 0 && l.Wave[""] > 0: // the wave is under way
	case wave <= len(h.Waves):
		m.LetGo = &postgres.ReleaseBatch{Hold: h.UUID, Limit: h.Waves[wave-1], Wave: &wave}
	default:
		m.releaseRemaining()
	}
}

func (m *transition) releaseRemaining() {
	m.Hold.Blocks = false
	m.say(tasker.HoldRestReleased, map[string]any{"held": m.Hold.Held})
}

func (m *transition) failWave(l holdStatus, failed int) {
	h := &m.Hold
	data := map[string]any{"wave": h.Wave, "failed": failed, "steps": h.WaveSteps}
	last := h.BeganAt.Add(tasker.MaxHoldTime)
	if l.Extended != nil {
		last = l.Extended.Add(tasker.MaxHoldTime)
	}
	if h.Kind == tasker.ManualHold && !l.Now.Before(last) {
		m.say(tasker.HoldWaveFailed, data)
		m.releaseRemaining()
		return
	}
	longer := min(max(h.EndsAt.Sub(h.BeganAt)/4, time.Minute), tasker.MaxHoldTime)
	h.State, h.WaveSince, h.Wave, h.WaveSteps, h.WarnedAt = tasker.HoldActive, nil, 0, 0, nil
	end := l.Now.Add(longer)
	if h.Kind == tasker.ManualHold {
		end = earlier(end, last)
	}
	if end.After(h.EndsAt) { // also of a breaker: past its end it would be released again at once
		h.EndsAt = end
	}
	if h.Kind == tasker.BreakerHold {
		at := l.Now.Add(probeInterval(h.FailedProbes, rand.Float64()))
		h.NextProbeAt = &at
	}
	data["ends_at"] = h.EndsAt
	m.say(tasker.HoldWaveFailed, data)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// outcomeOf judges a step that a hold let go; nil while its outcome is awaited.
func outcomeOf(r postgres.ReleasedStep) *tasker.HoldRelease {
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
	case step == tasker.StepEnqueued && (r.StepFence > r.Fence || r.Elsewhere): // given back without an attempt, or held by another hold
		out.Outcome = tasker.ReleaseGone
	case r.Age > within:
		out.Outcome = tasker.ReleaseNoAnswer
	default:
		return nil
	}
	return &out
}
