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

// The paths of a task and of a step.
const (
	taskPath = "/v1/tasks/{uuid}"
	stepPath = taskPath + "/workflow_steps/{step}"
	workPath = "/v1/workers/{worker_uuid}"
)

// maxLeasesBytes is room for the leases of one heartbeat, a thousand.
const maxLeasesBytes = 512 << 10

// routes is the table of all there is. Each summary says what the path is for;
// about says who calls it and whether repeating is safe, where that is not plain.
func (s *server) routes() []*route {
	return slices.Concat(s.templateRoutes(), s.taskRoutes(), s.taskListRoutes(), s.versionRoutes(), s.stepRoutes(), s.resultRoutes(), s.inboxRoutes(), s.answerLinkRoutes(), s.entryRoutes(), s.caseRoutes(), s.caseActionRoutes(), s.incidentRoutes(), s.incidentReportRoutes(), s.operationRoutes(), s.operationChangeRoutes(), s.holdRoutes(), s.scheduleRoutes(), s.explainRoutes(), s.emissionRoutes(), s.workerRoutes(), s.namespaceRoutes(), s.limitRoutes(), s.accessRoutes(), s.serverRoutes())
}

func (s *server) taskRoutes() []*route {
	return []*route{
		{
			method: "POST", path: "/v1/tasks", id: "createTask", class: overload.Creates, needs: access.CreateTasks, tag: "tasks",
			summary: "Create a task",
			about: "With an idempotency_key it is safe to repeat: the same request answers 200 with the task there is, " +
				"another one under the same key is a CONFLICT.",
			body:    apiv1.CreateTask{},
			answers: map[int]any{http.StatusCreated: apiv1.Task{}, http.StatusOK: apiv1.Task{}},
			serve:   withBody(s.createTask),
		},
		{
			method: "POST", path: "/v1/tasks/bulk", id: "createTasks", class: overload.BulkCreates, needs: access.CreateTasks, tag: "tasks",
			summary: "Create up to 1000 tasks, all or none",
			about:   "Safe to repeat as far as the elements have an idempotency_key. Answers 200 when no task is new.",
			body:    []apiv1.CreateTask{},
			answers: map[int]any{http.StatusCreated: apiv1.CreatedTasks{}, http.StatusOK: apiv1.CreatedTasks{}},
			serve:   s.createTasks,
		},
		{
			method: "GET", path: taskPath, id: "getTask", class: overload.Reads, needs: access.ReadTasks, tag: "tasks",
			summary: "One task with its steps",
			answers: map[int]any{http.StatusOK: apiv1.Task{}},
			serve:   s.oneTask,
		},
		{
			method: "DELETE", path: taskPath, id: "cancelTask", class: overload.Operations, needs: access.CancelTasks, tag: "tasks",
			summary: "Cancel a task and what is left of its steps",
			about: "Safe to repeat. A task that is complete is a CONFLICT. With compensate=true what its completed steps have done is undone, in the reverse order of their completion, where their template says how: " +
				"the task is in the phase compensating, and cancelled at the end; see phase and outcome. Cancelled without it meanwhile, the compensation stops.",
			params: []param{
				textParam("reason", "Why, for the history.", 2000), textParam("cancelled_by", "Who, for the history.", 255),
				boolParam("compensate", "Undo what its completed steps have done before it is cancelled."),
			},
			answers: map[int]any{http.StatusOK: apiv1.Task{}},
			serve:   s.cancelTask,
		},
		{
			method: "GET", path: taskPath + "/transitions", id: "listTaskTransitions", class: overload.Reads, needs: access.ReadTasks, tag: "tasks",
			summary: "The history of a task, oldest first",
			params:  []param{limitParam(maxLimit), offsetParam()},
			answers: map[int]any{http.StatusOK: []tasker.Transition{}},
			serve:   s.taskTransitions,
		},
		{
			method: "GET", path: taskPath + "/tree", id: "getTaskTree", class: overload.Reads, needs: access.ReadTasks, tag: "tasks",
			summary: "A task with the tasks above it and those that its steps started",
			about:   "The topmost task comes first, and each before its children, up to ten levels down. Where a task has more children than are in the answer, more_children says so.",
			answers: map[int]any{http.StatusOK: apiv1.TaskTree{}},
			serve:   s.taskTree,
		},
	}
}

