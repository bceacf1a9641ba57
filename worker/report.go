package worker

import (
	"context"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// maxBatchBytes bounds the outcomes of one report, unless a single one is larger.
const maxBatchBytes = 1 << 20

// How long a reporter waits for more outcomes before it sends a batch: a fraction of the
// duration of the last report, within a limit.
const (
	gatherShare  = 8
	gatherAtMost = 10 * time.Millisecond
)

// A reporter sends outcomes and claims steps with the same call. One report is in flight at
// a time: what finishes meanwhile is sent with the next, so batches grow with the load and
// an idle worker does not wait. Reports that fail are passed to the resenders, so that they
// do not delay others.
type reporter struct {
	*run

	rest     backoff
	most     window
	troubled bool // the last report failed: the next one claims nothing
}

// report sends outcomes until the shift is closing and all are sent, or ctx ends.
func (s *run) report(ctx context.Context) {
	r := &reporter{run: s, most: newWindow()}
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

// take returns the next outcomes to report, and how many steps to claim with them: one for
// each of their slots, and one for each free slot without a pending claim.
func (r *reporter) take() (batch []*attempt, slots int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := fitting(r.queue, r.most.size)
	batch, r.queue = slices.Clone(r.queue[:n]), r.queue[n:]
	if !r.draining && !r.troubled && len(batch) > 0 {
		slots = min(max(r.free()+len(batch), 0), maxBatch)
		r.reserved += slots
	}
	return batch, slots
}

// fitting returns how many of the first outcomes go into one report: most at most.
func fitting(list []*attempt, most int) int {
	bytes := 0
	for i, at := range list {
		bytes += size(at.outcome)
		if i == most || i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(list)
}

func size(o tasker.Outcome) int {
	n := len(o.Result) + len(o.Metadata)
	if o.Failure != nil {
		n += len(o.Failure.Message) + len(o.Failure.Context)
	}
	return n
}

func (r *reporter) send(ctx context.Context, batch []*attempt, slots int) {
	began := time.Now()
	receipt, err := r.deliver(ctx, batch, slots)
	r.start(ctx, receipt.Next, slots, began)
	r.troubled = err != nil
	if err != nil {
		if slow := time.Since(began) > slowReport; slow || refused(err) {
			r.most.shrink(len(batch))
			r.resize(func(w *window) { w.shrink(len(batch)) })
		}
		r.resend(&r.unsure, batch)
		r.rest.rest(ctx, err)
		return
	}
	r.most.grow()
	r.rest.reset()
	r.resend(&r.unsure, r.answered(ctx, batch, receipt))
	if len(receipt.Next) > 0 {
		r.gather(ctx, min(time.Since(began)/gatherShare, gatherAtMost))
	}
}

// deliver sends one report. At a backend that has forgotten the worker it registers again.
func (s *run) deliver(ctx context.Context, batch []*attempt, slots int) (tasker.Receipt, error) {
	outcomes := make([]tasker.Outcome, len(batch))
	for i, at := range batch {
		outcomes[i] = at.outcome
	}
	id, sent := s.id(), time.Now()
	receipt, err := s.backend.Report(ctx, id, outcomes, slots)
	if err != nil {
		if !s.refusesKey(ctx, err) {
			s.log.WarnContext(ctx, "report failed, trying again", "outcomes", len(batch), "err", err)
		}
		if isUnknownWorker(err, id) {
			s.registerAgain(ctx, id)
		}
		return tasker.Receipt{}, err
	}
	s.succeeded(ctx, sent)
	return receipt, nil
}

// gather waits a moment for more of the steps that were just claimed to finish. Otherwise a
// busy worker would alternate between small and large batches, and a small report costs the
// backend nearly as much as a large one.
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

// settled is in the message of a rejection if the backend could not store an outcome and
// recorded the attempt as failed instead, with the reason as its cause.
const settled = "the attempt was failed"

// What a rejection leaves to do. An answer names steps: of two attempts of one step in a batch it does
// not tell which one it means, and the highest of these counts for both.
const (
	toDrop   = iota // nothing: the outcome does not count
	toRevise        // to send it in another form
	toRepeat        // to send it again
)

// unsettled says what a rejection leaves to do.
func unsettled(x tasker.Rejection) int {
	switch x.Code {
	case tasker.Unavailable, tasker.Internal:
		return toRepeat
	case tasker.Invalid, tasker.TooLarge:
		if !strings.Contains(x.Message, settled) {
			return toRevise
		}
		return toDrop
	default:
		return toDrop
	}
}

// answered ends the attempts whose outcomes were accepted or rejected, and returns those to
// send again: revised ones, and those whose state the backend did not know. Their slots
// stay taken.
func (s *run) answered(ctx context.Context, batch []*attempt, receipt tasker.Receipt) (again []*attempt) {
	rejected := make(map[tasker.ID]tasker.Rejection, len(receipt.Rejected))
	for _, x := range receipt.Rejected {
		if before, twice := rejected[x.StepUUID]; !twice || unsettled(x) > unsettled(before) {
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
		case no && unsettled(x) == toRevise:
			s.revise(ctx, at, x)
			again = append(again, at)
		case no && unsettled(x) == toDrop:
			s.log.WarnContext(ctx, "outcome refused", "task", at.TaskUUID, "step", at.StepUUID, "code", x.Code, "err", x.Message)
			s.end(at)
		case !no && accepted[at.StepUUID]:
			s.end(at)
		default:
			s.postpone(at, longRest)
			again = append(again, at)
		}
	}
	return again
}

// end forgets an attempt whose outcome is settled, and frees its slot.
func (s *run) end(at *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(at)
}

// forget is end for a caller that holds the mutex.
func (s *run) forget(at *attempt) {
	s.remove(at)
	wake(s.slot)
}

func (s *run) unreported() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// executes reports whether any handler runs.
func (s *run) executes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0
}
