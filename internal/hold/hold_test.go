package hold_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is an engine with holds, and one worker for every handler.
type harness struct {
	*enginetest.Harness
	holds  *hold.Service
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	e := enginetest.New(t)
	h := &harness{Harness: e, holds: hold.New(e.DB, e.Engine, hold.Options{})}
	h.holds.SetTurn(time.Minute) // however slow the machine is
	h.Template("order", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.Template("refund", enginetest.Step("charge"))
	h.worker = h.RegisterWorker("run")
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`)
	return h
}

func (h *harness) tasks(template string, n int) []tasker.ID {
	h.Helper()
	list := make([]tasker.ID, n)
	for i := range list {
		list[i] = h.Create(template)
	}
	return list
}

func succeeds(a tasker.Assignment) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`{}`)}
}

// fails is the result of an attempt that may be tried again.
func fails(a tasker.Assignment) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "HTTP 503 from the gateway", Type: "Gateway", Retryable: true}}
}

// claim hands out up to n steps.
func (h *harness) claim(n int) []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, n, 0)
	h.Must(err)
	return list
}

// work claims up to n steps and reports of each.
func (h *harness) work(n int, result func(tasker.Assignment) tasker.Outcome) int {
	h.Helper()
	did := 0
	for did < n {
		list := h.claim(min(n-did, 100))
		if len(list) == 0 {
			break
		}
		h.report(list, result)
		did += len(list)
	}
	return did
}

// report reports what becomes of steps.
func (h *harness) report(list []tasker.Assignment, result func(tasker.Assignment) tasker.Outcome) {
	h.Helper()
	outcomes := make([]tasker.Outcome, len(list))
	for i, a := range list {
		outcomes[i] = result(a)
	}
	r, err := h.Engine.Report(h.Context(), h.worker, outcomes, 0)
	h.Must(err)
	if len(r.Rejected) > 0 {
		h.Fatalf("reports are rejected: %+v", r.Rejected)
	}
}

// step returns the step of a task.
func (h *harness) step(task tasker.ID) tasker.ID {
	h.Helper()
	var id tasker.ID
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT step_uuid FROM tasker.workflow_steps WHERE task_uuid = $1`, task).Scan(&id))
	return id
}

func (h *harness) hold(s tasker.HoldScope) tasker.Hold {
	h.Helper()
	n := tasker.NewHold{HoldScope: s, For: time.Hour, Owner: "bo", Reason: "the gateway is away"}
	n.Namespace = enginetest.Namespace
	held, err := h.holds.Begin(h.Context(), n)
	h.Must(err)
	return held
}

// aside has the held steps put aside.
func (h *harness) aside() {
	h.Helper()
	_, err := h.holds.ParkSteps(h.Context())
	h.Must(err)
}

// judge lets servers go on with holds, a few times.
func (h *harness) judge(times int) {
	h.Helper()
	for range times {
		_, err := h.holds.AdvanceHolds(h.Context())
		h.Must(err)
	}
}

func (h *harness) now(id tasker.ID) tasker.HoldDetail {
	h.Helper()
	d, err := h.holds.Detail(h.Context(), id)
	h.Must(err)
	return d
}

func (h *harness) want(id tasker.ID, state tasker.HoldState, held int64) tasker.HoldDetail {
	h.Helper()
	d := h.now(id)
	if d.State != state || d.Held != held {
		h.Errorf("the hold is %s and holds %d, want %s and %d; %+v", d.State, d.Held, state, held, d.History)
	}
	return d
}

var by = hold.Change{Actor: "bo", Reason: "it is back"}

// From the moment a hold has begun no step of its scope is handed out, whether or not it was
// put aside, and all others are.
func TestHeldStepsAreNotHandedOut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scope tasker.HoldScope
		free  int // steps that are handed out all the same
	}{
		"a namespace":     {tasker.HoldScope{}, 0},
		"a handler":       {tasker.HoldScope{Handler: "run"}, 0},
		"another handler": {tasker.HoldScope{Handler: "walk"}, 7},
		"a template":      {tasker.HoldScope{TaskName: "refund"}, 5},
		"a step":          {tasker.HoldScope{StepName: "charge"}, 0},
		"another step":    {tasker.HoldScope{StepName: "ship"}, 7},
		"all of it":       {tasker.HoldScope{Handler: "run", TaskName: "order", StepName: "charge"}, 2},
	} {
		for _, aside := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t)
				h.tasks("order", 5)
				h.tasks("refund", 2)
				held := h.hold(tt.scope)
				if aside {
					h.aside()
					h.want(held.UUID, tasker.HoldActive, int64(7-tt.free))
				}
				if got := len(h.claim(100)); got != tt.free {
					t.Errorf("%d steps are handed out, want %d", got, tt.free)
				}
			})
		}
	}
}

