package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// findHeads has claims begin where the steps are that wait now.
func (y *yard) findHeads() {
	y.Helper()
	y.db.heads.enable(true)
	y.db.heads.mu.Lock()
	y.db.heads.scannedAt, y.db.heads.fullScanInterval = time.Time{}, 0
	y.db.heads.mu.Unlock()
	if err := y.db.RefreshQueueHeads(y.Context()); err != nil {
		y.Fatal(err)
	}
	if y.db.heads.rangesFor(y.claimant(1)) == nil {
		y.Fatal("claims begin at the beginning")
	}
}

// advance has known priorities begin where their steps are that wait now.
func (y *yard) advance() {
	y.Helper()
	y.db.heads.mu.Lock()
	y.db.heads.scannedAt, y.db.heads.fullScanInterval = time.Time{}, time.Hour
	y.db.heads.mu.Unlock()
	if err := y.db.RefreshQueueHeads(y.Context()); err != nil {
		y.Fatal(err)
	}
}

// beside opens a transaction that sees all that is there now, as a dump does.
func (y *yard) beside() {
	y.Helper()
	tx, err := admin(y.T, y.db).BeginTx(y.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(y.Context(), `SELECT count(*) FROM tasker.ready_steps`); err != nil {
		y.Fatal(err)
	}
}

// pagesOfClaim is how many pages a claim of ten steps reads, which is rolled back.
func (y *yard) pagesOfClaim(c Claimant, from *queueRanges) int {
	y.Helper()
	tx := y.begin()
	defer func() { _ = tx.Rollback(y.Context()) }()
	sql, args := c.claimSteps(claimSize{10, tasker.MaxClaimBytes, 10}, claimMode{ranges: from})
	n, plan := pages(y.Context(), y.T, tx.Conn(), sql, args...)
	if n == 0 {
		y.Fatalf("a claim read nothing:\n%s", plan)
	}
	return n
}

// While a transaction is open, what was claimed since is passed over by claims that begin where queues do, and not by those that
// begin at their heads. What is committed late, or is of another priority, is found as well.
func TestClaimsBeginWhereStepsWait(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2, 6000)
	y.db.turns.age = -1 // all have waited long
	y.exec(`UPDATE tasker.workflow_steps SET priority = 3 WHERE handler = 'h0' AND step_uuid IN (SELECT step_uuid FROM tasker.workflow_steps WHERE handler = 'h0' LIMIT 2000)`)
	y.exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '1 hour'`)
	y.exec(`VACUUM tasker.ready_steps`)
	y.beside()
	c := y.claimant(2)
	fresh := y.pagesOfClaim(c, wholeQueues(c))
	y.findHeads()
	for range 2 { // from the beginning, and on from where they were
		if n := len(y.claimAll(c, 1000, 5500)); n != 5500 {
			t.Fatalf("%d steps were claimed", n)
		}
		y.advance()
		if n, all := y.pagesOfClaim(c, y.db.heads.rangesFor(c)), y.pagesOfClaim(c, wholeQueues(c)); n > fresh*3/2 || all < n*3/2 {
			t.Errorf("a claim reads %d pages at first, %d after 5,500 others, and %d from the heads", fresh, all, n)
		}
	}
	late := y.anew(c, 20, -1, "- interval '1 hour'")
	other := y.anew(c, 20, 7, "+ interval '0'")
	if got := y.claimAll(c, 100, 20); !slices.ContainsFunc(got, func(id tasker.ID) bool { return slices.Contains(other, id) }) {
		t.Error("steps of a priority that was not there before are not handed out first")
	}
	got := y.claimAll(c, 1000, 2000)
	if slices.ContainsFunc(got, func(id tasker.ID) bool { return slices.Contains(late, id) }) {
		t.Error("what was committed late is found without a look from the beginning: the test does not show anything")
	}
	y.findHeads()
	got = append(got, y.claimAll(c, 1000, 1000)...)
	for _, id := range late {
		if !slices.Contains(got, id) {
			t.Fatal("a step that was committed late is not handed out")
		}
	}
	var left int
	if err := y.db.pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.ready_steps`).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d steps are left behind (%v)", left, err)
	}
}

// claimAll claims until so many steps are handed out, or nothing is.
func (y *yard) claimAll(c Claimant, each, most int) (list []tasker.ID) {
	y.Helper()
	for len(list) < most {
		r, err := y.db.ClaimSteps(y.Context(), c, min(each, most-len(list)))
		if err != nil {
			y.Fatal(err)
		}
		if len(r.Steps) == 0 {
			break
		}
		for _, s := range r.Steps {
			list = append(list, s.StepUUID)
		}
	}
	return list
}

