package worker

import (
	"context"
	"slices"
	"time"

	"tasker"
)

// maxBatchBytes bounds the outcomes of one report, unless a single one is larger.
const maxBatchBytes = 1 << 20

// How long a reporter waits for outcomes to go with those that it has: a share of
// what the last report took, and never long.
const (
	gatherShare  = 8
	gatherAtMost = 10 * time.Millisecond
)

// A reporter sends outcomes and takes the next work with the answer. There is one
// report under way at a time: what finishes meanwhile goes together with the
// next, so batches grow with the load and an idle worker waits for nothing.
type reporter struct {
	*shift

	most int // outcomes in one report; fewer after a refusal, to find the bad one
	rest backoff
}

// report sends outcomes until the shift is closing and none is left, or ctx
// ends.
func (s *shift) report(ctx context.Context) {
	r := &reporter{shift: s, most: maxBatch}
	for ctx.Err() == nil {
		batch, slots := r.take()
		if len(batch) > 0 {
			r.send(ctx, batch, slots)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.result:
		case <-s.closing:
			if !s.unreported() {
				return
			}
		}
	}
}

// take returns the next outcomes to report, and for how many slots to ask for
// work: theirs, and those that no claim is waiting to fill.
func (r *reporter) take() (batch []*attempt, slots int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes := 0
	for _, at := range r.queue {
		bytes += size(at.outcome)
		if len(batch) == r.most || len(batch) > 0 && bytes > maxBatchBytes {
			break
		}
		batch = append(batch, at)
	}
	r.queue = r.queue[len(batch):]
	if !r.draining && len(batch) > 0 {
		slots = min(max(r.free()+len(batch), 0), maxBatch)
		r.reserved += slots
	}
	return batch, slots
}

func size(o tasker.Outcome) int {
	n := len(o.Result) + len(o.Metadata)
	if o.Failure != nil {
		n += len(o.Failure.Message) + len(o.Failure.Context)
	}
	return n
}

func (r *reporter) send(ctx context.Context, batch []*attempt, slots int) {
	outcomes := make([]tasker.Outcome, len(batch))
	for i, at := range batch {
		outcomes[i] = at.outcome
	}
	id, began := r.id(), time.Now()
	receipt, err := r.engine.Report(ctx, id, outcomes, slots)
	if err != nil {
		r.start(nil, slots)
		r.failed(ctx, id, batch, err)
		return
	}
	r.most = maxBatch
	r.rest.reset()
	again := r.answered(ctx, batch, receipt)
	r.start(receipt.Next, slots)
	r.release(ctx)
	if len(again) > 0 {
		r.requeue(again)
		r.rest.rest(ctx)
		return
	}
	if len(receipt.Next) > 0 {
		r.gather(ctx, min(time.Since(began)/gatherShare, gatherAtMost))
	}
}

// gather gives what was just handed out a moment to come back all together. A full
// worker would go on with a few and with all others by turns otherwise, and a
// report costs the engine nearly as much for a few as for all.
func (r *reporter) gather(ctx context.Context, most time.Duration) {
	enough := time.NewTimer(most)
	defer enough.Stop()
	for r.executes() {
		select {
		case <-ctx.Done():
			return
		case <-enough.C:
			return
		case <-r.result:
		}
	}
}

// answered ends the attempts that were answered, one way or the other, and
// returns those to send again: restated ones, and those that the engine did not
// mention. Their slots stay taken.
func (r *reporter) answered(ctx context.Context, batch []*attempt, receipt tasker.Receipt) (again []*attempt) {
	rejected := make(map[tasker.ID]tasker.Rejection, len(receipt.Rejected))
	for _, x := range receipt.Rejected {
		rejected[x.StepUUID] = x
	}
	accepted := make(map[tasker.ID]bool, len(receipt.Accepted))
	for _, step := range receipt.Accepted {
		accepted[step] = true
	}
	for _, at := range batch {
		x, no := rejected[at.StepUUID]
		switch {
		case no && x.Code == tasker.Unavailable:
			again = append(again, at) // the engine cannot say now what became of it
		case no && badForm(x.Code) && r.restate(at, x.Message):
			again = append(again, at)
		case no:
			r.log.WarnContext(ctx, "outcome refused", "task", at.TaskUUID, "step", at.StepUUID, "code", x.Code, "err", x.Message)
			r.end(at)
		case accepted[at.StepUUID]:
			r.end(at)
		default:
			again = append(again, at)
		}
	}
	return again
}

// failed keeps outcomes that got no receipt. As long as nobody answers they are
// kept; an engine that answers with a refusal gets them one by one, until each
// has been refused for as long as a lease lasts.
func (r *reporter) failed(ctx context.Context, id tasker.ID, batch []*attempt, err error) {
	r.log.WarnContext(ctx, "report failed, trying again", "outcomes", len(batch), "err", err)
	code := tasker.CodeOf(err)
	switch {
	case code == tasker.NotFound:
		r.registerAgain(ctx, id)
		r.requeue(batch)
	case !refused(err):
		r.requeue(batch)
	case len(batch) > 1:
		r.most = len(batch) / 2
		r.requeue(batch)
		return // at once: another part may be welcome
	default:
		r.refusedAlone(ctx, batch[0], err)
	}
	r.rest.rest(ctx)
}

// refusedAlone handles an outcome that was refused alone. It is sent again after all
// others, so that it does not hold them up.
func (r *reporter) refusedAlone(ctx context.Context, at *attempt, err error) {
	restated := badForm(tasker.CodeOf(err)) && r.restate(at, err.Error())
	if !restated && time.Now().After(at.giveUp) {
		r.log.ErrorContext(ctx, "outcome given up", "task", at.TaskUUID, "step", at.StepUUID, "err", err)
		r.end(at)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, at)
}

// badForm tells codes that blame the outcome itself.
func badForm(code tasker.Code) bool { return code == tasker.Invalid || code == tasker.TooLarge }

// restate turns a success that the engine will not store into a permanent failure
// that says why, so that somebody learns of it. It returns false for a failure.
func (s *shift) restate(at *attempt, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.outcome.Success {
		return false
	}
	at.outcome = tasker.Outcome{Lease: at.Lease(), Failure: &tasker.Failure{
		Message: "the engine refused the result: " + why, Type: InvalidResult,
	}}
	return true
}

// requeue puts outcomes back in front of those that finished meanwhile.
func (s *shift) requeue(batch []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(slices.Clone(batch), s.queue...)
}

// end forgets an attempt whose outcome is settled, and frees its slot.
func (s *shift) end(at *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.attempts, at.Lease())
	wake(s.slot)
}

func (s *shift) unreported() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// executes tells whether any handler runs.
func (s *shift) executes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0
}
