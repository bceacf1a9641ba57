package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/enginetest"
)

// undoable gives a step a handler that undoes it.
func undoable(s tasker.StepTemplate) tasker.StepTemplate {
	s.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: tasker.DefaultUndoRetry()}
	return s
}

// order is a template of four steps, of which the second and the third run beside each other
// and two can be undone, besides the last.
func (h *harness) order() {
	h.Helper()
	reserve := undoable(enginetest.Step("reserve"))
	reserve.Handler.Initialization = json.RawMessage(`{"shop": 7}`)
	charge := undoable(enginetest.Step("charge", "reserve"))
	charge.OnFailure.Retry.MaxAttempts = 1
	h.Template("order", reserve, charge, enginetest.Step("tell", "reserve"), undoable(enginetest.Step("ship", "charge", "tell")))
}

// charged returns a task of the template whose first steps are complete, with the last in the
// hands of a worker.
func (h *harness) charged() (task tasker.ID, held tasker.Assignment) {
	h.Helper()
	h.order()
	task = h.Create("order")
	h.Accepted(success(h.ClaimOne("reserve"), `{"seat": 12}`))
	for _, a := range h.Claim() {
		h.Accepted(success(a, `"`+a.Name+`"`))
	}
	return task, h.ClaimOne("ship")
}

func (h *harness) compensate(task tasker.ID) {
	h.Helper()
	h.Must(h.Engine.CompensateTask(h.Context(), task, "ann", "customer withdrew"))
}

// wantUndone expects the phase and the outcome of a task.
func (h *harness) wantUndone(task tasker.ID, phase tasker.TaskPhase, outcome tasker.TaskOutcome) {
	h.Helper()
	got := h.Task(task)
	if got.Phase != phase || got.Outcome != outcome {
		h.Fatalf("the task is %s, in phase %q with outcome %q; want %q and %q", got.State, got.Phase, got.Outcome, phase, outcome)
	}
}

