package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/worker"
)

const space = "bench"

// A shape is a measured template.
type shape struct {
	name  string // in figures
	steps int
	last  string // the step that completes it
}

var (
	single  = shape{name: "one-step", steps: 1, last: "a"}
	linear  = shape{name: "linear-4", steps: 4, last: "d"}
	diamond = shape{name: "diamond", steps: 4, last: "d"}
	dag     = shape{name: "dag-7", steps: 7, last: "g"}
)

// register stores the measured templates.
func (b *bench) register(ctx context.Context) error {
	step := func(name string, dependencies ...string) tasker.StepTemplate {
		return tasker.StepTemplate{
			Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "work"}, Dependencies: dependencies, Retry: tasker.DefaultRetry(),
		}
	}
	for s, steps := range map[shape][]tasker.StepTemplate{
		single:  {step("a")},
		linear:  {step("a"), step("b", "a"), step("c", "b"), step("d", "c")},
		diamond: {step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")},
		dag: {
			step("a"), step("b", "a"), step("c", "a"), step("d", "a"), step("e", "b", "c"), step("f", "c", "d"), step("g", "e", "f"),
		},
	} {
		t := tasker.Template{Namespace: space, Name: s.name, Version: "1.0.0", Steps: steps}
		if _, _, err := b.engine.RegisterTemplate(ctx, t, ""); err != nil {
			return err
		}
	}
	return nil
}

// A path is a connection from workers to the engine.
type path struct {
	name   string
	engine worker.Backend
	own    func() worker.Backend // creates a backend per worker; optional
	create func(ctx context.Context, s shape, n int) error
}

// forWorker returns the backend of the next worker.
func (p path) forWorker() worker.Backend {
	if p.own != nil {
		return p.own()
	}
	return p.engine
}

const inProcess = "in process"

func (b *bench) direct() path {
	return path{name: inProcess, engine: b.engine, create: createIn(b.engine)}
}

// bulk is the number of tasks per request.
const bulk = 1000

func createIn(e *engine.Engine) func(ctx context.Context, s shape, n int) error {
	return func(ctx context.Context, s shape, n int) error {
		for n > 0 {
			some := min(n, bulk)
			n -= some
			if _, err := e.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{{Namespace: space, Name: s.name}}, some)); err != nil {
				return err
			}
		}
		return nil
	}
}

// eachRun calls f for every run and, within it, every path.
func (b *bench) eachRun(ctx context.Context, f func(path) error) error {
	return b.overHTTP(ctx, func(http path) error {
		for range b.Runs {
			for _, p := range []path{b.direct(), http} {
				if err := f(p); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		return nil
	})
}

// A workforce is a number of workers with a concurrency.
type workforce struct {
	workers, concurrency int
	namespaces           []string                     // default that of the bench
	handle               func(*worker.Step[struct{}]) // optional
	accepted             func([]tasker.ID)            // called with the steps whose outcomes were accepted
}

// A witness records which outcomes the engine accepts.
type witness struct {
	worker.Backend
	accepted func([]tasker.ID)
}

func (w witness) Report(ctx context.Context, id tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	receipt, err := w.Backend.Report(ctx, id, outcomes, claim)
	if err == nil {
		w.accepted(receipt.Accepted)
	}
	return receipt, err
}

// working calls f while workers run.
func (b *bench) working(ctx context.Context, p path, c workforce, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, c.workers)
	namespaces := c.namespaces
	if namespaces == nil {
		namespaces = []string{space}
	}
	var wg sync.WaitGroup
	for i := range errs {
		w := worker.New(witness{p.forWorker(), c.accepted}, worker.Options{
			Name: fmt.Sprint("bench ", i), Namespaces: namespaces, Concurrency: c.concurrency, Log: b.log,
		})
		worker.Handle(w, "work", func(_ context.Context, s *worker.Step[struct{}]) (int, error) {
			if c.handle != nil {
				c.handle(s)
			}
			return 1, nil
		})
		wg.Go(func() { errs[i] = w.Run(ctx) })
	}
	err := f()
	stop()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// overHTTP calls f while a server of the engine listens on loopback. The path uses the HTTP API.
func (b *bench) overHTTP(ctx context.Context, f func(path) error) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stopping, stop := context.WithCancel(ctx)
	server := &http.Server{
		Handler:           api.New(stopping, api.Options{DB: b.db, Engine: b.engine, DLQ: b.dlq, Log: b.log}),
		ReadHeaderTimeout: time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if c, cerr := client.New("http://" + listener.Addr().String()); cerr != nil {
		err = cerr
	} else {
		err = f(path{name: "over HTTP", engine: c.Backend(), create: createOver(c)})
	}
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ctx))
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// createOver creates tasks through the API.
func createOver(c *client.Client) func(ctx context.Context, s shape, n int) error {
	return func(ctx context.Context, s shape, n int) error {
		request := apiv1.CreateTask{Namespace: space, Name: s.name}
		if n == 1 {
			_, err := c.CreateTask(ctx, request)
			return err
		}
		for n > 0 {
			some := min(n, bulk)
			n -= some
			if _, err := c.CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{request}, some)); err != nil {
				return err
			}
		}
		return nil
	}
}
