package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// openHead counts open investigations. It groups them by fingerprint first, so that an index-only
// scan suffices.
const openHead = `
open AS MATERIALIZED (
    SELECT f.case_id, sum(m.entries)::bigint AS entries, sum(m.recovered)::bigint AS recovered, sum(m.proving)::bigint AS proving,
        sum(m.failed_again)::bigint AS failed_again, min(m.oldest) AS oldest, max(m.newest) AS newest,
        sum(m.recent)::bigint AS recent, sum(m.earlier)::bigint AS earlier, max(m.acted) AS acted
    FROM (
        SELECT m.fingerprint, count(*) AS entries, count(m.recovered_at) AS recovered,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.acted_at > coalesce(m.failed_again_at, '-infinity')) AS proving,
            count(*) FILTER (WHERE m.recovered_at IS NULL AND m.failed_again_at >= m.acted_at) AS failed_again,
            min(m.opened_at) AS oldest, max(m.opened_at) AS newest,
            count(*) FILTER (WHERE m.opened_at > now() - interval '5 minutes') AS recent,
            count(*) FILTER (WHERE m.opened_at <= now() - interval '5 minutes' AND m.opened_at > now() - interval '35 minutes') AS earlier,
            max(m.acted_at) AS acted
        FROM tasker.case_members m
        `

const openMembers = `WHERE m.ended_at IS NULL AND m.fingerprint IS NOT NULL AND `

const openTail = `
        GROUP BY m.fingerprint
    ) m
    JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
    GROUP BY f.case_id
)`

const caseColumns = `c.case_id AS id, c.state, c.state_since, c.dlq_reason::text AS reason, c.detail_code, c.namespace, c.task_name, c.step_name,
    c.error_type, c.error_pattern, c.first_seen_at AS first_seen,
    CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner, CASE WHEN c.owned_until > now() THEN c.owned_until END AS owned_until,
    CASE WHEN c.snoozed_until > now() THEN c.snoozed_until END AS snoozed_until, CASE WHEN c.snoozed_until > now() THEN c.snooze_above END AS snooze_above,
    coalesce(c.fixed_in, '') AS fixed_in, c.resolved_at, c.merged_into, c.updated_at`

const countColumns = `coalesce(o.entries, 0) AS entries, coalesce(o.entries - o.recovered - o.proving - o.failed_again, 0) AS waiting, coalesce(o.proving, 0) AS proving,
    coalesce(o.failed_again, 0) AS failed_again, coalesce(o.recovered, 0) AS recovered, coalesce(o.recent, 0) AS recent, o.oldest, o.newest`

// harm orders cases. Cases whose tasks have all continued come last.
const harm = `coalesce(tasker.case_harm(tasker.dlq_severity(c.dlq_reason, c.detail_code), o.entries - o.recovered, o.recent, o.earlier,
    coalesce(c.owned_until > now(), false), c.state = 'resting') * CASE WHEN o.recovered = o.entries THEN 0.1 ELSE 1 END, 0)`

const selectCases = `
WITH ` + openHead + `%s
        ` + openMembers + `%s` + openTail + `,
page AS (
    SELECT ` + caseColumns + `, ` + countColumns + `, ` + harm + ` AS harm,
        count(*) OVER () AS total_cases, sum(o.entries) OVER ()::bigint AS total_entries, sum(o.recent) OVER ()::bigint AS total_recent, min(o.oldest) OVER () AS total_oldest
    FROM open o
    JOIN tasker.cases c ON c.case_id = o.case_id
    WHERE %s
    ORDER BY harm DESC, c.case_id
    LIMIT $1 OFFSET $2
)
SELECT p.*, e.dlq_entry_uuid AS entry_uuid, e.case_key
FROM page p
` + oldestEntry + `
ORDER BY p.harm DESC, p.id`

// oldestEntry joins the oldest open investigation of each case on a page.
const oldestEntry = `
LEFT JOIN LATERAL (
    SELECT e.dlq_entry_uuid, d.case_key
    FROM tasker.case_fingerprints f
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid, m.opened_at
        FROM tasker.case_members m
        WHERE m.namespace = p.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at
        LIMIT 1
    ) e
    JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = e.dlq_entry_uuid
    WHERE f.case_id = p.id
    ORDER BY e.opened_at, e.dlq_entry_uuid
    LIMIT 1
) e ON true`

