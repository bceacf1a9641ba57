// Package postgres stores Tasker's state in PostgreSQL. Every state change is a compare-and-set
// that names the previous state, and the same transaction records it in the history. The clock of
// the database is authoritative. Locks are acquired in one order: tasks by id, steps by id,
// investigations. Claims skip locked rows.
//
// Decisions are made in packages engine and dlq. This package only stores and queries their
// results.
package postgres

import (
	"cmp"
	"context"
	"encoding/json"
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
	pool   connections
	queue  queue
	joined map[string]string // session settings for transactions of callers
	opened func(ctx context.Context, reason tasker.Reason, namespace string)

	commits  atomic.Pointer[[]func()]
	limits   limitedQueues
	askUntil atomic.Int64  // claims check each step for holds until this time, in Unix nanoseconds
	turns    fairScheduler // order of namespaces in claims
	heads    queueHeads    // where claims start to read queues
}

// Options configures a DB. The zero value uses the defaults.
type Options struct {
	MaxConns         int           // maximum number of connections; default 20
	StatementTimeout time.Duration // default 15 s
	ApplicationName  string        // name in pg_stat_activity; default tasker
	QueueTTL         time.Duration // queue timeout of steps whose template sets none; default DefaultQueueTTL
	PriorityAge      time.Duration // age that outranks urgency; default DefaultPriorityAge; negative disables it

	// ExpiryRule determines whether steps also expire while workers are busy. The default is
	// tasker.ExpireUnlessSaturated.
	ExpiryRule tasker.ExpiryRule

	TaskEvents []tasker.TaskSubscription // task events to write; default none

	Announce     bool // add enqueued steps to the outbox of the message broker
	ReportQueues bool // ConcludeSteps returns the queues of the steps

	Tracer pgx.QueryTracer // optional

	// ClockSchema is a schema whose functions now() and clock_timestamp() replace those of
	// PostgreSQL. It is for tests. The default is none.
	ClockSchema string
}

// DefaultQueueTTL is the default queue timeout of steps.
const DefaultQueueTTL = 5 * time.Minute

// DefaultPriorityAge is the default of Options.PriorityAge.
const DefaultPriorityAge = time.Minute

// taskEvents is the session setting with the subscriptions to task events. Triggers write the
// events, see tasker.write_task_event.
const taskEvents = "tasker.task_events"

// IdleTransactionTimeout is the time after which a session is terminated that is idle in a
// transaction.
const IdleTransactionTimeout = 15 * time.Second

// connectTimeout limits how long it takes to open a connection.
const connectTimeout = 5 * time.Second

// lockTimeout limits how long a statement waits for a locked row.
const lockTimeout = 5 * time.Second

// queue contains settings of the statements that enqueue steps.
type queue struct {
	ttlMS    int64
	expiry   tasker.ExpiryRule
	announce bool
	report   bool
}

// Open connects to the database at url and checks the connection. The schema is managed by package
// schema.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	cfg.MaxConns = int32(cmp.Or(max(o.MaxConns, 0), 20))
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	if o.Tracer != nil {
		cfg.ConnConfig.Tracer = o.Tracer
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = cmp.Or(o.ApplicationName, "tasker")
	settings := o.sessionSettings()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// This cancels the statements of clients that have disconnected. Some platforms do not
		// support it.
		var pg *pgconn.PgError
		if _, err := c.Exec(ctx, "SET client_connection_check_interval = '1s'"); err != nil && !errors.As(err, &pg) {
			return err
		}
		if err := applySettings(ctx, c, settings); err != nil {
			return err
		}
		registerTypes(c.TypeMap())
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
	return newDB(pool, o), nil
}

func newDB(pool connections, o Options) *DB {
	joined := maps.Clone(planning)
	for name, value := range o.sessionSettings() {
		if slices.Contains([]string{"search_path", "timezone", "lock_timeout", taskEvents}, name) {
			joined[name] = value
		}
	}
	return &DB{
		pool: pool,
		queue: queue{
			ttlMS:    cmp.Or(o.QueueTTL, DefaultQueueTTL).Milliseconds(),
			expiry:   cmp.Or(o.ExpiryRule, tasker.ExpireUnlessSaturated),
			announce: o.Announce, report: o.ReportQueues,
		},
		joined: joined,
		turns:  newFairScheduler(cmp.Or(o.PriorityAge, DefaultPriorityAge)),
		opened: func(context.Context, tasker.Reason, string) {},
	}
}