func TestCompensationUndoesStepsInReverse(t *testing.T) {
	h := newHarness(t)
	task, held := h.charged()
	before := h.History(task)
	h.compensate(task)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.wantUndone(task, tasker.Compensating, "")
	h.WantStep(task, "ship", tasker.StepCancelled, 1)
	if r := h.Report(success(held, `1`)); len(r.Rejected) != 1 || r.Rejected[0].Code != tasker.StaleLease {
		t.Errorf("the report of a step that was given up: %+v", r)
	}
	h.compensate(task) // again, it is nothing new

	undo := h.ClaimOne("undo:charge")
	if got := string(undo.DependencyResults["charge"]); got != `"charge"` || len(undo.Initialization) > 0 {
		t.Errorf("what undoes charge is given %s and %s", got, undo.Initialization)
	}
	if s := h.Step(task, "undo:charge"); s.UndoOf() != "charge" || s.Handler != "run" || s.MaxAttempts != 1 {
		t.Errorf("what undoes charge is %+v", s)
	}
	h.WantStep(task, "undo:reserve", tasker.StepPending, 0)
	h.Accepted(success(undo, `"back"`))
	undo = h.ClaimOne("undo:reserve")
	if got := strings.ReplaceAll(string(undo.DependencyResults["reserve"]), " ", ""); got != `{"seat":12}` || string(undo.Initialization) != `{"shop": 7}` || undo.MaxAttempts != 10 {
		t.Errorf("what undoes reserve is given %s and %s, %d attempts", got, undo.Initialization, undo.MaxAttempts)
	}
	h.Accepted(success(undo, `1`))
	h.WantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.Compensated)
	if got, want := h.History(task), before+" enqueuing_steps steps_in_process evaluating_results cancelled"; got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'task.compensating' AND actor = 'ann' AND (data ->> 'undone_steps')::int = 2`)
	h.compensate(task)
	h.wantUndone(task, "", tasker.Compensated)
	h.Cancel(task)
	h.wantUndone(task, "", tasker.Compensated)
}

func TestStepsCompletedTogetherAreUndoneInGraphOrder(t *testing.T) {
	h := newHarness(t)
	h.Template("tie", undoable(enginetest.Step("c", "b")), undoable(enginetest.Step("a")), undoable(enginetest.Step("b", "a")), enginetest.Step("last", "c"))
	task := h.Create("tie")
	for range 3 {
		h.Succeed(h.Claim()...)
	}
	h.Exec(`UPDATE tasker.workflow_steps SET completed_at = '2026-01-01' WHERE state = 'complete'`)
	h.compensate(task)
	for _, name := range []string{"undo:c", "undo:b", "undo:a"} {
		h.Complete(name)
	}
	h.wantUndone(task, "", tasker.Compensated)
}

func TestResolvingTheLastUndoEndsTheTask(t *testing.T) {
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	task := h.Create("one")
	h.Complete("a")
	h.Accepted(failure(h.ClaimOne("b"), false))
	h.WantState(task, tasker.TaskError)
	h.compensate(task)
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Accepted(failure(h.ClaimOne("undo:a"), false))
	h.WantState(task, tasker.TaskError)
	h.Operate(task, "undo:a", operation(tasker.ResolveManually))
	h.WantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.Compensated)
}

func TestCancellingStopsACompensation(t *testing.T) {
	h := newHarness(t)
	task, _ := h.charged()
	h.compensate(task)
	undo := h.ClaimOne("undo:charge")
	h.Must(h.Engine.CancelTask(t.Context(), task, "bob", "the wrong task"))
	h.WantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.CompensationStopped)
	h.Rejected(success(undo, `1`))
	h.WantStep(task, "undo:reserve", tasker.StepCancelled, 0)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "after all"), tasker.Conflict, "was cancelled during compensation")
}

func TestEndedTasksCannotBeCompensated(t *testing.T) {
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")))
	done, cancelled := h.Create("one"), h.Create("one")
	h.Cancel(cancelled)
	h.Complete("a")
	h.WantCode(h.Engine.CompensateTask(t.Context(), done, "ann", "r"), tasker.Conflict, "is complete and cannot be compensated")
	h.WantCode(h.Engine.CompensateTask(t.Context(), cancelled, "ann", "r"), tasker.Conflict, "was cancelled without compensation")
	h.WantCode(h.Engine.CompensateTask(t.Context(), tasker.NewID(), "ann", "r"), tasker.NotFound)
	h.wantUndone(done, "", "")
	h.wantUndone(cancelled, "", "")
}

func TestOnlyStepsWithAResultAreUndone(t *testing.T) {
	h := newHarness(t)
	h.Template("kinds", undoable(enginetest.Step("resolved")), undoable(enginetest.Step("completed", "resolved")), undoable(external("answered", "completed")), enginetest.Step("last", "answered"))
	task := h.Create("kinds")
	for step, action := range map[string]tasker.StepAction{"resolved": tasker.ResolveManually} {
		op := operation(action)
		op.Interrupt = true
		h.Operate(task, step, op)
	}
	op := operation(tasker.CompleteManually)
	op.Interrupt = true
	h.Operate(task, "completed", op)
	h.Answer(task, "answered", tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)})
	h.compensate(task)
	undo := h.ClaimOne("undo:answered")
	equal(t, "its input", string(undo.DependencyResults["answered"]), `"yes"`)
	h.Accepted(success(undo, `1`))
	undo = h.ClaimOne("undo:completed")
	equal(t, "its input", string(undo.DependencyResults["completed"]), `{"payment": 42}`)
	h.Accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)
}

func TestCompensationAppliesDeferredReportsFirst(t *testing.T) {
	h := newHarness(t)
	task, held := h.charged()
	h.poison("UPDATE ON tasker.workflow_steps", "NEW.state IN ('complete', 'error')")
	h.Accepted(success(held, `"shipped"`))
	h.WantStep(task, "ship", tasker.StepEnqueuedForOrchestration, 1)
	other := h.Create("order")
	h.Accepted(failure(h.ClaimOne("reserve"), true))
	h.WantStep(other, "reserve", tasker.StepEnqueuedForOrchestration, 1)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "r"), tasker.Internal)
	h.WantStep(task, "ship", tasker.StepEnqueuedForOrchestration, 1)
	h.wantUndone(task, "", "")

	h.heal()
	h.compensate(task)
	h.WantStep(task, "ship", tasker.StepComplete, 1)
	undo := h.ClaimOne("undo:ship")
	equal(t, "input of the undo of ship", string(undo.DependencyResults["ship"]), `"shipped"`)
	for _, next := range []string{"undo:charge", "undo:reserve"} {
		h.Accepted(success(undo, `1`))
		undo = h.ClaimOne(next)
	}
	h.Accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)

	h.compensate(other)
	h.WantStep(other, "reserve", tasker.StepCancelled, 1)
	h.wantUndone(other, "", tasker.NothingToCompensate)
}

func TestConcurrentCompensationsBeginOnce(t *testing.T) {
	h := newHarness(t)
	task, _ := h.charged()
	var all sync.WaitGroup
	for i := range 6 {
		act := h.Engine.CompensateTask
		if i == 3 {
			act = func(ctx context.Context, task tasker.ID, actor, reason string) error {
				return h.Engine.CancelTask(ctx, task, actor, reason)
			}
		}
		all.Go(func() {
			if err := act(t.Context(), task, "ann", "r"); err != nil && tasker.CodeOf(err) != tasker.Conflict {
				t.Error(err)
			}
		})
	}
	all.Wait()
	h.WantState(task, tasker.TaskCancelled)
	n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'task.compensating'`)
	check(t, n <= 1, "it began %d times", n)
}

