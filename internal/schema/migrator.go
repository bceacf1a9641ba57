package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// advisoryLock is the key under which one migrator at a time works on a
// database. It must never change: programs of all versions meet there.
const advisoryLock = 7_236_837_501 // "tasker" on a telephone, and a 01

// What Up returns beside the names of migrations.
const (
	objectsName    = "functions and views"
	privilegesName = "privileges of the roles"
)

// A migrator brings databases to a source.
type migrator struct {
	source *source
	poll   time.Duration // between two attempts at the lock

	tellAfter, tellEvery time.Duration // who has the lock: at first, and again

	// A statement that waits for a lock makes everybody behind it wait as well, so
	// it gives up soon, and the files are begun anew after a while.
	lockTimeout time.Duration
	backoff     time.Duration // before the second attempt; it doubles
	maxBackoff  time.Duration
	wait        time.Duration // after which no further attempt is made; and for the lock
	progress    func(message string)
}

func newMigrator(s *source) migrator {
	return migrator{
		source: s, poll: 50 * time.Millisecond, tellAfter: time.Second, tellEvery: time.Minute,
		lockTimeout: 2 * time.Second, backoff: time.Second, maxBackoff: 15 * time.Second, wait: DefaultWait,
		progress: func(string) {},
	}
}

// with is the migrator with options.
func (m migrator) with(o Options) migrator {
	if o.Wait > 0 {
		m.wait = o.Wait
	}
	if o.Progress != nil {
		m.progress = o.Progress
	}
	return m
}

// up is [Up]. It works alone on the database, as the role that owns the schema if there are roles.
func (m migrator) up(ctx context.Context, conn *pgx.Conn) (names []string, err error) {
	release, err := m.lock(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()

	r, found, err := findRoles(ctx, conn)
	if err != nil {
		return nil, err
	}
	if !found {
		return m.upAs(ctx, conn)
	}
	restore, err := r.assume(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	names, err = m.upAs(ctx, conn)
	if err != nil || len(names) > 0 {
		return names, err
	}
	return m.grantMissing(ctx, conn, r)
}

// upAs applies what is missing as the user that the connection has now.
func (m migrator) upAs(ctx context.Context, conn *pgx.Conn) (names []string, err error) {
	// Only now: what others did while we waited is done.
	report, err := m.source.status(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := report.foreign(); err != nil {
		return nil, err
	}
	var pending []file
	for _, p := range report.Pending() {
		pending = append(pending, m.source.migrations[p.Version-1])
	}
	if len(pending) == 0 && report.ObjectsCurrent {
		return nil, nil
	}
	if err := createTable(ctx, conn); err != nil {
		return nil, err
	}
	// Each file is a transaction of its own, so that one that waits for a table holds
	// no other: servers take tables in any order. Views and functions come last: until
	// then the old ones stay, because servers of the old version are running on them.
	for len(pending) > 0 {
		var err error
		if pending[0].alone() {
			err = runAlone(ctx, conn, pending[0])
		} else {
			err = m.apply(ctx, conn, pending[:1], false)
		}
		if slices.Contains(irreplaceable, conditionOf(err)) && !slices.ContainsFunc(pending, file.alone) {
			break // a view is built on what it changes: they are replaced together
		}
		if err != nil {
			return names, withApplied(names, err)
		}
		names = append(names, pending[0].path)
		pending = pending[1:]
	}
	if err := m.apply(ctx, conn, pending, true); err != nil {
		return names, withApplied(names, err)
	}
	names = append(names, paths(pending)...)
	return append(names, objectsName), nil
}

// grantMissing grants to the roles what they lack although the schema is current:
// they may be younger than it.
func (m migrator) grantMissing(ctx context.Context, conn *pgx.Conn, r roles) ([]string, error) {
	list, err := r.missing(ctx, conn)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return []string{privilegesName}, m.apply(ctx, conn, nil, false)
}

// withApplied says with an error which files are applied all the same.
func withApplied(names []string, err error) error {
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w\n(%s applied before; servers that run go on, and the next migrate up continues from there)", err, strings.Join(names, ", "))
}

func paths(files []file) []string {
	var list []string
	for _, f := range files {
		list = append(list, f.path)
	}
	return list
}

// lock waits for its turn, and says for whom. It asks again and again, and never waits inside
// PostgreSQL: a session that waits in pg_advisory_lock holds a snapshot, CREATE
// INDEX CONCURRENTLY waits for that snapshot, and the two wait for ever.
func (m migrator) lock(ctx context.Context, conn *pgx.Conn) (release func() error, err error) {
	tick := time.NewTicker(m.poll)
	defer tick.Stop()
	tell, end := time.NewTimer(m.tellAfter), time.NewTimer(m.wait)
	defer tell.Stop()
	defer end.Stop()
	for {
		var got bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(advisoryLock)).Scan(&got); err != nil {
			return nil, fmt.Errorf("take the lock of the migrations: %w", err)
		}
		if got {
			return func() error { return unlock(ctx, conn) }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another program is migrating this database: %w", ctx.Err())
		case <-end.C:
			who, err := findMigrator(ctx, conn)
			return nil, errors.Join(fmt.Errorf("%s is migrating this database, and was not done within %s: nothing was changed; run it again later", who, m.wait), err)
		case <-tell.C:
			who, err := findMigrator(ctx, conn)
			if err != nil {
				return nil, err
			}
			m.progress(fmt.Sprintf("%s is migrating this database; waiting for its end", who))
			tell.Reset(m.tellEvery)
		case <-tick.C:
		}
	}
}

// An advisory lock with one key has its halves in classid and objid.
const migratorSession = `
SELECT coalesce((
    SELECT format('process %s (%s of user %s, connected since %s)', l.pid, coalesce(nullif(a.application_name, ''), 'without a name'), coalesce(a.usename, 'unknown'),
        coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time'))
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    LIMIT 1
), 'another program')`

// findMigrator says who has the lock of the migrations.
func findMigrator(ctx context.Context, conn *pgx.Conn) (who string, err error) {
	if err := conn.QueryRow(ctx, migratorSession, int64(advisoryLock)).Scan(&who); err != nil {
		return "another program", fmt.Errorf("find the program that is migrating: %w", err)
	}
	return who, nil
}

// unlock gives the lock back, whatever became of ctx. A closed connection has
// given it back already.
func unlock(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, int64(advisoryLock)); err != nil {
		return fmt.Errorf("give back the lock of the migrations: %w", err)
	}
	return nil
}

// createTable makes the place where migrations are recorded. It asks first,
// because IF NOT EXISTS wants the right to create even where nothing is to do.
func createTable(ctx context.Context, conn *pgx.Conn) error {
	exists, err := tableExists(ctx, conn)
	if err != nil || exists {
		return err
	}
	var create string
	if err := conn.QueryRow(ctx, `SELECT CASE WHEN to_regnamespace('tasker') IS NULL THEN 'CREATE SCHEMA tasker;' ELSE '' END`).Scan(&create); err != nil {
		return fmt.Errorf("find the schema tasker: %w", err)
	}
	_, err = conn.Exec(ctx, create+`
		CREATE TABLE tasker.schema_migrations (
			version    integer     PRIMARY KEY,
			name       text        NOT NULL,
			checksum   text        NOT NULL,
			applied_at timestamptz NOT NULL DEFAULT now()
		);
		COMMENT ON TABLE tasker.schema_migrations IS
			'Migrations that were applied, and as version 0 the checksum of all of the schema.'`,
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("make the table tasker.schema_migrations: %w", err)
	}
	return nil
}

// apply applies the files in one transaction, and replaces functions and views in
// it if objects says so. When others hold its locks it takes back what it did and
// tries again later.
func (m migrator) apply(ctx context.Context, conn *pgx.Conn, pending []file, objects bool) error {
	began, pause := time.Now(), m.backoff
	remake := false
	for {
		err := m.applyOnce(ctx, conn, pending, objects, remake)
		code := conditionOf(err)
		switch {
		case code == "":
			return err
		case objects && !remake && slices.Contains(irreplaceable, code):
			remake = true
			continue
		case code != "40P01" && code != "55P03": // deadlock, lock timeout
			return err
		}
		holder, waited := lockHolder(ctx, conn), time.Since(began)
		if waited+pause > m.wait {
			return fmt.Errorf("other transactions held locks that the migration needs for %s%s; what waited was rolled back: "+
				"end them, or migrate again with more patience (tasker migrate up --wait): %w", waited.Round(time.Second), holder, err)
		}
		m.progress(fmt.Sprintf("another transaction holds a lock that the migration needs%s; trying again in %s", holder, pause))
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, m.maxBackoff)
	}
}

