package measure

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
)

const (
	drainWorkers     = 4
	drainConcurrency = 100
	drainTimeout     = 10 * time.Minute
)

// drains measures how fast workers empty a full queue of one-step tasks.
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

// workflows measures the same with workflows, whose steps make each other ready.
func (b *bench) workflows(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			for _, f := range []figure{rawLinear, rawFused} {
				// More of them than of ours: the toy is through too soon to be timed well.
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

// noteRate notes a rate; one over HTTP is compared with the one in process.
func (b *bench) noteRate(p path, name string, rate float64, baseline figure) {
	f := figure{name: name + ", " + p.name, unit: "steps/s", baseline: baseline.name}
	if p.name != inProcess {
		f.baseline = name + ", " + inProcess
	}
	b.note(f, rate)
}

// drain creates so many tasks and returns how long workers take to complete them.
func (b *bench) drain(ctx context.Context, p path, s shape, tasks int) (time.Duration, error) {
	if err := b.fillQueue(ctx, p, s, tasks); err != nil {
		return 0, err
	}
	return b.empty(ctx, p, s.steps*tasks)
}

// fillQueue leaves nothing but so many new tasks.
func (b *bench) fillQueue(ctx context.Context, p path, s shape, tasks int) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	return b.enqueue(ctx, p, s, tasks)
}

// enqueue adds so many new tasks.
func (b *bench) enqueue(ctx context.Context, p path, s shape, tasks int) error {
	if err := p.create(ctx, s, tasks); err != nil {
		return err
	}
	_, err := b.db.Pool().Exec(ctx, `ANALYZE tasker.workflow_steps, tasker.ready_steps, tasker.tasks`)
	return err
}

// empty has workers complete everything, which is so many steps.
func (b *bench) empty(ctx context.Context, p path, steps int) (took time.Duration, err error) {
	return b.emptyBy(ctx, p, steps, drainWorkers, drainConcurrency)
}

// emptyBy has so many workers complete everything, each so many steps at once.
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

// nothingOpen checks that the tasks have ended with their steps.
func (b *bench) nothingOpen(ctx context.Context) error {
	var open int
	err := b.db.Pool().QueryRow(ctx, `SELECT count(*) FROM tasker.tasks WHERE state <> 'complete'`).Scan(&open)
	if err == nil && open > 0 {
		err = errors.New("the outcomes of all steps were accepted, but some tasks are not complete")
	}
	return err
}
