// Package worker runs the steps of tasks in a Go program. Register handlers by name, then call Run.
//
// Register plain functions by handler name, then run:
//
//	w := worker.New(backend, worker.Options{Namespaces: []string{"orders"}})
//	worker.Handle(w, "charge_card", func(ctx context.Context, s *worker.Step[Order]) (Payment, error) {
//		return gateway.Charge(ctx, s.Input.Card, s.Input.Amount)
//	})
//	err := w.Run(ctx) // until ctx ends; then it finishes what it has begun
//
// The same handlers run inside the program that has the engine and, through
// package client, against a server. An error means: try again later. Say
// [Permanent] when trying again is useless, and [RetryAfter] when it is useless
// for a while.
//
// A step may be executed more than once, because a worker can fall silent after
// the deed and before the report. The backend counts one outcome; making the deed
// itself repeatable, with [tasker.Assignment.StepUUID] as the key, is the
// handler's part.
package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"tasker.example/tasker"
)

// A Backend is where work comes from and results go: the engine in this program
// or, through package client, a server.
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

// The defaults of [Options].
const (
	DefaultConcurrency  = 10
	DefaultDrainTimeout = 20 * time.Second
)

// Options of a worker. Only Namespaces are required.
type Options struct {
	Name         string        // how people find it in lists; the host's name by default
	Namespaces   []string      // whose steps it takes
	Version      string        // of your program, for people
	Concurrency  int           // steps at once
	DrainTimeout time.Duration // how long handlers may continue once Run has to end
	Log          *slog.Logger  // nothing is logged by default
}

// A Worker executes steps with the handlers that were registered with it.
type Worker struct {
	backend  Backend
	options  Options
	log      *slog.Logger
	handlers map[string]RawHandler
}

// New returns a worker without handlers. The backend may be nil for a worker that
// only a test calls, through package workertest.
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

// Handlers lists the names that have a handler, in order.
func (w *Worker) Handlers() []string {
	names := make([]string, 0, len(w.handlers))
	for name := range w.handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Run executes steps until ctx ends or the backend tells it to drain, and then
// drains: it takes no more, lets running handlers finish within DrainTimeout, gives
// back what it could not finish, reports the rest and leaves. That is a good end and
// returns nil. An operator who drained the worker wants it to end: starting another is
// the task of the supervisor that started this one.
//
// A backend that cannot be reached is waited for, and so is one in whose place a
// proxy answers. Run returns an error when the backend itself refuses the worker, or
// when handlers still run although their context was cancelled. A key that is not accepted
// is such a rejection at the start only: later it may be in rotation, and Run retries.
//
// An outcome is reported until the backend has answered, for as long as the program
// runs, and holds its slot until then; one whose lease is lost is reported once
// more. A report that fails is sent again apart from all others, in halves down to
// single outcomes, so that none holds up another.
func (w *Worker) Run(ctx context.Context) error {
	if w.backend == nil || len(w.handlers) == 0 {
		return errors.New("a worker needs a backend and at least one handler before it can run")
	}
	s := newShift(w)
	err := s.register(ctx, tasker.Invalid, tasker.TooLarge, tasker.NotFound, tasker.Unauthorized, tasker.Forbidden, tasker.Unsupported)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended before it started: not a failure
		}
		return fmt.Errorf("register worker %s: %w", w.options.Name, err)
	}
	return s.run(ctx)
}

func (w *Worker) spec() tasker.WorkerSpec {
	return tasker.WorkerSpec{
		Name: w.options.Name, Namespaces: w.options.Namespaces, Handlers: w.Handlers(),
		Version: w.options.Version, MaxConcurrency: w.options.Concurrency,
	}
}
