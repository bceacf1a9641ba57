// Package bulk measures how long one operation takes to repair thousands of tasks.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// Options configures a run.
type Options struct {
	Items   int // stuck tasks
	Workers int // concurrent steps of the workers
	Out     io.Writer
}

// A Figure is a measured value and its limit.
type Figure struct {
	Name  string
	Value float64
	Unit  string
	Most  float64 // limit; infinite if there is none
}

// A Report contains the figures of a run.
type Report struct {
	Items   int
	Figures []Figure
}

// Markdown writes the report as a table.
func (r Report) Markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tasks\n\n| figure | measured | at most |\n|---|---|---|\n", r.Items)
	for _, f := range r.Figures {
		most := "–"
		if !math.IsInf(f.Most, 1) {
			most = fmt.Sprintf("%g", f.Most)
		}
		fmt.Fprintf(&b, "| %s | %.2f %s | %s |\n", f.Name, f.Value, f.Unit, most)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

const space = "bulk"

const template = `
namespace_name: bulk
name: one
version: 1.0.0
steps:
  - name: only
    handler: {callable: work}
    retry: {max_attempts: 5, backoff_base_ms: 100}
`

// A run is an installation and a worker whose handler fails or succeeds.
type run struct {
	Options
	*installation
	works  atomic.Bool
	report Report
}

// Run makes all measurements.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	in, err := install(ctx, 2, "")
	if err != nil {
		return Report{}, err
	}
	r := &run{Options: o, installation: in, report: Report{Items: o.Items}}
	defer func() { err = errors.Join(err, in.stop(ctx)) }()
	if _, err := r.servers[0].api.RegisterTemplate(ctx, []byte(template), "application/yaml"); err != nil {
		return r.report, err
	}
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"make stuck tasks", r.stick}, {"a repair that does not help", r.badRepair}, {"freeze, dry run, release", r.repair},
		{"make stuck tasks again", r.stick}, {"servers killed, database restarted", r.crashes},
	} {
		begun := time.Now()
		if err := part.do(ctx); err != nil {
			return r.report, fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(o.Out, "%s: %s\n", part.name, time.Since(begun).Round(time.Millisecond))
	}
	return r.report, nil
}

func (r *run) add(name string, value float64, unit string, most float64) {
	r.report.Figures = append(r.report.Figures, Figure{Name: name, Value: value, Unit: unit, Most: most})
	fmt.Fprintf(r.Out, "  %s: %.2f %s\n", name, value, unit)
}

// work runs workers. The returned function stops them and waits.
func (r *run) work(ctx context.Context, works bool) (stop func()) {
	r.works.Store(works)
	w := worker.New(r.servers[1].api.Backend(), worker.Options{Namespaces: []string{space}, Concurrency: r.Workers, DrainTimeout: time.Second})
	worker.Handle(w, "work", func(context.Context, *worker.Step[struct{}]) (any, error) {
		if r.works.Load() {
			return struct{}{}, nil
		}
		return nil, worker.Permanent(errors.New("HTTP 503 from https://pay.example/charge"))
	})
	return keep(ctx, w)
}

// keep runs a worker. The returned function stops it and waits.
func keep(ctx context.Context, w *worker.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = w.Run(ctx) // it also ends after a long outage of the server
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// number queries a number. It returns -1 if the database does not answer.
func (r *run) number(ctx context.Context, sql string, args ...any) float64 {
	conn, err := pgx.Connect(ctx, r.pg.URL())
	if err != nil {
		return -1
	}
	defer func() { _ = conn.Close(ctx) }()
	var n float64
	if err := conn.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

// until waits until a query returns want.
func (r *run) until(ctx context.Context, want float64, sql string, args ...any) error {
	deadline := time.Now().Add(10 * time.Minute)
	for r.number(ctx, sql, args...) != want {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("waited in vain until %v: %s", want, sql)
		}
		loop.Sleep(ctx, 20*time.Millisecond)
	}
	return nil
}

// stick creates tasks with a permanently failed step.
func (r *run) stick(ctx context.Context) error {
	open := r.number(ctx, `SELECT count(*)::float8 FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`)
	stop := r.work(ctx, false)
	defer stop()
	for left := r.Items; left > 0; {
		n := min(left, 1000)
		if _, err := r.servers[0].api.CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{{Namespace: space, Name: "one"}}, n)); err != nil {
			return err
		}
		left -= n
	}
	return r.until(ctx, open+float64(r.Items), `SELECT count(*)::float8 FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`)
}

