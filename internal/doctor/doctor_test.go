package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/doctor"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The doctor finds what is not as it must be, says what it is, and changes nothing.
func TestExamine(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, other := connect(t, db.AdminURL), connect(t, db.AdminURL)
	found, sound, err := examine(t, conn, time.Minute)
	if err != nil || !sound {
		t.Errorf("a sound database: %v, %s", err, found)
	}
	says(t, found, "schema: ok that of this program", "objects: ok", "transactions: ok none that this user can see has been open for 1h0m0s", "invariants: ok none is violated", "work: ok nothing is set aside")

	execute(t, other, `
		INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at)
		SELECT 'n', 'h', 0, now(), gen_random_uuid(), '0191f2f0-0000-7000-8000-000000000001', now() FROM generate_series(1, 60);
		INSERT INTO tasker.deferred_work (kind, task_uuid, last_error, retry_at, first_failed_at) SELECT 'sweep', gen_random_uuid(), E'no\nluck', now(), '2026-01-02T03:04:05Z' FROM generate_series(1, 12);
		ALTER TABLE tasker.holds ADD CONSTRAINT odd CHECK (owner <> 'odd') NOT VALID;
		UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tasker.claims_to_look_at'::regclass`)
	found, sound, err = examine(t, conn, time.Minute)
	if err != nil || sound {
		t.Errorf("sound %v, %v", sound, err)
	}
	says(t, found,
		"objects: constraint odd of tasker.holds was never checked for old rows: ALTER TABLE tasker.holds VALIDATE CONSTRAINT odd",
		"objects: index tasker.claims_to_look_at is invalid: drop it and create it again: CREATE INDEX claims_to_look_at ON",
		"invariants: ready_steps has a step that is not enqueued: task 0191f2f0-0000-7000-8000-000000000001", "invariants: and 10 more",
		"work: sweep of task", "failed 1 times since 2026-01-02T03:04:05Z, last with: no luck", "work: and 2 more")
	if again, _, _ := examine(t, conn, time.Minute); strings.Count(again, "\n") != strings.Count(found, "\n") {
		t.Errorf("it changed something:\n%s\n%s", found, again)
	}

	// A transaction that is open keeps rows from being removed.
	execute(t, other, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tasker.tasks`)
	if found, sound, err = examineFor(t, conn, time.Minute, time.Nanosecond); err != nil || sound {
		t.Errorf("sound %v, %v", sound, err)
	}
	says(t, found, fmt.Sprintf("transactions: process %d (", other.PgConn().PID()), "has a transaction open since ")
	execute(t, other, `ROLLBACK`)

	// A check that would take too long ends.
	execute(t, other, `BEGIN; LOCK TABLE tasker.task_history`)
	if _, sound, err := examine(t, conn, time.Second); sound || err == nil || !strings.Contains(err.Error(), "a check took longer than 1s") {
		t.Errorf("sound %v, %v", sound, err)
	}
	execute(t, other, `ROLLBACK; DELETE FROM tasker.schema_migrations WHERE version = (SELECT max(version) FROM tasker.schema_migrations)`)
	if found, sound, err := examine(t, conn, time.Minute); sound || err != nil || !strings.HasPrefix(found, "schema: ") || !strings.Contains(found, "tasker migrate up") || strings.Contains(found, "work") {
		t.Errorf("a schema of another version: %v, %s", err, found)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func examine(t *testing.T, conn *pgx.Conn, timeout time.Duration) (found string, sound bool, err error) {
	t.Helper()
	return examineFor(t, conn, timeout, 0)
}

func examineFor(t *testing.T, conn *pgx.Conn, timeout, open time.Duration) (found string, sound bool, err error) {
	t.Helper()
	var b strings.Builder
	sound, err = doctor.Examine(t.Context(), conn, doctor.Options{Timeout: timeout, Open: open, Begins: func(string) {}, Tell: func(f doctor.Finding) error {
		for _, fault := range f.Faults {
			_, _ = fmt.Fprintf(&b, "%s: %s\n", f.Check, fault)
		}
		if len(f.Faults) == 0 {
			_, _ = fmt.Fprintf(&b, "%s: ok %s\n", f.Check, f.Sound)
		}
		return nil
	}})
	return b.String(), sound, err
}

func says(t *testing.T, found string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(found, want) {
			t.Errorf("it does not say %q:\n%s", want, found)
		}
	}
}
