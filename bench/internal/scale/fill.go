package scale

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// chunk is the number of tasks per statement.
const chunk = 100_000

// The statements write the same rows as the engine, including the history. Autovacuum is off,
// because the bench runs VACUUM itself.
const prepareDatabase = `
SET synchronous_commit = off;
SET jit = off;
ALTER TABLE tasker.tasks SET (autovacuum_enabled = off);
ALTER TABLE tasker.workflow_steps SET (autovacuum_enabled = off);
ALTER TABLE tasker.task_history SET (autovacuum_enabled = off);
ALTER TABLE tasker.step_history SET (autovacuum_enabled = off);
ALTER TABLE tasker.tasks_dlq SET (autovacuum_enabled = off, toast.autovacuum_enabled = off);
ALTER TABLE tasker.tasks_dlq_history SET (autovacuum_enabled = off);
ALTER TABLE tasker.outbox SET (autovacuum_enabled = off);

INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum, max_steps_in_process_minutes)
SELECT 'scale', name, '1.0.0', '{"steps": [{"name": "a", "handler": {"callable": "work"}}]}', '', '', minutes
FROM (VALUES ('half', 30), ('hour', 60), ('between', 45)) AS t (name, minutes);

CREATE TEMP TABLE fresh (
    task_uuid uuid NOT NULL, step_uuid uuid NOT NULL, template_uuid uuid NOT NULL, name text NOT NULL,
    threshold interval NOT NULL, since timestamptz NOT NULL
);
CREATE TEMP TABLE overdue (task_uuid uuid NOT NULL, nth bigint NOT NULL);`

// newTasks chooses the ids and the templates of $1 recent tasks.
const newTasks = `
INSERT INTO fresh
SELECT tasker.uuid_generate_v7(), tasker.uuid_generate_v7(), tt.template_uuid, tt.name,
    make_interval(mins => tt.max_steps_in_process_minutes), now() - random() * interval '5 minutes'
FROM (SELECT n, (ARRAY['half', 'hour', 'between'])[n % 3 + 1] AS name FROM generate_series(1, $1::integer) n) g
JOIN tasker.task_templates tt ON tt.namespace = 'scale' AND tt.name = g.name
ORDER BY g.n`

// storeLive stores the tasks with one enqueued step.
var storeLive = []string{
	`INSERT INTO tasker.tasks (
		task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at
	)
	SELECT task_uuid, template_uuid, 'scale', name, '1.0.0', 'steps_in_process', since, since + 0.8 * threshold, since + threshold,
		'{"order": 4711}', task_uuid, since, since
	FROM fresh`,
	storeSteps("'enqueued'"),
	`INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
	SELECT 'scale', 'work', 0, since, step_uuid, task_uuid, since + interval '7 days' FROM fresh
	ON CONFLICT DO NOTHING`, // a trigger may already have inserted the row
	storePath("pending", "steps_in_process"),
	storeMove("pending", "enqueued", "enqueue"),
}

// storeFinished stores the tasks and their step as complete.
var storeFinished = []string{
	`INSERT INTO tasker.tasks (
		task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at, completed_at
	)
	SELECT task_uuid, template_uuid, 'scale', name, '1.0.0', 'complete', since, '{"order": 4711}', task_uuid, since, since, since
	FROM fresh`,
	storeSteps("'complete'"),
	storePath("pending", "steps_in_process"),
	storePath("steps_in_process", "complete"),
	storeMove("pending", "enqueued", "enqueue"),
	storeMove("enqueued", "in_progress", "claim"),
	storeMove("in_progress", "complete", "succeed"),
}

// storeFailed stores the tasks with a permanently failed step and an investigation.
var storeFailed = []string{
	`INSERT INTO tasker.tasks (
		task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at
	)
	SELECT task_uuid, template_uuid, 'scale', name, '1.0.0', 'error', since, '{"order": 4711}', task_uuid, since, since
	FROM fresh`,
	storeSteps("'error'"),
	storePath("pending", "steps_in_process"),
	storePath("steps_in_process", "error"),
	storeMove("pending", "enqueued", "enqueue"),
	storeMove("enqueued", "in_progress", "claim"),
	storeMove("in_progress", "error", "fail"),
	`ANALYZE`,
	`SET enable_seqscan = off`, // the functions read tables that are still empty
	`SELECT count(tasker.create_dlq_entry(
		task_uuid, CASE WHEN name = 'hour' THEN 'manual_dlq' ELSE 'max_retries_exceeded' END::tasker.dlq_reason,
		CASE WHEN name = 'hour' THEN 'operator_request' ELSE 'retries_exhausted' END, 'engine', 'error', since, step_uuid))
	FROM fresh`,
	`RESET enable_seqscan`,
}

