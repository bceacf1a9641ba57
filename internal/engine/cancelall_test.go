package engine_test

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func TestCancelBatchCancelsOpenTasksOfAFilter(t *testing.T) {
	h := newHarness(t)
	h.order()
	h.Template("short", enginetest.Step("only"))
	tagged := func(name string) tasker.ID {
		return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: name, Tags: []string{"spring"}})
	}
	ended := tagged("short")
	h.Complete("only")
	failed := tagged("short")
	h.Accepted(failure(h.ClaimOne("only"), false))
	undone, _ := h.charged()
	h.Exec(`UPDATE tasker.tasks SET tags = '{spring}' WHERE task_uuid = $1`, undone)
	h.Exec(`INSERT INTO tasker.task_attributes (namespace, name, text_value, task_uuid) VALUES ($1, 'tag', 'spring', $2)`, h.Space, undone)
	h.compensate(undone)
	var open []tasker.ID
	for range 5 {
		open = append(open, tagged("short"))
	}
	other := h.Create("short")
	r := tasker.CancelBatchRequest{Filter: tasker.TaskFilter{Tags: []string{"spring"}}, Limit: 4, DryRun: true}
	cancel := func(wantCancelled int, wantMore bool) tasker.CancelBatch {
		t.Helper()
		b, err := h.Engine.CancelTasks(t.Context(), r)
		h.Must(err)
		if b.Cancelled != wantCancelled || b.HasMore != wantMore || b.Failed != 0 {
			t.Fatalf("%d cancelled, %d failed, more %v; want %d and %v", b.Cancelled, b.Failed, b.HasMore, wantCancelled, wantMore)
		}
		return b
	}
	if b := cancel(4, true); len(b.Sample) != 4 || b.Sample[0].UUID != open[4] {
		t.Errorf("the first are %v", b.Sample)
	}
	h.WantState(open[4], tasker.TaskStepsInProcess)
	r.DryRun, r.Actor, r.Reason = false, "kim", "the campaign is off"
	cancel(4, true)
	h.WantState(open[4], tasker.TaskCancelled)
	h.WantState(open[0], tasker.TaskStepsInProcess)
	cancel(2, false) // the last of those, and the one that has failed
	cancel(0, false)
	for _, task := range append(open, failed) {
		h.WantState(task, tasker.TaskCancelled)
	}
	h.WantState(ended, tasker.TaskComplete)
	h.WantState(other, tasker.TaskStepsInProcess)
	if got, err := h.DB.Task(t.Context(), undone); err != nil || got.Phase != tasker.Compensating {
		t.Errorf("the undoing stopped: %+v, %v", got.Phase, err)
	}
	moves := h.Moves(open[0])
	if last := moves[len(moves)-1]; last.Actor != "kim" || last.Reason != "the campaign is off" {
		t.Errorf("the history says %+v", last)
	}
}

func TestCancelBatchCanCompensate(t *testing.T) {
	h := newHarness(t)
	h.order()
	task, _ := h.charged()
	b, err := h.Engine.CancelTasks(t.Context(), tasker.CancelBatchRequest{
		Filter: tasker.TaskFilter{Namespace: h.Space}, Compensate: true, Actor: "kim", Reason: "off",
	})
	h.Must(err)
	if got, err := h.DB.Task(t.Context(), task); err != nil || b.Cancelled != 1 || got.Phase != tasker.Compensating {
		t.Errorf("%d cancelled; the task is in phase %q, %v", b.Cancelled, got.Phase, err)
	}
}

func TestCancelBatchContinuesAfterAFailure(t *testing.T) {
	h := newHarness(t)
	h.Template("short", enginetest.Step("only"))
	first, second, third := h.Create("short"), h.Create("short"), h.Create("short")
	h.poison("UPDATE ON tasker.tasks", `NEW.state = 'cancelled' AND NEW.task_uuid = '`+second.String()+`'`)
	r := tasker.CancelBatchRequest{Filter: tasker.TaskFilter{Namespace: h.Space, State: tasker.TaskStepsInProcess}, Actor: "kim", Reason: "off"}
	for _, want := range []int{2, 0} {
		if b, err := h.Engine.CancelTasks(t.Context(), r); err != nil || b.Cancelled != want || b.Failed != 1 || b.HasMore {
			t.Errorf("%+v, %v; want %d cancelled", b, err, want)
		}
	}
	h.WantState(first, tasker.TaskCancelled)
	h.WantState(second, tasker.TaskStepsInProcess)
	h.WantState(third, tasker.TaskCancelled)
}

func TestCancelBatchEndsEarlyIfSlow(t *testing.T) {
	h := newHarness(t)
	h.Template("short", enginetest.Step("only"))
	for range 4 {
		h.Create("short")
	}
	var passed time.Duration
	e := newEngine(h.DB, engine.Options{Now: func() time.Time {
		passed += 4 * time.Second
		return time.Unix(0, 0).Add(passed)
	}})
	r := tasker.CancelBatchRequest{Filter: tasker.TaskFilter{Namespace: h.Space, Name: "short"}, Actor: "kim", Reason: "off"}
	for _, want := range []tasker.CancelBatch{{Cancelled: 2, HasMore: true}, {Cancelled: 2}} {
		if b, err := e.CancelTasks(t.Context(), r); err != nil || b.Cancelled != want.Cancelled || b.HasMore != want.HasMore {
			t.Errorf("%+v, %v; want %+v", b, err, want)
		}
	}
}

func TestCancelBatchValidatesItsFilter(t *testing.T) {
	h := newHarness(t)
	h.Template("short", enginetest.Step("only"))
	task := h.Create("short")
	of := func(f tasker.TaskFilter) tasker.CancelBatchRequest {
		return tasker.CancelBatchRequest{Filter: f, Actor: "kim", Reason: "off"}
	}
	shop := of(tasker.TaskFilter{Namespace: h.Space})
	for words, change := range map[string]func(*tasker.CancelBatchRequest){
		"filter too broad":      func(r *tasker.CancelBatchRequest) { r.Filter = tasker.TaskFilter{State: tasker.TaskError} },
		"have ended":            func(r *tasker.CancelBatchRequest) { r.Filter.State = tasker.TaskComplete },
		"phase":                 func(r *tasker.CancelBatchRequest) { r.Filter.Phase = tasker.Compensating },
		"limit: must be from 1": func(r *tasker.CancelBatchRequest) { r.Limit = 101 },
		"actor: ":               func(r *tasker.CancelBatchRequest) { r.Actor = "" },
		"reason: ":              func(r *tasker.CancelBatchRequest) { r.Reason = strings.Repeat("x", 2001) },
	} {
		r := shop
		change(&r)
		h.WantCode(errOf(h.Engine.CancelTasks(t.Context(), r)), tasker.Invalid, words)
	}
	elsewhere := access.WithScope(t.Context(), access.NamespaceScope("bank"))
	if b, err := h.Engine.CancelTasks(elsewhere, of(tasker.TaskFilter{Name: "short"})); err != nil || b.Cancelled != 0 {
		t.Errorf("of another namespace: %+v, %v", b, err)
	}
	h.WantState(task, tasker.TaskStepsInProcess)
}
