-- What holds in every database of Tasker whenever no transaction is open. Each
-- row is a violation. $1 to $6 are the legal moves: from, event and to of tasks,
-- then of steps; $7 and $8 the known causes: reason and detail code.
WITH task_edge AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS e (from_state, event, to_state)),
step_edge AS (SELECT * FROM unnest($4::text[], $5::text[], $6::text[]) AS e (from_state, event, to_state)),
task_chain AS (
    SELECT x.*,
        lag(x.to_state, 1, 'pending') OVER w AS expected,
        lead(x.transition_id) OVER w IS NULL AS is_last
    FROM tasker.task_transitions x
    WINDOW w AS (PARTITION BY x.task_uuid ORDER BY x.transition_id)
),
step_chain AS (
    SELECT x.*,
        lag(x.to_state, 1, 'pending') OVER w AS expected,
        lead(x.transition_id) OVER w IS NULL AS is_last
    FROM tasker.workflow_step_transitions x
    WINDOW w AS (PARTITION BY x.task_uuid, x.step_uuid ORDER BY x.transition_id)
),
counted AS (
    SELECT t.task_uuid, t.state, t.phase,
        count(*) FILTER (WHERE s.state <> 'cancelled') AS total,
        count(*) FILTER (WHERE s.state IN ('complete', 'resolved_manually', 'skipped')) AS done,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration') OR s.state = 'pending' AND s.decide_at IS NOT NULL) AS active,
        count(*) FILTER (WHERE s.next_retry_at IS NOT NULL) AS retrying,
        count(*) FILTER (WHERE s.state = 'error' AND s.next_retry_at IS NULL) AS failed,
        count(*) FILTER (WHERE s.state = 'pending' AND s.step_type <> 'standard' AND s.items_total IS NULL
            AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END) AS awaited,
        count(*) FILTER (WHERE s.state = 'pending' AND s.step_type = 'standard' AND s.map_step_uuid IS NULL
            AND CASE WHEN s.join_rule IS NULL THEN s.parents_open = 0 ELSE s.decided_at IS NOT NULL END) AS forgotten,
        count(*) FILTER (WHERE s.state = 'pending' AND s.join_rule IS NOT NULL AND s.decided_at IS NULL AND s.parents_open = 0 AND s.decide_at IS NULL) AS undecided
    FROM tasker.tasks t
    JOIN tasker.workflow_steps s USING (task_uuid)
    GROUP BY t.task_uuid, t.state
),
undo AS (
    SELECT u.task_uuid, u.step_uuid, u.name, u.state, t.state AS task_state, t.phase, t.outcome, d.step_uuid AS undone_uuid, d.state AS undone_state,
        d.completed_at AS undone_at, u.parent_uuids,
        lag(u.step_uuid) OVER chain AS before_uuid, lag(u.state) OVER chain AS before_state, lag(d.completed_at) OVER chain AS before_at
    FROM tasker.workflow_steps u
    JOIN tasker.tasks t USING (task_uuid)
    LEFT JOIN tasker.workflow_steps d ON d.task_uuid = u.task_uuid AND 'undo:' || d.name = u.name
    WHERE u.name LIKE 'undo:%'
    WINDOW chain AS (PARTITION BY u.task_uuid ORDER BY u.step_uuid)
)
SELECT 'illegal move of a task' AS violation, c.task_uuid, format('%s -%s-> %s', c.from_state, c.event, c.to_state) AS detail
FROM task_chain c
WHERE NOT EXISTS (SELECT FROM task_edge e WHERE (e.from_state, e.event, e.to_state) = (c.from_state, c.event, c.to_state))
UNION ALL
SELECT 'illegal move of a step', c.task_uuid, format('%s: %s -%s-> %s', c.step_uuid, c.from_state, c.event, c.to_state)
FROM step_chain c
WHERE NOT EXISTS (SELECT FROM step_edge e WHERE (e.from_state, e.event, e.to_state) = (c.from_state, c.event, c.to_state))
UNION ALL
SELECT 'gap in the history of a task', c.task_uuid, format('expected to leave %s, left %s', c.expected, c.from_state)
FROM task_chain c
WHERE c.expected <> c.from_state
UNION ALL
SELECT 'gap in the history of a step', c.task_uuid, format('%s: expected to leave %s, left %s', c.step_uuid, c.expected, c.from_state)
FROM step_chain c
WHERE c.expected <> c.from_state
UNION ALL
SELECT 'step runs that a decision does not name', s.task_uuid, format('%s: %s does not name %s', s.step_uuid, p.name, s.name)
FROM tasker.workflow_steps s
JOIN tasker.workflow_steps p ON p.task_uuid = s.task_uuid AND p.step_uuid = ANY (s.parent_uuids)
WHERE p.is_decision AND p.state = 'complete' AND s.decided_at IS NOT NULL AND NOT p.results -> 'goes_on' ? s.name
UNION ALL
SELECT 'task is not where its history ends', t.task_uuid, format('is %s, history ends in %s', t.state, coalesce(c.to_state, 'pending'))
FROM tasker.tasks t
LEFT JOIN task_chain c ON c.task_uuid = t.task_uuid AND c.is_last
WHERE t.state <> coalesce(c.to_state, 'pending')
UNION ALL
SELECT 'step is not where its history ends', s.task_uuid, format('%s: is %s, history ends in %s', s.step_uuid, s.state, coalesce(c.to_state, 'pending'))
FROM tasker.workflow_steps s
LEFT JOIN step_chain c ON c.task_uuid = s.task_uuid AND c.step_uuid = s.step_uuid AND c.is_last
WHERE s.state <> coalesce(c.to_state, 'pending')
UNION ALL
SELECT 'count of open parents is wrong', s.task_uuid, format('%s: says %s, counted %s', s.step_uuid, s.parents_open, p.open)
FROM tasker.workflow_steps s
CROSS JOIN LATERAL (
    SELECT count(*) AS open
    FROM tasker.workflow_steps p
    WHERE s.items_total IS NULL AND p.task_uuid = s.task_uuid AND p.step_uuid = ANY (s.parent_uuids) AND p.state NOT IN ('complete', 'resolved_manually', 'skipped')
    UNION ALL
    SELECT count(*)
    FROM tasker.workflow_steps i
    WHERE s.items_total IS NOT NULL AND i.task_uuid = s.task_uuid AND i.map_step_uuid = s.step_uuid AND i.state NOT IN ('complete', 'resolved_manually', 'skipped')
    ORDER BY open DESC
    LIMIT 1
) p
WHERE s.map_step_uuid IS NULL AND s.parents_open <> p.open
  AND (s.join_rule IS DISTINCT FROM 'any' OR s.items_total IS NOT NULL) -- of which some may end in one statement with the step itself
