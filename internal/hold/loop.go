package hold

import (
	"context"
	"errors"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
)

// How often servers look at holds: while one is open, and else.
const (
	activeRest = 250 * time.Millisecond
	idleRest   = 2 * time.Second
	breakRest  = time.Second
	passLimit  = 10 * time.Second
	turnTime   = 3 * time.Second     // in which a pass goes on with one hold
	keepFor    = 90 * 24 * time.Hour // holds that have ended
)

// Loops returns the background loops. Any number of processes may run them.
func (s *Service) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "go on with holds", Interval: idleRest, Timeout: passLimit, Wake: s.wake, Pass: s.AdvanceHolds, Log: s.log},
		{Name: "put held steps aside", Interval: idleRest, Timeout: passLimit, Wake: s.aside, Pass: s.ParkSteps, Log: s.log},
		{Name: "count for breakers", Interval: breakRest, Timeout: passLimit, Log: s.log, Pass: s.Break},
		{Name: "tidy up holds", Interval: time.Minute, Timeout: passLimit, Optional: true, Log: s.log, Pass: s.Tidy},
	}
}

// Tidy removes holds that ended long ago and what is known of steps that are held no more, and lets steps go that a hold which has ended left
// behind.
func (s *Service) Tidy(ctx context.Context) (time.Duration, error) {
	if err := s.db.PruneHolds(ctx, keepFor, 100); err != nil {
		return 0, err
	}
	if err := s.db.PruneReleaseFailures(ctx, restSize); err != nil {
		return 0, err
	}
	lost, err := s.db.OrphanedHold(ctx)
	if err != nil || lost == nil {
		return 0, err
	}
	s.log.ErrorContext(ctx, "steps of a hold that has ended were still put aside; they are let go", "hold", *lost)
	var gone postgres.Released
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		gone, err = tx.ReleaseHeldSteps(ctx, postgres.ReleaseBatch{Hold: *lost, Limit: restSize})
		return err
	})
	if err != nil || gone.Scanned == 0 { // others hold the tasks at the moment
		return 0, err
	}
	return loop.AtOnce, nil
}

// AdvanceHolds goes on with every hold that no other server works on. Each has a time of its own, and
// where those were too long for one pass, the next one begins behind the hold at which it ended.
func (s *Service) AdvanceHolds(ctx context.Context) (time.Duration, error) {
	open, err := s.db.OpenHolds(ctx)
	if err != nil {
		return 0, err
	}
	s.counter.hold(open)
	if len(open) == 0 {
		return 0, nil
	}
	first := 1 + slices.IndexFunc(open, func(h tasker.Hold) bool { return h.UUID == s.judged })
	more := false
	for i := range open {
		if ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		h := open[(first+i)%len(open)]
		s.judged = h.UUID
		again, failed := s.goOnInTime(ctx, h.UUID, nil)
		if failed != nil && ctx.Err() == nil && !postgres.IsUnavailable(failed) {
			again, failed = s.goOnSingly(ctx, h, failed)
		}
		more, err = more || again, errors.Join(err, failed) // one that fails holds up no other
	}
	return s.rest(ctx, more, err)
}

// rest is what a pass returns. While there is more to do at once, holds of which something has failed keep the others
// waiting no longer: a pass that fails is followed by a rest of seconds.
func (s *Service) rest(ctx context.Context, more bool, failed error) (time.Duration, error) {
	if !more {
		return activeRest, failed
	}
	if failed != nil {
		s.log.ErrorContext(ctx, "servers cannot go on with some holds; the others go on", "err", failed)
	}
	return loop.AtOnce, nil
}

// goOnInTime is goOn within the time that one hold has.
func (s *Service) goOnInTime(ctx context.Context, id tasker.ID, only *tasker.ID) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.turn)
	defer cancel()
	return s.goOn(ctx, id, only)
}

// goOnSingly continues a hold one task at a time after a failure, and sets failing ones aside.
func (s *Service) goOnSingly(ctx context.Context, h tasker.Hold, failed error) (more bool, err error) {
	begun := time.Now()
	listed, cancel := context.WithTimeout(ctx, s.turn)
	tasks, err := s.db.HeldTasks(listed, postgres.ReleaseBatch{Hold: h.UUID, Limit: restSize})
	cancel()
	if err != nil || len(tasks) == 0 {
		return false, errors.Join(failed, err)
	}
	for _, task := range tasks {
		more, err := s.goOnInTime(ctx, h.UUID, &task)
		if err == nil || ctx.Err() != nil || postgres.IsUnavailable(err) {
			return more, err
		}
		s.log.ErrorContext(ctx, "a held step could not be let go; it is tried again", "hold", h.UUID, "task_uuid", task, "err", err)
		deferred, failed := s.db.DeferWork(ctx, postgres.ReleaseHeld, []postgres.Failed{{StepRef: tasker.StepRef{TaskUUID: task}, Err: err}})
		if failed != nil {
			return false, failed
		}
		if err := s.db.InvestigateDeferred(ctx, deferred[0], err); err != nil {
			s.log.ErrorContext(ctx, "no investigation could be opened for a held step that cannot be released", "task_uuid", task, "err", err)
		}
		if time.Since(begun) > s.turn {
			break // the others have their turn
		}
	}
	return true, nil
}

