package engine_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/templatefile"
)

func TestEcosystemTemplatesRun(t *testing.T) {
	h := newHarness(t)
	const none = `{"decision_point_outcome": {"type": "no_branches"}}`
	const cursors = `{"batch_processing_outcome": {"type": "create_batches", "worker_template_name": "work", "worker_count": 2, "total_items": 5, "cursor_configs": [
		{"batch_id": "001", "start_cursor": 0, "end_cursor": 3, "batch_size": 3}, {"batch_id": "002", "start_cursor": 3, "end_cursor": 5, "batch_size": 2}]}}`
	takes := func(names string) string {
		return `{"decision_point_outcome": {"type": "create_steps", "step_names": ["` + strings.ReplaceAll(names, " ", `", "`) + `"]}}`
	}
	for _, c := range []struct {
		shape, context string
		results        map[string]string // of decisions; others give {}
		ran            string
	}{
		{"sequence", `{"even_number": 6}`, nil, "double halve report square"},
		{"diamond", `{}`, nil, "finish left right start"},
		{"tree", `{}`, nil, "gather left left_left left_right right right_left right_right root"},
		{"mesh", `{}`, nil, "a b c d e f g"},
		{"approval", `{"amount": 500}`, map[string]string{"route": takes("automatic")}, "automatic finalize route validate"},
		{"approval", `{"amount": 9000}`, map[string]string{"route": takes("manager finance")}, "finalize finance manager route validate"},
		{"approval", `{"amount": 0}`, map[string]string{"route": none}, "finalize route validate"},
		{"two_decisions", `{}`, map[string]string{"first": takes("careful"), "careful": takes("audit")}, "audit careful done first"},
		{"two_decisions", `{}`, map[string]string{"first": takes("quick")}, "done first quick"},
		{"diamond_decision", `{}`, map[string]string{"choose": takes("odd_path")}, "choose evens merge odd_path odds start"},
		{"staleness", `{}`, nil, "first second"},
		{"one_attempt", `{}`, nil, "once"},
		{"not_retryable", `{}`, nil, "never"},
		{"exported", `{}`, nil, "one two"},
		{"enrolment", `{"person": {"email": "a@b.example", "plan": "free"}}`, nil, "activate open_account set_up_billing set_up_profile welcome"},
		{"feeds", `{"range": {"from": "2025-01-01", "to": "2025-02-01"}}`, nil, "clean_customers clean_sales clean_stock merge publish read_customers read_sales read_stock"},
		{"checkout", `{"items": [{"product": 1, "quantity": 2}], "customer": {"email": "a@b.example"}, "payment": {"amount": 9.5}}`, nil, "check_cart confirm reserve store_order take_payment"},
		{"batches", `{}`, map[string]string{"analyze": cursors}, "analyze gather work[0] work[1]"},
		{"batches", `{}`, map[string]string{"analyze": `{"batch_processing_outcome": {"type": "no_batches"}}`}, "analyze gather"},
		{"diamond_batches", `{}`, map[string]string{"choose": takes("analyze"), "analyze": cursors}, "analyze choose gather start work[0] work[1]"},
		{"diamond_batches", `{}`, map[string]string{"choose": none}, "choose start"},
		{"aliases", `{}`, map[string]string{"second": takes("third")}, "first fourth second third"},
	} {
		h.each(c.shape, func(h *harness) {
			doc, err := os.ReadFile("../templatefile/testdata/ecosystem/" + c.shape + ".yaml")
			h.Must(err)
			parsed, _, err := templatefile.Parse(doc)
			h.Must(err)
			_, _, err = h.Engine.RegisterTemplate(h.Context(), parsed, string(doc))
			h.Must(err)
			var handlers, ran []string
			for _, s := range parsed.Steps {
				handlers = append(handlers, s.Handler.Callable)
			}
			registered, err := h.Engine.RegisterWorker(h.Context(), tasker.WorkerSpec{Name: "shapes", Namespaces: []string{parsed.Namespace}, Handlers: handlers, MaxConcurrency: 100})
			h.Must(err)
			h.Worker = registered.WorkerUUID
			task := h.CreateWith(tasker.NewTask{Namespace: parsed.Namespace, Name: parsed.Name, Context: []byte(c.context)})
			for list := h.Claim(); len(list) > 0; list = h.Claim() {
				for _, a := range list {
					ran = append(ran, a.Name)
					result := c.results[a.Name]
					if result == "" {
						result = `{}`
					}
					h.Accepted(success(a, result))
				}
				h.Tick()
			}
			slices.Sort(ran)
			equal(h, "steps run", strings.Join(ran, " "), c.ran)
			h.WantState(task, tasker.TaskComplete)
		})
	}
}

func TestEcosystemBatchesRun(t *testing.T) {
	h := newHarness(t)
	doc, err := os.ReadFile("../templatefile/testdata/ecosystem/batches.yaml")
	h.Must(err)
	parsed, _, err := templatefile.Parse(doc)
	h.Must(err)
	parsed.Namespace = enginetest.Namespace
	_, _, err = h.Engine.RegisterTemplate(t.Context(), parsed, string(doc))
	h.Must(err)
	h.Worker = h.RegisterWorker("Shapes::AnalyzeHandler", "Shapes::WorkHandler", "Shapes::GatherHandler")
	run := func(outcome string) tasker.ID {
		t.Helper()
		task := h.Create("batches")
		h.Accepted(success(h.ClaimOne("analyze"), outcome))
		h.Tick()
		return task
	}
	run(`{"batch_processing_outcome": {"type": "create_batches", "cursor_configs": [{"batch_id": "001", "start_cursor": 0, "end_cursor": 3}, {"batch_id": "002", "start_cursor": "b7", "end_cursor": null}]}}`)
	items := h.claimItems()
	if len(items) != 2 || string(items[0].Item) != `{"batch_id": "001", "end_cursor": 3, "start_cursor": 0}` || string(items[1].Item) != `{"batch_id": "002", "end_cursor": null, "start_cursor": "b7"}` {
		t.Fatalf("claimed %+v", items)
	}
	var given struct {
		BatchConfig map[string]any `json:"batch_config"`
	}
	h.Must(json.Unmarshal(items[1].Initialization, &given))
	if given.BatchConfig["cursor_field"] != "id" || given.BatchConfig["failure_strategy"] != "continue_on_failure" {
		t.Errorf("the handler is given %s", items[1].Initialization)
	}
	h.Must(h.save(items[1], `{"processed": 1}`))
	h.Accepted(success(items[0], `3`), failure(items[1], true))
	h.due()
	h.pass()
	again := h.ClaimOne("work[1]")
	check(t, string(again.Checkpoint) == `{"processed": 1}`, "the next attempt is given %s", again.Checkpoint)
	h.Accepted(success(again, `2`))
	h.Tick()
	gather := h.ClaimOne("gather")
	equal(t, "input of gather", string(gather.DependencyResults["work"]), `{"items": 2, "results": [3, 2]}`)
	h.Accepted(success(gather, `5`))

	for _, outcome := range []string{`{}`, `{"batch_processing_outcome": "no_batches"}`, `{"batch_processing_outcome": {"type": "create_batches"}}`} {
		task := run(outcome)
		h.WantDetail(task, tasker.ExpressionFailed)
		h.WantStep(task, "gather", tasker.StepPending, 0)
	}
}
