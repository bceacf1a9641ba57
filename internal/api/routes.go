package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/overload"
)

const (
	taskPath   = "/v1/tasks/{uuid}"
	stepPath   = taskPath + "/workflow_steps/{step}"
	workerPath = "/v1/workers/{worker_uuid}"
)

// maxLeasesBytes is the maximum body size of a heartbeat, enough for a thousand leases.
const maxLeasesBytes = 512 << 10

// routes returns all routes. Their field about describes who calls a route and whether it is safe
// to repeat, unless the summary makes that clear.
func (s *server) routes() []*route {
	return slices.Concat(
		s.templateRoutes(), s.taskRoutes(), s.taskEventRoutes(), s.taskListRoutes(), s.taskRequestRoutes(), s.versionRoutes(), s.stepRoutes(), s.resultRoutes(),
		s.inboxRoutes(), s.answerLinkRoutes(), s.entryRoutes(), s.caseRoutes(), s.caseActionRoutes(),
		s.incidentRoutes(), s.incidentReportRoutes(), s.operationRoutes(), s.operationChangeRoutes(), s.holdRoutes(),
		s.scheduleRoutes(), s.explainRoutes(), s.emissionRoutes(), s.workerRoutes(), s.namespaceRoutes(),
		s.limitRoutes(), s.accessRoutes(), s.serverRoutes(),
	)
}

func (s *server) taskRoutes() []*route {
	return []*route{
		{
			method: "POST", path: "/v1/tasks", id: "createTask", class: overload.Creates, permission: access.CreateTasks, tag: "tasks",
			summary: "Create a task",
			doc: "With an idempotency_key it is safe to repeat: the same request returns 200 with the existing task; " +
				"a different request with the same key is a CONFLICT.",
			body: apiv1.CreateTask{}, responses: createdOrOKResponse(apiv1.Task{}),
			serve: withBody(s.createTask),
		},
		{
			method: "POST", path: "/v1/tasks/bulk", id: "createTasks", class: overload.BulkCreates, permission: access.CreateTasks, tag: "tasks",
			summary: "Create up to 1000 tasks, all or none",
			doc:     "Elements with an idempotency_key are safe to repeat. Returns 200 if no task is new.",
			body:    []apiv1.CreateTask{}, responses: createdOrOKResponse(apiv1.CreatedTasks{}),
			serve: s.createTasks,
		},
		{
			method: "GET", path: taskPath, id: "getTask", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary: "Get a task with its steps, waiting up to wait_ms until it is settled",
			doc: "With wait_ms the response is sent when the task has ended (complete, resolved_manually or cancelled), has an open investigation, or has permanently failed, and otherwise after wait_ms. " +
				"It has the task as it is then, so repeat the request until the task is settled. The server may respond early: pause before the next request.",
			params: []param{intParam("wait_ms", "Maximum wait for the task to be settled, in milliseconds.", 0, int(maxWait.Milliseconds()), 0)}, wait: maxWait,
			responses: okResponse(apiv1.Task{}), serve: s.getTask,
		},
		{
			method: "DELETE", path: taskPath, id: "cancelTask", class: overload.Operations, permission: access.CancelTasks, tag: "tasks",
			summary: "Cancel a task and its unfinished steps",
			doc: "Safe to repeat. A complete task is a CONFLICT. With compensate=true completed steps are compensated in reverse order, where their template declares how: " +
				"the task is in the phase compensating, and is cancelled afterwards; see phase and outcome. Cancelling again without it stops the compensation.",
			params: []param{
				textParam("reason", "Reason, for the history.", 2000), textParam("cancelled_by", "Actor, for the history.", 255),
				boolParam("compensate", "Compensate completed steps before cancelling."),
			},
			responses: okResponse(apiv1.Task{}), serve: s.cancelTask,
		},
		{
			method: "GET", path: taskPath + "/transitions", id: "listTaskTransitions", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary: "List the history of a task, oldest first",
			params:  []param{limitParam(maxLimit), offsetParam()}, responses: okResponse([]tasker.Transition{}),
			serve: s.listTaskTransitions,
		},
		{
			method: "GET", path: taskPath + "/tree", id: "getTaskTree", class: overload.Reads, permission: access.ReadTasks, tag: "tasks",
			summary:   "Get a task with its parent and child tasks",
			doc:       "The topmost task is first, each task precedes its children, and there are up to ten levels. more_children is set if a task has more children than the response contains.",
			responses: okResponse(apiv1.TaskTree{}), serve: newGetHandler("uuid", s.db.TaskTree, apiv1.FromTaskTree),
		},
	}
}

