package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// Used keys do not prevent later ones from being pruned, and each pass is bounded.
func TestUnusedKeysBehindThoseInUseAreRemoved(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('name', 'a', 'x', 1, true, 'x')`)
	execute(t, db, `INSERT INTO tasker.limit_keys (limit_id, key, used_at) SELECT limit_id, n::text, now() - CASE WHEN n = 5 THEN interval '2 hours' ELSE '0' END FROM tasker.limits, generate_series(1, 6) n`)
	passes := 0
	for after := int64(0); passes == 0 || after > 0; passes++ {
		last, err := db.PruneLimitKeys(t.Context(), time.Hour, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		after = last
	}
	keys, err := collectColumn[string](t.Context(), db.pool, `SELECT key FROM tasker.limit_keys ORDER BY key`)
	if err != nil || len(keys) != 5 || keys[4] != "6" || passes != 4 {
		t.Errorf("after %d passes there are keys %q, %v; want 4 passes and all but key 5", passes, keys, err)
	}
}

// A hold that begins after a claim with limits has selected its steps still applies: none of them is
// leased.
func TestAHoldAppliesToSelectedSteps(t *testing.T) {
	t.Parallel()
	for _, parked := range []bool{false, true} {
		y := newYard(t, 1, 3)
		if _, err := admin(t, y.db).Exec(t.Context(), limitsOfAll["of templates"], pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		if parked {
			y.parkAll()
		}
		r := &limitedRound{limitedClaim: &limitedClaim{Claimant: y.claimant(1), size: claimSize{limit: 3, budget: tasker.MaxClaimBytes}}}
		selected, err := collect[tasker.StepRef](t.Context(), y.db.pool, `SELECT task_uuid, step_uuid FROM tasker.workflow_steps`)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range selected {
			c := &candidate{StepRef: ref, QueueName: QueueName{"a", "h0"}, Bytes: 2}
			if c.StateSince, err = queryValue[time.Time](t.Context(), y.db.pool, `SELECT state_since FROM tasker.workflow_steps WHERE step_uuid = $1`, ref.StepUUID); err != nil {
				t.Fatal(err)
			}
			if parked {
				c.Parked = 1
			}
			r.verdict.admitted = append(r.verdict.admitted, c)
		}
		y.exec(`INSERT INTO tasker.holds (hold_uuid, kind, namespace, reason, owner, ends_at) VALUES (gen_random_uuid(), 'manual', 'a', 'r', 'bo', now() + interval '1 hour')`)
		for _, want := range []int{0, 3} { // while the hold blocks, and after it
			conn, err := y.db.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), statement("begin")); err != nil {
				t.Fatal(err)
			}
			if err := r.lease(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			conn.Release()
			if got := len(r.result.Steps); got != want {
				t.Errorf("%d of 3 steps were leased, want %d (parked: %v)", got, want, parked)
			}
			r.result = ClaimResult{}
			y.exec(`UPDATE tasker.holds SET blocks = false, state = 'ended', ended_at = now()`)
		}
	}
}
