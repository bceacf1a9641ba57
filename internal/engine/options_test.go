package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// overdueNow has all instants by which tasks are to be begun be over, and what follows from it done.
func (h *harness) overdueNow() {
	h.Helper()
	h.Exec(`UPDATE tasker.task_starts SET start_by = now() - interval '1 second'`)
	h.Tick()
}

func TestTaskNotBegunInTimeExpires(t *testing.T) {
	h := newHarness(t)
	told := map[tasker.ID]string{}
	h.Engine = newEngine(h.DB, engine.Options{Hooks: enginetest.Hooks{Expired: func(list []tasker.Task) {
		for _, t := range list {
			told[t.UUID] = t.Namespace
		}
	}}})
	h.Template("two", enginetest.Step("a"), enginetest.Step("b", "a"))
	h.Template("asks", external("answer"), enginetest.Step("c", "answer"))
	h.Register(tasker.Template{Name: "brief", Start: tasker.StartRules{WithinSeconds: 3600}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	create := func(name string, r tasker.NewTask) tasker.ID {
		r.Namespace, r.Name = h.Space, name
		return h.CreateWith(r)
	}
	begun := create("two", tasker.NewTask{StartWithin: time.Hour})
	first := h.Claim()[0]
	tried := create("two", tasker.NewTask{StartWithin: time.Hour})
	h.Accepted(failure(h.Claim()[0], true)) // it waits for its next attempt
	untouched := create("two", tasker.NewTask{StartWithin: time.Hour})
	later := create("two", tasker.NewTask{StartAfter: time.Hour, StartWithin: time.Hour})
	asked := create("asks", tasker.NewTask{StartBy: time.Now().Add(time.Hour)})
	free := create("two", tasker.NewTask{})
	brief := create("brief", tasker.NewTask{})
	for task, from := range map[tasker.ID]time.Duration{untouched: time.Hour, later: 2 * time.Hour, asked: time.Hour, brief: time.Hour} {
		got := h.Task(task)
		if got.StartBy == nil || time.Until(*got.StartBy).Round(time.Minute) != from {
			t.Errorf("%s is to be begun by %+v", got.Name, got.TaskOptions)
		}
	}
	if got := h.Task(later); got.State != tasker.TaskPending || got.StartAt == nil || !got.StartAt.Equal(got.CreatedAt.Add(time.Hour)) {
		t.Errorf("it is %s and starts at %v", got.State, got.StartAt)
	}
	h.Tick()
	if n := h.Count(`SELECT count(*) FROM tasker.task_starts`); n != 6 {
		t.Fatalf("%d tasks are to be begun before their time is over", n)
	}
	h.overdueNow()
	for _, task := range []tasker.ID{untouched, later, asked, brief} {
		h.WantState(task, tasker.TaskCancelled)
		if got := h.History(task); !strings.HasSuffix(got, " cancelled") {
			t.Errorf("its history is %s", got)
		}
		check(t, told[task] == h.Space, "nobody is told of %s: %v", task, told)
		n := h.Count(`SELECT count(*) FROM tasker.messages WHERE topic = $1 AND subject_id = $2`, tasker.TaskExpiredTopic, task)
		if reason := h.Count(`SELECT count(*) FROM tasker.task_history WHERE task_uuid = $1 AND event = 'expire' AND reason = 'expired' AND actor = 'tasker'`, task); n != 1 || reason != 1 {
			t.Errorf("%d messages and %d moves say that it is expired", n, reason)
		}
	}
	h.WantState(begun, tasker.TaskStepsInProcess)
	h.WantState(free, tasker.TaskStepsInProcess)
	if got := h.Task(tried).State; got == tasker.TaskCancelled {
		t.Errorf("a task whose first attempt failed is %s", got)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.task_starts`); n != 0 || len(told) != 4 {
		t.Errorf("%d tasks are still to be begun; told of %v", n, told)
	}
	h.Accepted(success(first, `1`))
	h.WantStep(begun, "b", tasker.StepEnqueued, 1)
}

func TestEndedTaskDoesNotExpire(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	done := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartWithin: time.Hour})
	h.Complete("a")
	h.WantState(done, tasker.TaskComplete)
	stopped := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartWithin: time.Hour})
	h.Must(h.Engine.CancelTask(h.Context(), stopped, "me", "no"))
	h.WantCount(0, `SELECT count(*) FROM tasker.task_starts`)
	h.overdueNow()
	h.WantState(done, tasker.TaskComplete)
}

func TestClaimAndTaskExpiryNeverBothWin(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	for range 20 {
		task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", StartBy: time.Now().Add(-time.Second)})
		claimed := make(chan []tasker.Assignment)
		go func() {
			list, err := h.Engine.Claim(context.WithoutCancel(h.Context()), h.Worker, 1, 0)
			if err != nil {
				t.Error(err)
			}
			claimed <- list
		}()
		h.Tick()
		list := <-claimed
		h.Tick()
		want := tasker.TaskCancelled
		if len(list) > 0 {
			want = tasker.TaskComplete
			h.Accepted(success(list[0], `1`))
		}
		h.WantState(task, want)
	}
}

func TestInvalidStartTimesAreRejected(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	soon := time.Now().Add(time.Hour)
	for want, r := range map[string]tasker.NewTask{
		"start_after_seconds: must be from 0 to 31622400": {StartAfter: -time.Second},
		"start_within_seconds: must be from 0":            {StartWithin: tasker.MaxStartDelay + time.Second},
		"start_after_seconds: conflicts with start_at":    {StartAfter: time.Second, StartAt: soon},
		"start_within_seconds: conflicts with start_by":   {StartWithin: time.Second, StartBy: soon},
		"start_by: must be after start_at":                {StartAt: soon, StartBy: soon},
		"between the years 2000 and 2200":                 {StartBy: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		r.Namespace, r.Name = h.Space, "one"
		h.WantCode(errOf(h.Engine.CreateTasks(h.Context(), []tasker.NewTask{r})), tasker.Invalid, want)
	}
}

func TestWaitsBeginWhenTheTaskStarts(t *testing.T) {
	h := newHarness(t)
	h.Template("asks", timed("", external("answer")), enginetest.Step("c", "answer"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "asks", StartAfter: 24 * time.Hour})
	s := h.Step(task, "answer")
	check(t, s.WaitUntil != nil && time.Until(*s.WaitUntil).Round(time.Hour) == 8*24*time.Hour,
		"it waits until %v", s.WaitUntil)
}

// wantOpen expects a unique key to be that of one task, or of none.
func (h *harness) wantOpen(want ...tasker.ID) {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT task_uuid FROM tasker.unique_tasks ORDER BY 1`)
	h.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	check(h, slices.Equal(got, want), "the tasks %v have unique keys, want %v", got, want)
}

func TestUniqueKeyFollowsTheNewestVersion(t *testing.T) {
	h := newHarness(t)
	version := func(version, key string) {
		t.Helper()
		h.RegisterTemplate(tasker.Template{
			Namespace: h.Space, Name: "keyed", Version: version, Start: tasker.StartRules{Unique: tasker.Unique{Key: key, OnConflict: tasker.ConflictUseExisting}}, Steps: []tasker.StepTemplate{enginetest.Step("a")},
		})
	}
	create := func(doc string) engine.Created {
		t.Helper()
		list, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "keyed", Context: json.RawMessage(doc)}})
		h.Must(err)
		return list[0]
	}
	version("1.0.0", "context.customer")
	first := create(`{"customer": "c", "order": "1"}`)
	if c := create(`{"customer": "c", "order": "2"}`); c.New || c.TaskUUID != first.TaskUUID {
		t.Errorf("created %+v, want the open task", c)
	}
	version("1.1.0", "context.order")
	if c := create(`{"customer": "c", "order": "2"}`); !c.New {
		t.Errorf("got task %s for another order, by the key of template version 1.0.0", c.TaskUUID)
	}
}

