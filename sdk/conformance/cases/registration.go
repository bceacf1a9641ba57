package cases

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/sdk/conformance/scripted"
)

// Handlers are the handlers that each conformance program registers.
var Handlers = []string{
	"bad_result", "big", "block", "checkpoint", "context_of", "echo", "fail", "fail_permanent", "item", "nan_result", "panic",
	"result_of", "retry_after", "sleep", "typed", "unicode",
}

func registration() []Case {
	return []Case{
		{"registration-lists-handlers", registering, "A registration lists the full names of its handlers and namespaces.", registrationListsHandlers},
		{"registration-invalid-is-final", registering, "INVALID at registration is permanent: the worker prints the message and exits.", refusedStart(400, "INVALID", "handlers[3]: name with *")},
		{"registration-not-supported-is-final", registering, "NOT_SUPPORTED at registration is permanent: the worker prints the message and exits.", refusedStart(415, "NOT_SUPPORTED", "the server does not support this media type")},
		{"registration-too-large-is-final", registering, "TOO_LARGE at registration is permanent: the worker prints the message and exits.", refusedStart(413, "TOO_LARGE", "the list of handlers is too long")},
		{"registration-version-is-final", registering, "If the server does not serve the protocol version of the worker, the worker prints the message and exits.", refusedStart(400, "NOT_SUPPORTED", "protocol version 1 is not supported: update the worker")},
		{"registration-unauthorized-is-final", authentication, "401 when the worker starts is permanent: the worker prints the message and exits.", refusedStart(401, "UNAUTHORIZED", "invalid API key: create one with tasker key")},
		{"registration-forbidden-is-final", authentication, "403 when the worker starts is permanent: the worker prints the message and exits.", refusedStart(403, "FORBIDDEN", "the key has no role worker in namespace conformance")},
		{"registration-503-is-retried", registering, "After 503 the registration is sent again.", failingStart(scripted.Refuse(503, "UNAVAILABLE", "starting"))},
		{"registration-500-is-retried", registering, "INTERNAL is handled like 503.", failingStart(scripted.Refuse(500, "INTERNAL", "internal error"))},
		{"registration-reset-is-retried", registering, "A registration without a response is sent again.", failingStart(scripted.Reset)},
		{"registration-truncated-is-retried", failing, "A response that is not complete JSON is not a response of the API.", failingStart(scripted.Truncate)},
		{"registration-retry-after", registering, "After 503 the worker waits for Retry-After.", registrationRetryAfter},
		{"registration-foreign-200-is-retried", failing, "A 200 whose body lacks the fields of the response is handled as 503.", failingStart(scripted.Body(200, `{"status": "ok"}`))},
		{"registration-foreign-401-is-retried", failing, "A 401 page of a proxy is handled as 503, not as a wrong key.", failingStart(scripted.Page(401))},
		{"registration-unknown-worker-registers-again", registering, "After a 404 that names its worker_uuid, the worker registers again, once.", forgottenWorker},
		{"registration-again-keeps-trying", authentication, "401 after the start is handled like 503, also when the worker registers again.", forgottenWorkerUnauthorized},
		{"registration-wrong-route-is-not-unknown", failing, "A 404 with the worker_uuid after a / is a wrong route: the worker does not register again.", notUnknown(func(worker string) scripted.Action {
			return scripted.Refuse(404, "NOT_FOUND", "no such path: /v1/workers/"+worker+"/claims; see /api-docs/openapi.json")
		})},
		{"registration-foreign-404-is-not-unknown", failing, "The 404 page of a proxy does not mean that the worker is unknown.", notUnknown(func(string) scripted.Action { return scripted.Page(404) })},
		{"registration-other-404-is-not-unknown", failing, "A 404 that names another UUID does not mean that the worker is unknown.", notUnknown(func(string) scripted.Action {
			return scripted.Refuse(404, "NOT_FOUND", "worker "+newID()+" is not registered: register again")
		})},
	}
}

