package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
)

// MinSharedConns is the minimum size of a pool for [Share].
const MinSharedConns = 4

// restoreTimeout limits how long it takes to restore the settings of a session.
const restoreTimeout = 5 * time.Second

// Share returns a DB that uses a pool of the calling program. While it uses a connection, it replaces
// the session settings and registered types by its own, and it restores them before the release.
// MaxConns, ApplicationName and Tracer have no effect. It returns Invalid if the pool is not
// suitable.
func Share(ctx context.Context, pool *pgxpool.Pool, o Options) (*DB, error) {
	if err := checkPool(pool.Config()); err != nil {
		return nil, err
	}
	settings := o.sessionSettings()
	// The defaults of a program must not change what the statements do and return.
	settings["default_transaction_isolation"] = "read committed"
	settings["datestyle"], settings["intervalstyle"] = "ISO, MDY", "postgres"
	s := &sharedPool{pool: pool}
	if err := s.checkServer(ctx, settings); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", classifyError(err))
	}
	s.names = slices.Sorted(maps.Keys(settings))
	for _, name := range s.names {
		s.values = append(s.values, settings[name])
	}
	if err := s.checkSessions(ctx); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", classifyError(err))
	}
	return newDB(s, o), nil
}

// checkPool returns Invalid if the engine cannot work with the configuration of a pool.
func checkPool(cfg *pgxpool.Config) error {
	if cfg.MaxConns < MinSharedConns {
		return tasker.Errorf(tasker.Invalid, "the pool has at most %d connections (MaxConns, pool_max_conns): "+
			"the engine needs at least %d, in addition to those that the program holds", cfg.MaxConns, MinSharedConns)
	}
	if mode := cfg.ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement {
		return tasker.Errorf(tasker.Invalid, "the pool executes statements in the mode %q "+
			"(DefaultQueryExecMode, default_query_exec_mode): the engine needs %q, the default of pgx",
			mode, pgx.QueryExecModeCacheStatement)
	}
	if cfg.ConnConfig.StatementCacheCapacity <= 0 {
		return tasker.Errorf(tasker.Invalid, "the pool has no cache of prepared statements "+
			"(StatementCacheCapacity, statement_cache_capacity): the engine needs one, as by default")
	}
	return nil
}

// sharedPool provides the connections of a pool that is not its own. It never closes the pool.
type sharedPool struct {
	pool          *pgxpool.Pool
	names, values []string // settings of a session during its use
}

