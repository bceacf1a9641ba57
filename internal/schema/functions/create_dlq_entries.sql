-- create_dlq_entries opens investigations of tasks, with a snapshot of each as it
-- stands. A task may be named several times, once for each step that failed: the first
-- of them opens its investigation. A task that has an open one gets no other, and no
-- snapshot is built for it: what has failed meanwhile goes into the history of that
-- one, with its error, because evidence is not lost when somebody is at work; a
-- task that had recovered has not, then; and a weightier reason becomes that of the
-- open one (see raise_dlq_entries). The transaction that makes a task stuck, the
-- sweep and an operator all come here, so an entry looks the same whoever found the
-- task.
--
-- An investigation opens whatever becomes of its snapshot. When the snapshots cannot
-- be built together, each is built by itself; and a task for which that fails, too,
-- gets an entry with the facts and the reason (see dlq_evidence). A statement that has
-- run out of its time gets no second limit, so after a timeout no snapshot is tried any
-- more.
CREATE OR REPLACE FUNCTION tasker.create_dlq_entries(
    p_tasks       uuid[],
    p_reasons     tasker.dlq_reason[],
    p_details     text[],
    p_detected_by text,
    p_states      text[],
    p_since       timestamptz[],
    p_steps       uuid[],
    p_actor       text,
    p_notes       text,
    p_metadata    jsonb[]
) RETURNS TABLE (task_uuid uuid, dlq_entry_uuid uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET jit = off -- compiling takes seconds where a table has no statistics yet
AS $$
#variable_conflict use_column
DECLARE
    _at      timestamptz := clock_timestamp();
    _new     bigint[]; -- places in the arrays: those that open an investigation
    _next    integer := 1;
    _size    integer; -- of a part of them: all, or each by itself
    _failed  text;    -- why the snapshot of the next one could not be built
    _late    boolean := false; -- the time of the statement is over
    _some    bigint[];
    _entries uuid[];
    _opened  bigint[] := '{}';
BEGIN
    -- Tasks come before their entries: whoever works on them holds them as well.
    PERFORM FROM tasker.tasks t WHERE t.task_uuid = ANY (p_tasks) ORDER BY t.task_uuid FOR NO KEY UPDATE;

    SELECT array_agg(c.place ORDER BY c.place) INTO _new
    FROM (
        SELECT u.task_uuid, min(u.place) AS place
        FROM unnest(p_tasks) WITH ORDINALITY AS u (task_uuid, place)
        GROUP BY u.task_uuid
    ) c
    WHERE NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'pending');

    _size := cardinality(_new);
    WHILE _next <= cardinality(_new) LOOP
        BEGIN
            SELECT o.places, o.entries INTO _some, _entries
            FROM tasker.insert_dlq_entries(_new[_next:_next + _size - 1], p_tasks, p_reasons, p_details, p_detected_by, p_states, p_since,
                p_steps, p_actor, p_notes, p_metadata, _at, _failed) o;
            RETURN QUERY SELECT p_tasks[u.place], u.entry FROM unnest(_some, _entries) AS u (place, entry);
            _opened := _opened || _some;
            _next := _next + _size;
            _failed := CASE WHEN _late THEN _failed END;
        EXCEPTION WHEN query_canceled OR OTHERS THEN -- OTHERS does not include a timeout
            IF _failed IS NOT NULL OR SQLSTATE IN ('40001', '40P01', '55P03') THEN
                RAISE; -- not for the snapshot's sake, or the transaction is to be tried again
            END IF;
            _late := SQLSTATE = '57014';
            IF _size > 1 AND NOT _late THEN
                _size := 1;
            ELSE
                _failed := format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE);
                RAISE WARNING 'snapshot of task %: %', p_tasks[_new[_next]], _failed;
            END IF;
        END;
    END LOOP;

    -- Somebody looks into them now, or did already. Asked with IS NOT NULL, the
    -- planner would read the whole index of unattended tasks, which it takes for empty.
    UPDATE tasker.tasks t SET attend_by = NULL WHERE t.task_uuid = ANY (p_tasks) AND num_nonnulls(t.attend_by) = 1;

    IF cardinality(_opened) < cardinality(p_tasks) THEN
        WITH stuck AS MATERIALIZED (
            SELECT d.dlq_entry_uuid, d.recovered_at, c.*
            FROM unnest(p_tasks, p_reasons, p_details, p_states, p_steps, p_metadata)
                WITH ORDINALITY AS c (task_uuid, reason, detail_code, original_state, step_uuid, metadata, place)
            JOIN tasker.tasks_dlq d ON d.task_uuid = c.task_uuid AND d.resolution_status = 'pending'
            WHERE c.place <> ALL (_opened)
              AND (c.step_uuid IS NOT NULL OR (p_detected_by = 'sweep' AND d.recovered_at IS NOT NULL))
        ),
        back AS (
            UPDATE tasker.tasks_dlq d SET recovered_at = NULL, updated_at = _at
            FROM stuck k
            WHERE d.dlq_entry_uuid = k.dlq_entry_uuid
        )
        INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
        SELECT k.dlq_entry_uuid, CASE WHEN k.step_uuid IS NULL THEN 'stuck_again' ELSE 'step_failed' END, p_actor, 'pending', 'pending',
            CASE
                WHEN k.step_uuid IS NULL THEN format('the task had gone on and stands still again, in %s', k.original_state)
                ELSE format('step %s failed for good: %s', s.name, coalesce(e.shown ->> 'message', '[redacted]'))
            END,
            CASE
                WHEN k.step_uuid IS NULL THEN k.metadata
                ELSE jsonb_build_object('step_uuid', s.step_uuid, 'dlq_reason', k.reason, 'detail_code', k.detail_code, 'error', e.shown)
            END, _at
        FROM stuck k
        LEFT JOIN tasker.workflow_steps s ON s.task_uuid = k.task_uuid AND s.step_uuid = k.step_uuid
        CROSS JOIN LATERAL (SELECT tasker.redact_error(s.error) AS shown OFFSET 0) e -- once
        ORDER BY k.dlq_entry_uuid, k.place;
        PERFORM tasker.raise_dlq_entries(p_tasks, p_reasons, p_details, p_steps, _opened, p_actor, _at);
    END IF;
END
$$;
COMMENT ON FUNCTION tasker.create_dlq_entries(uuid[], tasker.dlq_reason[], text[], text, text[], timestamptz[], uuid[], text, text, jsonb[]) IS 'Opens investigations of tasks; returns those that it opened.';
