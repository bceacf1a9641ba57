package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/web"
)

// A stuck is a task whose step charge has failed permanently: reserve is complete, ship
// and receipt wait for charge, and announce for both.
type stuck struct {
	*harness
	task, step tasker.ID
	entry      tasker.ID
}

var errDeclined = errors.New("card declined by the bank")

func newStuck(t *testing.T, change ...func(*web.Options)) *stuck {
	t.Helper()
	h := newHarness(t, change...)
	h.Template("order", step("reserve"), step("charge", "reserve"), step("ship", "charge"), step("receipt", "charge"), step("announce", "ship", "receipt"))
	return h.stuckTask()
}

// stuckTask makes another stuck task of the same template.
func (h *harness) stuckTask() *stuck {
	h.Helper()
	st := &stuck{harness: h, task: h.create("order", `{"total": 12.50}`)}
	h.work(func(a tasker.Assignment) error {
		if a.TaskUUID == st.task && a.Name == "charge" {
			return errDeclined
		}
		return nil
	})
	st.step, st.entry = st.stepOf("charge").UUID, h.Entry(st.task).UUID
	return st
}

func (st *stuck) stepOf(name string) tasker.Step {
	st.Helper()
	steps := st.steps(st.task)
	for _, s := range steps {
		if s.Name == name {
			return s
		}
	}
	st.Fatalf("no step %s", name)
	return tasker.Step{}
}

func (st *stuck) page() string { return "/ui/investigations/" + st.entry.String() }

// action is the path of an action on the step that failed.
func (st *stuck) action(word string) string {
	return fmt.Sprintf("/ui/tasks/%s/steps/%s/%s", st.task, st.step, word)
}

// goesOn works until nothing is left to do, and returns what became of the task.
func (st *stuck) goesOn() tasker.TaskState {
	st.Helper()
	st.work(func(tasker.Assignment) error { return nil })
	task, err := st.DB.Task(st.Context(), st.task)
	st.Must(err)
	return task.State
}

func (st *stuck) entryNow() tasker.Entry {
	st.Helper()
	e, err := st.DB.Entry(st.Context(), st.entry)
	st.Must(err)
	return e
}

// shows checks that a reply shows each of these texts.
func (h *harness) shows(r reply, status int, texts ...string) {
	h.Helper()
	if r.status != status {
		h.Errorf("%s is answered with %d, want %d", r.url, r.status, status)
	}
	for _, want := range texts {
		if !strings.Contains(html.UnescapeString(r.text), want) {
			h.Errorf("%s does not show %q:\n%s", r.url, want, r.text)
		}
	}
}

func TestAnInvestigationSaysWhatHappened(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.shows(st.get(st.page()), http.StatusOK,
		"<h1>shop/order</h1>", "a handler reported a permanent failure", "investigation pending",
		"Step charge of shop/order failed in attempt 1 of 1", "“card declined by the bank”", "Steps ship, receipt and announce are waiting for it.",
		"Check first.", "Complete the step by hand",
		"charge: error · 1 of 1; needs an operator", "/ui/tasks/"+st.task.String()+"#step-"+st.step.String(),
		st.action("reset")+"?entry="+st.entry.String(), "Attempt 1", "No changes since", "6 unchanged lines",
		"created</strong> by <bdi>tasker", "blocked by failures", "Complete evidence", st.entry.String(), st.task.String(), "inline")
}

func TestAnInvestigationShowsWhatHasChanged(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.operateStep(st.task, st.step, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "the bank is back"})
	st.work(func(a tasker.Assignment) error {
		if a.Name == "ship" {
			return errors.New("no truck")
		}
		return nil
	})
	st.shows(st.get(st.page()), http.StatusOK,
		"≠ changed", "no truck", "after the investigation was opened", "step failed</strong> by", "3 unchanged lines", ">complete</span>",
		"ship failed <time", "reset step ship;", "Reset <bdi>ship</bdi>", "Attempts of <bdi>ship</bdi>", "Step announce is waiting for step ship.",
		"; needs an operator", "ship</a></bdi> <span class=\"hint\">the failed step")
	st.shows(st.get("/ui/?view=entries"), http.StatusOK, "ship since <time", "opened for charge")
	st.Must(st.Engine.CancelTask(t.Context(), st.task, "ann", "given up"))
	r := st.get(st.page())
	st.shows(r, http.StatusOK, "The task is cancelled: its steps can no longer be changed.", "<bdi>ann</bdi>", "given up")
	if strings.Contains(r.text, "/reset?") {
		t.Error("offers an action on a step of a cancelled task")
	}
}

