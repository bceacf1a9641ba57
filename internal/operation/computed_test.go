package operation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
)

// computing is a plan to complete all that has failed with what an expression gives.
func computing(expression string) tasker.OperationPlan {
	p := plan()
	p.Act, p.ResultExpression = tasker.ActComplete, expression
	return p
}

// orders makes tasks of a template whose step charge comes after price, and has failed for
// good; each has its amount in the context, and its price from the first step.
func (h *harness) orders(amounts ...string) []tasker.ID {
	h.Helper()
	h.Template("priced", enginetest.Once(enginetest.Step("price")), enginetest.Once(enginetest.Step("charge", "price")), enginetest.Once(enginetest.Step("ship", "charge")))
	tasks := make([]tasker.ID, len(amounts))
	for i, amount := range amounts {
		tasks[i] = h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "priced", Context: json.RawMessage(amount)})
	}
	h.work(len(tasks), func(a tasker.Assignment) tasker.Outcome {
		return tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(`{"total": 12345678901234567890.10}`)}
	})
	h.work(len(tasks), fails("declined"))
	return tasks
}

// drive runs an operation to its end.
func (h *harness) drive(o tasker.Operation) {
	h.Helper()
	for range 6 {
		h.releaseDue()
		h.look()
	}
	h.wantCounts(o, tasker.OperationDone, nonZero(h.now(o).Counts))
}

var allSkipped = tasker.OperationItemFilter{State: tasker.ItemSkipped, Limit: 10}

func nonZero(c counts) counts {
	out := counts{}
	for s, n := range c {
		if n > 0 {
			out[s] = n
		}
	}
	return out
}

