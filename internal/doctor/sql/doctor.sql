-- name: prepareChecks
-- The checks read whole tables, even if these are small by their statistics. Compiling the query of the
-- invariants takes longer than running it.
SELECT set_config('statement_timeout', $1, true), set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true);

-- name: faultyObjects
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
ORDER BY 1;

-- name: openTransactions
-- Finds everything that prevents PostgreSQL from removing dead rows: transactions open for longer than
-- $1, replication slots without a reader, and standbys with hot_standby_feedback, with or without a
-- slot, that retain the rows of at least $3 transactions. $2 limit.
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
LIMIT $2;

-- name: deferredWork
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
LIMIT $1;

-- name: isStandby
SELECT pg_is_in_recovery();
