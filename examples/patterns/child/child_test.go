package child_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/child"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func invoices(t *testing.T) *taskertest.Workflow {
	t.Helper()
	w := worker.New(nil, worker.Options{})
	child.Register(w)
	return taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml", "archive.yaml"}, Worker: w})
}

func TestAnInvoiceIsArchivedByAnotherWorkflow(t *testing.T) {
	t.Parallel()
	wf := invoices(t)
	task := wf.Start(`{"number": "R-7"}`)
	wf.RunUntilIdle()
	task.AssertComplete()
	task.Step("archive").Child().AssertComplete()
	task.Step("close").AssertResult(`"archive/R-7: receipt of R-7"`)
}

// What fails in the child is repaired there, and its parent goes on by itself.
func TestTheRepairOfAChildLetsItsParentGoOn(t *testing.T) {
	t.Parallel()
	wf := invoices(t)
	wf.Script("index", taskertest.FailPermanently("the index is broken"))
	task := wf.Start(`{"number": "R-7"}`)
	wf.RunUntilIdle()
	task.AssertState(tasker.TaskWaitingForDependencies)
	task.AssertNoInvestigation()
	archive := task.Step("archive").Child()
	archive.Investigation()
	archive.Reset("index")
	wf.RunUntilIdle()
	task.AssertComplete()
}