func (h *harness) resultOf(task tasker.ID, step string) string {
	h.Helper()
	var doc *string
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT results ->> 'result' FROM tasker.workflow_steps WHERE task_uuid = $1 AND name = $2`, task, step).Scan(&doc))
	if doc == nil {
		return ""
	}
	return *doc
}

// Each step is completed with what the expression gives for it; an item for which it gives
// nothing is skipped with the reason, and holds up no other.
func TestResultsAreComputedForEachItem(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.orders(`{"amount": 1}`, `{"amount": 2.5}`, `{}`, `{"amount": "secret"}`, `{"amount": 7}`)
	p := computing(`{"paid": context.amount * 2, "why": error.type + ": " + error.message, "attempt": error.attempt, "of": task.namespace, "was": steps.price.state}`)
	p.Waves = []int{2}
	o := h.planned(p)
	before := h.Contents()
	r := h.dryRun(o, 100)
	if diff := cmp.Diff(before, h.Contents()); diff != "" {
		t.Errorf("the dry run has changed %s", diff)
	}
	if r.LookedAt != 5 || r.WouldRelease != 3 || r.Enqueues["ship"] != 3 || len(r.Results) != 3 || len(r.Refused) != 1 {
		t.Errorf("it tells %+v", r)
	}
	const first = `{"attempt":1,"of":"shop","paid":2,"was":"complete","why":"Declined: declined"}`
	if d := r.Results[0]; d.TaskUUID != tasks[0] || string(d.Result) != first || d.Bytes != len(first) {
		t.Errorf("the first result would be %s", d.Result)
	}
	if f := r.Refused[0]; f.Outcome != "expression_failed" || f.Items != 2 || !strings.Contains(f.Reason, `missing key "amount"`) {
		t.Errorf("it would skip %+v", f)
	}
	h.start(o)
	h.drive(o)
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 3, tasker.ItemSkipped: 2})
	for i, want := range []string{`"paid": 2,`, `"paid": 5,`, "", "", `"paid": 14,`} {
		if got := h.resultOf(tasks[i], "charge"); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("the result of item %d is %s", i, got)
		}
	}
	var told []string
	list, _, err := h.DB.OperationItems(t.Context(), o.UUID, allSkipped)
	h.Must(err)
	for _, i := range list {
		told = append(told, i.Outcome+" "+i.FailureText)
	}
	if all := strings.Join(told, "\n"); len(told) != 2 || strings.Count(all, "expression_failed ") != 2 || strings.Contains(all, "secret") ||
		!strings.Contains(all, `missing key "amount", in: {"paid"`) || !strings.Contains(all, "does not support these types") {
		t.Errorf("the items tell %q", told)
	}
	if s := h.State(tasks[2]); s != tasker.TaskError {
		t.Errorf("the task whose item was skipped is %s", s)
	}
}

// A value that is only named is handed on as it is written, with every digit.
func TestAValueThatIsNamedKeepsItsDigits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.orders(`{"amount": 1}`)
	h.drive(h.started(computing(`results.price`)))
	if got := h.resultOf(tasks[0], "charge"); got != `{"total": 12345678901234567890.10}` {
		t.Errorf("the result is %s", got)
	}
}

// The result of an item of a map step is computed from what the item is for; the other items
// and the map step are not touched.
func TestResultsOfItemsAreComputed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	each := enginetest.Once(enginetest.Step("each"))
	each.Type, each.Over = tasker.MapStep, "context.list"
	h.Template("list", each)
	task := h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "list", Context: json.RawMessage(`{"list": [{"n": 1}, {"n": 20}]}`)})
	_, err := h.Engine.Tick(t.Context())
	h.Must(err)
	h.work(2, func(a tasker.Assignment) tasker.Outcome {
		if a.Name == "each[1]" {
			return fails("no")(a)
		}
		return succeeds(a)
	})
	h.drive(h.started(computing(`{"n": item.n + 1}`)))
	if got := h.resultOf(task, "each[1]"); got != `{"n": 21}` {
		t.Errorf("the result of the item is %s", got)
	}
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	if s := h.State(task); s != tasker.TaskComplete {
		t.Errorf("the task is %s", s)
	}
}

// A result that a decision cannot have is refused for that item, with the reason.
func TestAComputedDecision(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	route := enginetest.Once(enginetest.Step("route"))
	route.Type = tasker.DecisionStep
	h.Template("routed", route, enginetest.Step("air", "route"), enginetest.Step("sea", "route"))
	var tasks []tasker.ID
	for _, by := range []string{"air", "rail"} {
		tasks = append(tasks, h.CreateWith(tasker.NewTask{Namespace: enginetest.Namespace, Name: "routed", Context: json.RawMessage(`{"by": "` + by + `"}`)}))
	}
	h.work(2, fails("no"))
	o := h.started(computing(`{"steps": [context.by]}`))
	h.drive(o)
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1, tasker.ItemSkipped: 1})
	list, _, err := h.DB.OperationItems(t.Context(), o.UUID, allSkipped)
	h.Must(err)
	if list[0].TaskUUID != tasks[1] || list[0].Outcome != "refused" || !strings.Contains(list[0].FailureText, "rail") {
		t.Errorf("the item tells %+v", list[0])
	}
}

// A result that is too large is the refusal of its item, and the dry run does not show it.
func TestComputedResultsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	long := strings.Repeat("a", 200_000)
	tasks := h.orders(`{"text": "`+long+`"}`, `{"text": "short"}`)
	o := h.started(computing(`{"texts": [context.text, context.text, context.text, context.text, context.text, context.text]}`))
	r := h.dryRun(o, 10)
	if len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Reason, "larger than 1048576 bytes") || len(r.Refused[0].Reason) > 2000 {
		t.Errorf("it would skip %+v", r.Refused)
	}
	h.drive(o)
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 1, tasker.ItemSkipped: 1})
	if got := h.resultOf(tasks[1], "charge"); got != `{"texts": ["short", "short", "short", "short", "short", "short"]}` {
		t.Errorf("the result is %s", got)
	}
	h = newHarness(t)
	h.orders(`{"text": "` + long + `"}`)
	o = h.planned(computing(`context.text`))
	r = h.dryRun(o, 10)
	if len(r.Results) != 1 || r.Results[0].Result != nil || r.Results[0].Bytes != 200_002 {
		t.Errorf("a large result is told as %d bytes: %.40s", r.Results[0].Bytes, r.Results[0].Result)
	}
}

// An expression is checked for every template whose steps are selected, when it is planned.
func TestExpressionsArePlannedOnlyIfTheyFit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(1) // of a template without price
	h.orders(`{"amount": 1}`)
	for expression, words := range map[string][]string{
		`results.price.total`:     {"act.result_expression", "step charge of template shop/order", `column 14: unknown step "price"`},
		`context.amount +`:        {"act.result_expression", "step charge of template shop/", "column 17: unexpected end"},
		`error.kind`:              {"column 6: unknown error.kind", "error.message"},
		`item.n`:                  {"column 1: undeclared reference to 'item'"},
		`results.ship`:            {"step \"ship\" is not a dependency"},
		strings.Repeat("1+", 3e3): {"has 6000 bytes; the limit is 4096"},
		"'\x00'":                  {"contains NUL"},
	} {
		_, _, err := h.ops.Plan(t.Context(), computing(expression))
		h.WantCode(err, tasker.Invalid, words...)
	}
	p := computing(`results.price.total`)
	p.Selection.Filter.Name = "priced"
	h.planned(p)
	p = computing(`1`)
	p.Result = json.RawMessage(`1`)
	_, _, err := h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Invalid, "act.result_expression: conflicts with result")
	p = computing(`1`)
	p.Act = tasker.ActResolve
	_, _, err = h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Invalid, "act.result_expression: is only allowed with complete_manually and answer")
	if n := h.Count(`SELECT count(*) FROM tasker.operations`); n != 1 {
		t.Errorf("plans that were refused have left %d operations", n-1)
	}
}

// An expression is for steps of a hundred kinds at most.
func TestExpressionsAreLimitedToAHundredSteps(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 101 {
		name := fmt.Sprint("kind", i)
		h.Template(name, enginetest.Once(enginetest.Step("only")))
		h.Create(name)
	}
	h.work(101, fails("no"))
	_, _, err := h.ops.Plan(t.Context(), computing(`1`))
	h.WantCode(err, tasker.Invalid, "more than 100 kinds")
	p := computing(`1`)
	p.Limit = 100
	h.planned(p)
}

// One connection is enough to plan and to try an operation, also for a server that does not know
// the templates yet: servers whose connections are all in such requests would wait for each other.
func TestResultsAreComputedOnOneConnection(t *testing.T) {
	t.Parallel()
	h := with(enginetest.NewWith(t, postgres.Options{MaxConns: 1}))
	h.orders(`{"amount": 1}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fresh := func() *operation.Service {
		return operation.New(h.DB, engine.New(h.DB, engine.Options{}), h.DLQ, operation.Options{})
	}
	o, _, err := fresh().Plan(ctx, computing(`context.amount`))
	h.Must(err)
	r, err := fresh().DryRun(ctx, o.UUID, 0, 10)
	h.Must(err)
	if r.WouldRelease != 1 {
		t.Errorf("it tells %+v", r)
	}
}

// The dry run shows who may not read payloads neither results nor why there are none.
func TestADryRunHidesComputedResults(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.orders(`{"amount": 1}`, `{}`)
	o := h.planned(computing(`context.amount`))
	r, err := h.ops.DryRun(access.WithPayloadScope(t.Context(), access.Scope{}), o.UUID, 0, 10)
	h.Must(err)
	if r.WouldRelease != 1 || len(r.Results) != 0 || len(r.Refused) != 1 || r.Refused[0].Reason != "" || r.Refused[0].Items != 1 {
		t.Errorf("it tells %+v", r)
	}
}

// A single step is completed by an expression as well; what it cannot give is said.
func TestAStepIsCompletedByAnExpression(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.orders(`{"amount": 4}`)[0]
	step := *h.Entry(task).StepUUID
	do := func(expression string) error {
		_, err := h.Engine.OperateStep(t.Context(), task, step, tasker.ActionRequest{
			Action: tasker.CompleteManually, Actor: "ann", Reason: "r", ResultExpression: expression,
		})
		return err
	}
	h.WantCode(do(`context.price`), tasker.Conflict, `missing key "price"`)
	h.WantCode(do(`nothing.price`), tasker.Conflict, "column 1: undeclared reference")
	h.Must(do(`{"amount": context.amount}`))
	if got := h.resultOf(task, "charge"); got != `{"amount": 4}` {
		t.Errorf("the result is %s", got)
	}
	_, err := h.Engine.OperateStep(t.Context(), task, step, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "r", ResultExpression: "1"})
	h.WantCode(err, tasker.Invalid, "is only allowed with complete_manually")
	_, err = h.Engine.OperateStep(t.Context(), task, step, tasker.ActionRequest{Action: tasker.CompleteManually, Actor: "ann", Reason: "r", Result: []byte("1"), ResultExpression: "1"})
	h.WantCode(err, tasker.Invalid, "conflicts with result")
}
