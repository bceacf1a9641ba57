package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/postgres"
)

const nobody = "01920000-0000-7000-8000-000000000000"

// Every wrong request gets its status, a code and words that say what is wrong,
// and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	stuck := h.stuck(worker)
	fine := h.createTask(2)
	lease := h.claim(worker, map[string]any{"max": 1})[0]
	task, stuckTask := "/v1/tasks/"+fine.UUID.String(), "/v1/tasks/"+stuck.UUID.String()
	failed := stuckTask + "/workflow_steps/" + stuck.Steps[0].UUID.String()
	waits := stuckTask + "/workflow_steps/" + stuck.Steps[1].UUID.String()
	held := task + "/workflow_steps/" + fine.Steps[0].UUID.String()
	foreign := task + "/workflow_steps/" + stuck.Steps[0].UUID.String()
	entry := "/v1/dlq/entry/" + stuck.EntryUUID.String()

	const ok = `{"namespace":"shop","name":"order","context":{"order":1}}`
	with := func(more string) string { return strings.TrimSuffix(ok, "}") + "," + more + "}" }
	ctx := func(doc string) string { return `{"namespace":"shop","name":"order","context":` + doc + `}` }
	const resolve = `{"action_type":"resolve_manually","reason":"r","resolved_by":"ann"}`
	const yaml = "Content-Type: application/yaml"
	var long strings.Builder
	long.WriteString("namespace_name: shop\nname: long\nversion: 1.0.0\nsteps:\n")
	for i := range 10_000 {
		fmt.Fprintf(&long, "- {name: s%d}\n", i)
	}
	var keys strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&keys, `"k%d":0,`, i)
	}

	before := h.fingerprint()
	for _, tt := range []struct {
		name         string
		method, path string
		body         any
		headers      []string
		status       int
		code, words  string
	}{
		// What is not JSON
		{"no JSON", "POST", "/v1/tasks", `{"namespace":`, nil, 400, "INVALID", "invalid JSON"},
		{"empty body", "POST", "/v1/tasks", "", nil, 400, "INVALID", "missing body"},
		{"only blanks", "POST", "/v1/tasks", " \n", nil, 400, "INVALID", "missing body"},
		{"more after the end", "POST", "/v1/tasks", ok + `{}`, nil, 400, "INVALID", "invalid JSON"},
		{"invalid UTF-8", "POST", "/v1/tasks", ctx("{\"order\":1,\"a\":\"\xff\"}"), nil, 400, "INVALID", "UTF-8"},
		{"NaN", "POST", "/v1/tasks", ctx(`{"order":NaN}`), nil, 400, "INVALID", "invalid JSON"},
		{"two byte order marks", "POST", "/v1/tasks", "\ufeff\ufeff" + ok, nil, 400, "INVALID", "invalid JSON"},
		{"null", "POST", "/v1/tasks", "null", nil, 400, "INVALID", "must be an object, not null"},
		{"an array for an object", "POST", "/v1/tasks", "[" + ok + "]", nil, 400, "INVALID", "must be an object, not an array"},
		{"an object for an array", "POST", "/v1/tasks/bulk", ok, nil, 400, "INVALID", "must be an array, not an object"},

		// What cannot be stored
		{"NUL in a text", "POST", "/v1/tasks", with(`"reason":"a\u0000b"`), nil, 400, "INVALID", "NUL"},
		{"NUL in the context", "POST", "/v1/tasks", ctx(`{"order":1,"a":["\u0000"]}`), nil, 400, "INVALID", "context.a[0]"},
		{"a lone surrogate", "POST", "/v1/tasks", ctx(`{"order":1,"a":"\ud800"}`), nil, 400, "INVALID", "surrogate"},
		{"a key twice", "POST", "/v1/tasks", with(`"name":"order"`), nil, 400, "INVALID", "name"},
		{"a key twice in the context", "POST", "/v1/tasks", ctx(`{"order":1,"order":2}`), nil, 400, "INVALID", "context.order"},
		{"deep nesting", "POST", "/v1/tasks", ctx(`{"order":1,"a":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`), nil, 400, "INVALID", "64"},
		{"very deep nesting", "POST", "/v1/tasks", strings.Repeat("[", 100_000), nil, 400, "INVALID", "72"},
		{"many keys", "POST", "/v1/tasks", ctx(`{"order":1,"a":{` + strings.TrimSuffix(keys.String(), ",") + `}}`), nil, 400, "INVALID", "10000"},
		{"many values", "POST", "/v1/tasks", ctx(`{"order":1,"a":[` + strings.Repeat("0,", 100_000) + `0]}`), nil, 400, "INVALID", "more than 100000 values"},
		{"a body of values", "POST", "/v1/tasks/bulk", `[` + strings.Repeat("0,", 1_100_000) + `0]`, nil, 400, "INVALID", "more than 1000000 values"},
		{"a large context when it is read", "POST", "/v1/tasks", ctx(`{"order":1,"a":[` + strings.Repeat("1e300,", 4000) + `0]}`), nil, 413, "TOO_LARGE", "in the database's encoding"},
		{"a large number", "POST", "/v1/tasks", ctx(`{"order":1e400}`), nil, 400, "INVALID", "1e400"},
		{"a large context", "POST", "/v1/tasks", ctx(`{"order":1,"a":["` + strings.Repeat(strings.Repeat("x", 200_000)+`","`, 6) + `"]}`), nil, 413, "TOO_LARGE", "limit"},
		{"an oversized body", "POST", "/v1/tasks", ctx(`{"a":"` + strings.Repeat("x", 5<<20) + `"}`), nil, 413, "TOO_LARGE", "4194304"},
		{"an oversized batch of results", "POST", worker + "/results", `{"results":["` + strings.Repeat("x", 5<<20) + `"]}`, nil, 413, "TOO_LARGE", "4194304"},

		// What does not fit
		{"an unknown key", "POST", "/v1/tasks", with(`"colour":"red"`), nil, 400, "INVALID", "colour: unknown key"},
		{"another case of a key", "POST", "/v1/tasks", with(`"Reason":"r"`), nil, 400, "INVALID", "Reason: unknown key"},
		{"several faults", "POST", "/v1/tasks", `{"name":7,"priority":5000}`, nil, 400, "INVALID", "and 2 more"},
		{"a wrong type", "POST", "/v1/tasks", with(`"priority":"high"`), nil, 400, "INVALID", "priority: must be a number, not a string"},
		{"no whole number", "POST", "/v1/tasks", with(`"priority":1.5`), nil, 400, "INVALID", "must be a whole number"},
		{"out of range", "POST", "/v1/tasks", with(`"priority":1001`), nil, 400, "INVALID", "must be from -1000 to 1000, not 1001"},
		{"too long a text", "POST", "/v1/tasks", with(`"initiator":"` + strings.Repeat("x", 256) + `"`), nil, 400, "INVALID", "has 256 characters; the limit is 255"},
		{"no time", "POST", "/v1/tasks", with(`"start_at":"tomorrow"`), nil, 400, "INVALID", "must be a time such as"},
		{"no UUID", "POST", "/v1/tasks", with(`"recreated_from":"x"`), nil, 400, "INVALID", "recreated_from"},
		{"a missing key", "POST", "/v1/tasks", `{"namespace":"shop"}`, nil, 400, "INVALID", "name: is missing"},
		{"context is no object", "POST", "/v1/tasks", ctx(`[1]`), nil, 400, "INVALID", "context"},
		{"context against its schema", "POST", "/v1/tasks", ctx(`{"order":"x"}`), nil, 400, "INVALID", "order"},
		{"an element of a bulk", "POST", "/v1/tasks/bulk", "[" + ok + `,{"name":"order"}]`, nil, 400, "INVALID", "[1].namespace: is missing"},
		{"an unknown template in a bulk", "POST", "/v1/tasks/bulk", "[" + ok + `,{"namespace":"shop","name":"nothing"}]`, nil, 404, "NOT_FOUND", "tasks[1]"},

		// Unknown things
		{"an unknown template", "POST", "/v1/tasks", `{"namespace":"shop","name":"nothing"}`, nil, 404, "NOT_FOUND", "shop/nothing"},
		{"an unknown version", "GET", "/v1/templates/shop/order/9.9.9", nil, nil, 404, "NOT_FOUND", "9.9.9"},
		{"an unknown task", "GET", "/v1/tasks/" + nobody, nil, nil, 404, "NOT_FOUND", nobody},
		{"cancel an unknown task", "DELETE", "/v1/tasks/" + nobody, nil, nil, 404, "NOT_FOUND", nobody},
		{"steps of an unknown task", "GET", "/v1/tasks/" + nobody + "/workflow_steps", nil, nil, 404, "NOT_FOUND", nobody},
		{"history of an unknown task", "GET", "/v1/tasks/" + nobody + "/transitions", nil, nil, 404, "NOT_FOUND", nobody},
		{"an unknown step", "GET", task + "/workflow_steps/" + nobody, nil, nil, 404, "NOT_FOUND", nobody},
		{"a step of another task", "GET", foreign, nil, nil, 404, "NOT_FOUND", stuck.Steps[0].UUID.String()},
		{"operate a step of another task", "PATCH", foreign, resolve, nil, 404, "NOT_FOUND", stuck.Steps[0].UUID.String()},
		{"tree of an unknown task", "GET", "/v1/tasks/" + nobody + "/tree", nil, nil, 404, "NOT_FOUND", nobody},
		{"history of a step of another task", "GET", foreign + "/transitions", nil, nil, 404, "NOT_FOUND", stuck.Steps[0].UUID.String()},
		{"complete a step of another task", "POST", foreign + "/completion", `{"success":true}`, nil, 404, "NOT_FOUND", stuck.Steps[0].UUID.String()},
		{"an unknown investigation", "GET", "/v1/dlq/entry/" + nobody, nil, nil, 404, "NOT_FOUND", nobody},
		{"update an unknown investigation", "PATCH", "/v1/dlq/entry/" + nobody, `{"resolution_notes":"x"}`, nil, 404, "NOT_FOUND", nobody},
		{"no investigation of a task", "GET", "/v1/dlq/task/" + fine.UUID.String(), nil, nil, 404, "NOT_FOUND", fine.UUID.String()},
		{"investigate an unknown task", "POST", "/v1/dlq/task/" + nobody, `{"reason":"r","created_by":"c"}`, nil, 404, "NOT_FOUND", nobody},
		{"an unknown worker", "POST", "/v1/workers/" + nobody + "/claims", `{"max":1}`, nil, 404, "NOT_FOUND", nobody},
		{"a heartbeat of an unknown worker", "POST", "/v1/workers/" + nobody + "/heartbeat", `{"leases":[]}`, nil, 404, "NOT_FOUND", nobody},
		{"results of an unknown worker", "POST", "/v1/workers/" + nobody + "/results", `{"results":[]}`, nil, 404, "NOT_FOUND", nobody},
		{"an unknown worker leaves", "DELETE", "/v1/workers/" + nobody, nil, nil, 404, "NOT_FOUND", nobody},

		// Ids and queries
		{"no UUID in the path", "GET", "/v1/tasks/42", nil, nil, 400, "INVALID", "uuid in the path must be a UUID"},
		{"another spelling of a UUID", "GET", "/v1/tasks/%7B" + fine.UUID.String() + "%7D", nil, nil, 400, "INVALID", "must be a UUID"},
		{"a UUID without dashes", "GET", "/v1/tasks/" + strings.ReplaceAll(fine.UUID.String(), "-", ""), nil, nil, 400, "INVALID", "must be a UUID"},
		{"NUL in the path", "GET", "/v1/templates/shop/order%00/1.0.0", nil, nil, 400, "INVALID", "NUL"},
		{"NUL in the path of a queue", "GET", "/v1/explain/queue/shop/%00", nil, nil, 400, "INVALID", "NUL"},
		{"a long name in the path", "GET", "/v1/templates/shop/" + strings.Repeat("x", 2701) + "/1.0.0", nil, nil, 400, "INVALID", "2701 characters"},
		{"limit 0", "GET", "/v1/tasks?limit=0", nil, nil, 400, "INVALID", "limit: must be a number from 1 to 1000"},
		{"limit too large", "GET", "/v1/dlq?limit=1001", nil, nil, 400, "INVALID", "from 1 to 1000"},
		{"limit is not a number", "GET", "/v1/dlq/investigation-queue?limit=abc", nil, nil, 400, "INVALID", `not \"abc\"`},
		{"limit overflows", "GET", "/v1/dlq/staleness?limit=99999999999999999999", nil, nil, 400, "INVALID", "from 1 to 1000"},
		{"offset below 0", "GET", "/v1/workers?offset=-1", nil, nil, 400, "INVALID", "offset: must be a number from 0"},
		{"an unknown parameter", "GET", "/v1/tasks?state=error", nil, nil, 400, "INVALID", "known parameters are status, phase, namespace, name"},
		{"a parameter where there is none", "GET", task + "/tree?verbose=1", nil, nil, 400, "INVALID", "this path has no parameters"},
		{"a parameter twice", "GET", "/v1/tasks?limit=1&limit=2", nil, nil, 400, "INVALID", "only once"},
		{"an unknown state", "GET", "/v1/tasks?status=completed", nil, nil, 400, "INVALID", "waiting_for_retry"},
		{"an unknown status", "GET", "/v1/dlq?resolution_status=Pending", nil, nil, 400, "INVALID", "permanently_failed"},
		{"neither true nor false", "GET", "/v1/tasks?dead_lettered=yes", nil, nil, 400, "INVALID", "must be true or false"},
		{"a time whose plus is not encoded", "GET", "/v1/tasks?created_after=2026-01-01T00:00:00+01:00", nil, nil, 400, "INVALID", "%2B: 2026-01-01T00:00:00%2B01:00"},
		{"another time whose plus is not encoded", "GET", "/v1/tasks?due_before=2026-01-01T00:00:00+01:00", nil, nil, 400, "INVALID", "%2B: 2026-01-01T00:00:00%2B01:00"},
		{"an invalid time with a plus", "GET", "/v1/tasks?created_after=x+y", nil, nil, 400, "INVALID", "must be a time such as"},
		{"NUL in the query", "GET", "/v1/tasks?namespace=a%00b", nil, nil, 400, "INVALID", "NUL"},
		{"a long text in the query", "GET", "/v1/tasks?name=" + strings.Repeat("x", 2701), nil, nil, 400, "INVALID", "2701 characters"},
		{"a query that cannot be read", "GET", "/v1/tasks?name=%zz", nil, nil, 400, "INVALID", "query"},

		// Paths, methods, content types
		{"an unknown path", "GET", "/v1/nothing", nil, nil, 404, "NOT_FOUND", "/v1/nothing"},
		{"a requeue of a task", "POST", stuckTask + "/requeue", `{}`, nil, 404, "NOT_FOUND", "no such path"},
		{"a slash too many", "GET", "/v1/tasks/", nil, nil, 404, "NOT_FOUND", "no such path"},
		{"two slashes", "GET", "/v1//tasks", nil, nil, 404, "NOT_FOUND", "no such path"},
		{"the root", "GET", "/", nil, nil, 404, "NOT_FOUND", "openapi.json"},
		{"an unknown method", "PUT", "/v1/tasks", ok, nil, 405, "NOT_SUPPORTED", "GET, HEAD, POST"},
		{"delete an investigation", "DELETE", entry, nil, nil, 405, "NOT_SUPPORTED", "GET, HEAD, PATCH"},
		{"options", "OPTIONS", "/v1/tasks", nil, nil, 405, "NOT_SUPPORTED", "POST"},
		{"a path that looks like an id", "GET", "/v1/tasks/bulk", nil, nil, 405, "NOT_SUPPORTED", "method GET not allowed: use POST"},
		{"another path that looks like an id", "GET", "/v1/dlq/emissions/re-emit", nil, nil, 405, "NOT_SUPPORTED", "use POST"},
		{"a method of the path with an id", "DELETE", "/v1/tasks/bulk", nil, nil, 405, "NOT_SUPPORTED", "use POST"},
		{"a form", "POST", "/v1/tasks", ok, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "NOT_SUPPORTED", "application/json"},
		{"no content type", "POST", "/v1/tasks", ok, []string{"Content-Type: "}, 415, "NOT_SUPPORTED", "application/json"},
		{"another charset", "POST", "/v1/tasks", ok, []string{"Content-Type: application/json; charset=latin1"}, 415, "NOT_SUPPORTED", "utf-8"},
		{"a compressed body", "POST", "/v1/tasks", ok, []string{"Content-Encoding: gzip"}, 415, "NOT_SUPPORTED", "gzip"},
		{"YAML where it is not spoken", "POST", "/v1/tasks", ok, []string{yaml}, 415, "NOT_SUPPORTED", "application/json"},
		{"a template as text", "POST", "/v1/templates", chain, []string{"Content-Type: text/plain"}, 415, "NOT_SUPPORTED", "application/yaml"},

		// Templates
		{"no YAML", "POST", "/v1/templates", "steps: [", []string{yaml}, 400, "INVALID", "line"},
		{"YAML as JSON", "POST", "/v1/templates", chain, nil, 400, "INVALID", "JSON"},
		{"a template with faults", "POST", "/v1/templates", "namespace_name: shop\nname: x\ncolour: red\n", []string{yaml}, 400, "INVALID", `"line":3`},
		{"a template of 10,000 steps", "POST", "/v1/templates", long.String(), []string{yaml}, 400, "INVALID", "1000"},
		{"a large template", "POST", "/v1/templates", "# " + strings.Repeat("x", 1<<20) + chain, []string{yaml}, 413, "TOO_LARGE", "262144"},
		{"a cycle", "POST", "/v1/templates", strings.Replace(chain, "retry: {max_attempts: 1}", "dependencies: [ship]", 1), []string{yaml}, 400, "INVALID", "charge"},
		{"an alias", "POST", "/v1/templates", "a: &a [1]\nb: *a\n", []string{yaml}, 400, "INVALID", "line"},
		{"the namespace of no one", "GET", "/v1/templates?namespace=" + strings.Repeat("x", 129), nil, nil, 400, "INVALID", "129 characters"},

		// Step actions
		{"no action_type", "PATCH", failed, `{"reason":"r","resolved_by":"ann"}`, nil, 400, "INVALID", "action_type: is missing; must be one of complete_manually, reset_for_retry, resolve_manually"},
		{"an unknown action", "PATCH", failed, `{"action_type":"requeue","reason":"r"}`, nil, 400, "INVALID", "action_type: must be one of"},
		{"an action that is no text", "PATCH", failed, `{"action_type":7}`, nil, 400, "INVALID", "action_type: must be one of"},
		{"no reason", "PATCH", failed, `{"action_type":"reset_for_retry","reset_by":"ann"}`, nil, 400, "INVALID", "reason: is missing"},
		{"an empty reason", "PATCH", failed, `{"action_type":"reset_for_retry","reset_by":"ann","reason":" "}`, nil, 400, "INVALID", "reason: is empty"},
		{"a long reason", "PATCH", failed, `{"action_type":"reset_for_retry","reset_by":"ann","reason":"` + strings.Repeat("x", 20_001) + `"}`, nil, 400, "INVALID", "the limit is 20000"},
		{"no reset_by", "PATCH", failed, `{"action_type":"reset_for_retry","reason":"r"}`, nil, 400, "INVALID", "reset_by: is missing"},
		{"the actor of another action", "PATCH", failed, `{"action_type":"reset_for_retry","reason":"r","resolved_by":"ann"}`, nil, 400, "INVALID", `"resolved_by","message":"unknown key`},
		{"no resolved_by", "PATCH", failed, `{"action_type":"resolve_manually","reason":"r"}`, nil, 400, "INVALID", "resolved_by: is missing"},
		{"a long name", "PATCH", failed, `{"action_type":"resolve_manually","reason":"r","resolved_by":"` + strings.Repeat("x", 256) + `"}`, nil, 400, "INVALID", "the limit is 255"},
		{"no completion_data", "PATCH", failed, `{"action_type":"complete_manually","reason":"r","completed_by":"ann"}`, nil, 400, "INVALID", "completion_data: is missing"},
		{"no result", "PATCH", failed, `{"action_type":"complete_manually","reason":"r","completed_by":"ann","completion_data":{}}`, nil, 400, "INVALID", "completion_data.result: is missing"},
		{"no completed_by", "PATCH", failed, `{"action_type":"complete_manually","reason":"r","completion_data":{"result":1}}`, nil, 400, "INVALID", "completed_by: is missing"},
		{"complete a step that waits", "PATCH", waits, `{"action_type":"reset_for_retry","reason":"r","reset_by":"ann"}`, nil, 409, "CONFLICT", "is pending"},
		{"a step in the hands of a worker", "PATCH", held, resolve, nil, 409, "CONFLICT", "interrupt"},
		{"an action that is not allowed lists those that are", "PATCH", waits, `{"action_type":"reset_for_retry","reason":"r","reset_by":"ann"}`, nil, 409, "CONFLICT",
			`"details":{"task_state":"error","step_state":"pending","allowed_actions":["resolve_manually","complete_manually"],"needs_interrupt":false}`},
		{"an action that needs interrupt lists those that do", "PATCH", held, resolve, nil, 409, "CONFLICT",
			`"allowed_actions":["reset_for_retry","resolve_manually","complete_manually"],"needs_interrupt":true}`},
		{"a completion of what is not external", "POST", failed + "/completion", `{"success":true}`, nil, 409, "CONFLICT",
			`"allowed_actions":["reset_for_retry","resolve_manually","complete_manually"],"needs_interrupt":false}`},
		{"a completion without success", "POST", failed + "/completion", `{"result":1}`, nil, 400, "INVALID", "success: is missing"},
		{"a completion with both", "POST", failed + "/completion", `{"success":true,"error":{"message":"x"}}`, nil, 400, "INVALID", "if success is true"},

		// Investigations
		{"nothing to update", "PATCH", entry, `{}`, nil, 400, "INVALID", "nothing to change"},
		{"back to pending", "PATCH", entry, `{"resolution_status":"pending"}`, nil, 400, "INVALID", "must be one of"},
		{"an unknown end", "PATCH", entry, `{"resolution_status":"fixed"}`, nil, 400, "INVALID", "must be one of"},
		{"an end without notes", "PATCH", entry, `{"resolution_status":"cancelled","resolved_by":"ann"}`, nil, 400, "INVALID", "resolution_notes"},
		{"an end without resolved_by", "PATCH", entry, `{"resolution_status":"cancelled","resolution_notes":"n"}`, nil, 400, "INVALID", "resolved_by"},
		{"metadata is no object", "PATCH", entry, `{"metadata":[1]}`, nil, 400, "INVALID", "must be a JSON object"},
		{"a reason of its own", "PATCH", entry, `{"dlq_reason":"manual_dlq"}`, nil, 400, "INVALID", "dlq_reason: unknown key"},
		{"a snapshot of its own", "PATCH", entry, `{"task_snapshot":{}}`, nil, 400, "INVALID", "task_snapshot: unknown key"},
		{"a second investigation", "POST", "/v1/dlq/task/" + stuck.UUID.String(), `{"reason":"r","created_by":"c"}`, nil, 409, "CONFLICT", stuck.EntryUUID.String()},
		{"an investigation without created_by", "POST", "/v1/dlq/task/" + fine.UUID.String(), `{"reason":"r"}`, nil, 400, "INVALID", "created_by: is missing"},

		// Workers
		{"a worker without handlers", "POST", "/v1/workers", `{"name":"w","namespaces":["shop"],"handlers":[]}`, nil, 400, "INVALID", "handlers"},
		{"a worker of nothing", "POST", "/v1/workers", `{}`, nil, 400, "INVALID", `"namespaces","message":"is missing"`},
		{"a wildcard as a handler", "POST", "/v1/workers", `{"name":"w","namespaces":["shop"],"handlers":["run","order.*"]}`, nil, 400, "INVALID", `handlers[1]: \"order.*\" contains *, but wildcards are not supported`},
		{"a wildcard as a namespace", "POST", "/v1/workers", `{"name":"w","namespaces":["*"],"handlers":["run"]}`, nil, 400, "INVALID", `namespaces[0]: \"*\" contains *, but wildcards are not supported`},
		{"claim nothing", "POST", worker + "/claims", `{"max":0}`, nil, 400, "INVALID", "must be from 1 to 1000, not 0"},
		{"wait too long", "POST", worker + "/claims", `{"max":1,"wait_ms":60001}`, nil, 400, "INVALID", "from 0 to 60000"},
		{"wait as text", "POST", worker + "/claims", `{"max":1,"wait_ms":"1s"}`, nil, 400, "INVALID", "wait_ms: must be a number"},
		{"a forged lease", "POST", worker + "/heartbeat", `{"leases":[{"step_uuid":"` + lease.StepUUID + `","lease_token":"x"}]}`, nil, 400, "INVALID", "leases[0]"},
		{"a lease of no step", "POST", worker + "/release", `{"leases":[{"step_uuid":"x","lease_token":"` + lease.LeaseToken + `"}]}`, nil, 400, "INVALID", "step_uuid"},
		{"no results", "POST", worker + "/results", `{}`, nil, 400, "INVALID", "results: is missing"},
		{"a result that breaks off in its step", "POST", worker + "/results", `{"results":[{"step_uuid":`, nil, 400, "INVALID", "results[0].step_uuid: a JSON value is missing"},
		{"a result with a malformed step", "POST", worker + "/results", `{"results":[{"step_uuid":x}]}`, nil, 400, "INVALID", "invalid JSON"},
		{"a malformed claim", "POST", worker + "/results", `{"results":[],"claim":}`, nil, 400, "INVALID", "claim: invalid start of a JSON value"},
		{"faults of one property are in order", "POST", worker + "/heartbeat", `{"leases":[` + strings.Repeat(`{"lease_token":"x"},`, 10) + `{}],"a":1}`, nil, 400, "INVALID",
			`{"path":"leases[2].step_uuid","message":"is missing"},{"path":"leases[3].step_uuid"`},
		{"claim ready steps as text", "POST", worker + "/results", `{"results":[],"claim_ready":"yes"}`, nil, 400, "INVALID", "claim_ready: must be true or false"},
		{"claim too much", "POST", worker + "/results", `{"results":[],"claim":{"max":1001}}`, nil, 400, "INVALID", "claim.max"},

		// Browsers
		{"a page of another site", "POST", "/v1/tasks", ok, []string{"Sec-Fetch-Site: cross-site"}, 403, "FORBIDDEN", "cross-site requests"},
		{"a foreign origin", "DELETE", task, nil, []string{"Origin: https://evil.example"}, 403, "FORBIDDEN", "cross-site requests"},
		{"a foreign name for this machine", "GET", "/v1/tasks", nil, []string{"Host: evil.example"}, 421, "FORBIDDEN", "evil.example"},
		{"a name that looks like this machine", "GET", "/v1/tasks", nil, []string{"Host: 127.0.0.1.evil.example:8080"}, 421, "FORBIDDEN", "evil.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := *h
			h.Harness = h.Copy(t)
			h.wantError(tt.status, tt.code, tt.words, tt.method, tt.path, tt.body, tt.headers...)
		})
	}
	if after := h.fingerprint(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	p := h.wantError(http.StatusBadRequest, "INVALID", "", "POST", "/v1/tasks", `{"name":7,"tags":["a",2],"a.b":1}`)
	const want = `[{"path":"namespace","message":"is missing"},` +
		`{"path":"a.b","message":"unknown key; known keys are `
	if !strings.HasPrefix(string(p.Error.Details), want) {
		t.Errorf("details %s", p.Error.Details)
	}
	for _, words := range []string{`{"path":"name","message":"must be a string, not a number"}`, `{"path":"tags[1]","message":"must be a string, not a number"}`} {
		if !strings.Contains(string(p.Error.Details), words) {
			t.Errorf("details lack %s: %s", words, p.Error.Details)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) { o.Guard.AllowedHosts = []string{"tasker.test"} })
	got := h.send("GET", "/v1/tasks", nil, "X-Request-ID: abc-1", "Host: tasker.test:8080")
	for name, value := range map[string]string{
		"X-Request-Id": "abc-1", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "application/json",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		if got.status != http.StatusOK || got.header.Get(name) != value {
			t.Errorf("%d, %s is %q, want %q", got.status, name, got.header.Get(name), value)
		}
	}
	if got := h.send("GET", "/nothing", nil, "X-Request-ID: a b"); len(got.header.Get("X-Request-Id")) != 36 {
		t.Errorf("made id %q", got.header.Get("X-Request-Id"))
	}
	if got := h.send("PUT", "/v1/tasks", nil); got.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow %q", got.header.Get("Allow"))
	}
	for _, host := range []string{"localhost:1", "app.localhost", "[::1]:8080", "127.9.9.9"} {
		if got := h.send("GET", "/health", nil, "Host: "+host); got.status != http.StatusOK {
			t.Errorf("Host %s: %d", host, got.status)
		}
	}
	if got := h.send("HEAD", "/v1/tasks", nil); got.status != http.StatusOK || got.text != "" {
		t.Errorf("HEAD: %d %q", got.status, got.text)
	}
	h.send("POST", "/v1/workers", `{}`, "Sec-Fetch-Site: same-origin")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for path, status := range map[string]string{"/health": "healthy", "/health/live": "alive", "/health/ready": "ready"} {
		got := want[apiv1.Health](h, http.StatusOK, "GET", path, nil)
		if got.Status != status || got.Version != "1.2.3" || got.Timestamp.IsZero() {
			t.Errorf("%s: %+v", path, got)
		}
	}
	h.DB.Close()
	p := h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", `"database":{"status":"unhealthy"`, "GET", "/health/ready", nil)
	if strings.Contains(string(p.Error.Details), "closed pool") {
		t.Errorf("details tell what the log should: %s", p.Error.Details)
	}
}

