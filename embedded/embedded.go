// Package embedded runs the Tasker engine inside a Go program. It needs a PostgreSQL database and
// no server process; several programs and servers can share one database.
//
//	e, err := embedded.Open(ctx, embedded.Options{DatabaseURL: url, Migrate: true})
//	…
//	defer e.Close()
//	_, err = e.RegisterTemplate(ctx, doc)
//	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"orders"}})
//	…
//	go e.Run(ctx) // timers and the staleness sweep; any number of programs may share a database
//	go w.Run(ctx)
//	id, err := e.CreateTask(ctx, tasker.NewTask{Namespace: "orders", Name: "fulfil"})
//
// Programs that share a database with servers must set the queue [Options] to the values in the
// configuration of the servers.
package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginehook"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
	"tasker.example/tasker/internal/templatefile"
	"tasker.example/tasker/worker"
)

// Options configures an [Engine]. Either DatabaseURL or Pool is required.
type Options struct {
	DatabaseURL string
	// Pool is a pool of the program for at least [MinPoolConns] connections, which the engine uses
	// instead of its own connections and never closes. While it uses a connection, it replaces the
	// session settings and registered types, and restores them before the release.
	Pool *pgxpool.Pool
	// MaxConnections is the maximum number of connections to DatabaseURL, at least 2; default 20. It
	// does not include the connection on which Run listens.
	MaxConnections int

	Migrate       bool          // migrate an older schema instead of failing
	Environment   string        // selects the overrides of templates
	Lease         time.Duration // default 30 s
	Retention     time.Duration // how long ended tasks are stored; 0 means forever
	MaxRetryAfter time.Duration // maximum retry_after_ms of a retried failure; default one day
	SweepEvery    time.Duration // interval of the staleness sweep; default 5 min, negative disables it
	Log           *slog.Logger  // default: discard

	// The following options must equal the [message_queue] settings of servers on the same
	// database. The process that enqueues a step sets its queue timeout and announces it; the
	// process that finds it expired decides its outcome.
	Announce bool // the servers use RabbitMQ and announce steps that are enqueued here
	// priority_age_ms: age that outranks priority; default one minute, negative never
	PriorityAge      time.Duration
	QueueTTL         time.Duration     // worker_queue_ttl_ms: maximum time until a step is claimed; default 5 min
	QueueTTLRule     tasker.ExpiryRule // queue_ttl: default unless_saturated
	NoAutoRecover    bool              // auto_recover = false: leave expired steps to operators
	MaxQueueExpiries int               // max_queue_expiries: consecutive expiries despite a live worker; default 3
	NoWorkerAfter    time.Duration     // no_worker_after_ms: maximum time without a live worker; default one minute

	// TaskEvents are the subscriptions to events of tasks, equal to emission.task_events of the
	// servers, which deliver the events. Default: none.
	TaskEvents []tasker.TaskSubscription

	MeterProvider metric.MeterProvider // receives the metrics of docs/reference/metrics.md; default: none
}

// Engine is an embedded Tasker engine. It is safe for concurrent use.
type Engine struct {
	db     *postgres.DB
	engine *engine.Engine
	dlq    *dlq.Service
	holds  *hold.Service
	cases  *cases.Service
	why    *explain.Service
	log    *slog.Logger
}

// heartbeatsPerTimeout is the number of heartbeat intervals per lease.
const heartbeatsPerTimeout = 3

// MinPoolConns is the minimum size of [Options.Pool].
const MinPoolConns = postgres.MinSharedConns

// minConnections is the minimum of Options.MaxConnections.
const minConnections = 2

// Open connects to the database. It returns an error if the schema has a different version,
// unless it is older and Migrate is set. It returns Invalid if the engine cannot work with Pool.
func Open(ctx context.Context, o Options) (*Engine, error) {
	db, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	counts, err := newMetrics(db, o)
	if err != nil {
		db.Close()
		return nil, err
	}
	groups := cases.New(db, cases.Options{Log: o.Log})
	e := engine.New(db, engine.Options{
		Environment: o.Environment, Retention: o.Retention, Hooks: engineHooks{counts, groups}, Log: o.Log,
		Leases: engine.LeaseOptions{
			Duration: o.Lease, HeartbeatInterval: o.Lease / heartbeatsPerTimeout, MaxRetryAfter: o.MaxRetryAfter,
		},
		Queues: engine.QueueOptions{
			MaxExpiries: o.MaxQueueExpiries, UnservedTimeout: o.NoWorkerAfter, DisableAutoRecovery: o.NoAutoRecover,
		},
	})
	return newEngine(enginehook.Services{
		DB: db, Engine: e, Cases: groups,
		DLQ:     dlq.New(db, dlq.Options{SweepEvery: o.SweepEvery, Undo: e.CompensateTaskTx, Metrics: counts, Log: o.Log}),
		Holds:   hold.New(db, e, hold.Options{Log: o.Log}),
		Explain: explain.New(db, explain.Options{Log: o.Log, Unknown: counts.NotExplained}),
		Log:     o.Log,
	}), nil
}

