package expression

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"tasker.example/tasker/internal/suggest"
)

// wholeNumbers lists the functions that return a CEL integer.
var wholeNumbers = []string{
	"size", "int", "uint", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
	"getHours", "getMinutes", "getSeconds", "getMilliseconds",
}

// rewriteNumbers converts integer literals, except list indexes, and integer results of functions
// to JSON numbers, because CEL does not mix number types in arithmetic.
func rewriteNumbers(parsed *ast.AST, text string) error {
	factory, root := ast.NewExprFactory(), parsed.Expr()
	var fault error
	var index []int64
	var whole []ast.Expr
	visit(root, func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			c := e.AsCall()
			if isIndex(c) {
				index = append(index, c.Args()[1].ID())
			}
			if slices.Contains(wholeNumbers, c.FunctionName()) {
				whole = append(whole, e)
			}
		case ast.LiteralKind:
			if n := toLiteral(e, parsed.SourceInfo(), text); n != nil && !slices.Contains(index, e.ID()) {
				if types.IsError(n) && fault == nil {
					fault = newInvalidError("%s%s", formatPosition(parsed.SourceInfo(), e.ID()), errRange)
				}
				e.SetKindCase(factory.NewLiteral(e.ID(), n))
			}
		default:
		}
	})
	next := int64(1 << 20) // greater than the ids of the parser
	for _, e := range whole {
		c, inner := e.AsCall(), ast.Expr(nil)
		next++
		if c.IsMemberFunction() {
			inner = factory.NewMemberCall(next, c.FunctionName(), c.Target(), c.Args()...)
		} else {
			inner = factory.NewCall(next, c.FunctionName(), c.Args()...)
		}
		e.SetKindCase(factory.NewCall(e.ID(), "double", inner))
	}
	return fault
}

// toLiteral returns the value of a number literal with all of its digits, or nil for other
// expressions.
func toLiteral(e ast.Expr, info *ast.SourceInfo, text string) ref.Val {
	switch n := e.AsLiteral().(type) {
	case types.Int, types.Uint:
		d, _ := toDecimal(n)
		return parseNumber(d.String())
	case types.Double:
		at, ok := info.GetOffsetRange(e.ID())
		written := []rune(text)
		if !ok || at.Start < 0 || int(at.Stop) > len(written) || at.Start >= at.Stop {
			return n
		}
		return parseNumber(string(written[at.Start:at.Stop]))
	}
	return nil
}

func isIndex(c ast.CallExpr) bool {
	return (c.FunctionName() == operators.Index || c.FunctionName() == operators.OptIndex) && len(c.Args()) == 2
}

// visit calls f for an expression and then for its parts.
func visit(e ast.Expr, f func(ast.Expr)) {
	f(e)
	for _, part := range subexpressions(e) {
		visit(part, f)
	}
}

func subexpressions(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			return append([]ast.Expr{c.Target()}, c.Args()...)
		}
		return c.Args()
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return parts
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	default:
		return nil
	}
}

// selectorPath returns the path in an expression such as context.a["b"], or nil for other
// expressions.
func selectorPath(e ast.Expr) []string { return accessPath(e, operators.Index) }

// accessPath is like selectorPath with other access functions.
func accessPath(e ast.Expr, access ...string) []string {
	switch e.Kind() {
	case ast.IdentKind:
		return []string{e.AsIdent()}
	case ast.SelectKind:
		if path := accessPath(e.AsSelect().Operand(), access...); path != nil {
			return append(path, e.AsSelect().FieldName())
		}
	case ast.CallKind:
		c := e.AsCall()
		if !slices.Contains(access, c.FunctionName()) || len(c.Args()) != 2 || c.Args()[1].Kind() != ast.LiteralKind {
			return nil
		}
		name, ok := c.Args()[1].AsLiteral().(types.String)
		if path := accessPath(c.Args()[0], access...); ok && path != nil {
			return append(path, string(name))
		}
	default:
	}
	return nil
}

// valuePath returns the path of an expression that is only a path into the context, a result or an
// item. It returns nil for other expressions.
func valuePath(e ast.Expr) []string {
	path := selectorPath(e)
	switch {
	case len(path) == 0 || e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		return nil
	case path[0] == nameContext, path[0] == nameItem, path[0] == nameResults && len(path) > 1:
		return path
	default:
		return nil
	}
}

// listPaths returns the paths, including context or results, of the lists whose elements an
// expression returns.
func listPaths(e ast.Expr) [][]string {
	if path := pathOrNone(e); len(path) > 1 && (path[0] == nameContext || path[0] == nameResults) {
		return [][]string{path}
	}
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		switch c.FunctionName() {
		case "orValue", "value":
			return listPaths(c.Target())
		case operators.Conditional:
			return append(listPaths(c.Args()[1]), listPaths(c.Args()[2])...)
		case operators.Add:
			return append(listPaths(c.Args()[0]), listPaths(c.Args()[1])...)
		}
	case ast.ComprehensionKind:
		return listPaths(e.AsComprehension().IterRange())
	default:
	}
	return nil
}

// pathOrNone is like selectorPath but also accepts optional fields, as in context.?a.
func pathOrNone(e ast.Expr) []string {
	return accessPath(e, operators.Index, operators.OptIndex, operators.OptSelect)
}

// findGuarded returns the paths that an expression tests with the macro has.
func findGuarded(root ast.Expr) map[string]bool {
	found := map[string]bool{}
	visit(root, func(e ast.Expr) {
		if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
			found[strings.Join(selectorPath(e), ".")] = true
		}
	})
	return found
}

// checker collects the steps to which an expression refers, and the first fault.
type checker struct {
	scope   Scope
	info    *ast.SourceInfo
	guarded map[string]bool
	results []string
	states  []string
	fault   error
}

