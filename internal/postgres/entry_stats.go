package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const selectEntryStats = `
SELECT dlq_reason::text AS reason, total_entries AS total, pending, manually_resolved, permanent_failures, cancelled,
    oldest_entry AS oldest, newest_entry AS newest, avg_resolution_time_minutes::float8
FROM tasker.v_dlq_dashboard
ORDER BY total DESC, reason`

// Totals are kept for all namespaces together, so for some they are counted.
const countEntryStats = `
SELECT d.dlq_reason::text AS reason, count(*) AS total,
    count(*) FILTER (WHERE d.resolution_status = 'pending') AS pending,
    count(*) FILTER (WHERE d.resolution_status = 'manually_resolved') AS manually_resolved,
    count(*) FILTER (WHERE d.resolution_status = 'permanently_failed') AS permanent_failures,
    count(*) FILTER (WHERE d.resolution_status = 'cancelled') AS cancelled,
    min(d.dlq_timestamp) AS oldest, max(d.dlq_timestamp) AS newest,
    (avg(extract(epoch FROM d.resolved_at - d.dlq_timestamp)) / 60)::float8 AS avg_resolution_time_minutes
FROM tasker.tasks_dlq d
WHERE d.namespace = ANY ($1)
GROUP BY d.dlq_reason
ORDER BY total DESC, reason`

// EntryStats counts the investigations of each reason that has any.
func (db *DB) EntryStats(ctx context.Context) (list []tasker.EntryStats, err error) {
	if scope := access.ScopeOf(ctx); scope.All() {
		list, err = collect[tasker.EntryStats](ctx, db.pool, selectEntryStats)
	} else {
		list, err = collect[tasker.EntryStats](ctx, db.pool, countEntryStats, scope.List())
	}
	if err != nil {
		return nil, fmt.Errorf("count investigations: %w", err)
	}
	return list, nil
}

// The newest are counted, up to a limit: a month of a bad year is no reason to read
// for seconds. Each of the two reads an index from its end.
const selectEntryCounts = `
SELECT s.at AS "from", coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended
FROM generate_series($1::timestamptz, now(), $2::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($2, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (
        SELECT dlq_timestamp FROM tasker.tasks_dlq
        WHERE dlq_timestamp >= $1
        ORDER BY dlq_timestamp DESC LIMIT $3
    ) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($2, d.resolved_at, $1) AS at, count(*) AS n
    FROM (
        SELECT resolved_at FROM tasker.tasks_dlq
        WHERE resolution_status <> 'pending' AND resolved_at >= $1
        ORDER BY resolved_at DESC LIMIT $3
    ) d
    GROUP BY 1
) e ON e.at = s.at
ORDER BY s.at`

// The same of some namespaces: the newest of each, and of those the newest.
const selectEntryCountsOf = `
SELECT s.at AS "from", coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended
FROM generate_series($1::timestamptz, now(), $2::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($2, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (
        SELECT q.dlq_timestamp
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT x.dlq_timestamp FROM tasker.tasks_dlq x
            WHERE x.namespace BETWEEN n.namespace AND n.namespace AND x.dlq_timestamp >= $1
            ORDER BY x.namespace, x.dlq_timestamp DESC LIMIT $3
        ) q
        ORDER BY q.dlq_timestamp DESC LIMIT $3
    ) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($2, d.resolved_at, $1) AS at, count(*) AS n
    FROM (
        SELECT q.resolved_at
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT x.resolved_at FROM tasker.tasks_dlq x
            WHERE (x.namespace, x.resolved_at) >= (n.namespace, $1) AND x.namespace <= n.namespace
              AND x.resolution_status <> 'pending' AND x.namespace > ''
            ORDER BY x.namespace DESC, x.resolved_at DESC LIMIT $3
        ) q
        ORDER BY q.resolved_at DESC LIMIT $3
    ) d
    GROUP BY 1
) e ON e.at = s.at
ORDER BY s.at`

// EntryCounts counts the investigations that were opened and that ended since an
// instant, in stretches of one width; of each the newest MaxEntryCount.
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	sql, args := selectEntryCounts, []any{since, width, tasker.MaxEntryCount}
	if scope := access.ScopeOf(ctx); !scope.All() {
		sql, args = selectEntryCountsOf, append(args, scope.List())
	}
	list, err := collect[tasker.EntryCount](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	return list, nil
}

// namespacesWithTemplates are found by jumping from one to the next in the index of
// templates, so that what this costs grows with them and not with their templates.
const namespacesWithTemplates = `
WITH RECURSIVE names AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > n.namespace ORDER BY t.namespace LIMIT 1)
    FROM names n
    WHERE n.namespace IS NOT NULL
)
SELECT array(SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT $1)`

// OpenEntries counts the open investigations, and lists the namespaces of the
// templates, as [DB.Namespaces] does.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	err = db.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'), (`+namespacesWithTemplates+`)`,
		listedNamespaces).Scan(&pending, &namespaces)
	if err != nil {
		return 0, nil, fmt.Errorf("count open investigations: %w", err)
	}
	return pending, namespaces, nil
}

// listedNamespaces bounds a list of them.
const listedNamespaces = 1000

// Namespaces lists the namespaces of the templates, up to 1000.
func (db *DB) Namespaces(ctx context.Context) (names []string, err error) {
	sql, args := namespacesWithTemplates, []any{listedNamespaces}
	if scope := access.ScopeOf(ctx); !scope.All() {
		sql = `SELECT array(
			SELECT n.namespace FROM unnest($2::text[]) AS n (namespace)
			WHERE EXISTS (SELECT FROM tasker.task_templates t WHERE t.namespace = n.namespace)
			ORDER BY n.namespace LIMIT $1)`
		args = append(args, scope.List())
	}
	if err := db.pool.QueryRow(ctx, sql, args...).Scan(&names); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return names, nil
}
