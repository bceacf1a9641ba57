package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// batchFor limits the duration of a batch, so that its result is returned before the request times
// out.
const batchFor = 10 * time.Second

// CancelTasks cancels a batch of the open tasks that match a filter. Each task is cancelled in its
// own transaction, as by [Engine.CancelTask] or [Engine.CompensateTask]. A batch ends after r.Limit
// tasks or ten seconds; a repeated call continues. Tasks that are already being compensated are
// skipped.
func (e *Engine) CancelTasks(ctx context.Context, r tasker.CancelBatchRequest) (tasker.CancelBatch, error) {
	var batch tasker.CancelBatch
	if err := checkCancelBatch(&r); err != nil {
		return batch, err
	}
	part, more, err := e.listOpenTasks(ctx, r.Filter, r.Limit)
	if err != nil {
		return batch, err
	}
	batch.HasMore, batch.Sample = more, part[:min(len(part), tasker.MaxCancelSample)]
	if r.DryRun {
		batch.Cancelled = len(part)
		return batch, nil
	}
	cancel := e.CancelTask
	if r.Compensate {
		cancel = e.CompensateTask
	}
	begun := e.now()
	for _, t := range part {
		if e.now().Sub(begun) > batchFor {
			batch.HasMore = true
			break
		}
		err := cancel(ctx, t.UUID, r.Actor, r.Reason)
		switch code := tasker.CodeOf(err); {
		case err == nil:
			batch.Cancelled++
		case ctx.Err() != nil, code == tasker.Unavailable:
			return batch, err
		case code == tasker.NotFound, code == tasker.Conflict: // ended or removed in the meantime
		default:
			e.log.ErrorContext(ctx, "could not cancel a task of a bulk cancellation", "task_uuid", t.UUID, "err", err)
			batch.Failed++
		}
	}
	return batch, nil
}

// listOpenTasks returns the first open tasks that match a filter, ordered by state. It omits tasks
// that are being compensated.
func (e *Engine) listOpenTasks(ctx context.Context, f tasker.TaskFilter, limit int) (part []tasker.Task, more bool, err error) {
	states := slices.DeleteFunc(core.Resting(), hasEnded)
	if f.State != "" {
		states = []tasker.TaskState{f.State}
	}
	f.NotUndone = true
	for _, f.State = range states {
		f.Limit = max(limit-len(part), 1) // a limit of 1 shows whether there are more
		list, beyond, err := e.db.Tasks(ctx, f)
		if err != nil {
			return nil, false, err
		}
		if len(part) == limit {
			more = more || len(list) > 0
			continue
		}
		part, more = append(part, list...), more || beyond
	}
	return part, more, nil
}

func hasEnded(s tasker.TaskState) bool {
	return s == tasker.TaskComplete || s == tasker.TaskCancelled || s == tasker.TaskResolvedManually
}

func checkCancelBatch(r *tasker.CancelBatchRequest) error {
	r.Limit = cmp.Or(r.Limit, tasker.MaxCancelBatch)
	r.Filter.Limit, r.Filter.Offset = 0, 0
	f := r.Filter
	switch {
	case r.Limit < 0 || r.Limit > tasker.MaxCancelBatch:
		return tasker.Errorf(tasker.Invalid, "limit: must be from 1 to %d, not %d", tasker.MaxCancelBatch, r.Limit)
	case f.Phase != "":
		return tasker.Errorf(tasker.Invalid, "phase: tasks that are being compensated must be cancelled one at a time")
	case hasEnded(f.State):
		return tasker.Errorf(tasker.Invalid,
			"invalid status %q: tasks in this state have ended and cannot be cancelled", f.State)
	case f.Namespace+f.Name+f.CorrelationID+f.IdempotencyKey+f.Initiator+f.SourceSystem == "" && len(f.Tags)+len(f.Attributes) == 0 && f.Parent == tasker.ID{}:
		return tasker.Errorf(tasker.Invalid,
			"filter too broad: set at least one filter, such as a namespace, a template or a tag")
	}
	for _, text := range []struct {
		path, text string
		limit      int
	}{{"actor", r.Actor, 255}, {"reason", r.Reason, 2000}} {
		if wrong := checkText(text.text, text.limit, !r.DryRun); wrong != "" {
			return tasker.Errorf(tasker.Invalid, "%s: %s", text.path, wrong)
		}
	}
	return nil
}
