package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"tasker.example/tasker"
)

// TakeSteps leases those of the steps that are enqueued and that the worker can execute. The total
// size of their inputs is at most [tasker.MaxClaimBytes].
func (db *DB) TakeSteps(ctx context.Context, c Claimant, steps []tasker.StepRef) (ClaimResult, error) {
	return db.claimCheckingHolds(ctx, c.Version, func(l claimMode) (ClaimResult, error) {
		size := claimSize{limit: len(steps), budget: tasker.MaxClaimBytes}
		claim := limitedClaim{Claimant: c, db: db, size: size, mode: l, steps: nonNil(steps), waits: true, parks: new(bool)}
		return claim.run(ctx)
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
