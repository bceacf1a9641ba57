package expression_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

var scope = expression.Scope{Ancestors: []string{"score", "fetch-it", "gone"}, Steps: []string{"score", "fetch-it", "gone", "charge", "later"}}

var values = expression.Values{
	Context: json.RawMessage(`{"amount": 150, "half": 0.5, "name": "ann", "tags": ["new", "vip"], "lines": [{"n": 1}, {"n": 2}],
		"none": null, "big": 9007199254740993, "huge": 1e300, "yes": true, "when": "2026-03-01T10:00:00Z", "a-b": 7, "nested": {"deep": {"x": 1}}}`),
	Results: map[string]json.RawMessage{"score": json.RawMessage(`{"value": 0.2, "list": [1, 2, 3]}`), "fetch-it": json.RawMessage(`42`)},
	States:  map[string]tasker.StepState{"score": tasker.StepComplete, "fetch-it": tasker.StepResolvedManually, "gone": tasker.StepSkipped},
	Task: expression.TaskValues{
		ID: tasker.ID{15: 1}, CreatedAt: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), Priority: 5, Namespace: "shop", CorrelationID: "c-1",
	},
}

// What conditions come to: true, false, or the words of their failure.
var outcomes = []struct{ text, want string }{
	{`true`, "true"},
	{`false`, "false"},
	{`context.amount > 100`, "true"},
	{`context.amount > 100.5`, "true"},
	{`context.amount == 150`, "true"},
	{`context.amount == 150.0`, "true"},
	{`context.amount != 150`, "false"},
	{`context.amount * 2 > 299`, "true"},
	{`context.amount * 1.1 < 166`, "true"},
	{`context.amount / 4 == 37.5`, "true"},
	{`context.amount + 1 - 1 == 150`, "true"},
	{`-context.amount < 0`, "true"},
	{`2 + 3 == 5`, "true"},
	{`7 / 2 == 3.5`, "true"},
	{`context.half < 1`, "true"},
	{`context.amount in [150, 200]`, "true"},
	{`context.amount > 100 && results.score.value < 0.5`, "true"},
	{`context.amount > 1000 || results.score.value < 0.5`, "true"},
	{`!(context.amount > 100)`, "false"},
	{`context.amount > 100 ? context.yes : false`, "true"},
	{`context.name == "ann"`, "true"},
	{`context.name == 'bob'`, "false"},
	{`context.name.startsWith("a")`, "true"},
	{`context.name.endsWith("n") && context.name.contains("nn")`, "true"},
	{`context.name.matches("^a.+$")`, "true"},
	{`context.name < "bob"`, "true"},
	{`context.name + "!" == "ann!"`, "true"},
	{`size(context.name) == 3`, "true"},
	{`context.name.size() * 2 == 6`, "true"},
	{`size(context.tags) > 1`, "true"},
	{`size(context.tags) + 1 == 3`, "true"},
	{`"vip" in context.tags`, "true"},
	{`"x" in context.tags`, "false"},
	{`context.tags[0] == "new"`, "true"},
	{`context.tags[size(context.tags) - 1] == "vip"`, "true"},
	{`context.lines[1].n == 2`, "true"},
	{`context.lines.exists(l, l.n > 1)`, "true"},
	{`context.lines.all(l, l.n > 1)`, "false"},
	{`context.lines.filter(l, l.n > 1).size() == 1`, "true"},
	{`context.lines.map(l, l.n * 2)[0] == 2`, "true"},
	{`results.score.list.exists(x, context.lines.exists(l, l.n == x))`, "true"},
	{`has(context.amount)`, "true"},
	{`has(context.missing)`, "false"},
	{`has(context.missing) && context.missing > 1`, "false"},
	{`context.?missing.orValue(3) == 3`, "true"},
	{`context.?nested.?deep.?x.orValue(0) == 1`, "true"},
	{`context.nested.deep.x == 1`, "true"},
	{`context["a-b"] == 7`, "true"},
	{`"a-b" in context`, "true"},
	{`context.none == null`, "true"},
	{`context.name == null`, "false"},
	{`context.none != null && context.none > 1`, "false"},
	{`context.huge > 1`, "true"},
	{`context.yes`, "true"},
	{`context.missing > 1 || true`, "true"},
	{`false && context.missing > 1`, "false"},
	{`results["fetch-it"] == 42`, "true"},
	{`results.score.value + results["fetch-it"] > 42`, "true"},
	{`has(results.gone)`, "false"},
	{`steps.score.state == "complete"`, "true"},
	{`steps.gone.state == "skipped"`, "true"},
	{`steps["fetch-it"].state == "resolved_manually"`, "true"},
	{`task.priority > 4`, "true"},
	{`task.namespace == "shop" && task.correlation_id == "c-1"`, "true"},
	{`task.id == "00000000-0000-0000-0000-000000000001"`, "true"},
	{`timestamp(context.when) > task.created_at`, "true"},
	{`timestamp(context.when) - task.created_at > duration("24h")`, "true"},
	{`timestamp(context.when).getFullYear() == 2026`, "true"},
	{`double("1.5") == 1.5`, "true"},
	{`string(context.yes) == "true"`, "true"},
	{`int(context.half) == 0`, "true"},
	{`{"a": 1}.a == 1`, "true"},

	{`context.missing > 1`, `missing key "missing"`},
	{`context.nested.deep.y > 1`, `missing key "y"`},
	{`results.gone.value > 1`, `missing key "gone"`},
	{`context.name > 1`, "does not support these types"},
	{`context.none > 1`, "does not support these types"},
	{`context.name * 2 > 1`, "does not support these types"},
	{`context.tags[7] == "x"`, "index out of range"},
	{`context.amount`, "must be true or false, not a number"},
	{`context.none`, "must be true or false, not null"},
	{`context.name`, "must be true or false, not a string"},
	{`context[context.name]`, "missing key"},
	{`timestamp(context.name) > task.created_at`, "evaluation failed"},
	{`double(context.name) > 1`, "type conversion failed"},
	{`context.name.matches("(" + context.name)`, "a regular expression is invalid"},
}

