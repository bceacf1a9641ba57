package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// resultRoutes are those that read results and contexts as steps receive them.
func (s *server) resultRoutes() []*route {
	return []*route{
		{
			method: "GET", path: taskPath + "/context", id: "getTaskContext", class: overload.Reports, needs: access.ReadPayloads, tag: "tasks",
			summary: "The context of a task, as it is",
			about:   "For workers whose claim has context_omitted. The answer is the bare document. A context never changes: the ETag is good for ever.",
			answers: map[int]any{http.StatusOK: json.RawMessage{}, http.StatusNotModified: nil},
			serve:   s.taskContext,
		},
		{
			method: "GET", path: taskPath + "/results/{step}", id: "getStepResult", class: overload.Reports, needs: access.ReadPayloads, tag: "steps",
			summary: "The result of a step, as it is",
			about: "For workers whose claim names results in dependency_result_refs, and for operators. {step} is the step's UUID or its name. " +
				"The answer is the bare document. A step without a result is NOT_FOUND. A result never changes: the ETag is good for ever.",
			answers: map[int]any{http.StatusOK: json.RawMessage{}, http.StatusNotModified: nil},
			serve:   s.stepResult,
		},
		{
			method: "GET", path: taskPath + "/results/{step}/items", id: "getItemResults", class: overload.Reports, needs: access.ReadPayloads, tag: "steps",
			summary: "The results of the items of a step of type map, in their order",
			about: "For workers whose dependency is a map step of which the result says results_truncated, and for operators. {step} is the step's UUID or its name. " +
				"A page ends before its results have too many bytes, and next says where the next one begins.",
			params:  []param{intParam("from", "Only those from this ordinal on: next of the page before.", 0, maxOffset, 0)},
			answers: map[int]any{http.StatusOK: apiv1.ItemResults{}},
			serve:   s.itemResults,
		},
	}
}

// ids returns the task and the step of a path, which names the step by its UUID or its name.
func (s *server) ids(x *request) (task, step tasker.ID, err error) {
	task = x.id("uuid")
	step, err = s.stepNamed(x, task, x.word("step"))
	return task, step, err
}

func (s *server) listSteps(x *request) error {
	task := x.id("uuid")
	list, err := s.db.Steps(x.ctx, task)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, convert(list, apiv1.FromStep))
}

func (s *server) oneStep(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	found, err := s.db.Step(x.ctx, task, step)
	return respondWith(x, http.StatusOK, found, err, apiv1.FromStep)
}

// stepItems lists the items of a map step.
func (s *server) stepItems(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	list, next, err := s.db.MapItems(x.ctx, task, step, tasker.MapItemFilter{State: tasker.StepState(x.text("state")), From: x.int("from"), Limit: x.int("limit")})
	if err != nil {
		return err
	}
	out := apiv1.StepItemList{Items: convert(list, apiv1.FromStep)}
	if next > 0 {
		out.Next = &next
	}
	return x.answer(http.StatusOK, out)
}

// itemResults answers with results of the items of a map step.
func (s *server) itemResults(x *request) error {
	task := x.id("uuid")
	name := x.word("step")
	var step *tasker.ID
	if id, err := parseID(name); err == nil {
		step = &id
	}
	page, err := s.db.ItemResultsFrom(x.ctx, task, step, name, x.int("from"))
	if err != nil {
		return err
	}
	out := apiv1.ItemResults{Results: page.Results}
	if page.Next > 0 {
		out.Next = &page.Next
	}
	return x.answer(http.StatusOK, out)
}

func (s *server) stepTransitions(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	list, _, err := s.db.StepTransitions(x.ctx, task, step, x.int("limit"), x.int("offset"))
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, orEmpty(list))
}

// stepResult answers with the bare result of a step, which is named by its id or by
// its name.
func (s *server) stepResult(x *request) error {
	task := x.id("uuid")
	name := x.word("step")
	var step *tasker.ID
	if id, err := parseID(name); err == nil {
		step = &id
	}
	doc, err := s.db.StepResult(x.ctx, task, step, name, tasker.MaxAnswerBytes)
	if err != nil {
		return err
	}
	return x.bare(doc)
}

// taskContext answers with the context of a task.
func (s *server) taskContext(x *request) error {
	task := x.id("uuid")
	doc, err := s.db.TaskContext(x.ctx, task)
	if err != nil {
		return err
	}
	return x.bare(doc)
}