func storeSteps(state string) string {
	return `INSERT INTO tasker.workflow_steps (
		task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids, parents_open,
		attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, created_at, updated_at
	)
	SELECT task_uuid, step_uuid, 'a', 'standard', 'scale', 'work', 0, ` + state + `, since, '{}', '{}', 0,
		1, 3, true, 'exponential', 1000, 60000, true, CASE WHEN ` + state + ` = 'enqueued' THEN since + interval '7 days' END, since, since
	FROM fresh`
}

func storePath(from, to string) string {
	return fmt.Sprintf(`INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at)
	SELECT f.task_uuid, p.from_state, p.to_state, p.event, f.since
	FROM fresh f
	JOIN tasker.task_settle_paths p ON p.rest_from = '%s' AND p.rest_to = '%s'
	ORDER BY f.task_uuid, p.ordinal`, from, to)
}

func storeMove(from, to, event string) string {
	return fmt.Sprintf(`INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
	SELECT task_uuid, step_uuid, '%s', '%s', '%s', 1, since FROM fresh`, from, to, event)
}

// storeLarge stores a complete task of $1 sequential steps, which is not counted as live.
const storeLarge = `
WITH task AS (
	INSERT INTO tasker.tasks (
		task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at, completed_at
	)
	SELECT tasker.uuid_generate_v7(), template_uuid, namespace, name, version, 'complete', now(), '{}', 'large', now(), now(), now()
	FROM tasker.task_templates
	WHERE namespace = 'scale' AND name = 'hour'
	RETURNING task_uuid
),
ids AS MATERIALIZED (SELECT n, tasker.uuid_generate_v7() AS id FROM generate_series(1, $1::integer) n),
steps AS (
	INSERT INTO tasker.workflow_steps (
		task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids, parents_open,
		attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, completed_at, results
	)
	SELECT t.task_uuid, i.id, 'step ' || i.n, 'standard', 'scale', 'work', 0, 'complete', now(),
		array_remove(ARRAY[lag(i.id) OVER by_n], NULL), array_remove(ARRAY[lead(i.id) OVER by_n], NULL), 0,
		1, 3, true, 'exponential', 1000, 60000, true, now(), now(), now(), '{"result": {"amount": 4711}}'
	FROM ids i
	CROSS JOIN task t
	WINDOW by_n AS (ORDER BY i.n)
)
SELECT task_uuid FROM task`

