package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/lifecycle"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// An outcome is a conclusion with the investigation for a final failure.
type outcome struct {
	postgres.Conclusion
	Detail string

	unstorable error           // why the result that was reported cannot be stored, or decides nothing
	undecided  bool            // whether the outcome counts: it took too long to find out
	failure    *tasker.Failure // with what the attempt failed
	given      json.RawMessage // the result from outside, as it was given
}

// Report applies the outcomes of attempts independently of each other. A repeated outcome is
// accepted without effect. A positive claim also claims the worker's next steps.
func (e *Engine) Report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return e.reportAnd(ctx, worker, outcomes, postgres.NextClaim{Limit: claim})
}

// ReportReady is [Engine.Report] for workers that are told by a message broker of the steps that wait: with
// the answer come only steps that became ready by the outcomes, of which nobody else was told.
func (e *Engine) ReportReady(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return e.reportAnd(ctx, worker, outcomes, postgres.NextClaim{Limit: claim, OnlyReady: true})
}

func (e *Engine) reportAnd(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, c postgres.NextClaim) (tasker.Receipt, error) {
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	e.reported.Store(e.now().UnixNano())
	m, err := e.member(ctx, worker)
	if err != nil {
		return tasker.Receipt{}, err
	}
	c.Limit = min(c.Limit, maxClaim)
	var receipt tasker.Receipt
	var next *nextSteps
	for len(outcomes) > 0 {
		first, again := splitRepeated(outcomes)
		var want *postgres.NextClaim
		if len(again) == 0 && c.Limit > 0 {
			c.Claimant = e.claimant(worker, m)
			want = &c
		}
		if next, err = e.report(ctx, worker, first, want, &receipt); err != nil {
			return tasker.Receipt{}, err
		}
		outcomes = again
	}
	if c.Limit <= 0 || next == nil && c.OnlyReady {
		return receipt, nil
	}
	// What was reported is committed: a claim that fails must not hide that.
	if next != nil {
		handing, cancel := claimContext(ctx)
		defer cancel()
		if next.Blocked() {
			e.removeBlockers(handing, c.Claimant, next.ClaimResult)
		}
		receipt.Next, err = e.assignments(handing, worker, next.Steps)
	} else {
		receipt.Next, _, err = e.claim(ctx, worker, m, c.Limit)
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
	ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, want *postgres.NextClaim, receipt *tasker.Receipt,
) (*nextSteps, error) {
	var list []outcome
	for _, o := range outcomes {
		o.Failure = e.boundRetry(o.Failure)
		v, err := evaluateOutcome(worker, o)
		if err != nil && o.Success {
			v, err = failUnstorable(worker, o, err)
		}
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
	var left []outcome
	for i, v := range list {
		if slices.Contains(moved, i) {
			v.answer(receipt)
		} else if v.undecided {
			receipt.Rejected = append(receipt.Rejected, unanswered(v.StepUUID))
		} else {
			left = append(left, v)
		}
	}
	undecided, err := e.reportDecisions(ctx, left, receipt)
	switch {
	case err == nil:
		e.explain(ctx, worker, undecided, receipt)
	case next == nil || len(next.Steps) == 0:
		return nil, err
	default: // what was handed out is committed, and lost if nobody hears of it
		e.log.WarnContext(ctx, "next work was handed out, and decisions could not be taken", "worker_uuid", worker, "err", err)
		for _, v := range left {
			receipt.Rejected = append(receipt.Rejected, unanswered(v.StepUUID))
		}
	}
	return next, nil
}

// answer accepts a verdict, or says that the result failed the attempt.
func (v outcome) answer(receipt *tasker.Receipt) {
	if v.unstorable == nil {
		receipt.Accepted = append(receipt.Accepted, v.StepUUID)
		return
	}
	receipt.Rejected = append(receipt.Rejected, tasker.Rejection{
		StepUUID: v.StepUUID, Code: tasker.CodeOf(v.unstorable),
		Message: v.unstorable.Error() + "; the attempt was failed with this reason",
	})
}

// boundRetry makes a failure permanent if its handler asks for a retry later than allowed.
func (e *Engine) boundRetry(f *tasker.Failure) *tasker.Failure {
	if f == nil || f.RetryAfter <= e.maxRetryAfter {
		return f
	}
	bounded := *f
	bounded.Retryable = false
	bounded.Message += fmt.Sprintf(" (not retried: retry_after_ms %d is longer than the limit of %s)", f.RetryAfter.Milliseconds(), e.maxRetryAfter)
	return &bounded
}

// evaluateOutcome turns an outcome into a verdict. It fails for unstorable results or missing errors.
func evaluateOutcome(worker tasker.ID, o tasker.Outcome) (outcome, error) {
	v := outcome{Conclusion: postgres.Conclusion{
		TaskUUID: o.TaskUUID, StepUUID: o.StepUUID, From: tasker.StepInProgress, Fence: o.Fence, Worker: &worker,
	}}
	var err error
	if o.Success {
		v.Event, v.To = lifecycle.Succeed, tasker.StepComplete
		v.Body, v.ResultSize, err = resultBody(o.Result, o.Metadata)
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
	v.Digest = v.digest()
	return v, nil
}

// failUnstorable turns a success whose result cannot be stored into a permanent failure with the
// reason as evidence. Otherwise the lease would expire and blame the worker.
func failUnstorable(worker tasker.ID, o tasker.Outcome, reason error) (outcome, error) {
	if code := tasker.CodeOf(reason); code != tasker.Invalid && code != tasker.TooLarge {
		return outcome{}, reason
	}
	v, err := evaluateOutcome(worker, tasker.Outcome{Lease: o.Lease, Failure: &tasker.Failure{
		Message: "the result cannot be stored: " + reason.Error(), Type: tasker.InvalidResult,
	}})
	v.unstorable = reason
	return v, err
}

func (v *outcome) fail(f tasker.Failure) {
	v.failure = &f
	v.Retryable, v.RetryAfter, v.Detail = f.Retryable, f.RetryAfter.Milliseconds(), tasker.RetriesExhausted
	if !f.Retryable {
		v.Detail = tasker.PermanentFailure
	}
}

// resultBody spells a result as it is stored.
func resultBody(result, metadata json.RawMessage) (body json.RawMessage, resultSize int, err error) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if resultSize, err = payload.Measure(result, payload.Limits{}); err != nil {
		return nil, 0, within("result", err)
	}
	if len(metadata) > 0 {
		if err := payload.Check(metadata, payload.Limits{}); err != nil {
			return nil, 0, within("metadata", err)
		}
	}
	body, err = json.Marshal(tasker.StepResult{Success: true, Result: result, Metadata: metadata})
	return body, resultSize, err
}

// How much of a failure is kept.
const (
	maxMessage        = fingerprint.MaxStored
	maxType           = 255
	maxFailureContext = 64 << 10

	maxFingerprintBytes = 4 * tasker.MaxFingerprint
)

// failureBody spells a failure as it is stored: cut and cleaned, never refused.
func failureBody(f tasker.Failure, worker string) (json.RawMessage, error) {
	whole := payload.CleanText(f.Message, math.MaxInt)
	body := tasker.StepFailure{
		Message: payload.CutMiddle(whole, maxMessage, fingerprint.Mark(whole)), Type: payload.CleanText(f.Type, maxType),
		Retryable: f.Retryable, WorkerUUID: worker, RetryAfter: f.RetryAfter.Milliseconds(), Fingerprint: firstCharacters(payload.CleanText(f.Fingerprint, maxFingerprintBytes), tasker.MaxFingerprint),
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

// failureOf reads what failureBody has spelled.
func failureOf(body json.RawMessage) (tasker.Failure, error) {
	var f tasker.StepFailure
	err := json.Unmarshal(body, &f)
	return tasker.Failure{
		Message: f.Message, Type: f.Type, Retryable: f.Retryable, RetryAfter: time.Duration(f.RetryAfter) * time.Millisecond, Fingerprint: f.Fingerprint, Context: f.Context,
	}, err
}

// firstCharacters returns at most so many characters of a text.
func firstCharacters(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}

// How long it may take to say what became of a report, and how often it is tried.
const (
	explainTime  = 5 * time.Second
	explainTries = 3
)

// explain says of reports that changed nothing whether they had counted before,
// or why they do not count. Each is answered, and each refusal is on record: where
// the database cannot tell or take it, the answer is to send the report again.
func (e *Engine) explain(ctx context.Context, worker tasker.ID, list []outcome, receipt *tasker.Receipt) {
	if len(list) == 0 {
		return
	}
	// What was accepted is committed, so the answer matters even if the worker's
	// patience is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	leases := make([]tasker.Lease, len(list))
	for i, v := range list {
		leases[i] = tasker.Lease{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID, Fence: v.Fence}
	}
	var marks map[tasker.ID]postgres.StepLease
	err := persist(ctx, func() (err error) {
		marks, err = e.db.StepLeases(ctx, leases)
		return err
	})
	if err != nil {
		e.log.WarnContext(ctx, "cannot read where reported steps stand; the worker is asked to report again", "worker_uuid", worker, "err", err)
		for _, v := range list {
			receipt.Rejected = append(receipt.Rejected, unanswered(v.StepUUID))
		}
		return
	}
	var rejected []postgres.RejectedReport
	for i, v := range list {
		m, exists := marks[v.StepUUID]
		same, err := e.repeats(ctx, v, m)
		switch {
		case err != nil:
			e.log.WarnContext(ctx, "cannot compare a report with the one that was accepted; the worker is asked to report again", "step_uuid", v.StepUUID, "err", err)
			receipt.Rejected = append(receipt.Rejected, unanswered(v.StepUUID))
		case !exists:
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{
				StepUUID: v.StepUUID, Code: tasker.NotFound, Message: fmt.Sprintf("task %s has no step %s", v.TaskUUID, v.StepUUID),
			})
		case same:
			v.answer(receipt)
		default:
			rejected = append(rejected, postgres.RejectedReport{
				Lease: leases[i], WorkerUUID: worker, Success: v.To == tasker.StepComplete || v.unstorable != nil, Mark: m, Message: staleLeaseReason(m, v, worker),
			})
		}
	}
	e.reject(ctx, rejected, receipt)
}

// reject refuses reports and keeps that on record.
func (e *Engine) reject(ctx context.Context, rejected []postgres.RejectedReport, receipt *tasker.Receipt) {
	if len(rejected) == 0 {
		return
	}
	err := persist(ctx, func() error { return e.db.RecordRejected(ctx, rejected) })
	if err != nil {
		e.log.WarnContext(ctx, "cannot record refused reports; the worker is asked to report again", "worker_uuid", rejected[0].WorkerUUID, "err", err)
	}
	for _, r := range rejected {
		if err != nil {
			receipt.Rejected = append(receipt.Rejected, unanswered(r.StepUUID))
			continue
		}
		receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: r.StepUUID, Code: tasker.StaleLease, Message: r.Message})
	}
}

// unanswered is the answer to a report whose effect is unknown now.
func unanswered(step tasker.ID) tasker.Rejection {
	return tasker.Rejection{
		StepUUID: step, Code: tasker.Unavailable,
		Message: "what became of this report cannot be read or recorded at the moment; send it again",
	}
}

// persist runs f until it succeeds, a few times.
func persist(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == explainTries || !loop.Sleep(ctx, time.Duration(n)*50*time.Millisecond) {
			return err
		}
	}
}

