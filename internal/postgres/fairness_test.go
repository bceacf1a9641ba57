package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// share moves the steps of a handler into another namespace.
func (y *yard) share(handler, namespace string, priority int) {
	y.Helper()
	y.exec(`UPDATE tasker.workflow_steps SET namespace = $2, priority = $3 WHERE handler = $1`, handler, namespace, priority)
}

// takes claims at least most steps, and counts them by namespace.
func (y *yard) takes(c Claimant, limit, most int) map[string]int {
	y.Helper()
	claimed := map[string]int{}
	for n := 0; n < most; {
		r, err := y.db.ClaimSteps(y.Context(), c, limit)
		if err != nil || len(r.Steps) == 0 {
			y.Fatalf("claimed %d steps after %d (%v)", len(r.Steps), n, err)
		}
		for _, s := range r.Steps {
			claimed[s.Namespace]++
		}
		n += len(r.Steps)
	}
	return claimed
}

// limitsOfAll are limits of each profile for all steps of a yard, large enough that no step waits.
var limitsOfAll = map[string]string{
	"none": ``,
	"shared": `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('server', '', '', 10000, false, 'x');
		INSERT INTO tasker.limit_queues (namespace, handler, limit_id) SELECT '', '', limit_id FROM tasker.limits;`,
	"of templates": `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('name', 'a', 'x', 10000, true, 'x');
		INSERT INTO tasker.limit_queues (namespace, handler, limit_id) SELECT n, h, limit_id FROM tasker.limits, unnest('{a,b,c}'::text[]) n, unnest('{h0,h1}'::text[]) h;
		INSERT INTO tasker.task_limits (task_uuid, limit_id, key) SELECT task_uuid, limit_id, 'k' FROM tasker.tasks, tasker.limits;`,
	"with weights": `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('name', 'a', 'x', 10000, true, 'x');
		INSERT INTO tasker.limit_queues (namespace, handler, limit_id) SELECT n, h, limit_id FROM tasker.limits, unnest('{a,b,c}'::text[]) n, unnest('{h0,h1}'::text[]) h;
		INSERT INTO tasker.task_limits (task_uuid, limit_id, key, weight) SELECT task_uuid, limit_id, 'k', 3 FROM tasker.tasks, tasker.limits;`,
}

// Namespaces share claims by weight, regardless of priorities, claim sizes and limits.
func TestNamespacesTakeTurnsByWeight(t *testing.T) {
	t.Parallel()
	for name, limits := range limitsOfAll {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeTurnsByWeight(t, limits, false)
		})
	}
	t.Run("from heads", func(t *testing.T) {
		t.Parallel()
		takeTurnsByWeight(t, "", true)
	})
}

func takeTurnsByWeight(t *testing.T, limits string, heads bool) {
	t.Helper()
	y := newYard(t, 2, 400)
	if _, err := admin(t, y.db).Exec(t.Context(), limits, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	y.share("h1", "b", 5)
	if _, err := y.db.SetNamespaceWeight(t.Context(), "a", 3, "somebody"); err != nil {
		t.Fatal(err)
	}
	if heads {
		y.findHeads()
	}
	for _, tt := range []struct{ handlers, limit int }{{2, 1}, {2, 8}, {manyQueues, 20}} {
		c := y.claimant(tt.handlers)
		c.Namespaces = []string{"a", "b", "c"} // c is empty
		if claimed := y.takes(c, tt.limit, 80); claimed["a"] < 55 || claimed["a"] > 65 || claimed["b"] < 15 || claimed["b"] > 25 {
			t.Errorf("claims of %d by a worker with %d handlers took %v, want 60 of a and 20 of b", tt.limit, tt.handlers, claimed)
		}
	}
	// A change applies within a second.
	if err := y.db.DeleteNamespaceWeight(t.Context(), "a", "somebody"); err != nil {
		t.Fatal(err)
	}
	y.db.turns.now = func() time.Time { return time.Now().Add(time.Second) }
	c := y.claimant(2)
	c.Namespaces = []string{"a", "b"}
	if claimed := y.takes(c, 10, 80); claimed["a"] != 40 {
		t.Errorf("took %v, want 40 of each", claimed)
	}
}

// A backlog of urgent steps in one namespace does not delay another namespace, with or without limits.
func TestABacklogOfOneNamespaceDoesNotDelayAnother(t *testing.T) {
	t.Parallel()
	for name, limits := range limitsOfAll {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			besideUrgentBacklog(t, limits)
		})
	}
}

