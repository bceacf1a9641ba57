package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/pgtest"
)

// backlog creates 20,000 pending events of 2,000 tasks, with statistics from before.
const backlog = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'complete', now(), '{}', '', now(), now()
FROM tasker.task_templates, generate_series(1, 2000) n;
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, namespace, task_name, case_key)
SELECT task_uuid, 'error', 'manual_dlq', 'operator_request', 'operator', now(), '{}', namespace, name, template_uuid FROM tasker.tasks;
INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data)
SELECT 'dlq.entry.updated', d.task_uuid, d.dlq_entry_uuid, '{}' FROM generate_series(1, 20) n, tasker.tasks_dlq d;
INSERT INTO tasker.emission_sinks (sink) VALUES ('webhook');
INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, state, published_at)
SELECT 'webhook', position, event_uuid, task_uuid, 'published', now() FROM tasker.outbox WHERE position <= 20000;
ANALYZE;
INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid)
SELECT 'webhook', position, event_uuid, task_uuid FROM tasker.outbox WHERE position > 20000;`

// The pages read are bounded by the batch, although the planner expects no pending events and a
// transaction stays open. Otherwise a backlog could not shrink.
func TestABatchOfEventsCostsTheSameWhateverWaits(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	open, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(open.Release)
	if _, err := open.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, db).Exec(t.Context(), backlog); err != nil {
		t.Fatal(err)
	}
	if _, err := db.TakeEvents(t.Context(), "webhook", 5000); err != nil { // deliveries exist already
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		sql  string
		args string
		most int // pages
	}{
		"due":    {statement("dueEmissions"), `'webhook', 200, 200`, 20_000},
		"settle": {statement("settleEmissions"), settled(200), 8_000},
		"take":   {statement("takeEvents"), `'webhook', 5000`, 1_000},
		"states": {statement("sinkStates"), `ARRAY['webhook'], 1000`, 3_000},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := db.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			if _, err := conn.Exec(t.Context(), "PREPARE tried AS "+tt.sql); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = conn.Exec(t.Context(), "DEALLOCATE tried") }()
			var plan []struct {
				Plan struct {
					Hit  int `json:"Shared Hit Blocks"`
					Read int `json:"Shared Read Blocks"`
				}
			}
			var text []byte
			err = conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE tried("+tt.args+")").Scan(&text)
			if err == nil {
				err = json.Unmarshal(text, &plan)
			}
			if err != nil {
				t.Fatal(err)
			}
			pages := plan[0].Plan.Hit + plan[0].Plan.Read
			t.Logf("%d pages", pages)
			if pages > tt.most {
				t.Errorf("reads %d pages, want no more than %d:\n%s", pages, tt.most, text)
			}
		})
	}
}

// A sink with an unfinished attempt is failing although no attempt has failed.
func TestSinkFailsWhileAnEventIsDue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		due, success string // how long ago
		events       string // the table of what is due
		fails        bool
	}{
		"due for long":                   {"2 minutes", "3 minutes", "emissions", true},
		"due for long, never a success":  {"2 minutes", "", "emissions", true},
		"a message":                      {"2 minutes", "3 minutes", "message_emissions", true},
		"due a moment ago":               {"5 seconds", "3 minutes", "emissions", false},
		"takes others":                   {"2 minutes", "5 seconds", "emissions", false},
		"to be tried later":              {"-2 minutes", "3 minutes", "emissions", false},
		"without events for a long time": {"", "3 hours", "emissions", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			execute(t, db, strings.ReplaceAll(strings.SplitAfter(backlog, "INSERT INTO tasker.emission_sinks (sink) VALUES ('webhook');")[0], "2000", "20"))
			execute(t, db, `UPDATE tasker.emission_sinks SET last_success_at = now() - nullif($1, '')::interval`, tt.success)
			if tt.events == "emissions" {
				execute(t, db, `INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, next_attempt_at)
					SELECT 'webhook', position, event_uuid, task_uuid, now() - nullif($1, '')::interval FROM tasker.outbox WHERE $1 <> '' LIMIT 1`, tt.due)
			} else {
				execute(t, db, `WITH m AS (
						INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
						VALUES ('case.opened', 'incident', tasker.uuid_generate_v7(), '{a}', '{}') RETURNING position, subject_id
					) INSERT INTO tasker.message_emissions (sink, position, subject_id, next_attempt_at)
					SELECT 'webhook', position, subject_id, now() - $1::interval FROM m`, tt.due)
			}
			states, err := db.SinkStates(t.Context(), []string{"webhook"}, 10)
			if err != nil || len(states) != 1 {
				t.Fatalf("%+v, %v", states, err)
			}
			s := states[0]
			if (s.FailingSince != nil) != tt.fails || (s.LastError != nil) != tt.fails {
				t.Errorf("failing since %v: %v", s.FailingSince, s.LastError)
			}
		})
	}
}

// settled returns the arguments that mark the first n pending events as published.
func settled(n int) string {
	positions := make([]string, n)
	for i := range positions {
		positions[i] = strconv.Itoa(20_001 + i)
	}
	return fmt.Sprintf(`'webhook', 5, '{%s}', array_fill(1, ARRAY[%d]), array_fill(true, ARRAY[%d]),
		array_fill(false, ARRAY[%d]), array_fill(0::bigint, ARRAY[%d]), array_fill(''::text, ARRAY[%d]), array_fill(NULL::timestamptz, ARRAY[%d])`, strings.Join(positions, ","), n, n, n, n, n, n)
}

// The holder of an idle sink writes nothing, even during a long transaction.
func TestASinkAtRestIsNotWritten(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	execute(t, db, strings.ReplaceAll(strings.SplitAfter(backlog, "INSERT INTO tasker.emission_sinks (sink) VALUES ('webhook');")[0], "2000", "20"))
	row := func() string {
		t.Helper()
		text, err := queryValue[string](t.Context(), db.pool, `SELECT format('%s %s %s', s.ctid, s.xmin, s.xmax) FROM tasker.emission_sinks s`)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	holder := tasker.NewID()
	news := func(want bool) {
		t.Helper()
		held, err := db.AcquireSinkLease(t.Context(), "webhook", holder, time.Hour)
		if err != nil || held == nil || held.NewEvents != want {
			t.Fatalf("held %+v, %v, want news: %v", held, err, want)
		}
	}
	take := func() {
		t.Helper()
		if _, err := db.TakeEvents(t.Context(), "webhook", 5000); err != nil {
			t.Fatal(err)
		}
	}
	passed := func() bool { // no transaction from before the events is open
		t.Helper()
		is, err := queryValue[bool](t.Context(), db.pool, `SELECT s.taken_before > (SELECT max(o.written_in) FROM tasker.outbox o) FROM tasker.emission_sinks s`)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	const event = `INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data) SELECT 'dlq.entry.updated', d.task_uuid, d.dlq_entry_uuid, '{}' FROM tasker.tasks_dlq d LIMIT 1`
	for _, beside := range []string{"nothing", "an open transaction"} {
		if beside != "nothing" {
			open, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = open.Rollback(context.WithoutCancel(t.Context())) })
			if _, err := open.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
				t.Fatal(err)
			}
		}
		execute(t, db, event)
		news(true)
		take()
		for deadline := time.Now().Add(time.Minute); beside == "nothing" && !passed() && time.Now().Before(deadline); {
			take()
		}
		news(false)
		before := row()
		for range 3 {
			news(false)
		}
		if after := row(); after != before {
			t.Errorf("beside %s the row was %s and is %s", beside, before, after)
		}
	}
	execute(t, db, `UPDATE tasker.emission_sinks SET held_until = now() + interval '39 minutes'`)
	before := row()
	news(false)
	if row() == before {
		t.Error("a lease with less than two thirds left is not renewed")
	}
	if held, err := db.AcquireSinkLease(t.Context(), "webhook", tasker.NewID(), time.Hour); err != nil || held != nil {
		t.Errorf("another holds it as well: %+v, %v", held, err)
	}
}

// Leases and delays from before the database clock was set back do not block a sink.
func TestASinkIsHeldAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.NewClock(t, time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	db, err := Open(t.Context(), d.URL, Options{ClockSchema: pgtest.ClockSchema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	const lease = time.Minute
	first, second := tasker.NewID(), tasker.NewID()
	hold := func(holder tasker.ID) *SinkLease {
		t.Helper()
		held, err := db.AcquireSinkLease(t.Context(), "webhook", holder, lease)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	back := func(by time.Duration) {
		t.Helper()
		if _, err := d.Pool(t).Exec(t.Context(), `UPDATE test_clock.setting SET virtual = virtual - $1::interval`, by); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.OpenSink(t.Context(), "webhook"); err != nil {
		t.Fatal(err)
	}
	if hold(first) == nil {
		t.Fatal("a free sink is not acquired")
	}
	if err := db.RecordSinkStatus(t.Context(), "webhook", first,
		SinkStatusUpdate{Problem: "busy", Rest: time.Hour}); err != nil {
		t.Fatal(err)
	}
	back(lease / 2)
	if hold(second) != nil {
		t.Error("a lease is over because the clock is set back a little")
	}
	if held := hold(first); held == nil || held.Rest == nil || *held.Rest < 50*time.Minute {
		t.Errorf("held %+v, want a rest of an hour", held)
	}
	back(24 * time.Hour)
	if held := hold(second); held == nil || held.Rest != nil {
		t.Errorf("a day back it is held as %+v by another, want without a rest", held)
	}
	if hold(first) != nil {
		t.Error("two hold the sink")
	}
	back(24 * time.Hour)
	hold(second)
	if hold(first) != nil {
		t.Error("a lease that was kept is as far ahead as before")
	}
}
