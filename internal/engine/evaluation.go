package engine

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
)

const (
	expensiveTime = 20 * time.Millisecond // time for expressions of one namespace in one batch
	expensiveFor  = time.Minute           // time since the last slow batch
)

// expensiveNamespaces contains the namespaces whose expressions were slow in the last minute. Their
// steps are decided by a separate loop, so that they do not delay other namespaces.
type expensiveNamespaces struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (x *expensiveNamespaces) add(namespace string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.until == nil {
		x.until = map[string]time.Time{}
	}
	x.until[namespace] = time.Now().Add(expensiveFor)
}

func (x *expensiveNamespaces) has(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Now().Before(x.until[namespace])
}

// list removes namespaces whose time is over and returns the others.
func (x *expensiveNamespaces) list() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.until, func(_ string, until time.Time) bool { return time.Now().After(until) })
	return slices.Sorted(maps.Keys(x.until))
}

// evaluationBytes limits the size of the values that are kept for evaluations between two
// transactions. A single evaluation is always allowed.
const evaluationBytes = 4 * conditionBytes

// errNotEvaluated indicates that an expression must be evaluated before the next transaction.
var errNotEvaluated = errors.New("expression not evaluated yet")

// evaluations evaluates the expressions of a batch between its transactions, so that none runs
// while locks are held. Transactions read outcomes with evaluateOnce. A row whose outcome is
// missing remains due.
type evaluations struct {
	known  map[evaluationKey]evaluation // outcomes for the next transaction
	needed map[evaluationKey]evaluation // requested by the last transaction
	bytes  int                          // total size of the values in needed
	begun  time.Time                    // when the first evaluation began

	expensive *expensiveNamespaces     // collects namespaces that are slow
	separate  bool                     // the batch contains only slow namespaces; else these are left out
	spent     map[string]time.Duration // time spent, by namespace
}

// An evaluationKey identifies an expression of a step or a task. The text of the expression is
// included because template versions can differ.
type evaluationKey struct {
	row        tasker.ID
	field      string // template field, such as [expression.When]
	expression string
}

type evaluation struct {
	values  expression.Values
	run     func(context.Context) (any, error)
	outcome any
	err     error
}

// evaluateOnce returns the outcome of run for exactly these values, if it is known. Otherwise it
// schedules the evaluation and returns errNotEvaluated.
func evaluateOnce[T any](e *evaluations, key evaluationKey, v expression.Values, run func(context.Context) (T, error)) (outcome T, err error) {
	if known, ok := e.known[key]; ok && reflect.DeepEqual(known.values, v) {
		outcome, _ = known.outcome.(T)
		return outcome, known.err
	}
	if _, repeated := e.needed[key]; !repeated {
		size := len(v.Context)
		for _, result := range v.Results {
			size += len(result)
		}
		if len(e.needed) > 0 && e.bytes+size > evaluationBytes {
			return outcome, errNotEvaluated
		}
		e.bytes += size
	}
	if e.needed == nil {
		e.needed = map[evaluationKey]evaluation{}
	}
	e.needed[key] = evaluation{values: v, run: func(ctx context.Context) (any, error) { return run(ctx) }}
	return outcome, errNotEvaluated
}

// run evaluates the expressions that the last transaction needed, for at most decideTime. It
// returns the number of evaluations. Known outcomes of other rows are discarded. It returns an
// error only if ctx ends.
func (e *evaluations) run(ctx context.Context) (evaluated int, err error) {
	if e.begun.IsZero() {
		e.begun, e.spent = time.Now(), map[string]time.Duration{}
	}
	needed := e.needed
	e.needed, e.bytes = nil, 0
	rows := map[tasker.ID]bool{}
	for key := range needed {
		rows[key.row] = true
	}
	maps.DeleteFunc(e.known, func(key evaluationKey, _ evaluation) bool { return !rows[key.row] })
	if e.known == nil {
		e.known = map[evaluationKey]evaluation{}
	}
	for key, n := range needed {
		namespace := n.values.Task.Namespace
		if evaluated > 0 && e.isOverTime() || !e.separate && e.expensive.has(namespace) {
			continue
		}
		begun := time.Now()
		n.outcome, n.err = n.run(ctx)
		if err := ctx.Err(); err != nil {
			return evaluated, err
		}
		e.known[key] = n
		evaluated++
		if e.spent[namespace] += time.Since(begun); e.spent[namespace] > expensiveTime {
			e.expensive.add(namespace)
		}
	}
	return evaluated, nil
}

func (e *evaluations) isOverTime() bool { return !e.begun.IsZero() && time.Since(e.begun) > decideTime }

// runBetween calls transaction with rows, and then again with the rows that it left because an
// evaluation was missing. It ends when no rows are left or the time for expressions is used up. It
// reports whether rows are left; these remain due.
func (e *evaluations) runBetween(ctx context.Context, rows []tasker.StepRef, transaction func([]tasker.StepRef) (left []tasker.StepRef, err error)) (bool, error) {
	for range decideRounds {
		left, err := transaction(rows)
		if err != nil || len(left) == 0 {
			return false, err
		}
		if e.isOverTime() {
			return true, nil
		}
		if evaluated, err := e.run(ctx); err != nil || evaluated == 0 {
			return true, err
		}
		rows = left
	}
	return true, nil
}