func taskFilterParams() []param {
	return []param{
		choiceParam("status", "Filter by state.", tasker.TaskStates()),
		choiceParam("phase", "Filter by phase.", []tasker.TaskPhase{tasker.Compensating}),
		textParam("namespace", "Filter by namespace.", 128), textParam("name", "Filter by template.", 128),
		boolParam("dead_lettered", "Filter by open or permanent investigation."),
		textParam("tag", "Filter by tag.", 128).withMaxValues(tasker.MaxSearchTags),
		textParam("correlation_id", "Filter by correlation id.", 128),
		textParam("idempotency_key", "Filter by idempotency key.", 255),
		textParam("initiator", "Filter by initiator.", 255), textParam("source_system", "Filter by source system.", 255),
		timeParam("created_after", "Filter by creation time, inclusive."), timeParam("created_before", "Filter by creation time, exclusive."),
		idParam("parent", "Filter by parent task."),
		boolParam("overdue", "Only overdue tasks, longest overdue first."), timeParam("due_before", "Only open tasks due before this time, earliest first."),
	}
}

func (s *server) stepRoutes() []*route {
	return []*route{
		{
			method: "GET", path: taskPath + "/workflow_steps", id: "listSteps", class: overload.Reads, permission: access.ReadTasks, tag: "steps",
			summary:   "List the steps of a task with their readiness",
			responses: okResponse([]apiv1.Step{}), serve: s.listSteps,
		},
		{
			method: "GET", path: stepPath, id: "getStep", class: overload.Reads, permission: access.ReadTasks, tag: "steps",
			summary:   "Get a step with its readiness",
			doc:       "{step} is a UUID or a name, such as refund[17] for an item.",
			responses: okResponse(apiv1.Step{}), serve: s.getStep,
		},
		{
			method: "GET", path: taskPath + "/workflow_steps/{step}/items", id: "listStepItems", class: overload.Reads, permission: access.ReadTasks, tag: "steps",
			summary: "List the items of a map step in order",
			doc:     "{step} is a UUID or a name. A page with large documents ends early; next is the cursor of the next page.",
			params: []param{
				choiceParam("state", "Filter by state.", tasker.StepStates()),
				intParam("from", "Page cursor: next of the previous page.", 0, maxOffset, 0), limitParam(triageLimit),
			},
			responses: okResponse(apiv1.StepItemList{}), serve: s.listStepItems,
		},
		{
			method: "PATCH", path: stepPath, id: "operateStep", class: overload.Operations, permission: access.OperateSteps, tag: "steps",
			summary: "Reset, resolve or complete a step manually",
			doc: "For operators. {step} is a UUID or a name. The task continues in the same transaction; the response is the step after the action. " +
				"If the state of the step or task does not allow the action, the response is a CONFLICT whose details contain task_state, step_state, allowed_actions " +
				"and needs_interrupt. A queued or claimed step requires interrupt. " +
				"With an Idempotency-Key a repeated request changes nothing and returns the current step.",
			keyed: true, body: stepAction{}, responses: okResponse(apiv1.Step{}), serve: s.operateStep,
		},
		{
			method: "GET", path: stepPath + "/transitions", id: "listStepTransitions", class: overload.Reads, permission: access.ReadTasks, tag: "steps",
			summary: "List the history of a step, oldest first",
			params:  []param{limitParam(maxLimit), offsetParam()}, responses: okResponse([]tasker.Transition{}),
			serve: s.listStepTransitions,
		},
		{
			method: "POST", path: taskPath + "/workflow_steps/{step}/completion", id: "completeExternalStep", class: overload.Reports, permission: access.CompleteSteps, tag: "steps",
			summary: "Report the outcome of an external step",
			doc: "For the system that the step waits for. {step} is a UUID or a name, so a caller who knows the task needs no other request. " +
				"Safe to repeat; a different outcome is a CONFLICT.",
			body: apiv1.Completion{}, repeatable: true, responses: okResponse(apiv1.Step{}), serve: s.completeStep,
		},
	}
}

