package cases_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// A harness has tasks of one step that fail for good with messages.
type harness struct {
	*enginetest.Harness
	worker tasker.ID
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: enginetest.New(t)}
	h.Template("order", enginetest.Step("charge"), enginetest.Step("ship", "charge"))
	h.worker = h.RegisterWorker("run")
	return h
}

// fail claims what is there and fails each step for good with a message, in turn.
func (h *harness) fail(messages ...string) {
	h.Helper()
	for n := 0; n < len(messages); {
		claimed := h.claim(len(messages) - n)
		if len(claimed) == 0 {
			h.Fatalf("%d of %d steps were there to fail", n, len(messages))
		}
		for _, a := range claimed {
			h.failed(a, messages[n])
			n++
		}
	}
}

func (h *harness) claim(most int) []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), h.worker, most, 0)
	h.Must(err)
	return list
}

func (h *harness) report(o ...tasker.Outcome) {
	h.Helper()
	r, err := h.Engine.Report(h.Context(), h.worker, o, 0)
	h.Must(err)
	if len(r.Accepted) != len(o) {
		h.Fatalf("receipt %+v", r)
	}
}

func (h *harness) failed(a tasker.Assignment, message string) {
	h.Helper()
	h.report(tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Type: "GatewayError", Message: message}})
}

// complete does all that is there.
func (h *harness) complete() {
	h.Helper()
	for _, a := range h.claim(100) {
		h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: []byte(`{}`)})
	}
}

// operate does something to the step charge of a task.
func (h *harness) operate(task tasker.ID, action tasker.StepAction) {
	h.Helper()
	steps, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	for _, s := range steps {
		if s.Name == "charge" {
			_, err := h.Engine.OperateStep(h.Context(), task, s.UUID, tasker.ActionRequest{Action: action, Actor: "ann", Reason: "repaired"})
			h.Must(err)
		}
	}
}

// stuck creates tasks that fail with the messages, and finds their cases.
func (h *harness) stuck(messages ...string) []tasker.ID {
	h.Helper()
	var tasks []tasker.ID
	for range messages {
		tasks = append(tasks, h.Create("order"))
	}
	h.fail(messages...)
	h.FindCases()
	return tasks
}

func (h *harness) list(f tasker.CaseFilter) []tasker.Case {
	h.Helper()
	f.Limit = 100
	list, _, err := h.DB.Cases(h.Context(), f)
	h.Must(err)
	return list
}

func (h *harness) only() tasker.Case {
	h.Helper()
	list := h.list(tasker.CaseFilter{})
	if len(list) != 1 {
		h.Fatalf("%d cases, want one: %+v", len(list), list)
	}
	return list[0]
}

func orders(status int, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("HTTP %d from https://pay.example/charge/ORDER-%d", status, 39000+i))
	}
	return list
}

func TestOneCauseIsOneCase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(append(orders(503, 5), orders(404, 3)...)...)
	list := h.list(tasker.CaseFilter{})
	if len(list) != 2 || list[0].Entries != 5 || list[1].Entries != 3 {
		t.Fatalf("%+v; want cases of 5 and 3", list)
	}
	for _, c := range list {
		if c.State != tasker.CaseNew || c.StepName != "charge" || c.Waiting != c.Entries || c.EntryUUID.IsZero() {
			t.Errorf("case %+v", c)
		}
	}
	if !strings.Contains(list[0].ErrorPattern, "503") || !strings.Contains(list[1].ErrorPattern, "404") {
		t.Errorf("patterns %q and %q", list[0].ErrorPattern, list[1].ErrorPattern)
	}
	why, err := h.Cases.Why(t.Context(), list[0].ID)
	h.Must(err)
	if why.MessagesExamined != 5 || len(why.Masks) == 0 || why.Masks[0].Different != 5 || len(why.Rules) == 0 {
		t.Errorf("why: %+v", why)
	}
}

