// Package triage measures the cost of cases: on the failure path, during classification and on read.
package triage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/bench/internal/private"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
)

// Options configures the size of the incident. All fields are optional; the documents report the
// defaults.
type Options struct {
	DatabaseURL string // an empty database, for a superuser; default a private server
	Entries     int    // open investigations; default 100 000
	Large       int    // of them in one case; default 10 000
	Single      int    // of them in a case of their own; default 200
	Runs        int    // of each figure; default 7
	Out         io.Writer
}

// A Report contains the results.
type Report struct {
	Entries int      `json:"entries"`
	Cases   int      `json:"cases"`
	Figures []Figure `json:"figures"`
}

// A Figure is a measured value and its limit.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Aim   string  `json:"aim,omitempty"`
}

// Run creates the incident in a new database and measures.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.Entries, o.Large, o.Single, o.Runs = or(o.Entries, 100_000), or(o.Large, 10_000), or(o.Single, 200), or(o.Runs, 7)
	if o.Large+o.Single > o.Entries {
		return report, fmt.Errorf("%d entries cannot have %d in one case and %d alone", o.Entries, o.Large, o.Single)
	}
	if o.DatabaseURL == "" {
		stop, url, err := private.Start(ctx, o.Out)
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		o.DatabaseURL = url
	}
	conn, err := pgx.Connect(ctx, o.DatabaseURL)
	if err != nil {
		return report, err
	}
	_, err = schema.Up(ctx, conn)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return report, err
	}
	pool, err := pgxpool.New(ctx, o.DatabaseURL)
	if err != nil {
		return report, err
	}
	defer pool.Close()
	db, err := postgres.Open(ctx, o.DatabaseURL, postgres.Options{})
	if err != nil {
		return report, err
	}
	defer db.Close()
	r := run{Options: o, pool: pool, db: db, cases: cases.New(db, cases.Options{}), report: &Report{Entries: o.Entries}}
	err = r.all(ctx)
	return *r.report, err
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

type run struct {
	Options
	pool   *pgxpool.Pool
	db     *postgres.DB
	cases  *cases.Service
	report *Report
}

func (r *run) say(format string, args ...any) { _, _ = fmt.Fprintf(r.Out, format+"\n", args...) }

func (r *run) add(name, unit, aim string, value float64) {
	r.report.Figures = append(r.report.Figures, Figure{name, value, unit, aim})
	r.say("%s: %.1f %s", name, value, unit)
}

// fill creates failed tasks without investigations.
const fill = `
WITH template AS (
    INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('orders', 'fulfil', '1.0.0', '{}', '', '')
    ON CONFLICT (namespace, name, version) DO UPDATE SET source = ''
    RETURNING template_uuid
),
t AS (
    INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
    SELECT tasker.uuid_generate_v7(), template_uuid, 'orders', 'fulfil', '1.0.0', 'error', now(), '{}', n::text, now(), now()
    FROM template, generate_series($1::int, $2::int) n
    RETURNING task_uuid, correlation_id::int AS n
)
INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
    parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, error)
SELECT task_uuid, tasker.uuid_generate_v7(), 'charge', 'standard', 'orders', 'run', 0, 'error', now(), '{}', '{}', 0, 3, 3, true, 'constant', 1, 1, false, now(), now(),
    jsonb_build_object('type', 'GatewayError', 'retryable', true, 'attempt', 3, 'message', CASE
        WHEN n < $3 THEN format('HTTP 503 from https://pay.example/charge/ORDER-%s', 390000 + n)
        WHEN n < $3 + $4 THEN format('module %s refused the parcel', translate((n - $3)::text, '0123456789', 'abcdefghij'))
        WHEN n % 2 = 0 THEN format('dial tcp 10.0.3.7:5432: connect: connection refused (after %sms)', n)
        ELSE format('HTTP 404 from https://pay.example/charge/ORDER-%s', 390000 + n)
    END)
FROM t`

// open opens investigations for a number of tasks without one.
const open = `
SELECT count(*)
FROM (
    SELECT array_agg(s.task_uuid) AS tasks, array_agg(s.step_uuid) AS steps
    FROM (
        SELECT s.task_uuid, s.step_uuid
        FROM tasker.tasks t
        JOIN tasker.workflow_steps s ON s.task_uuid = t.task_uuid
        WHERE t.correlation_id::int >= $1 AND t.correlation_id::int < $2
    ) s
) a
CROSS JOIN LATERAL tasker.create_dlq_entries(a.tasks, array_fill('max_retries_exceeded'::tasker.dlq_reason, ARRAY[cardinality(a.tasks)]),
    array_fill('retries_exhausted'::text, ARRAY[cardinality(a.tasks)]), 'inline', array_fill('steps_in_process'::text, ARRAY[cardinality(a.tasks)]),
    array_fill(now(), ARRAY[cardinality(a.tasks)]), a.steps, 'bench', NULL, array_fill(NULL::jsonb, ARRAY[cardinality(a.tasks)])) e`

// without replaces the trigger by its version without cases.
const without = `
CREATE OR REPLACE FUNCTION tasker.tell_of_investigation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
    SELECT
        'dlq.entry.' || CASE WHEN e.event IN ('created', 'recovered', 'resolved') THEN e.event ELSE 'updated' END,
        e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
    FROM tasker.dlq_events((SELECT array_agg(a.history_id) FROM added a)) e
    ORDER BY e.history_id;
    RETURN NULL;
END
$$`

const (
	perBatch  = 20 // failures per report
	probe     = 2000
	probeRuns = 5
	pageSize  = 50
)

