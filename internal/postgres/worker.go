package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// insertWorker counts the live workers without a lock, so concurrent registrations may exceed the
// limits. It deletes the oldest rows beyond $12.
const insertWorker = `
WITH alive AS MATERIALIZED (
    SELECT w.namespaces FROM tasker.workers w WHERE ` + aliveWorker + ` ORDER BY w.last_heartbeat_at DESC LIMIT $10
),
crowded AS (
    SELECT n.namespace
    FROM unnest($3::text[]) AS n (namespace)
    JOIN (SELECT x.namespace, count(*) AS workers FROM alive a CROSS JOIN unnest(a.namespaces) AS x (namespace) GROUP BY x.namespace) c
        ON c.namespace = n.namespace
    WHERE c.workers >= $11
    LIMIT 1
),
old AS (
    DELETE FROM tasker.workers WHERE worker_uuid IN (
        SELECT worker_uuid FROM tasker.workers ORDER BY last_heartbeat_at DESC OFFSET $12 - 1 LIMIT 20
    )
),
added AS (
    INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease, registered_by)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, nullif($9, '')
    WHERE NOT EXISTS (SELECT FROM crowded) AND (SELECT count(*) FROM alive) < $10
    RETURNING worker_uuid
)
SELECT EXISTS (SELECT FROM added) AS added, coalesce((SELECT namespace FROM crowded), '') AS crowded`

// aliveWorker reports whether a worker w may hold a lease.
const aliveWorker = `w.left_at IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours' AND w.last_heartbeat_at + w.lease > clock_timestamp()`

// AddWorker stores a worker. It returns Unavailable if the server or a namespace has too many live
// workers; maxOfNamespace is the limit of a namespace.
func (db *DB) AddWorker(ctx context.Context, w tasker.WorkerSpec, r tasker.Registration, maxOfNamespace int) error {
	type row struct {
		Added   bool
		Crowded string
	}
	done, err := one[row](ctx, db.pool, insertWorker,
		r.WorkerUUID, w.Name, w.Namespaces, w.Handlers, w.Version, w.MaxConcurrency, r.HeartbeatInterval, r.LeaseDuration, access.IdentityOf(ctx).Subject,
		tasker.MaxWorkers, maxOfNamespace, tasker.MaxWorkerRows)
	switch {
	case err != nil:
		return fmt.Errorf("register worker: %w", err)
	case done.Added:
		return nil
	case done.Crowded != "":
		return tasker.Errorf(tasker.Unavailable, "%d workers of namespace %q are alive, which is the limit (limits.workers); stop some, or raise it, and try again: "+
			"one that has left makes room at once, one that was killed when its lease is over", maxOfNamespace, done.Crowded)
	default:
		return tasker.Errorf(tasker.Unavailable, "%d workers are alive, which is the limit of an installation; stop some and try again", tasker.MaxWorkers)
	}
}

// Worker returns the spec and lease of a worker, or NotFound.
func (db *DB) Worker(ctx context.Context, id tasker.ID) (w tasker.WorkerSpec, lease time.Duration, err error) {
	type row struct {
		tasker.WorkerSpec
		Lease time.Duration
	}
	r, err := required[row](ctx, db.pool, unknownWorker(id), "read worker", `
		SELECT name, namespaces, handlers, version, max_concurrency, lease
		FROM tasker.workers WHERE worker_uuid = $1 AND left_at IS NULL`, id)
	return r.WorkerSpec, r.Lease, err
}

// WorkerAccess describes the registration of a worker, for authorization.
type WorkerAccess struct {
	Namespaces   []string
	RegisteredBy string // empty if authentication was disabled
}

// WorkerAccess returns the registration of a worker, or nil if it does not exist.
func (db *DB) WorkerAccess(ctx context.Context, id tasker.ID) (*WorkerAccess, error) {
	w, err := one[WorkerAccess](ctx, db.pool, `
		SELECT namespaces, coalesce(registered_by, '') AS registered_by
		FROM tasker.workers WHERE worker_uuid = $1`, id)
	return w, wrap(err, "read the registration of worker %s", id)
}

