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
)

var byTest = engine.LimitChange{Actor: "ann", Reason: "a test"}

func handlerLimit() tasker.LimitRef {
	return tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: enginetest.Namespace, Name: "run"}
}

func (h *harness) limit(ref tasker.LimitRef, most int) {
	h.Helper()
	_, err := h.Engine.SetLimit(h.Context(), ref, tasker.LimitValue{MaxInProgress: most}, byTest)
	h.Must(err)
}

// inProgress and aside count what the limits are about.
func (h *harness) inProgress() int {
	return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'in_progress'`)
}

func (h *harness) aside() int {
	return h.Count(`SELECT count(*) FROM tasker.held_steps WHERE limit_key_id IS NOT NULL`)
}

// Each kind of limit keeps more steps from workers than it lets be in progress, and a place is free again
// however its lease ends.
func TestALimitHoldsHoweverALeaseEnds(t *testing.T) {
	t.Parallel()
	for name, ref := range map[string]tasker.LimitRef{
		"server": {Kind: tasker.ServerLimit}, "namespace": {Kind: tasker.NamespaceLimit, Namespace: enginetest.Namespace}, "handler": handlerLimit(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSingle(t)
			h.limit(ref, 2)
			var tasks []tasker.ID
			for range 8 {
				tasks = append(tasks, h.Create("single"))
			}
			next := func(want int) []tasker.Assignment {
				t.Helper()
				list := h.claim()
				if len(list) != want || h.inProgress() != 2 {
					t.Fatalf("handed out %d, in progress %d; want %d and 2", len(list), h.inProgress(), want)
				}
				return list
			}
			list := next(2)
			next(0)
			h.accepted(success(list[0], `1`))
			list = append(list, next(1)...)
			h.accepted(failure(list[1], true)) // an attempt that is tried again gives its place to others meanwhile
			list = append(list, next(1)...)
			_, lost, err := h.Engine.Release(h.Context(), h.worker, []tasker.Lease{list[2].Lease()})
			h.Must(err)
			if len(lost) > 0 {
				t.Fatal("not released")
			}
			next(1)
			h.Must(h.Engine.CancelTask(h.Context(), list[3].TaskUUID, "ann", "a test"))
			next(1)
			h.pass()
			next(2)
			for range 10 {
				h.pass()
				for _, a := range h.claim() {
					h.accepted(success(a, `1`))
				}
			}
			for i, task := range tasks {
				if s := h.State(task); s != tasker.TaskComplete && task != list[3].TaskUUID {
					t.Errorf("task %d is %s", i, s)
				}
			}
			if n := h.aside(); n != 0 {
				t.Errorf("%d steps are still put aside", n)
			}
		})
	}
}

func withLimits(limits ...tasker.LimitTemplate) tasker.Template {
	return tasker.Template{
		Namespace: enginetest.Namespace, Name: "limited", Version: "1.0.0", Limits: limits,
		Steps: []tasker.StepTemplate{enginetest.Step("one"), enginetest.Step("two", "one")},
	}
}

// A limit that a template gives holds for each key by itself, in the order of urgency.
func TestALimitOfATemplateHoldsForEachKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1}))
	task := map[tasker.ID]string{}
	for i, customer := range []string{`"ann"`, `"ann"`, `"ann"`, `7`, `7`, `"bob"`} {
		id := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(`{"customer": ` + customer + `}`), Priority: i % 3})
		task[id] = fmt.Sprint(customer, i)
	}
	var order []string
	for round := range 12 {
		list := h.claim()
		seen := map[string]bool{}
		for _, a := range list {
			var c struct{ Customer json.RawMessage }
			h.Must(json.Unmarshal(a.Context, &c))
			if seen[string(c.Customer)] {
				t.Fatalf("round %d: two of %s", round, c.Customer)
			}
			seen[string(c.Customer)] = true
			order = append(order, task[a.TaskUUID]+a.Name)
		}
		if round == 0 && len(list) != 3 {
			t.Fatalf("the first claim handed out %d, want one of each customer", len(list))
		}
		for _, a := range list {
			h.accepted(success(a, `1`))
		}
	}
	if len(order) != 12 {
		t.Errorf("handed out %v", order)
	}
	if order[0] != `"ann"2one` && order[1] != `"ann"2one` && order[2] != `"ann"2one` {
		t.Errorf("the most urgent task of ann was not among the first: %v", order)
	}
	l, err := h.Engine.Limit(h.Context(), tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: enginetest.Namespace, Name: "customer"})
	h.Must(err)
	if l.InProgress != 0 || l.Waiting != 0 || len(l.Keys) != 3 || !l.ByTemplate {
		t.Errorf("the limit at the end: %+v", l)
	}
}

// A step whose key has a place is found among those of many keys that have none, with the report that frees the place and by
// whoever claims next.
func TestAPlaceIsFoundAmongManyFullKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	single := withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1})
	single.Steps = single.Steps[:1]
	h.register(single)
	const keys = 250 // more than one claim looks at
	var tasks []tasker.NewTask
	for i := range 2 * keys {
		tasks = append(tasks, tasker.NewTask{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(fmt.Sprintf(`{"customer": "c%03d"}`, i%keys))})
	}
	_, err := h.Engine.CreateTasks(h.Context(), tasks)
	h.Must(err)
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
	for list := h.claim(); len(list) > 0; list = h.claim() {
		hold(list)
	}
	if n := h.aside(); len(held) != keys || n != keys {
		t.Fatalf("%d keys have a step in progress, and %d steps are put aside", len(held), n)
	}
	for reported, cancelled := range map[string]string{"c249": "c248", "c125": "c100", "c000": "c001"} {
		receipt, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{success(held[reported], `1`)}, 1)
		h.Must(err)
		delete(held, reported)
		if len(receipt.Next) == 0 { // it was long ago that the worker met limits
			receipt.Next = h.claim()
		}
		if got := hold(receipt.Next); got != reported {
			t.Fatalf("the report of %s was given %s", reported, got)
		}
		h.Must(h.Engine.CancelTask(h.Context(), held[cancelled].TaskUUID, "ann", "a test"))
		delete(held, cancelled)
		next := h.claim()
		if len(next) == 0 {
			next = h.claim() // goes on where the one before ended
		}
		if got := hold(next); got != cancelled {
			t.Fatalf("two claims were given %s when %s had a place", got, cancelled)
		}
	}
}

// A limit of a template holds from the first claim after it is there, and so do weights: claims of the same worker met only a
// limit of the queue before.
func TestLimitsOfTemplatesHoldAfterThoseOfQueues(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*harness, tasker.Assignment) []tasker.Assignment{
		"claim": func(h *harness, _ tasker.Assignment) []tasker.Assignment { return h.claim() },
		"report": func(h *harness, a tasker.Assignment) []tasker.Assignment {
			receipt, err := h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{success(a, `1`)}, 100)
			h.Must(err)
			return receipt.Next
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				list, err := h.Engine.Claim(h.Context(), h.worker, 1, 0)
				h.Must(err)
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

// A step takes as many places as its weight, all of them if the limit has fewer, and what is less urgent does not keep it from
// them.
func TestAStepTakesSeveralPlaces(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	t1 := withLimits(tasker.LimitTemplate{Name: "gpu", MaxInProgress: 4, Weights: map[string]int{"one": 3}})
	t1.Steps = []tasker.StepTemplate{enginetest.Step("one")}
	h.register(t1)
	light := withLimits(tasker.LimitTemplate{Name: "gpu", MaxInProgress: 4})
	light.Name, light.Steps = "light", []tasker.StepTemplate{enginetest.Step("small")}
	h.register(light)
	create := func(name string, priority int) {
		h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: name, Priority: priority})
	}
	ref := tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: enginetest.Namespace, Name: "gpu"}
	next := func(want ...string) []tasker.Assignment {
		t.Helper()
		list := h.claim()
		var got []string
		for _, a := range list {
			got = append(got, a.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("handed out %v, want %v", got, want)
		}
		return list
	}
	create("light", 2)
	create("light", 2)
	create("limited", 1)
	create("light", 0)
	small := next("small", "small")
	h.accepted(success(small[0], `1`))
	heavy := next("one")
	l, err := h.Engine.Limit(h.Context(), ref)
	h.Must(err)
	if l.InProgress != 4 || len(l.Keys) != 1 || len(l.Keys[0].Holders) != 2 || l.Keys[0].Holders[1].Weight != 3 {
		t.Errorf("four places are taken, three by one step: %+v", l)
	}
	next()
	h.accepted(success(small[1], `1`))
	last := next("small")
	create("limited", 2)
	h.accepted(success(last[0], `1`))
	create("light", 1)
	next() // one place is free: the step that is more urgent waits for three
	h.accepted(success(heavy[0], `1`))
	both := next("one", "small")
	h.limit(ref, 2)
	create("limited", 9)
	next()
	for _, a := range both {
		h.accepted(success(a, `1`))
	}
	next("one") // takes both places
	if l, err = h.Engine.Limit(h.Context(), ref); err != nil || l.InProgress != 2 {
		t.Errorf("%d of 2 places are taken: %v", l.InProgress, err)
	}
}

// A namespace has so many limits and no more; one that it has may be changed all the same.
func TestANamespaceHasSoManyLimits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by)
		SELECT 'handler', $1, 'h' || n, 1, false, 'ann' FROM generate_series(1, $2) n`, enginetest.Namespace, tasker.MaxLimits)
	_, err := h.Engine.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{MaxInProgress: 1}, byTest)
	h.WantCode(err, tasker.Conflict, "1000 limits")
	other := handlerLimit()
	other.Name = "h1"
	_, err = h.Engine.SetLimit(h.Context(), other, tasker.LimitValue{MaxInProgress: 2}, byTest)
	h.Must(err)
}

