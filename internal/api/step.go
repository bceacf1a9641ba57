package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// findStep returns the step in the path, which is a UUID or a name.
func (x *request) findStep() (ref tasker.StepRef, err error) {
	ref.TaskUUID = x.pathUUID("uuid")
	ref.StepUUID, err = x.server.findStepByName(x, ref.TaskUUID, x.pathText("step"))
	return ref, err
}

func (s *server) getStep(x *request, ref tasker.StepRef, _ none) (tasker.Step, error) {
	return s.db.Step(x.ctx, ref.TaskUUID, ref.StepUUID)
}

func (s *server) listStepItems(x *request, f tasker.MapItemFilter) (out apiv1.StepItemList, err error) {
	ref, err := x.findStep()
	if err != nil {
		return out, err
	}
	list, next, err := s.db.MapItems(x.ctx, ref.TaskUUID, ref.StepUUID, f)
	out.Items, out.Next = orEmpty(list), nilIfZero(next)
	return out, err
}

func (s *server) listItemResults(x *request, q apiv1.ItemResultQuery) (apiv1.ItemResults, error) {
	task, step, name := x.readStepRef()
	page, err := s.db.ItemResultsFrom(x.ctx, task, step, name, q.From)
	return apiv1.ItemResults{Results: page.Results, Next: nilIfZero(page.Next)}, err
}

// nilIfZero returns the cursor of the next page. It returns nil for 0, which means the end.
func nilIfZero(next int) *int {
	if next == 0 {
		return nil
	}
	return &next
}

func (s *server) listStepTransitions(x *request, page apiv1.HistoryPage) ([]tasker.Transition, error) {
	ref, err := x.findStep()
	if err != nil {
		return nil, err
	}
	list, _, err := s.db.StepTransitions(x.ctx, ref.TaskUUID, ref.StepUUID, page.Limit, page.Offset)
	return list, err
}

// readStepRef returns the task and the step in the path. step is nil if the step is identified by name.
func (x *request) readStepRef() (task tasker.ID, step *tasker.ID, name string) {
	name = x.pathText("step")
	if id, err := parseID(name); err == nil {
		step = &id
	}
	return x.pathUUID("uuid"), step, name
}

func (s *server) getStepResult(x *request) error {
	task, step, name := x.readStepRef()
	doc, err := s.db.StepResult(x.ctx, task, step, name, tasker.MaxAnswerBytes)
	if err != nil {
		return err
	}
	return x.respondRaw(doc)
}

func (s *server) getTaskContext(x *request) error {
	doc, err := s.db.TaskContext(x.ctx, x.pathUUID("uuid"))
	if err != nil {
		return err
	}
	return x.respondRaw(doc)
}

// respondRaw sends an immutable document with an ETag, or 304 if the client already has it.
func (x *request) respondRaw(doc json.RawMessage) error {
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

// The variants of [apiv1.StepAction] in the OpenAPI document. Requests are decoded into
// apiv1.StepAction.
type (
	// ResetForRetry retries a step with fresh attempts.
	ResetForRetry struct {
		ActionType string `json:"action_type" enum:"reset_for_retry"`
		Reason     string `json:"reason" minLength:"1" maxLength:"20000"`
		ResetBy    string `json:"reset_by" minLength:"1" maxLength:"255"`
		Interrupt  bool   `json:"interrupt,omitempty" doc:"Act even if a worker has claimed the step, or its child task is open."`
		Child      string `json:"child,omitempty" enum:"new" doc:"new: start a new child task, and cancel the current one if it can still complete. By default the step keeps waiting for it."`

		DiscardCheckpoint bool `json:"discard_checkpoint,omitempty" doc:"Delete the checkpoint of the step, so that it starts from the beginning; for a map step, of its unfinished items."`
	}
	// ResolveManually skips a step. Dependent steps get no result.
	ResolveManually struct {
		ActionType string `json:"action_type" enum:"resolve_manually"`
		Reason     string `json:"reason" minLength:"1" maxLength:"20000"`
		ResolvedBy string `json:"resolved_by" minLength:"1" maxLength:"255"`
		Interrupt  bool   `json:"interrupt,omitempty" doc:"Act even if a worker has claimed the step."`
	}
	// CompleteManually completes a step with a given result.
	CompleteManually struct {
		ActionType     string               `json:"action_type" enum:"complete_manually"`
		CompletionData apiv1.CompletionData `json:"completion_data"`
		Reason         string               `json:"reason" minLength:"1" maxLength:"20000"`
		CompletedBy    string               `json:"completed_by" minLength:"1" maxLength:"255"`
		Interrupt      bool                 `json:"interrupt,omitempty" doc:"Act even if a worker has claimed the step."`
	}
)

// stepAction is the body of operateStep, for the OpenAPI schema.
type stepAction struct{ apiv1.StepAction }

// Schema implements huma.SchemaProvider. It returns the union of the variants.
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

func (s *server) operateStep(x *request, ref tasker.StepRef, req apiv1.StepAction) (tasker.Step, error) {
	op := tasker.ActionRequest{
		Action: tasker.StepAction(req.ActionType), Reason: req.Reason, Interrupt: req.Interrupt,
		Actor: x.resolveActor(cmp.Or(req.ResetBy, req.ResolvedBy, req.CompletedBy)),
	}
	op.NewChild, op.DiscardCheckpoint = req.Child == apiv1.NewChild, req.DiscardCheckpoint
	if req.CompletionData != nil {
		op.Result, op.Metadata = req.CompletionData.Result, nullToNil(req.CompletionData.Metadata)
	}
	op.RequestKey = x.idempotencyKey()
	return s.engine.OperateStep(x.ctx, ref.TaskUUID, ref.StepUUID, op)
}

// findStepByName returns the id of a step by its UUID or name.
func (s *server) findStepByName(x *request, task tasker.ID, name string) (tasker.ID, error) {
	if id, err := parseID(name); err == nil {
		return id, nil
	}
	return s.db.StepNamed(x.ctx, task, name)
}

func (s *server) completeStep(x *request, ref tasker.StepRef, req apiv1.Completion) (tasker.Step, error) {
	outcome := tasker.Outcome{Success: req.Success, Result: req.Result, Metadata: nullToNil(req.Metadata)}
	switch {
	case req.Success && req.Error != nil:
		return tasker.Step{}, newInvalidBodyError([]tasker.Fault{{Path: "error", Message: "must be absent if success is true"}})
	case !req.Success && req.Error == nil:
		return tasker.Step{}, newInvalidBodyError([]tasker.Fault{{Path: "error", Message: "is missing: a failure requires {message, …}"}})
	case !req.Success:
		outcome.Failure = toFailure(*req.Error)
	}
	return s.engine.CompleteExternal(x.ctx, ref.TaskUUID, ref.StepUUID, outcome, x.resolveActor(req.Source))
}
