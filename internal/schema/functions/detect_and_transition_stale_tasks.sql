-- detect_and_transition_stale_tasks is one batch of the sweep. Each stale task
-- goes to error and gets its investigation, both or neither; a task in error that
-- nobody looks into gets one. Tasks that another transaction holds are left to
-- the next batch, and a task at which something fails does not stop the others:
-- when there were such tasks it is looked beyond the batch, so that many of them
-- cannot hide the rest. A batch ends before its time does, so that large tasks do
-- not stop it: what is left comes with the next. Any number may run at once.
CREATE OR REPLACE FUNCTION tasker.detect_and_transition_stale_tasks(
    p_dry_run    boolean DEFAULT true,
    p_batch_size integer DEFAULT 100
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
    dlq_entry_uuid              uuid
)
LANGUAGE plpgsql
AS $$
DECLARE
    _due    record;
    _done   integer := 0;
    _seen   integer;
    _reach  integer;
    _failed uuid[] := '{}';
    _sweep  uuid := tasker.uuid_generate_v7();
    _until  timestamptz := clock_timestamp() + CASE current_setting('statement_timeout')
        WHEN '0' THEN interval '10 seconds'
        ELSE least(interval '10 seconds', current_setting('statement_timeout')::interval / 2)
    END;
BEGIN
    IF p_batch_size < 1 THEN
        RAISE EXCEPTION 'p_batch_size must be at least 1, not %', p_batch_size USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH _reach IN ARRAY ARRAY[p_batch_size, p_batch_size * 10] LOOP
        _seen := 0;
        FOR _due IN
            SELECT s.task_uuid, s.namespace_name, s.task_name, s.current_state, s.state_since, s.time_in_state_minutes,
                s.threshold_minutes, s.detail_code, 'staleness_timeout'::tasker.dlq_reason AS reason
            FROM tasker.get_stale_tasks_for_dlq(_reach) s
            UNION ALL
            SELECT u.task_uuid, u.namespace_name, u.task_name, 'error', u.state_since, u.time_in_state_minutes,
                u.threshold_minutes, 'unrecovered_error', u.dlq_reason
            FROM tasker.get_unattended_tasks_for_dlq(_reach) u
        LOOP
            EXIT WHEN _done >= p_batch_size OR (_done > 0 AND clock_timestamp() > _until);
            _seen := _seen + 1;
            CONTINUE WHEN _due.task_uuid = ANY (_failed);
            task_uuid := _due.task_uuid;
            namespace_name := _due.namespace_name;
            task_name := _due.task_name;
            current_state := _due.current_state;
            time_in_state_minutes := _due.time_in_state_minutes;
            staleness_threshold_minutes := _due.threshold_minutes;
            dlq_reason := _due.reason;
            dlq_entry_uuid := NULL;
            moved_to_dlq := false;
            transition_success := false;
            IF p_dry_run THEN
                action_taken := CASE WHEN current_state = 'error' THEN 'would_move_to_dlq_only' ELSE 'would_transition_to_dlq_and_error' END;
                _done := _done + 1;
                RETURN NEXT;
                CONTINUE;
            END IF;

            PERFORM FROM tasker.tasks t
            WHERE t.task_uuid = _due.task_uuid AND t.state = _due.current_state AND t.state_since = _due.state_since
              AND (_due.current_state <> 'error' OR t.attend_by IS NOT NULL)
            FOR NO KEY UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            BEGIN
                IF current_state <> 'error' THEN
                    transition_success := tasker.transition_stale_task_to_error(
                        _due.task_uuid, _due.current_state, _due.state_since,
                        format('%s minutes in %s (%s)', round(_due.time_in_state_minutes, 1), _due.current_state, _due.detail_code));
                END IF;
                dlq_entry_uuid := tasker.create_dlq_entry(
                    p_task_uuid => _due.task_uuid,
                    p_reason => _due.reason,
                    p_detail_code => _due.detail_code,
                    p_detected_by => 'sweep',
                    p_original_state => _due.current_state,
                    p_state_since => _due.state_since,
                    p_metadata => jsonb_build_object(
                        'detection_method', 'automatic_staleness',
                        'sweep_id', _sweep,
                        'last_step', (
                            SELECT w.name
                            FROM tasker.workflow_steps w
                            WHERE w.task_uuid = _due.task_uuid AND w.last_attempted_at IS NOT NULL
                            ORDER BY w.last_attempted_at DESC
                            LIMIT 1
                        ),
                        'time_in_state_minutes', _due.time_in_state_minutes,
                        'threshold_minutes', _due.threshold_minutes));
                moved_to_dlq := dlq_entry_uuid IS NOT NULL;
                action_taken := CASE
                    WHEN moved_to_dlq AND transition_success THEN 'transitioned_to_dlq_and_error'
                    WHEN moved_to_dlq THEN 'moved_to_dlq_only'
                    WHEN transition_success THEN 'transitioned_to_error_only'
                    ELSE 'transition_failed'
                END;
                _done := _done + 1;
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'sweep: task %: %', _due.task_uuid, SQLERRM;
                action_taken := 'transition_failed';
                dlq_entry_uuid := NULL;
                moved_to_dlq := false;
                transition_success := false;
                _failed := _failed || _due.task_uuid;
            END;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN p_dry_run OR _done >= p_batch_size OR _seen < _reach OR clock_timestamp() > _until;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.detect_and_transition_stale_tasks(boolean, integer) IS 'One batch of the staleness sweep: stale tasks go to error and get an investigation, and so do tasks in error that have none. A dry run only says what it would do.';
