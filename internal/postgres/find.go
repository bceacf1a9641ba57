package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// clockSlack is the maximum difference between the clocks of servers and of the database.
const clockSlack = time.Minute

// parameters collects the arguments of a statement.
type parameters []any

// add appends a value and returns its placeholder.
func (p *parameters) add(value any) string {
	*p = append(*p, value)
	return fmt.Sprintf("$%d", len(*p))
}

// addConditions adds conditions to a statement where it has a comment with the name.
func addConditions(sql, name string, conditions []string) string {
	mark := " /* " + name + " */"
	if len(conditions) == 0 {
		return strings.Replace(sql, mark, "", 1)
	}
	return strings.Replace(sql, mark, " AND "+strings.Join(conditions, " AND "), 1)
}

// A searchPlan is the condition of a filter whose index is used to read a page.
type searchPlan struct {
	comparison
	rest []comparison // the other attribute conditions
}

const idempotencyKey = "idempotency_key"

// newSearchPlan returns the indexed condition that probably matches the fewest tasks, or nil if
// there is none.
func newSearchPlan(f tasker.TaskFilter, attributes []comparison) *searchPlan {
	at := slices.IndexFunc(attributes, func(c comparison) bool { return !c.isRange() })
	by := func(name, text string) *searchPlan {
		return &searchPlan{comparison{name, "text_value", "=", text}, attributes}
	}
	switch {
	case f.IdempotencyKey != "":
		return by(idempotencyKey, f.IdempotencyKey)
	case f.CorrelationID != "":
		return by(correlationAttribute, f.CorrelationID)
	case at >= 0:
		return &searchPlan{attributes[at], slices.Delete(slices.Clone(attributes), at, at+1)}
	case len(f.Tags) > 0 && f.Tags[0] != "":
		return by(tagAttribute, f.Tags[0])
	case f.SourceSystem != "":
		return by(sourceAttribute, f.SourceSystem)
	case f.Initiator != "":
		return by(initiatorAttribute, f.Initiator)
	case len(attributes) > 0:
		return &searchPlan{attributes[0], attributes[1:]}
	}
	return nil
}

// fewTasks is the maximum number of tasks in a state for which the index of states is used instead
// of that of an attribute.
const fewTasks = 1000

// shouldReadState reports whether to read a page by the index of states.
func (db *DB) shouldReadState(ctx context.Context, f tasker.TaskFilter, by *searchPlan) (bool, error) {
	if f.State == "" || by == nil || by.isRange() || by.name == idempotencyKey || by.name == correlationAttribute {
		return false, nil
	}
	n, err := queryValue[int](ctx, db.pool, statement("countTasksInState"), string(f.State), fewTasks+1)
	return err == nil && n <= fewTasks, wrapError(err, "count tasks in a state")
}

// sortRarestFirst orders tags by how many tasks have them, counted up to fewTasks.
func (db *DB) sortRarestFirst(ctx context.Context, f tasker.TaskFilter, scope access.Scope) ([]string, error) {
	if len(f.Tags) < 2 {
		return f.Tags, nil
	}
	p := &parameters{}
	tags, most := p.add(f.Tags), p.add(fewTasks+1)
	list, err := collectColumn[string](ctx, db.pool, fmt.Sprintf(`
		SELECT u.tag
		FROM unnest(%[1]s::text[]) WITH ORDINALITY AS u (tag, place)
		CROSS JOIN LATERAL (
			SELECT count(*) AS tasks
			FROM (
				SELECT
				FROM %[3]s m
				CROSS JOIN LATERAL (
					SELECT FROM tasker.task_attributes a
					WHERE a.namespace = m.namespace AND a.name = '%[4]s' AND a.text_value = u.tag
					LIMIT %[2]s::bigint
				) a
				LIMIT %[2]s::bigint
			) x
		) c
		ORDER BY c.tasks, u.place`, tags, most, p.namespacesSQL(f, scope), tagAttribute), *p...)
	return list, wrapError(err, "count the tasks of tags")
}

