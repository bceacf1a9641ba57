package explain_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// A counter counts statements.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// maxStatements is what an explanation may take.
const maxStatements = 6

// Whatever is explained takes a few statements, with as many workers, waiting steps, finished
// tasks and members as there may be in a large installation.
func TestExplanationTakesFewStatements(t *testing.T) {
	t.Parallel()
	statements := &counter{}
	h := with(enginetest.At(t, pgtest.New(t).URL, postgres.Options{Tracer: statements}))
	h.employ()
	ops := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{})
	create := func(n int) (ids []tasker.ID) {
		requests := slices.Repeat([]tasker.NewTask{{Namespace: h.Space, Name: "chain"}}, n)
		list, err := h.Engine.CreateTasks(t.Context(), requests)
		h.Must(err)
		for _, c := range list {
			ids = append(ids, c.TaskUUID)
		}
		return ids
	}
	failed := create(20)
	for range 2 {
		h.fail(10, "gateway is down", false)
	}
	h.FindCases()
	o, _, err := ops.Plan(t.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "ann", Reason: "r", Waves: []int{}, Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Namespace: h.Space}}, Limit: 10,
	})
	h.Must(err)
	_, err = ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.Must(err)
	_, err = ops.Release(t.Context())
	h.Must(err)
	running := create(20)
	for range 5 {
		h.claim(4)
	}
	waiting := create(40)
	h.Exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease)
		SELECT tasker.uuid_generate_v7(), 'w' || n, '{shop}', '{run,other}', '1', 8, '10 min', '1 hour' FROM generate_series(1, 50) n`)
	var id tasker.ID
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT case_id FROM tasker.cases`).Scan(&id))
	last := waiting[len(waiting)-1]
	for name, of := range map[string]tasker.ID{
		"task that waits": last, "step that waits for it": h.step(last, "notify").UUID, "task that runs": running[9], "task that failed": failed[19],
		"investigation": h.Entry(failed[19]).UUID, "case": id, "operation": o.UUID, "nothing": tasker.NewID(),
	} {
		h.cost(statements, name, func() error {
			e, err := h.service.Explain(t.Context(), of)
			if name == "nothing" && tasker.CodeOf(err) == tasker.NotFound {
				return nil
			}
			if err == nil && e.Reason == tasker.ConditionUnknown {
				return fmt.Errorf("unknown: %s", e.Message)
			}
			return err
		})
	}
	h.cost(statements, "queue", func() error { _, err := h.service.ExplainQueue(t.Context(), h.Space, "run"); return err })
}

// cost checks how many statements a request takes.
func (h *harness) cost(statements *counter, name string, request func() error) {
	h.Helper()
	before := statements.n.Load()
	h.Must(request())
	if n := statements.n.Load() - before; n > maxStatements {
		h.Errorf("%s: %d statements", name, n)
	}
}

// A step is found by its id, also when many tasks are created at the same time.
func TestEachStepIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var all [8][]tasker.ID
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			list, err := h.Engine.CreateTasks(t.Context(), slices.Repeat([]tasker.NewTask{{Namespace: h.Space, Name: "fork"}}, 40))
			if err != nil {
				t.Error(err)
			}
			for _, c := range list {
				all[i] = append(all[i], c.TaskUUID)
			}
		})
	}
	wg.Wait()
	for _, task := range slices.Concat(all[:]...) {
		for _, name := range []string{"a", "d"} {
			step := h.step(task, name).UUID
			of, err := h.DB.FindExplained(t.Context(), step)
			h.Must(err)
			if of == nil || of.Kind != tasker.ExplainedStepOfTask || of.TaskUUID.ID != task {
				t.Fatalf("step %s of task %s is %+v", step, task, of)
			}
		}
	}
}
