package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// irreplaceable lists the SQLSTATEs of errors for changes that CREATE OR REPLACE cannot make. In
// that case, all functions and views are dropped first.
var irreplaceable = []string{
	"42P13", // a function has another result
	"42P16", // a view has other columns
	"2BP01", // something depends on the dropped object
	"0A000", // a view depends on the changed column
	"42725", // a call is ambiguous because the old function still exists
}

// object is a view or a function in the database.
type object struct {
	OID     uint32 `db:"oid"`
	Name    string `db:"name"`  // in the form for DROP
	Plain   string `db:"plain"` // without schema and arguments
	Kind    string `db:"kind"`
	Version string `db:"version"` // changes when a function is replaced
}

// findObjects returns all views and functions of the schema.
func findObjects(ctx context.Context, tx pgx.Tx) (all []object, err error) {
	for _, query := range []string{statement("findViews"), statement("findRoutines")} {
		list, err := collect[object](ctx, tx, query)
		if err != nil {
			return nil, fmt.Errorf("find the views and functions of the previous version: %w", err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// drop drops the objects, views first. It does not cascade, because views of users that depend on
// them must not be dropped. One command drops all views, so that their order does not matter.
func drop(ctx context.Context, tx pgx.Tx, objects []object) error {
	for _, kind := range []string{"MATERIALIZED VIEW", "VIEW", "ROUTINE"} {
		var names []string
		for _, o := range objects {
			if o.Kind == kind {
				names = append(names, o.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, "DROP "+kind+" "+strings.Join(names, ", "), pgx.QueryExecModeSimpleProtocol); err != nil {
			return explainDependents(err)
		}
	}
	return nil
}

// explainDependents returns an error that explains why a view or a function could not be dropped.
func explainDependents(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "2BP01" { // dependent_objects_still_exist
		return fmt.Errorf("an object outside schema tasker depends on a Tasker view or function, which an upgrade "+
			"recreates: "+
			"drop the object, migrate, and create it again; nothing was changed:\n%s: %w", pg.Detail, err)
	}
	return fmt.Errorf("drop the views and functions of the previous version: %w", err)
}

// refuseStrays returns an error if a migration created a view or function without a file. A later
// upgrade would drop it and not create it again. Functions that a table needs are allowed.
func (m migrator) refuseStrays(ctx context.Context, tx pgx.Tx, before []object) error {
	now, err := findObjects(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range now {
		isNew := !slices.ContainsFunc(before, func(b object) bool { return b.OID == o.OID })
		if isNew && !m.source.hasObject("views/"+o.Plain+".sql") && !m.source.hasObject("functions/"+o.Plain+".sql") {
			return fmt.Errorf("a migration created %s: a view, or a function that no table uses, belongs in "+
				"views/ or functions/", o.Name)
		}
	}
	return nil
}

// dropOutdated drops views without a file, and functions that no file has replaced.
func (m migrator) dropOutdated(ctx context.Context, tx pgx.Tx, before []object) error {
	now, err := findObjects(ctx, tx)
	if err != nil {
		return err
	}
	return drop(ctx, tx, slices.DeleteFunc(now, func(o object) bool {
		if o.Kind != "ROUTINE" {
			return m.source.hasObject("views/" + o.Plain + ".sql")
		}
		return !slices.Contains(before, o)
	}))
}

// createObjects runs the files of functions and views. It retries a file that depends on a later
// one after the others, so that the order of file names does not matter.
func (m migrator) createObjects(ctx context.Context, tx pgx.Tx) error {
	for waiting := m.source.objects; len(waiting) > 0; {
		missing, first, err := createEach(ctx, tx, waiting)
		if err != nil {
			return err
		}
		if len(missing) == len(waiting) {
			return first
		}
		waiting = missing
	}
	return nil
}

// createEach runs the files one by one. It returns those that depend on a missing object, and the
// error of the first one.
func createEach(ctx context.Context, tx pgx.Tx, files []file) (missing []file, first, err error) {
	for _, f := range files {
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			return runFile(ctx, savepoint.Conn(), f)
		})
		switch {
		case err == nil:
		case isMissing(err):
			missing = append(missing, f)
			first = cmp.Or(first, err)
		default:
			return nil, nil, err
		}
	}
	return missing, first, nil
}

// isMissing reports whether err means that a table, view, function or type does not exist.
func isMissing(err error) bool {
	return slices.Contains([]string{"42P01", "42883", "42704"}, conditionName(err))
}

// conditionName returns the SQLSTATE of an error from PostgreSQL, or "" for other errors.
func conditionName(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