func TestUniqueKeyHasOneOpenTask(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Once(enginetest.Step("a")))
	h.Template("other", enginetest.Step("b"))
	h.Register(tasker.Template{
		Name: "keyed", Start: tasker.StartRules{Unique: tasker.Unique{Key: "context.customer", OnConflict: tasker.ConflictUseExisting}}, Steps: []tasker.StepTemplate{enginetest.Step("c")},
	})
	create := func(name string, on tasker.ConflictPolicy) (engine.Created, error) {
		list, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: h.Space, Name: name, Unique: tasker.Unique{Key: "k", OnConflict: on}}})
		if err != nil {
			return engine.Created{}, err
		}
		return list[0], nil
	}
	made := func(name string, on tasker.ConflictPolicy) tasker.ID {
		t.Helper()
		c, err := create(name, on)
		h.Must(err)
		require(t, c.New, "%s is not new", c.TaskUUID)
		return c.TaskUUID
	}
	first := made("one", "")
	another := made("other", "") // the key is that of its template
	h.Must(h.Engine.CancelTask(h.Context(), another, "me", "no"))
	h.wantOpen(first)
	h.WantCode(errOf(create("one", "")), tasker.Conflict, first.String(), "same unique key")
	if c, err := create("one", tasker.ConflictUseExisting); err != nil || c.New || c.TaskUUID != first {
		t.Errorf("%+v, %v", c, err)
	}
	second := made("one", tasker.ConflictCancelExisting)
	h.WantState(first, tasker.TaskCancelled)
	h.wantOpen(second)
	got := h.Task(second).TaskOptions
	check(t, got.UniqueKey == "k", "it has the options %+v", got)

	h.Accepted(success(h.ClaimOne("a"), `1`)) // its end frees the key
	h.wantOpen()
	third := made("one", "")
	h.Accepted(failure(h.ClaimOne("a"), false)) // and a failure does not
	h.WantState(third, tasker.TaskError)
	h.wantOpen(third)
	h.Abandon(third)
	h.wantOpen()
	fourth := made("one", tasker.ConflictCancelExisting)
	batch, err := h.Engine.CancelTasks(h.Context(), tasker.CancelBatchRequest{Filter: tasker.TaskFilter{Namespace: h.Space, State: tasker.TaskStepsInProcess}, Actor: "me", Reason: "all"})
	h.Must(err)
	if h.wantOpen(); batch.Cancelled != 1 {
		t.Errorf("%d were cancelled, not %s", batch.Cancelled, fourth)
	}

	key := tasker.NewTask{Namespace: h.Space, Name: "keyed", Context: json.RawMessage(`{"customer": "c7"}`)}
	list, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{key, key})
	h.Must(err)
	check(t, list[0].TaskUUID == list[1].TaskUUID && list[0].New && !list[1].New, "created %+v", list)
	key.Unique = tasker.Unique{Key: "c7", OnConflict: tasker.ConflictFail}
	_, err = h.Engine.CreateTasks(h.Context(), []tasker.NewTask{key})
	h.WantCode(err, tasker.Conflict, list[0].TaskUUID.String())
	for _, doc := range []string{`{}`, `{"customer": true}`, `{"customer": ""}`} {
		_, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "keyed", Context: json.RawMessage(doc)}})
		h.WantCode(err, tasker.Invalid, "start.unique.key")
	}
	h.WantCode(errOf(create("one", "perhaps")), tasker.Invalid, "unique.on_conflict")
	_, err = h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "one", Unique: tasker.Unique{OnConflict: tasker.ConflictFail}}})
	h.WantCode(err, tasker.Invalid, "unique.key: is missing")
}

