-- name: tryLockMigrations
SELECT pg_try_advisory_lock($1);

-- name: unlockMigrations
SELECT pg_advisory_unlock($1);

-- name: migratorSession
-- Describes the session that holds the lock $1. PostgreSQL stores the halves of the key in classid and
-- objid.
SELECT coalesce((
    SELECT format('process %s (%s of user %s, connected since %s)', l.pid,
        coalesce(nullif(a.application_name, ''), 'without a name'), coalesce(a.usename, 'unknown'),
        coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time'))
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    LIMIT 1
), 'another program');

-- name: lockHolder
-- Describes the oldest transaction that holds a lock on a table of the schema.
SELECT format(' (process %s%s, in a transaction since %s)', a.pid,
    CASE WHEN a.application_name <> '' THEN ', ' || a.application_name ELSE '' END,
    to_char(a.xact_start AT TIME ZONE 'UTC', 'HH24:MI:SS UTC'))
FROM pg_locks l
JOIN pg_class c ON c.oid = l.relation
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND c.relnamespace = to_regnamespace('tasker') AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
ORDER BY a.xact_start
LIMIT 1;

-- name: schemaExists
SELECT to_regnamespace('tasker') IS NOT NULL;

-- name: createSchema
CREATE SCHEMA tasker;

-- name: createMigrations
CREATE TABLE tasker.schema_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE tasker.schema_migrations IS
    'Migrations that were applied, and as version 0 the checksum of all of the schema.';

-- name: migrationsExist
SELECT to_regclass('tasker.schema_migrations') IS NOT NULL;

-- name: appliedMigrations
SELECT version, name, checksum, applied_at
FROM tasker.schema_migrations
ORDER BY version;

-- name: recordMigration
INSERT INTO tasker.schema_migrations (version, name, checksum)
VALUES ($1, $2, $3)
ON CONFLICT (version) DO UPDATE
SET name = EXCLUDED.name, checksum = EXCLUDED.checksum, applied_at = EXCLUDED.applied_at;

-- name: prepareTransaction
-- Makes files independent of the user's settings. Statements may run as long as they need but must not
-- wait long for locks.
SELECT set_config('search_path', 'tasker', true), set_config('statement_timeout', '0', true),
    set_config('idle_in_transaction_session_timeout', '0', true), set_config('lock_timeout', $1, true);

-- name: sessionSettings
SELECT current_setting('search_path'), current_setting('statement_timeout');

-- name: setSession
SELECT set_config('search_path', $1, false), set_config('statement_timeout', $2, false);

-- name: invalidIndexes
-- Returns the indexes that a failed CREATE INDEX CONCURRENTLY has left.
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'tasker' AND c.relkind = 'i' AND NOT i.indisvalid
    AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid);