func TestAnInvestigationKnowsRelatedInvestigations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	tasks := h.fail("order", "charge", "card of order @ declined", 4)
	path := func(task tasker.ID) string {
		e := h.Entry(task)
		return "/ui/investigations/" + e.UUID.String()
	}
	h.sees(h.get(path(tasks[0])), "3 other investigations")
	status, notes, by := tasker.EntryCancelled, "the bank was <b>away</b>", "Kim"
	e := h.Entry(tasks[1])
	h.update(e.UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: by})
	h.sees(h.get(path(tasks[0])), "2 other investigations", "1 cancelled", "the bank was &lt;b&gt;away&lt;/b&gt;", e.UUID.String())
	h.Template("refund", step("pay"))
	h.sees(h.get(path(h.fail("refund", "pay", "closed", 1)[0])), "First occurrence")
}

// Option A by mouse: the cause is fixed, the step runs again, and the task completes.
func TestAStepIsResetByMouse(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	tab := st.open(st.page())
	tab.Sees("What happened")
	tab.Follow(`.actions a[data-key="r"]`)
	tab.Sees("The step becomes enqueued, with 1 attempt left.")
	tab.Sees("Expected task state: steps in process")
	tab.Type("#reason", "the bank is back")
	tab.Type("#actor", "ann")
	tab.Follow("main form button")
	tab.Sees("Step charge was reset. It is now enqueued, and the task has steps in progress.")
	if got := st.goesOn(); got != tasker.TaskComplete {
		t.Fatalf("the task is %s", got)
	}
	tab.Reload()
	tab.Sees("The task is complete.")
	tab.Follow(`a[data-key="e"]`)
	tab.Sees("Resolved")
	tab.Type("#notes", "the bank was down")
	tab.Follow("main form button")
	tab.Sees("The investigation has ended: manually resolved.")
	tab.Sees("investigation manually resolved")
	if e := st.entryNow(); e.ResolutionStatus != tasker.EntryManuallyResolved || *e.ResolvedBy != "ann" || *e.ResolutionNotes != "the bank was down" {
		t.Errorf("the investigation is %+v", e)
	}
}

// Option C by keyboard alone: invalid JSON is refused while it is typed, and the steps
// behind receive what was typed.
func TestAStepIsCompletedByKeys(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	tab := st.open(st.page())
	tab.KeysAway("c")
	tab.Sees("Results of its dependencies")
	tab.Is(`document.activeElement.select(), true`)
	tab.Keys(`{"paid": true`)
	tab.Sees("Invalid JSON")
	tab.Accessible()
	tab.Keys("}")
	tab.Until(`document.getElementById("result-problem").hidden`)
	tab.Keys("\t\tpaid by phone\tann\t")
	tab.KeysAway("\r")
	tab.Sees("Step charge was completed. It is now complete, and the task has steps in progress.")
	st.receives(`{"paid": true}`)
	tab.Keys("\t")
	tab.KeysAway("e")
	tab.Keys("fixed\t\t\t")
	tab.KeysAway("\r")
	tab.Sees("The investigation has ended: manually resolved.")
	if e := st.entryNow(); e.ResolutionStatus != tasker.EntryManuallyResolved || *e.ResolvedBy != "ann" {
		st.Errorf("the investigation is %+v", e)
	}
}

// receives works, and checks what the step behind is given.
func (st *stuck) receives(want string) {
	st.Helper()
	var got json.RawMessage
	st.work(func(a tasker.Assignment) error {
		if a.Name == "ship" {
			got = a.DependencyResults["charge"]
		}
		return nil
	})
	if string(got) != want {
		st.Errorf("the step behind received %s, want %s", got, want)
	}
}