func (r *run) all(ctx context.Context) error {
	if err := r.failurePath(ctx); err != nil {
		return err
	}
	if err := r.fillAll(ctx); err != nil {
		return err
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	return r.reads(ctx)
}

// opened opens investigations in batches of the size of a report, and returns the time per
// investigation.
func (r *run) opened(ctx context.Context, from, to int) (each time.Duration, err error) {
	start := time.Now()
	for n := from; n < to; n += perBatch {
		if _, err := r.pool.Exec(ctx, open, n, min(n+perBatch, to)); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(to-from), nil
}

// failurePath compares the cost of an investigation with and without cases, alternately.
func (r *run) failurePath(ctx context.Context) error {
	var with string
	if err := r.pool.QueryRow(ctx, `SELECT pg_get_functiondef('tasker.tell_of_investigation()'::regprocedure)`).Scan(&with); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, `CREATE INDEX bench_tasks ON tasker.tasks ((correlation_id::int))`); err != nil {
		return err
	}
	next := 10_000_000
	var ratios, costs []float64
	for range probeRuns {
		var took [2]time.Duration
		for i, function := range []string{without, with} {
			if _, err := r.pool.Exec(ctx, function); err != nil {
				return err
			}
			if _, err := r.pool.Exec(ctx, fill, next, next+probe-1, 1<<30, 0); err != nil {
				return err
			}
			if _, err := r.pool.Exec(ctx, `ANALYZE tasker.tasks, tasker.workflow_steps`); err != nil {
				return err
			}
			each, err := r.opened(ctx, next, next+probe)
			if err != nil {
				return err
			}
			took[i] = each
			next += probe
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
		costs = append(costs, float64(took[1].Microseconds()))
	}
	r.add("an investigation is opened, with cases", "µs", "", figures.Median(costs))
	r.add("the same, to the same without cases", "×", "≤ 1.05", figures.Median(ratios))
	return r.clear(ctx)
}

func (r *run) clear(ctx context.Context) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `TRUNCATE tasker.tasks, tasker.workflow_steps, tasker.tasks_dlq, tasker.tasks_dlq_history, tasker.case_members, tasker.outbox, tasker.emissions CASCADE`)
		return err
	})
}

func (r *run) fillAll(ctx context.Context) error {
	start := time.Now()
	if _, err := r.pool.Exec(ctx, fill, 0, r.Entries-1, r.Large, r.Single); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, `ANALYZE tasker.tasks, tasker.workflow_steps`); err != nil {
		return err
	}
	for n := 0; n < r.Entries; n += 500 {
		if _, err := r.pool.Exec(ctx, open, n, min(n+500, r.Entries)); err != nil {
			return err
		}
	}
	r.say("%d investigations were opened in %s", r.Entries, time.Since(start).Round(time.Second))
	return nil
}

// find measures the time until all investigations have a case, and checks that each case has a
// single cause.
func (r *run) find(ctx context.Context) error {
	start := time.Now()
	n, err := r.cases.Classify(ctx)
	if err != nil {
		return err
	}
	took := time.Since(start)
	r.add("investigations that find their case", "/s", "", float64(n)/took.Seconds())
	start = time.Now()
	if err := r.cases.UpdateStates(ctx); err != nil {
		return err
	}
	r.add("the states of all cases are judged", "ms", "", ms(time.Since(start)))
	list, more, err := r.db.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 1000}})
	if err != nil {
		return err
	}
	r.report.Cases = len(list)
	if want := r.Single + 3; len(list) != want || more {
		return fmt.Errorf("%d cases, want %d", len(list), want)
	}
	return nil
}

// reads measures the requests of operators, after the incident and after VACUUM.
func (r *run) reads(ctx context.Context) error {
	list, _, err := r.db.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 1000}})
	if err != nil {
		return err
	}
	var large tasker.Case
	for _, c := range list {
		if c.Entries == int64(r.Large) && strings.Contains(c.ErrorPattern, "503") {
			large = c
		}
	}
	for _, when := range []string{"", ", vacuumed"} {
		if when != "" {
			if _, err := r.pool.Exec(ctx, `VACUUM ANALYZE tasker.case_members`); err != nil {
				return err
			}
		}
		for _, f := range []struct {
			name, aim string
			read      func() error
		}{
			{"list of cases with its totals", "≤ 100 ms", func() error {
				f := tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: pageSize}}
				_, _, _, err := r.db.CasePage(ctx, f)
				return err
			}},
			{"list of cases with a text", "", func() error {
				_, _, err := r.db.Cases(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: pageSize, Text: "order-390017"}})
				return err
			}},
			{fmt.Sprintf("case of %d", r.Large), "≤ 300 ms", func() error {
				_, err := r.cases.FindDetail(ctx, large.ID)
				return err
			}},
			{"why it is one", "", func() error {
				_, err := r.cases.Why(ctx, large.ID)
				return err
			}},
			{"its investigations, a page", "", func() error {
				_, _, err := r.db.InvestigationQueue(ctx, tasker.InvestigationFilter{Case: &large.ID, Limit: pageSize})
				return err
			}},
		} {
			took, err := r.timed(f.read)
			if err != nil {
				return err
			}
			r.add(f.name+when, "ms", f.aim, took)
		}
	}
	return nil
}

// timed returns the median duration of several runs in milliseconds.
func (r *run) timed(read func() error) (float64, error) {
	took := make([]float64, r.Runs)
	for i := range took {
		start := time.Now()
		if err := read(); err != nil {
			return 0, err
		}
		took[i] = ms(time.Since(start))
	}
	return figures.Median(took), nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Markdown writes the report as a table.
func (r Report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d open investigations in %d cases.\n\n| figure | measured | to reach |\n|---|---:|---|\n", r.Entries, r.Cases)
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "| %s | %.4g %s | %s |\n", f.Name, f.Value, f.Unit, f.Aim)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
