package measure

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/worker"
)

// latencies measures single workflows on an idle system.
func (b *bench) latencies(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			for _, f := range []figure{rawIdle, rawIdleFused} {
				if err := b.rawAlone(ctx, f); err != nil {
					return err
				}
			}
		}
		for _, s := range []shape{linear, diamond, dag} {
			took, err := b.alone(ctx, p, s)
			if err != nil {
				return err
			}
			b.noteLatency(p, s, took)
		}
		return nil
	})
}

func (b *bench) noteLatency(p path, s shape, took []time.Duration) {
	name := s.name + " alone, " + p.name
	baseline := ""
	if s == linear {
		baseline = rawIdle.name
	}
	b.note(figure{name: name + ", p50", unit: "ms", baseline: baseline}, figures.Quantile(took, 0.5))
	b.note(figure{name: name + ", p95", unit: "ms", baseline: name + ", p50"}, figures.Quantile(took, 0.95))
	b.note(figure{name: name + ", p99", unit: "ms", baseline: name + ", p50"}, figures.Quantile(took, 0.99))
}

// alone times workflows one after another: from the request to create one until
// the outcome of its last step is accepted, which completes it.
func (b *bench) alone(ctx context.Context, p path, s shape) (took []time.Duration, err error) {
	const warmUp = 20
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	var last atomic.Pointer[tasker.ID]
	done := make(chan struct{}, 1)
	c := workforce{workers: 1, concurrency: 10,
		handle: func(step *worker.Step[struct{}]) {
			if step.Name == s.last {
				last.Store(&step.StepUUID)
			}
		},
		accepted: func(list []tasker.ID) {
			for _, id := range list {
				if l := last.Load(); l != nil && *l == id {
					done <- struct{}{}
				}
			}
		},
	}
	err = b.working(ctx, p, c, func() error {
		for n := range warmUp + b.Single {
			start := time.Now()
			if err := p.create(ctx, s, 1); err != nil {
				return err
			}
			select {
			case <-done:
			case <-time.After(time.Minute):
				return errors.New("a workflow took longer than a minute")
			}
			if n >= warmUp {
				took = append(took, time.Since(start))
			}
		}
		return nil
	})
	return took, err
}

// profile writes profiles of a drain of linear-4 in process, if they are asked for.
func (b *bench) profile(ctx context.Context) (err error) {
	if b.CPUProfile == "" && b.MemProfile == "" {
		return nil
	}
	if err := b.fillQueue(ctx, b.direct(), linear, b.Workflows); err != nil {
		return err
	}
	if b.CPUProfile != "" {
		file, ferr := os.Create(b.CPUProfile)
		if ferr != nil {
			return ferr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
	}
	if b.MemProfile != "" {
		runtime.MemProfileRate = 16 << 10 // was 0: the rest of the run is not of interest
	}
	_, err = b.empty(ctx, b.direct(), b.Workflows*linear.steps)
	pprof.StopCPUProfile()
	if err != nil || b.MemProfile == "" {
		return err
	}
	runtime.GC() // allocations are in the profile after the next collection
	file, err := os.Create(b.MemProfile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
