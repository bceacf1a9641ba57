package cases

import (
	"slices"
	"time"

	"tasker.example/tasker/sdk/conformance/scripted"
)

func outages() []Case {
	return []Case{
		{"outage-503-is-no-hot-loop", failing, "Against a server that answers 503 to everything, the worker backs off.", outageAnswered(scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))},
		{"outage-500-is-no-hot-loop", failing, "Against a server that answers INTERNAL to everything, the worker backs off.", outageAnswered(scripted.Refuse(500, "INTERNAL", "internal error"))},
		{"outage-404-is-no-hot-loop", failing, "Against a proxy that answers 404 to everything, the worker backs off.", outageAnswered(scripted.Page(404))},
		{"outage-200-is-no-hot-loop", failing, "Against a proxy that answers 200 to everything, the worker backs off.", outageAnswered(scripted.Page(200))},
		{"outage-forgotten-is-no-hot-loop", failing, "Against a server that forgets the worker again and again, the worker backs off.", outageForgotten},
		{"outage-refused-is-no-hot-loop", failing, "While connections are refused, the worker backs off, and it continues afterwards.", outageRefused},
		{"outage-keeps-a-finished-outcome", reporting, "An outcome that finished during an outage is reported after it.", outageKeepsOutcome},
	}
}

// maxOutage limits the requests of an idle worker in an outage of 2.5 seconds: heartbeats and
// claims, each with a backoff that increases.
const maxOutage = 40

func outageAnswered(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Start()
		t.Success(t.Enqueue("echo", nil))
		t.Observe(2 * heartbeat)
		over := t.Server.When(func(scripted.Request) bool { return true }, scripted.Forever, act)
		t.Enqueue("echo", nil) // ends the claim that waits
		t.Observe(100 * time.Millisecond)
		before := len(t.Server.Requests())
		t.Observe(2500 * time.Millisecond)
		n := len(t.Server.Requests()) - before
		t.Check(n <= maxOutage, "the worker sent %d requests in 2.5 seconds to a server that fails; at most %d are allowed", n, maxOutage)
		t.Check(n >= 2, "the worker sent %d requests in 2.5 seconds; it must keep trying", n)
		over()
		t.Success(t.Enqueue("echo", nil))
	}
}

func outageForgotten(t *T) {
	forgotten := func(x *scripted.Exchange) {
		scripted.Refuse(404, "NOT_FOUND", "worker "+x.Worker+" is not registered: register again")(x)
	}
	over := t.Server.When(func(q scripted.Request) bool { return q.Worker != "" }, scripted.Forever, forgotten)
	t.Start()
	t.Observe(2500 * time.Millisecond)
	n := len(t.Server.Requests())
	t.Check(n <= 2*maxOutage, "the worker sent %d requests in 2.5 seconds; at most %d are allowed", n, 2*maxOutage)
	over()
	t.Success(t.Enqueue("echo", nil))
}

func outageRefused(t *T) {
	t.Start()
	t.Success(t.Enqueue("echo", nil))
	t.Server.SetDown(true)
	t.Observe(2500 * time.Millisecond)
	n := t.Server.Refused()
	t.Check(n <= maxOutage, "the worker connected %d times in 2.5 seconds to a server that refuses; at most %d are allowed", n, maxOutage)
	t.Check(n >= 2, "the worker connected %d times in 2.5 seconds; it must keep trying", n)
	t.Server.SetDown(false)
	t.Success(t.Enqueue("echo", nil))
}

func outageKeepsOutcome(t *T) {
	t.Server.Lease = t.Scaled(4 * time.Second)
	t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(time.Second).Milliseconds()})
	t.Await("a heartbeat for the step: the worker has it", func() bool {
		return slices.ContainsFunc(t.Server.Requests(scripted.Beat), func(q scripted.Request) bool { return q.Names(step) })
	})
	t.Server.SetDown(true)
	t.Observe(1500 * time.Millisecond)
	t.Server.SetDown(false)
	t.Success(step)
	checkOnce(t, step)
}
