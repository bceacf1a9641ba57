package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/loop"
	ops "tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
)

// who may use each route, by its operation: written down here once more, so that a role
// that is given more by mistake is noticed.
var who = map[string]string{
	"GET /health": "everybody", "GET /health/live": "everybody", "GET /health/ready": "everybody", "GET /api-docs/openapi.json": "everybody",
	"GET /v1/whoami": "known",

	"GET /v1/task-requests": "viewer operator developer admin", "DELETE /v1/task-requests/{task_uuid}": "operator developer admin",

	"POST /v1/templates": "developer admin", "GET /v1/templates": "viewer operator developer admin",
	"GET /v1/templates/{namespace}/{name}/{version}":         "viewer operator developer admin",
	"POST /v1/templates/{namespace}/{name}/{version}/retire": "developer admin", "POST /v1/templates/{namespace}/{name}/{version}/unretire": "developer admin",
	"POST /v1/templates/{namespace}/{name}/{version}/change_tasks": "operator admin", "POST /v1/tasks/{uuid}/change_version": "operator admin",

	"POST /v1/tasks": "developer admin", "POST /v1/tasks/bulk": "developer admin", "GET /v1/tasks": "viewer operator developer admin", "GET /v1/attributes": "viewer operator developer admin",
	"POST /v1/tasks/cancel": "operator developer admin", "PUT /v1/tasks/{uuid}/due": "operator admin",
	"GET /v1/tasks/{uuid}": "viewer operator developer admin", "DELETE /v1/tasks/{uuid}": "operator developer admin",
	"GET /v1/tasks/{uuid}/events":      "viewer operator developer admin",
	"GET /v1/tasks/{uuid}/transitions": "viewer operator developer admin", "GET /v1/tasks/{uuid}/tree": "viewer operator developer admin",

	"GET /v1/tasks/{uuid}/workflow_steps":                      "viewer operator developer admin",
	"GET /v1/tasks/{uuid}/workflow_steps/{step}":               "viewer operator developer admin",
	"PATCH /v1/tasks/{uuid}/workflow_steps/{step}":             "operator admin",
	"GET /v1/tasks/{uuid}/workflow_steps/{step}/transitions":   "viewer operator developer admin",
	"GET /v1/tasks/{uuid}/workflow_steps/{step}/items":         "viewer operator developer admin",
	"POST /v1/tasks/{uuid}/workflow_steps/{step}/completion":   "operator worker admin",
	"GET /v1/tasks/{uuid}/context":                             "operator developer worker admin",
	"GET /v1/tasks/{uuid}/results/{step}":                      "operator developer worker admin",
	"GET /v1/tasks/{uuid}/results/{step}/items":                "operator developer worker admin",
	"GET /v1/tasks/{uuid}/workflow_steps/{step}/assignee":      "viewer operator developer admin",
	"POST /v1/tasks/{uuid}/workflow_steps/{step}/answer_links": "operator admin", "GET /v1/tasks/{uuid}/workflow_steps/{step}/answer_links": "viewer operator developer admin",
	"DELETE /v1/tasks/{uuid}/workflow_steps/{step}/answer_links/{link_uuid}": "operator admin",
	"PUT /v1/tasks/{uuid}/workflow_steps/{step}/assignee":                    "operator admin", "GET /v1/inbox": "viewer operator developer admin",

	"GET /v1/dlq": "viewer operator developer admin", "GET /v1/dlq/task/{task_uuid}": "viewer operator developer admin",
	"POST /v1/dlq/task/{task_uuid}": "operator admin", "GET /v1/dlq/entry/{dlq_entry_uuid}": "viewer operator developer admin",
	"PATCH /v1/dlq/entry/{dlq_entry_uuid}": "operator admin", "GET /v1/dlq/entry/{dlq_entry_uuid}/related": "viewer operator developer admin",
	"GET /v1/dlq/entry/{dlq_entry_uuid}/evidence": "operator developer admin",
	"GET /v1/dlq/stats":                           "viewer operator developer admin", "GET /v1/dlq/investigation-queue": "viewer operator developer admin",
	"GET /v1/cases": "viewer operator developer admin", "GET /v1/cases/{case_id}": "viewer operator developer admin", "GET /v1/cases/{case_id}/why": "viewer operator developer admin", "GET /v1/cases/{case_id}/changes": "viewer operator developer admin",
	"PATCH /v1/cases/{case_id}": "operator admin", "POST /v1/cases/{case_id}/merge": "operator admin", "POST /v1/cases/{case_id}/unmerge": "operator admin",
	"POST /v1/cases/{case_id}/split": "operator admin", "GET /v1/dlq/counts": "viewer operator developer admin", "GET /v1/dlq/times": "viewer operator developer admin",
	"GET /v1/dlq/staleness": "viewer operator developer admin",
	"GET /v1/reports":       "viewer operator developer admin", "GET /v1/cases/{case_id}/report": "viewer operator developer admin", "GET /v1/incidents/{incident_id}/report": "viewer operator developer admin",
	"POST /v1/messages/test": "operator admin",
	"GET /v1/incidents":      "viewer operator developer admin", "GET /v1/incidents/{incident_id}": "viewer operator developer admin",

	"GET /v1/explain/{id}": "viewer operator developer admin", "GET /v1/explain/queue/{namespace}/{handler}": "viewer operator developer admin",

	"GET /v1/dlq/emissions": "viewer operator developer admin", "GET /v1/dlq/emissions/{event_uuid}": "viewer operator developer admin",
	"POST /v1/dlq/emissions/re-emit": "operator admin", "GET /v1/dlq/sinks": "viewer@* operator@* developer@* admin@*",
	"GET /v1/dlq/events": "viewer operator developer admin", "GET /v1/audit": "admin@*",

	"GET /v1/workers": "viewer operator developer admin", "POST /v1/workers": "worker admin", "DELETE /v1/workers/{worker_uuid}": "worker admin",
	"POST /v1/workers/{worker_uuid}/claims": "worker admin", "POST /v1/workers/{worker_uuid}/take": "worker admin",
	"POST /v1/workers/{worker_uuid}/heartbeat": "worker admin", "POST /v1/workers/{worker_uuid}/checkpoint": "worker admin", "POST /v1/workers/{worker_uuid}/results": "worker admin",
	"POST /v1/workers/{worker_uuid}/release": "worker admin", "POST /v1/workers/{worker_uuid}/drain": "operator admin",
	"GET /v1/queues": "viewer operator developer admin", "GET /v1/namespaces": "viewer operator developer admin",
	"GET /v1/limits": "viewer operator developer admin", "PUT /v1/limits": "operator admin", "DELETE /v1/limits": "operator admin",
	"PUT /v1/namespaces/{namespace}": "admin@*", "DELETE /v1/namespaces/{namespace}": "admin@*",

	"POST /v1/operations": "operator admin", "GET /v1/operations": "viewer operator developer admin",
	"GET /v1/operations/{operation_uuid}": "viewer operator developer admin", "GET /v1/operations/{operation_uuid}/items": "viewer operator developer admin",
	"POST /v1/operations/{operation_uuid}/dry-run": "operator admin", "POST /v1/operations/{operation_uuid}/start": "operator admin",
	"POST /v1/operations/{operation_uuid}/pause": "operator admin", "POST /v1/operations/{operation_uuid}/resume": "operator admin",
	"POST /v1/operations/{operation_uuid}/abort": "operator admin",

	"POST /v1/schedules": "developer admin", "GET /v1/schedules": "viewer operator developer admin", "GET /v1/schedules/{schedule_uuid}": "viewer operator developer admin",
	"PUT /v1/schedules/{schedule_uuid}": "developer admin", "DELETE /v1/schedules/{schedule_uuid}": "developer admin",
	"GET /v1/schedules/{schedule_uuid}/firings": "viewer operator developer admin", "POST /v1/schedules/{schedule_uuid}/pause": "operator developer admin",
	"POST /v1/schedules/{schedule_uuid}/resume": "operator developer admin", "POST /v1/schedules/{schedule_uuid}/trigger": "operator developer admin",
	"POST /v1/schedules/{schedule_uuid}/backfill": "operator developer admin",

	"POST /v1/holds": "operator admin", "GET /v1/holds": "viewer operator developer admin", "GET /v1/holds/{hold_uuid}": "viewer operator developer admin",
	"POST /v1/holds/{hold_uuid}/probe": "operator admin", "POST /v1/holds/{hold_uuid}/extend": "operator admin", "POST /v1/holds/{hold_uuid}/release": "operator admin",

	"GET /v1/keys": "admin@*", "POST /v1/keys": "admin@*", "POST /v1/keys/{key_uuid}/rotate": "admin@*", "DELETE /v1/keys/{key_uuid}": "admin@*",
	"GET /v1/sessions": "admin@*", "POST /v1/sessions/end": "admin@*",
	"GET /metrics": "viewer@* operator@* developer@* admin@*",
}

