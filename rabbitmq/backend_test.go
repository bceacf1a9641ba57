package rabbitmq_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/amqp"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/rabbitmq"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

const space = "shop"

// newServer returns an engine whose steps are announced by a broker, or not. Nobody
// announces them here: it is the worker's side that is tried.
func newServer(t *testing.T, d *tasker.Dispatch) *engine.Engine {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), database.URL, postgres.Options{PriorityAge: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	e := engine.New(db, engine.Options{Broker: engine.BrokerOptions{Dispatch: d, QueueOf: amqp.QueueName}})
	_, _, err = e.RegisterTemplate(t.Context(), tasker.Template{Namespace: space, Name: "only", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "only", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func broker(t *testing.T) *tasker.Dispatch {
	return &tasker.Dispatch{
		Exchange: mqtest.Name(t), QueueTTL: time.Minute, DeadLetter: true, DeadLetterExchange: mqtest.Name(t) + ".dlx", DeadLetterTTL: time.Hour,
	}
}

// runOne has a worker execute one task, and ends it.
func runOne(t *testing.T, e *engine.Engine, o rabbitmq.Options) {
	t.Helper()
	if _, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: space, Name: "only"}}); err != nil {
		t.Fatal(err)
	}
	w := worker.New(rabbitmq.NewBackend(e, o), worker.Options{Namespaces: []string{space}})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := false
	worker.Handle(w, "run", func(context.Context, *worker.Step[json.RawMessage]) (string, error) {
		done = true
		stop()
		return "done", nil
	})
	if err := w.Run(ctx); err != nil || !done {
		t.Errorf("executed: %t, %v", done, err)
	}
}

func TestWithoutABrokerTheWorkerAsks(t *testing.T) {
	t.Parallel()
	runOne(t, newServer(t, nil), rabbitmq.Options{URL: "amqp://nobody.invalid"})
}

func TestWhileTheBrokerIsAwayTheWorkerAsks(t *testing.T) {
	t.Parallel()
	proxy := mqtest.Proxy(t, mqtest.URL(t))
	proxy.Cut()
	runOne(t, newServer(t, broker(t)), rabbitmq.Options{URL: proxy.URL})
}

func TestAURLThatIsNoneIsRefusedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	e := newServer(t, broker(t))
	w := worker.New(rabbitmq.NewBackend(e, rabbitmq.Options{URL: "http://me:secret@broker"}), worker.Options{Namespaces: []string{space}})
	worker.Handle(w, "run", func(context.Context, *worker.Step[json.RawMessage]) (string, error) { return "", nil })
	err := w.Run(t.Context())
	if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "amqp://") || strings.Contains(err.Error(), "secret") {
		t.Errorf("ran with %v", err)
	}
}

func TestNothingIsLeftOfAWorkerThatLeaves(t *testing.T) {
	e := newServer(t, broker(t))
	url := mqtest.URL(t)
	before := goleak.IgnoreCurrent()
	runOne(t, e, rabbitmq.Options{URL: url})
	// A connection of the engine, which stays, may read beside a write that a busy machine delays, and goes on until something comes.
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"))
}

func TestAWorkerLearnsItsQueuesFromTheServer(t *testing.T) {
	t.Parallel()
	d := broker(t)
	e := newServer(t, d)
	r, err := e.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"a", "b"}, Handlers: []string{"run"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Dispatch; got == nil || got.Exchange != d.Exchange || strings.Join(got.Queues, " ") != "worker.a.executions worker.b.executions" {
		t.Errorf("learned %+v", got)
	}
}

// reports counts what a worker is given with its reports.
type reports struct {
	*engine.Engine
	asked, given atomic.Int32
}

func (r *reports) Report(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	r.asked.Add(int32(claim))
	return r.Engine.Report(ctx, id, outcomes, claim)
}

func (r *reports) ReportReady(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	receipt, err := r.Engine.ReportReady(ctx, id, outcomes, claim)
	r.given.Add(int32(len(receipt.Next)))
	return receipt, err
}

// The answer to a report carries the steps that the report made ready. The broker announces the others.
func TestAReportTakesWhatItMakesReady(t *testing.T) {
	t.Parallel()
	d := broker(t)
	e := newServer(t, d)
	steps := []tasker.StepTemplate{{Name: "a", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()}}
	steps = append(steps, steps[0])
	steps[1].Name, steps[1].Dependencies = "b", []string{"a"}
	if _, _, err := e.RegisterTemplate(t.Context(), tasker.Template{Namespace: space, Name: "two", Version: "1.0.0", Steps: steps}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: space, Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	server := &reports{Engine: e}
	w := worker.New(rabbitmq.NewBackend(server, rabbitmq.Options{URL: mqtest.URL(t)}), worker.Options{Namespaces: []string{space}})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	worker.Handle(w, "run", func(_ context.Context, s *worker.Step[json.RawMessage]) (string, error) {
		if s.Name == "b" {
			stop()
		}
		return "done", nil
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if given := server.given.Load(); given != 1 || server.asked.Load() != 0 {
		t.Errorf("reports were given %d of the steps that they made ready; others asked for %d", given, server.asked.Load())
	}
}
