package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// EntryStats counts investigations by reason.
func (db *DB) EntryStats(ctx context.Context) (list []tasker.EntryStats, err error) {
	if scope := access.ScopeFromContext(ctx); scope.IncludesAll() {
		list, err = collect[tasker.EntryStats](ctx, db.pool, statement("selectEntryStats"))
	} else {
		list, err = collect[tasker.EntryStats](ctx, db.pool, statement("countEntryStats"), scope.List())
	}
	return list, wrapError(err, "count investigations")
}

// Only the $2 newest rows are counted, which limits the cost of a long period. Both use index-only
// scans.
const (
	newestOpened = `
        SELECT d.dlq_timestamp
        FROM tasker.tasks_dlq d
        WHERE d.dlq_timestamp >= $1
        ORDER BY d.dlq_timestamp DESC LIMIT $2`
	newestEnded = `
        FROM tasker.case_members x
        WHERE x.ended_at >= $1
        ORDER BY x.ended_at DESC LIMIT $2`
	countPending = `SELECT count(*) FROM tasker.case_members m WHERE m.ended_at IS NULL`
)

// The same for the namespaces in $4. Each reads the newest rows of a namespace by index.
const (
	newestOpenedOf = `
        SELECT q.dlq_timestamp
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT x.dlq_timestamp FROM tasker.tasks_dlq x
            WHERE x.namespace BETWEEN n.namespace AND n.namespace AND x.dlq_timestamp >= $1
            ORDER BY x.namespace, x.dlq_timestamp DESC LIMIT $2
        ) q
        ORDER BY q.dlq_timestamp DESC LIMIT $2`
	newestEndedOf = `
        FROM unnest($4::text[]) AS n (namespace)
        CROSS JOIN LATERAL (
            SELECT * FROM tasker.case_members m
            WHERE (m.namespace, m.ended_at) >= (n.namespace, $1) AND m.namespace <= n.namespace AND m.ended_at IS NOT NULL
            ORDER BY m.namespace DESC, m.ended_at DESC LIMIT $2
        ) x
        ORDER BY x.ended_at DESC LIMIT $2`
	countPendingOf = `SELECT count(*) FROM tasker.case_members m WHERE m.namespace = ANY ($4) AND m.ended_at IS NULL`
)

// Columns of an ended investigation, for counts and for durations.
const (
	countedColumns = `
        SELECT x.ended_at,
            (x.acted_at <= x.ended_at AND (x.failed_again_at IS NULL OR x.failed_again_at < x.acted_at) AND x.resolution_status = 'manually_resolved') AS proved`
	timedColumns = countedColumns + `, x.dlq_entry_uuid, x.fingerprint, x.opened_at, x.acted_at`
)

// The number of open investigations in the past is computed backwards from the current number, in
// the same snapshot.
const (
	countsOpened = `
SELECT s.at AS "from", coalesce(o.n, 0) AS opened, coalesce(e.n, 0) AS ended, coalesce(e.proved, 0) AS proved,
    (n.pending - coalesce(sum(coalesce(o.n, 0) - coalesce(e.n, 0)) OVER (ORDER BY s.at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))::bigint AS open
FROM generate_series($1::timestamptz, now(), $3::interval) AS s (at)
LEFT JOIN (
    SELECT date_bin($3, d.dlq_timestamp, $1) AS at, count(*) AS n
    FROM (`
	countsEnded = `) d
    GROUP BY 1
) o ON o.at = s.at
LEFT JOIN (
    SELECT date_bin($3, d.ended_at, $1) AS at, count(*) AS n, count(*) FILTER (WHERE d.proved) AS proved
    FROM (` + countedColumns
	countsPending = `) d
    GROUP BY 1
) e ON e.at = s.at
CROSS JOIN (SELECT (`
	countsOrder = `) AS pending) n
ORDER BY s.at`

	selectEntryCounts   = countsOpened + newestOpened + countsEnded + newestEnded + countsPending + countPending + countsOrder
	selectEntryCountsOf = countsOpened + newestOpenedOf + countsEnded + newestEndedOf + countsPending + countPendingOf + countsOrder
)

