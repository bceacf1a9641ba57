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

	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newEngine returns an engine on a private database, with its loops running.
func newEngine(t *testing.T, o engine.Options) *enginetest.Harness {
	t.Helper()
	d := pgtest.New(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	d.CheckAtEnd(t)
	h := enginetest.At(t, d.URL, postgres.Options{})
	h.Space, h.Engine = "n", engine.New(h.DB, o)
	h.RunLoops()
	return h
}

// serve serves the API of an engine until the test has ended.
func serve(h *enginetest.Harness) *httptest.Server {
	h.Helper()
	s := httptest.NewServer(api.New(h.Context(), api.Options{DB: h.DB, Engine: h.Engine, DLQ: h.DLQ}))
	h.Cleanup(s.Close)
	return s
}

// overHTTP returns a backend that calls the API of an engine.
func overHTTP(h *enginetest.Harness) *client.Backend {
	h.Helper()
	server := serve(h)
	c, err := client.New(server.URL, client.WithHTTPClient(server.Client()))
	h.Must(err)
	return c.Backend()
}

// eachWay runs a test with an engine in process and with one behind a server.
func eachWay(t *testing.T, o engine.Options, test func(h *enginetest.Harness, b worker.Backend)) {
	t.Run("in process", func(t *testing.T) {
		h := newEngine(t, o)
		test(h, h.Engine)
	})
	t.Run("over HTTP", func(t *testing.T) {
		h := newEngine(t, o)
		test(h, overHTTP(h))
	})
}

// waitFor waits until a task has a state.
func waitFor(h *enginetest.Harness, task tasker.ID, want tasker.TaskState) {
	h.Helper()
	h.Eventually(fmt.Sprintf("task %s is %s", task, want), func() bool { return h.State(task) == want })
}

// stepOf returns a step that calls the handler of its name.
func stepOf(name string, dependencies ...string) tasker.StepTemplate {
	s := enginetest.Step(name, dependencies...)
	s.Handler.Callable = name
	return s
}

// TestWithTheRealEngine runs diamonds of which one step fails once, and a task whose only step
// fails for good.
func TestWithTheRealEngine(t *testing.T) {
	eachWay(t, engine.Options{}, runsDiamonds)
}

func runsDiamonds(h *enginetest.Harness, b worker.Backend) {
	quick := tasker.DefaultRetry()
	quick.BaseMS = 1
	quickly := func(s tasker.StepTemplate) tasker.StepTemplate {
		s.Retry = quick
		return s
	}
	h.Template("diamond", quickly(stepOf("top")), quickly(stepOf("left", "top")), quickly(stepOf("right", "top")), stepOf("bottom", "left", "right"))
	h.Template("doomed", quickly(stepOf("doom")))
	w := worker.New(b, worker.Options{Name: "test", Namespaces: []string{"n"}, Concurrency: 4})
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
	r := start(h.T, w)

	var tasks []tasker.NewTask
	for i := range 20 {
		tasks = append(tasks, tasker.NewTask{Namespace: "n", Name: "diamond", Context: json.RawMessage(fmt.Sprintf(`{"number": %d}`, i))})
	}
	tasks = append(tasks, tasker.NewTask{Namespace: "n", Name: "doomed"})
	created, err := h.Engine.CreateTasks(h.Context(), tasks)
	h.Must(err)
	for i, c := range created[:20] {
		waitFor(h, c.TaskUUID, tasker.TaskComplete)
		if got, want := resultOf(h, c.TaskUUID, "bottom"), fmt.Sprint(i*11); got != want {
			h.Errorf("diamond %d: result %s, want %s", i, got, want)
		}
	}
	waitFor(h, created[20].TaskUUID, tasker.TaskError)
	r.finish()
	workers, _, err := h.DB.Workers(h.Context(), 10, 0)
	if err != nil || len(workers) != 1 || workers[0].Health != tasker.WorkerGone || workers[0].InFlight != 0 {
		h.Errorf("workers %+v, %v; want one that left with empty hands", workers, err)
	}
}

func resultOf(h *enginetest.Harness, task tasker.ID, name string) string {
	h.Helper()
	step, err := h.DB.StepNamed(h.Context(), task, name)
	h.Must(err)
	doc, err := h.Engine.StepResult(h.Context(), task, step)
	h.Must(err)
	return string(doc)
}

// A step that a draining worker could not finish is enqueued again, in the same attempt.
func TestADrainingWorkerLeavesNoTraceOfAnAttempt(t *testing.T) {
	eachWay(t, engine.Options{}, leavesNoTrace)
}

func leavesNoTrace(h *enginetest.Harness, b worker.Backend) {
	h.Template("long", stepOf("long"))
	task := h.Create("long")
	w := worker.New(b, worker.Options{Namespaces: []string{"n"}, DrainTimeout: time.Millisecond})
	began := make(chan struct{})
	w.HandleRaw("long", func(ctx context.Context, _ *worker.Call) (json.RawMessage, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := start(h.T, w)
	<-began
	r.finish()
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	if s := steps[0]; s.State != tasker.StepEnqueued || s.Attempts != 1 || s.WorkerUUID != nil {
		h.Errorf("step is %s, attempt %d, worker %v; want it enqueued in its first attempt", s.State, s.Attempts, s.WorkerUUID)
	}
}

// A worker that an operator drains completes one step, returns the other to the queue and leaves.
func TestAnOperatorDrainsAWorker(t *testing.T) {
	eachWay(t, engine.Options{Leases: engine.LeaseOptions{HeartbeatInterval: 20 * time.Millisecond, Duration: 30 * time.Second}}, drainedByOperator)
}

func drainedByOperator(h *enginetest.Harness, b worker.Backend) {
	h.Template("both", stepOf("long"), stepOf("endless"))
	task := h.Create("both")
	w := worker.New(b, worker.Options{
		Namespaces: []string{"n"}, DrainTimeout: 300 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(h.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
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
	go func() { ended <- w.Run(h.Context()) }()
	<-began
	<-began
	list, _, err := h.DB.Workers(h.Context(), 10, 0)
	if err != nil || len(list) != 1 {
		h.Fatalf("workers %+v, %v", list, err)
	}
	h.Must(h.Engine.DrainWorker(h.Context(), list[0].UUID))
	close(mayEnd)
	if err := <-ended; err != nil {
		h.Error(err)
	}
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	if steps[0].State != tasker.StepComplete || steps[1].State != tasker.StepEnqueued || steps[1].Attempts != 1 {
		h.Errorf("the steps are %s and %s (attempt %d), want one complete, the other enqueued in its first attempt",
			steps[0].State, steps[1].State, steps[1].Attempts)
	}
	if w, err := h.DB.WorkerWithHealth(h.Context(), list[0].UUID); err != nil || w.Health != tasker.WorkerGone || w.InFlight != 0 {
		h.Errorf("worker %+v, %v; want one that left with empty hands", w, err)
	}
}
