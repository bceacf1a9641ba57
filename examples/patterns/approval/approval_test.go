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

func TestARefundIsApproved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		amount      float64
		answer      any // nil: nobody answers
		pay, refuse tasker.StepState
	}{
		"yes":                   {500, approval.Answer{Approved: true, By: "ann"}, tasker.StepComplete, tasker.StepSkipped},
		"no":                    {500, approval.Answer{By: "ann"}, tasker.StepSkipped, tasker.StepComplete},
		"nobody":                {500, nil, tasker.StepSkipped, tasker.StepComplete},
		"no approval is needed": {50, nil, tasker.StepComplete, tasker.StepSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worker.New(nil, worker.Options{})
			approval.Register(w)
			wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
			task := wf.Start(map[string]any{"amount": tt.amount})
			wf.Advance(71 * time.Hour)
			if tt.answer != nil {
				task.AssertState(tasker.TaskWaitingForDependencies)
				task.Answer("approve", tt.answer)
			}
			wf.Advance(2 * time.Hour)
			task.AssertComplete()
			task.Step("pay").AssertState(tt.pay)
			task.Step("refuse").AssertState(tt.refuse)
		})
	}
}
