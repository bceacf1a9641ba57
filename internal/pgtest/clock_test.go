package pgtest_test

import (
	"testing"
	"time"

	"tasker.example/tasker/internal/pgtest"
)

// clockless finds what goes by the clock of PostgreSQL although a test has its own: defaults of
// columns and arguments, conditions, views and bodies that PostgreSQL keeps by id, and functions
// with a search path of their own or with words that no search path changes.
const clockless = `
WITH kept AS (
    SELECT 'default of ' || d.adrelid::regclass AS what, pg_get_expr(d.adbin, d.adrelid) AS text FROM pg_attrdef d
    UNION ALL
    SELECT 'condition of ' || c.conrelid::regclass, pg_get_constraintdef(c.oid) FROM pg_constraint c WHERE c.contype = 'c'
    UNION ALL
    SELECT 'view ' || c.oid::regclass, pg_get_viewdef(c.oid) FROM pg_class c WHERE c.relkind IN ('v', 'm') AND c.relnamespace = 'tasker'::regnamespace
    UNION ALL
    SELECT 'trigger ' || t.tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure, coalesce(pg_get_function_sqlbody(p.oid), '') || pg_get_function_arguments(p.oid) FROM pg_proc p WHERE p.pronamespace = 'tasker'::regnamespace
)
SELECT what FROM kept WHERE text ~ 'pg_catalog\.(now|[a-z]+_timestamp|timeofday)\(' OR text ~ 'CURRENT_(TIME|DATE)|LOCALTIME'
UNION ALL
SELECT 'function ' || p.oid::regprocedure
FROM pg_proc p
WHERE p.pronamespace = 'tasker'::regnamespace AND p.proname <> 'create_task' -- runs as its owner, and takes no time from a clock
  AND (p.proconfig::text LIKE '%search_path%' OR p.prosrc ~* 'pg_catalog\.(now|[a-z]+_timestamp|timeofday)|current_(time|date)|localtime|timeofday')`

func TestTheSchemaGoesByTheClock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	begin := time.Date(2100, time.March, 1, 0, 0, 0, 0, time.UTC)
	clock := db.NewClock(t, begin)
	rows := func() (list []string) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = tx.Exec(t.Context(), `SET LOCAL search_path = test_clock, pg_catalog, tasker`)
		if err == nil {
			err = tx.QueryRow(t.Context(), `SELECT coalesce(array_agg(what), '{}') FROM (`+clockless+`) c`).Scan(&list)
		}
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := rows(); len(list) > 0 {
		t.Errorf("these go by another clock: %q", list)
	}
	for _, change := range []string{
		`ALTER TABLE tasker.tasks ALTER COLUMN created_at SET DEFAULT pg_catalog.now()`,
		`CREATE VIEW tasker.later AS SELECT pg_catalog.clock_timestamp()`,
		`CREATE FUNCTION tasker.later() RETURNS timestamptz LANGUAGE sql RETURN pg_catalog.now()`,
		`CREATE FUNCTION tasker.apart() RETURNS timestamptz LANGUAGE sql SET search_path = tasker AS 'SELECT now()'`,
		`CREATE FUNCTION tasker.other() RETURNS date LANGUAGE sql AS 'SELECT CURRENT_DATE'`,
	} {
		before := len(rows())
		if _, err := pool.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if len(rows()) != before+1 {
			t.Errorf("not found: %s", change)
		}
	}
	if err := clock.Forward(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := clock.Forward(t.Context(), -time.Hour); err != nil { // it never goes back
		t.Fatal(err)
	}
	at, err := clock.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if passed := at.Sub(begin); passed < time.Hour || passed > time.Hour+time.Second {
		t.Errorf("an hour later it is %s later", passed)
	}
}