// taskFilterParams are the parameters of the list of tasks.
func taskFilterParams() []param {
	return []param{
		choiceParam("status", "Only those in this state.", tasker.TaskStates()),
		choiceParam("phase", "Only those that undo what they have done.", []tasker.TaskPhase{tasker.Compensating}),
		textParam("namespace", "Only those of this namespace.", 128), textParam("name", "Only those of this template.", 128),
		boolParam("dead_lettered", "Only those with an open or permanent investigation, or only those without."),
		textParam("tag", "Only those with this tag.", 128).upTo(tasker.MaxSearchTags),
		textParam("correlation_id", "Only those with this correlation id.", 128),
		textParam("idempotency_key", "Only the one with this idempotency key, in each namespace.", 255),
		textParam("initiator", "Only those with this initiator.", 255), textParam("source_system", "Only those of this source system.", 255),
		timeParam("created_after", "Only those created at this instant or later."), timeParam("created_before", "Only those created before this instant."),
		idParam("parent", "Only those that steps of this task started."),
		boolParam("overdue", "Only those that have not ended and whose due time is over, the longest ago first."), timeParam("due_before", "Only those that have not ended and are due before this instant, those that are due first before the others."),
	}
}

func (s *server) stepRoutes() []*route {
	return []*route{
		{
			method: "GET", path: taskPath + "/workflow_steps", id: "listSteps", class: overload.Reads, needs: access.ReadTasks, tag: "steps",
			summary: "The steps of a task with their readiness",
			answers: map[int]any{http.StatusOK: []apiv1.Step{}},
			serve:   s.listSteps,
		},
		{
			method: "GET", path: stepPath, id: "getStep", class: overload.Reads, needs: access.ReadTasks, tag: "steps",
			summary: "One step with its readiness",
			about:   "{step} is the step's UUID or its name, such as refund[17] of an item.",
			answers: map[int]any{http.StatusOK: apiv1.Step{}},
			serve:   s.oneStep,
		},
		{
			method: "GET", path: taskPath + "/workflow_steps/{step}/items", id: "listStepItems", class: overload.Reads, needs: access.ReadTasks, tag: "steps",
			summary: "The items of a step of type map, in their order",
			about:   "{step} is the step's UUID or its name. A page with large documents ends early, and next says where the next one begins.",
			params: []param{
				choiceParam("state", "Only those in this state.", tasker.StepStates()),
				intParam("from", "Only those from this ordinal on: next of the page before.", 0, maxOffset, 0), limitParam(triageLimit),
			},
			answers: map[int]any{http.StatusOK: apiv1.StepItemList{}},
			serve:   s.stepItems,
		},
		{
			method: "PATCH", path: stepPath, id: "operateStep", class: overload.Operations, needs: access.OperateSteps, tag: "steps",
			summary: "Reset, resolve or complete a step by hand",
			about: "For operators. {step} is the step's UUID or its name. The task goes on in the same transaction; the answer is the step as the action left it. " +
				"When the state of the step or of the task does not allow the action, the answer is a CONFLICT whose details have task_state, step_state, allowed_actions " +
				"and needs_interrupt. A step that is queued or that a worker holds needs interrupt. " +
				"Under an Idempotency-Key the same request again applies nothing and answers with the step as it is.",
			keyed:   true,
			body:    stepAction{},
			answers: map[int]any{http.StatusOK: apiv1.Step{}},
			serve:   s.operateStep,
		},
		{
			method: "GET", path: stepPath + "/transitions", id: "listStepTransitions", class: overload.Reads, needs: access.ReadTasks, tag: "steps",
			summary: "The history of a step, oldest first",
			params:  []param{limitParam(maxLimit), offsetParam()},
			answers: map[int]any{http.StatusOK: []tasker.Transition{}},
			serve:   s.stepTransitions,
		},
		{
			method: "POST", path: taskPath + "/workflow_steps/{step}/completion", id: "completeExternalStep", class: overload.Reports, needs: access.CompleteSteps, tag: "steps",
			summary: "Report the outcome of an external step",
			about: "For the system that the step waits for. {step} is the step's UUID or its name, so who knows the task needs to ask for nothing else. " +
				"Safe to repeat; another outcome than the first is a CONFLICT.",
			body: apiv1.Completion{}, repeatable: true,
			answers: map[int]any{http.StatusOK: apiv1.Step{}},
			serve:   s.completeStep,
		},
	}
}

