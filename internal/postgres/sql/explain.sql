-- name: findExplained
-- The id of a step is created right after that of its task. Therefore the task of a step is among
-- those
-- with the preceding ids. An index of steps by id would slow down every creation of a task.
SELECT kind, task_uuid, step_uuid, namespaces, ended_as, ended_by, ended_at, clock_timestamp() AS as_of
FROM (
    SELECT 'task' AS kind, task_uuid, NULL::uuid AS step_uuid, ARRAY[namespace] AS namespaces, '' AS ended_as, '' AS ended_by, NULL::timestamptz AS ended_at
    FROM tasker.tasks WHERE task_uuid = $1
    UNION ALL
    SELECT 'investigation', task_uuid, step_uuid, ARRAY[namespace],
        CASE WHEN resolution_status = 'pending' THEN '' ELSE resolution_status::text END, coalesce(resolved_by, ''), resolved_at
    FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1
    UNION ALL
    SELECT 'case', NULL, NULL, ARRAY[namespace], '', '', NULL FROM tasker.cases WHERE case_id = $1
    UNION ALL
    SELECT 'operation', NULL, NULL, namespaces, '', '', NULL FROM tasker.operations WHERE operation_uuid = $1
    UNION ALL
    SELECT 'hold', NULL, NULL, ARRAY[namespace], '', '', NULL FROM tasker.holds WHERE hold_uuid = $1
    UNION ALL (
        SELECT 'step', s.task_uuid, s.step_uuid, ARRAY[s.namespace], '', '', NULL
        FROM (
            SELECT t.task_uuid FROM tasker.tasks t WHERE t.task_uuid < $1 AND t.task_uuid >= $2 ORDER BY t.task_uuid DESC LIMIT $3
        ) t
        JOIN tasker.workflow_steps s ON s.task_uuid = t.task_uuid AND s.step_uuid = $1
    )
) f
LIMIT 1;

