package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	h.accepted(success(h.claimOne("reserve"), `{"seat": 12}`))
	for _, a := range h.claim() {
		h.accepted(success(a, `"`+a.Name+`"`))
	}
	return task, h.claimOne("ship")
}

func (h *harness) compensate(task tasker.ID) {
	h.Helper()
	h.Must(h.Engine.CompensateTask(h.Context(), task, "ann", "customer withdrew"))
}

// wantUndone expects the phase and the outcome of a task.
func (h *harness) wantUndone(task tasker.ID, phase tasker.TaskPhase, outcome tasker.TaskOutcome) {
	h.Helper()
	got := h.taskOf(task)
	if got.Phase != phase || got.Outcome != outcome {
		h.Fatalf("the task is %s, in phase %q with outcome %q; want %q and %q", got.State, got.Phase, got.Outcome, phase, outcome)
	}
}

func TestACancelledTaskIsUndoneInReverse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, held := h.charged()
	before := h.history(task)
	h.compensate(task)
	h.wantState(task, tasker.TaskStepsInProcess)
	h.wantUndone(task, tasker.Compensating, "")
	h.wantStep(task, "ship", tasker.StepCancelled, 1)
	if r := h.report(success(held, `1`)); len(r.Rejected) != 1 || r.Rejected[0].Code != tasker.StaleLease {
		t.Errorf("the report of a step that was given up: %+v", r)
	}
	h.compensate(task) // again, it is nothing new

	undo := h.claimOne("undo:charge")
	if got := string(undo.DependencyResults["charge"]); got != `"charge"` || len(undo.Initialization) > 0 {
		t.Errorf("what undoes charge is given %s and %s", got, undo.Initialization)
	}
	if s := h.step(task, "undo:charge"); s.UndoOf() != "charge" || s.Handler != "run" || s.MaxAttempts != 1 {
		t.Errorf("what undoes charge is %+v", s)
	}
	h.wantStep(task, "undo:reserve", tasker.StepPending, 0)
	h.accepted(success(undo, `"back"`))
	undo = h.claimOne("undo:reserve")
	if got := strings.ReplaceAll(string(undo.DependencyResults["reserve"]), " ", ""); got != `{"seat":12}` || string(undo.Initialization) != `{"shop": 7}` || undo.MaxAttempts != 10 {
		t.Errorf("what undoes reserve is given %s and %s, %d attempts", got, undo.Initialization, undo.MaxAttempts)
	}
	h.accepted(success(undo, `1`))
	h.wantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.Compensated)
	if got, want := h.history(task), before+" enqueuing_steps steps_in_process evaluating_results cancelled"; got != want {
		t.Errorf("history %s\nwant    %s", got, want)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'task.compensating' AND actor = 'ann' AND (data ->> 'undone_steps')::int = 2`); n != 1 {
		t.Errorf("%d rows in the audit log", n)
	}
	h.compensate(task)
	h.wantUndone(task, "", tasker.Compensated)
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "again"))
	h.wantUndone(task, "", tasker.Compensated)
}

// Steps that ended in one transaction are undone in the reverse order of the graph.
func TestStepsThatEndedTogetherAreUndoneByTheGraph(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("tie", undoable(enginetest.Step("c", "b")), undoable(enginetest.Step("a")), undoable(enginetest.Step("b", "a")), enginetest.Step("last", "c"))
	task := h.Create("tie")
	for range 3 {
		for _, a := range h.claim() {
			h.accepted(success(a, `1`))
		}
	}
	h.Exec(`UPDATE tasker.workflow_steps SET completed_at = '2026-01-01' WHERE state = 'complete'`)
	h.compensate(task)
	for _, name := range []string{"undo:c", "undo:b", "undo:a"} {
		h.accepted(success(h.claimOne(name), `1`))
	}
	h.wantUndone(task, "", tasker.Compensated)
}

// What fails to be undone is an investigation as any other, and its repair goes on.
func TestAFailureToUndoIsRepaired(t *testing.T) {
	t.Parallel()
	for action, behind := range map[tasker.StepAction]bool{tasker.ResetForRetry: true, tasker.ResolveManually: false, tasker.CompleteManually: false} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task, _ := h.charged()
			h.compensate(task)
			h.accepted(failure(h.claimOne("undo:charge"), true))
			h.wantState(task, tasker.TaskError)
			h.wantUndone(task, tasker.Compensating, "")
			if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending || e.Reason != tasker.MaxRetriesExceeded || e.StepUUID == nil || *e.StepUUID != h.step(task, "undo:charge").UUID {
				t.Errorf("the investigation is %+v", e)
			}
			h.compensate(task) // it is being undone already
			h.wantState(task, tasker.TaskError)
			_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "undo:charge").UUID, operation(action))
			h.Must(err)
			if behind {
				h.accepted(success(h.claimOne("undo:charge"), `1`))
			}
			h.accepted(success(h.claimOne("undo:reserve"), `1`))
			h.wantUndone(task, "", tasker.Compensated)
		})
	}
}

// The last step that undoes is settled by hand: the task ends with the operator's act.
func TestTheLastUndoIsSettledByHand(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	task := h.Create("one")
	h.accepted(success(h.claimOne("a"), `1`))
	h.accepted(failure(h.claimOne("b"), false))
	h.wantState(task, tasker.TaskError)
	h.compensate(task)
	h.wantState(task, tasker.TaskStepsInProcess)
	h.accepted(failure(h.claimOne("undo:a"), false))
	h.wantState(task, tasker.TaskError)
	_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "undo:a").UUID, operation(tasker.ResolveManually))
	h.Must(err)
	h.wantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.Compensated)
}

// Cancelling a task that is being undone stops that.
func TestCancelStopsACompensation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, _ := h.charged()
	h.compensate(task)
	undo := h.claimOne("undo:charge")
	h.Must(h.Engine.CancelTask(t.Context(), task, "bob", "the wrong task"))
	h.wantState(task, tasker.TaskCancelled)
	h.wantUndone(task, "", tasker.CompensationStopped)
	if r := h.report(success(undo, `1`)); len(r.Rejected) != 1 {
		t.Errorf("a report after that: %+v", r)
	}
	h.wantStep(task, "undo:reserve", tasker.StepCancelled, 0)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "after all"), tasker.Conflict, "was cancelled during compensation")
}

func TestNothingIsToBeUndone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("plain", enginetest.Step("a"), enginetest.Step("b", "a"))
	plain := h.Create("plain")
	h.accepted(success(h.claimOne("a"), `1`))
	h.order()
	early := h.Create("order")
	for _, task := range []tasker.ID{plain, early} {
		h.compensate(task)
		h.wantState(task, tasker.TaskCancelled)
		h.wantUndone(task, "", tasker.NothingToCompensate)
		h.compensate(task)
	}
	if list := h.claim(); len(list) > 0 {
		t.Errorf("claimed %v", names(list))
	}
}

func TestWhatCannotBeCompensated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")))
	done, cancelled := h.Create("one"), h.Create("one")
	h.Must(h.Engine.CancelTask(t.Context(), cancelled, "ann", "no"))
	h.accepted(success(h.claimOne("a"), `1`))
	h.WantCode(h.Engine.CompensateTask(t.Context(), done, "ann", "r"), tasker.Conflict, "is complete and cannot be compensated")
	h.WantCode(h.Engine.CompensateTask(t.Context(), cancelled, "ann", "r"), tasker.Conflict, "was cancelled without compensation")
	h.WantCode(h.Engine.CompensateTask(t.Context(), tasker.NewID(), "ann", "r"), tasker.NotFound)
	h.wantUndone(done, "", "")
	h.wantUndone(cancelled, "", "")
}

// A step that a person settled without a result is not undone: nothing is known of it. One
// that was completed with a result is, and so is one that was answered from outside.
func TestWhichStepsAreUndone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("kinds", undoable(enginetest.Step("resolved")), undoable(enginetest.Step("completed", "resolved")), undoable(external("answered", "completed")), enginetest.Step("last", "answered"))
	task := h.Create("kinds")
	for step, action := range map[string]tasker.StepAction{"resolved": tasker.ResolveManually} {
		op := operation(action)
		op.Interrupt = true
		_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, step).UUID, op)
		h.Must(err)
	}
	op := operation(tasker.CompleteManually)
	op.Interrupt = true
	_, err := h.Engine.OperateStep(t.Context(), task, h.step(task, "completed").UUID, op)
	h.Must(err)
	_, err = h.Engine.CompleteExternal(t.Context(), task, h.step(task, "answered").UUID, tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}, "desk")
	h.Must(err)
	h.compensate(task)
	undo := h.claimOne("undo:answered")
	if got := string(undo.DependencyResults["answered"]); got != `"yes"` {
		t.Errorf("it is given %s", got)
	}
	h.accepted(success(undo, `1`))
	undo = h.claimOne("undo:completed")
	if got := string(undo.DependencyResults["completed"]); got != `{"payment": 42}` {
		t.Errorf("it is given %s", got)
	}
	h.accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)
}

// A report that is kept counts: what its step has done is undone. While the step cannot be concluded
// nothing changes, and of a failure there is nothing to undo.
func TestAStepWhoseReportIsKeptIsUndone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, held := h.charged()
	h.fails("UPDATE ON tasker.workflow_steps FOR EACH ROW WHEN (NEW.state IN ('complete', 'error'))")
	h.accepted(success(held, `"shipped"`))
	h.wantStep(task, "ship", tasker.StepEnqueuedForOrchestration, 1)
	other := h.Create("order")
	h.accepted(failure(h.claimOne("reserve"), true))
	h.wantStep(other, "reserve", tasker.StepEnqueuedForOrchestration, 1)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "r"), tasker.Internal)
	h.wantStep(task, "ship", tasker.StepEnqueuedForOrchestration, 1)
	h.wantUndone(task, "", "")

	h.Exec(`DROP TRIGGER broken ON tasker.workflow_steps`)
	h.compensate(task)
	h.wantStep(task, "ship", tasker.StepComplete, 1)
	undo := h.claimOne("undo:ship")
	if got := string(undo.DependencyResults["ship"]); got != `"shipped"` {
		t.Errorf("what undoes ship is given %s", got)
	}
	for _, next := range []string{"undo:charge", "undo:reserve"} {
		h.accepted(success(undo, `1`))
		undo = h.claimOne(next)
	}
	h.accepted(success(undo, `1`))
	h.wantUndone(task, "", tasker.Compensated)

	h.compensate(other)
	h.wantStep(other, "reserve", tasker.StepCancelled, 1)
	h.wantUndone(other, "", tasker.NothingToCompensate)
}

// Two operators at once, and a cancellation beside them: one begins, and one may stop it.
func TestOperatorsCompensateAtOnce(t *testing.T) {
	t.Parallel()
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
	h.wantState(task, tasker.TaskCancelled)
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'task.compensating'`); n > 1 {
		t.Errorf("it began %d times", n)
	}
}

