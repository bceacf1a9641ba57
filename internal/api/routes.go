package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/query"
)

// routes returns all routes.
func (s *server) routes() []*route { //nolint:funlen // a table
	return []*route{
		newQueryRoute(endpoint.RegisterTemplate, s.registerTemplate),
		newQueryRoute(endpoint.ListTemplates, s.listTemplates),
		newRoute(endpoint.GetTemplate, s.getTemplate),
		newBodyRoute(endpoint.RetireTemplate, s.retireTemplate(true)),
		newBodyRoute(endpoint.UnretireTemplate, s.retireTemplate(false)),

		newQueryRoute(endpoint.ListTasks, s.listTasks),
		newQueryRoute(endpoint.CancelTasks, s.cancelTasks),
		newQueryRoute(endpoint.ListAttributes, s.listAttributes),
		newRawRoute(endpoint.FollowTask, s.followTask),
		newQueryRoute(endpoint.ListTaskRequests, s.listTaskRequests),
		newRoute(endpoint.DeleteTaskRequest, s.deleteTaskRequest),
		newBodyRoute(endpoint.ChangeDue, s.changeDue),

		newBodyRoute(endpoint.ChangeVersion, s.changeVersion),
		newBodyRoute(endpoint.ChangeTasks, s.changeTasks),

		newRawRoute(endpoint.GetTaskContext, s.getTaskContext),
		newRawRoute(endpoint.GetStepResult, s.getStepResult),
		newQueryRoute(endpoint.GetItemResults, s.listItemResults),

		newStepRoute(endpoint.CreateAnswerLink, s.createAnswerLink),
		newStepRoute(endpoint.ListAnswerLinks, s.listAnswerLinks),
		newStepRoute(endpoint.RevokeAnswerLink, s.revokeAnswerLink),

		newQueryRoute(endpoint.ListInbox, s.listInbox),
		newStepRoute(endpoint.GetAssignee, s.getStepAssignee),
		newStepRoute(endpoint.AssignStep, s.assignStep),

		newQueryRoute(endpoint.ListCases, s.listCases),
		newRoute(endpoint.GetCase, byID("case_id", s.caseService.FindDetail)),
		newRoute(endpoint.WhyCase, byID("case_id", s.caseService.Why)),
		newRoute(endpoint.ChangesOfCase, byID("case_id", s.caseService.Changes)),

		newBodyRoute(endpoint.UpdateCase, s.updateCase),
		newBodyRoute(endpoint.MergeCase, s.mergeCase),
		newBodyRoute(endpoint.UnmergeCase, s.unmergeCase),
		newBodyRoute(endpoint.SplitCase, s.splitCase),

		newQueryRoute(endpoint.ListIncidents, s.listIncidents),
		newRoute(endpoint.GetIncident, byID("incident_id", s.db.Incident)),
		newBodyRoute(endpoint.TryMessage, s.tryMessage),

		newRawRoute(endpoint.ReportOfCase, s.getReport),
		newRawRoute(endpoint.ReportOfIncident, s.getReport),
		newRawRoute(endpoint.ReportOfTime, s.getReport),

		newBodyRoute(endpoint.PlanOperation, s.planOperation),
		newQueryRoute(endpoint.ListOperations, s.listOperations),
		newRoute(endpoint.GetOperation, s.getOperation),
		newQueryRoute(endpoint.ListOperationItems, s.listOperationItems),
		newBodyRoute(endpoint.DryRunOperation, s.dryRunOperation),

		newBodyRoute(endpoint.StartOperation, s.startOperation),
		newBodyRoute(endpoint.PauseOperation, changeOf(s.operations.Pause)),
		newBodyRoute(endpoint.AbortOperation, changeOf(s.operations.Abort)),
		newBodyRoute(endpoint.ResumeOperation, s.resumeOperation),

		newBodyRoute(endpoint.BeginHold, s.beginHold),
		newQueryRoute(endpoint.ListHolds, s.listHolds),
		newRoute(endpoint.GetHold, byID("hold_uuid", s.holds.Detail)),
		newBodyRoute(endpoint.ProbeHold, s.probeHold),
		newBodyRoute(endpoint.ExtendHold, s.extendHold),
		newBodyRoute(endpoint.ReleaseHold, s.releaseHold),

		newQueryRoute(endpoint.ListSchedules, s.listSchedules),
		newQueryRoute(endpoint.GetSchedule, s.getSchedule),
		newQueryRoute(endpoint.ListFirings, s.listFirings),

		newBodyRoute(endpoint.CreateSchedule, s.createSchedule),
		newBodyRoute(endpoint.UpdateSchedule, s.updateSchedule),
		newQueryRoute(endpoint.DeleteSchedule, s.deleteSchedule),
		newBodyRoute(endpoint.PauseSchedule, s.pauseSchedule),
		newBodyRoute(endpoint.ResumeSchedule, s.resumeSchedule),
		newBodyRoute(endpoint.TriggerSchedule, s.triggerSchedule),
		newBodyRoute(endpoint.BackfillSchedule, s.backfillSchedule),

		newRoute(endpoint.Explain, byID("id", s.explain.Explain)),
		newRoute(endpoint.ExplainQueue, func(x *request) (tasker.Explanation, error) {
			return s.explain.ExplainQueue(x.ctx, x.pathText("namespace"), x.pathText("handler"))
		}),

		newQueryRoute(endpoint.ListEmissions, s.listEmissions),
		newRoute(endpoint.GetEmission, s.getEmission),
		newBodyRoute(endpoint.ReEmit, s.reEmit),
		newRoute(endpoint.ListSinks, s.listSinks),
		newRawRoute(endpoint.FollowEvents, s.followEvents),
		newQueryRoute(endpoint.ListAudit, s.listAudit),

		newRoute(endpoint.ListNamespaces, s.listNamespaces),
		newBodyRoute(endpoint.SetNamespace, s.setNamespace),
		newRoute(endpoint.DeleteNamespace, s.deleteNamespace),

		newQueryRoute(endpoint.ListLimits, s.listLimits),
		newBodyRoute(endpoint.SetLimit, s.setLimit),
		newQueryRoute(endpoint.DeleteLimit, s.deleteLimit),

		newRoute(endpoint.WhoAmI, s.whoAmI),
		newQueryRoute(endpoint.ListKeys, s.listKeys),
		newBodyRoute(endpoint.CreateKey, s.createKey),
		newBodyRoute(endpoint.RotateKey, s.rotateKey),
		newRoute(endpoint.RevokeKey, s.revokeKey),
		newQueryRoute(endpoint.ListSessions, s.listSessions),
		newBodyRoute(endpoint.EndSessions, s.endSessions),

		newBodyRoute(endpoint.CreateTask, s.createTask),
		newBodyRoute(endpoint.CreateTasks, s.createTasks),
		newQueryRoute(endpoint.GetTask, s.getTask),
		newQueryRoute(endpoint.CancelTask, s.cancelTask),
		newQueryRoute(endpoint.ListTaskTransitions, s.listTaskTransitions),
		newRoute(endpoint.GetTaskTree, byID("uuid", s.db.TaskTree)),

		newRoute(endpoint.ListSteps, byID("uuid", s.db.Steps)),
		newStepRoute(endpoint.GetStep, s.getStep),
		newQueryRoute(endpoint.ListStepItems, s.listStepItems),
		newStepRoute(endpoint.OperateStep, s.operateStep),
		newQueryRoute(endpoint.ListStepTransitions, s.listStepTransitions),
		newStepRoute(endpoint.CompleteExternalStep, s.completeStep),

		newQueryRoute(endpoint.ListEntries, byFilter(s.db.Entries)),
		newRoute(endpoint.GetEntryOfTask, byID("task_uuid", s.db.EntryOfTask)),
		newBodyRoute(endpoint.OpenEntry, s.openEntry),
		newQueryRoute(endpoint.GetEntry, s.getEntry),
		newBodyRoute(endpoint.UpdateEntry, s.updateEntry),
		newRoute(endpoint.GetEntryStats, unfiltered(s.db.EntryStats)),
		newQueryRoute(endpoint.GetQueue, s.listInvestigationQueue),
		newQueryRoute(endpoint.GetRelatedEntries, s.listRelatedEntries),
		newRoute(endpoint.GetEvidenceFile, byID("dlq_entry_uuid", s.evidence.Export)),
		newQueryRoute(endpoint.GetEntryCounts, s.countEntries),
		newQueryRoute(endpoint.GetEntryTimes, s.getEntryTimes),
		newQueryRoute(endpoint.GetStaleness, byFilter(s.db.Staleness)),

		newQueryRoute(endpoint.ListWorkers, s.listWorkers),
		newBodyRoute(endpoint.RegisterWorker, s.registerWorker),
		newRawRoute(endpoint.ClaimSteps, s.claimSteps),
		newRawRoute(endpoint.TakeSteps, s.takeSteps),
		newBodyRoute(endpoint.Heartbeat, s.recordHeartbeat),
		newRawRoute(endpoint.ReportResults, s.reportResults),
		newBodyRoute(endpoint.SaveCheckpoint, s.saveCheckpoint),
		newBodyRoute(endpoint.ReleaseSteps, s.releaseSteps),
		newRoute(endpoint.DrainWorker, s.drainWorker),
		newRoute(endpoint.Leave, s.leaveWorker),
		newQueryRoute(endpoint.ListQueues, s.listQueues),

		newRoute(endpoint.Health, s.newHealthHandler("healthy")),
		newRoute(endpoint.Live, s.newHealthHandler("alive")),
		newRoute(endpoint.Ready, s.getReadiness),
		newRawRoute(endpoint.Metrics, s.serveMetrics),
		newRawRoute(endpoint.Openapi, s.serveOpenAPI),
	}
}

