package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// omittedColumns replaces the columns of a task that lists omit.
const omittedColumns = `NULL::jsonb AS context, NULL::text[] AS attributes`

// taskColumns lists the other columns of a task. The counts do not include items of map steps.
var taskColumns = `
    t.task_uuid AS uuid, t.template_uuid, t.namespace, t.name, t.version, t.state, t.state_since, coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, t.priority,
    t.initiator, t.source_system, t.reason, t.tags, t.correlation_id, t.parent_correlation_id,
    coalesce(t.idempotency_key, '') AS idempotency_key, t.recreated_from, t.parent_task_uuid, t.parent_step_uuid, t.start_at, t.created_at, t.updated_at, t.completed_at, t.options, ` + dueOfTask + ` AS due, t.ends_at AS max_duration_ends_at,
    n.total, n.pending, n.in_progress, n.completed, n.failed, n.ready, n.cancelled, n.skipped,
    d.dlq_entry_uuid IS NOT NULL AS dead_lettered, d.dlq_timestamp AS dead_lettered_at,
    coalesce(d.dlq_reason::text, '') AS dead_letter_reason, d.dlq_entry_uuid,
    coalesce(d.resolution_status::text, '') AS dead_letter_status, d.recovered_at AS dead_letter_recovered_at`

const taskSources = `
CROSS JOIN LATERAL (
    SELECT
        count(*) AS total,
        count(*) FILTER (WHERE s.state = 'pending') AS pending,
        count(*) FILTER (WHERE s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')) AS in_progress,
        count(*) FILTER (WHERE s.state IN ('complete', 'resolved_manually')) AS completed,
        count(*) FILTER (WHERE s.state = 'error') AS failed,
        count(*) FILTER (WHERE s.state = 'enqueued') AS ready,
        count(*) FILTER (WHERE s.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE s.state = 'skipped') AS skipped
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = t.task_uuid AND s.map_step_uuid IS NULL
) n
LEFT JOIN LATERAL (
    SELECT q.dlq_entry_uuid, q.dlq_timestamp, q.dlq_reason, q.resolution_status, q.recovered_at
    FROM tasker.tasks_dlq q
    WHERE q.task_uuid = t.task_uuid AND q.resolution_status IN ('pending', 'permanently_failed')
    ORDER BY q.dlq_timestamp DESC
    LIMIT 1
) d ON true`

// taskRow contains a task and the columns of its nested structs.
type taskRow struct {
	tasker.Task
	tasker.StepCounts
	tasker.DeadLetter
}

func (r taskRow) toTask() tasker.Task {
	r.Counts, r.Task.DeadLetter = r.StepCounts, r.DeadLetter
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
	chosen, args, order := buildTaskQuery(f, scope, by, attributes)
	// The page is selected first, so that steps are counted only for its tasks.
	rows, more, err := queryPage[taskRow](ctx, db.pool, f.Limit, "list tasks", fmt.Sprintf(`
		SELECT %s, %s
		FROM (%s) t
		%s
		ORDER BY %s`, omittedColumns, taskColumns, chosen, taskSources, order), args...)
	return mapSlice(rows, taskRow.toTask), more, err
}

// buildTaskQuery selects the tasks of a page and one more, by the index that suits the filter. It
// returns the query, its arguments and its order.
func buildTaskQuery(f tasker.TaskFilter, scope access.Scope, by *searchPlan, attributes []comparison) (sql string, args []any, order string) {
	order = "t.task_uuid DESC"
	switch {
	case f.Parent != (tasker.ID{}):
		sql, args = buildChildrenPage(f, scope, attributes)
	case f.ByDueTime():
		sql, args = buildDuePage(f, scope, attributes)
		order = "t.due_at, t.task_uuid"
	case by != nil:
		sql, args = buildSearchPage(f, scope, by)
		order = "t.found_by DESC NULLS LAST, " + order
	default:
		sql, args = buildTasksPage(f, scope, attributes)
	}
	return sql, args, order
}

