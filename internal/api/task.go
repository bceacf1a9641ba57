package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
)

func (s *server) createTask(x *request, req apiv1.CreateTask) (tasker.Task, error) {
	created, err := s.create(x, []apiv1.CreateTask{req}, func(int) string { return "" })
	if err != nil {
		return tasker.Task{}, err
	}
	t, err := s.readCreated(x, created[0])
	t.Warnings = created[0].Warnings
	return t, err
}

// readCreated returns the task of a create request. It reads a new task from the database only if
// the inserted rows are incomplete. If that fails, it returns the inserted rows: after an error, the
// caller would create another task.
func (s *server) readCreated(x *request, c engine.Created) (tasker.Task, error) {
	if !c.IsWhole() {
		t, err := s.readTask(x, c.TaskUUID)
		if err == nil || !c.New {
			return t, err
		}
		s.log.WarnContext(x.ctx, "could not read a new task; responding with the inserted rows", "task_uuid", c.TaskUUID, "err", err)
	}
	t, steps := c.Inserted()
	t.Steps = steps
	return t, nil
}

func (s *server) createTasks(x *request, req []apiv1.CreateTask) (answer apiv1.CreatedTasks, err error) {
	created, err := s.create(x, req, func(i int) string { return fmt.Sprintf("tasks[%d]: ", i) })
	if err != nil {
		return answer, err
	}
	for _, c := range created {
		answer.Tasks = append(answer.Tasks, apiv1.CreatedTask{TaskUUID: c.TaskUUID, Created: c.New, Warnings: c.Warnings})
	}
	return answer, nil
}

// create creates tasks. The status of the response is 200 if none of them is new.
func (s *server) create(x *request, req []apiv1.CreateTask, place func(int) string) ([]engine.Created, error) {
	list := make([]tasker.NewTask, len(req))
	for i, r := range req {
		var err error
		if list[i], err = toNewTask(r); err != nil {
			return nil, fmt.Errorf("%s%w", place(i), err)
		}
		if err := x.checkNamespace(list[i].Namespace); err != nil {
			return nil, fmt.Errorf("%s%w", place(i), err)
		}
		list[i].Initiator = x.resolveActor(list[i].Initiator)
	}
	created, err := s.engine.CreateTasks(x.ctx, list)
	if !slices.ContainsFunc(created, func(c engine.Created) bool { return c.New }) {
		x.status = http.StatusOK
	}
	return created, err
}

// toNewTask converts a validated request.
func toNewTask(r apiv1.CreateTask) (tasker.NewTask, error) {
	t := tasker.NewTask{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: nullToNil(r.Context), Initiator: r.Initiator,
		SourceSystem: r.SourceSystem, Reason: r.Reason, Priority: r.Priority, Tags: r.Tags,
		CorrelationID: r.CorrelationID, ParentCorrelationID: r.ParentCorrelationID, IdempotencyKey: r.IdempotencyKey,
	}
	t.StartAt, t.StartBy = timeOrZero(r.StartAt), timeOrZero(r.StartBy)
	t.StartAfter, t.StartWithin = secondsToDuration(r.StartAfterSeconds), secondsToDuration(r.StartWithinSeconds)
	t.DueAt, t.DueAfter = timeOrZero(r.DueAt), secondsToDuration(r.DueAfterSeconds)
	if r.Unique != nil {
		t.Unique = tasker.Unique{Key: r.Unique.Key, OnConflict: tasker.ConflictPolicy(r.Unique.OnConflict)}
	}
	if d := r.Debounce; d != nil {
		t.Debounce = tasker.Debounce{Key: d.Key, Wait: secondsToDuration(d.WaitSeconds), MaxWait: secondsToDuration(d.MaxWaitSeconds)}
	}
	if r.RecreatedFrom != "" {
		var err error
		if t.RecreatedFrom, err = parseID(r.RecreatedFrom); err != nil {
			return t, tasker.Errorf(tasker.Invalid, "recreated_from %w", err)
		}
	}
	return t, nil
}

// timeOrZero returns *t, or the zero time if t is nil. If *t is itself the zero time, it adds a
// nanosecond to distinguish the two.
func timeOrZero(t *time.Time) (at time.Time) {
	if t == nil {
		return at
	}
	if at = *t; at.IsZero() {
		at = at.Add(1)
	}
	return at
}

func secondsToDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s *server) readTask(x *request, id tasker.ID) (tasker.Task, error) {
	t, err := s.db.Task(x.ctx, id)
	if err == nil {
		t.Steps, err = s.db.Steps(x.ctx, id)
	}
	return t, err
}

func (s *server) listTasks(x *request, f tasker.TaskFilter) (apiv1.TaskList, error) {
	list, more, err := s.db.Tasks(x.ctx, f)
	page := apiv1.TaskPage{Limit: f.Limit, Offset: f.Offset, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more && !f.InOrderOfValues(), func(t tasker.Task) string { return t.UUID.String() })
	return apiv1.TaskList{Tasks: orEmpty(list), Pagination: page}, err
}

func (s *server) listAttributes(x *request, q apiv1.NamespaceQuery) (apiv1.AttributeList, error) {
	list, more, err := s.db.Attributes(x.ctx, q.Namespace, q.Limit, q.Offset)
	return apiv1.AttributeList{Attributes: orEmpty(list), Pagination: newPagination(q.Limit, q.Offset, len(list), more)}, err
}