func (r *run) plan(ctx context.Context, waves *[]int) (apiv1.Operation, tasker.ID, error) {
	o, err := r.servers[0].api.PlanOperation(ctx, apiv1.PlanOperation{
		Act: apiv1.OperationAct{Type: string(tasker.ActReset)}, Select: apiv1.OperationSelection{Namespace: space},
		Reason: "measured", PlannedBy: "bench", Waves: waves,
	}, "")
	if err != nil {
		return o, tasker.ID{}, err
	}
	if o.Items != r.Items {
		return o, tasker.ID{}, fmt.Errorf("%d items were frozen, want %d", o.Items, r.Items)
	}
	var id tasker.ID
	err = id.UnmarshalText([]byte(o.OperationUUID))
	return o, id, err
}

func (r *run) start(ctx context.Context, o apiv1.Operation, id tasker.ID) error {
	_, err := r.servers[0].api.StartOperation(ctx, id, apiv1.StartOperation{PlanDigest: o.PlanDigest, By: "bench"})
	return err
}

const (
	inState  = `SELECT count(*)::float8 FROM tasker.operation_items WHERE operation_uuid = $1 AND state = $2`
	released = `SELECT count(*)::float8 FROM tasker.operation_items WHERE operation_uuid = $1 AND released_at IS NOT NULL`
	isIn     = `SELECT count(*)::float8 FROM tasker.operations WHERE operation_uuid = $1 AND state = $2`
)

// badRepair releases steps that fail again, except for the first one.
func (r *run) badRepair(ctx context.Context) error {
	o, id, err := r.plan(ctx, nil)
	if err != nil {
		return err
	}
	stop := r.work(ctx, true)
	defer stop()
	if err := r.start(ctx, o, id); err != nil {
		return err
	}
	if err := r.until(ctx, 1, inState, id, tasker.ItemVerified); err != nil {
		return err
	}
	r.works.Store(false)
	if err := r.until(ctx, 1, isIn, id, tasker.OperationPaused); err != nil {
		return err
	}
	loop.Sleep(ctx, 2*time.Second) // detects unexpected releases
	r.add("steps that a bad repair touches", r.number(ctx, released, id), "", 11)
	r.add("from the failure that is one too many to the pause", r.number(ctx, `
		SELECT extract(epoch FROM o.paused_at - f.failed_at)::float8
		FROM tasker.operations o
		CROSS JOIN LATERAL (SELECT i.failed_at FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.failed_at IS NOT NULL ORDER BY 1 OFFSET 1 LIMIT 1) f
		WHERE o.operation_uuid = $1`, id), "s", 2)
	if _, err := r.servers[0].api.AbortOperation(ctx, id, "bench"); err != nil {
		return err
	}
	if err := r.until(ctx, 1, `SELECT count(*)::float8 FROM tasker.operations WHERE operation_uuid = $1 AND settled_at IS NOT NULL`, id); err != nil {
		return err
	}
	// Replace the repaired task.
	if _, err := r.servers[0].api.CreateTask(ctx, apiv1.CreateTask{Namespace: space, Name: "one"}); err != nil {
		return err
	}
	return r.until(ctx, float64(r.Items), `SELECT count(*)::float8 FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`)
}