func TestWhatConditionsComeTo(t *testing.T) {
	t.Parallel()
	for _, c := range outcomes {
		p, err := expression.Compile(c.text, scope, expression.Bool)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := p.Bool(t.Context(), values)
		failure, failed := errors.AsType[*expression.Failure](err)
		switch {
		case c.want == "true" || c.want == "false":
			if err != nil || got != (c.want == "true") {
				t.Errorf("%s is %t, %v; want %s", c.text, got, err, c.want)
			}
		case !failed || !strings.Contains(failure.Reason, c.want) || failure.Text != c.text:
			t.Errorf("%s is %t, %v; want a failure: %s", c.text, got, err, c.want)
		case regexp.MustCompile(`\bann\b`).MatchString(failure.Reason):
			t.Errorf("%s: the reason shows a value: %s", c.text, failure.Reason)
		}
	}
}

var schema = json.RawMessage(`{"type": "object", "required": ["amount", "customer", "go"], "additionalProperties": false, "properties": {
	"amount": {"type": "number"}, "go": {"type": "boolean"}, "note": {"type": "string"},
	"customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "vip": {"type": "boolean"}}}}}`)

// What is refused at registration, and what the author reads.
var faults = []struct{ text, want string }{
	{``, "is empty"},
	{` `, "is empty"},
	{strings.Repeat("true && ", 600) + "true", "the limit is 4096"},
	{`context.amount >`, "column 17: unexpected end"},
	{`context.amount > > 1`, "column 18: unexpected '>'"},
	{`context.amount ! 1`, "unexpected"},
	{`nothing == 1`, "undeclared reference to 'nothing'"},
	{`results.scoer.value > 1`, `unknown step "scoer" in results.scoer; did you mean score?`},
	{`results["scoer"] > 1`, `unknown step "scoer"`},
	{`steps.scoer.state == "complete"`, `unknown step "scoer" in steps.scoer; did you mean score?`},
	{`results.later > 1`, `step "later" is not a dependency`},
	{`has(results.later)`, `step "later" is not a dependency`},
	{`results == null`, "missing step name"},
	{`results[context.customer.id] == 1`, "missing step name"},
	{`steps.score == null`, "a step has only a state: use steps.score.state"},
	{`steps.score.attempts > 1`, "a step has only a state"},
	{`task.secret == 1`, "unknown task.secret"},
	{`context.note == "x"`, "context.note may be absent, as input_schema does not require it: use has(context.note) && … or context.?note.orValue(…)"},
	{`context.customer.vip`, "context.customer.vip may be absent"},
	{`context.amuont > 1`, "context.amuont is not in input_schema; did you mean amount?"},
	{`context.amount`, "must be true or false, not a number"},
	{`context.customer`, "must be true or false, not an object"},
	{`"yes"`, "must be true or false, not a string"},
	{`1 + 1`, "must be true or false, not a number"},
	{`size(context.customer.id)`, "must be true or false, not a number"},
	{`context.amount % 2 == 0`, "the operator % is not supported"},
	{`context.name.matches("(")`, "missing closing )"},
	{`matches(context.name, "(?:a{1000}){3}")`, "invalid repeat count"},
	{`context.name.matches("` + strings.Repeat("a", 1001) + `")`, "longer than 1000 bytes"},
	{`context.name.matches("(?:.*.*){500}b")`, "too large after expanding its repetitions"},
	{`context.amount == 1e999`, "column"},
	{`[1].exists(a, [1].exists(b, [1].exists(c, true)))`, "nested more than 2 levels deep"},
	{`google.protobuf.Timestamp{seconds: 1} == task.created_at`, "message types are not supported"},
	{strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100), "recursion"},
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	with := scope
	with.Input = schema
	for _, c := range faults {
		_, err := expression.Compile(c.text, with, expression.Bool)
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %v, want %s", c.text, err, c.want)
		}
	}
}

