package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

// heartbeat extends all leases of the worker at the interval of the backend, until ctx ends. A
// worker without leases sends heartbeats too, but fewer if its claims count as heartbeats.
func (s *run) heartbeat(ctx context.Context) {
	var b backoff
	for s.waitForBeat(ctx) {
		for err := s.beat(ctx); err != nil; err = s.beat(ctx) {
			// A long Retry-After would let the leases expire.
			rest := max(b.advance(maxBackoff), min(retryAfter(err), maxBackoff))
			if !loop.Sleep(ctx, min(rest, time.Until(s.nextLeaseExpiry(maxBackoff)))) {
				return
			}
		}
		b.reset()
	}
}

// heartbeatsPerInterval is the number of heartbeat intervals after which a worker sends a heartbeat
// although its claims count as heartbeats. Only the response to a heartbeat can request a drain.
const heartbeatsPerInterval = 3

// waitForBeat waits for the next heartbeat. It returns false if ctx ended first.
func (s *run) waitForBeat(ctx context.Context) bool {
	begun := time.Now()
	timer := time.NewTimer(s.heartbeatInterval())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
			if rest := s.heartbeatCoveredByClaim(begun); rest > 0 {
				timer.Reset(rest)
				continue
			}
		case <-s.renew:
		}
		return ctx.Err() == nil
	}
}

// heartbeatCoveredByClaim returns how much longer the last claim replaces a heartbeat. begun is the time of
// the last heartbeat.
func (s *run) heartbeatCoveredByClaim(begun time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attempts) > 0 {
		return 0
	}
	interval := s.registration.HeartbeatInterval
	return min(time.Until(s.lastClaim.Add(interval)), time.Until(begun.Add(heartbeatsPerInterval*interval)))
}

func (s *run) heartbeatInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration.HeartbeatInterval
}

// beat sends one heartbeat in batches. It sends all batches and returns the first error.
func (s *run) beat(ctx context.Context) error {
	id, leases := s.collectLeases()
	if len(leases) == 0 {
		return s.extend(ctx, id, nil)
	}
	var failed error
	for batch := range slices.Chunk(leases, maxBatch) {
		splits := maxSplits
		failed = cmp.Or(failed, s.extendInParts(ctx, id, batch, &splits))
	}
	return failed
}

// maxSplits limits the splits of a heartbeat. It suffices to isolate one rejected lease.
const maxSplits = 10

// extendInParts extends leases. It splits a request that the backend rejects as invalid, so that
// one invalid lease does not cost the others.
func (s *run) extendInParts(ctx context.Context, id tasker.ID, leases []tasker.Lease, splits *int) error {
	err := s.extend(ctx, id, leases)
	if tasker.CodeOf(err) != tasker.Invalid || len(leases) < 2 || *splits == 0 {
		return err
	}
	*splits--
	half := len(leases) / 2
	return cmp.Or(s.extendInParts(ctx, id, leases[:half], splits), s.extendInParts(ctx, id, leases[half:], splits))
}

// minHeartbeatInterval is the minimum timeout of a heartbeat. With a shorter timeout, a slow connection
// attempt would be cancelled and repeated forever.
const minHeartbeatInterval = 2 * time.Second

func (s *run) extend(ctx context.Context, id tasker.ID, leases []tasker.Lease) error {
	sent := time.Now()
	// A hanging backend must not use up a lease.
	limited, cancel := context.WithDeadline(ctx, s.nextLeaseExpiry(max(s.heartbeatInterval(), minHeartbeatInterval)))
	defer cancel()
	beat, err := s.backend.Heartbeat(limited, id, leases)
	if err != nil {
		if ctx.Err() == nil && !s.isKeyRejected(ctx, err) {
			s.log.WarnContext(ctx, "heartbeat failed, retrying", "leases", len(leases), "err", err)
		}
		if isUnknownWorker(err, id) {
			s.registerAgain(ctx, id)
		}
		s.cancelExpired(ctx)
		return err
	}
	s.recordSuccess(ctx, sent)
	s.applyBeat(ctx, id, leases, beat, sent)
	return nil
}

// applyBeat applies the response to a heartbeat. A renewed lease is counted from when the heartbeat
// was sent. A lease with an unchanged expiry was not renewed, because the backend was processing
// the step; a lease that the response does not mention may not have been renewed.
func (s *run) applyBeat(ctx context.Context, id tasker.ID, leases []tasker.Lease, beat tasker.Beat, sent time.Time) {
	ends := make(map[tasker.ID]time.Time, len(beat.Extended))
	for _, x := range beat.Extended {
		ends[x.StepUUID] = x.ExpiresAt
	}
	lost := make(map[tasker.ID]bool, len(beat.Lost))
	for _, step := range beat.Lost {
		lost[step] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if beat.Drain && id == s.registration.WorkerUUID {
		signal(s.drained)
	}
	for _, l := range leases {
		at := s.attempts[l]
		if at == nil {
			continue
		}
		end, held := ends[l.StepUUID]
		switch {
		case lost[l.StepUUID]:
			s.cancelLost(ctx, at)
		case held && !end.Equal(at.expires):
			at.leaseEnd, at.expires = sent.Add(s.registration.LeaseDuration), end
		}
	}
}

// nextLeaseExpiry returns when the first lease expires unless it is renewed, but no later than most
// from now.
func (s *run) nextLeaseExpiry(most time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	end := now.Add(most)
	for _, at := range s.attempts {
		if !at.finished && !at.dropped && at.leaseEnd.Before(end) && at.leaseEnd.After(now) {
			end = at.leaseEnd
		}
	}
	return end
}

// cancelExpired cancels the attempts whose lease expired while the backend was unreachable: another
// worker may have claimed the step.
func (s *run) cancelExpired(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.attempts {
		if !at.finished && !time.Now().Before(at.leaseEnd) {
			s.cancelLost(ctx, at)
		}
	}
}

// cancelLost cancels a handler whose lease is lost. An existing outcome is still sent: the backend may
// not have assigned the step again, and its response decides. The caller holds the mutex.
func (s *run) cancelLost(ctx context.Context, at *attempt) {
	switch {
	case at.finished:
		at.lost = true
		return
	case at.dropped:
		return
	}
	at.dropped = true
	at.cancel(ErrLeaseLost)
	s.log.WarnContext(ctx, "lease lost, step stopped", "task", at.TaskUUID, "step", at.StepUUID, "attempt", at.Attempt)
}

// collectLeases returns the leases to extend, one per step.
func (s *run) collectLeases() (tasker.ID, []tasker.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make([]tasker.Lease, 0, len(s.attempts))
	for l, at := range s.attempts {
		if !at.dropped && s.newest[at.StepUUID] == at {
			leases = append(leases, l)
		}
	}
	return s.registration.WorkerUUID, leases
}
