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
var takeSteps, takeUnheldSteps = takeSQL(withoutHolds), takeSQL(withHolds)

func takeSQL(h holdMode) string {
	return `
WITH ` + h.clockSQL(hasLimits) + `,
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
` + leaseStepsSQL("", false) + blockedStepsSQL("locked")
}

// TakeSteps leases those of the steps that are enqueued and that the worker can execute. The total
// size of their inputs is at most [tasker.MaxClaimBytes].
func (db *DB) TakeSteps(ctx context.Context, c Claimant, steps []tasker.StepRef) (ClaimResult, error) {
	tasks, ids := toRefArrays(steps)
	args := []any{c.Namespaces, c.Handlers, tasks, c.WorkerUUID, c.Lease, nonNil(c.Without), tasker.MaxClaimBytes, ids}
	return db.claimCheckingHolds(ctx, c.Version, func(l claimMode) (ClaimResult, error) {
		if !db.limits.mayHaveLimits(c) {
			sql, args := l.buildStatement(takeSteps, takeUnheldSteps, args)
			if result, err := db.runClaim(ctx, sql, args); err != nil || !result.limited {
				return result, err
			}
			db.limits.recordSeen(c)
		}
		return db.takeLimited(ctx, c, steps, l)
	})
}

// AnnounceAgain announces the steps that are still enqueued once more, after the delay rest, and
// returns them.
func (db *DB) AnnounceAgain(ctx context.Context, steps []tasker.StepRef, rest time.Duration) ([]tasker.ID, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collectColumn[tasker.ID](ctx, db.pool, statement("announceAgain"), tasks, ids, rest)
	return list, wrapError(err, "announce steps again")
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
		list, err := collect[Announcement](ctx, tx, statement("dueAnnouncements"), limit)
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
		if _, err = tx.Exec(ctx, statement("deleteAnnounced"), over); err != nil || len(failed) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, statement("postponeAnnouncements"), failed, rest)
		return err
	})
	return processed, wrapError(err, "announce steps")
}

// WaitingNamespaces returns the namespaces with enqueued steps.
func (db *DB) WaitingNamespaces(ctx context.Context) ([]string, error) {
	list, err := collectColumn[string](ctx, db.pool, statement("waitingNamespaces"))
	return list, wrapError(err, "find namespaces with enqueued steps")
}

// AnnounceLost announces up to limit steps again that have been enqueued for longer than age.
func (db *DB) AnnounceLost(ctx context.Context, namespace string, age time.Duration, limit int) (int, error) {
	n, err := queryValue[int](ctx, db.pool, statement("announceLost"), namespace, age, limit)
	return n, wrapError(err, "announce lost steps of %s", namespace)
}

// SendCanary reports whether the caller must send a canary. In each interval, this is so for one
// caller.
func (db *DB) SendCanary(ctx context.Context, every time.Duration) (bool, error) {
	tag, err := db.pool.Exec(ctx, statement("sendCanary"), every)
	return tag.RowsAffected() > 0, wrapError(err, "record a sent canary")
}

// RecordCanaryReturn records that a canary was returned as a dead letter.
func (db *DB) RecordCanaryReturn(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, statement("canaryReturned"))
	return wrapError(err, "record a returned canary")
}

// FindMissingCanary returns how long ago a canary was sent that has not returned within timeout, or
// 0.
func (db *DB) FindMissingCanary(ctx context.Context, timeout time.Duration) (time.Duration, error) {
	missing, err := queryValue[time.Duration](ctx, db.pool, statement("canaryMissing"), timeout)
	return missing, wrapError(err, "read the canary")
}

// FindCanaryReturn returns when a canary was last returned as a dead letter, or zero.
func (db *DB) FindCanaryReturn(ctx context.Context) (time.Time, error) {
	at, err := queryValue[*time.Time](ctx, db.pool, statement("canaryReturnedAt"))
	if err != nil || at == nil {
		return time.Time{}, wrapError(err, "read the canary")
	}
	return *at, nil
}

// RecordDeadLetter adds the data of a dead letter to the open investigation of its step.
func (db *DB) RecordDeadLetter(ctx context.Context, step tasker.StepRef, evidence json.RawMessage) error {
	_, err := db.pool.Exec(ctx, statement("noteDeadLetter"), step.TaskUUID, step.StepUUID, string(evidence))
	return wrapError(err, "record a dead letter")
}

// Outbox counts pending announcements, at most limit, and returns the age of the oldest one.
func (db *DB) Outbox(ctx context.Context, limit int) (pending int64, oldest time.Duration, err error) {
	var seconds float64
	err = db.pool.QueryRow(ctx, statement("outbox"), limit).Scan(&pending, &seconds)
	return pending, time.Duration(seconds * float64(time.Second)), wrapError(err, "count pending announcements")
}
