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
	h.Accepted(success(h.ClaimOne("split"), lines(n)))
	h.Tick()
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
	for list := h.Claim(); len(list) > 0; list = h.Claim() {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b tasker.Assignment) int { return *a.Index - *b.Index })
	return all
}

func (h *harness) wantItems(task tasker.ID, name string, want tasker.ItemCounts) {
	h.Helper()
	s := h.Step(task, name)
	check(h, s.Items != nil && *s.Items == want, "the items of %s are %+v, want %+v", name, s.Items, want)
}

func TestMapStepRunsOncePerElement(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(3)
	require(t, len(items) == 3, "claimed %v", names(items))
	for i, a := range items {
		want := fmt.Sprintf(`{"line": %d}`, i)
		if a.Name != fmt.Sprintf("refund[%d]", i) || *a.Index != i || string(a.Item) != want || len(a.DependencyResults["split"]) == 0 || a.MaxAttempts != 2 {
			t.Errorf("claimed %+v, want the item %s", a, want)
		}
	}
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 3, InProgress: 3})
	h.WantState(task, tasker.TaskStepsInProcess)
	for _, i := range []int{2, 0, 1} {
		h.Accepted(success(items[i], fmt.Sprintf(`"r%d"`, i)))
	}
	h.WantStep(task, "refund", tasker.StepPending, 0)
	h.Tick()
	h.WantStep(task, "refund", tasker.StepComplete, 0)
	h.WantResult(task, "refund", `{"items": 3, "results": ["r0", "r1", "r2"]}`)
	a := h.ClaimOne("tell")
	check(t, a.Item == nil && a.Index == nil && strings.Contains(string(a.DependencyResults["refund"]), `"r2"`),
		"claimed %+v", a)
	h.Accepted(success(a, `1`))
	h.WantState(task, tasker.TaskComplete)
}

func TestResettingAMapStepResetsItsFailedItems(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(4)
	refund := h.Step(task, "refund").UUID
	reset := tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "gateway repaired", Actor: "ann"}
	_, err := h.Engine.OperateStep(t.Context(), task, refund, reset)
	h.WantCode(err, tasker.Conflict, "is waiting for 4 of its items, none of which has failed")
	other := reset
	other.NewChild = true
	h.WantCode(errOf(h.Engine.OperateStep(t.Context(), task, refund, other)), tasker.Conflict, "is not a child step")
	h.Accepted(failure(items[0], false), failure(items[1], false), failure(items[2], false), success(items[3], `3`))
	h.WantState(task, tasker.TaskError)
	left, err := h.Engine.OperateStep(t.Context(), task, refund, reset)
	h.Must(err)
	check(t, left.UUID == refund && left.State == tasker.StepPending && left.Items != nil && left.Items.Pending == 3,
		"it left %+v", left)
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'step.reset' AND subject = $1 AND (data ->> 'items')::int = 3`, refund.String())
	again := h.claimItems()
	require(t, len(again) == 3, "claimed %v", names(again))
	for _, a := range again {
		h.Accepted(success(a, `"again"`))
	}
	h.Tick()
	h.Complete("tell")
	h.WantState(task, tasker.TaskComplete)
}

func TestMapStepIsEndedManuallyOnlyWithInterrupt(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(4)
	refund := h.Step(task, "refund").UUID
	h.Accepted(success(items[0], `0`), failure(items[1], false))
	complete := tasker.ActionRequest{Action: tasker.CompleteManually, Reason: "done elsewhere", Actor: "ann", Result: json.RawMessage(`"by hand"`)}
	h.WantCode(errOf(h.Engine.OperateStep(t.Context(), task, refund, complete)), tasker.Conflict, "set interrupt")
	complete.Interrupt = true
	h.Must(errOf(h.Engine.OperateStep(t.Context(), task, refund, complete)))
	h.Rejected(success(items[2], `2`))
	h.wantItems(task, "refund", tasker.ItemCounts{Total: 4, Completed: 4})
	h.WantResult(task, "refund", `"by hand"`)
	h.Tick()
	h.Complete("tell")
	h.WantState(task, tasker.TaskComplete)
}

func TestInvalidListFailsTheMapStep(t *testing.T) {
	h := newHarness(t)
	for name, tt := range map[string]struct{ result, want string }{
		"no list":     {`{"lines": {"a": 1}}`, "must be a list"},
		"nothing":     {`{}`, `missing key \"lines\"`},
		"null":        {`{"lines": null}`, "must be a list"},
		"too long":    {`{"lines": [0` + strings.Repeat(",1", tasker.MaxMapItems) + `]}`, "10001 elements; the limit is 10000"},
		"no elements": {`{"lines": "abc"}`, "must be a list"},
	} {
		h.each(name, func(h *harness) {
			h.refunds()
			task := h.Create("refunds")
			h.Accepted(success(h.ClaimOne("split"), tt.result))
			h.Tick()
			h.WantState(task, tasker.TaskError)
			s := h.Step(task, "refund")
			check(h, s.State == tasker.StepError && s.Items == nil && strings.Contains(string(s.Error), tt.want),
				"the step is %s: %s", s.State, s.Error)
			h.WantDetail(task, tasker.ExpressionFailed)
			h.Exec(`UPDATE tasker.workflow_steps SET results = jsonb_set(results, '{result}', '{"lines": [1, 2]}') WHERE name = 'split'`)
			_, err := h.Engine.OperateStep(h.Context(), task, s.UUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "the result is repaired", Actor: "ann"})
			h.Must(err)
			h.Tick()
			for _, a := range h.claimItems() {
				h.Accepted(success(a, string(a.Item)))
			}
			h.Tick()
			h.WantResult(task, "refund", `{"items": 2, "results": [1, 2]}`)
			h.Complete("tell")
		})
	}
}