// What has no key is not created: it would have no limit, or that of others.
func TestATaskWithoutTheKeyOfItsLimitIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(withLimits(tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 1}))
	for doc, words := range map[string]string{
		`{}`: "missing key", `{"customer": null}`: "must be a string", `{"customer": [1]}`: "must not be a list", `{"customer": "` + fmt.Sprintf("%0300d", 1) + `"}`: "256",
	} {
		_, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "limited", Context: json.RawMessage(doc)}})
		h.WantCode(err, tasker.Invalid, "limits.customer.key", words)
	}
}

// A step goes back into the queue when its limit is removed; and when no worker takes it though there are
// places, so that the time in which one must come runs.
func TestStepsComeBackFromALimit(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	for range 3 {
		h.Create("single")
	}
	first := h.claim()
	if len(first) != 1 || h.aside() != 2 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.aside())
	}
	h.tick()
	if h.aside() != 2 {
		t.Error("steps came back though there is no place")
	}
	h.accepted(success(first[0], `1`))
	h.tick()
	if h.aside() != 2 {
		t.Error("steps came back though a worker would take them")
	}
	h.Must(h.Engine.LeaveWorker(h.Context(), h.worker))
	h.tick()
	if h.aside() != 1 {
		t.Errorf("%d steps are put aside; one has a place, and no worker lives", h.aside())
	}
	h.worker = h.RegisterWorker("run")
	h.Must(h.Engine.DeleteLimit(h.Context(), handlerLimit(), byTest))
	if n := h.Count(`SELECT count(*) FROM tasker.limit_slots`); n != 0 {
		t.Errorf("%d places of a limit that is gone are kept", n)
	}
	if b, err := h.DB.UnparkLimited(h.Context(), 1, 0); err != nil || !b.More {
		t.Errorf("a look for one step of a limit that is gone does not say that there may be more: %+v, %v", b, err)
	}
	h.tick()
	if h.aside() != 0 || len(h.claim()) != 2 {
		t.Error("the limit is gone, and keeps steps from workers")
	}
}

