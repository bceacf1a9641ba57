package cases

import (
	"cmp"
	"slices"
	"time"

	"tasker.example/tasker/sdk/conformance/scripted"
)

func claims() []Case {
	return []Case{
		{"claim-waits-for-work", claiming, "An idle worker waits in its claims instead of polling.", claimWaits},
		{"claim-answered-early-is-no-hot-loop", claiming, "If claims return no steps long before their wait_ms, the worker pauses and sends a heartbeat.", claimAnsweredEarly},
		{"claim-within-free-slots", claiming, "A worker claims only as many steps as it has free slots.", claimWithinSlots},
		{"claim-counts-unreported-outcomes", claiming, "An outcome without a response uses a slot of the worker.", claimCountsUnreported},
		{"claim-lost-response", claiming, "The steps of a lost response become claimable when their leases expire: the worker continues to claim.", claimLost(scripted.Lose)},
		{"claim-truncated-response", failing, "A truncated response is handled as 503: the worker continues to claim.", claimLost(scripted.Truncate)},
		{"claim-foreign-200-is-retried", failing, "A login page with status 200 is not the response to a claim.", claimFailing(scripted.Page(200))},
		{"claim-without-steps-key-is-retried", failing, "A JSON response without the key steps is not the response to a claim.", claimFailing(scripted.Body(200, `{"message": "welcome"}`))},
		{"claim-503-is-retried", failing, "After 503 the claim is sent again with increasing backoff.", claimFailing(scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))},
		{"claim-retry-after", failing, "After 503 or 429 the claim is sent again after Retry-After.", claimRetryAfter},
	}
}

func claimWaits(t *T) {
	t.Start()
	t.Await("a claim", func() bool { return len(t.Server.Requests(scripted.Claim)) > 0 })
	t.Observe(1500 * time.Millisecond)
	list := t.Server.Requests(scripted.Claim)
	t.Check(len(list) <= 8, "an idle worker sent %d claims in 1.5 seconds; it must wait in each claim", len(list))
	_, wait := list[0].Claims()
	t.Check(wait > 0, "the claim has no wait_ms")
	t.Success(t.Enqueue("echo", nil))
}

func claimAnsweredEarly(t *T) {
	// Longer than the case, so that the worker has another reason to send heartbeats.
	t.Server.Heartbeat, t.Server.Lease = t.Scaled(30*time.Second), t.Scaled(90*time.Second)
	empty := t.Server.On(scripted.Claim, scripted.Forever, scripted.Body(200, `{"steps": []}`))
	t.Start()
	t.Await("a heartbeat", func() bool { return len(t.Server.Requests(scripted.Beat)) > 0 })
	before := len(t.Server.Requests(scripted.Claim))
	t.Observe(time.Second)
	n := len(t.Server.Requests(scripted.Claim)) - before
	t.Check(n <= 25, "the worker sent %d claims in 1 second; it must pause if claims return early", n)
	empty()
	t.Success(t.Enqueue("echo", nil))
}

func claimWithinSlots(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=2")
	steps := make([]*scripted.Step, 6)
	for i := range steps {
		steps[i] = t.Enqueue("sleep", object{"ms": 150})
	}
	for _, step := range steps {
		t.Success(step)
	}
	type event struct {
		at     time.Duration
		change int
	}
	var events []event
	for _, step := range steps {
		events = append(events, event{step.Grants()[0].At, 1}, event{step.Accepted().At, -1})
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change)) })
	held := 0
	for _, e := range events {
		held += e.change
		t.Check(held <= 2, "the worker held %d steps at once; it has 2 slots", held)
	}
}

func claimCountsUnreported(t *T) {
	refusing := t.Server.On(scripted.Report, scripted.Forever, scripted.Refuse(503, "UNAVAILABLE", "the database does not answer"))
	t.Start("CONFORMANCE_CONCURRENCY=1")
	first := t.Enqueue("echo", nil)
	t.Await("a report", func() bool { return len(first.Reports()) > 0 })
	second := t.Enqueue("echo", nil)
	t.Observe(1200 * time.Millisecond)
	t.Check(len(second.Grants()) == 0, "the worker claimed a step while its only slot had an outcome without a response")
	refusing()
	t.Success(first)
	t.Success(second)
}

