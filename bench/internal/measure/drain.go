package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/worker"
)

const (
	drainWorkers     = 4
	drainConcurrency = 100
	drainTimeout     = 10 * time.Minute
)

// drains measures how fast workers drain a full queue of one-step tasks.
func (b *bench) drains(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			if err := b.raw(ctx, rawOne, b.Tasks, 1); err != nil {
				return err
			}
		}
		took, err := b.drain(ctx, p, single, b.Tasks)
		if err != nil {
			return err
		}
		b.noteRate(p, "one-step tasks drained", float64(b.Tasks)/took.Seconds(), rawOne)
		return nil
	})
}

// workflows measures drains of workflows, whose steps make each other ready.
func (b *bench) workflows(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			for _, f := range []figure{rawLinear, rawFused} {
				// The toy is fast and needs more workflows for an accurate result.
				if err := b.raw(ctx, f, b.Workflows*4, linear.steps); err != nil {
					return err
				}
			}
		}
		for _, s := range []shape{linear, diamond} {
			took, err := b.drain(ctx, p, s, b.Workflows)
			if err != nil {
				return err
			}
			rate := float64(b.Workflows) / took.Seconds()
			b.noteRate(p, s.name+" drained", rate*float64(s.steps), rawLinear)
			b.note(figure{name: s.name + " workflows drained, " + p.name, unit: "workflows/s"}, rate)
		}
		return nil
	})
}

// noteRate records a rate. Rates over HTTP are compared with the in-process rate.
func (b *bench) noteRate(p path, name string, rate float64, baseline figure) {
	f := figure{name: name + ", " + p.name, unit: "steps/s", baseline: baseline.name}
	if p.name != inProcess {
		f.baseline = name + ", " + inProcess
	}
	b.note(f, rate)
}

// drain creates tasks and returns how long workers take to complete them.
func (b *bench) drain(ctx context.Context, p path, s shape, tasks int) (time.Duration, error) {
	if err := b.fillQueue(ctx, p, s, tasks); err != nil {
		return 0, err
	}
	return b.empty(ctx, p, s.steps*tasks)
}

// fillQueue replaces all tasks by new ones.
func (b *bench) fillQueue(ctx context.Context, p path, s shape, tasks int) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	return b.enqueue(ctx, p, s, tasks)
}

// enqueue adds new tasks.
func (b *bench) enqueue(ctx context.Context, p path, s shape, tasks int) error {
	if err := p.create(ctx, s, tasks); err != nil {
		return err
	}
	_, err := b.db.Pool().Exec(ctx, `ANALYZE tasker.workflow_steps, tasker.ready_steps, tasker.tasks`)
	return err
}

// empty drains the queue, which has the given number of steps.
func (b *bench) empty(ctx context.Context, p path, steps int) (took time.Duration, err error) {
	return b.emptyBy(ctx, p, steps, drainWorkers, b.Places)
}

// emptyBy is empty with a number of workers and their concurrency.
func (b *bench) emptyBy(ctx context.Context, p path, steps, workers, concurrency int) (took time.Duration, err error) {
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(steps))
	c := workforce{workers: workers, concurrency: concurrency, accepted: func(list []tasker.ID) {
		n := int64(len(list))
		if now := left.Add(-n); now <= 0 && now+n > 0 {
			close(done)
		}
	}}
	start := time.Now()
	err = b.working(ctx, p, c, func() error {
		select {
		case <-done:
			took = time.Since(start)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainTimeout):
			return errors.New("not drained after ten minutes")
		}
		return b.nothingOpen(ctx)
	})
	return took, err
}

// nothingOpen checks that all tasks have ended.
func (b *bench) nothingOpen(ctx context.Context) error {
	var open int
	err := b.db.Pool().QueryRow(ctx, `SELECT count(*) FROM tasker.tasks WHERE state <> 'complete'`).Scan(&open)
	if err == nil && open > 0 {
		err = errors.New("the outcomes of all steps were accepted, but some tasks are not complete")
	}
	return err
}

// Two tenants share the workers: one has a backlog, the other a few tasks now and then.
const (
	tenantA, tenantB = "tenant-a", "tenant-b"

	tenantTasks = 10              // of the small tenant per round
	tenantTTL   = 5 * time.Second // queue timeout, which most of the backlog exceeds
	tenantTakes = 50 * time.Millisecond

	tenantWorkers, tenantPlaces = 2, 20 // workers for both, and slots per worker
)

