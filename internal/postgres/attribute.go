package postgres

import (
	"slices"

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

// An attribute is what a new task is found by.
type attribute struct {
	task *CreatedTask
	name string
	text string
}

// attributeColumns are an attribute as insertAttributes takes it.
var attributeColumns = columns[attribute]{
	col("task_uuid uuid", func(a *attribute) tasker.ID { return a.task.UUID }),
	col("namespace text", func(a *attribute) string { return a.task.Template.Namespace }),
	col("name text", func(a *attribute) string { return a.name }),
	col("text_value text", func(a *attribute) string { return a.text }),
}

var insertAttributes = `
INSERT INTO tasker.task_attributes (task_uuid, namespace, name, text_value)
SELECT u.task_uuid, u.namespace, u.name, u.text_value
FROM ` + attributeColumns.unnest("u", 1)

// attributesOf returns what a new task is found by beside what is in tasker.tasks: a
// correlation id that was made for it is its own id.
func attributesOf(t *CreatedTask) (list []attribute) {
	for i, tag := range t.Request.Tags {
		if !slices.Contains(t.Request.Tags[:i], tag) {
			list = append(list, attribute{t, tagAttribute, tag})
		}
	}
	if t.Correlation != t.UUID.String() {
		list = append(list, attribute{t, correlationAttribute, t.Correlation})
	}
	if t.Request.Initiator != "" {
		list = append(list, attribute{t, initiatorAttribute, t.Request.Initiator})
	}
	if t.Request.SourceSystem != "" {
		list = append(list, attribute{t, sourceAttribute, t.Request.SourceSystem})
	}
	return list
}