// A tenant is what there is in one namespace: a task that failed, with its step, its
// investigation, a worker and an event. Its payloads have the words context-, result- and
// error- before the namespace, and everything else has the namespace in its name.
type tenant struct {
	namespace string
	ids       map[string]string // by the name of a parameter
}

func (h *harness) tenant(namespace string) tenant {
	h.Helper()
	h.Space = namespace
	h.Must(h.DB.OpenSink(h.Context(), "log"))
	h.Template("order-"+namespace, enginetest.Once(enginetest.Step("charge")), enginetest.Once(enginetest.Step("ship", "charge")))
	task := h.CreateWith(tasker.NewTask{Namespace: namespace, Name: "order-" + namespace, Context: json.RawMessage(`{"text":"context-` + namespace + `"}`)})
	worker := h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`) // it is alive however long the test takes
	for _, o := range []tasker.Outcome{
		{Success: true, Result: json.RawMessage(`"result-` + namespace + `"`)},
		{Failure: &tasker.Failure{Message: "error-" + namespace, Type: "Refused"}},
	} {
		claimed, err := h.Engine.Claim(h.Context(), worker, 1, 0)
		h.Must(err)
		if len(claimed) != 1 {
			h.Fatalf("claimed %d steps", len(claimed))
		}
		o.Lease = claimed[0].Lease()
		_, err = h.Engine.Report(h.Context(), worker, []tasker.Outcome{o}, 0)
		h.Must(err)
	}
	entry := h.Entry(task)
	t := tenant{namespace: namespace, ids: map[string]string{
		"namespace": namespace, "name": "order-" + namespace, "version": "1.0.0", "step": "charge", "handler": "run", "id": task.String(), "key_uuid": tasker.NewID().String(), "link_uuid": tasker.NewID().String(),
		"uuid": task.String(), "task_uuid": task.String(), "step_uuid": entry.StepUUID.String(), "dlq_entry_uuid": entry.UUID.String(), "worker_uuid": worker.String(),
	}}
	_, _, err := h.DLQ.Update(h.Context(), entry.UUID, tasker.EntryUpdate{Actor: "test", Metadata: json.RawMessage(`{"seen":"context-` + namespace + `"}`)})
	h.Must(err)
	var event string
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT event_uuid::text FROM tasker.outbox WHERE task_uuid = $1 ORDER BY position LIMIT 1`, task).Scan(&event))
	t.ids["event_uuid"] = event
	h.FindCases()
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT case_id::text FROM tasker.cases WHERE namespace = $1`, namespace).Scan(&event))
	t.ids["case_id"] = event
	h.Must(h.Admin().QueryRow(h.Context(), `
		WITH i AS (INSERT INTO tasker.incidents (namespace, lead_case_id, dedup_key, severity) VALUES ($1, $2::uuid, $1, 'high') RETURNING incident_id),
		c AS (INSERT INTO tasker.incident_cases (incident_id, case_id, told_state, told_entries) SELECT incident_id, $2::uuid, 'new', 1 FROM i),
		m AS (
			INSERT INTO tasker.messages (topic, subject_kind, subject_id, incident_id, namespaces, data)
			SELECT 'case.opened', 'incident', incident_id, incident_id, ARRAY[$1], jsonb_build_object('text', 'error-' || $1, 'cases', jsonb_build_array(jsonb_build_object('text', 'error-' || $1))) FROM i
		)
		SELECT incident_id::text FROM i`, namespace, event).Scan(&event))
	t.ids["incident_id"] = event
	_, err = h.DB.TakeEvents(h.Context(), "log", 100)
	h.Must(err)
	h.CreateWith(tasker.NewTask{Namespace: namespace, Name: "order-" + namespace}) // one that waits
	o, _, err := ops.New(h.DB, h.Engine, h.DLQ, ops.Options{}).Plan(h.Context(), tasker.OperationPlan{
		Act: tasker.ActComplete, Result: json.RawMessage(`"result-` + namespace + `"`), Actor: "test", Reason: "of " + namespace,
		Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: namespace}},
	})
	h.Must(err)
	t.ids["operation_uuid"] = o.UUID.String()
	held, err := h.DB.BeginHold(h.Context(), postgres.InsertedHold{
		NewHold: tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: namespace, Handler: "away"}, For: time.Hour, Owner: tasker.SystemActor, Actor: tasker.SystemActor, Reason: "it failed with error-" + namespace},
		UUID:    tasker.NewID(), Kind: tasker.BreakerHold, Cause: "error-" + namespace, CauseKey: "key", NextProbe: time.Hour,
	})
	h.Must(err)
	h.Exec(`INSERT INTO tasker.hold_releases (hold_uuid, task_uuid, step_uuid, wave, fence, released_at, outcome, failure) VALUES ($1, $2, $3, 0, 1, now(), 'failed', $4)`,
		held.UUID, task, entry.StepUUID, "error-"+namespace)
	t.ids["hold_uuid"] = held.UUID.String()
	every := tasker.ScheduleSpec{
		Namespace: namespace, Name: "schedule-of-" + namespace, Template: "order-" + namespace, Context: json.RawMessage(`{"text":"context-` + namespace + `"}`),
		ScheduleRule: tasker.ScheduleRule{Every: time.Hour},
	}
	scheduled, err := h.Engine.CreateSchedule(h.Context(), every, engine.ScheduleChange{Actor: "test"})
	h.Must(err)
	h.Exec(`INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, reason, actor) VALUES ($1, $2, $2, 'clock', 'refused', $3, 'system')`,
		scheduled.UUID, time.Now().Add(-time.Hour), "context-"+namespace)
	t.ids["schedule_uuid"] = scheduled.UUID.String()
	return t
}

// at returns a path with the ids of the tenant.
func (t tenant) at(path string) string {
	for name, id := range t.ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	return path
}

// guarded is a harness whose API asks callers who they are.
func guarded(t *testing.T, change ...func(*api.Options)) (*harness, *auth.Authenticator) {
	t.Helper()
	e := enginetest.New(t)
	a := auth.New(auth.Options{DB: e.DB, SessionLife: time.Hour, SessionIdle: time.Hour})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a_metric 1") })
	return serve(t, e, append(change, func(o *api.Options) { o.Auth, o.Metrics = a, metrics })...), a
}

// bearer returns the header of a new key.
func (h *harness) bearer(name string, grants ...string) string {
	h.Helper()
	_, token, err := auth.CreateKey(h.Context(), h.DB, auth.NewKey{Name: name, Grants: grants})
	h.Must(err)
	return "Authorization: Bearer " + token
}

// operations lists the routes, as the document has them.
func operations(t *testing.T) []string {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	var list []string
	for path, methods := range doc.Paths {
		for method := range methods {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// Every route and every kind of caller: the exact status. Where a caller may, a request that
// changes something is made invalid, so that it is refused as such, and one that reads is answered.
func TestPermissionsOfEveryRoute(t *testing.T) {
	t.Parallel()
	h, a := guarded(t)
	shop := h.tenant("shop")
	h.tenant("attic")
	callers := map[string]string{"nobody": "", "nonsense": "Authorization: Bearer x", "unknown": "Authorization: Bearer " + access.NewToken().Text}
	for _, role := range access.Roles() {
		for _, namespace := range []string{"shop", "attic", access.AllNamespaces} {
			g := string(role) + "@" + namespace
			callers[g] = h.bearer(g, g)
		}
	}
	callers["revoked"], callers["expired"] = h.bearer("revoked", "admin@*"), h.bearer("expired", "admin@*")
	h.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'revoked'`)
	h.Exec(`UPDATE tasker.api_keys SET expires_at = now() WHERE name = 'expired'`)
	a.PollRevocations(t.Context())
	cells := 0
	for _, operation := range operations(t) {
		if who[operation] == "" {
			t.Errorf("nothing is written down of %s", operation)
		}
		method, path, _ := strings.Cut(operation, " ")
		for caller, header := range callers {
			cells++
			want := expected(operation, caller)
			got := h.try(method, shop.at(path), header)
			if got.status != want {
				t.Errorf("%s by %s: %d, want %d: %.300s", operation, caller, got.status, want, got.text)
			}
			switch {
			case want == http.StatusUnauthorized && got.header.Get("WWW-Authenticate") == "":
				t.Errorf("%s by %s: no WWW-Authenticate", operation, caller)
			case want == http.StatusNotFound && strings.Contains(got.text, "shop") && !strings.Contains(path, "{namespace}"): // which the caller says
				t.Errorf("%s by %s tells of another namespace: %s", operation, caller, got.text)
			}
		}
	}
	if cells < 600 {
		t.Errorf("%d cells", cells)
	}
	t.Logf("%d cells", cells)
}

