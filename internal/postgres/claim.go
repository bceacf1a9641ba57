package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker"
)

// The most urgent steps for each pair of namespace and handler are one index
// range each; what another claim holds is skipped, so claims never wait. What is
// picked is locked, so the update need not ask for the state again: asking would
// have it read all that is enqueued. The lease never outlives the attempt's own
// timeout.
const claimSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
picked AS (
    SELECT q.task_uuid, q.step_uuid
    FROM unnest($1::text[]) AS n (namespace)
    CROSS JOIN unnest($2::text[]) AS h (handler)
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.priority, s.state_since
        FROM tasker.workflow_steps s
        WHERE s.state = 'enqueued' AND s.namespace = n.namespace AND s.handler = h.handler
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $4 AND w.left_at IS NULL AND w.draining_since IS NULL)
    ORDER BY q.priority DESC, q.state_since
    LIMIT $3
),
` + handOut

// handOut gives what is picked to worker $4 for the time $5.
const handOut = `
claimed AS (
    UPDATE tasker.workflow_steps s
    SET state = 'in_progress', state_since = c.at, updated_at = c.at, last_attempted_at = c.at,
        fence = s.fence + 1, worker_uuid = $4, expires_at = NULL, queue_expiries = 0,
        timeout_at = c.at + interval '1 millisecond' * s.timeout_ms,
        lease_expires_at = least(c.at + $5::interval, c.at + interval '1 millisecond' * s.timeout_ms)
    FROM picked p
    CROSS JOIN clock c
    WHERE s.task_uuid = p.task_uuid AND s.step_uuid = p.step_uuid
    RETURNING s.step_uuid, s.task_uuid, s.namespace, s.name, s.handler, s.priority, s.attempts, s.max_attempts, s.fence,
        s.lease_expires_at, s.timeout_at, s.parent_uuids, s.worker_uuid, s.state_since
),
log AS (
    INSERT INTO tasker.workflow_step_transitions (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at)
    SELECT task_uuid, step_uuid, 'enqueued', 'in_progress', 'claim', attempts, worker_uuid, state_since
    FROM claimed
)
SELECT
    s.step_uuid, s.task_uuid, s.namespace, t.name AS task_name, t.version AS task_version, t.template_uuid, s.name, s.handler,
    s.attempts, s.max_attempts, s.fence, s.lease_expires_at, s.timeout_at, t.correlation_id, t.context,
    CASE WHEN s.parent_uuids <> '{}' THEN (
        SELECT jsonb_object_agg(p.name, p.results -> 'result')
        FROM tasker.workflow_steps p
        WHERE p.task_uuid = s.task_uuid AND p.step_uuid = ANY (s.parent_uuids)
    ) END AS dependency_results
FROM claimed s
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
ORDER BY s.priority DESC, s.step_uuid`

type claimRow struct {
	StepUUID          tasker.ID
	TaskUUID          tasker.ID
	Namespace         string
	TaskName          string
	TaskVersion       string
	TemplateUUID      tasker.ID
	Name              string
	Handler           string
	Attempts          int
	MaxAttempts       int
	Fence             int64
	LeaseExpiresAt    time.Time
	TimeoutAt         *time.Time
	CorrelationID     string
	Context           json.RawMessage
	DependencyResults map[string]json.RawMessage
}

// A Claimant is who claims, and what it can execute.
type Claimant struct {
	WorkerUUID tasker.ID
	Namespaces []string
	Handlers   []string
	Lease      time.Duration
}

// A Claimed is an assignment, still without what its template says.
type Claimed struct {
	tasker.Assignment
	TemplateUUID tasker.ID
}

// ClaimSteps hands up to limit enqueued steps to a worker, the most urgent first.
func (db *DB) ClaimSteps(ctx context.Context, c Claimant, limit int) ([]Claimed, error) {
	var claimed []Claimed
	err := retry(ctx, func() error {
		rows, err := db.pool.Query(ctx, claimSteps, c.args(limit)...)
		if err != nil {
			return fmt.Errorf("claim steps: %w", err)
		}
		claimed, err = collectClaimed(rows)
		return err
	})
	return claimed, err
}

func (c Claimant) args(limit int) []any {
	return []any{c.Namespaces, c.Handlers, limit, c.WorkerUUID, c.Lease}
}

func collectClaimed(rows pgx.Rows) ([]Claimed, error) {
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[claimRow])
	if err != nil {
		return nil, fmt.Errorf("claim steps: %w", err)
	}
	out := make([]Claimed, len(list))
	for i, r := range list {
		out[i] = Claimed{TemplateUUID: r.TemplateUUID, Assignment: tasker.Assignment{
			StepUUID: r.StepUUID, TaskUUID: r.TaskUUID, Namespace: r.Namespace, TaskName: r.TaskName, TaskVersion: r.TaskVersion,
			Name: r.Name, Handler: r.Handler, Attempt: r.Attempts, MaxAttempts: r.MaxAttempts, Fence: r.Fence,
			LeaseExpiresAt: r.LeaseExpiresAt, Deadline: r.TimeoutAt, CorrelationID: r.CorrelationID,
			Context: r.Context, DependencyResults: r.DependencyResults,
		}}
	}
	return out, nil
}

// A heartbeat never waits for a row lock: a step whose row is locked, most often by
// the report of its own outcome, keeps the lease that it has, and all others are
// extended. What is reported of such a step is how it stood before the lock; if it
// is lost by then, the next heartbeat says so.
const extendLeases = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
named AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.fence, s.lease_expires_at
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
),
free AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    JOIN named n USING (task_uuid, step_uuid)
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4 AND s.fence = n.fence
    FOR NO KEY UPDATE OF s SKIP LOCKED
),
extended AS (
    UPDATE tasker.workflow_steps s
    SET lease_expires_at = least(c.at + $5::interval, s.timeout_at)
    FROM free f
    CROSS JOIN clock c
    WHERE s.task_uuid = f.task_uuid AND s.step_uuid = f.step_uuid
    RETURNING s.step_uuid, s.lease_expires_at
)
SELECT n.step_uuid, coalesce(e.lease_expires_at, n.lease_expires_at) AS lease_expires_at
FROM named n
LEFT JOIN extended e USING (step_uuid)`

