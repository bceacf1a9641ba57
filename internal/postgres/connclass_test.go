package postgres

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/pgtest"
)

func TestLanesShareTheConnections(t *testing.T) {
	t.Parallel()
	for all := 1; all <= 1000; all++ {
		s, sum := splitConns(all), 0
		for class, n := range s {
			sum += n
			if all >= minShared && n < 1 {
				t.Errorf("of %d connections class %d has none", all, class)
			}
		}
		if sum != all || s[General] < 1 {
			t.Errorf("of %d connections the classes have %v", all, s)
		}
	}
	if got := splitConns(20); got != [connClasses]int{5, 2, 7, 3, 3} {
		t.Errorf("of 20 connections the classes have %v: docs/reference/configuration.md differs", got)
	}
}

// An exhausted class does not block the others.
func TestALaneThatIsFullKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{MaxConns: 8})
	for range splitConns(8)[General] {
		conn, err := db.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	for _, class := range []ConnClass{Heartbeats, Work, Creates, Timers} {
		ctx, cancel := context.WithTimeout(WithConnClass(t.Context(), class), 20*time.Second)
		if err := db.CheckWritable(ctx); err != nil {
			t.Errorf("class %d: %v", class, err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := db.CheckWritable(ctx); err == nil {
		t.Error("the exhausted class has a free connection: the test shows nothing")
	}
}

// A read-only database is unavailable. Its connections are not used when it accepts writes again.
func TestAReadOnlyDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db, err := Open(t.Context(), d.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	owner := d.Pool(t)
	set := func(sql string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I `+sql+`', current_database()); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	write := func() error {
		return db.InTx(t.Context(), func(tx *Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM tasker.deferred_work`)
			return err
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	set("SET default_transaction_read_only = on")
	db.Reset()
	for range 3 {
		if err := write(); tasker.CodeOf(err) != tasker.Unavailable || !IsUnavailable(err) {
			t.Errorf("a write returns %v (%s)", err, tasker.CodeOf(err))
		}
	}
	if err := db.RemoveWorker(t.Context(), tasker.NewID()); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("the removal of a worker returns %v (%s)", err, tasker.CodeOf(err))
	}
	if _, err := db.pool.Exec(t.Context(), `SELECT 1`); err != nil { // leaves a read-only connection
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), `SET default_transaction_read_only = off`); err != nil {
		t.Fatal(err)
	}
	set("RESET default_transaction_read_only")
	if err := write(); err != nil {
		t.Errorf("once it takes writes again: %v", err)
	}
}

// An idle connection needs a round trip only if data has arrived or the socket cannot be checked.
func TestAnIdleConnectionIsTestedWithoutARoundTrip(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{MaxConns: 1})
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	socket := conn.Conn().PgConn().Conn()
	for idle, want := range map[time.Duration]bool{0: false, idleAfter / 2: false, 2 * idleAfter: false, 2 * pingAfter: true} {
		if got := needsPing(socket, idle); got != want {
			t.Errorf("after %v: pings %t, want %t", idle, got, want)
		}
	}
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	execute(t, db, `SELECT pg_terminate_backend($1)`, pid)
	for deadline := time.Now().Add(time.Minute); !needsPing(socket, 2*idleAfter); {
		if time.Now().After(deadline) {
			t.Fatal("a connection that PostgreSQL has ended is used without a test")
		}
	}
	if needsPing(socket, idleAfter/2) {
		t.Error("a connection that was just used is tested")
	}
	if !needsPing(nil, 2*idleAfter) {
		t.Error("a socket that cannot be checked is not tested")
	}
}

// With several hosts, only a writable one is used.
func TestConnectFindsTheWritableHost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	connect := func(url string) error {
		conn, err := Connect(t.Context(), url)
		if err != nil {
			return err
		}
		return conn.Close(t.Context())
	}
	several, err := url.Parse(db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	other, err := url.Parse(pgtest.NewCutter(t, db.AdminURL).URL)
	if err != nil {
		t.Fatal(err)
	}
	several.Host += "," + other.Host
	if err := connect(several.String()); err != nil {
		t.Error(err)
	}
	conn, err := Connect(t.Context(), db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	if err := connect(several.String()); err == nil || !strings.Contains(err.Error(), "read only") {
		t.Errorf("a connection to read-only hosts: %v", err)
	}
	if err := connect(several.String() + "&target_session_attrs=read-only"); err != nil {
		t.Errorf("with target_session_attrs in the URL: %v", err)
	}
	if err := connect(db.AdminURL); err != nil {
		t.Errorf("of one host: %v", err)
	}
	if err := connect("postgres://%"); err == nil {
		t.Error("an invalid URL connects")
	}
}
