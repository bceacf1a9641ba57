package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
)

func (h *harness) worker() string {
	h.Helper()
	w := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers", map[string]any{
		"name": "w1", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 10,
	})
	if w.HeartbeatIntervalMS <= 0 || w.LeaseMS <= w.HeartbeatIntervalMS {
		h.Errorf("registered %+v", w)
	}
	return "/v1/workers/" + w.WorkerUUID
}

func (h *harness) claim(worker string, claim map[string]any) []apiv1.ClaimedStep {
	h.Helper()
	return want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", worker+"/claims", claim).Steps
}

func TestTheWorkerProtocol(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(1)
	worker := h.worker()
	steps := h.claim(worker, map[string]any{"max": 5})
	if len(steps) != 1 || steps[0].Name != "charge" || steps[0].Attempt != 1 || string(steps[0].Initialization) != `{"currency":"EUR"}` {
		t.Fatalf("claimed %+v", steps)
	}
	lease := map[string]any{"step_uuid": steps[0].StepUUID, "lease_token": steps[0].LeaseToken}
	beat := want[apiv1.HeartbeatAnswer](h, http.StatusOK, "POST", worker+"/heartbeat", map[string]any{"leases": []any{lease}})
	if len(beat.Extended) != 1 || len(beat.Lost) != 0 {
		t.Errorf("beat %+v", beat)
	}
	released := want[apiv1.Released](h, http.StatusOK, "POST", worker+"/release", map[string]any{"leases": []any{lease}})
	if len(released.Released) != 1 {
		t.Errorf("released %+v", released)
	}
	beat = want[apiv1.HeartbeatAnswer](h, http.StatusOK, "POST", worker+"/heartbeat", map[string]any{"leases": []any{lease}})
	if len(beat.Extended) != 0 || len(beat.Lost) != 1 {
		t.Errorf("beat after release %+v", beat)
	}
	steps = h.claim(worker, map[string]any{"max": 5, "wait_ms": 0})
	if len(steps) != 1 || steps[0].Attempt != 1 {
		t.Fatalf("claimed again %+v", steps)
	}
	result := map[string]any{
		"step_uuid": steps[0].StepUUID, "lease_token": steps[0].LeaseToken, "success": true,
		"result": map[string]any{"paid": 5}, "metadata": map[string]any{"ms": 3},
	}
	stale := map[string]any{"step_uuid": lease["step_uuid"], "lease_token": lease["lease_token"], "success": true}
	report := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", map[string]any{
		"results": []any{stale, result}, "claim": map[string]any{"max": 1},
	})
	if len(report.Accepted) != 1 || len(report.Rejected) != 1 || report.Rejected[0].Code != "STALE_LEASE" || len(report.Steps) != 1 {
		t.Fatalf("report %+v", report)
	}
	next := report.Steps[0]
	if next.Name != "ship" || string(next.DependencyResults["charge"]) != `{"paid":5}` || string(next.Initialization) != `{}` {
		t.Errorf("next %+v", next)
	}
	again := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", map[string]any{"results": []any{result}})
	if len(again.Accepted) != 1 || len(again.Rejected) != 0 {
		t.Errorf("again %+v", again)
	}
	list := want[apiv1.WorkerList](h, http.StatusOK, "GET", "/v1/workers", nil)
	if len(list.Workers) != 1 || list.Workers[0].InFlight != 1 || list.Workers[0].Health != "active" {
		t.Errorf("workers %+v", list)
	}
	want[any](h, http.StatusOK, "POST", worker+"/results", map[string]any{"results": []any{map[string]any{
		"step_uuid": next.StepUUID, "lease_token": next.LeaseToken, "success": true,
	}}})
	if got := want[tasker.Task](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String(), nil); got.State != "complete" {
		t.Errorf("task %+v", got)
	}
	want[any](h, http.StatusNoContent, "DELETE", worker, nil)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "", "POST", worker+"/claims", map[string]any{"max": 1})
}

