package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/overload"
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
		t.Debounce = tasker.Debounce{Key: d.Key, Wait: secondsToDuration(d.WaitSeconds),
			MaxWait: secondsToDuration(d.MaxWaitSeconds)}
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

func (s *server) listTasks(x *request) error {
	f, err := x.readTaskFilter()
	if err != nil {
		return err
	}
	f.Limit, f.Offset = x.queryInt("limit"), x.queryInt("offset")
	if before := x.queryUUID("before"); before != nil {
		f.Before = *before
	}
	list, more, err := s.db.Tasks(x.ctx, f)
	if err != nil {
		return err
	}
	withoutSteps := func(t tasker.Task) apiv1.Task { return apiv1.FromTask(t, nil) }
	page := apiv1.TaskPage{Limit: f.Limit, Offset: f.Offset, Count: len(list), HasMore: more}
	page.NextBefore = nextCursor(list, more && !f.InOrderOfValues(), func(t tasker.Task) string { return t.UUID.String() })
	return x.respond(http.StatusOK, apiv1.TaskList{Tasks: convert(list, withoutSteps), Pagination: page})
}

func (x *request) readTaskFilter() (tasker.TaskFilter, error) {
	attributes, err := tasker.ParseAttributeFilters(dropEmpty(x.queryTexts("attribute")))
	if err != nil {
		return tasker.TaskFilter{}, err
	}
	f := tasker.TaskFilter{
		State: tasker.TaskState(x.queryText("status")), Phase: tasker.TaskPhase(x.queryText("phase")), Namespace: x.queryText("namespace"), Name: x.queryText("name"),
		DeadLettered: x.queryBool("dead_lettered"), Tags: dropEmpty(x.queryTexts("tag")),
		CorrelationID:  x.queryText("correlation_id"),
		IdempotencyKey: x.queryText("idempotency_key"), Initiator: x.queryText("initiator"),
		SourceSystem: x.queryText("source_system"),
		Attributes:   attributes,
		CreatedAfter: x.queryTime("created_after"), CreatedBefore: x.queryTime("created_before"), Overdue: x.queryFlag("overdue"), DueBefore: x.queryTime("due_before"),
	}
	if parent := x.queryUUID("parent"); parent != nil {
		f.Parent = *parent
	}
	return f, nil
}

func attributeParam() param {
	return textParam("attribute", "Filter by search attribute, as NAME:VALUE, such as customer:4711. Values of numbers and times may begin with >, >=, < or <=. "+
		"With a range and no exact filter, results are ordered by descending value.",
		400).withMaxValues(tasker.MaxSearchConditions)
}

func (s *server) taskListRoutes() []*route {
	return []*route{
		{
			method: "GET", path: "/v1/tasks", id: "listTasks", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary: "List tasks, newest first",
			params: append(taskFilterParams(), attributeParam(), limitParam(defaultLimit), offsetParam(),
				idParam("before", "Page cursor: next_before of the previous page. Unlike with offset, later pages cost the same.")),
			responses: okResponse(apiv1.TaskList{}), serve: s.listTasks,
		},
		{
			method: "POST", path: "/v1/tasks/cancel", id: "cancelTasks", class: overload.Operations, permission: access.CancelTasks, tag: "tasks",
			summary: "Cancel a batch of the open tasks that match a filter",
			doc: "Up to 100 tasks, each in its own transaction, for up to ten seconds. Repeat the request while more is set. Tasks that are being compensated do not change. " +
				"Filters with only a status and times are rejected. With compensate, completed steps are compensated, where their template declares how. Safe to repeat.",
			params: append(taskFilterParams(), attributeParam()), body: apiv1.CancelTasks{},
			responses: okResponse(apiv1.CancelledTasks{}), serve: s.cancelTasks,
		},
		{
			method: "GET", path: "/v1/attributes", id: "listAttributes", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary:   "List search attributes by namespace and name, as declared by templates",
			params:    []param{textParam("namespace", "Filter by namespace.", 128), limitParam(defaultLimit), offsetParam()},
			responses: okResponse(apiv1.AttributeList{}), serve: s.listAttributes,
		},
		{
			method: "PUT", path: taskPath + "/due", id: "changeDue", class: overload.Operations, permission: access.OperateSteps, tag: "tasks",
			summary: "Set the due time of a task or of one of its steps",
			doc: "For operators. It replaces the due time of the request or the template; notifications follow the new one. It is recorded in the history of the task. " +
				"A finished task or step is a CONFLICT.",
			body: apiv1.ChangeDue{}, responses: okResponse(apiv1.Task{}), serve: withBody(s.changeDue),
		},
	}
}

func (s *server) listAttributes(x *request) error {
	list, more, err := s.db.Attributes(x.ctx, x.queryText("namespace"), x.queryInt("limit"), x.queryInt("offset"))
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.AttributeList{Attributes: convert(list, apiv1.FromAttribute), Pagination: x.newPagination(len(list), more)})
}

func dropEmpty(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" })
}

func (s *server) getTask(x *request) error {
	id := x.pathUUID("uuid")
	if wait := time.Duration(x.queryInt("wait_ms")) * time.Millisecond; wait > 0 {
		if err := s.awaitTask(x, id, wait); err != nil {
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
	leave, err := s.gate.Wait(x.ctx, x.route.class, x.caller.Subject)
	if err == nil {
		x.leaveGate = leave
	}
	return err
}

// unknownActor is recorded if the caller is not authenticated and sends no name.
const unknownActor = "unknown"

func (s *server) cancelTask(x *request) error {
	id := x.pathUUID("uuid")
	cancel := s.engine.CancelTask
	if x.queryFlag("compensate") {
		cancel = s.engine.CompensateTask
	}
	if err := cancel(x.ctx, id, x.resolveActorOrUnknown(x.queryText("cancelled_by")), x.queryText("reason")); err != nil {
		return err
	}
	return s.respondWithTask(x, http.StatusOK, id)
}

func (s *server) cancelTasks(x *request) error {
	f, err := x.readTaskFilter()
	if err != nil {
		return err
	}
	var req apiv1.CancelTasks
	if err := x.read(&req); err != nil {
		return err
	}
	batch, err := s.engine.CancelTasks(x.ctx, tasker.CancelBatchRequest{
		Filter: f, Compensate: req.Compensate, Limit: req.Limit, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
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

func (s *server) listTaskTransitions(x *request) error {
	id := x.pathUUID("uuid")
	list, _, err := s.db.TaskTransitions(x.ctx, id, x.queryInt("limit"), x.queryInt("offset"))
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, orEmpty(list))
}
