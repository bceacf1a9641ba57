// Package postgres stores Tasker's state in PostgreSQL. Every state change is a compare-and-set
// that names the previous state, and is recorded in the history in the same transaction. The
// database clock is authoritative. Locks are taken in one order: tasks by id, then steps by id,
// then entries; claims skip locked rows.
//
// Packages engine and dlq decide what happens; this package only stores and queries it.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"tasker.example/tasker"
)

// DB is the database of one Tasker.
type DB struct {
	pool   *pools
	queue  queue
	joined map[string]string // settings of transactions of others
	opened func(ctx context.Context, reason tasker.Reason, namespace string)

	commits    atomic.Pointer[[]func()]
	limits     limitedQueues
	askUntil   atomic.Int64  // until when claims ask of each step whether it is held, as Unix nanoseconds
	turns      fairScheduler // of namespaces in claims
	directFrom int           // see Options.DirectFrom
	singles    fastPath      // reports of one success
	heads      queueHeads    // of queues in claims
}

// Options bounds what a DB takes of the server.
type Options struct {
	MaxConns         int               // connections; 0 means 20
	StatementTimeout time.Duration     // of one statement; 0 means 15 s
	ApplicationName  string            // as pg_stat_activity shows it; "" means tasker
	QueueTTL         time.Duration     // how long a step may wait for a worker unless its template says; 0 means DefaultQueueTTL
	PriorityAge      time.Duration     // from which age on a step may be handed out before more urgent ones; 0 means DefaultPriorityAge, negative never
	DirectFrom       int               // from how many outcomes on a report claims directly what becomes ready; 0 means DefaultDirectFrom
	ExpiryRule       tasker.ExpiryRule // whether a step that waited too long fails also where workers are busy; "" means tasker.ExpireUnlessSaturated
	Announce         bool              // put what is enqueued into the outbox of the message broker
	ReportQueues     bool              // say of which queues the steps were that ConcludeSteps moved

	Tracer pgx.QueryTracer // sees each statement; nil: nobody does

	// ClockSchema is a schema whose functions now() and clock_timestamp() count instead of
	// those of PostgreSQL, for tests that move the clock; empty means none.
	ClockSchema string
}

// DefaultQueueTTL is the default queue timeout of a step.
const DefaultQueueTTL = 5 * time.Minute

// DefaultDirectFrom is from how many outcomes on a report claims directly what becomes ready. It takes about 0.1 ms to begin such
// a statement, and saves about 0.02 ms for each step that it claims.
const DefaultDirectFrom = 5

// DefaultPriorityAge is the default age from which steps precede more urgent ones.
const DefaultPriorityAge = time.Minute

// LongestPause is the idle timeout within a transaction.
const LongestPause = 15 * time.Second

// lockTimeout is how long a statement waits for a row that another transaction holds.
const lockTimeout = 5 * time.Second

// queue is what every statement needs that puts steps into the queue.
type queue struct {
	ttlMS    int64
	expiry   tasker.ExpiryRule
	announce bool
	report   bool
}