const selectResolvedCases = `
SELECT ` + caseColumns + `, 0::bigint AS entries, 0::bigint AS waiting, 0::bigint AS proving, 0::bigint AS failed_again, 0::bigint AS recovered, 0::bigint AS recent,
    NULL::timestamptz AS oldest, NULL::timestamptz AS newest, 0::float8 AS harm, NULL::uuid AS entry_uuid, NULL::uuid AS case_key,
    0::bigint AS total_cases, 0::bigint AS total_entries, 0::bigint AS total_recent, NULL::timestamptz AS total_oldest
FROM tasker.cases c
WHERE c.state = 'resolved' AND c.merged_into IS NULL AND %s
ORDER BY c.resolved_at DESC, c.case_id
LIMIT $1 OFFSET $2`

// caseRow is a case together with the totals over all pages.
type caseRow struct {
	tasker.Case
	tasker.CaseTotals
}

// Cases lists cases, most harmful first, and reports whether there are more. Resolved cases are
// listed by the time of resolution, newest first.
func (db *DB) Cases(ctx context.Context, f tasker.CaseFilter) (list []tasker.Case, more bool, err error) {
	list, _, more, err = db.CasePage(ctx, f)
	return list, more, err
}

// CasePage is [DB.Cases] and also returns the totals over all pages.
func (db *DB) CasePage(ctx context.Context, f tasker.CaseFilter) (list []tasker.Case, t tasker.CaseTotals, more bool, err error) {
	if includesResolved(f) && (f.State != "" || f.CaseKey != nil || f.Age > 0 || f.Recovered != nil || f.FailedAgain) {
		return nil, t, false, tasker.Errorf(tasker.Invalid, "resolved cases have no open investigations: they "+
			"cannot be selected by task state, age, case_key, recovered or failed_again")
	}
	if f.FindsTasks() {
		return nil, t, false, tasker.Errorf(tasker.Invalid,
			"cases cannot be selected by tag, correlation id or attribute")
	}
	sql, args := buildCasesQuery(ctx, f)
	rows, err := collect[caseRow](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, t, false, fmt.Errorf("read the cases: %w", err)
	}
	if len(rows) == 0 && f.Offset > 0 { // beyond the last page
		f.Limit, f.Offset = 0, 0
		_, t, _, err = db.CasePage(ctx, f)
		return nil, t, false, err
	}
	if len(rows) > 0 {
		t = rows[0].CaseTotals
	}
	if t.Unclassified, err = db.countUnclassified(ctx, f); err != nil {
		return nil, t, false, err
	}
	rows, more = trimPage(rows, f.Limit)
	list = make([]tasker.Case, len(rows))
	for i, r := range rows {
		list[i] = r.Case
		completeCase(ctx, &list[i])
	}
	return list, t, more, nil
}

// countUnclassified counts the open investigations that match a filter and have no case. It uses a
// small index.
func (db *DB) countUnclassified(ctx context.Context, f tasker.CaseFilter) (int64, error) {
	c := newCaseConditions(ctx, tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{
		Namespace: f.Namespace, Age: f.Age, Recovered: f.Recovered, State: f.State, CaseKey: f.CaseKey,
	}}, nil)
	n, err := queryValue[int64](ctx, db.pool, fmt.Sprintf(`
		SELECT count(*) FROM tasker.case_members m %s
		WHERE m.ended_at IS NULL AND m.fingerprint_version = 0 AND m.fingerprint IS NULL AND %s`, c.joins, c.members), c.args...)
	return n, wrapError(err, "count the investigations without a case")
}

// completeCase sets the derived fields of a case and redacts it.
func completeCase(ctx context.Context, c *tasker.Case) {
	cause := tasker.CauseOf(c.Reason, c.DetailCode)
	c.Label, c.Severity = cause.Label, cause.Severity
	access.RedactPattern(ctx, c.Namespace, &c.ErrorPattern)
}

func buildCasesQuery(ctx context.Context, f tasker.CaseFilter) (sql string, args []any) {
	c := newCaseConditions(ctx, f, []any{f.Limit + 1, f.Offset})
	if includesResolved(f) {
		return fmt.Sprintf(selectResolvedCases, c.cases), c.args
	}
	return fmt.Sprintf(selectCases, c.joins, c.members, c.cases), c.args
}

// caseConditions contains the conditions of a case filter on members (m) and cases (c). The joins
// add the investigation (d) and the task (t) of a member.
type caseConditions struct {
	joins, members, cases string
	args                  []any
}

