-- conclude_success concludes one success that a worker reports on its own, as workers do
-- while there is little to do. The statements for reports of all kinds take most of their
-- time to begin; these short ones do the same for the most frequent kind of step: an
-- ordinary one, after which ordinary ones become ready, others of its task are under way,
-- or its task is complete. In any other case nothing is changed, and concluded is false.
--
-- A worker that wants more is given what becomes ready, unless something more urgent waits
-- in its queues, as in the general way. What it was given is left in the settings
-- tasker.direct_tasks and tasker.direct_steps of the transaction. asks is true if there may
-- be more for it, which a claim has to find.
CREATE OR REPLACE FUNCTION tasker.conclude_success(
    p_task        uuid,
    p_step        uuid,
    p_fence       bigint,
    p_worker      uuid,
    p_body        jsonb,
    p_size        integer, -- of the result, as it is read back; 0: it is not known
    p_digest      bytea,
    p_queue_ttl   bigint,  -- how long a step may wait in the queue, in ms
    p_announce    boolean, -- a broker is told of what is enqueued
    p_wanted      integer, -- how many steps the worker wants
    p_lease       interval,
    p_without     uuid[],  -- steps that it is not given
    p_max_inputs  integer, -- bytes of the inputs of a step that is handed out
    p_max_counted integer, -- what of them counts at most
    p_max_bytes   bigint,  -- of all that is handed out
    p_namespaces  text[],  -- the parts of its queues in which something may wait
    p_handlers    text[],
    p_lows        bigint[],
    p_highs       bigint[],
    p_sinces      timestamptz[],
    OUT concluded  boolean,
    OUT asks       boolean,
    OUT enqueued   uuid[],
    OUT namespaces text[], -- of those
    OUT namespace  text,   -- of the step
    OUT handler    text
)
LANGUAGE plpgsql
AS $$
DECLARE
    _at     timestamptz;
    _state  text;
    _since  timestamptz;
    _phase  text;
    _step   record;
    _child  record;
    _works  boolean := false;
    _claims boolean := false;
    _urgent integer; -- the most urgent priority of what waits in the queues of the worker
    _done   boolean := false;
    _active boolean := true;