func (s *server) entryRoutes() []*route { //nolint:funlen // a table
	return []*route{
		{
			method: "GET", path: "/v1/dlq", id: "listEntries", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary: "List investigations, newest first",
			params: []param{
				choiceParam("resolution_status", "Filter by status.", tasker.ResolutionStatuses()),
				choiceParam("dlq_reason", "Filter by reason.", tasker.Reasons()),
				limitParam(defaultLimit), offsetParam(),
			},
			responses: okResponse([]apiv1.Entry{}), serve: s.listEntries,
		},
		{
			method: "GET", path: "/v1/dlq/task/{task_uuid}", id: "getEntryOfTask", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "Get the newest investigation of a task, with its snapshot",
			responses: okResponse(apiv1.Entry{}), serve: newGetHandler("task_uuid", s.db.EntryOfTask, apiv1.FromEntry),
		},
		{
			method: "POST", path: "/v1/dlq/task/{task_uuid}", id: "openEntry", class: overload.Operations, permission: access.UpdateInvestigations, tag: "dlq",
			summary: "Open an investigation of a task manually",
			doc: "The task does not change. If an investigation is open, the CONFLICT contains its dlq_entry_uuid. " +
				"With an Idempotency-Key a repeated request changes nothing and returns the newest investigation of the task.",
			keyed: true, body: apiv1.OpenEntry{}, responses: createdResponse(apiv1.Entry{}), serve: withBody(s.openEntry),
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}", id: "getEntry", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "Get an investigation with its snapshot and history",
			params:    []param{intParam("history_offset", "Number of history entries to skip.", 0, maxOffset, 0)},
			responses: okResponse(apiv1.Entry{}), serve: s.getEntry,
		},
		{
			method: "PATCH", path: "/v1/dlq/entry/{dlq_entry_uuid}", id: "updateEntry", class: overload.Operations, permission: access.UpdateInvestigations, tag: "dlq",
			summary: "Annotate or resolve an investigation",
			doc: "Absent fields do not change. Safe to repeat; an investigation with a different resolution is a CONFLICT. " +
				"With an Idempotency-Key a repeated request is recorded once.",
			keyed: true, body: apiv1.UpdateEntry{}, responses: okResponse(apiv1.UpdatedEntry{}), serve: withBody(s.updateEntry),
		},
		{
			method: "GET", path: "/v1/dlq/stats", id: "getEntryStats", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "Count investigations by reason",
			responses: okResponse([]tasker.EntryStats{}), serve: s.getEntryStats,
		},
		{
			method: "GET", path: "/v1/dlq/investigation-queue", id: "getQueue", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "List open investigations, most urgent first",
			params:    append(investigationParams(), taskSearchParams()...),
			responses: okResponse([]apiv1.InvestigationQueueEntry{}),
			serve:     s.listInvestigationQueue,
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}/related", id: "getRelatedEntries", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "List other investigations of the same case, with the outcomes of ended ones",
			params:    []param{intParam("limit", "Maximum number of ended investigations.", 1, 100, 10)},
			responses: okResponse(apiv1.RelatedEntries{}), serve: s.listRelatedEntries,
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}/evidence", id: "getEvidenceFile", class: overload.Reads, permission: access.ReadInvestigations, extraPermission: access.ReadPayloads, tag: "dlq",
			summary: "Export an investigation as one file: the failed step, the inputs of its handler, its failures and its history",
			doc: "Secrets are removed; redacted lists their locations in input. " +
				"docs/reference/evidence-file.schema.json is the schema of the file.",
			responses: okResponse(tasker.EvidenceFile{}), serve: newGetHandler("dlq_entry_uuid", s.evidence.Export, identity),
		},
		{
			method: "GET", path: "/v1/dlq/counts", id: "getEntryCounts", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary: "Count opened, ended, verified and open investigations over time, oldest interval first",
			doc:     "The last interval is the current one. At most 100,000 investigations are counted, newest first.",
			params: []param{
				intParam("interval_minutes", "Length of an interval.", 1, maxAgeMinutes/maxIntervals, 60),
				intParam("intervals", "Number of intervals, including the current one.", 1, maxIntervals, 24),
			},
			responses: okResponse([]tasker.EntryCount{}), serve: s.countEntries,
		},
		{
			method: "GET", path: "/v1/dlq/times", id: "getEntryTimes", class: overload.Reads, permission: access.ReadInvestigations, tag: "dlq",
			summary:   "Get the time until investigations were acknowledged, owned, repaired, verified and resolved",
			doc:       "Each case counts once, with the median of its investigations. At most 10,000 ended investigations are included, newest first.",
			params:    []param{intParam("minutes", "Length of the time range, up to now.", 1, maxAgeMinutes, 24*60)},
			responses: okResponse(apiv1.EntryTimes{}), serve: s.getEntryTimes,
		},
		{
			method: "GET", path: "/v1/dlq/staleness", id: "getStaleness", class: overload.Reads, permission: access.ReadTasks, tag: "dlq",
			summary: "List running tasks by staleness: stale, warning, healthy",
			params: []param{
				choiceParam("health_status", "Filter by health.", tasker.Healths()),
				textParam("namespace", "Filter by namespace.", 128), textParam("name", "Filter by template.", 128),
				limitParam(triageLimit), offsetParam(),
			},
			responses: okResponse([]tasker.StaleTask{}), serve: s.listStaleTasks,
		},
	}
}