func TestConcurrentRequestsShareOneUniqueKey(t *testing.T) {
	h := newHarness(t)
	h.Template("one", enginetest.Step("a"))
	for _, policy := range tasker.ConflictPolicies() {
		var made, joined, refused atomic.Int32
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				list, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{{Namespace: h.Space, Name: "one", Unique: tasker.Unique{Key: "race " + string(policy), OnConflict: policy}}})
				switch {
				case tasker.CodeOf(err) == tasker.Conflict:
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case list[0].New:
					made.Add(1)
				default:
					joined.Add(1)
				}
			})
		}
		group.Wait()
		want := map[tasker.ConflictPolicy][3]int32{tasker.ConflictFail: {1, 0, 49}, tasker.ConflictUseExisting: {1, 49, 0}, tasker.ConflictCancelExisting: {50, 0, 0}}[policy]
		got := [3]int32{made.Load(), joined.Load(), refused.Load()}
		check(t, got == want, "%s: %v were made, joined and refused, want %v", policy, got, want)
		h.WantCount(1, `SELECT count(*) FROM tasker.tasks WHERE options ->> 'unique_key' = $1 AND state <> 'cancelled'`, "race "+string(policy))
	}
}

func TestConcurrentChildrenShareOneUniqueKey(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "single", Start: tasker.StartRules{Unique: tasker.Unique{Key: `"k"`}}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	h.Template("parent", enginetest.Step("first"), when("false", enginetest.Step("no", "first")), joined(tasker.JoinNoneFailed, child("single", "one", "no")), joined(tasker.JoinNoneFailed, child("single", "two", "no")))
	parent := h.Create("parent")
	h.Complete("first")
	h.Must(errOf(h.Engine.Pass(t.Context(), postgres.DecideSteps)))
	h.Tick()
	h.WantCount(0, `SELECT count(*) FROM tasker.deferred_work`)
	states := []tasker.StepState{h.Step(parent, "one").State, h.Step(parent, "two").State}
	slices.Sort(states)
	if want := []tasker.StepState{tasker.StepError, tasker.StepPending}; !slices.Equal(states, want) {
		t.Errorf("the steps are %v, want %v: one waits for its task, the other is refused", states, want)
	}
}

