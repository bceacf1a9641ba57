package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/taskertest"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

const tables = `
CREATE TABLE orders (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);
CREATE TABLE approvals (task text NOT NULL, by text NOT NULL);
CREATE TABLE stock (item text NOT NULL, free integer NOT NULL);
INSERT INTO stock VALUES ('pen', 1)`

func TestOrder(t *testing.T) {
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, NewWorker: newWorker})
	if _, err := wf.Pool().Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	s := &shop{engine: wf.Engine(), pool: wf.Pool()}
	id, err := s.accept(t.Context(), "pen")
	if err != nil {
		t.Fatal(err)
	}
	task := wf.Task(id)
	wf.Advance(24 * time.Hour)
	task.Step("reserve").AssertResult(`{"reserved": true}`)
	if err := s.approve(t.Context(), id, "ann"); err != nil {
		t.Fatal(err)
	}
	wf.RunUntilIdle()
	task.AssertComplete()
}

func TestOutOfStock(t *testing.T) {
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, NewWorker: newWorker})
	if _, err := wf.Pool().Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	s := &shop{engine: wf.Engine(), pool: wf.Pool()}
	if _, err := s.accept(t.Context(), "book"); err != nil {
		t.Fatal(err)
	}
	wf.RunUntilIdle()
	wf.Tasks("order")[0].AssertState(tasker.TaskError)
}

// Two programs share a database: one runs the order that the other accepts.
func TestRun(t *testing.T) {
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	pool, err := pgxpool.New(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, database.AdminURL) }()
	engine, err := embedded.Open(ctx, embedded.Options{Pool: pool, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if _, err := engine.RegisterTemplate(ctx, template); err != nil {
		t.Fatal(err)
	}
	s := &shop{engine: engine, pool: pool}
	id, err := s.accept(ctx, "pen")
	if err != nil {
		t.Fatal(err)
	}
	for err = s.approve(ctx, id, "ann"); tasker.CodeOf(err) == tasker.Conflict; err = s.approve(ctx, id, "ann") {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // until the stock is reserved
	}
	if err != nil {
		t.Fatal(err)
	}
	if task, err := engine.Wait(ctx, id); err != nil || task.State != tasker.TaskComplete {
		t.Errorf("the task is %s, %v", task.State, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the program ended with %v", err)
	}
}
