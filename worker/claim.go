package worker

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

const (
	pollWait = 20 * time.Second // maximum wait of one claim
	maxBatch = 500              // leases or outcomes per call; the protocol allows 1000
)

// claim claims steps whenever slots are free, until stop is closed. A pending claim then ends
// with ctx.
func (s *run) claim(ctx context.Context, stop <-chan struct{}) {
	var b backoff
	most := newWindow()
	for {
		id, slots := s.reserve(most.size)
		if slots == 0 {
			select {
			case <-stop:
				return
			case <-s.slot:
			}
			continue
		}
		asked := time.Now()
		wait := s.claimWait(asked)
		list, err := s.backend.Claim(ctx, id, slots, wait)
		s.startAttempts(ctx, list, slots, asked)
		if err == nil {
			s.recordSuccess(ctx, asked)
			b.reset()
			most.grow()
			if len(list) == 0 && time.Since(asked) < wait/2 {
				// The worker must drain, which the next heartbeat reports, or the server is shutting down.
				signal(s.renew)
				loop.Sleep(ctx, minBackoff)
			}
			continue
		}
		s.recordClaimFailure()
		if ctx.Err() != nil {
			return
		}
		if !s.isKeyRejected(ctx, err) {
			s.log.WarnContext(ctx, "claim failed, retrying", "slots", slots, "err", err)
		}
		switch {
		case isUnknownWorker(err, id):
			s.registerAgain(ctx, id)
		case tasker.CodeOf(err) == tasker.TooLarge:
			most.shrink(slots) // the response was too large
		}
		if !b.sleep(ctx, err) {
			return
		}
	}
}

// claimWait returns how long a claim that is sent now may wait. A claim that counts as a heartbeat
// ends before the next heartbeat is due.
func (s *run) claimWait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimsAreHeartbeats() {
		return pollWait
	}
	s.lastClaim = now
	return min(pollWait, s.registration.HeartbeatInterval*9/10)
}

// minClaimInterval is the minimum heartbeat interval for which claims count as heartbeats. Shorter ones
// would cause too many claims.
const minClaimInterval = 2 * time.Second

// claimsAreHeartbeats reports whether claims count as heartbeats. The caller holds the mutex.
func (s *run) claimsAreHeartbeats() bool {
	return s.registration.ClaimIsHeartbeat && s.registration.HeartbeatInterval >= minClaimInterval
}

// recordClaimFailure records that the last claim may not have arrived.
func (s *run) recordClaimFailure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastClaim = time.Time{}
}

// reserve reserves up to most free slots for a claim. It reserves none while the worker drains.
func (s *run) reserve(most int) (tasker.ID, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return tasker.ID{}, 0
	}
	slots := min(max(s.freeSlots(), 0), most)
	s.reserved += slots
	return s.registration.WorkerUUID, slots
}

// window limits the size of one call. It is halved after a call that was too large and doubled
// after each successful call.
type window struct{ size int }

func newWindow() window { return window{maxBatch} }

// shrink records that a call of size n was too large.
func (w *window) shrink(n int) { w.size = max(1, min(w.size, n/2)) }

func (w *window) grow() { w.size = min(2*w.size, maxBatch) }
