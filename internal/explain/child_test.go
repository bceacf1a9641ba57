package explain_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// nested registers templates that start each other: outer starts middle, and that inner.
func (h *harness) nested() {
	h.Helper()
	starts := func(name string) tasker.StepTemplate {
		return tasker.StepTemplate{Name: "start", Type: tasker.ChildStep, Retry: tasker.DefaultRetry(), Child: tasker.ChildTemplate{Name: name}}
	}
	h.Template("inner", enginetest.Once(enginetest.Step("charge")))
	h.Template("middle", starts("inner"))
	h.Template("outer", starts("middle"), enginetest.Step("end", "start"))
}

// childOf returns the only task that another one started.
func (h *harness) childOf(task tasker.ID) tasker.ID {
	h.Helper()
	list, _, err := h.DB.Tasks(h.Context(), tasker.TaskFilter{Parent: task, Limit: 10})
	h.Must(err)
	if len(list) != 1 {
		h.Fatalf("task %s has %d children", task, len(list))
	}
	return list[0].UUID
}

func (h *harness) tick(n int) {
	h.Helper()
	for range n {
		_, err := h.Engine.Tick(h.Context())
		h.Must(err)
	}
}

// What a child waits for is what its parent waits for, however deep it is; its investigation is linked.
func TestAChildExplainsItsParent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	h.nested()
	task := h.Create("outer")
	h.tick(2)
	middle := h.childOf(task)
	inner := h.childOf(middle)
	e, err := h.service.Explain(t.Context(), task)
	h.Must(err)
	want := "Step start waits for its child task " + middle.String() + ", whose step start waits for its child task " + inner.String() + ", whose step charge is enqueued"
	if e.Reason != tasker.ConditionChild || e.NextActor != tasker.NextWorker || !strings.HasPrefix(e.Message, want) {
		t.Errorf("explained as %+v, want %s", e.Condition, want)
	}
	h.fail(1, "no", false)
	e, err = h.service.Explain(t.Context(), task)
	h.Must(err)
	if e.NextActor != tasker.NextOperator || !strings.Contains(e.Message, "whose step charge failed for good at 20") || !strings.HasPrefix(e.Remedy, "Repair the cause") {
		t.Errorf("explained as %+v", e.Condition)
	}
	h.facts(middle, map[string]string{"child": inner.String() + ": error since 20", "investigation of the child": h.Entry(inner).UUID.String(), "parent": task.String() + ": step start of shop/outer waits for this task"})
	h.facts(inner, map[string]string{
		"parent": middle.String() + ": step start of shop/middle waits for this task",
		"above":  task.String() + ": step start of shop/outer waits for " + middle.String(),
	})
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	h.facts(inner, map[string]string{"above": task.String() + ": step start of shop/outer started " + middle.String() + ", and no longer waits for it"})
	h.Exec(`UPDATE tasker.tasks SET parent_task_uuid = tasker.uuid_generate_v7() WHERE task_uuid = $1`, inner)
	defer h.Exec(`UPDATE tasker.tasks SET parent_task_uuid = $2 WHERE task_uuid = $1`, inner, middle)
	e, err = h.service.Explain(t.Context(), inner)
	h.Must(err)
	if !slices.ContainsFunc(e.Facts, func(f tasker.ExplainedFact) bool {
		return f.Name == "parent" && strings.HasSuffix(f.Value, ": a step of it started this task")
	}) {
		t.Errorf("without its parent the facts are %+v", e.Facts)
	}
}

// facts checks that the explanation of a task has facts that begin so.
func (h *harness) facts(task tasker.ID, want map[string]string) {
	h.Helper()
	e, err := h.service.Explain(h.Context(), task)
	h.Must(err)
	for name, value := range want {
		if !slices.ContainsFunc(e.Facts, func(f tasker.ExplainedFact) bool { return f.Name == name && strings.HasPrefix(f.Value, value) }) {
			h.Errorf("the facts %+v do not have %s: %s", e.Facts, name, value)
		}
	}
}

// A child that has ended leaves its parent to a server.
func TestAnEndedChildExplainsItsParent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.employ()
	h.nested()
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "middle", Context: json.RawMessage(`{}`)})
	h.tick(1)
	h.succeed(1)
	e, err := h.service.Explain(t.Context(), task)
	h.Must(err)
	if e.Reason != tasker.ConditionChild || e.NextActor != tasker.NextServer || !strings.Contains(e.Message, ", which is complete since 20") {
		t.Errorf("explained as %+v", e.Condition)
	}
	h.tick(1)
}

// A task that a schedule made says which, and for which instant.
func TestAScheduleExplainsItsTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("nightly", enginetest.Step("count"))
	by := engine.ScheduleChange{Actor: "ann"}
	s, err := h.Engine.CreateSchedule(t.Context(), tasker.ScheduleSpec{Namespace: h.Space, Name: "books", Template: "nightly", ScheduleRule: tasker.ScheduleRule{Every: time.Hour}}, by)
	h.Must(err)
	f, err := h.Engine.TriggerSchedule(t.Context(), s.UUID, by)
	h.Must(err)
	for kind, words := range map[tasker.FiringKind]string{
		tasker.ManualFiring: "triggered at ", tasker.ClockFiring: "made at its instant ", tasker.BackfillFiring: "made later for its instant ",
	} {
		h.Exec(`UPDATE tasker.schedule_firings SET kind = $1`, kind)
		e, err := h.service.Explain(t.Context(), *f.TaskUUID)
		h.Must(err)
		want := tasker.ExplainedFact{Name: "schedule", Value: "books (" + s.UUID.String() + "), " + words + f.NominalAt.UTC().Format("2006-01-02 15:04:05 UTC")}
		if !slices.Contains(e.Facts, want) {
			t.Errorf("the facts are %+v, want %+v", e.Facts, want)
		}
	}
}