// try makes a request that changes nothing.
func (h *harness) try(method, path, header string) reply {
	h.Helper()
	var body any
	switch {
	case strings.HasPrefix(path, "/v1/") && strings.HasSuffix(path, "/events"):
		method = http.MethodHead // the stream would go on
	case path == "/v1/templates" && method == http.MethodPost:
		body = `{"name": 7}`
	case method == http.MethodGet:
	case strings.HasSuffix(path, "/drain") || method == http.MethodDelete:
		path += "?unheard_of=1"
	default:
		body = `{"unheard_of": 1}`
	}
	var headers []string
	if header != "" {
		headers = append(headers, header)
	}
	return h.send(method, path, body, headers...)
}

// expected is the status of an operation on what is in the shop.
func expected(operation, caller string) int {
	method, path, _ := strings.Cut(operation, " ")
	role, namespace, known := strings.Cut(caller, "@")
	allowed := http.StatusOK
	if method != http.MethodGet {
		allowed = http.StatusBadRequest
	}
	if strings.HasSuffix(path, "/results/{step}/items") {
		allowed = http.StatusNotFound // the step is there, and has no items
	}
	if operation == "GET /v1/tasks/{uuid}/workflow_steps/{step}/assignee" {
		allowed = http.StatusNotFound // the step is there, and no person answers it
	}
	list := strings.Fields(who[operation])
	ofInstallation := strings.Contains(who[operation], "@*")
	switch {
	case who[operation] == "everybody":
		return allowed
	case !known:
		return http.StatusUnauthorized
	case who[operation] == "known":
		return allowed
	case ofInstallation && slices.Contains(list, caller):
		return allowed
	case ofInstallation || !slices.Contains(list, role):
		return http.StatusForbidden
	case strings.Contains(path, "{namespace}") && namespace == "attic":
		return http.StatusForbidden
	case strings.Contains(path, "{") && namespace == "attic":
		return http.StatusNotFound
	default: // of a list, or of a body that names a namespace, others are left out later
		return allowed
	}
}

