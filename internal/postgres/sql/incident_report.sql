-- name: readReport
-- $1 kind: case, incident or range; $2 id of the case or incident; $3, $4 when the investigations were
-- opened; $5 namespaces of a range, NULL for all; $6 namespaces that the caller may see, NULL for all.
--
-- An investigation has five times, s <= d <= o <= r <= v: the task was stuck, the investigation was
-- opened, it was owned, the last action was performed, and it was verified or ended. The durations of
-- the four phases add up to v - s. An investigation is verified when the step of the last action
-- completes, unless a step has failed permanently later. An action is the act of a person on a step or
-- a task.
--
-- The rows of each investigation are read by key, because the planner cannot estimate the size of a
-- join.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
picked AS (
    SELECT m.dlq_entry_uuid
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT o.dlq_entry_uuid, o.opened_at FROM tasker.case_members o
        WHERE o.namespace = c.namespace AND o.fingerprint = f.fingerprint AND o.ended_at IS NULL
        UNION ALL
        SELECT o.dlq_entry_uuid, o.opened_at FROM tasker.case_members o
        WHERE o.fingerprint = f.fingerprint AND o.ended_at IS NOT NULL
    ) m
    WHERE $1 = 'case' AND f.case_id = $2 AND m.opened_at >= $3 AND m.opened_at < $4
    UNION ALL
    SELECT m.dlq_entry_uuid
    FROM tasker.incidents i
    CROSS JOIN LATERAL ( -- including cases of the incident that were merged into another one later
        SELECT f.fingerprint
        FROM tasker.incident_cases j
        JOIN tasker.case_fingerprints f ON f.case_id = j.case_id
        WHERE j.incident_id = i.incident_id
        UNION
        SELECT f.fingerprint
        FROM tasker.incident_cases j
        JOIN tasker.case_fingerprints f ON f.home_case_id = j.case_id
        WHERE j.incident_id = i.incident_id
    ) f
    CROSS JOIN LATERAL (
        SELECT o.dlq_entry_uuid, o.opened_at FROM tasker.case_members o
        WHERE o.namespace = i.namespace AND o.fingerprint = f.fingerprint AND o.ended_at IS NULL
        UNION ALL
        SELECT o.dlq_entry_uuid, o.opened_at FROM tasker.case_members o
        WHERE o.fingerprint = f.fingerprint AND o.ended_at >= i.began_at
    ) m
    WHERE $1 = 'incident' AND i.incident_id = $2 AND m.opened_at <= coalesce(i.ended_at, 'infinity')
      AND m.opened_at >= $3 AND m.opened_at < $4
    UNION ALL
    SELECT d.dlq_entry_uuid
    FROM unnest($5::text[]) AS n (namespace)
    JOIN tasker.tasks_dlq d ON d.namespace = n.namespace AND d.dlq_timestamp >= $3 AND d.dlq_timestamp < $4
    WHERE $1 = 'range'
    UNION ALL
    SELECT d.dlq_entry_uuid
    FROM tasker.tasks_dlq d
    WHERE $1 = 'range' AND $5 IS NULL AND d.dlq_timestamp >= $3 AND d.dlq_timestamp < $4
),
selected AS MATERIALIZED (SELECT dlq_entry_uuid FROM picked LIMIT 1 + 100000 /* MaxReportEntries */),
act AS MATERIALIZED (
    SELECT h.dlq_entry_uuid, h.history_id, h.event, h.actor, h.changed_at,
        (h.metadata ->> 'operation_uuid')::uuid AS operation_uuid, (h.metadata ->> 'step_uuid')::uuid AS step_uuid
    FROM selected x
    JOIN tasker.tasks_dlq_history h ON h.dlq_entry_uuid = x.dlq_entry_uuid
    WHERE h.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')
),
member AS MATERIALIZED (
    SELECT m.dlq_entry_uuid, m.namespace, m.task_name, m.step_name, f.case_id, d.task_uuid, m.opened_at, d.resolved_at,
        coalesce(d.resolved_by, '') AS resolved_by, d.resolution_status::text AS status, a.first_at, a.last_at,
        least(m.opened_at, CASE
            WHEN d.dlq_reason = 'worker_unavailable' THEN coalesce((
                SELECT max(t.created_at) FROM tasker.workflow_step_transitions t
                WHERE t.task_uuid = d.task_uuid AND t.step_uuid = d.step_uuid AND t.to_state = 'enqueued'
                  AND t.created_at <= m.opened_at
            ), m.opened_at)
            WHEN d.detected_by = 'sweep' THEN m.opened_at - coalesce(d.time_in_state_minutes, 0) * interval '1 minute'
            ELSE m.opened_at
        END) AS s,
        CASE
            WHEN s.state IN ('complete', 'resolved_manually', 'skipped')
                AND (m.failed_again_at IS NULL OR m.failed_again_at < a.last_at) THEN 'proved'
            WHEN m.recovered_at IS NOT NULL THEN 'recovered'
            WHEN a.event = 'task_cancelled' THEN 'cancelled'
            WHEN d.resolution_status = 'permanently_failed' THEN 'written_off'
            WHEN d.resolved_at IS NOT NULL THEN 'unproved'
            ELSE 'open'
        END AS outcome,
        coalesce(s.completed_at, s.state_since) AS proved_at, m.recovered_at,
        m.acted_at > coalesce(m.failed_again_at, '-infinity') AS proving
    FROM selected x
    JOIN tasker.case_members m ON m.dlq_entry_uuid = x.dlq_entry_uuid
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = x.dlq_entry_uuid
    LEFT JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
    CROSS JOIN LATERAL (
        SELECT min(h.changed_at) AS first_at, max(h.changed_at) AS last_at,
            (array_agg(h.event ORDER BY h.history_id DESC))[1] AS event,
            (array_agg(h.metadata ->> 'step_uuid' ORDER BY h.history_id DESC))[1]::uuid AS step_uuid
        FROM tasker.tasks_dlq_history h
        WHERE h.dlq_entry_uuid = x.dlq_entry_uuid AND h.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')
    ) a
    LEFT JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = a.step_uuid
),
owned AS MATERIALIZED (
    SELECT w.case_id, w.changed_at AS since, least(w.changed_at + (w.metadata ->> 'for')::interval, w.next_at) AS until
    FROM (
        SELECT h.case_id, h.event, h.changed_at, h.metadata,
            lead(h.changed_at) OVER (PARTITION BY h.case_id ORDER BY h.history_id) AS next_at
        FROM tasker.case_history h
        WHERE h.case_id IN (SELECT case_id FROM member) AND h.event IN ('owned', 'released')
    ) w
    WHERE w.event = 'owned'
),
ended AS MATERIALIZED (
    SELECT m.*, greatest(m.opened_at, CASE m.outcome
        WHEN 'proved' THEN m.proved_at
        WHEN 'recovered' THEN m.recovered_at
        WHEN 'cancelled' THEN m.last_at
        WHEN 'open' THEN clock.at
        ELSE m.resolved_at
    END) AS v
    FROM member m
    CROSS JOIN clock
),
first_owned AS MATERIALIZED (
    SELECT e.*, least(e.v, e.first_at, (
        SELECT min(greatest(w.since, e.opened_at)) FROM owned w WHERE w.case_id = e.case_id AND w.until > e.opened_at
    )) AS o
    FROM ended e
),
instants AS MATERIALIZED (
    SELECT t.*, CASE WHEN t.outcome = 'proved' OR t.outcome = 'open' AND t.proving THEN greatest(t.o, coalesce(
        CASE WHEN t.first_at < t.last_at AND t.last_at > t.v THEN (
            SELECT max(h.changed_at) FROM tasker.tasks_dlq_history h
            WHERE h.dlq_entry_uuid = t.dlq_entry_uuid AND h.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')
              AND h.changed_at <= t.v
        ) END,
        least(t.last_at, t.v)
    )) ELSE t.v END AS r
    FROM first_owned t
),
phase AS MATERIALIZED (
    SELECT i.*, extract(epoch FROM i.opened_at - i.s) AS undetected, extract(epoch FROM i.o - i.opened_at) AS unowned,
        extract(epoch FROM i.r - i.o) AS in_repair, extract(epoch FROM i.v - i.r) AS proving_s,
        extract(epoch FROM i.v - i.s) AS stuck
    FROM instants i
),
of_case AS MATERIALIZED (
    SELECT p.case_id, min(p.namespace) AS namespace, min(p.task_name) AS task_name, min(p.step_name) AS step_name,
        count(*) AS entries, count(*) FILTER (WHERE p.outcome = 'proved') AS proved,
        count(*) FILTER (WHERE p.outcome = 'open') AS open, sum(p.stuck) AS stuck
    FROM phase p
    GROUP BY p.case_id
    ORDER BY sum(p.stuck) DESC, p.case_id
    LIMIT 100 /* MaxReportCases */
),
notified AS MATERIALIZED (
    SELECT m.created_at, m.position, m.topic, array(
        SELECT e.sink FROM tasker.message_emissions e
        WHERE e.position = m.position AND e.state = 'published'
        ORDER BY e.sink
    ) AS sinks
    FROM tasker.messages m
    WHERE m.incident_id IN (
        SELECT $2::uuid WHERE $1 = 'incident'
        UNION ALL
        SELECT j.incident_id
        FROM tasker.incident_cases j
        JOIN tasker.incidents i ON i.incident_id = j.incident_id
        WHERE $1 <> 'incident' AND j.case_id IN (SELECT case_id FROM of_case)
          AND i.began_at <= (SELECT max(v) FROM phase)
          AND coalesce(i.ended_at, 'infinity') >= (SELECT min(opened_at) FROM phase)
    )
    ORDER BY m.position
    LIMIT 200 /* MaxIncidentMessages */
),
operation AS MATERIALIZED (
    SELECT o.*
    FROM tasker.operations o
    WHERE o.operation_uuid IN (SELECT operation_uuid FROM act) AND ($6::text[] IS NULL OR o.namespaces <@ $6)
    ORDER BY o.started_at, o.operation_uuid
    LIMIT 100
),
timeline AS (
    SELECT min(p.s) AS at, 0 AS place, 'stuck' AS event, '' AS actor, NULL::uuid AS case_id, 'the first task' AS detail
    FROM phase p
    HAVING count(*) > 0
    UNION ALL
    SELECT min(p.opened_at), 1, 'noticed', '', NULL, 'the first investigation'
    FROM phase p
    HAVING count(*) > 0
    UNION ALL
    SELECT max(p.opened_at), 2, 'noticed', '', NULL, concat('the last of ', count(*), ' investigations')
    FROM phase p
    HAVING count(*) > 1
    UNION ALL
    SELECT max(p.v), 9, 'proved', '', NULL, format('the last of %s', count(*))
    FROM phase p
    WHERE p.outcome = 'proved'
    HAVING count(*) > 0
    UNION ALL
    SELECT h.changed_at, 3, 'case ' || h.event, h.actor, h.case_id, CASE h.event
        WHEN 'state_changed' THEN concat(h.metadata ->> 'from', ' to ', h.metadata ->> 'to')
        WHEN 'owned' THEN h.metadata ->> 'owner'
        ELSE ''
    END
    FROM of_case c
    JOIN tasker.case_history h ON h.case_id = c.case_id
    WHERE h.changed_at BETWEEN (SELECT min(s) FROM phase) AND (SELECT max(v) + interval '1 minute' FROM phase)
    UNION ALL
    SELECT t.at, 4, 'operation ' || t.event, t.actor, NULL, format('%s, %s items', o.operation_uuid, o.items)
    FROM operation o
    CROSS JOIN LATERAL (VALUES
        (o.started_at, 'started', coalesce(o.started_by, '')),
        (o.paused_at, 'paused', coalesce(o.paused_by, '')),
        (o.settled_at, 'settled', '')
    ) AS t (at, event, actor)
    WHERE t.at IS NOT NULL
    UNION ALL
    SELECT min(a.changed_at), 5, a.event, a.actor, NULL, concat('investigations: ', count(*))
    FROM act a
    WHERE a.operation_uuid IS NULL OR a.operation_uuid NOT IN (SELECT operation_uuid FROM operation)
    GROUP BY a.event, a.actor
    UNION ALL
    SELECT t.created_at, 6, 'message', '', NULL, concat_ws(' to ', t.topic, nullif(array_to_string(t.sinks, ', '), ''))
    FROM notified t
)
SELECT json_build_object(
    'as_of', coalesce(CASE WHEN NOT bool_or(outcome = 'open') THEN max(v) END, min(clock.at)),
    'began_at', min(s),
    'counts', json_build_object(
        'investigations', count(dlq_entry_uuid),
        'proved', count(*) FILTER (WHERE outcome = 'proved'),
        'recovered', count(*) FILTER (WHERE outcome = 'recovered'),
        'cancelled', count(*) FILTER (WHERE outcome = 'cancelled'),
        'written_off', count(*) FILTER (WHERE outcome = 'written_off'),
        'unproved', count(*) FILTER (WHERE outcome = 'unproved'),
        'open', count(*) FILTER (WHERE outcome = 'open'),
        'cases', count(DISTINCT case_id)
    ),
    'stuck_task_minutes', coalesce(sum(stuck) / 60, 0),
    'phases', json_build_object(
        'undetected', json_build_object(
            'task_minutes', coalesce(sum(undetected) / 60, 0),
            'p50_seconds', coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY undetected), 0),
            'p95_seconds', coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY undetected), 0)
        ),
        'unowned', json_build_object(
            'task_minutes', coalesce(sum(unowned) / 60, 0),
            'p50_seconds', coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY unowned), 0),
            'p95_seconds', coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY unowned), 0)
        ),
        'in_repair', json_build_object(
            'task_minutes', coalesce(sum(in_repair) / 60, 0),
            'p50_seconds', coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY in_repair), 0),
            'p95_seconds', coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY in_repair), 0)
        ),
        'proving', json_build_object(
            'task_minutes', coalesce(sum(proving_s) / 60, 0),
            'p50_seconds', coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY proving_s), 0),
            'p95_seconds', coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY proving_s), 0)
        )
    ),
    'cases', (
        SELECT coalesce(json_agg(json_build_object(
            'case_id', c.case_id, 'namespace', c.namespace,
            'place', concat_ws(' > ', c.task_name, nullif(c.step_name, '')), 'cause', coalesce(k.error_pattern, ''),
            'investigations', c.entries, 'proved', c.proved, 'open', c.open, 'stuck_task_minutes', c.stuck / 60
        ) ORDER BY c.stuck DESC, c.case_id), '[]')
        FROM of_case c
        LEFT JOIN tasker.cases k ON k.case_id = c.case_id
    ),
    'acts', (
        SELECT coalesce(json_agg(a ORDER BY a.first_at, a.event, a.actor), '[]')
        FROM (
            SELECT event, actor, operation_uuid, count(DISTINCT dlq_entry_uuid) AS investigations,
                min(changed_at) AS first_at, max(changed_at) AS last_at
            FROM act
            GROUP BY event, actor, operation_uuid
            ORDER BY min(changed_at)
            LIMIT 200
        ) a
    ),
    'operations', (
        SELECT coalesce(json_agg(json_build_object(
            'operation_uuid', o.operation_uuid, 'act', o.act, 'state', o.state, 'started_by', coalesce(o.started_by, ''),
            'reason', tasker.redact_note(o.reason), 'started_at', o.started_at, 'settled_at', o.settled_at,
            'items', o.items, 'counts', n.counts, 'waves', coalesce(n.waves, '[]')
        ) ORDER BY o.started_at, o.operation_uuid), '[]')
        FROM operation o
        CROSS JOIN LATERAL (
            SELECT (
                SELECT json_object_agg(s.state, s.n)
                FROM (
                    SELECT i.state, count(*) AS n
                    FROM tasker.operation_items i
                    WHERE i.operation_uuid = o.operation_uuid
                    GROUP BY i.state
                ) s
            ) AS counts, (
                SELECT json_agg(w ORDER BY w.wave)
                FROM (
                    SELECT i.wave + 1 AS wave, count(*) AS items, count(*) FILTER (WHERE i.state = 'verified') AS verified,
                        count(*) FILTER (WHERE i.state = 'failed_again') AS failed_again, min(i.released_at) AS released_at,
                        CASE WHEN count(*) = count(i.ended_at) THEN max(i.ended_at) END AS ended_at
                    FROM tasker.operation_items i
                    WHERE i.operation_uuid = o.operation_uuid AND i.wave IS NOT NULL AND i.released_at IS NOT NULL
                    GROUP BY i.wave
                ) w
            ) AS waves
        ) n
    ),
    'messages', (
        SELECT coalesce(json_agg(json_build_object('at', t.created_at, 'topic', t.topic, 'sinks', t.sinks)
            ORDER BY t.position), '[]')
        FROM notified t
    ),
    'never_proved', (
        SELECT coalesce(json_agg(json_build_object(
            'dlq_entry_uuid', e.dlq_entry_uuid, 'task_uuid', e.task_uuid, 'dlq_timestamp', e.opened_at,
            'resolved_at', e.resolved_at, 'resolved_by', e.resolved_by, 'resolution_status', e.status
        ) ORDER BY e.opened_at, e.dlq_entry_uuid), '[]')
        FROM (
            SELECT * FROM phase p
            WHERE p.outcome IN ('unproved', 'written_off')
            ORDER BY p.opened_at, p.dlq_entry_uuid
            LIMIT 20 /* MaxReportMembers */
        ) e
    ),
    'still_open', (
        SELECT coalesce(json_agg(json_build_object(
            'dlq_entry_uuid', e.dlq_entry_uuid, 'task_uuid', e.task_uuid, 'dlq_timestamp', e.opened_at,
            'resolved_at', e.resolved_at, 'resolved_by', e.resolved_by, 'resolution_status', e.status
        ) ORDER BY e.opened_at, e.dlq_entry_uuid), '[]')
        FROM (
            SELECT * FROM phase p
            WHERE p.outcome IN ('open')
            ORDER BY p.opened_at, p.dlq_entry_uuid
            LIMIT 20 /* MaxReportMembers */
        ) e
    ),
    'timeline', (
        SELECT coalesce(json_agg(json_build_object(
            'at', e.at, 'event', e.event, 'actor', e.actor, 'case_id', e.case_id, 'detail', coalesce(e.detail, '')
        ) ORDER BY e.at, e.place, e.detail), '[]')
        FROM (SELECT * FROM timeline ORDER BY at, place, detail LIMIT 500 /* MaxReportEvents */) e
    )
)
FROM clock
LEFT JOIN phase ON true;