func besideUrgentBacklog(t *testing.T, limits string) {
	t.Helper()
	y := newYard(t, 2, 300)
	if _, err := admin(t, y.db).Exec(t.Context(), limits, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	y.share("h0", "b", 100)
	c := y.claimant(2)
	c.Namespaces = []string{"a", "b"}
	y.exec(`UPDATE tasker.workflow_steps SET namespace = 'c' WHERE handler = 'h1'`)
	y.takes(c, 10, 100) // all of b
	y.exec(`UPDATE tasker.workflow_steps SET namespace = 'a' WHERE step_uuid IN (SELECT step_uuid FROM tasker.workflow_steps WHERE handler = 'h1' LIMIT 4)`)
	if claimed := y.takes(c, 10, 10); claimed["a"] != 4 {
		t.Errorf("took %v, want all 4 of a", claimed)
	}
}

// An idle namespace gets no credit for its idle time.
func TestANamespaceThatWasIdleIsNotOwed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newFairScheduler(-1)
	s.now = func() time.Time { return now }
	of := func(namespace string, n int) (r ClaimResult) {
		for range n {
			r.Steps = append(r.Steps, Claimed{Assignment: tasker.Assignment{Namespace: namespace}})
		}
		return r
	}
	for range 50 { // b is offered and empty
		s.advance(s.startOrder([]string{"a", "b"}), of("a", 10))
	}
	if got := s.startOrder([]string{"a", "b"}); got.turns[0]-got.turns[1] > 1 {
		t.Errorf("empty namespace b has credit: turns %v", got.turns)
	}
	if got := s.startOrder([]string{"a", "new"}); got.turns[1] != got.turns[0] {
		t.Errorf("a new namespace starts at %v, want the turn of the others: %v", got.turns[1], got.turns[0])
	}
	now = now.Add(time.Minute) // without claims for b
	for range 50 {
		s.advance(s.startOrder([]string{"a"}), of("a", 10))
		s.advance(s.startOrder([]string{"a", "c"}), of("a", 10))
	}
	if got := s.startOrder([]string{"a", "b"}); got.turns[1] != got.turns[0] {
		t.Errorf("idle namespace b has credit: turns %v", got.turns)
	}
	// The numbers of namespaces and queues are limited.
	for i := range maxRemembered + 10 {
		s.startOrder([]string{fmt.Sprint(i), "x"})
	}
	if len(s.of) > maxRemembered+1 {
		t.Errorf("%d namespaces are remembered", len(s.of))
	}
	s.age = time.Minute
	for i := range maxRemembered + 10 {
		s.claimAge(Claimant{Handlers: []string{fmt.Sprint(i)}})
	}
	if len(s.byAge) > maxRemembered {
		t.Errorf("%d sets of queues are remembered", len(s.byAge))
	}
}