func registrationListsHandlers(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=3", "CONFORMANCE_NAME=conformance-7")
	w := t.Server.Workers()[0]
	slices.Sort(w.Handlers)
	t.Equal("the list of handlers", w.Handlers, Handlers)
	t.Equal("the list of namespaces", w.Namespaces, []string{"conformance"})
	t.Equal("max_concurrency", w.MaxConcurrency, 3)
	t.Equal("the name", w.Name, "conformance-7")
}

// refusedStart checks that the worker exits with the message of a permanent error.
func refusedStart(status int, code, message string) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Register, scripted.Forever, scripted.Refuse(status, code, message))
		p := t.Launch()
		status := t.AwaitExit(p, t.options.Patience, "the permanent error "+code)
		t.Check(status != 0, "the program ended with status 0; it must be another one, because the worker could not start")
		t.Check(strings.Contains(p.Output(), message), "the output does not contain the message of the server, %q", message)
		lines := strings.Count(strings.TrimSpace(p.Output()), "\n") + 1
		t.Check(lines <= 3, "the output has %d lines; it must be one sentence with the remedy, without a stack trace", lines)
		n := len(t.Server.Requests(scripted.Register))
		t.Check(n == 1, "the registration was sent %d times; it must be sent once, because the error is permanent", n)
	}
}

// failingStart checks that the worker sends the registration again after three failures.
func failingStart(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Register, 3, act)
		t.Launch()
		t.Await("a fourth registration", func() bool { return len(t.Server.Requests(scripted.Register)) > 3 })
		t.Success(t.Enqueue("echo", nil))
		checkPauses(t, scripted.Register, 3)
	}
}

// checkPauses fails the case if the first failed requests were repeated without a pause.
func checkPauses(t *T, route scripted.Route, failed int) {
	list := t.Server.Requests(route)
	for i := 1; i <= failed; i++ {
		pause := list[i].At - list[i-1].At
		t.Check(pause >= 20*time.Millisecond, "failed request %d was repeated after %s; wait at least 20 ms, and longer after each failure", i, pause)
	}
}

func registrationRetryAfter(t *T) {
	t.Server.On(scripted.Register, 1, scripted.RetryAfter(503, 1))
	t.Launch()
	t.Await("a second registration", func() bool { return len(t.Server.Requests(scripted.Register)) > 1 })
	checkRetryAfter(t, t.Server.Requests(scripted.Register))
}

// checkRetryAfter fails the case if the second request came before the end of Retry-After: 1.
func checkRetryAfter(t *T, list []scripted.Request) {
	pause := list[1].At - list[0].At
	t.Check(pause >= 950*time.Millisecond, "the request was repeated after %s, although Retry-After was 1 second", pause)
}

func forgottenWorker(t *T) {
	t.Start()
	first := t.Server.Workers()[0].UUID
	t.Success(t.Enqueue("echo", nil))
	held := t.Enqueue("sleep", object{"ms": 400})
	t.Await("a claim of the step", func() bool { return len(held.Grants()) > 0 })
	t.Server.Forget()
	t.Await("a second registration", func() bool { return len(t.Server.Workers()) > 0 })
	t.Success(t.Enqueue("echo", nil))
	t.Observe(2 * heartbeat)
	n := len(t.Server.Requests(scripted.Register))
	t.Check(n == 2, "the worker registered %d times; it must register again once, whatever requests got the 404", n)
	for _, q := range t.Server.Requests(scripted.Claim) {
		if q.Worker == first && q.Status == http.StatusNotFound && countAfter(t, q, first) > 6 {
			t.Fatalf("the worker still uses its old worker_uuid after the new registration")
		}
	}
}

// countAfter returns the number of requests of a worker after a request.
func countAfter(t *T, q scripted.Request, worker string) int {
	n := 0
	for _, other := range t.Server.Requests() {
		if other.At > q.At && other.Worker == worker {
			n++
		}
	}
	return n
}

func forgottenWorkerUnauthorized(t *T) {
	t.Start()
	t.Success(t.Enqueue("echo", nil))
	t.Server.On(scripted.Register, 3, scripted.Refuse(401, "UNAUTHORIZED", "invalid API key: use a key that is valid"))
	t.Server.Forget()
	t.Await("a registration after three refusals", func() bool { return len(t.Server.Workers()) > 0 })
	t.Success(t.Enqueue("echo", nil))
}

