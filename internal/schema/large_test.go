package schema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/pgtest"
)

// big writes a task of many steps and returns its id.
func (p *findPosition) big(b pgtest.BigTask) string {
	p.Helper()
	id, err := pgtest.InsertBigTask(p.Context(), p.conn, b)
	p.Must(err)
	return id.String()
}

func TestTheBoundOfASnapshotIsTheOneOfTheProgram(t *testing.T) {
	t.Parallel()
	if got := migrated(t).text(`SELECT tasker.max_snapshot_bytes()::text`); got != fmt.Sprint(tasker.MaxSnapshotBytes) {
		t.Errorf("the database says %s, the program %d", got, tasker.MaxSnapshotBytes)
	}
}

// Whatever a task has: its snapshot is bounded and has every step, and what says why
// the task is stuck is kept before anything else.
func TestASnapshotIsBounded(t *testing.T) {
	t.Parallel()
	const mebibyte = `to_jsonb(repeat(md5(i::text), 32767))`
	const numbers = `(SELECT jsonb_agg(1e308) FROM generate_series(1, 174000))`
	const evidence = `to_jsonb(repeat(md5(i::text || '-' || attempt), 2000))`
	for name, tt := range map[string]struct {
		task  pgtest.BigTask
		whole string // errors of failed steps that are kept whole
	}{
		"results of a mebibyte":                         {pgtest.BigTask{Steps: 40, Complete: 39, Failed: 1, Result: mebibyte}, "1"},
		"results that are fifty times larger when read": {pgtest.BigTask{Steps: 20, Complete: 19, Failed: 1, Result: numbers}, "1"},
		"a context that is fifty times larger when read": {
			pgtest.BigTask{Steps: 10, Failed: 10, Context: `jsonb_build_object('a', (SELECT jsonb_agg(1e308) FROM generate_series(1, 174000)))`}, "10",
		},
		"evidence of each attempt":    {pgtest.BigTask{Steps: 300, Failed: 300, Failures: 3, FailureContext: evidence}, ""},
		"a hundred attempts of each":  {pgtest.BigTask{Steps: 300, Failed: 300, Failures: 100, Chain: true}, "300"},
		"small results, very many":    {pgtest.BigTask{Steps: 1000, Complete: 999, Failed: 1, Result: `to_jsonb(repeat(md5(i::text), 500))`}, "1"},
		"everything is large at once": {pgtest.BigTask{Steps: 100, Complete: 50, Failed: 50, Failures: 10, Result: mebibyte, FailureContext: evidence, Context: `jsonb_build_object('a', repeat('context', 100000))`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			id := p.big(tt.task)
			p.exec(`CREATE TABLE snapshot AS SELECT s.snapshot AS s, s.snapshot -> 'steps' AS steps
				FROM tasker.task_snapshots(ARRAY['` + id + `'::uuid], ARRAY['error'], ARRAY[now()], 'sweep', now()) s`)
			if got := p.text(`SELECT (octet_length(s::text) <= tasker.max_snapshot_bytes())::text FROM snapshot`); got != "true" {
				t.Errorf("the snapshot has %s bytes", p.text(`SELECT octet_length(s::text)::text FROM snapshot`))
			}
			if got, want := p.text(`SELECT jsonb_array_length(steps)::text FROM snapshot`), fmt.Sprint(tt.task.Steps); got != want {
				t.Errorf("the snapshot has %s steps, want %s", got, want)
			}
			if got := p.text(`
				SELECT count(*)::text FROM snapshot, jsonb_array_elements(steps) AS e (step)
				WHERE step ->> 'state' = 'error' AND NOT step -> 'error' ->> 'message' LIKE 'attempt % of step % failed%'`); got != "0" {
				t.Errorf("%s failed steps do not say why", got)
			}
			if got := p.text(`SELECT count(*)::text FROM snapshot, jsonb_array_elements(steps) AS e (step)
				WHERE step ->> 'state' = 'error' AND step -> 'error' ? 'context'`); tt.whole != "" && got != tt.whole {
				t.Errorf("%s errors are whole, want %s", got, tt.whole)
			}
			if got := p.text(`
				SELECT count(*)::text FROM snapshot, jsonb_array_elements(steps) AS e (step)
				JOIN tasker.workflow_steps w ON w.step_uuid = (step ->> 'step_uuid')::uuid
				WHERE coalesce((step ->> 'failures_omitted')::bigint, 0) + jsonb_array_length(nullif(step -> 'failures', 'null')) <> w.attempts`); got != "0" {
				t.Errorf("of %s steps the failures do not add up", got)
			}
			if got := p.text(`
				SELECT coalesce(max(format('%s: %s', step ->> 'name', left(step ->> 'results', 300))), '') FROM snapshot, jsonb_array_elements(steps) AS e (step)
				JOIN tasker.workflow_steps w ON w.step_uuid = (step ->> 'step_uuid')::uuid
				WHERE step -> 'results' <> w.results AND (
					(step -> 'results' ->> 'bytes')::bigint IS DISTINCT FROM octet_length(w.results::text)
					OR step -> 'results' ->> 'sha256' IS DISTINCT FROM encode(sha256(convert_to(w.results::text, 'UTF8')), 'hex')
					OR step -> 'results' ->> 'read_at' <> format('/v1/tasks/%s/workflow_steps/%s', w.task_uuid, w.step_uuid))
				  AND step -> 'results' -> 'bytes' <> 'null'`); got != "" {
				t.Errorf("what replaces a result does not describe it: %s", got)
			}
		})
	}
}

