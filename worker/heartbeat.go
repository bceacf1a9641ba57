package worker

import (
	"context"
	"slices"
	"time"

	"tasker"
	"tasker/internal/loop"
)

// heartbeat extends the leases of all that we hold, as often as the engine wants
// it, until ctx ends. A worker that holds nothing is heard of all the same.
func (s *shift) heartbeat(ctx context.Context) {
	var b backoff
	for loop.Sleep(ctx, s.interval()) {
		for !s.beat(ctx) {
			if !b.rest(ctx) {
				return
			}
		}
		b.reset()
	}
}

func (s *shift) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration.HeartbeatInterval
}

// beat sends one heartbeat and returns whether it was answered.
func (s *shift) beat(ctx context.Context) bool {
	id, leases := s.held()
	for batch := range slices.Chunk(leases, maxBatch) {
		if !s.extend(ctx, id, batch) {
			return false
		}
	}
	return len(leases) > 0 || s.extend(ctx, id, nil)
}

func (s *shift) extend(ctx context.Context, id tasker.ID, leases []tasker.Lease) bool {
	limited, cancel := context.WithTimeout(ctx, s.interval()) // an engine that hangs must not use up a lease
	defer cancel()
	beat, err := s.engine.Heartbeat(limited, id, leases)
	if err != nil {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "heartbeat failed, trying again", "leases", len(leases), "err", err)
		}
		if tasker.CodeOf(err) == tasker.NotFound {
			s.registerAgain(ctx, id)
		}
		s.lapse(ctx)
		return false
	}
	lost := make(map[tasker.ID]bool, len(beat.Lost))
	for _, step := range beat.Lost {
		lost[step] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if beat.Drain && id == s.registration.WorkerUUID {
		wake(s.drained)
	}
	for _, l := range leases {
		at := s.attempts[l]
		if at == nil {
			continue
		}
		if lost[l.StepUUID] {
			s.lose(ctx, at)
		} else {
			at.lapses = time.Now().Add(s.registration.LeaseDuration)
		}
	}
	return true
}

// lapse loses the attempts whose lease must have run out while the engine could
// not be reached: by now another worker may have the step.
func (s *shift) lapse(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.attempts {
		if time.Now().After(at.lapses) {
			s.lose(ctx, at)
		}
	}
}

// lose stops a handler whose lease is lost. An outcome that is there already is
// still sent: the engine may have lost sight of us without giving the step away,
// and if not, its answer is the surest. The caller holds the mutex.
func (s *shift) lose(ctx context.Context, at *attempt) {
	if at.finished || at.dropped {
		return
	}
	at.dropped = true
	at.cancel(ErrLeaseLost)
	s.log.WarnContext(ctx, "lease lost, step stopped", "task", at.TaskUUID, "step", at.StepUUID, "attempt", at.Attempt)
}

// held lists the leases to keep alive.
func (s *shift) held() (tasker.ID, []tasker.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make([]tasker.Lease, 0, len(s.attempts))
	for l, at := range s.attempts {
		if !at.dropped {
			leases = append(leases, l)
		}
	}
	return s.registration.WorkerUUID, leases
}
