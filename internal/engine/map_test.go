package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// mapOver makes a step run once for each element of a list.
func mapOver(list string, s tasker.StepTemplate) tasker.StepTemplate {
	s.Type, s.Over = tasker.MapStep, list
	return s
}

// refunds is a template with a map step between two others.
func (h *harness) refunds() {
	h.Helper()
	h.Template("refunds",
		enginetest.Step("split"),
		attempts(2, mapOver("results.split.lines", enginetest.Step("refund", "split"))),
		enginetest.Step("tell", "refund"))
}

// expanded returns a task whose map step has so many items, with what was claimed of them.
func (h *harness) expanded(n int) (tasker.ID, []tasker.Assignment) {
	h.Helper()
	h.refunds()
	task := h.Create("refunds")
	h.accepted(success(h.claimOne("split"), lines(n)))
	h.tick()
	return task, h.claimItems()
}

func lines(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"line": %d}`, i)
	}
	return `{"lines": [` + strings.Join(list, ",") + `]}`
}

// claimItems claims until nothing is left, and returns the steps in the order of their names.
func (h *harness) claimItems() (all []tasker.Assignment) {
	h.Helper()
	for list := h.claim(); len(list) > 0; list = h.claim() {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b tasker.Assignment) int { return *a.Index - *b.Index })
	return all
}

func (h *harness) wantItems(task tasker.ID, name string, want tasker.ItemCounts) {
	h.Helper()
	s := h.step(task, name)
	if s.Items == nil || *s.Items != want {
		h.Errorf("the items of %s are %+v, want %+v", name, s.Items, want)
	}
}

// resultOf is the result that a step left.
func (h *harness) resultOf(task tasker.ID, name string) string {
	h.Helper()
	doc, err := h.Engine.StepResult(h.Context(), task, h.step(task, name).UUID)
	h.Must(err)
	return string(doc)
}

func TestAMapRunsOnceForEachElement(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(3)
	if len(items) != 3 {
		t.Fatalf("claimed %v", names(items))
	}
	for i, a := range items {
		want := fmt.Sprintf(`{"line": %d}`, i)
		if a.Name != fmt.Sprintf("refund[%d]", i) || *a.Index != i || string(a.Item) != want || len(a.DependencyResults["split"]) == 0 || a.MaxAttempts != 2 {
			t.Errorf("claimed %+v, want the item %s", a, want)
		}
	}
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 3, InProgress: 3})
	h.wantState(task, tasker.TaskStepsInProcess)
	for _, i := range []int{2, 0, 1} {
		h.accepted(success(items[i], fmt.Sprintf(`"r%d"`, i)))
	}
	h.wantStep(task, "refund", tasker.StepPending, 0)
	h.tick()
	h.wantStep(task, "refund", tasker.StepComplete, 0)
	if got := h.resultOf(task, "refund"); got != `{"items": 3, "results": ["r0", "r1", "r2"]}` {
		t.Errorf("the result is %s", got)
	}
	a := h.claimOne("tell")
	if a.Item != nil || a.Index != nil || !strings.Contains(string(a.DependencyResults["refund"]), `"r2"`) {
		t.Errorf("claimed %+v", a)
	}
	h.accepted(success(a, `1`))
	h.wantState(task, tasker.TaskComplete)
}

func TestAMapOverNothingIsCompleteAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(0)
	if len(items) != 1 || items[0].Name != "tell" {
		t.Fatalf("claimed %v", names(items))
	}
	if got := h.resultOf(task, "refund"); got != `{"items": 0, "results": []}` {
		t.Errorf("the result is %s", got)
	}
	h.accepted(success(items[0], `1`))
	h.wantState(task, tasker.TaskComplete)
}

// Items are retried by themselves; one that fails for good has an investigation, the others go
// on, and each is repaired as any step.
func TestItemsThatFail(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(5)
	h.accepted(failure(items[1], true), failure(items[2], false), failure(items[3], false))
	h.wantState(task, tasker.TaskStepsInProcess)
	h.accepted(success(items[0], `0`), success(items[4], `4`))
	h.wantState(task, tasker.TaskWaitingForRetry)
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 5, Completed: 2, Retrying: 1, Failed: 2})
	e := h.Entry(task)
	if e.StepUUID == nil || *e.StepUUID != items[2].StepUUID {
		t.Errorf("the investigation is about %v", e.StepUUID)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks_dlq WHERE task_uuid = $1`, task); n != 1 {
		t.Errorf("%d investigations", n)
	}
	act := func(step tasker.ID, action tasker.StepAction) {
		t.Helper()
		_, err := h.Engine.OperateStep(t.Context(), task, step, tasker.ActionRequest{Action: action, Reason: "repaired", Actor: "ann"})
		h.Must(err)
	}
	act(items[2].StepUUID, tasker.ResolveManually)
	act(items[3].StepUUID, tasker.ResetForRetry)
	h.pass()
	for _, a := range h.claimItems() {
		h.accepted(success(a, string(a.Item)))
	}
	h.tick()
	if got := h.resultOf(task, "refund"); got != `{"items": 5, "results": [0, {"line": 1}, null, {"line": 3}, 4]}` {
		t.Errorf("the result is %s", got)
	}
	h.accepted(success(h.claimOne("tell"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A reset of the map step resets what has failed of it, and makes no items anew.
func TestAllFailedItemsAreResetByTheirStep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(4)
	refund := h.step(task, "refund").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "gateway repaired", Actor: "ann"}
	_, err := h.Engine.OperateStep(t.Context(), task, refund, reset)
	h.WantCode(err, tasker.Conflict, "is waiting for 4 of its items, none of which has failed")
	other := reset
	other.NewChild = true
	_, err = h.Engine.OperateStep(t.Context(), task, refund, other)
	h.WantCode(err, tasker.Conflict, "is not a child step")
	h.accepted(failure(items[0], false), failure(items[1], false), failure(items[2], false), success(items[3], `3`))
	h.wantState(task, tasker.TaskError)
	left, err := h.Engine.OperateStep(t.Context(), task, refund, reset)
	h.Must(err)
	if left.UUID != refund || left.State != tasker.StepPending || left.Items == nil || left.Items.Pending != 3 {
		t.Errorf("it left %+v", left)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action = 'step.reset' AND subject = $1 AND (data ->> 'items')::int = 3`, refund.String()); n != 1 {
		t.Errorf("the action is recorded %d times", n)
	}
	again := h.claimItems()
	if len(again) != 3 {
		t.Fatalf("claimed %v", names(again))
	}
	for _, a := range again {
		h.accepted(success(a, `"again"`))
	}
	h.tick()
	h.accepted(success(h.claimOne("tell"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A map step is ended by hand only with interrupt, and its open items with it.
func TestAMapIsEndedByHand(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(4)
	refund := h.step(task, "refund").UUID
	h.accepted(success(items[0], `0`), failure(items[1], false))
	complete := tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done elsewhere", Actor: "ann", Result: json.RawMessage(`"by hand"`)}
	_, err := h.Engine.OperateStep(t.Context(), task, refund, complete)
	h.WantCode(err, tasker.Conflict, "set interrupt")
	complete.Interrupt = true
	_, err = h.Engine.OperateStep(t.Context(), task, refund, complete)
	h.Must(err)
	if r := h.report(success(items[2], `2`)); len(r.Rejected) != 1 {
		t.Errorf("a late report is accepted: %+v", r)
	}
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, Completed: 4})
	if got := h.resultOf(task, "refund"); got != `"by hand"` {
		t.Errorf("the result is %s", got)
	}
	h.tick()
	h.accepted(success(h.claimOne("tell"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// What cannot be made items fails the map step, with an investigation; a reset evaluates anew.
func TestAListThatIsNone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ result, want string }{
		"no list":     {`{"lines": {"a": 1}}`, "must be a list"},
		"nothing":     {`{}`, `missing key \"lines\"`},
		"null":        {`{"lines": null}`, "must be a list"},
		"too long":    {`{"lines": [0` + strings.Repeat(",1", tasker.MaxMapItems) + `]}`, "10001 elements; the limit is 10000"},
		"no elements": {`{"lines": "abc"}`, "must be a list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.refunds()
			task := h.Create("refunds")
			h.accepted(success(h.claimOne("split"), tt.result))
			h.tick()
			h.wantState(task, tasker.TaskError)
			s := h.step(task, "refund")
			if s.State != tasker.StepError || s.Items != nil || !strings.Contains(string(s.Error), tt.want) {
				t.Errorf("the step is %s: %s", s.State, s.Error)
			}
			if e := h.Entry(task); e.DetailCode != tasker.ExpressionFailed {
				t.Errorf("the investigation is of %s", e.DetailCode)
			}
			h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', '{"lines": [1, 2]}') WHERE name = 'split'`)
			_, err := h.Engine.OperateStep(t.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the result is repaired", Actor: "ann"})
			h.Must(err)
			h.tick()
			for _, a := range h.claimItems() {
				h.accepted(success(a, string(a.Item)))
			}
			h.tick()
			if got := h.resultOf(task, "refund"); got != `{"items": 2, "results": [1, 2]}` {
				t.Errorf("the result is %s", got)
			}
		})
	}
}

// Results that have too many bytes together stay with their items.
func TestResultsOfItemsThatDoNotFit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(3)
	large := `"` + strings.Repeat("x", 200<<10) + `"`
	many := `[` + strings.Repeat("1,", 60_000) + `1]`
	h.accepted(success(items[0], large), success(items[1], many), success(items[2], many))
	h.tick()
	s := h.step(task, "refund")
	want := fmt.Sprintf(`{"items": 3, "read_at": "/v1/tasks/%s/results/%s/items", "results_truncated": true}`, task, s.Name)
	if got := h.resultOf(task, "refund"); got != want {
		t.Errorf("the result is %.200s, want %s", got, want)
	}
	h.accepted(success(h.claimOne("tell"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// A dependency that ends after the map has begun counts for nothing.
func TestAMapThatDoesNotWaitForAll(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("race", enginetest.Step("a"), enginetest.Step("b"),
		joined(tasker.JoinAny, mapOver("context.list", enginetest.Step("each", "a", "b"))))
	task := h.create("race", `{"list": [1, 2]}`)
	list := h.claim()
	h.accepted(success(list[0], `1`))
	h.tick()
	items := h.claimItems()
	h.accepted(success(items[0], `1`))
	h.accepted(success(list[1], `1`))
	h.wantStep(task, "each", tasker.StepPending, 0)
	h.tick()
	h.wantItems(task, "each", tasker.ItemCounts{Total: 2, Completed: 1, InProgress: 1})
	h.accepted(success(items[1], `2`))
	h.tick()
	h.wantState(task, tasker.TaskComplete)
}

func TestAMapThatIsSkippedHasNoItems(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("maybe", when("context.list.size() > 5", mapOver("context.list", enginetest.Step("each"))), enginetest.Step("end", "each"))
	task := h.create("maybe", `{"list": [1, 2]}`)
	h.tick()
	h.wantSkipped(task, "each", "condition is false")
	h.wantState(task, tasker.TaskComplete)
}

func TestATaskIsCancelledWithItsItems(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(3)
	h.accepted(success(items[0], `1`))
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	h.tick()
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 3, Completed: 1, Cancelled: 2})
	h.wantStep(task, "refund", tasker.StepCancelled, 0)
}

// A snapshot counts the items, and has only those whole that have failed.
func TestASnapshotCountsItems(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(120)
	var outcomes []tasker.Outcome
	for i, a := range items {
		if i >= 7 && i < 10 {
			outcomes = append(outcomes, failure(a, false))
		} else {
			outcomes = append(outcomes, success(a, `"`+strings.Repeat("x", 2000)+`"`))
		}
	}
	h.accepted(outcomes...)
	type step struct {
		Name  string             `json:"name"`
		Items *tasker.ItemCounts `json:"items"`
		Item  struct {
			Ordinal int             `json:"ordinal"`
			Value   json.RawMessage `json:"value"`
		} `json:"item"`
		Failures []json.RawMessage `json:"failures"`
	}
	var snapshot struct {
		Steps []step `json:"steps"`
	}
	doc := h.Entry(task).Snapshot
	h.Must(json.Unmarshal(doc, &snapshot))
	var seen []string
	for _, s := range snapshot.Steps {
		seen = append(seen, s.Name)
		switch {
		case s.Name == "refund":
			if s.Items == nil || *s.Items != (tasker.ItemCounts{Total: 120, Completed: 117, Failed: 3}) {
				t.Errorf("counted %+v", s.Items)
			}
		case strings.HasPrefix(s.Name, "refund["):
			if string(s.Item.Value) != fmt.Sprintf(`{"line": %d}`, s.Item.Ordinal) || len(s.Failures) != 1 {
				t.Errorf("the item is %+v", s)
			}
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, []string{"refund", "refund[7]", "refund[8]", "refund[9]", "split", "tell"}) {
		t.Errorf("the snapshot has %v", seen)
	}
}

// A step of type map says over what it runs, also in a template that is no document.
func TestAMapWithoutAList(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s := enginetest.Step("each")
	s.Type = tasker.MapStep
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: "each", Version: "1.0.0", Steps: []tasker.StepTemplate{s}}, "")
	h.WantCode(err, tasker.Invalid, "steps[0].over: is missing")
}

// Items are listed page by page, all or those in a state, and an item is found by its name.
func TestItemsAreListed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(7)
	refund := h.step(task, "refund").UUID
	h.accepted(failure(items[1], false), failure(items[5], true), success(items[2], `2`))
	read := func(f tasker.MapItemFilter) (names []string, next int) {
		t.Helper()
		list, next, err := h.DB.MapItems(t.Context(), task, refund, f)
		h.Must(err)
		for _, s := range list {
			names = append(names, s.Name)
			if s.Map == nil || string(s.Map.Value) != fmt.Sprintf(`{"line": %d}`, s.Map.Ordinal) || s.Name != tasker.ItemName("refund", s.Map.Ordinal) {
				t.Errorf("listed %+v", s)
			}
		}
		return names, next
	}
	for _, tt := range []struct {
		f    tasker.MapItemFilter
		want []string
		next int
	}{
		{tasker.MapItemFilter{Limit: 3}, []string{"refund[0]", "refund[1]", "refund[2]"}, 3},
		{tasker.MapItemFilter{From: 3, Limit: 4}, []string{"refund[3]", "refund[4]", "refund[5]", "refund[6]"}, 0},
		{tasker.MapItemFilter{From: 7, Limit: 4}, nil, 0},
		{tasker.MapItemFilter{State: tasker.StepError, Limit: 1}, []string{"refund[1]"}, 5},
		{tasker.MapItemFilter{State: tasker.StepError, From: 5, Limit: 1}, []string{"refund[5]"}, 0},
		{tasker.MapItemFilter{State: tasker.StepComplete, Limit: 9}, []string{"refund[2]"}, 0},
	} {
		if got, next := read(tt.f); !slices.Equal(got, tt.want) || next != tt.next {
			t.Errorf("%+v: %v and then %d, want %v and %d", tt.f, got, next, tt.want, tt.next)
		}
	}
	list, _, err := h.DB.MapItems(t.Context(), task, refund, tasker.MapItemFilter{State: tasker.StepError, Limit: 9})
	h.Must(err)
	if len(list) != 2 || len(list[0].Error) == 0 || list[0].NextRetryAt != nil || list[1].NextRetryAt == nil {
		t.Errorf("those in error are %+v", list)
	}
	if id, err := h.DB.StepNamed(t.Context(), task, "refund[5]"); err != nil || id != items[5].StepUUID {
		t.Errorf("refund[5] is %s: %v", id, err)
	}
	if list, next, err := h.DB.MapItems(t.Context(), task, h.step(task, "split").UUID, tasker.MapItemFilter{Limit: 9}); len(list) > 0 || next != 0 || err != nil {
		t.Errorf("a step that is no map step has %v: %v", list, err)
	}
	_, _, err = h.DB.MapItems(t.Context(), task, tasker.NewID(), tasker.MapItemFilter{Limit: 9})
	h.WantCode(err, tasker.NotFound, "has no step")
}