// repair measures a successful operation.
func (r *run) repair(ctx context.Context) error {
	begun := time.Now()
	o, id, err := r.plan(ctx, &[]int{})
	if err != nil {
		return err
	}
	r.add("freeze", time.Since(begun).Seconds(), "s", 1)
	if err := r.until(ctx, 0, `SELECT count(*)::float8 FROM tasker.claims`); err != nil { // servers remove the last claims
		return err
	}
	before, err := r.contents(ctx)
	if err != nil {
		return err
	}
	begun = time.Now()
	would := 0
	for next := new(int); next != nil; {
		part, err := r.servers[0].api.DryRunOperation(ctx, id, apiv1.DryRunOperation{After: *next, Limit: r.Items})
		if err != nil {
			return err
		}
		would, next = would+part.WouldRelease, part.Next
	}
	r.add("dry run", time.Since(begun).Seconds(), "s", 10)
	r.add("items that the dry run would not release", float64(r.Items-would), "", 0)
	after, err := r.contents(ctx)
	if err != nil {
		return err
	}
	changed := 0.0
	for table, digest := range before {
		if after[table] != digest {
			fmt.Fprintf(r.Out, "  the dry run has changed %s\n", table)
			changed++
		}
	}
	r.add("tables with another content after the dry run", changed, "", 0)
	stop := r.work(ctx, true)
	defer stop()
	begun = time.Now()
	if err := r.start(ctx, o, id); err != nil {
		return err
	}
	if err := r.until(ctx, float64(r.Items), released, id); err != nil {
		return err
	}
	r.add("released", time.Since(begun).Seconds(), "s", 15)
	if err := r.until(ctx, float64(r.Items), inState, id, tasker.ItemVerified); err != nil {
		return err
	}
	r.add("verified", time.Since(begun).Seconds(), "s", 60)
	return nil
}

// contents returns a digest of each table, except for those with heartbeats of servers.
func (r *run) contents(ctx context.Context) (map[string]string, error) {
	conn, err := pgx.Connect(ctx, r.pg.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT relname::text FROM pg_class WHERE relnamespace = 'tasker'::regnamespace AND relkind = 'r' ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range names {
		var digest string
		if err := conn.QueryRow(ctx, `SELECT coalesce(md5(string_agg(md5(x::text), '' ORDER BY md5(x::text))), '') FROM tasker.`+pgx.Identifier{name}.Sanitize()+` x`).Scan(&digest); err != nil {
			return nil, err
		}
		out[name] = digest
	}
	return out, nil
}

// crashes kills a server twice during an operation, and restarts the database once.
func (r *run) crashes(ctx context.Context) error {
	o, id, err := r.plan(ctx, &[]int{1, 10, 100})
	if err != nil {
		return err
	}
	stop := r.work(ctx, true)
	defer stop()
	if err := r.start(ctx, o, id); err != nil {
		return err
	}
	begun, wrong := time.Now(), 0.0
	happen := []func() error{
		func() error { r.servers[0].kill(); return r.servers[0].start(ctx) },
		func() error { return r.restartDatabase(ctx) },
		func() error { r.servers[1].kill(); return r.servers[1].start(ctx) },
	}
	for len(happen) > 0 || r.number(ctx, isIn, id, tasker.OperationDone) != 1 {
		if time.Since(begun) > 10*time.Minute {
			return errors.New("it does not end")
		}
		if n := r.number(ctx, released, id); len(happen) > 0 && n > float64(r.Items)*float64(4-len(happen))/5 {
			if err := happen[0](); err != nil {
				return err
			}
			happen = happen[1:]
		}
		if n := r.number(ctx, `SELECT count(*)::float8 FROM (SELECT state, count(*) FROM tasker.operation_items WHERE operation_uuid = $1 GROUP BY state) x
			HAVING sum(x.count) <> $2`, id, r.Items); n > 0 {
			wrong++
		}
	}
	r.add("done in spite of two dead servers and a restart", time.Since(begun).Seconds(), "s", 120)
	r.add("instants at which the items do not add up", wrong, "", 0)
	r.add("steps released twice", r.number(ctx, `
		SELECT count(*)::float8 FROM (SELECT FROM tasker.step_history WHERE operation_uuid = $1 GROUP BY step_uuid HAVING count(*) > 1) x`, id), "", 0)
	r.add("items that are not verified", float64(r.Items)-r.number(ctx, inState, id, tasker.ItemVerified), "", 0)
	r.add("investigations that did not end with the proof", float64(r.Items)-r.number(ctx, `
		SELECT count(*)::float8 FROM tasker.tasks_dlq WHERE resolution_status = 'manually_resolved' AND metadata -> 'proof' ->> 'operation_uuid' = $1::uuid::text`, id), "", 0)
	return nil
}