// A step that cannot be put back holds up no other.
func TestAStepThatDoesNotComeBackFromALimitHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	var tasks []tasker.ID
	for range 4 {
		tasks = append(tasks, h.Create("single"))
	}
	if h.claim(); h.aside() != 3 {
		t.Fatalf("%d steps are put aside", h.aside())
	}
	h.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$`)
	h.Exec(`CREATE TRIGGER broken BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.task_uuid = '` + tasks[1].String() + `') EXECUTE FUNCTION public.refuse()`)
	h.Must(h.Engine.DeleteLimit(h.Context(), handlerLimit(), byTest))
	_, err := h.Engine.Tick(h.Context())
	if err == nil || !strings.Contains(err.Error(), "of task "+tasks[1].String()) || h.aside() != 1 {
		t.Errorf("%d steps are left aside, want the broken one: %v", h.aside(), err)
	}
}

// A worker that is alive and takes nothing does not keep a step from an investigation: if its key has places and nobody takes it
// for as long as it may wait, it goes back into the queue, and its time there runs out.
func TestAStepThatNobodyTakesThoughThereIsAPlace(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	h.Create("single")
	h.Create("single")
	first := h.claim()
	if len(first) != 1 || h.aside() != 1 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.aside())
	}
	old := `UPDATE tasker.held_steps SET held_at = held_at - interval '10 years'`
	h.Exec(old)
	h.tick()
	if h.aside() != 1 {
		t.Error("a step came back though there is no place")
	}
	h.accepted(success(first[0], `1`))
	h.Exec(`UPDATE tasker.held_steps SET held_at = clock_timestamp()`)
	h.tick()
	if h.aside() != 1 {
		t.Error("a step came back at once though a worker is alive")
	}
	h.Exec(old)
	h.tick()
	if h.aside() != 0 {
		t.Fatal("a step that nobody has taken for longer than it may wait is still put aside")
	}
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() - interval '1 hour' WHERE state = 'enqueued'`)
	_, err := h.Engine.ExpireSteps(h.Context())
	h.Must(err)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`); n != 1 {
		t.Errorf("%d investigations are open, want one: nobody took the step", n)
	}
}

// Under a key that several queues share, a step that a worker would take does not hide those that nobody would.
func TestAQueueWithoutAWorkerBehindOneWithAWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	served, unserved := enginetest.Step("one"), enginetest.Step("one")
	unserved.Handler.Callable = "unserved"
	h.Template("single", served)
	h.Template("lonely", unserved)
	h.limit(tasker.LimitRef{Namespace: enginetest.Namespace, Kind: tasker.NamespaceLimit}, 1)
	h.Create("single")
	first := h.claim()
	h.Create("single")
	h.Create("lonely")
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() - interval '1 hour' WHERE state = 'enqueued'`)
	_, err := h.Engine.ExpireSteps(h.Context()) // puts both aside
	h.Must(err)
	if len(first) != 1 || h.aside() != 2 {
		t.Fatalf("handed out %d, put aside %d", len(first), h.aside())
	}
	h.accepted(success(first[0], `1`))
	h.tick()
	if n := h.Count(`SELECT count(*) FROM tasker.ready_steps WHERE handler = 'unserved'`); n != 1 || h.aside() != 1 {
		t.Errorf("%d steps of the queue without a worker are back, %d are put aside; want one of each", n, h.aside())
	}
}

