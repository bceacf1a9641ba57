-- The roles of Tasker in this database: PREFIX_migrate owns the schema tasker, PREFIX_server
-- may do what a server does, PREFIX_reader reads what dashboards show.
--
-- Run it once for each database, connected to it, as a superuser or as a role with CREATEROLE
-- that owns the database and the schema; it may be run again. Then, as a user who is a member of
-- PREFIX_migrate: tasker migrate up, which grants the privileges on tables and functions, and
-- grants what is missing whenever it runs.
BEGIN;
SET LOCAL lock_timeout = '2s';

DO $$
DECLARE
    _role      text;
    _previous  text;
    _object    record;
    _superuser boolean := (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
BEGIN
    FOREACH _role IN ARRAY ARRAY['PREFIX_migrate', 'PREFIX_server', 'PREFIX_reader'] LOOP
        IF to_regrole(_role) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', _role);
        END IF;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), _role);
    END LOOP;
    IF NOT _superuser THEN -- who creates a role may not act as it yet, and must, to give it the schema
        EXECUTE format('GRANT PREFIX_migrate TO %I', current_user);
    END IF;

    IF to_regnamespace('tasker') IS NULL THEN
        CREATE SCHEMA tasker AUTHORIZATION PREFIX_migrate;
    END IF;

    -- An installation that exists. Its servers go on, because the user that owned the
    -- tables becomes a member of the role that owns them now.
    FOR _previous IN
        SELECT DISTINCT r.rolname
        FROM pg_roles r
        WHERE NOT r.rolsuper AND r.rolname <> 'PREFIX_migrate'
            AND r.oid IN (
                SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'tasker'
                UNION ALL
                SELECT c.relowner FROM pg_class c WHERE c.relnamespace = 'tasker'::regnamespace
            )
    LOOP
        EXECUTE format('GRANT PREFIX_migrate TO %I', _previous);
    END LOOP;
    IF (SELECT nspowner FROM pg_namespace WHERE nspname = 'tasker') <> 'PREFIX_migrate'::regrole THEN
        ALTER SCHEMA tasker OWNER TO PREFIX_migrate;
    END IF;
    FOR _object IN
        SELECT 'TABLE' AS kind, c.oid::regclass::text AS name
        FROM pg_class c
        WHERE c.relnamespace = 'tasker'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
            AND c.relowner <> 'PREFIX_migrate'::regrole
        UNION ALL
        SELECT 'ROUTINE', p.oid::regprocedure::text
        FROM pg_proc p
        WHERE p.pronamespace = 'tasker'::regnamespace AND p.proowner <> 'PREFIX_migrate'::regrole
        UNION ALL
        SELECT 'TYPE', t.oid::regtype::text
        FROM pg_type t
        WHERE t.typnamespace = 'tasker'::regnamespace AND t.typtype IN ('e', 'd')
            AND t.typowner <> 'PREFIX_migrate'::regrole
        ORDER BY kind, name
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO PREFIX_migrate', _object.kind, _object.name);
    END LOOP;
END
$$;

COMMIT;

-- Users with a password are yours to make, for example:
--
--     CREATE ROLE tasker_deploy  LOGIN PASSWORD '…' IN ROLE PREFIX_migrate;  -- tasker migrate up
--     CREATE ROLE tasker_app     LOGIN PASSWORD '…' IN ROLE PREFIX_server;   -- tasker serve
--     CREATE ROLE tasker_grafana LOGIN PASSWORD '…' IN ROLE PREFIX_reader;   -- dashboards
