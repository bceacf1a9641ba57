package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/web"
)

// rolesWith are the roles that may use a page, by what its route needs.
var rolesWith = map[access.Permission][]string{
	access.ReadInvestigations:   {"viewer", "operator", "developer", "admin"},
	access.ReadTasks:            {"viewer", "operator", "developer", "admin"},
	access.ReadWorkers:          {"viewer", "operator", "developer", "admin"},
	access.ReadEvents:           {"viewer", "operator", "developer", "admin"},
	access.ReadTemplates:        {"viewer", "operator", "developer", "admin"},
	access.WriteTemplates:       {"developer", "admin"},
	access.WriteSchedules:       {"developer", "admin"},
	access.OperateSchedules:     {"operator", "developer", "admin"},
	access.OperateSteps:         {"operator", "admin"},
	access.CompleteSteps:        {"operator", "worker", "admin"},
	access.UpdateInvestigations: {"operator", "admin"},
	access.CancelTasks:          {"operator", "developer", "admin"},
	access.DrainWorkers:         {"operator", "admin"},
	access.ResendEvents:         {"operator", "admin"},
	access.Administer:           {"admin"},
}

// permissions are what each path needs, for whatever method. The others need none.
var permissions = map[string]access.Permission{
	"/{$}": access.ReadInvestigations, "/investigations/{investigation}": access.ReadInvestigations, "/dashboard": access.ReadInvestigations,
	"/cases/{case}/report.md":                       access.ReadInvestigations,
	"/investigations/{investigation}/evidence.json": access.ReadInvestigations,
	"/cases/{case}":                                 access.ReadInvestigations, "/operations": access.ReadInvestigations, "/operations/{operation}": access.ReadInvestigations,
	"/cases/{case}/own": access.UpdateInvestigations, "/cases/{case}/release": access.UpdateInvestigations, "/cases/{case}/snooze": access.UpdateInvestigations,
	"/cases/{case}/wake": access.UpdateInvestigations, "/cases/{case}/note": access.UpdateInvestigations, "/cases/{case}/fixed": access.UpdateInvestigations,
	"/cases/{case}/merge": access.UpdateInvestigations, "/cases/{case}/unmerge": access.UpdateInvestigations, "/cases/{case}/split": access.UpdateInvestigations,
	"/cases/{case}/run": access.OperateSteps, "/plan": access.OperateSteps, "/operations/{operation}/start": access.OperateSteps, "/operations/{operation}/pause": access.OperateSteps,
	"/operations/{operation}/resume": access.OperateSteps, "/operations/{operation}/abort": access.OperateSteps,
	"/holds": access.ReadTasks, "/holds/{hold}": access.ReadTasks, "/begin-hold": access.OperateSteps,
	"/holds/{hold}/probe": access.OperateSteps, "/holds/{hold}/extend": access.OperateSteps, "/holds/{hold}/release": access.OperateSteps,
	"/cancel-tasks": access.CancelTasks, "/templates": access.ReadTemplates, "/templates/{namespace}/{template}/{version}": access.ReadTemplates,
	"/task-requests": access.ReadTasks, "/task-requests/{task}/dismiss": access.CancelTasks,
	"/inbox": access.ReadTasks, "/tasks/{task}/steps/{step}/answer": access.CompleteSteps, "/tasks/{task}/steps/{step}/assign": access.OperateSteps, "/tasks/{task}/steps/{step}/links": access.OperateSteps,
	"/schedules": access.ReadTasks, "/schedules/{schedule}": access.ReadTasks, "/schedules/{schedule}/pause": access.OperateSchedules,
	"/schedules/{schedule}/resume": access.OperateSchedules, "/schedules/{schedule}/trigger": access.OperateSchedules, "/schedules/{schedule}/backfill": access.OperateSchedules, "/new-schedule": access.WriteSchedules,
	"/templates/{namespace}/{template}/{version}/retire": access.WriteTemplates, "/templates/{namespace}/{template}/{version}/unretire": access.WriteTemplates,
	"/templates/{namespace}/{template}/{version}/change-tasks": access.OperateSteps,
	"/tasks": access.ReadTasks, "/tasks/{task}": access.ReadTasks, "/tasks/{task}/steps/{step}/items": access.ReadTasks, "/staleness": access.ReadTasks, "/workers": access.ReadWorkers, "/queues/{namespace}/{handler}": access.ReadWorkers,
	"/events": access.ReadEvents, "/emissions": access.ReadEvents, "/emissions/{event}": access.ReadEvents, "/audit": access.Administer,
	"/tasks/{task}/steps/{step}/reset": access.OperateSteps, "/tasks/{task}/steps/{step}/resolve": access.OperateSteps, "/tasks/{task}/steps/{step}/complete": access.OperateSteps,
	"/tasks/{task}/version": access.OperateSteps, "/tasks/{task}/due": access.OperateSteps, "/tasks/{task}/cancel": access.CancelTasks, "/tasks/{task}/investigate": access.UpdateInvestigations,
	"/investigations/{investigation}/update": access.UpdateInvestigations, "/investigations/{investigation}/own": access.UpdateInvestigations,
	"/limits": access.ReadWorkers, "/limit": access.ReadWorkers, "/set-limit": access.OperateSteps, "/delete-limit": access.OperateSteps,
	"/set-weight": access.Administer, "/workers/{worker}/drain": access.DrainWorkers, "/emissions/{event}/re-emit": access.ResendEvents,
}