const hearWorker = `
UPDATE tasker.workers
SET last_heartbeat_at = clock_timestamp()
WHERE worker_uuid = $1 AND left_at IS NULL
RETURNING draining_since IS NOT NULL AS drains`

// ExtendLeases moves the end of the leases that worker still holds, notes that it
// lives, and says whether it drains. The result has all leases that it holds, those
// of steps whose row is locked just now with the end that they had; leases that it
// does not hold any more are not among it.
func (db *DB) ExtendLeases(
	ctx context.Context, worker tasker.ID, lease time.Duration, leases []tasker.Lease,
) (extended []tasker.LeaseExtension, drains bool, err error) {
	type row struct {
		StepUUID       tasker.ID
		LeaseExpiresAt time.Time
	}
	var rows []row
	err = retry(ctx, func() error {
		err := db.pool.QueryRow(ctx, hearWorker, worker).Scan(&drains)
		if errors.Is(err, pgx.ErrNoRows) {
			return unknownWorker(worker)
		}
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			rows = nil
			return nil
		}
		tasks, steps, fences := leaseArrays(leases)
		rows, err = collect[row](ctx, db.pool, extendLeases, tasks, steps, fences, worker, lease)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("extend leases: %w", err)
	}
	extended = make([]tasker.LeaseExtension, len(rows))
	for i, r := range rows {
		extended[i] = tasker.LeaseExtension{StepUUID: r.StepUUID, ExpiresAt: r.LeaseExpiresAt}
	}
	return extended, drains, nil
}

// The attempt is not used: the counter stays, and goes up when a step is
// enqueued for the first time or after a failure, not here.
const releaseSteps = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
held AS MATERIALIZED (
    SELECT s.task_uuid, s.step_uuid, s.worker_uuid
    FROM tasker.workflow_steps s
    JOIN unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS l (task_uuid, step_uuid, fence)
        ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid AND s.fence = l.fence
    WHERE s.state = 'in_progress' AND s.worker_uuid = $4
    ORDER BY s.task_uuid, s.step_uuid
    FOR NO KEY UPDATE OF s
),
released AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, fence = s.fence + 1,
        worker_uuid = NULL, lease_expires_at = NULL, timeout_at = NULL,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $5)
    FROM held h
    CROSS JOIN clock c
    WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid
    RETURNING s.task_uuid, s.step_uuid, s.namespace, s.attempts, s.state_since
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM released WHERE $6
),
log AS (
    INSERT INTO tasker.workflow_step_transitions (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at)
    SELECT task_uuid, step_uuid, 'in_progress', 'enqueued', 'release', attempts, $4, state_since
    FROM released
)
SELECT step_uuid FROM released`

// ReleaseSteps puts steps that worker holds back into the queue and returns
// those it did hold.
func (db *DB) ReleaseSteps(ctx context.Context, worker tasker.ID, leases []tasker.Lease) ([]tasker.ID, error) {
	type row struct{ StepUUID tasker.ID }
	tasks, steps, fences := leaseArrays(leases)
	var rows []row
	err := retry(ctx, func() error {
		var err error
		rows, err = collect[row](ctx, db.pool, releaseSteps, tasks, steps, fences, worker, db.queue.ttlMS, db.queue.announce)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("release steps: %w", err)
	}
	out := make([]tasker.ID, len(rows))
	for i, r := range rows {
		out[i] = r.StepUUID
	}
	return out, nil
}

func leaseArrays(leases []tasker.Lease) (tasks, steps []tasker.ID, fences []int64) {
	for _, l := range leases {
		tasks = append(tasks, l.TaskUUID)
		steps = append(steps, l.StepUUID)
		fences = append(fences, l.Fence)
	}
	return tasks, steps, fences
}

func unknownWorker(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "worker %s is not registered (any more); register again", id)
}