// A hold of a map step holds its items, wherever they are in the list, and so does a hold of a case whose
// failed step is an item. A hold of one item holds this item.
func TestAHoldOfAMapStepHoldsItsItems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scope  tasker.HoldScope
		ofCase bool
		free   int
	}{
		"the map step":      {tasker.HoldScope{StepName: "m"}, false, 1},
		"with its template": {tasker.HoldScope{TaskName: "list", StepName: "m"}, false, 1},
		"one item":          {tasker.HoldScope{StepName: "m[3]"}, false, 4},
		"another step":      {tasker.HoldScope{StepName: "other"}, false, 4},
		"a case":            {tasker.HoldScope{}, true, 1},
	} {
		for _, aside := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t)
				items := enginetest.Step("m")
				items.Type, items.Over, items.Retry.MaxAttempts = tasker.MapStep, "[1, 2, 3, 4]", 1
				h.Template("list", items, enginetest.Step("other"))
				scope := tasker.NewHold{HoldScope: tt.scope, For: time.Hour, Owner: "bo", Reason: "the gateway is away"}
				scope.Namespace = enginetest.Namespace
				if tt.ofCase {
					id := h.failedItem()
					scope.HoldScope, scope.CaseID = tasker.HoldScope{}, &id
				}
				task := h.Create("list")
				_, err := h.Engine.Tick(t.Context())
				h.Must(err)
				held, err := h.holds.Begin(t.Context(), scope)
				h.Must(err)
				if aside {
					h.aside()
					h.want(held.UUID, tasker.HoldActive, int64(5-tt.free))
				}
				if got := len(h.claim(100)); got != tt.free {
					t.Errorf("%d steps are handed out, want %d", got, tt.free)
				}
				if got, err := explain.New(h.DB, explain.Options{}).Explain(t.Context(), task); tt.free == 1 && (err != nil || !strings.Contains(fmt.Sprintf("%+v", got), held.UUID.String())) {
					t.Errorf("the explanation does not name the hold: %+v, %v", got, err)
				}
			})
		}
	}
}

// failedItem has one item of a list fail for good, and returns the case of it.
func (h *harness) failedItem() tasker.ID {
	h.Helper()
	h.Create("list")
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
	h.report(h.claim(100), func(a tasker.Assignment) tasker.Outcome {
		if a.Name != "m[3]" {
			return succeeds(a)
		}
		return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "HTTP 503", Type: "Gateway"}}
	})
	h.FindCases()
	list, _, err := h.DB.Cases(h.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 2}})
	h.Must(err)
	if len(list) != 1 || list[0].StepName != "m" {
		h.Fatalf("cases %+v", list)
	}
	return list[0].ID
}

// What is named by a message of a broker is not handed out either.
func TestHeldStepsAreNotTaken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.Create("refund")
	step := tasker.StepRef{TaskUUID: task, StepUUID: h.step(task)}
	h.hold(tasker.HoldScope{Handler: "run"})
	for _, aside := range []bool{false, true} {
		if aside {
			h.aside()
		}
		got, err := h.Engine.TakeSteps(h.Context(), h.worker, []tasker.StepRef{step})
		h.Must(err)
		if len(got) > 0 {
			t.Errorf("a held step is taken (put aside: %v)", aside)
		}
	}
}

