-- A clock that a test moves. Its schema comes before pg_catalog in the search path, so that
-- the same statements read it instead of the clock of PostgreSQL.
CREATE SCHEMA test_clock;

-- actual is the real instant at which the clock was set. A real second moves it by speed
-- seconds.
CREATE TABLE test_clock.setting (
    virtual timestamptz NOT NULL,
    actual  timestamptz NOT NULL,
    speed   double precision NOT NULL
);

CREATE FUNCTION test_clock.at(p_real timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT s.virtual + (p_real - s.actual) * s.speed FROM test_clock.setting s $$;

CREATE FUNCTION test_clock.now() RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT test_clock.at(pg_catalog.transaction_timestamp()) $$;

CREATE FUNCTION test_clock.transaction_timestamp() RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT test_clock.now() $$;

CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz
LANGUAGE sql VOLATILE
AS $$ SELECT test_clock.at(pg_catalog.clock_timestamp()) $$;

CREATE FUNCTION test_clock.statement_timestamp() RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT test_clock.at(pg_catalog.statement_timestamp()) $$;

GRANT USAGE ON SCHEMA test_clock TO PUBLIC;
GRANT SELECT ON test_clock.setting TO PUBLIC;

-- What was created before has the functions of PostgreSQL by their ids: defaults of columns
-- and arguments, and views. It is created again from its own text, which is read without the
-- clock in the search path and run with it.
DO $$
DECLARE
    _redo text[];
    _sql  text;
BEGIN
    SET LOCAL search_path = pg_catalog;
    SELECT array_agg(d.sql ORDER BY d.sql) INTO _redo
    FROM (
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', a.attrelid::regclass, a.attname, pg_get_expr(f.adbin, f.adrelid)) AS sql
        FROM pg_attrdef f
        JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
        WHERE pg_get_expr(f.adbin, f.adrelid) ~ '(now|_timestamp)\(\)' AND a.attgenerated = ''
        UNION ALL
        SELECT pg_get_functiondef(p.oid)
        FROM pg_proc p
        WHERE p.pronamespace = 'tasker'::regnamespace AND p.prokind = 'f'
          AND (pg_get_function_arguments(p.oid) || coalesce(pg_get_function_sqlbody(p.oid), '')) ~ '(now|_timestamp)\(\)'
        UNION ALL
        SELECT format('CREATE OR REPLACE VIEW %s %s AS %s', c.oid::regclass, 'WITH (' || array_to_string(c.reloptions, ', ') || ')', pg_get_viewdef(c.oid))
        FROM pg_class c
        WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind = 'v' AND pg_get_viewdef(c.oid) ~ '(now|_timestamp)\(\)'
    ) d;
    SET LOCAL search_path = test_clock, pg_catalog;
    FOREACH _sql IN ARRAY _redo LOOP
        EXECUTE _sql;
    END LOOP;
END
$$;
