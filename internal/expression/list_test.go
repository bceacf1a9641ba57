package expression_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

func TestLists(t *testing.T) {
	t.Parallel()
	v := values
	v.Context = json.RawMessage(`{"exact": [9007199254740993, 1.10, {"b": 1, "a": [true, null]}], "name": "ann", "amount": 150, "none": null, "empty": [], "long": [1, 2, 3, 4, 5, 6, 7, 8, 9],
		"text": ["` + strings.Repeat("x", 30) + `"], "lines": [{"n": 1}, {"n": 2}], "when": "2026-03-01T10:00:00Z"}`)
	for text, want := range map[string]string{
		`context.exact`:                    `[9007199254740993,1.10,{"b": 1, "a": [true, null]}]`,
		`context["exact"]`:                 `[9007199254740993,1.10,{"b": 1, "a": [true, null]}]`,
		`results.score.list`:               `[1,2,3]`,
		`context.empty`:                    `[]`,
		`[]`:                               `[]`,
		`context.lines.filter(l, l.n > 1)`: `[{"n":2}]`,
		`context.lines.map(l, l.n * 2)`:    `[2,4]`,
		`context.lines.map(l, {"b": l, "a": [context.name, true, null]})`: `[{"a":["ann",true,null],"b":{"n":1}},{"a":["ann",true,null],"b":{"n":2}}]`,
		`context.?missing.orValue([1.5, "two"])`:                          `[1.5,"two"]`,
		`[timestamp(context.when), size(context.name)]`:                   `["2026-03-01T10:00:00Z",3]`,

		`context.missing`:   `missing key "missing"`,
		`context.name.deep`: `missing key "deep"`,
		`results.gone.list`: `missing key "gone"`,
		`context.name`:      "must be a list",
		`context.none`:      "must be a list",
		`has(context.name) ? context.amount : context.empty`: "must be a list, not a number",
		`context.long`:                 "9 elements; the limit is 8",
		`context.long.filter(x, true)`: "9 elements; the limit is 8",
		`[context.exact[0]]`:           `[9007199254740993]`,
		`[context.exact[0] + 1]`:       "a number has too many digits for arithmetic",
		`[duration("1s")]`:             "element 0 of the list: contains a value that JSON cannot represent",
		`[{1: 2}]`:                     "element 0 of the list: contains a value that JSON cannot represent",
		`[0.0 / 0.0]`:                  "element 0 of the list: contains a value that JSON cannot represent",
		`context.text`:                 "element 0 of the list: the list is too large",
		`[1, context.text[0]]`:         "element 1 of the list: the list is too large",
		`[[context.name, context.name, context.name, context.name]]`:                     "element 0 of the list: the list is too large",
		`["123456789012345678", "123456789012345678", "123456789012345678", "12345678"]`: "element 3 of the list: the list is too large",
	} {
		p, err := expression.Compile(text, scope, expression.List)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		limits := expression.ListLimits{Elements: 8, Bytes: 1000, ElementBytes: 1000}
		if strings.Contains(want, "too large") {
			limits.Bytes, limits.ElementBytes = 65, 20
		}
		list, err := p.List(t.Context(), v, limits)
		if err != nil {
			failure, ok := errors.AsType[*expression.Failure](err)
			if !ok || !strings.Contains(failure.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		parts := make([]string, len(list))
		for i, element := range list {
			parts[i] = string(element)
		}
		if got := "[" + strings.Join(parts, ",") + "]"; got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}

func TestWhatIsNoListIsRefused(t *testing.T) {
	t.Parallel()
	s := scope
	s.Input = json.RawMessage(`{"type": "object", "required": ["lines", "name"], "properties": {"lines": {"type": "array"}, "name": {"type": "string"}}}`)
	for text, want := range map[string]string{
		`context.lines`: "", `context.lines.filter(l, l > 1)`: "", `results.score`: "", `[1]`: "",
		`context.name`: "must be a list, not a string", `"abc"`: "must be a list, not a string", `1`: "must be a list, not a number",
		`has(context.lines)`: "must be a list, not a boolean", `{"a": 1}`: "must be a list, not",
	} {
		_, err := expression.Compile(text, s, expression.List)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
