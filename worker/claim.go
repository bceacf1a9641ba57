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
		wait := s.asking(asked)
		list, err := s.backend.Claim(ctx, id, slots, wait)
		s.start(ctx, list, slots, asked)
		if err == nil {
			s.succeeded(ctx, asked)
			b.reset()
			most.grow()
			if len(list) == 0 && time.Since(asked) < wait/2 {
				// The worker must drain, which the next heartbeat reports, or the server is shutting down.
				wake(s.renew)
				loop.Sleep(ctx, firstRest)
			}
			continue
		}
		s.claimFailed()
		if ctx.Err() != nil {
			return
		}
		if !s.refusesKey(ctx, err) {
			s.log.WarnContext(ctx, "claim failed, retrying", "slots", slots, "err", err)
		}
		switch {
		case isUnknownWorker(err, id):
			s.registerAgain(ctx, id)
		case tasker.CodeOf(err) == tasker.TooLarge:
			most.shrink(slots) // the response was too large
		}
		if !b.rest(ctx, err) {
			return
		}
	}
}

// asking returns how long a claim that is sent now may wait. A claim that counts as a heartbeat
// ends before the next heartbeat is due.
func (s *run) asking(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimsCount() {
		return pollWait
	}
	s.asked = now
	return min(pollWait, s.registration.HeartbeatInterval*9/10)
}

// leastClaim is the minimum heartbeat interval for which claims count as heartbeats. Shorter ones
// would cause too many claims.
const leastClaim = 2 * time.Second

// claimsCount reports whether claims count as heartbeats. The caller holds the mutex.
func (s *run) claimsCount() bool {
	return s.registration.ClaimIsHeartbeat && s.registration.HeartbeatInterval >= leastClaim
}

// claimFailed records that the last claim may not have arrived.
func (s *run) claimFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Time{}
}

// reserve reserves up to most free slots for a claim. It reserves none while the worker drains.
func (s *run) reserve(most int) (tasker.ID, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return tasker.ID{}, 0
	}
	slots := min(max(s.free(), 0), most)
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