func (s *server) entryRoutes() []*route { //nolint:funlen // a table
	return []*route{
		{
			method: "GET", path: "/v1/dlq", id: "listEntries", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "List investigations, newest first",
			params: []param{
				choiceParam("resolution_status", "Only those with this status.", tasker.ResolutionStatuses()),
				choiceParam("dlq_reason", "Only those with this reason.", tasker.Reasons()),
				limitParam(defaultLimit), offsetParam(),
			},
			answers: map[int]any{http.StatusOK: []apiv1.Entry{}},
			serve:   s.listEntries,
		},
		{
			method: "GET", path: "/v1/dlq/task/{task_uuid}", id: "getEntryOfTask", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "The newest investigation of a task, with its snapshot",
			answers: map[int]any{http.StatusOK: apiv1.Entry{}},
			serve:   s.entryOfTask,
		},
		{
			method: "POST", path: "/v1/dlq/task/{task_uuid}", id: "openEntry", class: overload.Operations, needs: access.UpdateInvestigations, tag: "dlq",
			summary: "Open an investigation of a task by hand",
			about: "The task goes on as it did. When one is open already, the CONFLICT has its dlq_entry_uuid. " +
				"Under an Idempotency-Key the same request again opens nothing and answers with the newest investigation of the task.",
			keyed:   true,
			body:    apiv1.OpenEntry{},
			answers: map[int]any{http.StatusCreated: apiv1.Entry{}},
			serve:   withBody(s.openEntry),
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}", id: "getEntry", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "One investigation with its snapshot and history",
			params:  []param{intParam("history_offset", "Lines of the history to pass over.", 0, maxOffset, 0)},
			answers: map[int]any{http.StatusOK: apiv1.Entry{}},
			serve:   s.oneEntry,
		},
		{
			method: "PATCH", path: "/v1/dlq/entry/{dlq_entry_uuid}", id: "updateEntry", class: overload.Operations, needs: access.UpdateInvestigations, tag: "dlq",
			summary: "Note what was found, or end an investigation",
			about: "Absent fields stay as they are. Safe to repeat; an investigation that ended otherwise is a CONFLICT. " +
				"Under an Idempotency-Key the same request again is noted once.",
			keyed:   true,
			body:    apiv1.UpdateEntry{},
			answers: map[int]any{http.StatusOK: apiv1.UpdatedEntry{}},
			serve:   withBody(s.updateEntry),
		},
		{
			method: "GET", path: "/v1/dlq/stats", id: "getEntryStats", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "Investigations counted by reason",
			answers: map[int]any{http.StatusOK: []tasker.EntryStats{}},
			serve:   s.entryStats,
		},
		{
			method: "GET", path: "/v1/dlq/investigation-queue", id: "getQueue", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "Open investigations, the most urgent first",
			params:  append(investigationParams(), foundParams()...),
			answers: map[int]any{http.StatusOK: []apiv1.InvestigationQueueEntry{}},
			serve:   s.queue,
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}/related", id: "getRelatedEntries", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "Other investigations of the same case: how many are open, and how others ended",
			params:  []param{intParam("limit", "How many of those that have ended are listed.", 1, 100, 10)},
			answers: map[int]any{http.StatusOK: apiv1.RelatedEntries{}},
			serve:   s.relatedEntries,
		},
		{
			method: "GET", path: "/v1/dlq/entry/{dlq_entry_uuid}/evidence", id: "getEvidenceFile", class: overload.Reads, needs: access.ReadInvestigations, also: access.ReadPayloads, tag: "dlq",
			summary: "An investigation as one file: the step that failed, what its handler was given, its failures, and its history",
			about: "What must not be shown is hidden, and redacted has the places of that in input. " +
				"docs/reference/evidence-file.schema.json is the form of the file.",
			answers: map[int]any{http.StatusOK: tasker.EvidenceFile{}},
			serve:   s.evidenceFile,
		},
		{
			method: "GET", path: "/v1/dlq/counts", id: "getEntryCounts", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "Investigations opened, ended, proved and open over time, oldest interval first",
			about:   "The last interval is the one that is not over. Of a time with more than 100,000 the newest are counted.",
			params: []param{
				intParam("interval_minutes", "The width of an interval.", 1, maxAgeMinutes/maxIntervals, 60),
				intParam("intervals", "How many, the present one included.", 1, maxIntervals, 24),
			},
			answers: map[int]any{http.StatusOK: []tasker.EntryCount{}},
			serve:   s.entryCounts,
		},
		{
			method: "GET", path: "/v1/dlq/times", id: "getEntryTimes", class: overload.Reads, needs: access.ReadInvestigations, tag: "dlq",
			summary: "How long the investigations that ended took: until acknowledged, owned, repaired, proved and resolved",
			about:   "Each case counts once, with the median of its investigations. The newest 10,000 that ended are looked at.",
			params:  []param{intParam("minutes", "Those that ended in so many minutes.", 1, maxAgeMinutes, 24*60)},
			answers: map[int]any{http.StatusOK: apiv1.EntryTimes{}},
			serve:   s.entryTimes,
		},
		{
			method: "GET", path: "/v1/dlq/staleness", id: "getStaleness", class: overload.Reads, needs: access.ReadTasks, tag: "dlq",
			summary: "How near running tasks are to their staleness thresholds: stale, warning, healthy",
			params: []param{
				choiceParam("health_status", "Only those with this health.", tasker.Healths()),
				textParam("namespace", "Only those of this namespace.", 128), textParam("name", "Only those of this template.", 128),
				limitParam(triageLimit), offsetParam(),
			},
			answers: map[int]any{http.StatusOK: []tasker.StaleTask{}},
			serve:   s.staleness,
		},
	}
}