// A namespace without any permission does not exist: neither its names nor its payloads
// nor its ids nor its numbers are in any answer.
func TestOtherNamespacesDoNotExist(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t, live)
	attic := h.tenant("attic")
	alone := map[string]string{}
	reader := h.bearer("reader", "operator@attic", "developer@attic")
	for _, operation := range operations(t) {
		if path := h.readable(operation); path != "" {
			alone[path] = h.send("GET", attic.at(path), nil, reader).text
		}
	}
	if len(alone) < 15 {
		t.Fatalf("%d routes that read", len(alone))
	}
	shop := h.tenant("shop")
	everything := h.bearer("everything", "admin@*")
	others := append([]string{"shop", "-shop"}, shop.ids["uuid"], shop.ids["step_uuid"], shop.ids["dlq_entry_uuid"], shop.ids["case_id"], shop.ids["incident_id"], shop.ids["worker_uuid"], shop.ids["event_uuid"], shop.ids["operation_uuid"], shop.ids["hold_uuid"], shop.ids["schedule_uuid"])
	tells := 0
	for path, before := range alone {
		got := h.send("GET", attic.at(path), nil, reader)
		for _, word := range others {
			if strings.Contains(got.text, word) {
				t.Errorf("%s tells %s: %.500s", path, word, got.text)
			}
		}
		if a, b := shape(before), shape(got.text); a != b {
			t.Errorf("%s is another one since there is another namespace:\n%s\n%s", path, a, b)
		}
		if all := h.send("GET", attic.at(path), nil, everything).text; strings.Contains(all, "shop") {
			tells++ // to those who may see it
		}
	}
	if tells < 8 {
		t.Errorf("the shop is in %d answers to somebody who may see it", tells)
	}
	// Objects of another namespace are answered like objects that do not exist.
	nowhere := tenant{ids: map[string]string{}}
	for name, id := range shop.ids {
		if nowhere.ids[name] = "no-" + id; len(id) == len(tasker.ID{}.String()) {
			nowhere.ids[name] = tasker.NewID().String()
		}
	}
	asked := 0
	for path := range alone {
		if shop.at(path) == path {
			continue
		}
		asked++
		there, none := h.send("GET", shop.at(path), nil, reader), h.send("GET", nowhere.at(path), nil, reader)
		for name, id := range shop.ids {
			there.text = strings.ReplaceAll(there.text, id, "IT")
			none.text = strings.ReplaceAll(none.text, nowhere.ids[name], "IT")
		}
		refused := http.StatusNotFound
		if strings.Contains(path, "{namespace}") {
			refused = http.StatusForbidden
		}
		if there.status != refused || there.status != none.status || shape(there.text) != shape(none.text) {
			t.Errorf("%s: of another namespace %d %s, of none %d %s", path, there.status, there.text, none.status, none.text)
		}
	}
	if asked < 10 {
		t.Errorf("%d routes were asked for something of another namespace", asked)
	}
	// A request that names a namespace is refused, whether or not the namespace exists.
	for _, c := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "order-shop", "context": map[string]any{}}, 403},
		{"POST", "/v1/tasks/bulk", []any{map[string]any{"namespace": "shop", "name": "order-shop", "context": map[string]any{}}}, 403},
		{"POST", "/v1/tasks", map[string]any{"namespace": "attic", "name": "order-attic", "context": map[string]any{}, "recreated_from": shop.ids["uuid"]}, 400},
		{"POST", "/v1/templates", map[string]any{"namespace": "shop", "name": "new", "version": "1.0.0", "steps": []any{map[string]any{"name": "a", "handler": map[string]any{"callable": "run"}}}}, 403},
		{"POST", "/v1/dlq/emissions/re-emit", map[string]any{"event_uuid": shop.ids["event_uuid"], "actor": "me", "reason": "why"}, 404},
		{"POST", "/v1/holds", map[string]any{"namespace": "shop", "for_seconds": 60, "reason": "why"}, 403},
		{"POST", "/v1/holds", map[string]any{"case_id": shop.ids["case_id"], "for_seconds": 60, "reason": "why"}, 404},
	} {
		got := h.send(c.method, c.path, c.body, reader)
		if got.status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.text)
		}
	}
	for _, path := range []string{"/v1/tasks?", "/v1/templates?", "/v1/queues?", "/v1/holds?", "/v1/schedules?", "/v1/operations?", "/v1/dlq/staleness?", "/v1/dlq/investigation-queue?", "/v1/attributes?"} {
		a, b := h.send("GET", path+"namespace=shop", nil, reader), h.send("GET", path+"namespace=sho1", nil, reader)
		if a.status != http.StatusForbidden || b.status != http.StatusForbidden || strings.ReplaceAll(a.text, "shop", "sho1") != b.text {
			t.Errorf("%s: filtered by another namespace %d %s, by none %d %s", path, a.status, a.text, b.status, b.text)
		}
	}
	again := func(id string) string {
		return strings.ReplaceAll(h.send("POST", "/v1/tasks", map[string]any{"namespace": "attic", "name": "order-attic", "context": map[string]any{}, "recreated_from": id}, reader).text, id, "")
	}
	if a, b := again(shop.ids["uuid"]), again(tasker.NewID().String()); a != b {
		t.Errorf("a task of another namespace is told from none: %s, %s", a, b)
	}
	h.wantError(http.StatusForbidden, "FORBIDDEN", "events:resend", "POST", "/v1/dlq/emissions/re-emit", map[string]any{"from_position": 1, "to_position": 9, "actor": "me", "reason": "why"}, reader)
	worker := h.bearer("worker", "worker@attic")
	refused := func(other string) string {
		p := h.wantError(http.StatusForbidden, "FORBIDDEN", "workers:act in namespace "+other, "POST", "/v1/workers",
			map[string]any{"name": "w", "namespaces": []string{"attic", other}, "handlers": []string{"run"}, "max_concurrency": 1}, worker)
		return strings.ReplaceAll(p.Error.Message, other, "")
	}
	if a, b := refused("shop"), refused("nothing"); a != b {
		t.Errorf("another namespace is told from none: %s, %s", a, b)
	}
	// The stream has the events of its own namespace only.
	f := h.follow("/v1/dlq/events?from=beginning", reader)
	if _, e := f.event(); !strings.Contains(string(e.Data), `"attic"`) {
		t.Errorf("the first event is %s", e.Data)
	}
	for _, id := range []string{attic.ids["dlq_entry_uuid"], shop.ids["dlq_entry_uuid"], attic.ids["dlq_entry_uuid"]} {
		want[any](h, http.StatusOK, "PATCH", "/v1/dlq/entry/"+id, map[string]any{"metadata": map[string]any{"seen": id}}, everything)
	}
	for range 2 {
		if _, e := f.event(); !strings.Contains(string(e.Data), `"attic"`) || strings.Contains(string(e.Data), "shop") {
			t.Errorf("the stream tells %s", e.Data)
		}
	}
}

