// Package schema contains the database schema and its migrations, and applies them.
//
// Everything lies in PostgreSQL's schema tasker. Migrations are numbered and go
// forward only; one that was applied is never edited. Functions and views have
// one file per object and no history: when anything here has changed, all of
// them are replaced. A function or view that the files no longer have is dropped.
//
// Each migration is one transaction, and so are all functions and views. Servers run
// meanwhile, so it must be short: nothing in it may scan or rewrite a table that can
// be large, and it changes one table that servers use, because servers take tables in
// any order, and one that has the second and waits for the first would wait for ever.
// An upgrade that fails leaves what it has applied, which servers of the previous
// version can live with, and the next one goes on from there. No transaction are
// files whose first line is
//
//	-- tasker:no-transaction
//
// one statement per file, which runs by itself while servers go on: CREATE INDEX
// CONCURRENTLY, DROP INDEX CONCURRENTLY, or ALTER TABLE … VALIDATE CONSTRAINT for a
// constraint that an earlier file has added as NOT VALID.
//
// The upgrade waits for no lock longer than two seconds, since every statement of
// every server would wait behind it. It is rolled back then, and begun anew.
//
// Any number of programs may call [Up] at once; one works, the others wait and
// find the work done. A server calls [Check] instead, which changes nothing.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed all:migrations all:functions all:views
var files embed.FS

// program is what this program was built with. A test loads it, so the panic is
// one that no user can meet.
var program = mustLoad(files)

// Up brings the database to the schema of this program and returns the files it
// applied, none if the database was there already. It refuses a database that a
// newer program has migrated, and one whose migrations are not those of this
// program; see [Check]. conn must not be in a transaction, and must lead to
// PostgreSQL itself: a pooler that hands out sessions by the transaction would
// lose the lock.
func Up(ctx context.Context, conn *pgx.Conn) (applied []string, err error) {
	return newMigrator(program).up(ctx, conn)
}

// DefaultWait is how long [Up] tries to get locks that others hold, and how long it waits for
// another program that is migrating the database.
const DefaultWait = 5 * time.Minute

// Options say how patient an upgrade is. Zero means the default.
type Options struct {
	Wait     time.Duration        // for locks that others hold, and for another migrator; 0: [DefaultWait]
	Progress func(message string) // told why it waits; may be nil
}

// UpWith is [Up] with options.
func UpWith(ctx context.Context, conn *pgx.Conn, o Options) (applied []string, err error) {
	return newMigrator(program).with(o).up(ctx, conn)
}

// Status compares the database with this program, and changes nothing.
func Status(ctx context.Context, conn *pgx.Conn) (Report, error) {
	report, err := program.status(ctx, conn)
	if err != nil {
		return report, err
	}
	r, found, err := findRoles(ctx, conn)
	if err != nil || !found {
		return report, err
	}
	report.Roles = []string{r.Migrate, r.Server, r.Reader}
	report.Ungranted, err = r.missing(ctx, conn)
	return report, err
}

// Check returns nil if the database has the schema of this program, and its user
// may do what a server does. Otherwise its error is one of [ErrBehind], [ErrAhead], [ErrDevelopment],
// [ErrEdited] and [ErrPrivileges], and says what to do; or the database could not
// be asked.
func Check(ctx context.Context, conn *pgx.Conn) error {
	report, err := program.status(ctx, conn)
	if err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return err
	}
	return checkPrivileges(ctx, conn)
}

// Checksum identifies the schema of this program: two programs with the same
// checksum make the same database.
func Checksum() string {
	sum := sha256.Sum256([]byte(program.checksum + rolesSQL + fmt.Sprint(serverPrivileges, hiddenFromReader)))
	return hex.EncodeToString(sum[:])
}
