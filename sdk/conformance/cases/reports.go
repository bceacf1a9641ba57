package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/sdk/conformance/scripted"
)

func reports() []Case {
	return []Case{
		{"report-lost-response-is-repeated", reporting, "A report whose response is lost is sent again, unchanged.", reportRepeated(scripted.Lose)},
		{"report-reset-is-repeated", reporting, "A report whose connection is reset is sent again.", reportRepeated(scripted.Reset)},
		{"report-truncated-response-is-repeated", failing, "A truncated response settles no outcome.", reportRepeated(scripted.Truncate)},
		{"report-503-is-repeated", failing, "After 503 the same report is sent again.", reportRepeated(scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))},
		{"report-500-is-repeated", failing, "INTERNAL is handled like 503: the outcome is not changed.", reportRepeated(scripted.Refuse(500, "INTERNAL", "internal error"))},
		{"report-retry-after", failing, "After 503 with Retry-After, an outcome is not sent again earlier.", reportRetryAfter(503)},
		{"report-429-retry-after", failing, "After 429 with Retry-After, an outcome is not sent again earlier.", reportRetryAfter(429)},
		{"report-failure-is-repeated", reporting, "A report of a failure is repeated like a report of a success.", reportFailureRepeated},
		{"report-named-in-neither-list-is-repeated", reporting, "An outcome that the response names in neither list is sent again.", reportInNeitherList},
		{"report-keeps-its-lease", reporting, "The lease of an outcome is extended until the outcome has a response.", reportKeepsLease},
		{"report-is-sent-once-more-after-a-lost-lease", reporting, "An outcome whose lease is lost while its report has no response is reported once more.", reportAfterLostLease},
		{"report-backs-off", reporting, "Reports without a response are repeated with increasing backoff.", reportBacksOff},
		{"report-of-several-is-split", reporting, "A report without a response is split, so that one outcome does not block the others.", reportSplit(scripted.Reset)},
		{"report-413-of-several-is-split", reporting, "A report of several outcomes that gets 413 is sent again in smaller parts.", reportSplit(scripted.Refuse(413, "TOO_LARGE", "the body is too large"))},
		{"report-413-of-one-is-final", reporting, "A 413 of the API for a report of one outcome is final: the worker reports a permanent failure instead.", report413},
		{"report-that-fails-does-not-block-new-ones", reporting, "An outcome that fails again and again does not delay new reports.", reportPoison},
	}
}

func reportRepeated(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Report, 2, act)
		t.Start()
		step := t.Enqueue("echo", object{"a": 1})
		t.Await("a third report of the outcome", func() bool { return len(step.Reports()) >= 3 })
		t.Success(step)
		checkSameOutcomes(t, step)
		checkOnce(t, step)
		n := len(step.Reports())
		t.Observe(heartbeat)
		t.Check(len(step.Reports()) == n, "the worker sent the outcome again after it was accepted")
	}
}

func reportRetryAfter(status int) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Report, 1, scripted.RetryAfter(status, 1))
		t.Start()
		step := t.Enqueue("echo", nil)
		t.Success(step)
		list := step.Reports()
		pause := list[1].At - list[0].At
		t.Check(pause >= 950*time.Millisecond, "the outcome was sent again after %s, although Retry-After was 1 second", pause)
	}
}

func reportFailureRepeated(t *T) {
	t.Server.On(scripted.Report, 2, scripted.Lose)
	t.Start()
	step := t.Enqueue("fail_permanent", object{"message": "card declined"})
	t.Await("a third report of the outcome", func() bool { return len(step.Reports()) >= 3 })
	t.PermanentFailure(step, "card declined")
	for _, o := range step.Reports() {
		t.Check(!o.Success && o.Error != nil && o.Error.Message == "card declined", "a repeated report differs: %s", describe(&o))
	}
}

func reportInNeitherList(t *T) {
	t.Server.On(scripted.Report, 2, scripted.Body(200, `{"accepted": [], "rejected": [], "steps": []}`))
	t.Start()
	step := t.Enqueue("echo", nil)
	t.Success(step)
	checkSameOutcomes(t, step)
}

func reportKeepsLease(t *T) {
	refusing := t.Server.On(scripted.Report, scripted.Forever, scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))
	t.Start()
	step := t.Enqueue("echo", nil)
	t.Await("a report", func() bool { return len(step.Reports()) > 0 })
	t.Observe(2 * lease)
	refusing()
	t.Success(step)
	t.Equal("the number of expired leases", step.Expired(), 0)
	checkOnce(t, step)
}