-- name: selectExplainedTasks
-- Reads, for each task, its newest investigation, the newest one that ended as permanently failed,
-- its
-- last transition and its open steps, all in one snapshot. Optionally counts the investigations in
-- its
-- case and reads the redacted errors of its first steps.
--
-- $1 tasks, $2 maximum number of steps per task, $3 whether to include steps with open parents, $4
-- a step
-- to include even if it has ended, $5 maximum count for the case or null, $6 number of steps with
-- errors.
SELECT t.task_uuid, t.namespace, t.name AS task_name, t.state AS task_state, t.state_since AS task_since, t.start_at, t.created_at, t.attend_by, x.start_by, coalesce((t.options ->> 'merged_requests')::int, 0) AS merged_requests, t.options ? 'debounce_key' IS TRUE AS debounced,
    fired.schedule_uuid, coalesce(fired.name, '') AS schedule, fired.nominal_at, coalesce(fired.kind, '') AS firing,
    coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, coalesce(un.steps, 0) AS undo_steps, coalesce(un.done, 0) AS undone,
    clock_timestamp() AS as_of, coalesce(h.to_state, '') AS moved_to, coalesce(h.event, '') AS moved_by, coalesce(h.actor, '') AS moved_actor, coalesce(h.reason, '') AS moved_reason,
    e.dlq_entry_uuid AS entry_uuid, coalesce(e.resolution_status::text, '') AS entry_status, coalesce(e.dlq_reason::text, '') AS entry_reason,
    coalesce(e.detail_code, '') AS entry_code, e.dlq_timestamp AS entry_opened, e.recovered_at AS entry_recovered, coalesce(e.resolved_by, '') AS entry_ended_by, e.resolved_at AS entry_ended,
    coalesce(p.resolved_by, '') AS written_off_by, p.resolved_at AS written_off_at,
    c.case_id, coalesce(c.owner, '') AS case_owner, CASE WHEN $5::bigint IS NOT NULL THEN n.entries END AS case_entries, coalesce(dt.failures, 0) AS task_failures, dt.retry_at AS task_retry_at, coalesce(lg.failures, 0) AS release_failures, lg.retry_at AS release_retry_at,
    coalesce(s.step_uuid, '00000000-0000-0000-0000-000000000000') AS step_uuid, coalesce(s.name, '') AS step_name, coalesce(CASE WHEN s.is_decision THEN 'decision' ELSE s.step_type END, '') AS step_type,
    coalesce(s.handler, '') AS handler, coalesce(s.priority, 0) AS priority, coalesce(s.state, '') AS step_state, coalesce(s.state_since, now()) AS step_since, s.parent_uuids,
    coalesce(s.parents_open, 0) AS parents_open, s.decide_at, s.decided_at, coalesce(s.skip_reason, '') AS skip_reason, s.wait_until, CASE WHEN s.step_type = 'external' THEN (SELECT h.assignee FROM tasker.human_steps h WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid) END AS assignee, s.child_task_uuid AS child_uuid, t.parent_task_uuid AS parent_uuid, coalesce(s.attempts, 0) AS attempts, coalesce(s.max_attempts, 0) AS max_attempts,
    s.lease_expires_at, s.timeout_at, s.next_retry_at, s.last_attempted_at, s.expires_at, s.awaits_worker_since, coalesce(s.error_type, '') AS error_type,
    coalesce(CASE WHEN s.place <= $6 AND s.state = 'error' THEN tasker.redact_error(s.error) ->> 'message' END, '') AS error_message,
    CASE WHEN s.step_type = 'external' AND s.state = 'pending' THEN (
        SELECT max(x.completed_at) FROM tasker.workflow_steps x WHERE x.task_uuid = t.task_uuid AND x.step_uuid = ANY (s.parent_uuids)
    ) END AS parents_done_at,
    CASE WHEN s.checkpointed AND s.state NOT IN ('complete', 'resolved_manually', 'skipped', 'cancelled') THEN (
        SELECT jsonb_build_object('attempt', c.attempt, 'bytes', c.bytes, 'saved_at', c.saved_at)
        FROM tasker.step_checkpoints c
        WHERE c.task_uuid = s.task_uuid AND c.step_uuid = s.step_uuid
    ) END AS checkpoint, (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END <= q.due_at THEN 'met'
                WHEN CASE WHEN t.state = 'complete' THEN t.completed_at END > q.due_at THEN 'missed'
                WHEN q.ended_at IS NOT NULL THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = t.task_uuid AND q.step_uuid = '00000000-0000-0000-0000-000000000000'
    ) AS due, t.ends_at, CASE WHEN s.step_uuid IS NOT NULL THEN (
        SELECT jsonb_build_object('due_at', q.due_at, 'warn_at', q.warn_at, 'overdue', CASE WHEN q.investigate THEN 'investigate' ELSE 'tell' END, 'source', q.source,
            'set_by', q.set_by, 'warned_at', q.warned_at, 'announced_at', q.announced_at, 'state', CASE
                WHEN CASE WHEN s.state IN ('complete', 'resolved_manually', 'skipped') THEN s.state_since END <= q.due_at THEN 'met'
                WHEN CASE WHEN s.state IN ('complete', 'resolved_manually', 'skipped') THEN s.state_since END > q.due_at THEN 'missed'
                WHEN (s.state = 'cancelled' OR q.ended_at IS NOT NULL) THEN 'ended'
                WHEN q.due_at <= now() THEN 'overdue'
                WHEN q.warn_at <= now() THEN 'soon'
                ELSE 'ahead' END)
        FROM tasker.deadlines q
        WHERE q.task_uuid = s.task_uuid AND q.step_uuid = s.step_uuid
    ) END AS step_due,
    s.map_step_uuid IS NOT NULL AND s.state = 'pending' AS waits_for_place,
    CASE WHEN s.items_total IS NOT NULL AND s.state = 'pending' AND s.decide_at IS NULL THEN tasker.item_counts(s.task_uuid, s.step_uuid) END AS items,
    coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, w.last_heartbeat_at AS worker_seen, coalesce(w.heartbeat_interval, '0') AS worker_heartbeat,
    i.operation_uuid, coalesce(i.item_state, '') AS item_state, coalesce(i.operation_state, '') AS operation_state, coalesce(i.planned_by, '') AS planned_by,
    coalesce(i.paused_for, '') AS paused_for, coalesce(i.paused_by, '') AS paused_by, i.paused_at, i.created_at AS planned_at, i.expires_at AS plan_expires,
    coalesce(i.wave, 0) AS operation_wave, coalesce(i.worker_at_least, '') AS gate, CASE WHEN i.worker_at_least IS NOT NULL THEN ARRAY(
        SELECT w.version FROM tasker.workers w WHERE t.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers) AND w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp() LIMIT 1000
    ) END AS gate_versions,
    coalesce(ds.failures, 0) AS step_failures, ds.retry_at AS step_retry_at, ds.first_failed_at AS step_failed_at,
    hd.hold_uuid, coalesce(hd.kind, '') AS hold_kind, coalesce(hd.owner, '') AS hold_owner, coalesce(hd.reason, '') AS hold_reason, coalesce(hd.state, '') AS hold_state,
    coalesce(hd.blocks, false) AS hold_blocks, coalesce(hd.wave, 0) AS hold_wave, coalesce(cardinality(hd.waves), 0) AS hold_waves, hd.began_at AS hold_began, hd.ends_at AS hold_ends, hd.next_probe_at AS hold_probe, hd.others AS hold_others,
    coalesce(lk.kind, '') AS limit_kind, coalesce(lk.namespace, '') AS limit_namespace, coalesce(lk.name, '') AS limit_name, coalesce(lk.key, '') AS limit_key,
    coalesce(lk.max_in_progress, 0) AS limit_max, coalesce(lk.per_second, 0) AS limit_rate, coalesce(lk.taken, 0) AS limit_taken, coalesce(lk.weight, 0) AS limit_weight, lk.held_at AS limit_since,
    lk.holder AS limit_holder, coalesce(lk.holder_step, '') AS limit_holder_step, lk.holder_since AS limit_holder_since
