package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Errors of [Check].
var (
	ErrBehind = errors.New("the database is behind this program")
	ErrAhead  = errors.New("the database is newer than this program")
	ErrEdited = errors.New("an applied migration was edited")
	// ErrDevelopment is returned if the database was created by a version before 0.1.
	ErrDevelopment = errors.New(
		"the database was created by a development version before 0.1 and cannot be upgraded")
)

// objectsVersion is the version of the row in schema_migrations that contains the checksum of all
// files.
const objectsVersion = 0

// A Migration is one numbered change of the schema.
type Migration struct {
	Version   int
	Name      string
	Checksum  string     // of this program's file, or of the applied file if this program has none
	AppliedAt *time.Time // nil if it is pending
	Edited    string     // checksum of the applied file, if it differs
}

// A Report compares a database with this program.
type Report struct {
	Database   int         // number of the newest applied migration, or 0
	Program    int         // number of this program's newest migration
	Migrations []Migration // of the database and the program, ordered by number

	ObjectsAt      *time.Time // when functions and views were last replaced, or nil
	ObjectsCurrent bool       // functions and views are those of this program

	Development bool // see [ErrDevelopment]

	Roles     []string // migrate, server and reader, or empty
	Ungranted []string // statements that correct the privileges of the roles
}

// Pending returns the migrations that the database lacks.
func (r Report) Pending() []Migration {
	var list []Migration
	for _, m := range r.Migrations {
		if m.AppliedAt == nil {
			list = append(list, m)
		}
	}
	return list
}

// Err returns nil if the database has the schema of this program. Otherwise it returns the problem
// and the remedy.
func (r Report) Err() error {
	if err := r.checkForeign(); err != nil {
		return err
	}
	pending := r.Pending()
	switch {
	case r.Database == 0 && len(pending) > 0:
		return fmt.Errorf("%w: it has no Tasker schema yet; run: tasker migrate up", ErrBehind)
	case len(pending) > 0:
		names := make([]string, len(pending))
		for i, m := range pending {
			names[i] = fmt.Sprintf("%04d_%s", m.Version, m.Name)
		}
		return fmt.Errorf("%w: it is at version %d, but this program requires %d (missing: %s); run: tasker migrate up",
			ErrBehind, r.Database, r.Program, strings.Join(names, ", "))
	case !r.ObjectsCurrent && r.ObjectsAt == nil:
		return fmt.Errorf("%w: its functions and views were never created; run: tasker migrate up", ErrBehind)
	case !r.ObjectsCurrent:
		return fmt.Errorf("%w: its functions and views, created at %s, differ from those of this program; "+
			"run: tasker migrate up (or start the newer program, if that created them)",
			ErrBehind, r.ObjectsAt.UTC().Format(time.RFC3339))
	case len(r.Ungranted) > 0:
		return fmt.Errorf("%w: the privileges of %s differ from those of this program; run: tasker migrate up",
			ErrBehind, strings.Join(r.Roles, ", "))
	}
	return nil
}

// developmentName is the name of the first migration in development versions.
const developmentName = "engine"

// checkForeign returns the error of [Report.Err] if no migration can fix the problem, otherwise
// nil.
func (r Report) checkForeign() error {
	if r.Development {
		return fmt.Errorf("%w; export what you need (tasker-ctl dlq export with that version, or pg_dump) and create "+
			"a new database: tasker migrate up, or tasker dev with a new --data-dir", ErrDevelopment)
	}
	if r.Database > r.Program {
		return fmt.Errorf("%w: it is at version %d, but this program supports %d; "+
			"start the newer program, or restore a backup from before the upgrade", ErrAhead, r.Database, r.Program)
	}
	for _, m := range r.Migrations {
		if m.Edited != "" {
			return fmt.Errorf("%w: %04d_%s has checksum %s in the database and %s in this program; "+
				"restore the file, and make the change in a new migration",
				ErrEdited, m.Version, m.Name, shortChecksum(m.Edited), shortChecksum(m.Checksum))
		}
	}
	return nil
}

// appliedMigration is a row of schema_migrations.
type appliedMigration struct {
	Version   int       `db:"version"`
	Name      string    `db:"name"`
	Checksum  string    `db:"checksum"`
	AppliedAt time.Time `db:"applied_at"`
}

// status compares the database with the source.
func (s *source) status(ctx context.Context, conn *pgx.Conn) (Report, error) {
	if err := checkDatabase(ctx, conn); err != nil {
		return Report{}, err
	}
	rows, err := readHistory(ctx, conn)
	if conditionName(err) == "42501" { // insufficient_privilege
		return Report{}, newLackingError(ctx, conn, "USAGE")
	}
	if err != nil {
		return Report{}, err
	}
	r := Report{Program: s.newest()}
	done := make(map[int]appliedMigration, len(rows))
	for _, a := range rows {
		done[a.Version] = a
		r.Database = max(r.Database, a.Version)
	}
	r.Development = done[1].Name == developmentName
	if a, ok := done[objectsVersion]; ok {
		r.ObjectsAt, r.ObjectsCurrent = &a.AppliedAt, a.Checksum == s.checksum
	}
	for _, f := range s.migrations {
		m := Migration{Version: f.version, Name: f.name, Checksum: f.checksum}
		if a, ok := done[f.version]; ok {
			m.AppliedAt = &a.AppliedAt
			if a.Checksum != f.checksum {
				m.Edited = a.Checksum
			}
		}
		r.Migrations = append(r.Migrations, m)
	}
	for _, a := range rows {
		if a.Version > s.newest() {
			r.Migrations = append(r.Migrations, Migration{
				Version: a.Version, Name: a.Name, Checksum: a.Checksum, AppliedAt: &a.AppliedAt,
			})
		}
	}
	return r, nil
}

// readHistory returns the applied migrations. It returns none if the table does not exist.
func readHistory(ctx context.Context, conn *pgx.Conn) ([]appliedMigration, error) {
	exists, err := tableExists(ctx, conn)
	if err != nil || !exists {
		return nil, err
	}
	list, err := collect[appliedMigration](ctx, conn, statement("appliedMigrations"))
	if err != nil {
		return nil, fmt.Errorf("read applied migrations: %w", err)
	}
	return list, nil
}

func tableExists(ctx context.Context, conn *pgx.Conn) (exists bool, err error) {
	err = conn.QueryRow(ctx, statement("migrationsExist")).Scan(&exists)
	if err != nil {
		return false, fmt.Errorf("find table tasker.schema_migrations: %w", err)
	}
	return exists, nil
}