// What people do to the steps of tasks moves the investigations of a case, without a change of the
// case itself. Items of one map step that fail alike are one case, wherever they are in their
// lists. Its successes are those of other items.
func TestItemsThatFailAlikeAreOneCase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`UPDATE tasker.workers SET max_concurrency = 200`)
	items := enginetest.Step("m")
	items.Type, items.Over = tasker.MapStep, "[1, 2, 3, 4, 5, 6]"
	h.Template("list", items)
	create := func(n int) {
		for range n {
			h.Create("list")
		}
		_, err := h.Engine.Tick(t.Context())
		h.Must(err)
	}
	create(2)
	for _, a := range h.claim(11) { // an item of one is not complete
		h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: []byte(`{}`)})
	}
	create(12)
	failed := map[tasker.ID]bool{}
	for _, a := range h.claim(100) {
		if place := len(failed) % 6; !failed[a.TaskUUID] && a.Name == tasker.ItemName("m", place) {
			failed[a.TaskUUID] = true
			h.failed(a, "gateway answered 503")
		} else {
			h.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: []byte(`{}`)})
		}
	}
	h.FindCases()
	c := h.only()
	if c.StepName != "m" || int(c.Entries) != len(failed) || len(failed) < 7 {
		t.Errorf("the case is of step %s and has %d investigations of %d", c.StepName, c.Entries, len(failed))
	}
	got, err := h.Cases.Changes(t.Context(), c.ID)
	if err != nil || got.Successes != 2 || got.LastSuccess == nil {
		t.Errorf("%d successes are compared, the last is %+v, %v", got.Successes, got.LastSuccess, err)
	}
}

// The cause of a long error may be at its end, or in the middle, which is not stored. Both ends are stored.
func TestLongErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	frames := strings.Repeat("  File \"/app/billing/charge.py\", line 88, in charge\n    return convert(amount)\n", 300)
	python := "Traceback (most recent call last):\n" + frames
	green := strings.Repeat("green blue ", 1000)
	java := "java.lang.IllegalStateException: cannot settle\n" + strings.Repeat("\tat com.example.Settle.run(Settle.java:88)\n", 300) + "Caused by: java.io.IOException: "
	h := newHarness(t)
	tasks := h.stuck(python+"KeyError: 'currency'", python+"RecursionError: maximum recursion depth exceeded", python+"KeyError: 'currency'",
		green+"disk full "+green, green+"quota exceeded "+green, java+"disk full", java+"broken pipe", java+"disk full",
		strings.Repeat("red ", 700)+"order 4711 "+strings.Repeat("red ", 700), strings.Repeat("red ", 700)+"order 90210 "+strings.Repeat("red ", 700),
		strings.Repeat("red ", 700)+"voucher "+strings.Repeat("red ", 700))
	var names []string
	for _, c := range h.list(tasker.CaseFilter{}) {
		names = append(names, c.ErrorPattern)
	}
	if len(names) != 8 {
		t.Errorf("%d cases, want 8: %.80q", len(names), names)
	}
	for _, name := range []string{"KeyError: 'currency'", "RecursionError: maximum recursion depth exceeded", "java.io.IOException: disk full", "java.io.IOException: broken pipe"} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, name) }) {
			t.Errorf("no case is named after %s: %.80q", name, names)
		}
	}
	steps, err := h.DB.Steps(t.Context(), tasks[1])
	h.Must(err)
	if stored := string(steps[0].Error); !strings.Contains(stored, "Traceback (most recent") || !strings.Contains(stored, "RecursionError: maximum recursion depth exceeded\"") ||
		!strings.Contains(stored, " bytes are left out, digest ") || len(stored) > 9<<10 {
		t.Errorf("stored are %d bytes: %s", len(stored), stored)
	}
	list, _, err := h.DB.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 100})
	h.Must(err)
	titles := map[string]int{}
	for _, e := range list {
		titles[e.ErrorMessage]++
	}
	if titles["KeyError: 'currency'"] != 2 || titles["RecursionError: maximum recursion depth exceeded"] != 1 || titles["Caused by: java.io.IOException: disk full"] != 2 {
		t.Errorf("the list shows %.80v", titles)
	}
}

func TestRepairsAreCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(orders(503, 4)...)
	for _, task := range tasks[:3] {
		h.operate(task, tasker.ResetForRetry)
	}
	if c := h.only(); c.Entries != 4 || c.Proving != 3 || c.Waiting != 1 || c.FailedAgain != 0 {
		t.Errorf("after three repairs: %+v", c.CaseCounts)
	}
	h.fail(append(orders(503, 1), orders(404, 1)...)...)
	h.FindCases()
	list := h.list(tasker.CaseFilter{})
	if len(list) != 2 || list[0].Entries != 3 || list[0].Proving != 1 || list[0].Waiting != 1 || list[0].FailedAgain != 1 {
		t.Fatalf("one failed again: %+v", list)
	}
	if c := list[1]; c.Entries != 1 || c.FailedAgain != 1 || !strings.Contains(c.ErrorPattern, "404") {
		t.Errorf("what failed otherwise is of another case: %+v", c)
	}
}

func (h *harness) end(task tasker.ID) {
	h.Helper()
	e, err := h.DB.EntryOfTask(h.Context(), task)
	h.Must(err)
	status, notes, by := tasker.EntryManuallyResolved, "repaired", "ann"
	_, _, err = h.DLQ.Update(h.Context(), e.UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: "ann"})
	h.Must(err)
}

func TestResolvedAndRegressed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fixedIn string
		early   bool // the attempt began before the case was resolved
		want    tasker.CaseState
	}{
		"failed again":                         {"", false, tasker.CaseRegressed},
		"an attempt from before":               {"", true, tasker.CaseOngoing},
		"a worker before the repair":           {"1.6.0", false, tasker.CaseOngoing},
		"a worker of the version that repairs": {"1.5.0", false, tasker.CaseRegressed},
		"versions that cannot be compared":     {"spring", false, tasker.CaseRegressed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.Exec(`UPDATE tasker.workers SET version = '1.5.0'`)
			task := h.stuck(orders(503, 1)...)[0]
			c := h.only()
			h.operate(task, tasker.ResolveManually)
			if tt.fixedIn != "" {
				_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{FixedIn: &tt.fixedIn, Actor: "ann"})
				h.Must(err)
			}
			var late tasker.Assignment
			if tt.early {
				h.complete()
				h.Create("order")
				late = h.claim(1)[0]
			}
			h.end(task)
			h.FindCases()
			if list := h.list(tasker.CaseFilter{}); len(list) != 0 {
				t.Fatalf("open after the end: %+v", list)
			}
			resolved := h.list(tasker.CaseFilter{CaseState: tasker.CaseResolved})
			if len(resolved) != 1 || resolved[0].ID != c.ID || resolved[0].ResolvedAt == nil {
				t.Fatalf("resolved: %+v", resolved)
			}
			if tt.early {
				h.failed(late, orders(503, 2)[1])
			} else {
				h.complete()
				h.Create("order")
				h.fail(orders(503, 2)[1])
			}
			h.FindCases()
			if again := h.only(); again.ID != c.ID || again.State != tt.want {
				t.Errorf("it is %s, want %s", again.State, tt.want)
			}
		})
	}
}

