// Package engine implements the task and step lifecycle: it creates tasks, applies reports,
// schedules retries and performs operator actions. It decides; package postgres stores each change
// with compare-and-set. An engine keeps no essential state, so any number may share a database.
//
// A move that leaves a task stuck opens its investigation in the same transaction; package dlq
// handles the rest.
package engine

import (
	"cmp"
	"container/list"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/batch"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// The times of workers, unless configured otherwise.
const (
	DefaultLease             = 30 * time.Second
	DefaultHeartbeatInterval = 10 * time.Second
)

// DefaultMaxRetryAfter bounds retry_after_ms unless the configuration says otherwise.
const DefaultMaxRetryAfter = 24 * time.Hour

// DefaultMaxQueueExpiries is how often in a row a step may be taken by no worker
// in time although one is alive, before it waits for an operator.
const DefaultMaxQueueExpiries = 3

// DefaultNoWorkerAfter is how long a step waits without a live worker before it fails.
const DefaultNoWorkerAfter = time.Minute

// Options of an engine; the zero value works.
type Options struct {
	Environment         string        // whose overrides of the templates hold
	Lease               time.Duration // how long a worker may hold a step without a sign of life
	HeartbeatInterval   time.Duration // how often workers are asked for one
	MaxRetryAfter       time.Duration // longest retry_after_ms of a failure that is retried; 0 means DefaultMaxRetryAfter
	Retention           time.Duration // how long finished tasks are kept; 0 means for ever
	MaxQueueExpiries    int           // how often a step may be taken by no worker in time although one is alive; 0 means 3
	ReconnectGrace      time.Duration // what workers get to come back, when they could take nothing, before steps count as taken by nobody; 0 means Lease, negative none
	UnservedTimeout     time.Duration // for how long no worker may be alive for a step that waits, before it fails; 0 means a minute, negative that only its limit counts
	DisableAutoRecovery bool          // leave steps that no worker took to operators, also when a worker is there again
	Log                 *slog.Logger
	Dispatch            *tasker.Dispatch              // the message broker that workers are told to listen to; nil means none
	QueueOf             func(namespace string) string // the broker's queue of a namespace
	BrokerGrace         func() time.Duration          // what the broker gets to tell of steps that no worker took, before the sweep looks; nil means none
	OnEnqueued          func()                        // is called after steps were enqueued; must not wait
	OnEvents            func()                        // is called when events of investigations may have come; must not wait
	OnAttemptsEnded     func([]Attempt)               // is told of the attempts that ended; must not wait. Nil means nobody; needs postgres.Options.ReportQueues
	OnScheduleFired     func([]tasker.Firing)         // is told of the tasks that schedules have made or could not make; must not wait
	OnStepExpired       Expired                       // is called for each step that no worker took in time, after it has failed for that; nil means nobody
	OnTasksExpired      func([]tasker.Task)           // is told of the tasks that ended because no step of them was claimed in time; must not wait
	OnAttributeSkipped  func(context.Context)         // is called for each attribute of a task that could not be evaluated; nil means nobody
	Quotas              tasker.Bounds                 // of what callers can make; zero means the defaults
	MaxTimerInterval    time.Duration                 // most rest between two looks for what is due; 0 means 5 s
	ThrottleCreates     bool                          // storing tasks is slowed while it makes heartbeats and reports slow
	Now                 func() time.Time              // what waits in this process is told by; time.Now by default
}

// Expired is told of a step that failed because no worker took it in time.
type Expired func(ctx context.Context, namespace, detectedBy, detailCode string)

// Engine runs tasks. Its methods may be called concurrently.
type Engine struct {
	db          *postgres.DB
	environment string
	lease       time.Duration
	heartbeat   time.Duration
	retention   time.Duration

	maxRetryAfter time.Duration
	maxExpiries   int
	autoRecover   bool
	bounds        tasker.Bounds
	noWorker      *time.Duration // nil: only the limit of a step counts
	dispatch      *tasker.Dispatch
	queueOf       func(namespace string) string
	sweepGrace    func() time.Duration
	enqueued      func()
	events        func()
	concluded     func([]Attempt)
	fired         func([]tasker.Firing)
	expired       Expired
	tasksExpired  func([]tasker.Task)
	leftOut       func(context.Context)
	grace         grace
	leaseGrace    leaseGrace
	alive         heartbeatBuffer
	aside         skipList
	busy          *claimActivity
	keptMore      atomic.Bool // the last look for steps past their limit moved some on
	log           *slog.Logger
	now           func() time.Time

	notifier  *notifier
	limited   *limitWaiters
	instance  tasker.ID // tells our own notifications from those of others
	templates *cache[tasker.ID, *graph]
	byName    *cache[[3]string, *graph] // by namespace, name and version as asked for: the newest if that is empty
	creations *batch.Writer[*creation]
	keyed     chan struct{}   // has room for the transactions that wait for the keys of others; one connection is left to those that do not
	pacer     *overload.Pacer // of creates; nil: they take all
	reported  atomic.Int64    // when a worker that holds steps was last heard of, in nanoseconds
	workers   *cache[tasker.ID, *member]

	listening atomic.Bool // notifications of other processes arrive

	dueRest   time.Duration
	due       atomic.Pointer[timerScheduler] // of the loops; nil before there are any
	fruitless map[string]*atomic.Int32       // by kind of work, the passes in a row that found nothing

	works     []work
	chunkTime time.Duration // that a chunk of work may take
	batch     int           // rows that a pass of a timer looks for at once
	retries   retries
	expensive expensiveNamespaces // whose steps are decided apart
}

// New returns an engine on a database whose schema is current.
func New(db *postgres.DB, o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.BrokerGrace == nil {
		o.BrokerGrace = func() time.Duration { return 0 }
	}
	if o.OnEnqueued == nil {
		o.OnEnqueued = func() {}
	}
	if o.OnEvents == nil {
		o.OnEvents = func() {}
	}
	if o.OnAttributeSkipped == nil {
		o.OnAttributeSkipped = func(context.Context) {}
	}
	if o.OnScheduleFired == nil {
		o.OnScheduleFired = func([]tasker.Firing) {}
	}
	if o.OnTasksExpired == nil {
		o.OnTasksExpired = func([]tasker.Task) {}
	}
	if o.OnStepExpired == nil {
		o.OnStepExpired = func(context.Context, string, string, string) {}
	}
	e := &Engine{
		now: o.Now, batch: timerBatch, chunkTime: usualChunkTime, keyed: make(chan struct{}, max(1, db.ForCreates()-1)),
		db: db, bounds: o.Quotas.Complete(), environment: o.Environment, retention: o.Retention, log: o.Log,
		maxExpiries: cmp.Or(o.MaxQueueExpiries, DefaultMaxQueueExpiries), autoRecover: !o.DisableAutoRecovery,
		dispatch: o.Dispatch, queueOf: o.QueueOf, sweepGrace: o.BrokerGrace, enqueued: o.OnEnqueued, events: o.OnEvents, concluded: o.OnAttemptsEnded, fired: o.OnScheduleFired, expired: o.OnStepExpired,
		leftOut: o.OnAttributeSkipped, tasksExpired: o.OnTasksExpired,
		lease: cmp.Or(o.Lease, DefaultLease), dueRest: cmp.Or(o.MaxTimerInterval, maxPollInterval),
		grace:     grace{lasts: cmp.Or(o.ReconnectGrace, o.Lease, DefaultLease)},
		alive:     heartbeatBuffer{noted: map[tasker.ID]bool{}, wake: make(chan struct{}, 1)},
		aside:     skipList{until: map[tasker.ID]time.Time{}, wake: make(chan struct{}, 1)},
		busy:      newBusyQueues(),
		heartbeat: cmp.Or(o.HeartbeatInterval, DefaultHeartbeatInterval), maxRetryAfter: cmp.Or(o.MaxRetryAfter, DefaultMaxRetryAfter),
		notifier: newNotifier(), limited: newLimitsSeen(), instance: tasker.NewID(),
		templates: newCache[tasker.ID](1000, (*graph).size),
		byName:    newCache[[3]string](1000, (*graph).size),
		workers:   newCache[tasker.ID](10_000, (*member).size),
	}
	if after := cmp.Or(o.UnservedTimeout, DefaultNoWorkerAfter); after > 0 {
		e.noWorker = &after
	}
	e.leaseGrace = leaseGrace{outage: max(e.lease/heartbeatsOfALease, minOutage), lasts: e.lease, heard: e.now()}
	e.works = e.newWorks()
	e.fruitless = map[string]*atomic.Int32{postgres.RetryDeferred: {}}
	for _, w := range e.works {
		e.fruitless[w.kind] = &atomic.Int32{}
	}
	db.OnCommit(e.requestPoll)
	e.creations = e.newSharedWriter()
	if o.ThrottleCreates {
		e.pacer = overload.NewPacer(overload.PacerOptions{Probe: db.Commit, Matters: e.hasWorkers, Width: sharedWriters, Log: o.Log})
	}
	return e
}

// cache is an LRU cache, limited by count and by [tasker.MaxCacheBytes].
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	size  func(V) int // in bytes, about
	bytes int
	m     map[K]*list.Element
	order *list.List // of cached, the last used first
}

type cached[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](most int, size func(V) int) *cache[K, V] {
	return &cache[K, V]{most: most, size: size, m: map[K]*list.Element{}, order: list.New()}
}

func (c *cache[K, V]) get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.m[k]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(at)
	return at.Value.(cached[K, V]).value, true //nolint:forcetypeassert // nothing else is put in
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
	c.bytes += c.size(v)
	for len(c.m) > 0 && (len(c.m) >= c.most || c.bytes > tasker.MaxCacheBytes) {
		c.remove(c.order.Back().Value.(cached[K, V]).key) //nolint:forcetypeassert // nothing else is put in
	}
	c.m[k] = c.order.PushFront(cached[K, V]{k, v})
}

func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
}

func (c *cache[K, V]) remove(k K) {
	if at, ok := c.m[k]; ok {
		c.bytes -= c.size(at.Value.(cached[K, V]).value) //nolint:forcetypeassert // as above
		c.order.Remove(at)
		delete(c.m, k)
	}
}