func TestProtocolOfARegistration(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	registration := func(protocol any) map[string]any {
		r := map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}}
		if protocol != nil {
			r["protocol"] = protocol
		}
		return r
	}
	for _, protocol := range []any{nil, 1} {
		if w := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers", registration(protocol)); w.Protocol != 1 {
			t.Errorf("with the protocol %v: %+v", protocol, w)
		}
	}
	h.wantError(http.StatusBadRequest, "NOT_SUPPORTED", "this server supports version 1 of the worker protocol", "POST", "/v1/workers", registration(2))
	h.wantError(http.StatusBadRequest, "INVALID", "protocol", "POST", "/v1/workers", registration(0))
	h.wantError(http.StatusBadRequest, "INVALID", "protocol", "POST", "/v1/workers", registration("1"))
	if n := h.Count(`SELECT count(*) FROM tasker.workers`); n != 2 {
		t.Errorf("%d workers are registered", n)
	}
}

func TestDrainOverHTTP(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker := h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	leases := map[string]any{"leases": []any{map[string]any{"step_uuid": step.StepUUID, "lease_token": step.LeaseToken}}}
	if got := h.send("POST", worker+"/heartbeat", leases); !strings.Contains(got.text, `"drain":false`) {
		t.Errorf("beat %s", got.text)
	}
	before := want[apiv1.WorkerList](h, http.StatusOK, "GET", "/v1/workers", nil).Workers[0]
	if before.Health != "active" || before.DrainingSince != nil {
		t.Errorf("worker %+v", before)
	}
	drained := want[tasker.Worker](h, http.StatusOK, "POST", worker+"/drain", nil)
	if drained.Health != "draining" || drained.DrainingSince == nil || drained.InFlight != 1 || "/v1/workers/"+drained.UUID.String() != worker {
		t.Errorf("worker %+v", drained)
	}
	again := want[tasker.Worker](h, http.StatusOK, "POST", worker+"/drain", nil)
	listed := want[apiv1.WorkerList](h, http.StatusOK, "GET", "/v1/workers", nil).Workers[0]
	if diff := cmp.Diff(drained, again); diff != "" {
		t.Errorf("again (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(drained, listed); diff != "" {
		t.Errorf("in the list (-answer +list):\n%s", diff)
	}
	if got := h.send("POST", worker+"/heartbeat", leases); !strings.Contains(got.text, `"drain":true`) || !strings.Contains(got.text, step.StepUUID) {
		t.Errorf("beat %s", got.text)
	}
	want[apiv1.Released](h, http.StatusOK, "POST", worker+"/release", leases)
	if got := h.claim(worker, map[string]any{"max": 1}); len(got) != 0 {
		t.Errorf("a draining worker claimed %+v", got)
	}
	want[any](h, http.StatusNoContent, "DELETE", worker, nil)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not registered", "POST", worker+"/drain", nil)
	h.wantError(http.StatusNotFound, "NOT_FOUND", "not registered", "POST", "/v1/workers/"+nobody+"/drain", nil)
	h.wantError(http.StatusBadRequest, "INVALID", "worker_uuid", "POST", "/v1/workers/7/drain", nil)
	h.wantError(http.StatusMethodNotAllowed, "NOT_SUPPORTED", "", "GET", worker+"/drain", nil)
}

// A result that cannot be read is rejected by itself.
func TestInvalidResultDoesNotRejectOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker := h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	frame := `"step_uuid": "` + step.StepUUID + `", "lease_token": "` + step.LeaseToken + `"`
	body := `{"results": [
		{"step_uuid": "nonsense", "lease_token": "x", "success": true},
		{"step_uuid": "` + step.StepUUID + `", "lease_token": "nonsense", "success": true},
		{"step_uuid": "` + step.StepUUID + `", "lease_token": 7, "success": true},
		{"step_uuid": "` + step.StepUUID + `", "success": true},
		{` + frame + `, "result": 1},
		{` + frame + `, "success": 1, "result": 1},
		{` + frame + `, "success": false, "success": true, "result": 1},
		{` + frame + `, "success": true, "result": 1, "result": 2},
		{` + frame + `, "success": true, "Result": 1},
		{` + frame + `, "success": true, "result": 1, "colour": "red"},
		{` + frame + `, "success": true, "result": 1, "error": {"message": "x"}},
		{` + frame + `, "success": true, "result": "fine"}]}`
	got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", body)
	if len(got.Accepted) != 1 || len(got.Rejected) != 11 {
		t.Fatalf("answer %+v", got)
	}
	for i, words := range []string{
		"results[0].step_uuid: must be a UUID", "results[1]: invalid lease_token", "results[2].lease_token: must be a string, not a number",
		"results[3].lease_token: is missing",
		"results[4].success: is missing", "results[5].success: must be true or false, not a number", "results[6].success: duplicate key",
		"results[7].result: duplicate key", "results[8].Result: unknown key", "results[9].colour: unknown key",
		"results[10].error: must be absent if success is true",
	} {
		if r := got.Rejected[i]; r.Code != "INVALID" || !strings.Contains(r.Message, words) {
			t.Errorf("rejected %+v, want %q", r, words)
		}
	}
}

