package cases

import (
	"strings"
	"time"

	"tasker.example/tasker/sdk/conformance/scripted"
)

func outcomes() []Case {
	return []Case{
		{"failure-is-retryable", concluding, "A failure has message and type, and is retried by the policy of the step.", failureRetryable},
		{"failure-is-retried", concluding, "The next attempt of a failed step is run.", failureRetried},
		{"failure-permanent", concluding, "A permanent failure has retryable: false.", failurePermanent},
		{"failure-retry-after", concluding, "retry_after_ms of a failure is in milliseconds.", failureRetryAfter},
		{"failure-of-an-uncaught-error", concluding, "An uncaught error of a handler is a retryable failure with a message, and the worker continues.", failureUncaught},
		{"failure-with-a-huge-message", concluding, "A failure with a huge message arrives in some form.", failureHuge},
		{"result-that-is-not-json-is-permanent", concluding, "A result that is not JSON is a permanent failure with the path of the value.", resultNotJSON("bad_result", "result.items[1].when")},
		{"result-nan-is-permanent", concluding, "A result with NaN is a permanent failure with the path of the value.", resultNotJSON("nan_result", "result.value")},
		{"result-unicode", concluding, "Text passes unchanged through context and result.", resultUnicode},
		{"result-large", concluding, "A result of 250 kB is reported.", resultLarge},
		{"result-many-steps", concluding, "Many small steps are each completed once.", resultMany},
	}
}

func failureRetryable(t *T) {
	t.Start()
	o := t.Failure(t.Enqueue("fail", object{"message": "card declined", "type": "declined"}))
	t.Equal("error.message", o.Error.Message, "card declined")
	t.Equal("error.type", o.Error.Type, "declined")
	t.Check(o.Error.Retryable == nil || *o.Error.Retryable, "the failure has retryable: false; it must be retryable")
	t.Equal("error.type by default", t.Failure(t.Enqueue("fail", object{"message": "no type"})).Error.Type, "Boom")
}

func failureRetried(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{Handler: "fail", Context: object{"message": "again"}, MaxAttempts: 3})
	t.Failure(step)
	t.Equal("the number of attempts", len(step.Grants()), 3)
	t.Equal("the number of reports", len(step.Reports()), 3)
}

func failurePermanent(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{Handler: "fail_permanent", Context: object{"message": "no such card", "type": "card"}, MaxAttempts: 3})
	t.PermanentFailure(step, "no such card")
	t.Equal("error.type", step.Accepted().Error.Type, "card")
}

func failureRetryAfter(t *T) {
	t.Start()
	o := t.Failure(t.Enqueue("retry_after", object{"ms": 1500, "message": "busy"}))
	t.Equal("error.retry_after_ms", o.Error.RetryAfterMS, 1500)
	t.Check(o.Error.Retryable == nil || *o.Error.Retryable, "the failure has retryable: false; it must be retryable")
}

func failureUncaught(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=1")
	o := t.Failure(t.Enqueue("panic", nil))
	t.Check(o.Error.Message != "", "the failure has no message")
	t.Check(o.Error.Retryable == nil || *o.Error.Retryable, "the failure has retryable: false; it must be retryable")
	t.Success(t.Enqueue("echo", nil))
}

func failureHuge(t *T) {
	t.Start()
	t.Failure(t.Enqueue("fail", object{"message": strings.Repeat("too long \u001b[31m€", 30_000)}))
	t.Success(t.Enqueue("echo", nil))
}

func resultNotJSON(handler, path string) func(t *T) {
	return func(t *T) {
		t.Start()
		step := t.Server.Enqueue(scripted.Step{Handler: handler, MaxAttempts: 3})
		t.PermanentFailure(step, path)
		t.Success(t.Enqueue("echo", nil))
	}
}

func resultUnicode(t *T) {
	t.Start()
	for text, length := range map[string]int{
		"Grüße, 世界": 9, "😀👩‍👩‍👧": 6, "e\u0301": 2, "\u2028\u2029\ufeff": 3, `"\/` + "\n\t\u0001": 6, "\U0010ffff": 1, "": 0,
	} {
		got := t.Success(t.Enqueue("unicode", object{"text": text}))
		t.Equal("the result of unicode", got, object{"text": text, "length": length})
	}
}

func resultLarge(t *T) {
	const size = 250_000 // the limit of a string is 256 KiB
	t.Start()
	data, ok := field(t, t.Success(t.Enqueue("big", object{"bytes": size})), "data").(string)
	t.Check(ok && len(data) == size, "the result has %d bytes; it must have %d", len(data), size)
}

func resultMany(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=8")
	steps := make([]*scripted.Step, 200)
	for i := range steps {
		steps[i] = t.Enqueue("echo", object{"i": i})
	}
	began := t.Server.Now()
	for i, step := range steps {
		t.Equal("the context", field(t, t.Success(step), "context"), object{"i": i})
		checkOnce(t, step)
	}
	took := t.Server.Now() - began
	t.Check(took < t.Scaled(8*time.Second), "200 steps took %s", took)
}

func typed() []Case {
	return []Case{
		{"typed-input-is-decoded", reading, "A handler with a typed input receives its fields.", typedDecoded},
		{"typed-input-that-does-not-validate-is-permanent", reading, "A context that does not match the declared type is a permanent failure that names the field.", typedRefused},
	}
}

func typedDecoded(t *T) {
	t.Start()
	got := t.Success(t.Enqueue("typed", object{"amount": 1250, "currency": "EUR", "key_of_another_step": true}))
	t.Equal("the result of typed", got, object{"amount": 1250})
}

func typedRefused(t *T) {
	t.Start()
	t.PermanentFailure(t.Server.Enqueue(scripted.Step{Handler: "typed", MaxAttempts: 3, Context: object{"amount": "a lot", "currency": "EUR"}}), "amount")
	t.PermanentFailure(t.Server.Enqueue(scripted.Step{Handler: "typed", MaxAttempts: 3, Context: object{"amount": 1, "currency": []any{"EUR"}}}), "currency")
}

func compatibility() []Case {
	return []Case{
		{"unknown-keys-are-ignored", failing, "Unknown keys in responses are ignored: a newer server may send them.", unknownKeys},
		{"protocol-version-is-sent", registering, "A registration contains protocol, the highest version that the worker speaks.", protocolSent},
		{"protocol-missing-in-the-response-is-1", registering, "If the response to the registration lacks protocol, it is 1.", protocolMissing},
	}
}

func unknownKeys(t *T) {
	t.Server.ExtraKeys = true
	t.Start()
	t.Success(t.Server.Enqueue(scripted.Step{Handler: "result_of", Context: object{"of": "load"}, Results: map[string]any{"load": 1}}))
	step := t.Enqueue("sleep", object{"ms": t.Scaled(2 * lease).Milliseconds()})
	t.Success(step)
	checkOnce(t, step)
	t.Server.On(scripted.Report, 1, scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))
	t.Success(t.Enqueue("echo", nil))
}

func protocolSent(t *T) {
	t.Start()
	got := t.Server.Workers()[0].Protocol
	t.Check(got == scripted.Version, "the registration has protocol %d; it must be %d", got, scripted.Version)
}

func protocolMissing(t *T) {
	t.Server.On(scripted.Register, 1, scripted.Change(func(_ scripted.Request, answer map[string]any) { delete(answer, "protocol") }))
	t.Start()
	t.Success(t.Enqueue("echo", nil))
}
