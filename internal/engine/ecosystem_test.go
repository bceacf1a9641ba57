package engine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/templatefile"
)

// Templates in the shapes of the Tasker ecosystem run to their end, with handlers that answer
// as theirs do.
func TestTemplatesOfTheEcosystemRun(t *testing.T) {
	t.Parallel()
	const none = `{"decision_point_outcome": {"type": "no_branches"}}`
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
		{"aliases", `{}`, map[string]string{"second": takes("third")}, "first fourth second third"},
	} {
		t.Run(c.shape, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			doc, err := os.ReadFile("../templatefile/testdata/ecosystem/" + c.shape + ".yaml")
			h.Must(err)
			parsed, _, err := templatefile.Parse(doc)
			h.Must(err)
			_, _, err = h.Engine.RegisterTemplate(t.Context(), parsed, string(doc))
			h.Must(err)
			var handlers, ran []string
			for _, s := range parsed.Steps {
				handlers = append(handlers, s.Handler.Callable)
			}
			registered, err := h.Engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "shapes", Namespaces: []string{parsed.Namespace}, Handlers: handlers, MaxConcurrency: 100})
			h.Must(err)
			h.worker = registered.WorkerUUID
			task := h.CreateWith(tasker.NewTask{Namespace: parsed.Namespace, Name: parsed.Name, Context: []byte(c.context)})
			for list := h.claim(); len(list) > 0; list = h.claim() {
				for _, a := range list {
					ran = append(ran, a.Name)
					result := c.results[a.Name]
					if result == "" {
						result = `{}`
					}
					h.accepted(success(a, result))
				}
				h.tick()
			}
			slices.Sort(ran)
			if got := strings.Join(ran, " "); got != c.ran {
				t.Errorf("ran %s, want %s", got, c.ran)
			}
			h.wantState(task, tasker.TaskComplete)
		})
	}
}
