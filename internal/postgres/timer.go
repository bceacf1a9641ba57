package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// Enqueueing a step starts an attempt. The caller holds the task locks.
var enqueueReady = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, attempts = s.attempts + 1, next_retry_at = NULL, worker_uuid = NULL,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $2)
    FROM clock c
    WHERE s.task_uuid = ANY ($1) AND s.state = 'pending' AND s.step_type = 'standard'
      AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END
      AND (s.map_step_uuid IS NULL OR NOT ` + hasLimit + `)
    RETURNING ` + returnReady + `, s.attempts
),
` + afterMove("pending", "enqueue")

// afterMove completes a statement that has enqueued the steps of part moved. It inserts them into
// ready_steps and the history, announces them if $3 is true, and returns their namespaces.
func afterMove(from, event string) string {
	return readyByDue("moved") + `,
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
    SELECT task_uuid, step_uuid, '` + from + `', 'enqueued', '` + event + `', attempts, state_since
    FROM moved
    ORDER BY task_uuid, step_uuid
),
announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM moved WHERE $3 ORDER BY task_uuid, step_uuid
)
SELECT DISTINCT namespace FROM moved`
}

var retryDue = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.workflow_steps s
    SET state = 'enqueued', state_since = c.at, updated_at = c.at, attempts = s.attempts + 1, next_retry_at = NULL, worker_uuid = NULL,
        expires_at = c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $2)
    FROM clock c, tasker.tasks t
    WHERE s.task_uuid = ANY ($1) AND s.state = 'error' AND s.next_retry_at <= c.at
      AND t.task_uuid = s.task_uuid AND t.state <> 'error'
    RETURNING ` + returnReady + `, s.attempts
),
` + afterMove("error", "retry")

// EnqueueReady enqueues the steps of tasks without open dependencies and the items with a free slot,
// and returns their namespaces. The caller settles the tasks.
func (tx *Tx) EnqueueReady(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	list, err := tx.enqueue(ctx, enqueueReady, tasks)
	if err != nil {
		return nil, err
	}
	items, err := tx.PromoteItems(ctx, tasks)
	return append(list, items...), err
}

const startedTasks = `
SELECT t.task_uuid, t.state = 'pending' AS starts
FROM tasker.tasks t
WHERE t.task_uuid = ANY ($1) AND (t.state <> 'pending' OR t.start_at <= clock_timestamp())`

// StartTasks enqueues the initial steps of due tasks. It returns the tasks that have started, now or
// before, and the namespaces of the enqueued steps. Call it before settling a due task, because
// [DB.TasksToStart] does not find settled tasks.
func (tx *Tx) StartTasks(ctx context.Context, tasks []tasker.ID) (started []tasker.ID, namespaces []string, err error) {
	type row struct {
		TaskUUID tasker.ID
		Starts   bool
	}
	rows, err := collect[row](ctx, tx, startedTasks, tasks)
	if err != nil {
		return nil, nil, fmt.Errorf("find tasks to start: %w", err)
	}
	var due []tasker.ID
	for _, r := range rows {
		started = append(started, r.TaskUUID)
		if r.Starts {
			due = append(due, r.TaskUUID)
		}
	}
	if len(due) > 0 {
		namespaces, err = tx.EnqueueReady(ctx, due)
	}
	return started, namespaces, err
}

// PromoteItems enqueues map items with a free slot and returns their namespaces. The caller settles
// the tasks.
func (tx *Tx) PromoteItems(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, promoteItems, tasks)
}

// RetryDue enqueues the steps whose retry is due, except of tasks in error, and returns their
// namespaces.
func (tx *Tx) RetryDue(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, retryDue, tasks)
}

func (tx *Tx) enqueue(ctx context.Context, sql string, tasks []tasker.ID) ([]string, error) {
	list, err := column[string](ctx, tx, sql, tasks, tx.queue.ttlMS, tx.queue.announce)
	return list, wrap(err, "enqueue steps")
}

