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
	MaxNesting = 2       // nested macros such as exists and filter
	maxCost    = 100_000 // of one evaluation, in CEL units: about 10 ms
)

// Names of variables.
const (
	nameContext = "context"
	nameResults = "results"
	nameSteps   = "steps"
	nameTask    = "task"
	nameError   = "error"
	nameItem    = "item"
)

// A Scope defines the names that an expression of a step can use.
type Scope struct {
	Input     json.RawMessage // JSON Schema of the context; optional
	Ancestors []string        // direct and indirect dependencies
	Steps     []string        // all steps of the template, for suggestions
	Failed    bool            // the error of the step is available
	Item      bool            // the item of a map step is available

	Search bool // search attribute: any result is available, and the task may not exist yet
	Stored bool // stored template: if the expression does not compile, its evaluation fails
}

// A Kind is the required result type of an expression.
type Kind string

// Result types.
const (
	Bool      Kind = "bool" // a condition
	Timestamp Kind = "timestamp"
	Object    Kind = "object" // a JSON object
	List      Kind = "list"
	Any       Kind = "any" // any JSON value
	Text      Kind = "string"
	Number    Kind = "number"
)

// Keys of a step that contain expressions; a dot separates nested keys.
const (
	When      = "when"
	WaitUntil = "wait_until"
	Input     = "input"
	Over      = "over"

	AssigneeFrom = "assignee_from"
	DueAt        = "due.at"
)

// A Source is an expression in a template. Text is empty if the step has none.
type Source struct {
	Key  string
	Text string
	Kind Kind
}

// SourcesOf returns the expressions of a step. Those that the step does not have are empty.
func SourcesOf(s tasker.StepTemplate) []Source {
	return []Source{
		{When, s.When, Bool}, {WaitUntil, s.WaitUntil, Timestamp}, {Input, s.Input, Object}, {Over, s.Over, List},
		{AssigneeFrom, s.AssigneeFrom, Text}, {DueAt, s.Due.At, Timestamp},
	}
}

// A Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	text    string
	parsed  *cel.Ast
	program cel.Program
	results []string
	states  []string
	lists   [][]string // for a list: see listPaths
	path    []string   // set if the expression is only a path: see valuePath
	kind    Kind
	fault   error // of a stored expression that does not compile
}

// Text returns the source of the expression.
func (p *Program) Text() string { return p.text }

// Results returns the steps whose results the expression reads.
func (p *Program) Results() []string { return p.results }

// ListsInContext returns the paths of the lists in the context whose elements the expression
// returns, whether filtered, mapped or unchanged. For context.a.filter(…) + context.b.c, these are
// a and b.c.
func (p *Program) ListsInContext() [][]string {
	var paths [][]string
	for _, path := range p.lists {
		if path[0] == nameContext {
			paths = append(paths, path[1:])
		}
	}
	return paths
}

// ListsInResults returns the steps whose results contain lists whose elements the expression
// returns.
func (p *Program) ListsInResults() []string {
	var steps []string
	for _, path := range p.lists {
		if path[0] == nameResults {
			steps = append(steps, path[1])
		}
	}
	return steps
}

// States returns the steps whose states the expression reads.
func (p *Program) States() []string { return p.states }

// The CEL environments: for templates, for failed steps and for failed items.
var (
	language     = sync.OnceValues(func() (*cel.Env, error) { return newBaseEnv() })
	failedSteps  = sync.OnceValues(func() (*cel.Env, error) { return newBaseEnv(errorVariable) })
	failedItems  = sync.OnceValues(func() (*cel.Env, error) { return newBaseEnv(errorVariable, itemVariable) })
	itemVariable = cel.Variable(nameItem, cel.DynType)

	errorVariable = cel.Variable(nameError, cel.MapType(cel.StringType, cel.DynType))
)

func (s Scope) newEnv() (*cel.Env, error) {
	switch {
	case s.Failed && s.Item:
		return failedItems()
	case s.Failed:
		return failedSteps()
	default:
		return language()
	}
}

// newBaseEnv returns a CEL environment. It compares numbers of different CEL types by value,
// because JSON has only one type of number.
func newBaseEnv(more ...cel.EnvOption) (*cel.Env, error) {
	functions, err := buildFunctions()
	if err != nil {
		return nil, err
	}
	return cel.NewCustomEnv(slices.Concat(functions, more, []cel.EnvOption{
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(50), cel.ParserExpressionSizeLimit(MaxBytes),
		cel.Variable(nameContext, cel.DynType),
		cel.Variable(nameResults, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameSteps, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameTask, cel.MapType(cel.StringType, cel.DynType)),
	})...)
}

