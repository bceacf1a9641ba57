package postgres

import (
	"crypto/md5"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
)

// someCases creates 20 investigations of a step whose errors differ only in numbers, and 5 of stale
// tasks of another template, one of them recovered.
const someCases = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('shop', 'order', '1.0.0', '{}', '', ''), ('shop', 'refund', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), t.template_uuid, t.namespace, t.name, '1.0.0', 'error', now(), '{}', '', now(), now()
FROM tasker.task_templates t, generate_series(1, 20) n;
INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
    parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, error)
SELECT task_uuid, tasker.uuid_generate_v7(), 'charge_100%', 'standard', 'shop', 'run', 0, 'error', now(), '{}', '{}', 0, 3, 3, true, 'constant', 1, 1, false, now(), now(),
    jsonb_build_object('message', format('order %s: card %s declined after %s ms', task_uuid, 4000 + row_number() OVER (), 12.5 * row_number() OVER ()), 'type', 'x')
FROM tasker.tasks;
SELECT count(tasker.create_dlq_entry(s.task_uuid, 'max_retries_exceeded', 'retries_exhausted', 'inline', 'steps_in_process', now(), s.step_uuid))
FROM tasker.workflow_steps s JOIN tasker.tasks t USING (task_uuid) WHERE t.name = 'order';
SELECT count(tasker.create_dlq_entry(t.task_uuid, 'staleness_timeout', 'steps_in_process', 'sweep', 'steps_in_process', now()))
FROM (SELECT * FROM tasker.tasks WHERE name = 'refund' LIMIT 5) t;
UPDATE tasker.tasks_dlq SET recovered_at = now() WHERE dlq_entry_uuid = (SELECT min(dlq_entry_uuid::text)::uuid FROM tasker.tasks_dlq WHERE dlq_reason = 'staleness_timeout');
UPDATE tasker.tasks_dlq SET metadata = '{"assignee": "Kim"}' WHERE dlq_entry_uuid = (SELECT max(dlq_entry_uuid::text)::uuid FROM tasker.tasks_dlq);
VACUUM ANALYZE tasker.tasks_dlq;
VACUUM ANALYZE tasker.case_members;`

func withCases(t *testing.T) *DB {
	t.Helper()
	db := openNew(t, Options{})
	for sql := range strings.SplitSeq(someCases, ";\n") {
		if _, err := admin(t, db).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	findCases(t, db)
	return db
}

func findCases(t *testing.T, db *DB) {
	t.Helper()
	classify(t, db, 1, printOf)
}

// classify classifies all investigations, updates the states of cases and returns the total.
func classify(t *testing.T, db *DB, version int, of func(MemberFailure) Fingerprint) (all int) {
	t.Helper()
	for {
		n, err := db.Classify(t.Context(), version, 7, of, func(version, than string) bool { return version < than })
		if err != nil {
			t.Fatal(err)
		}
		if all += n; n == 0 {
			break
		}
	}
	if _, err := db.UpdateCaseStates(t.Context()); err != nil {
		t.Fatal(err)
	}
	return all
}

func printOf(m MemberFailure) Fingerprint {
	c := fingerprint.Normalize(fingerprint.Failure{Type: m.ErrorType, Message: m.ErrorMessage})
	return Fingerprint{Key: md5.Sum([]byte(m.Namespace + m.TaskName + m.StepName + m.DetailCode + c.Key)), ErrorType: m.ErrorType, Pattern: c.Pattern}
}

func TestSameFailuresAreOneCase(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	list, more, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
	if err != nil || more || len(list) != 2 {
		t.Fatalf("%+v, %v, %v; want two", list, more, err)
	}
	failed, stale := list[0], list[1]
	if failed.Entries != 20 || failed.StepName != "charge_100%" || failed.ErrorPattern != "order <id>: card <id> declined after <dur>" || failed.TaskName != "order" {
		t.Errorf("the first is %+v", failed)
	}
	if stale.Entries != 5 || stale.Recovered != 1 || stale.StepName != "" || stale.Reason != tasker.StalenessTimeout {
		t.Errorf("the second is %+v", stale)
	}
	// Like VACUUM, which transactions of other tests may delay.
	execute(t, db, `UPDATE pg_class SET relallvisible = relpages WHERE oid = 'tasker.case_members'::regclass`)
	plan := explain(t, db, func() string { sql, _ := buildCasesQuery(t.Context(), tasker.CaseFilter{}); return sql }())
	if !strings.Contains(plan, "Index Only Scan using case_members_open") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the plan is\n%s", plan)
	}
}

func TestTheQueueIsFiltered(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	cases, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	for _, tt := range []struct {
		name   string
		filter tasker.InvestigationFilter
		want   int
		cases  int // investigations of the listed cases
	}{
		{"nothing asked", tasker.InvestigationFilter{}, 25, 25},
		{"reason", tasker.InvestigationFilter{Reason: tasker.StalenessTimeout}, 5, 5},
		{"namespace", tasker.InvestigationFilter{Namespace: "shop"}, 25, 25},
		{"another namespace", tasker.InvestigationFilter{Namespace: "else"}, 0, 0},
		{"template", tasker.InvestigationFilter{Name: "refund"}, 5, 5},
		{"case", tasker.InvestigationFilter{Case: &cases[0].ID}, 20, 20},
		{"state now", tasker.InvestigationFilter{State: tasker.TaskError}, 25, 25},
		{"another state", tasker.InvestigationFilter{State: tasker.TaskComplete}, 0, 0},
		{"age", tasker.InvestigationFilter{Age: time.Hour}, 0, 0},
		{"recovered", tasker.InvestigationFilter{Recovered: &yes}, 1, 1},
		{"text in an error", tasker.InvestigationFilter{Text: "DECLINED after 12.5 ms"}, 1, 1},
		{"text in a step, as it is", tasker.InvestigationFilter{Text: "100%"}, 20, 20},
		{"no pattern", tasker.InvestigationFilter{Text: "o%r"}, 0, 0},
		{"text in an assignee", tasker.InvestigationFilter{Text: "kim"}, 1, 0},
		{"an id", tasker.InvestigationFilter{Text: cases[0].EntryUUID.String()}, 1, 1},
		{"the id of a case", tasker.InvestigationFilter{Text: cases[0].ID.String()}, 0, 20},
		{"all together", tasker.InvestigationFilter{
			Reason: tasker.MaxRetriesExceeded, Namespace: "shop", Name: "order", Case: &cases[0].ID, State: tasker.TaskError, Text: "charge",
		}, 20, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.filter.Limit = 100
			list, more, err := db.InvestigationQueue(t.Context(), tt.filter)
			if err != nil || more || len(list) != tt.want {
				t.Errorf("%d entries, %v, %v; want %d", len(list), more, err, tt.want)
			}
			grouped, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tt.filter})
			n := 0
			for _, c := range grouped {
				n += int(c.Entries)
			}
			if err != nil || n != tt.cases {
				t.Errorf("cases of %d entries, %v; want %d", n, err, tt.cases)
			}
		})
	}
}

func TestTheQueueIsReadPageByPage(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	seen := map[tasker.ID]bool{}
	for offset := 0; ; offset += 10 {
		list, more, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 10, Offset: offset})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			seen[e.EntryUUID] = true
		}
		if last := offset == 20; more == last || len(list) != map[bool]int{false: 10, true: 5}[last] {
			t.Fatalf("at %d: %d, more %v", offset, len(list), more)
		}
		if !more {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d entries seen, want 25", len(seen))
	}
}

func TestHowSimilarInvestigationsEnded(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	list, _, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Name: "order", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range list[:7] {
		status := map[bool]string{true: "cancelled", false: "manually_resolved"}[i < 2]
		execute(t, db, `
			UPDATE tasker.tasks_dlq
			SET resolution_status = $2::tasker.dlq_resolution_status, resolved_at = dlq_timestamp + make_interval(mins => $3), resolved_by = 'Kim', resolution_notes = $4
			WHERE dlq_entry_uuid = $1`, e.EntryUUID, status, i+1, fmt.Sprint("note ", i))
	}
	got, err := db.RelatedEntries(t.Context(), list[10].EntryUUID, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Case.IsZero() || got.Case != list[10].CaseID || got.Open != 12 || got.Counts[tasker.EntryCancelled] != 2 || got.Counts[tasker.EntryManuallyResolved] != 5 || len(got.Last) != 3 {
		t.Fatalf("got %+v", got)
	}
	if last := got.Last[0]; last.Notes != "note 6" || last.By != "Kim" || last.MinutesOpen != 7 || last.EntryUUID != list[6].EntryUUID {
		t.Errorf("the last is %+v", last)
	}
	if got, err = db.RelatedEntries(t.Context(), list[6].EntryUUID, 10); err != nil || slices.ContainsFunc(got.Last, func(e tasker.EndedEntry) bool { return e.EntryUUID == list[6].EntryUUID }) {
		t.Errorf("%+v, %v: an entry is similar to itself", got, err)
	}
	if _, err := db.RelatedEntries(t.Context(), tasker.NewID(), 3); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("of no entry: %v", err)
	}
	t.Run("plan of the case", func(t *testing.T) {
		if plan := explain(t, db, statement("selectRelated")); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "case_members_open") {
			t.Errorf("the plan is\n%s", plan)
		}
	})
}

// Ended investigations of a case are read by index, with and without statistics.
func TestEndingsOfACaseAreReadFromTheirIndex(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	if _, err := admin(t, db).Exec(t.Context(), tenThousandEnded, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for _, statistics := range []string{"SELECT", "ANALYZE"} {
		execute(t, db, statistics)
		if plan := explain(t, db, statement("selectEndedOfCase")); !strings.Contains(plan, "case_members_ended") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("after %s the plan is\n%s", statistics, plan)
		}
	}
}

func TestWhatDiffersFromTaskToTaskIsNoPattern(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	for message, want := range map[string]string{
		"":                            "",
		"timeout":                     "timeout",
		"HTTP 503 from 10.0.0.7:8080": "HTTP # from #",
		"order 0193a1b2-aaaa-7bbb-8ccc-0123456789ab is gone": "order # is gone",
		"pod f7a39c1e lost": "pod # lost", "at 0xc0001a2b3c": "at #", "commit abcdef12": "commit #",
		"digest 9f86d081884c7d659a2f": "digest #",
		"facade decade deadbeef":      "facade decade deadbeef",
		"step2 of 17":                 "step# of #",
		"größe 12,5 überschritten":    "größe # überschritten",
		strings.Repeat("x", 600):      strings.Repeat("x", 200),
	} {
		if got, err := queryValue[string](t.Context(), db.pool, `SELECT tasker.error_pattern($1)`, message); err != nil || got != want {
			t.Errorf("%q becomes %q, %v; want %q", message, got, err, want)
		}
	}
}

// A search for the id of a task finds its case.
func TestACaseIsFoundByItsTasks(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	execute(t, db, `
		SELECT tasker.create_dlq_entries(array_agg(task_uuid), array_agg('staleness_timeout'::tasker.dlq_reason), array_agg('max_duration'::text), 'sweep',
			array_agg('steps_in_process'::text), array_agg(now()), array_agg(NULL::uuid), 'tasker', NULL, array_agg(NULL::jsonb))
		FROM (
			SELECT t.task_uuid FROM tasker.tasks t
			WHERE t.name = 'refund' AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid)
			LIMIT 10
		) t`)
	findCases(t, db)
	list, _, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		cases, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Text: e.TaskUUID.String(), Limit: 10}})
		if err != nil || len(cases) != 1 || cases[0].ID != e.CaseID.ID {
			t.Errorf("task %s leads to %+v, %v; want %s", e.TaskUUID, cases, err, e.CaseID)
		}
	}
}

// The number of other investigations is counted up to a limit.
func TestTheOthersOfALargeCase(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, `INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '')`)
	for _, tt := range []struct {
		add  int
		open int64
		more bool
	}{{1, 0, false}, {1000, 1000, false}, {1, 1000, true}} {
		execute(t, db, `
			WITH made AS (
				INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
				SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'error', now(), '{}', '', now(), now()
				FROM tasker.task_templates, generate_series(1, $1::int) n
				RETURNING task_uuid
			)
			SELECT count(tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', 'error', now())) FROM made`, tt.add)
		findCases(t, db)
		list, _, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		k, err := db.RelatedEntries(t.Context(), list[0].EntryUUID, 1)
		if err != nil || k.Open != tt.open || k.More != tt.more {
			t.Errorf("%d others, more %v, %v; want %d, %v", k.Open, k.More, err, tt.open, tt.more)
		}
	}
	_, totals, _, err := db.CasePage(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Namespace: "a", Offset: 10}})
	if err != nil || totals.TotalCases != 1 || totals.TotalEntries != 1002 || totals.OldestEntry == nil {
		t.Errorf("totals %+v, %v", totals, err)
	}
}