// engineHooks counts what has happened in an engine, and wakes the grouping of investigations.
type engineHooks struct {
	*metrics.Metrics
	cases *cases.Service
}

func (engineHooks) StepsEnqueued() {}

func (engineHooks) AttemptsEnded([]engine.Attempt) {}

func (h engineHooks) EventsWritten() { h.cases.Wake() }

func init() { enginehook.NewEmbedded = func(s enginehook.Services) any { return newEngine(s) } }

func newEngine(s enginehook.Services) *Engine {
	return &Engine{
		db: s.DB, engine: s.Engine, dlq: s.DLQ, holds: s.Holds, cases: s.Cases, why: s.Explain,
		log: cmp.Or(s.Log, slog.New(slog.DiscardHandler)),
	}
}

// newMetrics registers the metrics. It returns nil if no MeterProvider is configured.
func newMetrics(db *postgres.DB, o Options) (*metrics.Metrics, error) {
	if o.MeterProvider == nil {
		return nil, nil //nolint:nilnil // a nil Metrics is disabled
	}
	m, err := metrics.New(o.MeterProvider, db.OpenEntries, cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	db.OnOpened(m.EntryCreated)
	return m, nil
}

// connect opens the database and checks or migrates its schema.
func connect(ctx context.Context, o Options) (*postgres.DB, error) {
	settings := postgres.Options{
		MaxConns: o.MaxConnections, QueueTTL: o.QueueTTL, ExpiryRule: o.QueueTTLRule, PriorityAge: o.PriorityAge,
		Announce: o.Announce, TaskEvents: o.TaskEvents,
	}
	switch {
	case (o.DatabaseURL == "") == (o.Pool == nil):
		return nil, tasker.Errorf(tasker.Invalid, "invalid options: set either DatabaseURL or Pool")
	case o.Pool != nil && o.MaxConnections != 0:
		return nil, tasker.Errorf(tasker.Invalid,
			"invalid options: MaxConnections has no effect with Pool: set MaxConns of the pool")
	case o.MaxConnections != 0 && o.MaxConnections < minConnections:
		return nil, tasker.Errorf(tasker.Invalid, "invalid MaxConnections %d: must be at least %d",
			o.MaxConnections, minConnections)
	case o.Pool != nil:
		db, err := postgres.Share(ctx, o.Pool, settings)
		if err != nil {
			return nil, err
		}
		return db, o.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return migrate(ctx, c.Conn(), o) })
	}
	if err := migrateURL(ctx, o); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, o.DatabaseURL, settings)
}

func migrate(ctx context.Context, conn *pgx.Conn, o Options) error {
	if o.Migrate {
		_, err := schema.Up(ctx, conn)
		return err
	}
	return schema.Check(ctx, conn)
}

func migrateURL(ctx context.Context, o Options) (err error) {
	conn, err := postgres.Connect(ctx, o.DatabaseURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return migrate(ctx, conn, o)
}

// Close closes the connections of the engine. Run must have returned. A pool of the program stays
// open.
func (e *Engine) Close() { e.db.Close() }

// Run performs background work until ctx ends: retries, timeouts, delayed starts, lost workers,
// the staleness sweep, operations and holds. It finishes the work in progress and returns nil.
// Some process must run it, or everything that waits for a time stops.
func (e *Engine) Run(ctx context.Context) error {
	g := loop.NewGroup(ctx)
	ops := operation.New(e.db, e.engine, e.dlq, operation.Options{Log: e.log})
	loops := slices.Concat(e.engine.Loops(), e.dlq.Loops(), ops.Loops(), e.holds.Loops(), e.cases.Loops())
	loop.ShareSlot(loops)
	for _, l := range loops {
		g.Go(l.Name, l.Run)
	}
	g.Go("listen for work", e.engine.Listen)
	return g.Wait()
}

// Backend returns a backend for a worker in this program.
func (e *Engine) Backend() worker.Backend { return e.engine }

// RegisterTemplate registers a template in YAML or JSON and reports whether it is new. A version
// that tasks use is immutable: different content is a Conflict.
func (e *Engine) RegisterTemplate(ctx context.Context, doc []byte) (created bool, err error) {
	t, warnings, err := templatefile.Parse(doc)
	if err != nil {
		return false, err
	}
	for _, w := range warnings {
		e.log.WarnContext(ctx, "template key has no effect", "template", t.Namespace+"/"+t.Name, "version", t.Version, "warning", w.String())
	}
	_, created, err = e.engine.RegisterTemplate(ctx, t, string(doc))
	return created, err
}

// RetireTemplate makes a template version reject new tasks. Existing tasks continue. Tasks
// without a version use the newest version that is not retired.
func (e *Engine) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, actor, reason string) error {
	_, err := e.db.RetireTemplate(ctx, v, true, postgres.Operator{Actor: actor, Reason: reason})
	return err
}

