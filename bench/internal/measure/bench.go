// Package measure runs the workloads of the benchmark and reports each result as a ratio to a plain
// PostgreSQL baseline. Unless a server is given, it starts a private, durable PostgreSQL and removes
// it afterwards.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/bench/internal/private"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
)

// Options configures a run. All fields are optional; the documents report the defaults.
type Options struct {
	DatabaseURL string         // an empty database, for a superuser; default a private server
	Runs        int            // of each figure; default 5
	Tasks       int            // with one step, per drain; default 20 000
	Workflows   int            // of each shape, per drain; default 2 000
	Backlog     int            // waiting tasks of one tenant beside those of another; default 100 000
	Places      int            // concurrent steps of each of the four workers; default 100
	Single      int            // workflows of each shape that are measured one by one; default 200
	BrokerURL   string         // a RabbitMQ; without it the group transports is omitted
	Only        *regexp.Regexp // groups to measure; default all
	CPUProfile  string         // file for the CPU profile of an in-process drain
	MemProfile  string         // file for its allocation profile
	Out         io.Writer      // for progress messages

	growth GrowthOptions // for Growth
}

// BrokerEnv is the environment variable with the default URL of a RabbitMQ.
const BrokerEnv = "TASKER_BENCH_AMQP_URL"

func (o *Options) fill() {
	o.Runs = cmp.Or(o.Runs, 5)
	o.Tasks = cmp.Or(o.Tasks, 20_000)
	o.Workflows = cmp.Or(o.Workflows, 2_000)
	o.Backlog = cmp.Or(o.Backlog, 100_000)
	o.Places = cmp.Or(o.Places, drainConcurrency)
	o.Single = cmp.Or(o.Single, 200)
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// A group is a set of figures that are measured together.
type group struct {
	name string
	run  func(*bench, context.Context) error
}

// groups lists the groups in order. Within a group, the baselines and the figures that are compared
// with them alternate, so that other load on the machine affects all of them.
var groups = []group{
	{"commit", (*bench).commits},
	{"drain", (*bench).drains},
	{"workflows", (*bench).workflows},
	{"latency", (*bench).latencies},
	{"transports", (*bench).transports},
	{"create", (*bench).creates},
	{"cost", (*bench).costs},
	{"history", (*bench).history},
	{"find", (*bench).found},
	{"map", (*bench).maps},
	{"tenants", (*bench).tenants},
	{"limits", (*bench).limits},
	{"profile", (*bench).profile},
}

// Run measures the selected groups.
func Run(ctx context.Context, o Options) (Report, error) { return measure(ctx, o, groups) }

func measure(ctx context.Context, o Options, groups []group) (report Report, err error) {
	o.fill()
	if o.MemProfile != "" {
		runtime.MemProfileRate = 0 // until profiling starts
	}
	if o.DatabaseURL == "" {
		var stop func() error
		if stop, o.DatabaseURL, err = private.Start(ctx, o.Out); err != nil {
			return Report{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	b, err := open(ctx, o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.report.Settings, err = b.settings(ctx); err != nil {
		return Report{}, err
	}
	for _, g := range groups {
		if o.Only != nil && !o.Only.MatchString(g.name) {
			continue
		}
		start := time.Now()
		_, _ = fmt.Fprintf(o.Out, "measuring %s …", g.name)
		b.group = g.name
		if err := g.run(b, ctx); err != nil {
			return *b.report, fmt.Errorf("%s: %w", g.name, err)
		}
		_, _ = fmt.Fprintf(o.Out, " %.1f s\n", time.Since(start).Seconds())
	}
	b.report.conclude()
	return *b.report, nil
}

// applicationName is the name of the engine's connections.
const applicationName = "tasker-bench"

// A bench is an engine on a database, with the measurements so far.
type bench struct {
	Options
	db     *postgres.DB
	engine *engine.Engine
	dlq    *dlq.Service
	log    *slog.Logger
	stop   func() error // stops the loops of the engine
	work   []string     // tables that are emptied between runs
	report *Report
	group  string // current group
}

// open starts an engine as an embedding program does, with timers and notifications.
func open(ctx context.Context, o Options) (*bench, error) {
	conn, err := pgx.Connect(ctx, o.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_, err = schema.Up(ctx, conn)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, o.DatabaseURL, postgres.Options{StatementTimeout: time.Minute, ApplicationName: applicationName})
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	b := &bench{
		Options: o, db: db, engine: engine.New(db, engine.Options{Log: log}), dlq: dlq.New(db, dlq.Options{}), log: log,
		report: &Report{Runs: o.Runs},
	}
	if err = b.register(ctx); err == nil {
		b.work, err = b.emptyTables(ctx)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	b.stop = runLoops(ctx, b.engine)
	return b, nil
}

func (b *bench) close() error {
	err := b.stop()
	b.db.Close()
	return err
}

// emptyTables returns Tasker's empty tables.
func (b *bench) emptyTables(ctx context.Context) ([]string, error) {
	rows, err := b.db.Pool().Query(ctx, `
		SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'tasker' ORDER BY tablename`)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	return b.tables(ctx, all, false)
}

// tables returns the tables of a list that have rows, or those without.
func (b *bench) tables(ctx context.Context, list []string, withRows bool) ([]string, error) {
	var out []string
	for _, name := range list {
		var has bool
		if err := b.db.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+name+`)`).Scan(&has); err != nil {
			return nil, err
		}
		if has == withRows {
			out = append(out, name)
		}
	}
	return out, nil
}

// reset restores the initial state for the next run: no tasks, and all pages written. Truncating
// only the tables with pages takes a fraction of the time.
func (b *bench) reset(ctx context.Context) error {
	var used []string
	err := b.db.Pool().QueryRow(ctx, `
		SELECT coalesce(array_agg(name), '{}') FROM unnest($1::text[]) name WHERE pg_relation_size(name::regclass) > 0`, b.work).Scan(&used)
	if err != nil {
		return err
	}
	if len(used) > 0 {
		err = b.db.InTx(ctx, func(tx *postgres.Tx) error { // InTx retries after conflicts with timers
			// Disables the triggers that protect the history.
			if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
				return fmt.Errorf("a superuser is needed: %w", err)
			}
			_, err := tx.Exec(ctx, `TRUNCATE `+strings.Join(used, ", ")+` CASCADE`, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			return fmt.Errorf("empty the tables: %w", err)
		}
	}
	_, err = b.db.Pool().Exec(ctx, `CHECKPOINT`, pgx.QueryExecModeSimpleProtocol)
	return err
}
