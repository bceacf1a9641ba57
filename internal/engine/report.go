package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker"
	"tasker/internal/lifecycle"
	"tasker/internal/payload"
	"tasker/internal/postgres"
)

// A verdict is what a report amounts to: a conclusion, and what an investigation
// would be about if no attempt is left after it.
type verdict struct {
	postgres.Conclusion
	Detail string
}

// Report takes the outcomes of attempts, each on its own: one that is refused
// does not hold up the others. An outcome that was reported before is accepted
// again and changes nothing. With a positive claim the worker's next steps come
// with the answer.
func (e *Engine) Report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	m, err := e.member(ctx, worker)
	if err != nil {
		return tasker.Receipt{}, err
	}
	claim = min(claim, maxClaim)
	var receipt tasker.Receipt
	var next *handed
	for len(outcomes) > 0 {
		first, again := splitRepeated(outcomes)
		var want *postgres.Handout
		if len(again) == 0 && claim > 0 {
			want = &postgres.Handout{Claimant: e.claimant(worker, m), Limit: claim}
		}
		if next, err = e.report(ctx, worker, first, want, &receipt); err != nil {
			return tasker.Receipt{}, err
		}
		outcomes = again
	}
	if claim <= 0 {
		return receipt, nil
	}
	// What was reported is committed: a claim that fails must not hide that.
	if next != nil {
		handing, cancel := handingOut(ctx)
		defer cancel()
		receipt.Next, err = e.assignments(handing, next.steps)
	} else {
		receipt.Next, err = e.claim(ctx, worker, m, claim)
	}
	if err != nil {
		e.log.WarnContext(ctx, "results were taken, next work was not handed out", "worker_uuid", worker, "err", err)
	}
	return receipt, nil
}

// splitRepeated parts outcomes so that no step is in the first part twice.
func splitRepeated(outcomes []tasker.Outcome) (first, again []tasker.Outcome) {
	seen := make(map[tasker.ID]bool, len(outcomes))
	for _, o := range outcomes {
		if seen[o.StepUUID] {
			again = append(again, o)
			continue
		}
		seen[o.StepUUID] = true
		first = append(first, o)
	}
	return first, again
}

func (e *Engine) report(
	ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, want *postgres.Handout, receipt *tasker.Receipt,
) (*handed, error) {
	var list []verdict
	for _, o := range outcomes {
		v, err := judge(worker, o)
		if err != nil {
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: o.StepUUID, Code: tasker.CodeOf(err), Message: err.Error()})
			continue
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // nothing was reported, and nothing handed out
	}
	moved, next, err := e.concludeOrKeep(ctx, list, want)
	if err != nil {
		return nil, err
	}
	var left []verdict
	for i, v := range list {
		if slices.Contains(moved, i) {
			receipt.Accepted = append(receipt.Accepted, v.StepUUID)
		} else {
			left = append(left, v)
		}
	}
	err = e.explain(ctx, worker, left, receipt)
	if err != nil && next != nil {
		// What was handed out is committed, and lost if nobody hears of it. An outcome
		// that is not answered is reported again.
		e.log.WarnContext(ctx, "cannot say of every outcome what became of it", "worker_uuid", worker, "err", err)
		err = nil
	}
	return next, err
}

// judge turns an outcome into a verdict. A result that cannot be stored is
// refused; a failure never is.
func judge(worker tasker.ID, o tasker.Outcome) (verdict, error) {
	v := verdict{Conclusion: postgres.Conclusion{
		TaskUUID: o.TaskUUID, StepUUID: o.StepUUID, From: tasker.StepInProgress, Fence: o.Fence, Worker: &worker,
	}}
	var err error
	if o.Success {
		v.Event, v.To = lifecycle.Succeed, tasker.StepComplete
		v.Body, err = resultBody(o.Result, o.Metadata)
	} else {
		if o.Failure == nil {
			return v, tasker.Errorf(tasker.Invalid, "the outcome of step %s is a failure without an error: add error {message, …}", o.StepUUID)
		}
		v.Event, v.To = lifecycle.Fail, tasker.StepError
		v.fail(*o.Failure)
		v.Body, err = failureBody(*o.Failure, worker.String())
	}
	if err != nil {
		return v, err
	}
	v.Digest, err = v.identity(o)
	return v, err
}