// prepare creates the open investigations. Their tasks are not counted as live.
func (s *scale) prepare(ctx context.Context) error {
	if _, err := s.filler.Exec(ctx, prepareDatabase, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if err := s.filler.QueryRow(ctx, storeLarge, manySteps).Scan(&s.large); err != nil {
		return err
	}
	return s.store(ctx, s.Pending, storeFailed)
}

// grow adds live tasks, far from their thresholds, until there are n.
func (s *scale) grow(ctx context.Context, n int) error {
	if err := s.heal(ctx); err != nil {
		return err
	}
	for s.tasks < n {
		some := min(chunk, n-s.tasks)
		if err := s.store(ctx, some, storeLive); err != nil {
			return err
		}
		s.tasks += some
	}
	return s.exec(ctx, `VACUUM (FREEZE, ANALYZE, INDEX_CLEANUP ON)`, `CHECKPOINT`)
}

func (s *scale) store(ctx context.Context, n int, statements []string) error {
	if _, err := s.filler.Exec(ctx, newTasks, n); err != nil {
		return err
	}
	if err := s.exec(ctx, `ANALYZE fresh`); err != nil {
		return err
	}
	return s.exec(ctx, append(slices.Clip(statements), `TRUNCATE fresh`)...)
}

// due moves some live tasks past their thresholds. They are distributed evenly over the table, so
// that they do not share pages of a large one.
func (s *scale) due(ctx context.Context) error {
	if _, err := s.filler.Exec(ctx, `
		INSERT INTO overdue
		SELECT task_uuid, row_number() OVER ()
		FROM (SELECT task_uuid, row_number() OVER (ORDER BY task_uuid) AS nth FROM tasker.tasks WHERE stale_at IS NOT NULL) t
		WHERE nth % ($1::bigint / $2::bigint) = 0
		LIMIT $2`, s.tasks, s.Due); err != nil {
		return err
	}
	if err := s.exec(ctx, move("stale_at - state_since + interval '1 minute' + o.nth * interval '1 second'")); err != nil {
		return err
	}
	return s.vacuum(ctx)
}

// heal makes the due tasks recent again.
func (s *scale) heal(ctx context.Context) error {
	return s.exec(ctx, move("random() * interval '5 minutes'"), `TRUNCATE overdue`)
}

// move sets the age of the due tasks' state.
func move(age string) string {
	return `UPDATE tasker.tasks t
	SET state_since = m.since, created_at = least(t.created_at, m.since),
		warn_at = m.since + 0.8 * m.threshold, stale_at = m.since + m.threshold
	FROM (
		SELECT task_uuid, stale_at - state_since AS threshold, now() - (` + age + `) AS since
		FROM overdue o
		JOIN tasker.tasks USING (task_uuid)
	) m
	WHERE t.task_uuid = m.task_uuid`
}

// end adds ended investigations without history, which no figure reads, of the tasks with an open
// one.
func (s *scale) end(ctx context.Context) error {
	// In small batches, because each row updates the same totals.
	const some = 1_000
	for from := 1; from <= s.Ended; from += some {
		if _, err := s.filler.Exec(ctx, `
			INSERT INTO tasker.tasks_dlq (
				task_uuid, original_state, dlq_reason, detail_code, detected_by, dlq_timestamp, priority_at, task_snapshot,
				resolution_status, resolution_notes, resolved_at, resolved_by, namespace, task_name, case_key
			)
			SELECT d.task_uuid, 'error', d.dlq_reason, d.detail_code, 'engine', e.at, e.at, '{}',
				'manually_resolved', 'fixed', e.at + interval '1 hour', 'bench', d.namespace, d.task_name, d.case_key
			FROM (
				SELECT n, now() - make_interval(mins => n) - interval '1 day' AS at FROM generate_series($1::integer, $2::integer) n
			) e
			JOIN (
				SELECT row_number() OVER () AS nth, task_uuid, dlq_reason, detail_code, namespace, task_name, case_key
				FROM tasker.tasks_dlq
				WHERE resolution_status = 'pending'
			) d ON d.nth = (e.n - 1) % $3::integer + 1`, from, min(from+some-1, s.Ended), s.Pending); err != nil {
			return err
		}
		if err := s.exec(ctx, `VACUUM tasker.dlq_totals`); err != nil { // as after separate transactions
			return err
		}
	}
	return s.exec(ctx, `VACUUM (FREEZE, ANALYZE) tasker.tasks_dlq`)
}

// finish adds finished tasks and ended investigations, History times as many as there are live
// tasks and open investigations. The due tasks become due again.
func (s *scale) finish(ctx context.Context) error {
	if err := s.heal(ctx); err != nil {
		return err
	}
	n := s.History * (s.tasks + s.Pending)
	for s.done < n {
		some := min(chunk, n-s.done)
		if err := s.store(ctx, some, storeFinished); err != nil {
			return err
		}
		s.done += some
	}
	s.Ended = s.History * s.Pending
	if err := s.end(ctx); err != nil {
		return err
	}
	// The history and the events.
	if err := s.exec(ctx, `
		INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, changed_at)
		SELECT d.dlq_entry_uuid, h.event, 'bench', h.was::tasker.dlq_resolution_status, h.status::tasker.dlq_resolution_status, d.dlq_timestamp
		FROM tasker.tasks_dlq d
		CROSS JOIN (VALUES ('created', NULL, 'pending'), ('resolved', 'pending', 'manually_resolved')) AS h (event, was, status)
		WHERE d.resolution_status <> 'pending' AND NOT EXISTS (SELECT FROM tasker.tasks_dlq_history o WHERE o.dlq_entry_uuid = d.dlq_entry_uuid)`); err != nil {
		return err
	}
	return s.exec(ctx, `VACUUM (FREEZE, ANALYZE, INDEX_CLEANUP ON)`, `CHECKPOINT`)
}

// vacuum removes the rows of a rolled back sweep.
func (s *scale) vacuum(ctx context.Context) error {
	return s.exec(ctx, `VACUUM (INDEX_CLEANUP ON) tasker.tasks, tasker.task_history, tasker.tasks_dlq, tasker.tasks_dlq_history, tasker.outbox`)
}

func (s *scale) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := s.filler.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%w\n%s", err, sql)
		}
	}
	return nil
}
