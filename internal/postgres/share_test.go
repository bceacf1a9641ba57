package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker/internal/pgtest"
)

// share returns a DB on a pool of a program.
func share(t *testing.T, change func(*pgxpool.Config)) (*DB, *pgxpool.Pool) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = MinSharedConns
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db, err := Share(t.Context(), pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db, pool
}

// Each way to use a connection applies the settings and then releases the connection, also after an
// error.
func TestSharedConnectionsAreReleased(t *testing.T) {
	t.Parallel()
	db, pool := share(t, nil)
	const setting = `SELECT current_setting('search_path')`
	const fault = `SELECT 1 / $1::integer`
	rows := func(rows pgx.Rows, err error) error {
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, use := range map[string]func(ctx context.Context) error{
		"query": func(ctx context.Context) error {
			path, err := queryValue[string](ctx, db.pool, setting)
			if err == nil && path != "tasker" {
				t.Errorf("search_path is %s", path)
			}
			return err
		},
		"row": func(ctx context.Context) error {
			var path string
			return db.pool.QueryRow(ctx, setting).Scan(&path)
		},
		"failed query": func(ctx context.Context) error { return rows(db.pool.Query(ctx, fault, 0)) },
		"failed row":   func(ctx context.Context) error { return db.pool.QueryRow(ctx, fault, 0).Scan(nil) },
		"exec":         func(ctx context.Context) error { return exec(ctx, db.pool, "test", fault, 0) },
		"ping":         func(ctx context.Context) error { return db.pool.Ping(ctx) },
		"half a batch": func(ctx context.Context) error {
			var b pgx.Batch
			b.Queue(setting)
			b.Queue(fault, 0)
			results := db.pool.SendBatch(ctx, &b)
			return errors.Join(results.QueryRow().Scan(nil), results.Close(), results.Close())
		},
		"transaction": func(ctx context.Context) error {
			return db.InTx(ctx, func(tx *Tx) error { return exec(ctx, tx, "test", fault, 0) })
		},
		"terminated": func(ctx context.Context) error {
			return exec(ctx, db.pool, "test", `SELECT pg_terminate_backend(pg_backend_pid())`)
		},
	} {
		if err := use(t.Context()); err != nil {
			t.Logf("%s: %v", name, err)
		}
		if err := use(ended); err == nil {
			t.Errorf("%s succeeds after the end of its context", name)
		}
		if n := pool.Stat().AcquiredConns(); n != 0 {
			t.Fatalf("%s: %d connections were not released", name, n)
		}
	}
	var path string
	if err := pool.QueryRow(t.Context(), setting).Scan(&path); err != nil || path == "tasker" {
		t.Errorf("the program has the search path %s, %v", path, err)
	}
}

// A session that cannot be restored is closed.
func TestSharedConnectionsThatCannotBeRestoredAreClosed(t *testing.T) {
	t.Parallel()
	db, pool := share(t, nil)
	c, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := c.Conn().PgConn().PID()
	if _, err := c.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), `SELECT 1 / 0`); err == nil {
		t.Fatal("no error")
	}
	c.Release() // in an aborted transaction
	for range MinSharedConns {
		err := pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			if c.Conn().PgConn().PID() == pid {
				t.Error("the connection is still in the pool")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The engine receives its notifications, whatever the program does with its own.
func TestSharedPoolsListen(t *testing.T) {
	t.Parallel()
	db, pool := share(t, func(cfg *pgxpool.Config) {
		password := cfg.ConnConfig.Password
		cfg.ConnConfig.Password = "a token that has expired"
		cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("the program is notified") }
		cfg.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
			cfg.Password = password
			return nil
		}
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	got := ""
	err := db.Listen(ctx, []string{"news"}, func() {
		if err := db.Notify(ctx, "news", []string{"hello"}); err != nil {
			t.Error(err)
		}
	}, func(_, message string) {
		got = message
		stop()
	})
	if got != "hello" || err == nil {
		t.Errorf("received %q, %v", got, err)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not released", n)
	}
}