func TestFailedChildDoesNotHoldItsUniqueKey(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{Name: "single", Start: tasker.StartRules{Unique: tasker.Unique{Key: `"k"`}}, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
	late := func(name string) tasker.StepTemplate {
		s := joined(tasker.JoinNoneFailed, child("single", name, "no"))
		s.Due.At = `timestamp("1999-01-01T00:00:00Z")`
		return s
	}
	h.Template("parent", enginetest.Step("first"), when("false", enginetest.Step("no", "first")), late("one"), joined(tasker.JoinNoneFailed, child("single", "two", "no")), late("three"))
	parent := h.Create("parent")
	h.Complete("first")
	h.Must(errOf(h.Engine.Pass(t.Context(), postgres.DecideSteps)))
	h.Tick()
	for name, want := range map[string]tasker.StepState{"one": tasker.StepError, "two": tasker.StepPending, "three": tasker.StepError} {
		if s := h.Step(parent, name); s.State != want {
			t.Errorf("step %s is %s, want %s", name, s.State, want)
		}
	}
}

func TestAutomaticTasksRespectUniqueKeys(t *testing.T) {
	h := newHarness(t)
	unique := tasker.StartRules{Unique: tasker.Unique{Key: `"k"`, OnConflict: tasker.ConflictCancelExisting}}
	h.Register(tasker.Template{Name: "nightly", Start: unique, Steps: []tasker.StepTemplate{enginetest.Once(enginetest.Step("a"))}})
	h.Template("parent", child("nightly", "nightly"))
	first := h.Create("nightly")
	h.Must(errOf(h.Engine.CreateSchedule(t.Context(), hourlySpec(nil), ann)))
	h.passes(time.Hour)
	h.WantCount(1, `SELECT count(*) FROM tasker.schedule_firings WHERE outcome = 'refused' AND reason LIKE '%' || $1::text || '%'`, first)
	parent := h.Create("parent")
	h.Tick()
	h.WantFailed(parent, "nightly", first.String())
	h.wantOpen(first)

	a := newApplication(h)
	made, create := a.createIn(tasker.NewTask{Namespace: h.Space, Name: "nightly"})
	tx, err := a.conn.Begin(t.Context())
	h.Must(err)
	h.Must(create(tx))
	h.wantOpen(first) // until it commits
	h.Must(tx.Commit(t.Context()))
	h.wantOpen(*made)
	h.WantState(first, tasker.TaskCancelled)

	h.Accepted(failure(h.ClaimOne("a"), false))
	var again tasker.ID
	h.Must(h.DB.InTx(t.Context(), func(tx *postgres.Tx) (err error) { // as an operation does
		recreation := h.Engine.NewRecreation(tx)
		if again, err = recreation.Add(t.Context(), tasker.NewTask{Namespace: h.Space, Name: "nightly", Context: json.RawMessage(`{}`), RecreatedFrom: *made}); err != nil {
			return err
		}
		_, err = recreation.Store(t.Context())
		return err
	}))
	h.Abandon(*made)
	h.wantOpen(again)
}

func TestCompensatingTaskKeepsItsUniqueKey(t *testing.T) {
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	request := func(key, by string) tasker.NewTask {
		return tasker.NewTask{Namespace: h.Space, Name: "one", Initiator: by, Unique: tasker.Unique{Key: key, OnConflict: tasker.ConflictCancelExisting}}
	}
	task := h.CreateWith(request("k", "ann"))
	h.Complete("a")
	h.compensate(task)
	_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{request("k", "bob")})
	h.WantCode(err, tasker.Conflict, task.String(), "is being compensated")
	h.wantOpen(task)
	h.Complete("undo:a")
	h.wantUndone(task, "", tasker.Compensated)

	h.Must(errOf(h.Engine.CreateTasks(t.Context(), []tasker.NewTask{request("k", "ann"), request("l", "ann")})))
	h.Must(errOf(h.Engine.CreateTasks(t.Context(), []tasker.NewTask{request("k", "bob"), request("l", "carol")})))
	h.WantCount(2, `SELECT count(*) FROM tasker.task_history x JOIN tasker.tasks t USING (task_uuid) WHERE x.to_state = 'cancelled' AND x.actor = CASE t.options ->> 'unique_key' WHEN 'k' THEN 'bob' ELSE 'carol' END`)
}