// Documents that are much larger when they are read are not all read to learn that.
func TestWhatIsSpelledOutForASnapshotIsBounded(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	id := p.big(pgtest.BigTask{Steps: 20, Complete: 19, Failed: 1, Result: `(SELECT jsonb_agg(1e308) FROM generate_series(1, 10000))`})
	cuts := func(spell int) string {
		return p.text(fmt.Sprintf(`
			SELECT format('%%s cut, %%s with a size and a digest', count(*), count(*) FILTER (WHERE c.value ->> 'bytes' IS NOT NULL AND c.value ->> 'sha256' IS NOT NULL))
			FROM jsonb_each(tasker.task_snapshot_cuts('%s', NULL, 1000000, %d)) c`, id, spell))
	}
	// Each of them has 3.1 MB as text.
	if got := cuts(1 << 30); got != "19 cut, 19 with a size and a digest" {
		t.Error(got)
	}
	if got := cuts(10_000_000); got != "19 cut, 4 with a size and a digest" {
		t.Error(got)
	}
	if got := cuts(0); !strings.HasSuffix(got, ", 0 with a size and a digest") {
		t.Error(got)
	}
}

// The cost of a snapshot was quadratic in the steps of the task.
func TestTheCostOfASnapshotIsLinear(t *testing.T) {
	p := migrated(t)
	fill := func(tasks, steps int) {
		p.exec(fmt.Sprintf(`CREATE TEMP TABLE of_%d (task_uuid uuid)`, steps))
		for range tasks {
			p.exec(fmt.Sprintf(`INSERT INTO of_%d VALUES ('%s')`, steps, p.big(pgtest.BigTask{Steps: steps, Failed: steps, Failures: 3})))
		}
	}
	fill(100, 10)
	fill(1, 1000)
	p.exec(`ANALYZE`)
	least := map[int]time.Duration{10: time.Hour, 1000: time.Hour}
	// Another process on the machine slows some rounds. Quadratic cost never meets the limit.
	for round := 0; round < 8 || round < 60 && least[1000] > least[10]*3/2; round++ {
		for steps := range least {
			began := time.Now()
			p.exec(fmt.Sprintf(`SELECT s.task_uuid FROM of_%d t, tasker.task_snapshots(ARRAY[t.task_uuid], ARRAY['error'], ARRAY[now()], 'sweep', now()) s`, steps))
			least[steps] = min(least[steps], time.Since(began))
		}
	}
	t.Logf("100 tasks of 10 steps with 3 failures each: %s; 1 task of 1,000: %s", least[10], least[1000])
	if least[1000] > least[10]*3/2 {
		t.Errorf("a task of 1,000 steps takes %s, 100 tasks of 10 steps %s: more than 1.5 times as long", least[1000], least[10])
	}
}
