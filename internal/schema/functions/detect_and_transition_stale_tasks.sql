-- detect_and_transition_stale_tasks is one batch of the sweep. Each stale task
-- goes to error and gets its investigation, both or neither; a task in error that
-- nobody looks into gets one. Tasks that another transaction holds are left to
-- the next batch, and a task at which something fails does not stop the others:
-- when there were such tasks it is looked beyond the batch, so that many of them
-- cannot hide the rest. It is set aside (deferred_work) and tried again after a delay
-- that doubles each time, so that it does not take the time of every batch; the row of
-- the task says what failed, and goes when the sweep has nothing more to do with the task. Should the
-- time of the statement end in the middle of a task, what was done before stays done,
-- and the task is set aside if it was tried by itself. A batch ends before its time does, so that large tasks do
-- not stop it: what is left comes with the next. Any number may run at once; those
-- that are started together skip what the others will take, the longest overdue.
CREATE OR REPLACE FUNCTION tasker.detect_and_transition_stale_tasks(
    p_dry_run    boolean DEFAULT true,
    p_batch_size integer DEFAULT 100,
    p_skip       integer DEFAULT 0
) RETURNS TABLE (
    task_uuid                   uuid,
    namespace_name              text,
    task_name                   text,
    current_state               text,
    time_in_state_minutes       numeric,
    staleness_threshold_minutes numeric,
    action_taken                text,
    moved_to_dlq                boolean,
    transition_success          boolean,
    dlq_reason                  tasker.dlq_reason,
    dlq_entry_uuid              uuid,
    error_code                  text, -- SQLSTATE of what failed at the task
    error_message               text
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET jit = off -- compiling takes seconds where a table has no statistics yet
AS $$
#variable_conflict use_column
DECLARE
    _due     record;
    _part    record;
    _reach   integer;
    _from    integer;
    _to      integer;
    _size    integer; -- of a part: more while they are quick; each task on its own where they cannot go together
    _began   timestamptz;
    _asked   timestamptz;
    _singly  integer; -- up to here
    _moved   integer;
    _done    integer := 0;
    _failed  uuid[] := '{}';
    _late    boolean := false; -- the time of the statement is over
    _sweep   uuid := tasker.uuid_generate_v7();
    _until   timestamptz := clock_timestamp() + CASE current_setting('statement_timeout')
        WHEN '0' THEN interval '10 seconds'
        ELSE least(interval '10 seconds', current_setting('statement_timeout')::interval / 2)
    END;
BEGIN
    IF p_batch_size < 1 THEN
        RAISE EXCEPTION 'p_batch_size must be at least 1, not %', p_batch_size USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_skip < 0 THEN
        RAISE EXCEPTION 'p_skip must be at least 0, not %', p_skip USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_dry_run THEN
        RETURN QUERY
        SELECT s.task_uuid, s.namespace_name, s.task_name, s.current_state, s.time_in_state_minutes, s.threshold_minutes,
            CASE WHEN s.current_state = 'error' THEN 'would_move_to_dlq_only' ELSE 'would_transition_to_dlq_and_error' END,
            false, false, s.dlq_reason, NULL::uuid, NULL::text, NULL::text
        FROM tasker.get_due_tasks_for_dlq(p_batch_size + p_skip) s
        LIMIT p_batch_size OFFSET p_skip;
        RETURN;
    END IF;
    FOREACH _reach IN ARRAY ARRAY[p_batch_size + p_skip, p_batch_size * 10 + p_skip] LOOP
        _asked := clock_timestamp();
        SELECT count(*) AS seen, array_agg(s.task_uuid) AS tasks, array_agg(s.current_state) AS states, array_agg(s.state_since) AS since,
            array_agg(s.time_in_state_minutes) AS minutes, array_agg(s.threshold_minutes) AS thresholds,
            array_agg(s.detail_code) AS details, array_agg(s.dlq_reason) AS reasons
        INTO _due
        FROM tasker.get_due_tasks_for_dlq(_reach) s;
        IF _due.seen < _reach THEN -- all that is due is known: what was set aside and is not among it has gone on by itself
            DELETE FROM tasker.deferred_work f
            WHERE (f.kind, f.task_uuid, f.step_uuid) IN (
                SELECT o.kind, o.task_uuid, o.step_uuid
                FROM tasker.deferred_work o
                WHERE o.kind = 'sweep' AND o.retry_at <= _asked AND o.task_uuid <> ALL (coalesce(_due.tasks, '{}'))
                ORDER BY o.retry_at
                LIMIT 100
                FOR UPDATE SKIP LOCKED
            );
        END IF;
        _from := 1 + p_skip;
        _size := 1;
        _singly := 0;
        WHILE _from <= _due.seen AND _done < p_batch_size AND (_done = 0 OR clock_timestamp() < _until) LOOP
            _began := clock_timestamp();
            _to := least(_from + _size - 1, _from + p_batch_size - _done - 1, _due.seen);
            BEGIN
                SELECT array_agg(f.task_uuid) AS tasks, array_agg(f.state) AS states, array_agg(f.since) AS since,
                    array_agg(f.minutes) AS minutes, array_agg(f.threshold) AS thresholds,
                    array_agg(f.detail) AS details, array_agg(f.reason) AS reasons
                INTO _part
                FROM (
                    SELECT c.*
                    FROM unnest(_due.tasks[_from:_to], _due.states[_from:_to], _due.since[_from:_to], _due.minutes[_from:_to],
                            _due.thresholds[_from:_to], _due.details[_from:_to], _due.reasons[_from:_to])
                        AS c (task_uuid, state, since, minutes, threshold, detail, reason)
                    JOIN tasker.tasks t ON t.task_uuid = c.task_uuid AND t.state = c.state AND t.state_since = c.since
                    WHERE (c.state <> 'error' OR t.attend_by IS NOT NULL) AND c.task_uuid <> ALL (_failed)
                    FOR NO KEY UPDATE OF t SKIP LOCKED
                ) f;
                IF _part.tasks IS NOT NULL THEN
                    RETURN QUERY
                    SELECT c.task_uuid, t.namespace, t.name, c.state, c.minutes, c.threshold,
                        CASE
                            WHEN m.dlq_entry_uuid IS NOT NULL AND m.transitioned THEN 'transitioned_to_dlq_and_error'
                            WHEN m.dlq_entry_uuid IS NOT NULL THEN 'moved_to_dlq_only'
                            WHEN m.transitioned THEN 'transitioned_to_error_only'
                            ELSE 'transition_failed'
                        END,
                        m.dlq_entry_uuid IS NOT NULL, m.transitioned, c.reason, m.dlq_entry_uuid, NULL::text, NULL::text
                    FROM tasker.sweep_tasks(_part.tasks, _part.states, _part.since, _part.minutes, _part.thresholds,
                        _part.details, _part.reasons, _sweep) m
                    JOIN unnest(_part.tasks, _part.states, _part.minutes, _part.thresholds, _part.reasons)
                        AS c (task_uuid, state, minutes, threshold, reason) ON c.task_uuid = m.task_uuid
                    JOIN tasker.tasks t ON t.task_uuid = m.task_uuid;
                    GET DIAGNOSTICS _moved = ROW_COUNT;
                    _done := _done + _moved;
                    DELETE FROM tasker.deferred_work f WHERE f.kind = 'sweep' AND f.task_uuid = ANY (_part.tasks);
                END IF;
                _from := _to + 1;
                -- A part may take a fifth of a second, as fast as the last one went.
                _size := CASE
                    WHEN _to < _singly THEN 1
                    ELSE greatest(1, least(100, _size * 0.2 / greatest(extract(epoch FROM clock_timestamp() - _began), 0.001)))
                END;
            EXCEPTION WHEN query_canceled OR OTHERS THEN -- OTHERS does not include a timeout
                _late := SQLSTATE = '57014';
                IF _to > _from THEN
                    _size := 1;
                    _singly := _to;
                ELSE
                    RAISE WARNING 'sweep: task %: %', _due.tasks[_from], SQLERRM;
                    PERFORM tasker.defer_work('sweep', _due.tasks[_from], NULL, format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE));
                    _failed := _failed || _due.tasks[_from];
                    RETURN QUERY
                    SELECT t.task_uuid, t.namespace, t.name, _due.states[_from], _due.minutes[_from], _due.thresholds[_from],
                        'transition_failed', false, false, _due.reasons[_from], NULL::uuid, SQLSTATE, left(SQLERRM, 1000)
                    FROM tasker.tasks t
                    WHERE t.task_uuid = _due.tasks[_from];
                    _from := _from + 1;
                END IF;
            END;
            IF _late THEN
                RETURN; -- there is no limit any more for what comes next
            END IF;
        END LOOP;
        EXIT WHEN _done >= p_batch_size OR _due.seen < _reach OR clock_timestamp() > _until;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.detect_and_transition_stale_tasks(boolean, integer, integer) IS 'One batch of the staleness sweep: stale tasks go to error and get an investigation, and so do tasks in error that have none. A dry run only says what it would do.';
