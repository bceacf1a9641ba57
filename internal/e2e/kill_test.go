package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

// Two servers, four workers, 200 workflows; in the middle of them one server and
// two workers are killed. All workflows end, by themselves.
func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t) // no step completed twice, no task without a way forward, …
	pool := database.Pool(t)
	quick := []string{"TASKER_WORKERS_LEASE_SECONDS=3", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1"}
	doomed := serve(t, database.URL, quick...)
	survivor := serve(t, database.URL, quick...)
	urls := []string{doomed.url(), survivor.url()}
	var workers []*process
	for i := range 4 {
		workers = append(workers, startWorker(t, urls[i%2], ""))
	}
	c := newClient(t, urls[1])
	workflows := 0
	create := func(batches int) {
		for range batches {
			_, err := c.CreateTasks(t.Context(), slices.Repeat([]apiv1.CreateTask{{Namespace: "order_processing", Name: "diamond"}}, 50))
			must(t, err)
			workflows += 50
		}
	}
	create(4)
	await(t, "the middle of the work", func() bool {
		done := count(t, pool, "state = 'complete'")
		if done > workflows/2 { // so much before this process looked
			create(4)
		}
		return done > 40 && done < workflows/2
	})
	doomed.kill()
	workers[0].kill() // of the killed server
	workers[1].kill() // of the other one
	if n := count(t, pool, "state <> 'complete'"); n == 0 {
		t.Fatal("all work was done before anything was killed")
	}
	await(t, "all workflows to end", func() bool { return count(t, pool, "state = 'complete'") == workflows })
	if n := count(t, pool, "state <> 'complete'"); n != 0 {
		t.Errorf("%d workflows did not complete", n)
	}
}

// A worker is killed in the middle of a step; another one goes on from what the first had saved.
func TestCheckpointOfAKilledWorkerIsUsed(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	server, pool := serve(t, database.URL), database.Pool(t)
	first := startWorker(t, server.url(), "")
	c := newClient(t, server.url())
	_, err := c.RegisterTemplate(t.Context(), []byte("namespace: order_processing\nname: import\nversion: 1.0.0\nsteps:\n  - name: rows\n    handler: {callable: import}\n    retry: {backoff_base_ms: 20}\n"), client.YAML)
	must(t, err)
	task, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "order_processing", Name: "import"})
	must(t, err)
	id := readID(t, task.UUID.String())
	await(t, "the checkpoint", func() bool {
		step, err := c.StepNamed(t.Context(), id, "rows")
		must(t, err)
		return step.Checkpoint != nil && string(step.Checkpoint.Value) == "30"
	})
	first.kill()
	_, err = pool.Exec(t.Context(), `UPDATE tasker.workflow_steps SET lease_expires_at = now() WHERE lease_expires_at IS NOT NULL`)
	must(t, err)
	startWorker(t, server.url(), "")
	await(t, "the task to end", func() bool { return count(t, pool, "state = 'complete'") == 1 })
	step, err := c.StepNamed(t.Context(), id, "rows")
	must(t, err)
	var result tasker.StepResult
	must(t, json.Unmarshal(step.Results, &result))
	if step.Attempts != 2 || string(result.Result) != "[30,100]" {
		t.Errorf("attempt %d went from and to %s, want [30,100]", step.Attempts, result.Result)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, where string) int {
	t.Helper()
	var n int
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM tasker.tasks WHERE "+where).Scan(&n))
	return n
}
