-- detect_and_transition_stale_tasks is one batch of the sweep: each stale task
-- goes to error and gets its investigation, both or neither. Tasks that another
-- transaction holds are left to the next batch. Any number may run at once.
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
    transition_success          boolean
)
LANGUAGE plpgsql
AS $$
DECLARE
    _stale record;
BEGIN
    FOR _stale IN SELECT * FROM tasker.get_stale_tasks_for_dlq(p_batch_size) LOOP
        task_uuid := _stale.task_uuid;
        namespace_name := _stale.namespace_name;
        task_name := _stale.task_name;
        current_state := _stale.current_state;
        time_in_state_minutes := _stale.time_in_state_minutes;
        staleness_threshold_minutes := _stale.threshold_minutes;
        moved_to_dlq := false;
        transition_success := false;
        IF p_dry_run THEN
            action_taken := 'would_transition_to_dlq_and_error';
            RETURN NEXT;
            CONTINUE;
        END IF;

        PERFORM FROM tasker.tasks t WHERE t.task_uuid = _stale.task_uuid FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        transition_success := tasker.transition_stale_task_to_error(
            _stale.task_uuid, _stale.current_state, _stale.state_since,
            format('%s minutes in %s (%s)', round(_stale.time_in_state_minutes, 1), _stale.current_state, _stale.detail_code));
        CONTINUE WHEN NOT transition_success;
        moved_to_dlq := tasker.create_dlq_entry(
            p_task_uuid => _stale.task_uuid,
            p_reason => 'staleness_timeout',
            p_detail_code => _stale.detail_code,
            p_detected_by => 'sweep',
            p_original_state => _stale.current_state,
            p_state_since => _stale.state_since,
            p_metadata => jsonb_build_object(
                'detection_method', 'automatic_staleness',
                'time_in_state_minutes', _stale.time_in_state_minutes,
                'threshold_minutes', _stale.threshold_minutes)) IS NOT NULL;
        action_taken := CASE WHEN moved_to_dlq THEN 'transitioned_to_dlq_and_error' ELSE 'transitioned_to_error_only' END;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION tasker.detect_and_transition_stale_tasks(boolean, integer) IS 'One batch of the staleness sweep: stale tasks go to error and get an investigation. A dry run only says what it would do.';