// notUnknown checks that a 404 to claims does not make the worker register again.
func notUnknown(act func(worker string) scripted.Action) func(t *T) {
	return func(t *T) {
		t.Start()
		worker := t.Server.Workers()[0].UUID
		t.Success(t.Enqueue("echo", nil))
		refused := len(t.Server.Requests(scripted.Claim)) + 3
		t.Server.On(scripted.Claim, 3, act(worker))
		t.Server.On(scripted.Beat, 2, act(worker))
		// The claim that waits now returns with this step.
		t.Success(t.Enqueue("echo", nil))
		t.Await("further claims", func() bool { return len(t.Server.Requests(scripted.Claim)) > refused })
		t.Success(t.Enqueue("echo", nil))
		n := len(t.Server.Requests(scripted.Register))
		t.Check(n == 1, "the worker registered %d times; the 404 does not mean that it is unknown", n)
	}
}

func keys() []Case {
	return []Case{
		{"key-is-sent-with-every-request", authentication, "The key is sent with every request, in the header Authorization.", keyIsSent},
		{"key-file-is-read-again", authentication, "The key file is read again when it changes.", keyFileIsReadAgain},
		{"key-refused-later-keeps-outcome", authentication, "401 after the start is handled like 503: the outcome is kept and reported later.", keyRefusedLater(401, "UNAUTHORIZED")},
		{"key-forbidden-later-keeps-outcome", authentication, "403 after the start is handled like 503: the outcome is kept and reported later.", keyRefusedLater(403, "FORBIDDEN")},
	}
}

func keyIsSent(t *T) {
	t.Server.SetKeys("tsk_first")
	t.Start("TASKER_API_KEY_FILE=" + t.KeyFile("tsk_first"))
	step := t.Server.Enqueue(scripted.Step{Handler: "result_of", Context: object{"of": "load"}, Refs: map[string]string{"load": `{"rows": 3}`}})
	t.Success(step)
	for _, q := range t.Server.Requests() {
		t.Check(q.Key == "tsk_first", "%s %s was sent with the key %q; it must be the one of the key file", q.Method, q.Path, q.Key)
	}
}

func keyFileIsReadAgain(t *T) {
	t.Server.SetKeys("tsk_first")
	t.Start("TASKER_API_KEY_FILE=" + t.KeyFile("tsk_first"))
	t.Success(t.Enqueue("echo", nil))
	t.Server.SetKeys("tsk_first", "tsk_second")
	t.KeyFile("tsk_second")
	t.Await("a request with the new key", func() bool {
		return slices.ContainsFunc(t.Server.Requests(), func(q scripted.Request) bool { return q.Key == "tsk_second" })
	})
	t.Server.SetKeys("tsk_second")
	t.Success(t.Enqueue("echo", nil))
}

func keyRefusedLater(status int, code string) func(t *T) {
	return func(t *T) {
		t.Start()
		step := t.Enqueue("sleep", object{"ms": 300})
		t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
		refusing := t.Server.When(func(q scripted.Request) bool { return q.Route != scripted.Beat }, scripted.Forever,
			scripted.Refuse(status, code, "the key is in rotation"))
		t.Await("three reports", func() bool { return len(step.Reports()) >= 3 })
		refusing()
		t.Success(step)
		t.Equal("the number of attempts", len(step.Grants()), 1)
		checkSameOutcomes(t, step)
	}
}

// checkSameOutcomes fails the case unless all reports of the step are equal.
func checkSameOutcomes(t *T, step *scripted.Step) {
	list := step.Reports()
	for _, o := range list[1:] {
		first, err := json.Marshal(list[0].Result.Result)
		if err != nil {
			t.Fatalf("encode the result: %v", err)
		}
		again, err := json.Marshal(o.Result.Result)
		if err != nil {
			t.Fatalf("encode the result: %v", err)
		}
		t.Equal("success of the repeated report", o.Success, list[0].Success)
		t.Equal("the result of the repeated report", json.RawMessage(again), json.RawMessage(first))
		t.Equal("lease_token of the repeated report", o.LeaseToken, list[0].LeaseToken)
	}
}
