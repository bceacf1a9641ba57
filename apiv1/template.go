package apiv1

import (
	"encoding/json"
	"time"

	"tasker.example/tasker"
)

// Template is a template as it is registered, without its graph.
type Template struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	Description string    `json:"description"`
	StepCount   int       `json:"step_count"`
	Checksum    string    `json:"checksum"`
	CreatedAt   time.Time `json:"created_at"`

	RetiredAt     *time.Time `json:"retired_at" doc:"Since when no new tasks are made of this version. Null: they are."`
	RetiredBy     string     `json:"retired_by,omitempty"`
	RetiredReason string     `json:"retired_reason,omitempty"`
}

// RetireTemplate is the body of POST /v1/templates/{namespace}/{name}/{version}/retire, and of unretire.
type RetireTemplate struct {
	Reason string `json:"reason" minLength:"1" maxLength:"2000"`
	By     string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// TemplateList is the answer of GET /v1/templates.
type TemplateList struct {
	Templates  []Template `json:"templates"`
	Pagination Pagination `json:"pagination"`
}

// TemplateDetail is a template with its graph: as it is understood
// (configuration) and as it was written (source).
type TemplateDetail struct {
	Template
	Configuration json.RawMessage `json:"configuration"`
	Source        string          `json:"source"`
}

// RegisteredTemplate is the answer of POST /v1/templates.
type RegisteredTemplate struct {
	Template
	Created  bool           `json:"created" doc:"False when the same template was there already."`
	Warnings []tasker.Fault `json:"warnings" doc:"Keys of the document that have no effect."`
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
	ToVersion   string `json:"to_version" minLength:"1" maxLength:"64" doc:"The version of its template of which the task shall be."`
	FromVersion string `json:"from_version,omitempty" maxLength:"64" doc:"The version of which it is expected to be; another one is a CONFLICT."`
	DryRun      bool   `json:"dry_run,omitempty" doc:"Only say what would become of its steps, or why it cannot be done."`
	Reason      string `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the history; needed unless dry_run is set."`
	By          string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// ChangeTasks is the body of POST /v1/templates/{namespace}/{name}/{version}/change_tasks.
type ChangeTasks struct {
	ToVersion string `json:"to_version" minLength:"1" maxLength:"64" doc:"The version of which the tasks shall be."`
	DryRun    bool   `json:"dry_run,omitempty" doc:"Only count what could be done."`
	Before    string `json:"before,omitempty" format:"uuid" doc:"Where the part begins: next of the answer before. Absent: with the newest task."`
	Limit     int    `json:"limit,omitempty" minimum:"1" maximum:"100" doc:"Open tasks of one part; 100 when absent."`
	Reason    string `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the history; needed unless dry_run is set."`
	By        string `json:"by,omitempty" maxLength:"255" doc:"Who asks for it."`
}

// ChangedTasks is the answer to it: what became of a part of the tasks of a version.
type ChangedTasks struct {
	Looked  int                    `json:"looked" doc:"Tasks of the version that were looked at, ended ones among them."`
	Changed int                    `json:"changed" doc:"Open tasks that are of the new version now, or would be."`
	Refused int                    `json:"refused" doc:"Open tasks that stay as they are."`
	Reasons map[string]int         `json:"reasons" doc:"The refused tasks by the code of the reason; one may have several."`
	Sample  []tasker.VersionChange `json:"sample" doc:"The first that were refused."`
	Next    *string                `json:"next" doc:"Before of the next part. Null: this was the last."`
}

// FromVersionChange returns a change without null lists.
func FromVersionChange(c tasker.VersionChange) tasker.VersionChange {
	c.Kept, c.Redefined, c.Added, c.Removed, c.Left = orEmpty(c.Kept), orEmpty(c.Redefined), orEmpty(c.Added), orEmpty(c.Removed), orEmpty(c.Left)
	c.Refusals = orEmpty(c.Refusals)
	return c
}

// FromVersionBatch converts a part.
func FromVersionBatch(b tasker.VersionBatch) ChangedTasks {
	out := ChangedTasks{Looked: b.Looked, Changed: b.Changed, Refused: b.Refused, Reasons: map[string]int{}, Sample: []tasker.VersionChange{}}
	for code, n := range b.Reasons {
		out.Reasons[string(code)] = n
	}
	for _, c := range b.Sample {
		out.Sample = append(out.Sample, FromVersionChange(c))
	}
	if b.Next != (tasker.ID{}) {
		next := b.Next.String()
		out.Next = &next
	}
	return out
}