// A transaction that fails on its way leaves the task as it was.
func TestACompensationThatFailsLeavesTheTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, held := h.charged()
	h.fails(`INSERT ON tasker.audit_events FOR EACH ROW WHEN (NEW.action = 'task.compensating')`)
	h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "r"), tasker.Internal)
	h.wantUndone(task, "", "")
	h.accepted(success(held, `1`))
	h.wantState(task, tasker.TaskComplete)
}

// Nobody has the handler that undoes: the step expires in the queue, which is an investigation,
// and is handed out when a worker has it.
func TestNobodyUndoes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := undoable(enginetest.Step("a"))
	a.OnFailure.Compensate = "unknown"
	h.Template("one", a, enginetest.Step("b", "a"))
	task := h.Create("one")
	h.accepted(success(h.claimOne("a"), `1`))
	h.compensate(task)
	h.expire()
	h.wantState(task, tasker.TaskError)
	h.wantUndone(task, tasker.Compensating, "")
	if e := h.Entry(task); e.Reason != tasker.WorkerUnavailable {
		t.Errorf("the investigation is %+v", e)
	}
	h.worker = h.RegisterWorker("unknown")
	h.redispatch()
	h.accepted(success(h.claimOne("undo:a"), `1`))
	h.wantUndone(task, "", tasker.Compensated)
}