// A release lets 1, 10 and 100 go, each when the ones before have succeeded, and then the rest.
func TestReleaseInWaves(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 130)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	_, err := h.holds.Release(h.Context(), held.UUID, nil, by)
	h.Must(err)
	for _, wave := range []int{1, 10, 100} {
		h.judge(3) // however often they look
		h.tasks("refund", 1)
		if got := h.work(1000, succeeds); got != wave {
			t.Fatalf("%d steps are handed out, want a wave of %d", got, wave)
		}
		h.aside() // what came meanwhile
	}
	h.judge(4)
	d := h.want(held.UUID, tasker.HoldEnded, 0)
	if d.Released != 133 || d.Blocks {
		t.Errorf("it let %d go, want 133; blocks: %v", d.Released, d.Blocks)
	}
	if got := h.work(1000, succeeds); got != 22 {
		t.Errorf("the rest is %d, want 22", got)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE state = 'complete'`); n != 133 {
		t.Errorf("%d tasks are complete", n)
	}
	if n := h.Count(`SELECT max(attempts) FROM tasker.workflow_steps`); n != 1 {
		t.Errorf("a step has used %d attempts", n)
	}
}

// When a wave fails the hold holds again, a quarter longer, and the attempt is given back.
func TestAWaveThatFails(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 30)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	_, err := h.holds.Release(h.Context(), held.UUID, []int{5}, by)
	h.Must(err)
	h.judge(1)
	if got := h.work(1, fails) + h.work(100, succeeds); got != 5 {
		t.Fatalf("%d steps are handed out, want 5", got)
	}
	h.judge(2)
	d := h.want(held.UUID, tasker.HoldActive, 25)
	if longer := d.EndsAt.Sub(held.EndsAt); longer < 0 || !d.Blocks {
		t.Errorf("it ends %s later, blocks: %v", longer, d.Blocks)
	}
	if n := h.Count(`SELECT max(attempts) FROM tasker.workflow_steps WHERE state = 'error'`); n != 0 {
		t.Errorf("the attempt of the wave counts: %d", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.step_history WHERE event = 'fail' AND (attempt <> 1 OR (detail->>'attempt')::int <> 1)`); n != 0 {
		t.Errorf("%d failures have another attempt in the history than the worker was given", n)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET next_retry_at = now() WHERE next_retry_at IS NOT NULL`)
	h.Must(h.DB.InTx(h.Context(), func(tx *postgres.Tx) error {
		tasks, _, err := h.DB.TasksWithDueRetries(h.Context(), postgres.RetryMark{}, 10)
		if err == nil {
			_, err = tx.RetryDue(h.Context(), tasks)
		}
		if err == nil {
			_, err = tx.SettleTasks(h.Context(), tasks, postgres.Operator{})
		}
		return err
	}))
	h.aside()
	h.want(held.UUID, tasker.HoldActive, 26)
}

// A probe lets one step go, and nothing else.
func TestProbe(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 5)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	probe := func() {
		t.Helper()
		_, err := h.holds.Probe(h.Context(), held.UUID, by)
		h.Must(err)
		h.judge(2)
	}
	probe()
	_, err := h.holds.Probe(h.Context(), held.UUID, by)
	h.WantCode(err, tasker.Conflict, "already running")
	first := h.claim(10)
	if len(first) != 1 {
		t.Fatalf("a probe lets %d steps go", len(first))
	}
	h.report(first, fails)
	h.judge(1)
	probe()
	second := h.claim(10)
	if len(second) != 1 || second[0].StepUUID == first[0].StepUUID {
		t.Fatalf("the next probe is %d steps, or the same one", len(second))
	}
	h.report(second, succeeds)
	h.judge(1)
	d := h.want(held.UUID, tasker.HoldActive, 3)
	if d.Probes != 2 || d.FailedProbes != 1 || d.Releases[0].Outcome != tasker.ReleaseSucceeded || d.Releases[1].Outcome != tasker.ReleaseFailed {
		t.Errorf("%d probes, %d failed: %+v", d.Probes, d.FailedProbes, d.Releases)
	}
	// One that nobody takes is held again.
	probe()
	h.Exec(`UPDATE tasker.hold_releases SET released_at = released_at - interval '2 minutes' WHERE outcome IS NULL`)
	h.judge(1)
	h.aside()
	d = h.want(held.UUID, tasker.HoldActive, 3)
	if n := h.Count(`SELECT count(*) FROM tasker.hold_releases WHERE outcome = 'no_answer'`); n != 1 {
		t.Errorf("%d probes have no answer: %+v", n, d.Releases)
	}
}

// While a step is held neither its time in the queue nor the times of its task run.
func TestHeldTimeDoesNotCountTowardDeadlines(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.Create("refund")
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = now() - interval '1 hour'`)
	h.aside() // what is written by hand is in the queue again
	h.Exec(`UPDATE tasker.held_steps SET held_at = held_at - interval '2 hours'`)
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', stale_at = stale_at - interval '2 hours', warn_at = warn_at - interval '2 hours',
		created_at = created_at - interval '2 hours', ends_at = now() - interval '90 minutes'`)
	sweep := func() {
		t.Helper()
		_, err := h.Engine.ExpireSteps(h.Context())
		h.Must(err)
		_, err = h.DLQ.Sweep(h.Context())
		h.Must(err)
		if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq`); n != 0 {
			t.Fatalf("%d investigations of a held task", n)
		}
		if s := h.State(task); s != tasker.TaskStepsInProcess {
			t.Fatalf("the task is %s", s)
		}
	}
	sweep()
	_, err := h.holds.Release(h.Context(), held.UUID, []int{}, by)
	h.Must(err)
	h.judge(2)
	sweep()
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE ends_at > now() + interval '29 minutes' AND ends_at < now() + interval '31 minutes'`); n != 1 {
		t.Errorf("the time that it was held is not added to what the task may take")
	}
	if got := h.work(10, succeeds); got != 1 {
		t.Errorf("%d steps are handed out after the release", got)
	}
}

// A hold ends by itself: it warns, and then lets go in waves.
func TestAHoldHasAnEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 3)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	later := func(d string) {
		h.Exec(`UPDATE tasker.holds SET began_at = began_at - $1::interval, ends_at = ends_at - $1::interval`, d)
		h.judge(1)
	}
	later("40 minutes")
	if d := h.now(held.UUID); d.WarnedAt != nil {
		t.Errorf("it warns after 40 of 60 minutes")
	}
	later("9 minutes")
	if d := h.now(held.UUID); d.WarnedAt == nil {
		t.Errorf("it does not warn after 49 of 60 minutes")
	}
	_, err := h.holds.Extend(h.Context(), held.UUID, tasker.HoldExtension{For: time.Hour, Owner: "anna"}, by)
	h.Must(err)
	if d := h.now(held.UUID); d.WarnedAt != nil || d.Owner != "anna" {
		t.Errorf("after it was extended: %+v", d.Hold)
	}
	later("61 minutes")
	if d := h.now(held.UUID); d.State != tasker.HoldReleasing {
		t.Errorf("it is %s after its time", d.State)
	}
}

// People are told when a hold begins, when it is about to end, when it fails, and when it is over.
func TestPeopleAreToldOfHolds(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 3)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`UPDATE tasker.holds SET began_at = began_at - interval '50 minutes', ends_at = ends_at - interval '50 minutes'`)
	h.judge(1)
	for _, result := range []func(tasker.Assignment) tasker.Outcome{fails, succeeds} {
		_, err := h.holds.Release(h.Context(), held.UUID, []int{1}, by)
		h.Must(err)
		h.judge(1)
		h.work(1, result)
		h.judge(3)
	}
	h.want(held.UUID, tasker.HoldEnded, 0)
	var topics []string
	h.Must(h.Admin().QueryRow(h.Context(), `
		SELECT array_agg(topic ORDER BY position) FROM tasker.messages WHERE subject_kind = 'hold' AND subject_id = $1 AND namespaces = '{shop}'`, held.UUID).Scan(&topics))
	if diff := cmp.Diff([]string{"hold.began", "hold.ending", "hold.failed", "hold.ended"}, topics); diff != "" {
		t.Errorf("what people are told (-want +got):\n%s", diff)
	}
}

// A task that cannot be written holds up no other when held steps are let go, and follows when
// it can.
func TestFailingTaskDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.tasks("refund", 12)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	h.Exec(`CREATE FUNCTION tasker.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`)
	h.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.task_uuid = '` + tasks[3].String() + `') EXECUTE FUNCTION tasker.refuse()`)
	_, err := h.holds.Release(h.Context(), held.UUID, []int{}, by)
	h.Must(err)
	h.judge(8)
	h.want(held.UUID, tasker.HoldReleasing, 1)
	if n := h.work(100, succeeds); n != 11 {
		t.Fatalf("%d steps are let go, want all but the one that cannot be", n)
	}
	h.Exec(`DROP TRIGGER refuse ON tasker.workflow_steps`)
	h.Exec(`DROP FUNCTION tasker.refuse()`)
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now()`)
	h.judge(3)
	h.want(held.UUID, tasker.HoldEnded, 0)
	if n := h.work(100, succeeds) + 10*h.Count(`SELECT count(*) FROM tasker.deferred_work`); n != 1 {
		t.Errorf("%d steps follow", n)
	}
}

// What happens to a held step in the meantime is respected, and that it could not be let go is no
// concern then.
func TestHeldStepsCanBeOperated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.tasks("refund", 3)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	h.aside()
	var failed []postgres.Failed
	for _, task := range append(tasks, tasker.NewID()) { // the last one is gone
		failed = append(failed, postgres.Failed{StepRef: tasker.StepRef{TaskUUID: task}, Err: errors.New("no")})
	}
	_, err := h.DB.DeferWork(h.Context(), postgres.ReleaseHeld, failed)
	h.Must(err)
	deferred := func(want int) {
		t.Helper()
		if n := h.Count(`SELECT count(*) FROM tasker.deferred_work`); n != want {
			t.Errorf("%d tasks are tried again, want %d", n, want)
		}
	}
	h.Must(h.Engine.CancelTask(h.Context(), tasks[0], "anna", "not wanted"))
	deferred(3)
	_, err = h.Engine.OperateStep(h.Context(), tasks[1], h.step(tasks[1]), tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "anna", Reason: "done by hand", Interrupt: true})
	h.Must(err)
	h.want(held.UUID, tasker.HoldActive, 1)
	deferred(2)
	h.Exec(`UPDATE tasker.deferred_work SET retry_at = now()`)
	h.Exec(`UPDATE tasker.workflow_steps SET state = 'cancelled', expires_at = NULL, unwritten = 0 WHERE task_uuid = $1`, tasks[2]) // as psql would
	h.Exec(`UPDATE tasker.tasks SET state = 'cancelled', stale_at = NULL, warn_at = NULL WHERE task_uuid = $1`, tasks[2])
	h.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at) VALUES ($1, 'steps_in_process', 'cancelled', 'cancel', now())`, tasks[2])
	h.Exec(`INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at, moves_id, enqueued_at)
		SELECT task_uuid, step_uuid, 'enqueued', 'cancelled', 'cancel', 1, now(), moves_id, state_since FROM tasker.workflow_steps WHERE task_uuid = $1`, tasks[2])
	_, err = h.holds.Release(h.Context(), held.UUID, []int{}, by)
	h.Must(err)
	_, err = h.holds.Prune(h.Context())
	h.Must(err)
	deferred(1)
	h.judge(3)
	h.want(held.UUID, tasker.HoldEnded, 0)
	deferred(0)
	if got := len(h.claim(10)); got != 0 {
		t.Errorf("%d steps are handed out", got)
	}
}

