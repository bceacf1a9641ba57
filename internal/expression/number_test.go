package expression_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

var rewriteNumbers = expression.Values{
	Context: json.RawMessage(`{"id": 3544790567247868102, "next": 3544790567247868103, "ids": [1, 3544790567247868102, 9007199254740993], "million": 1000000, "negative": -1234567, "text": "1000000",
		"huge": 1e21, "spelled": 1000000000000000000000, "edge": 9007199254740992, "beyond": 9007199254740993, "even": 9007199254740994, "price": 0.1, "same": 0.10, "exp": 1E6, "third": 0.3333333333333333333333,
		"thirds": 0.33333333333333333333330, "small": 0.00000012, "n": 150, "f": 1.5, "max": 18446744073709551615, "lines": [{"id": 3544790567247868102, "n": 1}, {"id": 2, "n": 2}], "idText": "3544790567247868102"}`),
	Results: map[string]json.RawMessage{"score": json.RawMessage(`{"id": 3544790567247868102}`)},
	Task:    expression.TaskValues{Priority: 1000},
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`string(context.million) == context.text`: "true",
		`string(context.negative)`:                `"-1234567"`,
		`string(context.million * 1000000)`:       `"1000000000000"`,
		`string(context.huge)`:                    `"1000000000000000000000"`,
		`context.huge == context.spelled`:         "true",
		`string(context.exp)`:                     `"1000000"`,
		`string(context.price)`:                   `"0.1"`,
		`string(context.small)`:                   `"0.00000012"`,
		`string(1000000) + string(2.5e7)`:         `"100000025000000"`,
		`string(int(context.million))`:            `"1000000"`,
		`string(size(context.ids) * 1000000)`:     `"3000000"`,
		`string(task.priority * 1000)`:            `"1000000"`,
		`string(context.id)`:                      `"3544790567247868102"`,
		`"o-" + string(context.id) + "-x"`:        `"o-3544790567247868102-x"`,
		`string(int(context.id))`:                 `"3544790567247868102"`,
		`string(uint(context.max))`:               `"18446744073709551615"`,
		`string(double(context.idText))`:          `"3544790567247868102"`,
		`int(context.idText) == context.id`:       "true",
		`double(context.idText) == context.id`:    "true",
		`string(context.third)`:                   `"0.3333333333333333333333"`,
		`context.id == 3544790567247868102`:       "true",
		`context.id == 3544790567247868103`:       "false",
		`context.id == 3544790567247868102u`:      "true",
		`context.id != context.next`:              "true",
		`context.id < context.next && context.next > context.id && context.id <= context.id && !(context.id >= context.next)`: "true",
		`context.id > 100 && 100 < context.id && context.id < 1e19 && context.id > -5.5`:                                      "true",
		`context.id == results.score.id`:                                               "true",
		`context.beyond == 9007199254740993`:                                           "true",
		`context.beyond == context.edge`:                                               "false",
		`context.beyond == 9007199254740992.0`:                                         "false",
		`context.even == 9007199254740994`:                                             "true",
		`context.third == context.thirds && context.third == 0.3333333333333333333333`: "true",
		`context.third == 0.33333333333333333`:                                         "false",
		`context.third < 0.34 && context.third > 0.33`:                                 "true",
		`context.price == context.same && context.price == 0.1`:                        "true",
		`context.id in context.ids`:                                                    "true",
		`context.next in context.ids`:                                                  "false",
		`context.id in [3544790567247868102]`:                                          "true",
		`3544790567247868102 in context.ids`:                                           "true",
		`context.ids == [1, 3544790567247868102, 9007199254740993]`:                    "true",
		`context.ids[1]`:                                                               "3544790567247868102",
		`context.ids.filter(x, x > 1)`:                                                 "[3544790567247868102,9007199254740993]",
		`context.ids.map(x, {"id": x})`:                                                `[{"id":1},{"id":3544790567247868102},{"id":9007199254740993}]`,
		`context.lines.filter(l, l.n == 1)`:                                            `[{"id":3544790567247868102,"n":1}]`,
		`{"a": {"b": context.lines[0]}, "c": 3544790567247868102}`:                     `{"a":{"b":{"id":3544790567247868102,"n":1}},"c":3544790567247868102}`,
		`{string(context.id): "a"}`:                                                    `{"3544790567247868102":"a"}`,
		`context.id in {3544790567247868102: 1}`:                                       "true",
		`context.?id.orValue(0)`:                                                       "3544790567247868102",
		`has(context.id) ? context.id : 0`:                                             "3544790567247868102",
		`optional.of(context.id) == optional.of(3544790567247868102)`:                  "true",
		`type(context.id) == type(context.n)`:                                          "true",
		`context.huge`:                                                                 "1e21",
		`[context.huge]`:                                                               "[1000000000000000000000]",

		`context.n * 2`: "300", `context.n * 1.1`: "165", `context.f * 2`: "3", `context.f * 1.1`: "1.6500000000000001", `context.n + 1`: "151", `context.f + 1`: "2.5", `context.n / 4`: "37.5",
		`context.price + 0.2`: "0.30000000000000004", `context.edge - 1`: "9007199254740991", `context.huge * 2`: "2000000000000000000000",

		`context.id + 1 > 0`: "too many digits for arithmetic", `1 + context.id > 0`: "too many digits for arithmetic", `context.id * 2 > 0`: "too many digits for arithmetic", `context.id - 1 > 0`: "too many digits for arithmetic",
		`context.id / 2 > 0`: "too many digits for arithmetic", `-context.id < 0`: "too many digits for arithmetic", `context.third * 3 == 1`: "too many digits for arithmetic",
		`context.edge + 1 > 0`: "the result is a whole number with too many digits", `1 + context.edge > 0`: "the result is a whole number with too many digits", `-context.edge - 1 < 0`: "the result is a whole number with too many digits",
		`(context.edge - 1) * 3 > 0`: "the result is a whole number with too many digits", `context.id + "x" == ""`: "too many digits for arithmetic", `context.id > "x"`: "does not support these types",
	} {
		p, err := expression.Compile(text, scope, expression.Any)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		doc, err := p.JSON(t.Context(), rewriteNumbers, 1000)
		failure, failed := errors.AsType[*expression.Failure](err)
		if failed && !strings.Contains(failure.Reason, want) || !failed && string(doc) != want {
			t.Errorf("%s is %s, %v; want %s", text, doc, err, want)
		}
	}
}

