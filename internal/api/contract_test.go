package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A contract is a transport that fails the test when an answer does not fit the OpenAPI document.
type contract struct {
	testing.TB
	next http.RoundTripper
}

// RoundTrip passes the request on and checks the answer: its status, its content type, its
// headers and its body.
func (c contract) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	where := fmt.Sprintf("%s %s answered %d", r.Method, r.URL.Path, answer.StatusCode)
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.ContentLength != 0 && err != nil {
		c.Errorf("%s with the content type %q: %v", where, answer.Header.Get("Content-Type"), err)
	}
	if media == "text/event-stream" || r.Method == http.MethodHead {
		return answer, nil
	}
	doc, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(doc), failing{err}), io.NopCloser(nil)}
	if err != nil {
		return answer, nil //nolint:nilerr // the reader of the body gets the error
	}
	if err := published().check(r, answer, media, doc); err != nil {
		c.Errorf("%s, against its OpenAPI document: %v\n%.2000s", where, err, doc)
	}
	return answer, nil
}

// failing ends a body with the error that ended the original.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// An serveOpenAPI is the OpenAPI document with its schemas compiled.
type openAPI struct {
	Paths map[string]map[string]operation

	mux      *http.ServeMux
	byRoute  map[string]operation
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	answered map[string]map[string]bool // statuses by route
}

type operation struct {
	Responses map[string]struct {
		Headers map[string]any
		Content map[string]struct{ Schema any }
	}
}

