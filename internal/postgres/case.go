package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
)

// queueConditions is what a filter says of the rows of the queue, in the names of
// its view, and the arguments that come after those that there are.
func queueConditions(f tasker.QueueFilter, args []any) (where string, all []any) {
	conditions := []string{"true"}
	add := func(condition string, arg any) {
		args = append(args, arg)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if f.Reason != "" {
		add("dlq_reason = $%d::tasker.dlq_reason", string(f.Reason))
	}
	if f.Namespace != "" {
		add("namespace_name = $%d", f.Namespace)
	}
	if f.Name != "" {
		add("task_name = $%d", f.Name)
	}
	if f.Case != nil {
		add("case_key = $%d", *f.Case)
	}
	if f.State != "" {
		add("current_state = $%d", string(f.State))
	}
	if f.Age > 0 {
		add("dlq_timestamp <= now() - $%d::interval", f.Age)
	}
	if f.Recovered != nil {
		add("(recovered_at IS NOT NULL) = $%d", *f.Recovered)
	}
	if f.Text != "" {
		condition := "concat_ws(' ', namespace_name, task_name, step_name, error_pattern, assignee) ILIKE '%%' || $%[1]d || '%%'"
		if isPartOfID(f.Text) {
			condition = "(" + condition + " OR concat(' ', dlq_entry_uuid, ' ', task_uuid) ~* ('[ -]' || $%[1]d))"
		}
		add(condition, likeText(f.Text))
	}
	return strings.Join(conditions, " AND "), args
}

// isPartOfID reports whether a text may be looked for in ids. Fewer than six digits
// are in too many of them: a search for 404 is not about ids.
func isPartOfID(text string) bool {
	const least = 6
	digits := 0
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
			digits++
		case c != '-':
			return false
		}
	}
	return digits >= least
}

