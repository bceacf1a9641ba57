package engine_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

// text returns a JSON string of n bytes.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

func TestClaimedInputsAreBoundedInBytes(t *testing.T) {
	h := newSingle(t)
	const each = 900 << 10
	want := tasker.MaxClaimBytes / each
	for range 5 * want {
		h.Create("single")
	}
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = $1`, each)
	first := h.Claim()
	r, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{success(first[0], `1`)}, 100)
	h.Must(err)
	named, err := h.Engine.TakeSteps(t.Context(), h.Worker, h.waiting())
	h.Must(err)
	several := h.ClaimAs(h.RegisterWorker("run", "walk"), 100)
	for way, list := range map[string][]tasker.Assignment{"claim": first, "report": r.Next, "by name": named, "several handlers": several} {
		check(t, len(list) == want, "%s: %d steps were handed out, want as many as fit: %d", way, len(list), want)
	}
	h.wantRows(want, "ready_steps")
}

// fanIn makes a task of so many parents and a child, whose parents are done with a
// result of about 979 KiB each, put there as this version stores it.
func (h *harness) fanIn(parents int) (task tasker.ID) {
	h.Helper()
	var steps []tasker.StepTemplate
	var all []string
	for i := range parents {
		all = append(all, fmt.Sprintf("p%03d", i))
		steps = append(steps, enginetest.Step(all[i]))
	}
	h.Template("fan in", append(steps, enginetest.Step("child", all...))...)
	task = h.Create("fan in")
	for list := h.Claim(); len(list) > 0; list = h.Claim() {
		var outcomes []tasker.Outcome
		for _, a := range list {
			if a.Name != "child" {
				outcomes = append(outcomes, success(a, `1`))
			}
		}
		if len(outcomes) == 0 {
			h.Release(list[0])
			break
		}
		h.Accepted(outcomes...)
	}
	h.Exec(`
		UPDATE tasker.workflow_steps p
		SET results = jsonb_build_object('success', true, 'result', d.doc), results_bytes = octet_length(d.doc::text)
		FROM (SELECT jsonb_agg(repeat('x', 1000)) AS doc FROM generate_series(1, 1000)) d
		WHERE p.task_uuid = $1 AND p.name <> 'child'`, task)
	h.Exec(`
		UPDATE tasker.workflow_steps c
		SET inputs_bytes = c.inputs_bytes + (SELECT sum(p.results_bytes) - count(*) FROM tasker.workflow_steps p WHERE p.task_uuid = c.task_uuid)
		WHERE c.task_uuid = $1 AND c.name = 'child'`, task)
	return task
}

// wantReferences checks an assignment with that many large parents: the first come
// along, in the order of the template, the others can be read.
func (h *harness) wantReferences(a tasker.Assignment, parents int) {
	h.Helper()
	const each = 1000*1004 - 2 + 2 // strings of 1000, quoted, with ", " between them, in brackets
	inline := tasker.MaxInlineInputBytes / each
	if len(a.DependencyResults) != inline || len(a.DependencyRefs) != parents-inline {
		h.Fatalf("%d results and %d references, want %d and %d", len(a.DependencyResults), len(a.DependencyRefs), inline, parents-inline)
	}
	for i := range inline {
		if name := fmt.Sprintf("p%03d", i); len(a.DependencyResults[name]) != each {
			h.Errorf("the result of %s has %d bytes, want %d", name, len(a.DependencyResults[name]), each)
		}
	}
	ref := a.DependencyRefs[fmt.Sprintf("p%03d", parents-1)]
	doc, err := h.Engine.StepResult(h.Context(), a.TaskUUID, ref.StepUUID)
	h.Must(err)
	check(h, len(doc) == each && ref.Bytes == each,
		"the result has %d bytes, its reference says %d, want %d", len(doc), ref.Bytes, each)
}

// 270 exceed what PostgreSQL can put into one jsonb, 5 the budget.
var parents = flag.Int("parents", 60, "results of 979 KiB that one step depends on")

func TestLargeInputsAreReferences(t *testing.T) {
	h := newHarness(t)
	task := h.fanIn(*parents)
	h.Template("single", enginetest.Step("one"))
	behind := h.Create("single")
	for _, c := range []struct{ name, sql string }{
		{"measured", `SELECT 1`},
		{"parents that are not measured", `UPDATE tasker.workflow_steps SET results_bytes = NULL WHERE name IN ('p000', 'p001', 'p005')`},
		{"neither parents nor inputs are measured", `UPDATE tasker.workflow_steps SET results_bytes = NULL, inputs_bytes = NULL`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.Exec(c.sql)
			start := time.Now()
			var child, other *tasker.Assignment
			var held []tasker.Lease
			for range 100 { // a few are measured at a time
				for _, a := range h.Claim() {
					switch held = append(held, a.Lease()); a.TaskUUID {
					case task:
						child = &a
					case behind:
						if other = &a; time.Since(start) > 20*time.Second { // a second, on a machine that has nothing else to do
							t.Errorf("the step behind was handed out after %s", time.Since(start))
						}
					}
				}
				if child != nil && other != nil {
					break
				}
			}
			require(t, child != nil && other != nil,
				"handed out: child %v, the step behind it %v", child != nil, other != nil)
			t.Logf("the child of %d parents and the step behind it were handed out after %s", *parents, time.Since(start))
			h.wantReferences(*child, *parents)
			_, _, err := h.Engine.Release(t.Context(), h.Worker, held)
			h.Must(err)
		})
	}
}

func TestRecordedSizesMatchTheInputs(t *testing.T) {
	h := newHarness(t)
	h.Template("diamond", enginetest.Step("a"), enginetest.Step("b", "a"), enginetest.Step("c", "a"), enginetest.Step("d", "b", "c"))
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "diamond", Context: json.RawMessage(`{"n":1e5,"s":"\u00e4"}`)})
	for list := h.Claim(); len(list) > 0; list = h.Claim() {
		for _, a := range list {
			if a.Name == "b" { // by hand, on the way
				_, err := h.Engine.OperateStep(t.Context(), task, a.StepUUID, tasker.ActionRequest{
					Action: tasker.CompleteManually, Actor: "eve", Reason: "known", Result: json.RawMessage(`[1e3,{"x":true}]`), Interrupt: true,
				})
				h.Must(err)
				continue
			}
			h.Accepted(success(a, fmt.Sprintf(`{"by":%q,"list":[1,2,3],"n":2.50e2}`, a.Name)))
		}
	}
	h.WantState(task, tasker.TaskComplete)
	rows, err := h.Admin().Query(t.Context(), `
		SELECT format('%s: %s %s %s', s.name, t.context_bytes, s.results_bytes, s.inputs_bytes)
		FROM tasker.workflow_steps s
		JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
		WHERE t.context_bytes IS DISTINCT FROM octet_length(t.context::text)
		   OR s.results_bytes IS DISTINCT FROM octet_length((s.results -> 'result')::text)
		   OR s.inputs_bytes IS DISTINCT FROM t.context_bytes + coalesce((
		      SELECT sum(p.results_bytes) FROM tasker.workflow_steps p WHERE p.step_uuid = ANY (s.parent_uuids)), 0)`)
	h.Must(err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	h.Must(err)
	check(t, len(wrong) == 0, "wrong sizes: %v", wrong)
}

// refused checks that a task has an investigation of a step that no worker could be
// given, and that the step is not handed out again.
func (h *harness) refused(task tasker.ID, step string, words ...string) {
	h.Helper()
	h.WantState(task, tasker.TaskError)
	s, e := h.Step(task, step), h.Entry(task)
	if s.State != tasker.StepError || s.NextRetryAt != nil || e.Reason != tasker.MaxRetriesExceeded || e.DetailCode != tasker.InputTooLarge ||
		e.StepUUID == nil || *e.StepUUID != s.UUID {
		h.Errorf("step %s, retried at %v; investigation %s %s of %v", s.State, s.NextRetryAt, e.Reason, e.DetailCode, e.StepUUID)
	}
	var f tasker.StepFailure
	h.Must(json.Unmarshal(s.Error, &f))
	for _, w := range append(words, "bytes") {
		check(h, f.Type == tasker.InputTooLarge && !f.Retryable && strings.Contains(f.Message, w),
			"error %+v does not say %q", f, w)
	}
}

func TestContextThatExpandsTooMuchFailsItsStep(t *testing.T) {
	h := newSingle(t)
	var bad []tasker.ID
	for range 4 {
		bad = append(bad, h.Create("single"))
	}
	h.Exec(`UPDATE tasker.tasks SET context_bytes = NULL, context = jsonb_build_object('a', (SELECT jsonb_agg(1e308) FROM generate_series(1, 30000)))`)
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = NULL`)
	h.Engine = newEngine(h.DB, engine.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	behind := h.Create("single")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var list []tasker.Assignment
	for n := 0; n < 50 && len(list) == 0; n++ { // measuring takes a while
		list = h.Claim()
	}
	runtime.ReadMemStats(&after)
	check(t, len(list) == 1 && list[0].TaskUUID == behind, "claimed %d steps, want only the one behind", len(list))
	for deadline := time.Now().Add(2 * time.Minute); h.count("tasks_dlq WHERE detail_code = 'input_too_large'") < len(bad) && time.Now().Before(deadline); {
		h.Tick()
		for _, a := range h.Claim() {
			if a.TaskUUID != behind { // its lease may have run out
				t.Errorf("claimed %s of task %s", a.Name, a.TaskUUID)
			}
		}
	}
	for _, task := range bad[:2] {
		h.refused(task, "one", "context", fmt.Sprint(tasker.MaxClaimBytes))
	}
	h.wantRows(len(bad), "tasks_dlq WHERE detail_code = 'input_too_large'")
	grown := after.TotalAlloc - before.TotalAlloc
	check(t, grown <= 24<<20, "%d MiB were allocated", grown>>20)
}