// workerRoutes is the protocol of workers.
func (s *server) workerRoutes() []*route { //nolint:funlen // a table
	const tag = "workers"
	return []*route{
		{
			method: "GET", path: "/v1/workers", id: "listWorkers", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "List workers, those heard of last first",
			params:  []param{limitParam(defaultLimit), offsetParam()},
			answers: map[int]any{http.StatusOK: apiv1.WorkerList{}},
			serve:   s.listWorkers,
		},
		{
			method: "POST", path: "/v1/workers", id: "registerWorker", class: overload.Claims, needs: access.ActAsWorker, tag: tag,
			summary: "Register a worker",
			body:    apiv1.RegisterWorker{},
			answers: map[int]any{http.StatusCreated: apiv1.RegisteredWorker{}},
			serve:   withBody(s.registerWorker),
		},
		{
			method: "POST", path: workPath + "/claims", id: "claimSteps", class: overload.Claims, needs: access.ActAsWorker, tag: tag,
			summary: "Take steps to execute, waiting up to wait_ms for some",
			body:    apiv1.ClaimSteps{}, wait: maxWait, maxBody: freeBytes, repeatable: true,
			answers: map[int]any{http.StatusOK: apiv1.ClaimedSteps{}},
			serve:   withBody(s.claimSteps),
		},
		{
			method: "POST", path: workPath + "/take", id: "takeSteps", class: overload.Claims, needs: access.ActAsWorker, tag: tag,
			summary: "Take the steps that the message broker announced",
			about: "Hands out those that are enqueued and that the worker can execute. Messages of all of them may be acknowledged then: " +
				"the others are elsewhere by now, or are announced again.",
			body: apiv1.TakeSteps{}, repeatable: true,
			answers: map[int]any{http.StatusOK: apiv1.ClaimedSteps{}},
			serve:   withBody(s.takeSteps),
		},
		{
			method: "POST", path: workPath + "/heartbeat", id: "heartbeat", class: overload.Reports, needs: access.ActAsWorker, tag: tag,
			summary: "Keep the leases of steps that are being executed",
			about:   "Safe to repeat. Stop the work of leases that are lost.",
			body:    apiv1.Leases{}, quiet: true, maxBody: maxLeasesBytes, unmetered: true,
			answers: map[int]any{http.StatusOK: apiv1.HeartbeatAnswer{}},
			serve:   s.heartbeat,
		},
		{
			method: "POST", path: workPath + "/results", id: "reportResults", class: overload.Reports, needs: access.ActAsWorker, tag: tag,
			summary: "Report outcomes of steps and, with claim, take the next ones",
			about: "Safe to repeat: the same result again is accepted and not applied twice. Each result is taken or rejected by itself. " +
				"A failure is taken however its error looks; what cannot be stored of it is replaced.",
			body: apiv1.ReportResults{}, repeatable: true,
			answers: map[int]any{http.StatusOK: apiv1.ReportAnswer{}},
			serve:   s.reportResults,
		},
		{
			method: "POST", path: workPath + "/checkpoint", id: "saveCheckpoint", class: overload.Reports, needs: access.ActAsWorker, tag: tag,
			summary: "Save how far a step has come, for the attempts that follow",
			about: "The value takes the place of the one before, and a claim of the step hands it out. It extends no lease. Safe to repeat. " +
				"Under a lease that is lost nothing is saved: STALE_LEASE.",
			body:    apiv1.SaveCheckpoint{},
			answers: map[int]any{http.StatusNoContent: nil},
			serve:   withBody(s.saveCheckpoint),
		},
		{
			method: "POST", path: workPath + "/release", id: "releaseSteps", class: overload.Reports, needs: access.ActAsWorker, tag: tag,
			summary: "Give steps back that were not begun, without using an attempt",
			body:    apiv1.Leases{},
			answers: map[int]any{http.StatusOK: apiv1.Released{}},
			serve:   s.releaseSteps,
		},
		{
			method: "POST", path: workPath + "/drain", id: "drainWorker", class: overload.Operations, needs: access.DrainWorkers, tag: tag,
			summary: "Give a worker no new work: it finishes what it holds and leaves",
			about: "For operators, and for a worker that is going to end. Safe to repeat; there is no way back. " +
				"The worker learns of it with the answer to its next heartbeat.",
			answers: map[int]any{http.StatusOK: apiv1.Worker{}},
			serve:   s.drainWorker,
		},
		{
			method: "DELETE", path: workPath, id: "leave", class: overload.Reports, needs: access.ActAsWorker, tag: tag,
			summary: "Leave: end the worker's registration",
			answers: map[int]any{http.StatusNoContent: nil},
			serve:   s.leave,
		},
		{
			method: "GET", path: "/v1/queues", id: "listQueues", class: overload.Reads, needs: access.ReadWorkers, tag: tag,
			summary: "What waits for workers, by namespace and handler: first what no live worker takes, then the oldest",
			about:   "A queue in which nothing waits is not listed.",
			params:  []param{textParam("namespace", "Only those of this namespace.", 128), limitParam(queuesLimit)},
			answers: map[int]any{http.StatusOK: []tasker.Queue{}},
			serve:   s.listQueues,
		},
	}
}

