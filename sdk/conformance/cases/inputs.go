package cases

import (
	"net/http"
	"strings"

	"tasker.example/tasker/sdk/conformance/scripted"
)

func inputs() []Case {
	return []Case{
		{"input-is-passed-to-the-handler", reading, "A handler receives context, initialization, dependency results, attempt and UUIDs.", inputEcho},
		{"input-null-result-is-null", reading, "The result of a dependency may be null.", inputNull},
		{"input-item-and-index", reading, "An item of a map step has item and index; other steps have neither.", inputItem},
		{"input-omitted-context-is-read", reading, "A context that omits parts is read from context_href.", inputOmittedContext},
		{"input-reference-is-read", reading, "A large dependency result is read from its href.", inputReference(nil)},
		{"input-reference-503-is-retried", reading, "A reference that cannot be read now is read again.", inputReference(scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))},
		{"input-reference-truncated-is-retried", reading, "A truncated document is read again.", inputReference(scripted.Truncate)},
		{"input-reference-without-etag-is-retried", failing, "A bare document is from the API only if its ETag is the digest of the body.", inputReference(scripted.Body(200, `{"rows": "of somebody else"}`))},
		{"input-reference-with-wrong-etag-is-retried", failing, "A body that does not match its ETag is not from the API.", inputReference(wrongDocument)},
		{"input-reference-foreign-404-is-retried", failing, "The 404 page of a proxy does not mean that the result does not exist.", inputReference(scripted.Page(404))},
		{"input-reference-wrong-route-is-retried", failing, "A 404 with the UUID of the task after a / is a wrong route.", inputReference(wrongRoute)},
		{"input-reference-missing-is-permanent", reading, "A 404 that names the task means that the result does not exist: the step fails permanently.", inputMissing(404, "NOT_FOUND")},
		{"input-reference-too-large-is-permanent", reading, "413 means that the result exceeds the size limit: the step fails permanently.", inputMissing(413, "TOO_LARGE")},
	}
}

func inputEcho(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{
		Handler: "echo", Context: object{"order": object{"id": 7, "lines": []any{"a", nil, true, 1.5}}},
		Initialization: object{"mode": "fast"}, Results: map[string]any{"load": object{"rows": 3}, "count": 0, "name": ""},
	})
	t.Equal("the result of echo", t.Success(step), object{
		"context": step.Context, "initialization": step.Initialization, "results": step.Results, "attempt": 1,
		"task_uuid": step.Task, "step_uuid": step.UUID,
	})
}

func inputNull(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{Handler: "echo", Results: map[string]any{"load": nil}})
	t.Equal("results", field(t, t.Success(step), "results"), object{"load": nil})
}

func inputItem(t *T) {
	t.Start()
	zero, two := 0, 2
	for _, x := range []struct {
		step scripted.Step
		want object
	}{
		{scripted.Step{Handler: "item", Item: object{"sku": "a"}, Index: &two}, object{"item": object{"sku": "a"}, "index": 2}},
		{scripted.Step{Handler: "item", Item: 0, Index: &zero}, object{"item": 0, "index": 0}},
		{scripted.Step{Handler: "item", Item: false, Index: &zero}, object{"item": false, "index": 0}},
		{scripted.Step{Handler: "item"}, object{"item": nil, "index": nil}},
	} {
		t.Equal("the result of item", t.Success(t.Server.Enqueue(x.step)), x.want)
	}
}

func inputOmittedContext(t *T) {
	t.Start()
	index := 1
	step := t.Server.Enqueue(scripted.Step{
		Handler: "context_of", Item: 5, Index: &index, Context: object{"order": 7}, Omitted: []string{"/refunds"},
		Whole: object{"order": 7, "refunds": []any{4, 5, 6}},
	})
	t.Equal("the keys of the whole context", field(t, t.Success(step), "keys"), []string{"order", "refunds"})
	t.Equal("the number of reads of the context", len(t.Server.Requests(scripted.Context)), 1)
}

// inputReference checks that a reference is read, after two attempts that the action disturbs.
func inputReference(act scripted.Action) func(t *T) {
	return func(t *T) {
		if act != nil {
			t.Server.On(scripted.Result, 2, act)
		}
		t.Start()
		step := t.Server.Enqueue(scripted.Step{
			Handler: "result_of", Context: object{"of": "load"}, Results: map[string]any{"other": 1},
			Refs: map[string]string{"load": `{"rows": [1, 2, {"text": "é"}]}`},
		})
		want := object{"rows": []any{1, 2, object{"text": "é"}}}
		t.Equal("the value of the reference", field(t, t.Success(step), "value"), want)
	}
}

