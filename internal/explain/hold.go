package explain

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// findHold returns the hold of the step without the parts that the caller may not see.
func (v view) findHold() tasker.Hold {
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

func (v view) describeHeld() explanation {
	h := v.findHold()
	text := "is held " + formatHoldPeriod(h)
	if n := v.step.HoldOthers; n != nil && *n > 0 {
		text += fmt.Sprintf("; %s held with it", formatAreUpTo(*n, "other step"))
	}
	if h.NextProbeAt != nil && h.State == tasker.HoldActive {
		text += "; the next probe is at " + formatTime(*h.NextProbeAt)
	}
	if v.task.ReleaseFailures > 0 {
		text += "; to let it go " + describeRetries(v.task.ReleaseFailures, v.task.ReleaseRetryAt)
	}
	return explanation{Condition: tasker.Condition{Message: text, Since: &h.BeganAt, NextActor: holdCondition(h, v.now).NextActor, Remedy: holdCondition(h, v.now).Remedy}}
}

// formatHoldPeriod describes a hold: its owner, when it began, when it ends and why.
func formatHoldPeriod(h tasker.Hold) string {
	who := "by " + h.Owner
	if h.Kind == tasker.BreakerHold {
		who = "by a breaker"
	}
	text := fmt.Sprintf("%s since %s", who, formatTime(h.BeganAt))
	switch {
	case h.State == tasker.HoldReleasing && h.Blocks:
		text += fmt.Sprintf(", and being released: wave %d of %d", h.Wave, len(h.Waves)+1)
	case h.State == tasker.HoldReleasing:
		text += ", and being released: the rest"
	case h.Kind == tasker.BreakerHold:
		text += " until a probe succeeds"
	default:
		text += " until " + formatTime(h.EndsAt)
	}
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	return text
}

// holdCondition returns the condition of steps that are parked by a hold.
func holdCondition(h tasker.Hold, now time.Time) tasker.Condition {
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

// formatAreUpTo is like are for a number for which counting stops at [tasker.MaxExplainedQueue].
func formatAreUpTo(n int64, thing string) string {
	if n == 1 {
		return formatAre(n, thing)
	}
	return formatUpTo(n, thing) + " are"
}

func (s *Service) explainHold(ctx context.Context, e *tasker.Explanation) error {
	d, err := s.db.Hold(ctx, e.ID.ID)
	if err != nil {
		return err
	}
	h := d.Hold
	e.Name = h.String()
	e.Facts = []tasker.ExplainedFact{
		{Name: "scope", Value: e.Name}, {Name: "owner", Value: h.Owner}, {Name: "held", Value: formatUpTo(h.Held, "step")},
		{Name: "let go", Value: formatCount(h.Released, "step")}, {Name: "probes", Value: fmt.Sprintf("%d, of which %d failed", h.Probes, h.FailedProbes)},
	}
	if h.EndedAt != nil {
		e.Condition = tasker.Condition{Reason: tasker.ConditionEnded, Since: h.EndedAt, NextActor: tasker.NextNone,
			Message: fmt.Sprintf("The hold ended at %s; it let %s go.", formatTime(*h.EndedAt), formatCount(h.Released, "step"))}
		return nil
	}
	e.Condition = holdCondition(h, e.AsOf)
	e.Message = fmt.Sprintf("%s held %s.", formatAreUpTo(h.Held, "step"), formatHoldPeriod(h))
	if h.NextProbeAt != nil {
		e.Facts = append(e.Facts, tasker.ExplainedFact{Name: "next probe", Value: formatTime(*h.NextProbeAt)})
	}
	return nil
}

func formatLimit(l postgres.LimitOfStep) string {
	return tasker.LimitRef{Kind: tasker.LimitKind(l.LimitKind), Namespace: l.LimitNamespace, Name: l.LimitName}.String()
}

// formatSlots describes the used slots of the limit that the step waits for. It shows the key only
// to callers that may read payloads. It does not show the slots of the server limit, because they
// reveal other namespaces.
func (v view) formatSlots() string {
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

// slotRemedy returns the next actor and the remedy for a step that waits for a slot.
func slotRemedy() (tasker.NextActor, string) {
	return tasker.NextWorker, "A step that has a place ends; or the limit is raised: tasker-ctl limit set."
}

// rateRemedy returns the next actor and the remedy for a step that waits for a rate limit.
func rateRemedy() (tasker.NextActor, string) {
	return tasker.NextTimer, "It begins as the rate of the limit allows; or the limit is raised: tasker-ctl limit set."
}

func (v view) describeLimited() explanation {
	l := v.step.LimitOfStep
	w := tasker.Condition{Message: fmt.Sprintf("waits for limit %s (%s)", formatLimit(l), v.formatSlots()),
		Since: l.LimitSince}
	if l.LimitWeight > 1 {
		w.Message += fmt.Sprintf(", of which it takes %d", l.LimitWeight)
	}
	switch free := l.LimitMax == 0 || l.LimitTaken+int64(min(l.LimitWeight, l.LimitMax)) <= int64(l.LimitMax); {
	case !free:
		w.NextActor, w.Remedy = slotRemedy()
	case l.LimitRate > 0:
		w.NextActor, w.Remedy = rateRemedy()
	default:
		w.NextActor, w.Remedy = tasker.NextWorker, "A worker with a free place takes it."
	}
	if l.LimitHolderSince != nil {
		w.Message += fmt.Sprintf("; step %s of task %s has a place since %s", l.LimitHolderStep, l.LimitHolder, formatTime(*l.LimitHolderSince))
	}
	return explanation{Condition: w}
}
