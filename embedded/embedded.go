// Package embedded runs the Tasker engine inside a Go program. It needs a PostgreSQL database and no
// server process; several programs and servers can share one database.
//
//	e, err := embedded.Open(ctx, embedded.Options{DatabaseURL: url, Migrate: true})
//	…
//	defer e.Close()
//	_, err = e.RegisterTemplate(ctx, doc)
//	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"orders"}})
//	…
//	go e.Run(ctx) // timers and the sweep; any number of programs may share a database
//	go w.Run(ctx)
//	id, err := e.CreateTask(ctx, tasker.NewTask{Namespace: "orders", Name: "fulfil"})
//
// Programs that embed the engine and servers may work on one database together, if
// [Options] say of the queue what the servers are configured to.
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
	"go.opentelemetry.io/otel/metric"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
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

// Options of an embedded engine. DatabaseURL must be given.
type Options struct {
	DatabaseURL   string
	Migrate       bool          // bring the schema up to date, instead of refusing an old one
	Environment   string        // whose overrides of the templates hold
	Lease         time.Duration // how long a worker may hold a step in silence; 30 s by default
	Retention     time.Duration // how long finished tasks are kept; 0 for ever
	MaxRetryAfter time.Duration // longest retry_after_ms of a failure that is retried; a day by default
	SweepEvery    time.Duration // rest between two looks for stale tasks; 5 min by default, negative for never
	Log           *slog.Logger  // nothing is logged by default

	// Where servers work on the same database these must say what the servers'
	// [message_queue] says: whoever enqueues a step decides how long it may wait and
	// whether it is announced, and whoever finds one that waited too long what becomes
	// of it.
	Announce         bool              // the servers' transport is rabbitmq: have them announce the steps that are enqueued here
	PriorityAge      time.Duration     // priority_age_ms: from which age on a step may be handed out before more urgent ones; a minute by default, negative never
	QueueTTL         time.Duration     // worker_queue_ttl_ms: how long a step may wait for a worker; 5 min by default
	QueueTTLRule     tasker.ExpiryRule // queue_ttl: whether a step that waited for longer fails also where workers are busy; unless_saturated by default
	NoAutoRecover    bool              // auto_recover = false: leave steps that no worker took to operators
	MaxQueueExpiries int               // max_queue_expiries: how often in a row no worker may take a step although one is alive; 3 by default
	NoWorkerAfter    time.Duration     // no_worker_after_ms: for how long no worker may be alive for a step that waits; a minute by default

	// MeterProvider gets the metrics of docs/reference/metrics.md; nothing is counted by default.
	MeterProvider metric.MeterProvider
}

// Engine is Tasker inside a program. Its methods may be called concurrently.
type Engine struct {
	db     *postgres.DB
	engine *engine.Engine
	dlq    *dlq.Service
	holds  *hold.Service
	cases  *cases.Service
	why    *explain.Service
	log    *slog.Logger
}

// heartbeats is how many signs of life fit into a lease.
const heartbeats = 3

// Open connects to the database. A schema that is not this package's is an error,
// unless it is older and Migrate is set.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := prepare(ctx, o); err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, o.DatabaseURL, postgres.Options{QueueTTL: o.QueueTTL, ExpiryRule: o.QueueTTLRule, PriorityAge: o.PriorityAge, Announce: o.Announce})
	if err != nil {
		return nil, err
	}
	counts, err := measure(db, o)
	if err != nil {
		db.Close()
		return nil, err
	}
	groups := cases.New(db, cases.Options{Log: o.Log})
	e := engine.New(db, engine.Options{
		Environment: o.Environment, Lease: o.Lease, HeartbeatInterval: o.Lease / heartbeats, MaxRetryAfter: o.MaxRetryAfter, Retention: o.Retention, OnStepExpired: counts.Expired, OnAttributeSkipped: counts.AttributeLeftOut, Log: o.Log,
		DisableAutoRecovery: o.NoAutoRecover, MaxQueueExpiries: o.MaxQueueExpiries, UnservedTimeout: o.NoWorkerAfter, OnEvents: groups.Wake,
	})
	return &Engine{
		db: db, cases: groups, why: explain.New(db, explain.Options{Log: o.Log, Unknown: counts.NotExplained}),
		engine: e, holds: hold.New(db, e, hold.Options{Log: o.Log}),
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		dlq: dlq.New(db, dlq.Options{SweepEvery: o.SweepEvery, Undo: e.CompensateTaskTx, Metrics: counts, Log: o.Log}),
	}, nil
}

