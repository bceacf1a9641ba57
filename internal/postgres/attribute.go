package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
)

// Reserved attribute names, which templates cannot declare.
const (
	tagAttribute         = "tag"
	correlationAttribute = "correlation_id"
	initiatorAttribute   = "initiator"
	sourceAttribute      = "source_system"
)

// Attribute is a search attribute of a task. Exactly one value is set.
type Attribute struct {
	Name   string
	Text   *string // also "true" or "false" for a bool
	Number *string
	Time   *time.Time
}

type taskAttribute struct {
	task *CreatedTask
	Attribute
}

var attributeColumns = columns[taskAttribute]{
	col("task_uuid uuid", func(a *taskAttribute) tasker.ID { return a.task.UUID }),
	col("namespace text", func(a *taskAttribute) string { return a.task.Template.Namespace }),
	col("name text", func(a *taskAttribute) string { return a.Name }),
	col("text_value text", func(a *taskAttribute) *string { return a.Text }),
	col("number_value text", func(a *taskAttribute) *string { return a.Number }),
	col("time_value timestamptz", func(a *taskAttribute) *time.Time { return a.Time }),
}

var insertAttributes = `
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value, time_value)
SELECT u.task_uuid, u.namespace, u.name, u.text_value, u.number_value::numeric, u.time_value
FROM ` + attributeColumns.unnest("u", 1)

// attributesOf returns the attributes of a new task that tasker.tasks does not store.
func attributesOf(t *CreatedTask) (list []taskAttribute) {
	add := func(name, text string) {
		list = append(list, taskAttribute{t, Attribute{Name: name, Text: &text}})
	}
	for i, tag := range t.Request.Tags {
		if !slices.Contains(t.Request.Tags[:i], tag) {
			add(tagAttribute, tag)
		}
	}
	if t.Correlation != t.UUID.String() {
		add(correlationAttribute, t.Correlation)
	}
	if t.Request.Initiator != "" {
		add(initiatorAttribute, t.Request.Initiator)
	}
	if t.Request.SourceSystem != "" {
		add(sourceAttribute, t.Request.SourceSystem)
	}
	for _, a := range t.Attributes {
		list = append(list, taskAttribute{t, a})
	}
	return list
}

// attributesOfTask selects the declared attributes of task t in the form name:value of filters.
const attributesOfTask = `nullif(ARRAY(
    SELECT a.name || ':' || coalesce(a.text_value, a.number_value::text, to_char(a.time_value AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    FROM tasker.task_attributes a
    WHERE a.task_uuid = t.task_uuid AND a.name NOT IN ('` + tagAttribute + `', '` + correlationAttribute + `', '` + initiatorAttribute + `', '` + sourceAttribute + `')
    ORDER BY a.name
), '{}')`

// FindTasks is the kind of work that evaluates the attributes of tasks.
const FindTasks = "attributes"

// attributes_at is null if the step feeds no attribute, infinity if evaluation is not due, and
// otherwise the time when it became due.
const stepsToFind = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.attributes_at < 'infinity' AND s.attributes_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + FindTasks + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
ORDER BY s.attributes_at, s.task_uuid, s.step_uuid
LIMIT $1`

// StepsMissingAttributes returns steps whose tasks need their attributes evaluated, oldest first.
func (db *DB) StepsMissingAttributes(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsToFind, limit)
}

// TaskAttributes describes a task whose attributes must be evaluated.
type TaskAttributes struct {
	TaskUUID      tasker.ID
	TemplateUUID  tasker.ID
	Namespace     string
	Priority      int
	CorrelationID string
}

const tasksToFind = `
SELECT t.task_uuid, t.template_uuid, t.namespace, t.priority, t.correlation_id
FROM unnest($1::uuid[]) AS u (task_uuid)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
ORDER BY t.task_uuid`

// TasksToFind returns existing tasks by id. The caller holds their locks.
func (tx *Tx) TasksToFind(ctx context.Context, tasks []tasker.ID) ([]TaskAttributes, error) {
	list, err := collect[TaskAttributes](ctx, tx, tasksToFind, tasks)
	return list, wrap(err, "read tasks to evaluate their attributes")
}

// TaskAttributeSet collects the declared attributes of tasks that have a value.
type TaskAttributeSet struct {
	Names []TemplateStep // steps whose results attributes use

	tasks []tasker.ID
	list  []taskAttribute
}

// Add adds a task with its attributes.
func (f *TaskAttributeSet) Add(task tasker.ID, namespace string, list []Attribute) {
	f.tasks = append(f.tasks, task)
	t := &CreatedTask{UUID: task}
	t.Template.Namespace = namespace
	for _, a := range list {
		f.list = append(f.list, taskAttribute{t, a})
	}
}

// Unchanged rows are not written. $1 tasks, $2 reserved names; then the attributes.
var replaceAttributes = `
WITH found AS MATERIALIZED (
    SELECT u.task_uuid, u.namespace, u.name, u.text_value, u.number_value::numeric AS number_value, u.time_value
    FROM ` + attributeColumns.unnest("u", 3) + `
),
gone AS (
    DELETE FROM tasker.task_attributes a
    USING unnest($1::uuid[]) AS t (task_uuid)
    WHERE a.task_uuid = t.task_uuid AND a.name <> ALL ($2) AND NOT EXISTS (SELECT FROM found f WHERE ` + sameAttribute + `)
)
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value, number_value, time_value)
SELECT f.task_uuid, f.namespace, f.name, f.text_value, f.number_value, f.time_value
FROM found f
WHERE NOT EXISTS (SELECT FROM tasker.task_attributes a WHERE ` + sameAttribute + `)`

const sameAttribute = `a.task_uuid = f.task_uuid AND a.name = f.name
    AND (a.text_value, a.number_value, a.time_value) IS NOT DISTINCT FROM (f.text_value, f.number_value, f.time_value)`

const attributesAreFound = `
UPDATE tasker.workflow_steps s
SET attributes_at = CASE WHEN EXISTS (
    SELECT FROM tasker.tasks t
    JOIN unnest($3::uuid[], $4::text[]) AS n (template_uuid, name) ON n.template_uuid = t.template_uuid AND n.name = s.name
    WHERE t.task_uuid = s.task_uuid
) THEN timestamptz 'infinity' END
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.attributes_at < 'infinity'`

// ReplaceAttributes replaces the declared attributes of tasks. The caller holds the task locks.
func (tx *Tx) ReplaceAttributes(ctx context.Context, steps []tasker.StepRef, found TaskAttributeSet) error {
	reserved := []string{tagAttribute, correlationAttribute, initiatorAttribute, sourceAttribute}
	if _, err := tx.Exec(ctx, replaceAttributes, append([]any{found.tasks, reserved}, attributeColumns.arrays(found.list)...)...); err != nil {
		return fmt.Errorf("store the attributes of tasks: %w", err)
	}
	tasks, ids := refArrays(steps)
	templates, names := make([]tasker.ID, len(found.Names)), make([]string, len(found.Names))
	for i, n := range found.Names {
		templates[i], names[i] = n.TemplateUUID, n.Name
	}
	_, err := tx.Exec(ctx, attributesAreFound, tasks, ids, templates, names)
	return wrap(err, "mark attributes as evaluated")
}
