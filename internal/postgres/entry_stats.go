package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
)

const selectEntryStats = `
SELECT dlq_reason::text AS reason, total_entries AS total, pending, manually_resolved, permanent_failures, cancelled,
    oldest_entry AS oldest, newest_entry AS newest, avg_resolution_time_minutes::float8
FROM tasker.v_dlq_dashboard
ORDER BY total DESC, reason`

// EntryStats counts the investigations of each reason that has any.
func (db *DB) EntryStats(ctx context.Context) ([]tasker.EntryStats, error) {
	list, err := collect[tasker.EntryStats](ctx, db.pool, selectEntryStats)
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
    FROM (SELECT dlq_timestamp FROM tasker.tasks_dlq WHERE dlq_timestamp >= $1 ORDER BY dlq_timestamp DESC LIMIT $3) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($2, d.resolved_at, $1) AS at, count(*) AS n
    FROM (
        SELECT resolved_at FROM tasker.tasks_dlq WHERE resolution_status <> 'pending' AND resolved_at >= $1 ORDER BY resolved_at DESC LIMIT $3
    ) d
    GROUP BY 1
) e ON e.at = s.at
ORDER BY s.at`

// EntryCounts counts the investigations that were opened and that ended since an
// instant, in stretches of one width; of each the newest MaxEntryCount.
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	list, err := collect[tasker.EntryCount](ctx, db.pool, selectEntryCounts, since, width, tasker.MaxEntryCount)
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	return list, nil
}

// OpenEntries counts the open investigations, and lists the namespaces of the
// templates.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	err = db.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'),
			array(SELECT DISTINCT namespace FROM tasker.task_templates ORDER BY namespace)`).Scan(&pending, &namespaces)
	if err != nil {
		return 0, nil, fmt.Errorf("count open investigations: %w", err)
	}
	return pending, namespaces, nil
}