FROM unnest($1::uuid[]) WITH ORDINALITY AS u (task_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
LEFT JOIN LATERAL (
    SELECT g.schedule_uuid, h.name, g.nominal_at, g.kind
    FROM tasker.schedule_firings g
    JOIN tasker.schedules h ON h.schedule_uuid = g.schedule_uuid
    WHERE t.schedule_uuid IS NOT NULL AND g.task_uuid = t.task_uuid
) fired ON true
LEFT JOIN tasker.task_starts x ON t.options IS NOT NULL AND x.task_uuid = t.task_uuid
LEFT JOIN LATERAL (
    SELECT m.to_state, m.event, m.actor, m.reason FROM tasker.task_history m WHERE m.task_uuid = t.task_uuid ORDER BY m.transition_id DESC LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS steps, count(*) FILTER (WHERE x.state IN ('complete', 'resolved_manually')) AS done
    FROM tasker.workflow_steps x
    WHERE x.task_uuid = t.task_uuid AND (t.phase IS NOT NULL OR t.outcome IS NOT NULL) AND x.name LIKE 'undo:%'
) un ON true
LEFT JOIN LATERAL (
    SELECT d.* FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid ORDER BY d.dlq_timestamp DESC LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT d.resolved_by, d.resolved_at FROM tasker.tasks_dlq d
    WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed' AND t.phase IS NULL
    ORDER BY d.dlq_timestamp DESC LIMIT 1
) p ON true
LEFT JOIN tasker.case_members cm ON cm.dlq_entry_uuid = e.dlq_entry_uuid
LEFT JOIN tasker.case_fingerprints cf ON cf.fingerprint = cm.fingerprint
LEFT JOIN LATERAL (
    SELECT x.case_id, CASE WHEN x.owned_until > now() THEN x.owner END AS owner FROM tasker.cases x WHERE x.case_id = cf.case_id
) c ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS entries
    FROM (
        SELECT
        FROM tasker.case_fingerprints f
        JOIN tasker.case_members m ON m.namespace = t.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        WHERE f.case_id = c.case_id AND $5::bigint IS NOT NULL
        LIMIT $5::bigint + 1
    ) x
) n ON true
LEFT JOIN LATERAL (
    SELECT d.failures, d.retry_at FROM tasker.deferred_work d
    WHERE d.kind = ANY ('{start,start_by,retry,redispatch}') AND d.task_uuid = t.task_uuid AND d.step_uuid = '00000000-0000-0000-0000-000000000000'
    ORDER BY d.failures DESC LIMIT 1
) dt ON true
LEFT JOIN tasker.deferred_work lg ON lg.kind = 'release_hold' AND lg.task_uuid = t.task_uuid AND lg.step_uuid = '00000000-0000-0000-0000-000000000000'
LEFT JOIN LATERAL (
    SELECT o.*, o.error ->> 'type' AS error_type, row_number() OVER () AS place
    FROM (
        SELECT s.*
        FROM tasker.workflow_steps s
        WHERE s.task_uuid = t.task_uuid AND (s.step_uuid = $4
            OR s.state IN ('pending', 'enqueued', 'in_progress', 'enqueued_for_orchestration', 'error') AND ($3 OR s.parents_open = 0 OR s.decided_at IS NOT NULL))
        ORDER BY s.step_uuid = $4 DESC NULLS LAST, s.parents_open > 0 AND s.decided_at IS NULL, s.state <> 'error', s.next_retry_at IS NOT NULL, s.step_uuid
        LIMIT $2
    ) o
) s ON true
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid
LEFT JOIN LATERAL (
    SELECT i.operation_uuid, i.state AS item_state, o.state AS operation_state, o.planned_by, o.paused_for, o.paused_by, o.paused_at, o.created_at, o.expires_at, o.wave, o.worker_at_least
    FROM tasker.operation_items i
    JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
    WHERE i.task_uuid = t.task_uuid AND i.step_uuid = s.step_uuid AND i.state IN ('planned', 'released', 'running')
) i ON true
LEFT JOIN LATERAL (
    SELECT d.failures, d.retry_at, d.first_failed_at FROM tasker.deferred_work d
    WHERE d.kind = ANY ('{reclaim,report,reject_inputs,decide,wait,child_ended,queue_limit,no_worker}')
      AND d.task_uuid = t.task_uuid AND d.step_uuid = s.step_uuid
    ORDER BY d.failures DESC LIMIT 1
) ds ON true
LEFT JOIN tasker.held_steps q ON s.state = 'enqueued' AND q.task_uuid = t.task_uuid AND q.step_uuid = s.step_uuid AND q.state_since = s.state_since
LEFT JOIN LATERAL (
    SELECT h.*, CASE WHEN $5::bigint IS NOT NULL THEN (
        SELECT count(*) FROM (SELECT FROM tasker.held_steps o WHERE o.hold_uuid = h.hold_uuid AND o.step_uuid <> s.step_uuid LIMIT $5::bigint + 1) o
    ) END AS others
    FROM (
        SELECT * FROM tasker.holds h WHERE h.hold_uuid = q.hold_uuid AND h.ended_at IS NULL
        UNION ALL
        SELECT * FROM tasker.holds h
        WHERE h.blocks AND s.state = 'enqueued' AND q.hold_uuid IS NULL AND h.namespace = s.namespace AND (h.handler IS NULL OR h.handler = s.handler)
          AND (h.task_name IS NULL OR h.task_name = t.name) AND (h.step_name IS NULL OR h.step_name IN (s.name, split_part(s.name, '[', 1)))
          AND q.released_by IS DISTINCT FROM h.hold_uuid
          AND NOT EXISTS (
              SELECT FROM tasker.ready_steps r
              WHERE (r.namespace, r.handler, r.priority, r.state_since, r.step_uuid) = (s.namespace, s.handler, s.priority, s.state_since, s.step_uuid)
                AND r.released_by = h.hold_uuid
          )
    ) h
    ORDER BY h.hold_uuid LIMIT 1
) hd ON true
LEFT JOIN LATERAL (
    SELECT l.kind, l.namespace, l.name, k.key, l.max_in_progress, l.per_second, coalesce(q.held_at, s.state_since) AS held_at,
        (SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = k.limit_key_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ) LIMIT 10000 /* MaxLimitCount */) n) AS taken,
        coalesce((SELECT x.weight FROM (SELECT x.limit_id, '' AS key, 1 AS weight FROM (
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'handler' AND l.name = s.handler) x
        UNION ALL
        SELECT t.limit_id, t.key, t.weight
        FROM tasker.task_limits t
        JOIN tasker.limits l ON l.limit_id = t.limit_id
        WHERE t.task_uuid = s.task_uuid AND (t.step_uuid IS NULL OR t.step_uuid = s.step_uuid OR t.step_uuid = (
            SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = s.task_uuid AND i.step_uuid = s.step_uuid
        ))) x WHERE x.limit_id = k.limit_id AND x.key = k.key LIMIT 1), 1) AS weight,
        o.task_uuid AS holder, o.name AS holder_step, o.last_attempted_at AS holder_since
    FROM tasker.limit_keys k
    JOIN tasker.limits l ON l.limit_id = k.limit_id
    LEFT JOIN LATERAL (
        SELECT w.task_uuid, w.name, w.last_attempted_at
        FROM tasker.limit_slots h
        JOIN tasker.workflow_steps w ON w.task_uuid = h.task_uuid AND w.step_uuid = h.step_uuid AND w.state || '' = 'in_progress' AND w.fence = h.fence
        WHERE h.limit_key_id = k.limit_key_id AND w.namespace = s.namespace
        ORDER BY w.last_attempted_at, w.step_uuid LIMIT 1
    ) o ON true
    WHERE k.limit_key_id = coalesce(q.limit_key_id, (
        SELECT f.limit_key_id FROM (
        SELECT p.limit_key_id
        FROM (SELECT x.limit_id, '' AS key, 1 AS weight FROM (
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = '' AND l.kind = 'server' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'namespace' AND l.name = ''
        UNION ALL
        SELECT l.limit_id FROM tasker.limits l WHERE l.namespace = s.namespace AND l.kind = 'handler' AND l.name = s.handler) x
        UNION ALL
        SELECT t.limit_id, t.key, t.weight
        FROM tasker.task_limits t
        JOIN tasker.limits l ON l.limit_id = t.limit_id
        WHERE t.task_uuid = s.task_uuid AND (t.step_uuid IS NULL OR t.step_uuid = s.step_uuid OR t.step_uuid = (
            SELECT i.map_step_uuid FROM tasker.workflow_steps i WHERE i.task_uuid = s.task_uuid AND i.step_uuid = s.step_uuid
        ))) x
        JOIN tasker.limit_keys p ON p.limit_id = x.limit_id AND p.key = x.key
        JOIN tasker.limits l ON l.limit_id = p.limit_id
        CROSS JOIN (SELECT clock_timestamp() AS at) c
        WHERE CASE WHEN l.limit_id IS NULL THEN x.weight ELSE least(x.weight,
            CASE WHEN l.max_in_progress IS NOT NULL THEN l.max_in_progress - (
                SELECT coalesce(sum(n.weight), 0) FROM (SELECT h.weight FROM tasker.limit_slots h WHERE h.limit_key_id = p.limit_key_id AND EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state || '' = 'in_progress' AND s.fence = h.fence
        OFFSET 0 -- one lookup by key per row
    ) LIMIT l.max_in_progress) n
            ) END,
            CASE WHEN l.per_second IS NOT NULL
                THEN floor(l.burst - greatest(extract(epoch FROM nullif(p.full_at, '-infinity') - c.at), 0) * l.per_second + 1e-9) END
        )::bigint END < least(x.weight, least(l.max_in_progress, l.burst))
        ORDER BY p.limit_id, p.key
        LIMIT 1) f WHERE q.task_uuid IS NULL
    ))
) lk ON s.state = 'enqueued' AND hd.hold_uuid IS NULL
ORDER BY u.place, s.place;

