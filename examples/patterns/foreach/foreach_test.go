package foreach_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/foreach"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func payroll(t *testing.T) *taskertest.Workflow {
	t.Helper()
	w := worker.New(nil, worker.Options{})
	foreach.Register(w, func(context.Context) ([]foreach.Person, error) {
		return []foreach.Person{{"ann", 100}, {"bob", 200}, {"cid", 300}}, nil
	})
	return taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
}

// One payment fails at first. It is made again, and no other is.
func TestEverybodyIsPaid(t *testing.T) {
	t.Parallel()
	wf := payroll(t)
	wf.Script("pay", taskertest.Fail("the bank is away"))
	task := wf.Start(nil)
	wf.Advance(time.Minute)
	task.AssertComplete()
	task.Step("tell").AssertResult(`600`)
}

// Payments that fail for good are one investigation, and one repair.
func TestPaymentsThatFailAreRepairedTogether(t *testing.T) {
	t.Parallel()
	wf := payroll(t)
	wf.Script("pay", taskertest.FailPermanently("no account"), taskertest.FailPermanently("no account"))
	task := wf.Start(nil)
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskError)
	task.Investigation()
	task.Reset("pay")
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("tell").AssertResult(`600`)
}
