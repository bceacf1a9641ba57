package approval_test

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/approval"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func start(t *testing.T, amount float64, script func(*taskertest.Workflow)) (*taskertest.Workflow, *taskertest.Task) {
	t.Helper()
	w := worker.New(nil, worker.Options{})
	approval.Register(w)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
	script(wf)
	task := wf.Start(map[string]any{"amount": amount})
	wf.RunUntilIdle()
	return wf, task
}

func TestARefundIsApproved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		amount      float64
		answers     []taskertest.Outcome
		pay, refuse tasker.StepState
	}{
		"yes":                   {500, []taskertest.Outcome{taskertest.Succeed(approval.Answer{Approved: true, By: "ann"})}, tasker.StepComplete, tasker.StepSkipped},
		"no":                    {500, []taskertest.Outcome{taskertest.Succeed(approval.Answer{By: "ann"})}, tasker.StepSkipped, tasker.StepComplete},
		"no approval is needed": {50, nil, tasker.StepComplete, tasker.StepSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, task := start(t, tt.amount, func(wf *taskertest.Workflow) { wf.ScriptAnswers("approve", tt.answers...) })
			task.AssertComplete()
			task.Step("pay").AssertState(tt.pay)
			task.Step("refuse").AssertState(tt.refuse)
		})
	}
}

// Nobody answers: finance is reminded, then the managers are to answer, and in the end it is a no.
func TestNobodyAnswersARefund(t *testing.T) {
	t.Parallel()
	wf, task := start(t, 500, func(*taskertest.Workflow) {})
	task.AssertState(tasker.TaskWaitingForDependencies)
	task.Step("approve").AssertAssignee("group:finance")
	wf.Advance(25 * time.Hour)
	task.Step("approve").AssertAssignee("group:finance")
	wf.Advance(24 * time.Hour)
	task.Step("approve").AssertAssignee("group:managers")
	wf.Advance(24 * time.Hour)
	task.AssertComplete()
	task.Step("pay").AssertState(tasker.StepSkipped)
	task.Step("refuse").AssertResult(`{"refused_by": "nobody"}`)
}