func (s *server) getTask(x *request, q apiv1.TaskQuery) (tasker.Task, error) {
	id := x.pathUUID("uuid")
	if q.Wait > 0 {
		if err := s.awaitTask(x, id, q.Wait); err != nil {
			return tasker.Task{}, err
		}
	}
	t, err := s.readTask(x, id)
	return t, s.explainMissing(x.ctx, id, err)
}

// awaitTask waits until a task is settled, but at most for the given time and until the server
// stops. It occupies no slot of the request's class meanwhile.
func (s *server) awaitTask(x *request, id tasker.ID, wait time.Duration) error {
	t, err := s.db.Task(x.ctx, id)
	if tasker.CodeOf(err) == tasker.NotFound {
		r, failed := s.db.TaskRequest(x.ctx, id)
		if err = failed; err != nil || r == nil || r.RefusedAt != nil {
			return err // the caller reads the task again
		}
	}
	if err != nil || t.Settled() {
		return err
	}
	x.leaveGate()
	ctx, cancel := context.WithTimeout(x.ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	if err := s.engine.AwaitTask(ctx, id); err != nil && ctx.Err() == nil {
		return err
	}
	if err := x.ctx.Err(); err != nil {
		return err
	}
	leave, err := s.gate.Wait(x.ctx, x.route.Class, x.caller.Subject)
	if err == nil {
		x.leaveGate = leave
	}
	return err
}

// unknownActor is recorded if the caller is not authenticated and sends no name.
const unknownActor = "unknown"

func (s *server) cancelTask(x *request, q apiv1.CancelTaskQuery) (tasker.Task, error) {
	id := x.pathUUID("uuid")
	cancel := s.engine.CancelTask
	if q.Compensate {
		cancel = s.engine.CompensateTask
	}
	if err := cancel(x.ctx, id, x.resolveActorOrUnknown(q.CancelledBy), q.Reason); err != nil {
		return tasker.Task{}, err
	}
	return s.readTask(x, id)
}

func (s *server) cancelTasks(x *request, q apiv1.TaskSelection) (tasker.CancelBatch, error) {
	var req apiv1.CancelTasks
	if err := x.read(&req); err != nil {
		return tasker.CancelBatch{}, err
	}
	batch, err := s.engine.CancelTasks(x.ctx, tasker.CancelBatchRequest{
		Filter: q.TaskFilter, Compensate: req.Compensate, Limit: req.Limit, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	})
	batch.Sample = orEmpty(batch.Sample)
	return batch, err
}

func (s *server) changeDue(x *request, req apiv1.ChangeDue) (t tasker.Task, err error) {
	id := x.pathUUID("uuid")
	if _, err := s.db.Task(x.ctx, id); err != nil {
		return t, err
	}
	c := tasker.DueUpdate{DueAt: req.DueAt, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason}
	if req.Step != "" {
		if c.StepUUID, err = s.findStepByName(x, id, req.Step); err != nil {
			return t, err
		}
	}
	if _, err := s.engine.ChangeDue(x.ctx, id, c); err != nil {
		return t, err
	}
	return s.readTask(x, id)
}

func (s *server) listTaskTransitions(x *request, page apiv1.HistoryPage) ([]tasker.Transition, error) {
	list, _, err := s.db.TaskTransitions(x.ctx, x.pathUUID("uuid"), page.Limit, page.Offset)
	return list, err
}

func (s *server) changeVersion(x *request, req apiv1.ChangeVersion) (tasker.VersionChange, error) {
	change, err := s.engine.ChangeVersion(x.ctx, x.pathUUID("uuid"), tasker.VersionRequest{
		From: req.FromVersion, To: req.ToVersion, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	})
	change = apiv1.FromVersionChange(change)
	if known, ok := errors.AsType[*tasker.Error](err); ok && len(change.Refusals) > 0 {
		err = known.WithDetails(change)
	}
	return change, err
}

func (s *server) listTaskRequests(x *request, f tasker.TaskRequestFilter) (apiv1.TaskRequestList, error) {
	list, more, err := s.db.TaskRequests(x.ctx, f)
	return apiv1.TaskRequestList{Requests: orEmpty(list), Pagination: newPagination(f.Limit, f.Offset, len(list), more)}, err
}

func (s *server) deleteTaskRequest(x *request) (none, error) {
	return none{}, s.db.DeleteTaskRequest(x.ctx, x.pathUUID("task_uuid"), x.resolveActorOrUnknown(""))
}

// explainMissing adds to the error for an unknown task that it is requested.
func (s *server) explainMissing(ctx context.Context, id tasker.ID, err error) error {
	if tasker.CodeOf(err) != tasker.NotFound {
		return err
	}
	r, failed := s.db.TaskRequest(ctx, id)
	switch {
	case failed != nil:
		return failed
	case r == nil:
		return err
	case r.RefusedAt != nil:
		return tasker.Errorf(tasker.NotFound, "task %s not found: it was requested in SQL, and refused: %s: %s", id, r.ErrorCode, r.ErrorMessage)
	default:
		return tasker.Errorf(tasker.NotFound, "task %s not found: it was requested in SQL, and is not created yet", id)
	}
}
