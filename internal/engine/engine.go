// Package engine implements the task and step lifecycle: it creates tasks, applies reports,
// schedules retries and performs operator actions. The engine makes the decisions, and package
// postgres stores each change with compare-and-set. An engine keeps no essential state, so any
// number of engines may share a database.
//
// If a move leaves a task stuck, its investigation is opened in the same transaction. Package dlq
// manages investigations from then on.
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
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// Defaults of Options.
const (
	DefaultLease             = 30 * time.Second
	DefaultHeartbeatInterval = 10 * time.Second
	DefaultMaxRetryAfter     = 24 * time.Hour
	DefaultMaxQueueExpiries  = 3
)

// DefaultNoWorkerAfter is the default of Options.UnservedTimeout.
const DefaultNoWorkerAfter = time.Minute

// Options configures an Engine. The zero value uses the defaults.
type Options struct {
	Environment      string        // selects the overrides in templates; none by default
	Retention        time.Duration // retention of finished tasks; unlimited by default
	Quotas           tasker.Bounds // zero fields use tasker.DefaultBounds
	ThrottleCreates  bool          // slow down task creation while it delays heartbeats and reports
	MaxTimerInterval time.Duration // maximum between two polls for due work; 5 s by default

	Leases LeaseOptions
	Queues QueueOptions
	Broker BrokerOptions

	Hooks Hooks            // NoHooks by default
	Log   *slog.Logger     // discards by default
	Now   func() time.Time // the system clock by default
}

// LeaseOptions configures attempts.
type LeaseOptions struct {
	Duration          time.Duration // time after which a worker loses a step without a heartbeat; 30 s by default
	HeartbeatInterval time.Duration // requested from workers; 10 s by default
	MaxRetryAfter     time.Duration // maximum retry_after_ms; failures with a longer one are permanent; 24 h by default

	// ReconnectGrace suspends queue timeouts after an outage, so that workers can reconnect. The
	// default is Duration. A negative value disables it.
	ReconnectGrace time.Duration
}

// QueueOptions configures what happens to steps that no worker claims.
type QueueOptions struct {
	// MaxExpiries limits how many times in succession a step may expire in its queue although a
	// worker is online. After that, it waits for an operator. The default is 3.
	MaxExpiries int

	// UnservedTimeout is the time after which a step fails because no worker for it has been
	// online. The default is one minute. A negative value disables it, so that only the queue
	// timeout applies.
	UnservedTimeout time.Duration

	// DisableAutoRecovery leaves expired steps to operators, even if a worker comes online again.
	DisableAutoRecovery bool
}

// BrokerOptions configures a message broker that announces steps.
type BrokerOptions struct {
	Dispatch *tasker.Dispatch              // message broker that workers consume from; none by default
	QueueOf  func(namespace string) string // returns the broker queue of a namespace
	Grace    func() time.Duration          // how long the sweep waits for the broker to report expired steps
}

// Hooks is notified of what has happened, after the commit. Its methods may be called concurrently
// and must not block. Embed [NoHooks] to implement only some of them.
type Hooks interface {
	StepsEnqueued()                   // steps were enqueued
	EventsWritten()                   // there may be investigation events to deliver
	AttemptsEnded([]Attempt)          // requires postgres.Options.ReportQueues
	ScheduleFired([]tasker.Firing)    // schedules created tasks or failed to
	TasksExpired([]tasker.Task)       // tasks ended because none of their steps was claimed in time
	AttributeSkipped(context.Context) // a search attribute of a task could not be evaluated

	// StepExpired is called for each step that failed because no worker claimed it in time.
	StepExpired(ctx context.Context, namespace, detectedBy, detailCode string)
}

// NoHooks ignores everything.
type NoHooks struct{}

// StepsEnqueued does nothing.
func (NoHooks) StepsEnqueued() {}

// EventsWritten does nothing.
func (NoHooks) EventsWritten() {}

// AttemptsEnded does nothing.
func (NoHooks) AttemptsEnded([]Attempt) {}

// ScheduleFired does nothing.
func (NoHooks) ScheduleFired([]tasker.Firing) {}

// TasksExpired does nothing.
func (NoHooks) TasksExpired([]tasker.Task) {}

// AttributeSkipped does nothing.
func (NoHooks) AttributeSkipped(context.Context) {}

// StepExpired does nothing.
func (NoHooks) StepExpired(context.Context, string, string, string) {}

