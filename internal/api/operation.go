package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/operation"
)

const (
	dryRunLimit   = 10_000
	arrivalsLimit = 1000
)

// changeOf returns a handler that changes an operation.
func changeOf(do func(context.Context, tasker.ID, string) (tasker.Operation, error)) func(*request, apiv1.ChangeOperation) (apiv1.Operation, error) {
	return func(x *request, req apiv1.ChangeOperation) (apiv1.Operation, error) {
		o, err := do(x.ctx, x.pathUUID("operation_uuid"), x.resolveActor(req.By))
		return apiv1.FromOperation(o), err
	}
}

func (s *server) planOperation(x *request, req apiv1.PlanOperation) (out apiv1.Operation, err error) {
	p := tasker.OperationPlan{
		Act: tasker.Act(req.Act.Type), Result: nullToNil(req.Act.Result), ResultExpression: req.Act.ResultExpression, Metadata: nullToNil(req.Act.Metadata), Actor: x.resolveActor(req.PlannedBy), Reason: req.Reason,
		RatePerMinute: req.RatePerMinute, Limit: req.Limit, SkipOverlap: req.Overlap == "skip", RequestKey: x.idempotencyKey(),
		Waves: readWaves(req.Waves),
	}
	if g := req.Guards; g != nil {
		p.Guards = tasker.Guards{IgnoreNewCause: g.IgnoreNewCause, WaveTimeout: time.Duration(g.WaveTimeoutSeconds) * time.Second, WorkerAtLeast: g.WorkerAtLeast}
		if p.Guards.Tolerate, err = readTolerance("guards.tolerate", g.Tolerate); err != nil {
			return out, err
		}
	}
	if p.Selection, err = toSelection(req.Select); err != nil {
		return out, err
	}
	if n := p.Selection.Filter.Namespace; n != "" {
		if err := x.checkNamespace(n); err != nil {
			return out, err
		}
	}
	if err := operation.CheckPlanPermission(x.ctx, x.caller.Identity, p.Act); err != nil {
		return out, err
	}
	o, made, err := s.operations.Plan(x.ctx, p)
	if !made {
		x.status = http.StatusOK
	}
	return apiv1.FromOperation(o), err
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

func (s *server) listOperations(x *request, f tasker.OperationFilter) (apiv1.OperationList, error) {
	list, more, err := s.db.Operations(x.ctx, f)
	return apiv1.OperationList{Operations: convert(list, apiv1.FromOperation), Pagination: newPagination(f.Limit, f.Offset, len(list), more)}, err
}

func (s *server) getOperation(x *request) (out apiv1.Operation, err error) {
	o, err := s.db.Operation(x.ctx, x.pathUUID("operation_uuid"))
	if err != nil {
		return out, err
	}
	out = apiv1.FromOperation(o)
	if o.Selected == 0 && o.Selection.WorkerVersion == "" && o.Selection.FailedSince == nil {
		n, err := s.db.CountArrivals(x.ctx, o.Selection, o.CreatedAt, arrivalsLimit)
		if err != nil {
			return out, err
		}
		out.ArrivedSince = &n
	}
	return out, nil
}

func (s *server) listOperationItems(x *request, f tasker.OperationItemFilter) (out apiv1.OperationItemList, err error) {
	id := x.pathUUID("operation_uuid")
	if _, err := s.db.Operation(x.ctx, id); err != nil {
		return out, err
	}
	list, more, err := s.db.OperationItems(x.ctx, id, f)
	out.Items, out.Next = orEmpty(list), nextCursor(list, more, func(i tasker.OperationItem) int { return i.Ordinal })
	return out, err
}

func (s *server) dryRunOperation(x *request, req apiv1.DryRunOperation) (tasker.DryRun, error) {
	return s.operations.DryRun(x.ctx, x.pathUUID("operation_uuid"), req.After, cmp.Or(req.Limit, dryRunLimit))
}

func (s *server) startOperation(x *request, req apiv1.StartOperation) (apiv1.Operation, error) {
	o, err := s.operations.Start(x.ctx, x.pathUUID("operation_uuid"), req.PlanDigest, x.resolveActor(req.By))
	return apiv1.FromOperation(o), err
}

func (s *server) resumeOperation(x *request, req apiv1.ResumeOperation) (out apiv1.Operation, err error) {
	r := tasker.ResumeOptions{TolerateCause: req.TolerateCause}
	if r.Tolerate, err = readTolerance("tolerate", req.Tolerate); err != nil {
		return out, err
	}
	o, err := s.operations.Resume(x.ctx, x.pathUUID("operation_uuid"), x.resolveActor(req.By), r)
	return apiv1.FromOperation(o), err
}
