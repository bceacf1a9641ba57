package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// maxClaimWait is the longest wait for steps that a server accepts in a claim.
const maxClaimWait = time.Minute

// Backend connects a worker of package worker to a server over HTTP. It has the same methods as
// the embedded engine.
type Backend struct{ client *Client }

// Backend returns a backend for package worker that uses c.
func (c *Client) Backend() *Backend { return &Backend{client: c} }

// RegisterWorker registers a worker.
func (b *Backend) RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error) {
	answer, err := b.client.RegisterWorker(ctx, apiv1.RegisterWorker{
		Name: w.Name, Namespaces: w.Namespaces, Handlers: w.Handlers, Version: w.Version, MaxConcurrency: w.MaxConcurrency,
		Protocol: apiv1.WorkerProtocol,
	})
	if err != nil {
		return tasker.Registration{}, toWorkerError(err)
	}
	if answer.Protocol > apiv1.WorkerProtocol { // 0: a server without the field
		return tasker.Registration{}, tasker.Errorf(tasker.Unsupported,
			"the server uses version %d of the worker protocol, this SDK version %d: update the SDK", answer.Protocol, apiv1.WorkerProtocol)
	}
	id, err := readID("worker_uuid", answer.WorkerUUID)
	return tasker.Registration{
		WorkerUUID:        id,
		HeartbeatInterval: time.Duration(answer.HeartbeatIntervalMS) * time.Millisecond,
		LeaseDuration:     time.Duration(answer.LeaseMS) * time.Millisecond,
		ClaimIsHeartbeat:  answer.ClaimIsHeartbeat,
		Dispatch:          answer.Dispatch.ToDispatch(),
	}, err
}

// Claim claims up to limit steps. If there are none, it waits up to wait, at most a minute.
func (b *Backend) Claim(ctx context.Context, worker tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error) {
	wait = max(0, min(wait, maxClaimWait))
	answer, err := b.client.Claim(ctx, worker, apiv1.ClaimSteps{Max: limit, WaitMS: int(wait.Milliseconds())})
	if err != nil {
		return nil, toWorkerError(err)
	}
	return toAssignments(answer.Steps)
}

// TakeSteps claims announced steps. It skips steps that are no longer enqueued or that the worker
// cannot execute.
func (b *Backend) TakeSteps(ctx context.Context, worker tasker.ID, steps []tasker.StepRef) ([]tasker.Assignment, error) {
	q := apiv1.TakeSteps{Steps: make([]apiv1.StepRef, len(steps))}
	for i, s := range steps {
		q.Steps[i] = apiv1.StepRef{TaskUUID: s.TaskUUID.String(), StepUUID: s.StepUUID.String()}
	}
	answer, err := b.client.Take(ctx, worker, q)
	if err != nil {
		return nil, toWorkerError(err)
	}
	return toAssignments(answer.Steps)
}

// Heartbeat extends leases and returns which of them are lost.
func (b *Backend) Heartbeat(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (tasker.Beat, error) {
	answer, err := b.client.Heartbeat(ctx, worker, toLeases(leases))
	if err != nil {
		return tasker.Beat{}, toWorkerError(err)
	}
	if answer.Extended == nil || answer.Lost == nil {
		return tasker.Beat{}, newIncompleteError("extended and lost")
	}
	var beat tasker.Beat
	for _, x := range answer.Extended {
		id, err := readID("step_uuid", x.StepUUID)
		if err != nil {
			return tasker.Beat{}, err
		}
		beat.Extended = append(beat.Extended, tasker.LeaseExtension{StepUUID: id, ExpiresAt: x.LeaseExpiresAt})
	}
	beat.Drain = answer.Drain
	beat.Lost, err = readIDs("lost", answer.Lost)
	return beat, err
}

// Report reports outcomes and claims up to claim further steps.
func (b *Backend) Report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return b.report(ctx, worker, outcomes, claim, false)
}

// ReportReady reports outcomes and claims up to claim of the steps that they make ready. The
// server must support it ([tasker.Dispatch].ClaimsReady).
func (b *Backend) ReportReady(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	return b.report(ctx, worker, outcomes, claim, true)
}

func (b *Backend) report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int, ready bool) (tasker.Receipt, error) {
	q := apiv1.ReportResults{Results: make([]apiv1.Result, len(outcomes))}
	for i, o := range outcomes {
		q.Results[i] = toResult(o)
	}
	if claim > 0 {
		q.Claim, q.ClaimReady = &apiv1.ClaimSteps{Max: claim}, ready
	}
	answer, err := b.client.Report(ctx, worker, q)
	if err != nil {
		return tasker.Receipt{}, toWorkerError(err)
	}
	if answer.Accepted == nil || answer.Rejected == nil {
		return tasker.Receipt{}, newIncompleteError("accepted and rejected")
	}
	var receipt tasker.Receipt
	if receipt.Accepted, err = readIDs("accepted", answer.Accepted); err != nil {
		return tasker.Receipt{}, err
	}
	for _, r := range answer.Rejected {
		id, err := readID("step_uuid", r.StepUUID)
		if err != nil {
			return tasker.Receipt{}, err
		}
		receipt.Rejected = append(receipt.Rejected, tasker.Rejection{StepUUID: id, Code: tasker.Code(r.Code), Message: r.Message})
	}
	receipt.Next, err = toAssignments(answer.Steps)
	return receipt, err
}