// overfill makes the inputs of a task's step larger than any worker can be given.
func (h *harness) overfill(task tasker.ID) {
	h.Helper()
	h.Exec(`UPDATE tasker.workflow_steps SET inputs_bytes = $2 WHERE task_uuid = $1 AND state = 'enqueued'`, task, tasker.MaxInputBytes+1)
}

func TestStepWithTooLargeInputsFails(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	h.Template("single", enginetest.Step("one"))
	for name, work := range map[string]func() []tasker.Assignment{
		"claim": h.Claim,
		"take": func() []tasker.Assignment {
			list, err := h.Engine.TakeSteps(t.Context(), h.Worker, h.waiting())
			h.Must(err)
			return list
		},
		"claim of several": func() []tasker.Assignment {
			list := h.ClaimAs(h.RegisterWorker("run", "walk"), 100)
			return list
		},
	} {
		t.Run(name, func(t *testing.T) {
			task := h.Create("chain")
			h.Complete("one")
			h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = 2000000000 WHERE task_uuid = $1 AND name = 'one'`, task)
			h.overfill(task)
			behind := h.Create("single")
			list := work()
			check(t, len(list) == 1 && list[0].TaskUUID == behind,
				"claimed %v, want only the step behind", names(list))
			h.Tick()
			h.refused(task, "two", "2000000000", fmt.Sprint(tasker.MaxInputBytes))
			// An operator's reset does not bring it back into anybody's way for good.
			h.Operate(task, "two", tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "eve", Reason: "again"})
			h.Engine = newEngine(h.DB, engine.Options{}) // another server
			h.ClaimNone()
			h.Tick()
			h.WantState(task, tasker.TaskError)
			h.Must(h.Engine.CancelTask(t.Context(), behind, "eve", "done"))
		})
	}
}

// waiting returns what is enqueued.
func (h *harness) waiting() []tasker.StepRef {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT task_uuid, step_uuid FROM tasker.workflow_steps WHERE state = 'enqueued'`)
	h.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[tasker.StepRef])
	h.Must(err)
	return list
}

func TestStepThatCannotBeRejectedBlocksNoOther(t *testing.T) {
	h := newSingle(t)
	var bad []tasker.ID
	for range 5 {
		bad = append(bad, h.Create("single"))
		h.overfill(bad[len(bad)-1])
	}
	h.poison("INSERT ON tasker.tasks_dlq", "true")
	behind := h.Create("single")
	for range 2 {
		list := h.ClaimAs(h.Worker, 1)
		if len(list) == 1 && list[0].TaskUUID == behind {
			break
		}
	}
	h.WantStep(behind, "one", tasker.StepInProgress, 1)
	for _, task := range bad {
		h.WantStep(task, "one", tasker.StepEnqueued, 1)
	}
	h.Tick()
	n := h.count("deferred_work WHERE kind = 'reject_inputs'")
	check(t, n != 0, "nothing says that the steps could not be failed")
	h.heal()
	h.retryDeferred()
	h.Tick()
	for _, task := range bad {
		h.refused(task, "one")
	}
}

func TestUnreadableTemplateBlocksNoOtherStep(t *testing.T) {
	h := newHarness(t)
	h.Template("broken", enginetest.Step("one"))
	h.Template("single", enginetest.Step("one"))
	bad, good := h.Create("broken"), h.Create("single")
	var kept string
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT configuration FROM tasker.task_templates WHERE name = 'broken'`).Scan(&kept))
	h.Exec(`UPDATE tasker.task_templates SET configuration = '[]' WHERE name = 'broken'`)
	h.Engine = newEngine(h.DB, engine.Options{})
	list := h.Claim()
	require(t, len(list) == 1 && list[0].TaskUUID == good, "claimed %v", names(list))
	h.WantStep(bad, "one", tasker.StepEnqueued, 1)
	if _, err := h.Engine.Claim(t.Context(), h.Worker, 10, 0); err == nil {
		t.Error("a claim that can hand out nothing does not say why")
	}
	h.WantStep(bad, "one", tasker.StepEnqueued, 1)
	h.Exec(`UPDATE tasker.task_templates SET configuration = $1 WHERE name = 'broken'`, kept)
	h.ClaimOne("one")
}

func TestInitializationsAreBounded(t *testing.T) {
	h := newHarness(t)
	s := enginetest.Step("one")
	s.Handler.Initialization = json.RawMessage(fmt.Sprintf(`{"a": %s}`, text(200<<10)))
	h.Template("single", s)
	for range 60 {
		h.Create("single")
	}
	list := h.Claim()
	if n := len(list) * (200 << 10); len(list) == 0 || n > tasker.MaxAnswerBytes-tasker.MaxClaimBytes {
		t.Errorf("%d steps with %d bytes of initialization were handed out", len(list), n)
	}
	h.wantRows(60-len(list), "workflow_steps WHERE state = 'enqueued' AND attempts = 1")
}

func TestStepResultIsReadByTaskAndStep(t *testing.T) {
	h := newHarness(t)
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	task := h.Create("chain")
	one, two := h.Step(task, "one").UUID, h.Step(task, "two").UUID
	h.WantCode(errOf(h.Engine.StepResult(t.Context(), task, one)), tasker.NotFound, "one", "no result")
	h.Accepted(success(h.ClaimOne("one"), `[1,2]`))
	doc, err := h.Engine.StepResult(t.Context(), task, one)
	h.Must(err)
	check(t, string(doc) == `[1, 2]`, "the result is %s", doc)
	h.WantCode(errOf(h.Engine.StepResult(t.Context(), task, two)), tasker.NotFound)
	h.WantCode(errOf(h.Engine.StepResult(t.Context(), tasker.NewID(), one)), tasker.NotFound)
	h.WantCode(errOf(h.Engine.StepResult(t.Context(), task, tasker.NewID())), tasker.NotFound)
	h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = NULL, results = jsonb_build_object('result', (SELECT jsonb_agg(1e308) FROM generate_series(1, 60000))) WHERE step_uuid = $1`, one)
	h.WantCode(errOf(h.Engine.StepResult(t.Context(), task, one)), tasker.TooLarge, fmt.Sprint(tasker.MaxAnswerBytes))
}