// narrower are the roles of a path that needs payloads:read as well.
var narrower = map[string][]string{"/investigations/{investigation}/evidence.json": {"operator", "developer", "admin"}}

// payloadReaders are the roles with payloads:read.
var payloadReaders = []string{"operator", "developer", "worker", "admin"}

// The paths that need no permission: for whoever has signed in, and for everybody.
var (
	forAnyone = []string{"/name", "/sign-out"}
	forAll    = []string{"/sign-in", "/sign-in/provider", "/sign-in/callback", "/static/{name}", "/answer/{token}"}
)

// admitted is how a route answers to a caller who may use it: 200, and 400 to a form in
// which nothing was typed, but for these.
var admitted = map[string]int{
	"GET /cancel-tasks": 409, "POST /cancel-tasks": 409, // there is no filter
	"GET /plan":  400,                           // nothing is selected
	"GET /limit": 400, "GET /delete-limit": 400, // none is named
	"GET /sign-in/provider": 404, "GET /sign-in/callback": 404, // there is no identity provider
	"POST /name": 303, "POST /sign-out": 303, "GET /sign-in": 303, "POST /sign-in": 303,
	"POST /investigations/{investigation}/own": 303, "POST /workers/{worker}/drain": 303,
	"GET /cases/{case}/release": 409, "POST /cases/{case}/release": 409, "GET /cases/{case}/wake": 409, "POST /cases/{case}/wake": 409, // nobody has it, it does not rest
	"GET /cases/{case}/unmerge": 409, "POST /cases/{case}/unmerge": 409, "GET /operations/{operation}/pause": 409, "POST /operations/{operation}/pause": 409,
	"GET /operations/{operation}/resume": 409, "POST /operations/{operation}/resume": 409, // it is planned
	"GET /schedules/{schedule}/resume": 409, "POST /schedules/{schedule}/resume": 409, // it is not paused
	"POST /holds/{hold}/probe":                                 409,                                                                   // it holds no step
	"GET /templates/{namespace}/{template}/{version}/unretire": 409, "POST /templates/{namespace}/{template}/{version}/unretire": 409, // it is not retired
	"GET /task-requests/{task}/dismiss": 404, "POST /task-requests/{task}/dismiss": 404, // the task exists
	"GET /tasks/{task}/investigate": 409, "POST /tasks/{task}/investigate": 409, // an investigation is open
}

// A matrixCaller is somebody with some grants.
type matrixCaller struct {
	name   string
	grants []string // none: nobody has signed in
	*harness
}

// has reports whether one of the grants is of one of the roles, and for the namespace of
// the resources or all.
func (c matrixCaller) has(roles []string, namespaces ...string) bool {
	return slices.ContainsFunc(c.grants, func(g string) bool {
		role, namespace, _ := strings.Cut(g, "@")
		return slices.Contains(roles, role) && (len(namespaces) == 0 || slices.Contains(namespaces, namespace))
	})
}

