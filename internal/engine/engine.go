// Package engine is what happens to tasks and steps: a request becomes a task, a
// report becomes a move, a failed step is tried again, an operator's word is
// done.
//
// What should happen is decided here; package postgres makes it happen, by
// compare-and-set. Everything an engine knows beyond one call can be lost: any
// number of them may work on one database.
//
// A move that leaves a task stuck opens its investigation in the same
// transaction. The engine knows no more of investigations than that: see
// package dlq.
package engine

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"tasker"
	"tasker/internal/postgres"
)

// The times of workers, unless configured otherwise.
const (
	DefaultLease             = 30 * time.Second
	DefaultHeartbeatInterval = 10 * time.Second
)

// Options of an engine; the zero value works.
type Options struct {
	Environment       string        // whose overrides of the templates hold
	Lease             time.Duration // how long a worker may hold a step without a sign of life
	HeartbeatInterval time.Duration // how often workers are asked for one
	Retention         time.Duration // how long finished tasks are kept; 0 means for ever
	Log               *slog.Logger
}

// Engine runs tasks. Its methods may be called concurrently.
type Engine struct {
	db          *postgres.DB
	environment string
	lease       time.Duration
	heartbeat   time.Duration
	retention   time.Duration
	log         *slog.Logger

	bell      *bell
	instance  tasker.ID // tells our own notifications from those of others
	templates *cache[tasker.ID, *graph]
	workers   *cache[tasker.ID, *member]

	retrying sync.Mutex
	retried  postgres.RetryMark
}

// New returns an engine on a database whose schema is current.
func New(db *postgres.DB, o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Engine{
		db: db, environment: o.Environment, retention: o.Retention, log: o.Log,
		lease:     cmp.Or(o.Lease, DefaultLease),
		heartbeat: cmp.Or(o.HeartbeatInterval, DefaultHeartbeatInterval),
		bell:      newBell(), instance: tasker.NewID(),
		templates: newCache[tasker.ID, *graph](1000),
		workers:   newCache[tasker.ID, *member](10_000),
	}
}
