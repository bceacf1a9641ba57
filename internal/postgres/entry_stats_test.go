package postgres

import (
	"testing"
	"time"

	"tasker.example/tasker"
)

// A life is when an investigation was opened, and when it ended, if it has.
type life struct {
	opened time.Time
	ended  *time.Time
}

// withLives is a database with investigations that lived so.
func withLives(t *testing.T, lives ...life) *DB {
	t.Helper()
	db := openNew(t, Options{})
	exec := func(sql string, args ...any) { t.Helper(); execute(t, db, sql, args...) }
	exec(`INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('shop', 'order', '1.0.0', '{}', '', '')`)
	for _, l := range lives {
		exec(`
			INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
			SELECT tasker.uuid_generate_v7(), template_uuid, namespace, name, version, 'error', now(), '{}', '', now(), now() FROM tasker.task_templates`)
		exec(`
			SELECT tasker.create_dlq_entry(t.task_uuid, 'manual_dlq', 'by_hand', 'manual', 'error', now())
			FROM tasker.tasks t WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid)`)
		// Evidence never changes, so its guard is off for a moment.
		exec(`ALTER TABLE tasker.tasks_dlq DISABLE TRIGGER entry_evidence_never_changes`)
		exec(`
			UPDATE tasker.tasks_dlq
			SET dlq_timestamp = $1::timestamptz, resolved_at = $2::timestamptz, resolved_by = 'ann', resolution_notes = 'done',
				resolution_status = CASE WHEN $2::timestamptz IS NULL THEN 'pending' ELSE 'cancelled' END::tasker.dlq_resolution_status
			WHERE dlq_timestamp = (SELECT max(dlq_timestamp) FROM tasker.tasks_dlq)`, l.opened, l.ended)
		exec(`ALTER TABLE tasker.tasks_dlq ENABLE TRIGGER entry_evidence_never_changes`)
	}
	return db
}

// counted checks what is counted in the stretches since an instant; those that are
// not named have nothing.
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
	}
}

func TestInvestigationsAreCountedByTheHourAndByTheDay(t *testing.T) {
	t.Parallel()
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -5)
	at := func(hours float64) time.Time { return day.Add(time.Duration(hours * float64(time.Hour))) }
	db := withLives(t,
		life{at(-0.5), new(at(0.5))}, // opened before it begins
		life{at(-9), new(at(-8))},    // ended before
		life{at(0), nil},             // at the very begin
		life{at(1), new(at(1.5))},    // at the border of two hours
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

// Of those that were opened and of those that ended, the newest are counted up to a
// limit, each for itself.
func TestTheNewestInvestigationsAreCountedUpToALimit(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	at := func(minutes int) time.Time { return hour.Add(time.Duration(minutes) * time.Minute) }
	db := withLives(t, life{at(10), new(at(200))}, life{at(20), new(at(30))}, life{at(70), nil}, life{at(130), new(at(140))})
	for limit, want := range map[int]string{0: "00 00 00 00", 1: "00 00 10 01", 2: "00 10 11 01", 3: "11 10 11 01", 100: "21 10 11 01"} {
		rows, err := collect[tasker.EntryCount](t.Context(), db.pool, selectEntryCounts, hour, time.Hour, limit)
		if err != nil || len(rows) < 4 {
			t.Fatalf("%d rows, %v", len(rows), err)
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
