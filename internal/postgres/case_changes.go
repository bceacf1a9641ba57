package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Task ids increase with time: the tasks around the first failure are adjacent in the index.
const (
	successesBefore = tasksAround + `t.task_uuid < $5` + tasksNear
	successesSince  = tasksAround + `t.task_uuid >= $5` + tasksNear
)

const tasksAround = `
SELECT t.task_uuid, s.completed_at AS at, coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, t.version AS task_version
FROM (
    SELECT t.*
    FROM tasker.task_templates m
    CROSS JOIN LATERAL (
        SELECT t.task_uuid, t.version
        FROM tasker.tasks t
        WHERE t.template_uuid = m.template_uuid AND `

const tasksNear = `
        ORDER BY t.task_uuid DESC
        LIMIT $4
    ) t
    WHERE m.namespace = $1 AND m.name = $2
    ORDER BY t.task_uuid DESC
    LIMIT $4
) t
LEFT JOIN LATERAL ( -- of a map step: its first complete item
    SELECT coalesce(i.completed_at, p.completed_at) AS completed_at, coalesce(i.worker_uuid, p.worker_uuid) AS worker_uuid
    FROM tasker.workflow_steps p
    LEFT JOIN LATERAL (
        SELECT i.completed_at, i.worker_uuid FROM tasker.workflow_steps i
        WHERE i.task_uuid = p.task_uuid AND i.map_step_uuid = p.step_uuid AND i.state = 'complete'
        ORDER BY i.item_ordinal
        LIMIT 1
    ) i ON true
    WHERE p.task_uuid = t.task_uuid AND p.name = $3 AND (p.state = 'complete' OR i.completed_at IS NOT NULL)
) s ON true
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid
ORDER BY s.completed_at DESC NULLS LAST, t.task_uuid DESC`

// caseTask is a task of the template of a case.
type caseTask struct {
	TaskUUID      tasker.ID
	At            *time.Time // when the step succeeded; nil if it has not
	WorkerName    string
	WorkerVersion string
	TaskVersion   string
}

const selectBegan = `
SELECT c.case_id AS id, c.namespace, c.task_name, c.step_name, 0::bigint AS entries
FROM tasker.cases h
JOIN tasker.cases c ON c.state <> 'resolved' AND c.case_id <> h.case_id
    AND c.first_seen_at BETWEEN h.first_seen_at - interval '2 minutes' AND h.first_seen_at + interval '2 minutes'
WHERE h.case_id = $1 AND ($3 OR c.namespace = ANY ($4))
ORDER BY c.first_seen_at, c.case_id
LIMIT $2`

const selectImpact = `
WITH members AS MATERIALIZED (
    SELECT d.task_uuid
    FROM ` + newestMembers + `
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
),
due AS (
    SELECT t.task_uuid, t.ends_at
    FROM members l
    JOIN tasker.tasks t ON t.task_uuid = l.task_uuid
    WHERE t.ends_at IS NOT NULL AND t.state NOT IN ('complete', 'cancelled')
    ORDER BY t.ends_at
    LIMIT 1
)
SELECT (SELECT count(*) FROM members) AS tasks,
    (SELECT count(*) FROM members l JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid WHERE s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled', 'error')) AS steps,
    (SELECT ends_at FROM due) AS deadline, (SELECT task_uuid FROM due) AS due_task`

// Selects context values of tasks whose step failed ($1) or succeeded ($2), without protected
// values and keys with too many values.
const selectContextValues = `
WITH parts AS MATERIALIZED (
    SELECT p.ordinal, p.value, p.part, count(*) FILTER (WHERE u.failed) AS failures, count(*) FILTER (WHERE NOT u.failed) AS successes
    FROM (
        SELECT f.task_uuid, true AS failed FROM unnest($1::uuid[]) AS f (task_uuid)
        UNION ALL
        SELECT s.task_uuid, false FROM unnest($2::uuid[]) AS s (task_uuid)
    ) u
    JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
    CROSS JOIN LATERAL tasker.context_parts(t.context, $3::text::jsonb, $4) p
    WHERE pg_column_size(t.context) <= $5
    GROUP BY p.ordinal, p.value, p.part
),
few AS MATERIALIZED (
    SELECT p.ordinal FROM parts p GROUP BY p.ordinal HAVING count(DISTINCT p.value) <= $6
)
SELECT p.ordinal, p.value, sum(p.failures)::integer AS failures, sum(p.successes)::integer AS successes
FROM parts p
JOIN few USING (ordinal)
CROSS JOIN LATERAL (SELECT jsonb_build_object('task', jsonb_build_object('context', p.part)) AS doc OFFSET 0) s
WHERE tasker.redact_snapshot(s.doc) = s.doc
GROUP BY p.ordinal, p.value
HAVING sum(p.failures) >= $7
ORDER BY p.ordinal, p.value`

// Bounds of context values.
const (
	maxContextValue  = 200      // characters of a value
	maxContextStored = 64 << 10 // stored bytes of a context that is read
	maxContextValues = 50       // values per key
	minContextValue  = 5        // failures with the value
)

