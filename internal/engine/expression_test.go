package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// worst is the most expensive pattern that a template may have, and worstContext the longest text that it is
// evaluated on.
var (
	worst        = `context.s.matches("` + strings.Repeat("(?:.*.*){100}", 2) + `b")`
	worstContext = `{"s": "` + strings.Repeat("a", 260_000) + `"}`
)

func TestExpensiveExpressionsDelayNoOtherNamespace(t *testing.T) {
	h := newHarness(t)
	h.RegisterTemplate(tasker.Template{
		Namespace: "other", Name: "quick", Version: "1.0.0", Steps: []tasker.StepTemplate{when("context.x == 2", enginetest.Step("one"))},
	})
	h.Template("slow", when(worst, enginetest.Step("charge")))
	var slow []tasker.ID
	for range 15 {
		slow = append(slow, h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "slow", Context: json.RawMessage(worstContext)}))
	}
	quick := h.CreateWith(tasker.NewTask{Namespace: "other", Name: "quick", Context: json.RawMessage(`{"x": 2}`)})
	h.RunLoops()
	decided := func(task tasker.ID, name string) (s tasker.Step) {
		h.Eventually("the step is decided", func() bool {
			s = h.Step(task, name)
			return s.State != tasker.StepPending
		})
		return s
	}
	other := decided(quick, "one")
	require(t, other.State == tasker.StepEnqueued, "the step of another namespace is %s", other.State)
	before := 0
	for _, task := range slow {
		s := decided(task, "charge")
		e := h.Entry(task)
		require(t, s.State == tasker.StepError && e.DetailCode == tasker.ExpressionFailed,
			"the step is %s, its investigation %s", s.State, e.DetailCode)
		var failure tasker.Failure
		h.Must(json.Unmarshal(s.Error, &failure))
		check(t, strings.Contains(failure.Message, "the evaluation exceeds its cost limit, in: "+worst),
			"the error is %s", s.Error)
		if s.UpdatedAt.Before(*other.DecidedAt) {
			before++
		}
	}
	t.Logf("%d of %d expensive steps were decided before the other one, which took %s", before, len(slow), other.DecidedAt.Sub(other.CreatedAt))
	check(t, before <= len(slow)/2, "%d expensive steps were decided before the step of another namespace", before)
}

func TestExpressionsOfARequestAreBounded(t *testing.T) {
	h := newHarness(t)
	text := `(` + worst + ` ? "a" : "b")`
	for name, change := range map[string]func(*tasker.Template){
		"unique": func(t *tasker.Template) { t.Start.Unique.Key = text },
		"due":    func(t *tasker.Template) { t.Due.At = `timestamp(` + text + `)` },
		"limits": func(t *tasker.Template) {
			t.Limits = []tasker.LimitTemplate{{Name: "one", Key: text, MaxInProgress: 1}}
		},
		"search": func(t *tasker.Template) {
			t.Search = map[string]tasker.SearchAttribute{"a": {Type: tasker.AttributeText, From: text}}
		},
	} {
		made := tasker.Template{Namespace: enginetest.Namespace, Name: name, Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")}}
		change(&made)
		h.Register(made)
		begun := time.Now()
		_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: name, Context: json.RawMessage(worstContext)}})
		if took := time.Since(begun); took > 10*time.Second || name != "search" && (tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "the evaluation exceeds its cost limit")) || name == "search" && err != nil {
			t.Errorf("%s after %s: %v", name, took, err)
		}
	}
}

func TestInvalidStoredExpressionFailsItsStep(t *testing.T) {
	h := newHarness(t)
	const text = `context.s.matches("(?:.*.*){500}b")`
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: enginetest.Namespace, Name: "old", Version: "1.0.0", Steps: []tasker.StepTemplate{when(text, enginetest.Step("charge"))},
	}, "x")
	if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "steps[0].when: column 18: a regular expression is too large") {
		t.Errorf("a new one: %v", err)
	}
	h.Template("old", when(`context.s == "b"`, enginetest.Step("charge")))
	h.Exec(`UPDATE tasker.task_templates SET configuration = jsonb_set(configuration, '{steps,0,when}', to_jsonb($1::text)) WHERE name = 'old'`, text)
	e := newEngine(h.DB, engine.Options{})
	created, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "old", Context: json.RawMessage(`{"s": "aaa"}`)}})
	h.Must(err)
	h.Must(errOf(e.Tick(t.Context())))
	task := created[0].TaskUUID
	h.WantFailed(task, "charge", "too large after expanding its repetitions, in: context.s.matches")
	h.WantDetail(task, tasker.ExpressionFailed)
}

func TestNumbersInExpressionsKeepTheirDigits(t *testing.T) {
	h := newHarness(t)
	h.Template("kid", when(`context.id == 3544790567247868102 || context.id == 1000000`, enginetest.Step("one")))
	h.Register(tasker.Template{
		Namespace: enginetest.Namespace, Name: "order", Version: "1.0.0",
		Steps: []tasker.StepTemplate{
			when("string(context.id) == context.text", enginetest.Step("b")),
			given(`{"id": context.ids[0]}`, child("kid", "kid")),
			mapOver("context.ids.filter(i, i > 1)", enginetest.Step("each")),
		},
		Start:  tasker.StartRules{Unique: tasker.Unique{Key: "context.id"}},
		Limits: []tasker.LimitTemplate{{Name: "id", Key: "context.id", MaxInProgress: 1}},
		Search: map[string]tasker.SearchAttribute{"c": {Type: tasker.AttributeText, From: "context.id"}, "n": {Type: tasker.AttributeNumber, From: "context.id"}},
	})
	for _, id := range []string{"999999", "1000000", "1234567", "3544790567247868102", "3544790567247868103"} {
		task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{"id": ` + id + `, "text": "` + id + `", "ids": [` + id + `, 1]}`)})
		h.Tick()
		if s := h.Step(task, "b"); s.State != tasker.StepEnqueued {
			t.Errorf("%s: step b is %s", id, s.State)
		}
		for _, name := range []string{"c", "n"} {
			list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: name, Value: id}}, Limit: 5})
			h.Must(err)
			check(t, len(list) == 1 && list[0].UUID == task, "%d tasks are found by %s:%s", len(list), name, id)
		}
		_, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{"id": ` + id + `}`)}})
		h.WantCode(err, tasker.Conflict, "same unique key")
		h.WantCount(1, `SELECT count(*) FROM tasker.workflow_steps WHERE task_uuid = $1 AND item::text = $2`, task, id)
		h.WantCount(1, `SELECT count(*) FROM tasker.tasks WHERE parent_task_uuid = $1 AND context->>'id' = $2`, task, id)
	}
}
