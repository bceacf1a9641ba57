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