func reportAfterLostLease(t *T) {
	refusing := t.Server.On(scripted.Report, scripted.Forever, scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))
	t.Start()
	step := t.Enqueue("echo", nil)
	t.Await("a report", func() bool { return len(step.Reports()) > 0 })
	step.Revoke(false)
	t.Await("a heartbeat that returned the step in lost", func() bool {
		return slices.ContainsFunc(heartbeatsWith(t, step), func(q scripted.Request) bool {
			return strings.Contains(string(q.Reply), `"lost":["`+step.UUID)
		})
	})
	n := len(step.Reports())
	t.Await("one more report of the outcome", func() bool { return len(step.Reports()) > n })
	refusing()
	t.Await("a report that the server rejects", func() bool {
		return slices.ContainsFunc(t.Server.Requests(scripted.Report), func(q scripted.Request) bool {
			return q.Names(step) && strings.Contains(string(q.Reply), "STALE_LEASE")
		})
	})
	t.Success(t.Enqueue("echo", nil))
	n = len(step.Reports())
	t.Observe(2 * heartbeat)
	t.Check(len(step.Reports()) == n, "the worker sent the outcome again after STALE_LEASE")
}

func reportBacksOff(t *T) {
	t.Server.On(scripted.Report, scripted.Forever, scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))
	t.Start()
	step := t.Enqueue("echo", nil)
	t.Await("a report", func() bool { return len(step.Reports()) > 0 })
	t.Observe(2500 * time.Millisecond)
	n := len(step.Reports())
	t.Check(n >= 3, "the worker sent the outcome %d times in 2.5 seconds; it must keep trying", n)
	t.Check(n <= 20, "the worker sent the outcome %d times in 2.5 seconds; the backoff must increase", n)
}

// reportSplit checks that the outcomes arrive although each report with several of them fails.
func reportSplit(act scripted.Action) func(t *T) {
	return func(t *T) {
		several := func(q scripted.Request) bool { return q.Route == scripted.Report && len(q.Results()) > 1 }
		t.Server.When(several, scripted.Forever, act)
		// The first report is slow, so that the other outcomes gather for the next one.
		t.Server.On(scripted.Report, 1, scripted.Slow(t.Scaled(500*time.Millisecond)))
		t.Start("CONFORMANCE_CONCURRENCY=5")
		steps := []*scripted.Step{t.Enqueue("echo", nil)}
		for i := range 4 {
			steps = append(steps, t.Enqueue("sleep", object{"ms": 200 + i}))
		}
		for _, step := range steps {
			t.Success(step)
			checkOnce(t, step)
		}
	}
}

func report413(t *T) {
	step := t.Enqueue("big", object{"bytes": 20000})
	big := func(q scripted.Request) bool { return q.Names(step) && len(q.Body) > 10000 }
	t.Server.When(big, scripted.Forever, scripted.Refuse(413, "TOO_LARGE", "the body exceeds 10000 bytes: report a smaller result"))
	t.Start()
	t.PermanentFailure(step, "")
}

func reportPoison(t *T) {
	poison := t.Enqueue("echo", object{"poison": true})
	bad := func(q scripted.Request) bool { return q.Route == scripted.Report && q.Names(poison) }
	t.Server.When(bad, scripted.Forever, scripted.Refuse(500, "INTERNAL", "internal error"))
	t.Start()
	t.Await("a report", func() bool { return len(poison.Reports()) > 0 })
	began := t.Server.Now()
	for range 5 {
		t.Success(t.Enqueue("echo", nil))
	}
	took := t.Server.Now() - began
	t.Check(took < t.Scaled(4*time.Second), "five steps took %s while the report of another one failed", took)
	t.Check(len(poison.Reports()) > 1, "the outcome that fails was not sent again")
}

func rejections() []Case {
	stale, invalid := "lease lost: this attempt no longer counts", "results[0].result: contains a NUL: the attempt was failed"
	return []Case{
		{"rejected-stale-lease-is-dropped", reporting, "An outcome rejected with STALE_LEASE is dropped.", rejectedDropped("STALE_LEASE", stale)},
		{"rejected-not-found-is-dropped", reporting, "An outcome rejected with NOT_FOUND is dropped.", rejectedDropped("NOT_FOUND", "no such step")},
		{"rejected-invalid-that-failed-is-dropped", reporting, `An outcome rejected with INVALID and "the attempt was failed" is dropped.`, rejectedDropped("INVALID", invalid)},
		{"rejected-too-large-that-failed-is-dropped", reporting, `An outcome rejected with TOO_LARGE and "the attempt was failed" is dropped.`, rejectedDropped("TOO_LARGE", "results[0].result: has 20 MiB: the attempt was failed")},
		{"rejected-unavailable-is-repeated", reporting, "An outcome rejected with UNAVAILABLE is sent again unchanged.", rejectedRepeated("UNAVAILABLE")},
		{"rejected-internal-is-repeated", reporting, "An outcome rejected with INTERNAL is sent again unchanged.", rejectedRepeated("INTERNAL")},
		{"rejected-invalid-result-becomes-a-failure", reporting, "If INVALID names result as the place, the worker reports a permanent failure.", rejectedResult},
		{"rejected-invalid-otherwise-is-kept", reporting, "If INVALID names another place, the outcome is kept and sent occasionally.", rejectedOther},
		{"rejected-invalid-omits-optional-fields", reporting, "After INVALID, the optional fields metadata and context are omitted.", rejectedOptional},
	}
}

