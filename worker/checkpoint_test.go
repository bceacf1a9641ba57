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
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/worker"
)

type progress struct {
	Row int `json:"row"`
}

// A handler continues from its last checkpoint in each attempt.
func TestCheckpoints(t *testing.T) {
	eachWay(t, engine.Options{}, goesOn)
}

func goesOn(h *enginetest.Harness, b worker.Backend) {
	rows := stepOf("rows")
	rows.Retry.BaseMS = 1
	h.Template("import", rows)
	var mu sync.Mutex
	var began []int
	w := worker.New(b, worker.Options{Namespaces: []string{"n"}})
	worker.Handle(w, "rows", func(ctx context.Context, s *worker.Step[any]) (int, error) {
		p := progress{Row: -1}
		found, err := s.LastCheckpoint(&p)
		if err != nil || found != (s.Attempt > 1) {
			h.Errorf("attempt %d: found %v, %v", s.Attempt, found, err)
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
			h.Errorf("attempt %d: what it saved is %+v, %v, %v", s.Attempt, own, found, err)
		}
		if s.Attempt < 3 {
			return 0, errors.New("the connection was lost")
		}
		var bad *worker.Error
		if err := s.SaveCheckpoint(ctx, strings.Repeat("x", tasker.MaxCheckpointBytes)); !errors.As(err, &bad) || bad.Type != worker.InvalidCheckpoint || !bad.Permanent {
			h.Errorf("a checkpoint that is too large: %v", err)
		}
		if err := s.SaveCheckpoint(ctx, func() {}); !errors.As(err, &bad) || bad.Type != worker.InvalidCheckpoint || !bad.Permanent {
			h.Errorf("a checkpoint that cannot be encoded: %v", err)
		}
		return p.Row, nil
	})
	r := start(h.T, w)
	task := h.Create("import")
	waitFor(h, task, tasker.TaskComplete)
	r.finish()
	if got := resultOf(h, task, "rows"); got != "59" {
		h.Errorf("the result is %s, want 59", got)
	}
	if len(began) != 3 || began[0] != -1 || began[1] != 19 || began[2] != 39 {
		h.Errorf("the attempts began at %v", began)
	}
}

// TestACheckpointUnderALostLease: the backend says so, over HTTP as in process, and nothing is saved.
func TestACheckpointUnderALostLease(t *testing.T) {
	eachWay(t, engine.Options{}, func(h *enginetest.Harness, b worker.Backend) {
		h.Template("import", stepOf("rows"))
		task := h.Create("import")
		r, err := b.RegisterWorker(h.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"n"}, Handlers: []string{"rows"}, MaxConcurrency: 1})
		h.Must(err)
		list, err := b.Claim(h.Context(), r.WorkerUUID, 1, 0)
		if err != nil || len(list) != 1 {
			h.Fatalf("claimed %v, %v", list, err)
		}
		_, _, err = b.Release(h.Context(), r.WorkerUUID, []tasker.Lease{list[0].Lease()})
		h.Must(err)
		err = b.SaveCheckpoint(h.Context(), r.WorkerUUID, list[0].Lease(), json.RawMessage(`1`))
		if tasker.CodeOf(err) != tasker.StaleLease {
			h.Errorf("a checkpoint under a lost lease: %v", err)
		}
		step, err := h.DB.Step(h.Context(), task, list[0].StepUUID)
		if err != nil || step.Checkpoint != nil {
			h.Errorf("the step has %+v, %v", step.Checkpoint, err)
		}
	})
}
