package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tasker"
	"tasker/worker"
)

// A path is one way from a worker to the engine and back.
type path struct {
	name   string
	engine worker.Engine
	create func(ctx context.Context, name string, n int) error
}

func (b *bench) inProcess() path {
	return path{name: "in process", engine: b.engine, create: b.create}
}

func (b *bench) create(ctx context.Context, name string, n int) error {
	for n > 0 {
		some := min(n, 1000)
		n -= some
		if _, err := b.engine.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{{Namespace: space, Name: name}}, some)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) latencyInProcess(ctx context.Context) error { return b.latency(ctx, b.inProcess()) }
func (b *bench) drainInProcess(ctx context.Context) error   { return b.drain(ctx, b.inProcess()) }

func (b *bench) latencyHTTP(ctx context.Context) error {
	return b.overHTTP(ctx, func(p path) error { return b.latency(ctx, p) })
}

func (b *bench) drainHTTP(ctx context.Context) error {
	return b.overHTTP(ctx, func(p path) error { return b.drain(ctx, p) })
}

// A crew is workers, each of which works on so many steps at once.
type crew struct {
	workers, concurrency int
	handle               func(step string)
}

// working runs f while a crew works.
func (b *bench) working(ctx context.Context, p path, c crew, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, c.workers)
	var wg sync.WaitGroup
	for i := range errs {
		w := worker.New(p.engine, worker.Options{Name: fmt.Sprint("bench ", i), Namespaces: []string{space}, Concurrency: c.concurrency, Log: b.log})
		worker.Handle(w, "work", func(_ context.Context, s *worker.Step[struct{}]) (int, error) {
			c.handle(s.Name)
			return 1, nil
		})
		wg.Go(func() { errs[i] = w.Run(ctx) })
	}
	err := f()
	stop()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// latency runs workflows of four steps in a row, one after another, on an idle
// system: from the request to create one until its last handler is called.
func (b *bench) latency(ctx context.Context, p path) error {
	const warmUp = 20
	last := make(chan struct{})
	handle := func(step string) {
		if step == "d" {
			last <- struct{}{}
		}
	}
	var took []time.Duration
	err := b.working(ctx, p, crew{workers: 1, concurrency: 10, handle: handle}, func() error {
		for n := range warmUp + b.Workflows {
			start := time.Now()
			if err := p.create(ctx, "linear", 1); err != nil {
				return err
			}
			select {
			case <-last:
			case <-time.After(time.Minute):
				return errors.New("a workflow took longer than a minute")
			}
			if n >= warmUp {
				took = append(took, time.Since(start))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.add("four steps in a row, "+p.name+", median", quantile(took, 0.5), "ms", commitMedian)
	b.add("four steps in a row, "+p.name+", 99 %", quantile(took, 0.99), "ms", commitMedian)
	return nil
}

const (
	drainWorkers     = 4
	drainConcurrency = 100
)

// drain lets workers empty a full queue of tasks of one step.
func (b *bench) drain(ctx context.Context, p path) error {
	if err := p.create(ctx, "single", b.Tasks); err != nil {
		return err
	}
	if _, err := b.db.Pool().Exec(ctx, `ANALYZE tasker.workflow_steps, tasker.tasks`); err != nil {
		return err
	}
	start := time.Now()
	var took time.Duration
	err := b.working(ctx, p, crew{workers: drainWorkers, concurrency: drainConcurrency, handle: func(string) {}}, func() error {
		for {
			var open bool
			err := b.db.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM tasker.tasks WHERE state = 'steps_in_process')`).Scan(&open)
			if took = time.Since(start); err != nil || !open {
				return err
			}
			if took > 10*time.Minute {
				return errors.New("not drained after ten minutes")
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	if err != nil {
		return err
	}
	b.add("drain of one-step tasks, "+p.name, float64(b.Tasks)/took.Seconds(), "tasks/s", queueRate)
	return nil
}