func TestOwnersAndSnoozes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(orders(503, 2)...)
	c := h.only()
	got, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("ann"), OwnedFor: time.Hour, Notes: new("asking"), Actor: "ann", IfUnchangedSince: &c.UpdatedAt})
	h.Must(err)
	if got.Owner != "ann" || got.State != tasker.CaseOngoing || got.OwnedUntil == nil {
		t.Errorf("owned: %+v", got)
	}
	_, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("bo"), Actor: "bo", IfUnchangedSince: &c.UpdatedAt})
	h.WantCode(err, tasker.Conflict, "with owner ann")
	if n := len(h.list(tasker.CaseFilter{Unowned: true})); n != 0 {
		t.Errorf("%d unowned", n)
	}
	if n := len(h.list(tasker.CaseFilter{Owner: "ann"})); n != 1 {
		t.Errorf("%d of ann", n)
	}
	h.Exec(`UPDATE tasker.cases SET owned_until = now() - interval '1 second'`)
	if got := h.only(); got.Owner != "" {
		t.Errorf("still owned by %s", got.Owner)
	}
	got, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Snooze: new(time.Now().Add(time.Hour)), SnoozeThreshold: new(int64(2)), Actor: "ann"})
	h.Must(err)
	if got.State != tasker.CaseResting {
		t.Errorf("snoozed: %s", got.State)
	}
	h.FindCases()
	if got := h.only(); got.State != tasker.CaseResting {
		t.Errorf("two open of two: %s", got.State)
	}
	h.stuck(orders(503, 3)[2])
	if got := h.only(); got.State != tasker.CaseEscalating || got.SnoozedUntil != nil {
		t.Errorf("three open of two: %+v", got)
	}
	d, err := h.Cases.FindDetail(t.Context(), c.ID)
	h.Must(err)
	var events []string
	for _, e := range d.History {
		events = append(events, e.Event)
	}
	if got, want := strings.Join(events, " "), "state_changed state_changed snoozed state_changed owned opened"; got != want {
		t.Errorf("history %q, want %q", got, want)
	}
	var audited int
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT count(*) FROM tasker.audit_events WHERE subject = $1`, c.ID.String()).Scan(&audited))
	if audited != 4 {
		t.Errorf("%d lines in the audit log, want 4", audited)
	}
}

func TestUpdatesThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(orders(503, 1)...)
	c := h.only()
	now := time.Now()
	for name, tt := range map[string]struct {
		u    tasker.CaseUpdate
		want string
	}{
		"nothing":               {tasker.CaseUpdate{}, "nothing to change"},
		"time without an owner": {tasker.CaseUpdate{OwnedFor: time.Hour, Notes: new("x")}, "owned_for"},
		"owned for nothing":     {tasker.CaseUpdate{Owner: new("a"), OwnedFor: 500 * time.Microsecond}, "owned_for"},
		"owned too long":        {tasker.CaseUpdate{Owner: new("a"), OwnedFor: 8 * 24 * time.Hour}, "owned_for"},
		"above without a time":  {tasker.CaseUpdate{SnoozeThreshold: new(int64(3)), Notes: new("x")}, "above"},
		"above nothing":         {tasker.CaseUpdate{SnoozeThreshold: new(int64(-3)), Snooze: new(now.Add(time.Hour))}, "above"},
		"rest in the past":      {tasker.CaseUpdate{Snooze: new(now.Add(-time.Hour))}, "future"},
		"rest too long":         {tasker.CaseUpdate{Snooze: new(now.Add(8 * 24 * time.Hour))}, "at most"},
		"owner too long":        {tasker.CaseUpdate{Owner: new(strings.Repeat("x", 256))}, "owner"},
		"notes with NUL":        {tasker.CaseUpdate{Notes: new("a\x00b")}, "notes"},
	} {
		_, err := h.Cases.Update(t.Context(), c.ID, tt.u)
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want Invalid with %q", name, err, tt.want)
		}
	}
	_, err := h.Cases.Update(t.Context(), tasker.NewID(), tasker.CaseUpdate{Notes: new("x")})
	h.WantCode(err, tasker.NotFound)
	h.WantCode(h.Cases.Merge(t.Context(), c.ID, c.ID, "ann", "x"), tasker.Invalid, "itself")
	h.WantCode(h.Cases.Merge(t.Context(), c.ID, tasker.NewID(), "ann", "x"), tasker.NotFound)
	h.WantCode(h.Cases.Merge(t.Context(), c.ID, tasker.NewID(), "ann", ""), tasker.Invalid, "reason")
	h.WantCode(h.Cases.Unmerge(t.Context(), c.ID, "ann", "x"), tasker.Conflict, "not merged")
	_, err = h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Field: "worker", Literal: "x", Reason: "x"})
	h.WantCode(err, tasker.Invalid, "field")
	_, err = h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Literal: "nowhere", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "there is nothing to split off")
	_, err = h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Literal: "HTTP", Reason: "x"})
	h.WantCode(err, tasker.Conflict, "would leave the case empty")
}

// People who merge and split cases do not keep the cases of others from being found: who finds them waits for a turn.
func TestCasesAreFoundBesideMerges(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Create("order")
	h.fail("HTTP 503")
	conn, err := pgx.Connect(t.Context(), h.URL)
	h.Must(err)
	t.Cleanup(func() { h.Must(conn.Close(context.WithoutCancel(t.Context()))) })
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('tasker.cases', 0))`)
	h.Must(err)
	found := make(chan int, 1)
	go func() {
		var n int
		var err error
		for n == 0 && err == nil { // it waits a second for its turn each time
			n, err = h.Cases.Classify(t.Context())
		}
		found <- n
	}()
	h.Eventually("it waits", func() bool {
		return h.Count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1
	})
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	h.Must(err)
	if n := <-found; n != 1 {
		t.Errorf("the cases of %d investigations are found, want 1", n)
	}
	h.WantCode(h.Cases.Merge(t.Context(), tasker.NewID(), tasker.NewID(), "ann", "no such cases"), tasker.NotFound)
}

