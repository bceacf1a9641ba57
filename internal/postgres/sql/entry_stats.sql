-- name: selectEntryStats
SELECT dlq_reason::text AS reason, total_entries AS total, pending, manually_resolved, permanent_failures, cancelled,
    oldest_entry AS oldest, newest_entry AS newest, avg_resolution_time_minutes::float8
FROM tasker.v_dlq_dashboard
ORDER BY total DESC, reason;

-- name: countEntryStats
-- selectEntryStats for the namespaces $1. Ended investigations are counted from stored totals.
SELECT r.dlq_reason::text AS reason, sum(r.entries)::bigint AS total,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'pending'), 0)::bigint AS pending,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'manually_resolved'), 0)::bigint AS manually_resolved,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'permanently_failed'), 0)::bigint AS permanent_failures,
    coalesce(sum(r.entries) FILTER (WHERE r.resolution_status = 'cancelled'), 0)::bigint AS cancelled,
    min(r.oldest_entry) AS oldest, max(r.newest_entry) AS newest,
    (sum(r.open_seconds) / nullif(sum(r.entries) FILTER (WHERE r.resolution_status <> 'pending'), 0) / 60)::float8 AS avg_resolution_time_minutes
FROM (
    SELECT t.dlq_reason, t.resolution_status, t.entries, t.open_seconds, t.oldest_entry, t.newest_entry
    FROM tasker.dlq_totals t
    WHERE t.namespace = ANY ($1)
    UNION ALL
    SELECT d.dlq_reason, 'pending', count(*), 0, min(d.dlq_timestamp), max(d.dlq_timestamp)
    FROM tasker.tasks_dlq d
    WHERE d.namespace = ANY ($1) AND d.resolution_status = 'pending'
    GROUP BY d.dlq_reason
) r
GROUP BY r.dlq_reason
ORDER BY total DESC, reason;