// serverRoutes are about the server itself.
func (s *server) serverRoutes() []*route {
	const tag = "server"
	return []*route{
		{
			method: "GET", path: "/health", id: "health", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary: "The server answers",
			answers: map[int]any{http.StatusOK: apiv1.Health{}},
			serve:   s.healthy("healthy"),
		},
		{
			method: "GET", path: "/health/live", id: "live", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary: "The server lives; restart it when this does not answer",
			answers: map[int]any{http.StatusOK: apiv1.Health{}},
			serve:   s.healthy("alive"),
		},
		{
			method: "GET", path: "/health/ready", id: "ready", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary: "The server can do its work; send it none when this says 503",
			answers: map[int]any{http.StatusOK: apiv1.Health{}},
			serve:   s.readiness,
		},
		{
			method: "GET", path: "/metrics", id: "metrics", class: overload.Exempt, needs: access.ReadMetrics, tag: tag, quiet: true, gives: "text/plain",
			summary: "The server's metrics, in the format of Prometheus",
			answers: map[int]any{http.StatusOK: ""},
			serve:   s.scrape,
		},
		{
			method: "GET", path: "/api-docs/openapi.json", id: "openapi", class: overload.Exempt, public: true, tag: tag, quiet: true,
			summary: "This document",
			answers: map[int]any{http.StatusOK: map[string]any{}},
			serve:   s.openAPI,
		},
	}
}

