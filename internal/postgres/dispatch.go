package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"tasker.example/tasker"
)

// takeSteps is claimSteps for named steps ($3, $8). The state in clock guides the planner.
var takeSteps, takeUnheldSteps = take(withoutHolds), take(withHolds)

func take(h holds) string {
	return `
WITH ` + h.clock(hasLimits) + `,
locked AS MATERIALIZED (
    SELECT q.*
    FROM clock c
    CROSS JOIN unnest($3::uuid[], $8::uuid[]) AS d (task_uuid, step_uuid)
    JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = c.enqueued
        AND s.step_uuid <> ALL ($6::uuid[]) AND s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])
    CROSS JOIN LATERAL (
        SELECT r.ctid AS ready_row, r.task_uuid, r.step_uuid, r.priority, r.state_since, r.inputs_bytes
        FROM tasker.ready_steps r
        WHERE ` + readyKey + ` AND r.task_uuid = s.task_uuid` + h.free("r", "$9") + `
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE ` + mayClaim + `
),
` + leaseSteps("", false) + blockedSteps("locked")
}

// TakeSteps leases those of the steps that are enqueued and that the worker can execute, up to
// [tasker.MaxClaimBytes] of inputs.
func (db *DB) TakeSteps(ctx context.Context, c Claimant, steps []tasker.StepRef) (ClaimResult, error) {
	tasks, ids := refArrays(steps)
	args := []any{c.Namespaces, c.Handlers, tasks, c.WorkerUUID, c.Lease, noNil(c.Without), tasker.MaxClaimBytes, ids}
	return db.claimCheckingHolds(ctx, c.Version, func(l claimMode) (ClaimResult, error) {
		if !db.limits.mayHave(c) {
			sql, args := l.statement(takeSteps, takeUnheldSteps, args)
			if result, err := db.runClaim(ctx, sql, args); err != nil || !result.limited {
				return result, err
			}
			db.limits.seen(c)
		}
		return db.takeLimited(ctx, c, steps, l)
	})
}

var announceAgain = `
INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace, due_at)
SELECT s.task_uuid, s.step_uuid, s.namespace, clock_timestamp() + $3::interval
FROM (SELECT 'enqueued' AS enqueued OFFSET 0) c
CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE s.state = c.enqueued AND NOT ` + isHeld("s") + `
RETURNING step_uuid`

// AnnounceAgain announces the steps that are still enqueued again after rest, and returns them.
func (db *DB) AnnounceAgain(ctx context.Context, steps []tasker.StepRef, rest time.Duration) ([]tasker.ID, error) {
	tasks, ids := refArrays(steps)
	list, err := column[tasker.ID](ctx, db.pool, announceAgain, tasks, ids, rest)
	return list, wrap(err, "announce steps again")
}

// announced is a WITH part that creates announcements of the steps of another part.
func announced(from string) string {
	return `announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM ` + from + ` ORDER BY task_uuid, step_uuid
)`
}

// Announcement is a broker message to workers about an enqueued step.
type Announcement struct {
	Position  int64
	TaskUUID  tasker.ID
	StepUUID  tasker.ID
	Namespace string
	Waits     bool // still enqueued
}

const dueAnnouncements = `
SELECT o.position, o.task_uuid, o.step_uuid, o.namespace, coalesce(s.state = 'enqueued', false) AS waits
FROM tasker.dispatch_outbox o
LEFT JOIN tasker.workflow_steps s ON s.task_uuid = o.task_uuid AND s.step_uuid = o.step_uuid
WHERE o.due_at <= clock_timestamp()
ORDER BY o.position
LIMIT $1
FOR NO KEY UPDATE OF o SKIP LOCKED`