// The body of a report is parsed as strictly as any other.
func TestReportBodyIsParsedStrictly(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker := h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	good := `{"step_uuid": "` + step.StepUUID + `", "lease_token": "` + step.LeaseToken + `", "success": true}`
	for _, tt := range []struct{ name, body, words string }{
		{"results twice", `{"results":[` + good + `],"results":[]}`, "results: duplicate key"},
		{"claim twice", `{"results":[` + good + `],"claim":{"max":1},"claim":{"max":1}}`, "claim: duplicate key"},
		{"a key twice in claim", `{"results":[` + good + `],"claim":{"max":1,"max":2}}`, "claim.max: duplicate key"},
		{"another case", `{"RESULTS":[` + good + `]}`, "RESULTS: unknown key"},
		{"a brace too many", `{"results":[` + good + `]}}`, "unexpected text after the JSON value"},
		{"text at the end", `{"results":[` + good + `]} x`, "unexpected text after the JSON value"},
		{"broken off", `{"results":[` + good, "invalid JSON in the body"},
		{"an array", `[` + good + `]`, "must be an object"},
		{"an array in results", `{"results":[` + good + `, [null, null]]}`, "results[1]: must be an object, not an array"},
		{"an array in an array", `[[null, null]]`, "must be an object"},
		{"a number in results", `{"results":[7]}`, "results[0]: must be an object, not a number"},
		{"no step", `{"results":[{}]}`, "results[0].step_uuid: is missing"},
		{"a step of another kind", `{"results":[{"step_uuid": 5}]}`, "results[0].step_uuid: must be a string, not a number"},
		{"a step twice", `{"results":[{"step_uuid": "a", "step_uuid": "b"}]}`, "results[0].step_uuid: duplicate key"},
		{"results of null", `{"results": null}`, "results: must be an array, not null"},
		{"a claim of another kind", `{"results":[],"claim":[]}`, "claim: must be an object, not an array"},
		{"an unknown key in claim", `{"results":[],"claim":{"max":1,"most":2}}`, "claim.most: unknown key"},
		{"no number of claims", `{"results":[],"claim":{}}`, "claim.max: is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := *h
			h.Harness = h.Copy(t)
			p := h.wantError(http.StatusBadRequest, "INVALID", "", "POST", worker+"/results", tt.body)
			if !strings.Contains(p.Error.Message, tt.words) {
				t.Errorf("message %q, want %q", p.Error.Message, tt.words)
			}
			for _, name := range []string{"apiv1", "api.", "Go ", "unmarshal", "json:"} {
				if strings.Contains(p.Error.Message, name) {
					t.Errorf("message %q has %q", p.Error.Message, name)
				}
			}
		})
	}
	if got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", `{"results":[`+good+`]}`); len(got.Accepted) != 1 {
		t.Errorf("nothing may have been applied before: %+v", got)
	}
}

