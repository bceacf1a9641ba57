package expression

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cel.dev/cel-go/common/operators"

	"tasker.example/tasker"
)

// largest has the largest arguments: documents of a mebibyte, of long texts and of many small values.
func largest() Values {
	const size = tasker.MaxDocumentBytes - 1000
	text := strings.Repeat("a", size/2)
	doc := func(value string) json.RawMessage { return json.RawMessage(`{"v": ` + value + `}`) }
	texts := strings.Repeat(`"`+strings.Repeat("a", 98)+`",`, size/101)
	object := `{"a": [` + strings.Repeat(`{"b":[1,2]},`, size/12-10) + `1]}`
	return Values{
		Context: json.RawMessage(`{"s": "` + text + `", "t": "` + text[:size/2-100] + `b", "p": "(?:.*.*){200}b", "n": 1.5, "i": 1, "b": true,
			"at": "2026-03-01T10:00:00Z", "big": 3544790567247868102, "f": "1.0000000000000000000000000000000000001"}`),
		Results: map[string]json.RawMessage{
			"list": doc(`[` + strings.Repeat("1,", size/2-10) + `2]`), "same": doc(`[` + strings.Repeat("1,", size/2-10) + `2]`), "texts": doc(`[` + texts[:len(texts)-1] + `]`),
			"object": doc(object), "copy": doc(object), "digits": doc(`"` + strings.Repeat("1", size) + `"`),
		},
	}
}

// calls has the largest calls of each function that expressions can use.
var calls = map[string][]string{
	operators.Add:           {`context.s + context.t == ""`, `size(results.list.v + results.same.v) == 0`, `context.n + 1 == 0`, `results.digits.v + results.digits.v == ""`, `(results.list.v + results.same.v)[0] == 7`},
	operators.Subtract:      {`context.n - 1 == 9`},
	operators.Multiply:      {`context.n * 3 == 9`},
	operators.Divide:        {`context.n / 3 == 9`},
	operators.Modulo:        nil, // refused
	operators.Negate:        {`-context.n == 9`},
	operators.Less:          {`context.t < context.s`, `context.big < 3`},
	operators.LessEquals:    {`context.t <= context.s`},
	operators.Greater:       {`context.s > context.t`},
	operators.GreaterEquals: {`context.s >= context.t`},
	operators.In:            {`3 in results.list.v`, `results.object.v in [results.copy.v, results.list.v] && false`, `"x" in results.texts.v`, `context.t in results.texts.v`, `context.s in results.object.v`, `context.big in results.list.v`},
	equal:                   {`context.s == context.t`, `results.list.v == results.same.v && false`, `results.object.v == results.copy.v && false`, `[results.object.v, results.object.v] == [results.copy.v, results.copy.v] && false`},
	unequal:                 {`results.list.v != results.same.v`, `[context.s] != [context.s]`},
	operators.LogicalNot:    {`!context.b`},
	"bool":                  {`bool(context.s)`},
	"bytes":                 {`bytes(context.s) == b"x"`, `size(bytes(context.s)) == 2`},
	"contains":              {`context.s.contains(context.t)`, `context.s.contains("ab")`},
	"double":                {`double(results.digits.v) == 1`, `double(context.f) == 1`},
	"duration":              {`duration(context.s) == duration("1s")`, `duration(results.digits.v + "s") == duration("1s")`},
	"dyn":                   {`dyn(results.object.v) == 1`},
	"endsWith":              {`context.s.endsWith(context.t)`},
	"first":                 {`results.list.v.first().orValue(0) == 7`},
	"getDate":               {`timestamp(context.at).getDate("Europe/Berlin") == 0`}, "getDayOfMonth": {`timestamp(context.at).getDayOfMonth("Asia/Tokyo") == 7`},
	"getDayOfWeek": {`timestamp(context.at).getDayOfWeek("Europe/Berlin") == 9`}, "getDayOfYear": {`timestamp(context.at).getDayOfYear("Europe/Berlin") == 900`},
	"getFullYear": {`timestamp(context.at).getFullYear(context.s) == 0`, `timestamp(context.at).getFullYear("Europe/Berlin") == 0`}, "getHours": {`timestamp(context.at).getHours("Europe/Berlin") == 90`, `duration("1h").getHours() == 9`},
	"getMilliseconds": {`timestamp(context.at).getMilliseconds("Europe/Berlin") == 1`}, "getMinutes": {`timestamp(context.at).getMinutes("Europe/Berlin") == 90`},
	"getMonth": {`timestamp(context.at).getMonth("Europe/Berlin") == 90`}, "getSeconds": {`timestamp(context.at).getSeconds("Europe/Berlin") == 90`},
	"hasValue": {`optional.of(results.object.v).hasValue() && false`},
	"int":      {`int(results.digits.v) == 1`, `int(context.big) == 1`},
	"last":     {`results.list.v.last().orValue(0) == 7`},
	"matches": {
		`context.s.matches("^a*b$")`, `context.s.matches("(a?){300}b")`, `context.s.matches(context.p)`, `context.s.matches("(?:.*.*){200}b")`, `"a".matches(context.p)`,
		`"a".matches(context.p + string(context.n))`, `"b".matches(".{1000}" + context.p)`, `"b".matches(".{1000}.{1000}\\pL{1000}\\pL{1000}" + context.p)`,
		`results.texts.v.exists(x, x.matches("(a?){400}b"))`, `results.texts.v.exists(x, "b".matches(x))`, `results.texts.v.exists(x, "b".matches(x + ".{900}.{900}"))`,
	},
	"optional.none":           {`optional.none().hasValue()`},
	"optional.of":             {`optional.of(results.object.v) == optional.of(results.copy.v) && false`},
	"optional.ofNonZeroValue": {`optional.ofNonZeroValue(results.object.v).hasValue() && false`},
	"optional.unwrap":         {`optional.unwrap(results.list.v.map(x, optional.of(x))) == []`, `optional.unwrap([optional.of(results.object.v)]) == []`},
	"or":                      {`optional.none().or(optional.of(results.object.v)).hasValue() && false`},
	"orValue":                 {`optional.none().orValue(results.object.v) == 1`},
	"size":                    {`size(context.s) == 1`, `size(results.list.v) == 1`, `size(results.object.v) == 7`},
	"startsWith":              {`context.s.startsWith(context.t)`},
	"string":                  {`string(context.s) == "x"`, `string(results.list.v[0]) == "x"`, `string(bytes(context.s)) == "x"`, `string(context.n * 1e300) == ""`},
	"timestamp":               {`timestamp(context.s) == timestamp(context.at)`, `timestamp(results.digits.v) == timestamp(context.at)`},
	"type":                    {`type(results.object.v) == type(1)`},
	"uint":                    {`uint(results.digits.v) == 1`},
	"unwrapOpt":               {`results.list.v.map(x, optional.of(x)).unwrapOpt() == []`},
	"value":                   {`optional.of(results.object.v).value() == 1`},

	operators.Conditional: {`(context.b ? results.object.v : results.list.v) == 1`},
	operators.LogicalAnd:  {`context.b && false`},
	operators.LogicalOr:   {`!context.b || false`},
	operators.Index:       {`results.list.v[100] == 7`, `results["object"]["v"] == 1`},
	operators.OptIndex:    {`results.list.v[?100].orValue(0) == 7`},
	operators.OptSelect:   {`context.?s.hasValue() && false`},
	operators.Equals:      nil, operators.NotEquals: nil, // see equal and unequal
	operators.NotStrictlyFalse: {`results.list.v.all(x, x == 7)`},

	"macros": {
		`results.list.v.all(x, x > 0) && false`, `results.list.v.exists_one(x, x == 7)`, `results.list.v.map(x, x * 2).size() == 7`, `results.list.v.filter(x, x > 7).size() == 7`,
		`results.list.v.exists(x, results.same.v.exists(y, x + y == 7))`, `[results.object.v].map(x, [x, x, x, x, x, x, x, x]).map(y, [y, y, y, y, y, y, y, y]) == [] `,
		`[[results.object.v, results.object.v]].map(x, [x, x, x, x, x, x, x, x]).exists(y, [y, y, y, y, y, y, y, y] == [y, y, y, y, y, y, y, y]) && false`,
		`results.object.v.a.all(x, results.object.v == results.copy.v) && false`, `has(results.object.v) && false`,
	},
}

