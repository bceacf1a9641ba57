package cases_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A case that came of a split is split like any other, also after it was merged back.
func TestASplitOfASplit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck("upstream said nope for order 17 in zone east", "upstream said nope for order 181 in zone east", "upstream said nope for order 182 in zone east")
	c := h.only()
	split := func(id tasker.ID, literal string, want ...int64) (list []tasker.Case) {
		t.Helper()
		n, err := h.Cases.Split(t.Context(), id, tasker.CaseSplit{Literal: literal, Actor: "ann", Reason: "another one"})
		h.Must(err)
		h.FindCases()
		list = h.list(tasker.CaseFilter{})
		var got []int64
		for _, c := range list {
			got = append(got, c.Entries)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d are to leave by %q: cases of %v, want %v", n, literal, got, want)
		}
		return list
	}
	first := split(c.ID, "order 18", 2, 1)[0]
	split(first.ID, "order 182", 1, 1, 1)
	h.Must(h.Cases.Merge(t.Context(), first.ID, c.ID, "ann", "taken back"))
	split(c.ID, "order 18", 1, 1, 1)
	h.stuck("upstream said nope for order 182 in zone east") // they are told apart from now on, too
	if n := len(h.list(tasker.CaseFilter{})); n != 3 {
		t.Errorf("%d cases, want 3", n)
	}
}

func TestSplitsOneOfTheOtherAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(orders(503, 2)...)
	c := h.only()
	// The deepest of as many splits as there may be has one of the two.
	h.Exec(`
		WITH RECURSIVE deep AS (
			SELECT f.*, 0 AS depth FROM tasker.case_fingerprints f
			UNION ALL
			SELECT md5(concat_ws(E'\x1f', fingerprint, 'error_type', 'x'))::uuid, case_id, home_case_id, version, error_type, error_pattern, first_seen_at, depth + 1
			FROM deep WHERE depth < $1
		),
		prints AS (
			INSERT INTO tasker.case_fingerprints SELECT fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at FROM deep WHERE depth > 0
		),
		splits AS (
			INSERT INTO tasker.case_refinements (case_id, fingerprint, field, literal, actor, reason, applied_at)
			SELECT case_id, fingerprint, 'error_type', 'x', 'ann', 'deep', now() FROM deep WHERE depth < $1
		)
		UPDATE tasker.case_members m SET fingerprint = d.fingerprint FROM deep d WHERE d.depth = $1 AND m.error_message LIKE '%ORDER-39001'`, tasker.MaxRefinements)
	_, err := h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Literal: "ORDER-39001", Actor: "ann", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "is the result of 20 nested splits")
	_, err = h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Literal: "ORDER-39000", Actor: "ann", Reason: "x"})
	h.Must(err)
}

// A case rests until somebody wakes it or its time is over, however much it grows, unless that was said.
func TestSnoozeOutlastsGrowth(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(orders(503, 1)...)
	c := h.only()
	_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Snooze: new(time.Now().Add(time.Hour)), Actor: "ann"})
	h.Must(err)
	h.Exec(`INSERT INTO tasker.case_members (dlq_entry_uuid, namespace, fingerprint, fingerprint_version, opened_at, task_name, task_version, step_name, dlq_reason, detail_code)
		SELECT gen_random_uuid(), namespace, fingerprint, fingerprint_version, opened_at, task_name, task_version, step_name, dlq_reason, detail_code
		FROM tasker.case_members, generate_series(1, 100)`)
	for range 2 {
		h.FindCases()
		if c = h.only(); c.Entries != 101 || c.State != tasker.CaseResting || c.SnoozedUntil == nil {
			t.Errorf("%d are open: it is %s until %v", c.Entries, c.State, c.SnoozedUntil)
		}
	}
}

// Ownership and snooze end when a case is resolved: it comes back regressed and unowned.
func TestACaseComesBackUnowned(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]tasker.CaseUpdate{
		"owned":             {Owner: new("ann"), OwnedFor: 4 * time.Hour, Actor: "ann"},
		"snoozed":           {Snooze: new(time.Now().Add(time.Hour)), Actor: "ann"},
		"owned and snoozed": {Owner: new("ann"), Snooze: new(time.Now().Add(time.Hour)), Actor: "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			task := h.stuck(orders(503, 1)...)[0]
			c, err := h.Cases.Update(t.Context(), h.only().ID, u)
			h.Must(err)
			h.operate(task, tasker.ResolveManually)
			h.end(task)
			h.FindCases()
			d, err := h.Cases.FindDetail(t.Context(), c.ID)
			h.Must(err)
			if d.State != tasker.CaseResolved || d.Owner != "" || d.SnoozedUntil != nil {
				t.Fatalf("after its end: %+v", d.Case)
			}
			if last := d.History[0]; u.Owner != nil && !strings.Contains(string(last.Metadata), `"owner": "ann"`) {
				t.Errorf("the history has no earlier owner: %s", last.Metadata)
			}
			_, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("bo"), Actor: "bo"})
			h.WantCode(err, tasker.Conflict, "is resolved")
			h.complete()
			h.stuck(orders(503, 2)[1])
			for range 2 { // it stays so
				if got := h.only(); got.ID != c.ID || got.State != tasker.CaseRegressed || got.Owner != "" || got.OwnedUntil != nil || got.SnoozedUntil != nil {
					t.Errorf("it came back as %+v", got)
				}
				h.FindCases()
			}
			if n := len(h.list(tasker.CaseFilter{Unowned: true, CaseState: tasker.CaseRegressed})); n != 1 {
				t.Errorf("%d regressed cases are unowned", n)
			}
			_, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("bo"), Actor: "bo"})
			h.Must(err)
			if got := h.only(); got.State != tasker.CaseOngoing || got.Owner != "bo" {
				t.Errorf("owned again: %+v", got)
			}
		})
	}
}