// claimLost checks that a step of a response that did not arrive is completed later.
func claimLost(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Claim, 1, act)
		step := t.Server.Enqueue(scripted.Step{Handler: "echo", MaxAttempts: 2})
		t.Start()
		t.Success(step)
		t.Equal("the number of expired leases", step.Expired(), 1)
	}
}

func claimFailing(act scripted.Action) func(t *T) {
	return func(t *T) {
		t.Server.On(scripted.Claim, 3, act)
		step := t.Enqueue("echo", nil)
		t.Start()
		t.Success(step)
		checkPauses(t, scripted.Claim, 3)
	}
}

func claimRetryAfter(t *T) {
	t.Server.On(scripted.Claim, 1, scripted.RetryAfter(429, 1))
	step := t.Enqueue("echo", nil)
	t.Start()
	t.Success(step)
	checkRetryAfter(t, t.Server.Requests(scripted.Claim))
}

func leases() []Case {
	return []Case{
		{"lease-is-extended", leasing, "Heartbeats extend the lease of a step that takes longer than one lease.", leaseIsExtended("sleep")},
		{"lease-is-extended-while-a-handler-blocks", leasing, "Heartbeats continue while a handler blocks its thread.", leaseIsExtended("block")},
		{"lease-survives-two-lost-heartbeats", leasing, "Two consecutive heartbeats can get lost without losing the lease.", leaseSurvives},
		{"lease-token-is-returned-unchanged", leasing, "lease_token is opaque and is returned unchanged, whatever its form and length.", leaseTokenUnchanged},
		{"lease-is-measured-by-the-local-clock", leasing, "A lease is measured from the time of the request: the clock of the server may differ.", leaseLocalClock(-time.Hour)},
		{"lease-of-a-server-ahead-ends-in-time", leasing, "A lease ends although lease_expires_at is in the far future by the clock of the worker.", leaseServerAhead},
		{"lease-lost-stops-the-handler", leasing, "The work of a lease in lost is stopped, and its slot is free again.", leaseLost},
		{"lease-ends-without-heartbeats", leasing, "A heartbeat without a response has extended nothing: at the end of the lease the work is stopped.", leaseWithoutHeartbeats},
		{"lease-in-neither-list-is-sent-again", leasing, "A lease in neither list is sent again and its work continues.", leaseInNeitherList},
		{"lease-starts-when-the-claim-was-sent", leasing, "If a claim waited long for work, the worker sends a heartbeat immediately.", leaseFromClaim},
		{"deadline-ends-the-handler", leasing, "deadline is the end of the step: the handler is stopped, although heartbeats extend the lease.", deadlineEnds},
		{"step-received-again-stops-the-older-attempt", leasing, "If a step is received again, the older lease is lost and the older attempt is stopped.", stepReceivedAgain},
		{"step-received-late-is-ignored", leasing, "Of two assignments of one step, the one with the later lease_expires_at is valid, even if the other response arrives later.", stepReceivedLate},
	}
}

func leaseIsExtended(handler string) func(t *T) {
	return func(t *T) {
		t.Start()
		step := t.Enqueue(handler, object{"ms": t.Scaled(5 * lease / 2).Milliseconds()})
		t.Success(step)
		t.Equal("the number of expired leases", step.Expired(), 0)
		checkOnce(t, step)
	}
}

// checkOnce fails the case unless the step was completed by its first attempt.
func checkOnce(t *T, step *scripted.Step) {
	t.Equal("the number of attempts", len(step.Grants()), 1)
	t.Equal("the number of accepted results", step.Completed(), 1)
}

func leaseSurvives(t *T) {
	t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(2 * lease).Milliseconds()})
	t.Server.When(func(q scripted.Request) bool { return q.Route == scripted.Beat && q.Names(step) }, 2, scripted.Reset)
	t.Success(step)
	checkOnce(t, step)
}

func leaseTokenUnchanged(t *T) {
	t.Start()
	step := t.Server.Enqueue(scripted.Step{
		Handler: "sleep", Context: object{"ms": t.Scaled(2 * heartbeat).Milliseconds()},
		Token: `+/=_-.~ "\<>&` + "é€😀" + "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
	})
	t.Success(step)
	token := step.Grants()[0].Token
	for _, q := range t.Server.Requests(scripted.Beat) {
		for _, l := range q.Leases() {
			t.Equal("lease_token in a heartbeat", l.LeaseToken, token)
		}
	}
	checkOnce(t, step)
}