UNION ALL
-- An item of a step that does not wait for all may begin before some of its parents.
SELECT 'item waits for parents', i.task_uuid, i.step_uuid::text
FROM tasker.workflow_steps i
WHERE i.map_step_uuid IS NOT NULL AND i.parents_open <> 0
UNION ALL
SELECT 'edges differ in both directions', s.task_uuid, s.step_uuid::text
FROM tasker.workflow_steps s
WHERE s.map_step_uuid IS NULL AND EXISTS (
    SELECT FROM tasker.workflow_steps c
    WHERE c.task_uuid = s.task_uuid AND c.map_step_uuid IS NULL AND (c.step_uuid = ANY (s.child_uuids)) <> (s.step_uuid = ANY (c.parent_uuids))
)
UNION ALL
SELECT 'item has other edges than its step', i.task_uuid, i.step_uuid::text
FROM tasker.workflow_steps i
LEFT JOIN tasker.workflow_steps m ON m.task_uuid = i.task_uuid AND m.step_uuid = i.map_step_uuid
WHERE i.map_step_uuid IS NOT NULL
  AND (m.step_uuid IS NULL OR m.items_total IS NULL OR i.parent_uuids <> m.parent_uuids OR i.child_uuids <> ARRAY[m.step_uuid])
UNION ALL
SELECT 'items of a step are not those that were made', m.task_uuid, format('%s: %s items, %s to %s', m.step_uuid, n.items, n.first, n.last)
FROM tasker.workflow_steps m
CROSS JOIN LATERAL (
    SELECT count(DISTINCT i.item_ordinal) AS items, coalesce(min(i.item_ordinal), 0) AS first, coalesce(max(i.item_ordinal), -1) AS last
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid
) n
WHERE m.map_step_uuid IS NULL AND (n.items, n.first, n.last) <> (coalesce(m.items_total, 0), 0, coalesce(m.items_total, 0) - 1)
UNION ALL
SELECT 'items are handed something, and there are none', g.task_uuid, g.step_uuid::text
FROM tasker.map_inputs g
WHERE NOT EXISTS (SELECT FROM tasker.workflow_steps m WHERE m.task_uuid = g.task_uuid AND m.step_uuid = g.step_uuid AND m.items_total IS NOT NULL)
UNION ALL
SELECT 'item waits for a place, and nobody gives it one', m.task_uuid, format('%s: %s of %s places are said to be free, %s are taken, %s items wait', m.step_uuid, m.items_free, m.items_limit, n.taken, n.waiting)
FROM tasker.workflow_steps m
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE i.state = 'pending') AS waiting, count(*) FILTER (WHERE i.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')
        OR i.state = 'error' AND (i.next_retry_at IS NOT NULL OR i.error ->> 'type' = 'queue_expiry')) AS taken
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid
) n
WHERE m.map_step_uuid IS NULL AND m.items_total IS NOT NULL AND m.state = 'pending'
  AND (n.waiting > 0 AND n.taken < coalesce(m.items_limit, m.items_total) OR m.items_free <> m.items_limit - n.taken)
UNION ALL
SELECT 'step has ended before its items', m.task_uuid, m.step_uuid::text
FROM tasker.workflow_steps m
WHERE m.items_total IS NOT NULL AND m.state IN ('complete', 'resolved_manually', 'skipped') AND EXISTS (
    SELECT FROM tasker.workflow_steps i
    WHERE i.task_uuid = m.task_uuid AND i.map_step_uuid = m.step_uuid AND i.state NOT IN ('complete', 'resolved_manually', 'skipped')
)
UNION ALL
SELECT 'task does not rest where its steps say', n.task_uuid, format('is %s: %s', n.state, to_jsonb(n))
FROM counted n
WHERE n.state NOT IN ('pending', 'cancelled', 'error')
  AND n.state <> CASE
      WHEN n.done = n.total AND n.phase IS NOT NULL THEN 'cancelled'
      WHEN n.done = n.total THEN 'complete'
      WHEN n.active > 0 THEN 'steps_in_process'
      WHEN n.retrying > 0 THEN 'waiting_for_retry'
      WHEN n.failed > 0 THEN 'error'
      ELSE 'waiting_for_dependencies'
  END
