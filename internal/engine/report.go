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
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// outcome is a [core.Outcome] with the additional data that the engine needs to apply and report it.
type outcome struct {
	core.Outcome
	Detail string

	unstorable error           // why a reported success failed the attempt: an unstorable or invalid result
	undecided  bool            // not applied because the time was used up
	failure    *tasker.Failure // failure of the attempt, or nil
	given      json.RawMessage // result of an external step as reported
}

// Report applies the outcomes of attempts independently of each other. A repeated outcome is
// accepted and has no effect. If claim is positive, Report also claims up to that many steps for
// the worker.
func (e *Engine) Report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return e.reportAndThen(ctx, worker, outcomes, postgres.NextClaim{Limit: claim})
}

// ReportReady is [Engine.Report] for workers that consume announcements from a message broker. It
// claims only steps that the outcomes made ready; these are not announced.
func (e *Engine) ReportReady(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return e.reportAndThen(ctx, worker, outcomes, postgres.NextClaim{Limit: claim, OnlyReady: true})
}

func (e *Engine) reportAndThen(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, c postgres.NextClaim) (tasker.Receipt, error) {
	ctx = postgres.WithConnClass(ctx, postgres.Work)
	e.outages.reported.Store(e.now().UnixNano())
	m, err := e.findMember(ctx, worker)
	if err != nil {
		return tasker.Receipt{}, err
	}
	c.Limit = min(c.Limit, maxClaim)
	var receipt tasker.Receipt
	var next *postgres.ClaimResult
	for len(outcomes) > 0 {
		first, again := splitRepeated(outcomes)
		var want *postgres.NextClaim
		if len(again) == 0 && c.Limit > 0 {
			c.Claimant = e.newClaimant(worker, m)
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
	// The outcomes are committed, so a failing claim must not make the report fail.
	if next != nil {
		handing, cancel := claimContext(ctx)
		defer cancel()
		if next.IsBlocked() {
			e.removeBlockers(handing, c.Claimant, *next)
		}
		receipt.Next, err = e.buildAssignments(handing, worker, next.Steps)
	} else {
		receipt.Next, _, err = e.claim(ctx, worker, m, c.Limit)
	}
	if err != nil {
		e.log.WarnContext(ctx, "outcomes applied, but claiming the next steps failed", "worker_uuid", worker, "err", err)
	}
	return receipt, nil
}

// splitRepeated splits outcomes so that first contains at most one outcome per step.
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
) (*postgres.ClaimResult, error) {
	var list []outcome
	for _, o := range outcomes {
		o.Failure = e.boundRetry(o.Failure)
		v, err := evaluateOutcome(worker, o)
		if err != nil && o.Success {
			v, err = newUnstorableOutcome(worker, o, err)
		}
		if err != nil {
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: o.StepUUID, Code: tasker.CodeOf(err), Message: err.Error()})
			continue
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, nil // nothing to report or claim
	}
	moved, next, err := e.concludeOrKeep(ctx, list, want)
	if err != nil {
		return nil, err
	}
	var remaining []outcome
	for i, v := range list {
		if slices.Contains(moved, i) {
			v.addTo(receipt)
		} else if v.undecided {
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(v.StepUUID))
		} else {
			remaining = append(remaining, v)
		}
	}
	undecided, err := e.reportDecisions(ctx, remaining, receipt)
	switch {
	case err == nil:
		e.explainRejections(ctx, worker, undecided, receipt)
	case next == nil || len(next.Steps) == 0:
		return nil, err
	default: // the claimed steps are committed, so the worker must receive them
		e.log.WarnContext(ctx, "steps claimed, but applying decisions failed", "worker_uuid", worker, "err", err)
		for _, v := range remaining {
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(v.StepUUID))
		}
	}
	return next, nil
}

// addTo adds an applied outcome to the receipt. It is accepted, or rejected if its result made the
// attempt fail.
func (v outcome) addTo(receipt *tasker.Receipt) {
	if v.unstorable == nil {
		receipt.Accepted = append(receipt.Accepted, v.StepUUID)
		return
	}
	receipt.Rejected = append(receipt.Rejected, tasker.Rejection{
		StepUUID: v.StepUUID, Code: tasker.CodeOf(v.unstorable),
		Message: v.unstorable.Error() + "; the attempt was failed with this reason",
	})
}

// boundRetry makes a failure permanent if its retry delay exceeds Options.MaxRetryAfter.
func (e *Engine) boundRetry(f *tasker.Failure) *tasker.Failure {
	if f == nil || f.RetryAfter <= e.opts.Leases.MaxRetryAfter {
		return f
	}
	bounded := *f
	bounded.Retryable = false
	bounded.Message += fmt.Sprintf(" (not retried: retry_after_ms %d exceeds the "+
		"limit of %s)", f.RetryAfter.Milliseconds(), e.opts.Leases.MaxRetryAfter)
	return &bounded
}

