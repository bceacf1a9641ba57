package taskertest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

// A payout pays each of its lines, of which some may fail, and has a task of its own book the sum.
var payout = []string{`
namespace_name: shop
name: payout
version: 1.0.0
steps:
  - name: pay
    type: map
    over: context.lines.filter(l, l > 0)
    max_parallel: 2
    tolerate: 25%
    handler: {callable: pay}
    retry: {max_attempts: 1}
  - name: book
    type: child
    dependencies: [pay]
    template: {name: booking}
    input: '{"paid": results.pay.results.filter(r, r != null)}'
  - name: tell
    dependencies: [pay, book]
    handler: {callable: tell}
`, `
namespace_name: shop
name: booking
version: 1.0.0
steps:
  - name: write
    handler: {callable: write}
`}

// A template with a map step and a child: an item that is tolerated, one that is repaired, and a
// child that fails and is repaired, until the task that waits for all of them is complete.
func TestAMapAndAChild(t *testing.T) {
	t.Parallel()
	wf := taskertest.New(t, taskertest.Options{Documents: payout})
	wf.Always("pay", taskertest.Call(func(c *worker.Call) (any, error) {
		var whole struct {
			Lines []int
			By    string
		}
		var line int
		if err := c.TaskContext(&whole); err != nil {
			return nil, err
		}
		if got := string(c.Context); got != `{"by": "ann"}` || len(whole.Lines) != 5 || whole.By != "ann" {
			return nil, worker.Permanent(fmt.Errorf("the context is %s, and in full %+v", got, whole))
		}
		err := c.Element(&line)
		return line * 10, err
	}))
	wf.Script("pay[1]", taskertest.FailPermanently("the account is closed"))
	wf.Script("pay[2]", taskertest.FailPermanently("the bank is closed"))
	wf.Script("write", taskertest.FailPermanently("the ledger is closed"), taskertest.Succeed(`"booked"`))
	var told []string
	wf.Always("tell", taskertest.Call(func(c *worker.Call) (any, error) {
		for doc, err := range c.ItemResults("pay") {
			if err != nil {
				return nil, err
			}
			told = append(told, string(doc))
		}
		return nil, nil
	}))
	task := wf.Start(map[string]any{"lines": []int{1, 2, 0, 3, 4}, "by": "ann"})
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskError)
	task.Step("pay[1]").AssertState(tasker.StepSkipped) // one of four
	task.Step("pay[2]").AssertState(tasker.StepError)
	if e := task.Investigation(); e.StepUUID == nil || *e.StepUUID != task.Step("pay[2]").UUID {
		t.Errorf("the investigation is about %v", e.StepUUID)
	}
	task.Reset("pay")
	wf.RunUntilIdle()
	task.Step("pay").AssertResult(`{"items": 4, "tolerated": [1], "results": [10, null, 30, 40]}`)
	child := task.Step("book").Child()
	child.AssertState(tasker.TaskError)
	child.Reset("write")
	wf.RunUntilIdle()
	child.AssertComplete()
	task.AssertComplete()
	if want := []string{"10", "null", "30", "40"}; !slices.Equal(told, want) {
		t.Errorf("told of %v", told)
	}
	if got := fmt.Sprintf("%s", task.Step("pay").ItemResults()); got != "[10 null 30 40]" {
		t.Errorf("the results are %s", got)
	}
	if got := string(child.Get().Context); !strings.Contains(got, `[10, 30, 40]`) {
		t.Errorf("the child was given %s", got)
	}
}