// route describes an operation of the API and its handler.
type route struct {
	endpoint.Endpoint

	params []query.Param // query parameters
	serve  func(*request) error

	rule    access.Rule   // computed from the permissions of the endpoint
	schema  *huma.Schema  // of the body
	timeout time.Duration // total
}

// newRawRoute returns the route of an endpoint whose handler reads the request and writes the
// response itself.
func newRawRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request) error) *route {
	rt := &route{Endpoint: e.Describe(), serve: serve}
	if rt.Query != nil {
		rt.params = query.Params(rt.Query)
	}
	return rt
}

// newRoute returns the route of an endpoint whose handler returns the answer.
func newRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request) (A, error)) *route {
	return newRawRoute(e, func(x *request) error {
		answer, err := serve(x)
		if err != nil {
			return err
		}
		return x.respondAnswer(answer)
	})
}

// newQueryRoute returns the route of an endpoint whose handler takes the query parameters.
func newQueryRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request, Q) (A, error)) *route {
	return newRoute(e, func(x *request) (answer A, err error) {
		var q Q
		if err := query.Decode(x.query, &q); err != nil {
			return answer, err
		}
		return serve(x, q)
	})
}

// newBodyRoute returns the route of an endpoint whose handler takes the decoded body.
func newBodyRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request, B) (A, error)) *route {
	return newRoute(e, func(x *request) (answer A, err error) {
		var body B
		if err := x.read(&body); err != nil {
			return answer, err
		}
		return serve(x, body)
	})
}