func TestBeginRefuses(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	good := tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: "shop"}, For: time.Hour, Owner: "bo", Reason: "why"}
	for name, tt := range map[string]struct {
		change func(*tasker.NewHold)
		words  string
	}{
		"no namespace":   {func(n *tasker.NewHold) { n.Namespace = "" }, "namespace is missing"},
		"no owner":       {func(n *tasker.NewHold) { n.Owner = "" }, "owner is missing"},
		"no reason":      {func(n *tasker.NewHold) { n.Reason = "" }, "reason is missing"},
		"no end":         {func(n *tasker.NewHold) { n.For = 0 }, "needs an end"},
		"two ends":       {func(n *tasker.NewHold) { at := time.Now(); n.Until = &at }, "exactly one of"},
		"too long":       {func(n *tasker.NewHold) { n.For = 25 * time.Hour }, "24h0m0s"},
		"in the past":    {func(n *tasker.NewHold) { at := time.Now().Add(-time.Hour); n.Until, n.For = &at, 0 }, "in the future"},
		"far away":       {func(n *tasker.NewHold) { at := time.Now().Add(25 * time.Hour); n.Until, n.For = &at, 0 }, "within 24h"},
		"not UTF-8":      {func(n *tasker.NewHold) { n.Handler = "\xff" }, "UTF-8"},
		"case and scope": {func(n *tasker.NewHold) { id := tasker.NewID(); n.CaseID = &id }, "uses the scope of the case"},
	} {
		n := good
		tt.change(&n)
		_, err := h.holds.Begin(h.Context(), n)
		if tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		h.WantCode(err, tasker.Invalid, tt.words)
	}
	held, err := h.holds.Begin(h.Context(), good)
	h.Must(err)
	_, err = h.holds.Begin(h.Context(), good)
	h.WantCode(err, tasker.Conflict, held.UUID.String(), "already has this scope")
	_, err = h.holds.Release(h.Context(), held.UUID, []int{0}, by)
	h.WantCode(err, tasker.Invalid, "wave of 0")
	_, err = h.holds.Probe(h.Context(), held.UUID, by)
	h.WantCode(err, tasker.Conflict, "has no parked steps")
	_, err = h.holds.Detail(h.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound)
	_, err = h.holds.Release(h.Context(), held.UUID, nil, by)
	h.Must(err)
	_, err = h.holds.Extend(h.Context(), held.UUID, tasker.HoldExtension{For: time.Hour}, by)
	h.WantCode(err, tasker.Conflict, "releasing")
	_, err = h.holds.Release(h.Context(), held.UUID, nil, by)
	h.WantCode(err, tasker.Conflict, "already")
}

