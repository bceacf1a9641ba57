package postgres

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// steps returns the steps of the yard, in the order in which they are claimed.
func (y *yard) steps() []tasker.StepRef {
	y.Helper()
	list, err := collect[tasker.StepRef](y.Context(), y.db.pool, `SELECT task_uuid, step_uuid FROM tasker.ready_steps ORDER BY namespace, handler, state_since`)
	if err != nil {
		y.Fatal(err)
	}
	return list
}

func (y *yard) claim(c Claimant, limit int) []Claimed {
	y.Helper()
	given, err := y.db.ClaimSteps(y.Context(), c, limit)
	if err != nil {
		y.Fatal(err)
	}
	return given.Steps
}

func (y *yard) count(sql string, args ...any) (n int) {
	y.Helper()
	if err := admin(y.T, y.db).QueryRow(y.Context(), sql, args...).Scan(&n); err != nil {
		y.Fatal(err)
	}
	return n
}

// What a write that did not keep ready_steps has left is handed out to nobody, does not
// hide what waits behind it, and is gone afterwards.
func TestAnOutdatedReadyStepIsNotHandedOut(t *testing.T) {
	t.Parallel()
	for name, handlers := range map[string]int{"one queue": 1, "several queues": 2, "many queues": manyQueues + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 1, 4)
			steps := y.steps()
			y.exec(`SET session_replication_role = replica`)
			y.exec(`UPDATE tasker.workflow_steps SET state = 'pending', expires_at = NULL WHERE step_uuid = $1`, steps[0].StepUUID)
			y.exec(`UPDATE tasker.workflow_steps SET state_since = now() WHERE step_uuid = $1`, steps[1].StepUUID) // enqueued anew
			y.exec(`DELETE FROM tasker.workflow_steps WHERE step_uuid = $1`, steps[2].StepUUID)
			got := y.claim(y.claimant(handlers), 2)
			if len(got) != 1 || got[0].StepUUID != steps[3].StepUUID {
				t.Errorf("handed out %+v, want only %s", got, steps[3].StepUUID)
			}
			if n := y.count(`SELECT count(*) FROM tasker.ready_steps`); n != 0 {
				t.Errorf("%d outdated rows are left", n)
			}
		})
	}
}

// A claim locks the row in ready_steps and then that of the step. Whoever else moves an
// enqueued step must not hold the second while it waits for the first.
func TestWhoeverMovesAnEnqueuedStepLocksItsReadyRowFirst(t *testing.T) {
	t.Parallel()
	unserved := time.Duration(0)
	for name, move := range map[string]func(context.Context, *DB, tasker.StepRef) error{
		"cancel": func(ctx context.Context, db *DB, s tasker.StepRef) error {
			return db.CancelTask(ctx, s.TaskUUID, Operator{})
		},
		"expire": func(ctx context.Context, db *DB, s tasker.StepRef) error {
			return db.InTx(ctx, func(tx *Tx) error {
				_, err := tx.ExpireSteps(ctx, []tasker.StepRef{s}, 1, &unserved)
				return err
			})
		},
		"resolve": func(ctx context.Context, db *DB, s tasker.StepRef) error {
			return db.InTx(ctx, func(tx *Tx) error {
				m, err := tx.LockStepLease(ctx, s.TaskUUID, s.StepUUID)
				if err != nil {
					return err
				}
				_, err = tx.ConcludeSteps(ctx, []core.Outcome{{
					TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepState(m.State), Fence: m.Fence,
					Event: core.Resolve,
				}})
				return err
			})
		},
		"conclude": func(ctx context.Context, db *DB, s tasker.StepRef) error {
			return db.InTx(ctx, func(tx *Tx) error {
				_, err := tx.ConcludeSteps(ctx, []core.Outcome{{
					TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepEnqueued, Event: core.Resolve,
				}})
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 1, 1)
			y.exec(`UPDATE tasker.workflow_steps SET state_since = now() - interval '1 minute'`)
			step := y.steps()[0]
			claim := y.begin()
			if _, err := claim.Exec(t.Context(), `SELECT FROM tasker.ready_steps FOR NO KEY UPDATE`); err != nil {
				t.Fatal(err)
			}
			moved := make(chan error, 1)
			go func() { moved <- move(t.Context(), y.db, step) }()
			for y.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
				select {
				case err := <-moved:
					t.Fatalf("it did not wait: %v", err)
				case <-time.After(5 * time.Millisecond):
				}
			}
			if _, err := claim.Exec(t.Context(), `SELECT FROM tasker.workflow_steps FOR NO KEY UPDATE NOWAIT`); err != nil {
				t.Errorf("the row of the step: %v", err)
			}
			if err := claim.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-moved; err != nil {
				t.Fatal(err)
			}
			if n := y.count(`SELECT count(*) FROM tasker.ready_steps`) + y.count(`SELECT count(*) FROM tasker.workflow_steps WHERE state = 'enqueued'`); n != 0 {
				t.Error("the step is still enqueued")
			}
		})
	}
}

// A row of claims follows its leases: it is looked at when the first of them may have
// expired, again when those that were extended may have, and goes when none is left.
func TestClaimsAreLookedAtWhenLeasesEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1, 3)
	given := y.claim(y.claimant(1), 3)
	if len(given) != 3 {
		t.Fatalf("claimed %d", len(given))
	}
	expired := func() []tasker.StepRef {
		t.Helper()
		list, err := y.db.StepsWithExpiredLease(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	rows := func() int { return y.count(`SELECT count(*) FROM tasker.claims`) }
	if got := expired(); len(got) != 0 || rows() != 1 {
		t.Fatalf("before the leases end: %v, %d rows", got, rows())
	}
	past := func() { y.exec(`UPDATE tasker.claims SET look_at = now() - interval '1 second'`) }

	past() // as if the leases had been extended since
	if got := expired(); len(got) != 0 {
		t.Errorf("leases that were extended: %v", got)
	}
	if n := y.count(`SELECT count(*) FROM tasker.claims c WHERE c.look_at = (SELECT min(lease_expires_at) FROM tasker.workflow_steps) AND cardinality(c.steps) = 3`); n != 1 {
		t.Error("it is not looked at again when they end")
	}

	y.exec(`SET session_replication_role = replica`)
	y.exec(`UPDATE tasker.workflow_steps SET lease_expires_at = now() - interval '1 minute' WHERE step_uuid = $1`, given[0].StepUUID)
	y.exec(`UPDATE tasker.workflow_steps SET state = 'complete', lease_expires_at = NULL WHERE step_uuid = $1`, given[1].StepUUID)
	past()
	begun := time.Now()
	if got := expired(); len(got) != 1 || got[0].StepUUID != given[0].StepUUID {
		t.Errorf("expired leases: %v, want that of %s", got, given[0].StepUUID)
	}
	if got := expired(); len(got) != 0 && time.Since(begun) < time.Second { // then it is found again
		t.Errorf("who looks at the same moment is given %v as well", got)
	}
	past() // nobody took it back: it is found again
	if got := expired(); len(got) != 1 || y.count(`SELECT cardinality(steps) FROM tasker.claims`) != 2 {
		t.Errorf("expired leases that nobody took back: %v", got)
	}

	y.exec(`UPDATE tasker.workflow_steps SET state = 'complete', lease_expires_at = NULL`)
	past()
	if got := expired(); len(got) != 0 || rows() != 0 {
		t.Errorf("when none is left: %v, %d rows", got, rows())
	}
}
