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

// keptComment marks what stays for servers of the previous version.
const keptComment = "Kept for servers of the previous version; the next upgrade drops it."

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
		obj_description(c.oid, 'pg_class') IS NOT DISTINCT FROM $1 AS kept,
		'' AS definition, c.xmin::text AS version
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
	SELECT
		p.oid, p.oid::regprocedure::text AS name, p.proname::text AS plain, 'ROUTINE' AS kind,
		obj_description(p.oid, 'pg_proc') IS NOT DISTINCT FROM $1 AS kept,
		CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE '' END AS definition, p.xmin::text AS version
	FROM routine r
	JOIN pg_proc p ON p.oid = r.oid
	WHERE r.oid NOT IN (SELECT oid FROM needed)
	ORDER BY name`

// An object is a view or a function in the database.
type object struct {
	OID        uint32 `db:"oid"`
	Name       string `db:"name"`  // as DROP wants it
	Plain      string `db:"plain"` // without schema and arguments
	Kind       string `db:"kind"`
	Kept       bool   `db:"kept"`       // for the previous version, by the last upgrade
	Definition string `db:"definition"` // of a function
	Version    string `db:"version"`    // changes when a function is replaced
}

// An objectSet is all views and functions of the schema at one time.
type objectSet struct {
	views, routines []object
}

func findObjects(ctx context.Context, tx pgx.Tx) (*objectSet, error) {
	s := &objectSet{}
	for query, list := range map[string]*[]object{findViews: &s.views, findRoutines: &s.routines} {
		rows, err := tx.Query(ctx, query, keptComment)
		if err == nil {
			*list, err = pgx.CollectRows(rows, pgx.RowToStructByName[object])
		}
		if err != nil {
			return nil, fmt.Errorf("look for the views and functions of the last version: %w", err)
		}
	}
	return s, nil
}

// dropOutdated drops what an earlier upgrade has kept, or all if that is wanted. It
// does not cascade: the views of a schema are dropped in one command, which accepts
// whatever they are to each other, and a view that somebody has built on ours is not
// ours to drop.
func (s *objectSet) dropOutdated(ctx context.Context, tx pgx.Tx, all bool) error {
	for _, list := range [][]object{s.views, s.routines} {
		names := map[string][]string{}
		for _, o := range list {
			if all || o.Kept {
				names[o.Kind] = append(names[o.Kind], o.Name)
			}
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
			"drop it, migrate, and create it again; the views and functions are as before:\n%s: %w", pg.Detail, err)
	}
	return fmt.Errorf("drop the views and functions of the last version: %w", err)
}

// refuseStrays returns an error if a migration made a view that has no file, or a
// function that no table needs: a later upgrade would drop it and nothing would bring
// it back. What has a file is made by it.
func (m migrator) refuseStrays(ctx context.Context, tx pgx.Tx, before *objectSet) error {
	now, err := findObjects(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range slices.Concat(now.views, now.routines) {
		isNew := !slices.ContainsFunc(slices.Concat(before.views, before.routines), func(b object) bool { return b.OID == o.OID })
		if isNew && !m.source.hasObject("views/"+o.Plain+".sql") && !m.source.hasObject("functions/"+o.Plain+".sql") {
			return fmt.Errorf("a migration made %s: a view, or a function that no table uses, belongs to views/ or functions/", o.Name)
		}
	}
	return nil
}

// keepOld leaves for one upgrade what servers of the previous version may call and
// the files no longer have: views, and functions with other arguments. A function
// that the new one of its name can stand for is dropped, because a call could mean
// both.
func (m migrator) keepOld(ctx context.Context, tx pgx.Tx, before *objectSet) error {
	now, err := findObjects(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range now.views {
		if !m.source.hasObject("views/" + o.Plain + ".sql") {
			if err := keep(ctx, tx, o); err != nil {
				return err
			}
		}
	}
	for _, o := range before.routines {
		i := slices.IndexFunc(now.routines, func(n object) bool { return n.Name == o.Name })
		switch {
		case i >= 0 && (now.routines[i].OID != o.OID || now.routines[i].Version != o.Version):
			continue // its file has made it
		case i < 0 && (o.Kept || o.Definition == ""):
			continue
		case i < 0:
			// All were dropped. What it needs may be gone.
			err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
				_, err := savepoint.Exec(ctx, o.Definition, pgx.QueryExecModeSimpleProtocol)
				return err
			})
			if err != nil && conditionOf(err) == "55P03" {
				return err
			}
			if err != nil {
				continue
			}
		}
		if err := keep(ctx, tx, o); err != nil {
			return err
		}
	}
	return dropReplaced(ctx, tx)
}

func keep(ctx context.Context, tx pgx.Tx, o object) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("COMMENT ON %s %s IS '%s'", o.Kind, o.Name, keptComment), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("keep %s for the previous version: %w", o.Name, err)
	}
	return nil
}

// dropReplaced drops each kept function whose calls another of its name takes as
// well: one that begins with the same parameters and has defaults for the others.
func dropReplaced(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
		SELECT o.oid::regprocedure::text
		FROM pg_proc o
		WHERE o.pronamespace = 'tasker'::regnamespace
			AND obj_description(o.oid, 'pg_proc') = $1
			AND EXISTS (
				SELECT FROM pg_proc n
				WHERE n.pronamespace = o.pronamespace AND n.proname = o.proname AND n.oid <> o.oid
					AND n.pronargs >= o.pronargs AND n.pronargs - n.pronargdefaults <= o.pronargs
					AND array(SELECT unnest(n.proargtypes) LIMIT o.pronargs) = array(SELECT unnest(o.proargtypes))
			)`, keptComment)
	if err != nil {
		return fmt.Errorf("look for replaced functions: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for replaced functions: %w", err)
	}
	for _, name := range names {
		if _, err := tx.Exec(ctx, "DROP ROUTINE "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("drop the replaced function %s: %w", name, err)
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
	return slices.Contains([]string{"42P01", "42883", "42704"}, conditionOf(err))
}

// conditionOf is the SQLSTATE of an error, "" if it is not one of PostgreSQL.
func conditionOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