// sessionSettings returns the parameters that the statements of this package need.
func (o Options) sessionSettings() map[string]string {
	settings := maps.Clone(planning)
	settings["search_path"] = "tasker"
	if o.ClockSchema != "" {
		settings["search_path"] = o.ClockSchema + ", pg_catalog, tasker"
	}
	settings["timezone"] = "UTC"
	settings["statement_timeout"] = fmt.Sprint(cmp.Or(o.StatementTimeout, 15*time.Second).Milliseconds())
	settings["lock_timeout"] = fmt.Sprint(lockTimeout.Milliseconds())
	settings["idle_in_transaction_session_timeout"] = fmt.Sprint(IdleTransactionTimeout.Milliseconds())
	if len(o.TaskEvents) > 0 {
		list, _ := json.Marshal(o.TaskEvents) // strings and numbers can be encoded
		settings[taskEvents] = string(list)
	}
	return settings
}

// registerTypes makes pgx send ids in binary format and read times in UTC.
func registerTypes(m *pgtype.Map) {
	pgxuuid.Register(m)
	m.RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
}

// OnOpened sets a callback that is called after a transaction that opened an investigation was
// committed. Call it before the DB is used.
func (db *DB) OnOpened(f func(ctx context.Context, reason tasker.Reason, namespace string)) {
	db.opened = f
}

// OnCommit adds a callback that is called after each commit of [DB.InTx] and [DB.StoreTasks]. It
// must not block.
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

func (db *DB) runCommitHooks() {
	if list := db.commits.Load(); list != nil {
		for _, f := range *list {
			f()
		}
	}
}

// planning contains the planner settings. Tables are used as queues, so their statistics are
// usually wrong. Every statement finds a few rows by index, and the planner must not choose a table
// scan instead. Replanning, JIT and parallel workers would cost more than the statements. As a
// consequence, a statement must never join two large sets.
var planning = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"jit":              "off",

	"max_parallel_workers_per_gather": "0",
}

// Close closes all connections and waits for running statements. It does not close a pool that was
// passed to [Share].
func (db *DB) Close() { db.pool.Close() }

// Reset closes all connections. Those in use are closed when they are released.
func (db *DB) Reset() { db.pool.Reset() }

// Commit flushes an empty WAL message. Its duration is the minimum cost of a heartbeat.
func (db *DB) Commit(ctx context.Context) error {
	_, err := db.pool.Exec(WithConnClass(ctx, Heartbeats), statement("commit"))
	return err
}

// Pool returns the connections for general requests.
func (db *DB) Pool() *pgxpool.Pool { return db.pool.general() }

// Tx is a transaction. The locks that its methods acquire are held until it ends.
type Tx struct {
	pgx.Tx
	queue  queue
	joined bool // a savepoint in a transaction of the caller
	opened []openedEntry
}

// openedEntry describes an investigation that a transaction opened.
type openedEntry struct {
	reason    tasker.Reason
	namespace string
}

// InTx calls f in a transaction and commits it. If a race is lost, it calls f again, so f must have
// no other effects.
func (db *DB) InTx(ctx context.Context, f func(*Tx) error) error {
	var done *Tx
	err := retry(ctx, func() error {
		return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			done = &Tx{Tx: tx, queue: db.queue}
			return f(done)
		})
	})
	if err == nil {
		db.runCommitHooks()
		for _, o := range done.opened {
			db.opened(ctx, o.reason, o.namespace)
		}
	}
	return err
}

// inBatches calls f with a connection for a transaction that f begins and ends with its batches,
// which saves round trips. It rolls back if f fails, and calls f again after a lost race.
func (db *DB) inBatches(ctx context.Context, f func(context.Context, *pooledConn) error) error {
	return retry(ctx, func() error {
		conn, err := db.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		err = f(ctx, conn)
		if c := conn.Conn(); err != nil && !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
			rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
			defer cancel()
			_, _ = conn.Exec(rollback, statement("rollback"))
		}
		return err
	})
}

// rollbackTime limits how long a failed transaction waits for its rollback.
const rollbackTime = time.Second

// retry calls f again after a lost race, at most three times.
func retry(ctx context.Context, f func() error) error {
	const tries = 4
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == tries || !isRaceError(err) {
			return classifyError(err)
		}
		select {
		case <-ctx.Done():
			return classifyError(err)
		case <-time.After(time.Duration(n*10+rand.IntN(20)) * time.Millisecond):
		}
	}
}

// isRaceError reports whether err is a serialization failure, a deadlock, a lock timeout or a plan
// that a migration has invalidated.
func isRaceError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"40001", "40P01", "55P03", "0A000"}, pg.Code)
}
