package expression_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

// The examples of docs/reference/expressions.md are true.
func TestTheExamplesOfTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	rows := regexp.MustCompile("(?m)^\\| `(.*)` \\| (true|false|failure) \\|$").FindAllStringSubmatch(string(text), -1)
	if len(docs) != 2 || len(rows) < 15 {
		t.Fatalf("%d documents and %d examples", len(docs), len(rows))
	}
	v := expression.Values{
		Context: json.RawMessage(docs[0][1]), Results: map[string]json.RawMessage{"score": json.RawMessage(docs[1][1])},
		States: map[string]tasker.StepState{"score": tasker.StepComplete},
	}
	for _, row := range rows {
		example := strings.ReplaceAll(row[1], `\|`, "|")
		p, err := expression.Compile(example, expression.Scope{Ancestors: []string{"score"}, Steps: []string{"score"}}, expression.Bool)
		if err != nil {
			t.Errorf("%s: %v", example, err)
			continue
		}
		got, err := p.Bool(t.Context(), v)
		is := map[bool]string{true: "true", false: "false"}[got]
		if err != nil {
			is = "failure"
		}
		if is != row[2] {
			t.Errorf("%s is %s, %v; the page says %s", example, is, err, row[2])
		}
	}
}