// Some claims return old steps before more urgent ones, oldest first, so that no step starves.
func TestWhatHasWaitedLongIsHandedOut(t *testing.T) {
	t.Parallel()
	for name, handlers := range map[string]int{
		"one queue": 1, "several queues": 2, "many queues": manyQueues + 1, "from heads": 3, "shared": 1, "of templates": 2, "with weights": 1, "many, with weights": manyQueues + 1,
		"aside, shared": 1, "aside, of templates": 2, "aside, with weights": manyQueues + 1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 1, 60)
			if _, err := admin(t, y.db).Exec(t.Context(), limitsOfAll[strings.TrimPrefix(strings.TrimPrefix(name, "many, "), "aside, ")], pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			y.exec(`UPDATE tasker.workflow_steps SET priority = 10 WHERE step_uuid IN (SELECT step_uuid FROM tasker.workflow_steps ORDER BY state_since DESC LIMIT 50)`)
			y.exec(`UPDATE tasker.workflow_steps SET state_since = state_since - interval '2 minutes' WHERE priority = 0`)
			y.exec(`UPDATE tasker.workflow_steps SET priority = 1 WHERE step_uuid = (SELECT step_uuid FROM tasker.workflow_steps WHERE priority = 0 ORDER BY state_since DESC LIMIT 1)`)
			if name == "from heads" {
				y.findHeads()
			}
			if strings.HasPrefix(name, "aside") {
				y.parkAll()
			}
			now := time.Now()
			y.db.turns.now = func() time.Time { return now }
			var got []int
			for range 3 {
				r, err := y.db.ClaimSteps(t.Context(), y.claimant(handlers), 3)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range r.Steps {
					got = append(got, priorityOf(y, s.StepUUID))
				}
				now = now.Add(agingInterval)
			}
			if want := "[0 0 0 0 0 0 0 0 0]"; fmt.Sprint(got) != want {
				t.Errorf("handed out steps of the priorities %v, want %s: the oldest first", got, want)
			}
			y.db.turns.age = -1 // disabled
			r, err := y.db.ClaimSteps(t.Context(), y.claimant(handlers), 1)
			if err != nil || len(r.Steps) != 1 || priorityOf(y, r.Steps[0].StepUUID) != 10 {
				t.Errorf("claimed %v (%v), want a step of priority 10", r.Steps, err)
			}
		})
	}
}

// parkAll parks all ready steps under the only key.
func (y *yard) parkAll() {
	y.Helper()
	y.exec(`INSERT INTO tasker.limit_keys (limit_id, key) SELECT limit_id, CASE kind WHEN 'name' THEN 'k' ELSE '' END FROM tasker.limits`)
	y.exec(`INSERT INTO tasker.held_steps (limit_key_id, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes) SELECT k.limit_key_id, namespace, handler, priority, state_since, step_uuid, task_uuid, queue_ttl_ms, inputs_bytes FROM tasker.ready_steps CROSS JOIN tasker.limit_keys k`)
	y.exec(`DELETE FROM tasker.ready_steps`)
}

func priorityOf(y *yard, step tasker.ID) int {
	y.Helper()
	n, err := queryValue[int](y.Context(), y.db.pool, `SELECT priority FROM tasker.workflow_steps WHERE step_uuid = $1`,
		step)
	if err != nil {
		y.Fatal(err)
	}
	return n
}

// A report that cannot claim, because of holds or limits, makes the next claim go by age. A report
// that only claims the steps it makes ready does not.
func TestAReportLeavesWhatHasWaitedToTheNextClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before    string
		onlyReady bool
	}{
		"held":       {before: `INSERT INTO tasker.claim_conditions VALUES (gen_random_uuid())`},
		"limits":     {before: limitsOfAll["shared"]},
		"only ready": {onlyReady: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{PriorityAge: 30 * time.Second})
			done := chain(t, db, 2)
			if _, err := admin(t, db).Exec(t.Context(), c.before, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			execute(t, db, addWaiting, 0)
			execute(t, db, addWaiting, 5)
			if _, err := admin(t, db).Exec(t.Context(), `UPDATE tasker.workflow_steps SET state_since = now() WHERE priority = 5`); err != nil {
				t.Fatal(err)
			}
			next := NextClaim{Claimant: Claimant{WorkerUUID: *done.Worker, Namespaces: []string{"a"}, Handlers: []string{"x"}, Lease: time.Minute}, Limit: 1, OnlyReady: c.onlyReady}
			_, claimed, err := db.Report(t.Context(), []core.Outcome{done}, &next)
			if err != nil {
				t.Fatal(err)
			}
			if len(claimed.Steps) == 0 {
				if claimed, err = db.ClaimSteps(t.Context(), next.Claimant, 1); err != nil {
					t.Fatal(err)
				}
			}
			if len(claimed.Steps) != 1 || claimed.Steps[0].Priority != 0 || claimed.Steps[0].Name != "waiting" {
				t.Errorf("claimed %+v, want what has waited for a minute", claimed.Steps)
			}
		})
	}
}