// A page of items ends before its documents have too many bytes, and goes on with the next one.
func TestPagesOfItemsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(12)
	refund := h.step(task, "refund").UUID
	large := `"` + strings.Repeat("x", 250_000) + `"`
	for _, a := range items {
		h.accepted(success(a, `[`+large+`, `+large+`, `+large+`, `+large+`]`))
	}
	var seen []string
	pages := 0
	for from, next := 0, 1; next > 0; from = next {
		var list []tasker.Step
		var err error
		list, next, err = h.DB.MapItems(t.Context(), task, refund, tasker.MapItemFilter{From: from, Limit: 100})
		h.Must(err)
		bytes := 0
		for _, s := range list {
			bytes += len(s.Results)
			seen = append(seen, s.Name)
		}
		if pages++; bytes > tasker.MaxAnswerBytes/2+1000 {
			t.Errorf("page %d has %d bytes", pages, bytes)
		}
	}
	if pages != 2 || len(seen) != 12 || seen[11] != "refund[11]" {
		t.Errorf("%d pages with %v", pages, seen)
	}
	var results []int
	for from, next := 0, 1; next > 0; from = next {
		page, err := h.Engine.ItemResults(t.Context(), task, "refund", from)
		h.Must(err)
		results, next = append(results, len(page.Results)), page.Next
		for _, doc := range page.Results {
			if !strings.HasPrefix(string(doc), `["xxx`) || len(doc) < 1_000_000 {
				t.Errorf("the result is %.20s of %d bytes", doc, len(doc))
			}
		}
	}
	if len(results) != 2 || results[0]+results[1] != 12 {
		t.Errorf("pages have %v results", results)
	}
}