// checkServer returns Invalid if sessions cannot write or do not execute triggers. It adds the
// settings that depend on the server.
func (s *sharedPool) checkServer(ctx context.Context, settings map[string]string) error {
	return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		const name = "client_connection_check_interval" // see Open
		var pg *pgconn.PgError
		_, err := c.Exec(ctx, statement("trySetting"), pgx.QueryExecModeExec, name, "1s")
		switch {
		case err == nil:
			settings[name] = "1s"
		case !errors.As(err, &pg):
			return err
		}
		for _, required := range []struct{ name, value, why string }{
			{"session_replication_role", "origin", "the schema needs its triggers"},
			{"default_transaction_read_only", "off", "the engine must be able to write"},
		} {
			var value string
			err := c.QueryRow(ctx, statement("currentSetting"), pgx.QueryExecModeExec, required.name).Scan(&value)
			if err == nil && value != required.value {
				err = tasker.Errorf(tasker.Invalid, "the sessions of the pool have %s = %s: it must be %s, because %s",
					required.name, value, required.value, required.why)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// connect returns a connection that does not belong to the pool. Its notifications are not passed
// to the program.
func (s *sharedPool) connect(ctx context.Context) (*pgx.Conn, error) {
	pool := s.pool.Config()
	cfg := pool.ConnConfig.Copy()
	cfg.OnNotification = nil
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectTimeout)
	if pool.BeforeConnect != nil { // it may set the password
		if err := pool.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// checkSessions returns an error if a pooler loses settings or shares sessions between connections.
func (s *sharedPool) checkSessions(ctx context.Context) error {
	first, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	defer first.Release()
	var process, other uint32
	err = first.QueryRow(ctx, statement("selectProcessID"), pgx.QueryExecModeExec).Scan(&process)
	if err != nil || process == first.Conn().PgConn().PID() {
		return err // no pooler
	}
	_, lost, err := s.exchangeSettings(ctx, first.Conn())
	if err != nil {
		return err
	}
	second, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer second.Release()
	if err := second.QueryRow(ctx, statement("selectProcessID"), pgx.QueryExecModeExec).Scan(&other); err != nil {
		return err
	}
	if lost || process == other {
		return errSharedSessions
	}
	return nil
}

// Acquire returns a connection with the settings and types of the engine. Its release restores
// those of the program.
func (s *sharedPool) Acquire(ctx context.Context) (*pooledConn, error) {
	for {
		c, err := s.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		conn := c.Conn()
		if !isUsable(conn) {
			_ = conn.Close(ctx)
			c.Release()
			continue
		}
		restoreTypes := exchangeTypes(conn)
		before, _, err := s.exchangeSettings(ctx, conn)
		if err != nil {
			restoreTypes()
			c.Release()
			return nil, err
		}
		return &pooledConn{poolConn: c, release: sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
			defer cancel()
			if !conn.IsClosed() {
				if _, err := conn.Exec(ctx, statement("restoreSettings"), s.names, before); err != nil {
					_ = conn.Close(ctx) // the program must not use it
				}
			}
			restoreTypes()
			c.Release()
		})}, nil
	}
}

// exchangeSettings applies the settings of the engine to a session. It returns the previous values
// and reports whether any was different.
func (s *sharedPool) exchangeSettings(ctx context.Context, c *pgx.Conn) (before []string, changed bool, err error) {
	rows, err := c.Query(ctx, statement("exchangeSettings"), s.names, s.values)
	if err != nil {
		return nil, false, err
	}
	var was, is string
	_, err = pgx.ForEachRow(rows, []any{&was, &is}, func() error {
		before, changed = append(before, was), changed || was != is
		return nil
	})
	return before, changed, err
}

// exchangeTypes replaces the registered types of a connection by those of the engine.
func exchangeTypes(c *pgx.Conn) (restore func()) {
	const key = "tasker.types"
	data := c.PgConn().CustomData()
	types, found := data[key].(*pgtype.Map)
	if !found {
		types = pgtype.NewMap()
		registerTypes(types)
		data[key] = types
	}
	current := c.TypeMap()
	before := *current
	*current = *types
	return func() { *types, *current = *current, before }
}

func (s *sharedPool) general() *pgxpool.Pool { return s.pool }

// forCreates leaves most of the pool to the program.
func (s *sharedPool) forCreates() int {
	return max(1, splitConns(int(s.pool.Config().MaxConns))[Creates])
}

// Close does nothing: the pool belongs to the program.
func (s *sharedPool) Close() {}

// Reset does nothing: the pool belongs to the program.
func (s *sharedPool) Reset() {}

func (s *sharedPool) Ping(ctx context.Context) error { return classifyError(s.pool.Ping(ctx)) }

func (s *sharedPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := s.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, classifyError(err)
	}
	defer c.Release()
	tag, err := c.Exec(ctx, sql, args...)
	return tag, classifyError(err)
}

func (s *sharedPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c, err := s.Acquire(ctx)
	if err != nil {
		return nil, classifyError(err)
	}
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		c.Release()
		return nil, classifyError(err)
	}
	return &sharedRows{Rows: rows, release: c.Release}, nil
}

func (s *sharedPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c, err := s.Acquire(ctx)
	if err != nil {
		return failedRow{classifyError(err)}
	}
	return sharedRow{row: c.QueryRow(ctx, sql, args...), release: c.Release}
}

func (s *sharedPool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c, err := s.Acquire(ctx)
	if err != nil {
		return failedBatch{err}
	}
	return &sharedBatch{BatchResults: c.SendBatch(ctx, b), release: c.Release}
}

func (s *sharedPool) Begin(ctx context.Context) (pgx.Tx, error) {
	c, err := s.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		c.Release()
		return nil, err
	}
	return &sharedTx{Tx: tx, release: c.Release}, nil
}

// sharedRows releases the connection when it is closed or read to the end.
type sharedRows struct {
	pgx.Rows
	release func()
}

func (r *sharedRows) Close() {
	r.Rows.Close()
	r.release()
}

func (r *sharedRows) Next() bool {
	if r.Rows.Next() { //nolint:forbidigo // the rows are closed below
		return true
	}
	r.Close()
	return false
}

// sharedRow releases the connection when it is scanned.
type sharedRow struct {
	row     pgx.Row
	release func()
}

func (r sharedRow) Scan(into ...any) error {
	defer r.release()
	return classifyError(r.row.Scan(into...))
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// sharedBatch releases the connection when it is closed.
type sharedBatch struct {
	pgx.BatchResults
	release func()
}

func (b *sharedBatch) Close() error {
	defer b.release()
	return b.BatchResults.Close()
}

type failedBatch struct{ err error }

func (b failedBatch) Tx() pgx.Tx                       { return nil }
func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRow(b) }
func (b failedBatch) Close() error                     { return b.err }

// sharedTx releases the connection when the transaction ends.
type sharedTx struct {
	pgx.Tx
	release func()
}

func (tx *sharedTx) Commit(ctx context.Context) error {
	defer tx.release()
	return tx.Tx.Commit(ctx)
}

func (tx *sharedTx) Rollback(ctx context.Context) error {
	defer tx.release()
	return tx.Tx.Rollback(ctx)
}