// One claim in eight goes by age while such claims find old steps, otherwise one per second.
func TestHowOftenClaimsGoByAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newFairScheduler(time.Minute)
	s.now = func() time.Time { return now }
	c := Claimant{Namespaces: []string{"a"}, Handlers: []string{"x"}}
	count := func(found bool) (n int) {
		for range 800 {
			if age, queues := s.claimAge(c); age > 0 {
				s.advance(&fairOrder{namespaces: c.Namespaces, age: age, queues: queues}, ClaimResult{old: found})
				n++
			}
		}
		return n
	}
	if n := count(false); n != 1 {
		t.Errorf("%d claims of a second went by age, want 1", n)
	}
	now = now.Add(agingInterval)
	if n := count(true); n < 50 || n > 160 {
		t.Errorf("%d claims of 800 went by age, want about 100", n)
	}
}

// Two concurrent claims together get all steps, and neither gets less while some remain.
func TestTwoClaimsAtOnceTakeAllThereIs(t *testing.T) {
	t.Parallel()
	y := newYard(t, 20, 15)
	for round, want := range []int{200, 100} {
		var sum [2]int
		var both sync.WaitGroup
		for i := range sum {
			both.Go(func() {
				r, err := y.db.ClaimSteps(t.Context(), y.claimant(20), 100)
				if err != nil {
					t.Error(err)
				}
				sum[i] = len(r.Steps)
			})
		}
		both.Wait()
		if sum[0]+sum[1] != want {
			t.Errorf("round %d: two claims of 100 took %v, want %d together", round+1, sum, want)
		}
	}
}

// Weights are stored with their author, their number is limited, and the audit log has each change.
func TestNamespaceWeights(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, w := range []float64{2, 0.5} {
		got, err := db.SetNamespaceWeight(t.Context(), "shop", w, "somebody")
		if err != nil || got.Namespace != "shop" || got.Weight != w || got.SetBy != "somebody" || got.SetAt.IsZero() {
			t.Errorf("set %+v (%v)", got, err)
		}
	}
	if list, err := db.NamespaceWeights(t.Context()); err != nil || len(list) != 1 || list[0].Weight != 0.5 {
		t.Errorf("the weights are %+v (%v)", list, err)
	}
	if _, err := admin(t, db).Exec(t.Context(), `INSERT INTO tasker.namespaces (namespace, weight, set_by) SELECT 'n' || i, 2, '' FROM generate_series(2, $1::int) i`, tasker.MaxNamespaceWeights); err != nil {
		t.Fatal(err)
	}
	if _, err := db.SetNamespaceWeight(t.Context(), "more", 2, "somebody"); tasker.CodeOf(err) != tasker.Conflict {
		t.Errorf("one too many: %v", err)
	}
	if _, err := db.SetNamespaceWeight(t.Context(), "shop", 4, "somebody"); err != nil {
		t.Errorf("a weight that is there cannot be changed: %v", err)
	}
	if err := db.DeleteNamespaceWeight(t.Context(), "shop", "somebody"); err != nil {
		t.Error(err)
	}
	if err := db.DeleteNamespaceWeight(t.Context(), "shop", "somebody"); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
	audit, err := collectColumn[string](t.Context(), db.pool, `SELECT format('%s %s %s %s', actor, action, subject, data) FROM tasker.audit_events ORDER BY audit_id`)
	if err != nil || len(audit) != 4 || audit[1] != `somebody namespace.weighted shop {"was": 2, "weight": 0.5}` || audit[3] != `somebody namespace.unweighted shop {"was": 4}` {
		t.Errorf("the audit log has %q (%v)", audit, err)
	}
}

// The claim of a report respects turns.
func TestTheClaimOfAReportTakesItsTurn(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2, 30)
	y.share("h1", "b", 5)
	c := y.claimant(2)
	c.Namespaces = []string{"a", "b"}
	claimed := map[string]int{}
	for range 4 {
		_, r, err := y.db.Report(t.Context(), nil, &NextClaim{Claimant: c, Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Steps {
			claimed[s.Namespace]++
		}
	}
	if claimed["a"] != 10 || claimed["b"] != 10 {
		t.Errorf("took %v, want 10 of each", claimed)
	}
}