// buildTasksPage selects a page by state, phase or template. Filters are index ranges in index
// order, so that the planner does not scan all finished tasks for a few live ones. If the filter
// combines a final state with a template, it reads the newest tasks of each template, unless it
// also contains tags, attributes or sources.
func buildTasksPage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := parameters{}
	limit, offset := p.add(f.Limit+1), p.add(f.Offset)
	where := append([]string{"true"}, p.buildConditions(f, nil)...)
	where = append(where, p.buildComparisons(attributes)...)
	few := len(attributes) > 0 || len(f.Tags) > 0 || f.SourceSystem+f.Initiator != ""
	var of []string // conditions on the template
	if !scope.IncludesAll() {
		of = append(of, "namespace = ANY ("+p.add(scope.List())+")")
	}
	if f.Namespace != "" {
		of = append(of, "namespace = "+p.add(f.Namespace))
	}
	if f.Name != "" {
		of = append(of, "name = "+p.add(f.Name))
	}
	if final := slices.Contains(finalStates, f.State); final && len(of) > 0 && !few {
		where = append(where, "t.state = "+p.add(string(f.State)))
		f.State = ""
	}
	key, value := "state", string(f.State)
	if value == "" {
		key, value = "phase", string(f.Phase)
	}
	switch {
	case value != "":
		for _, condition := range of {
			where = append(where, "t."+condition)
		}
		return fmt.Sprintf(`SELECT t.* FROM tasker.tasks t WHERE t.%[5]s BETWEEN %[4]s AND %[4]s AND %[1]s ORDER BY t.%[5]s, t.task_uuid DESC LIMIT %[2]s OFFSET %[3]s`,
			strings.Join(where, " AND "), limit, offset, p.add(value), key), p
	case len(of) > 0:
		return fmt.Sprintf(`
			SELECT t.*
			FROM (
				SELECT l.task_uuid
				FROM tasker.task_templates m
				CROSS JOIN LATERAL (
					SELECT t.task_uuid
					FROM tasker.tasks t
					WHERE t.template_uuid BETWEEN m.template_uuid AND m.template_uuid AND %s
					ORDER BY t.template_uuid, t.task_uuid DESC
					LIMIT %[2]s::bigint + %[3]s::bigint
				) l
				WHERE m.%[4]s
				ORDER BY l.task_uuid DESC LIMIT %[2]s OFFSET %[3]s
			) c
			JOIN tasker.tasks t ON t.task_uuid = c.task_uuid`,
			strings.Join(where, " AND "), limit, offset, strings.Join(of, " AND m.")), p
	default:
		return fmt.Sprintf(`SELECT t.* FROM tasker.tasks t WHERE %s ORDER BY t.task_uuid DESC LIMIT %s OFFSET %s`,
			strings.Join(where, " AND "), limit, offset), p
	}
}

// buildChildrenPage selects a page of the child tasks of a task.
func buildChildrenPage(f tasker.TaskFilter, scope access.Scope, attributes []comparison) (sql string, args []any) {
	p := &parameters{}
	limit, offset := p.add(f.Limit+1), p.add(f.Offset)
	where := append([]string{"t.parent_task_uuid = " + p.add(f.Parent)}, p.buildConditions(f, nil)...)
	where = append(where, p.buildComparisons(attributes)...)
	if f.ByDueTime() {
		where = append(where, p.dueBeforeSQL(f))
	}
	if f.State != "" {
		where = append(where, "t.state = "+p.add(string(f.State)))
	}
	if f.Namespace != "" {
		where = append(where, "t.namespace = "+p.add(f.Namespace))
	}
	if f.Name != "" {
		where = append(where, "t.name = "+p.add(f.Name))
	}
	if !scope.IncludesAll() {
		where = append(where, "t.namespace = ANY ("+p.add(scope.List())+")")
	}
	return fmt.Sprintf(`SELECT t.* FROM tasker.tasks t WHERE %s ORDER BY t.task_uuid DESC LIMIT %s OFFSET %s`, strings.Join(where, " AND "), limit, offset), *p
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
