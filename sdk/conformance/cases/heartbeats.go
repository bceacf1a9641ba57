package cases

import (
	"slices"
	"syscall"
	"time"

	"tasker.example/tasker/sdk/conformance/scripted"
)

func heartbeats() []Case {
	return []Case{
		{"heartbeat-keeps-its-interval", beating, "A worker with leases sends a heartbeat every heartbeat_interval_ms, and not much more often.", heartbeatInterval},
		{"heartbeat-lists-each-lease-once", beating, "A heartbeat lists all leases of the worker, each once.", heartbeatListsAll},
		{"heartbeat-is-not-behind-a-report", beating, "Heartbeats are not queued behind reports.", heartbeatNotBehindReport},
		{"heartbeat-that-hangs-is-repeated", beating, "A heartbeat has a time limit of one interval, and is sent again after it.", heartbeatHangs},
		{"heartbeat-when-idle", beating, "An idle worker sends normal heartbeats if claim_is_heartbeat is missing.", heartbeatIdle},
		{"heartbeat-while-claims-count", beating, "If claims count as heartbeats, the worker is never silent for longer than an interval, and sends a heartbeat every third interval.", heartbeatClaimsCount},
		{"heartbeat-that-drains", draining, "If a heartbeat returns drain, the worker finishes its steps and leaves.", heartbeatDrains},
	}
}

// held returns the heartbeats with the step.
func heartbeatsWith(t *T, step *scripted.Step) []scripted.Request {
	return slices.DeleteFunc(t.Server.Requests(scripted.Beat), func(q scripted.Request) bool { return !q.Names(step) })
}

func heartbeatInterval(t *T) {
	t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(6 * heartbeat).Milliseconds()})
	t.Success(step)
	n := len(heartbeatsWith(t, step))
	t.Check(n >= 4, "the worker sent %d heartbeats in 6 intervals", n)
	t.Check(n <= 14, "the worker sent %d heartbeats in 6 intervals; that is too often", n)
}

func heartbeatListsAll(t *T) {
	t.Start()
	var steps []*scripted.Step
	for range 3 {
		steps = append(steps, t.Enqueue("sleep", object{"ms": t.Scaled(3 * heartbeat).Milliseconds()}))
	}
	for _, step := range steps {
		t.Success(step)
	}
	whole := false
	for _, q := range t.Server.Requests(scripted.Beat) {
		seen := map[string]bool{}
		for _, l := range q.Leases() {
			t.Check(!seen[l.StepUUID], "a heartbeat lists the step %s twice", l.StepUUID)
			seen[l.StepUUID] = true
		}
		whole = whole || len(seen) == 3
	}
	t.Check(whole, "no heartbeat lists the 3 leases of the worker together")
}

func heartbeatNotBehindReport(t *T) {
	t.Server.On(scripted.Report, 1, scripted.Slow(t.Scaled(2*lease)))
	t.Start()
	long := t.Enqueue("sleep", object{"ms": t.Scaled(5 * lease / 2).Milliseconds()})
	t.Success(t.Enqueue("echo", nil))
	t.Success(long)
	checkOnce(t, long)
}

func heartbeatHangs(t *T) {
	// Longer than usual: a worker may have a lower bound for the time limit.
	t.Server.Heartbeat, t.Server.Lease = t.Scaled(2*time.Second), t.Scaled(7*time.Second)
	t.Start()
	step := t.Enqueue("sleep", object{"ms": 30000})
	held := func(q scripted.Request) bool { return q.Route == scripted.Beat && q.Names(step) }
	t.Server.When(held, 1, scripted.Hang)
	t.Await("a heartbeat", func() bool { return len(heartbeatsWith(t, step)) > 0 })
	t.AwaitWithin(3*time.Second, "the next heartbeat, while the last one has no response (the interval is 2 seconds)", func() bool {
		return len(heartbeatsWith(t, step)) > 1
	})
}

func heartbeatIdle(t *T) {
	t.Start()
	t.Observe(5 * heartbeat)
	n := len(t.Server.Requests(scripted.Beat))
	t.Check(n >= 3, "an idle worker sent %d heartbeats in 5 intervals", n)
	t.Check(n <= 10, "an idle worker sent %d heartbeats in 5 intervals; that is too often", n)
}

func heartbeatClaimsCount(t *T) {
	t.Server.ClaimIsHeartbeat = true
	t.Start()
	t.Observe(7 * heartbeat)
	t.Check(len(t.Server.Requests(scripted.Beat)) > 0, "the worker sent no heartbeat in 7 intervals; it must send one every third interval")
	last := time.Duration(0)
	for i, q := range t.Server.Requests(scripted.Beat, scripted.Claim) {
		silent := q.At - last
		t.Check(i == 0 || silent <= t.Scaled(5*heartbeat/2), "the worker was silent for %s; the interval is %s", silent, t.Server.Heartbeat)
		last = q.At
	}
}

func heartbeatDrains(t *T) {
	p := t.Start()
	step := t.Enqueue("sleep", object{"ms": 900})
	t.AwaitRun(step)
	t.Server.DrainAll()
	code := t.AwaitExit(p, t.options.Patience, "a heartbeat that returned drain")
	t.Equal("the status of the program", code, 0)
	t.Success(step)
	checkLeft(t)
}