UNION ALL
SELECT 'what undoes a step is not in the chain at its place', u.task_uuid, to_jsonb(u)::text
FROM undo u
WHERE u.undone_state IS DISTINCT FROM 'complete' OR u.undone_at > u.before_at
   OR u.parent_uuids <> array_remove(ARRAY[u.undone_uuid, u.before_uuid], NULL)
   OR u.state NOT IN ('pending', 'cancelled', 'resolved_manually') AND u.before_state NOT IN ('complete', 'resolved_manually')
UNION ALL
SELECT 'step is undone twice', u.task_uuid, u.name
FROM undo u
GROUP BY u.task_uuid, u.name
HAVING count(*) > 1
UNION ALL
SELECT 'step that can be undone is not', t.task_uuid, s.name
FROM tasker.tasks t
JOIN tasker.task_templates m USING (template_uuid)
JOIN tasker.workflow_steps s USING (task_uuid)
WHERE (t.phase IS NOT NULL OR t.outcome IS NOT NULL) AND s.state = 'complete'
  AND m.configuration @? format('$.steps[*] ? (@.name == %s && exists (@.on_failure))', to_json(s.name))::jsonpath
  AND NOT EXISTS (SELECT FROM undo u WHERE u.task_uuid = s.task_uuid AND u.undone_uuid = s.step_uuid)
UNION ALL
SELECT 'task and what undoes its steps differ', t.task_uuid, format('is %s, %s, %s', t.state, t.phase, t.outcome)
FROM tasker.tasks t
WHERE (t.phase IS NOT NULL AND t.state IN ('pending', 'complete', 'cancelled'))
   OR (t.outcome IS NOT NULL AND t.state <> 'cancelled')
   OR (t.phase IS NOT NULL OR t.outcome IN ('compensated', 'compensation_stopped')) <> EXISTS (SELECT FROM undo u WHERE u.task_uuid = t.task_uuid)
   OR (t.outcome = 'compensated' AND EXISTS (SELECT FROM undo u WHERE u.task_uuid = t.task_uuid AND u.state NOT IN ('complete', 'resolved_manually')))
   OR (t.phase IS NULL AND t.state NOT IN ('pending', 'cancelled') AND EXISTS (SELECT FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid AND s.state = 'cancelled'))
UNION ALL
SELECT 'task has no way forward', n.task_uuid, format('is %s: %s', n.state, to_jsonb(n))
FROM counted n
WHERE CASE n.state
    WHEN 'steps_in_process' THEN n.active = 0
    WHEN 'waiting_for_retry' THEN n.retrying = 0
    WHEN 'waiting_for_dependencies' THEN n.awaited = 0
    WHEN 'error' THEN NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = n.task_uuid)
    WHEN 'pending' THEN NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = n.task_uuid AND t.start_at IS NOT NULL)
    ELSE false
END
UNION ALL
SELECT 'step is ready and nobody enqueued it', n.task_uuid, to_jsonb(n)::text
FROM counted n
WHERE n.forgotten > 0 AND n.state NOT IN ('pending', 'cancelled', 'complete')
  AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = n.task_uuid AND d.dlq_reason = 'dependency_cycle_detected')
