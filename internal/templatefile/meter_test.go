package templatefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tasker.example/tasker"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

func numbers(n int, text func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = text(i)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// cpu is the processor time of this process. What others do does not count.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Keywords that compare a value with many others, or the items of a list with each
// other, take no longer than reading the document does.
func TestComparisonsAreCheap(t *testing.T) {
	same := func(text string) func(int) string { return func(int) string { return text } }
	count := func(i int) string { return fmt.Sprint(i + 1) }
	large := func(i int) string { return fmt.Sprintf("1.%de308", i+1) }
	colliding := func(i int) string { // the same text, cut into words at other places
		var b strings.Builder
		b.WriteString(`["x`)
		for bit := range 12 {
			if i>>bit&1 == 1 {
				b.WriteString(`","`)
			} else {
				b.WriteString(`\u0004`)
			}
		}
		return b.String() + `"]`
	}
	inItems := func(schema string) string { return `{"properties": {"a": {"items": ` + schema + `}}}` }
	longList := func(i int) string { return numbers(60, func(j int) string { return fmt.Sprint(j * (1 + i*j/59)) }) }
	for name, tt := range map[string]struct {
		schema, list string
		valid        bool
	}{
		"enum":               {inItems(`{"enum": ` + numbers(5000, count) + `}`), numbers(5000, same("0")), false},
		"enum below not":     {inItems(`{"not": {"enum": ` + numbers(5000, count) + `}}`), numbers(5000, same("0")), true},
		"enum that fits":     {inItems(`{"enum": ` + numbers(5000, count) + `}`), numbers(5000, same("5000")), true},
		"enum of texts":      {inItems(`{"enum": ` + numbers(3000, func(i int) string { return fmt.Sprintf(`"%d"`, i+1) }) + `}`), numbers(5000, same(`"0"`)), false},
		"enum of lists":      {inItems(`{"not": {"enum": ` + numbers(400, longList) + `}}`), numbers(50, func(int) string { return longList(1000) }), true},
		"enum of floats":     {inItems(`{"not": {"enum": ` + numbers(200, large) + `}}`), numbers(5000, same("1.0e308")), true},
		"const of a list":    {inItems(`{"not": {"const": ` + numbers(5000, count) + `}}`), numbers(5000, same("[]")), true},
		"unique lists":       {`{"properties": {"a": {"uniqueItems": true}}}`, numbers(2000, colliding), true},
		"unique up to signs": {`{"properties": {"a": {"uniqueItems": true}}}`, numbers(5000, func(i int) string { return fmt.Sprint((i - 2500) / 1) }), true},
	} {
		t.Run(name, func(t *testing.T) {
			in, counts, doc := compileInput(t, tt.schema), compileInput(t, inItems(`{"type": ["number", "string", "array"]}`)), `{"a": `+tt.list+`}`
			took, reading := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for range 5 { // other programs make single runs slower
				before := cpu(t)
				if err := checkInput(counts, doc); err != nil {
					t.Fatal(err)
				}
				between := cpu(t)
				err := checkInput(in, doc)
				took, reading = min(took, cpu(t)-between), min(reading, between-before)
				if (err == nil) != tt.valid || (err != nil && strings.Contains(err.Error(), "too expensive")) {
					t.Fatalf("judged %.200v", err)
				}
			}
			t.Logf("took %v of CPU; to look at the types of the items takes %v", took, reading)
			if took > 100*reading {
				t.Errorf("took %v of CPU; to look at the types of the items takes %v", took, reading)
			}
		})
	}
}

// The most that one request can ask for, in several ways.
func TestNoSchemaTakesLong(t *testing.T) {
	chain := func(leaf string) string {
		var b strings.Builder
		b.WriteString(`{"additionalProperties": {"items": {"$ref": "#/$defs/d0"}}, "$defs": {`)
		for i := range 1500 {
			fmt.Fprintf(&b, `"d%d": {"$ref": "#/$defs/d%d"},`, i, i+1)
		}
		return b.String() + `"d1500": ` + leaf + "}}"
	}
	all := func(n int, schema string) string {
		return `{"additionalProperties": {"items": {"allOf": ` + numbers(n, func(int) string { return schema }) + `}}}`
	}
	zeros := `{"a": ` + numbers(39_000, func(int) string { return "0" }) + `}`
	long := `{"a": ["` + strings.Repeat("x", 250_000) + `"]}`
	for name, tt := range map[string]struct{ schema, doc string }{
		"a chain of references":     {chain(`{"type": "integer"}`), zeros},
		"a failing chain":           {chain(`{"type": "string"}`), zeros},
		"types that fail":           {all(40, `{"type": "string"}`), zeros},
		"false that fails":          {all(40, `false`), zeros},
		"minima that fail":          {all(40, `{"minimum": 1}`), zeros},
		"minItems that fails":       {all(40, `{"minItems": 1}`), strings.ReplaceAll(zeros, "0", "[]")},
		"required that fails":       {all(40, `{"required": ["x"]}`), strings.ReplaceAll(zeros, "0", "{}")},
		"not that fails":            {all(40, `{"not": {}}`), zeros},
		"additional that fails":     {all(40, `{"additionalProperties": false}`), strings.ReplaceAll(zeros, "0", `{"a":0}`)},
		"lengths":                   {all(5000, `{"maxLength": 300000}`), long},
		"patterns":                  {all(5000, `{"pattern": "^(a?){200}b"}`), long},
		"formats":                   {all(5000, `{"format": "uri"}`), long},
		"regular expressions":       {all(2, `{"format": "regex"}`), `{"a": ` + numbers(900, func(int) string { return `"` + strings.Repeat("a{500}", 166) + `"` }) + `}`},
		"divisions":                 {all(40, `{"multipleOf": 1e-300}`), strings.ReplaceAll(zeros, "0", "1.3e300")},
		"required of many":          {all(1, `{"required": `+numbers(20_000, func(i int) string { return fmt.Sprintf(`"%d"`, i) })+`}`), strings.ReplaceAll(zeros, "0", "{}")},
		"dependentRequired of many": {all(1, `{"dependentRequired": {"a": `+numbers(20_000, func(i int) string { return fmt.Sprintf(`"%d"`, i) })+`}}`), strings.ReplaceAll(zeros, "0", `{"a":0}`)},
		"property names":            {all(20, `{"propertyNames": {"maxLength": 0}}`), strings.ReplaceAll(zeros, "0", `{"a":0}`)},
		"nesting that fails":        {`{"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}, "allOf": ` + numbers(40, func(int) string { return `{"type": "object"}` }) + `}`, strings.ReplaceAll(zeros, "0", "["+strings.Repeat("[", 20)+strings.Repeat("]", 20)+"]")},
		"unevaluated":               {all(40, `{"unevaluatedProperties": false}`), strings.ReplaceAll(zeros, "0", `{"a":0}`)},
		"contains that fails":       {all(40, `{"contains": {"type": "string"}}`), strings.ReplaceAll(zeros, "0", "[0]")},
	} {
		t.Run(name, func(t *testing.T) {
			in := compileInput(t, tt.schema)
			var start, end runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&start)
			before := cpu(t)
			err := checkInput(in, tt.doc)
			took := cpu(t) - before
			runtime.ReadMemStats(&end)
			allocated := (end.TotalAlloc - start.TotalAlloc) >> 20
			t.Logf("%v of CPU, %d MiB allocated: %.100v", took, allocated, err)
			if took > slowdown*1500*time.Millisecond { //nolint:durationcheck // a factor
				t.Errorf("took %v of CPU", took)
			}
			if allocated > 1000 {
				t.Errorf("allocated %d MiB", allocated)
			}
		})
	}
}