// tenants measures the latency of one tenant's tasks beside the backlog of another, and the
// distribution of claims by weight.
func (b *bench) tenants(ctx context.Context) error {
	for _, n := range []string{tenantA, tenantB} {
		_, _, err := b.engine.RegisterTemplate(ctx, tasker.Template{
			Namespace: n, Name: single.name, Version: "1.0.0", Lifecycle: tasker.Lifecycle{WorkerQueueTTLMS: tenantTTL.Milliseconds()},
			Steps: []tasker.StepTemplate{{Name: "a", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "work"}, Retry: tasker.DefaultRetry()}},
		}, "")
		if err != nil {
			return err
		}
	}
	for range b.Runs {
		if err := b.besideBacklog(ctx); err != nil {
			return err
		}
		if err := b.byWeight(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createFor creates tasks of a tenant.
func (b *bench) createFor(ctx context.Context, namespace string, n int) error {
	for ; n > 0; n -= bulk {
		if _, err := b.engine.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{{Namespace: namespace, Name: single.name}}, min(n, bulk))); err != nil {
			return err
		}
	}
	return nil
}

// besideBacklog measures the tasks of the small tenant on an idle system and beside the backlog.
func (b *bench) besideBacklog(ctx context.Context) error {
	name := fmt.Sprintf("%d tasks of a tenant", tenantTasks)
	for _, backlog := range []int{0, b.Backlog} {
		if err := b.reset(ctx); err != nil {
			return err
		}
		took, err := b.smallTenant(ctx, backlog)
		if err != nil {
			return err
		}
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			f := figure{name: name + ", idle, " + q.name, unit: "ms"}
			if backlog > 0 {
				f = figure{name: name + ", beside a backlog, " + q.name, unit: "ms", baseline: f.name}
			}
			b.note(f, figures.Quantile(took, q.at))
		}
	}
	for _, n := range []string{tenantA, tenantB} {
		var opened int
		if err := b.db.Pool().QueryRow(ctx, `SELECT count(*) FROM tasker.tasks_dlq WHERE namespace = $1`, n).Scan(&opened); err != nil {
			return err
		}
		b.note(figure{name: "investigations of " + n, unit: "investigations"}, float64(opened))
	}
	return nil
}

// smallTenant creates tasks of the small tenant repeatedly beside the backlog, and returns the time
// from each creation to the accepted outcome.
func (b *bench) smallTenant(ctx context.Context, backlog int) (took []time.Duration, err error) {
	filled := make(chan struct{}) // workers complete nothing before it is closed
	var mu sync.Mutex
	var began time.Time
	mine, done := map[tasker.ID]bool{}, make(chan struct{}, tenantTasks)
	c := workforce{
		workers: tenantWorkers, concurrency: tenantPlaces, namespaces: []string{tenantA, tenantB},
		handle: func(s *worker.Step[struct{}]) {
			if s.Namespace == tenantB {
				mu.Lock()
				mine[s.StepUUID] = true
				mu.Unlock()
			}
			<-filled
			loop.Sleep(ctx, tenantTakes)
		},
		accepted: func(list []tasker.ID) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range list {
				if mine[id] {
					delete(mine, id)
					took = append(took, time.Since(began))
					done <- struct{}{}
				}
			}
		},
	}
	err = b.working(ctx, b.direct(), c, func() error {
		err := b.createFor(ctx, tenantA, backlog)
		close(filled)
		if err != nil {
			return err
		}
		warmUp := min(5, b.Single)
		for n := range warmUp + max(b.Single/2, 1) {
			mu.Lock()
			if began = time.Now(); n == warmUp {
				took = nil
			}
			mu.Unlock()
			if err := b.createFor(ctx, tenantB, tenantTasks); err != nil {
				return err
			}
			for range tenantTasks {
				select {
				case <-done:
				case <-time.After(time.Minute):
					return errors.New("the tasks of the small tenant took longer than a minute")
				}
			}
		}
		return nil
	})
	return took, err
}

