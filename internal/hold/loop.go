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

const (
	activeInterval  = 250 * time.Millisecond // while a hold is open
	idleInterval    = 2 * time.Second
	breakerInterval = time.Second
	passLimit       = 10 * time.Second
	turnTime        = 3 * time.Second     // maximum time spent on one hold in a pass
	keepFor         = 90 * 24 * time.Hour // retention of ended holds
)

// Loops returns the background loops. Any number of processes may run them.
func (s *Service) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "go on with holds", Interval: idleInterval, Timeout: passLimit, Wake: s.wake, Pass: s.AdvanceHolds, Log: s.log},
		{Name: "put held steps aside", Interval: idleInterval, Timeout: passLimit, Wake: s.park, Pass: s.ParkSteps, Log: s.log},
		{Name: "count for breakers", Interval: breakerInterval, Timeout: passLimit, Log: s.log, Pass: s.OpenBreakers},
		{Name: "tidy up holds", Interval: time.Minute, Timeout: passLimit, Optional: true, Log: s.log, Pass: s.Prune},
	}
}

// Prune removes holds that ended long ago and outdated records of released steps. It also releases
// steps that are still parked by an ended hold.
func (s *Service) Prune(ctx context.Context) (time.Duration, error) {
	if err := s.db.PruneHolds(ctx, keepFor, 100); err != nil {
		return 0, err
	}
	if err := s.db.PruneReleaseFailures(ctx, restSize); err != nil {
		return 0, err
	}
	lost, err := s.db.FindOrphanedHold(ctx)
	if err != nil || lost == nil {
		return 0, err
	}
	s.log.ErrorContext(ctx, "could not release steps of an ended hold", "hold", *lost)
	var gone postgres.Released
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		gone, err = tx.ReleaseHeldSteps(ctx, postgres.ReleaseBatch{Hold: *lost, Limit: restSize})
		return err
	})
	if err != nil || gone.Scanned == 0 { // their tasks are locked
		return 0, err
	}
	return loop.AtOnce, nil
}

// AdvanceHolds advances every hold that no other server has locked. Each hold gets a limited time.
// If a pass ends early, the next pass starts with the following hold.
func (s *Service) AdvanceHolds(ctx context.Context) (time.Duration, error) {
	open, err := s.db.OpenHolds(ctx)
	if err != nil {
		return 0, err
	}
	s.counter.skipHeld(open)
	if len(open) == 0 {
		return 0, nil
	}
	first := 1 + slices.IndexFunc(open, func(h tasker.Hold) bool { return h.UUID == s.lastHold })
	more := false
	for i := range open {
		if ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		h := open[(first+i)%len(open)]
		s.lastHold = h.UUID
		again, failed := s.advanceInTime(ctx, h.UUID, nil)
		if failed != nil && ctx.Err() == nil && !postgres.IsUnavailable(failed) {
			again, failed = s.advanceTasks(ctx, h, failed)
		}
		more, err = more || again, errors.Join(err, failed) // a failure must not delay other holds
	}
	return s.passResult(ctx, more, err)
}

// passResult returns the result of a pass. If there is more to do at once, it only logs the error,
// since a failed pass would delay the other holds by seconds.
func (s *Service) passResult(ctx context.Context, more bool, failed error) (time.Duration, error) {
	if !more {
		return activeInterval, failed
	}
	if failed != nil {
		s.log.ErrorContext(ctx, "could not advance some holds", "err", failed)
	}
	return loop.AtOnce, nil
}

// advanceInTime is advance with a time limit for one hold.
func (s *Service) advanceInTime(ctx context.Context, id tasker.ID, only *tasker.ID) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.turn)
	defer cancel()
	return s.advance(ctx, id, only)
}

// advanceTasks advances a hold one task at a time after a failure. It defers tasks that fail.
func (s *Service) advanceTasks(ctx context.Context, h tasker.Hold, failed error) (more bool, err error) {
	begun := time.Now()
	listed, cancel := context.WithTimeout(ctx, s.turn)
	tasks, err := s.db.HeldTasks(listed, postgres.ReleaseBatch{Hold: h.UUID, Limit: restSize})
	cancel()
	if err != nil || len(tasks) == 0 {
		return false, errors.Join(failed, err)
	}
	for _, task := range tasks {
		more, err := s.advanceInTime(ctx, h.UUID, &task)
		if err == nil || ctx.Err() != nil || postgres.IsUnavailable(err) {
			return more, err
		}
		s.log.ErrorContext(ctx,
			"could not release a held step; retrying later", "hold", h.UUID, "task_uuid", task, "err", err)
		deferred, failed := s.db.DeferWork(ctx, postgres.ReleaseHeld, []postgres.Failed{{StepRef: tasker.StepRef{TaskUUID: task}, Err: err}})
		if failed != nil {
			return false, failed
		}
		if err := s.db.InvestigateDeferred(ctx, deferred[0], err); err != nil {
			s.log.ErrorContext(ctx,
				"could not open an investigation of a held step that cannot be released", "task_uuid", task, "err", err)
		}
		if time.Since(begun) > s.turn {
			break // continue with the other holds
		}
	}
	return true, nil
}

