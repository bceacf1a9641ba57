package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// IncidentOptions configures a run of RunIncident.
type IncidentOptions struct {
	Items     int           // stuck tasks at the beginning
	PerMinute int           // new failures
	For       time.Duration // duration of each phase
	Workers   int           // concurrent steps of the workers
	Out       io.Writer
}

const failingTemplate = `
namespace_name: bulk
name: failing
version: 1.0.0
steps:
  - name: only
    handler: {callable: fail}
`

// failureBatch is the number of failing tasks that are created together.
const failureBatch = 20

// RunIncident measures response times of the UI while failures continue and an operation repairs
// earlier ones. It also measures how much the operation slows down reports of failures.
func RunIncident(ctx context.Context, o IncidentOptions) (_ Report, err error) {
	in, err := install(ctx, 2, "")
	if err != nil {
		return Report{}, err
	}
	r := &run{Options: Options{Items: o.Items, Workers: o.Workers, Out: o.Out}, installation: in, report: Report{Items: o.Items}}
	defer func() { err = errors.Join(err, in.stop(ctx)) }()
	for _, t := range []string{template, failingTemplate} {
		if _, err := r.servers[0].api.RegisterTemplate(ctx, []byte(t), "application/yaml"); err != nil {
			return r.report, err
		}
	}
	fmt.Fprintf(o.Out, "%d tasks fail\n", o.Items)
	if err := r.stick(ctx); err != nil {
		return r.report, err
	}
	plan, id, err := r.plan(ctx, &[]int{1, 10, 100})
	if err != nil {
		return r.report, err
	}
	stop := r.work(ctx, true)
	defer stop()
	before, err := r.phase(ctx, o)
	if err != nil {
		return r.report, err
	}
	if err := r.start(ctx, plan, id); err != nil {
		return r.report, err
	}
	during, err := r.phase(ctx, o)
	if err != nil {
		return r.report, err
	}
	r.add("failures a minute, beside the operation", float64(during.failures)/o.For.Minutes(), "", math.Inf(1))
	r.add("items proved meanwhile", r.number(ctx, inState, id, tasker.ItemVerified), "", math.Inf(1))
	r.add("case list, p95", figures.Quantile(during.lists, 0.95), "ms", 500)
	r.add("act on a step, p95", figures.Quantile(during.acts, 0.95), "ms", 1000)
	r.add("report of a failure, median without the operation", figures.Quantile(before.reports, 0.5), "ms", math.Inf(1))
	r.add("beside it, times as long", figures.Quantile(during.reports, 0.5)/figures.Quantile(before.reports, 0.5), "", 1.05)
	return r.report, nil
}

// times contains the measurements of a phase.
type times struct {
	mu       sync.Mutex
	lists    []time.Duration
	acts     []time.Duration
	reports  []time.Duration
	failures int
}

func (t *times) add(to *[]time.Duration, begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*to = append(*to, time.Since(begun))
}

// A reporter is a worker's backend that measures reports.
type reporter struct {
	*client.Backend
	times *times
}

// Report measures reports of failures.
func (b reporter) Report(ctx context.Context, w tasker.ID, outcomes []tasker.Outcome, claim int) (tasker.Receipt, error) {
	begun := time.Now()
	receipt, err := b.Backend.Report(ctx, w, outcomes, claim)
	b.times.add(&b.times.reports, begun)
	b.times.mu.Lock()
	defer b.times.mu.Unlock()
	b.times.failures += len(outcomes)
	return receipt, err
}

// phase creates failing tasks for a while and performs the requests of operators.
func (r *run) phase(ctx context.Context, o IncidentOptions) (*times, error) {
	t := &times{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(o.For, cancel).Stop()
	var group sync.WaitGroup
	var first error
	var once sync.Once
	each := func(every time.Duration, do func() error) {
		group.Go(func() {
			for next := time.Now(); ctx.Err() == nil; next = next.Add(every) {
				loop.Sleep(ctx, time.Until(next))
				if err := do(); err != nil && ctx.Err() == nil {
					once.Do(func() { first = err; cancel() })
				}
			}
		})
	}
	each(time.Duration(failureBatch)*time.Minute/time.Duration(o.PerMinute), func() error {
		_, err := r.servers[0].api.CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{{Namespace: space, Name: "failing"}}, failureBatch))
		return err
	})
	each(200*time.Millisecond, func() error {
		begun := time.Now()
		_, err := r.servers[0].api.Cases(ctx, tasker.CaseFilter{})
		t.add(&t.lists, begun)
		return err
	})
	each(500*time.Millisecond, func() error { return r.act(ctx, t) })
	w := worker.New(reporter{r.servers[1].api.Backend(), t}, worker.Options{Namespaces: []string{space}, Concurrency: r.Workers, DrainTimeout: time.Second})
	worker.Handle(w, "fail", func(context.Context, *worker.Step[struct{}]) (any, error) {
		return nil, worker.Permanent(errors.New("HTTP 404 from https://stock.example/items"))
	})
	group.Go(func() { _ = w.Run(ctx) })
	group.Wait()
	return t, first
}

// act resets a failed step that is not part of the operation.
func (r *run) act(ctx context.Context, t *times) error {
	conn, err := pgx.Connect(ctx, r.pg.URL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var task, step tasker.ID
	err = conn.QueryRow(ctx, `
		SELECT s.task_uuid, s.step_uuid
		FROM tasker.tasks_dlq d
		JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.state = 'error'
		WHERE d.task_name = 'failing' AND d.resolution_status = 'pending'
		ORDER BY d.dlq_timestamp DESC LIMIT 1`).Scan(&task, &step)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	begun := time.Now()
	_, err = r.servers[0].api.ActOnStep(ctx, task, step, apiv1.StepAction{ActionType: string(tasker.ResetForRetry), Reason: "measured", ResetBy: "bench"})
	t.add(&t.acts, begun)
	return err
}