// newStepRoute returns the route of an endpoint of a step. The handler takes the step, which the path
// contains as a UUID or a name, and the body, if the endpoint has one.
func newStepRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request, tasker.StepRef, B) (A, error)) *route {
	return newRoute(e, func(x *request) (answer A, err error) {
		ref, err := x.findStep()
		if err != nil {
			return answer, err
		}
		var body B
		if x.route.Body != nil {
			if err := x.read(&body); err != nil {
				return answer, err
			}
		}
		return serve(x, ref, body)
	})
}

// byID returns a handler that calls get with the id in the path.
func byID[T any](param string, get func(context.Context, tasker.ID) (T, error)) func(*request) (T, error) {
	return func(x *request) (T, error) { return get(x.ctx, x.pathUUID(param)) }
}

// byFilter returns a handler that calls list with the query parameters.
func byFilter[Q, T any](list func(context.Context, Q) (T, error)) func(*request, Q) (T, error) {
	return func(x *request, q Q) (T, error) { return list(x.ctx, q) }
}

// unfiltered returns a handler that calls list.
func unfiltered[T any](list func(context.Context) (T, error)) func(*request) (T, error) {
	return func(x *request) (T, error) { return list(x.ctx) }
}

// none is an absent body or answer.
type none = endpoint.None

// pattern returns the pattern for the mux.
func (rt *route) pattern() string { return rt.Method + " " + rt.Path }

// request is an HTTP request in progress.
type request struct {
	w         http.ResponseWriter
	r         *http.Request
	ctx       context.Context // ends with the request or its timeout
	cancel    func()          // ends ctx
	route     *route
	server    *server
	caller    *auth.Caller
	received  receivedBody
	query     url.Values  // validated, with defaults
	quiet     bool        // log only at debug level
	status    int         // of the answer; default: the first of the endpoint
	leaveGate func()      // releases the slot of the request's class
	memory    reservation // of the body
	unread    reservation // of the answer
}

// run serves a request of a known route.
func (s *server) run(w http.ResponseWriter, r *http.Request, rt *route) {
	ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
	defer cancel()
	x := &request{w: w, r: r, ctx: ctx, cancel: cancel, route: rt, server: s, quiet: rt.Quiet, leaveGate: func() {}}
	if !rt.Unmetered {
		x.memory, x.unread = reservation{budget: s.inflight, class: rt.Class}, reservation{budget: s.unread, class: rt.Class}
	}
	defer x.releaseResources()
	note := requestLogFromContext(ctx)
	note.route = rt.Path
	var err error
	if err = x.admit(); err == nil {
		if x.query, err = rt.readQuery(r.URL.RawQuery); err == nil {
			err = x.checkQueryNamespace()
		}
		if err == nil {
			err = x.checkIdempotencyKey()
		}
		if err == nil {
			err = x.checkPath()
		}
		if err == nil {
			err = rt.serve(x)
		}
	}
	note.quiet = x.quiet
	if err != nil {
		x.auditRefusal(err)
		note.err = x.translateTimeout(err)
		x.releaseResources()
		respondError(w, r, note.err)
	}
}

// translateTimeout replaces an internal error by Unavailable if it occurred because the request timed out or
// the caller lost access.
func (x *request) translateTimeout(err error) error {
	if x.ctx.Err() == nil || x.r.Context().Err() != nil || tasker.CodeOf(err) != tasker.Internal {
		return err
	}
	message := "the request took longer than " + x.route.timeout.String() + " and was cancelled: try again"
	if errors.Is(x.ctx.Err(), context.Canceled) {
		message = "the request was cancelled because the API key or its permissions changed: try again"
	}
	return &tasker.Error{Code: tasker.Unavailable, Err: err, Message: message}
}