func TestMergeAndItsUndo(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(append(orders(503, 3), orders(504, 2)...)...)
	list := h.list(tasker.CaseFilter{})
	a, b := list[0], list[1]
	h.Must(h.Cases.Merge(t.Context(), b.ID, a.ID, "ann", "one outage"))
	if c := h.only(); c.ID != a.ID || c.Entries != 5 {
		t.Errorf("merged: %+v", c)
	}
	h.WantCode(h.Cases.Merge(t.Context(), b.ID, a.ID, "ann", "again"), tasker.Conflict, "already")
	_, err := h.Cases.Update(t.Context(), b.ID, tasker.CaseUpdate{Notes: new("x"), Actor: "ann"})
	h.WantCode(err, tasker.Conflict, a.ID.String())
	h.stuck(orders(504, 1)...)
	if c := h.only(); c.Entries != 6 {
		t.Errorf("what comes later belongs to it, too: %+v", c)
	}
	h.Must(h.Cases.Unmerge(t.Context(), b.ID, "ann", "two after all"))
	h.FindCases()
	counts := map[tasker.ID]int64{}
	for _, c := range h.list(tasker.CaseFilter{}) {
		counts[c.ID] = c.Entries
	}
	if counts[a.ID] != 3 || counts[b.ID] != 3 || len(counts) != 2 {
		t.Errorf("unmerged: %v", counts)
	}
}

func TestSplitAndItsUndo(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck("upstream said nope for order 17 in zone east", "upstream said nope for order 18 in zone east")
	c := h.only()
	h.Exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease, last_heartbeat_at)
		SELECT gen_random_uuid(), 'other', namespaces, handlers, '2.0.0', max_concurrency, heartbeat_interval, lease, now() FROM tasker.workers`)
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT worker_uuid FROM tasker.workers WHERE name = 'other'`).Scan(&h.worker))
	h.stuck("upstream said nope for order 19 in zone east")
	n, err := h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Literal: "order 18", Actor: "ann", Reason: "a special order"})
	h.Must(err)
	h.FindCases()
	list := h.list(tasker.CaseFilter{})
	if n != 1 || len(list) != 2 || list[0].ID != c.ID || list[0].Entries != 2 || list[1].Entries != 1 {
		t.Fatalf("split off %d: %+v", n, list)
	}
	_, err = h.Cases.Split(t.Context(), c.ID, tasker.CaseSplit{Field: "worker_version", Literal: "2.0.0", Actor: "ann", Reason: "the new release"})
	h.Must(err)
	h.FindCases()
	if list = h.list(tasker.CaseFilter{}); len(list) != 3 {
		t.Fatalf("split by the version of the worker: %+v", list)
	}
	for _, other := range list {
		if other.ID != c.ID {
			h.Must(h.Cases.Merge(t.Context(), other.ID, c.ID, "ann", "taken back"))
		}
	}
	if got := h.only(); got.ID != c.ID || got.Entries != 3 {
		t.Errorf("taken back: %+v", got)
	}
}

