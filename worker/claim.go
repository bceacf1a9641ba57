package worker

import (
	"context"
	"time"

	"tasker"
	"tasker/internal/loop"
)

const (
	pollWait = 20 * time.Second // how long one claim waits for work
	maxBatch = 500              // leases or outcomes in one call; the protocol allows 1000
)

// claim asks for work whenever slots are free, until stop is closed. A claim that
// is under way then ends with ctx.
func (s *shift) claim(ctx context.Context, stop <-chan struct{}) {
	var b backoff
	for {
		id, slots := s.reserve()
		if slots == 0 {
			select {
			case <-stop:
				return
			case <-s.slot:
			}
			continue
		}
		asked := time.Now()
		list, err := s.engine.Claim(ctx, id, slots, pollWait)
		s.start(list, slots)
		if err == nil {
			b.reset()
			if len(list) == 0 && time.Since(asked) < pollWait/2 {
				loop.Sleep(ctx, firstRest) // it did not wait: a server that is going down
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.log.WarnContext(ctx, "claim failed, trying again", "err", err)
		if tasker.CodeOf(err) == tasker.NotFound {
			s.registerAgain(ctx, id)
		}
		if !b.rest(ctx) {
			return
		}
	}
}

// reserve takes all free slots for a claim; none when the worker is draining.
func (s *shift) reserve() (tasker.ID, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return tasker.ID{}, 0
	}
	slots := min(max(s.free(), 0), maxBatch)
	s.reserved += slots
	return s.registration.WorkerUUID, slots
}
