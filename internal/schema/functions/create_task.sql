-- create_task requests a task in the transaction of the caller and returns its UUID. After the
-- commit a server creates the task, with all checks of the API; a rollback leaves no trace. This
-- function checks the form of the request and that the template exists. A request that a server
-- refuses later is a row of task_requests with an error.
--
-- The same idempotency key with the same values returns the same UUID. The function runs as its
-- owner, so that a program needs only the privilege to execute it. SQLSTATE TK400 is INVALID, TK404
-- NOT_FOUND, TK409 CONFLICT and TK413 TOO_LARGE.
CREATE OR REPLACE FUNCTION tasker.create_task(
    namespace       text,
    name            text,
    context         jsonb DEFAULT '{}',
    version         text DEFAULT NULL,
    priority        integer DEFAULT 0,
    tags            text[] DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    correlation_id  text DEFAULT NULL,
    reason          text DEFAULT NULL,
    source_system   text DEFAULT NULL,
    initiator       text DEFAULT NULL,
    start_at        timestamptz DEFAULT NULL,
    due_at          timestamptz DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _id       uuid := tasker.uuid_generate_v7();
    _version  text := coalesce(create_task.version, '');
    _context  jsonb := coalesce(create_task.context, '{}');
    _priority integer := coalesce(create_task.priority, 0);
    _bytes    integer := octet_length(coalesce(create_task.context, '{}')::text);
    _usable   boolean;
    _inserted boolean;
    _wrong    text;
    _found    record;
BEGIN
    _wrong := CASE
        WHEN coalesce(btrim(create_task.namespace), '') = '' THEN 'namespace: is missing'
        WHEN length(create_task.namespace) > 128 THEN 'namespace: has more than 128 characters'
        WHEN coalesce(btrim(create_task.name), '') = '' THEN 'name: is missing'
        WHEN length(create_task.name) > 128 THEN 'name: has more than 128 characters'
        WHEN length(_version) > 64 THEN 'version: has more than 64 characters'
        WHEN jsonb_typeof(_context) <> 'object' THEN format('context: must be a JSON object, not %s', jsonb_typeof(_context))
        WHEN _priority NOT BETWEEN -1000 AND 1000 THEN format('priority: must be from -1000 to 1000, not %s', _priority)
        WHEN cardinality(create_task.tags) > 50 THEN 'tags: has more than 50 tags'
        WHEN EXISTS (SELECT FROM unnest(create_task.tags) AS t (tag) WHERE coalesce(btrim(t.tag), '') = '' OR length(t.tag) > 128)
            THEN 'tags: each tag must have from 1 to 128 characters'
        WHEN btrim(create_task.idempotency_key) = '' THEN 'idempotency_key: is empty'
        WHEN length(create_task.idempotency_key) > 255 THEN 'idempotency_key: has more than 255 characters'
        WHEN length(create_task.correlation_id) > 128 THEN 'correlation_id: has more than 128 characters'
        WHEN length(create_task.reason) > 2000 THEN 'reason: has more than 2000 characters'
        WHEN length(create_task.source_system) > 255 THEN 'source_system: has more than 255 characters'
        WHEN length(create_task.initiator) > 255 THEN 'initiator: has more than 255 characters'
    END;
    IF _wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the task cannot be created: %', _wrong USING ERRCODE = 'TK400', DETAIL = 'INVALID';
    END IF;
    IF _bytes > 1048576 THEN
        RAISE EXCEPTION 'the task cannot be created: context: has % bytes; the limit is 1048576', _bytes
            USING ERRCODE = 'TK413', DETAIL = 'TOO_LARGE';
    END IF;
    SELECT bool_or(t.retired_at IS NULL) INTO _usable
    FROM tasker.task_templates t
    WHERE t.namespace = create_task.namespace AND t.name = create_task.name AND (_version = '' OR t.version = _version);
    IF _usable IS NOT true THEN
        RAISE EXCEPTION 'template %/% % %', create_task.namespace, create_task.name, _version,
            CASE WHEN _usable IS NULL THEN 'not found: register it' ELSE 'is retired and does not accept new tasks' END
            USING ERRCODE = 'TK404', DETAIL = 'NOT_FOUND';
    END IF;
    FOR i IN 1..3 LOOP
        INSERT INTO tasker.task_requests (task_uuid, namespace, name, version, context, priority, tags, idempotency_key, correlation_id,
            reason, source_system, initiator, start_at, due_at)
        VALUES (_id, create_task.namespace, create_task.name, _version, _context, _priority, coalesce(create_task.tags, '{}'),
            create_task.idempotency_key, coalesce(create_task.correlation_id, ''), coalesce(create_task.reason, ''),
            coalesce(create_task.source_system, ''), coalesce(nullif(create_task.initiator, ''), session_user), create_task.start_at,
            create_task.due_at)
        ON CONFLICT (namespace, idempotency_key) WHERE idempotency_key IS NOT NULL AND refused_at IS NULL DO NOTHING;
        _inserted := FOUND;
        EXIT WHEN create_task.idempotency_key IS NULL;
        -- A server moves the key from the request to the task in one transaction: query the task last.
        SELECT q.task_uuid, q.name, q.context, q.priority INTO _found
        FROM (
            SELECT t.task_uuid, t.name, t.context, t.priority
            FROM tasker.tasks t
            WHERE t.namespace = create_task.namespace AND t.idempotency_key = create_task.idempotency_key
            UNION ALL
            SELECT r.task_uuid, r.name, r.context, r.priority
            FROM tasker.task_requests r
            WHERE r.namespace = create_task.namespace AND r.idempotency_key = create_task.idempotency_key AND r.refused_at IS NULL
              AND r.task_uuid <> _id
        ) q
        LIMIT 1;
        EXIT WHEN NOT FOUND AND _inserted;
        IF _found.task_uuid IS NOT NULL THEN
            DELETE FROM tasker.task_requests r WHERE r.task_uuid = _id;
            IF _found.name <> create_task.name OR _found.context <> _context OR _found.priority <> _priority THEN
                RAISE EXCEPTION 'idempotency_key % was used for task % with different values: use a new key',
                    create_task.idempotency_key, _found.task_uuid USING ERRCODE = 'TK409', DETAIL = 'CONFLICT';
            END IF;
            RETURN _found.task_uuid;
        END IF;
    END LOOP;
    IF NOT _inserted THEN
        RAISE EXCEPTION 'concurrent transactions use the idempotency_key %: try again', create_task.idempotency_key
            USING ERRCODE = 'TK409', DETAIL = 'CONFLICT';
    END IF;
    PERFORM pg_notify('tasker_due', 'sql 0');
    RETURN _id;
END
$$;
COMMENT ON FUNCTION tasker.create_task(text, text, jsonb, text, integer, text[], text, text, text, text, text, timestamptz, timestamptz) IS 'Requests a task in the transaction of the caller and returns its UUID; a server creates it after the commit.';