// The notes of a case are bounded in number. What else people do to it is not.
func TestTheNotesOfACaseAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(orders(503, 2)...)
	c := h.only()
	h.Exec(`INSERT INTO tasker.case_history (case_id, event, actor, notes) SELECT $1, 'noted', 'ann', 'still asking' FROM generate_series(1, $2::int)`, c.ID, tasker.MaxCaseNotes-1)
	_, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Notes: new("the last one"), Actor: "ann"})
	h.Must(err)
	_, err = h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Notes: new("one more"), Actor: "ann"})
	h.WantCode(err, tasker.TooLarge, "already has 1000 notes, which is the limit")
	got, err := h.Cases.Update(t.Context(), c.ID, tasker.CaseUpdate{Owner: new("ann"), OwnedFor: time.Hour, Actor: "ann"})
	h.Must(err)
	if got.Owner != "ann" {
		t.Errorf("the case is of %q", got.Owner)
	}
}

// A handler that names the cause is believed, also against the message.
func TestTheFingerprintOfAHandler(t *testing.T) {
	t.Parallel()
	of := func(given, message string) tasker.ID {
		return cases.ComputeFingerprint(postgres.MemberFailure{Namespace: "a", TaskName: "b", StepName: "c", ErrorFingerprint: given, ErrorMessage: message}).Key
	}
	if of("limit", "x 404") != of("limit", "y 503") || of("limit", "x") == of("other", "x") || of("", "HTTP 404") == of("", "HTTP 503") {
		t.Error("the fingerprint of a handler does not decide")
	}
}

// Investigations without an error are of one case by what they stand at.
func TestCasesWithoutAnError(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for range 3 {
		_, err := h.DLQ.Open(h.Context(), h.Create("order"), tasker.NewEntry{Actor: "ann", Reason: "look"})
		h.Must(err)
	}
	h.FindCases()
	if c := h.only(); c.Entries != 3 || c.StepName != "" || c.Reason != tasker.ManualDLQ {
		t.Errorf("%+v", c)
	}
}

// A new version of the worker that fails in almost all of its attempts is told first, with the
// last success before it; without a difference nothing is told.
func TestWhatChanged(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`UPDATE tasker.workers SET version = '1.5.0', max_concurrency = 200`)
	for range 40 {
		h.Create("order")
	}
	h.complete() // charge, and then ship
	h.complete()
	h.Exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease, last_heartbeat_at)
		SELECT gen_random_uuid(), 'other', namespaces, handlers, '1.5.1', 200, heartbeat_interval, lease, now() FROM tasker.workers`)
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT worker_uuid FROM tasker.workers WHERE name = 'other'`).Scan(&h.worker))
	tasks := h.stuck(orders(503, 40)...)
	h.Exec(`UPDATE tasker.tasks SET ends_at = now() + interval '42 minutes', stale_at = NULL, warn_at = NULL WHERE task_uuid = $1`, tasks[7])
	c := h.only()
	got, err := h.Cases.Changes(t.Context(), c.ID)
	h.Must(err)
	if len(got.Differences) != 2 || got.Failures != 40 || got.Successes != 40 || got.Since || got.TasksExamined != 80 {
		t.Fatalf("changes %+v", got)
	}
	if d := got.Differences[1]; d.Fact != "worker_version" || d.Value != "1.5.1" || d.Failures != 40 || d.Successes != 0 || d.Lift < 20 {
		t.Errorf("the difference is %+v", d)
	}
	if s := got.LastSuccess; s == nil || s.WorkerVersion != "1.5.0" || got.FirstFailure == nil || s.At.After(*got.FirstFailure) {
		t.Errorf("the last success is %+v, the first failure %v", s, got.FirstFailure)
	}
	if i := got.Impact; i.Tasks != 40 || i.Steps != 40 || i.Deadline == nil || i.DueTask.ID != tasks[7] {
		t.Errorf("impact %+v", i)
	}
	h.Exec(`UPDATE tasker.case_members SET worker_version = '1.5.0', worker_name = 'x'`)
	h.Exec(`UPDATE tasker.workers SET name = 'x', version = '1.5.0'`)
	if got, err = h.Cases.Changes(t.Context(), c.ID); err != nil || len(got.Differences) != 0 {
		t.Errorf("without a difference: %+v, %v", got.Differences, err)
	}
	_, err = h.Cases.Changes(t.Context(), tasker.NewID())
	h.WantCode(err, tasker.NotFound)
}