func TestFailedCompensationChangesNothing(t *testing.T) {
	h := newHarness(t)
	task, held := h.charged()
	h.poison("INSERT ON tasker.audit_events", `NEW.action = 'task.compensating'`)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "r"), tasker.Internal)
	h.wantUndone(task, "", "")
	h.Accepted(success(held, `1`))
	h.WantState(task, tasker.TaskComplete)
}

func TestUndoStepWithoutWorkerExpires(t *testing.T) {
	h := newHarness(t)
	a := undoable(enginetest.Step("a"))
	a.OnFailure.Compensate = "unknown"
	h.Template("one", a, enginetest.Step("b", "a"))
	task := h.Create("one")
	h.Complete("a")
	h.compensate(task)
	h.expire()
	h.WantState(task, tasker.TaskError)
	h.wantUndone(task, tasker.Compensating, "")
	e := h.Entry(task)
	check(t, e.Reason == tasker.WorkerUnavailable, "the investigation is %+v", e)
	h.Worker = h.RegisterWorker("unknown")
	h.redispatch()
	h.Complete("undo:a")
	h.wantUndone(task, "", tasker.Compensated)
}

func TestWrittenOffTaskCanBeCompensated(t *testing.T) {
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", DueAfter: time.Hour})
	h.Complete("a")
	h.Accepted(failure(h.ClaimOne("b"), false))
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	_, _, err := h.DLQ.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
	_, err = h.Engine.OperateStep(t.Context(), task, h.Step(task, "b").UUID, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.Conflict, "was written off")
	h.compensate(task)
	due, err := h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{DueAt: new(time.Now().Add(2 * time.Hour)), Actor: "ann"})
	h.Must(err)
	h.wantDue("while it is undone", due, task, tasker.DeadlineAhead)
	h.dueLater(3 * time.Hour)
	h.wantDue("later", h.Task(task).Due, task, tasker.DeadlineOverdue, "overdue for")
	h.Accepted(failure(h.ClaimOne("undo:a"), false))
	h.WantState(task, tasker.TaskError)
	if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending || *e.StepUUID != h.Step(task, "undo:a").UUID {
		t.Errorf("the investigation is %+v", e)
	}
	h.Operate(task, "undo:a", operation(tasker.ResetForRetry))
	h.Complete("undo:a")
	h.wantUndone(task, "", tasker.Compensated)
}

// endUndone ends the investigation of a task as permanently failed, with compensation.
func (h *harness) endUndone(entry tasker.ID) (tasker.Entry, error) {
	h.Helper()
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	e, _, err := h.DLQ.Update(h.Context(), entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Compensate: true})
	return e, err
}