// What the schema tells to be there, or what an expression asks for before, is not refused.
func TestWhatTheSchemaAllows(t *testing.T) {
	t.Parallel()
	with := scope
	with.Input = schema
	for _, text := range []string{
		`context.amount > 1`, `context.go`, `context.customer.id == "x"`, `has(context.note) && context.note == "x"`,
		`context.?note.orValue("") == ""`, `has(context.customer.vip) && context.customer.vip`, `context.customer.?vip.orValue(false)`, `has(context.note)`,
	} {
		if _, err := expression.Compile(text, with, expression.Bool); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhatAnExpressionNames(t *testing.T) {
	t.Parallel()
	p, err := expression.Compile(`results.score.value > 1 && results.score.list.size() > 1 && has(results["fetch-it"].x) && steps.gone.state == "skipped"`, scope, expression.Bool)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Results(), " "); got != "fetch-it score" {
		t.Errorf("results of %s", got)
	}
	if got := strings.Join(p.States(), " "); got != "gone" {
		t.Errorf("states of %s", got)
	}
}

// An expression cannot take all the time there is.
func TestAnEvaluationIsBounded(t *testing.T) {
	t.Parallel()
	p, err := expression.Compile(`context.l.all(x, context.l.all(y, x + y >= 0))`, scope, expression.Bool)
	if err != nil {
		t.Fatal(err)
	}
	v := expression.Values{Context: json.RawMessage(`{"l": [` + strings.Repeat("1,", 20_000) + `1]}`)}
	_, err = p.Bool(t.Context(), v)
	if failure, ok := errors.AsType[*expression.Failure](err); !ok || !strings.Contains(failure.Reason, "exceeds its cost limit") && !strings.Contains(failure.Reason, "took longer") {
		t.Errorf("it ends with %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = p.Bool(ended, v); !errors.Is(err, context.Canceled) {
		t.Errorf("when nobody waits any more it ends with %v", err)
	}
}

func TestAProgramIsEvaluatedAtOnce(t *testing.T) {
	t.Parallel()
	p, err := expression.Compile(`context.lines.exists(l, l.n == 2) && results.score.value < 0.5`, scope, expression.Bool)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if is, err := p.Bool(t.Context(), values); err != nil || !is {
					t.Errorf("%t, %v", is, err)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever text is compiled and evaluated, nothing panics, and an error is one of ours.
func FuzzExpressions(f *testing.F) {
	for _, c := range outcomes {
		f.Add(c.text, string(values.Context))
	}
	for _, c := range faults {
		f.Add(c.text, `[1, {"a": null}]`)
	}
	f.Fuzz(func(t *testing.T, text, doc string) {
		p, err := expression.Compile(text, scope, expression.Bool)
		if err != nil {
			if tasker.CodeOf(err) != tasker.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		v := values
		v.Context = json.RawMessage(doc)
		if _, err := p.Bool(t.Context(), v); err != nil {
			if _, ok := errors.AsType[*expression.Failure](err); !ok {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// An object is what a task is given as its context.
func TestObjects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"of": context.name, "n": context.amount * 2, "list": results.score.list, "when": timestamp(context.when), "for": duration("90s"), "none": context.none, "yes": context.yes}`: `{"for":"1m30s","list":[1,2,3],"n":300,"none":null,"of":"ann","when":"2026-03-01T10:00:00Z","yes":true}`,
		`context.nested`:                      `{"deep":{"x":1}}`,
		`{"a": context.?gone.orValue(7)}`:     `{"a":7}`,
		`{"a": context.?gone}`:                `{"a":null}`,
		`context.name`:                        "must be an object, not a string",
		`{"a": context.big}`:                  `{"a":9007199254740993}`,
		`{"a": {"b": [context.big]}}`:         `{"a":{"b":[9007199254740993]}}`,
		`{"a": context.big - 1}`:              "a number has too many digits for arithmetic",
		`{1: 2}`:                              "contains an object with a key that is not a string",
		`{"a": b"x"}`:                         "contains a bytes, which JSON cannot represent",
		`{"a": 1.0 / 0.0}`:                    "contains a number, which JSON cannot represent",
		`{"a": context.gone}`:                 `missing key "gone"`,
		`context.lines.map(l, {"n": l.n})[0]`: `{"n":1}`,
	} {
		p, err := expression.Compile(text, scope, expression.Object)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		doc, err := p.Object(t.Context(), values)
		if got := string(doc); err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		} else if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{`[1]`: "must be an object, not a list", `1`: "must be an object, not a number", `"x"`: "must be an object, not a string"} {
		if _, err := expression.Compile(text, scope, expression.Object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