// goOn continues one hold, for one task if only is set, and reports whether there is more.
func (s *Service) goOn(ctx context.Context, id tasker.ID, only *tasker.ID) (more bool, err error) {
	var namespace string
	var released postgres.Released
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		more, released = false, postgres.Released{}
		h, now, err := tx.TryLockHold(ctx, id)
		if err != nil || h == nil {
			return err
		}
		namespace = h.Namespace
		l, err := s.look(ctx, tx, h, now)
		if err != nil {
			return err
		}
		m := next(*h, l)
		if m.LetGo != nil {
			m.LetGo.Only = only
			if released, err = tx.ReleaseHeldSteps(ctx, *m.LetGo); err != nil {
				return err
			}
			m.Hold.Held -= int64(released.HandedOver)
			if m.LetGo.Fresh && released.Scanned == 0 { // each has been a probe
				m.LetGo.Fresh = false
				if released, err = tx.ReleaseHeldSteps(ctx, *m.LetGo); err != nil {
					return err
				}
				m.Hold.Held -= int64(released.HandedOver)
			}
			m.afterRelease(released, now)
			more = released.Released > 0 && !m.Hold.Blocks
		}
		if !m.Moved {
			return nil
		}
		return tx.MoveHold(ctx, m.Hold, m.Lines...)
	})
	if err != nil {
		return false, err
	}
	if released.Released > 0 {
		s.engine.Enqueued([]string{namespace})
	}
	return more, nil
}

// look judges the steps that the hold let go, and counts its wave.
func (s *Service) look(ctx context.Context, tx *postgres.Tx, h *tasker.Hold, now time.Time) (holdStatus, error) {
	l := holdStatus{Now: now}
	if h.InFlight > 0 {
		steps, err := tx.ReleasedSteps(ctx, h.UUID, claimTimeout)
		if err != nil {
			return l, err
		}
		for _, r := range steps {
			out := outcomeOf(r)
			if out != nil {
				l.Judged = append(l.Judged, *out)
			}
			l.Probing = l.Probing || out == nil && r.Wave == 0
		}
		if len(l.Judged) > 0 {
			if err := tx.RecordReleaseOutcomes(ctx, h.UUID, l.Judged); err != nil {
				return l, err
			}
			h.InFlight -= int64(len(l.Judged))
		}
	}
	if h.State == tasker.HoldReleasing && h.Blocks && h.Wave > 0 {
		var err error
		if l.Wave, err = tx.WaveOutcomes(ctx, h.UUID, h.Wave, *h.WaveSince); err != nil {
			return l, err
		}
		if l.failed() > 0 {
			if l.Extended, err = tx.HoldExtendedAt(ctx, h.UUID); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// afterRelease notes what was let go. The hold has ended when nothing is left of the rest.
func (m *transition) afterRelease(r postgres.Released, now time.Time) {
	h := &m.Hold
	h.Released += int64(r.Released)
	switch {
	case r.Scanned > 0 && m.LetGo.Wave == nil:
		m.Moved = true
	case m.LetGo.Wave == nil && h.Held == 0:
		h.State = tasker.HoldEnded
		m.say(tasker.HoldHasEnded, map[string]any{"released": h.Released})
	case r.Released == 0 && m.LetGo.Wave != nil && *m.LetGo.Wave > 0 && h.Held == 0:
		m.releaseRemaining()
	case r.Released == 0: // others hold the tasks at the moment
	case *m.LetGo.Wave == 0:
		h.Probes, h.NextProbeAt = h.Probes+1, nil
		h.InFlight++
		m.say(tasker.HoldProbed, map[string]any{"task_uuid": r.Tasks[0]})
	default:
		h.Wave, h.WaveSince, h.WaveSteps = *m.LetGo.Wave, &now, r.Released
		m.say(tasker.HoldWaveBegan, map[string]any{"wave": h.Wave, "steps": r.Released})
	}
}

// How much is put aside at once, and for how long in one pass.
const (
	asideSteps = 1000
	asidePages = 64
	asideTime  = 5 * time.Second
)

// ParkSteps parks held steps, which claims skip anyway.
func (s *Service) ParkSteps(ctx context.Context) (time.Duration, error) {
	open, err := s.db.OpenHolds(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	begun := time.Now()
	byStep := false
	var whole []tasker.Hold // of queues
	for _, h := range open {
		switch {
		case !h.Blocks:
		case h.TaskName != "" || h.StepName != "":
			byStep = true
		default:
			whole = append(whole, h)
		}
	}
	if byStep {
		if err := s.putPagesAside(ctx, begun); err != nil {
			return 0, err
		}
	}
	more, err := s.putQueuesAside(ctx, whole, begun)
	return s.rest(ctx, more, err)
}

// putQueuesAside puts the steps of holds of whole queues aside, in turns: one that has very many
// holds up no other. It reports whether there may be more.
func (s *Service) putQueuesAside(ctx context.Context, holds []tasker.Hold, begun time.Time) (more bool, err error) {
	for len(holds) > 0 && time.Since(begun) < asideTime {
		var left []tasker.Hold
		for _, h := range holds {
			n, failed := s.db.ParkQueue(ctx, h, asideSteps)
			err = errors.Join(err, failed)
			if failed == nil && n == asideSteps {
				left = append(left, h)
			}
		}
		holds = left
	}
	return len(holds) > 0, err
}

// pagesTime is for how long pages of the queue are looked at in one pass.
const pagesTime = 100 * time.Millisecond

// putPagesAside looks through the queue, page by page, and begins anew at its end.
func (s *Service) putPagesAside(ctx context.Context, begun time.Time) error {
	for time.Since(begun) < pagesTime {
		pages, err := s.db.ParkPages(ctx, s.page, s.page+asidePages)
		if err != nil {
			return err
		}
		if s.page += asidePages; s.page >= pages {
			s.page = 0
			return nil
		}
	}
	return nil
}
