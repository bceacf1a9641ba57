// Package expression compiles and evaluates the CEL expressions in templates. Evaluation is
// deterministic: expressions have no clock and no randomness.
package expression

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"tasker.example/tasker"
)

// Limits of an expression.
const (
	MaxBytes   = 4 << 10 // of its text
	MaxNesting = 2       // of macros such as exists and filter, one in the other
	maxCost    = 100_000 // of one evaluation, in CEL's units: about 10 ms
)

// The names that an expression may use.
const (
	nameContext = "context"
	nameResults = "results"
	nameSteps   = "steps"
	nameTask    = "task"
	nameError   = "error"
	nameItem    = "item"
)

// A Scope is what an expression of a step may name.
type Scope struct {
	Input     json.RawMessage // JSON Schema of the context; empty: nothing is known of it
	Ancestors []string        // the steps that come before, near and far
	Steps     []string        // all steps of the template, to tell what is meant
	Failed    bool            // the step has failed, and its error is known
	Item      bool            // it is an item of a map step, and what it is for is known

	Search bool // it gives a search attribute: it may name any result, and the task is perhaps not there yet
	Stored bool // its template is stored: if it does not compile, its evaluation fails
}

// A Kind is what an expression must come to.
type Kind string

// The kinds.
const (
	Bool      Kind = "bool"      // a condition
	Timestamp Kind = "timestamp" // an instant
	Object    Kind = "object"    // an object of JSON
	List      Kind = "list"      // a list
	Any       Kind = "any"       // any value of JSON
	Text      Kind = "string"
	Number    Kind = "number"
)

// The keys of a step under which an expression stands; a dot is before a key within one.
const (
	When      = "when"
	WaitUntil = "wait_until"
	Input     = "input"
	Over      = "over"

	AssigneeFrom = "assignee_from"
	DueAt        = "due.at"
)

// A Source is an expression of a step as its template has it; its text is empty where the step
// has none.
type Source struct {
	Key  string
	Text string
	Kind Kind
}

// Of returns what may be an expression of a step.
func Of(s tasker.StepTemplate) []Source {
	return []Source{{When, s.When, Bool}, {WaitUntil, s.WaitUntil, Timestamp}, {Input, s.Input, Object}, {Over, s.Over, List}, {AssigneeFrom, s.AssigneeFrom, Text}, {DueAt, s.Due.At, Timestamp}}
}

// A Program is an expression that is ready to be evaluated, any number of times at once.
type Program struct {
	text    string
	parsed  *cel.Ast
	program cel.Program
	results []string
	states  []string
	lists   [][]string // of a list: the paths of those whose elements it gives, see listsOf
	path    []string   // of the value in the context or in a result that it only names; nil otherwise
	kind    Kind
	fault   error // of a stored expression that does not compile
}

// Text returns the expression as it was written.
func (p *Program) Text() string { return p.text }

// Results returns the steps whose results the expression names.
func (p *Program) Results() []string { return p.results }

// ListsInContext returns the paths in the context of the lists whose elements an expression gives, all
// of them or some, as they are or changed: a and b.c of context.a.filter(…) + context.b.c.
func (p *Program) ListsInContext() [][]string {
	var paths [][]string
	for _, path := range p.lists {
		if path[0] == nameContext {
			paths = append(paths, path[1:])
		}
	}
	return paths
}

// ListsInResults returns the steps in whose results such lists are.
func (p *Program) ListsInResults() []string {
	var steps []string
	for _, path := range p.lists {
		if path[0] == nameResults {
			steps = append(steps, path[1])
		}
	}
	return steps
}

// States returns the steps whose states the expression names.
func (p *Program) States() []string { return p.states }

// The CEL environments of expressions: of templates, of steps that have failed, and of items
// that have.
var (
	language     = sync.OnceValues(func() (*cel.Env, error) { return newLanguage() })
	failedSteps  = sync.OnceValues(func() (*cel.Env, error) { return newLanguage(errorVariable) })
	failedItems  = sync.OnceValues(func() (*cel.Env, error) { return newLanguage(errorVariable, itemVariable) })
	itemVariable = cel.Variable(nameItem, cel.DynType)

	errorVariable = cel.Variable(nameError, cel.MapType(cel.StringType, cel.DynType))
)

func (s Scope) language() (*cel.Env, error) {
	switch {
	case s.Failed && s.Item:
		return failedItems()
	case s.Failed:
		return failedSteps()
	default:
		return language()
	}
}

// newLanguage makes an environment. JSON knows one kind of number, so numbers of differing
// types are compared by their value.
func newLanguage(more ...cel.EnvOption) (*cel.Env, error) {
	functions, err := functionsOf()
	if err != nil {
		return nil, err
	}
	return cel.NewCustomEnv(slices.Concat(functions, more, []cel.EnvOption{
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.ParserRecursionLimit(50), cel.ParserExpressionSizeLimit(MaxBytes),
		cel.Variable(nameContext, cel.DynType),
		cel.Variable(nameResults, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameSteps, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameTask, cel.MapType(cel.StringType, cel.DynType)),
	})...)
}