func (s *server) workerRoutes() []*route { //nolint:funlen // a table
	const tag = "workers"
	return []*route{
		{
			method: "GET", path: "/v1/workers", id: "listWorkers", class: overload.Reads, permission: access.ReadWorkers,
			tag:     tag,
			summary: "List workers, latest heartbeat first",
			params:  []param{limitParam(defaultLimit), offsetParam()}, responses: okResponse(apiv1.WorkerList{}),
			serve: s.listWorkers,
		},
		{
			method: "POST", path: "/v1/workers", id: "registerWorker", class: overload.Claims, permission: access.ActAsWorker, tag: tag,
			summary: "Register a worker",
			body:    apiv1.RegisterWorker{}, responses: createdResponse(apiv1.RegisteredWorker{}),
			serve: withBody(s.registerWorker),
		},
		{
			method: "POST", path: workerPath + "/claims", id: "claimSteps", class: overload.Claims, permission: access.ActAsWorker, tag: tag,
			summary: "Claim steps, waiting up to wait_ms for them",
			body:    apiv1.ClaimSteps{}, wait: maxWait, maxBody: unmeteredBytes, repeatable: true,
			responses: okResponse(apiv1.ClaimedSteps{}), serve: withBody(s.claimSteps),
		},
		{
			method: "POST", path: workerPath + "/take", id: "takeSteps", class: overload.Claims, permission: access.ActAsWorker, tag: tag,
			summary: "Claim the steps that the message broker announced",
			doc: "Assigns those that are enqueued and that the worker can execute. All of their messages may then be acknowledged: " +
				"the others are claimed by other workers, or will be announced again.",
			body: apiv1.TakeSteps{}, repeatable: true, responses: okResponse(apiv1.ClaimedSteps{}),
			serve: withBody(s.takeSteps),
		},
		{
			method: "POST", path: workerPath + "/heartbeat", id: "heartbeat", class: overload.Reports, permission: access.ActAsWorker, tag: tag,
			summary: "Renew the leases of running steps",
			doc:     "Safe to repeat. Stop the work of lost leases.",
			body:    apiv1.Leases{}, quiet: true, maxBody: maxLeasesBytes, unmetered: true,
			responses: okResponse(apiv1.HeartbeatAnswer{}), serve: s.recordHeartbeat,
		},
		{
			method: "POST", path: workerPath + "/results", id: "reportResults", class: overload.Reports, permission: access.ActAsWorker, tag: tag,
			summary: "Report outcomes of steps and optionally claim the next ones",
			doc: "Safe to repeat: the same result is accepted but not applied twice. Each result is accepted or rejected individually. " +
				"A failure is accepted even if its error is malformed; values that cannot be stored are replaced.",
			body: apiv1.ReportResults{}, repeatable: true, responses: okResponse(apiv1.ReportAnswer{}), serve: s.reportResults,
		},
		{
			method: "POST", path: workerPath + "/checkpoint", id: "saveCheckpoint", class: overload.Reports, permission: access.ActAsWorker, tag: tag,
			summary: "Save a checkpoint for later attempts of a step",
			doc: "The value replaces the previous one and is part of later claims of the step. It does not renew the lease. Safe to repeat. " +
				"If the lease is lost, nothing is saved and the response is STALE_LEASE.",
			body: apiv1.SaveCheckpoint{}, responses: noContent, serve: withBody(s.saveCheckpoint),
		},
		{
			method: "POST", path: workerPath + "/release", id: "releaseSteps", class: overload.Reports, permission: access.ActAsWorker, tag: tag,
			summary: "Release steps that were not started, without using an attempt",
			body:    apiv1.Leases{}, responses: okResponse(apiv1.Released{}), serve: s.releaseSteps,
		},
		{
			method: "POST", path: workerPath + "/drain", id: "drainWorker", class: overload.Operations, permission: access.DrainWorkers, tag: tag,
			summary: "Drain a worker: it gets no new steps, finishes its current ones and stops",
			doc: "For operators, and for a worker that is shutting down. Safe to repeat; it cannot be undone. " +
				"The response to its next heartbeat notifies the worker.",
			responses: okResponse(apiv1.Worker{}), serve: s.drainWorker,
		},
		{
			method: "DELETE", path: workerPath, id: "leave", class: overload.Reports, permission: access.ActAsWorker, tag: tag,
			summary:   "End the registration of a worker",
			responses: noContent, serve: s.leaveWorker,
		},
		{
			method: "GET", path: "/v1/queues", id: "listQueues", class: overload.Reads, permission: access.ReadWorkers, tag: tag,
			summary:   "List queues by namespace and handler: those without a live worker first, then by age",
			doc:       "Empty queues are not listed.",
			params:    []param{textParam("namespace", "Filter by namespace.", 128), limitParam(queuesLimit)},
			responses: okResponse([]tasker.Queue{}), serve: s.listQueues,
		},
	}
}