// A route is one line of the table: how it is reached, what it takes and gives,
// and who serves it.
type route struct {
	method, path string
	id           string            // its name in generated clients
	needs        access.Permission // that the caller must have
	also         access.Permission // beside needs; empty: nothing else
	public       bool              // nobody is asked who they are
	anyone       bool              // whoever is known may
	class        overload.Class    // of requests that are limited together
	tag          string
	summary      string
	about        string
	params       []param       // of the query
	body         any           // a value of the type that the body is decoded into; nil means none
	media        []string      // content types of the body; nil means JSON
	answers      map[int]any   // a value of the type of each answer that is no error; nil means no content
	gives        string        // content type of the answer; "" means JSON
	maxBody      int64         // 0 means the server's limit
	wait         time.Duration // that it may take beyond the server's timeout
	keyed        bool          // a header Idempotency-Key makes it safe to repeat
	quiet        bool          // its requests are logged for debugging only
	unmetered    bool          // its bodies and answers do not wait for room in memory
	repeatable   bool          // sent again, it does nothing twice; all GETs are
	serve        func(*request) error

	rule    access.Rule   // of needs, public and anyone
	schema  *huma.Schema  // of the body
	timeout time.Duration // all in all
}

// pattern names the route for the mux.
func (rt *route) pattern() string { return rt.method + " " + rt.path }

// A param is one parameter of a query.
type param struct {
	name     string
	about    string
	schema   *huma.Schema
	fallback string // its value when the query has none
	most     int    // how often it may be given; 0 means once
}

// A request is one HTTP request on the way to its response.
type request struct {
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // ends with the request or its time
	cancel   func()          // ends ctx
	route    *route
	server   *server
	caller   *auth.Caller
	received received
	query    url.Values  // checked, with defaults
	quietly  bool        // nothing happened that a log should tell
	leave    func()      // ends what counts for the limit of the route's class
	room     reservation // of the body
	unread   reservation // of the answer
}

// run serves a request whose route is known.
func (s *server) run(w http.ResponseWriter, r *http.Request, rt *route) {
	ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
	defer cancel()
	x := &request{w: w, r: r, ctx: ctx, cancel: cancel, route: rt, server: s, quietly: rt.quiet, leave: func() {}}
	if !rt.unmetered {
		x.room, x.unread = reservation{of: s.inflight, class: rt.class}, reservation{of: s.unread, class: rt.class}
	}
	defer x.done()
	note := requestLogOf(ctx)
	note.route = rt.path
	var err error
	if err = x.admit(); err == nil {
		if x.query, err = rt.readQuery(r.URL.RawQuery); err == nil {
			err = x.checkKey()
		}
		if err == nil {
			err = x.checkPath()
		}
		if err == nil {
			err = rt.serve(x)
		}
	}
	note.quiet = x.quietly
	if err != nil {
		x.auditRefusal(err)
		note.err = x.timed(err)
		x.done()
		respondError(w, r, note.err)
	}
}

// timed returns what ended the request's context in place of the error that came of it: its
// time is over, or the caller is not who they were, see admit.
func (x *request) timed(err error) error {
	if x.ctx.Err() == nil || x.r.Context().Err() != nil || tasker.CodeOf(err) != tasker.Internal {
		return err
	}
	message := "the request took longer than " + x.route.timeout.String() + " and was given up; try again"
	if errors.Is(x.ctx.Err(), context.Canceled) {
		message = "the request was ended, because the API key has ended or what it may do has changed; try again"
	}
	return &tasker.Error{Code: tasker.Unavailable, Err: err, Message: message}
}