// Compile compiles an expression. The error is Invalid and says what is wrong, in words
// for the author of the template.
func Compile(text string, s Scope, want Kind) (*Program, error) {
	p, err := compile(text, s, want)
	if s.Stored && tasker.CodeOf(err) == tasker.Invalid {
		return &Program{text: text, kind: want, fault: err}, nil
	}
	return p, err
}

func compile(text string, s Scope, want Kind) (*Program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, invalid("is empty")
	}
	if len(text) > MaxBytes {
		return nil, invalid("has %d bytes; %d is the limit", len(text), MaxBytes)
	}
	env, err := s.language()
	if err != nil {
		return nil, fmt.Errorf("prepare the language of expressions: %w", err)
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	if err := numbers(parsed.NativeRep(), text); err != nil {
		return nil, err
	}
	w := walk{scope: s, info: parsed.NativeRep().SourceInfo(), guarded: guarded(parsed.NativeRep().Expr())}
	w.visit(parsed.NativeRep().Expr(), 0)
	if w.fault != nil {
		return nil, w.fault
	}
	checked, err := check(env, parsed)
	if err != nil {
		return nil, err
	}
	if err := isOf(want, checked, w.typeOf(parsed.NativeRep().Expr())); err != nil {
		return nil, err
	}
	withEquality(checked)
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100), cel.CostTracking(costs{}))
	if err != nil {
		return nil, invalid("%s", err)
	}
	var lists [][]string
	if want == List {
		lists = listsOf(parsed.NativeRep().Expr())
	}
	slices.Sort(w.results)
	slices.Sort(w.states)
	return &Program{
		text: text, parsed: checked, program: program, results: slices.Compact(w.results), states: slices.Compact(w.states),
		lists: lists, path: valueAt(parsed.NativeRep().Expr()), kind: want,
	}, nil
}

// checking is held while types are checked: the environment makes its list of names at the
// first fault, and reads it without a lock of its own (cel-go v0.33.2).
var checking sync.Mutex

func check(env *cel.Env, parsed *cel.Ast) (*cel.Ast, error) {
	checking.Lock()
	defer checking.Unlock()
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	return checked, nil
}

func invalid(format string, args ...any) error { return tasker.Errorf(tasker.Invalid, format, args...) }

// unexpected is how the parser says that something is where nothing like it can be.
var unexpected = regexp.MustCompile(`^(?:mismatched input|extraneous input|no viable alternative at input|token recognition error at:) ?('.*?')(?: expecting .*)?$`)

// firstIssue says where an expression is not understood, and why.
func firstIssue(issues *cel.Issues) error {
	if list := issues.Errors(); len(list) > 0 {
		e := list[0]
		what := strings.TrimSpace(strings.TrimPrefix(e.Message, "Syntax error:"))
		if m := unexpected.FindStringSubmatch(what); m != nil {
			what = strings.Replace("unexpected "+m[1], "'<EOF>'", "end", 1)
		}
		return invalid("column %d: %s", e.Location.Column()+1, what)
	}
	return invalid("is not understood: %s", issues.Err())
}

// isOf checks that an expression comes to what is wanted, as far as that is known.
func isOf(want Kind, checked *cel.Ast, byScheme string) error {
	out := checked.OutputType()
	is := byScheme
	if is == "" && !out.IsExactType(cel.DynType) {
		is = out.String()
	}
	switch {
	case is == "", want == Any, is == string(want), want == Bool && is == "boolean", want == Timestamp && out.IsExactType(cel.TimestampType),
		want == List && (is == "array" || byScheme == "" && out.Kind() == types.ListKind):
		return nil
	case want == Object && out.Kind() == types.MapKind:
		return nil
	case want == Object:
		return invalid("must be an object; this is %s", article(is))
	case want == List:
		return invalid("must be a list; this is %s", article(is))
	case want == Number && article(is) == "a number":
		return nil
	case want == Text && article(is) == "a number": // its text
		return nil
	case want == Text, want == Number:
		return invalid("must be %s; this is %s", article(string(want)), article(is))
	case want == Timestamp && is == "string":
		return invalid("must be an instant; this is a text: write timestamp(…)")
	case want == Timestamp:
		return invalid("must be an instant; this is %s", article(is))
	default:
		return invalid("must be true or false; this is %s", article(is))
	}
}

func article(kind string) string {
	switch kind {
	case "int", "uint", "double", "number", "integer":
		return "a number"
	case "string":
		return "a text"
	case "google.protobuf.Timestamp", "timestamp":
		return "an instant"
	case "google.protobuf.Duration", "duration":
		return "a duration"
	case "bool", "boolean":
		return "true or false"
	case "null_type", "null":
		return "null"
	case "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

// at returns where an expression stands in its text.
func at(info *ast.SourceInfo, id int64) string {
	if l := info.GetStartLocation(id); l.Column() >= 0 {
		return fmt.Sprintf("column %d: ", l.Column()+1)
	}
	return ""
}