func TestLargeResultsStayWithTheirItems(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(3)
	large := `"` + strings.Repeat("x", 200<<10) + `"`
	many := `[` + strings.Repeat("1,", 60_000) + `1]`
	h.Accepted(success(items[0], large), success(items[1], many), success(items[2], many))
	h.Tick()
	s := h.Step(task, "refund")
	want := fmt.Sprintf(`{"items": 3, "read_at": "/v1/tasks/%s/results/%s/items", "results_truncated": true}`, task, s.Name)
	h.WantResult(task, "refund", want)
	h.Complete("tell")
	h.WantState(task, tasker.TaskComplete)
}

func TestSnapshotCountsItemsAndContainsFailedOnes(t *testing.T) {
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
	h.Accepted(outcomes...)
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
			check(t, s.Items != nil && *s.Items == (tasker.ItemCounts{Total: 120, Completed: 117, Failed: 3}),
				"counted %+v", s.Items)
		case strings.HasPrefix(s.Name, "refund["):
			check(t, string(s.Item.Value) == fmt.Sprintf(`{"line": %d}`, s.Item.Ordinal) && len(s.Failures) == 1,
				"the item is %+v", s)
		}
	}
	slices.Sort(seen)
	check(t, slices.Equal(seen, []string{"refund", "refund[7]", "refund[8]", "refund[9]", "split", "tell"}),
		"the snapshot has %v", seen)
}

func TestMapStepNeedsAList(t *testing.T) {
	h := newHarness(t)
	s := enginetest.Step("each")
	s.Type = tasker.MapStep
	_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: h.Space, Name: "each", Version: "1.0.0", Steps: []tasker.StepTemplate{s}}, "")
	h.WantCode(err, tasker.Invalid, "steps[0].over: is missing")
}