// A task that was written off may be undone, and what fails then is repaired as any other.
func TestATaskThatWasWrittenOffIsUndone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "one", DueAfter: time.Hour})
	h.accepted(success(h.claimOne("a"), `1`))
	h.accepted(failure(h.claimOne("b"), false))
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	_, _, err := h.DLQ.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
	_, err = h.Engine.OperateStep(t.Context(), task, h.step(task, "b").UUID, operation(tasker.ResetForRetry))
	h.WantCode(err, tasker.Conflict, "was written off")
	h.compensate(task)
	due, err := h.Engine.ChangeDue(t.Context(), task, tasker.DueUpdate{DueAt: new(time.Now().Add(2 * time.Hour)), Actor: "ann"})
	h.Must(err)
	h.wantDue("while it is undone", due, task, tasker.DeadlineAhead)
	h.dueLater(3 * time.Hour)
	h.wantDue("later", h.taskOf(task).Due, task, tasker.DeadlineOverdue, "overdue for")
	h.accepted(failure(h.claimOne("undo:a"), false))
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending || *e.StepUUID != h.step(task, "undo:a").UUID {
		t.Errorf("the investigation is %+v", e)
	}
	_, err = h.Engine.OperateStep(t.Context(), task, h.step(task, "undo:a").UUID, operation(tasker.ResetForRetry))
	h.Must(err)
	h.accepted(success(h.claimOne("undo:a"), `1`))
	h.wantUndone(task, "", tasker.Compensated)
}