// bare answers with a document that never changes, and nothing around it.
func (x *request) bare(doc json.RawMessage) error {
	tag := `"` + apiv1.DocumentTag(doc) + `"`
	h := x.w.Header()
	h.Set("ETag", tag)
	if x.r.Header.Get("If-None-Match") == tag {
		x.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	err := x.send(http.StatusOK, jsonMedia, doc)
	if err != nil {
		h.Del("ETag")
	}
	return err
}

// The three shapes of [apiv1.StepAction], as the specification has them. They are for the
// schema; what fits one of them is decoded as a whole.
type (
	// ResetForRetry gives a step new attempts.
	ResetForRetry struct {
		ActionType string `json:"action_type" enum:"reset_for_retry"`
		Reason     string `json:"reason" minLength:"1" maxLength:"20000"`
		ResetBy    string `json:"reset_by" minLength:"1" maxLength:"255"`
		Interrupt  bool   `json:"interrupt,omitempty" doc:"Take the step out of the hands of a worker that holds it, or from its child task."`
		Child      string `json:"child,omitempty" enum:"new" doc:"new: a child step starts another task, also in place of one that is complete or can still come to be, which is cancelled. Left out: it waits for such a one."`

		DiscardCheckpoint bool `json:"discard_checkpoint,omitempty" doc:"Remove what workers have saved of the step, so that it begins anew; of a map step, of its items that are not done."`
	}
	// ResolveManually passes over a step: those that depend on it get no result of it.
	ResolveManually struct {
		ActionType string `json:"action_type" enum:"resolve_manually"`
		Reason     string `json:"reason" minLength:"1" maxLength:"20000"`
		ResolvedBy string `json:"resolved_by" minLength:"1" maxLength:"255"`
		Interrupt  bool   `json:"interrupt,omitempty" doc:"Take the step out of the hands of a worker that holds it."`
	}
	// CompleteManually gives a step a result in place of its handler.
	CompleteManually struct {
		ActionType     string               `json:"action_type" enum:"complete_manually"`
		CompletionData apiv1.CompletionData `json:"completion_data"`
		Reason         string               `json:"reason" minLength:"1" maxLength:"20000"`
		CompletedBy    string               `json:"completed_by" minLength:"1" maxLength:"255"`
		Interrupt      bool                 `json:"interrupt,omitempty" doc:"Take the step out of the hands of a worker that holds it."`
	}
)

// A stepAction is one of the three.
type stepAction struct{ apiv1.StepAction }

// Schema says so.
func (stepAction) Schema(r huma.Registry) *huma.Schema {
	s := &huma.Schema{Discriminator: &huma.Discriminator{PropertyName: "action_type", Mapping: map[string]string{}}}
	for action, shape := range map[tasker.StepAction]reflect.Type{
		tasker.ResetForRetry:    reflect.TypeFor[ResetForRetry](),
		tasker.ResolveManually:  reflect.TypeFor[ResolveManually](),
		tasker.CompleteManually: reflect.TypeFor[CompleteManually](),
	} {
		s.Discriminator.Mapping[string(action)] = r.Schema(shape, true, "").Ref
	}
	for _, action := range []tasker.StepAction{tasker.ResetForRetry, tasker.ResolveManually, tasker.CompleteManually} {
		s.OneOf = append(s.OneOf, &huma.Schema{Ref: s.Discriminator.Mapping[string(action)]})
	}
	return s
}

func (s *server) operateStep(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	var req apiv1.StepAction
	if err := x.read(&req); err != nil {
		return err
	}
	op := tasker.ActionRequest{
		Action: tasker.StepAction(req.ActionType), Reason: req.Reason, Interrupt: req.Interrupt,
		Actor: x.actor(cmp.Or(req.ResetBy, req.ResolvedBy, req.CompletedBy)),
	}
	op.NewChild, op.DiscardCheckpoint = req.Child == apiv1.NewChild, req.DiscardCheckpoint
	if req.CompletionData != nil {
		op.Result, op.Metadata = req.CompletionData.Result, optionalDocument(req.CompletionData.Metadata)
	}
	op.RequestKey = x.requestKey()
	after, err := s.engine.OperateStep(x.ctx, task, step, op)
	return respondWith(x, http.StatusOK, after, err, apiv1.FromStep)
}

// stepNamed returns the step of a task that is named by its UUID or its name.
func (s *server) stepNamed(x *request, task tasker.ID, name string) (tasker.ID, error) {
	if id, err := parseID(name); err == nil {
		return id, nil
	}
	return s.db.StepNamed(x.ctx, task, name)
}

func (s *server) completeStep(x *request) error {
	task, step, err := s.ids(x)
	if err != nil {
		return err
	}
	var req apiv1.Completion
	if err := x.read(&req); err != nil {
		return err
	}
	outcome := tasker.Outcome{Success: req.Success, Result: req.Result, Metadata: optionalDocument(req.Metadata)}
	switch {
	case req.Success && req.Error != nil:
		return invalidBody([]tasker.Fault{{Path: "error", Message: "is there although success is true"}})
	case !req.Success && req.Error == nil:
		return invalidBody([]tasker.Fault{{Path: "error", Message: "is missing: a failure says {message, …}"}})
	case !req.Success:
		outcome.Failure = failureOf(*req.Error)
	}
	after, err := s.engine.CompleteExternal(x.ctx, task, step, outcome, x.actor(req.Source))
	return respondWith(x, http.StatusOK, after, err, apiv1.FromStep)
}