// What becomes of the broker is told, and is no reason to send the server nothing.
func TestHealthOfTheBroker(t *testing.T) {
	t.Parallel()
	up, problem := false, errors.New("no connection\x1b[2J to the message broker")
	for want, broker := range map[string]func() (bool, error){
		`"components":{"broker":{"status":"off"}}`:                                                     nil,
		`"components":{"broker":{"status":"down","last_error":"no connection to the message broker"}}`: func() (bool, error) { return up, problem },
		`"components":{"broker":{"status":"up"}}`:                                                      func() (bool, error) { return true, nil },
		`"components":{"broker":{"status":"up","last_error":"no q"}}`:                                  func() (bool, error) { return true, errors.New("no q") },
	} {
		h := newHarness(t, func(o *api.Options) { o.Broker = broker })
		if r := h.send("GET", "/health/ready", nil); r.status != http.StatusOK || !strings.Contains(r.text, want) {
			t.Errorf("%d %s, want %s", r.status, r.text, want)
		}
		h.DB.Close()
		h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", want, "GET", "/health/ready", nil)
	}
}

// How the sinks are is told, and is no reason to send the server nothing. A database
// that hangs holds nobody up.
func TestHealthOfTheSinks(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) { o.Sinks = []string{"log", "webhook", "rabbitmq"} })
	h.register(chain)
	h.investigate(1)
	h.sinks("log", "webhook")
	holder := tasker.NewID()
	if held, err := h.DB.AcquireSinkLease(t.Context(), "webhook", holder, time.Minute); err != nil || held == nil {
		t.Fatal(held, err)
	}
	h.Must(h.DB.RecordSinkStatus(t.Context(), "webhook", holder, postgres.SinkStatusUpdate{Problem: "the receiver\x1b[2J answers 500", Rest: time.Second}))
	if _, err := h.DB.SettleEmissions(t.Context(), "log", []postgres.Emitted{{Position: 1, Attempts: 1, Published: true}}, 5); err != nil {
		t.Fatal(err)
	}
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = failing_since - interval '1 minute' WHERE sink = 'webhook'`)

	got := want[apiv1.Health](h, http.StatusOK, "GET", "/health/ready", nil)
	if c := got.Components["sink.log"]; c.Status != "up" || c.LastError != "" || c.FailingSince != nil || c.OldestSeconds == nil || *c.OldestSeconds != 0 {
		t.Errorf("log: %+v", c)
	}
	if c := got.Components["sink.webhook"]; c.Status != "degraded" || c.LastError != "the receiver answers 500" || c.FailingSince == nil ||
		time.Since(*c.FailingSince) < time.Minute || c.OldestSeconds == nil || *c.OldestSeconds <= 0 {
		t.Errorf("webhook: %+v", c)
	}
	if c := got.Components["sink.rabbitmq"]; c.Status != "unknown" || !strings.Contains(c.LastError, "no server sends to it yet") || c.OldestSeconds != nil {
		t.Errorf("rabbitmq: %+v", c)
	}
	if c := got.Components["broker"]; c.Status != "off" || len(got.Components) != 4 {
		t.Errorf("%+v", got.Components)
	}

	hanging, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = hanging.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := hanging.Exec(t.Context(), `LOCK TABLE tasker.emission_sinks`); err != nil {
		t.Fatal(err)
	}
	got = want[apiv1.Health](h, http.StatusOK, "GET", "/health/ready", nil)
	if c := got.Components["sink.log"]; c.Status != "unknown" || c.LastError != "cannot read the sink's state from the database" {
		t.Errorf("with a table that is locked: %+v", c)
	}
	h.Must(hanging.Rollback(t.Context()))
	h.DB.Close()
	h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", `"sink.webhook":{"status":"unknown"`, "GET", "/health/ready", nil)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a_metric 1\n")) })
	})
	if r := h.send("GET", "/metrics", nil); r.status != http.StatusOK || r.text != "a_metric 1\n" {
		t.Errorf("%d %s", r.status, r.text)
	}
	h = newHarness(t)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "metrics are disabled", "GET", "/metrics", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "format", "GET", "/metrics?format=x", nil)
}

// What nobody can act on is in the log, and in no answer.
func TestInternalErrorsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // slog writes one line at a time
	h := newHarness(t, func(o *api.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.DLQ = (*dlq.Service)(nil) // its methods panic
	})
	h.register(chain)
	task := h.createTask(1)
	path := "/v1/dlq/task/" + task.UUID.String()
	p := h.wantError(http.StatusInternalServerError, "INTERNAL", "r-17", "POST", path, `{"reason":"r","created_by":"c"}`, "X-Request-ID: r-17")
	if strings.Contains(p.Error.Message, "nil") || strings.Contains(p.Error.Message, "panic") {
		t.Errorf("the answer tells: %s", p.Error.Message)
	}
	h.DB.Close()
	h.wantError(http.StatusInternalServerError, "INTERNAL", "r-18", "GET", path, nil, "X-Request-ID: r-18")
	h.send("GET", "/health", nil)
	h.server.Close() // all lines are written
	said := log.String()
	for _, words := range []string{
		"level=ERROR msg=request method=POST route=/v1/dlq/task/{task_uuid} status=500", "request_id=r-17", "nil pointer", "goroutine",
		"request_id=r-18", "closed pool", "level=INFO msg=request method=POST route=/v1/tasks status=201",
	} {
		if !strings.Contains(said, words) {
			t.Errorf("the log does not say %q:\n%s", words, said)
		}
	}
	if strings.Contains(said, "/health") {
		t.Error("a look at the health is logged above debug")
	}
}