// measure counts what the database is told to do here, if anybody wants to know.
func measure(db *postgres.DB, o Options) (*metrics.Metrics, error) {
	if o.MeterProvider == nil {
		return nil, nil //nolint:nilnil // a nil Metrics counts nothing
	}
	m, err := metrics.New(o.MeterProvider, db.OpenEntries, cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	db.OnOpened(m.EntryCreated)
	return m, nil
}

func prepare(ctx context.Context, o Options) error {
	return connected(ctx, o.DatabaseURL, func(conn *pgx.Conn) error {
		if o.Migrate {
			_, err := schema.Up(ctx, conn)
			return err
		}
		return schema.Check(ctx, conn)
	})
}

func connected(ctx context.Context, url string, do func(*pgx.Conn) error) (err error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return do(conn)
}

// Close closes the connections. Run must have returned.
func (e *Engine) Close() { e.db.Close() }

// Run does what the engine does by itself: retries, timeouts, start times, lost
// workers, the sweep for stale tasks, the operations that a server has started, holds. It returns nil when ctx has ended and the
// work under way is done. Without it, nothing that waits for time goes on in this
// program.
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

// Backend returns the engine as the backend of a worker.
func (e *Engine) Backend() worker.Backend { return e.engine }

// RegisterTemplate stores a template, given as YAML or JSON, and says whether it
// is new. A version that tasks use never changes: another template under it is a
// Conflict.
func (e *Engine) RegisterTemplate(ctx context.Context, doc []byte) (created bool, err error) {
	t, warnings, err := templatefile.Parse(doc)
	if err != nil {
		return false, err
	}
	for _, w := range warnings {
		e.log.WarnContext(ctx, "a template has a key without effect", "template", t.Namespace+"/"+t.Name, "version", t.Version, "warning", w.String())
	}
	_, created, err = e.engine.RegisterTemplate(ctx, t, string(doc))
	return created, err
}

// RetireTemplate has no new tasks made of a version of a template; those that use it go on.
// A task that names no version is then made of the newest that is not retired.
func (e *Engine) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, actor, reason string) error {
	_, err := e.db.RetireTemplate(ctx, v, true, postgres.Operator{Actor: actor, Reason: reason})
	return err
}

// UnretireTemplate has new tasks made of a retired version of a template again.
func (e *Engine) UnretireTemplate(ctx context.Context, v tasker.TemplateVersion, actor, reason string) error {
	_, err := e.db.RetireTemplate(ctx, v, false, postgres.Operator{Actor: actor, Reason: reason})
	return err
}

// ChangeVersion brings an open task to another version of its template, or only says what that
// would do to its steps. The error is a Conflict when it cannot be done; the answer has the
// reasons. A task that is of the version stays as it is.
func (e *Engine) ChangeVersion(ctx context.Context, task tasker.ID, r tasker.VersionRequest) (tasker.VersionChange, error) {
	return e.engine.ChangeVersion(ctx, task, r)
}

// ChangeVersions brings a part of the open tasks of a version to another one, each in a
// transaction of its own. Next of the answer is Before of the next part; zero means that there
// is none.
func (e *Engine) ChangeVersions(ctx context.Context, r tasker.VersionBatchRequest) (tasker.VersionBatch, error) {
	return e.engine.ChangeVersions(ctx, r)
}

// CreateTask makes a task and returns its id. With an idempotency key the same
// request leads to the same task.
func (e *Engine) CreateTask(ctx context.Context, t tasker.NewTask) (tasker.ID, error) {
	created, err := e.engine.CreateTasks(ctx, []tasker.NewTask{t})
	if err != nil {
		return tasker.ID{}, err
	}
	return created[0].TaskUUID, nil
}

// Task returns a task. The error is NotFound when there is none.
func (e *Engine) Task(ctx context.Context, id tasker.ID) (tasker.Task, error) {
	return e.db.Task(ctx, id)
}

// Steps returns the steps of a task, in the order of its template.
func (e *Engine) Steps(ctx context.Context, task tasker.ID) ([]tasker.Step, error) {
	return e.db.Steps(ctx, task)
}

// TaskTree returns a task with those above it, and those that its steps started: the topmost
// first, and each before its children.
func (e *Engine) TaskTree(ctx context.Context, task tasker.ID) (tasker.TaskTree, error) {
	return e.db.TaskTree(ctx, task)
}

// Items returns the items of a step of type map in their order, and the ordinal at which the next
// page begins; 0 when there is none.
func (e *Engine) Items(ctx context.Context, task, step tasker.ID, f tasker.MapItemFilter) (list []tasker.Step, next int, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.MapItems(ctx, task, step, f)
}

// StepNamed returns the id of the step of a task that has a name, such as refund[17] of an item.
func (e *Engine) StepNamed(ctx context.Context, task tasker.ID, name string) (tasker.ID, error) {
	return e.db.StepNamed(ctx, task, name)
}

// CancelTask ends a task and those of its steps that have not ended.
func (e *Engine) CancelTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.engine.CancelTask(ctx, task, actor, reason)
}

// CompensateTask gives a task up and has undone what its completed steps have done, in the
// reverse order of their completion, as its template says. Asking again changes nothing; a task
// that has ended without it is a Conflict.
func (e *Engine) CompensateTask(ctx context.Context, task tasker.ID, actor, reason string) error {
	return e.engine.CompensateTask(ctx, task, actor, reason)
}

