// Package schema contains the database schema and its migrations, and applies them.
//
// All objects are in PostgreSQL's schema tasker. Migrations are numbered and forward-only; an
// applied one is never edited. Functions and views have one file per object and no history: all of
// them are replaced after any change. A function or view without a file is dropped.
//
// Each migration is one transaction; all functions and views together are another one. Servers keep
// running, so a transaction must be short. It must not scan or rewrite a table that can be large,
// and it changes one table that servers use: servers lock tables in any order, so a second one
// could cause a deadlock. After a failed upgrade the applied migrations remain; servers of the
// previous version work with them, and the next upgrade continues. A file runs outside of a
// transaction if its first line is
//
//	-- tasker:no-transaction
//
// It must contain a single statement, which runs while servers are active: CREATE INDEX
// CONCURRENTLY, DROP INDEX CONCURRENTLY, or ALTER TABLE … VALIDATE CONSTRAINT for a constraint that
// an earlier file has added as NOT VALID.
//
// The upgrade waits at most two seconds for a lock, because all statements of the servers wait
// behind it. It then rolls back and retries.
//
// Concurrent calls of [Up] are safe: one works, the others wait. A server calls [Check] instead,
// which changes nothing.
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

// program is the source that is embedded in this program. A test loads it, so that its panic
// cannot occur for users.
var program = mustLoad(files)

// Up migrates the database to the schema of this program and returns the names of the applied
// files. It rejects a database that a newer program has migrated or whose applied migrations
// differ, see [Check]. conn must not be in a transaction. It must be a direct connection, because
// a transaction pooler would lose the lock.
func Up(ctx context.Context, conn *pgx.Conn) (applied []string, err error) {
	return newMigrator(program).up(ctx, conn)
}

// DefaultWait limits the time in which [Up] retries to get locks or waits for another migrating
// program.
const DefaultWait = 5 * time.Minute

// Options configures an upgrade. All fields are optional.
type Options struct {
	Wait     time.Duration        // for locks and for another migrating program; default [DefaultWait]
	Progress func(message string) // called with the reason for waiting
}

// UpWith is like [Up] with options.
func UpWith(ctx context.Context, conn *pgx.Conn, o Options) (applied []string, err error) {
	return newMigrator(program).withOptions(o).up(ctx, conn)
}

// Status compares the database with this program.
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
	report.Ungranted, err = r.findMissing(ctx, conn)
	return report, err
}

// Check returns nil if the database has the schema of this program and the user of conn has the
// privileges of a server. Otherwise it returns [ErrBehind], [ErrAhead], [ErrDevelopment],
// [ErrEdited] or [ErrPrivileges], with the remedy, or the error of the query.
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

// Checksum identifies the schema of this program.
func Checksum() string {
	sum := sha256.Sum256([]byte(program.checksum + rolesSQL + fmt.Sprint(serverPrivileges, hiddenFromReader)))
	return hex.EncodeToString(sum[:])
}