// An act from before a case regressed does not count as one for it.
func TestEarlierActsDoNotEndARegression(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`UPDATE tasker.workers SET version = '1.5.0'`)
	task := h.stuck(orders(503, 1)...)[0]
	c := h.only()
	h.operate(task, tasker.ResolveManually)
	_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{FixedIn: new("1.6.0"), Actor: "ann"})
	h.Must(err)
	h.end(task)
	h.FindCases()
	h.complete()
	second := h.stuck(orders(503, 2)[1])[0] // an old worker
	h.operate(second, tasker.ResetForRetry)
	h.fail(orders(503, 2)[1])
	h.FindCases()
	h.Exec(`UPDATE tasker.workers SET version = '1.6.0'`)
	third := h.stuck(orders(503, 3)[2])[0]
	h.FindCases()
	if got := h.only(); got.State != tasker.CaseRegressed {
		t.Errorf("it is %s, want regressed", got.State)
	}
	h.operate(third, tasker.ResetForRetry)
	h.FindCases()
	if got := h.only(); got.State != tasker.CaseOngoing {
		t.Errorf("after an act it is %s, want ongoing", got.State)
	}
}

// What is resolved cannot rest: when it failed again, nobody would be told.
func TestResolvedCaseCannotBeSnoozed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.stuck(orders(503, 1)...)[0]
	c := h.only()
	h.operate(task, tasker.ResolveManually)
	h.end(task)
	h.FindCases()
	_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Snooze: new(time.Now().Add(time.Hour)), Actor: "ann"})
	h.WantCode(err, tasker.Conflict, "is resolved")
	_, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Snooze: &time.Time{}, Actor: "ann"})
	h.Must(err)
}

// A merge is taken back with the cases that had been merged before.
func TestTheUndoOfAMergeTakesEarlierMergesAlong(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(append(append(orders(503, 3), orders(504, 2)...), orders(404, 1)...)...)
	list := h.list(tasker.CaseFilter{})
	a, b, c := list[2].ID, list[1].ID, list[0].ID
	h.Must(h.Cases.Merge(t.Context(), a, b, "ann", "one"))
	h.Must(h.Cases.Merge(t.Context(), b, c, "ann", "one outage"))
	h.Must(h.Cases.Unmerge(t.Context(), b, "ann", "two after all"))
	h.FindCases()
	list = h.list(tasker.CaseFilter{})
	if len(list) != 2 || list[0].Entries != 3 || list[1].Entries != 3 {
		t.Errorf("%+v", list)
	}
}

// What somebody works on keeps no other investigation from its case.
func TestALockedInvestigationDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Create("order")
	h.Create("order")
	h.fail(orders(503, 2)...)
	conn, err := pgx.Connect(t.Context(), h.URL)
	h.Must(err)
	t.Cleanup(func() { h.Must(conn.Close(context.WithoutCancel(t.Context()))) })
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT FROM tasker.case_members ORDER BY opened_at LIMIT 1 FOR UPDATE`)
	h.Must(err)
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := h.Cases.Classify(limited); n != 1 || err != nil {
		t.Errorf("%d found beside one that is locked: %v", n, err)
	}
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	h.Must(err)
	if n, err := h.Cases.Classify(t.Context()); n != 1 || err != nil {
		t.Errorf("%d found after that: %v", n, err)
	}
}

// A case that is open again by a worker of before the repair regresses when one of after it fails, unless somebody has it.
func TestWhatIsOpenAgainRegresses(t *testing.T) {
	t.Parallel()
	for name, owned := range map[string]bool{"nobody has it": false, "somebody has it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Exec(`UPDATE tasker.workers SET version = '1.5.0'`)
			task := h.stuck(orders(503, 1)...)[0]
			c := h.only()
			h.operate(task, tasker.ResolveManually)
			_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{FixedIn: new("1.6.0"), Actor: "ann"})
			h.Must(err)
			h.end(task)
			h.FindCases()
			h.complete()
			h.stuck(orders(503, 2)[1])
			if got := h.only(); got.ID != c.ID || got.State != tasker.CaseOngoing {
				t.Fatalf("an old worker: %+v", got)
			}
			h.Exec(`UPDATE tasker.workers SET version = '1.6.0'`)
			want := tasker.CaseRegressed
			if owned {
				_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("ann"), Actor: "ann"})
				h.Must(err)
				want = tasker.CaseOngoing
			}
			h.stuck(orders(503, 3)[2])
			if got := h.only(); got.State != want || got.Entries != 2 {
				t.Errorf("a new worker: %s, %d open", got.State, got.Entries)
			}
		})
	}
}
