package api

import (
	"cmp"
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
	t, err := newTask(req)
	if err != nil {
		return err
	}
	if err := x.mayUse(t.Namespace); err != nil {
		return err
	}
	t.Initiator = x.actor(t.Initiator)
	created, err := s.engine.CreateTasks(x.ctx, []tasker.NewTask{t})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created[0].New {
		status = http.StatusCreated
	}
	return s.answerCreated(x, status, created[0])
}

// answerCreated answers with the task that a request led to. A new one is read only if
// that tells more than what was stored, and what was created is said even if it cannot be
// read: a caller that gets an error creates it again.
func (s *server) answerCreated(x *request, status int, c engine.Created) error {
	if c.IsWhole() {
		t, steps := c.Inserted()
		return x.answer(status, withWarnings(apiv1.FromTask(t, steps), c))
	}
	t, steps, err := s.readTask(x, c.TaskUUID)
	if err != nil && c.New {
		s.log.WarnContext(x.ctx, "a new task cannot be read; answering with what was stored", "task_uuid", c.TaskUUID, "err", err)
		t, steps = c.Inserted()
		err = nil
	}
	if err != nil {
		return err
	}
	return x.answer(status, withWarnings(apiv1.FromTask(t, steps), c))
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
		if list[i], err = newTask(r); err != nil {
			return fmt.Errorf("tasks[%d]: %w", i, err)
		}
		if err := x.mayUse(list[i].Namespace); err != nil {
			return fmt.Errorf("tasks[%d]: %w", i, err)
		}
		list[i].Initiator = x.actor(list[i].Initiator)
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
	return x.answer(status, answer)
}

// newTask reads a request that fits its schema.
func newTask(r apiv1.CreateTask) (tasker.NewTask, error) {
	t := tasker.NewTask{
		Namespace: r.Namespace, Name: r.Name, Version: r.Version, Context: optionalDocument(r.Context), Initiator: r.Initiator,
		SourceSystem: r.SourceSystem, Reason: r.Reason, Priority: r.Priority, Tags: r.Tags,
		CorrelationID: r.CorrelationID, ParentCorrelationID: r.ParentCorrelationID, IdempotencyKey: r.IdempotencyKey,
	}
	t.StartAt, t.StartBy = timeOf(r.StartAt), timeOf(r.StartBy)
	t.StartAfter, t.StartWithin = seconds(r.StartAfterSeconds), seconds(r.StartWithinSeconds)
	t.DueAt, t.DueAfter = timeOf(r.DueAt), seconds(r.DueAfterSeconds)
	if r.Unique != nil {
		t.Unique = tasker.Unique{Key: r.Unique.Key, OnConflict: tasker.ConflictPolicy(r.Unique.OnConflict)}
	}
	if d := r.Debounce; d != nil {
		t.Debounce = tasker.Debounce{Key: d.Key, Wait: seconds(d.WaitSeconds), MaxWait: seconds(d.MaxWaitSeconds)}
	}
	if r.RecreatedFrom != "" {
		var err error
		if t.RecreatedFrom, err = parseID(r.RecreatedFrom); err != nil {
			return t, tasker.Errorf(tasker.Invalid, "recreated_from %w", err)
		}
	}
	return t, nil
}

// timeOf returns an instant of a request. The zero instant is moved, because it would mean none.
func timeOf(t *time.Time) (at time.Time) {
	if t == nil {
		return at
	}
	if at = *t; at.IsZero() {
		at = at.Add(1)
	}
	return at
}

// seconds returns a time that a request gives in seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s *server) readTask(x *request, id tasker.ID) (tasker.Task, []tasker.Step, error) {
	t, err := s.db.Task(x.ctx, id)
	if err != nil {
		return t, nil, err
	}
	steps, err := s.db.Steps(x.ctx, id)
	return t, steps, err
}

func (s *server) answerTask(x *request, status int, id tasker.ID) error {
	t, steps, err := s.readTask(x, id)
	if err != nil {
		return err
	}
	return x.answer(status, apiv1.FromTask(t, steps))
}

func (s *server) listTasks(x *request) error {
	f, err := x.taskFilter()
	if err != nil {
		return err
	}
	f.Limit, f.Offset = x.int("limit"), x.int("offset")
	if before := x.uuid("before"); before != nil {
		f.Before = *before
	}
	list, more, err := s.db.Tasks(x.ctx, f)
	if err != nil {
		return err
	}
	withoutSteps := func(t tasker.Task) apiv1.Task { return apiv1.FromTask(t, nil) }
	page := apiv1.TaskPage{Limit: f.Limit, Offset: f.Offset, Count: len(list), HasMore: more}
	if more && !f.InOrderOfValues() {
		page.NextBefore = new(list[len(list)-1].UUID.String())
	}
	return x.answer(http.StatusOK, apiv1.TaskList{Tasks: convert(list, withoutSteps), Pagination: page})
}

// taskFilter reads what tasks are found by.
func (x *request) taskFilter() (tasker.TaskFilter, error) {
	attributes, err := tasker.ParseAttributeFilters(nonEmpty(x.texts("attribute")))
	if err != nil {
		return tasker.TaskFilter{}, err
	}
	f := tasker.TaskFilter{
		State: tasker.TaskState(x.text("status")), Phase: tasker.TaskPhase(x.text("phase")), Namespace: x.text("namespace"), Name: x.text("name"),
		DeadLettered: x.bool("dead_lettered"), Tags: nonEmpty(x.texts("tag")), CorrelationID: x.text("correlation_id"),
		IdempotencyKey: x.text("idempotency_key"), Initiator: x.text("initiator"), SourceSystem: x.text("source_system"),
		Attributes:   attributes,
		CreatedAfter: x.time("created_after"), CreatedBefore: x.time("created_before"), Overdue: isTrue(x.bool("overdue")), DueBefore: x.time("due_before"),
	}
	if parent := x.uuid("parent"); parent != nil {
		f.Parent = *parent
	}
	return f, nil
}