// readable returns the path of a route that reads and can be read to its end.
func (*harness) readable(operation string) string {
	method, path, _ := strings.Cut(operation, " ")
	if method != http.MethodGet || !strings.HasPrefix(path, "/v1/") || strings.HasSuffix(path, "/events") || path == "/v1/whoami" {
		return ""
	}
	if path == "/v1/dlq/counts" {
		path += "?interval_minutes=5000" // an interval of an hour may end between two answers
	}
	return path
}

// shape is an answer without what changes by itself: instants and durations.
func shape(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	var clean func(v any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if strings.HasSuffix(k, "_at") || strings.Contains(k, "minutes") || strings.Contains(k, "score") || strings.Contains(k, "seconds") || k == "from" || k == "since" || k == "as_of" || k == "duration_ms" || k == "digest" {
					delete(v, k)
					continue
				}
				v[k] = clean(x)
			}
		case []any:
			for i, x := range v {
				v[i] = clean(x)
			}
		}
		return v
	}
	doc, _ := json.Marshal(clean(v))
	return string(doc)
}

// Contexts, results and the texts of errors are in no answer to somebody without
// payloads:read, and in those to others.
func TestPayloadsAreHidden(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t, func(o *api.Options) {
		o.Sinks, o.Loops = []string{"log"}, func() []loop.Status { return nil }
	})
	shop := h.tenant("shop")
	h.tenant("attic")
	viewer, mixed := h.bearer("viewer", "viewer@shop"), h.bearer("mixed", "viewer@*", "operator@attic")
	operator := h.bearer("operator", "operator@shop", "developer@shop")
	// A sink says what it was sent.
	h.Must(h.DB.OpenSink(h.Context(), "log"))
	h.Exec(`UPDATE tasker.emissions SET last_error = 'sent-' || namespace`)
	h.Exec(`INSERT INTO tasker.message_emissions (sink, position, subject_id, last_error) SELECT 'log', position, subject_id, 'sent-' || namespaces[1] FROM tasker.messages`)
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = 'sink-sent-shop'`)
	h.Exec(`INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at) SELECT 'retry', task_uuid, 'sink-sent-shop', now() FROM tasker.tasks LIMIT 1`)
	payloads := []string{"context-shop", "result-shop", "error-shop", "sent-shop"}
	found := map[string]int{}
	for _, operation := range operations(t) {
		path := h.readable(operation)
		if path == "" || strings.Contains(path, "/results/{step}") || strings.HasSuffix(path, "/context") {
			continue
		}
		for _, caller := range []string{viewer, mixed} {
			got := h.send("GET", shop.at(path), nil, caller)
			for _, word := range payloads {
				if strings.Contains(got.text, word) {
					t.Errorf("%s shows %s: %.1000s", path, word, got.text)
				}
			}
		}
		text := h.send("GET", shop.at(path), nil, operator).text
		for _, word := range payloads {
			if strings.Contains(text, word) {
				found[word]++
			}
		}
	}
	for _, word := range payloads {
		if found[word] < 2 {
			t.Errorf("%s is in %d answers to somebody who may read it", word, found[word])
		}
	}
	// How sinks are, and what was set aside, is of all namespaces.
	everywhere := h.bearer("everywhere", "operator@*")
	for _, path := range []string{"/v1/dlq/sinks", "/health/ready"} {
		if text := h.send("GET", path, nil, mixed).text; strings.Contains(text, "sent-") || !strings.Contains(text, access.Hidden) {
			t.Errorf("%s with payloads of one namespace: %s", path, text)
		}
		if text := h.send("GET", path, nil, everywhere).text; !strings.Contains(text, "sink-sent-shop") || strings.Contains(text, access.Hidden) {
			t.Errorf("%s with payloads of all namespaces: %s", path, text)
		}
	}
	// Nobody finds out by searching, either.
	for caller, n := range map[string]int{viewer: 0, mixed: 0, operator: 1} {
		list := want[[]any](h, http.StatusOK, "GET", "/v1/dlq/investigation-queue?text=error-shop", nil, caller)
		if len(list) != n {
			t.Errorf("%d investigations are found by the text of their error, want %d", len(list), n)
		}
	}
	if text := h.send("GET", "/v1/dlq/investigation-queue", nil, mixed).text; !strings.Contains(text, "error-attic") || !strings.Contains(text, access.Hidden) {
		t.Errorf("with payloads of one namespace: %s", text)
	}
}

// What is recorded is who signed in, whatever name they give.
func TestActorsAreAuthenticated(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	shop := h.tenant("shop")
	key := h.bearer("deploy", "operator@shop", "developer@shop")
	step := shop.at("/v1/tasks/{uuid}/workflow_steps/{step_uuid}")
	want[any](h, http.StatusOK, "PATCH", step, map[string]any{"action_type": "reset_for_retry", "reason": "again", "reset_by": "root"}, key)
	want[any](h, http.StatusOK, "PATCH", shop.at("/v1/dlq/entry/{dlq_entry_uuid}"),
		map[string]any{"resolution_status": "manually_resolved", "resolution_notes": "found", "resolved_by": "root", "updated_by": "key:root"}, key)
	want[any](h, http.StatusOK, "DELETE", shop.at("/v1/tasks/{uuid}?cancelled_by=root&reason=why"), nil, key)
	want[any](h, http.StatusCreated, "POST", shop.at("/v1/dlq/task/{uuid}"), map[string]any{"reason": "look", "created_by": "root"}, key)
	const actors = `
		SELECT count(*) FILTER (WHERE actor LIKE 'key:deploy%%'), count(*) FILTER (WHERE actor LIKE '%%root%%' AND actor NOT LIKE 'key:deploy (%%')
		FROM tasker.%s`
	for table, least := range map[string]int{"tasks_dlq_history": 3, "audit_events": 2, "step_history": 2, "task_history": 1} {
		var by, forged int
		h.Must(h.Admin().QueryRow(t.Context(), fmt.Sprintf(actors, table)).Scan(&by, &forged))
		if by < least || forged > 0 {
			t.Errorf("%s: %d rows by the key, want %d; %d forged", table, by, least, forged)
		}
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE resolved_by = 'key:deploy (root)'`); n != 1 {
		t.Error("resolved_by is not who signed in")
	}
	if n := h.Count(`SELECT count(*) FROM tasker.outbox WHERE data -> 'change' ->> 'actor' LIKE 'key:deploy%'`); n < 2 {
		t.Errorf("%d events tell who acted", n)
	}
}

