package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// life describes when an investigation was opened and ended.
type life struct {
	opened time.Time
	ended  *time.Time // nil if open
}

// withLives returns a database with investigations.
func withLives(t *testing.T, lives ...life) *DB {
	t.Helper()
	db := openNew(t, Options{})
	execute(t, db, `INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('shop', 'order', '1.0.0', '{}', '', '')`)
	for _, l := range lives {
		execute(t, db, `
			INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
			SELECT tasker.uuid_generate_v7(), template_uuid, namespace, name, version, 'error', now(), '{}', '', now(), now() FROM tasker.task_templates`)
		execute(t, db, `
			SELECT tasker.create_dlq_entry(t.task_uuid, 'manual_dlq', 'by_hand', 'manual', 'error', now())
			FROM tasker.tasks t WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid)`)
		// Disables the trigger that protects evidence.
		execute(t, db, `ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
		execute(t, db, `
			UPDATE tasker.tasks_dlq
			SET dlq_timestamp = $1::timestamptz, resolved_at = $2::timestamptz, resolved_by = 'ann', resolution_notes = 'done',
				resolution_status = CASE WHEN $2::timestamptz IS NULL THEN 'pending' ELSE 'cancelled' END::tasker.dlq_resolution_status
			WHERE dlq_timestamp = (SELECT max(dlq_timestamp) FROM tasker.tasks_dlq)`, l.opened, l.ended)
		execute(t, db, `ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
		execute(t, db, `UPDATE tasker.case_members m SET opened_at = d.dlq_timestamp FROM tasker.tasks_dlq d WHERE d.dlq_entry_uuid = m.dlq_entry_uuid`)
	}
	return db
}

// counted checks the counts of the intervals since a time; intervals that are not in want are empty.
func counted(t *testing.T, db *DB, since time.Time, width time.Duration, want map[int]tasker.EntryCount) {
	t.Helper()
	now := time.Now()
	list, err := db.EntryCounts(t.Context(), since, width)
	if err != nil {
		t.Fatal(err)
	}
	if least := int(now.Sub(since)/width) + 1; len(list) < least {
		t.Errorf("%d stretches of %v, want %d", len(list), width, least)
	}
	for i, got := range list {
		w := want[i]
		if w.From = since.Add(time.Duration(i) * width); !got.From.Equal(w.From) || got.Opened != w.Opened || got.Ended != w.Ended {
			t.Errorf("stretch %d of %v has %+v, want %+v", i, width, got, w)
		}
		open, err := queryValue[int64](t.Context(), db.pool, `SELECT count(*) FROM tasker.tasks_dlq WHERE dlq_timestamp < $1 AND (resolved_at IS NULL OR resolved_at >= $1)`, got.From.Add(width))
		if err != nil || got.Open == nil || *got.Open != open {
			t.Errorf("at the end of interval %d of %v %v are open, want %d (%v)", i, width, got.Open, open, err)
		}
	}
}

func TestInvestigationsAreCountedByTheHourAndByTheDay(t *testing.T) {
	t.Parallel()
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -5)
	at := func(hours float64) time.Time { return day.Add(time.Duration(hours * float64(time.Hour))) }
	db := withLives(t,
		life{at(-0.5), new(at(0.5))}, // opened before the range
		life{at(-9), new(at(-8))},    // ended before the range
		life{at(0), nil},             // at the start of the range
		life{at(1), new(at(1.5))},    // on the boundary of two hours
		life{at(1).Add(-time.Microsecond), new(at(24))},
		life{at(1.25), new(at(50))},
		life{at(49), nil},
	)
	counted(t, db, day, time.Hour, map[int]tasker.EntryCount{
		0: {Opened: 2, Ended: 1}, 1: {Opened: 2, Ended: 1}, 24: {Ended: 1}, 49: {Opened: 1}, 50: {Ended: 1},
	})
	counted(t, db, day, 24*time.Hour, map[int]tasker.EntryCount{0: {Opened: 4, Ended: 2}, 1: {Ended: 1}, 2: {Opened: 1, Ended: 1}})
	counted(t, db, at(1.25), time.Hour, map[int]tasker.EntryCount{0: {Opened: 1, Ended: 1}, 22: {Ended: 1}, 47: {Opened: 1}, 48: {Ended: 1}})
}

func TestNothingIsCountedAsNothing(t *testing.T) {
	t.Parallel()
	db := withLives(t)
	counted(t, db, time.Now().UTC().Truncate(time.Hour).Add(-23*time.Hour), time.Hour, nil)
	list, err := db.EntryCounts(t.Context(), time.Now().Add(time.Hour), time.Hour)
	if err != nil || len(list) != 0 {
		t.Errorf("what is to come is counted: %+v, %v", list, err)
	}
	db.Close()
	if _, err := db.EntryCounts(t.Context(), time.Now(), time.Hour); err == nil {
		t.Error("a closed database counts")
	}
}

// The newest opened and the newest ended investigations are counted up to a limit each.
func TestTheNewestInvestigationsAreCountedUpToALimit(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	at := func(minutes int) time.Time { return hour.Add(time.Duration(minutes) * time.Minute) }
	db := withLives(t, life{at(10), new(at(200))}, life{at(20), new(at(30))}, life{at(70), nil}, life{at(130), new(at(140))})
	for limit, want := range map[int]string{0: "00 00 00 00", 1: "00 00 10 01", 2: "00 10 11 01", 3: "11 10 11 01", 100: "21 10 11 01"} {
		rows, err := collect[tasker.EntryCount](t.Context(), db.pool, statement("selectEntryCounts"), hour, limit, time.Hour)
		if err != nil || len(rows) < 4 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		clearUncounted(rows, int64(max(limit, 1)))
		for i, known := range map[int][]bool{1: {false, false, false, true}, 2: {false, false, true, true}, 3: {true, true, true, true}, 100: {true, true, true, true}}[limit] {
			if rows[i].Open != nil != known {
				t.Errorf("up to %d, the number at the end of stretch %d is %v", limit, i, rows[i].Open)
			}
		}
		got := ""
		for i, r := range rows[:4] {
			if i > 0 {
				got += " "
			}
			got += string(rune('0'+r.Opened)) + string(rune('0'+r.Ended))
		}
		if got != want {
			t.Errorf("up to %d there are %s, want %s", limit, got, want)
		}
	}
}