// EntryCounts counts opened, ended and open investigations for intervals of the given width. It
// considers only the newest [tasker.MaxEntryCount].
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	sql, args := selectEntryCounts, []any{since, tasker.MaxEntryCount, width}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = selectEntryCountsOf, append(args, scope.List())
	}
	list, err := collect[tasker.EntryCount](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	clearUncounted(list, tasker.MaxEntryCount)
	return list, nil
}

// clearUncounted clears the number of open investigations for intervals that are too old to be
// counted completely.
func clearUncounted(list []tasker.EntryCount, most int64) {
	var opened, ended int64
	for i := range slices.Backward(list) {
		if opened >= most || ended >= most {
			list[i].Open = nil
		}
		opened, ended = opened+list[i].Opened, ended+list[i].Ended
	}
}

// Measures when people (all actors except $3) acted on ended investigations, and on the cases of
// the newest ones. Each case counts once, with the medians of its investigations.
const (
	timesEnded = `
WITH ended AS MATERIALIZED (
    SELECT f.case_id, d.opened_at, d.ended_at AS resolved_at, d.proved,
        CASE WHEN d.acted_at BETWEEN d.opened_at AND d.ended_at THEN d.acted_at END AS acted_at,
        (
            SELECT min(h.changed_at) FROM tasker.tasks_dlq_history h
            WHERE h.dlq_entry_uuid = d.dlq_entry_uuid AND h.actor <> $3 AND h.event <> 'created'
        ) AS touched_at
    FROM (` + timedColumns
	timesOfCases = `) d
    JOIN tasker.case_fingerprints f ON f.fingerprint = d.fingerprint
),
changes AS MATERIALIZED (
    SELECT c.case_id, h.changed_at, CASE WHEN h.actor = $3 THEN 'resolved' ELSE h.event END AS event, h.changed_at + CASE h.event WHEN 'owned' THEN (h.metadata ->> 'for')::interval END AS owned_until
    FROM (SELECT DISTINCT case_id FROM ended) c
    CROSS JOIN LATERAL (
        SELECT h.changed_at, h.actor, h.event, h.metadata FROM tasker.case_history h
        WHERE h.case_id = c.case_id AND (h.actor <> $3 OR h.event = 'state_changed' AND h.metadata ->> 'to' = 'resolved')
        ORDER BY h.history_id DESC LIMIT 200
    ) h
),
line AS (
    SELECT case_id, opened_at AS at, NULL AS event, NULL::timestamptz AS owned_until, resolved_at, acted_at, touched_at, proved FROM ended
    UNION ALL
    SELECT case_id, changed_at, event, owned_until, NULL, NULL, NULL, NULL FROM changes
),
placed AS ( -- had[2] is the end of the last ownership before the investigation
    SELECT case_id, event, at AS opened_at, resolved_at, acted_at, touched_at, proved,
        max(ARRAY[at, coalesce(owned_until, at)]) FILTER (WHERE event IN ('owned', 'released', 'resolved')) OVER before AS had,
        min(at) FILTER (WHERE event <> 'resolved') OVER after AS changed_at, min(at) FILTER (WHERE event = 'owned') OVER after AS owned_at
    FROM line
    WINDOW before AS (PARTITION BY case_id ORDER BY at ROWS UNBOUNDED PRECEDING), after AS (PARTITION BY case_id ORDER BY at DESC ROWS UNBOUNDED PRECEDING)
),
owned AS (
    SELECT case_id, opened_at, resolved_at, acted_at, touched_at, proved, changed_at, CASE WHEN had[2] > opened_at THEN opened_at ELSE owned_at END AS owned_at
    FROM placed
    WHERE event IS NULL
),
lengths AS (
    SELECT o.case_id, p.phase, extract(epoch FROM p.ended_at - p.began_at) AS seconds
    FROM owned o
    CROSS JOIN LATERAL (VALUES
        ('acknowledge', o.opened_at, least(o.touched_at, o.changed_at, o.owned_at)), ('own', o.opened_at, o.owned_at), ('repair', o.opened_at, o.acted_at),
        ('prove', o.acted_at, CASE WHEN o.proved THEN o.resolved_at END), ('resolve', o.opened_at, o.resolved_at)
    ) AS p (phase, began_at, ended_at)
    WHERE p.ended_at BETWEEN p.began_at AND o.resolved_at
),
of_cases AS (
    SELECT case_id, phase, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds FROM lengths GROUP BY case_id, phase
)
SELECT phase, count(*) AS cases, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50, percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95,
    (SELECT count(*) FROM ended) AS entries
FROM of_cases
GROUP BY phase`

	selectEntryTimes   = timesEnded + newestEnded + timesOfCases
	selectEntryTimesOf = timesEnded + newestEndedOf + timesOfCases
)

