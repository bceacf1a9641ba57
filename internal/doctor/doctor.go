// Package doctor runs read-only consistency checks on a database.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker/internal/invariants"
	"tasker.example/tasker/internal/schema"
)

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
	// The checks read whole tables even if statistics say that they are small. Compiling the query
	// of the invariants takes longer than running it.
	if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true),
		set_config('jit', 'off', true)`, fmt.Sprint(d.Timeout.Milliseconds())); err != nil {
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

const faultyObjects = `
SELECT format('index tasker.%I is invalid: drop it and create it again: %s', c.relname, pg_get_indexdef(c.oid))
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'tasker'::regnamespace AND NOT i.indisvalid
UNION ALL
SELECT format('constraint %s of tasker.%s was never checked for old rows: ALTER TABLE tasker.%2$I VALIDATE CONSTRAINT %1$I',
    c.conname, r.relname)
FROM pg_constraint c
JOIN pg_class r ON r.oid = c.conrelid
WHERE c.connamespace = 'tasker'::regnamespace AND NOT c.convalidated
ORDER BY 1`

func (d *doctor) checkObjects(ctx context.Context, tx pgx.Tx) error {
	faults, err := queryLines(ctx, tx, faultyObjects)
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

// openTransactions finds everything that prevents PostgreSQL from removing dead rows: open
// transactions, replication slots without a reader, and standbys with hot_standby_feedback, with
// or without a slot.
const openTransactions = `
SELECT line FROM (
    SELECT format('process %s (%s of user %s) has a transaction open since %s: end it, or run SELECT pg_terminate_backend(%1$s)', a.pid,
        coalesce(nullif(a.application_name, ''), 'without a name'), a.usename,
        to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) AS line, a.xact_start AS since
    FROM pg_stat_activity a
    WHERE a.backend_type = 'client backend' AND a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start <= clock_timestamp() - $1::interval
    UNION ALL
    SELECT format('transaction %L of user %s is prepared since %s: run COMMIT PREPARED or ROLLBACK PREPARED', p.gid, p.owner,
        to_char(p.prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')), p.prepared
    FROM pg_prepared_xacts p
    WHERE p.database = current_database() AND p.prepared <= clock_timestamp() - $1::interval
    UNION ALL
    SELECT format('replication slot %s keeps rows and nobody reads from it: SELECT pg_drop_replication_slot(%L) if nobody will',
        s.slot_name, s.slot_name), 'infinity'
    FROM pg_replication_slots s
    WHERE NOT s.active AND s.xmin IS NOT NULL
    UNION ALL
    SELECT format('standby %s (process %s) keeps the rows of the last %s transactions: end what has been open there for long, '
            || 'or set hot_standby_feedback = off on it',
        coalesce(nullif(k.name, ''), 'without a name'), k.pid, age(k.xmin)), 'infinity'
    FROM (
        SELECT r.application_name AS name, r.pid, r.backend_xmin AS xmin FROM pg_stat_replication r
        UNION ALL
        SELECT s.slot_name, s.active_pid, s.xmin FROM pg_replication_slots s WHERE s.active
    ) k
    WHERE age(k.xmin) >= $3
) x
ORDER BY since, line
LIMIT $2`

// checkTransactions checks for open transactions.
func (d *doctor) checkTransactions(ctx context.Context, tx pgx.Tx) error {
	limit := cmp.Or(d.Open, longTransaction)
	faults, err := queryLines(ctx, tx, openTransactions, limit, shownOpen, cmp.Or(d.Behind, openTooFar))
	if err != nil {
		return fmt.Errorf("find open transactions: %w", err)
	}
	sound := fmt.Sprintf("none that this user can see has been open for %s", limit)
	standby := false
	if err := tx.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil {
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

const deferredWork = `
SELECT line, count(*) OVER () FROM (
SELECT format('task %s of %s/%s was requested with tasker.create_task and refused: %s: %s; see tasker-ctl task requests',
        task_uuid, namespace, name, error_code, error_message) AS line, 0 AS kind, 0 AS failures
FROM tasker.task_requests
WHERE refused_at IS NOT NULL
UNION ALL
SELECT format('%s of task %s failed %s times since %s, last with: %s', kind, task_uuid, failures,
        to_char(first_failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), last_error), 1, failures
FROM tasker.deferred_work
) x
ORDER BY kind, failures DESC, line
LIMIT $1`

func (d *doctor) checkWork(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, deferredWork, shownDeferred)
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
