package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// The media types of a template document.
const (
	YAML = "application/yaml"
	JSON = "application/json"
)

// A TemplateOption changes how a template is registered.
type TemplateOption int

// Strict refuses a template that has keys without effect.
const Strict TemplateOption = 1

// A Page selects a part of a list. Zero means the server's default.
type Page struct {
	Limit  int
	Offset int
}

func (p Page) values() url.Values {
	v := url.Values{}
	if p.Limit != 0 {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Offset != 0 {
		v.Set("offset", strconv.Itoa(p.Offset))
	}
	return v
}

// setText sets a parameter unless it is empty.
func setText(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

// setTime sets an instant that is not zero.
func setTime(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// RegisterTemplate registers a document; contentType is [YAML] or [JSON]. The
// same template once more is no error. The error is Invalid with the faults as
// details, or Conflict when the version exists with another content. Keys without effect
// are warnings in the answer; [Strict] makes them faults.
func (c *Client) RegisterTemplate(ctx context.Context, doc []byte, contentType string, options ...TemplateOption) (apiv1.RegisteredTemplate, error) {
	var answer apiv1.RegisteredTemplate
	query := url.Values{}
	if slices.Contains(options, Strict) {
		query.Set("strict", "true")
	}
	err := c.do(ctx, request{
		method: http.MethodPost, path: []string{"v1", "templates"}, query: query, doc: doc, media: contentType, repeatable: true,
	}, &answer)
	return answer, err
}

// Templates lists the templates of a namespace, or of all when it is empty.
func (c *Client) Templates(ctx context.Context, namespace string, p Page) (apiv1.TemplateList, error) {
	query := p.values()
	setText(query, "namespace", namespace)
	var answer apiv1.TemplateList
	err := c.get(ctx, &answer, query, "v1", "templates")
	return answer, err
}

// Template returns one version of a template.
func (c *Client) Template(ctx context.Context, namespace, name, version string) (apiv1.TemplateDetail, error) {
	var answer apiv1.TemplateDetail
	err := c.get(ctx, &answer, nil, "v1", "templates", namespace, name, version)
	return answer, err
}

// RetireTemplate has no new tasks made of a version of a template. Tasks that use it go on.
func (c *Client) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return c.changeTemplate(ctx, v, "retire", r)
}

// UnretireTemplate has new tasks made of a retired version of a template again.
func (c *Client) UnretireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return c.changeTemplate(ctx, v, "unretire", r)
}

func (c *Client) changeTemplate(ctx context.Context, v tasker.TemplateVersion, verb string, body any) (apiv1.Template, error) {
	var answer apiv1.Template
	err := c.do(ctx, request{
		method: http.MethodPost, path: []string{"v1", "templates", v.Namespace, v.Name, v.Version, verb}, body: body, repeatable: true,
	}, &answer)
	return answer, err
}

// ChangeVersion brings an open task to another version of its template, or only says what that
// would do. The error is Conflict, with all reasons as details, when it cannot be done.
func (c *Client) ChangeVersion(ctx context.Context, task tasker.ID, r apiv1.ChangeVersion) (apiv1.VersionChange, error) {
	var answer apiv1.VersionChange
	err := c.do(ctx, request{method: http.MethodPost, path: []string{"v1", "tasks", task.String(), "change_version"}, body: r, repeatable: true}, &answer)
	return answer, err
}

// ChangeTasks brings a part of the open tasks of a version to another one, or only counts how
// many could be. Next of the answer is Before of the next part; nil means that there is none.
func (c *Client) ChangeTasks(ctx context.Context, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	var answer apiv1.ChangedTasks
	err := c.do(ctx, request{
		method: http.MethodPost, path: []string{"v1", "templates", v.Namespace, v.Name, v.Version, "change_tasks"}, body: r, repeatable: true,
	}, &answer)
	return answer, err
}

// Health says that the server answers, and which version it is of.
func (c *Client) Health(ctx context.Context) (apiv1.Health, error) {
	var answer apiv1.Health
	err := c.get(ctx, &answer, nil, "health")
	return answer, err
}

// Ready says whether the server can do its work, with its checks, loops and
// components. When it cannot, the error is Unavailable, and the status of what is
// returned is "not_ready", unless the server could not be asked. It is asked once.
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

func (c *Client) get(ctx context.Context, answer any, query url.Values, path ...string) error {
	return c.do(ctx, request{method: http.MethodGet, path: path, query: query, repeatable: true}, answer)
}
