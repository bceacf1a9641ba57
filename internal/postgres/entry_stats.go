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
        WHERE dlq_timestamp >= $1 AND ($4::text[] IS NULL OR namespace = ANY ($4))
        ORDER BY dlq_timestamp DESC LIMIT $3
    ) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($2, d.resolved_at, $1) AS at, count(*) AS n
    FROM (
        SELECT resolved_at FROM tasker.tasks_dlq
        WHERE resolution_status <> 'pending' AND resolved_at >= $1 AND ($4::text[] IS NULL OR namespace = ANY ($4))
        ORDER BY resolved_at DESC LIMIT $3
    ) d
    GROUP BY 1
) e ON e.at = s.at
ORDER BY s.at`

// EntryCounts counts the investigations that were opened and that ended since an
// instant, in stretches of one width; of each the newest MaxEntryCount.
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	list, err := collect[tasker.EntryCount](ctx, db.pool, selectEntryCounts, since, width, tasker.MaxEntryCount, access.ScopeOf(ctx).List())
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	return list, nil
}

// OpenEntries counts the open investigations, and lists the namespaces of the
// templates.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	err = db.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending' AND ($1::text[] IS NULL OR namespace = ANY ($1))),
			array(SELECT DISTINCT namespace FROM tasker.task_templates WHERE $1::text[] IS NULL OR namespace = ANY ($1) ORDER BY namespace)`,
		access.ScopeOf(ctx).List()).Scan(&pending, &namespaces)
	if err != nil {
		return 0, nil, fmt.Errorf("count open investigations: %w", err)
	}
	return pending, namespaces, nil
}