UNION ALL
SELECT 'step can be decided and nobody does', n.task_uuid, to_jsonb(n)::text
FROM counted n
WHERE n.undecided > 0 AND n.state NOT IN ('pending', 'cancelled', 'complete')
UNION ALL
SELECT 'step waits for a child task of which it will hear nothing', s.task_uuid, format('%s waits for %s, which is %s', s.step_uuid, s.child_task_uuid, coalesce(c.state, 'gone'))
FROM tasker.workflow_steps s
JOIN tasker.tasks t USING (task_uuid)
LEFT JOIN tasker.tasks c ON c.task_uuid = s.child_task_uuid
WHERE s.step_type = 'child' AND s.state = 'pending' AND s.decided_at IS NOT NULL AND s.decide_at IS NULL AND t.state NOT IN ('pending', 'complete', 'cancelled')
  AND (c.state IS NULL OR c.state IN ('complete', 'cancelled') OR EXISTS (
      SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed'))
  AND NOT EXISTS (SELECT FROM tasker.child_signals g WHERE g.kind = 'ended' AND g.child_uuid = s.child_task_uuid)
UNION ALL
SELECT 'child task goes on and nobody waits for it', c.task_uuid, format('%s of %s is %s', s.step_uuid, s.task_uuid, s.state)
FROM tasker.tasks c
JOIN tasker.workflow_steps s ON s.task_uuid = c.parent_task_uuid AND s.step_uuid = c.parent_step_uuid
WHERE c.state NOT IN ('complete', 'cancelled') AND c.phase IS NULL AND (s.state <> 'pending' OR s.child_task_uuid <> c.task_uuid)
  AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
  AND NOT EXISTS (SELECT FROM tasker.child_signals g WHERE g.kind = 'cancel' AND g.child_uuid = c.task_uuid)
UNION ALL
SELECT 'child task is not one level below its parent', c.task_uuid, format('%s below %s', c.depth, p.depth)
FROM tasker.tasks c
JOIN tasker.tasks p ON p.task_uuid = c.parent_task_uuid
WHERE c.depth <> coalesce(p.depth, 0) + 1 OR c.depth > 10
UNION ALL
SELECT 'ended task has an open step', s.task_uuid, format('%s is %s', s.step_uuid, s.state)
FROM tasker.workflow_steps s
JOIN tasker.tasks t USING (task_uuid)
WHERE (t.state = 'complete' AND s.state NOT IN ('complete', 'resolved_manually', 'skipped'))
   OR (t.state = 'cancelled' AND s.state NOT IN ('complete', 'resolved_manually', 'cancelled', 'skipped'))
UNION ALL
SELECT 'step was completed more than once', x.task_uuid, x.step_uuid::text
FROM tasker.workflow_step_transitions x
WHERE x.to_state IN ('complete', 'resolved_manually', 'skipped')
GROUP BY x.task_uuid, x.step_uuid
HAVING count(*) > 1
UNION ALL
SELECT 'step has used more attempts than it has', s.task_uuid, format('%s: %s of %s', s.step_uuid, s.attempts, s.max_attempts)
FROM tasker.workflow_steps s
WHERE s.attempts > s.max_attempts
UNION ALL
SELECT 'step failed for good without an investigation', s.task_uuid, s.step_uuid::text
FROM tasker.workflow_steps s
JOIN tasker.tasks t USING (task_uuid)
WHERE s.state = 'error' AND s.next_retry_at IS NULL AND t.state <> 'cancelled'
  AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = s.task_uuid)
UNION ALL
SELECT 'investigation without the row that tells of its beginning', d.task_uuid, d.dlq_entry_uuid::text
FROM tasker.tasks_dlq d
WHERE (SELECT count(*) FROM tasker.tasks_dlq_history h WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND h.event = 'created') <> 1
UNION ALL
SELECT 'history of an investigation and its events differ', d.task_uuid, d.dlq_entry_uuid::text
FROM tasker.tasks_dlq d
WHERE (SELECT array_agg(CASE WHEN h.event IN ('created', 'recovered', 'resolved') THEN h.event ELSE 'updated' END ORDER BY h.history_id)
       FROM tasker.tasks_dlq_history h WHERE h.dlq_entry_uuid = d.dlq_entry_uuid)
   IS DISTINCT FROM
      (SELECT array_agg(replace(o.topic, 'dlq.entry.', '') ORDER BY o.position)
       FROM tasker.outbox o WHERE o.dlq_entry_uuid = d.dlq_entry_uuid)
UNION ALL
SELECT 'investigation is not where its history ends', d.task_uuid, format('is %s', d.resolution_status)
FROM tasker.tasks_dlq d
WHERE d.resolution_status IS DISTINCT FROM (
    SELECT h.to_status FROM tasker.tasks_dlq_history h WHERE h.dlq_entry_uuid = d.dlq_entry_uuid ORDER BY h.history_id DESC LIMIT 1
)
UNION ALL
SELECT 'totals of ended investigations are wrong', NULL, format('%s %s %s: counted %s, the totals say %s', namespace, d.dlq_reason, d.resolution_status, d.entries, t.entries)
FROM (
    SELECT d.namespace, d.dlq_reason, d.resolution_status, count(*) AS entries, sum(extract(epoch FROM d.resolved_at - d.dlq_timestamp)) AS open_seconds
    FROM tasker.tasks_dlq d
    WHERE d.resolution_status <> 'pending'
    GROUP BY d.namespace, d.dlq_reason, d.resolution_status
) d
FULL JOIN tasker.dlq_totals t USING (namespace, dlq_reason, resolution_status)
WHERE (d.entries, d.open_seconds) IS DISTINCT FROM (t.entries, t.open_seconds)
UNION ALL
SELECT 'task in error is looked into by nobody and watched by nobody', t.task_uuid, t.state_since::text
FROM tasker.tasks t
WHERE t.state = 'error' AND t.attend_by IS NULL
  AND NOT EXISTS (
      SELECT FROM tasker.tasks_dlq d
      WHERE d.task_uuid = t.task_uuid AND d.resolution_status <> 'manually_resolved'
  )
UNION ALL
SELECT 'investigation of a cause that nobody knows', d.task_uuid, format('%s %s', d.dlq_reason, d.detail_code)
FROM tasker.tasks_dlq d
WHERE NOT EXISTS (
    SELECT FROM unnest($7::text[], $8::text[]) AS c (reason, code)
    WHERE (c.reason, c.code) = (d.dlq_reason::text, d.detail_code)
)
UNION ALL
SELECT 'enqueued step is neither in ready_steps nor put aside', s.task_uuid, s.step_uuid::text
FROM tasker.workflow_steps s
WHERE s.state = 'enqueued' AND NOT EXISTS (
    SELECT FROM tasker.ready_steps r
    WHERE (r.namespace, r.handler, r.priority, r.state_since, r.step_uuid, r.task_uuid, coalesce(r.limit_passed_at, r.expires_at))
        = (s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid, s.expires_at)
      AND (r.queue_ttl_ms, r.inputs_bytes) IS NOT DISTINCT FROM (s.queue_ttl_ms, s.inputs_bytes)
) AND NOT EXISTS (
    SELECT FROM tasker.held_steps q
    LEFT JOIN tasker.holds h ON h.hold_uuid = q.hold_uuid AND h.ended_at IS NULL
    WHERE (h.hold_uuid IS NOT NULL OR q.hold_uuid IS NULL AND q.limit_key_id IS NOT NULL)
      AND (q.namespace, q.handler, q.priority, q.state_since, q.step_uuid, q.task_uuid)
        = (s.namespace, s.handler, s.priority, s.state_since, s.step_uuid, s.task_uuid)
      AND (q.queue_ttl_ms, q.inputs_bytes) IS NOT DISTINCT FROM (s.queue_ttl_ms, s.inputs_bytes)
)
UNION ALL
SELECT 'step is held and can be claimed', q.task_uuid, q.step_uuid::text
FROM tasker.held_steps q
JOIN tasker.ready_steps r ON (r.task_uuid, r.step_uuid, r.state_since) = (q.task_uuid, q.step_uuid, q.state_since)
UNION ALL
SELECT 'step is kept by a hold and a limit, or by neither', q.task_uuid, q.step_uuid::text
FROM tasker.held_steps q
WHERE num_nonnulls(q.hold_uuid, q.limit_key_id) <> 1
UNION ALL
SELECT 'limit has more steps in progress than it lets be', h.task_uuid, format('%s of limit %s, key %s', h.step_uuid, l.limit_id, k.key)
FROM (
    SELECT h.*, sum(h.weight) OVER (PARTITION BY h.limit_key_id ORDER BY s.last_attempted_at, h.step_uuid) AS places, s.last_attempted_at
    FROM tasker.limit_slots h
    JOIN tasker.workflow_steps s ON s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.state = 'in_progress' AND s.fence = h.fence
) h
JOIN tasker.limit_keys k ON k.limit_key_id = h.limit_key_id
JOIN tasker.limits l ON l.limit_id = k.limit_id
WHERE h.places > l.max_in_progress AND h.last_attempted_at > l.changed_at -- a limit that was lowered takes nothing back
UNION ALL
SELECT 'step in progress has no place of its limit', s.task_uuid, format('%s: limit %s', s.step_uuid, l.limit_id)
FROM tasker.workflow_steps s
JOIN tasker.limits l ON s.last_attempted_at > l.changed_at
LEFT JOIN tasker.task_limits t ON l.kind = 'name' AND t.task_uuid = s.task_uuid AND t.limit_id = l.limit_id
    AND (t.step_uuid IS NULL OR t.step_uuid IN (s.step_uuid, s.map_step_uuid))
WHERE s.state = 'in_progress' AND (
    l.kind = 'server' OR l.kind = 'namespace' AND l.namespace = s.namespace OR l.kind = 'handler' AND (l.namespace, l.name) = (s.namespace, s.handler)
    OR t.task_uuid IS NOT NULL
) AND NOT EXISTS (
    SELECT FROM tasker.limit_slots h
    JOIN tasker.limit_keys k ON k.limit_key_id = h.limit_key_id AND k.limit_id = l.limit_id AND k.key = coalesce(t.key, '')
    WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid AND h.fence = s.fence
)
UNION ALL
SELECT 'hold has ended and has steps', NULL, h.hold_uuid::text
FROM tasker.holds h
WHERE h.ended_at IS NOT NULL AND EXISTS (SELECT FROM tasker.held_steps q WHERE q.hold_uuid = h.hold_uuid)
UNION ALL
SELECT 'hold has ended and awaits an outcome', r.task_uuid, r.step_uuid::text
FROM tasker.hold_releases r
JOIN tasker.holds h ON h.hold_uuid = r.hold_uuid
WHERE r.outcome IS NULL AND h.ended_at IS NOT NULL
UNION ALL
SELECT 'claims do not know that they have to ask', NULL, c.id::text
FROM (
    SELECT hold_uuid AS id FROM tasker.holds WHERE blocks
    UNION ALL
    SELECT operation_uuid FROM tasker.operations WHERE worker_at_least IS NOT NULL AND settled_at IS NULL
) c
FULL JOIN tasker.claim_conditions x ON x.condition_uuid = c.id
WHERE num_nulls(c.id, x.condition_uuid) > 0
UNION ALL
SELECT 'hold let a step go twice at a time', r.task_uuid, r.step_uuid::text
FROM tasker.hold_releases r
WHERE r.outcome IS NULL
GROUP BY r.hold_uuid, r.task_uuid, r.step_uuid
HAVING count(*) > 1
UNION ALL
SELECT 'ready_steps has a step that is not enqueued', r.task_uuid, format('%s: the row goes with a claim of handler %s in namespace %s, or at %s', r.step_uuid, r.handler, r.namespace, r.expires_at)
FROM tasker.ready_steps r
WHERE NOT EXISTS (
    SELECT FROM tasker.workflow_steps s
    WHERE (s.task_uuid, s.step_uuid, s.state, s.state_since) = (r.task_uuid, r.step_uuid, 'enqueued', r.state_since)
)
UNION ALL
SELECT 'lease that nobody would take back', s.task_uuid, format('%s: until %s', s.step_uuid, s.lease_expires_at)
FROM tasker.workflow_steps s
WHERE s.state = 'in_progress' AND NOT EXISTS (
    SELECT FROM tasker.claims c
    WHERE s.step_uuid = ANY (c.steps) AND s.task_uuid = ANY (c.tasks) AND c.claimed_at = coalesce(s.last_attempted_at, s.state_since)
      AND c.look_at <= greatest(s.lease_expires_at, now() + interval '31 seconds')
)
UNION ALL
SELECT 'step has unwritten moves that it has not made', s.task_uuid, format('%s: %s is %s', s.step_uuid, s.unwritten, s.state)
FROM tasker.workflow_steps s
WHERE s.unwritten > 0 AND (s.state, s.unwritten) NOT IN (('enqueued', 1), ('in_progress', 2), ('in_progress', 3))
UNION ALL
SELECT 'two moves have one id', x.task_uuid, format('%s: %s', x.step_uuid, x.transition_id)
FROM tasker.workflow_step_transitions x
GROUP BY x.task_uuid, x.step_uuid, x.transition_id
HAVING count(*) > 1
UNION ALL
SELECT 'two moves have one id', x.task_uuid, x.transition_id::text
FROM tasker.task_transitions x
GROUP BY x.task_uuid, x.transition_id
HAVING count(*) > 1
UNION ALL
SELECT 'step moved before its last move', x.task_uuid, format('%s: %s', x.step_uuid, x.event)
FROM (
    SELECT h.*, lag(h.created_at) OVER (PARTITION BY h.task_uuid, h.step_uuid ORDER BY h.transition_id) AS last_at
    FROM tasker.workflow_step_transitions h
) x
WHERE x.created_at < x.last_at
UNION ALL
SELECT 'investigation is no member of the cases', d.task_uuid, d.dlq_entry_uuid::text
FROM tasker.tasks_dlq d
WHERE EXISTS (SELECT FROM tasker.tasks_dlq_history h WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND h.event = 'created')
  AND NOT coalesce(d.resolved_at < (SELECT g.applied_at FROM tasker.schema_migrations g WHERE g.version = 52), false) -- it ended before there were cases
  AND NOT EXISTS (SELECT FROM tasker.case_members m WHERE m.dlq_entry_uuid = d.dlq_entry_uuid)
UNION ALL
SELECT 'member does not follow its investigation', d.task_uuid, format('ended %s and %s, recovered %s and %s', d.resolved_at, m.ended_at, d.recovered_at, m.recovered_at)
FROM tasker.case_members m
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
WHERE d.resolved_at IS DISTINCT FROM m.ended_at OR d.recovered_at IS DISTINCT FROM m.recovered_at
UNION ALL
SELECT 'member of no case', NULL, format('%s: %s', m.dlq_entry_uuid, m.fingerprint)
FROM tasker.case_members m
WHERE m.fingerprint IS NOT NULL AND NOT EXISTS (SELECT FROM tasker.case_fingerprints f WHERE f.fingerprint = m.fingerprint)
UNION ALL
SELECT 'resolved case has open investigations', NULL, c.case_id::text
FROM tasker.cases c
JOIN tasker.case_fingerprints f ON f.case_id = c.case_id
WHERE c.state = 'resolved' AND EXISTS (
    SELECT FROM tasker.case_members m WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
)
UNION ALL
SELECT 'items of an operation do not add up', NULL, format('%s: %s were frozen, %s are there', o.operation_uuid, o.items, i.items)
FROM tasker.operations o
CROSS JOIN LATERAL (SELECT count(*) AS items FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid) i
WHERE o.items <> i.items
UNION ALL
SELECT 'step was moved twice by one operation', x.task_uuid, format('%s: %s', x.operation_uuid, x.step_uuid)
FROM tasker.step_history x
WHERE x.operation_uuid IS NOT NULL
GROUP BY x.task_uuid, x.step_uuid, x.operation_uuid
HAVING count(*) > 1
UNION ALL
SELECT 'item and act of an operation differ', i.task_uuid, format('%s: item %s is %s', i.operation_uuid, i.ordinal, i.state)
FROM tasker.operation_items i
WHERE i.step_uuid <> '00000000-0000-0000-0000-000000000000' AND (i.released_at IS NOT NULL) <> EXISTS (
    SELECT FROM tasker.step_history x WHERE (x.task_uuid, x.step_uuid, x.operation_uuid) = (i.task_uuid, i.step_uuid, i.operation_uuid)
)
UNION ALL
SELECT 'item is verified without an attempt after its release', i.task_uuid, format('%s: item %s', i.operation_uuid, i.ordinal)
FROM tasker.operation_items i
JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = i.task_uuid AND s.step_uuid = i.step_uuid
WHERE i.state = 'verified' AND o.act = 'reset_for_retry'
  AND s.state <> 'skipped' -- that its template decided so is its end
  AND NOT (s.state = 'complete' AND s.reported_fence >= i.released_fence + CASE WHEN s.step_type <> 'standard' THEN 0 ELSE 1 END)
UNION ALL
SELECT 'verified item whose investigation is open', i.task_uuid, format('%s: item %s', i.operation_uuid, i.ordinal)
FROM tasker.operation_items i
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = i.entry_uuid
WHERE i.state = 'verified' AND d.resolution_status = 'pending' AND NOT EXISTS (
    SELECT FROM tasker.operation_items x WHERE x.operation_uuid = i.operation_uuid AND x.entry_uuid = i.entry_uuid AND x.state <> 'verified'
)
UNION ALL
SELECT 'item and recreated task differ', i.task_uuid, format('%s: item %s is %s', i.operation_uuid, i.ordinal, i.state)
FROM tasker.operation_items i
JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
WHERE o.act = 'recreate' AND (
    (i.made_task IS NOT NULL) <> (i.released_at IS NOT NULL)
    OR (i.made_task IS NOT NULL) <> EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.dlq_entry_uuid = i.entry_uuid AND d.resolution_status = 'permanently_failed'
            AND d.metadata -> 'proof' ->> 'made_task_uuid' = i.made_task::text
    )
    OR EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = i.made_task AND t.recreated_from <> i.task_uuid)
)
UNION ALL
SELECT 'item that is undone waits for another task', i.task_uuid, format('%s: item %s is %s', i.operation_uuid, i.ordinal, i.state)
FROM tasker.operation_items i
JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
WHERE o.act = 'compensate' AND (i.released_at IS NOT NULL AND i.made_task IS DISTINCT FROM i.task_uuid OR i.released_at IS NULL AND i.made_task IS NOT NULL)
UNION ALL
SELECT 'operation has come to its end with open items', NULL, o.operation_uuid::text
FROM tasker.operations o
WHERE o.settled_at IS NOT NULL AND EXISTS (
    SELECT FROM tasker.operation_items i WHERE i.operation_uuid = o.operation_uuid AND i.state IN ('planned', 'released', 'running')
)
UNION ALL
SELECT 'checkpoint of a step that does not know of it', c.task_uuid, c.step_uuid::text
FROM tasker.step_checkpoints c
LEFT JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
WHERE s.checkpointed IS NOT TRUE
UNION ALL
SELECT 'human step waits that does not, or does not and waits', h.task_uuid, h.step_uuid::text
FROM tasker.human_steps h
LEFT JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
WHERE s.step_uuid IS NULL OR h.waiting <> (s.state = 'pending' AND s.decide_at IS NULL)
  AND (h.waiting OR NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = h.task_uuid AND d.resolution_status = 'permanently_failed'))
