package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestCreatesAreThrottledWhileWorkersAreActive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		holding bool
	}{{"a worker holds a step", true}, {"no worker holds a step", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db, err := postgres.Open(t.Context(), pgtest.New(t).URL, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			e := newEngine(db, engine.Options{ThrottleCreates: true})
			if _, _, err := e.RegisterTemplate(t.Context(), tasker.Template{
				Namespace: "n", Name: "greet", Version: "1.0.0",
				Steps: []tasker.StepTemplate{{Name: "one", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "h"}, Retry: tasker.DefaultRetry()}},
			}, ""); err != nil {
				t.Fatal(err)
			}
			if tt.holding {
				if _, err := e.Heartbeat(t.Context(), tasker.NewID(), []tasker.Lease{{StepUUID: tasker.NewID()}}); err != nil && tasker.CodeOf(err) != tasker.NotFound {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var all sync.WaitGroup
			made := make(chan struct{}, 100_000)
			for range 64 {
				all.Go(func() {
					for ctx.Err() == nil && len(made) < 800 {
						if _, err := e.CreateTasks(ctx, []tasker.NewTask{{Namespace: "n", Name: "greet"}}); err == nil {
							made <- struct{}{}
						}
						if e.CreatePace() < 1 {
							cancel()
						}
					}
				})
			}
			all.Wait()
			slowed := e.CreatePace() < 1
			check(t, slowed == tt.holding, "after %d creates the pace is %.2f", len(made), e.CreatePace())
		})
	}
}
