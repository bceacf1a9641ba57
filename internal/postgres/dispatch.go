package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"tasker.example/tasker"
)

// takeSteps is claimSteps for specific steps ($3, $8). The state comes from clock to guide the
// planner.
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

// TakeSteps leases those of the steps that are enqueued and that the worker can execute. The total
// size of their inputs is at most [tasker.MaxClaimBytes].
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

// AnnounceAgain announces the steps that are still enqueued once more, after the delay rest, and
// returns them.
func (db *DB) AnnounceAgain(ctx context.Context, steps []tasker.StepRef, rest time.Duration) ([]tasker.ID, error) {
	tasks, ids := refArrays(steps)
	list, err := column[tasker.ID](ctx, db.pool, stmt("announceAgain"), tasks, ids, rest)
	return list, wrap(err, "announce steps again")
}

// announced is a common table expression that announces the steps of another one.
func announced(from string) string {
	return `announced AS (
    INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
    SELECT task_uuid, step_uuid, namespace FROM ` + from + ` ORDER BY task_uuid, step_uuid
)`
}

// Announcement is a message that informs workers, through a broker, of an enqueued step.
type Announcement struct {
	Position  int64
	TaskUUID  tasker.ID
	StepUUID  tasker.ID
	Namespace string
	Waits     bool // the step is still enqueued
}

// Announce passes up to limit due announcements to publish, oldest first. It removes those that
// were confirmed and those that are obsolete. The other ones are announced again after a delay that
// grows with their age. If publish fails, all remain. Announce returns how many it processed. Only
// one caller at a time gets an announcement; after a crash another one gets it.
func (db *DB) Announce(ctx context.Context, limit int, rest time.Duration, publish func([]Announcement) (done []int64, err error)) (int, error) {
	processed := 0
	err := db.InTx(ctx, func(tx *Tx) error {
		list, err := collect[Announcement](ctx, tx, stmt("dueAnnouncements"), limit)
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
		if _, err = tx.Exec(ctx, stmt("deleteAnnounced"), over); err != nil || len(failed) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, stmt("postponeAnnouncements"), failed, rest)
		return err
	})
	return processed, wrap(err, "announce steps")
}

// WaitingNamespaces returns the namespaces with enqueued steps.
func (db *DB) WaitingNamespaces(ctx context.Context) ([]string, error) {
	list, err := column[string](ctx, db.pool, stmt("waitingNamespaces"))
	return list, wrap(err, "find namespaces with enqueued steps")
}

// AnnounceLost announces up to limit steps again that have been enqueued for longer than age.
func (db *DB) AnnounceLost(ctx context.Context, namespace string, age time.Duration, limit int) (int, error) {
	n, err := value[int](ctx, db.pool, stmt("announceLost"), namespace, age, limit)
	return n, wrap(err, "announce lost steps of %s", namespace)
}

// SendCanary reports whether the caller must send a canary. In each interval, this is so for one
// caller.
func (db *DB) SendCanary(ctx context.Context, every time.Duration) (bool, error) {
	tag, err := db.pool.Exec(ctx, stmt("sendCanary"), every)
	return tag.RowsAffected() > 0, wrap(err, "record a sent canary")
}

// CanaryReturned records that a canary was returned as a dead letter.
func (db *DB) CanaryReturned(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, stmt("canaryReturned"))
	return wrap(err, "record a returned canary")
}

// CanaryMissing returns how long ago a canary was sent that has not returned within timeout, or 0.
func (db *DB) CanaryMissing(ctx context.Context, timeout time.Duration) (time.Duration, error) {
	missing, err := value[time.Duration](ctx, db.pool, stmt("canaryMissing"), timeout)
	return missing, wrap(err, "read the canary")
}

// CanaryReturnedAt returns when a canary was last returned as a dead letter, or zero.
func (db *DB) CanaryReturnedAt(ctx context.Context) (time.Time, error) {
	at, err := value[*time.Time](ctx, db.pool, stmt("canaryReturnedAt"))
	if err != nil || at == nil {
		return time.Time{}, wrap(err, "read the canary")
	}
	return *at, nil
}

// NoteDeadLetter adds the data of a dead letter to the open investigation of its step.
func (db *DB) NoteDeadLetter(ctx context.Context, step tasker.StepRef, evidence json.RawMessage) error {
	_, err := db.pool.Exec(ctx, stmt("noteDeadLetter"), step.TaskUUID, step.StepUUID, string(evidence))
	return wrap(err, "record a dead letter")
}

// Outbox counts pending announcements, at most limit, and returns the age of the oldest one.
func (db *DB) Outbox(ctx context.Context, limit int) (pending int64, oldest time.Duration, err error) {
	var seconds float64
	err = db.pool.QueryRow(ctx, stmt("outbox"), limit).Scan(&pending, &seconds)
	return pending, time.Duration(seconds * float64(time.Second)), wrap(err, "count pending announcements")
}