// Open connects to the database at url and checks it. Package schema manages the schema.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	cfg.MaxConns = int32(max(o.MaxConns, 0))
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 20
	}
	if o.StatementTimeout == 0 {
		o.StatementTimeout = 15 * time.Second
	}
	if o.ApplicationName == "" {
		o.ApplicationName = "tasker"
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	if o.Tracer != nil {
		cfg.ConnConfig.Tracer = o.Tracer
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = o.ApplicationName
	params := maps.Clone(planning)
	params["search_path"] = "tasker"
	if o.ClockSchema != "" {
		params["search_path"] = o.ClockSchema + ", pg_catalog, tasker"
	}
	params["timezone"] = "UTC"
	params["statement_timeout"] = fmt.Sprint(o.StatementTimeout.Milliseconds())
	params["lock_timeout"] = fmt.Sprint(lockTimeout.Milliseconds())
	params["idle_in_transaction_session_timeout"] = fmt.Sprint(LongestPause.Milliseconds())
	joined := maps.Clone(planning) // of transactions of others
	for _, name := range []string{"search_path", "timezone", "lock_timeout"} {
		joined[name] = params[name]
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// Statements of disconnected callers end. Some platforms cannot detect that.
		var pg *pgconn.PgError
		if _, err := c.Exec(ctx, "SET client_connection_check_interval = '1s'"); err != nil && !errors.As(err, &pg) {
			return err
		}
		if err := applySettings(ctx, c, params); err != nil {
			return err
		}
		pgxuuid.Register(c.TypeMap()) // ids would travel by way of text otherwise
		c.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	requireReadWrite(cfg)
	pool, err := openPools(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := checkSessions(ctx, pool, cfg.ConnConfig); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach database: %w", err)
	}
	q := queue{ttlMS: cmp.Or(o.QueueTTL, DefaultQueueTTL).Milliseconds(), expiry: cmp.Or(o.ExpiryRule, tasker.ExpireUnlessSaturated), announce: o.Announce, report: o.ReportQueues}
	return &DB{pool: pool, queue: q, joined: joined, turns: newFairScheduler(cmp.Or(o.PriorityAge, DefaultPriorityAge)), directFrom: cmp.Or(o.DirectFrom, DefaultDirectFrom), opened: func(context.Context, tasker.Reason, string) {}}, nil
}

// OnOpened sets a callback for each committed new investigation. Call it before using the DB.
func (db *DB) OnOpened(f func(ctx context.Context, reason tasker.Reason, namespace string)) {
	db.opened = f
}

// OnCommit adds a non-blocking callback after each commit of [DB.InTx] and [DB.StoreTasks].
func (db *DB) OnCommit(f func()) {
	for {
		before := db.commits.Load()
		var list []func()
		if before != nil {
			list = *before
		}
		list = append(slices.Clone(list), f)
		if db.commits.CompareAndSwap(before, &list) {
			return
		}
	}
}

func (db *DB) committed() {
	if list := db.commits.Load(); list != nil {
		for _, f := range *list {
			f()
		}
	}
}

// planning suits a database used as a queue, whose statistics are usually wrong. Every statement
// goes from a few rows to others by index, and the planner must not switch to a table scan.
// Replanning, jit and parallel workers cost more than the statements.
//
// A statement must therefore never join two large sets.
var planning = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"jit":              "off",

	"max_parallel_workers_per_gather": "0",
}

// Close waits for running statements and closes the connections.
func (db *DB) Close() { db.pool.Close() }

// Reset closes all connections, those in use on return.
func (db *DB) Reset() { db.pool.Reset() }

// Commit flushes an empty WAL message: the minimum cost of a heartbeat.
func (db *DB) Commit(ctx context.Context) error {
	_, err := db.pool.Exec(WithConnClass(ctx, Heartbeats), `SELECT pg_logical_emit_message(true, 'tasker', '')`)
	return err
}

// Pool is the connections for requests.
func (db *DB) Pool() *pgxpool.Pool { return db.pool.of[General] }

// Tx is a transaction. Its methods hold the locks they take until it ends.
type Tx struct {
	pgx.Tx
	queue  queue
	joined bool // behind a savepoint of a transaction of others
	opened []opened
}

// An opened is an investigation that a transaction opened.
type opened struct {
	reason    tasker.Reason
	namespace string
}

// InTx runs f in a transaction. It retries lost lock races, so f must have no outside effects.
func (db *DB) InTx(ctx context.Context, f func(*Tx) error) error {
	var done *Tx
	err := retry(ctx, func() error {
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			done = &Tx{Tx: tx, queue: db.queue}
			return f(done)
		})
	})
	if err == nil {
		db.committed()
		for _, o := range done.opened {
			db.opened(ctx, o.reason, o.namespace)
		}
	}
	return err
}

// retry runs f again when PostgreSQL gave up on it for the sake of another.
func retry(ctx context.Context, f func() error) error {
	const tries = 4
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == tries || !lostRace(err) {
			return classifyError(err)
		}
		rest := time.Duration(n*10+rand.IntN(20)) * time.Millisecond
		select {
		case <-ctx.Done():
			return classifyError(err)
		case <-time.After(rest):
		}
	}
}

func lostRace(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "0A000": // serialization, deadlock, lock timeout, plan made stale by a migration
		return true
	}
	return false
}
