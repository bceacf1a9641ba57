package postgres

import (
	"slices"
	"time"

	"tasker.example/tasker"
)

// The names under which what every task has is kept in tasker.task_attributes. No template
// can declare them.
const (
	tagAttribute         = "tag"
	correlationAttribute = "correlation_id"
	initiatorAttribute   = "initiator"
	sourceAttribute      = "source_system"
)

// An Attribute is a value by which a task is found; one of the three.
type Attribute struct {
	Name   string
	Text   *string // of a bool it is true or false
	Number *string
	Time   *time.Time
}

// A taskAttribute is an attribute of a new task.
type taskAttribute struct {
	task *CreatedTask
	Attribute
}

// attributeColumns are an attribute as insertAttributes takes it.
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

// attributesOf returns what a new task is found by beside what is in tasker.tasks: a
// correlation id that was made for it is its own id.
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