BEGIN
    concluded := false;
    asks := false;
    SELECT t.state, t.state_since, t.phase INTO _state, _since, _phase
    FROM tasker.tasks t
    WHERE t.task_uuid = p_task
    FOR NO KEY UPDATE;
    _at := clock_timestamp();
    IF _state IS DISTINCT FROM 'steps_in_process' OR _phase IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT s.child_uuids INTO _step
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = p_task AND s.step_uuid = p_step AND s.state = 'in_progress' AND s.fence = p_fence AND s.worker_uuid = p_worker
      AND s.join_rule IS NULL AND s.is_decision IS NULL AND s.map_step_uuid IS NULL AND s.attributes_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    IF p_wanted > 0 THEN
        SELECT EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = p_worker AND w.left_at IS NULL AND w.draining_since IS NULL),
            NOT (EXISTS (SELECT FROM tasker.claim_conditions) OR EXISTS (SELECT FROM tasker.limit_queues) AND EXISTS (
                SELECT FROM tasker.limit_queues l
                WHERE l.namespace = ANY (array_append(p_namespaces, '')) AND l.handler || '' = ANY (array_append(p_handlers, ''))
            ) OR EXISTS (SELECT FROM tasker.due_queues) AND EXISTS (
                SELECT FROM tasker.due_queues l WHERE l.namespace = ANY (p_namespaces) AND l.handler || '' = ANY (p_handlers)
            )), (
                SELECT max(e.priority)
                FROM unnest(p_namespaces, p_handlers, p_lows, p_highs, p_sinces) AS l (namespace, handler, low, high, since)
                CROSS JOIN LATERAL (
                    (
                        SELECT r.priority
                        FROM tasker.ready_steps r
                        WHERE l.low = l.high AND r.namespace = l.namespace AND r.handler = l.handler AND r.priority = l.low AND r.state_since >= l.since
                        ORDER BY r.state_since
                        LIMIT 1
                    )
                    UNION ALL
                    (
                        SELECT r.priority
                        FROM tasker.ready_steps r
                        WHERE l.low < l.high AND r.namespace = l.namespace AND r.handler = l.handler AND r.priority > l.low AND r.priority < l.high
                          AND r.state_since >= l.since
                        ORDER BY r.priority DESC, r.state_since
                        LIMIT 1
                    )
                ) e
            )
        INTO _works, _claims, _urgent;
    END IF;

    -- Of the children that become ready the worker is given the most urgent.
    SELECT coalesce(bool_and(c.ordinary), true) AS ordinary, coalesce(bool_or(c.taken AND NOT c.direct), false) AS queued_for_it,
        array_agg(c.step_uuid) FILTER (WHERE c.parents_open > 1) AS waiting,
        array_agg(c.step_uuid ORDER BY c.step_uuid) FILTER (WHERE c.direct AND c.place <= p_wanted) AS direct,
        array_agg(c.step_uuid) FILTER (WHERE c.parents_open = 1 AND NOT (c.direct AND c.place <= p_wanted)) AS queued
    INTO _child
    FROM (
        SELECT u.step_uuid, s.parents_open, s.taken, s.direct, coalesce(s.state = 'pending' AND s.step_type = 'standard' AND s.join_rule IS NULL AND s.map_step_uuid IS NULL, false) AS ordinary,
            row_number() OVER (ORDER BY s.taken DESC, s.priority DESC, u.step_uuid) AS place
        FROM unnest(_step.child_uuids) AS u (step_uuid)
        LEFT JOIN LATERAL (
            SELECT x.state, x.step_type, x.join_rule, x.map_step_uuid, x.parents_open, x.priority,
                t.taken, t.taken AND _claims AND x.step_uuid <> ALL (p_without) AND (_urgent IS NULL OR x.priority >= _urgent) AND coalesce(x.inputs_bytes + nullif(p_size, 0) <= p_max_inputs
                    AND least(x.inputs_bytes + nullif(p_size, 0), p_max_counted) <= p_max_bytes / cardinality(_step.child_uuids), false) AS direct
            FROM tasker.workflow_steps x
            CROSS JOIN LATERAL (SELECT coalesce(_works AND x.parents_open = 1 AND x.namespace = ANY (p_namespaces) AND x.handler = ANY (p_handlers), false) AS taken) t
            WHERE x.task_uuid = p_task AND x.step_uuid = u.step_uuid
            LIMIT 1
        ) s ON true
    ) c;
    IF NOT _child.ordinary THEN
        RETURN;
    END IF;
    IF _child.direct IS NULL AND _child.queued IS NULL THEN
        -- Steps begin in the order of their ids, more or less, so of many the last ones are looked at first.
        _active := EXISTS (
            SELECT FROM (
                SELECT FROM tasker.workflow_steps s
                WHERE s.task_uuid = p_task AND s.step_uuid <> p_step AND s.state IN ('enqueued', 'in_progress')
                ORDER BY s.task_uuid DESC, s.step_uuid DESC
                LIMIT 1
            ) a
        );
        _done := NOT _active AND NOT EXISTS (
            SELECT FROM tasker.workflow_steps s
            WHERE s.task_uuid = p_task AND s.step_uuid <> p_step AND s.state NOT IN ('complete', 'resolved_manually', 'skipped')
        );
    END IF;
    IF NOT _done AND NOT _active THEN
        RETURN;
    END IF;

    UPDATE tasker.workflow_steps s
    SET state = 'complete', state_since = _at, updated_at = _at, completed_at = _at, results = p_body, results_bytes = nullif(p_size, 0),
        decide_at = NULL, wait_until = NULL, remind_at = NULL, skip_reason = NULL, lease_expires_at = NULL, timeout_at = NULL,
        reported_fence = s.fence, report_digest = p_digest, unwritten = -greatest(s.unwritten, 0)
    WHERE s.task_uuid = p_task AND s.step_uuid = p_step AND s.state = 'in_progress' AND s.fence = p_fence AND s.worker_uuid = p_worker
    RETURNING s.namespace, s.handler, s.attempts, s.unwritten, s.moves_id, s.enqueued_at, s.last_attempted_at INTO _step;
    IF NOT FOUND THEN -- the worker has just given it back
        RETURN;
    END IF;
    concluded := true;
    asks := _works AND coalesce(cardinality(_child.direct), 0) < p_wanted AND (_child.queued_for_it OR _urgent IS NOT NULL);
    namespace := _step.namespace;
    handler := _step.handler;
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, worker_uuid, created_at, moves_id, enqueued_at, claimed_at)
    VALUES (p_task, p_step, 'in_progress', 'complete', 'succeed', _step.attempts, p_worker, _at,
        CASE WHEN _step.unwritten < 0 THEN _step.moves_id END,
        CASE WHEN _step.unwritten IN (-1, -3) THEN _step.enqueued_at END,
        CASE WHEN _step.unwritten IN (-2, -3) THEN _step.last_attempted_at END);

    IF _done THEN
        UPDATE tasker.tasks t
        SET state = 'complete', state_since = _at, updated_at = _at, completed_at = _at, warn_at = NULL, stale_at = NULL
        WHERE t.task_uuid = p_task;
        INSERT INTO tasker.task_history (task_uuid, from_state, to_state, created_at)
        VALUES (p_task, 'steps_in_process', 'complete', _at);
        RETURN;
    END IF;
    IF _since < _at - interval '1 second' THEN -- it has made progress, which moves its staleness
        UPDATE tasker.tasks t
        SET state_since = _at, updated_at = _at, warn_at = _at + 0.8 * h.threshold, stale_at = _at + h.threshold
        FROM tasker.task_templates tt
        CROSS JOIN tasker.staleness_thresholds st
        CROSS JOIN LATERAL (SELECT tasker.staleness_threshold('steps_in_process', tt, st) AS threshold) h
        WHERE t.task_uuid = p_task AND tt.template_uuid = t.template_uuid AND st.only_row;
    END IF;
    IF _child.waiting IS NOT NULL THEN
        UPDATE tasker.workflow_steps s
        SET parents_open = s.parents_open - 1, inputs_bytes = s.inputs_bytes + nullif(p_size, 0), updated_at = _at
        WHERE s.task_uuid = p_task AND s.step_uuid = ANY (_child.waiting);
    END IF;
    IF _child.direct IS NOT NULL THEN
        UPDATE tasker.workflow_steps s
        SET parents_open = 0, inputs_bytes = s.inputs_bytes + nullif(p_size, 0), state = 'in_progress', state_since = _at, updated_at = _at,
            attempts = s.attempts + 1, fence = s.fence + 1, worker_uuid = p_worker, enqueued_at = _at, last_attempted_at = _at,
            expires_at = NULL, queue_expiries = 0, unwritten = 3, moves_id = nextval('tasker.step_history_transition_id_seq'),
            timeout_at = _at + interval '1 millisecond' * s.timeout_ms,
            lease_expires_at = least(_at + p_lease, _at + interval '1 millisecond' * s.timeout_ms)
        WHERE s.task_uuid = p_task AND s.step_uuid = ANY (_child.direct);
        PERFORM set_config('tasker.direct_steps', array_to_string(_child.direct, ','), true);
        PERFORM set_config('tasker.direct_tasks', array_to_string(array_fill(p_task, ARRAY[cardinality(_child.direct)]), ','), true);
    END IF;
    IF _child.queued IS NOT NULL THEN
        enqueued := _child.queued;
        WITH queued AS (
            UPDATE tasker.workflow_steps s
            SET parents_open = 0, inputs_bytes = s.inputs_bytes + nullif(p_size, 0), state = 'enqueued', state_since = _at, updated_at = _at,
                attempts = s.attempts + 1, unwritten = 1, moves_id = nextval('tasker.step_history_transition_id_seq'),
                expires_at = _at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, p_queue_ttl)
            WHERE s.task_uuid = p_task AND s.step_uuid = ANY (_child.queued)
            RETURNING s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at, s.queue_ttl_ms, s.inputs_bytes
        ), ready AS (
            INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at, queue_ttl_ms, inputs_bytes)
            SELECT q.* FROM queued q
        ), announced AS (
            INSERT INTO tasker.dispatch_outbox (task_uuid, step_uuid, namespace)
            SELECT q.task_uuid, q.step_uuid, q.namespace FROM queued q WHERE p_announce
        )
        SELECT array_agg(DISTINCT q.namespace) INTO namespaces FROM queued q;
    END IF;
END
$$;
COMMENT ON FUNCTION tasker.conclude_success(uuid, uuid, bigint, uuid, jsonb, integer, bytea, bigint, boolean, integer, interval, uuid[], integer, integer, bigint, text[], text[], bigint[], bigint[], timestamptz[]) IS 'Concludes one success of a worker if its step is an ordinary one, and says whether it did.';