// lockHolder names the oldest transaction that holds a lock on a table of the
// schema, as part of a sentence.
func lockHolder(ctx context.Context, conn *pgx.Conn) string {
	var text string
	err := conn.QueryRow(ctx, `
		SELECT format(' (process %s%s, in a transaction since %s)', a.pid,
			CASE WHEN a.application_name <> '' THEN ', ' || a.application_name ELSE '' END,
			to_char(a.xact_start AT TIME ZONE 'UTC', 'HH24:MI:SS UTC'))
		FROM pg_locks l
		JOIN pg_class c ON c.oid = l.relation
		JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.granted AND c.relnamespace = to_regnamespace('tasker') AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
		ORDER BY a.xact_start
		LIMIT 1`).Scan(&text)
	if err != nil {
		return "" // it has gone, or we may not know
	}
	return text
}

// applyOnce is one attempt of apply. If remake says so it drops all functions and
// views first, because one of them can be changed in no other way.
func (m migrator) applyOnce(ctx context.Context, conn *pgx.Conn, pending []file, objects, remake bool) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settings+fmt.Sprint(m.lockTimeout.Milliseconds()), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("prepare the session for migrations: %w", err)
		}
		before, err := findObjects(ctx, tx)
		if err != nil {
			return err
		}
		if remake {
			if err := drop(ctx, tx, before); err != nil {
				return err
			}
		}
		for _, f := range pending {
			if err := runFile(ctx, tx.Conn(), f); err != nil {
				return err
			}
			if err := record(ctx, tx, f.version, f.name, f.checksum); err != nil {
				return err
			}
		}
		if objects {
			if err := m.createObjects(ctx, tx); err != nil {
				return err
			}
		}
		if err := m.refuseStrays(ctx, tx, before); err != nil {
			return err
		}
		if objects {
			if err := m.dropOutdated(ctx, tx, before); err != nil {
				return err
			}
			if err := record(ctx, tx, objectsVersion, objectsName, m.source.checksum); err != nil {
				return err
			}
		}
		return grant(ctx, tx) // with what it is for: servers run meanwhile
	})
}

// settings make a file mean the same whoever applies it, and let it take the
// time it needs, but not wait for others. The time in milliseconds is to follow.
const settings = `
	SET LOCAL search_path = tasker;
	SET LOCAL statement_timeout = 0;
	SET LOCAL idle_in_transaction_session_timeout = 0;
	SET LOCAL lock_timeout = `
