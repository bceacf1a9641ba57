package templatefile

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tasker.example/tasker/internal/expression"
)

const (
	maxCheckCost = 2_000_000 // units of one request, see meter; about a second at most
	contextEvery = 2000      // units between two checks of the request's deadline
)

// A Budget limits the work to check all contexts of one request against their input schemas. It is
// not safe for concurrent use.
type Budget struct {
	left  int
	turns *fairSemaphore
}

// NewBudget returns the budget of one request.
func NewBudget() *Budget { return &Budget{left: maxCheckCost, turns: checking} }

// NewTimerBudget returns the budget of an action that the server starts itself. Its checks do not
// wait for requests.
func NewTimerBudget() *Budget { return &Budget{left: maxCheckCost, turns: byTimers} }

// budgetError is the value with which a meter panics when the budget is spent.
type budgetError struct{}

func (budgetError) Error() string {
	return "checking the context against input_schema is too expensive, alone or with the other contexts of the " +
		"request: " +
		"simplify the schema or the context, or create fewer tasks at once"
}

// interruptedError is the value with which a meter panics when the request has ended.
type interruptedError struct{ error }

func (i interruptedError) Unwrap() error { return i.error }

// meter limits the work of one validation. Recursive schemas can require work that doubles with
// every level, which no limit on the size of the schema or the document prevents.
//
// One unit is one subschema applied to one value, or a check of a few bytes. It takes less than a
// microsecond and less than a hundred bytes. The meter panics when the budget is spent or the
// request has ended, because the library offers no other way to abort a validation.
type meter struct {
	ctx    context.Context // of the request; nil between checks
	budget *Budget
	until  int // remaining units at the next check of ctx
	depth  int // of the document
}

func (m *meter) start(ctx context.Context, budget *Budget, doc any) {
	*m = meter{ctx: ctx, budget: budget, until: budget.left - contextEvery, depth: measureDepth(doc)}
}

func (m *meter) stop() { *m = meter{} }

func (m *meter) charge(cost int) {
	m.budget.left -= cost
	if m.budget.left < 0 {
		panic(budgetError{})
	}
	if m.budget.left < m.until {
		m.until = m.budget.left - contextEvery
		if err := m.ctx.Err(); err != nil {
			panic(interruptedError{err})
		}
	}
}

// measureDepth returns the nesting depth of objects and lists in a document.
func measureDepth(v any) int {
	deepest := -1
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			deepest = max(deepest, measureDepth(member))
		}
	case []any:
		for _, item := range v {
			deepest = max(deepest, measureDepth(item))
		}
	}
	return deepest + 1
}

// countMembers counts the direct members of a value.
func countMembers(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	default:
		return 0
	}
}

// pattern is a regular expression that charges a meter.
type pattern struct {
	*expression.Pattern
	meter *meter
}

func (m *meter) compileRegexp(text string) (jsonschema.Regexp, error) {
	p, err := expression.CompilePattern(text)
	if err != nil {
		return nil, err
	}
	return &pattern{Pattern: p, meter: m}, nil
}

// MatchString reports whether the expression matches, and charges for it.
func (p *pattern) MatchString(s string) bool {
	if p.meter.budget != nil { // nil while a schema is compiled
		p.meter.charge(p.Price(s))
	}
	return p.Pattern.MatchString(s)
}

// Turns limit how many checks run concurrently. Only checks can occupy a processor for long, so
// half of the processors stay free for heartbeats and reports. The server's own checks may hold
// locks and have a separate turn.
var (
	checking = newFairSemaphore(max(1, runtime.GOMAXPROCS(0)/2))
	byTimers = newFairSemaphore(1)
)

// fairSemaphore limits concurrent checks. They alternate between namespaces, regardless of how many
// checks of each are waiting.
type fairSemaphore struct {
	size int

	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by namespace, in order of arrival; closed when the turn begins
	next    []string                   // waiting namespaces
}

func newFairSemaphore(n int) *fairSemaphore {
	return &fairSemaphore{size: n, free: n, waiting: map[string][]chan struct{}{}}
}

// enter blocks until a check of a namespace may run. It returns the error of ctx if ctx ends first.
func (t *fairSemaphore) enter(ctx context.Context, namespace string) error {
	turn := t.join(namespace)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.withdraw(namespace, turn) { // the turn began at the same moment
		t.leave()
	}
	return ctx.Err()
}

// join takes a free turn, or returns a channel that is closed when the turn begins.
func (t *fairSemaphore) join(namespace string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], turn)
	return turn
}

// leave frees a turn, or passes it to the next waiting check.
func (t *fairSemaphore) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.free++
		return
	}
	namespace := t.next[0]
	close(t.waiting[namespace][0])
	t.next = t.next[1:]
	if t.drop(namespace, 0) {
		t.next = append(t.next, namespace) // behind the others
	}
}

// withdraw removes a waiting check. It returns false if the check was no longer waiting.
func (t *fairSemaphore) withdraw(namespace string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting[namespace], turn)
	if at < 0 {
		return false
	}
	if !t.drop(namespace, at) {
		t.next = slices.DeleteFunc(t.next, func(name string) bool { return name == namespace })
	}
	return true
}

// drop removes a waiting check and reports whether others of its namespace remain.
func (t *fairSemaphore) drop(namespace string, at int) bool {
	rest := slices.Delete(t.waiting[namespace], at, at+1)
	if t.waiting[namespace] = rest; len(rest) == 0 {
		delete(t.waiting, namespace)
	}
	return len(rest) > 0
}