// Whatever the graph is, and wherever the task stands when it is given up: what is complete and
// can be undone is undone, the last first, though some of it fails and is repaired. What holds
// in each database is checked at the end.
func TestWhateverATaskHasDoneIsUndone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for seed := range uint64(25) {
		dice := rand.New(rand.NewPCG(seed, 7))
		name := fmt.Sprint("story-", seed)
		var steps []tasker.StepTemplate
		for i := range 2 + dice.IntN(6) {
			var needs []string
			for j := range i {
				if dice.IntN(3) == 0 {
					needs = append(needs, fmt.Sprint("s", j))
				}
			}
			s := enginetest.Once(enginetest.Step(fmt.Sprint("s", i), needs...))
			if dice.IntN(4) > 0 {
				s = undoable(s)
				s.OnFailure.Retry.MaxAttempts = 1 + dice.IntN(2)
			}
			steps = append(steps, s)
		}
		h.Template(name, steps...)
		task := h.Create(name)
		for range dice.IntN(len(steps)) {
			list := h.claim()
			dice.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			for _, a := range list {
				switch dice.IntN(5) {
				case 0:
					h.accepted(failure(a, false))
				case 1: // it stays with its worker
				default:
					h.accepted(success(a, `1`))
				}
			}
		}
		if h.State(task) == tasker.TaskComplete {
			h.WantCode(h.Engine.CompensateTask(t.Context(), task, "ann", "r"), tasker.Conflict)
			continue
		}
		h.undoAll(task, dice)
	}
}

// undoAll gives a task up and sees to it that all is undone, in the order that its steps say.
func (h *harness) undoAll(task tasker.ID, dice *rand.Rand) {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	h.compensate(task)
	var undone []tasker.Step
	for range 1000 {
		if h.State(task) == tasker.TaskCancelled {
			break
		}
		for _, a := range h.claim() {
			if dice.IntN(3) == 0 {
				h.accepted(failure(a, dice.IntN(2) == 0))
				continue
			}
			h.accepted(success(a, `1`))
			undone = append(undone, h.step(task, strings.TrimPrefix(a.Name, tasker.UndoPrefix)))
		}
		h.pass()
		if h.State(task) == tasker.TaskError {
			for _, s := range h.stepsOf(task) {
				if s.State == tasker.StepError {
					_, err := h.Engine.OperateStep(h.Context(), task, s.UUID, operation(tasker.ResetForRetry))
					h.Must(err)
				}
			}
		}
	}
	want := 0
	for _, s := range list {
		template := h.taskOf(task)
		if _, _, err := h.Engine.StepTemplate(h.Context(), template.TemplateUUID, tasker.UndoPrefix+s.Name); err == nil && s.State == tasker.StepComplete {
			want++
		}
	}
	if len(undone) != want {
		h.Errorf("%d steps were undone, want %d", len(undone), want)
	}
	for i := range undone[min(1, len(undone)):] {
		if undone[i].CompletedAt.Before(*undone[i+1].CompletedAt) {
			h.Errorf("%s was undone before %s, which was completed later", undone[i].Name, undone[i+1].Name)
		}
	}
	if outcome := map[bool]tasker.TaskOutcome{true: tasker.Compensated, false: tasker.NothingToCompensate}[want > 0]; h.State(task) == tasker.TaskCancelled {
		h.wantUndone(task, "", outcome)
	} else {
		h.Errorf("the task is %s", h.State(task))
	}
}

