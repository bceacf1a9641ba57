package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newEngine returns an engine on a database of its own, its timers running.
func newEngine(t *testing.T, options ...engine.Options) (*engine.Engine, *postgres.DB) {
	t.Helper()
	d := pgtest.New(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	d.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	e := engine.New(db, append(options, engine.Options{})[0])
	g := loop.NewGroup(t.Context())
	for _, l := range e.Loops() {
		g.Go(l.Name, l.Run)
	}
	t.Cleanup(func() {
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return e, db
}

// overHTTP returns a server of the engine, as a worker's engine.
func overHTTP(t *testing.T, e *engine.Engine, db *postgres.DB) *client.Backend {
	t.Helper()
	server := httptest.NewServer(api.New(t.Context(), api.Options{DB: db, Engine: e, DLQ: dlq.New(db, dlq.Options{})}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, client.WithHTTPClient(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return c.Backend()
}

// eachWay runs a test with an engine in the same program and with one behind a
// server.
func eachWay(t *testing.T, test func(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend), options ...engine.Options) {
	t.Run("in process", func(t *testing.T) {
		e, db := newEngine(t, options...)
		test(t, e, db, e)
	})
	t.Run("over HTTP", func(t *testing.T) {
		e, db := newEngine(t, options...)
		test(t, e, db, overHTTP(t, e, db))
	})
}

// waitFor returns the task when it stands in the state.
func waitFor(t *testing.T, db *postgres.DB, id tasker.ID, want tasker.TaskState) tasker.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		task, err := db.Task(ctx, id)
		if err != nil {
			t.Fatalf("task %s is %s, want %s: %v", id, task.State, want, err)
		}
		if task.State == want {
			return task
		}
		select {
		case <-ctx.Done():
			t.Fatalf("task %s is %s, want %s", id, task.State, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestWithTheRealEngine runs diamonds whose one arm fails once, and a task whose
// only step fails for good.
func TestWithTheRealEngine(t *testing.T) { eachWay(t, runsDiamonds) }

func runsDiamonds(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend) {
	quick := tasker.DefaultRetry()
	quick.BaseMS = 1
	at := func(name string, dependencies ...string) tasker.StepTemplate {
		return tasker.StepTemplate{
			Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: name}, Dependencies: dependencies, Retry: quick,
		}
	}
	for _, tmpl := range []tasker.Template{
		{Namespace: "n", Name: "diamond", Version: "1.0.0", Steps: []tasker.StepTemplate{
			at("top"), at("left", "top"), at("right", "top"), at("bottom", "left", "right"),
		}},
		{Namespace: "n", Name: "doomed", Version: "1.0.0", Steps: []tasker.StepTemplate{at("doom")}},
	} {
		if _, _, err := e.RegisterTemplate(t.Context(), tmpl, ""); err != nil {
			t.Fatal(err)
		}
	}

	w := worker.New(surface, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 4})
	worker.Handle(w, "top", func(_ context.Context, s *worker.Step[order]) (order, error) { return s.Input, nil })
	worker.Handle(w, "left", func(_ context.Context, s *worker.Step[order]) (int, error) {
		if s.Attempt == 1 {
			return 0, errors.New("not at the first attempt")
		}
		var top order
		err := s.Dependency("top", &top)
		return top.Number * 10, err
	})
	worker.Handle(w, "right", func(_ context.Context, s *worker.Step[order]) (int, error) { return s.Input.Number, nil })
	worker.Handle(w, "bottom", func(_ context.Context, s *worker.Step[order]) (int, error) {
		var left, right int
		err := errors.Join(s.Dependency("left", &left), s.Dependency("right", &right))
		return left + right, err
	})
	worker.Handle(w, "doom", func(context.Context, *worker.Step[order]) (int, error) {
		return 0, worker.Permanent(&worker.Error{Type: "doomed", Err: errors.New("it was written")})
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	var tasks []tasker.NewTask
	for i := range 20 {
		tasks = append(tasks, tasker.NewTask{Namespace: "n", Name: "diamond", Context: json.RawMessage(fmt.Sprintf(`{"number": %d}`, i))})
	}
	tasks = append(tasks, tasker.NewTask{Namespace: "n", Name: "doomed"})
	created, err := e.CreateTasks(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range created[:20] {
		waitFor(t, db, c.TaskUUID, tasker.TaskComplete)
		if got, want := resultOf(t, db, c.TaskUUID, "bottom"), fmt.Sprint(i*11); got != want {
			t.Errorf("diamond %d: result %s, want %s", i, got, want)
		}
	}
	waitFor(t, db, created[20].TaskUUID, tasker.TaskError)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	workers, _, err := db.Workers(t.Context(), 10, 0)
	if err != nil || len(workers) != 1 || workers[0].Health != tasker.WorkerGone || workers[0].InFlight != 0 {
		t.Errorf("workers %+v, %v; want one that left with empty hands", workers, err)
	}
}

func resultOf(t *testing.T, db *postgres.DB, task tasker.ID, name string) string {
	t.Helper()
	steps, err := db.Steps(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		var r tasker.StepResult
		if s.Name == name && json.Unmarshal(s.Results, &r) == nil {
			return string(r.Result)
		}
	}
	return ""
}

// TestADrainingWorkerLeavesNoTraceOfAnAttempt: the step that it could not finish
// is in the queue again, with the attempt it had.
func TestADrainingWorkerLeavesNoTraceOfAnAttempt(t *testing.T) { eachWay(t, leavesNoTrace) }

func leavesNoTrace(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend) {
	_, _, err := e.RegisterTemplate(t.Context(), tasker.Template{Namespace: "n", Name: "long", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "long", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "long"}, Retry: tasker.DefaultRetry()},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	created, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "n", Name: "long"}})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(surface, worker.Options{Namespaces: []string{"n"}, DrainTimeout: time.Millisecond})
	began := make(chan struct{})
	w.HandleRaw("long", func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-began
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	steps, err := db.Steps(t.Context(), created[0].TaskUUID)
	if err != nil {
		t.Fatal(err)
	}
	if s := steps[0]; s.State != tasker.StepEnqueued || s.Attempts != 1 || s.WorkerUUID != nil {
		t.Errorf("step is %s, attempt %d, worker %v; want it enqueued in its first attempt", s.State, s.Attempts, s.WorkerUUID)
	}
}

// An operator drains a worker with two steps: the one that ends when it may is done,
// the other is in the queue again, and the worker has left.
func TestAnOperatorDrainsAWorker(t *testing.T) {
	eachWay(t, drainedByOperator, engine.Options{HeartbeatInterval: 20 * time.Millisecond, Lease: 30 * time.Second})
}

func drainedByOperator(t *testing.T, e *engine.Engine, db *postgres.DB, surface worker.Backend) {
	tmpl := tasker.Template{Namespace: "n", Name: "both", Version: "1.0.0"}
	for _, name := range []string{"long", "endless"} {
		tmpl.Steps = append(tmpl.Steps, tasker.StepTemplate{
			Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: name}, Retry: tasker.DefaultRetry(),
		})
	}
	if _, _, err := e.RegisterTemplate(t.Context(), tmpl, ""); err != nil {
		t.Fatal(err)
	}
	created, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: "n", Name: "both"}})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(surface, worker.Options{
		Namespaces: []string{"n"}, DrainTimeout: 300 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	began, mayEnd := make(chan struct{}, 2), make(chan struct{})
	w.HandleRaw("long", func(context.Context, *worker.Call) (json.RawMessage, error) {
		began <- struct{}{}
		<-mayEnd
		return json.RawMessage(`"done"`), nil
	})
	w.HandleRaw("endless", func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	<-began
	<-began
	list, _, err := db.Workers(t.Context(), 10, 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("workers %+v, %v", list, err)
	}
	if err := e.DrainWorker(t.Context(), list[0].UUID); err != nil {
		t.Fatal(err)
	}
	close(mayEnd)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	steps, err := db.Steps(t.Context(), created[0].TaskUUID)
	if err != nil {
		t.Fatal(err)
	}
	if steps[0].State != tasker.StepComplete || steps[1].State != tasker.StepEnqueued || steps[1].Attempts != 1 {
		t.Errorf("the steps are %s and %s (attempt %d), want one complete, the other enqueued in its first attempt",
			steps[0].State, steps[1].State, steps[1].Attempts)
	}
	if w, err := db.WorkerWithHealth(t.Context(), list[0].UUID); err != nil || w.Health != tasker.WorkerGone || w.InFlight != 0 {
		t.Errorf("worker %+v, %v; want one that left with empty hands", w, err)
	}
}
