package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// Media types of a template document.
const (
	YAML = "application/yaml"
	JSON = "application/json"
)

// TemplateOption configures the registration of a template.
type TemplateOption int

// Strict rejects a template with ignored keys.
const Strict TemplateOption = 1

// RegisterTemplate registers a document with the content type [YAML] or [JSON]. Registering the
// same template again succeeds. Errors are Invalid, with the faults as details, or Conflict if
// the version exists with different content. Ignored keys are warnings in the response; [Strict]
// makes them faults.
func (c *Client) RegisterTemplate(ctx context.Context, doc []byte, contentType string, options ...TemplateOption) (apiv1.RegisteredTemplate, error) {
	r := newRequest(endpoint.RegisterTemplate, apiv1.RegisterTemplateQuery{Strict: slices.Contains(options, Strict)}, nil)
	r.body, r.doc, r.media = nil, doc, contentType
	return send[apiv1.RegisteredTemplate](ctx, c, r)
}

// Templates lists the templates of a namespace, or of all namespaces if it is empty.
func (c *Client) Templates(ctx context.Context, namespace string, p apiv1.Page) (apiv1.TemplateList, error) {
	return call(ctx, c, endpoint.ListTemplates, apiv1.NamespaceQuery{Namespace: namespace, Page: p}, none)
}

// Template returns one version of a template.
func (c *Client) Template(ctx context.Context, namespace, name, version string) (apiv1.TemplateDetail, error) {
	return call(ctx, c, endpoint.GetTemplate, none, none, namespace, name, version)
}

// RetireTemplate makes a template version reject new tasks. Existing tasks continue.
func (c *Client) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return call(ctx, c, endpoint.RetireTemplate, none, r, v.Namespace, v.Name, v.Version)
}

// UnretireTemplate makes a retired template version accept new tasks again.
func (c *Client) UnretireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return call(ctx, c, endpoint.UnretireTemplate, none, r, v.Namespace, v.Name, v.Version)
}

// ChangeVersion moves an open task to another version of its template, or only reports the
// effect. It returns a Conflict with all reasons as details if the change is not possible.
func (c *Client) ChangeVersion(ctx context.Context, task tasker.ID, r apiv1.ChangeVersion) (tasker.VersionChange, error) {
	return call(ctx, c, endpoint.ChangeVersion, none, r, task)
}

// ChangeTasks moves the open tasks of a version to another version, one batch at a time, or only
// counts them. To continue, set Before to the Next of the response; Next is nil after the last batch.
func (c *Client) ChangeTasks(ctx context.Context, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	return call(ctx, c, endpoint.ChangeTasks, none, r, v.Namespace, v.Name, v.Version)
}

// Health returns the version of the server if it responds.
func (c *Client) Health(ctx context.Context) (apiv1.Health, error) {
	return call(ctx, c, endpoint.Health, none, none)
}

// Ready returns whether the server is ready, with its checks, loops and components. If it is not,
// the error is Unavailable; the returned status is "not_ready" if the server responded. The
// request is not retried.
func (c *Client) Ready(ctx context.Context) (apiv1.Health, error) {
	var answer apiv1.Health
	err := c.do(ctx, request{method: http.MethodGet, path: []string{"health", "ready"}}, &answer)
	if e, ok := errors.AsType[*tasker.Error](err); ok && e.Code == tasker.Unavailable {
		if details, failed := json.Marshal(e.Details); failed == nil && json.Unmarshal(details, &answer) == nil && answer.Checks != nil {
			answer.Status = "not_ready"
		}
	}
	return answer, err
}
