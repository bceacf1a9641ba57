package expression_test

import (
	"fmt"
	"testing"

	"tasker.example/tasker/internal/expression"
)

// It is known which lists the elements are from.
func TestWhereTheElementsOfAListAreFrom(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`context.a`:                                             `[[a]] []`,
		`context.a.b["c"]`:                                      `[[a b c]] []`,
		`context.?a.orValue([])`:                                `[[a]] []`,
		`context.?a.?b.orValue(context.c)`:                      `[[a b]] []`,
		`context.?a.b.value()`:                                  `[[a b]] []`,
		`context[?"a"].orValue([])`:                             `[[a]] []`,
		`has(context.a) ? context.a : []`:                       `[[a]] []`,
		`context.a + results.score.list`:                        `[[a]] [score]`,
		`context.a.filter(x, x in context.b).map(x, context.c)`: `[[a]] []`,
		`results.score`:                                         `[] [score]`,
		`results.score.list.map(x, x + context.a)`:              `[] [score]`,
		`[context.a]`:                                           `[] []`,
		`context.a[context.b]`:                                  `[] []`,
		`context.a[0]`:                                          `[] []`,
		`[1].map(x, context.a)`:                                 `[] []`,
	} {
		p, err := expression.Compile(text, expression.Scope{Ancestors: []string{"score"}, Steps: []string{"score"}}, expression.List)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(p.ListsInContext(), p.ListsInResults()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