// A text with fewer than six digits, which would match many ids, matches none.
func TestASearchForACodeFindsNoIDs(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	list, _, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Name: "refund", Limit: 1}) // has no message
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	id := list[0].EntryUUID.String()
	for text, want := range map[string]bool{
		id: true, strings.ToUpper(id): true, id[:6]: true, id[24:]: true, id[24:30]: true, id[9:23]: true,
		id[:3]: false, id[1:4]: false, id[25:]: false, id[24:28]: false,
	} {
		found, _, err := db.InvestigationQueue(t.Context(), tasker.InvestigationFilter{Text: text, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(found, func(e tasker.InvestigationQueueEntry) bool { return e.EntryUUID == list[0].EntryUUID }); got != want {
			t.Errorf("%q finds %s: %v, want %v", text, id, got, want)
		}
	}
}

// Recovered investigations do not make their case urgent.
func TestCasesAreInTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	conn, err := admin(t, db).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `
		SET session_replication_role = replica; -- disables the triggers that protect evidence
		UPDATE tasker.tasks_dlq SET dlq_timestamp = now() - interval '1 year', priority_at = now() - interval '1 year'
		WHERE dlq_reason = 'staleness_timeout' AND recovered_at IS NOT NULL;
		SET session_replication_role = DEFAULT`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	cases, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
	if err != nil || len(cases) != 2 || cases[0].Reason != tasker.MaxRetriesExceeded {
		t.Errorf("%+v, %v; want the failed ones first, as in the queue", cases, err)
	}
}

