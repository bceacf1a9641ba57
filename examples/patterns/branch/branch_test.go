package branch_test

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/branch"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func TestAParcelTakesOneWay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		context              string
		bike, truck, declare tasker.StepState
	}{
		"light":            {`{"kg": 2, "abroad": false}`, tasker.StepComplete, tasker.StepSkipped, tasker.StepSkipped},
		"heavy":            {`{"kg": 200, "abroad": false}`, tasker.StepSkipped, tasker.StepComplete, tasker.StepSkipped},
		"heavy and abroad": {`{"kg": 200, "abroad": true}`, tasker.StepSkipped, tasker.StepComplete, tasker.StepComplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worker.New(nil, worker.Options{})
			branch.Register(w)
			wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
			task := wf.Start(tt.context)
			wf.RunUntilIdle()
			task.AssertComplete()
			task.Step("by_bike").AssertState(tt.bike)
			task.Step("by_truck").AssertState(tt.truck)
			task.Step("declare").AssertState(tt.declare)
			task.Step("tell").AssertState(tasker.StepComplete)
		})
	}
}
