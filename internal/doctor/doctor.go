// Package doctor runs read-only consistency checks on a database.
package doctor

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker/internal/invariants"
	"tasker.example/tasker/internal/schema"
	"tasker.example/tasker/internal/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statement returns the statement with the given name in sql/*.sql. It panics if there is none.
var statement = sqlfile.Load(sqlFiles).Get

// Limits of the output.
const (
	shownViolations = 50
	shownDeferred   = 10
	shownOpen       = 10
)

// longTransaction is the default age from which an open transaction is reported.
const longTransaction = time.Hour

// openTooFar is the default of [Options.Behind], which replaces an age because a standby does not
// report the age of its transactions.
const openTooFar = 1_000_000

// Options configures an examination. Timeout, Begins and Tell are required.
type Options struct {
	Timeout time.Duration         // of each check
	Open    time.Duration         // maximum age of a transaction; default an hour
	Behind  int                   // transactions for which a standby may retain rows; default a million
	Begins  func(what string)     // called before a long check
	Tell    func(f Finding) error // called with the result of each check
}

// A Finding is the result of one check.
type Finding struct {
	Check  string   // schema, objects, transactions, invariants or work
	Faults []string // one line each
	Sound  string   // description of the result without faults
}

// Examine runs all checks and reports whether they found no faults. It stops if the schema has
// another version, because the other checks depend on it.
func Examine(ctx context.Context, conn *pgx.Conn, o Options) (sound bool, err error) {
	d := doctor{Options: o}
	err = d.examine(ctx, conn)
	return !d.faulty && err == nil, err
}

// doctor examines one database.
type doctor struct {
	Options
	faulty bool
}

func (d *doctor) examine(ctx context.Context, conn *pgx.Conn) error {
	status, err := schema.Status(ctx, conn)
	if err != nil {
		return err
	}
	if wrong := status.Err(); wrong != nil {
		return d.report("schema", []string{wrong.Error()}, "")
	}
	if err := d.report("schema", status.Ungranted, fmt.Sprintf("that of this program, %04d", status.Database)); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, statement("prepareChecks"), fmt.Sprint(d.Timeout.Milliseconds())); err != nil {
		return fmt.Errorf("set the timeout of the checks: %w", err)
	}
	for _, check := range []func(context.Context, pgx.Tx) error{d.checkObjects, d.checkTransactions, d.checkInvariants,
		d.checkWork} {
		if err := check(ctx, tx); err != nil {
			return d.explainTimeout(err)
		}
	}
	return nil
}

// explainTimeout adds advice to err if it means that a check timed out.
func (d *doctor) explainTimeout(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "57014" { // query_canceled
		return fmt.Errorf("a check took longer than %s: increase --timeout, or run it on a standby: %w", d.Timeout, err)
	}
	return err
}

// report passes on the result of a check and records whether there are faults.
func (d *doctor) report(check string, faults []string, sound string) error {
	f := Finding{Check: check, Sound: sound}
	for _, fault := range faults {
		f.Faults = append(f.Faults, strings.ReplaceAll(fault, "\n", " "))
	}
	d.faulty = d.faulty || len(faults) > 0
	return d.Tell(f)
}

func (d *doctor) checkObjects(ctx context.Context, tx pgx.Tx) error {
	faults, err := queryLines(ctx, tx, statement("faultyObjects"))
	if err != nil {
		return fmt.Errorf("find invalid objects: %w", err)
	}
	return d.report("objects", faults, "all indexes and constraints are valid")
}

func queryLines(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// checkTransactions checks for open transactions.
func (d *doctor) checkTransactions(ctx context.Context, tx pgx.Tx) error {
	limit := cmp.Or(d.Open, longTransaction)
	faults, err := queryLines(ctx, tx, statement("openTransactions"), limit, shownOpen, cmp.Or(d.Behind, openTooFar))
	if err != nil {
		return fmt.Errorf("find open transactions: %w", err)
	}
	sound := fmt.Sprintf("none that this user can see has been open for %s", limit)
	standby := false
	if err := tx.QueryRow(ctx, statement("isStandby")).Scan(&standby); err != nil {
		return fmt.Errorf("find open transactions: %w", err)
	}
	if standby {
		sound += " on this standby; those of the primary are seen there only: run this check on the primary as well"
	}
	return d.report("transactions", faults, sound)
}

func (d *doctor) checkInvariants(ctx context.Context, tx pgx.Tx) error {
	d.Begins("checking the invariants, which reads the whole database …")
	begun := time.Now()
	found, all, err := invariants.Find(ctx, tx, shownViolations)
	if err != nil {
		return err
	}
	faults := make([]string, len(found))
	for i, v := range found {
		faults[i] = v.String()
	}
	if all > len(found) {
		faults = append(faults, fmt.Sprintf("and %d more", all-len(found)))
	}
	took := time.Since(begun).Round(100 * time.Millisecond)
	return d.report("invariants", faults, fmt.Sprintf("none is violated; checked in %s", took))
}

func (d *doctor) checkWork(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, statement("deferredWork"), shownDeferred)
	if err != nil {
		return fmt.Errorf("find deferred work: %w", err)
	}
	var faults []string
	var fault string
	var all int
	if _, err := pgx.ForEachRow(rows, []any{&fault, &all}, func() error {
		faults = append(faults, fault)
		return nil
	}); err != nil {
		return fmt.Errorf("find deferred work: %w", err)
	}
	if all > len(faults) {
		faults = append(faults, fmt.Sprintf("and %d more", all-len(faults)))
	}
	return d.report("work", faults, "no work is deferred, and no requested task was refused")
}