func wrongDocument(x *scripted.Exchange) {
	a := x.Apply()
	x.Send(scripted.Answer{Status: http.StatusOK, Header: a.Header, Body: []byte(`{"rows": []}`)})
}

func wrongRoute(x *scripted.Exchange) {
	scripted.Refuse(404, "NOT_FOUND", "no such path: "+x.Path+"; see /api-docs/openapi.json")(x)
}

func inputMissing(status int, code string) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Result, scripted.Forever, func(x *scripted.Exchange) {
			task := strings.Split(x.Path, "/")[3]
			scripted.Refuse(status, code, "task "+task+" has no result of this step that can be returned")(x)
		})
		t.Start()
		step := t.Server.Enqueue(scripted.Step{Handler: "result_of", Context: object{"of": "load"}, Refs: map[string]string{"load": `1`}})
		t.PermanentFailure(step, "")
	}
}

func checkpoints() []Case {
	return []Case{
		{"checkpoint-is-saved-and-restored", saving, "A checkpoint is returned with the next attempt of the step.", checkpointRestored},
		{"checkpoint-lost-response-is-repeated", saving, "Repeating a checkpoint is safe: without a response it is sent again.", checkpointRepeated(scripted.Lose)},
		{"checkpoint-503-is-repeated", saving, "After 503 a checkpoint is sent again.", checkpointRepeated(scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))},
		{"checkpoint-200-is-not-saved", failing, "A checkpoint is saved only if the status is 204.", checkpointRepeated(scripted.Page(200))},
		{"checkpoint-json-200-is-not-saved", failing, "A checkpoint is saved only if the status is 204, whatever the body is.", checkpointRepeated(scripted.Body(200, `{}`))},
		{"checkpoint-invalid-is-permanent", saving, "INVALID for a checkpoint is permanent: the step fails without a retry.", checkpointRefused(400, "INVALID")},
		{"checkpoint-too-large-is-permanent", saving, "TOO_LARGE for a checkpoint is permanent: the step fails without a retry.", checkpointRefused(413, "TOO_LARGE")},
		{"checkpoint-stale-lease-is-not-repeated", saving, "STALE_LEASE for a checkpoint means that the lease is lost: it is not sent again.", checkpointStale},
	}
}

func checkpointRestored(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{Handler: "checkpoint", MaxAttempts: 5})
	t.Equal("the result of checkpoint", t.Success(step), object{"row": 3})
	t.Equal("the number of attempts", len(step.Grants()), 3)
	list := step.Reports()
	t.Check(list[0].Error != nil && list[0].Error.Message == "at row 1", "the first attempt reported %s; it must fail with %q", describe(&list[0]), "at row 1")
}

func checkpointRepeated(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Checkpoint, 2, act)
		t.Start()
		step := t.Server.Enqueue(scripted.Step{Handler: "checkpoint", MaxAttempts: 5})
		t.Equal("the result of checkpoint", t.Success(step), object{"row": 3})
		t.Equal("the number of attempts", len(step.Grants()), 3)
		checkPauses(t, scripted.Checkpoint, 2)
	}
}

func checkpointRefused(status int, code string) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Checkpoint, scripted.Forever, scripted.Refuse(status, code, "checkpoint: cannot be stored"))
		t.Start()
		step := t.Server.Enqueue(scripted.Step{Handler: "checkpoint", MaxAttempts: 5})
		t.PermanentFailure(step, "checkpoint")
		t.Equal("the number of requests", len(t.Server.Requests(scripted.Checkpoint)), 1)
	}
}

func checkpointStale(t *T) {
	t.Server.On(scripted.Checkpoint, 1, scripted.Refuse(409, "STALE_LEASE", "lease lost: nothing was saved"))
	t.Start()
	step := t.Enqueue("checkpoint", nil)
	t.Await("a checkpoint", func() bool { return len(t.Server.Requests(scripted.Checkpoint)) > 0 })
	t.Success(t.Enqueue("echo", nil))
	t.Observe(2 * heartbeat)
	n := len(t.Server.Requests(scripted.Checkpoint))
	t.Check(n == 1, "the checkpoint was sent %d times; the lease is lost", n)
	for _, o := range step.Reports() {
		t.Check(!o.Success, "the step succeeded although its checkpoint was not saved")
	}
}