// Redacted errors of the evidence are also redacted in the pattern, for each form of a rule.
func TestAHiddenErrorLeavesNoPattern(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		`paths = '[["steps", "*", "error", "message"]]'`, `paths = '[["steps", "1", "error", "message"]]'`, `paths = '[["steps", "0", "error"]]'`,
		`paths = '[["steps", "*", "failures", "3", "error"]]'`, `paths = '[["*", "7", "error", "message"]]'`, `paths = '[["steps"]]'`,
		`key_words = '{message}', key_pattern = '^message$'`, `key_words = '{error}', key_pattern = '^error$'`,
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			for sql := range strings.SplitSeq("UPDATE tasker.redaction SET "+rule+";\n"+someCases, ";\n") {
				if _, err := admin(t, db).Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			if shown, err := queryValue[int](t.Context(), db.pool, `
				SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE error_pattern LIKE '%declined%')
					+ (SELECT count(*) FROM tasker.outbox WHERE data::text LIKE '%declined%')`); err != nil || shown > 0 {
				t.Errorf("%d entries and events show the message, %v", shown, err)
			}
		})
	}
}

// A page of cases, even past the last one, has the totals of all pages.
func TestTotalsOfAPageOfCases(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	f := tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 1}}
	for offset, here := range map[int]int{0: 1, 1: 1, 2: 0} {
		f.Offset = offset
		list, totals, more, err := db.CasePage(t.Context(), f)
		if err != nil || len(list) != here || more != (offset == 0) || totals.TotalCases != 2 || totals.TotalEntries != 25 || totals.TotalRecent != 25 || totals.OldestEntry == nil || totals.Unclassified != 0 {
			t.Errorf("at %d: %d cases, more %t, %+v, %v", offset, len(list), more, totals, err)
		}
	}
	execute(t, db, `UPDATE tasker.case_members SET fingerprint = NULL, fingerprint_version = 0 WHERE step_name = ''`)
	f.Offset = 0
	if _, totals, _, err := db.CasePage(t.Context(), f); err != nil || totals.TotalCases != 1 || totals.TotalEntries != 20 || totals.Unclassified != 5 {
		t.Errorf("without a case: %+v, %v", totals, err)
	}
}

