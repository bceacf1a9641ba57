package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

// programPool returns a pool as a program would configure it.
func programPool(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = embedded.MinPoolConns
	cfg.ConnConfig.RuntimeParams["application_name"] = "program"
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

const stockTemplate = `
namespace_name: shop
name: order
version: 1.0.0
steps: [{name: reserve, handler: {callable: reserve}}]
`

// unsuitable is a configuration whose settings would change the results of the engine.
func unsuitable(cfg *pgxpool.Config) {
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"search_path": "public", "timezone": "Asia/Tokyo", "datestyle": "German", "intervalstyle": "iso_8601",
		"default_transaction_isolation": "serializable", "statement_timeout": "1234", "lock_timeout": "567",
		"plan_cache_mode": "force_custom_plan",
	})
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET idle_in_transaction_session_timeout = '1min'`)
		return err
	}
}

const programSettings = `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN (
	'client_connection_check_interval', 'DateStyle', 'default_transaction_isolation', 'enable_hashjoin',
	'enable_indexscan', 'enable_mergejoin', 'enable_seqscan', 'idle_in_transaction_session_timeout', 'IntervalStyle',
	'jit', 'lock_timeout', 'max_parallel_workers_per_gather', 'plan_cache_mode', 'search_path', 'statement_timeout',
	'TimeZone', 'transaction_isolation')`

// The engine works with the pool of a program, many transactions at once, and leaves it as it was.
func TestEngineSharesThePoolOfAProgram(t *testing.T) {
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	before := goleak.IgnoreCurrent()
	pool := programPool(t, database.AdminURL, unsuitable)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE public.orders (id integer PRIMARY KEY)`)
	exec(`CREATE TABLE public.stock (order_id integer PRIMARY KEY)`)
	settings := settingsOf(t, pool)
	e, err := embedded.Open(t.Context(), embedded.Options{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.RegisterTemplate(t.Context(), []byte(stockTemplate)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var running, orders sync.WaitGroup
	w := worker.New(e.Backend(), worker.Options{Namespaces: []string{"shop"}})
	const count = 20
	done := make(chan struct{}, count)
	worker.Handle(w, "reserve", func(ctx context.Context, s *worker.Step[struct{ Order int }]) (json.RawMessage, error) {
		result := json.RawMessage(`true`)
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO stock VALUES ($1)`, s.Input.Order); err != nil {
				return err
			}
			return e.CompleteStepTx(ctx, tx, s.Lease(), result)
		})
		if err == nil {
			done <- struct{}{}
		}
		return result, err
	})
	for _, run := range []func(context.Context) error{e.Run, w.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	tasks := make([]tasker.ID, count)
	for i := range count {
		orders.Go(func() {
			options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
			err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) (err error) {
				if _, err = tx.Exec(ctx, `INSERT INTO orders VALUES ($1)`, i); err != nil {
					return err
				}
				tasks[i], err = e.CreateTaskTx(ctx, tx, tasker.NewTask{
					Namespace: "shop", Name: "order", Context: fmt.Appendf(nil, `{"order": %d}`, i),
				})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	orders.Wait()
	for range count {
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatal("the steps were not completed")
		}
	}
	stop()
	running.Wait()
	for _, id := range tasks {
		if task, err := e.Task(t.Context(), id); err != nil || task.State != tasker.TaskComplete {
			t.Errorf("the task is %s, %v", task.State, err)
		} else if task.CreatedAt.Location() != time.UTC {
			t.Errorf("the task was created at %s, want UTC", task.CreatedAt)
		}
	}
	e.Close()
	checkUnchanged(t, pool, settings)
	pool.Close()
	goleak.VerifyNone(t, before)
}

func settingsOf(t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (settings string) {
	t.Helper()
	if err := q.QueryRow(t.Context(), programSettings).Scan(&settings); err != nil {
		t.Fatal(err)
	}
	return settings
}

// checkUnchanged checks all connections of a pool: their settings, types and number.
func checkUnchanged(t *testing.T, pool *pgxpool.Pool, settings string) {
	t.Helper()
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not released", n)
	}
	var held []*pgxpool.Conn
	defer func() {
		for _, c := range held {
			c.Release()
		}
	}()
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		if got := settingsOf(t, c); got != settings {
			t.Errorf("a connection has the settings\n%s, want\n%s", got, settings)
		}
		var id any
		if err := c.QueryRow(t.Context(), `SELECT gen_random_uuid()`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if _, ok := id.([16]byte); !ok {
			t.Errorf("an id is read as %T, want [16]byte as before", id)
		}
	}
	if n := pool.Stat().TotalConns(); n > pool.Config().MaxConns {
		t.Errorf("the pool has %d connections", n)
	}
}

func TestOpenRefusesUnsuitablePools(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	for _, tt := range []struct {
		name   string
		change func(*pgxpool.Config)
		more   embedded.Options
		want   string
	}{
		{"too small", func(c *pgxpool.Config) { c.MaxConns = 3 }, embedded.Options{}, "at most 3 connections"},
		{"simple protocol", func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		}, embedded.Options{}, "simple protocol"},
		{"no statement cache", func(c *pgxpool.Config) {
			c.ConnConfig.StatementCacheCapacity = 0
		}, embedded.Options{}, "statement_cache_capacity"},
		{"no triggers", func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["session_replication_role"] = "replica"
		}, embedded.Options{}, "session_replication_role"},
		{"read-only", func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		}, embedded.Options{}, "default_transaction_read_only"},
		{"and a URL", nil, embedded.Options{DatabaseURL: database.URL}, "either DatabaseURL or Pool"},
		{"and a size", nil, embedded.Options{MaxConnections: 10}, "MaxConns of the pool"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.more.Pool = programPool(t, database.AdminURL, tt.change)
			_, err := embedded.Open(t.Context(), tt.more)
			if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	for _, n := range []int{-1, 1} {
		_, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL, MaxConnections: n})
		if err == nil || !strings.Contains(err.Error(), "at least 2") {
			t.Errorf("of %d: %v", n, err)
		}
	}
	if _, err := embedded.Open(t.Context(), embedded.Options{}); err == nil {
		t.Error("neither a URL nor a pool is accepted")
	}
	e, err := embedded.Open(t.Context(), embedded.Options{DatabaseURL: database.URL, MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, _, err := e.Holds(t.Context(), tasker.HoldFilter{}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	var n int
	err = database.Pool(t).QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'tasker'`).Scan(&n)
	if err != nil || n > 2 {
		t.Errorf("the engine has %d connections, %v; want at most 2", n, err)
	}
}
