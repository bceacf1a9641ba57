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

// findViews lists the views of the schema, as DROP wants them.
const findViews = `
	SELECT
		c.oid::regclass::text AS name,
		CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind
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
	SELECT r.oid::regprocedure::text AS name, 'ROUTINE' AS kind
	FROM routine r
	WHERE r.oid NOT IN (SELECT oid FROM needed)
	ORDER BY name`

// object is a view or a function in the database.
type object struct {
	Name string `db:"name"`
	Kind string `db:"kind"`
}

func findObjects(ctx context.Context, tx pgx.Tx, query string) ([]object, error) {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[object])
}

// dropObjects drops the views and functions that the last version made, so that
// one may change its columns or go. It does not cascade: the views of a
// schema are dropped in one command, which puts up with whatever they are to
// each other, and a view that somebody has built on ours is not ours to drop.
func dropObjects(ctx context.Context, tx pgx.Tx) error {
	for _, query := range []string{findViews, findRoutines} {
		objects, err := findObjects(ctx, tx, query)
		if err != nil {
			return fmt.Errorf("look for the views and functions of the last version: %w", err)
		}
		names := map[string][]string{}
		for _, o := range objects {
			names[o.Kind] = append(names[o.Kind], o.Name)
		}
		for _, kind := range []string{"MATERIALIZED VIEW", "VIEW", "ROUTINE"} {
			if len(names[kind]) == 0 {
				continue
			}
			_, err := tx.Exec(ctx, "DROP "+kind+" "+strings.Join(names[kind], ", "), pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return foreignDependents(err)
			}
		}
	}
	return nil
}

// foreignDependents explains why a view or a function could not be dropped.
func foreignDependents(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "2BP01" { // dependent_objects_still_exist
		return fmt.Errorf("something outside of schema tasker is built on a view or function of Tasker, which an upgrade makes anew: "+
			"drop it, migrate, and create it again; nothing was changed:\n%s: %w", pg.Detail, err)
	}
	return fmt.Errorf("drop the views and functions of the last version: %w", err)
}

// refuseStrays returns an error if a migration made a view, or a function that
// no table needs: the next upgrade would drop it and nothing would bring it back.
func refuseStrays(ctx context.Context, tx pgx.Tx) error {
	for _, query := range []string{findViews, findRoutines} {
		strays, err := findObjects(ctx, tx, query)
		if err != nil {
			return fmt.Errorf("look for stray views and functions: %w", err)
		}
		if len(strays) > 0 {
			return fmt.Errorf("a migration made %s: a view, or a function that no table uses, belongs to views/ or functions/", strays[0].Name)
		}
	}
	return nil
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
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"42P01", "42883", "42704"}, pg.Code)
}