// advance advances one hold, but only for one task if only is set. It reports whether there is more
// to do at once.
func (s *Service) advance(ctx context.Context, id tasker.ID, only *tasker.ID) (more bool, err error) {
	var namespace string
	var released postgres.Released
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		more, released = false, postgres.Released{}
		h, now, err := tx.TryLockHold(ctx, id)
		if err != nil || h == nil {
			return err
		}
		namespace = h.Namespace
		l, err := s.readStatus(ctx, tx, h, now)
		if err != nil {
			return err
		}
		m := nextTransition(*h, l)
		if m.Release != nil {
			m.Release.Only = only
			released, err = tx.ReleaseHeldSteps(ctx, *m.Release)
			handedOver := released.HandedOver
			if err == nil && m.Release.Fresh && released.Scanned == 0 { // every step has already been a probe
				m.Release.Fresh = false
				released, err = tx.ReleaseHeldSteps(ctx, *m.Release)
				handedOver += released.HandedOver
			}
			if err != nil {
				return err
			}
			m.Hold.Held -= int64(handedOver)
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

// readStatus records the outcomes of released steps and returns the facts for the next decision.
func (s *Service) readStatus(ctx context.Context, tx *postgres.Tx, h *tasker.Hold, now time.Time) (holdStatus, error) {
	l := holdStatus{Now: now}
	if h.InFlight > 0 {
		steps, err := tx.ReleasedSteps(ctx, h.UUID, claimTimeout)
		if err != nil {
			return l, err
		}
		for _, r := range steps {
			out := toHoldRelease(r)
			if out != nil {
				l.Outcomes = append(l.Outcomes, *out)
			}
			l.Probing = l.Probing || out == nil && r.Wave == 0
		}
		if len(l.Outcomes) > 0 {
			if err := tx.RecordReleaseOutcomes(ctx, h.UUID, l.Outcomes); err != nil {
				return l, err
			}
			h.InFlight -= int64(len(l.Outcomes))
		}
	}
	if h.State == tasker.HoldReleasing && h.Blocks && h.Wave > 0 {
		var err error
		if l.Wave, err = tx.WaveOutcomes(ctx, h.UUID, h.Wave, *h.WaveSince); err != nil {
			return l, err
		}
		if l.countFailed() > 0 {
			if l.Extended, err = tx.HoldExtendedAt(ctx, h.UUID); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// afterRelease applies the result of a release. The hold ends when the last wave is over and no
// held steps remain.
func (m *transition) afterRelease(r postgres.Released, now time.Time) {
	h := &m.Hold
	h.Released += int64(r.Released)
	switch {
	case r.Scanned > 0 && m.Release.Wave == nil:
		m.Moved = true
	case m.Release.Wave == nil && h.Held == 0:
		h.State = tasker.HoldEnded
		m.record(tasker.HoldHasEnded, map[string]any{"released": h.Released})
	case r.Released == 0 && m.Release.Wave != nil && *m.Release.Wave > 0 && h.Held == 0:
		m.releaseRemaining()
	case r.Released == 0: // the tasks are locked
	case *m.Release.Wave == 0:
		h.Probes, h.NextProbeAt = h.Probes+1, nil
		h.InFlight++
		m.record(tasker.HoldProbed, map[string]any{"task_uuid": r.Tasks[0]})
	default:
		h.Wave, h.WaveSince, h.WaveSteps = *m.Release.Wave, &now, r.Released
		m.record(tasker.HoldWaveBegan, map[string]any{"wave": h.Wave, "steps": r.Released})
	}
}

const (
	parkSteps = 1000                   // per statement
	parkPages = 64                     // per statement
	parkTime  = 5 * time.Second        // per pass
	pagesTime = 100 * time.Millisecond // for the pages of the queue, per pass
)

// ParkSteps parks held steps, so that claims need not skip them one by one.
func (s *Service) ParkSteps(ctx context.Context) (time.Duration, error) {
	open, err := s.db.OpenHolds(ctx)
	if err != nil || len(open) == 0 {
		return 0, err
	}
	begun := time.Now()
	byStep := false
	var whole []tasker.Hold // holds on whole queues
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
		if err := s.parkPages(ctx, begun); err != nil {
			return 0, err
		}
	}
	more, err := s.parkQueues(ctx, whole, begun)
	return s.passResult(ctx, more, err)
}

// parkQueues parks steps covered by holds on whole queues. It alternates between the holds, so that
// none delays the others. It reports whether there may be more steps.
func (s *Service) parkQueues(ctx context.Context, holds []tasker.Hold, begun time.Time) (more bool, err error) {
	for len(holds) > 0 && time.Since(begun) < parkTime {
		var unfinished []tasker.Hold
		for _, h := range holds {
			n, failed := s.db.ParkQueue(ctx, h, parkSteps)
			err = errors.Join(err, failed)
			if failed == nil && n == parkSteps {
				unfinished = append(unfinished, h)
			}
		}
		holds = unfinished
	}
	return len(holds) > 0, err
}

// parkPages parks held steps page by page from where the last pass stopped. After the last page,
// the next pass starts at the first page again.
func (s *Service) parkPages(ctx context.Context, begun time.Time) error {
	for time.Since(begun) < pagesTime {
		pages, err := s.db.ParkPages(ctx, s.page, s.page+parkPages)
		if err != nil {
			return err
		}
		if s.page += parkPages; s.page >= pages {
			s.page = 0
			return nil
		}
	}
	return nil
}
