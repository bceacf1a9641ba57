package explain

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// hold returns the hold of the step without the parts that the caller may not see.
func (v view) hold() tasker.Hold {
	s := v.step
	h := tasker.Hold{
		UUID: *s.HoldUUID, Kind: tasker.HoldKind(s.HoldKind), State: tasker.HoldState(s.HoldState), Blocks: s.HoldBlocks, Owner: s.HoldOwner, Reason: s.HoldReason,
		BeganAt: *s.HoldBegan, EndsAt: *s.HoldEnds, NextProbeAt: s.HoldProbe, Wave: s.HoldWave, Waves: make([]int, s.HoldWaves),
	}
	if h.Kind == tasker.BreakerHold && !v.shows.payloads { // it quotes an error
		h.Reason = ""
	}
	return h
}

func (v view) describeHeld() answer {
	h := v.hold()
	text := "is held " + sinceUntil(h)
	if n := v.step.HoldOthers; n != nil && *n > 0 {
		text += fmt.Sprintf("; %s held with it", areUpTo(*n, "other step"))
	}
	if h.NextProbeAt != nil && h.State == tasker.HoldActive {
		text += "; the next probe is at " + at(*h.NextProbeAt)
	}
	if v.task.ReleaseFailures > 0 {
		text += "; to let it go " + triedAgain(v.task.ReleaseFailures, v.task.ReleaseRetryAt)
	}
	return answer{Condition: tasker.Condition{Message: text, Since: &h.BeganAt, NextActor: ofHeld(h, v.now).NextActor, Remedy: ofHeld(h, v.now).Remedy}}
}

// sinceUntil describes a hold: its owner, when it began, when it ends and why.
func sinceUntil(h tasker.Hold) string {
	who := "by " + h.Owner
	if h.Kind == tasker.BreakerHold {
		who = "by a breaker"
	}
	text := fmt.Sprintf("%s since %s", who, at(h.BeganAt))
	switch {
	case h.State == tasker.HoldReleasing && h.Blocks:
		text += fmt.Sprintf(", and being released: wave %d of %d", h.Wave, len(h.Waves)+1)
	case h.State == tasker.HoldReleasing:
		text += ", and being released: the rest"
	case h.Kind == tasker.BreakerHold:
		text += " until a probe succeeds"
	default:
		text += " until " + at(h.EndsAt)
	}
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	return text
}

// ofHeld returns the condition of steps that are parked by a hold.
func ofHeld(h tasker.Hold, now time.Time) tasker.Condition {
	w := tasker.Condition{Reason: tasker.ConditionHeld, Since: &h.BeganAt, NextActor: tasker.NextOperator,
		Remedy: fmt.Sprintf("%s releases it: tasker-ctl hold release %s; at its end it is released by itself.", h.Owner, h.UUID)}
	switch {
	case h.State == tasker.HoldReleasing:
		w.NextActor, w.Remedy = tasker.NextServer, "It is released as soon as the steps before it have succeeded."
	case h.Kind == tasker.BreakerHold:
		w.NextActor, w.Remedy = tasker.NextTimer, fmt.Sprintf("A probe succeeds; or an operator releases it: tasker-ctl hold release %s.", h.UUID)
	case now.Sub(h.EndsAt) > late:
		w.NextActor, w.Remedy = tasker.NextServer, "A server must release it: tasker-ctl health shows which loop is late."
	}
	return w
}

// areUpTo is like are for a number for which counting stops at [tasker.MaxExplainedQueue].
func areUpTo(n int64, thing string) string {
	if n == 1 {
		return are(n, thing)
	}
	return upTo(n, thing) + " are"
}

func (s *Service) holdOf(ctx context.Context, e *tasker.Explanation) error {
	d, err := s.db.Hold(ctx, e.ID)
	if err != nil {
		return err
	}
	h := d.Hold
	e.Name = h.String()
	e.Facts = []tasker.ExplainedFact{
		{Name: "scope", Value: e.Name}, {Name: "owner", Value: h.Owner}, {Name: "held", Value: upTo(h.Held, "step")},
		{Name: "let go", Value: counted(h.Released, "step")}, {Name: "probes", Value: fmt.Sprintf("%d, of which %d failed", h.Probes, h.FailedProbes)},
	}
	if h.EndedAt != nil {
		e.Condition = tasker.Condition{Reason: tasker.ConditionEnded, Since: h.EndedAt, NextActor: tasker.NextNone,
			Message: fmt.Sprintf("The hold ended at %s; it let %s go.", at(*h.EndedAt), counted(h.Released, "step"))}
		return nil
	}
	e.Condition = ofHeld(h, e.AsOf)
	e.Message = fmt.Sprintf("%s held %s.", areUpTo(h.Held, "step"), sinceUntil(h))
	if h.NextProbeAt != nil {
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "next probe", Value: at(*h.NextProbeAt)})
	}
	return nil
}

func limitOf(l postgres.LimitOfStep) string {
	return tasker.LimitRef{Kind: tasker.LimitKind(l.LimitKind), Namespace: l.LimitNamespace, Name: l.LimitName}.String()
}

// placesOf describes the used slots of the limit that the step waits for. It shows the key only to
// callers that may read payloads. It does not show the slots of the server limit, because they
// reveal other namespaces.
func (v view) placesOf() string {
	l := v.step.LimitOfStep
	if l.LimitKind == string(tasker.ServerLimit) {
		return "of all steps"
	}
	text := fmt.Sprintf("%d in progress", l.LimitTaken)
	if l.LimitMax > 0 {
		text = fmt.Sprintf("%d of %d in progress", l.LimitTaken, l.LimitMax)
	}
	if l.LimitRate > 0 {
		text += fmt.Sprintf(", %g a second", l.LimitRate)
	}
	if l.LimitKey != "" && v.shows.payloads {
		text = fmt.Sprintf("key %q: ", l.LimitKey) + text
	}
	return text
}

// forPlace returns the next actor and the remedy for a step that waits for a slot.
func forPlace() (tasker.NextActor, string) {
	return tasker.NextWorker, "A step that has a place ends; or the limit is raised: tasker-ctl limit set."
}

// forRate returns the next actor and the remedy for a step that waits for a rate limit.
func forRate() (tasker.NextActor, string) {
	return tasker.NextTimer, "It begins as the rate of the limit allows; or the limit is raised: tasker-ctl limit set."
}

func (v view) describeLimited() answer {
	l := v.step.LimitOfStep
	w := tasker.Condition{Message: fmt.Sprintf("waits for limit %s (%s)", limitOf(l), v.placesOf()), Since: l.LimitSince}
	if l.LimitWeight > 1 {
		w.Message += fmt.Sprintf(", of which it takes %d", l.LimitWeight)
	}
	switch free := l.LimitMax == 0 || l.LimitTaken+int64(min(l.LimitWeight, l.LimitMax)) <= int64(l.LimitMax); {
	case !free:
		w.NextActor, w.Remedy = forPlace()
	case l.LimitRate > 0:
		w.NextActor, w.Remedy = forRate()
	default:
		w.NextActor, w.Remedy = tasker.NextWorker, "A worker with a free place takes it."
	}
	if l.LimitHolderSince != nil {
		w.Message += fmt.Sprintf("; step %s of task %s has a place since %s", l.LimitHolderStep, l.LimitHolder, at(*l.LimitHolderSince))
	}
	return answer{Condition: w}
}