// RemoveWorker marks a worker as offline, or returns NotFound.
func (db *DB) RemoveWorker(ctx context.Context, id tasker.ID) error {
	tag, err := db.pool.Exec(ctx, `UPDATE tasker.workers SET left_at = clock_timestamp() WHERE worker_uuid = $1 AND left_at IS NULL`, id)
	if err != nil {
		return fmt.Errorf("remove worker: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return unknownWorker(id)
	}
	return nil
}

// The drain is audited only if authentication is enabled.
const drainWorker = `
WITH known AS MATERIALIZED (
    SELECT worker_uuid, name, draining_since FROM tasker.workers WHERE worker_uuid = $1 AND left_at IS NULL FOR NO KEY UPDATE
),
drained AS (
    UPDATE tasker.workers w SET draining_since = clock_timestamp()
    FROM known k
    WHERE w.worker_uuid = k.worker_uuid AND k.draining_since IS NULL
    RETURNING w.worker_uuid, k.name
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'worker.drained', worker_uuid::text, jsonb_build_object('name', name) FROM drained WHERE $2 <> ''
)
SELECT worker_uuid FROM known`

// DrainWorker stops claims by a worker, or returns NotFound. Repeating it has no effect.
func (db *DB) DrainWorker(ctx context.Context, id tasker.ID) error {
	drained, err := firstOf[tasker.ID](ctx, db.pool, drainWorker, id, access.IdentityOf(ctx).Subject)
	if err == nil && drained == nil {
		return unknownWorker(id)
	}
	return wrap(err, "drain worker")
}

// recordHeartbeats locks the workers in one order.
const recordHeartbeats = `
WITH known AS MATERIALIZED (
    SELECT w.worker_uuid
    FROM tasker.workers w
    WHERE w.worker_uuid = ANY ($1) AND w.left_at IS NULL
    ORDER BY w.worker_uuid
    FOR NO KEY UPDATE
)
UPDATE tasker.workers w
SET last_heartbeat_at = clock_timestamp()
FROM known k
WHERE w.worker_uuid = k.worker_uuid
RETURNING w.worker_uuid, w.draining_since IS NOT NULL AS drains`

// RecordHeartbeats records heartbeats and returns for each registered worker whether it drains.
func (db *DB) RecordHeartbeats(ctx context.Context, ids []tasker.ID) (drains map[tasker.ID]bool, err error) {
	err = retry(ctx, func() (err error) {
		drains, err = selectMap[tasker.ID, bool](ctx, db.pool, "record heartbeats", recordHeartbeats, ids)
		return err
	})
	return drains, err
}

// PruneWorkers deletes workers without a heartbeat for age and returns their number.
func (db *DB) PruneWorkers(ctx context.Context, age time.Duration) (int64, error) {
	tag, err := db.pool.Exec(ctx, `DELETE FROM tasker.workers WHERE last_heartbeat_at < clock_timestamp() - $1::interval`, age)
	return tag.RowsAffected(), wrap(err, "delete offline workers")
}

// stepsOfWorkers counts the leased steps of each worker by their claims, up to 100,000 claims. Claims
// remain for some seconds after their leases have ended.
var stepsOfWorkers = `
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS held
    FROM (SELECT claimed_at, tasks, steps FROM tasker.claims ORDER BY look_at DESC LIMIT 100000) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE ` + leasedSince("c.claimed_at") + `
    GROUP BY s.worker_uuid
`

var workersWithHealth = `
SELECT
    w.worker_uuid AS uuid, w.name, w.namespaces, w.handlers, w.version, w.max_concurrency, w.registered_at, w.last_heartbeat_at,
    w.draining_since, coalesce(n.held, 0) AS in_flight, coalesce(w.registered_by, '') AS registered_by,
    CASE
        WHEN w.left_at IS NOT NULL OR w.last_heartbeat_at + w.lease < clock_timestamp() THEN 'gone'
        WHEN w.last_heartbeat_at + 3 * w.heartbeat_interval < clock_timestamp() THEN 'stale'
        WHEN w.draining_since IS NOT NULL THEN 'draining'
        ELSE 'active'
    END AS health
FROM tasker.workers w
LEFT JOIN (` + stepsOfWorkers + `) n ON n.worker_uuid = w.worker_uuid`

var selectWorkers = workersWithHealth + `
WHERE $3::text[] IS NULL OR w.namespaces <@ $3
ORDER BY w.last_heartbeat_at DESC, w.worker_uuid
LIMIT $1 OFFSET $2`

var selectWorker = workersWithHealth + `
WHERE w.worker_uuid = $1`

// Workers lists workers, last seen first, and reports whether there are more.
func (db *DB) Workers(ctx context.Context, limit, offset int) ([]tasker.Worker, bool, error) {
	return pageOf[tasker.Worker](ctx, db.pool, limit, "list workers", selectWorkers, limit+1, offset, access.ScopeOf(ctx).List())
}

// WorkerWithHealth returns a worker, even an offline one, or NotFound.
func (db *DB) WorkerWithHealth(ctx context.Context, id tasker.ID) (tasker.Worker, error) {
	return required[tasker.Worker](ctx, db.pool, unknownWorker(id), "read worker", selectWorker, id)
}