// Announce passes up to limit due announcements to publish, oldest first, and removes the confirmed
// and obsolete ones. The delay of the others grows with their age. If publish fails, all stay. It
// returns the number processed. One caller at a time gets an announcement, and again after a crash.
func (db *DB) Announce(ctx context.Context, limit int, rest time.Duration, publish func([]Announcement) (done []int64, err error)) (int, error) {
	processed := 0
	err := db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[Announcement](ctx, tx, dueAnnouncements, limit)
		processed = len(list)
		if err != nil || len(list) == 0 {
			return err
		}
		waiting := slices.DeleteFunc(slices.Clone(list), func(a Announcement) bool { return !a.Waits })
		confirmed := map[int64]bool{}
		if len(waiting) > 0 {
			done, err := publish(waiting)
			if err != nil {
				return err
			}
			for _, position := range done {
				confirmed[position] = true
			}
		}
		var over, failed []int64
		for _, a := range list {
			if a.Waits && !confirmed[a.Position] {
				failed = append(failed, a.Position)
			} else {
				over = append(over, a.Position)
			}
		}
		if _, err = tx.Exec(ctx, `DELETE FROM tasker.dispatch_outbox WHERE position = ANY ($1)`, over); err != nil || len(failed) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE tasker.dispatch_outbox
			SET due_at = clock_timestamp() + least(greatest(clock_timestamp() - created_at, $2::interval), interval '1 minute')
			WHERE position = ANY ($1)`, failed, rest)
		return err
	})
	return processed, wrap(err, "announce steps")
}

// Reads one index entry of each namespace.
const waitingNamespaces = `
WITH RECURSIVE n AS (
    (SELECT s.namespace FROM tasker.ready_steps s ORDER BY s.namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT s.namespace FROM tasker.ready_steps s WHERE s.namespace > n.namespace ORDER BY s.namespace LIMIT 1)
    FROM n
    WHERE n.namespace IS NOT NULL
)
SELECT n.namespace FROM n WHERE n.namespace IS NOT NULL`

// WaitingNamespaces returns the namespaces with enqueued steps.
func (db *DB) WaitingNamespaces(ctx context.Context) ([]string, error) {
	list, err := column[string](ctx, db.pool, waitingNamespaces)
	return list, wrap(err, "find namespaces with enqueued steps")
}

const announceLost = `
WITH lost AS (
    SELECT s.task_uuid, s.step_uuid, s.namespace, s.state_since
    FROM tasker.ready_steps s
    WHERE s.namespace = $1 AND s.state_since < now() - $2::interval
      AND s.expires_at > now()
      AND NOT EXISTS (SELECT FROM tasker.dispatch_outbox o WHERE o.step_uuid = s.step_uuid)
    LIMIT $3
),
again AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM lost ORDER BY state_since
    RETURNING 1
)
SELECT count(*) FROM again`

// AnnounceLost announces up to limit steps again that have been enqueued for longer than age.
func (db *DB) AnnounceLost(ctx context.Context, namespace string, age time.Duration, limit int) (int, error) {
	n, err := value[int](ctx, db.pool, announceLost, namespace, age, limit)
	return n, wrap(err, "announce lost steps of %s", namespace)
}

// SendCanary returns true to one caller per interval, which must send a canary.
func (db *DB) SendCanary(ctx context.Context, every time.Duration) (bool, error) {
	tag, err := db.pool.Exec(ctx, `
		UPDATE tasker.dispatch_canary SET sent_at = clock_timestamp()
		WHERE only_row AND (sent_at IS NULL OR sent_at <= clock_timestamp() - $1::interval)`, every)
	return tag.RowsAffected() > 0, wrap(err, "record a sent canary")
}

// CanaryReturned records that a canary has returned as a dead letter.
func (db *DB) CanaryReturned(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, `UPDATE tasker.dispatch_canary SET returned_at = clock_timestamp() WHERE only_row`)
	return wrap(err, "record a returned canary")
}

// CanaryMissing returns how long ago a canary was sent that has not returned within patience, or 0.
func (db *DB) CanaryMissing(ctx context.Context, patience time.Duration) (time.Duration, error) {
	missing, err := value[time.Duration](ctx, db.pool, `
		SELECT coalesce((
			SELECT clock_timestamp() - sent_at
			FROM tasker.dispatch_canary
			WHERE sent_at > coalesce(returned_at, '-infinity') AND sent_at <= clock_timestamp() - $1::interval
		), interval '0')`, patience)
	return missing, wrap(err, "read the canary")
}

// CanaryReturnedAt returns when a canary last returned as a dead letter, or zero.
func (db *DB) CanaryReturnedAt(ctx context.Context) (time.Time, error) {
	at, err := value[*time.Time](ctx, db.pool, `SELECT max(returned_at) FROM tasker.dispatch_canary`)
	if err != nil || at == nil {
		return time.Time{}, wrap(err, "read the canary")
	}
	return *at, nil
}

// NoteDeadLetter adds the data of a dead letter to the open investigation of a step.
func (db *DB) NoteDeadLetter(ctx context.Context, step tasker.StepRef, evidence json.RawMessage) error {
	_, err := db.pool.Exec(ctx, `
		UPDATE tasker.tasks_dlq d
		SET metadata = jsonb_set(d.metadata, '{dispatch, dead_letter}', $3::text::jsonb)
		WHERE d.task_uuid = $1 AND d.step_uuid = $2 AND d.resolution_status = 'pending' AND d.dlq_reason = 'worker_unavailable'
		  AND jsonb_typeof(d.metadata -> 'dispatch') = 'object' AND NOT (d.metadata -> 'dispatch') ? 'dead_letter'`, step.TaskUUID, step.StepUUID, string(evidence))
	return wrap(err, "record a dead letter")
}

// Outbox counts pending announcements, up to limit, and returns the age of the oldest.
func (db *DB) Outbox(ctx context.Context, limit int) (pending int64, oldest time.Duration, err error) {
	var seconds float64
	err = db.pool.QueryRow(ctx, `
		SELECT count(*), coalesce(greatest(extract(epoch FROM clock_timestamp() - min(created_at)), 0), 0)::float8
		FROM (SELECT created_at FROM tasker.dispatch_outbox ORDER BY position LIMIT $1) o`, limit).Scan(&pending, &seconds)
	return pending, time.Duration(seconds * float64(time.Second)), wrap(err, "count pending announcements")
}