// likeText has ILIKE look for a text as it is.
func likeText(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// QueuePage returns the open investigations of a filter, the most urgent first, and
// says whether there are more. The index of the queue is read in its order until
// the page is full.
func (db *DB) QueuePage(ctx context.Context, f tasker.QueueFilter) (list []tasker.QueueEntry, more bool, err error) {
	where, args := queueConditions(f, []any{f.Limit + 1, f.Offset})
	rows, err := collect[queueRow](ctx, db.pool, queueColumns+" WHERE "+where+" LIMIT $1 OFFSET $2", args...)
	if err != nil {
		return nil, false, fmt.Errorf("read the investigation queue: %w", err)
	}
	rows, more = page(rows, f.Limit)
	list, err = queueEntries(ctx, db.pool, rows)
	return list, more, err
}

// What is open is counted by case from an index alone, unless the filter asks for
// more than that has; the oldest of the entries that the filter lets through says
// what a case is about. The order is that of the queue: by the most urgent entry
// whose task has not gone on, and cases whose tasks all have come last.
const selectCases = `
SELECT g.dlq_reason::text, g.case_key, g.entries, g.recovered, g.oldest, g.newest,
    d.dlq_entry_uuid, d.detail_code, d.namespace, d.task_name, coalesce(d.step_name, '') AS step_name, coalesce(d.error_pattern, '') AS error_pattern
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
ORDER BY g.recovered = g.entries, coalesce(g.urgent, g.oldest) - make_interval(mins => tasker.dlq_base_priority(g.dlq_reason)), g.case_key
LIMIT $1 OFFSET $2`

// What the conditions of a filter are about: the index of cases has it, or the queue.
const (
	byCaseIndex = `SELECT dlq_entry_uuid, dlq_reason, case_key, dlq_timestamp, recovered_at FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`
	byQueue     = `SELECT * FROM tasker.v_dlq_investigation_queue`
)

type caseRow struct {
	DlqReason    string
	CaseKey      tasker.ID
	Entries      int64
	Recovered    int64
	Oldest       time.Time
	Newest       time.Time
	DlqEntryUUID tasker.ID
	DetailCode   string
	Namespace    string
	TaskName     string
	StepName     string
	ErrorPattern string
}

// Cases returns the cases of the open investigations of a filter, the most urgent
// first, and says whether there are more.
func (db *DB) Cases(ctx context.Context, f tasker.QueueFilter) (list []tasker.Case, more bool, err error) {
	sql, args := casesQuery(f)
	rows, err := collect[caseRow](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("read the cases: %w", err)
	}
	rows, more = page(rows, f.Limit)
	list = make([]tasker.Case, len(rows))
	for i, r := range rows {
		list[i] = tasker.Case{
			Key: r.CaseKey, Reason: tasker.Reason(r.DlqReason), DetailCode: r.DetailCode, Namespace: r.Namespace, TaskName: r.TaskName,
			StepName: r.StepName, ErrorPattern: r.ErrorPattern, Entries: r.Entries, Recovered: r.Recovered, Oldest: r.Oldest, Newest: r.Newest,
			EntryUUID: r.DlqEntryUUID,
		}
	}
	return list, more, nil
}

// CaseTotals counts the cases of the open investigations of a filter, and those.
func (db *DB) CaseTotals(ctx context.Context, f tasker.QueueFilter) (tasker.CaseTotals, error) {
	where, args := queueConditions(f, nil)
	found, err := collect[tasker.CaseTotals](ctx, db.pool, `
		SELECT count(*) AS cases, coalesce(sum(g.entries), 0)::bigint AS entries, min(g.oldest) AS oldest
		FROM (
			SELECT count(*) AS entries, min(dlq_timestamp) AS oldest
			FROM (`+casesFrom(f)+`) q
			WHERE `+where+`
			GROUP BY dlq_reason, case_key
		) g`, args...)
	if err != nil {
		return tasker.CaseTotals{}, fmt.Errorf("count the cases: %w", err)
	}
	return found[0], nil
}

func casesQuery(f tasker.QueueFilter) (sql string, args []any) {
	where, args := queueConditions(f, []any{f.Limit + 1, f.Offset})
	return fmt.Sprintf(selectCases, casesFrom(f), where), args
}

// casesFrom is what has the columns that a filter asks for.
func casesFrom(f tasker.QueueFilter) string {
	if f.Namespace != "" || f.Name != "" || f.State != "" || f.Text != "" {
		return byQueue
	}
	return byCaseIndex
}

const selectKin = `
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

const selectEndings = `
SELECT d.dlq_entry_uuid, d.task_uuid, d.resolution_status::text, d.resolved_at, d.resolved_by, tasker.redact_note(d.resolution_notes) AS resolution_notes, d.dlq_timestamp
FROM tasker.tasks_dlq d
WHERE d.case_key = $1 AND d.resolution_status <> 'pending' AND d.dlq_entry_uuid <> $2
ORDER BY d.case_key, d.resolved_at DESC
LIMIT $3`

type endingRow struct {
	DlqEntryUUID     tasker.ID
	TaskUUID         tasker.ID
	ResolutionStatus string
	ResolvedAt       time.Time
	ResolvedBy       string
	ResolutionNotes  string
	DlqTimestamp     time.Time
}

// Kin returns the case of an investigation, how many others of it are open, and how
// others ended: all that are looked at counted, and the last few in full. The error
// is NotFound when there is no such entry.
func (db *DB) Kin(ctx context.Context, entry tasker.ID, few int) (tasker.Kin, error) {
	type row struct {
		CaseKey tasker.ID
		Open    int64
	}
	found, err := collect[row](ctx, db.pool, selectKin, entry, tasker.MaxEndings)
	if err != nil {
		return tasker.Kin{}, fmt.Errorf("read the case of an investigation: %w", err)
	}
	if len(found) == 0 {
		return tasker.Kin{}, tasker.Errorf(tasker.NotFound, "no investigation %s", entry)
	}
	k := tasker.Kin{Case: found[0].CaseKey, Open: min(found[0].Open, tasker.MaxEndings), More: found[0].Open > tasker.MaxEndings, Counts: map[tasker.ResolutionStatus]int64{}}
	rows, err := collect[endingRow](ctx, db.pool, selectEndings, k.Case, entry, tasker.MaxEndings)
	if err != nil {
		return tasker.Kin{}, fmt.Errorf("read how similar investigations ended: %w", err)
	}
	for i, r := range rows {
		status := tasker.ResolutionStatus(r.ResolutionStatus)
		k.Counts[status]++
		if i < few {
			k.Last = append(k.Last, tasker.Ending{
				EntryUUID: r.DlqEntryUUID, TaskUUID: r.TaskUUID, Status: status, At: r.ResolvedAt, By: r.ResolvedBy, Notes: r.ResolutionNotes,
				Open: r.ResolvedAt.Sub(r.DlqTimestamp),
			})
		}
	}
	return k, nil
}