func (h *harness) stepsOf(task tasker.ID) []tasker.Step {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	return list
}

// endUndone ends the investigation of a task as permanently failed, with compensation.
func (h *harness) endUndone(entry tasker.ID) (tasker.Entry, error) {
	h.Helper()
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	e, _, err := h.DLQ.Update(h.Context(), entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Compensate: true})
	return e, err
}

// One request ends an investigation as permanently failed and begins to undo its task, whatever
// is on its way; made again it changes nothing.
func TestATaskThatIsWrittenOffIsUndoneAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("two", undoable(enginetest.Step("a")), enginetest.Step("b", "a"), enginetest.Step("c", "a"))
	task := h.Create("two")
	h.accepted(success(h.claimOne("a"), `1`))
	var other tasker.Assignment
	for _, a := range h.claim() {
		if other = a; a.Name == "b" {
			h.accepted(failure(a, false))
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
		if e.ResolutionStatus != tasker.EntryPermanentlyFailed {
			t.Errorf("the investigation is %s", e.ResolutionStatus)
		}
		h.wantUndone(task, tasker.Compensating, "")
	}
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'cancelled'`); n != 2 {
		t.Errorf("%d steps are cancelled, want 2", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.task_history WHERE event = 'compensate' AND actor = 'ann' AND reason LIKE '%ended as permanently_failed'`); n != 1 {
		t.Errorf("the compensation began %d times", n)
	}
	// What fails to be undone is an investigation of its own, and can be repaired.
	h.accepted(failure(h.claimOne("undo:a"), false))
	h.wantState(task, tasker.TaskError)
	if e := h.Entry(task); e.UUID == entry || e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %+v", e)
	}
	h.act(task, "undo:a", tasker.ResetForRetry, "")
	h.accepted(success(h.claimOne("undo:a"), `1`))
	h.wantUndone(task, "", tasker.Compensated)
	if r := h.report(success(other, `1`)); len(r.Rejected) != 1 {
		t.Errorf("the report of a step that was given up: %+v", r)
	}
}

