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

// setFlag sets a parameter that is true.
func setFlag(v url.Values, name string, value bool) {
	if value {
		v.Set(name, "true")
	}
}

// setNumber sets a number that is more than 0.
func setNumber(v url.Values, name string, value int) {
	if value > 0 {
		v.Set(name, strconv.Itoa(value))
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
	query := url.Values{}
	setFlag(query, "strict", slices.Contains(options, Strict))
	return call[apiv1.RegisteredTemplate](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "templates"}, query: query, doc: doc, media: contentType, repeatable: true,
	})
}

// Templates lists the templates of a namespace, or of all when it is empty.
func (c *Client) Templates(ctx context.Context, namespace string, p Page) (apiv1.TemplateList, error) {
	query := p.values()
	setText(query, "namespace", namespace)
	return get[apiv1.TemplateList](ctx, c, query, "v1", "templates")
}

// Template returns one version of a template.
func (c *Client) Template(ctx context.Context, namespace, name, version string) (apiv1.TemplateDetail, error) {
	return get[apiv1.TemplateDetail](ctx, c, nil, "v1", "templates", namespace, name, version)
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
	return call[apiv1.Template](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "templates", v.Namespace, v.Name, v.Version, verb}, body: body, repeatable: true,
	})
}

// ChangeVersion brings an open task to another version of its template, or only says what that
// would do. The error is Conflict, with all reasons as details, when it cannot be done.
func (c *Client) ChangeVersion(ctx context.Context, task tasker.ID, r apiv1.ChangeVersion) (tasker.VersionChange, error) {
	return call[tasker.VersionChange](ctx, c, request{method: http.MethodPost, path: []string{"v1", "tasks", task.String(), "change_version"}, body: r, repeatable: true})
}

// ChangeTasks brings a part of the open tasks of a version to another one, or only counts how
// many could be. Next of the answer is Before of the next part; nil means that there is none.
func (c *Client) ChangeTasks(ctx context.Context, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	return call[apiv1.ChangedTasks](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "templates", v.Namespace, v.Name, v.Version, "change_tasks"}, body: r, repeatable: true,
	})
}

// Health says that the server answers, and which version it is of.
func (c *Client) Health(ctx context.Context) (apiv1.Health, error) {
	return get[apiv1.Health](ctx, c, nil, "health")
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

// get reads an answer of one type.
func get[T any](ctx context.Context, c *Client, query url.Values, path ...string) (T, error) {
	return call[T](ctx, c, request{method: http.MethodGet, path: path, query: query, repeatable: true})
}

// call sends a request whose answer has one type.
func call[T any](ctx context.Context, c *Client, r request) (answer T, err error) {
	err = c.do(ctx, r, &answer)
	return answer, err
}