// Only a change of the state of a case changes state_since.
func TestSinceWhenACaseHasItsState(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	list, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 1}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	was := list[0]
	later, awake := time.Now().Add(time.Hour), time.Time{}
	for _, u := range []struct {
		name string
		tasker.CaseUpdate
		want tasker.CaseState
	}{
		{"owned", tasker.CaseUpdate{Owner: new("ann")}, tasker.CaseOngoing},
		{"noted", tasker.CaseUpdate{Notes: new("n")}, tasker.CaseOngoing},
		{"snoozed", tasker.CaseUpdate{Snooze: &later}, tasker.CaseResting},
		{"snoozed again", tasker.CaseUpdate{Snooze: &later}, tasker.CaseResting},
		{"woken", tasker.CaseUpdate{Snooze: &awake}, tasker.CaseOngoing},
	} {
		u.Actor = "ann"
		c, err := db.UpdateCase(t.Context(), was.ID, u.CaseUpdate)
		if err != nil || c.State != u.want || c.StateSince.After(was.StateSince) != (c.State != was.State) {
			t.Errorf("%s: %s since %s, before %s since %s, %v", u.name, c.State, c.StateSince, was.State, was.StateSince, err)
		}
		was = c
	}
}

// Each line is one rule of docs/concepts/cases.md.
func TestTheStateOfACase(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for name, tt := range map[string]struct {
		state, since, first, snoozed string // how long ago; snoozed in how long
		level                        int
		above                        any
		touched                      bool
		open, recent, earlier        int
		want                         string
	}{
		"nothing is open":                    {state: "escalating", since: "1h", first: "1h", want: "resolved"},
		"seen for the first time":            {state: "new", since: "1m", first: "1m", open: 5, recent: 5, want: "new"},
		"somebody has it":                    {state: "new", since: "1m", first: "1m", touched: true, open: 5, recent: 5, want: "ongoing"},
		"new for a day":                      {state: "new", since: "25h", first: "25h", open: 5, want: "ongoing"},
		"many in its first ten minutes":      {state: "new", since: "9m", first: "9m", open: 60, recent: 60, want: "new"},
		"three times as many":                {state: "ongoing", since: "1h", first: "1h", open: 60, recent: 20, earlier: 40, want: "escalating"},
		"fewer than three times":             {state: "ongoing", since: "1h", first: "1h", open: 61, recent: 20, earlier: 41, want: "ongoing"},
		"three times as many, but few":       {state: "ongoing", since: "1h", first: "1h", open: 19, recent: 19, want: "ongoing"},
		"more than 100":                      {state: "new", since: "1m", first: "1m", open: 101, recent: 101, want: "escalating"},
		"more than 100, known":               {state: "ongoing", since: "1h", first: "1h", level: 100, open: 101, want: "ongoing"},
		"more than 1,000":                    {state: "ongoing", since: "1h", first: "1h", level: 100, open: 1001, want: "escalating"},
		"escalating for less than 15 min":    {state: "escalating", since: "14m", first: "1h", level: 100, open: 101, recent: 1, earlier: 600, want: "escalating"},
		"escalating, and still growing":      {state: "escalating", since: "1h", first: "2h", level: 100, open: 101, recent: 10, earlier: 40, want: "escalating"},
		"escalating, and no longer":          {state: "escalating", since: "1h", first: "2h", level: 100, open: 101, recent: 10, earlier: 41, want: "ongoing"},
		"resting":                            {state: "ongoing", since: "1h", first: "1h", snoozed: "1h", open: 5, want: "resting"},
		"resting up to a number":             {state: "resting", since: "1h", first: "1h", snoozed: "1h", above: 5, open: 5, want: "resting"},
		"more than it rests for":             {state: "resting", since: "1h", first: "1h", snoozed: "1h", above: 5, open: 6, want: "escalating"},
		"the rest is over":                   {state: "resting", since: "1h", first: "25h", snoozed: "-1m", open: 6, want: "ongoing"},
		"regressed":                          {state: "regressed", since: "1h", first: "25h", open: 6, want: "regressed"},
		"regressed, and somebody has it":     {state: "regressed", since: "1h", first: "25h", touched: true, open: 6, want: "ongoing"},
		"regressed, though more than 10,000": {state: "regressed", since: "1h", first: "25h", open: 10_001, want: "regressed"},
	} {
		var snoozed any
		if tt.snoozed != "" {
			snoozed = tt.snoozed
		}
		got, err := queryValue[string](t.Context(), admin(t, db), `
			SELECT tasker.case_state($1, now() - $2::interval, now() - $3::interval, $4, now() + $5::interval, $6::bigint, $7, $8, $9, $10, now())`,
			tt.state, tt.since, tt.first, tt.level, snoozed, tt.above, tt.touched, tt.open, tt.recent, tt.earlier)
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

// Newer rules reclassify open investigations: those with another fingerprint move to another case,
// the others keep their case with its owner. A server with older rules does not reclassify them.
func TestNewerRulesFindCasesAnew(t *testing.T) {
	t.Parallel()
	db := withCases(t)
	cases := func() map[string]tasker.Case {
		t.Helper()
		list, _, err := db.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]tasker.Case{}
		for _, c := range list {
			found[fmt.Sprintf("%s/%s %d", c.TaskName, c.ErrorPattern, c.Entries)] = c
		}
		return found
	}
	before := cases()
	stale, charge := before["refund/ 5"], before["order/order <id>: card <id> declined after <dur> 20"]
	execute(t, db, `UPDATE tasker.cases SET owner = 'ann', owned_until = now() + interval '1 hour' WHERE case_id = $1`, stale.ID)
	newer := func(m MemberFailure) Fingerprint {
		f := printOf(m)
		if m.TaskName == "order" {
			f.Key, f.Pattern = md5.Sum([]byte("declined")), "card declined"
		}
		return f
	}
	if n := classify(t, db, 2, newer); n != 25 {
		t.Errorf("%d investigations are classified anew, want 25", n)
	}
	after := cases()
	if moved := after["order/card declined 20"]; len(after) != 2 || moved.ID == charge.ID || moved.Entries != 20 {
		t.Errorf("the cases are %+v", after)
	}
	if same := after["refund/ 5"]; same.ID != stale.ID || same.Owner != "ann" {
		t.Errorf("the case that did not change is %+v", same)
	}
	if c, err := db.Case(t.Context(), charge.ID); err != nil || c.State != tasker.CaseResolved {
		t.Errorf("the case that has no investigation any more is %s, %v", c.State, err)
	}
	if n := classify(t, db, 1, printOf); n != 0 {
		t.Errorf("a server with older rules classifies %d investigations", n)
	}
}
