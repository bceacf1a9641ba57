package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/bench/internal/figures"
	"tasker.example/tasker/worker"
)

// latencies measures single workflows on an idle system.
func (b *bench) latencies(ctx context.Context) error {
	return b.eachRun(ctx, func(p path) error {
		if p.name == inProcess {
			for _, f := range []figure{rawIdle, rawIdleFused} {
				if err := b.rawAlone(ctx, f); err != nil {
					return err
				}
			}
		}
		for _, s := range []shape{linear, diamond, dag} {
			took, err := b.alone(ctx, p, s)
			if err != nil {
				return err
			}
			b.noteLatency(p, s, took)
		}
		return nil
	})
}

func (b *bench) noteLatency(p path, s shape, took []time.Duration) {
	name := s.name + " alone, " + p.name
	baseline := ""
	if s == linear {
		baseline = rawIdle.name
	}
	b.note(figure{name: name + ", p50", unit: "ms", baseline: baseline}, figures.Quantile(took, 0.5))
	b.note(figure{name: name + ", p95", unit: "ms", baseline: name + ", p50"}, figures.Quantile(took, 0.95))
	b.note(figure{name: name + ", p99", unit: "ms", baseline: name + ", p50"}, figures.Quantile(took, 0.99))
}

// alone measures workflows one after another, from the request that creates one to the accepted
// outcome of its last step.
func (b *bench) alone(ctx context.Context, p path, s shape) (took []time.Duration, err error) {
	warmUp := min(20, b.Single)
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	var last atomic.Pointer[tasker.ID]
	done := make(chan struct{}, 1)
	c := workforce{workers: 1, concurrency: 10,
		handle: func(step *worker.Step[struct{}]) {
			if step.Name == s.last {
				last.Store(&step.StepUUID)
			}
		},
		accepted: func(list []tasker.ID) {
			for _, id := range list {
				if l := last.Load(); l != nil && *l == id {
					done <- struct{}{}
				}
			}
		},
	}
	err = b.working(ctx, p, c, func() error {
		for n := range warmUp + b.Single {
			start := time.Now()
			if err := p.create(ctx, s, 1); err != nil {
				return err
			}
			select {
			case <-done:
			case <-time.After(time.Minute):
				return errors.New("a workflow took longer than a minute")
			}
			if n >= warmUp {
				took = append(took, time.Since(start))
			}
		}
		return nil
	})
	return took, err
}

// profile writes the requested profiles of an in-process drain of linear-4.
func (b *bench) profile(ctx context.Context) (err error) {
	if b.CPUProfile == "" && b.MemProfile == "" {
		return nil
	}
	if err := b.fillQueue(ctx, b.direct(), linear, b.Workflows); err != nil {
		return err
	}
	if b.CPUProfile != "" {
		file, ferr := os.Create(b.CPUProfile)
		if ferr != nil {
			return ferr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
	}
	if b.MemProfile != "" {
		runtime.MemProfileRate = 16 << 10 // was 0, to profile only this drain
	}
	_, err = b.empty(ctx, b.direct(), b.Workflows*linear.steps)
	pprof.StopCPUProfile()
	if err != nil || b.MemProfile == "" {
		return err
	}
	runtime.GC() // the profile contains allocations up to the last collection
	file, err := os.Create(b.MemProfile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

// foundTasks is the number of stored tasks per drained task: a million for 20,000.
const foundTasks = 50

// insertFound stores finished tasks without triggers, whose rows are not needed.
const insertFound = `
WITH template AS (
    INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum, attributes)
    VALUES ('find', 'found', '1.0.0', '{}', '', '', '{customer,risk}') RETURNING template_uuid
), names AS (
    INSERT INTO tasker.attribute_names (namespace, name, type) VALUES ('find', 'customer', 'text'), ('find', 'risk', 'number')
)
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, tags, correlation_id, created_at, updated_at, completed_at)
SELECT tasker.uuid_generate_v7(), m.template_uuid, 'find', 'found', '1.0.0', 'complete', now(), '{}',
    CASE WHEN n % 1000 = 0 THEN ARRAY['all', 'seldom'] ELSE ARRAY['all'] END, 'c-' || n, now(), now(), now()
FROM template m, generate_series(1, $1) n`

const insertFoundBy = `
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value)
SELECT t.task_uuid, t.namespace, w.name, w.text_value, w.number_value
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT 'tag', g.tag, NULL::numeric FROM unnest(t.tags) AS g (tag)
    UNION ALL VALUES
        ('correlation_id', t.correlation_id, NULL), ('customer', 'customer ' || substr(t.correlation_id, 3)::int % 10000, NULL),
        ('risk', NULL, substr(t.correlation_id, 3)::numeric / 1000)
) w (name, text_value, number_value)
WHERE t.namespace = 'find'`

// found measures a page of 50 tasks among a million.
func (b *bench) found(ctx context.Context) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	if err := b.insertFound(ctx); err != nil {
		return err
	}
	var deep tasker.ID
	err := b.db.Pool().QueryRow(ctx, `SELECT task_uuid FROM tasker.tasks WHERE namespace = 'find' ORDER BY task_uuid OFFSET $1 LIMIT 1`, b.Tasks*foundTasks/10).Scan(&deep)
	if err != nil {
		return err
	}
	attribute := func(name, value string) []tasker.AttributeFilter {
		return []tasker.AttributeFilter{{Name: name, Value: value}}
	}
	for _, q := range []struct {
		name   string
		filter tasker.TaskFilter
	}{
		{"a tag that all have", tasker.TaskFilter{Tags: []string{"all"}}},
		{"the same, behind 90 %, by before", tasker.TaskFilter{Tags: []string{"all"}, Before: deep}},
		{"the same, behind 90 %, by offset", tasker.TaskFilter{Tags: []string{"all"}, Offset: b.Tasks * foundTasks / 10 * 9}},
		{"the same and a state that none has", tasker.TaskFilter{Tags: []string{"all"}, State: tasker.TaskError}},
		{"two tags, one of them seldom and second", tasker.TaskFilter{Tags: []string{"all", "seldom"}}},
		{"a correlation id", tasker.TaskFilter{CorrelationID: "c-7"}},
		{"an attribute", tasker.TaskFilter{Attributes: attribute("customer", "customer 7")}},
		{"a range of an attribute", tasker.TaskFilter{Attributes: attribute("risk", ">0.5")}},
		{"all tasks, behind 90 %, by before", tasker.TaskFilter{Before: deep}},
	} {
		q.filter.Limit = 50
		for run := range b.Runs + 1 {
			start := time.Now()
			if _, _, err := b.db.Tasks(ctx, q.filter); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			if took := time.Since(start); run > 0 { // the first run warms the caches
				b.note(figure{name: "a page of " + q.name, unit: "ms"}, float64(took.Microseconds())/1000)
			}
		}
	}
	return b.reset(ctx)
}

func (b *bench) insertFound(ctx context.Context) error {
	conn, err := b.db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const set = `SELECT set_config('session_replication_role', $1, false), set_config('statement_timeout', $2, false)`
	if _, err := conn.Exec(ctx, set, "replica", "0"); err != nil {
		return err
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), set, "origin", "60000") }()
	if _, err := conn.Exec(ctx, insertFound, b.Tasks*foundTasks); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, insertFoundBy); err != nil {
		return err
	}
	for _, table := range []string{"tasks", "task_attributes"} {
		if _, err := conn.Exec(ctx, `VACUUM (ANALYZE) tasker.`+table); err != nil {
			return err
		}
	}
	return nil
}