-- name: selectExplainedQueues
-- Selects the most recently seen workers of each queue, their leases, and the number of steps ahead
-- of
-- a position: those with higher priority, and older ones with the same priority.
--
-- $1 namespaces, $2 handlers, $3 priorities, $4 times of enqueueing (null skips counting), $5
-- maximum
-- number of workers, $6 maximum number of leases, $7 maximum count, $8 visible namespaces (null:
-- all).
WITH seen AS MATERIALIZED (
    SELECT w.worker_uuid, w.name, w.namespaces, w.handlers, w.max_concurrency, w.last_heartbeat_at, w.draining_since, w.left_at,
        (w.left_at IS NULL AND w.draining_since IS NULL AND w.last_heartbeat_at >= now() - interval '2 hours'
      AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp()) AS live,
        w.draining_since IS NOT NULL AND w.left_at IS NULL AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp() AS drains
    FROM (SELECT * FROM tasker.workers ORDER BY last_heartbeat_at DESC LIMIT $5) w
    WHERE w.handlers && $2::text[]
),
leases AS MATERIALIZED (
    SELECT u.task_uuid, u.step_uuid, c.claimed_at
    FROM (SELECT * FROM tasker.claims ORDER BY look_at LIMIT $6::bigint + 1) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    LIMIT $6::bigint + 1
),
held AS MATERIALIZED (
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS steps
    FROM leases l
    JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = l.claimed_at
    GROUP BY s.worker_uuid
)
SELECT a.namespace, a.handler, n.live, n.draining, n.places,
    CASE WHEN (SELECT count(*) FROM leases) <= $6::bigint THEN n.taken END AS taken,
    (SELECT count(*) FROM seen w WHERE w.live AND a.handler = ANY (w.handlers) AND a.namespace <> ALL (w.namespaces) AND ($8::text[] IS NULL OR w.namespaces <@ $8)) AS elsewhere,
    coalesce(l.name, '') AS last_name, l.last_heartbeat_at AS last_heard, z.saturated_since, z.busy_at,
    CASE WHEN a.since IS NOT NULL THEN (
        SELECT count(*)
        FROM (
            (
                SELECT FROM tasker.ready_steps r
                WHERE r.namespace = a.namespace AND r.handler = a.handler AND r.priority > a.priority
                LIMIT $7::bigint + 1
            )
            UNION ALL (
                SELECT FROM tasker.ready_steps r
                WHERE r.namespace = a.namespace AND r.handler = a.handler AND r.priority = a.priority AND r.state_since < a.since
                LIMIT $7::bigint + 1
            )
        ) b
    ) END AS before
FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[]) WITH ORDINALITY AS a (namespace, handler, priority, since, place)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE w.live) AS live, count(*) FILTER (WHERE w.drains) AS draining,
        coalesce(sum(w.max_concurrency) FILTER (WHERE w.live), 0) AS places,
        coalesce(sum((SELECT h.steps FROM held h WHERE h.worker_uuid = w.worker_uuid)) FILTER (WHERE w.live), 0)::bigint AS taken
    FROM seen w
    WHERE a.namespace = ANY (w.namespaces) AND a.handler = ANY (w.handlers)
) n
LEFT JOIN LATERAL (
    SELECT w.name, w.last_heartbeat_at
    FROM seen w
    WHERE a.namespace = ANY (w.namespaces) AND a.handler = ANY (w.handlers)
    ORDER BY w.last_heartbeat_at DESC LIMIT 1
) l ON true
LEFT JOIN tasker.queues z ON z.namespace = a.namespace AND z.handler = a.handler
ORDER BY a.place;

-- name: selectExplainedWaiting
SELECT clock_timestamp() AS as_of, r.steps, r.oldest, r.next_expiry, w.steps AS awaiting, least(r.oldest, w.since) AS since
FROM (
    SELECT count(*) AS steps, min(x.state_since) AS oldest, min(x.expires_at) AS next_expiry
    FROM (
        SELECT s.state_since, s.expires_at FROM tasker.ready_steps s
        WHERE s.namespace = $1 AND s.handler = $2
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3::bigint + 1
    ) x
) r
CROSS JOIN (
    SELECT count(*) AS steps, min(x.awaits_worker_since) AS since
    FROM (
        SELECT s.awaits_worker_since FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = $1 AND s.handler = $2
        ORDER BY s.awaits_worker_since
        LIMIT $3::bigint + 1
    ) x
) w;

-- name: selectExplainedMembers
SELECT d.task_uuid
FROM (
    SELECT m.*
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT m.*
        FROM tasker.case_members m
        WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at DESC
        LIMIT $2
    ) m
    WHERE f.case_id = $1
    ORDER BY m.opened_at DESC
    LIMIT $2
) m
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
ORDER BY m.opened_at DESC, d.task_uuid;

-- name: selectExplainedItems
SELECT i.task_uuid
FROM unnest('{released,running}'::text[]) AS x (state)
CROSS JOIN LATERAL (
    SELECT i.task_uuid FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.state = x.state
    ORDER BY i.ordinal
    LIMIT $2
) i
LIMIT $2;