// add appends an argument and the conditions on it. Empty conditions are omitted.
func (c *caseConditions) add(arg any, members, cases string) {
	c.args = append(c.args, arg)
	if members != "" {
		c.members += " AND " + fmt.Sprintf(members, len(c.args))
	}
	if cases != "" {
		c.cases += " AND " + fmt.Sprintf(cases, len(c.args))
	}
}

func newCaseConditions(ctx context.Context, f tasker.CaseFilter, args []any) caseConditions {
	c := caseConditions{members: "true", cases: "true", args: args}
	scope := access.ScopeFromContext(ctx)
	for _, o := range []struct {
		set            bool
		arg            any
		members, cases string
	}{
		{!scope.IncludesAll(), scope.List(), "m.namespace = ANY ($%d)", "c.namespace = ANY ($%d)"},
		{f.Namespace != "", f.Namespace, "m.namespace = $%d", "c.namespace = $%d"},
		{f.Age > 0, f.Age, "m.opened_at <= now() - $%d::interval", ""},
		{f.Recovered != nil, f.Recovered, "(m.recovered_at IS NOT NULL) = $%d", ""},
		{f.State != "", string(f.State), "t.state = $%d", ""},
		{f.CaseKey != nil, f.CaseKey, "d.case_key = $%d", ""},
		{f.Case != nil, f.Case, "", "c.case_id = $%d"},
		{f.Reason != "", string(f.Reason), "", "c.dlq_reason = $%d::tasker.dlq_reason"},
		{f.Name != "", f.Name, "", "c.task_name = $%d"},
		{f.CaseState != "", string(f.CaseState), "", "c.state = $%d"},
		{f.Owner != "", f.Owner, "", "c.owner = $%d AND c.owned_until > now()"},
	} {
		if o.set {
			c.add(o.arg, o.members, o.cases)
		}
	}
	if f.State != "" || f.CaseKey != nil || isPartOfID(f.Text) {
		c.joins = `JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid`
	}
	if f.State != "" {
		c.joins += ` JOIN tasker.tasks t ON t.task_uuid = d.task_uuid`
	}
	if f.Unowned {
		c.cases += " AND coalesce(c.owned_until <= now(), true)"
	}
	if f.FailedAgain {
		c.cases += " AND o.failed_again > 0"
	}
	if f.Text != "" {
		c.addText(ctx, f)
	}
	return c
}

// addText selects investigations whose case, error or ids contain a text. Errors are searched only
// for callers who may read payloads.
func (c *caseConditions) addText(ctx context.Context, f tasker.CaseFilter) {
	pattern, members := "c.error_type, c.error_pattern, ", " OR m.error_message ILIKE '%%' || $%[1]d || '%%'"
	if !access.PayloadScopeFromContext(ctx).Covers(access.ScopeFromContext(ctx)) {
		pattern, members = "", ""
	}
	words := "concat_ws(' ', c.namespace, c.task_name, c.step_name, " + pattern + "c.owner) ILIKE '%%' || $%[1]d || '%%'"
	if isPartOfID(f.Text) {
		words = "(" + words + " OR concat(' ', c.case_id) ~* ('[ -]' || $%[1]d))"
		members += " OR concat(' ', d.dlq_entry_uuid, ' ', d.task_uuid) ~* ('[ -]' || $%[1]d)"
	}
	if includesResolved(f) {
		c.add(escapeLike(f.Text), "", words)
		return
	}
	c.add(escapeLike(f.Text), `(m.fingerprint IN (
		SELECT f.fingerprint FROM tasker.case_fingerprints f JOIN tasker.cases c ON c.case_id = f.case_id WHERE `+words+`)`+members+`)`, "")
}

// Case returns a case with its counts, or NotFound.
func (db *DB) Case(ctx context.Context, id tasker.ID) (tasker.Case, error) {
	return findCase(ctx, db.pool, id)
}

func findCase(ctx context.Context, q querier, id tasker.ID) (tasker.Case, error) {
	found, err := queryOne[tasker.Case](ctx, q, statement("selectCase"), id)
	switch {
	case err != nil:
		return tasker.Case{}, fmt.Errorf("read case %s: %w", id, err)
	case found == nil || !access.ScopeFromContext(ctx).Has(found.Namespace):
		return tasker.Case{}, newCaseNotFoundError(id)
	}
	completeCase(ctx, found)
	return *found, nil
}

func newCaseNotFoundError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "case %s not found", id)
}

// includesResolved reports whether a filter selects only resolved cases.
func includesResolved(f tasker.CaseFilter) bool {
	return f.CaseState == tasker.CaseResolved
}