func (v *verdict) fail(f tasker.Failure) {
	v.Retryable, v.RetryAfter, v.Detail = f.Retryable, f.RetryAfter.Milliseconds(), tasker.RetriesExhausted
	if !f.Retryable {
		v.Detail = tasker.PermanentFailure
	}
}

// resultBody spells a result as it is stored.
func resultBody(result, metadata json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if err := payload.Check(result, payload.Limits{}); err != nil {
		return nil, within("result", err)
	}
	if len(metadata) > 0 {
		if err := payload.Check(metadata, payload.Limits{}); err != nil {
			return nil, within("metadata", err)
		}
	}
	return json.Marshal(tasker.StepResult{Success: true, Result: result, Metadata: metadata})
}

// How much of a failure is kept.
const (
	maxMessage        = 8 << 10
	maxType           = 255
	maxFailureContext = 64 << 10
)

// failureBody spells a failure as it is stored: cut and cleaned, never refused.
func failureBody(f tasker.Failure, worker string) (json.RawMessage, error) {
	body := tasker.StepFailure{
		Message: payload.CleanText(f.Message, maxMessage), Type: payload.CleanText(f.Type, maxType),
		Retryable: f.Retryable, WorkerUUID: worker, RetryAfter: f.RetryAfter.Milliseconds(),
		Context: payload.CleanJSON(f.Context, payload.Limits{Bytes: maxFailureContext}),
	}
	if body.Message == "" {
		body.Message = "the handler failed without a message"
	}
	if body.Type == "" {
		body.Type = "error"
	}
	return json.Marshal(body)
}

// explain says of reports that changed nothing whether they had counted before,
// or why they do not count.
func (e *Engine) explain(ctx context.Context, worker tasker.ID, list []verdict, receipt *tasker.Receipt) error {
	if len(list) == 0 {
		return nil
	}
	leases := make([]tasker.Lease, len(list))
	for i, v := range list {
		leases[i] = tasker.Lease{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID, Fence: v.Fence}
	}
	marks, err := e.db.Marks(ctx, leases)
	if err != nil {
		return err
	}
	var rejected []postgres.RejectedReport
	for i, v := range list {
		m, exists := marks[v.StepUUID]
		switch {
		case !exists:
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{
				StepUUID: v.StepUUID, Code: tasker.NotFound, Message: fmt.Sprintf("task %s has no step %s", v.TaskUUID, v.StepUUID),
			})
		case v.repeats(m):
			receipt.Accepted = append(receipt.Accepted, v.StepUUID)
		default:
			r := postgres.RejectedReport{
				Lease: leases[i], WorkerUUID: worker, Success: v.To == tasker.StepComplete, Mark: m, Message: whyStale(m, v, worker),
			}
			rejected = append(rejected, r)
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: v.StepUUID, Code: tasker.StaleLease, Message: r.Message})
		}
	}
	if len(rejected) == 0 {
		return nil
	}
	return e.db.RecordRejected(ctx, rejected)
}

func whyStale(m postgres.Mark, v verdict, worker tasker.ID) string {
	switch {
	case m.ReportedFence != nil && *m.ReportedFence == v.Fence:
		return fmt.Sprintf("another outcome of this attempt was accepted before; the step is %s", m.State)
	case m.Fence == v.Fence && m.State == string(tasker.StepInProgress) && (m.WorkerUUID == nil || *m.WorkerUUID != worker):
		return "the step is held by another worker"
	default:
		return fmt.Sprintf("the lease is lost: the step is %s and this attempt no longer counts", m.State)
	}
}
