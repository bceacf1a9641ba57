package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
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
		newRoute(endpoint.RetireTemplate, func(x *request) error { return s.retireTemplate(x, true) }),
		newRoute(endpoint.UnretireTemplate, func(x *request) error { return s.retireTemplate(x, false) }),

		newQueryRoute(endpoint.ListTasks, s.listTasks),
		newQueryRoute(endpoint.CancelTasks, s.cancelTasks),
		newQueryRoute(endpoint.ListAttributes, s.listAttributes),
		newQueryRoute(endpoint.FollowTask, s.followTask),
		newQueryRoute(endpoint.ListTaskRequests, s.listTaskRequests),
		newRoute(endpoint.DeleteTaskRequest, s.deleteTaskRequest),
		newBodyRoute(endpoint.ChangeDue, s.changeDue),

		newBodyRoute(endpoint.ChangeVersion, s.changeVersion),
		newBodyRoute(endpoint.ChangeTasks, s.changeTasks),

		newRoute(endpoint.GetTaskContext, s.getTaskContext),
		newRoute(endpoint.GetStepResult, s.getStepResult),
		newQueryRoute(endpoint.GetItemResults, s.listItemResults),

		newRoute(endpoint.CreateAnswerLink, s.createAnswerLink),
		newRoute(endpoint.ListAnswerLinks, s.listAnswerLinks),
		newRoute(endpoint.RevokeAnswerLink, s.revokeAnswerLink),

		newQueryRoute(endpoint.ListInbox, s.listInbox),
		newRoute(endpoint.GetAssignee, s.getStepAssignee),
		newRoute(endpoint.AssignStep, s.assignStep),

		newQueryRoute(endpoint.ListCases, s.listCases),
		newRoute(endpoint.GetCase, newGetHandler("case_id", s.caseService.FindDetail, identity)),
		newRoute(endpoint.WhyCase, newGetHandler("case_id", s.caseService.Why, apiv1.FromCaseWhy)),
		newRoute(endpoint.ChangesOfCase, newGetHandler("case_id", s.caseService.Changes, apiv1.FromCaseChanges)),

		newBodyRoute(endpoint.UpdateCase, s.updateCase),
		newBodyRoute(endpoint.MergeCase, s.mergeCase),
		newBodyRoute(endpoint.UnmergeCase, s.unmergeCase),
		newBodyRoute(endpoint.SplitCase, s.splitCase),

		newQueryRoute(endpoint.ListIncidents, s.listIncidents),
		newRoute(endpoint.GetIncident, newGetHandler("incident_id", s.db.Incident, identity)),
		newBodyRoute(endpoint.TryMessage, s.tryMessage),

		newQueryRoute(endpoint.ReportOfCase, s.getCaseReport),
		newQueryRoute(endpoint.ReportOfIncident, s.getIncidentReport),
		newQueryRoute(endpoint.ReportOfTime, s.getPeriodReport),

		newRoute(endpoint.PlanOperation, s.planOperation),
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
		newRoute(endpoint.GetHold, newGetHandler("hold_uuid", s.holds.Detail, identity)),
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

		newRoute(endpoint.Explain, newGetHandler("id", s.explain.Explain, identity)),
		newRoute(endpoint.ExplainQueue, s.explainQueue),

		newQueryRoute(endpoint.ListEmissions, s.listEmissions),
		newRoute(endpoint.GetEmission, s.getEmission),
		newBodyRoute(endpoint.ReEmit, s.reEmit),
		newRoute(endpoint.ListSinks, s.listSinks),
		newQueryRoute(endpoint.FollowEvents, s.followEvents),
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
		newRoute(endpoint.CreateTasks, s.createTasks),
		newQueryRoute(endpoint.GetTask, s.getTask),
		newQueryRoute(endpoint.CancelTask, s.cancelTask),
		newQueryRoute(endpoint.ListTaskTransitions, s.listTaskTransitions),
		newRoute(endpoint.GetTaskTree, newGetHandler("uuid", s.db.TaskTree, apiv1.FromTaskTree)),

		newRoute(endpoint.ListSteps, s.listSteps),
		newRoute(endpoint.GetStep, s.getStep),
		newQueryRoute(endpoint.ListStepItems, s.listStepItems),
		newRoute(endpoint.OperateStep, s.operateStep),
		newQueryRoute(endpoint.ListStepTransitions, s.listStepTransitions),
		newRoute(endpoint.CompleteExternalStep, s.completeStep),

		newQueryRoute(endpoint.ListEntries, s.listEntries),
		newRoute(endpoint.GetEntryOfTask, newGetHandler("task_uuid", s.db.EntryOfTask, identity)),
		newBodyRoute(endpoint.OpenEntry, s.openEntry),
		newQueryRoute(endpoint.GetEntry, s.getEntry),
		newBodyRoute(endpoint.UpdateEntry, s.updateEntry),
		newRoute(endpoint.GetEntryStats, s.getEntryStats),
		newQueryRoute(endpoint.GetQueue, s.listInvestigationQueue),
		newQueryRoute(endpoint.GetRelatedEntries, s.listRelatedEntries),
		newRoute(endpoint.GetEvidenceFile, newGetHandler("dlq_entry_uuid", s.evidence.Export, identity)),
		newQueryRoute(endpoint.GetEntryCounts, s.countEntries),
		newQueryRoute(endpoint.GetEntryTimes, s.getEntryTimes),
		newQueryRoute(endpoint.GetStaleness, s.listStaleTasks),

		newQueryRoute(endpoint.ListWorkers, s.listWorkers),
		newBodyRoute(endpoint.RegisterWorker, s.registerWorker),
		newBodyRoute(endpoint.ClaimSteps, s.claimSteps),
		newBodyRoute(endpoint.TakeSteps, s.takeSteps),
		newRoute(endpoint.Heartbeat, s.recordHeartbeat),
		newRoute(endpoint.ReportResults, s.reportResults),
		newBodyRoute(endpoint.SaveCheckpoint, s.saveCheckpoint),
		newRoute(endpoint.ReleaseSteps, s.releaseSteps),
		newRoute(endpoint.DrainWorker, s.drainWorker),
		newRoute(endpoint.Leave, s.leaveWorker),
		newQueryRoute(endpoint.ListQueues, s.listQueues),

		newRoute(endpoint.Health, s.newHealthHandler("healthy")),
		newRoute(endpoint.Live, s.newHealthHandler("alive")),
		newRoute(endpoint.Ready, s.getReadiness),
		newRoute(endpoint.Metrics, s.serveMetrics),
		newRoute(endpoint.Openapi, s.serveOpenAPI),
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

// newRoute returns the route of an endpoint whose handler reads the request itself.
func newRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request) error) *route {
	rt := &route{Endpoint: e.Describe(), serve: serve}
	if rt.Query != nil {
		rt.params = query.Params(rt.Query)
	}
	return rt
}

// newQueryRoute returns the route of an endpoint whose handler takes the query parameters.
func newQueryRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request, Q) error) *route {
	return newRoute(e, func(x *request) error {
		var q Q
		if err := query.Decode(x.query, &q); err != nil {
			return err
		}
		return serve(x, q)
	})
}

// newBodyRoute returns the route of an endpoint whose handler takes the decoded body.
func newBodyRoute[Q, B, A any](e endpoint.Of[Q, B, A], serve func(*request, B) error) *route {
	return newRoute(e, func(x *request) error {
		var body B
		if err := x.read(&body); err != nil {
			return err
		}
		return serve(x, body)
	})
}

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
