package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// Enqueueing uses an attempt. The caller holds the locks of the tasks.
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

// afterMove ends a statement whose steps moved have become enqueued: workers find them, the
// history has the move, and the statement returns the namespaces. $3 tells whether they are announced.
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

// EnqueueReady enqueues steps of tasks that wait for nothing and items with free places, and
// returns their namespaces. The caller settles the tasks.
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

// StartTasks enqueues the initial steps of the tasks whose start is due. It returns the tasks that
// have started, now or before, and the namespaces of enqueued steps. It must be called before
// settling a due task: [DB.TasksToStart] does not find settled tasks.
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

// PromoteItems enqueues the items of map steps of tasks that wait for places which are free, and
// returns the namespaces in which it did. The caller settles the tasks afterwards.
func (tx *Tx) PromoteItems(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, promoteItems, tasks)
}

// RetryDue enqueues failed steps whose retry is due, except in tasks in error, and returns their
// namespaces.
func (tx *Tx) RetryDue(ctx context.Context, tasks []tasker.ID) ([]string, error) {
	return tx.enqueue(ctx, retryDue, tasks)
}

func (tx *Tx) enqueue(ctx context.Context, sql string, tasks []tasker.ID) ([]string, error) {
	list, err := column[string](ctx, tx, sql, tasks, tx.queue.ttlMS, tx.queue.announce)
	return list, wrap(err, "enqueue steps")
}

// Retries of tasks in error are excluded. They stay due, so recent ones are read each time and the
// rest a few at a time. Rows that were set aside are skipped by key, so they do not fill a batch.
// The statement time bounds the index range, which a moving clock cannot.
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

// A RetryMark is the position of [DB.TasksWithDueRetries]; zero is the beginning.
type RetryMark struct {
	Recent             bool // only what came lately: a round through the rest is over
	nextRetryAt        *time.Time
	taskUUID, stepUUID tasker.ID
}

// Begun reports whether some of what is due since a while was looked at, and not all.
func (m RetryMark) Begun() bool { return m.nextRetryAt != nil }

const tasksToStart = `
SELECT t.task_uuid
FROM tasker.tasks t
WHERE t.state = 'pending' AND t.start_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + StartTask + `' AND w.task_uuid = t.task_uuid)
ORDER BY t.start_at
LIMIT $1`

// TasksWithDueRetries returns tasks with due retries: up to limit recent ones, and those among the
// next limit older steps from the mark on.
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
	rows, err := collect[row](ctx, db.pool, tasksWithDueRetries, limit, from.nextRetryAt, from.taskUUID, from.stepUUID, tasker.ID{}, late)
	if err != nil {
		return nil, from, fmt.Errorf("find due retries: %w", err)
	}
	one := rows[0]
	return one.Tasks, RetryMark{nextRetryAt: one.NextRetryAt, taskUUID: one.TaskUUID, stepUUID: one.StepUUID}, nil
}

// TasksToStart returns tasks whose start time has come.
func (db *DB) TasksToStart(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.dueTasks(ctx, tasksToStart, limit)
}

// dueTasks runs a query for tasks; its first argument is the limit.
func (db *DB) dueTasks(ctx context.Context, sql string, args ...any) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, sql, args...)
	return list, wrap(err, "find tasks that are due")
}

// For each kind of work, finds whether the first instant is due and the first one to come, by one
// index row each. Rows set aside, and retries of tasks in error, stay due and are excluded by the
// query of their kind. Steps that are enqueued or wait for a live worker are always due.
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

// pendingReportTimes are the few steps with kept reports. An index by time would slow step updates.
const pendingReportTimes = `(SELECT w.state_since FROM tasker.workflow_steps w WHERE w.kept_report IS NOT NULL ORDER BY w.task_uuid, w.step_uuid LIMIT 1000)`

// dueAndNext are columns: whether rows are due by an instant, and the next instant within $2.
func dueAndNext(instant, by, rows string) string {
	return "(SELECT " + instant + " FROM " + rows + " AND " + instant + " <= " + by + " ORDER BY " + instant + " LIMIT 1) IS NOT NULL" +
		", (SELECT " + instant + " FROM " + rows + " AND " + instant + " > " + by + " AND " + instant + " <= " + by + " + $2::interval ORDER BY " + instant + " LIMIT 1) + (now() - " + by + ")"
}

// since is the first instant of rows, or null.
func since(kind, instant, rows string) string {
	return "('" + kind + "', (SELECT " + instant + " FROM " + rows + " ORDER BY " + instant + " LIMIT 1))"
}

// Timed work that is done soon after it is due. Retries are excluded because of tasks in error.
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

// Overdue returns for how many seconds work of each kind is overdue; 0 where none is.
func (db *DB) Overdue(ctx context.Context) (map[string]float64, error) {
	type row struct {
		Kind    string
		Seconds float64
	}
	rows, err := collect[row](ctx, db.pool, overdue)
	if err != nil {
		return nil, fmt.Errorf("find work that is overdue: %w", err)
	}
	late := make(map[string]float64, len(rows))
	for _, r := range rows {
		late[r.Kind] = r.Seconds
	}
	return late, nil
}

// A DueKind says when work of a kind is due.
type DueKind struct {
	Kind string
	Due  bool           // now, or always while its cause is there
	Next *time.Duration // until the first that is not due yet; nil: none in the time that was asked for
}

// A Look is what a look for work that is due has found.
type Look struct {
	ReadOnly  bool  // the database takes no writes now
	LastEvent int64 // the highest position in the outbox of events; 0: there is none
	ManyDead  bool  // rows of many steps that were claimed are not removed: see RefreshQueueHeads
	Kinds     []DueKind
}

// LookForDue returns for each kind of work whether it is due, and when next; reports after an age.
func (db *DB) LookForDue(ctx context.Context, kept, within time.Duration) (Look, error) {
	type row struct {
		ReadOnly  bool
		LastEvent int64
		ManyDead  bool
		Kind      string
		Due       bool
		Wait      float64
	}
	rows, err := collect[row](ctx, db.pool, findDueWork, kept, within, db.heads.looksAtExpiry())
	if err != nil {
		return Look{}, fmt.Errorf("find work that is due: %w", err)
	}
	var look Look
	for _, r := range rows {
		k := DueKind{Kind: r.Kind, Due: r.Due}
		if r.Wait < within.Seconds() {
			wait := time.Duration(r.Wait * float64(time.Second))
			k.Next = &wait
		}
		look.ReadOnly, look.LastEvent, look.ManyDead = r.ReadOnly, r.LastEvent, r.ManyDead
		look.Kinds = append(look.Kinds, k)
	}
	db.heads.hasDeadTuples(look.ManyDead)
	return look, nil
}

// An ExpiredLease is an attempt whose worker fell silent, or that ran too long.
type ExpiredLease struct {
	TaskUUID   tasker.ID
	StepUUID   tasker.ID
	Fence      int64
	Attempts   int
	WorkerUUID tasker.ID
	TimedOut   bool
	TimeoutMS  int64
}

// Reads the due claim rows with their leased steps. A row is deleted without any, and else returns
// when the next lease ends: after a second if one has ended, later if it was set aside.
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
    ) AS aside
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
    SELECT min(CASE WHEN NOT h.expired THEN h.lease_expires_at ELSE c.at + CASE WHEN h.aside THEN interval '30 seconds' ELSE interval '1 second' END END),
        h.claimed_at, array_agg(h.task_uuid), array_agg(h.step_uuid)
    FROM held h
    CROSS JOIN clock c
    GROUP BY h.row, h.claimed_at
),
found AS (SELECT h.task_uuid, h.step_uuid FROM held h WHERE h.expired AND NOT h.aside ORDER BY h.lease_expires_at)
SELECT (SELECT count(*) FROM due) AS looked,
    coalesce((SELECT array_agg(task_uuid) FROM found), '{}') AS tasks, coalesce((SELECT array_agg(step_uuid) FROM found), '{}') AS steps`