UNION ALL
SELECT 'answer link was used, and its step waits as before', l.task_uuid, l.step_uuid::text
FROM tasker.answer_links l
LEFT JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
WHERE s.step_uuid IS NULL OR l.used_at IS NOT NULL AND s.state = 'pending' AND s.fence = l.fence
UNION ALL
SELECT 'step has lost its checkpoint', s.task_uuid, s.step_uuid::text
FROM tasker.workflow_steps s
WHERE s.checkpointed AND NOT EXISTS (SELECT FROM tasker.step_checkpoints c WHERE (c.task_uuid, c.step_uuid) = (s.task_uuid, s.step_uuid))
UNION ALL
SELECT 'people are reminded of a step that waits for no answer', s.task_uuid, format('%s is %s', s.name, s.state)
FROM tasker.workflow_steps s
WHERE s.remind_at IS NOT NULL AND NOT (s.state = 'pending' AND s.step_type = 'external')
UNION ALL
SELECT 'task is not found by what it has', t.task_uuid, format('has %s, is found by %s', h.has, f.found_by)
FROM tasker.tasks t
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(w.word ORDER BY w.word COLLATE "C"), '{}') AS has
    FROM (
        SELECT DISTINCT 'tag=' || g.tag FROM unnest(t.tags) AS g (tag)
        UNION ALL SELECT 'correlation_id=' || t.correlation_id WHERE t.correlation_id NOT IN ('', t.task_uuid::text)
        UNION ALL SELECT 'initiator=' || t.initiator WHERE t.initiator <> ''
        UNION ALL SELECT 'source_system=' || t.source_system WHERE t.source_system <> ''
    ) w (word)
) h
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(a.name || '=' || a.text_value ORDER BY (a.name || '=' || a.text_value) COLLATE "C"), '{}') AS found_by
    FROM tasker.task_attributes a
    WHERE a.task_uuid = t.task_uuid AND a.namespace = t.namespace AND a.name IN ('tag', 'correlation_id', 'initiator', 'source_system')
) f
WHERE h.has::text[] COLLATE "C" <> f.found_by::text[] COLLATE "C"
UNION ALL
SELECT 'attribute of a task that does not exist', a.task_uuid, a.name
FROM tasker.task_attributes a
WHERE NOT EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = a.task_uuid AND t.namespace = a.namespace)
UNION ALL
SELECT 'attribute that the template of its task does not declare', a.task_uuid, a.name
FROM tasker.task_attributes a
JOIN tasker.tasks t ON t.task_uuid = a.task_uuid
JOIN tasker.task_templates tt ON tt.template_uuid = t.template_uuid
WHERE a.name NOT IN ('tag', 'correlation_id', 'initiator', 'source_system') AND NOT a.name = ANY (coalesce(tt.attributes, '{}'))
  AND NOT EXISTS (SELECT FROM tasker.workflow_steps s WHERE s.task_uuid = a.task_uuid AND s.attributes_at < 'infinity')
