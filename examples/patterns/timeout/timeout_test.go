package timeout_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/timeout"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

func TestWithoutAnAnswerTheDefaultHolds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers bool
		want    timeout.Price
	}{
		"in time": {true, timeout.Price{Price: 110.00000000000001, Source: "partner"}},
		"never":   {false, timeout.Price{Price: 132, Source: "list"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked string
			w := worker.New(nil, worker.Options{})
			timeout.Register(w, func(_ context.Context, _ tasker.ID, step string) error {
				asked = step
				return nil
			})
			wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
			task := wf.Start(nil)
			wf.Advance(59 * time.Second)
			if tt.answers {
				task.Answer(asked, timeout.Price{Price: 100, Source: "partner"})
			}
			wf.Advance(2 * time.Second)
			task.AssertComplete()
			var got timeout.Price
			if task.Step("offer").Result(&got); got != tt.want {
				t.Errorf("the offer is %+v, want %+v", got, tt.want)
			}
		})
	}
}