// No more holds are open at a time than the limit says.
func TestHoldsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`INSERT INTO tasker.holds (hold_uuid, kind, namespace, handler, reason, owner, ends_at)
		SELECT gen_random_uuid(), 'manual', 'shop', n::text, 'r', 'bo', now() + interval '1 hour' FROM generate_series(2, $1::int) n`, tasker.MaxOpenHoldsPerNamespace)
	held := h.hold(tasker.HoldScope{Handler: "run"})
	again := tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: "shop"}, For: time.Hour, Owner: "bo", Reason: "why"}
	_, err := h.holds.Begin(h.Context(), again)
	h.WantCode(err, tasker.Conflict, "50 holds of namespace shop are open")
	other := again
	other.Namespace = "attic"
	_, err = h.holds.Begin(h.Context(), other) // one namespace takes nothing from another one
	h.Must(err)
	h.Exec(`INSERT INTO tasker.holds (hold_uuid, kind, namespace, reason, owner, ends_at)
		SELECT gen_random_uuid(), 'manual', 'n' || n, 'r', 'bo', now() + interval '1 hour' FROM generate_series(2, $1::int) n`, tasker.MaxOpenHolds-tasker.MaxOpenHoldsPerNamespace)
	other.Handler = "run"
	_, err = h.holds.Begin(h.Context(), other)
	h.WantCode(err, tasker.Conflict, "100 holds are open")
	_, err = h.holds.Release(h.Context(), held.UUID, []int{}, by)
	h.Must(err)
	h.judge(2)
	_, err = h.holds.Begin(h.Context(), again)
	h.Must(err)
}