// ChangeDue gives an open task, or a step of it that has not ended, another due time or none, and returns it. The
// error is Invalid when that is not ahead, a Conflict when the task or the step has ended.
func (e *Engine) ChangeDue(ctx context.Context, task tasker.ID, c tasker.DueUpdate) (*tasker.Deadline, error) {
	return e.engine.ChangeDue(ctx, task, c)
}

// CancelTasks cancels a part of the open tasks that fit a filter, each in a transaction of its own.
// While More of the answer is true there are others: ask again.
func (e *Engine) CancelTasks(ctx context.Context, r tasker.CancelBatchRequest) (tasker.CancelBatch, error) {
	return e.engine.CancelTasks(ctx, r)
}

// OperateStep repairs a step: tries it again, settles it, or gives it a result.
func (e *Engine) OperateStep(ctx context.Context, task, step tasker.ID, op tasker.ActionRequest) (tasker.Step, error) {
	return e.engine.OperateStep(ctx, task, step, op)
}

// CompleteExternal ends an external step with an outcome from outside, and lets the task
// go on. The source says where the outcome comes from, for the history.
func (e *Engine) CompleteExternal(ctx context.Context, task, step tasker.ID, o tasker.Outcome, source string) (tasker.Step, error) {
	return e.engine.CompleteExternal(ctx, task, step, o, source)
}

// CompleteExternalNamed is CompleteExternal for the step of the task that has a name.
func (e *Engine) CompleteExternalNamed(ctx context.Context, task tasker.ID, name string, o tasker.Outcome, source string) (tasker.Step, error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return tasker.Step{}, err
	}
	return e.engine.CompleteExternal(ctx, task, step, o, source)
}

// Inbox returns what waits for people, what is due first before the rest, and reports whether there
// is more. Limits are those of InvestigationQueue.
func (e *Engine) Inbox(ctx context.Context, f tasker.InboxFilter) (list []tasker.HumanStep, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.engine.Inbox(ctx, f)
}

// HumanStep returns who is to answer an external step, what an answer looks like, and who changed
// that. The error is NotFound when the task has no such step, or it is not external.
func (e *Engine) HumanStep(ctx context.Context, task tasker.ID, name string) (d tasker.HumanStepDetail, err error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return d, err
	}
	return e.engine.HumanStep(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step})
}

// AssignStep says who is to answer an external step that waits. The error is a Conflict when it
// does not wait for an answer.
func (e *Engine) AssignStep(ctx context.Context, task tasker.ID, name string, r tasker.AssignRequest) (h tasker.HumanStep, err error) {
	step, err := e.db.StepNamed(ctx, task, name)
	if err != nil {
		return h, err
	}
	return e.engine.Assign(ctx, tasker.StepRef{TaskUUID: task, StepUUID: step}, r)
}

// CreateAnswerLink makes a link by which the assignee of an external step answers it, once and
// without signing in, on the pages of a server that works on the same database, or by
// [Engine.AnswerByLink]. The error is a Conflict when the step does not wait for an answer, or nobody
// in particular is to answer it.
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

// RevokeAnswerLink makes an answer link worthless. The error is a Conflict when it was used.
func (e *Engine) RevokeAnswerLink(ctx context.Context, l tasker.AnswerLink, actor string) (tasker.AnswerLink, error) {
	return e.engine.RevokeAnswerLink(ctx, l.StepRef, l.UUID, actor)
}

// AnswerQuestion returns what the holder of the token of an answer link is asked. The error is
// NotFound for a token that is worth nothing and was neither used nor has expired.
func (e *Engine) AnswerQuestion(ctx context.Context, token string) (tasker.AnswerQuestion, error) {
	return e.engine.AnswerQuestion(ctx, token)
}

// AnswerByLink answers a step with the token of an answer link, and uses it up. It is false, with the
// state of the link, when the link was used before or has expired; the error is that of AnswerQuestion,
// or Invalid for an answer that the form of the step refuses.
func (e *Engine) AnswerByLink(ctx context.Context, token string, result json.RawMessage) (state tasker.AnswerLinkState, answered bool, err error) {
	return e.engine.AnswerByLink(ctx, token, result)
}

// Tasks returns the tasks of a filter, newest first, and reports whether there are more.
func (e *Engine) Tasks(ctx context.Context, f tasker.TaskFilter) (list []tasker.Task, more bool, err error) {
	f.Limit = pageLimit(f.Limit)
	return e.db.Tasks(ctx, f)
}

// Attributes lists what tasks are found by as templates declare it; of a namespace, or of all
// when it is empty. Without a limit it has 100; more says whether there are others behind these.
func (e *Engine) Attributes(ctx context.Context, namespace string, limit, offset int) (list []tasker.Attribute, more bool, err error) {
	return e.db.Attributes(ctx, namespace, pageLimit(limit), max(offset, 0))
}

// Limits of a list: of one without a limit, and of any.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func pageLimit(limit int) int { return min(cmp.Or(max(limit, 0), defaultLimit), maxLimit) }