// ContextValue is a value of a context key that the template declares for triage.
type ContextValue struct {
	Key                 string `db:"-"`
	Value               string
	Failures, Successes int // tasks with the value
}

// CaseComparison compares the failures of a case with successes of the same step.
type CaseComparison struct {
	tasker.CaseComparison
	Failed    []tasker.CaseSample // newest first
	Succeeded []tasker.CaseSuccess
	Values    []ContextValue // empty unless the caller may read payloads
}

// CompareCase compares the failures of a case with successes of the same step, or returns NotFound.
func (db *DB) CompareCase(ctx context.Context, id tasker.ID) (c CaseComparison, err error) {
	if c.Case, err = db.Case(ctx, id); err != nil {
		return c, err
	}
	fail := func(err error) (CaseComparison, error) {
		return CaseComparison{}, fmt.Errorf("compare case %s with successes: %w", id, err)
	}
	scope := access.ScopeOf(ctx)
	if c.CoincidentCases, err = collect[tasker.RelatedCase](ctx, db.pool, selectBegan, id, tasker.MaxCaseSamples, scope.All(), scope.List()); err != nil {
		return fail(err)
	}
	impact, err := one[tasker.CaseImpact](ctx, db.pool, selectImpact, id, tasker.MaxCaseImpact)
	if err != nil {
		return fail(err)
	}
	c.Impact = *impact
	if c.FirstFailure = c.Case.Oldest; c.FirstFailure == nil || c.Case.EntryUUID == nil {
		return c, nil // resolved
	}
	if c.Failed, err = collect[tasker.CaseSample](ctx, db.pool, selectCaseSamples, id, tasker.MaxCaseCompared); err != nil {
		return fail(err)
	}
	if c.Case.StepName == "" {
		return c, nil // no step failed
	}
	first, err := value[tasker.ID](ctx, db.pool, `SELECT task_uuid FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1`, *c.Case.EntryUUID)
	if err != nil {
		return fail(err)
	}
	args := []any{c.Case.Namespace, c.Case.TaskName, c.Case.StepName, tasker.MaxCaseTasks, first}
	before, err := collect[caseTask](ctx, db.pool, successesBefore, args...)
	if err != nil {
		return fail(err)
	}
	since, err := collect[caseTask](ctx, db.pool, successesSince, args...)
	if err != nil {
		return fail(err)
	}
	c.add(before, since, *c.FirstFailure)
	if c.Values, err = db.contextValues(ctx, &c); err != nil {
		return fail(err)
	}
	return c, nil
}

// contextValues reads the values of the triage keys of the template if the caller may read payloads.
func (db *DB) contextValues(ctx context.Context, c *CaseComparison) ([]ContextValue, error) {
	if !access.PayloadsOf(ctx).Has(c.Case.Namespace) {
		return nil, nil
	}
	t, err := db.Template(ctx, c.Case.Namespace, c.Case.TaskName, "")
	switch {
	case tasker.CodeOf(err) == tasker.NotFound:
		return nil, nil
	case err != nil || len(t.Triage.Keys) == 0:
		return nil, err
	}
	paths, err := json.Marshal(t.Triage.Paths())
	if err != nil {
		return nil, fmt.Errorf("encode the triage keys: %w", err)
	}
	failed := valuesOf(c.Failed, func(s *tasker.CaseSample) tasker.ID { return s.TaskUUID })
	succeeded := valuesOf(c.Succeeded, func(s *tasker.CaseSuccess) tasker.ID { return s.TaskUUID })
	type row struct {
		Ordinal int
		ContextValue
	}
	rows, err := collect[row](ctx, db.pool, selectContextValues, failed, succeeded, string(paths), maxContextValue, maxContextStored, maxContextValues, minContextValue)
	list := make([]ContextValue, len(rows))
	for i, r := range rows {
		list[i] = r.ContextValue
		list[i].Key = t.Triage.Keys[r.Ordinal-1]
	}
	return list, err
}

// minSuccesses is the number of successes since the first failure to compare with. If there are
// fewer, earlier successes are compared.
const minSuccesses = 30

// add sets the last success before the first failure and the successes to compare.
func (c *CaseComparison) add(before, since []caseTask, first time.Time) {
	var earlier, later []tasker.CaseSuccess
	for _, t := range append(before, since...) {
		if t.At == nil {
			continue
		}
		s := tasker.CaseSuccess{TaskUUID: t.TaskUUID, At: *t.At, WorkerName: t.WorkerName, WorkerVersion: t.WorkerVersion, TaskVersion: t.TaskVersion}
		if !s.At.Before(first) {
			later = append(later, s)
			continue
		}
		if earlier = append(earlier, s); c.LastSuccess == nil || c.LastSuccess.At.Before(s.At) {
			c.LastSuccess = &s
		}
	}
	c.TasksExamined = len(before) + len(since)
	c.Succeeded, c.Since = later, true
	if len(later) < minSuccesses {
		c.Succeeded, c.Since = earlier, false
	}
	c.Failures, c.Successes = len(c.Failed), len(c.Succeeded)
}