// evaluateOutcome validates and converts a reported outcome. It returns an error if the result
// cannot be stored or a failure has no error.
func evaluateOutcome(worker tasker.ID, o tasker.Outcome) (outcome, error) {
	v := outcome{Outcome: core.Outcome{
		TaskUUID: o.TaskUUID, StepUUID: o.StepUUID, From: tasker.StepInProgress, Fence: o.Fence, Worker: &worker,
	}}
	var err error
	if o.Success {
		v.Event = core.Succeed
		v.Body, v.ResultSize, err = encodeResult(o.Result, o.Metadata)
	} else {
		if o.Failure == nil {
			return v, tasker.Errorf(tasker.Invalid,
				"the outcome of step %s is a failure without an error: set error {message, …}", o.StepUUID)
		}
		v.Event = core.Fail
		v.setFailure(*o.Failure)
		v.Body, err = encodeFailure(*o.Failure, worker.String())
	}
	if err != nil {
		return v, err
	}
	v.Digest = v.computeDigest()
	return v, nil
}

// newUnstorableOutcome converts a success whose result cannot be stored into a permanent failure.
// If the report were refused instead, the lease would expire as if the worker were lost.
func newUnstorableOutcome(worker tasker.ID, o tasker.Outcome, reason error) (outcome, error) {
	if code := tasker.CodeOf(reason); code != tasker.Invalid && code != tasker.TooLarge {
		return outcome{}, reason
	}
	v, err := evaluateOutcome(worker, tasker.Outcome{Lease: o.Lease, Failure: &tasker.Failure{
		Message: "the result cannot be stored: " + reason.Error(), Type: tasker.InvalidResult,
	}})
	v.unstorable = reason
	return v, err
}

func (v *outcome) setFailure(f tasker.Failure) {
	v.failure = &f
	v.Retryable, v.RetryAfter, v.Detail = f.Retryable, f.RetryAfter, tasker.RetriesExhausted
	if !f.Retryable {
		v.Detail = tasker.PermanentFailure
	}
}

// encodeResult encodes a result for storage. It also returns the size of the result in bytes.
func encodeResult(result, metadata json.RawMessage) (body json.RawMessage, resultSize int, err error) {
	if len(result) == 0 {
		result = json.RawMessage("null")
	}
	if resultSize, err = payload.Measure(result, payload.Limits{}); err != nil {
		return nil, 0, wrapPath("result", err)
	}
	if len(metadata) > 0 {
		if err := payload.Check(metadata, payload.Limits{}); err != nil {
			return nil, 0, wrapPath("metadata", err)
		}
	}
	body, err = json.Marshal(tasker.StepResult{Success: true, Result: result, Metadata: metadata})
	return body, resultSize, err
}

// Limits of stored failures.
const (
	maxMessage        = fingerprint.MaxStored
	maxType           = 255
	maxFailureContext = 64 << 10

	maxFingerprintBytes = 4 * tasker.MaxFingerprint
)

// encodeFailure encodes a failure for storage. It cleans and truncates a failure, but never rejects
// it.
func encodeFailure(f tasker.Failure, worker string) (json.RawMessage, error) {
	whole := payload.CleanText(f.Message, math.MaxInt)
	body := tasker.StepFailure{
		Message:   payload.CutMiddle(whole, maxMessage, fingerprint.NewTruncationMark(whole)),
		Type:      payload.CleanText(f.Type, maxType),
		Retryable: f.Retryable, WorkerUUID: worker, RetryAfter: f.RetryAfter.Milliseconds(), Fingerprint: truncate(payload.CleanText(f.Fingerprint, maxFingerprintBytes), tasker.MaxFingerprint),
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

// decodeFailure decodes a document that encodeFailure encoded.
func decodeFailure(body json.RawMessage) (tasker.Failure, error) {
	var f tasker.StepFailure
	err := json.Unmarshal(body, &f)
	return tasker.Failure{
		Message: f.Message, Type: f.Type, Retryable: f.Retryable, RetryAfter: time.Duration(f.RetryAfter) * time.Millisecond, Fingerprint: f.Fingerprint, Context: f.Context,
	}, err
}

// truncate returns at most the first most characters of a string.
func truncate(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most])
	}
	return s
}

// Time limit of explain, and the number of times that it tries each query.
const (
	explainTime  = 5 * time.Second
	explainTries = 3
)

