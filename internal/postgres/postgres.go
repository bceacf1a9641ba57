// Package postgres stores Tasker's state in PostgreSQL. Every state change is a compare-and-set
// that names the previous state, and is recorded in the history in the same transaction. The
// database clock is authoritative. Locks are acquired in one order: tasks by id, steps by id, DLQ
// entries. Claims skip locked rows.
//
// Packages engine and dlq make the decisions; this package only stores and queries them.
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

// DB is the database of one Tasker installation.
type DB struct {
	pool   *pools
	queue  queue
	joined map[string]string // session settings for caller transactions
	opened func(ctx context.Context, reason tasker.Reason, namespace string)

	commits    atomic.Pointer[[]func()]
	limits     limitedQueues
	askUntil   atomic.Int64  // until when claims check each step for holds, in Unix nanoseconds
	turns      fairScheduler // order of namespaces in claims
	directFrom int           // see Options.DirectFrom
	singles    fastPath      // reports of one success
	heads      queueHeads    // where claims start
}

// Options configures a DB. The zero value uses the defaults.
type Options struct {
	MaxConns         int           // maximum number of connections; the default is 20
	StatementTimeout time.Duration // the default is 15 s
	ApplicationName  string        // name in pg_stat_activity; the default is tasker
	QueueTTL         time.Duration // queue timeout of steps without one in their template; the default is DefaultQueueTTL
	PriorityAge      time.Duration // age from which a step precedes more urgent ones; the default is DefaultPriorityAge, negative disables it
	DirectFrom       int           // minimum outcomes of a report that directly claims the steps it makes ready; the default is DefaultDirectFrom

	// ExpiryRule determines whether a step also expires while workers are busy. The default is
	// tasker.ExpireUnlessSaturated.
	ExpiryRule tasker.ExpiryRule

	Announce     bool // add enqueued steps to the outbox of the message broker
	ReportQueues bool // have ConcludeSteps return the queues of the steps

	Tracer pgx.QueryTracer // optional

	// ClockSchema is a schema with functions now() and clock_timestamp() that replace those of
	// PostgreSQL in tests. The default is none.
	ClockSchema string
}

// DefaultQueueTTL is the default queue timeout of a step.
const DefaultQueueTTL = 5 * time.Minute

// DefaultDirectFrom is the default of Options.DirectFrom. Such a statement costs about 0.1 ms and
// saves about 0.02 ms for each step that it claims.
const DefaultDirectFrom = 5

// DefaultPriorityAge is the default age from which steps precede more urgent ones.
const DefaultPriorityAge = time.Minute

// IdleTransactionTimeout terminates sessions that are idle in a transaction.
const IdleTransactionTimeout = 15 * time.Second

// lockTimeout bounds the wait of a statement for a locked row.
const lockTimeout = 5 * time.Second

// queue configures the statements that enqueue steps.
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
	cfg.MaxConns = int32(cmp.Or(max(o.MaxConns, 0), 20))
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	if o.Tracer != nil {
		cfg.ConnConfig.Tracer = o.Tracer
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = cmp.Or(o.ApplicationName, "tasker")
	params := maps.Clone(planning)
	params["search_path"] = "tasker"
	if o.ClockSchema != "" {
		params["search_path"] = o.ClockSchema + ", pg_catalog, tasker"
	}
	params["timezone"] = "UTC"
	params["statement_timeout"] = fmt.Sprint(cmp.Or(o.StatementTimeout, 15*time.Second).Milliseconds())
	params["lock_timeout"] = fmt.Sprint(lockTimeout.Milliseconds())
	params["idle_in_transaction_session_timeout"] = fmt.Sprint(IdleTransactionTimeout.Milliseconds())
	joined := maps.Clone(planning)
	for _, name := range []string{"search_path", "timezone", "lock_timeout"} {
		joined[name] = params[name]
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// Cancels the statements of disconnected clients. Some platforms do not support it.
		var pg *pgconn.PgError
		if _, err := c.Exec(ctx, "SET client_connection_check_interval = '1s'"); err != nil && !errors.As(err, &pg) {
			return err
		}
		if err := applySettings(ctx, c, params); err != nil {
			return err
		}
		pgxuuid.Register(c.TypeMap()) // otherwise ids are sent as text
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
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return &DB{
		pool: pool,
		queue: queue{
			ttlMS: cmp.Or(o.QueueTTL, DefaultQueueTTL).Milliseconds(), expiry: cmp.Or(o.ExpiryRule, tasker.ExpireUnlessSaturated),
			announce: o.Announce, report: o.ReportQueues,
		},
		joined:     joined,
		turns:      newFairScheduler(cmp.Or(o.PriorityAge, DefaultPriorityAge)),
		directFrom: cmp.Or(o.DirectFrom, DefaultDirectFrom),
		opened:     func(context.Context, tasker.Reason, string) {},
	}, nil
}

// OnOpened sets a callback that runs after an investigation was opened and committed. Call it before
// using the DB.
func (db *DB) OnOpened(f func(ctx context.Context, reason tasker.Reason, namespace string)) {
	db.opened = f
}

// OnCommit adds a callback that runs after each commit of [DB.InTx] and [DB.StoreTasks]. It must not
// block.
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

// planning contains planner settings for a database used as a queue, whose statistics are usually
// wrong. Every statement finds a few rows by index, and the planner must not choose a table scan.
// Replanning, JIT and parallel workers cost more than the statements. Therefore a statement must
// never join two large sets.
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

// Reset closes all connections. Those in use are closed when they return to the pool.
func (db *DB) Reset() { db.pool.Reset() }

// Commit flushes an empty WAL message. It measures the minimum cost of a heartbeat.
func (db *DB) Commit(ctx context.Context) error {
	_, err := db.pool.Exec(WithConnClass(ctx, Heartbeats), stmt("commit"))
	return err
}

// Pool returns the connections for requests.
func (db *DB) Pool() *pgxpool.Pool { return db.pool.of[General] }

// Tx is a transaction. It holds the locks of its methods until it ends.
type Tx struct {
	pgx.Tx
	queue  queue
	joined bool // it is a savepoint in a transaction of the caller
	opened []opened
}

// opened describes an investigation that a transaction opened.
type opened struct {
	reason    tasker.Reason
	namespace string
}

// InTx runs f in a transaction. It repeats f after a lost race, so f must have no other effects.
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

// retry repeats f after a lost race, up to three times.
func retry(ctx context.Context, f func() error) error {
	const tries = 4
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == tries || !lostRace(err) {
			return classifyError(err)
		}
		select {
		case <-ctx.Done():
			return classifyError(err)
		case <-time.After(time.Duration(n*10+rand.IntN(20)) * time.Millisecond):
		}
	}
}

// lostRace reports a serialization failure, a deadlock, a lock timeout or a plan that a migration
// has invalidated.
func lostRace(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"40001", "40P01", "55P03", "0A000"}, pg.Code)
}