UNION ALL
SELECT 'instant of a schedule is in two firings', NULL, format('%s: until %s and from %s', g.schedule_uuid, g.last_until, g.nominal_at)
FROM (
    SELECT x.schedule_uuid, x.nominal_at, lag(x.nominal_until) OVER (PARTITION BY x.schedule_uuid ORDER BY x.nominal_at) AS last_until
    FROM tasker.schedule_firings x
    WHERE x.kind = 'clock'
) g
WHERE g.nominal_at <= g.last_until
UNION ALL
SELECT 'schedule has a firing that is still to come', NULL, format('%s: %s, next is %s', g.schedule_uuid, g.nominal_until, h.next_at)
FROM tasker.schedule_firings g
JOIN tasker.schedules h ON h.schedule_uuid = g.schedule_uuid
WHERE g.kind = 'clock' AND g.nominal_until >= h.next_at
UNION ALL
SELECT 'instant that was made up for has two tasks', NULL, format('%s: %s', g.schedule_uuid, g.nominal_at)
FROM tasker.schedule_firings g
JOIN tasker.schedule_firings b ON b.schedule_uuid = g.schedule_uuid AND b.kind = 'backfill' AND b.nominal_at BETWEEN g.nominal_at AND g.nominal_until
WHERE g.kind = 'clock' AND g.outcome = 'started'
UNION ALL
SELECT 'task and firing of a schedule differ', coalesce(t.task_uuid, g.task_uuid), format('%s and %s', t.schedule_uuid, g.schedule_uuid)
FROM tasker.schedule_firings g
FULL JOIN (SELECT * FROM tasker.tasks WHERE schedule_uuid IS NOT NULL) t ON t.task_uuid = g.task_uuid
WHERE g.task_uuid IS NOT NULL AND g.task_open AND t.schedule_uuid IS DISTINCT FROM g.schedule_uuid
   OR t.task_uuid IS NOT NULL AND g.task_uuid IS NULL AND EXISTS (SELECT FROM tasker.schedules h WHERE h.schedule_uuid = t.schedule_uuid AND t.created_at > now() - interval '30 days')