func TestRequestsMergeIntoATaskOfARetiredVersion(t *testing.T) {
	h := newHarness(t)
	for _, v := range []string{"1.0.0", "1.1.0"} {
		h.RegisterTemplate(tasker.Template{Namespace: h.Space, Name: "index", Version: v, Steps: []tasker.StepTemplate{enginetest.Step("a")}})
		if v == "1.0.0" {
			h.Must(errOf(h.debounced(`{"page": 1}`, nil)))
		}
	}
	h.retire(tasker.TemplateVersion{Namespace: h.Space, Name: "index", Version: "1.0.0"}, true)
	h.Engine = newEngine(h.DB, engine.Options{}) // which remembers no version
	merged, err := h.debounced(`{"page": 2}`, nil)
	h.Must(err)
	if got := h.Task(merged.TaskUUID); merged.New || got.Version != "1.0.0" || got.MergedRequests != 1 {
		t.Errorf("it led to %+v, of version %s", merged, got.Version)
	}
	_, err = h.debounced(`{}`, func(r *tasker.NewTask) { r.Version, r.Debounce.Key = "1.0.0", "other" })
	h.WantCode(err, tasker.Conflict, "does not accept new tasks")
}

func TestRequestsWaitingForAKeyDelayNoOthers(t *testing.T) {
	h := newHarness(t)
	h.Template("index", enginetest.Step("a"))
	h.Template("other", enginetest.Step("b"))
	tx, err := h.Admin().Begin(t.Context())
	h.Must(err)
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = tx.Rollback(context.WithoutCancel(t.Context()))
		group.Wait()
	})
	_, err = h.Engine.CreateTasksTx(t.Context(), tx, []tasker.NewTask{{Namespace: h.Space, Name: "index", Debounce: tasker.Debounce{Key: "k", Wait: time.Hour}}})
	h.Must(err)
	for range 10 * h.DB.MaxCreateConns() { // each gives up after five seconds: together they could keep others waiting for longer than below
		group.Go(func() { _, _ = h.debounced(`{}`, nil) })
	}
	h.Eventually("some wait for the key", func() bool {
		return h.Count(`SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`) >= h.DB.MaxCreateConns()-1
	})
	_, err = h.Engine.CreateTasks(wrapPath(t, 15*time.Second), []tasker.NewTask{{Namespace: h.Space, Name: "other"}})
	h.Must(err)
	h.Must(tx.Rollback(t.Context()))
}

func (h *harness) debounced(doc string, change func(*tasker.NewTask)) (engine.Created, error) {
	r := tasker.NewTask{Namespace: h.Space, Name: "index", Context: json.RawMessage(doc), Debounce: tasker.Debounce{Key: "k", Wait: time.Hour}}
	if change != nil {
		change(&r)
	}
	list, err := h.Engine.CreateTasks(h.Context(), []tasker.NewTask{r})
	if err != nil {
		return engine.Created{}, err
	}
	return list[0], nil
}