func (w *checker) failAt(e ast.Expr, format string, args ...any) {
	if w.fault == nil {
		w.fault = newInvalidError(formatPosition(w.info, e.ID())+format, args...)
	}
}

func (w *checker) visit(e ast.Expr, nesting int) {
	switch e.Kind() {
	case ast.ComprehensionKind:
		if nesting++; nesting > MaxNesting {
			w.failAt(e, "exists, all, filter and map must not be nested more than %d levels deep", MaxNesting)
		}
	case ast.CallKind:
		w.checkCall(e)
	case ast.StructKind:
		w.failAt(e, "message types are not supported")
	default:
	}
	if path := selectorPath(e); path != nil {
		if path[0] == nameContext && e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
			path = path[:len(path)-1] // has tests the last field
		}
		w.checkName(e, path)
		return
	}
	for _, part := range subexpressions(e) {
		w.visit(part, nesting)
	}
}

// checkCall checks what can be checked of a function call without evaluating it.
func (w *checker) checkCall(e ast.Expr) {
	c := e.AsCall()
	switch c.FunctionName() {
	case operators.Modulo:
		w.failAt(e, "the operator %% is not supported: JSON numbers are not integers")
	case overloads.Matches:
		if len(c.Args()) == 0 {
			return
		}
		last := c.Args()[len(c.Args())-1]
		if last.Kind() != ast.LiteralKind {
			return
		}
		if pattern, ok := last.AsLiteral().(types.String); ok {
			if _, err := CompilePattern(string(pattern)); err != nil {
				w.failAt(e, "%s", err)
			}
		}
	}
}

// errorKeys lists the fields of a step's error.
var errorKeys = []string{"type", "message", "attempt", "context"}

// checkName checks a path and records the step that it refers to.
func (w *checker) checkName(e ast.Expr, path []string) {
	switch path[0] {
	case nameContext:
		w.checkContext(e, path)
	case nameResults:
		if w.checkStep(e, path) {
			w.results = append(w.results, path[1])
		}
	case nameSteps:
		if !w.checkStep(e, path) {
			return
		}
		if len(path) != 3 || path[2] != "state" {
			w.failAt(e, "a step has only a state: use steps.%s.state", path[1])
		}
		w.states = append(w.states, path[1])
	case nameTask:
		known := []string{"id", "created_at", "priority", "namespace", "correlation_id"}
		if w.scope.Search { // the task may not be created yet
			known = slices.Delete(known, 1, 2)
		}
		if len(path) > 1 && !slices.Contains(known, path[1]) {
			w.failAt(e, "unknown task.%s: must be one of task.%s", path[1], strings.Join(known, ", task."))
		}
	case nameError:
		if w.scope.Failed && len(path) > 1 && !slices.Contains(errorKeys, path[1]) {
			w.failAt(e, "unknown error.%s: must be one of error.%s", path[1], strings.Join(errorKeys, ", error."))
		}
	}
}

// checkStep reports whether a path refers to a step whose outcome is available when the expression
// is evaluated.
func (w *checker) checkStep(e ast.Expr, path []string) bool {
	switch {
	case w.scope.Search && path[0] == nameSteps:
		w.failAt(e, "steps is not available here: use the result of a step, results.<step>")
	case len(path) < 2:
		w.failAt(e, "missing step name: use %s.<step> or %s[\"<step>\"]", path[0], path[0])
	case slices.Contains(w.scope.Ancestors, path[1]):
		return true
	case slices.Contains(w.scope.Steps, path[1]):
		w.failAt(e, "step %q is not a dependency, so its outcome may be unknown at evaluation: "+
			"add it to dependencies", path[1])
	default:
		w.failAt(e, "unknown step %q in %s.%s%s", path[1], path[0], path[1], suggest.Ending(path[1], w.scope.Steps))
	}
	return false
}

// schemaCheck is the relevant part of a JSON Schema.
type schemaCheck struct {
	Type       json.RawMessage            `json:"type"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Additional json.RawMessage            `json:"additionalProperties"`
}

// checkContext checks a path into the context against the input schema.
func (w *checker) checkContext(e ast.Expr, path []string) {
	doc := w.scope.Input
	for i, name := range path[1:] {
		var s schemaCheck
		if len(doc) == 0 || json.Unmarshal(doc, &s) != nil || len(s.Properties) == 0 {
			return
		}
		here := strings.Join(path[:i+2], ".")
		property, known := s.Properties[name]
		switch {
		case !known && string(s.Additional) == "false":
			w.failAt(e, "%s is not in input_schema%s", here, suggest.Ending(name, slices.Sorted(maps.Keys(s.Properties))))
			return
		case !slices.Contains(s.Required, name) && !w.guarded[here] && !w.scope.Search:
			w.failAt(e, "%s may be absent, as input_schema does not require it: use has(%s) && … or %s.?%s.orValue(…)",
				here, here, strings.Join(path[:i+1], "."), name)
			return
		}
		doc = property
	}
}

// typeOf returns the type of a context path in the input schema, or "".
func (w *checker) typeOf(e ast.Expr) string {
	path := selectorPath(e)
	if len(path) < 2 || path[0] != nameContext || e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return ""
	}
	doc := w.scope.Input
	for _, name := range path[1:] {
		var s schemaCheck
		if len(doc) == 0 || json.Unmarshal(doc, &s) != nil {
			return ""
		}
		doc = s.Properties[name]
	}
	var s schemaCheck
	var kind string
	if len(doc) == 0 || json.Unmarshal(doc, &s) != nil || json.Unmarshal(s.Type, &kind) != nil {
		return ""
	}
	return kind
}