func leaseLocalClock(ahead time.Duration) func(t *T) {
	return func(t *T) {
		t.Server.ClockAhead = ahead
		t.Start()
		step := t.Enqueue("sleep", object{"ms": t.Scaled(3 * lease / 2).Milliseconds()})
		t.Success(step)
		checkOnce(t, step)
	}
}

func leaseServerAhead(t *T) {
	t.Server.ClockAhead = time.Hour
	leaseWithoutHeartbeats(t)
}

func leaseLost(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=1")
	step := t.Enqueue("sleep", object{"ms": 30000})
	t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
	step.Revoke(false)
	t.Success(t.Enqueue("echo", nil))
	t.Observe(heartbeat)
	t.Check(len(step.Reports()) == 0, "the worker reported an outcome of the lost lease; the work was stopped, so there is none")
}

func leaseWithoutHeartbeats(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=1")
	step := t.Enqueue("sleep", object{"ms": 30000})
	t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
	t.Server.On(scripted.Beat, scripted.Forever, scripted.Reset)
	t.Await("the end of the lease", func() bool { return step.Expired() > 0 })
	t.Success(t.Enqueue("echo", nil))
	t.Check(len(step.Reports()) == 0, "the worker reported an outcome of the lost lease")
}

func leaseInNeitherList(t *T) {
	t.Start()
	step := t.Enqueue("sleep", object{"ms": t.Scaled(2 * lease).Milliseconds()})
	omit := scripted.Change(func(_ scripted.Request, answer map[string]any) { answer["extended"] = []any{} })
	t.Server.When(func(q scripted.Request) bool { return q.Route == scripted.Beat && q.Names(step) }, 1, omit)
	t.Success(step)
	checkOnce(t, step)
}

func leaseFromClaim(t *T) {
	t.Server.Heartbeat, t.Server.Lease = t.Scaled(3*time.Second), t.Scaled(9*time.Second)
	t.Start()
	t.Await("a claim", func() bool { return len(t.Server.Requests(scripted.Claim)) > 0 })
	t.Observe(1800 * time.Millisecond)
	step := t.Enqueue("sleep", object{"ms": 30000})
	t.AwaitWithin(600*time.Millisecond, "a heartbeat with the step, whose claim waited 1.8 seconds", func() bool {
		return slices.ContainsFunc(t.Server.Requests(scripted.Beat), func(q scripted.Request) bool { return q.Names(step) })
	})
}

func deadlineEnds(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=1")
	step := t.Server.Enqueue(scripted.Step{Handler: "sleep", Context: object{"ms": 30000}, Timeout: t.Scaled(600 * time.Millisecond)})
	t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
	t.Success(t.Enqueue("echo", nil))
	for _, o := range step.Reports() {
		t.Check(!o.Success, "the step succeeded after its deadline")
	}
}

func stepReceivedAgain(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=2")
	step := t.Server.Enqueue(scripted.Step{Handler: "sleep", Context: object{"ms": 700}, MaxAttempts: 3})
	t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
	t.Observe(100 * time.Millisecond)
	step.Revoke(true)
	t.Success(step)
	t.Observe(heartbeat)
	grants := step.Grants()
	t.Equal("the number of assignments", len(grants), 2)
	for _, o := range step.Reports() {
		t.Check(o.LeaseToken == grants[1].Token, "the worker reported an outcome of the older attempt; it must stop it when it receives the step again")
	}
}

func stepReceivedLate(t *T) {
	t.Start("CONFORMANCE_CONCURRENCY=2")
	step := t.Enqueue("sleep", object{"ms": 900})
	held := func(q scripted.Request) bool { return q.Route == scripted.Claim && len(step.Grants()) > 0 }
	t.Server.When(held, 1, scripted.InsteadOf(func(scripted.Request) any {
		older := step.Assignment()
		older["lease_token"], older["attempt"] = "older", 0
		older["lease_expires_at"] = "2020-01-01T00:00:00.000000Z"
		return object{"steps": []any{older}}
	}))
	t.Success(step)
	checkOnce(t, step)
	for _, o := range step.Reports() {
		t.Check(o.LeaseToken != "older", "the worker reported an outcome of the older assignment")
	}
}
