// Package worker runs the steps of tasks in a Go program. Register handlers by name, then call Run:
//
//	w := worker.New(backend, worker.Options{Namespaces: []string{"orders"}})
//	worker.Handle(w, "charge_card", func(ctx context.Context, s *worker.Step[Order]) (Payment, error) {
//		return gateway.Charge(ctx, s.Input.Card, s.Input.Amount)
//	})
//	err := w.Run(ctx) // until ctx ends, then it drains
//
// The same handlers run with an embedded engine and, through package client, with a server. An
// error is retried by the policy of the step. Return [Permanent] to prevent retries and
// [RetryAfter] to delay them.
//
// A step may execute more than once, because a worker can fail between the effect and the report.
// The backend accepts one outcome. Handlers must make their effects idempotent, with
// [tasker.Assignment.StepUUID] as the key.
package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Backend assigns steps and accepts their outcomes: an embedded engine, or a server through
// package client.
type Backend interface {
	RegisterWorker(ctx context.Context, w tasker.WorkerSpec) (tasker.Registration, error)
	Claim(ctx context.Context, worker tasker.ID, limit int, wait time.Duration) ([]tasker.Assignment, error)
	Heartbeat(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (tasker.Beat, error)
	Report(ctx context.Context, worker tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error)
	Release(ctx context.Context, worker tasker.ID, leases []tasker.Lease) (released, lost []tasker.ID, err error)
	SaveCheckpoint(ctx context.Context, worker tasker.ID, l tasker.Lease, value json.RawMessage) error
	StepResult(ctx context.Context, task, step tasker.ID) (json.RawMessage, error)
	DrainWorker(ctx context.Context, worker tasker.ID) error
	LeaveWorker(ctx context.Context, worker tasker.ID) error
}

// Defaults of [Options].
const (
	DefaultConcurrency  = 10
	DefaultDrainTimeout = 20 * time.Second
)

// Options configures a [Worker]. Namespaces is required.
type Options struct {
	Name         string        // shown in lists; default: the host name
	Namespaces   []string      // whose steps it claims
	Version      string        // of your program, shown in lists
	Concurrency  int           // concurrent steps
	DrainTimeout time.Duration // how long handlers may continue during a drain
	Log          *slog.Logger  // default: discard
}

// Worker executes steps with registered handlers.
type Worker struct {
	backend  Backend
	options  Options
	log      *slog.Logger
	handlers map[string]RawHandler
}

// New returns a worker without handlers. The backend may be nil in tests with package workertest.
func New(backend Backend, o Options) *Worker {
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), DefaultConcurrency)
	o.DrainTimeout = cmp.Or(max(o.DrainTimeout, 0), DefaultDrainTimeout)
	o.Namespaces = slices.Clone(o.Namespaces)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
		o.Name = cmp.Or(o.Name, "worker")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Worker{backend: backend, options: o, log: o.Log, handlers: map[string]RawHandler{}}
}

// Handlers lists the names of the registered handlers, sorted.
func (w *Worker) Handlers() []string {
	return slices.Sorted(maps.Keys(w.handlers))
}

// Run executes steps until ctx ends or the backend requests a drain. It then drains and returns
// nil: it claims no more steps, lets running handlers finish within DrainTimeout, releases
// unfinished steps, reports outcomes and unregisters. A supervisor decides whether to start
// another worker.
//
// Run retries while the backend is unreachable or a proxy responds instead. It returns an error
// if the backend rejects the worker, or if handlers ignore their cancelled context. A rejected
// key is an error only at the start: later it may be in rotation, and Run retries.
//
// Run resends an outcome until the backend responds, and the slot of its step stays occupied until
// then. An outcome with a lost lease is dropped after a while. The outcomes of a failed report are
// resent separately, in ever smaller batches down to single outcomes, so that none delays the
// others.
func (w *Worker) Run(ctx context.Context) error {
	if w.backend == nil || len(w.handlers) == 0 {
		return errors.New("a worker requires a backend and at least one handler")
	}
	s := newRun(w)
	err := s.register(ctx, tasker.Invalid, tasker.TooLarge, tasker.NotFound, tasker.Unauthorized, tasker.Forbidden, tasker.Unsupported)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ending before the start is not a failure
		}
		return fmt.Errorf("register worker %s: %w", w.options.Name, err)
	}
	return s.run(ctx)
}

func (w *Worker) workerSpec() tasker.WorkerSpec {
	return tasker.WorkerSpec{
		Name: w.options.Name, Namespaces: w.options.Namespaces, Handlers: w.Handlers(),
		Version: w.options.Version, MaxConcurrency: w.options.Concurrency,
	}
}