func staleLeaseReason(m postgres.StepLease, v outcome, worker tasker.ID) string {
	switch {
	case v.Fence == tasker.NoFence:
		return "the lease_token is not one that this worker was given for this step"
	case m.Fence == v.Fence && m.State == string(tasker.StepInProgress) && (m.WorkerUUID == nil || *m.WorkerUUID != worker):
		return "the step is held by another worker"
	default:
		return whyLost(m, v)
	}
}

// digest detects reports repeated verbatim; repeats handles the others.
func (v outcome) digest() []byte {
	sum := sha256.Sum256(append([]byte(v.Event), v.Body...))
	return sum[:]
}

// repeats reports whether v equals the report that concluded its attempt: the result of a success,
// or type, message and retryability of a failure. Metadata, context and retry delay do not count.
func (e *Engine) repeats(ctx context.Context, v outcome, m postgres.StepLease) (bool, error) {
	if m.ReportedFence == nil || *m.ReportedFence != v.Fence {
		return false, nil
	}
	if bytes.Equal(m.ReportDigest, v.Digest) {
		return true, nil
	}
	var stored json.RawMessage
	err := persist(ctx, func() (err error) {
		stored, err = e.db.ReportedBody(ctx, v.TaskUUID, v.StepUUID, v.Fence, v.To)
		return err
	})
	if err != nil || stored == nil {
		return false, err
	}
	was, err := said(v.To, stored)
	if err != nil {
		return false, err
	}
	is, err := said(v.To, v.Body)
	return bytes.Equal(was, is), err
}

// said returns what tells the body of one report from another.
func said(to tasker.StepState, body json.RawMessage) ([]byte, error) {
	if to == tasker.StepComplete {
		var r tasker.StepResult
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("read a stored result: %w", err)
		}
		return payload.Canonical(r.Result)
	}
	var f tasker.StepFailure
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("read a stored failure: %w", err)
	}
	return json.Marshal([]any{f.Type, f.Message, f.Retryable})
}