UNION ALL
SELECT 'schedule is not told that its task has ended', t.task_uuid, g.schedule_uuid::text
FROM tasker.schedule_firings g
JOIN tasker.tasks t ON t.task_uuid = g.task_uuid
WHERE g.task_open AND t.state IN ('complete', 'cancelled') AND NOT EXISTS (SELECT FROM tasker.schedule_signals s WHERE s.task_uuid = t.task_uuid)
UNION ALL
SELECT 'schedule has no way forward', h.awaits_task, h.schedule_uuid::text
FROM tasker.schedules h
WHERE h.deleted_at IS NULL AND h.paused_at IS NULL AND h.fire_at IS NULL
  AND (h.awaits_task IS NOT NULL AND NOT EXISTS (SELECT FROM tasker.schedule_firings g WHERE g.task_uuid = h.awaits_task AND g.task_open) OR h.next_at IS NOT NULL)
UNION ALL
SELECT 'instant waits for no task', NULL, g.schedule_uuid::text
FROM tasker.schedule_firings g
JOIN tasker.schedules h ON h.schedule_uuid = g.schedule_uuid
WHERE g.outcome = 'queued' AND (h.deleted_at IS NOT NULL OR h.paused_at IS NULL AND h.fire_at IS DISTINCT FROM least(h.fire_at, now())
  AND NOT EXISTS (SELECT FROM tasker.schedule_firings o WHERE o.schedule_uuid = g.schedule_uuid AND o.task_open))
