package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Template is a registered template without its graph.
type Template struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	Description string    `json:"description"`
	StepCount   int       `json:"step_count"`
	Checksum    string    `json:"checksum"`
	CreatedAt   time.Time `json:"created_at"`

	RetiredAt     *time.Time `json:"retired_at" doc:"Since when the version accepts no new tasks, or null."`
	RetiredBy     string     `json:"retired_by,omitempty"`
	RetiredReason string     `json:"retired_reason,omitempty"`
}

// RetireTemplate is the body of POST /v1/templates/{namespace}/{name}/{version}/retire, and of unretire.
type RetireTemplate struct {
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// TemplateList is the response of GET /v1/templates.
type TemplateList struct {
	Templates  []Template `json:"templates"`
	Pagination Pagination `json:"pagination"`
}

// TemplateDetail is a template with its graph, parsed (configuration) and as registered (source).
type TemplateDetail struct {
	Template
	Configuration json.RawMessage `json:"configuration"`
	Source        string          `json:"source"`
}

// RegisteredTemplate is the response of POST /v1/templates.
type RegisteredTemplate struct {
	Template
	Created  bool           `json:"created" doc:"False if the same template already existed."`
	Warnings []tasker.Fault `json:"warnings" doc:"Ignored keys of the document."`
}

// FromTemplate converts a template.
func FromTemplate(t tasker.StoredTemplate) Template {
	out := Template{
		Namespace: t.Namespace, Name: t.Name, Version: t.Version, Description: t.Description,
		StepCount: len(t.Steps), Checksum: t.Checksum, CreatedAt: t.CreatedAt.UTC(),
	}
	if r := t.Retired; r != nil {
		at := r.At.UTC()
		out.RetiredAt, out.RetiredBy, out.RetiredReason = &at, r.By, r.Reason
	}
	return out
}

// ChangeVersion is the body of POST /v1/tasks/{uuid}/change_version.
type ChangeVersion struct {
	ToVersion   string `json:"to_version" minLength:"1" maxLength:"64" doc:"New version of the template." flag:"to" usage:"target version (required)" why:"it is the target version"`
	FromVersion string `json:"from_version,omitempty" maxLength:"64" doc:"Expected current version. A different one is a CONFLICT." flag:"from" usage:"expected current version"`
	DryRun      bool   `json:"dry_run,omitempty" doc:"Only report the effect on its steps, or why the change is not possible."`
	Reason      string `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history. Required unless dry_run is set." flag:"-"`
	By          string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ChangeTasks is the body of POST /v1/templates/{namespace}/{name}/{version}/change_tasks.
type ChangeTasks struct {
	ToVersion string `json:"to_version" minLength:"1" maxLength:"64" doc:"New version of the template." flag:"to" usage:"target version (required)" why:"it is the target version"`
	DryRun    bool   `json:"dry_run,omitempty" doc:"Only count the tasks."`
	Before    string `json:"before,omitempty" format:"uuid" doc:"Start of the batch: next of the previous response. Default: the newest task."`
	Limit     int    `json:"limit,omitempty" minimum:"1" maximum:"100" doc:"Open tasks per batch. Default: 100."`
	Reason    string `json:"reason,omitempty" maxLength:"2000" doc:"Reason for the history. Required unless dry_run is set." flag:"-"`
	By        string `json:"by,omitempty" maxLength:"255" doc:"Actor."`
}

// ChangedTasks is the response of POST /v1/templates/{namespace}/{name}/{version}/change_tasks:
// the result of one batch.
type ChangedTasks struct {
	Looked  int                    `json:"looked" doc:"Examined tasks of the version, including ended ones."`
	Changed int                    `json:"changed" doc:"Changed open tasks. In a dry run, tasks that would change."`
	Refused int                    `json:"refused" doc:"Open tasks that cannot change."`
	Reasons map[string]int         `json:"reasons" doc:"Refused tasks by reason code. A task may have several."`
	Sample  []tasker.VersionChange `json:"sample" doc:"First refused tasks."`
	Next    *string                `json:"next" doc:"before of the next batch. Null at the end."`
}

// FromVersionChange returns c without nil lists.
func FromVersionChange(c tasker.VersionChange) tasker.VersionChange {
	c.Kept, c.Redefined, c.Added, c.Removed, c.Left = orEmpty(c.Kept), orEmpty(c.Redefined), orEmpty(c.Added), orEmpty(c.Removed), orEmpty(c.Left)
	c.Refusals = orEmpty(c.Refusals)
	return c
}

// FromVersionBatch converts the result of a batch.
func FromVersionBatch(b tasker.VersionBatch) ChangedTasks {
	return ChangedTasks{
		Looked: b.Looked, Changed: b.Changed, Refused: b.Refused, Reasons: toTextKeys(b.Reasons),
		Sample: convert(b.Sample, FromVersionChange), Next: idOrNull(&b.Next),
	}
}