func TestInvestigationCanEndWithCompensation(t *testing.T) {
	h := newHarness(t)
	h.Template("two", undoable(enginetest.Step("a")), enginetest.Step("b", "a"), enginetest.Step("c", "a"))
	task := h.Create("two")
	h.Complete("a")
	var other tasker.Assignment
	for _, a := range h.Claim() {
		if other = a; a.Name == "b" {
			h.Accepted(failure(a, false))
		}
	}
	entry := h.Entry(task).UUID
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	_, _, err := h.DLQ.Update(t.Context(), entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.WantCode(err, tasker.Conflict, "steps in flight") // without it a task that goes on is not written off
	resolved := tasker.EntryManuallyResolved
	_, _, err = h.DLQ.Update(t.Context(), entry, tasker.EntryUpdate{Status: &resolved, Notes: &notes, ResolvedBy: &by, Compensate: true})
	h.WantCode(err, tasker.Invalid, "only allowed with resolution_status permanently_failed")
	_, _, err = dlq.New(h.DB, dlq.Options{}).Update(t.Context(), entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Compensate: true})
	h.WantCode(err, tasker.Invalid, "compensation is not available")

	for range 2 {
		e, err := h.endUndone(entry)
		h.Must(err)
		equal(t, "the investigation is", e.ResolutionStatus, tasker.EntryPermanentlyFailed)
		h.wantUndone(task, tasker.Compensating, "")
	}
	h.WantCount(2, `SELECT count(*) FROM tasker.workflow_steps WHERE state = 'cancelled'`)
	h.WantCount(1, `SELECT count(*) FROM tasker.task_history WHERE event = 'compensate' AND actor = 'ann' AND reason LIKE '%ended as permanently_failed'`)
	// What fails to be undone is an investigation of its own, and can be repaired.
	h.Accepted(failure(h.ClaimOne("undo:a"), false))
	h.WantState(task, tasker.TaskError)
	if e := h.Entry(task); e.UUID == entry || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %+v", e)
	}
	h.act(task, "undo:a", tasker.ResetForRetry, "")
	h.Complete("undo:a")
	h.wantUndone(task, "", tasker.Compensated)
	h.Rejected(success(other, `1`))
}

func TestFailedCompensationIsWatchedAgain(t *testing.T) {
	h := newHarness(t)
	h.Template("two", undoable(enginetest.Step("a")), undoable(enginetest.Step("b")), enginetest.Step("c", "a", "b"))
	task := h.Create("two")
	each := func(outcome func(tasker.Assignment) tasker.Outcome) {
		h.Helper()
		list := []tasker.Outcome{}
		for _, a := range h.Claim() {
			list = append(list, outcome(a))
		}
		h.Accepted(list...)
	}
	each(func(a tasker.Assignment) tasker.Outcome { return success(a, `1`) })
	h.Accepted(failure(h.ClaimOne("c"), false))
	h.Must(errOf(h.endUndone(h.Entry(task).UUID)))
	each(func(a tasker.Assignment) tasker.Outcome { return failure(a, false) })
	h.WantState(task, tasker.TaskError)
	status, notes, by := tasker.EntryCancelled, "it is undone by hand", "ann"
	_, _, err := h.DLQ.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
	h.act(task, "undo:a", tasker.ResolveManually, "")
	h.WantState(task, tasker.TaskError)
	h.WantCount(1, `SELECT count(*) FROM tasker.tasks WHERE attend_by > clock_timestamp()`)
}