func TestRequestsMergeUntilTheirTaskStarts(t *testing.T) {
	h := newHarness(t)
	version := func(v string) {
		h.RegisterTemplate(tasker.Template{
			Namespace: h.Space, Name: "index", Version: v, Search: map[string]tasker.SearchAttribute{"page": {Type: tasker.AttributeText, From: "context.page"}},
			Steps: []tasker.StepTemplate{enginetest.Step("a")},
		})
	}
	version("1.0.0")
	first, err := h.debounced(`{"page": "one"}`, func(r *tasker.NewTask) { r.StartWithin = time.Hour })
	h.Must(err)
	require(t, first.New, "the first request made no task")
	h.Exec(`UPDATE tasker.tasks SET start_at = start_at - interval '30 minutes'`)
	version("1.1.0")
	for i, doc := range []string{`{"page": "two"}`, `{"page": "three, which is longer"}`} {
		c, err := h.debounced(doc, func(r *tasker.NewTask) { r.StartWithin, r.Initiator = time.Hour, "ann" })
		h.Must(err)
		check(t, !c.New && c.TaskUUID == first.TaskUUID, "request %d led to %+v", i, c)
	}
	got := h.Task(first.TaskUUID)
	if got.State != tasker.TaskPending || !strings.Contains(string(got.Context), "three") || got.Version != "1.0.0" || got.MergedRequests != 2 || got.DebounceKey != "k" {
		t.Errorf("the task is %s %s with %s and %+v", got.State, got.Version, got.Context, got.TaskOptions)
	}
	if left := time.Until(*got.StartAt).Round(time.Minute); left != time.Hour || got.StartBy.Sub(*got.StartAt) != time.Hour {
		t.Errorf("it starts in %s, and by %s", left, got.StartBy)
	}
	h.WantCount(2, `SELECT count(*) FROM tasker.task_history WHERE task_uuid = $1 AND event = 'merge' AND actor = 'ann'`, first.TaskUUID)
	list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "page", Value: "three, which is longer"}}, Namespace: h.Space, Limit: 2})
	h.Must(err)
	equal(t, "tasks are found by the last context", len(list), 1)
	_, err = h.debounced(`{}`, func(r *tasker.NewTask) { r.Version = "1.1.0" })
	h.WantCode(err, tasker.Conflict, first.TaskUUID.String(), "1.0.0")
	if c, err := h.debounced(`{}`, func(r *tasker.NewTask) { r.Debounce.Key = "other" }); err != nil || !c.New {
		t.Errorf("another key led to %+v, %v", c, err)
	}

	// However many come, it starts in the end; what comes then is another task.
	h.Exec(`UPDATE tasker.debounced_tasks SET latest_start = now() - interval '1 second' WHERE task_uuid = $1`, first.TaskUUID)
	c, err := h.debounced(`{"page": "last"}`, nil)
	h.Must(err)
	h.Tick()
	if h.WantState(first.TaskUUID, tasker.TaskStepsInProcess); c.New {
		t.Error("the last request was not merged")
	}
	next, err := h.debounced(`{"page": "next"}`, nil)
	h.Must(err)
	h.Must(h.Engine.CancelTask(t.Context(), next.TaskUUID, "me", "no"))
	if after, err := h.debounced(`{}`, nil); err != nil || !next.New || !after.New {
		t.Errorf("%+v, %v", after, err)
	}
}

func TestMergedRequestsTakeTheLastStartDeadline(t *testing.T) {
	h := newHarness(t)
	h.Template("index", enginetest.Step("a"))
	made, err := h.debounced(`{}`, nil)
	h.Must(err)
	wantBy := func(what string, want time.Duration) {
		t.Helper()
		got := h.Task(made.TaskUUID).StartBy
		require(t, got != nil && time.Until(*got).Round(time.Minute) == want,
			"%s: it is to be begun by %v, want in %s", what, got, want)
		if n := h.Count(`SELECT count(*) FROM tasker.task_starts WHERE task_uuid = $1 AND start_by = $2`, made.TaskUUID, *got); n != 1 {
			t.Fatalf("%s: %d servers look then", what, n)
		}
	}
	merge := func(change func(*tasker.NewTask)) {
		t.Helper()
		h.Must(errOf(h.debounced(`{}`, change)))
	}
	merge(func(r *tasker.NewTask) { r.StartWithin = time.Hour })
	wantBy("within an hour", 2*time.Hour)
	merge(func(r *tasker.NewTask) { r.StartBy = time.Now().Add(90 * time.Minute) })
	wantBy("by an instant", 90*time.Minute)
	merge(func(r *tasker.NewTask) { r.StartBy = time.Now().Add(3 * time.Hour) })
	wantBy("by a later one", 3*time.Hour)
	h.Exec(`UPDATE tasker.tasks SET start_at = start_at - interval '30 minutes'`)
	merge(nil)
	wantBy("half an hour later", 3*time.Hour+30*time.Minute)
	h.overdueNow()
	h.WantState(made.TaskUUID, tasker.TaskCancelled)
}