// byWeight counts the claims of two tenants, one of which has three times the weight.
func (b *bench) byWeight(ctx context.Context) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	if err := b.db.InTx(ctx, func(tx *postgres.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO tasker.namespaces (namespace, weight, set_by) VALUES ($1, 3, 'bench')`, tenantA)
		return err
	}); err != nil {
		return err
	}
	filled := make(chan struct{}) // claims before it is closed are not counted
	var given [2]atomic.Int64
	enough := make(chan struct{})
	var once sync.Once
	c := workforce{
		workers: tenantWorkers, concurrency: tenantPlaces, namespaces: []string{tenantA, tenantB}, accepted: func([]tasker.ID) {},
		handle: func(s *worker.Step[struct{}]) {
			select {
			case <-filled:
			default:
				<-filled
				return
			}
			of := 0
			if s.Namespace == tenantB {
				of = 1
			}
			given[of].Add(1)
			if given[0].Load()+given[1].Load() >= int64(b.Tasks) {
				once.Do(func() { close(enough) })
			}
		},
	}
	var shares float64
	err := b.working(ctx, b.direct(), c, func() error {
		err := errors.Join(b.createFor(ctx, tenantA, b.Tasks), b.createFor(ctx, tenantB, b.Tasks))
		loop.Sleep(ctx, time.Second) // until the weight is effective
		close(filled)
		if err != nil {
			return err
		}
		select {
		case <-enough:
			shares = float64(given[0].Load()) / float64(given[1].Load())
			return nil
		case <-time.After(2 * time.Minute):
			return errors.New("the steps of two tenants took longer than two minutes")
		}
	})
	b.note(figure{name: "steps given by weight 3 for one by weight 1", unit: "steps"}, shares)
	return err
}

// Concurrency of the workers and keys of the limits in the group limits.
const (
	limitsConcurrency = 50
	limitsKeys        = 10_000
	limitsName        = "customer"
)

const noLimit = "drained without a limit"

// limits measures the cost of limits: the same drain without a limit and with several. It reports
// time and the CPU time of PostgreSQL and of this process, which is more reliable on a busy
// machine.
func (b *bench) limits(ctx context.Context) error {
	queue := func(handler string, most int) func(context.Context) error {
		return func(ctx context.Context) error {
			ref := tasker.LimitRef{Kind: tasker.HandlerLimit, Namespace: space, Name: handler}
			_, err := b.engine.SetLimit(ctx, ref, tasker.LimitValue{MaxInProgress: most}, engine.LimitChange{Actor: "bench", Reason: "a measurement"})
			return err
		}
	}
	for run := range b.Runs {
		version := fmt.Sprintf("1.%d.0", run)
		for _, l := range []struct {
			name string
			set  func(context.Context) error
			with func(n int) tasker.NewTask
		}{
			{noLimit, func(context.Context) error { return nil }, nil},
			{"drained with a limit of 100 on the queue", queue("work", 100), nil},
			{"drained with a limit of 1,000 on the queue", queue("work", 1000), nil},
			{"drained with a limit on another queue", queue("other", 100), nil},
			{"drained with 2 for each of 10,000 keys", func(ctx context.Context) error { return b.registerLimited(ctx, version) }, func(n int) tasker.NewTask {
				return tasker.NewTask{Namespace: space, Name: limitsName, Version: version, Context: json.RawMessage(fmt.Sprintf(`{"customer": %d}`, n%limitsKeys))}
			}},
		} {
			if err := b.drainLimited(ctx, l.name, l.set, l.with); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

func (b *bench) registerLimited(ctx context.Context, version string) error {
	_, _, err := b.engine.RegisterTemplate(ctx, tasker.Template{
		Namespace: space, Name: limitsName, Version: version,
		Limits: []tasker.LimitTemplate{{Name: limitsName, Key: "context." + limitsName, MaxInProgress: 2}},
		Steps:  []tasker.StepTemplate{{Name: "a", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "work"}, Retry: tasker.DefaultRetry()}},
	}, "")
	return err
}

// drainLimited measures the drain of one-step tasks after calling set. with creates the tasks; it
// is optional.
func (b *bench) drainLimited(ctx context.Context, name string, set func(context.Context) error, with func(n int) tasker.NewTask) error {
	p := b.direct()
	create := p.create
	p.create = func(ctx context.Context, s shape, n int) error {
		if err := set(ctx); err != nil {
			return err
		}
		if with == nil {
			return create(ctx, s, n)
		}
		list := make([]tasker.NewTask, n)
		for i := range list {
			list[i] = with(i)
		}
		for some := range slices.Chunk(list, bulk) {
			if _, err := b.engine.CreateTasks(ctx, some); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.fillQueue(ctx, p, single, b.Tasks); err != nil {
		return err
	}
	before, err := b.backends(ctx)
	if err != nil {
		return err
	}
	cpu := cpuTime() + serverTime(before)
	took, err := b.emptyBy(ctx, p, b.Tasks, drainWorkers, limitsConcurrency)
	if err != nil {
		return err
	}
	after, err := b.backends(ctx)
	if err != nil {
		return err
	}
	cpu = cpuTime() + serverTime(after) - cpu
	for of, value := range map[figure]float64{
		{unit: "steps/s"}:                     float64(b.Tasks) / took.Seconds(),
		{unit: "µs", name: ", CPU of a step"}: float64(cpu.Microseconds()) / float64(b.Tasks),
	} {
		f := figure{name: name + of.name, unit: of.unit, baseline: noLimit + of.name}
		if name == noLimit {
			f.baseline = ""
		}
		b.note(f, value)
	}
	return nil
}