func attributeParam() param {
	return textParam("attribute", "Only those with this search attribute, as NAME:VALUE, such as customer:4711; of a number or time the value may begin with >, >=, < or <=. "+
		"With such a range and nothing else that has one value, the largest value is first.", 400).upTo(tasker.MaxSearchConditions)
}

// taskListRoutes are what tasks are found by.
func (s *server) taskListRoutes() []*route {
	return []*route{
		{
			method: "GET", path: "/v1/tasks", id: "listTasks", class: overload.Reads, needs: access.ReadTasks, tag: "tasks",
			summary: "List tasks, newest first",
			params: append(taskFilterParams(), attributeParam(), limitParam(defaultLimit), offsetParam(),
				idParam("before", "Only those that are older than this task: next_before of the page before. A page costs the same however far behind it is, other than with offset.")),
			answers: map[int]any{http.StatusOK: apiv1.TaskList{}},
			serve:   s.listTasks,
		},
		{
			method: "POST", path: "/v1/tasks/cancel", id: "cancelTasks", class: overload.Operations, needs: access.CancelTasks, tag: "tasks",
			summary: "Cancel a part of the open tasks that fit a filter",
			about: "Up to 100 tasks, for up to ten seconds, each in a transaction of its own. What is cancelled does not fit any more: ask again while the answer says more. Tasks that undo what they have done stay as they are. " +
				"The filter must name more than a status and a time. With compensate what their completed steps have done is undone, where their template says how. Safe to repeat.",
			params:  append(taskFilterParams(), attributeParam()),
			body:    apiv1.CancelTasks{},
			answers: map[int]any{http.StatusOK: apiv1.CancelledTasks{}},
			serve:   s.cancelTasks,
		},
		{
			method: "GET", path: "/v1/attributes", id: "listAttributes", class: overload.Reads, needs: access.ReadTasks, tag: "tasks",
			summary: "The attributes that tasks are found by, as templates declare them, by namespace and name",
			params:  []param{textParam("namespace", "Only those of this namespace.", 128), limitParam(defaultLimit), offsetParam()},
			answers: map[int]any{http.StatusOK: apiv1.AttributeList{}},
			serve:   s.listAttributes,
		},
		{
			method: "PUT", path: taskPath + "/due", id: "changeDue", class: overload.Operations, needs: access.OperateSteps, tag: "tasks",
			summary: "Give a task, or a step of it, another due time",
			about: "For operators: people are told of the new one as of any other. It takes the place of what the request or the template said, and is in the history of the task. " +
				"A task or a step that has ended is a CONFLICT.",
			body:    apiv1.ChangeDue{},
			answers: map[int]any{http.StatusOK: apiv1.Task{}},
			serve:   withBody(s.changeDue),
		},
	}
}

func (s *server) listAttributes(x *request) error {
	list, more, err := s.db.Attributes(x.ctx, x.text("namespace"), x.int("limit"), x.int("offset"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.AttributeList{Attributes: convert(list, apiv1.FromAttribute), Pagination: x.pageOf(len(list), more)})
}

func nonEmpty(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" })
}

func (s *server) oneTask(x *request) error {
	id := x.id("uuid")
	return s.answerTask(x, http.StatusOK, id)
}

// unknownActor is who acts where nobody says who they are.
const unknownActor = "unknown"

func (s *server) cancelTask(x *request) error {
	id := x.id("uuid")
	cancel := s.engine.CancelTask
	if compensate := x.bool("compensate"); compensate != nil && *compensate {
		cancel = s.engine.CompensateTask
	}
	if err := cancel(x.ctx, id, cmp.Or(x.actor(x.text("cancelled_by")), unknownActor), x.text("reason")); err != nil {
		return err
	}
	return s.answerTask(x, http.StatusOK, id)
}

func (s *server) cancelTasks(x *request) error {
	f, err := x.taskFilter()
	if err != nil {
		return err
	}
	var req apiv1.CancelTasks
	if err := x.read(&req); err != nil {
		return err
	}
	batch, err := s.engine.CancelTasks(x.ctx, tasker.CancelBatchRequest{
		Filter: f, Compensate: req.Compensate, Limit: req.Limit, DryRun: req.DryRun, Actor: cmp.Or(x.actor(req.By), unknownActor), Reason: req.Reason,
	})
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.FromCancelBatch(batch))
}

func (s *server) changeDue(x *request, req apiv1.ChangeDue) error {
	id := x.id("uuid")
	if _, err := s.db.Task(x.ctx, id); err != nil {
		return err
	}
	c := tasker.DueUpdate{DueAt: req.DueAt, Actor: cmp.Or(x.actor(req.By), unknownActor), Reason: req.Reason}
	if req.Step != "" {
		var err error
		if c.StepUUID, err = s.stepNamed(x, id, req.Step); err != nil {
			return err
		}
	}
	if _, err := s.engine.ChangeDue(x.ctx, id, c); err != nil {
		return err
	}
	return s.answerTask(x, http.StatusOK, id)
}

func (s *server) taskTree(x *request) error {
	id := x.id("uuid")
	tree, err := s.db.TaskTree(x.ctx, id)
	return respondWith(x, http.StatusOK, tree, err, apiv1.FromTaskTree)
}

func (s *server) taskTransitions(x *request) error {
	id := x.id("uuid")
	list, _, err := s.db.TaskTransitions(x.ctx, id, x.int("limit"), x.int("offset"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, orEmpty(list))
}