func (o Options) withDefaults() Options {
	o.Quotas = o.Quotas.Complete()
	o.MaxTimerInterval = cmp.Or(o.MaxTimerInterval, maxPollInterval)
	o.Leases.Duration = cmp.Or(o.Leases.Duration, DefaultLease)
	o.Leases.HeartbeatInterval = cmp.Or(o.Leases.HeartbeatInterval, DefaultHeartbeatInterval)
	o.Leases.MaxRetryAfter = cmp.Or(o.Leases.MaxRetryAfter, DefaultMaxRetryAfter)
	o.Leases.ReconnectGrace = cmp.Or(o.Leases.ReconnectGrace, o.Leases.Duration)
	o.Queues.MaxExpiries = cmp.Or(o.Queues.MaxExpiries, DefaultMaxQueueExpiries)
	o.Queues.UnservedTimeout = cmp.Or(o.Queues.UnservedTimeout, DefaultNoWorkerAfter)
	if o.Broker.Grace == nil {
		o.Broker.Grace = func() time.Duration { return 0 }
	}
	o.Hooks = cmp.Or[Hooks](o.Hooks, NoHooks{})
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Engine runs tasks. Its methods may be called concurrently.
type Engine struct {
	db   *postgres.DB
	opts Options // with defaults
	log  *slog.Logger
	now  func() time.Time // clock for all waiting in this process

	noWorker *time.Duration // opts.Queues.UnservedTimeout; nil if disabled
	workers  *cache[tasker.ID, *member]
	alive    *heartbeatBuffer
	busy     *claimActivity
	skipped  skipList

	creator creator
	waiters waiters
	timers  timers
	outages outages
}

// creator stores tasks. It caches the templates that they use.
type creator struct {
	templates *cache[tasker.ID, *graph]
	byName    *cache[[3]string, *graph] // by namespace, name and requested version; an empty version means the newest
	creations *batch.Writer[*creation]
	keyed     chan struct{}   // limits transactions that wait for the keys of others; leaves one connection free
	pacer     *overload.Pacer // throttles creates; nil if disabled
}

// waiters wakes claims and requests that wait for a change.
type waiters struct {
	notifier  *notifier
	awaited   *awaitedTasks
	limited   *limitWaiters
	instance  tasker.ID   // identifies this process as the sender of notifications
	listening atomic.Bool // notifications from other processes are received
}

// timers performs timed work.
type timers struct {
	works          []work
	due            atomic.Pointer[timerScheduler] // nil until Loops is called
	fruitless      map[string]*atomic.Int32       // consecutive passes that found nothing, by kind of work
	chunkTime      time.Duration                  // time limit for one chunk of work
	batch          int                            // maximum number of rows that a timer processes in one pass
	retries        retryCursor
	expensive      expensiveNamespaces
	expiryExtended atomic.Bool // the last scan for expired steps extended some deadlines
}

// outages detects interruptions, after which steps get more time.
type outages struct {
	grace      grace
	leaseGrace leaseGrace
	reported   atomic.Int64 // time of the last report or heartbeat from a worker with steps, in Unix nanoseconds
}

// New returns an engine on a database with the current schema.
func New(db *postgres.DB, o Options) *Engine {
	o = o.withDefaults()
	e := &Engine{
		db: db, opts: o, log: o.Log, now: o.Now,
		workers: newCache[tasker.ID](10_000, (*member).size),
		alive:   &heartbeatBuffer{keyBuffer: newKeyBuffer[tasker.ID]()},
		busy:    &claimActivity{keyBuffer: newKeyBuffer[postgres.QueueName](), stored: map[postgres.QueueName]time.Time{}},
		skipped: skipList{until: map[tasker.ID]time.Time{}, wake: make(chan struct{}, 1)},
		creator: creator{
			templates: newCache[tasker.ID](1000, (*graph).size),
			byName:    newCache[[3]string](1000, (*graph).size),
			keyed:     make(chan struct{}, max(1, db.MaxCreateConns()-1)),
		},
		waiters: waiters{
			notifier: newNotifier(), instance: tasker.NewID(),
			limited: &limitWaiters{namespaces: map[string]time.Time{}, back: make(chan struct{}, 1)},
		},
		timers: timers{batch: timerBatch, chunkTime: usualChunkTime},
		outages: outages{
			grace:      grace{lasts: o.Leases.ReconnectGrace},
			leaseGrace: leaseGrace{outage: max(o.Leases.Duration/heartbeatsOfALease, minOutage), lasts: o.Leases.Duration, heard: o.Now()},
		},
	}
	if o.Queues.UnservedTimeout > 0 {
		e.noWorker = &o.Queues.UnservedTimeout
	}
	e.timers.works = e.newWorks()
	e.timers.fruitless = map[string]*atomic.Int32{postgres.RetryDeferred: {}}
	for _, w := range e.timers.works {
		e.timers.fruitless[w.kind] = &atomic.Int32{}
	}
	e.waiters.awaited = newAwaitedTasks(e)
	db.OnCommit(e.requestPoll)
	db.OnCommit(func() { loop.Wake(e.waiters.awaited.wake) })
	e.creator.creations = e.newSharedWriter()
	if o.ThrottleCreates {
		e.creator.pacer = overload.NewPacer(overload.PacerOptions{Probe: db.Commit, Matters: e.hasWorkers, Width: sharedWriters, Log: o.Log})
	}
	return e
}

// cache is an LRU cache that is limited by its number of entries and by [tasker.MaxCacheBytes]. It
// is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	size  func(V) int // approximate size in bytes
	bytes int
	m     map[K]*list.Element
	order *list.List // elements of type cached, most recently used first
}

type cacheEntry[K comparable, V any] struct {
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
	return at.Value.(cacheEntry[K, V]).value, true //nolint:forcetypeassert // only cached values are stored
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
	c.bytes += c.size(v)
	for len(c.m) > 0 && (len(c.m) >= c.most || c.bytes > tasker.MaxCacheBytes) {
		c.remove(c.order.Back().Value.(cacheEntry[K, V]).key) //nolint:forcetypeassert // only cached values are stored
	}
	c.m[k] = c.order.PushFront(cacheEntry[K, V]{k, v})
}

func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
}

func (c *cache[K, V]) remove(k K) {
	if at, ok := c.m[k]; ok {
		c.bytes -= c.size(at.Value.(cacheEntry[K, V]).value) //nolint:forcetypeassert // as above
		c.order.Remove(at)
		delete(c.m, k)
	}
}
