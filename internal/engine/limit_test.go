package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
)

var byTest = engine.LimitChange{Actor: "ann", Reason: "a test"}

func handlerLimit() tasker.LimitRef {
	return tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: enginetest.Namespace, Name: "run"}
}

func (h *harness) limit(ref tasker.LimitRef, most int) {
	h.Helper()
	h.Must(errOf(h.Engine.SetLimit(h.Context(), ref, tasker.LimitValue{MaxInProgress: most}, byTest)))
}

// inProgress and parked count steps.
func (h *harness) inProgress() int {
	return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'in_progress'`)
}

func (h *harness) parked() int {
	return h.Count(`SELECT count(*) FROM tasker.held_steps WHERE limit_key_id IS NOT NULL`)
}

func withLimits(limits ...tasker.LimitTemplate) tasker.Template {
	return tasker.Template{
		Namespace: enginetest.Namespace, Name: "limited", Version: "1.0.0", Limits: limits,
		Steps: []tasker.StepTemplate{enginetest.Step("one"), enginetest.Step("two", "one")},
	}
}

func TestTemplateLimitHoldsPerKey(t *testing.T) {
	h := newHarness(t)
	h.Register(withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1}))
	task := map[tasker.ID]string{}
	for i, customer := range []string{`"ann"`, `"ann"`, `"ann"`, `7`, `7`, `"bob"`} {
		id := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(`{"customer": ` + customer + `}`), Priority: i % 3})
		task[id] = fmt.Sprint(customer, i)
	}
	var order []string
	for round := range 12 {
		list := h.Claim()
		seen := map[string]bool{}
		for _, a := range list {
			var c struct{ Customer json.RawMessage }
			h.Must(json.Unmarshal(a.Context, &c))
			require(t, !seen[string(c.Customer)], "round %d: two of %s", round, c.Customer)
			seen[string(c.Customer)] = true
			order = append(order, task[a.TaskUUID]+a.Name)
		}
		require(t, round != 0 || len(list) == 3,
			"the first claim handed out %d, want one of each customer", len(list))
		h.Succeed(list...)
	}
	check(t, len(order) == 12, "handed out %v", order)
	check(t, order[0] == `"ann"2one` || order[1] == `"ann"2one` || order[2] == `"ann"2one`,
		"the most urgent task of ann was not among the first: %v", order)
	l, err := h.Engine.Limit(h.Context(), tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: enginetest.Namespace, Name: "customer"})
	h.Must(err)
	check(t, l.InProgress == 0 && l.Waiting == 0 && len(l.Keys) == 3 && l.ByTemplate, "the limit at the end: %+v", l)
}

func TestFreeSlotIsFoundAmongManyFullKeys(t *testing.T) {
	h := newHarness(t)
	single := withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1})
	single.Steps = single.Steps[:1]
	h.Register(single)
	const keys = 250 // more than one claim looks at
	var tasks []tasker.NewTask
	for i := range 2 * keys {
		tasks = append(tasks, tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(fmt.Sprintf(`{"customer": "c%03d"}`, i%keys))})
	}
	h.Must(errOf(h.Engine.CreateTasks(h.Context(), tasks)))
	held := map[string]tasker.Assignment{}
	hold := func(list []tasker.Assignment) string {
		t.Helper()
		for _, a := range list {
			var c struct{ Customer string }
			h.Must(json.Unmarshal(a.Context, &c))
			if _, twice := held[c.Customer]; twice {
				t.Fatalf("two of %s", c.Customer)
			}
			held[c.Customer] = a
			if len(list) == 1 {
				return c.Customer
			}
		}
		return fmt.Sprint(len(list), " steps")
	}
	for list := h.Claim(); len(list) > 0; list = h.Claim() {
		hold(list)
	}
	if n := h.parked(); len(held) != keys || n != keys {
		t.Fatalf("%d keys have a step in progress, and %d steps are put aside", len(held), n)
	}
	for reported, cancelled := range map[string]string{"c249": "c248", "c125": "c100", "c000": "c001"} {
		receipt, err := h.Engine.Report(h.Context(), h.Worker, []tasker.Outcome{success(held[reported], `1`)}, 1)
		h.Must(err)
		delete(held, reported)
		if len(receipt.Next) == 0 { // it was long ago that the worker met limits
			receipt.Next = h.Claim()
		}
		if got := hold(receipt.Next); got != reported {
			t.Fatalf("the report of %s was given %s", reported, got)
		}
		h.Cancel(held[cancelled].TaskUUID)
		delete(held, cancelled)
		next := h.Claim()
		if len(next) == 0 {
			next = h.Claim() // goes on where the one before ended
		}
		if got := hold(next); got != cancelled {
			t.Fatalf("two claims were given %s when %s had a place", got, cancelled)
		}
	}
}

func TestNewTemplateLimitHoldsFromTheNextClaim(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*harness, tasker.Assignment) []tasker.Assignment{
		"claim": func(h *harness, _ tasker.Assignment) []tasker.Assignment { return h.Claim() },
		"report": func(h *harness, a tasker.Assignment) []tasker.Assignment {
			receipt, err := h.Engine.Report(h.Context(), h.Worker, []tasker.Outcome{success(a, `1`)}, 100)
			h.Must(err)
			return receipt.Next
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			single := withLimits()
			single.Steps = single.Steps[:1]
			register := func(version string, limits ...tasker.LimitTemplate) {
				single.Version, single.Limits = version, limits
				_, _, err := h.Engine.RegisterTemplate(h.Context(), single, "")
				h.Must(err)
			}
			create := func(customer string, times int) {
				for range times {
					h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(`{"customer": "` + customer + `"}`)})
				}
			}
			register("1.0.0")
			h.limit(handlerLimit(), 50)
			create("ann", 3)
			var first []tasker.Assignment
			for range 3 {
				list := h.ClaimAs(h.Worker, 1)
				first = append(first, list...)
			}
			register("1.1.0", tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1})
			create("ann", 3)
			if list := next(h, first[0]); len(list) != 1 {
				t.Errorf("%d steps of a customer begin at once, want 1", len(list))
			}
			register("1.2.0", tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 2, Weights: map[string]int{"one": 2}})
			create("bob", 2)
			if list := next(h, first[1]); len(list) != 2 {
				t.Errorf("%d steps begin, want one more of the first customer and one that takes both places of the second", len(list))
			}
		})
	}
}

func TestStepTakesAsManySlotsAsItsWeight(t *testing.T) {
	h := newHarness(t)
	t1 := withLimits(tasker.LimitTemplate{Name: "gpu", MaxInProgress: 4, Weights: map[string]int{"one": 3}})
	t1.Steps = []tasker.StepTemplate{enginetest.Step("one")}
	h.Register(t1)
	light := withLimits(tasker.LimitTemplate{Name: "gpu", MaxInProgress: 4})
	light.Name, light.Steps = "light", []tasker.StepTemplate{enginetest.Step("small")}
	h.Register(light)
	create := func(name string, priority int) {
		h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: name, Priority: priority})
	}
	ref := tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: enginetest.Namespace, Name: "gpu"}
	next := func(want ...string) []tasker.Assignment {
		t.Helper()
		list := h.Claim()
		var got []string
		for _, a := range list {
			got = append(got, a.Name)
		}
		slices.Sort(got)
		require(t, slices.Equal(got, want), "handed out %v, want %v", got, want)
		return list
	}
	create("light", 2)
	create("light", 2)
	create("limited", 1)
	create("light", 0)
	small := next("small", "small")
	h.Accepted(success(small[0], `1`))
	heavy := next("one")
	l, err := h.Engine.Limit(h.Context(), ref)
	h.Must(err)
	check(t, l.InProgress == 4 && len(l.Keys) == 1 && len(l.Keys[0].Holders) == 2 && l.Keys[0].Holders[1].Weight == 3,
		"four places are taken, three by one step: %+v", l)
	next()
	h.Accepted(success(small[1], `1`))
	last := next("small")
	create("limited", 2)
	h.Accepted(success(last[0], `1`))
	create("light", 1)
	next() // one place is free: the step that is more urgent waits for three
	h.Accepted(success(heavy[0], `1`))
	both := next("one", "small")
	h.limit(ref, 2)
	create("limited", 9)
	next()
	h.Succeed(both...)
	next("one") // takes both places
	if l, err = h.Engine.Limit(h.Context(), ref); err != nil || l.InProgress != 2 {
		t.Errorf("%d of 2 places are taken: %v", l.InProgress, err)
	}
}

func TestLimitsPerNamespaceAreBounded(t *testing.T) {
	h := newHarness(t)
	h.Exec(`INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by)
		SELECT 'handler', $1, 'h' || n, 1, false, 'ann' FROM generate_series(1, $2) n`, enginetest.Namespace, tasker.MaxLimits)
	_, err := h.Engine.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{MaxInProgress: 1}, byTest)
	h.WantCode(err, tasker.Conflict, "1000 limits")
	other := handlerLimit()
	other.Name = "h1"
	h.Must(errOf(h.Engine.SetLimit(h.Context(), other, tasker.LimitValue{MaxInProgress: 2}, byTest)))
}

func TestTaskWithoutItsLimitKeyIsRejected(t *testing.T) {
	h := newHarness(t)
	h.Register(withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1}))
	for doc, words := range map[string]string{
		`{}`: "missing key", `{"customer": null}`: "must be a string", `{"customer": [1]}`: "must not be a list", `{"customer": "` + fmt.Sprintf("%0300d", 1) + `"}`: "256",
	} {
		_, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(doc)}})
		h.WantCode(err, tasker.Invalid, "limits.customer.key", words)
	}
}

func TestParkedStepsReturnWhenTheirLimitIsDeleted(t *testing.T) {
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	for range 3 {
		h.Create("single")
	}
	first := h.Claim()
	if len(first) != 1 || h.parked() != 2 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.parked())
	}
	h.Tick()
	equal(t, "parked steps while no slot is free", h.parked(), 2)
	h.Accepted(success(first[0], `1`))
	h.Tick()
	equal(t, "parked steps while a worker is live", h.parked(), 2)
	h.Must(h.Engine.LeaveWorker(h.Context(), h.Worker))
	h.Tick()
	equal(t, "parked steps while no worker is live", h.parked(), 1)
	h.Worker = h.RegisterWorker("run")
	h.Must(h.Engine.DeleteLimit(h.Context(), handlerLimit(), byTest))
	h.WantCount(0, `SELECT count(*) FROM tasker.limit_slots`)
	if b, err := h.DB.UnparkLimited(h.Context(), 1, 0); err != nil || !b.More {
		t.Errorf("a look for one step of a limit that is gone does not say that there may be more: %+v, %v", b, err)
	}
	h.Tick()
	check(t, h.parked() == 0 && len(h.Claim()) == 2, "the limit is gone, and keeps steps from workers")
}

func TestParkedStepThatFailsToReturnBlocksNoOther(t *testing.T) {
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	var tasks []tasker.ID
	for range 4 {
		tasks = append(tasks, h.Create("single"))
	}
	if h.Claim(); h.parked() != 3 {
		t.Fatalf("%d steps are put aside", h.parked())
	}
	h.poison("UPDATE ON tasker.workflow_steps", fmt.Sprintf("NEW.task_uuid = '%s'", tasks[1]))
	h.Must(h.Engine.DeleteLimit(h.Context(), handlerLimit(), byTest))
	_, err := h.Engine.Tick(h.Context())
	if err == nil || !strings.Contains(err.Error(), "of task "+tasks[1].String()) || h.parked() != 1 {
		t.Errorf("%d steps are left aside, want the broken one: %v", h.parked(), err)
	}
}

func TestParkedStepThatNoWorkerTakesExpires(t *testing.T) {
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	h.Create("single")
	h.Create("single")
	first := h.Claim()
	if len(first) != 1 || h.parked() != 1 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.parked())
	}
	old := `UPDATE tasker.held_steps SET held_at = held_at - interval '10 years'`
	h.Exec(old)
	h.Tick()
	equal(t, "parked steps while no slot is free", h.parked(), 1)
	h.Accepted(success(first[0], `1`))
	h.Exec(`UPDATE tasker.held_steps SET held_at = clock_timestamp()`)
	h.Tick()
	equal(t, "parked steps while a worker is live", h.parked(), 1)
	h.Exec(old)
	h.Tick()
	require(t, h.parked() == 0, "a step that nobody has taken for longer than it may wait is still put aside")
	fixture.QueueTTLsExpired(h, h.Admin())
	h.Must(errOf(h.Engine.ExpireSteps(h.Context())))
	h.WantCount(1, `SELECT count(*) FROM tasker.tasks_dlq`)
}

func TestUnservedQueueIsFoundBehindAServedOne(t *testing.T) {
	h := newHarness(t)
	served, unserved := enginetest.Step("one"), enginetest.Step("one")
	unserved.Handler.Callable = "unserved"
	h.Template("single", served)
	h.Template("lonely", unserved)
	h.limit(tasker.LimitRef{Namespace: enginetest.Namespace, Kind: tasker.NamespaceLimit}, 1)
	h.Create("single")
	first := h.Claim()
	h.Create("single")
	h.Create("lonely")
	fixture.QueueTTLsExpired(h, h.Admin())
	_, err := h.Engine.ExpireSteps(h.Context()) // puts both aside
	h.Must(err)
	if len(first) != 1 || h.parked() != 2 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.parked())
	}
	h.Accepted(success(first[0], `1`))
	h.Tick()
	if n := h.Count(`SELECT count(*) FROM tasker.ready_steps WHERE handler = 'unserved'`); n != 1 || h.parked() != 1 {
		t.Errorf("%d steps of the queue without a worker are back, %d are put aside; want one of each", n, h.parked())
	}
}

// Claims lock in the same order: otherwise both would wait for each other.
func TestCancelLocksTheParkedRowFirst(t *testing.T) {
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	h.Create("single")
	h.Create("single")
	h.Claim()
	if h.parked() != 1 {
		t.Fatalf("put aside %d, want 1", h.parked())
	}
	claim, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = claim.Rollback(context.WithoutCancel(t.Context())) }()
	var ref tasker.StepRef
	h.Must(claim.QueryRow(t.Context(), `SELECT task_uuid, step_uuid FROM tasker.held_steps FOR NO KEY UPDATE`).Scan(&ref.TaskUUID, &ref.StepUUID))
	cancelled := make(chan error, 1)
	go func() { cancelled <- h.Engine.CancelTask(t.Context(), ref.TaskUUID, "kim", "off") }()
	h.Eventually("whoever cancels waits", func() bool {
		return h.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	_, err = claim.Exec(t.Context(), `SELECT FROM tasker.workflow_steps WHERE task_uuid = $1 AND step_uuid = $2 FOR NO KEY UPDATE NOWAIT`, ref.TaskUUID, ref.StepUUID)
	if err != nil {
		t.Errorf("a claim that has the row of what was put aside does not get its step: %v", err)
	}
	h.Must(claim.Rollback(t.Context()))
	h.Must(<-cancelled)
	h.WantState(ref.TaskUUID, tasker.TaskCancelled)
}

func TestStepDoesNotExpireWhileItsLimitIsFull(t *testing.T) {
	h := newSingle(t)
	h.Create("single")
	h.Create("single")
	h.limit(handlerLimit(), 1)
	list := h.ClaimAs(h.Worker, 1)
	if len(list) != 1 || h.parked() != 0 {
		t.Fatalf("handed out %d, put aside %d; want one, and the other in the queue", len(list), h.parked())
	}
	fixture.QueueTTLsExpired(h, h.Admin())
	h.Must(errOf(h.Engine.ExpireSteps(h.Context())))
	equal(t, "parked steps after their queue timeout", h.parked(), 1)
	h.Accepted(success(list[0], `1`))
	equal(t, "claimed parked steps", len(h.Claim()), 1)
}

func TestRateLimitsStarts(t *testing.T) {
	h := newSingle(t)
	h.Must(errOf(h.Engine.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{PerSecond: 0.01, Burst: 3}, byTest)))
	for range 10 {
		h.Create("single")
	}
	if n := len(h.Claim()); n != 3 {
		t.Fatalf("%d began at once, want 3", n)
	}
	if n := len(h.Claim()); n != 0 {
		t.Fatalf("%d more began at once", n)
	}
	h.Exec(`UPDATE tasker.limit_keys SET full_at = full_at - interval '201 seconds'`)
	if n := len(h.Claim()); n != 2 {
		t.Fatalf("%d began after 201 s at 0.01 a second, want 2", n)
	}
}

func TestChangedLimitHoldsForTheNextClaim(t *testing.T) {
	h := newSingle(t)
	other := newEngine(h.DB, engine.Options{})
	h.limit(handlerLimit(), 1)
	for range 10 {
		h.Create("single")
	}
	n := len(h.Claim())
	require(t, n == 1, "handed out %d of 1", n)
	h.Must(errOf(other.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{MaxInProgress: 4}, byTest)))
	list := h.Claim()
	require(t, len(list) == 3, "handed out %d of 3 more", len(list))
	h.limit(handlerLimit(), 2)
	h.Accepted(success(list[0], `1`), success(list[1], `1`))
	equal(t, "claimed steps beyond the lowered limit", len(h.Claim()), 0)
	h.Accepted(success(list[2], `1`))
	equal(t, "claimed steps", len(h.Claim()), 1)
}

func TestServersTogetherNeverExceedALimit(t *testing.T) {
	const most, tasks, servers = 5, 240, 3
	h := newHarness(t)
	h.Register(withLimits(
		tasker.LimitTemplate{Name: "all", MaxInProgress: most},
		tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1, Steps: []string{"one"}},
	))
	for i := range tasks {
		h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(fmt.Sprintf(`{"customer": %d}`, i%20))})
	}
	ctx, stop := context.WithCancel(h.Context())
	defer stop()
	var done, most1 atomic.Int64
	var wg sync.WaitGroup
	for range servers {
		e := newEngine(enginetest.Open(t, h.URL, postgres.Options{}), engine.Options{}) // claims of one database handle take turns
		r, err := e.RegisterWorker(ctx, tasker.WorkerSpec{Name: "w", Namespaces: []string{enginetest.Namespace}, Handlers: []string{"run"}, MaxConcurrency: 10})
		h.Must(err)
		for n := range 2 {
			wg.Go(func() {
				for round := 0; ctx.Err() == nil && done.Load() < 2*tasks; round++ {
					list, err := e.Claim(ctx, r.WorkerUUID, 1+n*9, 20*time.Millisecond)
					if err != nil {
						continue
					}
					var out []tasker.Outcome
					for i, a := range list {
						if (round+i)%7 == 3 { // what a worker that goes away would leave
							_, _, _ = e.Release(ctx, r.WorkerUUID, []tasker.Lease{a.Lease()})
							continue
						}
						out = append(out, success(a, `1`))
					}
					for len(out) > 0 && ctx.Err() == nil { // as a worker does: what was not decided is sent again
						receipt, err := e.Report(ctx, r.WorkerUUID, out, 0)
						if err != nil {
							continue
						}
						done.Add(int64(len(receipt.Accepted)))
						out = slices.DeleteFunc(out, func(o tasker.Outcome) bool {
							return !slices.ContainsFunc(receipt.Rejected, func(x tasker.Rejection) bool { return x.StepUUID == o.StepUUID && x.Code == tasker.Unavailable })
						})
					}
				}
			})
		}
	}
	wg.Go(func() {
		for ctx.Err() == nil && done.Load() < 2*tasks {
			n := int64(h.inProgress())
			most1.Store(max(most1.Load(), n))
		}
	})
	h.Eventually("all steps are done", func() bool { return done.Load() >= 2*tasks })
	stop()
	wg.Wait()
	if n := most1.Load(); n > most || n < 2 {
		t.Errorf("%d steps were in progress at a time; %d is the limit", n, most)
	}
	equal(t, "parked steps", h.parked(), 0)
}