// Claims lock the row of what was put aside before its step, and so does whoever moves the step otherwise:
// they would wait for each other.
func TestWhoCancelsWaitsForAClaimOfWhatWasPutAside(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.limit(handlerLimit(), 1)
	h.Create("single")
	h.Create("single")
	h.claim()
	if h.aside() != 1 {
		t.Fatalf("put aside %d, want 1", h.aside())
	}
	claim, err := h.pool.Begin(t.Context())
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
	h.wantState(ref.TaskUUID, tasker.TaskCancelled)
}

// The time that a step may wait for a worker does not run while it waits for a limit, though it stays in the queue for
// as long as places keep coming free.
func TestWhatWaitsForALimitDoesNotExpire(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	h.Create("single")
	h.Create("single")
	h.limit(handlerLimit(), 1)
	list, err := h.Engine.Claim(h.Context(), h.worker, 1, 0)
	h.Must(err)
	if len(list) != 1 || h.aside() != 0 {
		t.Fatalf("handed out %d, put aside %d; want one, and the other in the queue", len(list), h.aside())
	}
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE state = 'enqueued'`)
	_, err = h.Engine.ExpireSteps(h.Context())
	h.Must(err)
	if n := h.aside(); n != 1 {
		t.Errorf("%d steps were put aside when their time was over, want 1", n)
	}
	h.accepted(success(list[0], `1`))
	if n := len(h.claim()); n != 1 {
		t.Errorf("handed out %d of what was put aside", n)
	}
}

// A rate lets so many steps begin at once, and then so many in a second.
func TestARateIsKept(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	_, err := h.Engine.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{PerSecond: 0.01, Burst: 3}, byTest)
	h.Must(err)
	for range 10 {
		h.Create("single")
	}
	if n := len(h.claim()); n != 3 {
		t.Fatalf("%d began at once, want 3", n)
	}
	if n := len(h.claim()); n != 0 {
		t.Fatalf("%d more began at once", n)
	}
	h.Exec(`UPDATE tasker.limit_keys SET full_at = full_at - interval '201 seconds'`)
	if n := len(h.claim()); n != 2 {
		t.Fatalf("%d began after 201 s at 0.01 a second, want 2", n)
	}
}

// A value that is changed holds for the next claim, in every server.
func TestALimitIsChangedWhileItHolds(t *testing.T) {
	t.Parallel()
	h := newSingle(t)
	other := newEngine(h.DB, engine.Options{})
	h.limit(handlerLimit(), 1)
	for range 10 {
		h.Create("single")
	}
	if n := len(h.claim()); n != 1 {
		t.Fatalf("handed out %d of 1", n)
	}
	_, err := other.SetLimit(h.Context(), handlerLimit(), tasker.LimitValue{MaxInProgress: 4}, byTest)
	h.Must(err)
	list := h.claim()
	if len(list) != 3 {
		t.Fatalf("handed out %d of 3 more", len(list))
	}
	h.limit(handlerLimit(), 2)
	h.accepted(success(list[0], `1`), success(list[1], `1`))
	if n := len(h.claim()); n != 0 {
		t.Errorf("handed out %d beyond the lowered limit", n)
	}
	h.accepted(success(list[2], `1`))
	if n := len(h.claim()); n != 1 {
		t.Errorf("handed out %d of 1", n)
	}
}

// Any number of servers and workers never have more steps in progress than a limit lets be, while leases
// end in every way, and no place is lost.
func TestServersNeverExceedALimitTogether(t *testing.T) {
	t.Parallel()
	const most, tasks, servers = 5, 300, 4
	h := newHarness(t)
	h.register(withLimits(
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
		e := newEngine(h.DB, engine.Options{})
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
	if n := h.aside(); n != 0 {
		t.Errorf("%d steps are still put aside", n)
	}
}