// Release returns claimed steps to their queue without using an attempt.
func (b *Backend) Release(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (released, lost []tasker.ID, err error) {
	answer, err := b.client.Release(ctx, worker, toLeases(leases))
	if err != nil {
		return nil, nil, toWorkerError(err)
	}
	if answer.Released == nil || answer.Lost == nil {
		return nil, nil, newIncompleteError("released and lost")
	}
	if released, err = readIDs("released", answer.Released); err != nil {
		return nil, nil, err
	}
	lost, err = readIDs("lost", answer.Lost)
	return released, lost, err
}

// SaveCheckpoint stores the checkpoint of a step for its later attempts.
func (b *Backend) SaveCheckpoint(ctx context.Context, worker tasker.ID, l tasker.Lease, value json.RawMessage) error {
	lease := apiv1.Lease{StepUUID: l.StepUUID.String(), LeaseToken: l.Token}
	return toWorkerError(b.client.SaveCheckpoint(ctx, worker, apiv1.SaveCheckpoint{Lease: lease, Checkpoint: value}))
}

// StepResult returns the result of a step as its dependents receive it.
func (b *Backend) StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error) {
	doc, err := b.client.StepResult(ctx, task, step)
	return doc, toWorkerError(err)
}

// TaskContext returns the whole context of a task.
func (b *Backend) TaskContext(ctx context.Context, task tasker.ID) (json.RawMessage, error) {
	doc, err := b.client.TaskContext(ctx, task)
	return doc, toWorkerError(err)
}

// ItemResults returns a page of the results of a map step as its dependents receive them.
func (b *Backend) ItemResults(ctx context.Context, task tasker.ID, step string, from int) (tasker.ItemResults, error) {
	answer, err := b.client.ItemResults(ctx, task, step, from)
	if err != nil {
		return tasker.ItemResults{}, toWorkerError(err)
	}
	if answer.Results == nil {
		return tasker.ItemResults{}, newIncompleteError("results")
	}
	page := tasker.ItemResults{Results: answer.Results}
	if answer.Next != nil {
		page.Next = *answer.Next
	}
	return page, nil
}

// DrainWorker drains a worker. It returns NotFound if the server does not know the worker or does
// not support draining.
func (b *Backend) DrainWorker(ctx context.Context, worker tasker.ID) error {
	_, err := b.client.DrainWorker(ctx, worker)
	return toWorkerError(err)
}

// LeaveWorker unregisters a worker.
func (b *Backend) LeaveWorker(ctx context.Context, worker tasker.ID) error {
	return toWorkerError(b.client.LeaveWorker(ctx, worker))
}

func toLeases(leases []tasker.Lease) apiv1.Leases {
	out := apiv1.Leases{Leases: make([]apiv1.Lease, len(leases))}
	for i, l := range leases {
		out.Leases[i] = apiv1.Lease{StepUUID: l.StepUUID.String(), LeaseToken: l.Token}
	}
	return out
}

func toResult(o tasker.Outcome) apiv1.Result {
	r := apiv1.Result{
		StepUUID: o.StepUUID.String(), LeaseToken: o.Token,
		Success: o.Success, Result: o.Result, Metadata: o.Metadata,
	}
	if f := o.Failure; f != nil {
		r.Error = &apiv1.ResultError{
			Message: f.Message, Type: f.Type, Retryable: &f.Retryable, Context: f.Context, Fingerprint: f.Fingerprint,
			RetryAfterMS: int64((f.RetryAfter + time.Millisecond - 1) / time.Millisecond), // never earlier than requested
		}
	}
	return r
}

func toAssignments(steps []apiv1.ClaimedStep) ([]tasker.Assignment, error) {
	if steps == nil {
		return nil, newIncompleteError("steps")
	}
	list := make([]tasker.Assignment, 0, len(steps))
	for _, s := range steps {
		step, err := readID("step_uuid", s.StepUUID)
		if err != nil {
			return nil, err
		}
		task, err := readID("task_uuid", s.TaskUUID)
		if err != nil {
			return nil, err
		}
		refs, err := toResultRefs(s.DependencyResultRefs)
		if err != nil {
			return nil, err
		}
		list = append(list, tasker.Assignment{
			StepUUID: step, TaskUUID: task, Namespace: s.Namespace, TaskName: s.TaskName, TaskVersion: s.TaskVersion,
			Name: s.Name, Handler: s.Handler, Attempt: s.Attempt, MaxAttempts: s.MaxAttempts, LeaseToken: s.LeaseToken,
			LeaseExpiresAt: s.LeaseExpiresAt, Deadline: s.Deadline, CorrelationID: s.CorrelationID,
			Context: s.Context, DependencyResults: s.DependencyResults, DependencyRefs: refs, Initialization: s.Initialization, Item: s.Item, Index: s.Index, Checkpoint: s.Checkpoint,
			ContextOmitted: s.ContextOmitted,
		})
	}
	return list, nil
}

func toResultRefs(refs map[string]apiv1.ResultRef) (map[string]tasker.ResultRef, error) {
	if len(refs) == 0 {
		return nil, nil //nolint:nilnil // no references
	}
	out := make(map[string]tasker.ResultRef, len(refs))
	for name, r := range refs {
		step, err := readID("step_uuid", r.StepUUID)
		if err != nil {
			return nil, err
		}
		out[name] = tasker.ResultRef{StepUUID: step, Bytes: r.Bytes}
	}
	return out, nil
}

func readID(field, text string) (tasker.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return tasker.ID{}, newInvalidIDError(field, text)
	}
	return id, nil
}

func readIDs(field string, texts []string) ([]tasker.ID, error) {
	ids := make([]tasker.ID, 0, len(texts))
	for _, text := range texts {
		id, err := readID(field, text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func newInvalidIDError(field, text string) error {
	return tasker.Errorf(tasker.Unavailable,
		"invalid %s in the server's response: %q; is it a Tasker server?", field, text)
}

// newIncompleteError is the error for a JSON response without required fields.
func newIncompleteError(fields string) error {
	return tasker.Errorf(tasker.Unavailable, "missing %s in the server's response; is it a Tasker server?", fields)
}
