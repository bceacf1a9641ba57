package worker

import (
	"context"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// maxBatchBytes limits the size of one report, unless a single outcome is larger.
const maxBatchBytes = 1 << 20

// A report waits for more outcomes for 1/gatherFraction of the duration of the last report, but no
// longer than maxGatherWait.
const (
	gatherFraction = 8
	maxGatherWait  = 10 * time.Millisecond
)

// reporter sends outcomes and claims steps with the same call. One report is in flight at a time
// and the next one contains all outcomes that finish meanwhile, so batches grow with the load and
// an idle worker does not wait. Failed reports move to the resend queues, so that they do not
// delay others.
type reporter struct {
	*run

	backoff backoff
	window  window
	failing bool // the last report failed: the next one claims nothing
}

// report sends outcomes until the run is closing and all are sent, or ctx ends.
func (s *run) report(ctx context.Context) {
	r := &reporter{run: s, window: newWindow()}
	for ctx.Err() == nil {
		batch, slots := r.takeBatch()
		if len(batch) > 0 {
			r.send(ctx, batch, slots)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.result:
		case <-s.closing:
			if !s.hasUnreported() {
				return
			}
		}
	}
}

// takeBatch returns the next outcomes to report and the number of steps to claim: one per outcome, and
// one per free slot without a pending claim.
func (r *reporter) takeBatch() (batch []*attempt, slots int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := countFitting(r.queue, r.window.size)
	batch, r.queue = slices.Clone(r.queue[:n]), r.queue[n:]
	if !r.draining && !r.failing && len(batch) > 0 {
		slots = min(max(r.freeSlots()+len(batch), 0), maxBatch)
		r.reserved += slots
	}
	return batch, slots
}

// countFitting returns how many of the first outcomes fit into one report, at most most.
func countFitting(list []*attempt, most int) int {
	bytes := 0
	for i, at := range list {
		bytes += outcomeSize(at.outcome)
		if i == most || i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(list)
}

func outcomeSize(o tasker.Outcome) int {
	n := len(o.Result) + len(o.Metadata)
	if o.Failure != nil {
		n += len(o.Failure.Message) + len(o.Failure.Context)
	}
	return n
}

func (r *reporter) send(ctx context.Context, batch []*attempt, slots int) {
	began := time.Now()
	receipt, err := r.deliver(ctx, batch, slots)
	r.startAttempts(ctx, receipt.Next, slots, began)
	r.failing = err != nil
	if err != nil {
		if slow := time.Since(began) > slowReport; slow || isRejected(err) {
			r.window.shrink(len(batch))
			r.resize(func(w *window) { w.shrink(len(batch)) })
		}
		r.delay(batch, min(retryAfter(err), maxRetryAfter))
		r.resend(&r.resends, batch)
		r.backoff.sleep(ctx, err)
		return
	}
	r.window.grow()
	r.backoff.reset()
	r.resend(&r.resends, r.applyReceipt(ctx, batch, receipt))
	if len(receipt.Next) > 0 {
		r.gather(ctx, min(time.Since(began)/gatherFraction, maxGatherWait))
	}
}

// deliver sends one report. It registers the worker again if the backend does not know it.
func (s *run) deliver(ctx context.Context, batch []*attempt, slots int) (tasker.Receipt, error) {
	outcomes := make([]tasker.Outcome, len(batch))
	for i, at := range batch {
		outcomes[i] = at.outcome
	}
	id, sent := s.workerID(), time.Now()
	receipt, err := s.backend.Report(ctx, id, outcomes, slots)
	if err != nil {
		if !s.isKeyRejected(ctx, err) {
			s.log.WarnContext(ctx, "report failed, retrying", "outcomes", len(batch), "err", err)
		}
		if isUnknownWorker(err, id) {
			s.registerAgain(ctx, id)
		}
		return tasker.Receipt{}, err
	}
	s.recordSuccess(ctx, sent)
	return receipt, nil
}

// gather waits briefly until more of the claimed steps finish. Otherwise a busy worker would
// alternate between small and large batches, and a small report costs the backend nearly as much
// as a large one.
func (r *reporter) gather(ctx context.Context, most time.Duration) {
	enough := time.NewTimer(most)
	defer enough.Stop()
	for r.isExecuting() {
		select {
		case <-ctx.Done():
			return
		case <-enough.C:
			return
		case <-r.result:
		}
	}
}

// attemptFailedMessage occurs in the message of a rejection if the backend could not store an outcome and
// recorded the attempt as failed.
const attemptFailedMessage = "the attempt was failed"

// Reactions to a rejection. A response identifies steps, not attempts: if a batch has two
// attempts of one step, the highest reaction counts for both.
const (
	actionDrop   = iota // the outcome is obsolete
	actionRevise        // send it in another form
	actionResend        // send it again
)

// classifyRejection returns the reaction to a rejection: actionDrop, actionRevise or actionResend.
func classifyRejection(x tasker.Rejection) int {
	switch x.Code {
	case tasker.Unavailable, tasker.Internal:
		return actionResend
	case tasker.Invalid, tasker.TooLarge:
		if !strings.Contains(x.Message, attemptFailedMessage) {
			return actionRevise
		}
		return actionDrop
	default:
		return actionDrop
	}
}

// applyReceipt ends the attempts whose outcomes were accepted or rejected. It returns those to
// resend, which keep their slots: revised outcomes, and outcomes without a definite response.
func (s *run) applyReceipt(ctx context.Context, batch []*attempt, receipt tasker.Receipt) (again []*attempt) {
	rejected := make(map[tasker.ID]tasker.Rejection, len(receipt.Rejected))
	for _, x := range receipt.Rejected {
		if before, twice := rejected[x.StepUUID]; !twice || classifyRejection(x) > classifyRejection(before) {
			rejected[x.StepUUID] = x
		}
	}
	accepted := make(map[tasker.ID]bool, len(receipt.Accepted))
	for _, step := range receipt.Accepted {
		accepted[step] = true
	}
	for _, at := range batch {
		x, no := rejected[at.StepUUID]
		switch {
		case no && classifyRejection(x) == actionRevise:
			s.reviseOutcome(ctx, at, x)
			again = append(again, at)
		case no && classifyRejection(x) == actionDrop:
			s.log.WarnContext(ctx, "outcome rejected", "task", at.TaskUUID, "step", at.StepUUID, "code", x.Code, "err", x.Message)
			s.endAttempt(at)
		case !no && accepted[at.StepUUID]:
			s.endAttempt(at)
		default:
			s.postpone(at, maxBackoff)
			again = append(again, at)
		}
	}
	return again
}

// endAttempt removes an attempt and frees its slot.
func (s *run) endAttempt(at *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetAttempt(at)
}

// forgetAttempt is like end for a caller that holds the mutex.
func (s *run) forgetAttempt(at *attempt) {
	s.removeAttempt(at)
	signal(s.slot)
}

func (s *run) hasUnreported() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

func (s *run) isExecuting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0
}