// Each case counts once, with the medians of its investigations. Missing phases do not count.
func TestHowLongInvestigationsTook(t *testing.T) {
	t.Parallel()
	begin := time.Now().UTC().Truncate(time.Minute).Add(-5 * time.Hour)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	db := withLives(t,
		life{at(0), new(at(60))}, life{at(2), new(at(60))}, life{at(4), new(at(70))}, // of case a
		life{at(10), new(at(20))}, // of b, without an action
		life{at(30), new(at(90))}, // of c
		life{at(50), new(at(95))}, // of c, while it had an owner
		life{at(40), nil},         // of c, open
		life{at(-900), new(at(-800))},
	)
	execute(t, db, `SET session_replication_role = replica`)
	for name, minutes := range map[string][]int{"a": {0, 2, 4}, "b": {10}, "c": {30, 50, 40}, "old": {-900}} {
		execute(t, db, `INSERT INTO tasker.cases (namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state_since, first_seen_at, updated_at)
			VALUES ('shop', 'order', '', 'manual_dlq', '', '', $1, now(), now(), now())`, name)
		execute(t, db, `INSERT INTO tasker.case_fingerprints (fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at)
			SELECT md5($1)::uuid, case_id, case_id, 1, '', '', now() FROM tasker.cases WHERE error_pattern = $1`, name)
		for _, m := range minutes {
			execute(t, db, `UPDATE tasker.case_members m SET fingerprint = md5($1)::uuid FROM tasker.tasks_dlq d WHERE d.dlq_entry_uuid = m.dlq_entry_uuid AND d.dlq_timestamp = $2`, name, at(m))
		}
	}
	change := func(name, event, actor string, minute int, more string) {
		execute(t, db, `INSERT INTO tasker.case_history (case_id, event, actor, changed_at, metadata)
			SELECT case_id, $2, $3, $4, $5::jsonb FROM tasker.cases WHERE error_pattern = $1`, name, event, actor, at(minute), more)
	}
	change("a", "opened", "tasker", 0, "null")
	change("a", "state_changed", "tasker", 1, "null")
	change("a", "noted", "ann", 8, "null")
	change("a", "owned", "ann", 12, `{"for": "4h0m0s"}`)
	change("c", "owned", "bo", 32, `{"for": "10m0s"}`)
	change("c", "owned", "bo", 45, `{"for": "1h0m0s"}`)
	acted := func(opened, acted int, again *time.Time, proved bool) {
		status := "cancelled"
		if proved {
			status = "manually_resolved"
		}
		execute(t, db, `UPDATE tasker.case_members SET acted_at = $2, failed_again_at = $3, resolution_status = $4::text::tasker.dlq_resolution_status WHERE opened_at = $1`,
			at(opened), at(acted), again, status)
	}
	acted(0, 40, nil, true)
	acted(2, 42, new(at(30)), true) // failed again before the repair
	acted(4, 44, new(at(50)), true) // failed again after the repair: not proved
	acted(30, 60, nil, false)
	execute(t, db, `INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, changed_at)
		SELECT dlq_entry_uuid, 'noted', 'bo', 'pending', 'pending', $2 FROM tasker.tasks_dlq WHERE dlq_timestamp = $1`, at(30), at(31))

	for name, ctx := range map[string]context.Context{"all": t.Context(), "some": access.WithScope(t.Context(), access.NamespaceScope("none", "shop"))} {
		got, err := db.EntryTimes(ctx, begin)
		if err != nil {
			t.Fatal(err)
		}
		minutes := func(m float64) float64 { return m * 60 }
		want := tasker.ResolutionTimes{Since: begin, Entries: 6, Times: []tasker.PhaseTime{
			{Phase: tasker.PhaseAcknowledge, Cases: 2, P50Seconds: minutes(3.25), P95Seconds: minutes(5.725)}, // a: 8 6 4; c: 1 0
			{Phase: tasker.PhaseOwn, Cases: 2, P50Seconds: minutes(5.5), P95Seconds: minutes(9.55)},           // a: 12 10 8; c: 2 0
			{Phase: tasker.PhaseRepair, Cases: 2, P50Seconds: minutes(35), P95Seconds: minutes(39.5)},         // a: 40 40 40; c: 30
			{Phase: tasker.PhaseProve, Cases: 1, P50Seconds: minutes(19), P95Seconds: minutes(19)},            // a: 20 18
			{Phase: tasker.PhaseResolve, Cases: 3, P50Seconds: minutes(52.5), P95Seconds: minutes(59.25)},     // a: 60 58 66; b: 10; c: 60 45
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	counts, err := db.EntryCounts(t.Context(), begin, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if counts[0].Proved != 0 || counts[1].Proved != 2 || counts[1].Ended != 5 {
		t.Errorf("counted %+v", counts[:2])
	}
	if none, err := db.EntryTimes(access.WithScope(t.Context(), access.NamespaceScope("none")), begin); err != nil || none.Entries != 0 || none.Times[4].Cases != 0 {
		t.Errorf("of another namespace: %+v, %v", none, err)
	}
}
