package worker

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

const (
	pollWait = 20 * time.Second // how long one claim waits for work
	maxBatch = 500              // leases or outcomes in one call; the protocol allows 1000
)

// claim asks for work whenever slots are free, until stop is closed. A claim that
// is under way then ends with ctx.
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
				// The worker must drain, as the response to a heartbeat says, or the server is shutting down.
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
			s.log.WarnContext(ctx, "claim failed, trying again", "slots", slots, "err", err)
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

// asking returns how long a claim that is sent now may wait. One that counts as a
// heartbeat ends before the next heartbeat is due.
func (s *run) asking(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimsCount() {
		return pollWait
	}
	s.asked = now
	return min(pollWait, s.registration.HeartbeatInterval*9/10)
}

// leastClaim is the interval of heartbeats below which claims do not count as such: they
// would ask too often.
const leastClaim = 2 * time.Second

// claimsCount reports whether claims count as heartbeats. The caller holds the mutex.
func (s *run) claimsCount() bool {
	return s.registration.ClaimIsHeartbeat && s.registration.HeartbeatInterval >= leastClaim
}

// claimFailed notes that the last claim may not have arrived.
func (s *run) claimFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Time{}
}

// reserve takes free slots for a claim, most of them at most; none when the worker
// is draining.
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

// A window limits the size of one call. It is halved when a call was too large and doubled
// after each call that succeeded.
type window struct{ size int }

func newWindow() window { return window{maxBatch} }

// shrink records that n was too much.
func (w *window) shrink(n int) { w.size = max(1, min(w.size, n/2)) }

func (w *window) grow() { w.size = min(2*w.size, maxBatch) }