// Every failure is stored, whatever its form. A field that decides about a retry and is invalid is
// left to the step's policy, and the answer says so.
func TestFailuresAreStoredWhateverTheirForm(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(strings.Replace(chain, "max_attempts: 1", "max_attempts: 3", 1))
	worker := h.worker()
	for _, tt := range []struct{ name, failure, message, rejected string }{
		{"valid", `{"message": "card declined", "type": "declined", "retryable": false}`, "card declined", ""},
		{"a NUL", `{"message": "card\u0000 declined", "context": {"a": "\u0000"}}`, "card declined", ""},
		{"a lone surrogate", `{"message": "card \ud800declined"}`, "declined", ""},
		{"unknown keys", `{"message": "card declined", "stack": [1, 2]}`, "card declined", ""},
		{"a duplicate key", `{"message": "card declined", "context": {"a": 1, "a": 2}}`, "card declined", ""},
		{"a string", `"card declined"`, "card declined", ""},
		{"wrong types", `{"message": {"text": "card declined"}, "retryable": false}`, "card declined", ""},
		{"a list", `["card declined"]`, "card declined", ""},
		{"null", `null`, "without a message", ""},
		{"a long message", `{"message": "card declined ` + strings.Repeat("x", 1<<20) + `"}`, "card declined", ""},
		{"deep nesting", `{"message": "down", "context": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "down", ""},
		{"a long delay", `{"message": "card declined", "retry_after_ms": 9223372036854775807}`, "card declined", ""},
		{"a whole delay with an exponent", `{"message": "down", "retry_after_ms": 1e3}`, `"down"`, ""},
		{"a whole delay with a point", `{"message": "down", "retry_after_ms": 5000.0}`, `"down"`, ""},
		{"retryable is a string", `{"message": "down", "retryable": "yes"}`, `"down"`, "error.retryable: must be true or false, not a string"},
		{"retryable is a number", `{"message": "down", "retryable": 0}`, `"down"`, "error.retryable: must be true or false, not a number"},
		{
			"a duplicate retryable", `{"message": "down", "retryable": true, "retryable": false}`,
			`"down"`, "error.retryable: duplicate key",
		},
		{
			"a delay beyond int64", `{"message": "down", "retry_after_ms": 9223372036854775808}`,
			`"down"`, "error.retry_after_ms: must be a whole number",
		},
		{"a fractional delay", `{"message": "down", "retry_after_ms": 1.5}`, `"down"`, "error.retry_after_ms: must be a whole number"},
		{"a negative delay", `{"message": "down", "retry_after_ms": -1}`, `"down"`, "error.retry_after_ms: must be at least 0"},
		{"a delay as a string", `{"message": "down", "retry_after_ms": "soon"}`, `"down"`, "error.retry_after_ms: must be a number, not a string"},
	} {
		task := h.createTask(1)
		step := h.claim(worker, map[string]any{"max": 1})[0]
		body := fmt.Sprintf(`{"results": [{"step_uuid": %q, "lease_token": %q, "success": false, "extra": 1, "error": %s}]}`,
			step.StepUUID, step.LeaseToken, tt.failure)
		got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", body)
		if tt.rejected == "" && len(got.Accepted) != 1 || tt.rejected != "" && (len(got.Rejected) != 1 || got.Rejected[0].Code != "INVALID" ||
			!strings.Contains(got.Rejected[0].Message, tt.rejected) || !strings.Contains(got.Rejected[0].Message, "the attempt was failed")) {
			t.Errorf("%s: answer %+v, want rejection %q", tt.name, got, tt.rejected)
		}
		after := want[tasker.Step](h, http.StatusOK, "GET", "/v1/tasks/"+task.UUID.String()+"/workflow_steps/"+step.StepUUID, nil)
		if after.State != "error" || !strings.Contains(string(after.Error), tt.message) || tt.rejected != "" && after.NextRetryAt == nil {
			t.Errorf("%s: state %s, next retry %v, error %.300s", tt.name, after.State, after.NextRetryAt, after.Error)
		}
		again := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", body)
		if tt.rejected != "" && len(again.Rejected) != len(got.Rejected) {
			t.Errorf("%s: the repeated report gets %+v, the first got %+v", tt.name, again, got)
		}
	}
}

func TestStoppingEndsClaimsThatWait(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	waiting, draining := h.worker(), h.worker()
	want[any](h, http.StatusOK, "POST", draining+"/drain", nil)
	got := make(chan reply, 2)
	for _, worker := range []string{waiting, draining} {
		go func() { got <- h.send("POST", worker+"/claims", `{"max": 1, "wait_ms": 60000}`) }()
	}
	h.stop()
	for range 2 {
		if r := <-got; r.status != http.StatusOK || r.text != `{"steps":[]}`+"\n" {
			t.Errorf("claim: %d %s", r.status, r.text)
		}
	}
	h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", `"running":{"status":"unhealthy"`, "GET", "/health/ready", nil)
	want[apiv1.Health](h, http.StatusOK, "GET", "/health/live", nil)
}

func TestAClientThatHangsUpEndsItsClaim(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	worker := h.worker()
	began, ended := make(chan struct{}), make(chan struct{})
	inner := h.server.Config.Handler
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		inner.ServeHTTP(w, r)
		close(ended)
	}))
	defer outer.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		<-began
		hangUp()
	}()
	r, err := http.NewRequestWithContext(ctx, "POST", outer.URL+worker+"/claims", strings.NewReader(`{"max": 1, "wait_ms": 60000}`))
	h.Must(err)
	r.Header.Set("Content-Type", "application/json")
	if answer, err := outer.Client().Do(r); err == nil {
		answer.Body.Close()
		t.Error("the client had an answer")
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the claim goes on without its client")
	}
}

func TestBodyLimitAppliesToChunkedBodies(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) { o.MaxBodyBytes = 100 })
	big := `{"namespace": "shop", "name": "` + strings.Repeat("x", 200) + `"}`
	h.wantError(http.StatusRequestEntityTooLarge, "TOO_LARGE", "the limit of this path is 100 bytes", "POST", "/v1/tasks", big)
	// Chunked: the length is not known before.
	r, err := http.NewRequestWithContext(t.Context(), "POST", h.server.URL+"/v1/tasks", onlyReader{strings.NewReader(big)})
	h.Must(err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := h.server.Client().Do(r)
	h.Must(err)
	defer answer.Body.Close()
	var p problem
	if err := json.NewDecoder(answer.Body).Decode(&p); err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge || p.Error.Code != "TOO_LARGE" {
		t.Errorf("chunked: %d %+v %v", answer.StatusCode, p, err)
	}
}

func TestRequestsTimeOut(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) { o.Timeout = 100 * time.Millisecond })
	// A body that stops in the middle.
	conn, err := net.Dial("tcp", h.server.Listener.Addr().String())
	h.Must(err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	h.Must(err)
	defer answer.Body.Close()
	var p problem
	if err := json.NewDecoder(answer.Body).Decode(&p); err != nil || answer.StatusCode != http.StatusRequestTimeout || p.Error.Code != "UNAVAILABLE" {
		t.Errorf("slow body: %d %+v %v", answer.StatusCode, p, err)
	}
	// A database that does not answer.
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE tasker.tasks"); err != nil {
		t.Fatal(err)
	}
	got := h.send("GET", "/v1/tasks", nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "longer than 100ms") {
		t.Errorf("slow database: %d %v %s", got.status, got.header, got.text)
	}
	h.Must(tx.Rollback(t.Context()))
}

type onlyReader struct{ r *strings.Reader }

func (o onlyReader) Read(b []byte) (int, error) { return o.r.Read(b) }

func TestTakingTheStepsThatMessagesName(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(1)
	step := task.Steps[0].UUID
	worker, taskUUID := h.worker(), task.UUID
	other := "01a1fbd1-125a-7196-a163-32dd5d4bfbab"
	ref := func(task, step string) map[string]any { return map[string]any{"task_uuid": task, "step_uuid": step} }
	take := func(refs ...any) []apiv1.ClaimedStep {
		t.Helper()
		return want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", worker+"/take", map[string]any{"steps": refs}).Steps
	}
	if got := take(ref(taskUUID.String(), other), ref(other, step.String())); len(got) != 0 {
		t.Errorf("took %+v of a task that has no such step", got)
	}
	got := take(ref(taskUUID.String(), step.String()), ref(taskUUID.String(), step.String()), ref(other, other))
	if len(got) != 1 || got[0].StepUUID != step.String() || got[0].Attempt != 1 || got[0].LeaseToken == "" || string(got[0].Initialization) != `{"currency":"EUR"}` {
		t.Fatalf("took %+v", got)
	}
	if again := take(ref(taskUUID.String(), step.String())); len(again) != 0 {
		t.Errorf("took %+v twice", again)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "steps", "POST", worker+"/take", map[string]any{"steps": []any{}})
	h.wantError(http.StatusBadRequest, "INVALID", "task_uuid", "POST", worker+"/take", map[string]any{"steps": []any{ref("7", step.String())}})
	h.wantError(http.StatusBadRequest, "INVALID", "task_uuid", "POST", worker+"/take", map[string]any{"steps": []any{map[string]any{"step_uuid": step}}})
	many := make([]any, 1001)
	for i := range many {
		many[i] = ref(taskUUID.String(), step.String())
	}
	h.wantError(http.StatusBadRequest, "INVALID", "1000", "POST", worker+"/take", map[string]any{"steps": many})
	h.wantError(http.StatusNotFound, "NOT_FOUND", "register again", "POST", "/v1/workers/"+other+"/take", map[string]any{"steps": []any{ref(taskUUID.String(), step.String())}})
}
