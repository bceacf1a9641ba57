package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
)

// Timeouts of a drain.
const (
	claimGrace     = 250 * time.Millisecond // for a pending claim, which may return steps
	stopGrace      = 5 * time.Second        // for handlers with a cancelled context
	reportTimeout  = 10 * time.Second       // for the last reports if the backend is unreachable
	callTimeout    = 2 * time.Second        // for announcing the drain and unregistering
	releaseTimeout = 5 * time.Second        // per release
)

// run executes steps until ctx ends, the backend requests a drain or rejects the worker. It then
// drains.
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
	announce := false
	select {
	case <-ctx.Done():
		announce = true
	case <-s.drained:
		s.log.InfoContext(work, "draining at an operator's request", "worker_uuid", s.workerID())
	case broken = <-s.broken:
	}
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.log.InfoContext(work, "worker draining", "held", s.countAttempts())

	announcing, stopAnnouncing := context.WithTimeout(work, callTimeout)
	defer stopAnnouncing()
	var announcement sync.WaitGroup
	if announce {
		announcement.Go(func() { s.announceDrain(announcing) })
	}
	close(noMore)
	grace := time.AfterFunc(claimGrace, stopClaiming)
	claims.Wait()
	grace.Stop()
	var releases sync.WaitGroup
	releases.Go(func() { s.releaseAll(work) })

	stuck := s.waitForHandlers()
	stopBeating()
	beats.Wait()
	close(s.closing)
	last := time.AfterFunc(reportTimeout, stopWork)
	defer last.Stop()
	releases.Go(func() { s.release(work) })
	reports.Wait()
	releases.Wait()
	stopAnnouncing()
	announcement.Wait()
	s.unregister(ctx)
	if broken == nil && stuck > 0 {
		return fmt.Errorf("%d handlers did not stop when their context ended; their steps were released", stuck)
	}
	return broken
}

// unregister releases the remaining leases and unregisters the worker. It has its own timeout,
// because the backend may be healthy although reports were not answered.
func (s *run) unregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	s.release(ctx)
	s.unregisterWorker(ctx)
}

// announceDrain announces the drain to the backend, so that operators see it. The drain continues
// regardless of the response; an old backend responds with NotFound.
func (s *run) announceDrain(ctx context.Context) {
	err := s.backend.DrainWorker(ctx, s.workerID())
	if err != nil && ctx.Err() == nil && tasker.CodeOf(err) != tasker.NotFound {
		s.log.WarnContext(ctx, "could not report the drain to the server", "err", err)
	}
}

// waitForHandlers waits for the handlers until the drain timeout, then cancels them. It returns how many
// ignore that and still run; the leases of their steps are released.
func (s *run) waitForHandlers() int {
	done := make(chan struct{})
	go func() {
		s.handling.Wait()
		close(done)
	}()
	if waitUntilDone(s.options.DrainTimeout, done) {
		return 0
	}
	s.interrupt()
	if waitUntilDone(stopGrace, done) {
		return 0
	}
	return s.abandon()
}

func waitUntilDone(d time.Duration, done <-chan struct{}) bool {
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

// releaseAll releases leases until no handler runs, including those from the response to a
// pending report.
func (s *run) releaseAll(ctx context.Context) {
	for {
		s.release(ctx)
		select {
		case <-s.reregistered:
		case <-s.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// release releases the leases of unstarted or unfinished steps. The next release retries those
// that failed; otherwise they expire.
func (s *run) release(ctx context.Context) {
	s.mu.Lock()
	id, leases := s.registration.WorkerUUID, s.unstarted
	s.unstarted = nil
	s.mu.Unlock()
	for batch := range slices.Chunk(leases, maxBatch) {
		kept, err := s.releaseBatch(ctx, id, batch)
		if err != nil {
			s.log.WarnContext(ctx, "could not release steps", "steps", len(batch), "err", err)
		}
		s.mu.Lock()
		s.unstarted = append(s.unstarted, kept...)
		s.mu.Unlock()
	}
}

// releaseBatch releases leases and returns those that the backend reported neither as
// released nor as lost.
func (s *run) releaseBatch(ctx context.Context, id tasker.ID, batch []tasker.Lease) ([]tasker.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	released, lost, err := s.backend.Release(ctx, id, batch)
	if err != nil {
		return batch, err
	}
	return slices.DeleteFunc(slices.Clone(batch), func(l tasker.Lease) bool {
		return slices.Contains(released, l.StepUUID) || slices.Contains(lost, l.StepUUID)
	}), nil
}

// unregisterWorker unregisters the worker. It ignores NotFound.
func (s *run) unregisterWorker(ctx context.Context) {
	id := s.workerID()
	if err := s.backend.LeaveWorker(ctx, id); err != nil && tasker.CodeOf(err) != tasker.NotFound {
		s.log.WarnContext(ctx, "could not unregister the worker; the backend will remove it when "+
			"heartbeats stop", "worker_uuid", id, "err", err)
		return
	}
	s.log.InfoContext(ctx, "worker unregistered", "worker_uuid", id, "unreported", s.countAttempts())
}

func (s *run) countAttempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.attempts)
}
