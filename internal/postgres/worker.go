package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Those that are alive are counted, and not locked: as many more as register at the same
// time may be added. Of the rows that are kept the newest are: the others are long gone.
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

// aliveWorker is the condition that a worker w may still hold a lease.
const aliveWorker = `w.left_at IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours' AND w.last_heartbeat_at + w.lease > clock_timestamp()`

// AddWorker stores a worker, or returns Unavailable if too many are alive.
func (db *DB) AddWorker(ctx context.Context, w tasker.WorkerSpec, r tasker.Registration, most int) error {
	type row struct {
		Added   bool
		Crowded string
	}
	done, err := one[row](ctx, db.pool, insertWorker,
		r.WorkerUUID, w.Name, w.Namespaces, w.Handlers, w.Version, w.MaxConcurrency, r.HeartbeatInterval, r.LeaseDuration, access.IdentityOf(ctx).Subject,
		tasker.MaxWorkers, most, tasker.MaxWorkerRows)
	switch {
	case err != nil:
		return fmt.Errorf("register worker: %w", err)
	case done.Added:
		return nil
	case done.Crowded != "":
		return tasker.Errorf(tasker.Unavailable, "%d workers of namespace %q are alive, which is the limit (limits.workers); stop some, or raise it, and try again: "+
			"one that has left makes room at once, one that was killed when its lease is over", most, done.Crowded)
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
	r, err := one[row](ctx, db.pool, `
		SELECT name, namespaces, handlers, version, max_concurrency, lease
		FROM tasker.workers WHERE worker_uuid = $1 AND left_at IS NULL`, id)
	if err != nil {
		return tasker.WorkerSpec{}, 0, fmt.Errorf("read worker: %w", err)
	}
	if r == nil {
		return tasker.WorkerSpec{}, 0, unknownWorker(id)
	}
	return r.WorkerSpec, r.Lease, nil
}

// WorkerAccess describes who may act as a worker.
type WorkerAccess struct {
	Namespaces   []string
	RegisteredBy string // empty if the server that registered it does not authenticate
}

// WorkerAccess returns who may act as a worker; nil if there is no such worker.
func (db *DB) WorkerAccess(ctx context.Context, id tasker.ID) (*WorkerAccess, error) {
	w, err := one[WorkerAccess](ctx, db.pool, `
		SELECT namespaces, coalesce(registered_by, '') AS registered_by
		FROM tasker.workers WHERE worker_uuid = $1`, id)
	return w, wrap(err, "read the registration of worker %s", id)
}

// RemoveWorker records that a worker has left, or returns NotFound.
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

// Who drains it is recorded where callers are asked who they are.
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

// DrainWorker stops new work for a worker, or returns NotFound. Repeating it has no effect.
func (db *DB) DrainWorker(ctx context.Context, id tasker.ID) error {
	drained, err := column[tasker.ID](ctx, db.pool, drainWorker, id, access.IdentityOf(ctx).Subject)
	if err != nil {
		return fmt.Errorf("drain worker: %w", err)
	}
	if len(drained) == 0 {
		return unknownWorker(id)
	}
	return nil
}

// Servers lock the workers in one order.
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

// HearWorkers records heartbeats and returns which registered workers drain.
func (db *DB) HearWorkers(ctx context.Context, ids []tasker.ID) (drains map[tasker.ID]bool, err error) {
	type row struct {
		WorkerUUID tasker.ID
		Drains     bool
	}
	var rows []row
	err = retry(ctx, func() (err error) {
		rows, err = collect[row](ctx, db.pool, recordHeartbeats, ids)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("note which workers live: %w", err)
	}
	drains = make(map[tasker.ID]bool, len(rows))
	for _, r := range rows {
		drains[r.WorkerUUID] = r.Drains
	}
	return drains, nil
}

// ForgetWorkers deletes workers silent for longer than age and returns how many.
func (db *DB) ForgetWorkers(ctx context.Context, age time.Duration) (int64, error) {
	tag, err := db.pool.Exec(ctx, `DELETE FROM tasker.workers WHERE last_heartbeat_at < clock_timestamp() - $1::interval`, age)
	return tag.RowsAffected(), wrap(err, "forget workers")
}

// stepsOfWorkers selects how many steps each worker holds. Leased steps are found by their claims, which
// are kept for some seconds after their leases have ended; so many of these are looked at.
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

// Workers lists workers, most recently seen first, and whether there are more.
func (db *DB) Workers(ctx context.Context, limit, offset int) ([]tasker.Worker, bool, error) {
	list, err := collect[tasker.Worker](ctx, db.pool, selectWorkers, limit+1, offset, access.ScopeOf(ctx).List())
	if err != nil {
		return nil, false, fmt.Errorf("list workers: %w", err)
	}
	list, more := page(list, limit)
	return list, more, nil
}

// WorkerWithHealth returns a worker as listed, even one that has left, or NotFound.
func (db *DB) WorkerWithHealth(ctx context.Context, id tasker.ID) (tasker.Worker, error) {
	w, err := one[tasker.Worker](ctx, db.pool, selectWorker, id)
	if err != nil {
		return tasker.Worker{}, fmt.Errorf("read worker: %w", err)
	}
	if w == nil {
		return tasker.Worker{}, unknownWorker(id)
	}
	return *w, nil
}
