package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// What is open is counted by case from an index alone, unless the filter asks for
// more than that has; the oldest of the entries that the filter lets through says
// what a case is about. The order is that of the queue: by the most urgent entry
// whose task has not gone on, and cases whose tasks all have come last.
const selectCases = `
SELECT g.dlq_reason::text AS reason, g.case_key AS key, g.entries, g.recovered, g.oldest, g.newest,
    d.dlq_entry_uuid AS entry_uuid, d.detail_code, d.namespace, d.task_name, coalesce(d.step_name, '') AS step_name, coalesce(d.error_pattern, '') AS error_pattern
FROM (
    SELECT dlq_reason, case_key, count(*) AS entries, count(recovered_at) AS recovered, min(dlq_timestamp) AS oldest, max(dlq_timestamp) AS newest,
        min(dlq_timestamp) FILTER (WHERE recovered_at IS NULL) AS urgent
    FROM (%[1]s) q
    WHERE %[2]s
    GROUP BY dlq_reason, case_key
) g
CROSS JOIN LATERAL (
    SELECT q.dlq_entry_uuid
    FROM (%[1]s) q
    WHERE %[2]s AND q.dlq_reason = g.dlq_reason AND q.case_key = g.case_key AND q.dlq_timestamp = g.oldest
    LIMIT 1
) e
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = e.dlq_entry_uuid
JOIN tasker.dlq_base_priorities b ON b.dlq_reason = g.dlq_reason
ORDER BY g.recovered = g.entries, coalesce(g.urgent, g.oldest) - make_interval(mins => b.minutes), g.case_key
LIMIT $1 OFFSET $2`

// What the conditions of a filter are about: the index of cases has it, or the queue.
const (
	byCaseIndex = `SELECT dlq_entry_uuid, dlq_reason, case_key, dlq_timestamp, recovered_at FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`
	byQueue     = `SELECT * FROM tasker.v_dlq_investigation_queue`
)

// Cases returns the cases of the open investigations of a filter, the most urgent
// first, and says whether there are more.
func (db *DB) Cases(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.Case, more bool, err error) {
	sql, args := casesQuery(ctx, f)
	list, err = collect[tasker.Case](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("read the cases: %w", err)
	}
	list, more = page(list, f.Limit)
	for i := range list {
		access.HidePattern(ctx, list[i].Namespace, &list[i].ErrorPattern)
	}
	return list, more, nil
}

// CaseTotals counts the cases of the open investigations of a filter, and those.
func (db *DB) CaseTotals(ctx context.Context, f tasker.InvestigationFilter) (tasker.CaseTotals, error) {
	where, args := investigationConditions(ctx, f, nil)
	totals, err := one[tasker.CaseTotals](ctx, db.pool, `
		SELECT count(*) AS cases, coalesce(sum(g.entries), 0)::bigint AS entries, min(g.oldest) AS oldest
		FROM (
			SELECT count(*) AS entries, min(dlq_timestamp) AS oldest
			FROM (`+casesFrom(ctx, f)+`) q
			WHERE `+where+`
			GROUP BY dlq_reason, case_key
		) g`, args...)
	if err != nil {
		return tasker.CaseTotals{}, fmt.Errorf("count the cases: %w", err)
	}
	return *totals, nil
}

func casesQuery(ctx context.Context, f tasker.InvestigationFilter) (sql string, args []any) {
	where, args := investigationConditions(ctx, f, []any{f.Limit + 1, f.Offset})
	return fmt.Sprintf(selectCases, casesFrom(ctx, f), where), args
}

// casesFrom is what has the columns that a filter asks for.
func casesFrom(ctx context.Context, f tasker.InvestigationFilter) string {
	if !access.ScopeOf(ctx).All() || f.Namespace != "" || f.Name != "" || f.State != "" || f.Text != "" {
		return byQueue
	}
	return byCaseIndex
}

const selectRelated = `
SELECT e.case_key, (
    SELECT count(*)
    FROM (
        SELECT
        FROM tasker.tasks_dlq d
        WHERE d.resolution_status = 'pending' AND d.dlq_reason = e.dlq_reason AND d.case_key = e.case_key AND d.dlq_entry_uuid <> $1
        LIMIT $2 + 1
    ) o
) AS open
FROM tasker.tasks_dlq e
WHERE e.dlq_entry_uuid = $1`

const selectEnded = `
SELECT d.dlq_entry_uuid AS entry_uuid, d.task_uuid, d.resolution_status::text AS status, d.resolved_at AS at, d.resolved_by AS by,
    tasker.redact_note(d.resolution_notes) AS notes, d.resolved_at - d.dlq_timestamp AS open
FROM tasker.tasks_dlq d
WHERE d.case_key = $1 AND d.resolution_status <> 'pending' AND d.dlq_entry_uuid <> $2
ORDER BY d.case_key, d.resolved_at DESC
LIMIT $3`

// RelatedEntries returns the case of an investigation, how many others of it are open, and how
// others ended: all that are looked at counted, and the last few in full. The error
// is NotFound when there is no such entry.
func (db *DB) RelatedEntries(ctx context.Context, entry tasker.ID, few int) (tasker.RelatedEntries, error) {
	type row struct {
		CaseKey tasker.ID
		Open    int64
	}
	found, err := one[row](ctx, db.pool, selectRelated, entry, tasker.MaxRelated)
	if err != nil {
		return tasker.RelatedEntries{}, fmt.Errorf("read the case of an investigation: %w", err)
	}
	if found == nil {
		return tasker.RelatedEntries{}, tasker.Errorf(tasker.NotFound, "no investigation %s", entry)
	}
	k := tasker.RelatedEntries{Case: found.CaseKey, Open: min(found.Open, tasker.MaxRelated), More: found.Open > tasker.MaxRelated, Counts: map[tasker.ResolutionStatus]int64{}}
	endings, err := collect[tasker.EndedEntry](ctx, db.pool, selectEnded, k.Case, entry, tasker.MaxRelated)
	if err != nil {
		return tasker.RelatedEntries{}, fmt.Errorf("read how similar investigations ended: %w", err)
	}
	for _, e := range endings {
		k.Counts[e.Status]++
	}
	k.Last = endings[:min(few, len(endings))]
	return k, nil
}