// When something happens in a task that is being undone and stays in error, somebody looks after it,
// though it was written off.
func TestATaskThatIsUndoneAndStaysInErrorIsWatched(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("two", undoable(enginetest.Step("a")), undoable(enginetest.Step("b")), enginetest.Step("c", "a", "b"))
	task := h.Create("two")
	each := func(outcome func(tasker.Assignment) tasker.Outcome) {
		h.Helper()
		list := []tasker.Outcome{}
		for _, a := range h.claim() {
			list = append(list, outcome(a))
		}
		h.accepted(list...)
	}
	each(func(a tasker.Assignment) tasker.Outcome { return success(a, `1`) })
	h.accepted(failure(h.claimOne("c"), false))
	_, err := h.endUndone(h.Entry(task).UUID)
	h.Must(err)
	each(func(a tasker.Assignment) tasker.Outcome { return failure(a, false) })
	h.wantState(task, tasker.TaskError)
	status, notes, by := tasker.EntryCancelled, "it is undone by hand", "ann"
	_, _, err = h.DLQ.Update(t.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
	h.act(task, "undo:a", tasker.ResolveManually, "")
	h.wantState(task, tasker.TaskError)
	if n := h.Count(`SELECT count(*) FROM tasker.tasks WHERE attend_by > clock_timestamp()`); n != 1 {
		t.Error("nobody is to look after the task")
	}
}

// A task that was written off before is undone by the same request with compensation; one that is
// cancelled is not, and then nothing is written.
func TestWhatIsWrittenOffWithCompensation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("one", undoable(enginetest.Step("a")), enginetest.Step("b", "a"))
	stuck := func() (tasker.ID, tasker.ID) {
		task := h.Create("one")
		h.accepted(success(h.claimOne("a"), `1`))
		h.accepted(failure(h.claimOne("b"), false))
		return task, h.Entry(task).UUID
	}
	task, entry := stuck()
	h.giveUp(task)
	h.wantUndone(task, "", "")
	_, err := h.endUndone(entry)
	h.Must(err)
	h.wantUndone(task, tasker.Compensating, "")
	h.accepted(success(h.claimOne("undo:a"), `1`))

	task, entry = stuck()
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	_, err = h.endUndone(entry)
	h.WantCode(err, tasker.Conflict, "cancelled without compensation")
	if e := h.Entry(task); e.ResolutionStatus != tasker.EntryPending {
		t.Errorf("the investigation is %s", e.ResolutionStatus)
	}

	h.Template("none", enginetest.Once(enginetest.Step("a")))
	task = h.Create("none")
	for _, a := range h.claim() {
		if a.TaskUUID == task {
			h.accepted(failure(a, true))
		}
	}
	_, err = h.endUndone(h.Entry(task).UUID)
	h.Must(err)
	h.wantUndone(task, "", tasker.NothingToCompensate)
	h.wantState(task, tasker.TaskCancelled)
}

// A child that is written off and undone counts as given up for its parent step, also when there
// is nothing to undo and it is cancelled at once.
func TestAChildThatIsWrittenOffAndUndone(t *testing.T) {
	t.Parallel()
	for _, undo := range []bool{true, false} {
		h := newHarness(t)
		pack := enginetest.Step("pack")
		if undo {
			pack = undoable(pack)
		}
		h.Template("archive", pack, enginetest.Once(enginetest.Step("store", "pack")))
		s := child("archive", "archive")
		s.OnChild = tasker.OnChild{PermanentlyFailed: tasker.ChildSkips}
		h.Template("order", s, joined(tasker.JoinNoneFailed, enginetest.Step("end", "archive")))
		task := h.Create("order")
		h.tick()
		kid := h.childOf(task, "archive")
		h.accepted(success(h.claimOne("pack"), `1`))
		h.accepted(failure(h.claimOne("store"), true))
		_, err := h.endUndone(h.Entry(kid).UUID)
		h.Must(err)
		h.tick()
		h.wantStep(task, "archive", tasker.StepSkipped, 0)
		if undo {
			h.accepted(success(h.claimOne("undo:pack"), `1`))
			h.wantUndone(kid, "", tasker.Compensated)
		}
		h.tick()
		h.accepted(success(h.claimOne("end"), `1`))
		h.wantState(task, tasker.TaskComplete)
	}
}

// People are told once how a compensation has ended, and nothing of a task that nobody wanted undone.
func TestTheEndOfACompensationIsTold(t *testing.T) {
	t.Parallel()
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
		h.accepted(success(h.claimOne("a"), `1`))
		h.claimOne("b")
		return task
	}
	task := done()
	h.compensate(task)
	if list := told(task); len(list) != 0 {
		t.Errorf("told %+v before it has ended", list)
	}
	h.accepted(success(h.claimOne("undo:a"), `1`))
	want(task, tasker.Compensated, tasker.Low)
	h.compensate(task)
	want(task, tasker.Compensated, tasker.Low)

	task = done()
	h.compensate(task)
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "leave it"))
	want(task, tasker.CompensationStopped, tasker.Medium)

	task = h.Create("one")
	h.compensate(task)
	want(task, tasker.NothingToCompensate, tasker.Low)

	task = h.Create("one")
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	if list := told(task); len(list) != 0 {
		t.Errorf("told %+v of a task that nobody wanted undone", list)
	}
}
