package postgres

import (
	"context"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// taskRow contains a task and its column with options.
type taskRow struct {
	tasker.Task
	Options *tasker.TaskOptions
}

func (r taskRow) toTask() tasker.Task {
	if r.Options != nil {
		r.TaskOptions = *r.Options
	}
	r.Describe()
	return r.Task
}

// Task returns a task, or NotFound.
func (db *DB) Task(ctx context.Context, id tasker.ID) (tasker.Task, error) {
	row, err := queryOne[taskRow](ctx, db.pool, statement("selectTask"), id)
	if err != nil {
		return tasker.Task{}, fmt.Errorf("read task: %w", err)
	}
	if row == nil || !access.ScopeFromContext(ctx).Has(row.Namespace) {
		return tasker.Task{}, newTaskNotFoundError(id)
	}
	t := row.toTask()
	access.RedactTask(ctx, &t)
	return t, nil
}

// SettledTasks returns those of the tasks that are settled, see [tasker.Task.Settled], or do not
// exist.
func (db *DB) SettledTasks(ctx context.Context, tasks []tasker.ID) ([]tasker.ID, error) {
	return collectColumn[tasker.ID](ctx, db.pool, statement("settledTasks"), tasks)
}

func newTaskNotFoundError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "task %s not found", id)
}

// Tasks lists tasks without their contexts and reports whether there are more. The newest come
// first, unless the filter is by due time or by a range of an attribute.
func (db *DB) Tasks(ctx context.Context, f tasker.TaskFilter) (list []tasker.Task, more bool, err error) {
	attributes, err := buildComparisons(ctx, db.pool, f.Namespace, f.Attributes)
	if err != nil {
		return nil, false, err
	}
	scope := access.ScopeFromContext(ctx)
	if len(attributes) > 0 {
		scope = scope.Intersect(access.PayloadScopeFromContext(ctx)) // attributes are parts of payloads
	}
	if f.Tags, err = db.sortRarestFirst(ctx, f, scope); err != nil {
		return nil, false, err
	}
	by := newSearchPlan(f, attributes)
	if f.Before != (tasker.ID{}) && f.Parent == (tasker.ID{}) && (f.ByDueTime() || by != nil && by.isRange()) {
		return nil, false, tasker.Errorf(tasker.Invalid, "before: cannot be used with an attribute range, "+
			"due_before or overdue, whose lists are not ordered by creation: use offset")
	}
	few, err := db.shouldReadState(ctx, f, by)
	if err != nil {
		return nil, false, err
	}
	if few {
		by = nil
	}
	// The page is selected first, so that steps are counted only for its tasks. A task that changes
	// in between has its new state.
	sql, args := buildTaskQuery(f, scope, by, attributes)
	page, err := collectColumn[tasker.ID](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("select a page of tasks: %w", err)
	}
	page, more = trimPage(page, f.Limit)
	rows, err := collect[taskRow](ctx, db.pool, statement("selectTasks"), page)
	return mapSlice(rows, taskRow.toTask), more, wrapError(err, "list tasks")
}

// buildTaskQuery selects the tasks of a page and one more, by the index that suits the filter. Its
// conditions are added in Go: as optional conditions of one statement they would lose this index.
func buildTaskQuery(f tasker.TaskFilter, scope access.Scope, by *searchPlan, attributes []comparison) (sql string, args []any) {
	switch {
	case f.Parent != (tasker.ID{}):
		return buildChildrenPage(f, scope, attributes)
	case f.ByDueTime():
		return buildDuePage(f, scope, attributes)
	case by != nil:
		return buildSearchPage(f, scope, by)
	default:
		return buildTasksPage(f, scope, attributes)
	}
}

