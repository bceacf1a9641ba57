package schema_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A findPosition is an empty database.
type findPosition struct {
	*testing.T
	db   *pgtest.DB
	url  string // for a superuser
	conn *pgx.Conn
}

func empty(t *testing.T) *findPosition {
	t.Helper()
	db := pgtest.New(t)
	p := &findPosition{T: t, db: db, url: db.AdminURL}
	p.conn = p.connect()
	p.exec(`DROP SCHEMA tasker CASCADE`)
	return p
}

func (p *findPosition) connect() *pgx.Conn {
	p.Helper()
	conn, err := pgx.Connect(p.Context(), p.url)
	p.Must(err)
	p.Cleanup(func() { _ = conn.Close(p.Context()) })
	return conn
}

// Must fails the test if there is an error.
func (p *findPosition) Must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *findPosition) exec(sql string) {
	p.Helper()
	_, err := p.conn.Exec(p.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	p.Must(err)
}

// text runs a query that answers with one text.
func (p *findPosition) text(sql string) string {
	p.Helper()
	var s string
	p.Must(p.conn.QueryRow(p.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&s))
	return s
}

func (p *findPosition) up(program schema.Program) []string {
	p.Helper()
	applied, err := program.Up(p.Context(), p.conn)
	p.Must(err)
	return applied
}

func (p *findPosition) err(program schema.Program) error {
	p.Helper()
	report, err := program.Status(p.Context(), p.conn)
	p.Must(err)
	return report.Err()
}

func (p *findPosition) refused(program schema.Program, words ...string) {
	p.Helper()
	_, err := program.Up(p.Context(), p.conn)
	if err == nil {
		p.Fatalf("it was applied, want an error that says %v", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			p.Errorf("error %q does not say %q", err, w)
		}
	}
}

// files is SQL by the names of its files.
type files map[string]string

func (f files) with(more files) files {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

func (f files) program(t *testing.T) schema.Program {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, sql := range f {
		fsys[name] = &fstest.MapFile{Data: []byte(sql)}
	}
	program, err := schema.LoadProgram(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var first = files{
	"migrations/0001_box.sql": "CREATE TABLE tasker.box (n int);",
	"functions/double.sql":    "CREATE OR REPLACE FUNCTION tasker.double(n int) RETURNS int LANGUAGE sql RETURN n * 2;",
	"views/a_boxes.sql":       "CREATE OR REPLACE VIEW tasker.a_boxes AS SELECT * FROM tasker.boxes;", // needs one that comes later
	"views/boxes.sql":         "CREATE OR REPLACE VIEW tasker.boxes AS SELECT n, tasker.double(n) AS twice FROM tasker.box;",
}

var second = first.with(files{
	"migrations/0002_colour.sql": "ALTER TABLE tasker.box ADD colour text;",
	"views/boxes.sql":            "CREATE OR REPLACE VIEW tasker.boxes AS SELECT colour FROM tasker.box;",
})

func TestUp(t *testing.T) {
	t.Parallel()
	p := empty(t)
	one, two := first.program(t), second.program(t)
	if err := p.err(one); !errors.Is(err, schema.ErrBehind) || !strings.Contains(err.Error(), "tasker migrate up") {
		t.Errorf("an empty database gives %v", err)
	}
	if diff := cmp.Diff([]string{"migrations/0001_box.sql", "functions and views"}, p.up(one)); diff != "" {
		t.Error(diff)
	}
	if err := p.err(one); err != nil {
		t.Error(err)
	}
	if again := p.up(one); again != nil {
		t.Errorf("a second time it applies %v", again)
	}
	p.exec(`INSERT INTO tasker.box VALUES (21)`)
	if got := p.text(`SELECT twice::text FROM tasker.a_boxes`); got != "42" {
		t.Errorf("the view says %s", got)
	}
	if err := p.err(two); !errors.Is(err, schema.ErrBehind) || !strings.Contains(err.Error(), "0002_colour") {
		t.Errorf("an older database gives %v", err)
	}
	p.up(two)
	if got := p.text(`SELECT coalesce(colour, 'none') FROM tasker.a_boxes`); got != "none" {
		t.Errorf("the new view says %s", got)
	}
	if err := p.err(one); !errors.Is(err, schema.ErrAhead) || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("a newer database gives %v", err)
	}
	p.refused(one, "newer")
}

func TestADatabaseOfADevelopmentVersionIsRefused(t *testing.T) {
	t.Parallel()
	p := empty(t)
	many := files{"migrations/0001_engine.sql": "CREATE TABLE tasker.box (n int);"}
	for i := 2; i <= len(schema.Embedded().Migrations())+1; i++ {
		many[fmt.Sprintf("migrations/%04d_more.sql", i)] = ""
	}
	p.up(many.program(t))
	if err := p.err(schema.Embedded()); !errors.Is(err, schema.ErrDevelopment) {
		t.Errorf("it is refused with %v", err)
	}
	p.refused(schema.Embedded(), "before 0.1", "tasker-ctl dlq export", "new database")
}

func TestOnlyAViewHasChanged(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	changed := first.with(files{"functions/double.sql": "CREATE OR REPLACE FUNCTION tasker.double(n int) RETURNS int LANGUAGE sql RETURN n + n + 0;"}).program(t)
	if err := p.err(changed); !errors.Is(err, schema.ErrBehind) {
		t.Errorf("a changed function gives %v", err)
	}
	if diff := cmp.Diff([]string{"functions and views"}, p.up(changed)); diff != "" {
		t.Error(diff)
	}
}

func TestManyAtOnceApplyItOnce(t *testing.T) {
	t.Parallel()
	p := empty(t)
	program := second.program(t)
	var wg sync.WaitGroup
	applied := make([][]string, 8)
	for i := range applied {
		conn := p.connect()
		wg.Go(func() {
			var err error
			if applied[i], err = program.Up(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	worked := 0
	for _, a := range applied {
		if a != nil {
			worked++
		}
	}
	if worked != 1 {
		t.Errorf("%d of them applied something: %v", worked, applied)
	}
}

// Who waits for another migrator says for whom, and does not wait for ever.
func TestAnotherMigratorIsNamed(t *testing.T) {
	t.Parallel()
	p := empty(t)
	other := &findPosition{T: t, url: p.url}
	other.conn = other.connect()
	pid := other.text(`SELECT pg_backend_pid()::text FROM set_config('application_name', 'yesterday', false), pg_advisory_lock(7236837501)`)
	var said []string
	_, err := second.program(t).UpImpatiently(t.Context(), p.conn, 100*time.Millisecond, 2*time.Second, func(message string) { said = append(said, message) })
	if len(said) < 2 {
		t.Errorf("it said %q, want who has the lock, again and again", said)
	}
	who := "process " + pid + " (yesterday of user "
	for _, message := range said {
		if !strings.HasPrefix(message, who) || !strings.Contains(message, ", connected since 2") || !strings.HasSuffix(message, "waiting for it to finish") {
			t.Errorf("it said %q", message)
		}
	}
	if err == nil || !strings.HasPrefix(err.Error(), who) || !strings.Contains(err.Error(), "did not finish within 2s") {
		t.Errorf("it ended with %v", err)
	}
	other.exec(`SELECT pg_advisory_unlock(7236837501)`)
	p.up(second.program(t))
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files files
		says  []string
	}{
		{"a mistake", files{"migrations/0002_bad.sql": "CREATE TABLE tasker.more (n int);\nCREATE TABLE\n  tasker.broken (n strange);"}, []string{"migrations/0002_bad.sql:3:", "strange"}},
		{"a view that needs what is nowhere", files{"views/odd.sql": "CREATE OR REPLACE VIEW tasker.odd AS SELECT * FROM tasker.nothing;"}, []string{"views/odd.sql", "nothing"}},
		{"a file that commits", files{"migrations/0002_commit.sql": "CREATE TABLE tasker.more (n int); ROLLBACK;"}, []string{"0002_commit.sql", "COMMIT or ROLLBACK"}},
		{"a view in a migration", files{"migrations/0002_view.sql": "CREATE VIEW tasker.stray AS SELECT 1 AS n;"}, []string{"stray", "views/"}},
		{"an edited migration", files{"migrations/0001_box.sql": "CREATE TABLE tasker.box (n bigint);"}, []string{"edited", "0001_box", "new migration"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := empty(t)
			p.up(first.program(t))
			before := p.contents()
			p.refused(first.with(tt.files).program(t), tt.says...)
			if diff := cmp.Diff(before, p.contents()); diff != "" {
				t.Errorf("the database has changed: %s", diff)
			}
			if err := p.err(first.program(t)); err != nil {
				t.Errorf("the old program no longer runs: %v", err)
			}
		})
	}
}

// contents lists all that is in the schema.
func (p *findPosition) contents() string {
	p.Helper()
	return p.text(`
		SELECT string_agg(line, E'\n' ORDER BY line)
		FROM (
			SELECT format('%s %s', relkind, relname) AS line FROM pg_class WHERE relnamespace = 'tasker'::regnamespace
			UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'tasker'::regnamespace
			UNION ALL SELECT format('%s %s %s', version, name, checksum) FROM tasker.schema_migrations
		) x`)
}

func TestAFileThatRunsAlone(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	concurrent := first.with(files{
		"migrations/0002_index.sql": "-- tasker:no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS box_n ON tasker.box (n);",
		"migrations/0003_more.sql":  "CREATE TABLE tasker.more (n int);",
	}).program(t)
	want := []string{"migrations/0002_index.sql", "migrations/0003_more.sql", "functions and views"}
	if diff := cmp.Diff(want, p.up(concurrent)); diff != "" {
		t.Error(diff)
	}
	if got := p.text(`SELECT indisvalid::text FROM pg_index WHERE indexrelid = 'tasker.box_n'::regclass`); got != "true" {
		t.Errorf("the index is valid: %s", got)
	}
}

func TestForeignViewsAreNotDropped(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	p.exec(`CREATE VIEW public.report AS SELECT twice FROM tasker.boxes`)
	p.refused(second.program(t), "an object outside schema tasker", "public.report", "drop the object", "already applied: migrations/0002_colour.sql")
	p.exec(`INSERT INTO tasker.box VALUES (21)`)
	if got := p.text(`SELECT format('%s %s', (SELECT twice FROM public.report), (SELECT twice FROM tasker.a_boxes))`); got != "42 42" {
		t.Errorf("the views say %s", got)
	}
	p.exec(`DROP VIEW public.report`)
	if diff := cmp.Diff([]string{"functions and views"}, p.up(second.program(t))); diff != "" {
		t.Error(diff)
	}
}

// What is applied before a failure stays, and the next attempt goes on from there.
func TestAMigrationGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	p := empty(t)
	p.up(first.program(t))
	good := first.with(files{"migrations/0002_good.sql": "CREATE TABLE tasker.more (n int);"})
	p.refused(good.with(files{"migrations/0003_bad.sql": "SELECT 1/0;"}).program(t), "0003_bad.sql", "division by zero", "already applied: migrations/0002_good.sql")
	p.text(`SELECT count(*)::text FROM tasker.a_boxes`)
	fixed := good.with(files{"migrations/0003_bad.sql": "SELECT 1;"}).program(t)
	if diff := cmp.Diff([]string{"migrations/0003_bad.sql", "functions and views"}, p.up(fixed)); diff != "" {
		t.Error(diff)
	}
}

// A migration that waits for a table holds no other: a server that has the one and
// wants the other would wait for the migration, and the migration for it.
func TestAMigrationHoldsOneTableAtATime(t *testing.T) {
	t.Parallel()
	p := empty(t)
	one := files{"migrations/0001_tables.sql": "CREATE TABLE tasker.a (n int); CREATE TABLE tasker.b (n int);"}
	p.up(one.program(t))
	server, watch := p.connect(), &findPosition{T: t, url: p.url}
	watch.conn = watch.connect()
	run := func(sql string) {
		if _, err := server.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	}
	run(`SET lock_timeout = '500ms'; BEGIN; INSERT INTO tasker.b VALUES (1)`)
	pid := p.text(`SELECT pg_backend_pid()::text`)
	var wg sync.WaitGroup
	wg.Go(func() {
		for watch.text(`SELECT count(*)::text FROM pg_locks WHERE NOT granted AND pid = `+pid) == "0" {
		}
		run(`INSERT INTO tasker.a VALUES (1)`)
		run(`COMMIT`)
	})
	p.up(one.with(files{
		"migrations/0002_a.sql": "ALTER TABLE tasker.a ADD COLUMN m int;", "migrations/0003_b.sql": "ALTER TABLE tasker.b ADD COLUMN m int;",
	}).program(t))
	wg.Wait()
}

func TestSourcesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]files{
		"a gap":             {"migrations/0001_a.sql": "", "migrations/0003_b.sql": ""},
		"a name":            {"migrations/first.sql": ""},
		"a number twice":    {"migrations/0001_a.sql": "", "migrations/0001_b.sql": ""},
		"no SQL":            {"views/readme.txt": ""},
		"a view that alone": {"views/v.sql": "-- tasker:no-transaction\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			for path, sql := range f {
				fsys[path] = &fstest.MapFile{Data: []byte(sql)}
			}
			if _, err := schema.LoadProgram(fsys); err == nil {
				t.Error("it was accepted")
			} else if !strings.Contains(err.Error(), ".") {
				t.Error(fmt.Errorf("the error names no file: %w", err))
			}
		})
	}
}

// A server that runs meanwhile may hold what a migration wants, and want what it
// holds: then the migration is begun anew.
func TestAMigrationThatIsTakenBackByADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := empty(t)
	one := files{"migrations/0001_tables.sql": "CREATE TABLE tasker.a (n int); COMMENT ON TABLE tasker.a IS 'a'; CREATE TABLE tasker.b (n int); COMMENT ON TABLE tasker.b IS 'b';"}
	p.up(one.program(t))
	server := p.connect()
	run := func(sql string) {
		if _, err := server.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	}
	run(`SET deadlock_timeout = '1min'; BEGIN; LOCK TABLE tasker.b`) // the migration is to find out first
	p.exec(`SET deadlock_timeout = '50ms'`)
	pid := p.text(`SELECT pg_backend_pid()::text`)
	watch := &findPosition{T: t, url: p.url}
	watch.conn = watch.connect()
	var wg sync.WaitGroup
	wg.Go(func() {
		for watch.text(`SELECT count(*)::text FROM pg_locks WHERE NOT granted AND pid = `+pid) == "0" {
		}
		run(`LOCK TABLE tasker.a`)
		run(`COMMIT`)
	})
	p.up(one.with(files{"migrations/0002_change.sql": "ALTER TABLE tasker.a ADD COLUMN m int; ALTER TABLE tasker.b ADD COLUMN m int;"}).program(t))
	wg.Wait()
	if got := p.text(`SELECT count(*)::text FROM information_schema.columns WHERE table_schema = 'tasker' AND column_name = 'm'`); got != "2" {
		t.Errorf("%s of 2 columns are there", got)
	}
}

// A database with another encoding than UTF-8 would fail with the first task, so it is refused
// before anything is created in it.
func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	p := empty(t)
	const name = "tasker_test_sql_ascii"
	p.exec(`DROP DATABASE IF EXISTS ` + name)
	p.exec(`CREATE DATABASE ` + name + ` ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.WithoutCancel(t.Context()), p.url)
		if err == nil {
			_, err = conn.Exec(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`)
			err = errors.Join(err, conn.Close(context.WithoutCancel(t.Context())))
		}
		if err != nil {
			t.Error(err)
		}
	})
	where, err := url.Parse(p.url)
	p.Must(err)
	where.Path = name
	conn, err := pgx.Connect(t.Context(), where.String())
	p.Must(err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, up := schema.Up(t.Context(), conn)
	_, status := schema.Status(t.Context(), conn)
	for command, err := range map[string]error{"migrate up": up, "doctor": status, "serve": schema.Check(t.Context(), conn)} {
		if !errors.Is(err, schema.ErrUnsuitable) || !strings.Contains(err.Error(), "its encoding is SQL_ASCII: create a database with CREATE DATABASE "+name+" ENCODING 'UTF8'") {
			t.Errorf("%s: %v", command, err)
		}
	}
}
