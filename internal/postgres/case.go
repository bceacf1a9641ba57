package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

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
	n, err := queryValue[int64](ctx, db.pool, addConditions(statement("countUnclassified"), "members", c.members), c.args...)
	return n, wrapError(err, "count the investigations without a case")
}

// completeCase sets the derived fields of a case and redacts it.
func completeCase(ctx context.Context, c *tasker.Case) {
	cause := tasker.CauseOf(c.Reason, c.DetailCode)
	c.Label, c.Severity = cause.Label, cause.Severity
	access.RedactPattern(ctx, c.Namespace, &c.ErrorPattern)
}

// buildCasesQuery returns a statement that selects a page of cases and one more. Its conditions are
// added in Go: as optional conditions of one statement they would lose the index-only scan.
func buildCasesQuery(ctx context.Context, f tasker.CaseFilter) (sql string, args []any) {
	c := newCaseConditions(ctx, f, []any{f.Limit + 1, f.Offset})
	if includesResolved(f) {
		return addConditions(statement("selectResolvedCases"), "cases", c.cases), c.args
	}
	return addConditions(addConditions(statement("selectCases"), "members", c.members), "cases", c.cases), c.args
}

// caseConditions contains the conditions of a case filter on members (m) and cases (c).
type caseConditions struct {
	members, cases []string
	args           []any
}

// add appends an argument and the conditions on it. Empty conditions are omitted.
func (c *caseConditions) add(arg any, members, cases string) {
	c.args = append(c.args, arg)
	if members != "" {
		c.members = append(c.members, fmt.Sprintf(members, len(c.args)))
	}
	if cases != "" {
		c.cases = append(c.cases, fmt.Sprintf(cases, len(c.args)))
	}
}

func newCaseConditions(ctx context.Context, f tasker.CaseFilter, args []any) caseConditions {
	c := caseConditions{args: args}
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
		{f.State != "", string(f.State), `EXISTS (
			SELECT FROM tasker.tasks_dlq d JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
			WHERE d.dlq_entry_uuid = m.dlq_entry_uuid AND t.state = $%d)`, ""},
		{f.CaseKey != nil, f.CaseKey, `EXISTS (
			SELECT FROM tasker.tasks_dlq d WHERE d.dlq_entry_uuid = m.dlq_entry_uuid AND d.case_key = $%d)`, ""},
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
	if f.Unowned {
		c.cases = append(c.cases, "coalesce(c.owned_until <= now(), true)")
	}
	if f.FailedAgain {
		c.cases = append(c.cases, "o.failed_again > 0")
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
		members += ` OR EXISTS (
			SELECT FROM tasker.tasks_dlq d
			WHERE d.dlq_entry_uuid = m.dlq_entry_uuid AND concat(' ', d.dlq_entry_uuid, ' ', d.task_uuid) ~* ('[ -]' || $%[1]d))`
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