-- name: selectEntryCounts
-- $1 start, $2 maximum number of rows to count, $3 width of an interval. The number of open
-- investigations in the past is computed backwards from the current number, in the same snapshot. Only
-- the newest rows are counted, by index-only scans, which limits the cost of a long period.
SELECT s.at AS "from", coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended, coalesce(e.proved, 0) AS proved,
    (n.pending - coalesce(sum(coalesce(o.n, 0) - coalesce(e.n, 0)) OVER (
        ORDER BY s.at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0))::bigint AS open
FROM generate_series($1::timestamptz, now(), $3::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($3, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (
        SELECT d.dlq_timestamp
        FROM tasker.tasks_dlq d
        WHERE d.dlq_timestamp >= $1
        ORDER BY d.dlq_timestamp DESC
        LIMIT $2
    ) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($3, d.ended_at, $1) AS at, count(*) AS n, count(*) FILTER (WHERE d.proved) AS proved
    FROM (
        SELECT x.ended_at,
            (x.acted_at <= x.ended_at AND (x.failed_again_at IS NULL OR x.failed_again_at < x.acted_at)
                AND x.resolution_status = 'manually_resolved') AS proved
        FROM tasker.case_members x
        WHERE x.ended_at >= $1
        ORDER BY x.ended_at DESC
        LIMIT $2
    ) d
    GROUP BY 1
) e ON e.at = s.at
CROSS JOIN (
    SELECT count(*) AS pending FROM tasker.case_members m WHERE m.ended_at IS NULL
) n
ORDER BY s.at;

-- name: selectEntryCountsOf
-- selectEntryCounts for the namespaces $4. Reads the newest rows of each by index.
SELECT s.at AS "from", coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended, coalesce(e.proved, 0) AS proved,
    (n.pending - coalesce(sum(coalesce(o.n, 0) - coalesce(e.n, 0)) OVER (
        ORDER BY s.at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0))::bigint AS open
FROM generate_series($1::timestamptz, now(), $3::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($3, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (
        SELECT q.dlq_timestamp
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT x.dlq_timestamp FROM tasker.tasks_dlq x
            WHERE x.namespace BETWEEN n.namespace AND n.namespace AND x.dlq_timestamp >= $1
            ORDER BY x.namespace, x.dlq_timestamp DESC
            LIMIT $2
        ) q
        ORDER BY q.dlq_timestamp DESC
        LIMIT $2
    ) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($3, d.ended_at, $1) AS at, count(*) AS n, count(*) FILTER (WHERE d.proved) AS proved
    FROM (
        SELECT x.ended_at,
            (x.acted_at <= x.ended_at AND (x.failed_again_at IS NULL OR x.failed_again_at < x.acted_at)
                AND x.resolution_status = 'manually_resolved') AS proved
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT * FROM tasker.case_members m
            WHERE (m.namespace, m.ended_at) >= (n.namespace, $1) AND m.namespace <= n.namespace AND m.ended_at IS NOT NULL
            ORDER BY m.namespace DESC, m.ended_at DESC
            LIMIT $2
        ) x
        ORDER BY x.ended_at DESC
        LIMIT $2
    ) d
    GROUP BY 1
) e ON e.at = s.at
CROSS JOIN (
    SELECT count(*) AS pending FROM tasker.case_members m WHERE m.namespace = ANY ($4) AND m.ended_at IS NULL
) n
ORDER BY s.at;

-- name: selectEntryTimes
-- Measures when people (all actors except $3) acted on the $2 newest investigations that ended since
-- $1, and on their cases. Each case counts once, with the medians of its investigations.
WITH ended AS MATERIALIZED (
    SELECT f.case_id, d.opened_at, d.ended_at AS resolved_at, d.proved,
        CASE WHEN d.acted_at BETWEEN d.opened_at AND d.ended_at THEN d.acted_at END AS acted_at,
        (
            SELECT min(h.changed_at) FROM tasker.tasks_dlq_history h
            WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND h.actor <> $3 AND h.event <> 'created'
        ) AS touched_at
    FROM (
        SELECT x.ended_at,
            (x.acted_at <= x.ended_at AND (x.failed_again_at IS NULL OR x.failed_again_at < x.acted_at)
                AND x.resolution_status = 'manually_resolved') AS proved, x.dlq_entry_uuid, x.fingerprint, x.opened_at,
            x.acted_at
        FROM tasker.case_members x
        WHERE x.ended_at >= $1
        ORDER BY x.ended_at DESC
        LIMIT $2
    ) d
    JOIN tasker.case_fingerprints f ON f.fingerprint = d.fingerprint
),
changes AS MATERIALIZED (
    SELECT c.case_id, h.changed_at, CASE WHEN h.actor = $3 THEN 'resolved' ELSE h.event END AS event,
        h.changed_at + CASE h.event WHEN 'owned' THEN (h.metadata ->> 'for')::interval END AS owned_until
    FROM (SELECT DISTINCT case_id FROM ended) c
    CROSS JOIN LATERAL (
        SELECT h.changed_at, h.actor, h.event, h.metadata FROM tasker.case_history h
        WHERE h.case_id = c.case_id
          AND (h.actor <> $3 OR h.event = 'state_changed' AND h.metadata ->> 'to' = 'resolved')
        ORDER BY h.history_id DESC
        LIMIT 200
    ) h
),
line AS (
    SELECT case_id, opened_at AS at, NULL AS event, NULL::timestamptz AS owned_until, resolved_at, acted_at, touched_at, proved
    FROM ended
    UNION ALL
    SELECT case_id, changed_at, event, owned_until, NULL, NULL, NULL, NULL FROM changes
),
placed AS ( -- had[2] is the end of the last ownership before the investigation
    SELECT case_id, event, at AS opened_at, resolved_at, acted_at, touched_at, proved,
        max(ARRAY[at, coalesce(owned_until, at)])
            FILTER (WHERE event IN ('owned', 'released', 'resolved')) OVER before AS had,
        min(at) FILTER (WHERE event <> 'resolved') OVER after AS changed_at,
        min(at) FILTER (WHERE event = 'owned') OVER after AS owned_at
    FROM line
    WINDOW before AS (PARTITION BY case_id ORDER BY at ROWS UNBOUNDED PRECEDING),
        after AS (PARTITION BY case_id ORDER BY at DESC ROWS UNBOUNDED PRECEDING)
),
owned AS (
    SELECT case_id, opened_at, resolved_at, acted_at, touched_at, proved, changed_at,
        CASE WHEN had[2] > opened_at THEN opened_at ELSE owned_at END AS owned_at
    FROM placed
    WHERE event IS NULL
),
lengths AS (
    SELECT o.case_id, p.phase, extract(epoch FROM p.ended_at - p.began_at) AS seconds
    FROM owned o
    CROSS JOIN LATERAL (VALUES
        ('acknowledge', o.opened_at, least(o.touched_at, o.changed_at, o.owned_at)),
        ('own', o.opened_at, o.owned_at),
        ('repair', o.opened_at, o.acted_at),
        ('prove', o.acted_at, CASE WHEN o.proved THEN o.resolved_at END),
        ('resolve', o.opened_at, o.resolved_at)
    ) AS p (phase, began_at, ended_at)
    WHERE p.ended_at BETWEEN p.began_at AND o.resolved_at
),
of_cases AS (
    SELECT case_id, phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds
    FROM lengths
    GROUP BY case_id, phase
)
SELECT phase, count(*) AS cases, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95, (SELECT count(*) FROM ended) AS entries
FROM of_cases
GROUP BY phase;

-- name: selectEntryTimesOf
-- selectEntryTimes for the namespaces $4.
WITH ended AS MATERIALIZED (
    SELECT f.case_id, d.opened_at, d.ended_at AS resolved_at, d.proved,
        CASE WHEN d.acted_at BETWEEN d.opened_at AND d.ended_at THEN d.acted_at END AS acted_at,
        (
            SELECT min(h.changed_at) FROM tasker.tasks_dlq_history h
            WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND h.actor <> $3 AND h.event <> 'created'
        ) AS touched_at
    FROM (
        SELECT x.ended_at,
            (x.acted_at <= x.ended_at AND (x.failed_again_at IS NULL OR x.failed_again_at < x.acted_at)
                AND x.resolution_status = 'manually_resolved') AS proved, x.dlq_entry_uuid, x.fingerprint, x.opened_at,
            x.acted_at
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT * FROM tasker.case_members m
            WHERE (m.namespace, m.ended_at) >= (n.namespace, $1) AND m.namespace <= n.namespace AND m.ended_at IS NOT NULL
            ORDER BY m.namespace DESC, m.ended_at DESC
            LIMIT $2
        ) x
        ORDER BY x.ended_at DESC
        LIMIT $2
    ) d
    JOIN tasker.case_fingerprints f ON f.fingerprint = d.fingerprint
),
changes AS MATERIALIZED (
    SELECT c.case_id, h.changed_at, CASE WHEN h.actor = $3 THEN 'resolved' ELSE h.event END AS event,
        h.changed_at + CASE h.event WHEN 'owned' THEN (h.metadata ->> 'for')::interval END AS owned_until
    FROM (SELECT DISTINCT case_id FROM ended) c
    CROSS JOIN LATERAL (
        SELECT h.changed_at, h.actor, h.event, h.metadata FROM tasker.case_history h
        WHERE h.case_id = c.case_id
          AND (h.actor <> $3 OR h.event = 'state_changed' AND h.metadata ->> 'to' = 'resolved')
        ORDER BY h.history_id DESC
        LIMIT 200
    ) h
),
line AS (
    SELECT case_id, opened_at AS at, NULL AS event, NULL::timestamptz AS owned_until, resolved_at, acted_at, touched_at, proved
    FROM ended
    UNION ALL
    SELECT case_id, changed_at, event, owned_until, NULL, NULL, NULL, NULL FROM changes
),
placed AS ( -- had[2] is the end of the last ownership before the investigation
    SELECT case_id, event, at AS opened_at, resolved_at, acted_at, touched_at, proved,
        max(ARRAY[at, coalesce(owned_until, at)])
            FILTER (WHERE event IN ('owned', 'released', 'resolved')) OVER before AS had,
        min(at) FILTER (WHERE event <> 'resolved') OVER after AS changed_at,
        min(at) FILTER (WHERE event = 'owned') OVER after AS owned_at
    FROM line
    WINDOW before AS (PARTITION BY case_id ORDER BY at ROWS UNBOUNDED PRECEDING),
        after AS (PARTITION BY case_id ORDER BY at DESC ROWS UNBOUNDED PRECEDING)
),
owned AS (
    SELECT case_id, opened_at, resolved_at, acted_at, touched_at, proved, changed_at,
        CASE WHEN had[2] > opened_at THEN opened_at ELSE owned_at END AS owned_at
    FROM placed
    WHERE event IS NULL
),
lengths AS (
    SELECT o.case_id, p.phase, extract(epoch FROM p.ended_at - p.began_at) AS seconds
    FROM owned o
    CROSS JOIN LATERAL (VALUES
        ('acknowledge', o.opened_at, least(o.touched_at, o.changed_at, o.owned_at)),
        ('own', o.opened_at, o.owned_at),
        ('repair', o.opened_at, o.acted_at),
        ('prove', o.acted_at, CASE WHEN o.proved THEN o.resolved_at END),
        ('resolve', o.opened_at, o.resolved_at)
    ) AS p (phase, began_at, ended_at)
    WHERE p.ended_at BETWEEN p.began_at AND o.resolved_at
),
of_cases AS (
    SELECT case_id, phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds
    FROM lengths
    GROUP BY case_id, phase
)
SELECT phase, count(*) AS cases, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95, (SELECT count(*) FROM ended) AS entries
FROM of_cases
GROUP BY phase;

-- name: countOpenEntries
SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'), (
    WITH RECURSIVE names AS (
        (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
        UNION ALL
        SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > n.namespace ORDER BY t.namespace LIMIT 1)
        FROM names n
        WHERE n.namespace IS NOT NULL
    )
    SELECT array(SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT $1)
);

-- name: namespacesWithTemplates
-- Reads one index entry per namespace.
WITH RECURSIVE names AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > n.namespace ORDER BY t.namespace LIMIT 1)
    FROM names n
    WHERE n.namespace IS NOT NULL
)
SELECT array(SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT $1);

-- name: namespacesWithTemplatesOf
-- namespacesWithTemplates among the namespaces $2.
SELECT array(
    SELECT n.namespace FROM unnest($2::text[]) AS n (namespace)
    WHERE EXISTS (SELECT FROM tasker.task_templates t WHERE t.namespace = n.namespace)
    ORDER BY n.namespace
    LIMIT $1
);
