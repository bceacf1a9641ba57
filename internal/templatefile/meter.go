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
	maxCheckCost = 2_000_000 // units of one request, see meter; at most about a second
	contextEvery = 2000      // units between two looks at the deadline of the request
)

// A Budget bounds the work of checking all contexts of one request against their
// input schemas. It is not safe for concurrent use.
type Budget struct {
	left  int
	turns *turns // that its checks take
}

// NewBudget returns the budget of one request.
func NewBudget() *Budget { return &Budget{left: maxCheckCost, turns: checking} }

// NewTimerBudget returns the budget of something that the server does by itself. Its checks
// do not wait for those of requests.
func NewTimerBudget() *Budget { return &Budget{left: maxCheckCost, turns: byTimers} }

// exhausted is what a meter panics with when the budget is spent.
type exhausted struct{}

func (exhausted) Error() string {
	return "the input_schema takes too much work for this context, or for all contexts of the request together; " +
		"make the schema or the context simpler, or create fewer tasks at once"
}

// interrupted is what a meter panics with when the request has ended.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

// A meter bounds the work of one validation. Schemas that refer to themselves
// or to each other can ask for work that doubles with every level, and no
// limit on the size of the schema or of the document prevents that.
//
// One unit is one subschema met by one value, or a look at a few bytes; it takes
// less than a microsecond and less than a hundred bytes. When the budget is spent
// or the request has ended the meter panics, because the library has no other way
// out of the middle of a validation.
type meter struct {
	ctx    context.Context // of the request; nil while no document is checked
	budget *Budget
	until  int // the next look at ctx, when so many units are left
	depth  int // of the document
}

func (m *meter) start(ctx context.Context, budget *Budget, doc any) {
	*m = meter{ctx: ctx, budget: budget, until: budget.left - contextEvery, depth: depth(doc)}
}

func (m *meter) stop() { *m = meter{} }

func (m *meter) charge(cost int) {
	m.budget.left -= cost
	if m.budget.left < 0 {
		panic(exhausted{})
	}
	if m.budget.left < m.until {
		m.until = m.budget.left - contextEvery
		if err := m.ctx.Err(); err != nil {
			panic(interrupted{err})
		}
	}
}

// depth is how many objects and lists of a document lie inside one another.
func depth(v any) int {
	deepest := -1
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			deepest = max(deepest, depth(member))
		}
	case []any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	}
	return deepest + 1
}

// members counts what is directly inside a value.
func members(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	default:
		return 0
	}
}

// A pattern is a regular expression that charges a meter.
type pattern struct {
	*expression.Pattern
	meter *meter
}

// regexp compiles a regular expression for the library.
func (m *meter) regexp(text string) (jsonschema.Regexp, error) {
	p, err := expression.CompilePattern(text)
	if err != nil {
		return nil, err
	}
	return &pattern{Pattern: p, meter: m}, nil
}

// MatchString reports whether the expression matches, at its price.
func (p *pattern) MatchString(s string) bool {
	if p.meter.budget != nil { // otherwise a schema is being compiled
		p.meter.charge(p.Price(s))
	}
	return p.Pattern.MatchString(s)
}

// Turns limit how many checks run at the same time. They are the only work of
// a request that can keep a processor busy for long, and half of the processors
// stays free for heartbeats and reports. What the server does by itself has a turn
// beside them, because it may hold locks meanwhile.
var (
	checking = newTurns(max(1, runtime.GOMAXPROCS(0)/2))
	byTimers = newTurns(1)
)

// turns are taken by namespaces one after the other, however many checks of each wait.
type turns struct {
	size int

	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by namespace, in the order of their arrival; closed when it is their turn
	next    []string                   // the namespaces that wait
}

func newTurns(n int) *turns {
	return &turns{size: n, free: n, waiting: map[string][]chan struct{}{}}
}

// enter returns when a check of a namespace may run. The error is that of ctx.
func (t *turns) enter(ctx context.Context, namespace string) error {
	turn := t.join(namespace)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.withdraw(namespace, turn) { // its turn came in the same moment
		t.leave()
	}
	return ctx.Err()
}

// join takes a turn, or returns what is closed when it comes.
func (t *turns) join(namespace string) chan struct{} {
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

// leave ends a check that ran, and has the next run.
func (t *turns) leave() {
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

// withdraw takes out a check that waits, and reports whether it still did.
func (t *turns) withdraw(namespace string, turn chan struct{}) bool {
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

// drop removes one that waits, and reports whether there are others of its namespace.
func (t *turns) drop(namespace string, at int) bool {
	rest := slices.Delete(t.waiting[namespace], at, at+1)
	if t.waiting[namespace] = rest; len(rest) == 0 {
		delete(t.waiting, namespace)
	}
	return len(rest) > 0
}