// want returns the status for the caller: of an id in the namespace shop, or of an id that
// nothing has.
func (c matrixCaller) want(rt web.Route, exists bool) int {
	ok, known := admitted[rt.Method+" "+rt.Path]
	switch {
	case known:
	case rt.Method == http.MethodPost:
		ok = http.StatusBadRequest
	default:
		ok = http.StatusOK
	}
	everyRole, needs := []string{"viewer", "operator", "developer", "worker", "admin"}, permissions[rt.Path]
	roles, isNarrower := narrower[rt.Path]
	if !isNarrower {
		roles = rolesWith[needs]
	}
	switch {
	case rt.Path == "/sign-in" && rt.Method == http.MethodGet && len(c.grants) == 0:
		return http.StatusOK
	case slices.Contains(forAll, rt.Path):
		return ok
	case len(c.grants) == 0 && rt.Method == http.MethodGet:
		return http.StatusSeeOther
	case len(c.grants) == 0:
		return http.StatusUnauthorized
	case slices.Contains(forAnyone, rt.Path):
		return ok
	case needs == access.Administer && !c.has(rolesWith[needs], "*"), !c.has(rolesWith[needs]), isNarrower && !c.has(payloadReaders):
		return http.StatusForbidden
	case rt.Of == "" && !strings.Contains(rt.Path, "{namespace}"):
		return ok
	case !exists && c.has(rolesWith[needs], "*") && strings.HasPrefix(rt.Path, "/queues/"): // nothing waits there
		return ok
	case !exists && strings.Contains(rt.Path, "{namespace}") && !c.has(roles, "*"): // whether or not the namespace exists
		return http.StatusForbidden
	case !exists:
		return http.StatusNotFound
	case c.has(roles, "shop", "*"):
		return ok
	case c.has(everyRole, "shop", "*"), strings.Contains(rt.Path, "{namespace}"):
		return http.StatusForbidden
	default:
		return http.StatusNotFound
	}
}

// TestEveryPageForEveryCaller asks for every route as everybody, with an id of namespace
// shop and with one that nothing has.
func TestEveryPageForEveryCaller(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	st.sinks("webhook")
	_, err := st.DB.TakeEvents(t.Context(), "webhook", 100)
	st.Must(err)
	event, aCase := st.firstEvent(), st.caseOf("order")
	planned := st.planned("order")
	held := st.hold(tasker.HoldScope{Namespace: "shop", Handler: "away"})
	nightly, err := st.Engine.CreateSchedule(t.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "nightly", Template: "order", ScheduleRule: tasker.ScheduleRule{Every: time.Hour},
	}, engine.ScheduleChange{Actor: "ann"})
	st.Must(err)
	_, _, err = st.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "order", Version: "1.1.0",
		Steps: []tasker.StepTemplate{step("reserve"), step("charge", "reserve"), step("ship", "charge"), step("receipt", "charge"), step("announce", "ship", "receipt")},
	}, "")
	st.Must(err)
	_, _, err = st.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: "shop", Name: "asked", Version: "1.0.0", Steps: []tasker.StepTemplate{{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry(), Assignee: "ann"}},
	}, "")
	st.Must(err)
	asked := st.CreateWith(tasker.NewTask{Namespace: "shop", Name: "asked"})
	var approval string
	st.Must(st.Admin().QueryRow(t.Context(), `SELECT step_uuid::text FROM tasker.workflow_steps WHERE task_uuid = $1`, asked).Scan(&approval))
	st.tick()
	var ref tasker.StepRef
	ref.TaskUUID = asked
	st.Must(ref.StepUUID.UnmarshalText([]byte(approval)))
	link, err := st.Engine.CreateAnswerLink(t.Context(), ref, tasker.AnswerLinkRequest{Actor: "test"})
	st.Must(err)
	fill := func(path string, exists bool) string {
		id := func(id tasker.ID) string {
			if !exists {
				id = tasker.NewID()
			}
			return id.String()
		}
		namespace := "shop"
		if !exists {
			namespace = "nowhere"
		}
		if strings.HasSuffix(path, "/answer") || strings.HasSuffix(path, "/assign") || strings.HasSuffix(path, "/links") {
			path = strings.NewReplacer("{task}", id(asked), "{step}", approval).Replace(path)
		}
		return web.Root + strings.NewReplacer("{namespace}", namespace, "{template}", "order", "{version}", "1.0.0", "{handler}", "run", "{$}", "", "{name}", "ui.css", "{token}", link.Token, "{task}", id(st.task), "{step}", st.step.String(),
			"{investigation}", id(st.entry), "{case}", id(aCase), "{operation}", id(planned), "{hold}", id(held.UUID), "{schedule}", id(nightly.UUID), "{worker}", id(st.worker), "{event}", id(event)).Replace(path)
	}
	callers := []matrixCaller{{name: "nobody", harness: st.browser()}}
	for _, grants := range [][]string{
		{"viewer@shop"}, {"operator@shop"}, {"developer@shop"}, {"worker@shop"}, {"admin@shop"}, {"admin@*"}, {"viewer@*"},
		{"admin@bank"}, {"viewer@*", "operator@bank"}, {"viewer@bank", "worker@shop"},
	} {
		name := strings.NewReplacer("@*", "-all", "@", "-").Replace(strings.Join(grants, "+"))
		callers = append(callers, matrixCaller{name, grants, st.signedIn(name, grants...)})
	}
	key := st.key("again", "viewer@shop")
	routes := web.Routes()
	last := []string{"POST /sign-out", "POST /sign-in"} // after them somebody else would ask
	slices.SortStableFunc(routes, func(a, b web.Route) int {
		return slices.Index(last, a.Method+" "+a.Path) - slices.Index(last, b.Method+" "+b.Path)
	})
	cells, assignee := 0, ""
	st.sorted.Store(true)
	for _, c := range callers {
		for _, rt := range routes {
			for _, exists := range []bool{true, false} {
				if rt.Of == "" && !exists && !strings.Contains(rt.Path, "{namespace}") {
					continue
				}
				cells++
				path := fill(rt.Path, exists)
				var r reply
				switch {
				case rt.Path == "/events": // which would go on
					r = c.send(http.MethodHead, path, "")
				case rt.Method == http.MethodGet:
					r = c.get(path)
				default:
					r = c.postRaw(path, url.Values{"token": {c.token()}, "key": {key}, "had": {assignee}}.Encode())
				}
				if strings.HasSuffix(rt.Path, "/own") && r.status == http.StatusSeeOther && r.header.Get("Location") == st.page() {
					assignee = "key:" + c.name
				}
				if want := c.want(rt, exists); r.status != want {
					t.Errorf("%s: %s %s (exists %v): %d, want %d\n%.300s", c.name, rt.Method, rt.Path, exists, r.status, want, r.text)
				}
				if r.status == http.StatusForbidden && rt.Path != "/events" && !strings.Contains(r.text, string(permissions[rt.Path])) &&
					(narrower[rt.Path] == nil || !strings.Contains(r.text, string(access.ReadPayloads))) {
					t.Errorf("%s: %s %s does not name the permission", c.name, rt.Method, rt.Path)
				}
			}
		}
	}
	if cells < 500 {
		t.Errorf("%d cells, want 500", cells)
	}
	t.Logf("%d cells", cells)
	if s := st.stepOf("charge"); s.State != tasker.StepError {
		t.Errorf("the step is %s", s.State)
	}
}

