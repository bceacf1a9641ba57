package postgres

import (
	"context"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/fingerprint"
)

// maxShownError is the maximum length of an error in a list, in characters.
const maxShownError = 500

// buildQueueQuery returns a statement that selects a page of the investigation queue and one more
// row. Its conditions are added in Go: as optional conditions of one statement they would lose the
// index of a case.
func buildQueueQuery(ctx context.Context, f tasker.InvestigationFilter, attributes []comparison) (sql string,
	args []any) {
	sql, args = statement("selectInvestigationQueue"), []any{f.Limit + 1, f.Offset}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("selectInvestigationQueueOf"), append(args, scope.List())
	}
	conditions, args := buildInvestigationConditions(ctx, f, attributes, args)
	return addConditions(sql, "conditions", conditions), args
}

// InvestigationQueue returns a page of open investigations, most urgent first, and reports whether
// there are more. It reads them in index order.
func (db *DB) InvestigationQueue(ctx context.Context, f tasker.InvestigationFilter) (list []tasker.InvestigationQueueEntry, more bool, err error) {
	attributes, err := buildComparisons(ctx, db.pool, f.Namespace, f.Attributes)
	if err != nil {
		return nil, false, err
	}
	sql, args := buildQueueQuery(ctx, f, attributes)
	list, err = collect[tasker.InvestigationQueueEntry](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("read the investigation queue: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	tasks, steps := make([]tasker.ID, len(list)), make([]*tasker.ID, len(list))
	for i, e := range list {
		tasks[i], steps[i] = e.TaskUUID, e.StepUUID
	}
	dues, err := findDeadlines(ctx, db.pool, tasks)
	if err != nil {
		return nil, false, err
	}
	failed, err := findFailedSteps(ctx, db.pool, tasks, steps)
	if err != nil {
		return nil, false, err
	}
	for i := range list {
		e := &list[i]
		cause := tasker.CauseOf(e.Reason, e.DetailCode)
		e.Label, e.Severity, e.TaskDue, e.FailedStep = cause.Label, cause.Severity, dues[e.TaskUUID], failed[i]
		e.ErrorMessage = fingerprint.Headline(e.ErrorMessage, maxShownError)
		access.RedactPattern(ctx, e.Namespace, &e.ErrorPattern)
		access.RedactPattern(ctx, e.Namespace, &e.ErrorMessage)
	}
	return list, more, nil
}

// buildInvestigationConditions returns the conditions of a filter on the view of the queue, and
// their arguments. Error texts are searched only if the caller may read payloads.
func buildInvestigationConditions(ctx context.Context, f tasker.InvestigationFilter, attributes []comparison,
	args []any) (conditions []string, all []any) {
	add := func(condition string, arg any) {
		args = append(args, arg)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		add("namespace_name = ANY ($%d)", scope.List())
	}
	for _, c := range []struct{ condition, value string }{
		{"dlq_reason = $%d::tasker.dlq_reason", string(f.Reason)}, {"namespace_name = $%d", f.Namespace},
		{"task_name = $%d", f.Name}, {"current_state = $%d", string(f.State)},
	} {
		if c.value != "" {
			add(c.condition, c.value)
		}
	}
	if f.Case != nil { // read by the members of the case, without scanning the queue
		add(`dlq_entry_uuid = ANY (ARRAY(
			SELECT m.dlq_entry_uuid
			FROM tasker.case_fingerprints f
			JOIN tasker.cases c ON c.case_id = f.case_id
			JOIN tasker.case_members m ON m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
			WHERE f.case_id = $%d))`, *f.Case)
	}
	if f.CaseKey != nil {
		add("case_key = $%d", *f.CaseKey)
	}
	if f.Age > 0 {
		add("dlq_timestamp <= now() - $%d::interval", f.Age)
	}
	if f.Recovered != nil {
		add("(recovered_at IS NOT NULL) = $%d", *f.Recovered)
	}
	if f.Text != "" {
		pattern := "error_pattern, error_message, "
		if !access.PayloadScopeFromContext(ctx).Covers(access.ScopeFromContext(ctx)) {
			pattern = ""
		}
		condition := "concat_ws(' ', namespace_name, task_name, step_name, " + pattern + "assignee) ILIKE '%%' || $%[1]d || '%%'"
		if isPartOfID(f.Text) {
			condition = "(" + condition + " OR concat(' ', dlq_entry_uuid, ' ', task_uuid) ~* ('[ -]' || $%[1]d))"
		}
		add(condition, escapeLike(f.Text))
	}
	p := parameters(args)
	conditions = append(conditions, p.buildTaskConditions(ctx, f, attributes)...)
	return conditions, p
}

// buildTaskConditions returns conditions on tasks. Attributes are payloads, which the caller must
// be allowed to read.
func (p *parameters) buildTaskConditions(ctx context.Context, f tasker.InvestigationFilter, attributes []comparison) (list []string) {
	if len(f.Tags) > 0 || f.CorrelationID != "" {
		of := "true"
		if len(f.Tags) > 0 {
			of += " AND k.tags @> " + p.add(f.Tags) + "::text[]"
		}
		if f.CorrelationID != "" {
			of += " AND k.correlation_id = " + p.add(f.CorrelationID)
		}
		list = append(list, "EXISTS (SELECT FROM (SELECT task_uuid AS id) o JOIN tasker.tasks k ON k.task_uuid = o.id WHERE "+of+" OFFSET 0)")
	}
	for _, c := range attributes {
		list = append(list, fmt.Sprintf(`EXISTS (
			SELECT FROM (SELECT task_uuid AS id, namespace_name AS namespace) o
			JOIN tasker.task_attributes b ON b.task_uuid = o.id AND b.namespace = o.namespace
			WHERE b.name = %s AND b.%s %s %s OFFSET 0)`, p.add(c.name), c.column, c.operator, p.add(c.value)))
	}
	if payloads := access.PayloadScopeFromContext(ctx); len(attributes) > 0 && !payloads.IncludesAll() {
		list = append(list, "namespace_name = ANY ("+p.add(payloads.List())+")")
	}
	return list
}

// isPartOfID reports whether to search ids for a text: it has at least six hexadecimal digits.
func isPartOfID(text string) bool {
	digits := strings.ReplaceAll(text, "-", "")
	return len(digits) >= 6 && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}

// escapeLike escapes a text for use in a LIKE pattern.
func escapeLike(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}
