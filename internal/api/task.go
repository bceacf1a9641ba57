package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
)

func (s *server) createTask(x *request, req apiv1.CreateTask) error {
	t, err := toNewTask(req)
	if err != nil {
		return err
	}
	if err := x.checkNamespace(t.Namespace); err != nil {
		return err
	}
	t.Initiator = x.resolveActor(t.Initiator)
	created, err := s.engine.CreateTasks(x.ctx, []tasker.NewTask{t})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created[0].New {
		status = http.StatusCreated
	}
	return s.respondWithCreated(x, status, created[0])
}

// respondWithCreated sends the task of a create request. It reads a new task from the database only if
// the inserted rows are incomplete. If that fails, it sends the inserted rows: after an error, the
// caller would create another task.
func (s *server) respondWithCreated(x *request, status int, c engine.Created) error {
	if c.IsWhole() {
		t, steps := c.Inserted()
		return x.respond(status, withWarnings(apiv1.FromTask(t, steps), c))
	}
	t, steps, err := s.readTask(x, c.TaskUUID)
	if err != nil && c.New {
		s.log.WarnContext(x.ctx, "could not read a new task; responding with the inserted rows", "task_uuid", c.TaskUUID, "err", err)
		t, steps = c.Inserted()
		err = nil
	}
	if err != nil {
		return err
	}
	return x.respond(status, withWarnings(apiv1.FromTask(t, steps), c))
}

func withWarnings(t apiv1.Task, c engine.Created) apiv1.Task {
	t.Warnings = c.Warnings
	return t
}

func (s *server) createTasks(x *request) error {
	var req []apiv1.CreateTask
	if err := x.read(&req); err != nil {
		return err
	}
	list := make([]tasker.NewTask, len(req))
	for i, r := range req {
		var err error
		if list[i], err = toNewTask(r); err != nil {
			return fmt.Errorf("tasks[%d]: %w", i, err)
		}
		if err := x.checkNamespace(list[i].Namespace); err != nil {
			return fmt.Errorf("tasks[%d]: %w", i, err)
		}
		list[i].Initiator = x.resolveActor(list[i].Initiator)
	}
	created, err := s.engine.CreateTasks(x.ctx, list)
	if err != nil {
		return err
	}
	status := http.StatusOK
	answer := apiv1.CreatedTasks{Tasks: make([]apiv1.CreatedTask, len(created))}
	for i, c := range created {
		answer.Tasks[i] = apiv1.CreatedTask{TaskUUID: c.TaskUUID.String(), Created: c.New, Warnings: c.Warnings}
		if c.New {
			status = http.StatusCreated
		}
	}
	return x.respond(status, answer)
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

func (s *server) readTask(x *request, id tasker.ID) (tasker.Task, []tasker.Step, error) {
	t, err := s.db.Task(x.ctx, id)
	if err != nil {
		return t, nil, err
	}
	steps, err := s.db.Steps(x.ctx, id)
	return t, steps, err
}

func (s *server) respondWithTask(x *request, status int, id tasker.ID) error {
	t, steps, err := s.readTask(x, id)
	if err != nil {
		return err
	}
	return x.respond(status, apiv1.FromTask(t, steps))
}

func (s *server) listTasks(x *request, f tasker.TaskFilter) error {
	list, more, err := s.db.Tasks(x.ctx, f)
	if err != nil {
		return err
	}
	withoutSteps := func(t tasker.Task) apiv1.Task { return apiv1.FromTask(t, nil) }
	page := apiv1.TaskPage{Limit: f.Limit, Offset: f.Offset, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more && !f.InOrderOfValues(), func(t tasker.Task) string { return t.UUID.String() })
	return x.respond(http.StatusOK, apiv1.TaskList{Tasks: convert(list, withoutSteps), Pagination: page})
}

func (s *server) listAttributes(x *request, q apiv1.NamespaceQuery) error {
	list, more, err := s.db.Attributes(x.ctx, q.Namespace, q.Limit, q.Offset)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.AttributeList{Attributes: orEmpty(list), Pagination: newPagination(q.Page, len(list), more)})
}

func (s *server) getTask(x *request, q apiv1.TaskQuery) error {
	id := x.pathUUID("uuid")
	if q.Wait > 0 {
		if err := s.awaitTask(x, id, q.Wait); err != nil {
			return err
		}
	}
	return s.explainMissing(x.ctx, id, s.respondWithTask(x, http.StatusOK, id))
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

func (s *server) cancelTask(x *request, q apiv1.CancelTaskQuery) error {
	id := x.pathUUID("uuid")
	cancel := s.engine.CancelTask
	if q.Compensate {
		cancel = s.engine.CompensateTask
	}
	if err := cancel(x.ctx, id, x.resolveActorOrUnknown(q.CancelledBy), q.Reason); err != nil {
		return err
	}
	return s.respondWithTask(x, http.StatusOK, id)
}

func (s *server) cancelTasks(x *request, q apiv1.TaskSelection) error {
	var req apiv1.CancelTasks
	if err := x.read(&req); err != nil {
		return err
	}
	batch, err := s.engine.CancelTasks(x.ctx, tasker.CancelBatchRequest{
		Filter: q.TaskFilter, Compensate: req.Compensate, Limit: req.Limit, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.FromCancelBatch(batch))
}

func (s *server) changeDue(x *request, req apiv1.ChangeDue) error {
	id := x.pathUUID("uuid")
	if _, err := s.db.Task(x.ctx, id); err != nil {
		return err
	}
	c := tasker.DueUpdate{DueAt: req.DueAt, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason}
	if req.Step != "" {
		var err error
		if c.StepUUID, err = s.findStepByName(x, id, req.Step); err != nil {
			return err
		}
	}
	if _, err := s.engine.ChangeDue(x.ctx, id, c); err != nil {
		return err
	}
	return s.respondWithTask(x, http.StatusOK, id)
}

func (s *server) listTaskTransitions(x *request, page apiv1.HistoryPage) error {
	id := x.pathUUID("uuid")
	list, _, err := s.db.TaskTransitions(x.ctx, id, page.Limit, page.Offset)
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}
