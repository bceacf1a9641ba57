package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

func TestClassesOfWorkHaveTheirOwnConnections(t *testing.T) {
	h := newHarness(t)
	h.Template("single", enginetest.Step("run"))
	h.Create("single")
	h.Create("single")
	other := h.Create("single")
	lease := h.Claim()[0].Lease()
	db, err := postgres.Open(t.Context(), h.Admin().Config().ConnString(), postgres.Options{MaxConns: 20})
	h.Must(err)
	t.Cleanup(db.Close)
	e := newEngine(db, engine.Options{})
	shares := map[postgres.ConnClass]int{postgres.General: 5, postgres.Heartbeats: 2, postgres.Work: 7, postgres.Creates: 3, postgres.Timers: 3}
	for name, tt := range map[string]struct {
		free postgres.ConnClass
		do   func(context.Context) error
	}{
		"a heartbeat": {postgres.Heartbeats, func(ctx context.Context) error {
			_, err := e.Heartbeat(ctx, h.Worker, []tasker.Lease{lease})
			return err
		}},
		"a claim": {postgres.Work, func(ctx context.Context) error {
			_, err := e.Claim(ctx, h.Worker, 1, 0)
			return err
		}},
		"a report": {postgres.Work, func(ctx context.Context) error {
			_, err := e.Report(ctx, h.Worker, []tasker.Outcome{{Lease: lease, Failure: &tasker.Failure{Message: "no"}}}, 0)
			return err
		}},
		"a create": {postgres.Creates, func(ctx context.Context) error {
			_, err := e.CreateTasks(ctx, []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single"}})
			return err
		}},
		"an operator": {postgres.General, func(ctx context.Context) error {
			return e.CancelTask(ctx, other, "ann", "not needed")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var holding, done sync.WaitGroup
			release := make(chan struct{})
			for lane, share := range shares {
				if lane == tt.free {
					continue
				}
				for range share {
					holding.Add(1)
					done.Go(func() {
						h.Must(db.InTx(postgres.WithConnClass(t.Context(), lane), func(*postgres.Tx) error {
							holding.Done()
							<-release
							return nil
						}))
					})
				}
			}
			holding.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := tt.do(ctx); err != nil {
				t.Error(err)
			}
			close(release)
			done.Wait()
		})
	}
}