// The cost of an evaluation bounds its time, whatever it calls. This compares the processor time, without the limit
// on the clock, with that of additions of the same cost.
func TestEveryFunctionIsBoundedOnItsLargestArguments(t *testing.T) {
	env, err := language()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range env.Functions() {
		if _, ok := calls[name]; !ok && !f.IsDeclarationDisabled() {
			t.Errorf("function %s has no case: add its largest calls", name)
		}
	}
	v := largest()
	input, err := v.decode()
	if err != nil {
		t.Fatal(err)
	}
	scope := Scope{Ancestors: slices.Collect(maps.Keys(v.Results)), Steps: slices.Collect(maps.Keys(v.Results))}
	// The shortest counts: garbage of the evaluation before is collected in the time of the next one.
	timeOf := func(text string, enough time.Duration) (shortest time.Duration, err error) {
		p, err := Compile(text, scope, Bool)
		if err != nil {
			return 0, err
		}
		for try := 0; try < 5 && (try == 0 || shortest > enough); try++ {
			before := processorTime(t)
			_, _, _ = p.program.ContextEval(t.Context(), input)
			if took := processorTime(t) - before; shortest == 0 || took < shortest {
				shortest = took
			}
		}
		return shortest, nil
	}
	addition, err := timeOf(`results.list.v.exists(i, results.same.v.exists(j, i + j == -1.0))`, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, texts := range calls {
		for _, call := range texts {
			for _, text := range []string{often(call), `results.list.v.exists(i, ` + call + `)`} {
				took, err := timeOf(text, 20*addition)
				if err != nil && !strings.Contains(err.Error(), "nested more than") {
					t.Errorf("%s: %s: %v", name, call, err)
				}
				if took > 20*addition {
					t.Errorf("%s: %.100s takes %s, which is %d times as long as additions", name, text, took, took/addition)
				}
			}
		}
	}
}

// often is a condition as many times as an expression may have it; each is false.
func often(call string) string {
	part := "(" + call + ") || "
	return strings.Repeat(part, (MaxBytes-10-50)/len(part)) + "false"
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
