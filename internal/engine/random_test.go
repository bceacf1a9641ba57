package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/explain"
)

// randomSteps makes a graph of up to 12 steps in which each depends on some of those before it.
func randomSteps(r *rand.Rand) []tasker.StepTemplate {
	list := make([]tasker.StepTemplate, 1+r.IntN(12))
	for i := range list {
		var before []string
		for j := range i {
			if r.IntN(4) == 0 {
				before = append(before, list[j].Name)
			}
		}
		list[i] = attempts(1+r.IntN(3), enginetest.Step(fmt.Sprintf("s%d", i), before...))
		list[i].Retry.BaseMS = 0
	}
	return list
}

// chaos is several engines and workers that do whatever workers do: succeed,
// fail, fall silent, give back, report twice, report late.
type chaos struct {
	*harness
	engines []*engine.Engine
	seed    uint64
	atOnce  int                                // steps of one claim, at most
	result  func(r *rand.Rand) json.RawMessage // of a step that succeeds
}

func (c *chaos) work(ctx context.Context, n int) {
	r := rand.New(rand.NewPCG(c.seed, uint64(n)))
	e := c.engines[n%len(c.engines)]
	reg, err := e.RegisterWorker(ctx, tasker.WorkerSpec{Name: fmt.Sprint("w", n), Namespaces: []string{enginetest.Namespace}, Handlers: []string{"run"}})
	if err != nil {
		c.Error(err)
		return
	}
	var late []tasker.Outcome
	for ctx.Err() == nil {
		list, err := e.Claim(ctx, reg.WorkerUUID, 1+r.IntN(c.atOnce), 50*time.Millisecond)
		if err != nil && ctx.Err() == nil {
			c.Error(err)
			return
		}
		var outcomes []tasker.Outcome
		for _, a := range list {
			switch r.IntN(12) {
			case 0, 1:
				outcomes = append(outcomes, failure(a, true))
			case 2: // falls silent
			case 3:
				late = append(late, success(a, `"late"`))
			case 4:
				_, _, err = e.Release(ctx, reg.WorkerUUID, []tasker.Lease{a.Lease()})
			default:
				o := success(a, string(c.result(r)))
				outcomes = append(outcomes, o)
				if r.IntN(4) == 0 {
					outcomes = append(outcomes, o)
				}
			}
		}
		if r.IntN(5) == 0 {
			outcomes, late = append(outcomes, late...), nil
		}
		if err == nil && len(outcomes) > 0 {
			_, err = e.Report(ctx, reg.WorkerUUID, outcomes, 0)
		}
		if err != nil && ctx.Err() == nil {
			c.Error(err)
			return
		}
	}
}

// The invariants are checked at the end.
func TestEveryTaskEndsOrIsInvestigated(t *testing.T) {
	h := newHarness(t)
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{
		harness: h, seed: seed, atOnce: 10, result: func(*rand.Rand) json.RawMessage { return json.RawMessage(`"done"`) },
		engines: []*engine.Engine{h.Engine, newEngine(h.DB, engine.Options{})},
	}
	const templates, tasks = 12, 40
	for i := range templates {
		h.Template(fmt.Sprint("random", i), randomSteps(r)...)
	}
	for i := range tasks {
		h.Create(fmt.Sprint("random", i%templates))
	}
	c.run()
}

// run lets workers work and time pass until every task has ended or become an investigation.
func (c *chaos) run() {
	h, t := c.harness, c.T
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() { c.work(ctx, n+1) })
	}
	// Time passes: leases run out and rests are over, from two engines at once.
	for round := 0; h.open() > 0; round++ {
		c.exec(`
			WITH free AS (
				SELECT task_uuid, step_uuid
				FROM tasker.workflow_steps
				WHERE lease_expires_at IS NOT NULL AND random() < 0.2
				FOR NO KEY UPDATE SKIP LOCKED
			)
			UPDATE tasker.workflow_steps s
			SET lease_expires_at = clock_timestamp()
			FROM free f
			WHERE s.task_uuid = f.task_uuid AND s.step_uuid = f.step_uuid`)
		c.exec(`
			WITH waiting AS (
				SELECT task_uuid, step_uuid
				FROM tasker.workflow_steps
				WHERE expires_at IS NOT NULL AND random() < 0.1
				FOR NO KEY UPDATE SKIP LOCKED
			)
			UPDATE tasker.workflow_steps s
			SET expires_at = clock_timestamp()
			FROM waiting f
			WHERE s.task_uuid = f.task_uuid AND s.step_uuid = f.step_uuid`)
		var ticks sync.WaitGroup
		for _, e := range c.engines {
			ticks.Go(func() {
				for _, pass := range []func(context.Context) error{
					func(ctx context.Context) error { _, err := e.ExpireSteps(ctx); return err },
					func(ctx context.Context) error { _, err := e.Redispatch(ctx); return err },
					func(ctx context.Context) error { _, err := e.Tick(ctx); return err },
				} {
					if err := pass(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		ticks.Wait()
		c.explained(round)
		if round > 20_000 || t.Failed() {
			t.Errorf("%d tasks are still open after %d rounds", h.open(), round)
			break
		}
	}
	stop()
	wg.Wait()
}

// exec runs a statement, unless it would deadlock with a claim.
func (c *chaos) exec(sql string) {
	if _, err := c.Admin().Exec(c.Context(), sql); err != nil && !strings.Contains(err.Error(), "40P01") {
		c.Error(err)
	}
}

// explained checks that some fact explains each task that has not ended, whatever happens
// meanwhile; of the first rounds and of some later ones, because it takes a while.
func (c *chaos) explained(round int) {
	h := c.harness
	if round > 5 && round%20 != 0 {
		return
	}
	service := explain.New(h.DB, explain.Options{})
	list, _, err := h.DB.Tasks(h.Context(), tasker.TaskFilter{Limit: 1000})
	h.Must(err)
	for _, t := range list {
		if e, err := service.Explain(h.Context(), t.UUID); err != nil || e.Reason == tasker.ConditionUnknown || e.Message == "" {
			h.Errorf("task %s is explained by %+v, %v", t.UUID, e, err)
		}
	}
}

// open counts the tasks that have neither ended nor become an investigation.
func (h *harness) open() int {
	h.Helper()
	var n int
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT count(*) FROM tasker.tasks t WHERE t.state NOT IN ('complete', 'error') OR EXISTS (
		SELECT FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid AND s.awaits_worker_since IS NOT NULL)`).Scan(&n))
	return n
}
