package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
)

type progress struct {
	Row int `json:"row"`
}

// TestCheckpoints has a handler that comes a bit further in each attempt.
func TestCheckpoints(t *testing.T) { eachWay(t, goesOn) }

func goesOn(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend) {
	quick := tasker.DefaultRetry()
	quick.BaseMS = 1
	_, _, err := e.RegisterTemplate(t.Context(), tasker.Template{Namespace: "n", Name: "import", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "rows", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "rows"}, Retry: quick},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var began []int
	w := worker.New(surface, worker.Options{Namespaces: []string{"n"}})
	worker.Handle(w, "rows", func(ctx context.Context, s *worker.Step[any]) (int, error) {
		p := progress{Row: -1}
		found, err := s.LastCheckpoint(&p)
		if err != nil || found != (s.Attempt > 1) {
			t.Errorf("attempt %d: found %v, %v", s.Attempt, found, err)
		}
		mu.Lock()
		began = append(began, p.Row)
		mu.Unlock()
		for range 2 {
			p.Row += 10
			if err := s.SaveCheckpoint(ctx, p); err != nil {
				return 0, err
			}
		}
		var own progress
		if found, err := s.LastCheckpoint(&own); !found || err != nil || own != p {
			t.Errorf("attempt %d: what it saved is %+v, %v, %v", s.Attempt, own, found, err)
		}
		if s.Attempt < 3 {
			return 0, errors.New("the connection was lost")
		}
		var bad *worker.Error
		if err := s.SaveCheckpoint(ctx, strings.Repeat("x", tasker.MaxCheckpointBytes)); !errors.As(err, &bad) || bad.Type != worker.InvalidCheckpoint || !bad.Permanent {
			t.Errorf("a checkpoint that is too large: %v", err)
		}
		if err := s.SaveCheckpoint(ctx, func() {}); !errors.As(err, &bad) || bad.Type != worker.InvalidCheckpoint || !bad.Permanent {
			t.Errorf("a checkpoint that cannot be encoded: %v", err)
		}
		return p.Row, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	created, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "n", Name: "import"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, db, created[0].TaskUUID, tasker.TaskComplete)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := resultOf(t, db, created[0].TaskUUID, "rows"); got != "59" {
		t.Errorf("the result is %s, want 59", got)
	}
	if len(began) != 3 || began[0] != -1 || began[1] != 19 || began[2] != 39 {
		t.Errorf("the attempts began at %v", began)
	}
}

// TestACheckpointUnderALostLease: the backend says so, over HTTP as in process, and nothing is saved.
func TestACheckpointUnderALostLease(t *testing.T) {
	eachWay(t, func(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend) {
		_, _, err := e.RegisterTemplate(t.Context(), tasker.Template{Namespace: "n", Name: "import", Version: "1.0.0", Steps: []tasker.StepTemplate{
			{Name: "rows", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "rows"}, Retry: tasker.DefaultRetry()},
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		created, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "n", Name: "import"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := surface.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"n"}, Handlers: []string{"rows"}, MaxConcurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		list, err := surface.Claim(t.Context(), r.WorkerUUID, 1, 0)
		if err != nil || len(list) != 1 {
			t.Fatalf("claimed %v, %v", list, err)
		}
		if _, _, err := surface.Release(t.Context(), r.WorkerUUID, []tasker.Lease{list[0].Lease()}); err != nil {
			t.Fatal(err)
		}
		err = surface.SaveCheckpoint(t.Context(), r.WorkerUUID, list[0].Lease(), json.RawMessage(`1`))
		if tasker.CodeOf(err) != tasker.StaleLease {
			t.Errorf("a checkpoint under a lost lease: %v", err)
		}
		step, err := db.Step(t.Context(), created[0].TaskUUID, list[0].StepUUID)
		if err != nil || step.Checkpoint != nil {
			t.Errorf("the step has %+v, %v", step.Checkpoint, err)
		}
	})
}
