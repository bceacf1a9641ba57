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

// is returns the condition that a column of task t has a value. It returns none if the value is
// empty.
func (p *parameters) is(column, value string) []string {
	if value == "" {
		return nil
	}
	return []string{"t." + column + " = " + p.add(value)}
}

// addConditions adds conditions to a statement where it has a comment with the name.
func addConditions(base, name string, conditions []string) string {
	mark := " /* " + name + " */"
	if len(conditions) == 0 {
		return strings.Replace(base, mark, "", 1)
	}
	return strings.Replace(base, mark, " AND "+strings.Join(conditions, " AND "), 1)
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
	list, err := collectColumn[string](ctx, db.pool, statement("sortTagsByRarity"), f.Tags, fewTasks+1, namespacesOf(f, scope))
	return list, wrapError(err, "count the tasks of tags")
}

// buildConditions returns the conditions of a filter, except those on state, namespace and name and
// the seek.
func (p *parameters) buildConditions(f tasker.TaskFilter, found *searchPlan) (list []string) {
	is := func(name, column, value string) {
		if found == nil || found.name != name {
			list = append(list, p.is(column, value)...)
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
	p := parameters{f.Limit + 1, f.Offset, namespacesOf(f, scope)}
	found := ""
	switch by.name {
	case idempotencyKey:
		sql, p = statement("tasksByKey"), append(p, by.value)
	case correlationAttribute:
		var own any
		if id, err := uuid.Parse(fmt.Sprint(by.value)); err == nil {
			own = id
		}
		sql, p = statement("tasksByCorrelation"), append(p, by.value, own)
	default:
		switch by.column {
		case "text_value":
			sql = statement("tasksByText")
		case "number_value":
			sql = statement("tasksByNumber")
		default:
			sql = statement("tasksByTime")
		}
		p = append(p, by.name)
		found = "a." + by.column + " " + by.operator + " " + p.add(by.value)
	}
	conditions := append(p.buildConditions(f, by), p.buildComparisons(by.rest)...)
	conditions = append(append(conditions, p.is("state", string(f.State))...), p.is("name", f.Name)...)
	if by.name == idempotencyKey {
		return addConditions(sql, "conditions", conditions), p
	}
	first, end := idRange(f)
	within := fmt.Sprintf("a.task_uuid >= %s AND a.task_uuid < %s", p.add(first), p.add(end))
	if by.isRange() {
		// The index of a range is ordered by value and does not restrict the ids. CASE keeps the
		// planner from assuming that few ids match and using another index.
		within = "CASE WHEN " + within + " THEN true ELSE false END"
	}
	attribute := append([]string{within}, onTask("a", conditions)...)
	if found != "" {
		attribute = append(attribute, found)
	}
	return addConditions(addConditions(sql, "conditions", attribute), "tasks", conditions), p
}

// onTask returns a condition that the task of a row fulfills conditions on task t. It returns none
// for no conditions.
func onTask(row string, conditions []string) []string {
	if len(conditions) == 0 {
		return nil
	}
	return []string{"EXISTS (SELECT FROM tasker.tasks t WHERE t.task_uuid = " + row + ".task_uuid AND " + strings.Join(conditions, " AND ") + " OFFSET 0)"}
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

// namespacesOf returns the namespaces that a filter selects, or nil for all.
func namespacesOf(f tasker.TaskFilter, scope access.Scope) []string {
	if f.Namespace != "" {
		scope = scope.Intersect(access.NamespaceScope(f.Namespace))
	}
	return scope.List()
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
