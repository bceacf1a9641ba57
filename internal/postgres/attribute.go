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

// Attribute is a search attribute of a task. Exactly one of the values is set.
type Attribute struct {
	Name   string
	Text   *string // "true" or "false" for a bool
	Number *string
	Time   *time.Time
}

type taskAttribute struct {
	task *CreatedTask
	Attribute
}

var attributeColumns = columns[taskAttribute]{
	newColumn("task_uuid uuid", func(a *taskAttribute) tasker.ID { return a.task.UUID }),
	newColumn("namespace text", func(a *taskAttribute) string { return a.task.Template.Namespace }),
	newColumn("name text", func(a *taskAttribute) string { return a.Name }),
	newColumn("text_value text", func(a *taskAttribute) *string { return a.Text }),
	newColumn("number_value text", func(a *taskAttribute) *string { return a.Number }),
	newColumn("time_value timestamptz", func(a *taskAttribute) *time.Time { return a.Time }),
}

// collectAttributes returns the attributes of a new task that are not stored in tasker.tasks.
func collectAttributes(t *CreatedTask) (list []taskAttribute) {
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

// FindTasks is the kind of work that evaluates search attributes.
const FindTasks = "attributes"

// StepsMissingAttributes returns steps whose tasks need their attributes evaluated, oldest first.
func (db *DB) StepsMissingAttributes(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsToFind"), limit)
}

// TaskAttributes describes a task whose attributes must be evaluated.
type TaskAttributes struct {
	TaskUUID      tasker.ID
	TemplateUUID  tasker.ID
	Namespace     string
	Priority      int
	CorrelationID string
}

// TasksToFind returns those of the tasks that exist. The caller must hold their locks.
func (tx *Tx) TasksToFind(ctx context.Context, tasks []tasker.ID) ([]TaskAttributes, error) {
	list, err := collect[TaskAttributes](ctx, tx, statement("tasksToFind"), tasks)
	return list, wrapError(err, "read tasks to evaluate their attributes")
}

// TaskAttributeSet collects declared attributes that have a value, for several tasks.
type TaskAttributeSet struct {
	Names []TemplateStep // steps whose results are used by attributes

	tasks []tasker.ID
	list  []taskAttribute
}

// Add adds a task and its attributes.
func (f *TaskAttributeSet) Add(task tasker.ID, namespace string, list []Attribute) {
	f.tasks = append(f.tasks, task)
	t := &CreatedTask{UUID: task}
	t.Template.Namespace = namespace
	for _, a := range list {
		f.list = append(f.list, taskAttribute{t, a})
	}
}

// ReplaceAttributes replaces the declared attributes of tasks. The caller must hold the task locks.
func (tx *Tx) ReplaceAttributes(ctx context.Context, steps []tasker.StepRef, found TaskAttributeSet) error {
	reserved := []string{tagAttribute, correlationAttribute, initiatorAttribute, sourceAttribute}
	if _, err := tx.Exec(ctx, statement("replaceAttributes"), append([]any{found.tasks, reserved}, attributeColumns.toArrays(found.list)...)...); err != nil {
		return fmt.Errorf("store the attributes of tasks: %w", err)
	}
	tasks, ids := toRefArrays(steps)
	templates, names := make([]tasker.ID, len(found.Names)), make([]string, len(found.Names))
	for i, n := range found.Names {
		templates[i], names[i] = n.TemplateUUID, n.Name
	}
	_, err := tx.Exec(ctx, statement("attributesAreFound"), tasks, ids, templates, names)
	return wrapError(err, "mark attributes as evaluated")
}