UNION ALL
SELECT 'task that has ended is still to be begun by an instant', x.task_uuid, x.start_by::text
FROM tasker.task_starts x
LEFT JOIN tasker.tasks t USING (task_uuid)
WHERE t.task_uuid IS NULL OR t.state IN ('complete', 'cancelled') OR t.options ->> 'start_by' IS NULL
UNION ALL
SELECT 'unique key and open task differ', coalesce(t.task_uuid, x.task_uuid), format('%s and %s', x.unique_key, t.unique_key)
FROM tasker.unique_tasks x
FULL JOIN (
    SELECT c.task_uuid, c.namespace, c.name, c.options ->> 'unique_key' AS unique_key
    FROM tasker.tasks c
    WHERE c.options ->> 'unique_key' IS NOT NULL AND c.state NOT IN ('complete', 'cancelled')
      AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
) t ON t.task_uuid = x.task_uuid
WHERE (x.namespace, x.name, x.unique_key) IS DISTINCT FROM (t.namespace, t.name, t.unique_key)
UNION ALL
SELECT 'debounce key and pending task differ', coalesce(t.task_uuid, x.task_uuid), format('%s and %s', x.debounce_key, t.debounce_key)
FROM tasker.debounced_tasks x
FULL JOIN (
    SELECT c.task_uuid, c.namespace, c.name, c.options ->> 'debounce_key' AS debounce_key FROM tasker.tasks c WHERE c.options ->> 'debounce_key' IS NOT NULL AND c.state = 'pending'
) t ON t.task_uuid = x.task_uuid
WHERE (x.namespace, x.name, x.debounce_key) IS DISTINCT FROM (t.namespace, t.name, t.debounce_key)
UNION ALL
SELECT 'due time of a task that has ended is open', d.task_uuid, d.due_at::text
FROM tasker.deadlines d
LEFT JOIN tasker.tasks t USING (task_uuid)
WHERE t.task_uuid IS NULL OR t.options IS NULL OR t.state IN ('complete', 'cancelled') AND d.ended_at IS NULL OR d.ended_at IS NOT NULL AND d.look_at < 'infinity'