// explainRejections adds outcomes that had no effect to the receipt. They are accepted if they had
// been applied before. Otherwise they are rejected with a reason, and the rejection is recorded. If
// the database is unavailable, the worker is asked to report again.
func (e *Engine) explainRejections(ctx context.Context, worker tasker.ID, list []outcome, receipt *tasker.Receipt) {
	if len(list) == 0 {
		return
	}
	// The accepted outcomes are committed, so the receipt is needed even if the request has timed
	// out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	leases := mapSlice(list, func(v outcome) tasker.Lease {
		return tasker.Lease{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID, Fence: v.Fence}
	})
	var marks map[tasker.ID]postgres.StepLease
	err := retryTransient(ctx, func() (err error) {
		marks, err = e.db.StepLeases(ctx, leases)
		return err
	})
	if err != nil {
		e.log.WarnContext(ctx, "reading reported steps failed; the worker is asked to report again", "worker_uuid", worker, "err", err)
		for _, v := range list {
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(v.StepUUID))
		}
		return
	}
	var rejected []postgres.RejectedReport
	for i, v := range list {
		m, exists := marks[v.StepUUID]
		same, err := e.isRepeat(ctx, v, m)
		switch {
		case err != nil:
			e.log.WarnContext(ctx, "comparing repeated reports failed; the worker is asked to report again", "step_uuid", v.StepUUID, "err", err)
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(v.StepUUID))
		case !exists:
			receipt.Rejected = append(receipt.Rejected, tasker.Rejection{
				StepUUID: v.StepUUID, Code: tasker.NotFound, Message: fmt.Sprintf("task %s has no step %s", v.TaskUUID, v.StepUUID),
			})
		case same:
			v.addTo(receipt)
		default:
			rejected = append(rejected, postgres.RejectedReport{
				Lease: leases[i], WorkerUUID: worker, Success: v.To() == tasker.StepComplete || v.unstorable != nil, Step: m, Message: staleLeaseReason(m, v, worker),
			})
		}
	}
	e.recordRejected(ctx, rejected, receipt)
}

// recordRejected records rejected reports and adds them to the receipt.
func (e *Engine) recordRejected(ctx context.Context, rejected []postgres.RejectedReport, receipt *tasker.Receipt) {
	if len(rejected) == 0 {
		return
	}
	err := retryTransient(ctx, func() error { return e.db.RecordRejected(ctx, rejected) })
	if err != nil {
		e.log.WarnContext(ctx, "recording rejected reports failed; the worker is asked to report again", "worker_uuid", rejected[0].WorkerUUID, "err", err)
	}
	for _, r := range rejected {
		if err != nil {
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(r.StepUUID))
			continue
		}
		receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: r.StepUUID, Code: tasker.StaleLease, Message: r.Message})
	}
}

// newUnansweredRejection is the rejection of a report whose effect is unknown at the moment.
func newUnansweredRejection(step tasker.ID) tasker.Rejection {
	return tasker.Rejection{
		StepUUID: step, Code: tasker.Unavailable,
		Message: "the result of this report is temporarily unknown: send it again",
	}
}

// retryTransient calls f until it succeeds, but at most explainTries times.
func retryTransient(ctx context.Context, f func() error) error {
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
		return "the lease_token was not issued to this worker for this step"
	case m.Fence == v.Fence && m.State == string(tasker.StepInProgress) && (m.WorkerUUID == nil || *m.WorkerUUID != worker):
		return "the step is leased to another worker"
	default:
		return explainLost(m, v)
	}
}

// computeDigest identifies reports that are repeated byte for byte. The method repeats compares
// others.
func (v outcome) computeDigest() []byte {
	sum := sha256.Sum256(append([]byte(v.Event), v.Body...))
	return sum[:]
}

// isRepeat reports whether v equals the report that concluded its attempt. It compares the result
// of a success, or the type, message and retryability of a failure. It ignores metadata, context
// and retry delay.
func (e *Engine) isRepeat(ctx context.Context, v outcome, m postgres.StepLease) (bool, error) {
	if m.ReportedFence == nil || *m.ReportedFence != v.Fence {
		return false, nil
	}
	if bytes.Equal(m.ReportDigest, v.Digest) {
		return true, nil
	}
	var stored json.RawMessage
	err := retryTransient(ctx, func() (err error) {
		stored, err = e.db.ReportedBody(ctx, v.TaskUUID, v.StepUUID, v.Fence, v.To())
		return err
	})
	if err != nil || stored == nil {
		return false, err
	}
	was, err := encodeReportedFacts(v.To(), stored)
	if err != nil {
		return false, err
	}
	is, err := encodeReportedFacts(v.To(), v.Body)
	return bytes.Equal(was, is), err
}

// encodeReportedFacts returns the parts of a report that repeats compares.
func encodeReportedFacts(to tasker.StepState, body json.RawMessage) ([]byte, error) {
	if to == tasker.StepComplete {
		var r tasker.StepResult
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("decode a stored result: %w", err)
		}
		return payload.Canonical(r.Result)
	}
	var f tasker.StepFailure
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("decode a stored failure: %w", err)
	}
	return json.Marshal([]any{f.Type, f.Message, f.Retryable})
}