// published is the document of all servers.
var published = sync.OnceValue(func() *openAPI {
	doc := document()
	d := &openAPI{mux: http.NewServeMux(), byRoute: map[string]operation{}, compiler: jsonschema.NewCompiler(), answered: map[string]map[string]bool{}}
	if err := json.Unmarshal(doc, d); err != nil {
		panic(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		panic(err)
	}
	closeSchemas(parsed)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(golden, parsed); err != nil {
		panic(err)
	}
	for path, operations := range d.Paths {
		for method, op := range operations {
			route := strings.ToUpper(method) + " " + path
			d.byRoute[route] = op
			d.mux.Handle(route, http.NotFoundHandler())
		}
	}
	return d
})

// closeSchemas makes an unknown key of a response an error: the document allows them, but must have
// all keys of this server.
func closeSchemas(document any) {
	root, _ := document.(map[string]any)
	components, _ := root["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for _, s := range schemas {
		schema, _ := s.(map[string]any)
		if _, set := schema["additionalProperties"]; !set && schema["properties"] != nil {
			schema["additionalProperties"] = false
		}
	}
}

// check returns how an answer differs from the document.
func (d *openAPI) check(r *http.Request, answer *http.Response, media string, doc []byte) error {
	_, route := d.mux.Handler(r)
	op, known := d.byRoute[route]
	status := strconv.Itoa(answer.StatusCode)
	d.record(route, status)
	schema := "#/components/schemas/Error" // of what has no operation
	if known {
		if _, ok := op.Responses[status]; !ok {
			if answer.StatusCode < http.StatusBadRequest {
				return errors.New("it has no such status")
			}
			status = "default"
		}
		for name := range op.Responses[status].Headers {
			if answer.Header.Get(name) == "" {
				return fmt.Errorf("the header %s is missing", name)
			}
		}
		content := op.Responses[status].Content
		if len(content) == 0 && len(doc) == 0 {
			return nil
		}
		if content[media].Schema == nil {
			return fmt.Errorf("it has no content type %q", media)
		}
		method, path, _ := strings.Cut(route, " ")
		schema = "#/paths/" + pointer(path) + "/" + strings.ToLower(method) + "/responses/" + status + "/content/" + pointer(media) + "/schema"
	} else if answer.StatusCode < http.StatusBadRequest {
		return errors.New("it has no such operation")
	}
	if media != "application/json" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	compiled, err := d.compiler.Compile(golden + schema)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// record counts an answer as checked.
func (d *openAPI) record(route, status string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered[route] == nil {
		d.answered[route] = map[string]bool{}
	}
	d.answered[route][status] = true
}

// unchecked lists the operations that no test had succeed.
func (d *openAPI) unchecked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var routes []string
	for route := range d.byRoute {
		if !slices.Contains(streams, route) && !slices.ContainsFunc(slices.Collect(maps.Keys(d.answered[route])), succeeds) {
			routes = append(routes, route)
		}
	}
	slices.Sort(routes)
	return routes
}

func succeeds(status string) bool { return status[0] == '2' }

// streams have answers that do not end by themselves.
var streams = []string{"GET /v1/dlq/events", "GET /v1/tasks/{uuid}/events"}

// Each operation that no other test has succeed fits its document, too.
func TestAnswersFitTheDocument(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	get := func(path string) { want[any](h, http.StatusOK, "GET", path, nil) }
	post := func(path string, body any) { want[any](h, http.StatusOK, "POST", path, body) }

	want[apiv1.Limit](h, http.StatusOK, "PUT", "/v1/limits", map[string]any{"kind": "handler", "namespace": "shop", "name": "run", "max_in_progress": 5, "by": "ann"})
	get("/v1/limits?keys=true")
	want[any](h, http.StatusNoContent, "DELETE", "/v1/limits?kind=handler&namespace=shop&name=run&by=ann", nil)
	post("/v1/sessions/end", map[string]any{"subject": "user:ann"})

	h.createTask(1)
	step := h.claim(worker, map[string]any{"max": 1})[0]
	lease := map[string]any{"step_uuid": step.StepUUID, "lease_token": step.LeaseToken, "checkpoint": 7}
	want[any](h, http.StatusNoContent, "POST", worker+"/checkpoint", lease)
	for i := range 2 {
		h.createTask(1)
		step := h.claim(worker, map[string]any{"max": 1})[0]
		h.report(worker, map[string]any{
			"step_uuid": step.StepUUID, "lease_token": step.LeaseToken, "success": false,
			"error": map[string]any{"message": fmt.Sprintf("order 471%d of account 90210 declined", i), "retryable": false},
		})
	}
	c := want[apiv1.CaseList](h, http.StatusOK, "GET", "/v1/cases", nil).Cases[0]
	want[any](h, http.StatusAccepted, "POST", "/v1/cases/"+c.ID.String()+"/split", map[string]any{"literal": "4711", "reason": "r"})

	plan := want[apiv1.Operation](h, http.StatusCreated, "POST", "/v1/operations", map[string]any{
		"act": map[string]any{"type": "reset_for_retry"}, "reason": "r", "planned_by": "ann", "select": map[string]any{"namespace": "shop"},
	})
	path := "/v1/operations/" + plan.OperationUUID
	post(path+"/dry-run", map[string]any{})
	post(path+"/start", map[string]any{"plan_digest": plan.PlanDigest, "by": "ann"})
	for _, verb := range []string{"pause", "resume", "abort"} {
		post(path+"/"+verb, map[string]any{"by": "ann"})
		get(path)
		get("/v1/operations")
		get(path + "/items")
		get("/v1/dlq/investigation-queue")
	}

	h.register(itemized)
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "itemized", "context": map[string]any{"list": []int{1}}})
	h.RunLoops()
	h.Eventually("the item is ready", func() bool {
		for _, item := range h.claim(worker, map[string]any{"max": 1}) {
			h.report(worker, map[string]any{"step_uuid": item.StepUUID, "lease_token": item.LeaseToken, "success": true, "result": 1})
			return true
		}
		return false
	})
	get("/v1/tasks/" + task.UUID.String() + "/results/each/items")
	get("/v1/tasks/" + task.UUID.String() + "/workflow_steps/each/items")
}

const itemized = `
namespace_name: shop
name: itemized
version: 1.0.0
steps:
  - {name: each, type: map, over: context.list, handler: {callable: run}}
`

// pointer spells a key as an element of a JSON pointer within a URL.
func pointer(key string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
}