// leasedSince is true of a step s that is still leased by the claim made at a time.
func leasedSince(claimedAt string) string {
	return `s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = ` + claimedAt
}

// maxLooks bounds how often [DB.StepsWithExpiredLease] looks for more.
const maxLooks = 50

// StepsWithExpiredLease returns steps whose lease has expired: those of so many claims,
// or of more claims if these have none. Each claim is looked at by one caller at a time.
func (db *DB) StepsWithExpiredLease(ctx context.Context, limit int) (list []tasker.StepRef, err error) {
	type row struct {
		Looked       int
		Tasks, Steps []tasker.ID
	}
	for range maxLooks {
		rows, err := collect[row](ctx, db.pool, stepsWithExpiredLease, limit)
		if err != nil {
			return nil, fmt.Errorf("find expired leases: %w", err)
		}
		for i := range rows[0].Steps {
			list = append(list, tasker.StepRef{TaskUUID: rows[0].Tasks[i], StepUUID: rows[0].Steps[i]})
		}
		if len(list) > 0 || rows[0].Looked < limit {
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

// ExpiredLeases returns those attempts of the steps whose lease has run out.
func (db *DB) ExpiredLeases(ctx context.Context, of []tasker.StepRef) ([]ExpiredLease, error) {
	tasks, steps := refArrays(of)
	rows, err := collect[ExpiredLease](ctx, db.pool, expiredLeases, tasks, steps)
	return rows, wrap(err, "find expired leases")
}

const stepsWithKeptReport = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.kept_report IS NOT NULL AND s.state_since <= now() - $2::interval
  AND NOT EXISTS (
      SELECT FROM tasker.deferred_work w WHERE w.kind = '` + FollowUpReport + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid
  )
ORDER BY s.state_since
LIMIT $1`

// StepsWithKeptReport returns steps whose report is kept longer than age, oldest first.
func (db *DB) StepsWithKeptReport(ctx context.Context, age time.Duration, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsWithKeptReport, limit, age)
}

// stepsDueBy selects due steps by a column, oldest first, without those set aside for the kind.
func stepsDueBy(instant, kind string) string {
	return `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.` + instant + ` <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + kind + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.` + instant + `, s.task_uuid, s.step_uuid
LIMIT $1`
}

// dueSteps runs a query for steps that are due; its first argument is the limit.
func (db *DB) dueSteps(ctx context.Context, sql string, args ...any) ([]tasker.StepRef, error) {
	rows, err := collect[tasker.StepRef](ctx, db.pool, sql, args...)
	return rows, wrap(err, "find steps that are due")
}

// canWrite locks no row, which takes the right to write all the same.
const canWrite = `SELECT FROM tasker.workers WHERE false FOR UPDATE`

// Writable returns nil if the database accepts writes; a standby does not.
func (db *DB) Writable(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, canWrite)
	return wrap(err, "ask whether the database takes writes")
}