// An id of another namespace reads exactly like one that nothing has.
func TestOtherNamespacesDoNotExist(t *testing.T) {
	t.Parallel()
	st := newStuck(t, asking)
	b := st.signedIn("ann", "admin@bank")
	page := func(path string, id tasker.ID) string {
		r := b.get(strings.Replace(path, "ID", id.String(), 1))
		text := strings.ReplaceAll(r.text, id.String(), "ID")
		if at := strings.Index(text, "<footer>"); at > 0 {
			text = text[:at]
		}
		return fmt.Sprint(r.status, text)
	}
	event, mine := st.firstEvent(), tasker.NewID()
	aCase, planned := st.caseOf("order"), st.planned("order")
	for path, id := range map[string]tasker.ID{
		"/ui/tasks/ID": st.task, "/ui/tasks/ID/cancel": st.task, "/ui/tasks/ID/steps/" + st.step.String() + "/items": st.task, "/ui/tasks/ID/steps/" + st.step.String() + "/reset": st.task,
		"/ui/investigations/ID": st.entry, "/ui/investigations/ID/update": st.entry, "/ui/workers/ID/drain": st.worker, "/ui/emissions/ID": event,
		"/ui/tasks?id=ID": st.task, "/ui/tasks?id=ID&state=error": st.entry, "/ui/?case=ID": aCase, "/ui/cases/ID": aCase, "/ui/cases/ID?why=1": aCase, "/ui/cases/ID/own": aCase, "/ui/cases/ID/merge": aCase, "/ui/cases/ID/run": aCase,
		"/ui/operations/ID": planned, "/ui/operations/ID/start": planned, "/ui/operations/ID?state=planned": planned, "/ui/?text=ID&view=entries": st.task,
	} {
		there, not := page(path, id), page(path, mine)
		if there != not {
			t.Errorf("%s: %s\nis not as for an id that nothing has: %s", path, there, not)
		}
		if strings.Contains(there, "shop") {
			t.Errorf("%s shows the namespace", path)
		}
	}
}

// Every page and form answers a malformed id as it answers an unknown one.
func TestMalformedIDsAreNotFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	asked := 0
	for _, rt := range web.Routes() {
		if rt.Of == "" {
			continue
		}
		asked++
		path := web.Root + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(rt.Path, "x")
		r := h.get(path)
		if rt.Method == http.MethodPost {
			r = h.post(path, "actor=ann", "reason=x")
		}
		h.refused(r, http.StatusNotFound, "must be a UUID")
	}
	if asked < 50 {
		t.Errorf("%d routes have an id", asked)
	}
}