// Five attempts are shown, the others on demand; of a long history the last moves.
func TestLongHistoryIsTruncated(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	for i := range 15 {
		st.operateStep(st.task, st.step, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "again"})
		st.work(func(tasker.Assignment) error { return fmt.Errorf("failure no %d", i) })
	}
	r := st.get(st.page())
	st.shows(r, http.StatusOK, "11 earlier attempts", "failure no 0", "failure no 14", "card declined by the bank")
	st.Exec(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
		SELECT t.task_uuid, p.from_state, p.to_state, p.event, now() + n * interval '1 minute'
		FROM tasker.tasks t, generate_series(1, 30) n, (VALUES (1, 'error', 'enqueuing_steps', 'enqueue_steps'), (2, 'enqueuing_steps', 'steps_in_process', 'start'),
			(3, 'steps_in_process', 'evaluating_results', 'evaluate'), (4, 'evaluating_results', 'blocked_by_failures', 'block'),
			(5, 'blocked_by_failures', 'error', 'give_up')) AS p (ordinal, from_state, to_state, event)
		ORDER BY n, p.ordinal`)
	r = st.get(st.page())
	st.shows(r, http.StatusOK, "Limited to the newest 100; the", `error <span class="hint">after 1 min</span>`, "92 earlier state changes")
	if n := rowsOfHistory(r); n != 100 {
		t.Errorf("shows %d state changes", n)
	}
}

// Of large evidence the beginning is shown, and where all of it is.
func TestLargeEvidenceIsCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	big := h.create("order", fmt.Sprintf(`{"x": %[1]q, "y": %[1]q}`, strings.Repeat("0123456789abcdef", 10_000)))
	h.work(func(tasker.Assignment) error { return errDeclined })
	e := h.Entry(big)
	r := h.get("/ui/investigations/" + e.UUID.String())
	h.shows(r, http.StatusOK, "shortened, ", "Complete document: <code>GET /v1/dlq/entry/"+e.UUID.String()+"</code>")
	if n := strings.Count(r.text, "0123456789abcdef"); n > (256<<10)/16 {
		t.Errorf("shows %d bytes of the context", 16*n)
	}
}

// next claims a step, once the backoff of one has passed.
func (h *harness) next() []tasker.Assignment {
	h.Helper()
	for {
		for _, l := range h.Engine.Loops() {
			_, err := l.Pass(h.Context())
			h.Must(err)
		}
		list := h.claim(1)
		if len(list) > 0 {
			return list
		}
	}
}

// A step that was tried again shows each attempt, and how others like it ended.
func TestAttemptsAndSimilarInvestigationsAreShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	charge := step("charge")
	charge.Retry.MaxAttempts = 3
	h.Template("order", charge, step("ship", "charge"))
	var st *stuck
	for i := range 2 {
		st = &stuck{harness: h, task: h.create("order", `{}`)}
		for range 3 {
			list := h.next()
			h.report(tasker.Outcome{Lease: list[0].Lease(), Failure: &tasker.Failure{
				Message: "connection refused", Type: "net.Error", Retryable: true, Context: json.RawMessage(`{"host": "db-1"}`),
			}})
		}
		e := h.Entry(st.task)
		st.entry, st.step = e.UUID, *e.StepUUID
		if i == 0 {
			h.shows(h.get(st.page()), http.StatusOK, "First occurrence")
			h.shows(h.post(st.page()+"/update", "seen="+st.seen(), "actor=ann", "status=manually_resolved", "notes=restarted <db-1>"), http.StatusOK)
		}
	}
	h.shows(h.get(st.page()), http.StatusOK, "failed in all 3 attempts, the last at", "connection refused", "Attempt 1<", "Attempt 2<", "Attempt 3<", "type net.Error",
		`"host": "db-1"`, "Same failure in other tasks", "1 manually resolved", "restarted <db-1>", "waits for 1 of its 1 dependencies")
}

// A task that stood still has no step to blame; the keys work on the step in the row.
func TestAStepIsChosenByKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	pay := step("payment")
	pay.Type, pay.Handler = tasker.ExternalStep, tasker.Handler{}
	h.Template("order", step("reserve"), pay, step("ship", "reserve", "payment"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	h.work(func(tasker.Assignment) error { return nil })
	h.Exec(`UPDATE tasker.tasks SET state_since = state_since - interval '2 hours', warn_at = warn_at - interval '2 hours',
		stale_at = stale_at - interval '2 hours', created_at = created_at - interval '2 hours'`)
	_, err := h.DLQ.Sweep(t.Context())
	h.Must(err)
	e := h.Entry(st.task)
	st.entry = e.UUID
	tab := h.open(st.page())
	tab.Sees("was in state waiting for dependencies for 2 h 0 min (limit 1 h 0 min): step payment waited for an external result.")
	tab.Sees("The staleness sweep detected it")
	tab.Keys("jj")
	tab.KeysAway("c")
	tab.Sees("Complete step payment")
	tab.Sees("1 other step is enqueued: ship.")
	tab.Is(`document.activeElement.select(), true`)
	tab.Keys(`"paid"` + "\t\tby phone\tann\t")
	tab.KeysAway("\r")
	tab.Sees("Step payment was completed. It is now complete, and the task has steps in progress.")
	if got := st.goesOn(); got != tasker.TaskComplete {
		t.Errorf("the task is %s", got)
	}
}
