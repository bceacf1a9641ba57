package schema_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// holding opens a transaction that has read from a table, as pg_dump does, and
// returns what ends it.
func (p *findPosition) holding(table string) (end func()) {
	p.Helper()
	conn := p.connect()
	tx, err := conn.Begin(p.Context())
	p.Must(err)
	if _, err := tx.Exec(p.Context(), "SET application_name = 'dump'; LOCK TABLE "+table+" IN ACCESS SHARE MODE", pgx.QueryExecModeSimpleProtocol); err != nil {
		p.Fatal(err)
	}
	return func() {
		if err := tx.Commit(p.Context()); err != nil {
			p.Error(err)
		}
	}
}

// A migration that waits for a lock must not hold up the servers behind it.
func TestAMigrationDoesNotQueueForALock(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	end := p.holding("tasker.box")
	ended := sync.OnceFunc(end)
	defer ended()

	const lock = 300 * time.Millisecond
	var messages []string
	var server sync.WaitGroup
	conn, reader := p.connect(), &findPosition{T: t, url: p.url}
	reader.conn = p.connect()
	reader.exec(`SET statement_timeout = '20s'`)
	tried := make(chan struct{}, 100)
	done := make(chan error, 1)
	server.Go(func() {
		_, err := second.program(t).UpImpatiently(t.Context(), conn, lock, time.Minute, func(message string) {
			messages = append(messages, message)
			tried <- struct{}{}
		})
		done <- err
	})
	worst := time.Duration(0)
	for tries := 0; tries < 3; {
		select {
		case <-tried:
			tries++
		case err := <-done:
			t.Fatalf("the migration ended while the lock was held: %v", err)
		default:
		}
		began := time.Now()
		reader.text(`SELECT count(*)::text FROM tasker.box`)
		worst = max(worst, time.Since(began))
	}
	ended()
	p.Must(<-done)
	server.Wait()
	if worst > 10*time.Second { // as long as somebody holds the lock, it would be the 20 s of the timeout
		t.Errorf("a server waited %v behind a migration that waits %v", worst, lock)
	}
	if len(messages) == 0 || !strings.Contains(messages[0], "another transaction holds a lock that the migration needs (process ") ||
		!strings.Contains(messages[0], ", dump, in a transaction since ") {
		t.Errorf("it said %q", messages)
	}
	if err := p.err(second.program(t)); err != nil {
		t.Error(err)
	}
}

func TestAMigrationGivesUpAfterAWhile(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	before := p.contents()
	defer p.holding("tasker.box")()
	_, err := second.program(t).UpImpatiently(t.Context(), p.conn, 20*time.Millisecond, 200*time.Millisecond, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "rolled back") || !strings.Contains(err.Error(), "--wait") ||
		!strings.Contains(err.Error(), ", dump, in a transaction since ") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(before, p.contents()); diff != "" {
		t.Error(diff)
	}
}

// Servers have the functions in their plans by their identity.
func TestAFunctionThatChangesStaysTheSame(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	const identity = `SELECT 'tasker.double'::regproc::oid || ' ' || 'tasker.boxes'::regclass::oid`
	before := p.text(identity)
	p.up(first.with(files{
		"functions/double.sql": "CREATE OR REPLACE FUNCTION tasker.double(n int) RETURNS int LANGUAGE sql RETURN n + n;",
		"views/boxes.sql":      "CREATE OR REPLACE VIEW tasker.boxes AS SELECT n, tasker.double(n) AS twice, n AS once FROM tasker.box;",
	}).program(t))
	if after := p.text(identity); after != before {
		t.Errorf("function and view were %s and are %s", before, after)
	}
	p.text(`SELECT coalesce(max(once), 0)::text FROM tasker.boxes`)
}

// An upgrade leaves the views and functions of the files, and no others.
func TestWhatHasNoFileIsDropped(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]files{
		"by itself":               {},
		"beside one that changes": {"functions/triple.sql": "CREATE OR REPLACE FUNCTION tasker.triple(n int) RETURNS bigint LANGUAGE sql RETURN n * 3;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := empty(t)
			old := first.with(files{
				"functions/triple.sql": "CREATE OR REPLACE FUNCTION tasker.triple(n int) RETURNS int LANGUAGE sql RETURN n * 3;",
				"views/three.sql":      "CREATE OR REPLACE VIEW tasker.three AS SELECT tasker.triple(n) AS n FROM tasker.box;",
				"functions/grow.sql":   "CREATE OR REPLACE FUNCTION tasker.grow(n int, by int DEFAULT 1) RETURNS int LANGUAGE sql RETURN n + by;",
				"functions/shrink.sql": "CREATE OR REPLACE FUNCTION tasker.shrink(n int) RETURNS int LANGUAGE sql RETURN n - 1;",
			})
			p.up(old.program(t))
			next := old.with(more).with(files{
				"functions/grow.sql":   "CREATE OR REPLACE FUNCTION tasker.grow(n int, by int DEFAULT 1, times int DEFAULT 1) RETURNS int LANGUAGE sql RETURN n + by * times;",
				"functions/shrink.sql": "CREATE OR REPLACE FUNCTION tasker.shrink(n text) RETURNS int LANGUAGE sql RETURN 0;",
			})
			delete(next, "functions/double.sql")
			delete(next, "views/a_boxes.sql")
			next["views/boxes.sql"] = "CREATE OR REPLACE VIEW tasker.boxes AS SELECT n, n * 2 AS twice FROM tasker.box;"
			p.up(next.program(t))
			fresh := empty(t)
			fresh.up(next.program(t))
			objects := func(p *findPosition) string {
				return p.text(`SELECT string_agg(oid::regprocedure::text, ' ' ORDER BY oid::regprocedure::text) FROM pg_proc WHERE pronamespace = 'tasker'::regnamespace`) +
					p.text(`SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'tasker'::regnamespace AND relkind = 'v'`)
			}
			if diff := cmp.Diff(objects(fresh), objects(p)); diff != "" {
				t.Errorf("after an upgrade (-new +upgraded): %s", diff)
			}
		})
	}
}
