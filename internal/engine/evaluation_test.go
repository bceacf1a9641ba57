package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

// A batchOfEvaluations has rows with two expressions each, the second of which is needed after the first.
type batchOfEvaluations struct {
	evaluations

	t       *testing.T
	rows    []tasker.StepRef
	values  func(row int) expression.Values
	run     func(row int)
	open    bool // a transaction is
	stored  []int
	counted int
}

func newBatchOfEvaluations(t *testing.T, rows int) *batchOfEvaluations {
	t.Helper()
	b := &batchOfEvaluations{
		evaluations: evaluations{expensive: &expensiveNamespaces{}}, t: t, rows: make([]tasker.StepRef, rows),
		values: func(int) expression.Values { return expression.Values{Context: []byte(`{}`)} }, run: func(int) {},
	}
	for i := range b.rows {
		b.rows[i].StepUUID = tasker.NewID()
	}
	return b
}

// decide decides the rows, and returns which of them were stored.
func (b *batchOfEvaluations) decide() (stored []int, left bool) {
	b.stored = nil
	left, err := b.runBetween(b.t.Context(), b.rows, func(rows []tasker.StepRef) (left []tasker.StepRef, err error) {
		b.open = true
		defer func() { b.open = false }()
		for _, r := range rows {
			if errors.Is(b.decideRow(r), errNotEvaluated) {
				left = append(left, r)
			}
		}
		return left, nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(b.stored)
	return b.stored, left
}

func (b *batchOfEvaluations) decideRow(r tasker.StepRef) error {
	i := slices.Index(b.rows, r)
	for n, field := range []string{expression.When, expression.Over} {
		got, err := evaluateOnce(&b.evaluations, evaluationKey{row: r.StepUUID, field: field}, b.values(i), func(context.Context) (int, error) {
			if b.open {
				b.t.Errorf("expression %s of row %d runs in a transaction", field, i)
			}
			b.counted++
			b.run(i)
			return 10*i + n, nil
		})
		if err != nil {
			return err
		}
		if got != 10*i+n {
			b.t.Errorf("expression %s of row %d has the outcome %d", field, i, got)
		}
	}
	b.stored = append(b.stored, i)
	return nil
}

func TestExpressionsRunBetweenTransactions(t *testing.T) {
	b := newBatchOfEvaluations(t, 3)
	if stored, left := b.decide(); left || !slices.Equal(stored, []int{0, 1, 2}) || b.counted != 6 {
		t.Errorf("stored %v, %t, after %d evaluations", stored, left, b.counted)
	}
}

func TestChangedValuesAreEvaluatedAgain(t *testing.T) {
	b := newBatchOfEvaluations(t, 1)
	doc := `{"x": 1}`
	b.values = func(int) expression.Values { return expression.Values{Context: []byte(doc)} }
	b.run = func(int) {
		if b.counted == 1 {
			doc = `{"x": 2}`
		}
	}
	if stored, left := b.decide(); left || len(stored) != 1 || b.counted != 3 {
		t.Errorf("stored %v, %t, after %d evaluations", stored, left, b.counted)
	}
}