// The results of items are read by the name or the id of their step, and those that are missing are
// null.
func TestResultsOfItems(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(3)
	h.accepted(success(items[0], `"a"`), success(items[2], `null`))
	refund := h.step(task, "refund").UUID
	for _, id := range []*tasker.ID{nil, &refund} {
		page, err := h.DB.ItemResultsFrom(t.Context(), task, id, "refund", 0)
		h.Must(err)
		if got, _ := json.Marshal(page.Results); string(got) != `["a",null,null]` || page.Next != 0 {
			t.Errorf("read %s and then %d", got, page.Next)
		}
	}
	page, err := h.DB.ItemResultsFrom(t.Context(), task, nil, "refund", 3)
	h.Must(err)
	if len(page.Results) != 0 || page.Next != 0 {
		t.Errorf("after the last one are %+v", page)
	}
	_, err = h.Engine.ItemResults(t.Context(), task, "split", 0)
	h.WantCode(err, tasker.NotFound, "step split of task", "has no items")
	_, err = h.Engine.ItemResults(t.Context(), task, "none", 0)
	h.WantCode(err, tasker.NotFound, `has no step "none"`)
	_, err = h.DB.ItemResultsFrom(t.Context(), task, &task, "", 0)
	h.WantCode(err, tasker.NotFound, "has no step")
}