// UnretireTemplate makes a retired template version accept new tasks again.
func (e *Engine) UnretireTemplate(ctx context.Context, v tasker.TemplateVersion, actor, reason string) error {
	_, err := e.db.RetireTemplate(ctx, v, false, postgres.Operator{Actor: actor, Reason: reason})
	return err
}

// ChangeVersion moves an open task to another version of its template, or only reports the
// effect. It returns a Conflict, and the reasons in the result, if the change is not possible. A
// task that already has the version is not changed.
func (e *Engine) ChangeVersion(ctx context.Context, task tasker.ID, r tasker.VersionRequest) (tasker.VersionChange, error) {
	return e.engine.ChangeVersion(ctx, task, r)
}

// ChangeVersions moves the open tasks of a version to another version, one batch at a time and each
// task in its own transaction. To continue, set Before to the Next of the result; Next is zero
// after the last batch.
func (e *Engine) ChangeVersions(ctx context.Context, r tasker.VersionBatchRequest) (tasker.VersionBatch, error) {
	return e.engine.ChangeVersions(ctx, r)
}

// CreateTask creates a task and returns its id. Repeating a request with an idempotency key
// returns the same task.
func (e *Engine) CreateTask(ctx context.Context, t tasker.NewTask) (tasker.ID, error) {
	created, err := e.engine.CreateTasks(ctx, []tasker.NewTask{t})
	if err != nil {
		return tasker.ID{}, err
	}
	return created[0].TaskUUID, nil
}

// Task returns a task. It returns NotFound if the task does not exist.
func (e *Engine) Task(ctx context.Context, id tasker.ID) (tasker.Task, error) {
	return e.db.Task(ctx, id)
}

// Wait returns a task when it is settled: it has ended, or has an investigation that is open or has
// ended as permanently failed. It notices an outage of the database only at the end.
func (e *Engine) Wait(ctx context.Context, id tasker.ID) (tasker.Task, error) {
	for {
		t, err := e.db.Task(ctx, id)
		if err != nil || t.Settled() {
			return t, err
		}
		if err := e.engine.AwaitTask(ctx, id); err != nil {
			return t, err
		}
	}
}

// Steps returns the steps of a task in template order.
func (e *Engine) Steps(ctx context.Context, task tasker.ID) ([]tasker.Step, error) {
	return e.db.Steps(ctx, task)
}

// TaskTree returns a task with its ancestors and descendants; parents precede their children.
func (e *Engine) TaskTree(ctx context.Context, task tasker.ID) (tasker.TaskTree, error) {
	return e.db.TaskTree(ctx, task)
}

// Items returns a page of the items of a map step, in order, and the ordinal at which the next
// page starts, or 0 at the end.
func (e *Engine) Items(ctx context.Context, task, step tasker.ID, f tasker.MapItemFilter) (list []tasker.Step, next int, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.MapItems(ctx, task, step, f)
}

// StepNamed returns the id of a step by its name, such as refund[17] for an item.
func (e *Engine) StepNamed(ctx context.Context, task tasker.ID, name string) (tasker.ID, error) {
	return e.db.StepNamed(ctx, task, name)
}

// CancelTask cancels a task and its unfinished steps.
func (e *Engine) CancelTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.engine.CancelTask(ctx, task, actor, reason)
}

// CompensateTask cancels a task and compensates its completed steps in reverse order of completion.
// Repeating the call has no effect. A task that has ended without compensation is a Conflict.
func (e *Engine) CompensateTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.engine.CompensateTask(ctx, task, actor, reason)
}

// ChangeDue changes or removes the due time of an open task or step. It returns Invalid if the
// due time is not in the future and a Conflict if the task or step has ended.
func (e *Engine) ChangeDue(ctx context.Context, task tasker.ID, c tasker.DueUpdate) (*tasker.Deadline, error) {
	return e.engine.ChangeDue(ctx, task, c)
}