func TestItemsAreListed(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(7)
	refund := h.Step(task, "refund").UUID
	h.Accepted(failure(items[1], false), failure(items[5], true), success(items[2], `2`))
	read := func(f tasker.MapItemFilter) (names []string, next int) {
		t.Helper()
		list, next, err := h.DB.MapItems(t.Context(), task, refund, f)
		h.Must(err)
		for _, s := range list {
			names = append(names, s.Name)
			if s.Ordinal == nil || string(s.Item) != fmt.Sprintf(`{"line": %d}`, *s.Ordinal) || s.Name != tasker.ItemName("refund", *s.Ordinal) {
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
	check(t, len(list) == 2 && len(list[0].Error) != 0 && list[0].NextRetryAt == nil && list[1].NextRetryAt != nil,
		"those in error are %+v", list)
	if id, err := h.DB.StepNamed(t.Context(), task, "refund[5]"); err != nil || id != items[5].StepUUID {
		t.Errorf("refund[5] is %s: %v", id, err)
	}
	if list, next, err := h.DB.MapItems(t.Context(), task, h.Step(task, "split").UUID, tasker.MapItemFilter{Limit: 9}); len(list) > 0 || next != 0 || err != nil {
		t.Errorf("a step that is no map step has %v: %v", list, err)
	}
	_, _, err = h.DB.MapItems(t.Context(), task, tasker.NewID(), tasker.MapItemFilter{Limit: 9})
	h.WantCode(err, tasker.NotFound, "has no step")
}

func TestPagesOfItemsAreBounded(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(12)
	refund := h.Step(task, "refund").UUID
	h.Succeed(items...)
	h.Exec(`UPDATE tasker.workflow_steps SET results = r.doc, results_bytes = octet_length((r.doc -> 'result')::text)
		FROM (SELECT jsonb_build_object('success', true, 'result', jsonb_agg(repeat('x', 250000))) AS doc FROM generate_series(1, 4)) r
		WHERE map_step_uuid = $1`, refund)
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
	check(t, pages == 2 && len(seen) == 12 && seen[11] == "refund[11]", "%d pages with %v", pages, seen)
	var results []int
	for from, next := 0, 1; next > 0; from = next {
		page, err := h.Engine.ItemResults(t.Context(), task, "refund", from)
		h.Must(err)
		results, next = append(results, len(page.Results)), page.Next
		for _, doc := range page.Results {
			check(t, strings.HasPrefix(string(doc), `["xxx`) && len(doc) >= 1_000_000,
				"the result is %.20s of %d bytes", doc, len(doc))
		}
	}
	check(t, len(results) == 2 && results[0]+results[1] == 12, "pages have %v results", results)
}

func TestResultsOfItemsAreReadByNameOrID(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(3)
	h.Accepted(success(items[0], `"a"`), success(items[2], `null`))
	refund := h.Step(task, "refund").UUID
	for _, id := range []*tasker.ID{nil, &refund} {
		page, err := h.DB.ItemResultsFrom(t.Context(), task, id, "refund", 0)
		h.Must(err)
		if got, _ := json.Marshal(page.Results); string(got) != `["a",null,null]` || page.Next != 0 {
			t.Errorf("read %s and then %d", got, page.Next)
		}
	}
	page, err := h.DB.ItemResultsFrom(t.Context(), task, nil, "refund", 3)
	h.Must(err)
	check(t, len(page.Results) == 0 && page.Next == 0, "after the last one are %+v", page)
	_, err = h.Engine.ItemResults(t.Context(), task, "split", 0)
	h.WantCode(err, tasker.NotFound, "step split of task", "has no items")
	h.WantCode(errOf(h.Engine.ItemResults(t.Context(), task, "none", 0)), tasker.NotFound, `has no step "none"`)
	h.WantCode(errOf(h.DB.ItemResultsFrom(t.Context(), task, &task, "", 0)), tasker.NotFound, "has no step")
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

// listItems is the length of long lists: PostgreSQL reads shorter ones in another way.
const listItems = tasker.MaxMapItems

func TestLongListRuns(t *testing.T) {
	h := newHarness(t)
	h.Template("long", attempts(1, mapOver("context.list", enginetest.Step("each"))))
	task := h.create("long", `{"list": [0`+strings.Repeat(",1", listItems-1)+`]}`)
	timed := func(what string, do func()) {
		t.Helper()
		begun := time.Now()
		do()
		t.Logf("%s: %s", what, time.Since(begun).Round(time.Millisecond))
	}
	timed("expand", h.Tick)
	bad := []int{listItems / 10, listItems / 2, listItems - 1}
	var failures []tasker.Outcome
	timed("claim and report all", func() {
		for n := 0; n < listItems; {
			list := h.Claim()
			var outcomes []tasker.Outcome
			for _, a := range list {
				if n++; slices.Contains(bad, *a.Index) {
					failures = append(failures, failure(a, false))
				} else {
					outcomes = append(outcomes, success(a, `"done"`))
				}
			}
			require(t, len(list) != 0, "only %d items were handed out", n)
			h.Accepted(outcomes...)
		}
	})
	timed("report three that failed", func() { h.Accepted(failures...) })
	each := h.Step(task, "each").UUID
	h.WantState(task, tasker.TaskError)
	h.wantItems(task, "each", tasker.ItemCounts{Total: listItems, Completed: listItems - 3, Failed: 3})
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
	wantWhole := []string{tasker.ItemName("each", bad[0]), tasker.ItemName("each", bad[1]), tasker.ItemName("each", bad[2])}
	slices.Sort(whole)
	check(t, len(doc) <= 1<<20 && slices.Equal(whole, wantWhole), "a snapshot of %d bytes has %v", len(doc), whole)
	equal(t, "steps of the snapshot", len(snapshot.Steps), 4)
	timed("the snapshot", func() {
		// All steps are read to find those that are shown, to count, to measure documents and to put the snapshot together. The
		// history is read for each, as the list in the context is compressed.
		const times = 4
		for _, table := range []string{"workflow_steps", "step_history"} {
			rows := h.Count(`SELECT count(*) FROM tasker.` + table)
			if n := h.Count(readBySnapshot, task, table); n < rows || n > times*rows+rows/10 {
				t.Errorf("the snapshot reads %d rows of %s, which has %d: more than %d times", n, table, rows, times)
			}
		}
	})
	timed("reset all that failed", func() {
		_, err := h.Engine.OperateStep(t.Context(), task, each, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
		h.Must(err)
	})
	for _, a := range h.claimItems() {
		h.Accepted(success(a, `["`+strings.Repeat("x", 200<<10)+`", "`+strings.Repeat("y", 200<<10)+`"]`))
	}
	timed("join", h.Tick)
	h.WantState(task, tasker.TaskComplete)
	want := fmt.Sprintf(`{"items": %d, "read_at": "/v1/tasks/%s/results/each/items", "results_truncated": true}`, listItems, task)
	h.WantResult(task, "each", want)
	timed("read all results", func() {
		n := 0
		for from, next := 0, 1; next > 0; from = next {
			page, err := h.Engine.ItemResults(t.Context(), task, "each", from)
			h.Must(err)
			n, next = n+len(page.Results), page.Next
		}
		equal(t, "read results", n, listItems)
	})
	h.Exec(`ANALYZE`) // or the look for violations takes minutes
}

func TestLongListIsMigratedCancelledAndPruned(t *testing.T) {
	h := newHarness(t)
	h.Template("long", mapOver("context.list", enginetest.Step("each")), enginetest.Step("end", "each"))
	task := h.create("long", `{"list": [0`+strings.Repeat(",1", listItems-1)+`]}`)
	h.Tick()
	begun := time.Now()
	timed := func(what string) {
		t.Logf("%s: %s", what, time.Since(begun).Round(time.Millisecond))
		begun = time.Now()
	}
	h.RegisterTemplate(tasker.Template{
		Namespace: h.Space, Name: "long", Version: "1.1.0", Steps: []tasker.StepTemplate{mapOver("context.list", enginetest.Step("each")), handledBy("repaired", enginetest.Step("end", "each"))},
	})
	begun = time.Now()
	h.change(task, "1.1.0")
	timed("brought to another version")
	h.WantCount(1, `SELECT count(*) FROM tasker.workflow_steps WHERE handler = 'repaired'`)
	begun = time.Now()
	h.Cancel(task)
	timed("cancelled")
	h.wantItems(task, "each", tasker.ItemCounts{Total: listItems, Cancelled: listItems})
	h.Exec(`ANALYZE`)
	begun = time.Now()
	p, err := h.DB.PruneTasks(t.Context(), tasker.TaskCancelled, tasker.ID{}, -time.Minute, postgres.PruneBounds{Tasks: 100, Steps: 1000})
	h.Must(err)
	timed(fmt.Sprintf("removed: %+v", p))
	h.WantCount(0, `SELECT count(*) FROM tasker.workflow_steps`)
}

// runWithTimeout is mapOver with so many items under way at once.
func runWithTimeout(n int, s tasker.StepTemplate) tasker.StepTemplate {
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
	require(h, slices.Equal(got, append([]int{}, want...)), "claimed the items %v, want %v", got, want)
	return list
}

func TestMaxParallelLimitsItems(t *testing.T) {
	h := newHarness(t)
	h.Template("few", attempts(2, runWithTimeout(2, mapOver("context.list", enginetest.Step("each")))), enginetest.Step("end", "each"))
	task := h.create("few", `{"list": [0, 1, 2, 3, 4, 5]}`)
	h.Tick()
	first := h.claims(0, 1)
	h.wantItems(task, "each", tasker.ItemCounts{Total: 6, Pending: 4, InProgress: 2})
	h.Accepted(success(first[0], `0`))
	h.Accepted(success(h.claims(2)[0], `2`), failure(first[1], true))
	h.wantItems(task, "each", tasker.ItemCounts{Total: 6, Pending: 2, Enqueued: 1, Completed: 2, Retrying: 1})
	h.WantState(task, tasker.TaskStepsInProcess)
	h.Accepted(success(h.claims(3)[0], `3`))
	h.pass()
	again := h.claims(1, 4)
	h.Accepted(failure(again[0], true), success(again[1], `4`))
	h.Accepted(success(h.claims(5)[0], `5`))
	h.WantState(task, tasker.TaskError)
	_, err := h.Engine.OperateStep(t.Context(), task, again[0].StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Reason: "repaired", Actor: "ann"})
	h.Must(err)
	h.Accepted(success(h.claims(1)[0], `1`))
	h.Tick()
	h.WantResult(task, "each", `{"items": 6, "results": [0, 1, 2, 3, 4, 5]}`)
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
}

func TestItemMayContainSeveralElements(t *testing.T) {
	h := newHarness(t)
	s := mapOver("context.list", enginetest.Step("each"))
	s.Chunk = 2
	h.Template("chunks", s)
	task := h.create("chunks", `{"list": [10, 11, 12, 13, 14]}`)
	h.Tick()
	var got []string
	for _, a := range h.claimItems() {
		got = append(got, string(a.Item))
		h.Accepted(success(a, string(a.Item)))
	}
	check(t, slices.Equal(got, []string{"[10, 11]", "[12, 13]", "[14]"}), "items have %v", got)
	h.Tick()
	h.WantResult(task, "each", `{"items": 3, "results": [[10, 11], [12, 13], [14]]}`)
	h.WantState(task, tasker.TaskComplete)
}

func TestTooLargeChunkOpensAnInvestigation(t *testing.T) {
	h := newHarness(t)
	s := mapOver("[context.large, context.large]", enginetest.Step("refund"))
	s.Chunk = 2
	h.Template("chunks", s)
	piece := `"` + strings.Repeat("x", 250_000) + `"`
	task := h.create("chunks", `{"large": [`+piece+`, `+piece+`, `+piece+`]}`)
	h.Tick()
	h.WantState(task, tasker.TaskError)
	if s := h.Step(task, "refund"); !strings.Contains(string(s.Error), "chunk 0 of the list") {
		t.Errorf("the step failed with %s", s.Error)
	}
}