// reject answers a report with a rejection of all its outcomes.
func reject(code, message string) scripted.Action {
	return scripted.InsteadOf(func(q scripted.Request) any {
		rejected := []any{}
		for _, r := range q.Results() {
			rejected = append(rejected, object{"step_uuid": r.StepUUID, "code": code, "message": message})
		}
		return object{"accepted": []any{}, "rejected": rejected, "steps": []any{}}
	})
}

func rejectedDropped(code, message string) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Report, 1, reject(code, message))
		t.Start("CONFORMANCE_CONCURRENCY=1")
		step := t.Enqueue("echo", nil)
		t.Await("a report", func() bool { return len(step.Reports()) > 0 })
		t.Success(t.Enqueue("echo", nil))
		t.Observe(2 * heartbeat)
		n := len(step.Reports())
		t.Check(n == 1, "the outcome was sent %d times; the rejection with %s settles it", n, code)
	}
}

func rejectedRepeated(code string) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Report, 2, reject(code, "the database does not answer"))
		t.Start()
		step := t.Enqueue("echo", nil)
		t.Success(step)
		checkSameOutcomes(t, step)
	}
}

func rejectedResult(t *T) {
	success := func(q scripted.Request) bool {
		return q.Route == scripted.Report && slices.ContainsFunc(q.Results(), func(r apiv1.Result) bool { return r.Success })
	}
	t.Server.When(success, scripted.Forever, reject("INVALID", "results[0].result: has a number that is too large"))
	t.Start()
	t.PermanentFailure(t.Enqueue("echo", nil), "")
}

func rejectedOther(t *T) {
	t.Server.On(scripted.Report, 3, reject("INVALID", "results[0].success: this version of the server does not support it"))
	t.Start()
	step := t.Enqueue("echo", nil)
	t.Success(step)
	checkSameOutcomes(t, step)
	list := step.Reports()
	took := list[len(list)-1].At - list[0].At
	t.Check(took >= 200*time.Millisecond, "the rejected outcome was sent %d times in %s; send it occasionally", len(list), took)
}

func rejectedOptional(t *T) {
	t.Server.On(scripted.Report, 1, reject("INVALID", "results[0].error.context: this version of the server does not support it"))
	t.Start()
	step := t.Enqueue("panic", nil)
	t.Failure(step)
	list := step.Reports()
	if len(list[0].Error.Context) > 0 || len(list[0].Metadata) > 0 {
		o := list[len(list)-1]
		t.Check(len(o.Error.Context) == 0 || len(o.Metadata) == 0, "the outcome was sent again with metadata and context; both are optional")
	}
	t.Check(list[0].Error.Message == list[len(list)-1].Error.Message, "the message of the failure has changed")
}

func proxies() []Case {
	var list []Case
	for _, status := range []int{200, 204, 400, 401, 403, 404, 413, 500, 502} {
		list = append(list, Case{
			fmt.Sprintf("report-foreign-%d-is-repeated", status), failing,
			fmt.Sprintf("The page of a proxy with status %d settles no outcome, and never turns a success into a failure.", status),
			reportForeign(status),
		})
	}
	return append(list,
		Case{"report-without-lists-is-repeated", failing, "A JSON response without accepted and rejected is not the response to a report.", reportRepeated(scripted.Body(200, `{"ok": true, "steps": []}`))},
		Case{"report-foreign-error-object-is-repeated", failing, "An error without error.code and error.message is not from the API.", reportRepeated(scripted.Body(413, `{"error": "payload too large"}`))},
		Case{"report-applied-behind-a-page-is-repeated", failing, "A report that was applied behind the page of a proxy is sent again.", reportRepeated(scripted.PageAfter(502))},
		Case{"heartbeat-foreign-200-extends-nothing", failing, "A login page with status 200 extends no lease: the heartbeat is repeated.", heartbeatForeign},
		Case{"response-without-a-content-length", failing, "A response in chunks is read whole.", slowChunks},
	)
}

func reportForeign(status int) func(t *T) {
	if status == 204 {
		return reportRepeated(func(x *scripted.Exchange) { x.Send(scripted.Answer{Status: 204}) })
	}
	return reportRepeated(scripted.Page(status))
}

func heartbeatForeign(t *T) {
	t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(2 * lease).Milliseconds()})
	held := func(q scripted.Request) bool { return q.Route == scripted.Beat && q.Names(step) }
	t.Server.When(held, 1, scripted.Page(200))
	t.Server.When(held, 1, scripted.Body(200, `{}`))
	t.Success(step)
	checkOnce(t, step)
}

// slowChunks sends a large response in chunks.
func slowChunks(t *T) {
	t.Start()
	step := t.Enqueue("context_of", object{"filler": strings.Repeat("0123456789", 200_000)})
	t.Equal("the keys", field(t, t.Success(step), "keys"), []string{"filler"})
}
