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

// advisoryLock is the key of the lock that prevents concurrent migrations. It must never change,
// because programs of all versions use it.
const advisoryLock = 7_236_837_501 // "tasker" on a telephone keypad, and 01

// Names that [Up] can return in addition to those of migrations.
const (
	objectsName    = "functions and views"
	privilegesName = "privileges of the roles"
)

// migrator applies the files of a source to databases.
type migrator struct {
	source *source
	poll   time.Duration // interval between attempts to get the lock

	reportAfter, reportEvery time.Duration // when to report the owner of the lock

	// lockTimeout is short, because a statement that waits for a lock blocks all later ones. The
	// files are retried after backoff.
	lockTimeout time.Duration
	backoff     time.Duration // before the second attempt; doubles each time
	maxBackoff  time.Duration
	wait        time.Duration // total time for retries, and for the lock
	progress    func(message string)
}

func newMigrator(s *source) migrator {
	return migrator{
		source: s, poll: 50 * time.Millisecond, reportAfter: time.Second, reportEvery: time.Minute,
		lockTimeout: 2 * time.Second, backoff: time.Second, maxBackoff: 15 * time.Second, wait: DefaultWait,
		progress: func(string) {},
	}
}

func (m migrator) withOptions(o Options) migrator {
	if o.Wait > 0 {
		m.wait = o.Wait
	}
	if o.Progress != nil {
		m.progress = o.Progress
	}
	return m
}

// up implements [Up]. It holds the migration lock and, if the database has roles, acts as the
// owner of the schema.
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

// upAs applies the missing files as the current user of the connection.
func (m migrator) upAs(ctx context.Context, conn *pgx.Conn) (names []string, err error) {
	// Read the status only now: another migrator may have worked while this one waited.
	report, err := m.source.status(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := report.checkForeign(); err != nil {
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
	// Each file is a separate transaction, so that one that waits for a table does not lock
	// another: servers lock tables in any order. Functions and views come last, because servers of
	// the old version use the old ones until then.
	for len(pending) > 0 {
		var err error
		if pending[0].runsAlone() {
			err = runAlone(ctx, conn, pending[0])
		} else {
			err = m.apply(ctx, conn, pending[:1], false)
		}
		if slices.Contains(irreplaceable, conditionName(err)) && !slices.ContainsFunc(pending, file.runsAlone) {
			break // a view depends on the change: replace both in one transaction
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
	names = append(names, filePaths(pending)...)
	return append(names, objectsName), nil
}

// grantMissing grants missing privileges of a database whose schema is current. They can be
// missing because the roles were created later.
func (m migrator) grantMissing(ctx context.Context, conn *pgx.Conn, r roles) ([]string, error) {
	list, err := r.findMissing(ctx, conn)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return []string{privilegesName}, m.apply(ctx, conn, nil, false)
}

// withApplied adds the names of the files that were applied before to an error.
func withApplied(names []string, err error) error {
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w\n(already applied: %s; running servers continue, and the next migrate up "+
		"resumes here)", err, strings.Join(names, ", "))
}

func filePaths(files []file) []string {
	var list []string
	for _, f := range files {
		list = append(list, f.path)
	}
	return list
}

// lock waits for the migration lock and reports who holds it. It polls instead of waiting in
// PostgreSQL: a session that waits in pg_advisory_lock holds a snapshot for which CREATE INDEX
// CONCURRENTLY waits, so the two would deadlock.
func (m migrator) lock(ctx context.Context, conn *pgx.Conn) (release func() error, err error) {
	tick := time.NewTicker(m.poll)
	defer tick.Stop()
	report, end := time.NewTimer(m.reportAfter), time.NewTimer(m.wait)
	defer report.Stop()
	defer end.Stop()
	for {
		var locked bool
		if err := conn.QueryRow(ctx, statement("tryLockMigrations"), int64(advisoryLock)).Scan(&locked); err != nil {
			return nil, fmt.Errorf("acquire the migration lock: %w", err)
		}
		if locked {
			return func() error { return unlock(ctx, conn) }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another program is migrating this database: %w", ctx.Err())
		case <-end.C:
			who, err := findMigrator(ctx, conn)
			return nil, errors.Join(fmt.Errorf("%s is migrating this database and did not finish within %s: "+
				"nothing was changed; "+
				"run it again later", who, m.wait), err)
		case <-report.C:
			who, err := findMigrator(ctx, conn)
			if err != nil {
				return nil, err
			}
			m.progress(fmt.Sprintf("%s is migrating this database; waiting for it to finish", who))
			report.Reset(m.reportEvery)
		case <-tick.C:
		}
	}
}

// findMigrator describes the program that holds the migration lock.
func findMigrator(ctx context.Context, conn *pgx.Conn) (who string, err error) {
	if err := conn.QueryRow(ctx, statement("migratorSession"), int64(advisoryLock)).Scan(&who); err != nil {
		return "another program", fmt.Errorf("find the program that is migrating: %w", err)
	}
	return who, nil
}

// unlock releases the lock, even if ctx has ended. A closed connection has already released it.
func unlock(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, statement("unlockMigrations"), int64(advisoryLock)); err != nil {
		return fmt.Errorf("release the migration lock: %w", err)
	}
	return nil
}

// createTable creates the table of applied migrations. It checks first, because IF NOT EXISTS
// requires the privilege to create even if the table exists.
func createTable(ctx context.Context, conn *pgx.Conn) error {
	exists, err := tableExists(ctx, conn)
	if err != nil || exists {
		return err
	}
	var found bool
	if err := conn.QueryRow(ctx, statement("schemaExists")).Scan(&found); err != nil {
		return fmt.Errorf("find schema tasker: %w", err)
	}
	if !found {
		if _, err := conn.Exec(ctx, statement("createSchema")); err != nil {
			return fmt.Errorf("create schema tasker: %w", err)
		}
	}
	_, err = conn.Exec(ctx, statement("createMigrations"), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("create table tasker.schema_migrations: %w", err)
	}
	return nil
}

// apply applies the files in one transaction, which also replaces all functions and views if
// objects is true. If a lock is not available, it rolls back and retries later.
func (m migrator) apply(ctx context.Context, conn *pgx.Conn, pending []file, objects bool) error {
	began, pause := time.Now(), m.backoff
	remake := false
	for {
		err := m.applyOnce(ctx, conn, pending, objects, remake)
		code := conditionName(err)
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
			return fmt.Errorf("other transactions held locks that the migration needs for %s%s; the waiting part "+
				"was rolled back: "+
				"end them, or wait longer (tasker migrate up --wait): %w", waited.Round(time.Second), holder, err)
		}
		m.progress(fmt.Sprintf("another transaction holds a lock that the migration needs%s; "+
			"retrying in %s", holder, pause))
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, m.maxBackoff)
	}
}

// lockHolder describes the oldest transaction that holds a lock on a table of the schema, to
// append to an error. It returns "" if there is none.
func lockHolder(ctx context.Context, conn *pgx.Conn) string {
	var text string
	err := conn.QueryRow(ctx, statement("lockHolder")).Scan(&text)
	if err != nil {
		return "" // the transaction has ended, or the user may not see it
	}
	return text
}

// applyOnce is one attempt of apply. If remake is true, it first drops all functions and views,
// because one of them cannot be replaced.
func (m migrator) applyOnce(ctx context.Context, conn *pgx.Conn, pending []file, objects, remake bool) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("prepareTransaction"), fmt.Sprint(m.lockTimeout.Milliseconds())); err != nil {
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
		return grant(ctx, tx) // in this transaction: servers are running
	})
}
