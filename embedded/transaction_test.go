package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

// A program creates a task with its own order, and a handler does its work and completes its
// step in one transaction: a first try that fails leaves nothing, and the second counts once.
func TestAProgramAndItsTasksShareTransactions(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	pool, err := pgxpool.New(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	exec := func(tx interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}, sql string,
	) error {
		_, err := tx.Exec(t.Context(), sql)
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(exec(pool, `CREATE TABLE public.orders (id integer PRIMARY KEY); CREATE TABLE public.stock (reserved integer); INSERT INTO public.stock VALUES (0)`))
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL})
	must(err)
	defer e.Close()
	_, err = e.RegisterTemplate(t.Context(), []byte("namespace_name: shop\nname: order\nversion: 1.0.0\nsteps:\n"+
		"  - {name: reserve, handler: {callable: reserve}, retry: {backoff_base_ms: 1}}\n  - {name: approve, type: external, dependencies: [reserve]}\n"))
	must(err)
	tries := 0
	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"shop"}})
	worker.Handle(w, "reserve", func(ctx context.Context, s *worker.Step[struct{}]) (json.RawMessage, error) {
		result := json.RawMessage(`{"reserved": true}`)
		return result, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tries++
			err := errors.Join(exec(tx, `UPDATE public.stock SET reserved = reserved + 1`), e.CompleteStepTx(ctx, tx, s.Lease(), result))
			if tries == 1 {
				err = errors.Join(err, errors.New("the network broke"))
			}
			return err
		})
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, run := range []func(context.Context) error{e.Run, w.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var task tasker.ID
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		must(exec(tx, `INSERT INTO public.orders VALUES (1)`))
		task, err = e.CreateTaskTx(ctx, tx, tasker.NewTask{Namespace: "shop", Name: "order"})
		return err
	}))
	approve, err := e.StepNamed(ctx, task, "approve")
	must(err)
	answer := func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return e.CompleteExternalTx(ctx, tx, tasker.StepRef{TaskUUID: task, StepUUID: approve}, tasker.Outcome{Success: true, Result: json.RawMessage(`"yes"`)}, "desk")
		})
	}
	for err = answer(); tasker.CodeOf(err) == tasker.Conflict && ctx.Err() == nil; err = answer() { // it waits for reserve
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	must(err)
	var reserved int
	must(pool.QueryRow(ctx, `SELECT reserved FROM public.stock`).Scan(&reserved))
	if got, err := e.Task(ctx, task); err != nil || got.State != tasker.TaskComplete || reserved != 1 || tries != 2 {
		t.Errorf("the task is %s, %v; reserved %d times in %d tries", got.State, err, reserved, tries)
	}
}