// checkLeft fails the case unless the worker ended its registration.
func checkLeft(t *T) {
	t.Check(len(t.Server.Requests(scripted.Leave)) > 0, "the worker did not end its registration with DELETE")
}

func drains() []Case {
	return []Case{
		{"drain-on-sigterm", draining, "After SIGTERM the worker announces the drain, finishes its steps, reports them, ends its registration and exits with 0.", drainOn(syscall.SIGTERM)},
		{"drain-on-sigint", draining, "SIGINT drains like SIGTERM.", drainOn(syscall.SIGINT)},
		{"drain-claims-nothing", draining, "A draining worker claims no more steps.", drainClaimsNothing},
		{"drain-releases-unfinished-steps", draining, "A draining worker releases the steps that it cannot finish in time; it does not report them as failed.", drainReleases},
		{"drain-keeps-heartbeats", draining, "Heartbeats continue while a draining worker finishes its steps.", drainKeepsHeartbeats},
		{"drain-repeats-reports", draining, "A draining worker repeats a report without a response before it leaves.", drainRepeatsReports},
		{"drain-does-not-wait-for-the-announcement", draining, "The worker does not wait for the response to /drain.", drainAnnouncementHangs},
		{"drain-without-a-server-ends", draining, "A worker can exit although the server is unreachable.", drainWithoutServer},
		{"drain-keeps-steps-of-a-late-response", draining, "Steps of a claim that was pending when the drain began are finished or released.", drainLateResponse},
	}
}

func drainOn(signal syscall.Signal) func(t *T) {
	return func(t *T) {
		p := t.Start()
		step := t.Enqueue("sleep", object{"ms": 900})
		t.AwaitRun(step)
		p.Signal(signal)
		code := t.AwaitExit(p, t.options.Patience, signal.String())
		t.Equal("the status of the program", code, 0)
		t.Success(step)
		t.Equal("the number of releases", step.Released(), 0)
		t.Check(len(t.Server.Requests(scripted.Drain)) > 0, "the worker did not announce its drain")
		checkLeft(t)
	}
}

func drainClaimsNothing(t *T) {
	p := t.Start("CONFORMANCE_CONCURRENCY=2")
	step := t.Enqueue("sleep", object{"ms": 900})
	t.AwaitRun(step)
	p.Signal(syscall.SIGTERM)
	t.Await("the announcement of the drain", func() bool { return len(t.Server.Requests(scripted.Drain)) > 0 })
	t.Observe(100 * time.Millisecond)
	before := len(t.Server.Requests(scripted.Claim))
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
	n := len(t.Server.Requests(scripted.Claim)) - before
	t.Check(n == 0, "the worker sent %d claims after its drain began", n)
	for _, q := range t.Server.Requests(scripted.Report) {
		if limit, _ := q.Claims(); limit > 0 && len(q.Results()) > 0 && q.Names(step) {
			t.Fatalf("the report of a draining worker claims %d steps", limit)
		}
	}
}

func drainReleases(t *T) {
	p := t.Start("CONFORMANCE_DRAIN_MS=300")
	step := t.Server.Enqueue(scripted.Step{Handler: "sleep", Context: object{"ms": 30000}, MaxAttempts: 2})
	t.AwaitRun(step)
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
	t.Equal("the number of releases", step.Released(), 1)
	t.Equal("the number of reports of the released step", len(step.Reports()), 0)
	checkLeft(t)
}

func drainKeepsHeartbeats(t *T) {
	p := t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(2 * lease).Milliseconds()})
	t.AwaitRun(step)
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
	t.Success(step)
	checkOnce(t, step)
}

func drainRepeatsReports(t *T) {
	p := t.Start()
	step := t.Enqueue("sleep", object{"ms": 700})
	t.AwaitRun(step)
	t.Server.On(scripted.Report, 2, scripted.Reset)
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
	t.Success(step)
}

func drainAnnouncementHangs(t *T) {
	p := t.Start()
	t.Success(t.Enqueue("echo", nil))
	t.Server.On(scripted.Drain, scripted.Forever, scripted.Hang)
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, 5*time.Second, "SIGTERM"), 0)
}

func drainWithoutServer(t *T) {
	p := t.Start()
	t.Success(t.Enqueue("echo", nil))
	t.Server.SetDown(true)
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
}

func drainLateResponse(t *T) {
	t.Server.On(scripted.Claim, 1, func(x *scripted.Exchange) { scripted.Slow(t.Scaled(150 * time.Millisecond))(x) })
	p := t.Start()
	t.Await("a claim", func() bool { return len(t.Server.Requests(scripted.Claim)) > 0 })
	step := t.Server.Enqueue(scripted.Step{Handler: "echo", MaxAttempts: 2})
	t.Await("the assignment of the step", func() bool { return len(step.Grants()) > 0 })
	p.Signal(syscall.SIGTERM)
	t.Equal("the status of the program", t.AwaitExit(p, t.options.Patience, "SIGTERM"), 0)
	t.Check(step.Completed() == 1 || step.Released() == 1,
		"the worker neither completed nor released the step of the claim that was pending when the drain began")
}