// What is done and what is refused is in the audit log, with who it was; somebody who is
// refused all the time does not fill it.
func TestTheAuditLog(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	shop := h.tenant("shop")
	key, viewer := h.bearer("deploy", "developer@shop", "worker@shop", "operator@shop"), h.bearer("viewer", "viewer@shop")
	body := map[string]any{"namespace": "shop", "name": "new", "version": "1.0.0", "steps": []any{map[string]any{"name": "a", "handler": map[string]any{"callable": "run"}}}}
	want[any](h, http.StatusCreated, "POST", "/v1/templates", body, key)
	want[any](h, http.StatusOK, "POST", "/v1/templates", body, key) // again changes nothing
	made := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "new", "initiator": "root"}, key)
	bulk := want[apiv1.CreatedTasks](h, http.StatusCreated, "POST", "/v1/tasks/bulk", []any{map[string]any{"namespace": "shop", "name": "new"}}, key)
	if made.Initiator != "key:deploy (root)" || h.Count(`SELECT count(*) FROM tasker.tasks WHERE task_uuid = $1 AND initiator = 'key:deploy'`, bulk.Tasks[0].TaskUUID) != 1 {
		t.Errorf("created by %q", made.Initiator)
	}
	registered := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 1}, key)
	for range 2 {
		if w := want[tasker.Worker](h, http.StatusOK, "POST", "/v1/workers/"+registered.WorkerUUID+"/drain", nil, key); w.RegisteredBy != "key:deploy" {
			t.Errorf("registered by %q", w.RegisteredBy)
		}
	}
	for range 100 {
		h.wantError(http.StatusForbidden, "FORBIDDEN", "tasks:cancel", "DELETE", shop.at("/v1/tasks/{uuid}"), nil, viewer)
	}
	for action, n := range map[string]int{"template.registered": 1, "worker.drained": 1} {
		if got := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = $1 AND actor = 'key:deploy'`, action); got != n {
			t.Errorf("%d of %s, want %d", got, action, n)
		}
	}
	const refused = `SELECT count(*) FROM tasker.audit_events WHERE action = 'access.refused' AND actor = 'key:viewer' AND data ->> 'uuid' = $1 AND data ->> 'route' = '/v1/tasks/{uuid}'`
	if n := h.Count(refused, shop.ids["uuid"]); n < 1 || n > 2*60 { // a minute may have ended meanwhile
		t.Errorf("%d refusals are recorded", n)
	}
}

// Two callers may choose the same Idempotency-Key; each has their own.
func TestKeysOfRequestsAreOfTheirCaller(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	shop, attic := h.tenant("shop"), h.tenant("attic")
	const key = "Idempotency-Key: again"
	for namespace, tenant := range map[string]tenant{"shop": shop, "attic": attic} {
		caller := h.bearer(namespace, "operator@"+namespace)
		step := tenant.at("/v1/tasks/{uuid}/workflow_steps/{step_uuid}")
		for range 2 {
			want[any](h, http.StatusOK, "PATCH", step, map[string]any{"action_type": "reset_for_retry", "reason": "again", "reset_by": "me"}, caller, key)
		}
		h.wantError(http.StatusConflict, "CONFLICT", "was used for a different request", "PATCH", step,
			map[string]any{"action_type": "reset_for_retry", "reason": "another", "reset_by": "me"}, caller, key)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq_history WHERE event = 'step_reset'`); n != 2 {
		t.Errorf("%d steps were reset", n)
	}
}

