package doctor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/devpg"
	"tasker.example/tasker/internal/doctor"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/schema"
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
	says(t, found, "schema: ok that of this program", "objects: ok", "transactions: ok none that this user can see has been open for 1h0m0s", "invariants: ok none is violated", "work: ok no work is deferred")

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

// What keeps rows as an open transaction does, without a session: a transaction that is prepared, and the slot of
// a standby that is gone. Both are of a server of its own: they would keep the rows of other tests.
func TestExamineWithoutSessions(t *testing.T) {
	t.Parallel()
	pg, data := preparing(t)
	url := pg.URL()
	conn := connect(t, url)
	if _, err := schema.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	worker := vacuuming(t, connect(t, url))
	slot := standby(t, url, "standby")
	execute(t, conn, `SELECT pg_create_physical_replication_slot('unread')`) // keeps no rows
	execute(t, conn, `BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'it''s of a bank'`)
	found, sound, err := examineFor(t, conn, time.Minute, time.Hour)
	if err != nil || !sound {
		t.Errorf("just prepared, and read by a standby: %v, %s", err, found)
	}
	bare := standby(t, url, "")
	for range 3 {
		execute(t, conn, `SELECT pg_current_xact_id()`)
	}
	if found, sound = examineBehind(t, conn, 1000); !sound {
		t.Errorf("standbys that are not far behind:\n%s", found)
	}
	found, _ = examineBehind(t, conn, 3)
	says(t, found, "transactions: standby standby (process ", "transactions: standby bare (process ", ") keeps the rows of the last ",
		" transactions: end what has been open there for long, or set hot_standby_feedback = off on it\n")
	if err := bare.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := slot.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for active := true; active; {
		if err := conn.QueryRow(t.Context(), `SELECT active FROM pg_replication_slots WHERE slot_name = 'standby'`).Scan(&active); err != nil {
			t.Fatal(err)
		}
	}
	if found, sound, err = examineFor(t, conn, time.Minute, time.Nanosecond); err != nil || sound {
		t.Errorf("sound %v, %v", sound, err)
	}
	says(t, found, "transactions: transaction 'it''s of a bank' of user ", " is prepared since ", ": run COMMIT PREPARED or ROLLBACK PREPARED\n",
		"transactions: replication slot standby keeps rows and nobody reads from it: SELECT pg_drop_replication_slot('standby') if nobody will\n")
	if strings.Contains(found, "unread") {
		t.Errorf("a slot that keeps no rows:\n%s", found)
	}
	execute(t, conn, `ROLLBACK PREPARED 'it''s of a bank'`)
	execute(t, conn, `SELECT pg_drop_replication_slot('standby')`)
	if found, sound, err = examineFor(t, conn, time.Minute, time.Nanosecond); err != nil || !sound {
		t.Errorf("with neither, beside the autovacuum worker %d: %v, %s", worker, err, found)
	}

	// On a standby there are its own transactions only.
	folder := ""
	if err := conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&folder); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, `COPY (SELECT WHERE false) TO '`+filepath.Join(folder, "standby.signal")+`'`)
	if err := pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg = start(t, data)
	if found, sound, err = examineFor(t, connect(t, pg.URL()), time.Minute, time.Nanosecond); err != nil || !sound {
		t.Errorf("on a standby: %v, %s", err, found)
	}
	says(t, found, "has been open for 1ns on this standby; those of the primary are seen there only: run this check on the primary as well\n")
}

// vacuuming has an autovacuum worker wait in a transaction until the test has ended.
func vacuuming(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	execute(t, conn, `
		CREATE FUNCTION awaited(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN n; END';
		CREATE TABLE analyzed (n int) WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);
		CREATE INDEX ON analyzed (awaited(n));
		SELECT pg_advisory_lock(77);
		INSERT INTO analyzed SELECT generate_series(1, 100)`)
	for pid == 0 {
		err := conn.QueryRow(t.Context(), `SELECT coalesce(max(pid), 0) FROM pg_stat_activity
			WHERE backend_type = 'autovacuum worker' AND wait_event_type = 'Lock' AND backend_xmin IS NOT NULL`).Scan(&pid)
		if err != nil {
			t.Fatal(err)
		}
	}
	return pid
}