// anew has steps that were claimed be enqueued again, with another priority, as if since another instant.
func (y *yard) anew(c Claimant, n, priority int, since string) []tasker.ID {
	y.Helper()
	list, err := collectColumn[tasker.ID](y.Context(), admin(y.T, y.db), `
		UPDATE tasker.workflow_steps s
		SET state = 'enqueued', priority = $3, state_since = clock_timestamp() `+since+`, lease_expires_at = NULL, timeout_at = NULL, worker_uuid = NULL, expires_at = now() + interval '1 hour'
		FROM (SELECT task_uuid, step_uuid FROM tasker.workflow_steps WHERE state = 'in_progress' AND handler = $1 LIMIT $2) x
		WHERE s.task_uuid = x.task_uuid AND s.step_uuid = x.step_uuid
		RETURNING s.step_uuid`, c.Handlers[0], n, priority)
	if err != nil || len(list) != n {
		y.Fatalf("%d steps: %v", len(list), err)
	}
	return list
}

// Whatever priorities are known of a queue, each priority is in one range of it.
func TestTheRangesOfAQueueHaveEveryPriority(t *testing.T) {
	t.Parallel()
	for range 200 {
		levels := map[int]time.Time{}
		for range rand.IntN(6) {
			levels[[]int{-1 << 31, -2, -1, 0, 1, 2, 3, 100, 1<<31 - 1}[rand.IntN(9)]] = time.Now()
		}
		var r queueRanges
		r.add(QueueName{"a", "b"}, levels, time.Time{})
		for _, p := range []int64{-1 << 31, -1<<31 + 1, -3, -2, -1, 0, 1, 2, 3, 4, 100, 1<<31 - 2, 1<<31 - 1} {
			in := 0
			for i := range r.low {
				_, known := levels[int(p)]
				if at := r.low[i] == p && r.high[i] == p; at && known && !r.since[i].IsZero() || r.low[i] < p && p < r.high[i] {
					in++
				}
			}
			if in != 1 {
				t.Fatalf("priority %d is in %d ranges of the priorities %v: %+v", p, in, levels, r)
			}
		}
	}
}

// Without a look from the beginning for long, claims read from the beginning: what they miss would be missed for good. What is remembered has
// a bound, and is forgotten when there are few rows of claimed steps.
func TestHeadsAreForgotten(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1, 10)
	y.findHeads()
	h := &y.db.heads
	h.mu.Lock()
	h.fullScanAt = time.Now().Add(-fullScanMaxAge - 2*h.fullScanInterval - time.Second)
	h.mu.Unlock()
	if h.rangesFor(y.claimant(1)) != nil {
		t.Error("claims begin at heads that nobody has looked for in a while")
	}
	for i := range maxHeads + 10 {
		h.addClaimed([]Claimed{{Assignment: tasker.Assignment{Namespace: "a", Handler: fmt.Sprint(i)}}})
	}
	if h.count > maxHeads {
		t.Errorf("%d priorities are remembered", h.count)
	}
	h.mu.Lock()
	h.fullScanAt, h.scannedAt = time.Now(), time.Now() // the next look is not due
	h.mu.Unlock()
	if r := h.rangesFor(y.claimant(1)); r != nil { // it would not see what had waited there
		t.Errorf("claims begin at an instant in a queue that was forgotten: %+v", r)
	}
	many := make([]queueHead, maxHeads)
	for i := range many {
		many[i] = queueHead{Namespace: "a", Handler: fmt.Sprint("many", i), At: time.Now()}
	}
	h.enable(false)
	h.enable(true) // nothing is known
	h.update(many, true, time.Now())
	if r := h.rangesFor(y.claimant(1)); r != nil {
		t.Errorf("claims begin at an instant in a queue that the look did not reach: %+v", r)
	}
	h.enable(false)
	y.findHeads()
	for p := range maxLevels + 1 {
		h.addClaimed([]Claimed{{Assignment: tasker.Assignment{Namespace: "a", Handler: "h0"}, Priority: p}})
	}
	if r := h.rangesFor(y.claimant(1)); r != nil { // what has waited for long would not be found among them either
		t.Errorf("a queue with many priorities is read in parts: %+v", r)
	}
	h.enable(false)
	if h.levels != nil || h.rangesFor(y.claimant(1)) != nil {
		t.Error("claims begin at heads without need")
	}
	y.findHeads()
	if c := y.claimant(manyQueues + 1); h.rangesFor(c) != nil {
		t.Error("a claim of so many queues begins at heads")
	}
}