// EntryTimes returns statistics about the durations of ended investigations, from the newest
// [tasker.MaxTimedEntries].
func (db *DB) EntryTimes(ctx context.Context, since time.Time) (tasker.ResolutionTimes, error) {
	sql, args := selectEntryTimes, []any{since, tasker.MaxTimedEntries, tasker.SystemActor}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = selectEntryTimesOf, append(args, scope.List())
	}
	type row struct {
		Phase          tasker.Phase
		Cases, Entries int64
		P50, P95       float64
	}
	rows, err := collect[row](ctx, db.pool, sql, args...)
	if err != nil {
		return tasker.ResolutionTimes{}, fmt.Errorf("read the durations of investigations: %w", err)
	}
	t := tasker.ResolutionTimes{Since: since}
	for _, phase := range tasker.Phases() {
		p := tasker.PhaseTime{Phase: phase}
		for _, r := range rows {
			if r.Phase == phase {
				p.Cases, p.P50Seconds, p.P95Seconds, t.Entries = r.Cases, secondsToDuration(r.P50).Seconds(), secondsToDuration(r.P95).Seconds(), r.Entries
			}
		}
		t.Times = append(t.Times, p)
	}
	return t, nil
}

func secondsToDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// namespacesWithTemplates lists namespaces by a skip scan of the template index, whose cost depends
// only on the number of namespaces.
const namespacesWithTemplates = `
WITH RECURSIVE names AS (
    (SELECT namespace FROM tasker.task_templates ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT t.namespace FROM tasker.task_templates t WHERE t.namespace > n.namespace ORDER BY t.namespace LIMIT 1)
    FROM names n
    WHERE n.namespace IS NOT NULL
)
SELECT array(SELECT namespace FROM names WHERE namespace IS NOT NULL LIMIT $1)`

// OpenEntries counts open investigations and lists the namespaces of templates, at most 1000. It
// returns Unavailable if the database is read-only.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	if err := db.CheckWritable(ctx); err != nil {
		return 0, nil, err
	}
	err = db.pool.QueryRow(ctx, statement("countOpenEntries"),
		listedNamespaces).Scan(&pending, &namespaces)
	return pending, namespaces, wrapError(err, "count open investigations")
}

const listedNamespaces = 1000

// Namespaces lists the visible namespaces that have templates, at most 1000.
func (db *DB) Namespaces(ctx context.Context) (names []string, err error) {
	sql, args := namespacesWithTemplates, []any{listedNamespaces}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql = `SELECT array(
			SELECT n.namespace FROM unnest($2::text[]) AS n (namespace)
			WHERE EXISTS (SELECT FROM tasker.task_templates t WHERE t.namespace = n.namespace)
			ORDER BY n.namespace LIMIT $1)`
		args = append(args, scope.List())
	}
	err = db.pool.QueryRow(ctx, sql, args...).Scan(&names)
	return names, wrapError(err, "list namespaces")
}
