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

// Media types of a template document.
const (
	YAML = "application/yaml"
	JSON = "application/json"
)

// TemplateOption configures the registration of a template.
type TemplateOption int

// Strict rejects a template with ignored keys.
const Strict TemplateOption = 1

// Page selects a part of a list. Zero values mean the server's defaults.
type Page struct {
	Limit  int
	Offset int
}

func (p Page) toValues() url.Values {
	v := url.Values{}
	if p.Limit != 0 {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Offset != 0 {
		v.Set("offset", strconv.Itoa(p.Offset))
	}
	return v
}

func setText(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func setFlag(v url.Values, name string, value bool) {
	if value {
		v.Set(name, "true")
	}
}

func setNumber(v url.Values, name string, value int) {
	if value > 0 {
		v.Set(name, strconv.Itoa(value))
	}
}

func setTime(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// RegisterTemplate registers a document with the content type [YAML] or [JSON]. Registering the
// same template again succeeds. Errors are Invalid, with the faults as details, or Conflict if
// the version exists with different content. Ignored keys are warnings in the response; [Strict]
// makes them faults.
func (c *Client) RegisterTemplate(ctx context.Context, doc []byte, contentType string, options ...TemplateOption) (apiv1.RegisteredTemplate, error) {
	query := url.Values{}
	setFlag(query, "strict", slices.Contains(options, Strict))
	return call[apiv1.RegisteredTemplate](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "templates"}, query: query, doc: doc, media: contentType, repeatable: true,
	})
}

// Templates lists the templates of a namespace, or of all namespaces if it is empty.
func (c *Client) Templates(ctx context.Context, namespace string, p Page) (apiv1.TemplateList, error) {
	query := p.toValues()
	setText(query, "namespace", namespace)
	return get[apiv1.TemplateList](ctx, c, query, "v1", "templates")
}

// Template returns one version of a template.
func (c *Client) Template(ctx context.Context, namespace, name, version string) (apiv1.TemplateDetail, error) {
	return get[apiv1.TemplateDetail](ctx, c, nil, "v1", "templates", namespace, name, version)
}

// RetireTemplate makes a template version reject new tasks. Existing tasks continue.
func (c *Client) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return c.changeTemplate(ctx, v, "retire", r)
}

// UnretireTemplate makes a retired template version accept new tasks again.
func (c *Client) UnretireTemplate(ctx context.Context, v tasker.TemplateVersion, r apiv1.RetireTemplate) (apiv1.Template, error) {
	return c.changeTemplate(ctx, v, "unretire", r)
}

func (c *Client) changeTemplate(ctx context.Context, v tasker.TemplateVersion, verb string, body any) (apiv1.Template, error) {
	return sendRepeatable[apiv1.Template](ctx, c, http.MethodPost, body,
		"v1", "templates", v.Namespace, v.Name, v.Version, verb)
}

// ChangeVersion moves an open task to another version of its template, or only reports the
// effect. It returns a Conflict with all reasons as details if the change is not possible.
func (c *Client) ChangeVersion(ctx context.Context, task tasker.ID, r apiv1.ChangeVersion) (tasker.VersionChange, error) {
	return sendRepeatable[tasker.VersionChange](ctx, c, http.MethodPost, r,
		"v1", "tasks", task.String(), "change_version")
}

// ChangeTasks moves the open tasks of a version to another version, one batch at a time, or only
// counts them. To continue, set Before to the Next of the response; Next is nil after the last batch.
func (c *Client) ChangeTasks(ctx context.Context, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	return sendRepeatable[apiv1.ChangedTasks](ctx, c, http.MethodPost, r,
		"v1", "templates", v.Namespace, v.Name, v.Version, "change_tasks")
}

// Health returns the version of the server if it responds.
func (c *Client) Health(ctx context.Context) (apiv1.Health, error) {
	return get[apiv1.Health](ctx, c, nil, "health")
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

func get[T any](ctx context.Context, c *Client, query url.Values, path ...string) (T, error) {
	return call[T](ctx, c, request{method: http.MethodGet, path: path, query: query, repeatable: true})
}

// send sends a request that must not be applied twice.
func send[T any](ctx context.Context, c *Client, method string, body any, path ...string) (T, error) {
	return call[T](ctx, c, request{method: method, path: path, body: body})
}

// sendRepeatable sends a request that has the same effect when it is applied twice.
func sendRepeatable[T any](ctx context.Context, c *Client, method string, body any, path ...string) (T, error) {
	return call[T](ctx, c, request{method: method, path: path, body: body, repeatable: true})
}

// sendKeyed sends a request with a new idempotency key, so that the server applies it once.
func sendKeyed[T any](ctx context.Context, c *Client, method string, body any, path ...string) (T, error) {
	return call[T](ctx, c, request{method: method, path: path, body: body, repeatable: true, key: tasker.NewID().String()})
}

// call sends r and decodes the response into a T.
func call[T any](ctx context.Context, c *Client, r request) (answer T, err error) {
	err = c.do(ctx, r, &answer)
	return answer, err
}