func TestCompensationOfAWrittenOffTaskCanBeRequestedLater(t *testing.T) {
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	stuck := func() (tasker.ID, tasker.ID) {
		task := h.Create("one")
		h.Complete("a")
		h.Accepted(failure(h.ClaimOne("b"), false))
		return task, h.Entry(task).UUID
	}
	task, entry := stuck()
	h.Abandon(task)
	h.wantUndone(task, "", "")
	h.Must(errOf(h.endUndone(entry)))
	h.wantUndone(task, tasker.Compensating, "")
	h.Complete("undo:a")

	task, entry = stuck()
	h.Cancel(task)
	h.WantCode(errOf(h.endUndone(entry)), tasker.Conflict, "cancelled without compensation")
	e := h.Entry(task)
	check(t, e.ResolutionStatus == tasker.EntryPending, "the investigation is %s", e.ResolutionStatus)

	h.Template("none", enginetest.Once(enginetest.Step("a")))
	task = h.Create("none")
	for _, a := range h.Claim() {
		if a.TaskUUID == task {
			h.Accepted(failure(a, true))
		}
	}
	h.Must(errOf(h.endUndone(h.Entry(task).UUID)))
	h.wantUndone(task, "", tasker.NothingToCompensate)
	h.WantState(task, tasker.TaskCancelled)
}

func TestCompensatedChildCountsAsGivenUp(t *testing.T) {
	h := newHarness(t)
	for _, undo := range []bool{true, false} {
		pack := enginetest.Step("pack")
		if undo {
			pack = undoable(pack)
		}
		name := fmt.Sprint("archive-", undo)
		h.Template(name, pack, enginetest.Once(enginetest.Step("store", "pack")))
		s := child(name, "archive")
		s.OnChild = tasker.OnChild{PermanentlyFailed: tasker.ChildSkips}
		h.Template("order-"+name, s, joined(tasker.JoinNoneFailed, enginetest.Step("end", "archive")))
		task := h.Create("order-" + name)
		h.Tick()
		kid := h.childOf(task, "archive")
		h.Complete("pack")
		h.Accepted(failure(h.ClaimOne("store"), true))
		h.Must(errOf(h.endUndone(h.Entry(kid).UUID)))
		h.Tick()
		h.WantStep(task, "archive", tasker.StepSkipped, 0)
		if undo {
			h.Complete("undo:pack")
			h.wantUndone(kid, "", tasker.Compensated)
		}
		h.Tick()
		h.Complete("end")
		h.WantState(task, tasker.TaskComplete)
	}
}

func TestEndOfACompensationIsNotifiedOnce(t *testing.T) {
	h := newHarness(t)
	told := func(task tasker.ID) (list []tasker.NotificationData) {
		t.Helper()
		rows, err := h.Admin().Query(t.Context(), `SELECT data FROM tasker.messages WHERE topic = $1 AND subject_kind = $2 AND subject_id = $3 AND namespaces = ARRAY[$4]`,
			tasker.TaskCompensatedTopic, tasker.TaskSubject, task, h.Space)
		h.Must(err)
		docs, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		h.Must(err)
		for _, doc := range docs {
			var data tasker.NotificationData
			h.Must(json.Unmarshal(doc, &data))
			list = append(list, data)
		}
		return list
	}
	want := func(task tasker.ID, outcome tasker.TaskOutcome, severity tasker.Severity) {
		t.Helper()
		h.wantUndone(task, "", outcome)
		list := told(task)
		if len(list) != 1 || list[0].State != string(outcome) || list[0].Severity != severity || list[0].Task == nil || *list[0].Task != task ||
			list[0].Template != "one" || list[0].BeganAt.IsZero() || list[0].Path != "/ui/tasks/"+task.String() || !strings.Contains(list[0].Summary, "of one has ended") {
			t.Errorf("told %+v, want that it is %s", list, outcome)
		}
	}
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	done := func() tasker.ID {
		task := h.Create("one")
		h.Complete("a")
		h.ClaimOne("b")
		return task
	}
	task := done()
	h.compensate(task)
	if list := told(task); len(list) != 0 {
		t.Errorf("told %+v before it has ended", list)
	}
	h.Complete("undo:a")
	want(task, tasker.Compensated, tasker.Low)
	h.compensate(task)
	want(task, tasker.Compensated, tasker.Low)

	task = done()
	h.compensate(task)
	h.Cancel(task)
	want(task, tasker.CompensationStopped, tasker.Medium)

	task = h.Create("one")
	h.compensate(task)
	want(task, tasker.NothingToCompensate, tasker.Low)

	task = h.Create("one")
	h.Cancel(task)
	if list := told(task); len(list) != 0 {
		t.Errorf("told %+v of a task that nobody wanted undone", list)
	}
}