// buildTasksPage selects a page by state, phase or template. Filters are index ranges in index
// order, so that the planner does not scan all finished tasks for a few live ones. If the filter
// combines a final state with a template, it reads the newest tasks of each template, unless it
// also contains tags, attributes or sources.
func buildTasksPage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := parameters{f.Limit + 1, f.Offset}
	few := len(attributes) > 0 || len(f.Tags) > 0 || f.SourceSystem+f.Initiator != ""
	final := slices.Contains(finalStates, f.State) && !few && (!scope.IncludesAll() || f.Namespace+f.Name != "")
	byState := f.State != "" && !final
	switch {
	case byState:
		sql, p = statement("tasksByState"), append(p, string(f.State))
	case f.Phase != "":
		sql, p = statement("tasksByPhase"), append(p, string(f.Phase))
	case !scope.IncludesAll() || f.Namespace+f.Name != "":
		sql, p = statement("tasksOfTemplates"), append(p, namespacesOf(f, scope), f.Name)
		f.Namespace, f.Name, scope = "", "", access.EverywhereScope()
	default:
		sql = statement("allTasks")
	}
	conditions := append(p.buildConditions(f, nil), p.buildComparisons(attributes)...)
	if !byState {
		conditions = append(conditions, p.is("state", string(f.State))...)
	}
	conditions = append(conditions, p.buildPlaceConditions(f, scope)...)
	return addConditions(sql, "conditions", conditions), p
}

// buildPlaceConditions returns the conditions of a filter and a scope on the namespace and name of
// task t.
func (p *parameters) buildPlaceConditions(f tasker.TaskFilter, scope access.Scope) (list []string) {
	if !scope.IncludesAll() {
		list = append(list, "t.namespace = ANY ("+p.add(scope.List())+")")
	}
	return append(append(list, p.is("namespace", f.Namespace)...), p.is("name", f.Name)...)
}

// buildChildrenPage selects a page of the child tasks of a task.
func buildChildrenPage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := parameters{f.Limit + 1, f.Offset, f.Parent}
	conditions := append(p.buildConditions(f, nil), p.buildComparisons(attributes)...)
	if f.ByDueTime() {
		conditions = append(conditions, "EXISTS (SELECT FROM tasker.deadlines d WHERE d.task_uuid = t.task_uuid AND d.ended_at IS NULL AND "+
			"d.step_uuid = "+wholeTask+" AND d.due_at < least("+p.add(nilIfZeroTime(f.DueBefore))+"::timestamptz, CASE WHEN "+
			p.add(f.Overdue)+"::bool THEN now() END))")
	}
	conditions = append(append(conditions, p.is("state", string(f.State))...), p.buildPlaceConditions(f, scope)...)
	return addConditions(statement("childTasks"), "conditions", conditions), p
}

// finalStates lists the states in which tasks accumulate as history.
var finalStates = []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled, tasker.TaskResolvedManually}

// trimPage truncates rows to limit and reports whether there were more. The caller reads limit+1
// rows.
func trimPage[T any](rows []T, limit int) (list []T, more bool) {
	return rows[:min(len(rows), limit)], len(rows) > limit
}

// IdempotencyKey identifies a request in a namespace.
type IdempotencyKey struct {
	Namespace string
	Key       string
}

// KeyHolder is the task that has an idempotency key, and the digest of the request that created it.
type KeyHolder struct {
	IdempotencyKey
	TaskUUID      tasker.ID
	RequestDigest []byte
}

// KeyHolders returns the tasks that have any of the keys.
func (db *DB) KeyHolders(ctx context.Context, keys []IdempotencyKey) ([]KeyHolder, error) {
	return findKeyHolders(ctx, db.pool, keys)
}

// KeyHolders is [DB.KeyHolders] within the transaction.
func (tx *Tx) KeyHolders(ctx context.Context, keys []IdempotencyKey) ([]KeyHolder, error) {
	return findKeyHolders(ctx, tx, keys)
}

func findKeyHolders(ctx context.Context, q querier, keys []IdempotencyKey) ([]KeyHolder, error) {
	namespaces, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		namespaces[i], names[i] = k.Namespace, k.Key
	}
	list, err := collect[KeyHolder](ctx, q, statement("keyHolders"), namespaces, names)
	return list, wrapError(err, "find idempotency keys")
}