// preparing starts a PostgreSQL that prepares transactions and serves standbys, as those of tests do not. It returns
// the folder of its data as well.
func preparing(t *testing.T) (pg *devpg.Server, data string) {
	t.Helper()
	dir, err := os.MkdirTemp(childproc.TempDir(1<<30), "tasker-test-") //nolint:usetesting // the folder above that of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL may run as another user
		t.Fatal(err)
	}
	data = filepath.Join(dir, "data")
	pg, err = devpg.Start(t.Context(), devpg.Options{DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, connect(t, pg.URL()), `ALTER SYSTEM SET max_prepared_transactions = 2`)
	execute(t, connect(t, pg.URL()), `ALTER SYSTEM SET autovacuum_naptime = 1`)
	if err := pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg = start(t, data)
	conn, rules := connect(t, pg.URL()), ""
	if err := conn.QueryRow(t.Context(), `SHOW hba_file`).Scan(&rules); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(rules, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("host replication all 127.0.0.1/32 scram-sha-256\n")
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, `SELECT pg_reload_conf()`)
	return pg, data
}

// start starts the PostgreSQL of a folder until the test has ended.
func start(t *testing.T, data string) *devpg.Server {
	t.Helper()
	pg, err := devpg.Start(t.Context(), devpg.Options{DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop(context.WithoutCancel(t.Context())) })
	return pg
}

// standby reads the log, from a slot if it has a name, and says that it needs all rows of now, as a hot standby does.
func standby(t *testing.T, url, slot string) *pgconn.PgConn {
	t.Helper()
	conf, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	conf.RuntimeParams["replication"], conf.RuntimeParams["application_name"] = "true", "bare"
	s, err := pgconn.ConnectConfig(t.Context(), conf)
	for refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == "28000"; { // until the rules are read again
		s, err = pgconn.ConnectConfig(t.Context(), conf)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	from := ""
	if slot != "" {
		from = "SLOT " + slot
		if _, err := s.Exec(t.Context(), "CREATE_REPLICATION_SLOT "+slot+" PHYSICAL RESERVE_WAL").ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	who, err := s.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll() // its third column is where the log ends
	if err != nil {
		t.Fatal(err)
	}
	s.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + from + " PHYSICAL " + string(who[0].Rows[0][2])})
	if err := s.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	if m, err := s.ReceiveMessage(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, ok := m.(*pgproto3.CopyBothResponse); !ok {
		t.Fatalf("%T in place of the log", m)
	}
	conn := connect(t, url)
	var oldest uint64
	if err := conn.QueryRow(t.Context(), `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0) // the clock, which nobody reads
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest))
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest>>32))
	s.Frontend().Send(&pgproto3.CopyData{Data: binary.BigEndian.AppendUint64(feedback, 0)})
	if err := s.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for kept := false; !kept; {
		if err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND xmin IS NOT NULL)
			OR EXISTS (SELECT FROM pg_stat_replication WHERE $1 = '' AND backend_xmin IS NOT NULL)`, slot).Scan(&kept); err != nil {
			t.Fatal(err)
		}
	}
	return s
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
	return examineWith(t, conn, doctor.Options{Timeout: timeout, Open: open})
}

// examineBehind examines with standbys that may keep the rows of so many transactions.
func examineBehind(t *testing.T, conn *pgx.Conn, behind int) (found string, sound bool) {
	t.Helper()
	found, sound, err := examineWith(t, conn, doctor.Options{Timeout: time.Minute, Behind: behind})
	if err != nil {
		t.Fatal(err)
	}
	return found, sound
}

func examineWith(t *testing.T, conn *pgx.Conn, o doctor.Options) (found string, sound bool, err error) {
	t.Helper()
	var b strings.Builder
	o.Begins, o.Tell = func(string) {}, func(f doctor.Finding) error {
		for _, fault := range f.Faults {
			_, _ = fmt.Fprintf(&b, "%s: %s\n", f.Check, fault)
		}
		if len(f.Faults) == 0 {
			_, _ = fmt.Fprintf(&b, "%s: ok %s\n", f.Check, f.Sound)
		}
		return nil
	}
	sound, err = doctor.Examine(t.Context(), conn, o)
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