// All contexts of a request share one budget.
func TestOneBudgetForARequest(t *testing.T) {
	in := compileInput(t, `{"properties": {"a": {"items": {"allOf": [true, true, {}, {}, {}, {}]}}}}`)
	doc := `{"a": ` + numbers(2000, func(int) string { return "0" }) + `}`
	budget := NewBudget()
	for n := range 1000 {
		err := in.Check(t.Context(), budget, decoded(t, doc))
		if err == nil {
			continue
		}
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), "create fewer tasks at once") || n < 10 {
			t.Fatalf("after %d contexts: %v", n, err)
		}
		if err := in.Check(t.Context(), NewBudget(), decoded(t, doc)); err != nil {
			t.Errorf("the next request: %v", err)
		}
		return
	}
	t.Fatal("a thousand contexts were checked on one budget")
}

// An endedContext has ended, which only those notice who look again and again.
type endedContext struct{ context.Context }

func (endedContext) Done() <-chan struct{} { return nil }
func (endedContext) Err() error            { return context.Canceled }

// A check ends with its request, whether it works or waits for its turn.
func TestCheckEndsWithItsRequest(t *testing.T) {
	in := compileInput(t, `{"properties": {"a": {"items": {"minimum": 0}}}}`)
	doc := decoded(t, `{"a": `+numbers(100_000, func(int) string { return "0" })+`}`)
	unavailable := func(err error) {
		t.Helper()
		if tasker.CodeOf(err) != tasker.Unavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	budget := NewBudget()
	unavailable(in.Check(endedContext{t.Context()}, budget, doc))
	if spent := maxCheckCost - budget.left; spent > 150_000 {
		t.Errorf("%d units were spent on a request that had ended", spent)
	}
	for range checking.size {
		if err := checking.enter(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unavailable(in.Check(ended, NewBudget(), doc))
	for range checking.size {
		checking.leave()
	}
	if err := in.Check(t.Context(), NewBudget(), doc); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Two numbers are the same when the library takes them for the same.
func TestCanonicalNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9]0{0,2}[0-9]?)(\.[0-9]{0,2}[0-9])?([eE][-+]?[0-3])?`)
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		plain := plainSchema(t, `{"const": `+a+`}`)
		var v any = json.Number(b)
		first, _ := canonicalize(json.Number(a), maxCanonical, func(int) {})
		second, _ := canonicalize(v, maxCanonical, func(int) {})
		if want := plain.Validate(v) == nil; (first == second) != want {
			t.Fatalf("%s and %s: equal is %v, want %v", a, b, first == second, want)
		}
		if want := plainSchema(t, `{"type": "integer"}`).Validate(v) == nil; isInteger(json.Number(b)) != want {
			t.Fatalf("%s: integer is %v, want %v", b, !want, want)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// plainSchema is a schema that only the library judges.
func plainSchema(t fataler, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(schemaURL, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever the schema, the judgement is the library's.
func TestVerdictMatchesTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draft := rapid.SampledFrom([]string{
			"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema",
			"http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-04/schema#",
		}).Draw(t, "draft")
		root := drawSchema(t, 3, !strings.Contains(draft, "draft-04"))
		schema := `{"$schema": "` + draft + `", "definitions": {"d": ` + drawSchema(t, 1, false) + `}, "properties": {"a": ` + root + `}}`
		plain := plainSchema(t, schema)
		in, err := CompileInput("shop", []byte(schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for range 5 {
			doc := `{"a": ` + drawValue(t, 3) + `}`
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			want, got := plain.Validate(v), checkInput(in, doc)
			if (want == nil) != (got == nil) {
				t.Fatalf("schema %s\ndocument %s\nlibrary: %v\nours: %v", schema, doc, want, got)
			}
		}
	})
}

func drawValue(t *rapid.T, depth int) string {
	kinds := 6
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "null"
	case 1:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	case 2, 3:
		return rapid.SampledFrom([]string{"0", "-0.0", "1", "1.0", "10e-1", "-1", "1.5", "2", "3", "1e300"}).Draw(t, "number")
	case 4, 5:
		return rapid.SampledFrom([]string{`""`, `"a"`, `"b"`, `"ab"`, `"1"`, `"a@b.c"`}).Draw(t, "text")
	case 6:
		return "[" + strings.Join(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawValue(t, depth-1) }), 0, 4).Draw(t, "items"), ",") + "]"
	default:
		var members []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, "names") {
			members = append(members, `"`+name+`": `+drawValue(t, depth-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

func drawSchema(t *rapid.T, depth int, boolean bool) string {
	if boolean && rapid.IntRange(0, 9).Draw(t, "boolean") == 0 {
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "schema")
	}
	sub := func() string { return drawSchema(t, depth-1, boolean) }
	subs := func() string { return "[" + sub() + "," + sub() + "]" }
	small := func() string { return fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "n")) }
	keywords := map[string]func() string{
		"type": func() string {
			return rapid.SampledFrom([]string{`"integer"`, `"number"`, `"string"`, `["null","array"]`, `"object"`, `["boolean","integer"]`}).Draw(t, "type")
		},
		"const":   func() string { return drawValue(t, 2) },
		"enum":    func() string { return "[" + drawValue(t, 2) + `,"never",[{"x":` + drawValue(t, 1) + "}]]" },
		"minimum": small, "maximum": small, "minLength": small, "maxLength": small,
		"minItems": small, "maxItems": small, "minProperties": small, "maxProperties": small,
		"multipleOf":  func() string { return "0.5" },
		"pattern":     func() string { return `"^a"` },
		"format":      func() string { return rapid.SampledFrom([]string{`"email"`, `"regex"`, `"date"`}).Draw(t, "format") },
		"uniqueItems": func() string { return "true" },
		"required":    func() string { return `["a"]` },
	}
	if depth > 0 {
		keywords["properties"] = func() string { return `{"a": ` + sub() + `, "b": ` + sub() + `}` }
		keywords["patternProperties"] = func() string { return `{"^[bc]": ` + sub() + `}` }
		keywords["additionalProperties"] = func() string { return rapid.SampledFrom([]string{"false", "true"}).Draw(t, "additional") }
		keywords["items"], keywords["not"], keywords["contains"], keywords["propertyNames"] = sub, sub, sub, sub
		keywords["if"], keywords["then"], keywords["else"] = sub, sub, sub
		keywords["allOf"], keywords["anyOf"], keywords["oneOf"] = subs, subs, subs
		keywords["dependencies"] = func() string { return `{"a": ["b"], "c": ` + sub() + `}` }
		keywords["dependentRequired"] = func() string { return `{"a": ["b"]}` }
		keywords["dependentSchemas"] = func() string { return `{"b": ` + sub() + `}` }
		keywords["unevaluatedProperties"], keywords["unevaluatedItems"] = sub, sub
		keywords["$ref"] = func() string { return `"#/definitions/d"` }
	}
	names := make([]string, 0, len(keywords))
	for name := range keywords {
		names = append(names, name)
	}
	slices.Sort(names)
	var members []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string]).Draw(t, "keywords") {
		members = append(members, `"`+name+`": `+keywords[name]())
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// slowdown is how much longer work takes in a program that the race detector watches.
var slowdown = func() time.Duration {
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			return 15
		}
	}
	return 1
}()