func (s *server) serverRoutes() []*route {
	const tag = "server"
	return []*route{
		{
			method: "GET", path: "/health", id: "health", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary:   "Check that the server responds",
			responses: okResponse(apiv1.Health{}), serve: s.newHealthHandler("healthy"),
		},
		{
			method: "GET", path: "/health/live", id: "live", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary:   "Check liveness: restart the server if this does not respond",
			responses: okResponse(apiv1.Health{}), serve: s.newHealthHandler("alive"),
		},
		{
			method: "GET", path: "/health/ready", id: "ready", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary:   "Check readiness: do not route requests to the server while this returns 503",
			responses: okResponse(apiv1.Health{}), serve: s.getReadiness,
		},
		{
			method: "GET", path: "/metrics", id: "metrics", class: overload.Exempt, permission: access.ReadMetrics, tag: tag, quiet: true, responseMedia: "text/plain",
			summary:   "Get the metrics of the server in Prometheus format",
			responses: okResponse(""), serve: s.serveMetrics,
		},
		{
			method: "GET", path: "/api-docs/openapi.json", id: "openapi", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary:   "Get this document",
			responses: okResponse(map[string]any{}), serve: s.serveOpenAPI,
		},
	}
}

// route describes an operation of the API and its handler.
type route struct {
	method, path    string
	id              string            // name in generated clients
	permission      access.Permission // required permission
	extraPermission access.Permission // second required permission, if any
	public          bool              // requires no authentication
	anyone          bool              // requires authentication but no permission
	class           overload.Class    // class of the request limits
	tag             string
	summary         string
	doc             string
	params          []param       // query parameters
	body            any           // value of the type of the body; nil: no body
	media           []string      // content types of the body; nil: JSON
	responses       map[int]any   // value of the type of each success response; nil: no content
	responseMedia   string        // content type of the response; "": JSON
	maxBody         int64         // 0: the limit of the server
	wait            time.Duration // added to the timeout of the server
	keyed           bool          // accepts the header Idempotency-Key
	quiet           bool          // logged only at debug level
	unmetered       bool          // bodies and responses are not counted against the memory limits
	repeatable      bool          // safe to repeat; GET always is
	serve           func(*request) error

	rule    access.Rule   // computed from needs, also, public and anyone
	schema  *huma.Schema  // of the body
	timeout time.Duration // total
}

// pattern returns the pattern for the mux.
func (rt *route) pattern() string { return rt.method + " " + rt.path }

// param is a query parameter.
type param struct {
	name        string
	description string
	schema      *huma.Schema
	fallback    string // default value
	maxValues   int    // how often it may be repeated; 0: once
}

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
	x := &request{w: w, r: r, ctx: ctx, cancel: cancel, route: rt, server: s, quiet: rt.quiet, leaveGate: func() {}}
	if !rt.unmetered {
		x.memory, x.unread = reservation{budget: s.inflight, class: rt.class}, reservation{budget: s.unread, class: rt.class}
	}
	defer x.releaseResources()
	note := requestLogFromContext(ctx)
	note.route = rt.path
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

var noContent = map[int]any{http.StatusNoContent: nil}

func okResponse(body any) map[int]any { return map[int]any{http.StatusOK: body} }

func createdResponse(body any) map[int]any { return map[int]any{http.StatusCreated: body} }

func createdOrOKResponse(body any) map[int]any {
	return map[int]any{http.StatusCreated: body, http.StatusOK: body}
}
