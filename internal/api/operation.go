package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

const (
	operationPath = "/v1/operations/{operation_uuid}"

	planBytes     = 8 << 20 // large enough for the maximum number of selected ids
	dryRunLimit   = 10_000
	arrivalsLimit = 1000
)

func (s *server) operationRoutes() []*route {
	const tag = "operations"
	return []*route{
		{
			method: "POST", path: "/v1/operations", id: "planOperation", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Plan an operation and freeze its steps",
			doc: "For operators. The failed step of each selected open investigation becomes an item, unless the caller lacks the permission to operate steps in its " +
				"namespace. Nothing else changes until the start; a plan that is not started within 30 minutes is aborted. If another operation " +
				"has some of the steps, the CONFLICT contains its id, its planner and their number. " +
				"With an Idempotency-Key a repeated request returns 200 with the operation; a different request with the same key is a CONFLICT.",
			keyed: true, body: apiv1.PlanOperation{}, maxBody: planBytes,
			responses: createdOrOKResponse(apiv1.Operation{}), serve: s.planOperation,
		},
		{
			method: "GET", path: "/v1/operations", id: "listOperations", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "List operations, newest first",
			doc:     "Operations with items in namespaces that the caller cannot see are omitted.",
			params: []param{
				choiceParam("state", "Filter by state.", tasker.OperationStates()), textParam("namespace", "Filter by namespace of the items.", 128), limitParam(defaultLimit), offsetParam(),
			},
			responses: okResponse(apiv1.OperationList{}), serve: s.listOperations,
		},
		{
			method: "GET", path: operationPath, id: "getOperation", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary:   "Get an operation with the number of its items by state",
			responses: okResponse(apiv1.Operation{}), serve: s.getOperation,
		},
		{
			method: "GET", path: operationPath + "/items", id: "listOperationItems", class: overload.Reads, permission: access.ReadInvestigations, tag: tag,
			summary: "List the items of an operation in order",
			params: []param{
				choiceParam("state", "Filter by state.", tasker.ItemStates()),
				intParam("after", "Page cursor: next of the previous page.", 0, tasker.MaxOperationItems, 0), limitParam(triageLimit),
			},
			responses: okResponse(apiv1.OperationItemList{}), serve: s.listOperationItems,
		},
		{
			method: "POST", path: operationPath + "/dry-run", id: "dryRunOperation", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Simulate an operation: apply its action and roll it back",
			doc: "For operators. It applies the action to the planned items, 200 at a time, and rolls each batch back. " +
				"It ends after limit items or 20 seconds; next is the cursor of the next request.",
			body: apiv1.DryRunOperation{}, responses: okResponse(apiv1.OperationDryRun{}), serve: withBody(s.dryRunOperation),
		},
	}
}

func (s *server) operationChangeRoutes() []*route {
	const tag = "operations"
	return []*route{
		{
			method: "POST", path: operationPath + "/start", id: "startOperation", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Start an operation after reviewing its plan",
			doc:     "For operators. Safe to repeat. A plan that expired, was aborted or has a different digest is a CONFLICT.",
			body:    apiv1.StartOperation{}, responses: okResponse(apiv1.Operation{}), serve: withBody(s.startOperation),
		},
		s.newVerbRoute("pause", "Pause an operation: nothing more is released; what is released continues",
			s.operations.Pause),
		s.newVerbRoute("abort", "Abort an operation: nothing more is released; what is released continues",
			s.operations.Abort),
		{
			method: "POST", path: operationPath + "/resume", id: "resumeOperation", class: overload.Operations, permission: access.OperateSteps, tag: tag,
			summary: "Resume a paused operation, repeating its wave",
			doc: "For operators. Safe to repeat; an operation that has ended is a CONFLICT. tolerate changes how many steps of a wave may fail. tolerate_cause ignores " +
				"failures of the causes for which the operation is paused from then on; it is a CONFLICT if the pause is not about failures.",
			body: apiv1.ResumeOperation{}, responses: okResponse(apiv1.Operation{}), serve: withBody(s.resumeOperation),
		},
	}
}

func (*server) newVerbRoute(verb, summary string, do changeOperation) *route {
	return &route{
		method: "POST", path: operationPath + "/" + verb, id: verb + "Operation", class: overload.Operations, permission: access.OperateSteps, tag: "operations",
		summary: summary,
		doc:     "For operators. Safe to repeat; an operation that ended differently is a CONFLICT.",
		body:    apiv1.ChangeOperation{}, responses: okResponse(apiv1.Operation{}),
		serve: withBody(func(x *request, req apiv1.ChangeOperation) error { return x.changeOperation(req.By, do) }),
	}
}

func (s *server) planOperation(x *request) error {
	var req apiv1.PlanOperation
	err := x.read(&req)
	if err != nil {
		return err
	}
	p := tasker.OperationPlan{
		Act: tasker.Act(req.Act.Type), Result: nullToNil(req.Act.Result), ResultExpression: req.Act.ResultExpression, Metadata: nullToNil(req.Act.Metadata), Actor: x.resolveActor(req.PlannedBy), Reason: req.Reason,
		RatePerMinute: req.RatePerMinute, Limit: req.Limit, SkipOverlap: req.Overlap == "skip",
		RequestKey: x.idempotencyKey(),
	}
	if req.Waves != nil {
		p.Waves = append([]int{}, *req.Waves...)
	}
	if g := req.Guards; g != nil {
		p.Guards = tasker.Guards{IgnoreNewCause: g.IgnoreNewCause, WaveTimeout: time.Duration(g.WaveTimeoutSeconds) * time.Second, WorkerAtLeast: g.WorkerAtLeast}
		if p.Guards.Tolerate, err = readTolerance("guards.tolerate", g.Tolerate); err != nil {
			return err
		}
	}
	if p.Selection, err = toSelection(req.Select); err != nil {
		return err
	}
	if n := p.Selection.Filter.Namespace; n != "" {
		if err := x.checkNamespace(n); err != nil {
			return err
		}
	}
	if err := operation.CheckPlanPermission(x.ctx, x.caller.Identity, p.Act); err != nil {
		return err
	}
	o, made, err := s.operations.Plan(x.ctx, p)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	return x.respond(status, apiv1.FromOperation(o))
}