// asked counts the statements that ask who a caller is, or for the namespaces of something.
type asked struct{ n atomic.Int64 }

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "tasker.api_key") || strings.Contains(q.SQL, "SELECT n.namespaces") {
		a.n.Add(1)
	}
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// After the first claim of a worker nothing is asked about its key or its namespaces.
func TestClaimsCostNoQueryForTheirCaller(t *testing.T) {
	t.Parallel()
	tracer := &asked{}
	e := enginetest.NewWith(t, postgres.Options{Tracer: tracer})
	a := auth.New(auth.Options{DB: e.DB})
	h := serve(t, e, func(o *api.Options) { o.Auth = a })
	a.PollRevocations(t.Context())
	key := h.bearer("w", "worker@shop")
	w := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 1}, key)
	claim := func() {
		want[any](h, http.StatusOK, "POST", "/v1/workers/"+w.WorkerUUID+"/claims", map[string]any{"max": 1}, key)
	}
	claim()
	before := tracer.n.Load()
	if before < 2 {
		t.Fatalf("%d statements asked about the caller: they are not seen", before)
	}
	for range 50 {
		claim()
	}
	if n := tracer.n.Load() - before; n > 0 {
		t.Errorf("%d queries about the caller of 50 claims", n)
	}
}

// Keys over the API: made, listed, rotated, revoked; a revoked one ends what waits.
func TestKeysOverTheAPI(t *testing.T) {
	t.Parallel()
	h, a := guarded(t, live)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); h.Must(<-ran) })
	shop := h.tenant("shop")
	root := h.bearer("root", "admin@*")
	made := want[apiv1.CreatedKey](h, http.StatusCreated, "POST", "/v1/keys",
		map[string]any{"name": "w", "grants": []string{"worker@shop", "viewer@shop"}, "expires_in_seconds": 3600}, root)
	if made.Key.CreatedBy != "key:root" || made.Key.ExpiresAt == nil || !strings.HasPrefix(made.Token, made.Key.Prefixes[0]) {
		t.Errorf("made %+v", made.Key)
	}
	worker := "Authorization: Bearer " + made.Token
	me := want[apiv1.Identity](h, http.StatusOK, "GET", "/v1/whoami", nil, worker)
	if me.Subject != "key:w" || !slices.Equal(me.Grants, []string{"viewer@shop", "worker@shop"}) || !me.SignIn {
		t.Errorf("whoami %+v", me)
	}
	h.wantError(http.StatusConflict, "CONFLICT", "key w already exists", "POST", "/v1/keys", map[string]any{"name": "w", "grants": []string{"worker@shop"}}, root)
	h.wantError(http.StatusBadRequest, "INVALID", "the role must be one of", "POST", "/v1/keys", map[string]any{"name": "x", "grants": []string{"root@*"}}, root)
	rotated := want[apiv1.CreatedKey](h, http.StatusOK, "POST", "/v1/keys/"+made.Key.KeyUUID+"/rotate", map[string]any{"grace_seconds": 60}, root)
	if len(rotated.Key.Prefixes) != 2 || rotated.Token == made.Token {
		t.Errorf("rotated %+v", rotated.Key)
	}
	list := h.send("GET", "/v1/keys?search=w", nil, root).text
	if strings.Contains(list, made.Token) || strings.Contains(list, rotated.Token) || !strings.Contains(list, made.Key.KeyUUID) {
		t.Errorf("the list is %s", list)
	}
	// A claim and a stream wait; both end, and the claim loses nothing.
	want[any](h, http.StatusNoContent, "DELETE", shop.at("/v1/workers/{worker_uuid}"), nil, root)
	registered := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"nothing"}, "max_concurrency": 1}, worker)
	claimed := make(chan reply, 1)
	go func() {
		claimed <- h.send("POST", "/v1/workers/"+registered.WorkerUUID+"/claims", map[string]any{"max": 1, "wait_ms": 25_000}, worker)
	}()
	f := h.follow("/v1/dlq/events", worker)
	if _, ok := f.block(); !ok {
		t.Fatal("the stream does not begin")
	}
	h.Eventually("the claim waits", func() bool { return len(claimed) == 0 })
	begun := time.Now()
	want[apiv1.Key](h, http.StatusOK, "DELETE", "/v1/keys/"+made.Key.KeyUUID, nil, root)

	for body, says := range map[string]map[string]any{
		"set either session_uuid or subject": {}, "or subject": {"subject": "user:ann", "session_uuid": tasker.NewID().String()}, "must be a UUID": {"session_uuid": "ann"},
	} {
		h.wantError(http.StatusBadRequest, "INVALID", body, "POST", "/v1/sessions/end", says, root)
	}
	if list := want[apiv1.SessionList](h, http.StatusOK, "GET", "/v1/sessions?subject=user:ann", nil, root); len(list.Sessions) != 0 {
		t.Errorf("sessions that nobody began: %+v", list)
	}
	if got := <-claimed; got.status != http.StatusServiceUnavailable && got.status != http.StatusUnauthorized { // the latter if it had not begun to wait
		t.Errorf("the claim is answered with %d: %s", got.status, got.text)
	}
	for {
		if _, ok := f.block(); !ok {
			break
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v to end what waited", took)
	}
	h.wantError(http.StatusUnauthorized, "UNAUTHORIZED", "revoked", "GET", "/v1/whoami", nil, worker)
}