// buildConditions returns the conditions of a filter, except those on state, namespace and name and
// the seek.
func (p *parameters) buildConditions(f tasker.TaskFilter, found *searchPlan) (list []string) {
	is := func(name, column, value string) {
		if value != "" && (found == nil || found.name != name) {
			list = append(list, "t."+column+" = "+p.add(value))
		}
	}
	if f.DeadLettered != nil {
		list = append(list, p.add(*f.DeadLettered)+` = EXISTS (
			SELECT FROM tasker.tasks_dlq q
			WHERE q.task_uuid = t.task_uuid AND q.resolution_status IN ('pending', 'permanently_failed'))`)
	}
	first, end := idRange(f)
	if !f.CreatedAfter.IsZero() {
		list = append(list, "t.task_uuid >= "+p.add(first), "t.created_at >= "+p.add(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		list = append(list, "t.task_uuid < "+p.add(end), "t.created_at < "+p.add(f.CreatedBefore))
	} else if f.Before != (tasker.ID{}) && (found == nil || found.name == idempotencyKey || found.name == correlationAttribute) {
		list = append(list, "t.task_uuid < "+p.add(end)) // other seeks compare the id in their index
	}
	tags := f.Tags
	if found != nil && found.name == tagAttribute {
		tags = tags[1:]
	}
	if len(tags) > 0 {
		list = append(list, "t.tags @> "+p.add(tags)+"::text[]")
	}
	if f.NotUndone {
		list = append(list, "t.phase IS NULL")
	}
	is("phase", "phase", string(f.Phase))
	is(idempotencyKey, "idempotency_key", f.IdempotencyKey)
	is(correlationAttribute, "correlation_id", f.CorrelationID)
	is(initiatorAttribute, "initiator", f.Initiator)
	is(sourceAttribute, "source_system", f.SourceSystem)
	return list
}

// buildSearchPage selects a page of tasks by a seek. It merges the newest tasks of each namespace.
func buildSearchPage(f tasker.TaskFilter, scope access.Scope, by *searchPlan) (sql string, args []any) {
	p := &parameters{}
	limit, offset := p.add(f.Limit+1), p.add(f.Offset)
	where := p.buildConditions(f, by)
	where = append(where, p.buildComparisons(by.rest)...)
	if f.State != "" {
		where = append(where, "t.state = "+p.add(string(f.State)))
	}
	if f.Name != "" {
		where = append(where, "t.name = "+p.add(f.Name))
	}
	sql = fmt.Sprintf(`
		SELECT t.*, c.found_by
		FROM (
			SELECT l.task_uuid, l.found_by
			FROM %s m
			CROSS JOIN LATERAL (%s) l
			ORDER BY l.found_by DESC NULLS LAST, l.task_uuid DESC LIMIT %s OFFSET %s
		) c
		JOIN tasker.tasks t ON t.task_uuid = c.task_uuid`,
		p.namespacesSQL(f, scope), p.foundSQL(f, by, where, limit+"::bigint + "+offset+"::bigint"), limit, offset)
	return sql, *p
}

// buildComparisons returns conditions on the attributes of task t.
func (p *parameters) buildComparisons(attributes []comparison) (list []string) {
	for _, c := range attributes {
		list = append(list, fmt.Sprintf(`EXISTS (
			SELECT FROM tasker.task_attributes b
			WHERE b.task_uuid = t.task_uuid AND b.namespace = t.namespace AND b.name = %s AND b.%s %s %s OFFSET 0)`, p.add(c.name), c.column, c.operator, p.add(c.value)))
	}
	return list
}

// namespacesSQL returns a FROM item with the namespaces that a filter selects.
func (p *parameters) namespacesSQL(f tasker.TaskFilter, scope access.Scope) string {
	switch {
	case f.Namespace != "" && scope.Has(f.Namespace):
		return "(SELECT " + p.add(f.Namespace) + "::text AS namespace)"
	case f.Namespace != "":
		return "(SELECT NULL::text AS namespace)"
	case !scope.IncludesAll():
		return "(SELECT unnest(" + p.add(scope.List()) + "::text[]) AS namespace)"
	default:
		return "(SELECT DISTINCT n.namespace FROM tasker.task_templates n)"
	}
}

// lastID is the greatest id. No task has it.
var lastID = tasker.ID(bytes.Repeat([]byte{0xff}, 16))

// idRange returns the range [first, end) of task ids that a filter allows.
func idRange(f tasker.TaskFilter) (first, end tasker.ID) {
	end = lastID
	if !f.CreatedAfter.IsZero() {
		first = firstIDAt(f.CreatedAfter.Add(-clockSlack))
	}
	if !f.CreatedBefore.IsZero() {
		end = firstIDAt(f.CreatedBefore.Add(clockSlack))
	}
	if f.Before != (tasker.ID{}) && bytes.Compare(f.Before[:], end[:]) < 0 {
		end = f.Before
	}
	return first, end
}

// foundSQL selects the newest tasks in namespace m by a seek. NULLS LAST makes the planner use the
// index of the seek.
func (p *parameters) foundSQL(f tasker.TaskFilter, by *searchPlan, where []string, limit string) string {
	byID := func(condition string) string {
		return "SELECT t.task_uuid, NULL AS found_by FROM tasker.tasks t WHERE t.namespace = m.namespace AND " + strings.Join(append([]string{condition}, where...), " AND ")
	}
	if by.name == idempotencyKey {
		return byID("t.idempotency_key = " + p.add(by.value))
	}
	joined := ""
	if len(where) > 0 {
		joined = "CROSS JOIN LATERAL (SELECT FROM tasker.tasks t WHERE t.task_uuid = a.task_uuid AND " + strings.Join(where, " AND ") + " OFFSET 0) t"
	}
	first, end := idRange(f)
	value, rank := p.add(by.value), "NULL"
	within := fmt.Sprintf("a.task_uuid >= %s AND a.task_uuid < %s", p.add(first), p.add(end))
	if by.isRange() {
		// The index of a range is ordered by value and does not restrict the ids. CASE keeps the
		// planner from assuming that few ids match and using another index.
		rank, within = "a."+by.column, "CASE WHEN "+within+" THEN true ELSE false END"
	}
	found := fmt.Sprintf(`
		SELECT a.task_uuid, %s AS found_by
		FROM tasker.task_attributes a
		%s
		WHERE a.namespace = m.namespace AND a.name = %s AND a.%[4]s %s %s AND %s
		ORDER BY a.%[4]s DESC, a.task_uuid DESC NULLS LAST
		LIMIT %[8]s`, rank, joined, p.add(by.name), by.column, by.operator, value, within, limit)
	if id, err := uuid.Parse(fmt.Sprint(by.value)); err == nil && by.name == correlationAttribute {
		// A task that was created without a correlation id uses its own id and has no attribute.
		return "(" + found + ") UNION ALL " + byID("t.task_uuid = "+p.add(id)+" AND t.correlation_id = "+value)
	}
	return found
}