// readTolerance parses a failure tolerance. It returns nil for an empty text.
func readTolerance(path, text string) (*tasker.FailureTolerance, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // absent
	}
	t, err := tasker.ParseTolerance(text)
	if err != nil {
		return nil, newInvalidBodyError([]tasker.Fault{{Path: path, Message: err.Error()}})
	}
	return &t, nil
}

func toSelection(s apiv1.OperationSelection) (tasker.OperationSelection, error) {
	out := tasker.OperationSelection{
		Filter: tasker.InvestigationFilter{
			Reason: tasker.Reason(s.DLQReason), Namespace: s.Namespace, Name: s.Name, State: tasker.TaskState(s.CurrentState),
			Age: time.Duration(s.MinAgeMinutes) * time.Minute, Text: s.Text, Recovered: s.Recovered,
			Tags: s.Tags, CorrelationID: s.CorrelationID,
		},
		WorkerVersion: s.WorkerVersion, FailedSince: s.FailedSince,
	}
	var faults []tasker.Fault
	var err error
	if out.Filter.Attributes, err = tasker.ParseAttributeFilters(s.Attributes); err != nil {
		faults = append(faults, tasker.Fault{Path: "select.attributes", Message: err.Error()})
	}
	if s.CaseID != "" {
		id, err := parseID(s.CaseID)
		if err != nil {
			faults = append(faults, tasker.Fault{Path: "select.case_id", Message: err.Error()})
		}
		out.Filter.Case = &id
	}
	if s.IDs != nil {
		out.IDs = make([]tasker.ID, len(s.IDs))
	}
	for i, text := range s.IDs {
		id, err := parseID(text)
		if err != nil && len(faults) < maxFaults {
			faults = append(faults, tasker.Fault{Path: fmt.Sprintf("select.ids[%d]", i), Message: fmt.Sprintf("%v, not %q", err, truncate(text))})
		}
		out.IDs[i] = id
	}
	if len(faults) > 0 {
		return out, newInvalidBodyError(faults)
	}
	return out, nil
}

func (s *server) listOperations(x *request) error {
	list, more, err := s.db.Operations(x.ctx, tasker.OperationFilter{
		State: tasker.OperationState(x.queryText("state")), Namespace: x.queryText("namespace"), Limit: x.queryInt("limit"), Offset: x.queryInt("offset"),
	})
	if err != nil {
		return err
	}
	return x.respond(http.StatusOK, apiv1.OperationList{Operations: convert(list, apiv1.FromOperation), Pagination: x.newPagination(len(list), more)})
}

func (s *server) getOperation(x *request) error {
	o, err := s.db.Operation(x.ctx, x.pathUUID("operation_uuid"))
	if err != nil {
		return err
	}
	out := apiv1.FromOperation(o)
	if o.Selected == 0 && o.Selection.WorkerVersion == "" && o.Selection.FailedSince == nil {
		n, err := s.db.CountArrivals(x.ctx, o.Selection, o.CreatedAt, arrivalsLimit)
		if err != nil {
			return err
		}
		out.ArrivedSince = &n
	}
	return x.respond(http.StatusOK, out)
}

func (s *server) listOperationItems(x *request) error {
	id := x.pathUUID("operation_uuid")
	if _, err := s.db.Operation(x.ctx, id); err != nil {
		return err
	}
	list, more, err := s.db.OperationItems(x.ctx, id, postgres.ItemFilter{State: tasker.ItemState(x.queryText("state")), After: x.queryInt("after"), Limit: x.queryInt("limit")})
	if err != nil {
		return err
	}
	out := apiv1.OperationItemList{Items: convert(list, apiv1.FromOperationItem)}
	out.Next = nextCursor(list, more, func(i tasker.OperationItem) int { return i.Ordinal })
	return x.respond(http.StatusOK, out)
}

func (s *server) dryRunOperation(x *request, req apiv1.DryRunOperation) error {
	r, err := s.operations.DryRun(x.ctx, x.pathUUID("operation_uuid"), req.After, cmp.Or(req.Limit, dryRunLimit))
	return respondWith(x, http.StatusOK, r, err, apiv1.FromDryRun)
}

func (s *server) startOperation(x *request, req apiv1.StartOperation) error {
	return x.changeOperation(req.By, func(ctx context.Context, id tasker.ID, actor string) (tasker.Operation, error) {
		return s.operations.Start(ctx, id, req.PlanDigest, actor)
	})
}

func (s *server) resumeOperation(x *request, req apiv1.ResumeOperation) error {
	tolerate, err := readTolerance("tolerate", req.Tolerate)
	if err != nil {
		return err
	}
	return x.changeOperation(req.By, func(ctx context.Context, id tasker.ID, actor string) (tasker.Operation, error) {
		return s.operations.Resume(ctx, id, actor, tasker.ResumeOptions{Tolerate: tolerate, TolerateCause: req.TolerateCause})
	})
}

type changeOperation func(ctx context.Context, id tasker.ID, actor string) (tasker.Operation, error)

func (x *request) changeOperation(by string, do changeOperation) error {
	o, err := do(x.ctx, x.pathUUID("operation_uuid"), x.resolveActor(by))
	return respondWith(x, http.StatusOK, o, err, apiv1.FromOperation)
}