// Readiness tells strangers nothing but whether the server is ready.
func TestReadinessHidesDetailsFromUnauthenticatedCallers(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	root := h.bearer("root", "viewer@*")
	for header, details := range map[string]bool{"": false, "Authorization: Bearer x": false, h.bearer("one", "admin@shop"): false, root: true} {
		got := h.try("GET", "/health/ready", header)
		if got.status != http.StatusOK || strings.Contains(got.text, "database") != details {
			t.Errorf("with %.24q: %d %s", header, got.status, got.text)
		}
	}
}

// Only the key that registered a worker acts as it, also after that key was rotated. For another
// key the worker does not exist, whatever that key may do in the namespace.
func TestAWorkerIsBoundToTheKeyThatRegisteredIt(t *testing.T) {
	t.Parallel()
	h, a := guarded(t)
	shop := h.tenant("shop")
	owner, root := h.bearer("owner", "worker@shop"), h.bearer("root", "admin@*")
	others := map[string]string{"of the namespace": h.bearer("other", "worker@shop"), "of all namespaces": h.bearer("all", "worker@*")}
	registered := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 5}, owner)
	path := "/v1/workers/" + registered.WorkerUUID
	step := want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", path+"/claims", map[string]any{"max": 1}, owner).Steps[0]
	leases := map[string]any{"leases": []any{leaseOf(step, step.LeaseToken)}}
	take := map[string]any{"steps": []any{map[string]any{"task_uuid": step.TaskUUID, "step_uuid": step.StepUUID}}}
	save := leaseOf(step, step.LeaseToken)
	save["checkpoint"] = map[string]any{"at": 1}
	for name, other := range others {
		t.Run(name, func(t *testing.T) {
			for _, act := range []struct {
				method, path string
				body         any
			}{
				{"POST", "/claims", map[string]any{"max": 1}},
				{"POST", "/take", take},
				{"POST", "/heartbeat", leases},
				{"POST", "/results", resultOf(step, step.LeaseToken)},
				{"POST", "/checkpoint", save},
				{"POST", "/release", leases},
				{"DELETE", "", nil},
			} {
				h.wantError(http.StatusNotFound, "NOT_FOUND", "worker "+registered.WorkerUUID+" not found", act.method, path+act.path, act.body, other)
			}
		})
	}
	// A worker that a server without authentication registered is bound to no key.
	want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", shop.at("/v1/workers/{worker_uuid}/claims"), map[string]any{"max": 1}, others["of the namespace"])
	var key string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT key_uuid::text FROM tasker.api_keys WHERE name = 'owner'`).Scan(&key))
	rotated := want[apiv1.CreatedKey](h, http.StatusOK, "POST", "/v1/keys/"+key+"/rotate", map[string]any{"grace_seconds": 0}, root)
	a.PollRevocations(t.Context())
	receipt := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", path+"/results", resultOf(step, step.LeaseToken), "Authorization: Bearer "+rotated.Token)
	if len(receipt.Accepted) != 1 {
		t.Errorf("the result under the rotated key: %+v", receipt)
	}
	want[tasker.Worker](h, http.StatusOK, "POST", path+"/drain", nil, root)
}