// From the moment Begin has returned no server hands a step of the scope out, while workers
// ask all of them without a rest.
func TestAHoldIsExactInEveryServer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.tasks("refund", 200)
	var wg sync.WaitGroup
	var stop atomic.Bool
	var rounds [3]atomic.Int64
	for i := range rounds {
		e := engine.New(enginetest.Open(t, h.URL, postgres.Options{}), engine.Options{})
		wg.Go(func() {
			for ; !stop.Load(); rounds[i].Add(1) {
				list, err := e.Claim(t.Context(), h.worker, 2, 0)
				if err != nil {
					t.Error(err)
					return
				}
				for _, a := range list {
					if _, err := e.Report(t.Context(), h.worker, []tasker.Outcome{succeeds(a)}, 2); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	h.Eventually("some are claimed", func() bool {
		return h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'complete'`) > 20
	})
	held := h.hold(tasker.HoldScope{Handler: "run"})
	for i := range rounds { // what was under way has its answer
		under := rounds[i].Load()
		h.Eventually("a server has answered", func() bool { return rounds[i].Load() > under })
	}
	var begun time.Time
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT clock_timestamp()`).Scan(&begun))
	for range 20 {
		h.aside()
		h.Count(`SELECT count(*) FROM pg_sleep(0.01)`)
	}
	stop.Store(true)
	wg.Wait()
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE last_attempted_at > $1`, begun); n != 0 {
		t.Errorf("%d steps were handed out after the hold had begun", n)
	}
	d := h.now(held.UUID)
	if done := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state <> 'enqueued'`); d.Held == 0 || int(d.Held)+done != 200 {
		t.Errorf("%d are held and %d are done, of 200", d.Held, done)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'enqueued' AND attempts > 1`); n != 0 {
		t.Errorf("%d held steps have used attempts", n)
	}
}

// The sweep leaves ten thousand held tasks alone.
func TestTheSweepLeavesHeldTasksAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const tasks = 500
	list := make([]tasker.NewTask, 250)
	for i := range list {
		list[i] = tasker.NewTask{Namespace: enginetest.Namespace, Name: "refund"}
	}
	for range tasks / len(list) {
		_, err := h.Engine.CreateTasks(h.Context(), list)
		h.Must(err)
	}
	held := h.hold(tasker.HoldScope{TaskName: "refund"})
	for h.now(held.UUID).Held < tasks {
		h.aside()
	}
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', stale_at = stale_at - interval '2 hours', warn_at = warn_at - interval '2 hours'`)
	n, err := h.DLQ.SweepAll(h.Context())
	h.Must(err)
	if n != 0 {
		t.Errorf("the sweep moves %d held tasks", n)
	}
}