// readBySnapshot counts the rows of table $2 that the snapshot of task $1 reads. Its parts are executed in this order.
const readBySnapshot = `
	SELECT after.n - before.n
	FROM (SELECT seq_tup_read + idx_tup_fetch AS n FROM pg_stat_xact_user_tables WHERE relid = ('tasker.' || $2)::regclass OFFSET 0) before
	CROSS JOIN LATERAL (
		SELECT octet_length(tasker.task_snapshot($1, 'error', now(), 'test', now())::text) AS n WHERE before.n IS NOT NULL OFFSET 0
	) snapshot
	CROSS JOIN LATERAL (
		SELECT seq_tup_read + idx_tup_fetch AS n FROM pg_stat_xact_user_tables WHERE relid = ('tasker.' || $2)::regclass AND snapshot.n > 0 OFFSET 0
	) after`

// A list of the largest length is expanded, repaired, read and joined, and what is kept of a failure
// of some of its items is small.
func TestTheLongestList(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("long", attempts(1, mapOver("context.list", enginetest.Step("each"))))
	task := h.create("long", `{"list": [0`+strings.Repeat(",1", tasker.MaxMapItems-1)+`]}`)
	timed := func(what string, do func()) {
		t.Helper()
		begun := time.Now()
		do()
		t.Logf("%s: %s", what, time.Since(begun).Round(time.Millisecond))
	}
	timed("expand", h.tick)
	var failures []tasker.Outcome
	timed("claim and report all", func() {
		for n := 0; n < tasker.MaxMapItems; {
			list := h.claim()
			var outcomes []tasker.Outcome
			for _, a := range list {
				if n++; *a.Index%4000 == 1000 {
					failures = append(failures, failure(a, false))
				} else {
					outcomes = append(outcomes, success(a, `"done"`))
				}
			}
			if len(list) == 0 {
				t.Fatalf("only %d items were handed out", n)
			}
			h.accepted(outcomes...)
		}
	})
	timed("report three that failed", func() { h.accepted(failures...) })
	each := h.step(task, "each").UUID
	h.wantState(task, tasker.TaskError)
	h.wantItems(task, "each", tasker.ItemCounts{Total: 10_000, Completed: 9997, Failed: 3})
	var snapshot struct {
		Steps []struct {
			Name     string            `json:"name"`
			Error    json.RawMessage   `json:"error"`
			Failures []json.RawMessage `json:"failures"`
		} `json:"steps"`
	}
	doc := h.Entry(task).Snapshot
	h.Must(json.Unmarshal(doc, &snapshot))
	var whole []string
	for _, s := range snapshot.Steps {
		if strings.Contains(string(s.Error), `"message": "`) && len(s.Failures) == 1 && !strings.Contains(string(s.Error), "omitted") {
			whole = append(whole, s.Name)
		}
	}
	slices.Sort(whole)
	if len(doc) > 1<<20 || !slices.Equal(whole, []string{"each[1000]", "each[5000]", "each[9000]"}) {
		t.Errorf("a snapshot of %d bytes has %v", len(doc), whole)
	}
	timed("the snapshot", func() {
		// All steps are read to find those that are shown, to count, to measure documents and to put the snapshot together. The
		// history is read for each, as the list in the context is compressed.
		for table, times := range map[string]int{"workflow_steps": 4, "step_history": 4} {
			rows := h.Count(`SELECT count(*) FROM tasker.` + table)
			if n := h.Count(readBySnapshot, task, table); n < rows || n > times*rows+1000 {
				t.Errorf("the snapshot reads %d rows of %s, which has %d: more than %d times", n, table, rows, times)
			}
		}
	})
	timed("reset all that failed", func() {
		_, err := h.Engine.OperateStep(t.Context(), task, each, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
		h.Must(err)
	})
	for _, a := range h.claimItems() {
		h.accepted(success(a, `["`+strings.Repeat("x", 200<<10)+`", "`+strings.Repeat("y", 200<<10)+`"]`))
	}
	timed("join", h.tick)
	h.wantState(task, tasker.TaskComplete)
	want := fmt.Sprintf(`{"items": 10000, "read_at": "/v1/tasks/%s/results/each/items", "results_truncated": true}`, task)
	if got := h.resultOf(task, "each"); got != want {
		t.Errorf("the result is %.200s, want %s", got, want)
	}
	timed("read all results", func() {
		n := 0
		for from, next := 0, 1; next > 0; from = next {
			page, err := h.Engine.ItemResults(t.Context(), task, "each", from)
			h.Must(err)
			n, next = n+len(page.Results), page.Next
		}
		if n != tasker.MaxMapItems {
			t.Errorf("read %d results", n)
		}
	})
	h.Exec(`ANALYZE`) // or the look for violations takes minutes
}

// A task with the longest list is brought to another version, all items are cancelled with it, and removed.
func TestTheLongestListEnds(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("long", mapOver("context.list", enginetest.Step("each")), enginetest.Step("end", "each"))
	task := h.create("long", `{"list": [0`+strings.Repeat(",1", tasker.MaxMapItems-1)+`]}`)
	h.tick()
	begun := time.Now()
	timed := func(what string) {
		t.Logf("%s: %s", what, time.Since(begun).Round(time.Millisecond))
		begun = time.Now()
	}
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
		Namespace: h.Space, Name: "long", Version: "1.1.0", Steps: []tasker.StepTemplate{mapOver("context.list", enginetest.Step("each")), handledBy("repaired", enginetest.Step("end", "each"))},
	}, "")
	h.Must(err)
	begun = time.Now()
	h.change(task, "1.1.0")
	timed("brought to another version")
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE handler = 'repaired'`); n != 1 {
		t.Errorf("%d steps have the new handler", n)
	}
	begun = time.Now()
	h.Must(h.Engine.CancelTask(t.Context(), task, "ann", "not wanted"))
	timed("cancelled")
	h.wantItems(task, "each", tasker.ItemCounts{Total: 10_000, Cancelled: 10_000})
	h.Exec(`ANALYZE`)
	begun = time.Now()
	p, err := h.DB.PruneTasks(t.Context(), tasker.TaskCancelled, tasker.ID{}, -time.Minute, postgres.PruneBounds{Tasks: 100, Steps: 1000})
	h.Must(err)
	timed(fmt.Sprintf("removed: %+v", p))
	if n := h.Count(`SELECT count(*) FROM tasker.workflow_steps`); n != 0 {
		t.Errorf("%d steps are left", n)
	}
}

// limited is mapOver with so many items under way at once.
func limited(n int, s tasker.StepTemplate) tasker.StepTemplate {
	s.MaxParallel = n
	return s
}

// claims claims, and expects just the items of each with these ordinals.
func (h *harness) claims(want ...int) []tasker.Assignment {
	h.Helper()
	list := h.claimItems()
	got := []int{}
	for _, a := range list {
		got = append(got, *a.Index)
	}
	if !slices.Equal(got, append([]int{}, want...)) {
		h.Fatalf("claimed the items %v, want %v", got, want)
	}
	return list
}

// With a limit an item begins when another one has ended or has failed for good, the first of those
// that wait. One that is tried again keeps its place.
func TestItemsRunAFewAtATime(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("few", attempts(2, limited(2, mapOver("context.list", enginetest.Step("each")))), enginetest.Step("end", "each"))
	task := h.create("few", `{"list": [0, 1, 2, 3, 4, 5]}`)
	h.tick()
	first := h.claims(0, 1)
	h.wantItems(task, "each", tasker.ItemCounts{Total: 6, Pending: 4, InProgress: 2})
	h.accepted(success(first[0], `0`))
	h.accepted(success(h.claims(2)[0], `2`), failure(first[1], true))
	h.wantItems(task, "each", tasker.ItemCounts{Total: 6, Pending: 2, Enqueued: 1, Completed: 2, Retrying: 1})
	h.wantState(task, tasker.TaskStepsInProcess)
	h.accepted(success(h.claims(3)[0], `3`))
	h.pass()
	again := h.claims(1, 4)
	h.accepted(failure(again[0], true), success(again[1], `4`))
	h.accepted(success(h.claims(5)[0], `5`))
	h.wantState(task, tasker.TaskError)
	_, err := h.Engine.OperateStep(t.Context(), task, again[0].StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
	h.Must(err)
	h.accepted(success(h.claims(1)[0], `1`))
	h.tick()
	if got := h.resultOf(task, "each"); got != `{"items": 6, "results": [0, 1, 2, 3, 4, 5]}` {
		t.Errorf("the result is %s", got)
	}
	h.accepted(success(h.claimOne("end"), `1`))
	h.wantState(task, tasker.TaskComplete)
}

// An item that is reset waits for a place as the others do, and one that is ended by hand leaves its
// place to the next one, if it had one.
func TestItemsThatAreRepairedWaitForAPlace(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("few", limited(1, mapOver("context.list", enginetest.Step("each"))))
	task := h.create("few", `{"list": [0, 1, 2, 3, 4, 5]}`)
	h.tick()
	act := func(name string, action tasker.StepAction, interrupt bool) {
		t.Helper()
		id, err := h.DB.StepNamed(t.Context(), task, name)
		h.Must(err)
		_, err = h.Engine.OperateStep(t.Context(), task, id, tasker.ActionRequest{Action: action, Reason: "repaired", Actor: "ann", Interrupt: interrupt})
		h.Must(err)
	}
	h.claims(0)
	act("each[0]", tasker.ResetForRetry, true) // is the first that waits
	h.accepted(failure(h.claims(0)[0], false))
	h.accepted(failure(h.claims(1)[0], false))
	third := h.claims(2)
	act("each", tasker.ResetForRetry, false)
	h.claims()
	h.wantItems(task, "each", tasker.ItemCounts{Total: 6, Pending: 5, InProgress: 1})
	h.accepted(success(third[0], `2`))
	h.accepted(failure(h.claims(0)[0], false))
	second := h.claims(1)
	act("each[0]", tasker.ResolveManually, false) // had none
	act("each[3]", tasker.ResolveManually, true)  // waited for one
	h.claims()
	act("each[1]", tasker.ResolveManually, true)
	if r := h.report(success(second[0], `1`)); len(r.Rejected) != 1 {
		t.Errorf("a late report is accepted: %+v", r)
	}
	h.accepted(success(h.claims(4)[0], `4`))
	h.accepted(success(h.claims(5)[0], `5`))
	h.tick()
	if got := h.resultOf(task, "each"); got != `{"items": 6, "results": [null, null, 2, null, 4, 5]}` {
		t.Errorf("the result is %s", got)
	}
	h.wantState(task, tasker.TaskComplete)
}

// A limit that is not reached changes nothing, and an operator ends items that wait with their step.
func TestALimitAndItsStep(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("few", limited(5, mapOver("context.list", enginetest.Step("each"))))
	wide, ended := h.create("few", `{"list": [0, 1]}`), h.create("few", `{"list": [0, 1, 2, 3, 4, 5, 6]}`)
	h.tick()
	for _, a := range h.claim() {
		if a.TaskUUID == wide {
			h.accepted(success(a, `1`))
		}
	}
	h.tick()
	h.wantState(wide, tasker.TaskComplete)
	_, err := h.Engine.OperateStep(t.Context(), ended, h.step(ended, "each").UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Reason: "not needed", Actor: "ann", Interrupt: true})
	h.Must(err)
	h.wantItems(ended, "each", tasker.ItemCounts{Total: 7, Completed: 7})
	h.wantState(ended, tasker.TaskComplete)
}

// With chunk an item is given several elements.
func TestAnItemForSeveralElements(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s := mapOver("context.list", enginetest.Step("each"))
	s.Chunk = 2
	h.Template("chunks", s)
	task := h.create("chunks", `{"list": [10, 11, 12, 13, 14]}`)
	h.tick()
	var got []string
	for _, a := range h.claimItems() {
		got = append(got, string(a.Item))
		h.accepted(success(a, string(a.Item)))
	}
	if !slices.Equal(got, []string{"[10, 11]", "[12, 13]", "[14]"}) {
		t.Errorf("items have %v", got)
	}
	h.tick()
	if got := h.resultOf(task, "each"); got != `{"items": 3, "results": [[10, 11], [12, 13], [14]]}` {
		t.Errorf("the result is %s", got)
	}
	h.wantState(task, tasker.TaskComplete)
}

// A chunk that is too large is an investigation.
func TestAChunkThatIsTooLarge(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	s := mapOver("[context.large, context.large]", enginetest.Step("refund"))
	s.Chunk = 2
	h.Template("chunks", s)
	piece := `"` + strings.Repeat("x", 250_000) + `"`
	task := h.create("chunks", `{"large": [`+piece+`, `+piece+`, `+piece+`]}`)
	h.tick()
	h.wantState(task, tasker.TaskError)
	if s := h.step(task, "refund"); !strings.Contains(string(s.Error), "chunk 0 of the list") {
		t.Errorf("the step failed with %s", s.Error)
	}
}