// A text that is a number is its digits; an attribute of numbers has all of them.
func TestOutcomesOfNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`context.id`: "3544790567247868102", `context.million`: "1000000", `context.f`: "1.5", `context.huge`: "1000000000000000000000", `1.0 / 0.0`: "the number must be finite"} {
		for kind, form := range map[expression.Kind]string{expression.Text: "string %s", expression.Number: "json.Number %s"} {
			p, err := expression.Compile(text, scope, kind)
			if err != nil {
				t.Fatal(err)
			}
			list, _ := expression.EvaluateAll(t.Context(), []*expression.Program{p}, rewriteNumbers)
			if got := fmt.Sprintf("%T %v", list[0].Value, list[0].Value); got != fmt.Sprintf(form, want) && (list[0].Err == nil || !strings.Contains(list[0].Err.Error(), want)) {
				t.Errorf("%s as %s: %s, %v", text, kind, got, list[0].Err)
			}
		}
	}
}

// A stored expression that this version refuses fails when it is evaluated.
func TestStoredExpressionsFailWhenTheyAreEvaluated(t *testing.T) {
	t.Parallel()
	const text = `string(context.text).matches("(?:.*.*){500}b")`
	stored := scope
	stored.Stored = true
	p, err := expression.Compile(text, stored, expression.Bool)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Bool(t.Context(), rewriteNumbers)
	if failure, ok := errors.AsType[*expression.Failure](err); !ok || failure.Text != text || !strings.Contains(failure.Reason, "too large after expanding its repetitions") {
		t.Errorf("it ends with %v", err)
	}
	if _, err := expression.Compile(text, scope, expression.Bool); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("a new one ends with %v", err)
	}
}
