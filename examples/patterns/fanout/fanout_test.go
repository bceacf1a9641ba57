package fanout_test

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/fanout"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

// One carrier does not answer at first. The others are not asked again.
func TestTheCheapestOfAllIsChosen(t *testing.T) {
	t.Parallel()
	w := worker.New(nil, worker.Options{})
	fanout.Register(w)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
	wf.Script("ask_rail", taskertest.Fail("no connection"))
	task := wf.Start(`{"kg": 7}`)
	wf.RunUntilIdle()
	task.Step("ask_ship").AssertState(tasker.StepComplete)
	task.Step("ask_air").AssertState(tasker.StepComplete)
	task.Step("choose").AssertState(tasker.StepPending)
	wf.Advance(time.Minute)
	task.AssertComplete()
	task.Step("choose").AssertResult(`{"carrier": "ship", "price": 7}`)
	if s := task.Step("ask_ship"); s.Attempts != 1 {
		t.Errorf("ask_ship had %d attempts", s.Attempts)
	}
}