// Retries of tasks in error are excluded but remain due. Therefore recent retries are read each time
// and the others a few at a time. Deferred rows do not count towards the limit. now() can bound an
// index range, clock_timestamp() cannot.
const tasksWithDueRetries = `
WITH late AS MATERIALIZED (
    SELECT s.next_retry_at, s.task_uuid, s.step_uuid
    FROM tasker.workflow_steps s
    WHERE s.next_retry_at <= now() - interval '10 seconds'
      AND (s.next_retry_at, s.task_uuid, s.step_uuid) > (coalesce($2::timestamptz, '-infinity'), $3::uuid, $4::uuid)
    ORDER BY s.next_retry_at, s.task_uuid, s.step_uuid
    LIMIT $6::bigint
),
due AS (
    SELECT l.task_uuid
    FROM late l
    WHERE (SELECT t.state FROM tasker.tasks t WHERE t.task_uuid = l.task_uuid) <> 'error'
      AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + RetrySteps + `' AND w.task_uuid = l.task_uuid)
    UNION
    (
        SELECT s.task_uuid
        FROM tasker.workflow_steps s
        WHERE s.next_retry_at > now() - interval '10 seconds' AND s.next_retry_at <= now()
          AND (SELECT t.state FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid) <> 'error'
          AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + RetrySteps + `' AND w.task_uuid = s.task_uuid)
        ORDER BY s.next_retry_at
        LIMIT $1::bigint
    )
)
SELECT array(SELECT task_uuid FROM due) AS tasks, l.next_retry_at, coalesce(l.task_uuid, $5) AS task_uuid, coalesce(l.step_uuid, $5) AS step_uuid
FROM (SELECT) one
LEFT JOIN LATERAL (
    SELECT l.* FROM late l ORDER BY l.next_retry_at, l.task_uuid, l.step_uuid OFFSET $1::bigint - 1
) l ON true`

// RetryMark is the position of [DB.TasksWithDueRetries]. The zero value is the start.
type RetryMark struct {
	Recent             bool // read only recent retries, because all older ones were read
	nextRetryAt        *time.Time
	taskUUID, stepUUID tasker.ID
}

// Begun reports whether some, but not all, older retries were read.
func (m RetryMark) Begun() bool { return m.nextRetryAt != nil }

const tasksToStart = `
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.state = 'pending' AND t.start_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + StartTask + `' AND w.task_uuid = t.task_uuid)
ORDER BY t.start_at
LIMIT $1`

// TasksWithDueRetries returns tasks with due retries: up to limit recent ones, and those of the next
// limit older steps after the mark.
func (db *DB) TasksWithDueRetries(ctx context.Context, from RetryMark, limit int) ([]tasker.ID, RetryMark, error) {
	type row struct {
		Tasks              []tasker.ID
		NextRetryAt        *time.Time
		TaskUUID, StepUUID tasker.ID
	}
	late := limit
	if from.Recent {
		late = 0
	}
	r, err := required[row](ctx, db.pool, nil, "find due retries",
		tasksWithDueRetries, limit, from.nextRetryAt, from.taskUUID, from.stepUUID, tasker.ID{}, late)
	if err != nil {
		return nil, from, err
	}
	return r.Tasks, RetryMark{nextRetryAt: r.NextRetryAt, taskUUID: r.TaskUUID, stepUUID: r.StepUUID}, nil
}

// TasksToStart returns tasks whose start is due.
func (db *DB) TasksToStart(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, tasksToStart, limit)
}

// dueTasks runs a query for due tasks.
func (db *DB) dueTasks(ctx context.Context, sql string, args ...any) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, sql, args...)
	return list, wrap(err, "find due tasks")
}

// findDueWork returns for each kind of work whether it is due and the time of the next work, by one
// index row each. Deferred rows and retries of tasks in error remain due; the query of their kind
// excludes them. Enqueued steps and steps that wait for a worker are always due.
var findDueWork = `
SELECT current_setting('transaction_read_only') = 'on' AS read_only,
    coalesce((SELECT o.position FROM tasker.outbox o ORDER BY o.position DESC LIMIT 1), 0) AS last_event, ` + hasManyDead + ` AS many_dead, k.kind, coalesce(k.due, false) AS due,
    extract(epoch FROM least(k.next, now() + $2::interval) - now())::float8 AS wait
FROM (VALUES
    ('` + StartTask + `', ` + dueAndNext("t.start_at", "now()", "tasker.tasks t WHERE t.state = 'pending'") + `),
    ('` + ExpireTask + `', ` + dueAndNext("x.start_by", "now()", "tasker.task_starts x WHERE true") + `),
    ('` + WatchDeadlines + `', ` + dueAndNext("d.look_at", "now()", "tasker.deadlines d WHERE d.look_at < 'infinity'") + `),
    ('` + RetrySteps + `', ` + dueAndNext("s.next_retry_at", "now()", "tasker.workflow_steps s WHERE s.next_retry_at IS NOT NULL") + `),
    ('` + DecideSteps + `', ` + dueAndNext("s.decide_at", "now()", "tasker.workflow_steps s WHERE s.decide_at IS NOT NULL") + `),
    ('` + EndWait + `', ` + dueAndNext("s.wait_until", "now()", "tasker.workflow_steps s WHERE s.wait_until IS NOT NULL") + `),
    ('` + Remind + `', ` + dueAndNext("s.remind_at", "now()", "tasker.workflow_steps s WHERE s.remind_at IS NOT NULL") + `),
    ('` + FindTasks + `', ` + dueAndNext("s.attributes_at", "now()", "tasker.workflow_steps s WHERE s.attributes_at < 'infinity'") + `),
    ('` + ChildEnded + `', ` + dueAndNext("g.created_at", "now()", "tasker.child_signals g WHERE g.kind = 'ended'") + `),
    ('` + CancelChild + `', ` + dueAndNext("g.created_at", "now()", "tasker.child_signals g WHERE g.kind = 'cancel'") + `),
    ('` + FireSchedules + `', ` + dueAndNext("h.fire_at", "now()", "tasker.schedules h WHERE h.fire_at IS NOT NULL") + `),
    ('` + ScheduledEnded + `', ` + dueAndNext("g.created_at", "now()", "tasker.schedule_signals g WHERE true") + `),
    ('` + ReclaimLease + `', ` + dueAndNext("c.look_at", "now()", "tasker.claims c WHERE true") + `),
    ('` + FollowUpReport + `', ` + dueAndNext("s.state_since", "(now() - $1::interval)", pendingReportTimes+" s WHERE true") + `),
    ('` + ExpireStep + `', ` + dueAndNext("s.expires_at", "now()", "tasker.ready_steps s WHERE $3") + `),
    ('` + RetryDeferred + `', ` + dueAndNext("d.retry_at", "now()", "tasker.deferred_work d WHERE true") + `),
    ('` + ExpireUnserved + `', ` + hasManyDead + ` OR (SELECT s.expires_at FROM tasker.ready_steps s ORDER BY s.expires_at LIMIT 1) IS NOT NULL, NULL),
    ('` + RedispatchTask + `', (
        SELECT s.awaits_worker_since FROM tasker.workflow_steps s WHERE s.awaits_worker_since IS NOT NULL ORDER BY s.namespace, s.handler, s.awaits_worker_since LIMIT 1
    ) IS NOT NULL, NULL)
) AS k (kind, due, next)`

// pendingReportTimes selects the few steps with pending reports. An index by time would slow down
// updates of steps.
const pendingReportTimes = `(SELECT w.state_since FROM tasker.workflow_steps w WHERE w.kept_report IS NOT NULL ORDER BY w.task_uuid, w.step_uuid LIMIT 1000)`

// dueAndNext returns two columns: whether rows are due by a time, and the next time within $2.
func dueAndNext(instant, by, rows string) string {
	return "(SELECT " + instant + " FROM " + rows + " AND " + instant + " <= " + by + " ORDER BY " + instant + " LIMIT 1) IS NOT NULL" +
		", (SELECT " + instant + " FROM " + rows + " AND " + instant + " > " + by + " AND " + instant + " <= " + by + " + $2::interval ORDER BY " + instant + " LIMIT 1) + (now() - " + by + ")"
}

// since returns a row with the first time of rows, or null.
func since(kind, instant, rows string) string {
	return "('" + kind + "', (SELECT " + instant + " FROM " + rows + " ORDER BY " + instant + " LIMIT 1))"
}

// overdue excludes retries, because those of tasks in error remain due.
var overdue = `
SELECT k.kind, greatest(coalesce(extract(epoch FROM now() - k.since), 0), 0)::float8 AS seconds
FROM (VALUES
    ` + since(StartTask, "t.start_at", "tasker.tasks t WHERE t.state = 'pending'") + `,
    ` + since(ExpireTask, "x.start_by", "tasker.task_starts x WHERE true") + `,
    ` + since(WatchDeadlines, "d.look_at", "tasker.deadlines d WHERE d.look_at < 'infinity'") + `,
    ` + since(DecideSteps, "s.decide_at", "tasker.workflow_steps s WHERE s.decide_at IS NOT NULL") + `,
    ` + since(EndWait, "s.wait_until", "tasker.workflow_steps s WHERE s.wait_until IS NOT NULL") + `,
    ` + since(Remind, "s.remind_at", "tasker.workflow_steps s WHERE s.remind_at IS NOT NULL") + `,
    ` + since(FindTasks, "s.attributes_at", "tasker.workflow_steps s WHERE s.attributes_at < 'infinity'") + `,
    ` + since(ChildEnded, "g.created_at", "tasker.child_signals g WHERE g.kind = 'ended'") + `,
    ` + since(CancelChild, "g.created_at", "tasker.child_signals g WHERE g.kind = 'cancel'") + `,
    ` + since(FireSchedules, "h.fire_at", "tasker.schedules h WHERE h.fire_at IS NOT NULL") + `,
    ` + since(ScheduledEnded, "g.created_at", "tasker.schedule_signals g WHERE true") + `
) AS k (kind, since)`

// Overdue returns for how many seconds work of each kind is overdue.
func (db *DB) Overdue(ctx context.Context) (map[string]float64, error) {
	return selectMap[string, float64](ctx, db.pool, "find overdue work", overdue)
}

// DueKind describes when work of a kind is due.
type DueKind struct {
	Kind string
	Due  bool           // whether it is due now
	Next *time.Duration // until the next work; nil if there is none in the period
}

// DueWork is the result of [DB.DueWork].
type DueWork struct {
	ReadOnly  bool  // whether the database rejects writes
	LastEvent int64 // highest position in the outbox, or 0
	ManyDead  bool  // whether many claimed rows are not vacuumed: see RefreshQueueHeads
	Kinds     []DueKind
}

// DueWork returns for each kind of work whether it is due, and when the next work within a period is
// due. Pending reports are due after reportAge.
func (db *DB) DueWork(ctx context.Context, reportAge, within time.Duration) (DueWork, error) {
	type row struct {
		ReadOnly  bool
		LastEvent int64
		ManyDead  bool
		Kind      string
		Due       bool
		Wait      float64
	}
	rows, err := collect[row](ctx, db.pool, findDueWork, reportAge, within, db.heads.expiryScanDue())
	if err != nil {
		return DueWork{}, fmt.Errorf("find due work: %w", err)
	}
	var work DueWork
	for _, r := range rows {
		k := DueKind{Kind: r.Kind, Due: r.Due}
		if r.Wait < within.Seconds() {
			wait := seconds(r.Wait)
			k.Next = &wait
		}
		work.ReadOnly, work.LastEvent, work.ManyDead = r.ReadOnly, r.LastEvent, r.ManyDead
		work.Kinds = append(work.Kinds, k)
	}
	db.heads.enable(work.ManyDead)
	return work, nil
}

// ExpiredLease is an attempt whose worker is unresponsive or that has exceeded its timeout.
type ExpiredLease struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	Fence      int64
	Attempts   int
	WorkerUUID tasker.ID
	TimedOut   bool
	TimeoutMS  int64
}

// stepsWithExpiredLease reads due claim rows and their leased steps. It deletes rows without leases
// and reschedules the others to the end of the next lease: expired leases after a second, deferred
// ones after 30 seconds.
var stepsWithExpiredLease = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
due AS MATERIALIZED (
    SELECT x.ctid AS row, x.tasks, x.steps, x.claimed_at
    FROM tasker.claims x
    WHERE x.look_at <= now()
    ORDER BY x.look_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT d.row, d.claimed_at, s.task_uuid, s.step_uuid, s.lease_expires_at, s.lease_expires_at <= c.at AS expired, EXISTS (
        SELECT FROM tasker.deferred_work w WHERE w.kind = '` + ReclaimLease + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
    ) AS deferred
    FROM due d
    CROSS JOIN clock c
    CROSS JOIN LATERAL unnest(d.tasks, d.steps) AS u (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
    WHERE ` + leasedSince("d.claimed_at") + `
),
ended AS (
    DELETE FROM tasker.claims x USING due d WHERE x.ctid = d.row
),
again AS (
    INSERT INTO tasker.claims (look_at, claimed_at, tasks, steps)
    SELECT min(CASE WHEN NOT h.expired THEN h.lease_expires_at ELSE c.at + CASE WHEN h.deferred THEN interval '30 seconds' ELSE interval '1 second' END END),
        h.claimed_at, array_agg(h.task_uuid), array_agg(h.step_uuid)
    FROM held h
    CROSS JOIN clock c
    GROUP BY h.row, h.claimed_at
),
found AS (SELECT h.task_uuid, h.step_uuid FROM held h WHERE h.expired AND NOT h.deferred ORDER BY h.lease_expires_at)
SELECT (SELECT count(*) FROM due) AS claims,
    coalesce((SELECT array_agg(task_uuid) FROM found), '{}') AS tasks, coalesce((SELECT array_agg(step_uuid) FROM found), '{}') AS steps`

// leasedSince reports whether a step s is still leased by the claim made at a time.
func leasedSince(claimedAt string) string {
	return `s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = ` + claimedAt
}

// maxClaimBatches bounds the batches of claims that StepsWithExpiredLease reads.
const maxClaimBatches = 50

// StepsWithExpiredLease returns the steps with an expired lease of up to limit claims, or of further
// claims if these have none. Concurrent callers read different claims.
func (db *DB) StepsWithExpiredLease(ctx context.Context, limit int) (list []tasker.StepRef, err error) {
	type row struct {
		Claims       int
		Tasks, Steps []tasker.ID
	}
	for range maxClaimBatches {
		r, err := required[row](ctx, db.pool, nil, "find expired leases", stepsWithExpiredLease, limit)
		if err != nil {
			return nil, err
		}
		for i := range r.Steps {
			list = append(list, tasker.StepRef{TaskUUID: r.Tasks[i], StepUUID: r.Steps[i]})
		}
		if len(list) > 0 || r.Claims < limit {
			break
		}
	}
	return list, nil
}

const expiredLeases = `
SELECT s.task_uuid, s.step_uuid, s.fence, s.attempts, s.worker_uuid,
    s.timeout_at IS NOT NULL AND s.timeout_at <= clock_timestamp() AS timed_out, coalesce(s.timeout_ms, 0) AS timeout_ms
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
WHERE s.lease_expires_at <= clock_timestamp()`

// ExpiredLeases returns the attempts of steps whose lease has expired.
func (db *DB) ExpiredLeases(ctx context.Context, steps []tasker.StepRef) ([]ExpiredLease, error) {
	tasks, ids := refArrays(steps)
	rows, err := collect[ExpiredLease](ctx, db.pool, expiredLeases, tasks, ids)
	return rows, wrap(err, "find expired leases")
}

const stepsWithPendingReport = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.kept_report IS NOT NULL AND s.state_since <= now() - $2::interval
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = '` + FollowUpReport + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
  )
ORDER BY s.state_since
LIMIT $1`

// StepsWithPendingReport returns steps whose report has been pending for age, oldest first.
func (db *DB) StepsWithPendingReport(ctx context.Context, age time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsWithPendingReport, limit, age)
}

// stepsDueBy selects steps that are due by a column, oldest first, without deferred ones.
func stepsDueBy(instant, kind string) string {
	return `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.` + instant + ` <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + kind + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.` + instant + `, s.task_uuid, s.step_uuid
LIMIT $1`
}

// dueSteps runs a query for due steps.
func (db *DB) dueSteps(ctx context.Context, sql string, args ...any) ([]tasker.StepRef, error) {
	rows, err := collect[tasker.StepRef](ctx, db.pool, sql, args...)
	return rows, wrap(err, "find due steps")
}

// canWrite locks no row but requires a writable database.
const canWrite = `SELECT FROM tasker.workers WHERE false FOR UPDATE`

// Writable returns an error if the database rejects writes, as a standby does.
func (db *DB) Writable(ctx context.Context) error {
	return exec(ctx, db.pool, "check that the database is writable", canWrite)
}
