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

// irreplaceable are the codes of what CREATE OR REPLACE cannot do, or cannot do
// while a view depends on it: then all functions and views are dropped first.
var irreplaceable = []string{
	"42P13", // a function with other results
	"42P16", // a view with other columns
	"2BP01", // something depends on what is dropped
	"0A000", // a view depends on the column that changes
	"42725", // a call that the function of the last version could mean as well
}

// findViews lists the views of the schema.
const findViews = `
	SELECT
		c.oid, c.oid::regclass::text AS name, c.relname::text AS plain,
		CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind,
		c.xmin::text AS version
	FROM pg_class c
	WHERE c.relnamespace = 'tasker'::regnamespace
		AND c.relkind IN ('v', 'm')
		AND NOT EXISTS (
			SELECT FROM pg_depend e
			WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e'
		)
	ORDER BY kind, name`

// findRoutines lists the functions of the schema but for those that a table
// needs, in a default, a constraint, an index, a trigger or a policy, or that
// such a function needs in turn. Those stay, and their files replace them.
const findRoutines = `
	WITH RECURSIVE routine AS (
		SELECT p.oid
		FROM pg_proc p
		WHERE p.pronamespace = 'tasker'::regnamespace
			AND NOT EXISTS (
				SELECT FROM pg_depend e
				WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e'
			)
	), needed AS (
		SELECT r.oid
		FROM routine r
		JOIN pg_depend d ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = r.oid
		WHERE d.classid NOT IN ('pg_proc'::regclass, 'pg_rewrite'::regclass)
		UNION
		SELECT r.oid
		FROM needed n
		JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = n.oid AND d.refclassid = 'pg_proc'::regclass
		JOIN routine r ON r.oid = d.refobjid
	)
	SELECT p.oid, p.oid::regprocedure::text AS name, p.proname::text AS plain, 'ROUTINE' AS kind, p.xmin::text AS version
	FROM routine r
	JOIN pg_proc p ON p.oid = r.oid
	WHERE r.oid NOT IN (SELECT oid FROM needed)
	ORDER BY name`

// An object is a view or a function in the database.
type object struct {
	OID     uint32 `db:"oid"`
	Name    string `db:"name"`  // as DROP wants it
	Plain   string `db:"plain"` // without schema and arguments
	Kind    string `db:"kind"`
	Version string `db:"version"` // changes when a function is replaced
}

// findObjects returns all views and functions of the schema.
func findObjects(ctx context.Context, tx pgx.Tx) (all []object, err error) {
	for _, query := range []string{findViews, findRoutines} {
		rows, err := tx.Query(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("find the views and functions of the last version: %w", err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByName[object])
		if err != nil {
			return nil, fmt.Errorf("find the views and functions of the last version: %w", err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// drop drops all of the objects, the views first. It does not cascade: the views of a
// schema are dropped in one command, which accepts whatever they are to each other,
// and a view that somebody has built on ours is not ours to drop.
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
			return foreignDependents(err)
		}
	}
	return nil
}

// foreignDependents explains why a view or a function could not be dropped.
func foreignDependents(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "2BP01" { // dependent_objects_still_exist
		return fmt.Errorf("something outside of schema tasker is built on a view or function of Tasker, which an upgrade makes anew: "+
			"drop it, migrate, and create it again; the views and functions are as before:\n%s: %w", pg.Detail, err)
	}
	return fmt.Errorf("drop the views and functions of the last version: %w", err)
}

// refuseStrays returns an error if a migration made a view that has no file, or a
// function that no table needs: a later upgrade would drop it and nothing would bring
// it back. What has a file is made by it.
func (m migrator) refuseStrays(ctx context.Context, tx pgx.Tx, before []object) error {
	now, err := findObjects(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range now {
		isNew := !slices.ContainsFunc(before, func(b object) bool { return b.OID == o.OID })
		if isNew && !m.source.hasObject("views/"+o.Plain+".sql") && !m.source.hasObject("functions/"+o.Plain+".sql") {
			return fmt.Errorf("a migration made %s: a view, or a function that no table uses, belongs to views/ or functions/", o.Name)
		}
	}
	return nil
}

// dropOutdated drops the views without a file, and the functions that no file has made
// again: those without one, and those with other arguments.
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

// createObjects runs the files of functions and views in their order. One that
// asks for something that is not there yet is tried again after the others, so
// files need not be named after the order in which they use each other.
func (m migrator) createObjects(ctx context.Context, tx pgx.Tx) error {
	waiting := m.source.objects
	for len(waiting) > 0 {
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

// createEach runs the files one by one. It returns those that asked for
// something that is not there, with what the first of them said.
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

// isMissing reports whether err says that a table, view, function or type does
// not exist.
func isMissing(err error) bool {
	return slices.Contains([]string{"42P01", "42883", "42704"}, conditionOf(err))
}

// conditionOf is the SQLSTATE of an error, "" if it is not one of PostgreSQL.
func conditionOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
