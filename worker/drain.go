package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
)

// The fixed timeouts of a drain.
const (
	claimGrace  = 250 * time.Millisecond // for a claim in flight, which may return steps
	stopGrace   = 5 * time.Second        // for handlers whose context was cancelled
	farewell    = 10 * time.Second       // for the last reports, when the backend may be unreachable
	tellTime    = 2 * time.Second        // for the calls that announce the drain and unregister the worker
	releaseTime = 5 * time.Second        // for one release
)

// run executes steps until ctx ends, or the backend asks for a drain or rejects the
// worker, then drains.
func (s *run) run(ctx context.Context) error {
	// Only the drain may cancel a handler or a report.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	beating, stopBeating := context.WithCancel(work)
	defer stopBeating()
	claiming, stopClaiming := context.WithCancel(work)
	defer stopClaiming()
	noMore := make(chan struct{})

	var claims, reports, beats sync.WaitGroup
	claims.Go(func() { s.claim(claiming, noMore) })
	reported, resent := make(chan struct{}), make(chan struct{})
	reports.Go(func() { defer close(reported); s.report(work) })
	reports.Go(func() { defer close(resent); s.resendBatches(work, reported) })
	reports.Go(func() { s.resendSingly(work, resent) })
	beats.Go(func() { s.heartbeat(beating) })

	var broken error
	untold := false
	select {
	case <-ctx.Done():
		untold = true
	case <-s.drained:
		s.log.InfoContext(work, "told to drain", "worker_uuid", s.id())
	case broken = <-s.broken:
	}
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.log.InfoContext(work, "worker draining", "held", s.holds())

	telling, stopTelling := context.WithTimeout(work, tellTime)
	defer stopTelling()
	var tells sync.WaitGroup
	if untold {
		tells.Go(func() { s.tell(telling) })
	}
	close(noMore)
	grace := time.AfterFunc(claimGrace, stopClaiming)
	claims.Wait()
	grace.Stop()
	var releases sync.WaitGroup
	releases.Go(func() { s.releaseAll(work) })

	stuck := s.settle()
	stopBeating()
	beats.Wait()
	close(s.closing)
	last := time.AfterFunc(farewell, stopWork)
	defer last.Stop()
	releases.Go(func() { s.release(work) })
	reports.Wait()
	releases.Wait()
	stopTelling()
	tells.Wait()
	s.goodbye(ctx)
	if broken == nil && stuck > 0 {
		return fmt.Errorf("%d handlers did not stop when their context ended; their steps were given back", stuck)
	}
	return broken
}

// goodbye releases the remaining leases and unregisters the worker. It has its own
// timeout: the backend may be healthy although reports were not answered.
func (s *run) goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	s.release(ctx)
	s.leave(ctx)
}

// tell announces the drain to the backend, so that operators see it and no capacity is
// expected of this worker. The drain continues whatever the response is; a backend that is
// too old for this call answers not found.
func (s *run) tell(ctx context.Context) {
	err := s.backend.DrainWorker(ctx, s.id())
	if err != nil && ctx.Err() == nil && tasker.CodeOf(err) != tasker.NotFound {
		s.log.WarnContext(ctx, "the backend was not told of the drain", "err", err)
	}
}

// settle waits for the handlers within the drain timeout, then cancels them. It returns
// how many still run; the leases of their steps are released.
func (s *run) settle() int {
	done := make(chan struct{})
	go func() {
		s.handling.Wait()
		close(done)
	}()
	if within(s.options.DrainTimeout, done) {
		return 0
	}
	s.interrupt()
	if within(stopGrace, done) {
		return 0
	}
	return s.abandon()
}

func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (s *run) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.attempts {
		if !at.finished {
			at.cancel(ErrInterrupted)
		}
	}
}

func (s *run) abandon() (stuck int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.attempts {
		if at.finished {
			continue
		}
		stuck++
		if !at.dropped {
			at.dropped = true
			s.queueReleaseLocked(at.Lease())
		}
	}
	return stuck
}

// releaseAll releases leases until no handler runs: also those that come with the answer to a report that was in flight.
func (s *run) releaseAll(ctx context.Context) {
	for {
		s.release(ctx)
		select {
		case <-s.back:
		case <-s.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// release releases the leases of steps that were not started or not finished. Those that
// could not be released are retried by the next release; otherwise they expire.
func (s *run) release(ctx context.Context) {
	s.mu.Lock()
	id, leases := s.registration.WorkerUUID, s.unstarted
	s.unstarted = nil
	s.mu.Unlock()
	for batch := range slices.Chunk(leases, maxBatch) {
		kept, err := s.releaseBatch(ctx, id, batch)
		if err != nil {
			s.log.WarnContext(ctx, "steps could not be given back", "steps", len(batch), "err", err)
		}
		s.mu.Lock()
		s.unstarted = append(s.unstarted, kept...)
		s.mu.Unlock()
	}
}

// releaseBatch releases leases and returns those that the backend reported neither as
// released nor as lost.
func (s *run) releaseBatch(ctx context.Context, id tasker.ID, batch []tasker.Lease) ([]tasker.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	released, lost, err := s.backend.Release(ctx, id, batch)
	if err != nil {
		return batch, err
	}
	return slices.DeleteFunc(slices.Clone(batch), func(l tasker.Lease) bool {
		return slices.Contains(released, l.StepUUID) || slices.Contains(lost, l.StepUUID)
	}), nil
}

// leave unregisters the worker. A backend that does not know it any more is fine.
func (s *run) leave(ctx context.Context) {
	id := s.id()
	if err := s.backend.LeaveWorker(ctx, id); err != nil && tasker.CodeOf(err) != tasker.NotFound {
		s.log.WarnContext(ctx, "leaving failed; the backend will notice the silence", "worker_uuid", id, "err", err)
		return
	}
	s.log.InfoContext(ctx, "worker left", "worker_uuid", id, "unreported", s.holds())
}

func (s *run) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.attempts)
}
