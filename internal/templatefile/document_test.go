package templatefile

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"tasker.example/tasker"
)

// asAnEditor judges a JSON document by the published schema alone.
func asAnEditor(t rapid.TB, doc []byte) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return documentSchema.Validate(value)
}

// properties returns the keys that the schema has at a place, without those that have no
// effect, are other names, or are always refused.
func properties(t *testing.T, location string) []string {
	t.Helper()
	s := schemaParts[documentSchema.Location+location]
	if s == nil {
		t.Fatalf("the schema has nothing at %q", location)
	}
	var names []string
	for name, p := range s.Properties {
		refused := p.Ref == nil && p.Not != nil
		if !refused && !strings.HasPrefix(p.Comment, withoutEffect) && !strings.HasPrefix(p.Comment, anotherName) && name != "publishes_events" && name != "batch_config" { // which becomes part of initialization
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func jsonNames(goType reflect.Type) []string {
	var names []string
	for field := range goType.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The schema and the Go types have the same keys, in both directions.
func TestTheSchemaHasTheFieldsOfATemplate(t *testing.T) {
	for location, goType := range map[string]reflect.Type{
		"": reflect.TypeFor[tasker.Template](), "/$defs/lifecycle": reflect.TypeFor[tasker.Lifecycle](),
		"/$defs/step": reflect.TypeFor[tasker.StepTemplate](), "/$defs/step/properties/handler": reflect.TypeFor[tasker.Handler](),
		"/$defs/retry": reflect.TypeFor[tasker.Retry](), "/$defs/override": reflect.TypeFor[tasker.Override](),
	} {
		if diff := cmp.Diff(jsonNames(goType), properties(t, location)); diff != "" {
			t.Errorf("%s (-Go +schema):\n%s", goType, diff)
		}
	}
	if diff := cmp.Diff(jsonNames(reflect.TypeFor[tasker.Retry]()), jsonNames(reflect.TypeFor[tasker.RetryOverride]())); diff != "" {
		t.Errorf("Retry and RetryOverride:\n%s", diff)
	}
	override := append(jsonNames(reflect.TypeFor[tasker.StepOverride]()), "handler") // where initialization may be as well
	slices.Sort(override)
	if diff := cmp.Diff(override, properties(t, "/$defs/override/properties/steps/items")); diff != "" {
		t.Errorf("StepOverride (-Go +schema):\n%s", diff)
	}
}

// The schema has the limits and defaults of the Go code.
func TestTheSchemaHasTheLimitsOfATemplate(t *testing.T) {
	if most := *documentSchema.Properties["steps"].MaxItems; most != tasker.MaxSteps {
		t.Errorf("%d steps, want %d", most, tasker.MaxSteps)
	}
	if most := *documentSchema.Properties["triage"].Properties["keys"].MaxItems; most != tasker.MaxTriageKeys {
		t.Errorf("%d keys of triage, want %d", most, tasker.MaxTriageKeys)
	}
	if most := tasker.MaxSearchAttributes; !strings.Contains(documentSchema.Properties["search"].Description, fmt.Sprintf("up to %d attributes", most)) {
		t.Errorf("the description of search does not say %d", most)
	}
	parsed := mustParse(t, "namespace_name: n\nname: t\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: a}}]\n")
	var b strings.Builder
	b.WriteString("namespace_name: n\nname: t\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: a}, type: ")
	b.WriteString((*schemaParts[documentSchema.Location+"/$defs/step"].Properties["type"].Default).(string) + ", retry: {")
	retry := schemaParts[documentSchema.Location+"/$defs/retry"].Properties
	for _, name := range jsonNames(reflect.TypeFor[tasker.Retry]()) {
		if retry[name] == nil || retry[name].Default == nil {
			t.Fatalf("retry.%s has no default in the schema", name)
		}
		b.WriteString(name + ": " + fmt.Sprint(*retry[name].Default) + ", ")
	}
	b.WriteString("}}]\n")
	if diff := cmp.Diff(parsed, mustParse(t, b.String())); diff != "" {
		t.Errorf("the defaults of the schema, written out, mean something else:\n%s", diff)
	}
}

// What we accept, an editor with the schema does not mark as wrong, other names and keys
// without effect included.
func TestAnEditorAcceptsWhatIsAccepted(t *testing.T) {
	names := files(t, "testdata/valid/*.yaml")
	names = append(names, files(t, "../../examples/*/*.yaml")...)
	for _, name := range names {
		var found faults
		root := parseYAMLTree(readFile(t, name), &found)
		if root == nil || len(found.list) > 0 {
			t.Fatalf("%s: %v", name, found.list)
		}
		if err := asAnEditor(t, value{node: root, faults: &found}.appendJSON(nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const other = `{"namespace": "n", "name": "t", "version": "1.0.0", "steps": [
		{"name": "a", "step_type": "external"}, {"name": "b", "handler": {"callable": "b"}, "depends_on": ["a"]}]}`
	if err := asAnEditor(t, []byte(other)); err != nil {
		t.Error(err)
	}
	if _, _, err := ParseJSON([]byte(other)); err != nil {
		t.Error(err)
	}
}

// A suggestion is a key that an author may use.
func TestSuggestionsHaveAnEffect(t *testing.T) {
	const doc = "namespace_name: n\nname: t\nversion: 1.0.0\ndomain_event: []\nsteps: [{name: a, system_dependenc: 1, handler: {callable: a}}]\n"
	_, _, err := Parse([]byte(doc))
	for _, fault := range faultsOf(t, err) {
		if strings.Contains(fault.Message, "did you mean") {
			t.Error(fault)
		}
	}
	if got := slices.Sorted(maps.Keys(documentSchema.Properties)); !slices.Contains(got, "domain_events") {
		t.Errorf("the schema has only %q", got)
	}
}