// Compile compiles an expression whose result must have the type want. The error is Invalid, with
// a message for the author of the template.
func Compile(text string, s Scope, want Kind) (*Program, error) {
	p, err := compile(text, s, want)
	if s.Stored && tasker.CodeOf(err) == tasker.Invalid {
		return &Program{text: text, kind: want, fault: err}, nil
	}
	return p, err
}

func compile(text string, s Scope, want Kind) (*Program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, newInvalidError("is empty")
	}
	if len(text) > MaxBytes {
		return nil, newInvalidError("has %d bytes; the limit is %d", len(text), MaxBytes)
	}
	env, err := s.newEnv()
	if err != nil {
		return nil, fmt.Errorf("set up the expression language: %w", err)
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	if err := rewriteNumbers(parsed.NativeRep(), text); err != nil {
		return nil, err
	}
	root := parsed.NativeRep().Expr()
	w := checker{scope: s, info: parsed.NativeRep().SourceInfo(), guarded: findGuarded(root)}
	w.visit(root, 0)
	if w.fault != nil {
		return nil, w.fault
	}
	checked, err := check(env, parsed)
	if err != nil {
		return nil, err
	}
	if err := checkType(want, checked, w.typeOf(root)); err != nil {
		return nil, err
	}
	addEquality(checked)
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100), cel.CostTracking(costs{}))
	if err != nil {
		return nil, newInvalidError("%s", err)
	}
	var lists [][]string
	if want == List {
		lists = listPaths(root)
	}
	slices.Sort(w.results)
	slices.Sort(w.states)
	return &Program{
		text: text, parsed: checked, program: program, results: slices.Compact(w.results), states: slices.Compact(w.states),
		lists: lists, path: valuePath(root), kind: want,
	}, nil
}

// checking serializes type checks: on the first error, an environment creates its list of names,
// which it reads without a lock (cel-go v0.33.2).
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

func newInvalidError(format string, args ...any) error {
	return tasker.Errorf(tasker.Invalid, format, args...)
}

// unexpected matches the parser's messages for unexpected tokens.
var unexpected = regexp.MustCompile(`^(?:mismatched input|extraneous input|no viable alternative at input|token recognition error at:) ?('.*?')(?: expecting .*)?$`)

// firstIssue converts the first issue to an error with its position and message.
func firstIssue(issues *cel.Issues) error {
	if list := issues.Errors(); len(list) > 0 {
		e := list[0]
		what := strings.TrimSpace(strings.TrimPrefix(e.Message, "Syntax error:"))
		if m := unexpected.FindStringSubmatch(what); m != nil {
			what = strings.Replace("unexpected "+m[1], "'<EOF>'", "end", 1)
		}
		return newInvalidError("column %d: %s", e.Location.Column()+1, what)
	}
	return newInvalidError("cannot be parsed: %s", issues.Err())
}

// checkType checks the result type of an expression if it is known. schemaType is the type
// according to the input schema, or "".
func checkType(want Kind, checked *cel.Ast, schemaType string) error {
	out := checked.OutputType()
	is := schemaType
	if is == "" && !out.IsExactType(cel.DynType) {
		is = out.String()
	}
	switch {
	case is == "", want == Any, is == string(want), want == Bool && is == "boolean",
		want == Timestamp && out.IsExactType(cel.TimestampType), want == Object && out.Kind() == types.MapKind,
		want == List && (is == "array" || schemaType == "" && out.Kind() == types.ListKind),
		(want == Number || want == Text) && withArticle(is) == "a number":
		return nil
	case want == Object:
		return newInvalidError("must be an object, not %s", withArticle(is))
	case want == List:
		return newInvalidError("must be a list, not %s", withArticle(is))
	case want == Text, want == Number:
		return newInvalidError("must be %s, not %s", withArticle(string(want)), withArticle(is))
	case want == Timestamp && is == "string":
		return newInvalidError("must be a timestamp, not a string: use timestamp(…)")
	case want == Timestamp:
		return newInvalidError("must be a timestamp, not %s", withArticle(is))
	default:
		return newInvalidError("must be true or false, not %s", withArticle(is))
	}
}

func withArticle(kind string) string {
	switch kind {
	case "int", "uint", "double", "number", "integer":
		return "a number"
	case "string":
		return "a string"
	case "google.protobuf.Timestamp", "timestamp":
		return "a timestamp"
	case "google.protobuf.Duration", "duration":
		return "a duration"
	case "bool", "boolean":
		return "a boolean"
	case "null_type", "null":
		return "null"
	case "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

// formatPosition formats the position of a part of an expression as a prefix for errors, or returns
// "" if it is unknown.
func formatPosition(info *ast.SourceInfo, id int64) string {
	if l := info.GetStartLocation(id); l.Column() >= 0 {
		return fmt.Sprintf("column %d: ", l.Column()+1)
	}
	return ""
}
