package api_test

import (
	"context"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/api"
)

var update = flag.Bool("update", false, "write testdata/openapi.json")

const golden = "testdata/openapi.json"

func document() []byte {
	w := httptest.NewRecorder()
	api.New(context.Background(), api.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "/api-docs/openapi.json", nil))
	return w.Body.Bytes()
}

// The document is the contract: a change of it shows in review.
func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	got := document()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the document changed; if that is meant, run go test ./internal/api -update:\n%s", diff)
	}
}

// The table of the documentation has every route.
func TestEveryRouteIsInTheDocumentation(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			if route := "`" + strings.ToUpper(method) + " " + path + "`"; !strings.Contains(string(text), route) {
				t.Errorf("docs/reference/api.md lacks %s", route)
			}
		}
	}
}

// The document says of each operation whether it needs an API key, and which permission.
func TestOpenAPISaysWhoMayCall(t *testing.T) {
	t.Parallel()
	type operation struct {
		Description string
		Security    []map[string][]string
		Responses   map[string]struct{ Headers map[string]any }
	}
	var doc struct {
		Paths      map[string]map[string]operation
		Components struct {
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	scheme := doc.Components.SecuritySchemes["bearer"]
	if scheme.Type != "http" || scheme.Scheme != "bearer" {
		t.Errorf("the scheme is %+v", scheme)
	}
	var public []string
	permission := regexp.MustCompile(`Needs the permissions? ([a-z]+:[a-z]+)( and payloads:read)?\.$`)
	for path, operations := range doc.Paths {
		for method, op := range operations {
			name := strings.ToUpper(method) + " " + path
			_, unknown := op.Responses["401"]
			_, refused := op.Responses["403"]
			needs := permission.FindStringSubmatch(op.Description)
			switch {
			case op.Security == nil:
				t.Errorf("%s does not say whether it needs a key", name)
			case len(op.Security) == 0:
				public = append(public, name)
				if unknown || refused || needs != nil {
					t.Errorf("%s is public, and is refused", name)
				}
			case name == "GET /v1/whoami":
				if !unknown || refused || needs != nil {
					t.Errorf("%s: %+v", name, op)
				}
			case op.Security[0]["bearer"] == nil || !unknown || !refused || op.Responses["401"].Headers["WWW-Authenticate"] == nil ||
				needs == nil || !slices.Contains(access.Permissions(), access.Permission(needs[1])):
				t.Errorf("%s: %+v", name, op)
			}
		}
	}
	slices.Sort(public)
	if want := []string{"GET /api-docs/openapi.json", "GET /health", "GET /health/live", "GET /health/ready"}; !slices.Equal(public, want) {
		t.Errorf("public are %q, want %q", public, want)
	}
}

// Generated clients accept the keys of a later server, and have types for states and UUIDs.
// Requests are closed.
func TestOpenAPIDescribesResponses(t *testing.T) {
	t.Parallel()
	type property struct {
		Format string
		Enum   []any
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				AdditionalProperties any
				Properties           map[string]property
			}
		}
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]bool{"Task": true, "Step": true, "Error": true, "ClaimedSteps": true, "CreateTask": false, "RegisterWorker": false} {
		if got := doc.Components.Schemas[name].AdditionalProperties == nil; got != open {
			t.Errorf("%s allows unknown keys: %v, want %v", name, got, open)
		}
	}
	task := doc.Components.Schemas["Task"].Properties
	if len(task["status"].Enum) != len(tasker.TaskStates()) || task["task_uuid"].Format != "uuid" || task["created_at"].Format != "date-time" {
		t.Errorf("a task has the status %v, the UUID %v and the time %v", task["status"], task["task_uuid"], task["created_at"])
	}
}

// Every type of the wire is in the document, with every field.
func TestOpenAPIHasTheWholeWire(t *testing.T) {
	t.Parallel()
	var doc struct {
		OpenAPI    string
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(document(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	has := map[string]map[string]bool{}
	add := func(name, schema string) {
		if has[name] == nil {
			has[name] = map[string]bool{}
		}
		for property := range doc.Components.Schemas[schema].Properties {
			has[name][property] = true
		}
	}
	for name := range doc.Components.Schemas {
		add(name, name)
	}
	for _, shape := range []string{"ResetForRetry", "ResolveManually", "CompleteManually"} {
		add("StepAction", shape)
	}
	add("ScheduleSpec", "CreateSchedule") // of which it is a part
	delete(has["ScheduleSpec"], "reason")
	delete(has["ScheduleSpec"], "by")
	wire := wireTypes(t, has)
	if len(wire) < 30 {
		t.Fatalf("only %d types of the wire were found", len(wire))
	}
	for name, fields := range wire {
		for _, field := range fields {
			if !has[name][field] {
				t.Errorf("%s.%s is not in the document", name, field)
			}
		}
		if got := slices.Sorted(maps.Keys(has[name])); len(got) != len(fields) {
			t.Errorf("%s has %q in the document and %q in Go", name, got, fields)
		}
	}
}

// wireTypes returns the JSON fields of each struct of package apiv1, and of those of package tasker
// that the document has.
func wireTypes(t *testing.T, documented map[string]map[string]bool) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../../apiv1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("read apiv1: %v", err)
	}
	domain, err := filepath.Glob("../../*.go")
	if err != nil || len(domain) == 0 {
		t.Fatalf("read tasker: %v", err)
	}
	structs, wire := map[string]*ast.StructType{}, map[string]bool{}
	for _, name := range slices.Concat(domain, files) { // apiv1 overrides tasker
		if strings.HasSuffix(name, "_test.go") || filepath.Base(name) == "query.go" { // query parameters
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
					wire[spec.Name.Name] = wire[spec.Name.Name] || filepath.Base(filepath.Dir(name)) == "apiv1" || documented[spec.Name.Name] != nil
				}
			}
			return true
		})
	}
	all := map[string][]string{}
	for name := range structs {
		if !wire[name] {
			continue
		}
		all[name] = jsonFields(structs, name)
	}
	return all
}

func jsonFields(structs map[string]*ast.StructType, name string) []string {
	var fields []string
	for _, f := range structs[name].Fields.List {
		if len(f.Names) == 0 {
			embedded, _ := f.Type.(*ast.Ident)
			if of, ok := f.Type.(*ast.SelectorExpr); ok {
				embedded = of.Sel
			}
			fields = append(fields, jsonFields(structs, embedded.Name)...)
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		if field, _, _ := strings.Cut(tag, ","); field != "-" {
			fields = append(fields, field)
		}
	}
	return fields
}
