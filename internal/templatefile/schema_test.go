package templatefile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileInput(t testing.TB, schema string) *Input {
	t.Helper()
	in, err := CompileInput("shop", []byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func checkInput(in *Input, doc string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil && in != nil {
		return err
	}
	return in.Check(context.Background(), NewBudget(), value)
}

func decoded(t testing.TB, doc string) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestNoSchemaAcceptsEverything(t *testing.T) {
	in, err := CompileInput("shop", nil)
	if in != nil || err != nil {
		t.Fatalf("%v, %v", in, err)
	}
	for _, doc := range []string{`{}`, `[]`, `nonsense`, ``} {
		if err := checkInput(in, doc); err != nil {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

func TestCheckContext(t *testing.T) {
	const order = `{"type": "object", "required": ["order_id", "total"], "additionalProperties": false, "properties": {
		"order_id": {"type": "string", "pattern": "^O-[0-9]+$"},
		"total": {"type": "number", "minimum": 0},
		"email": {"type": "string", "format": "email"},
		"at": {"format": "date-time"},
		"items": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"n": {"type": "integer"}}}},
		"pay": {"oneOf": [{"required": ["card"]}, {"required": ["iban"]}]},
		"forbidden": false
	}}`
	in := compileInput(t, order)
	for _, tt := range []struct {
		doc  string
		want []string
	}{
		{`{"order_id": "O-1", "total": 0}`, nil},
		{`{"order_id": "O-1", "total": 1e300, "items": [{"sku": 1, "n": 2.0}], "pay": {"card": 1}}`, nil},
		{`{}`, []string{`is missing "order_id", "total"`}},
		{`[]`, []string{`must be of type object, not array`}},
		{`{"order_id": 5, "total": -1, "x": 1, "a b": 2}`, []string{
			`has "a b", "x", which the schema does not allow`,
			`order_id: must be of type string, not number`,
			`total: minimum: got -1, want 0`,
		}},
		{`{"order_id": "1", "total": 0, "email": "nobody", "at": "yesterday"}`, []string{
			"at: \"yesterday\" is not a valid date-time: less than 20 characters long",
			"email: \"nobody\" is not a valid email: missing @",
			`order_id: "1" does not match the pattern "^O-[0-9]+$"`,
		}},
		{`{"order_id": "O-1", "total": 0, "items": [{"sku": 1}, {"n": 1.5}, 3], "forbidden": 1}`, []string{
			`forbidden: is not allowed`,
			`items[1]: is missing "sku"`,
			`items[1].n: must be of type integer, not number`,
			`items[2]: must be of type object, not number`,
		}},
		{`{"order_id": "O-1", "total": 0, "pay": {}}`, []string{
			`pay: fits none of the alternatives: is missing "card"; or is missing "iban"`,
		}},
		{`{"order_id": "O-1", "total": 0, "pay": {"card": 1, "iban": 1}}`, []string{
			`pay: 'oneOf' failed, subschemas 0, 1 matched`,
		}},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			err := checkInput(in, tt.doc)
			var got []string
			for _, fault := range faultsOf(t, err) {
				got = append(got, fault.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "the context does not match the template's input_schema: ") {
				t.Errorf("message %q", err)
			}
		})
	}
}

func TestSchemasThatAreRefused(t *testing.T) {
	for schema, want := range map[string]string{
		`{"$ref": "https://example.com/schema.json"}`:                "only local references are supported",
		`{"$ref": "/etc/passwd"}`:                                    "only local references are supported",
		`{"$schema": "https://example.com/dialect"}`:                 "only local references are supported",
		`{"$ref": "#nowhere"}`:                                       "nowhere",
		`{"type": "objekt"}`:                                         "type: fits none of the alternatives",
		`{"type": "string"}`:                                         "a task's context is an object",
		`{"pattern": "(a)\\1"}`:                                      "does not support look-around or backreferences",
		`{"pattern": "` + strings.Repeat("a", 1001) + `"}`:           "longer than 1000 bytes",
		`{"patternProperties": {"(((a{1,10}){1,10}){1,10})": true}}`: "too large after expanding its repetitions",
		`5`: "must be of type",
		`{`: "invalid JSON",
	} {
		in, err := CompileInput("shop", []byte(schema))
		if in != nil || err == nil {
			t.Errorf("%s: accepted", schema)
			continue
		}
		faultsOf(t, err)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, want %q in it", schema, err, want)
		}
	}
}

// Only texts, numbers and truth values make a large enum cheap to compile.
func TestLargeEnumOfListsIsRefused(t *testing.T) {
	template := func(n int, item string) string {
		return "namespace_name: n\nname: t\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: h}}]\n" +
			"input_schema:\n  properties:\n    a:\n      anyOf:\n        - enum: [" + strings.Repeat(item+", ", n) + "0]\n"
	}
	if _, _, err := Parse([]byte(template(501, "[1]"))); err == nil ||
		!strings.Contains(err.Error(), "input_schema.properties.a.anyOf[0].enum: has 501 lists and objects; the limit is 500") {
		t.Errorf("%v", err)
	}
	for item, n := range map[string]int{"[1]": 500, "{}": 500, "x": 20_000} {
		if _, _, err := Parse([]byte(template(n, item))); err != nil {
			t.Errorf("%d of %s: %v", n, item, err)
		}
	}
}

// A schema can ask for work that doubles with each level of the document or of
// itself. It is refused after a while, and the schema stays usable.
func TestExplodingSchemas(t *testing.T) {
	doubling := func(leaf string) string {
		var b strings.Builder
		b.WriteString(`{"$ref": "#/$defs/d0", "$defs": {`)
		for i := range 40 {
			fmt.Fprintf(&b, `"d%d": {"anyOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		return b.String() + `"d40": ` + leaf + "}}"
	}
	nested := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	for name, tt := range map[string]struct{ schema, doc string }{
		"by reference":          {doubling(`{"required": ["x"]}`), `{}`},
		"by reference and type": {doubling(`{"type": "string"}`), `{}`},
		"by nesting":            {`{"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}`, nested},
		"by pattern": {`{"additionalProperties": {"items": {"pattern": "(a?){250}b"}}}`,
			`{"a": ["` + strings.Repeat(strings.Repeat("a", 10_000)+`","`, 90) + `"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			in := compileInput(t, tt.schema)
			err := checkInput(in, tt.doc)
			if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "too expensive") {
				t.Fatalf("%v", err)
			}
			if name == "by reference and type" {
				return // no document is small enough
			}
			if err := checkInput(in, `{"x": 1}`); err != nil && strings.Contains(err.Error(), "too expensive") {
				t.Errorf("a small context afterwards: %v", err)
			}
		})
	}
	if err := checkInput(compileInput(t, `{"properties": {"a": {"$ref": "#"}}, "items": {"type": "integer"}}`), nested); err != nil {
		t.Errorf("plain recursion: %v", err)
	}
	if err := checkInput(compileInput(t, `{"$ref": "#"}`), `{}`); err == nil {
		t.Error("a schema that is only itself was accepted")
	}
}

func TestLargeContextIsNotTooMuchWork(t *testing.T) {
	in := compileInput(t, `{"properties": {"n": {"items": {"type": "integer", "minimum": 0}}}}`)
	if err := checkInput(in, `{"n": [`+strings.Repeat("1,", 500_000)+"1]}"); err != nil {
		t.Error(err)
	}
}

func TestCheckIsSafeForConcurrentUse(t *testing.T) {
	in := compileInput(t, `{"properties": {"n": {"items": {"pattern": "^a+$"}}}}`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				word := strings.Repeat("a", i+1)
				if err := checkInput(in, `{"n": ["`+word+`"]}`); err != nil {
					t.Error(err)
				}
				if err := checkInput(in, `{"n": ["`+word+`b"]}`); err == nil {
					t.Error("accepted")
				}
			}
		})
	}
	all.Wait()
}

// The schemas of JSON Schema itself are part of the library. What a checker
// does to its schemas must not reach them, or all checkers would share it.
func TestMetaSchemasAreNotShared(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, schema := range []string{
				`{"$ref": "https://json-schema.org/draft/2020-12/schema"}`,
				`{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "http://json-schema.org/draft-07/schema#"}`,
			} {
				in, err := CompileInput("shop", []byte(schema))
				if err != nil {
					t.Error(err)
					return
				}
				if checkInput(in, `{"type": "object"}`) != nil || checkInput(in, `{"type": "objekt"}`) == nil {
					t.Error("wrong judgement")
				}
			}
		})
	}
	all.Wait()
}