func TestPostponedTaskDoesNotStart(t *testing.T) {
	t.Parallel()
	for kind, step := range map[string]tasker.StepTemplate{postgres.StartTask: enginetest.Step("a"), postgres.DecideSteps: when("true", enginetest.Step("a"))} {
		t.Run(kind, func(t *testing.T) {
			h := newHarness(t)
			h.Template("index", step)
			made, err := h.debounced(`{"page": "one"}`, nil)
			h.Must(err)
			task := made.TaskUUID
			due := func() {
				h.Exec(`UPDATE tasker.workflow_steps s SET decide_at = s.decide_at - (t.start_at - now()) FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid`)
				h.Exec(`UPDATE tasker.tasks SET start_at = now()`)
			}
			due()
			h.Exec(`INSERT INTO tasker.deferred_work (kind, task_uuid, step_uuid, last_error, retry_at)
				SELECT $1, s.task_uuid, CASE $1 WHEN 'start' THEN '00000000-0000-0000-0000-000000000000' ELSE s.step_uuid END, 'no', now() FROM tasker.workflow_steps s`, kind)
			h.Must(errOf(h.debounced(`{"page": "two"}`, nil)))
			h.Must(errOf(h.Engine.RetryDeferred(t.Context())))
			h.WantCount(0, `SELECT count(*) FROM tasker.deferred_work`)
			h.ClaimNone()
			h.WantState(task, tasker.TaskPending)
			due()
			h.Tick()
			h.Complete("a")
			h.WantState(task, tasker.TaskComplete)
		})
	}
}

func TestConcurrentRequestsMerge(t *testing.T) {
	h := newHarness(t)
	h.Register(tasker.Template{
		Name: "index", Start: tasker.StartRules{Debounce: tasker.DebounceRules{Key: "context.page", WaitSeconds: 60}}, Steps: []tasker.StepTemplate{enginetest.Step("a")},
	})
	var made atomic.Int32
	var group sync.WaitGroup
	for range 30 {
		group.Go(func() {
			c, err := h.debounced(`{"page": "p"}`, func(r *tasker.NewTask) { r.Debounce = tasker.Debounce{} })
			if err != nil {
				t.Error(err)
			} else if c.New {
				made.Add(1)
			}
		})
	}
	group.Wait()
	n := h.Count(`SELECT sum((options ->> 'merged_requests')::int) FROM tasker.tasks`)
	check(t, made.Load() == 1 && n == 29, "%d tasks were made, and %d requests merged", made.Load(), n)
	at := time.Now().Add(time.Hour)
	now, err := h.debounced(`{"page": "p"}`, func(r *tasker.NewTask) { r.Debounce, r.StartAt = tasker.Debounce{}, at }) // which says more than the template
	h.Must(err)
	check(t, now.New, "a request that says when was merged")
	for want, change := range map[string]func(*tasker.NewTask){
		"debounce.wait_seconds":               func(r *tasker.NewTask) { r.Debounce.Wait = 0 },
		"debounce.max_wait_seconds":           func(r *tasker.NewTask) { r.Debounce.MaxWait = time.Second },
		"debounce.key: is missing":            func(r *tasker.NewTask) { r.Debounce.Key = "" },
		"debounce: conflicts with unique.key": func(r *tasker.NewTask) { r.Unique.Key = "u" },
		"conflicts with start_at and":         func(r *tasker.NewTask) { r.StartAt = at },
		"conflicts with idempotency_key":      func(r *tasker.NewTask) { r.IdempotencyKey = "i" },
	} {
		h.WantCode(errOf(h.debounced(`{"page": "p"}`, change)), tasker.Invalid, want)
	}
}