// CancelTasks cancels open tasks that match a filter, one batch at a time and each task in its
// own transaction. Repeat the call while HasMore of the result is true.
func (e *Engine) CancelTasks(ctx context.Context, r tasker.CancelBatchRequest) (tasker.CancelBatch, error) {
	return e.engine.CancelTasks(ctx, r)
}

// OperateStep applies an operator action to a step.
func (e *Engine) OperateStep(ctx context.Context, task, step tasker.ID, op tasker.ActionRequest) (tasker.Step, error) {
	return e.engine.OperateStep(ctx, task, step, op)
}

// CompleteExternal completes an external step with an outcome. The source is recorded in the
// history.
func (e *Engine) CompleteExternal(ctx context.Context, task, step tasker.ID, o tasker.Outcome, source string) (tasker.Step, error) {
	return e.engine.CompleteExternal(ctx, task, step, o, source)
}

// CompleteExternalNamed is like CompleteExternal for a step name.
func (e *Engine) CompleteExternalNamed(ctx context.Context, task tasker.ID, name string, o tasker.Outcome, source string) (tasker.Step, error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return tasker.Step{}, err
	}
	return e.engine.CompleteExternal(ctx, task, step, o, source)
}

// Inbox returns waiting human steps, earliest due first, and reports whether more follow. Limit
// has the same default and maximum as in InvestigationQueue.
func (e *Engine) Inbox(ctx context.Context, f tasker.InboxFilter) (list []tasker.HumanStep, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.engine.Inbox(ctx, f)
}

// HumanStep returns a human step with its form and its history. It returns NotFound if the task
// has no external step of this name.
func (e *Engine) HumanStep(ctx context.Context, task tasker.ID, name string) (d tasker.HumanStepDetail, err error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return d, err
	}
	return e.engine.HumanStep(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
}

// AssignStep changes the assignee of an external step. It returns a Conflict if the step is not
// waiting.
func (e *Engine) AssignStep(ctx context.Context, task tasker.ID, name string, r tasker.AssignRequest) (h tasker.HumanStep, err error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return h, err
	}
	return e.engine.Assign(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, r)
}

// CreateAnswerLink creates a link for the assignee of an external step to answer it once without
// signing in: on a server that shares the database, or by [Engine.AnswerByLink]. It returns a
// Conflict if the step is not waiting or has no assignee.
func (e *Engine) CreateAnswerLink(ctx context.Context, task tasker.ID, name string, r tasker.AnswerLinkRequest) (l tasker.NewAnswerLink, err error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return l, err
	}
	return e.engine.CreateAnswerLink(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, r)
}

// AnswerLinks returns the answer links of a step, newest first.
func (e *Engine) AnswerLinks(ctx context.Context, task tasker.ID, name string) ([]tasker.AnswerLink, error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return nil, err
	}
	return e.engine.AnswerLinks(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
}

// RevokeAnswerLink revokes an answer link. It returns a Conflict if the link was used.
func (e *Engine) RevokeAnswerLink(ctx context.Context, l tasker.AnswerLink, actor string) (tasker.AnswerLink, error) {
	return e.engine.RevokeAnswerLink(ctx, l.StepRef, l.UUID, actor)
}

// AnswerQuestion returns the question of an answer link. It returns NotFound for an invalid
// token, but not for a used or expired one.
func (e *Engine) AnswerQuestion(ctx context.Context, token string) (tasker.AnswerQuestion, error) {
	return e.engine.AnswerQuestion(ctx, token)
}

// AnswerByLink answers a step with the token of an answer link, which it invalidates. It returns
// false and the state of a link that was already used or has expired. It returns the
// errors of AnswerQuestion, or Invalid if the form rejects the result.
func (e *Engine) AnswerByLink(ctx context.Context, token string, result json.RawMessage) (state tasker.AnswerLinkState, answered bool, err error) {
	return e.engine.AnswerByLink(ctx, token, result)
}

// Tasks returns tasks that match a filter, newest first, and reports whether more follow.
func (e *Engine) Tasks(ctx context.Context, f tasker.TaskFilter) (list []tasker.Task, more bool, err error) {
	f.Limit = clampLimit(f.Limit)
	return e.db.Tasks(ctx, f)
}

// Attributes lists the search attributes that templates of a namespace, or of all namespaces,
// declare, and reports whether more follow. The default limit is 100.
func (e *Engine) Attributes(ctx context.Context, namespace string, limit, offset int) (list []tasker.Attribute, more bool, err error) {
	return e.db.Attributes(ctx, namespace, clampLimit(limit), max(offset, 0))
}

// Default and maximum limit of lists.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func clampLimit(limit int) int { return min(cmp.Or(max(limit, 0), defaultLimit), maxLimit) }
