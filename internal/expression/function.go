package expression

import (
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/stdlib"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// equal and unequal replace == and !=, which CEL evaluates without a function.
const (
	equal   = "@equal"
	unequal = "@unequal"
)

// special lists the operators that the CEL planner evaluates without a function. All but the
// equalities take constant time.
var special = []string{
	operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.NotStrictlyFalse, operators.Index,
	operators.Equals, operators.NotEquals,
}

// replaced contains functions that override those of CEL for some values. If one returns nil,
// CEL's function is called.
var replaced = map[string]func([]ref.Val) ref.Val{
	operators.Add: func(args []ref.Val) ref.Val {
		if sum := concatenate(args[0], args[1]); sum != nil {
			return sum
		}
		return newArithmetic(roundingErrorOfSum)(args)
	},
	operators.Subtract:          newArithmetic(func(a, b float64) float64 { return roundingErrorOfSum(a, -b) }),
	operators.Multiply:          newArithmetic(roundingErrorOfProduct),
	operators.Divide:            newArithmetic(nil),
	operators.Negate:            newArithmetic(nil),
	operators.Less:              newComparison(-1),
	operators.LessEquals:        newComparison(-1, 0),
	operators.Greater:           newComparison(1),
	operators.GreaterEquals:     newComparison(1, 0),
	overloads.TypeConvertString: toText,
	overloads.TypeConvertDouble: toNumber,
	overloads.Matches:           matches,
}

// patterns caches the compiled patterns of all expressions.
var patterns patternCache

func matches(args []ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	pattern, okToo := args[1].(types.String)
	if !ok || !okToo {
		return nil
	}
	p, err := patterns.compile(string(pattern))
	switch {
	case errors.Is(err, errPatternTooLong), errors.Is(err, errPatternTooLarge):
		return types.NewErr("%s", err)
	case err != nil: // its text may contain values
		return types.NewErr(errPattern)
	}
	return types.Bool(p.MatchString(string(text)))
}

// concatenate returns the elements of two lists as a flat list, so that access to an element
// takes constant time. It returns nil unless a and b are lists, and for lists that macros build,
// which grow in place.
func concatenate(a, b ref.Val) ref.Val {
	first, ok := a.(traits.Lister)
	second, okToo := b.(traits.Lister)
	if _, grows := a.(traits.MutableLister); grows || !ok || !okToo {
		return nil
	}
	var elements []ref.Val
	for _, l := range []traits.Lister{first, second} {
		for it := l.Iterator(); it.HasNext() == types.True; {
			elements = append(elements, it.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

// buildFunctions returns the functions of CEL, each with a price check.
func buildFunctions() ([]cel.EnvOption, error) {
	subset := env.NewLibrarySubset()
	own := []*decls.FunctionDecl{}
	for _, f := range stdlib.Functions() {
		if slices.Contains(special, f.Name()) || f.IsDeclarationDisabled() {
			continue
		}
		priced, err := withPrice(f)
		if err != nil {
			return nil, err
		}
		subset.AddExcludedFunctions(env.NewFunction(f.Name()))
		own = append(own, priced)
	}
	for name, is := range map[string]types.Bool{equal: types.True, unequal: types.False} {
		f, err := decls.NewFunction(name, decls.Overload(name, []*types.Type{types.DynType, types.DynType}, types.BoolType),
			decls.SingletonFunctionBinding(withCallPrice(name, func(args ...ref.Val) ref.Val {
				return types.Bool(types.Equal(args[0], args[1]) == is)
			})))
		if err != nil {
			return nil, err
		}
		own = append(own, f)
	}
	return []cel.EnvOption{cel.StdLib(cel.StdLibSubset(subset)), cel.FunctionDecls(own...)}, nil
}

// withPrice returns a CEL function with a price check.
func withPrice(f *decls.FunctionDecl) (*decls.FunctionDecl, error) {
	bindings, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(bindings, func(o *functions.Overload) bool { return o.Operator == f.Name() })
	if at < 0 {
		return nil, fmt.Errorf("CEL function %s has no binding", f.Name())
	}
	var opts []decls.FunctionOpt
	for _, o := range f.OverloadDecls() {
		declare := decls.Overload
		if o.IsMemberFunction() {
			declare = decls.MemberOverload
		}
		opts = append(opts, declare(o.ID(), o.ArgTypes(), o.ResultType()))
	}
	call := withCallPrice(f.Name(), newCaller(f.Name(), bindings[at]))
	return decls.NewFunction(f.Name(), append(opts, decls.SingletonFunctionBinding(call))...)
}

// newCaller converts a CEL function to a variadic function.
func newCaller(name string, o *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		switch {
		case o.OperandTrait != 0 && !args[0].Type().HasTrait(o.OperandTrait):
		case len(args) == 1 && o.Unary != nil:
			return o.Unary(args[0])
		case len(args) == 2 && o.Binary != nil:
			return o.Binary(args[0], args[1])
		case o.Function != nil:
			return o.Function(args...)
		}
		return decls.MaybeNoSuchOverload(name, args...)
	}
}

// Errors of function calls.
const (
	errCost    = "the evaluation exceeds its cost limit"
	errPattern = "a regular expression is invalid"
)

// withCallPrice wraps a function so that a call fails if its price exceeds the limit of an
// evaluation.
func withCallPrice(name string, call functions.FunctionOp) functions.FunctionOp {
	own := replaced[name]
	return func(args ...ref.Val) ref.Val {
		if callPrice(name, args) > maxCost {
			return types.NewErr(errCost)
		}
		if own != nil {
			if out := own(args); out != nil {
				return out
			}
		}
		return call(args...)
	}
}

// Prices, in units of evaluation cost.
const (
	textStep   = 32  // bytes of text per unit
	zonePrice  = 500 // of loading a time zone
	failedPart = 10  // failed calls that use up the budget
)

// shallow lists functions that do not read the elements of lists and objects.
var shallow = []string{
	overloads.Size, overloads.TypeConvertDyn, overloads.TypeConvertType, operators.OptSelect, operators.OptIndex, operators.Index,
	"optional.of", "optional.ofNonZeroValue", "value", "hasValue", "or", "orValue", "first", "last",
}

// callPrice returns the cost of a call before it is made.
func callPrice(name string, args []ref.Val) int {
	left := (maxCost + 1) * textStep
	for i, a := range args {
		switch x := a.(type) {
		case traits.MutableLister: // macros pay for the elements they add
		case *types.Optional, traits.Mapper:
			if !slices.Contains(shallow, name) && (i == 0 || name != operators.In) {
				left = measureSize(x, left)
			}
		case traits.Lister:
			if size, ok := x.Size().(types.Int); ok && name == operators.Add {
				left -= int(size) * textStep
			} else if !slices.Contains(shallow, name) {
				left = measureSize(x, left)
			}
		default:
			left = measureSize(x, left+textStep) // only texts have a price
		}
	}
	cost := 1 + maxCost + 1 - max(left, 0)/textStep
	switch name {
	case overloads.Matches:
		text, ok := args[0].(types.String)
		pattern, okToo := args[1].(types.String)
		if ok && okToo {
			if p, err := patterns.compile(string(pattern)); err == nil {
				cost += p.Price(string(text))
			}
		}
	default:
		if _, at := args[0].(types.Timestamp); at && len(args) == 2 {
			if _, zone := args[1].(types.String); zone {
				cost += zonePrice
			}
		}
	}
	return cost
}

// measureSize subtracts the size of a value from left. It stops at 0.
func measureSize(v ref.Val, left int) int {
	left -= textStep
	switch x := v.(type) {
	case types.String:
		return left - len(x)
	case types.Bytes:
		return left - len(x)
	case exactNumber:
		return left - len(x.Digits)
	case *types.Optional:
		if x.HasValue() {
			return measureSize(x.GetValue(), left)
		}
	case traits.Mapper:
		for it := x.Iterator(); left > 0 && it.HasNext() == types.True; {
			key := it.Next()
			left = measureSize(x.Get(key), measureSize(key, left))
		}
	case traits.Lister:
		for it := x.Iterator(); left > 0 && it.HasNext() == types.True; {
			left = measureSize(it.Next(), left)
		}
	}
	return left
}

// costs determines the cost of function calls. A failed call costs a tenth of the limit, because
// operators such as || and exists continue after a failure.
type costs struct{}

// CallCost returns the price of a call.
func (costs) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := uint64(1)
	switch {
	case types.IsError(result):
		cost = maxCost / failedPart
	case len(args) > 0 && !slices.Contains(special, function):
		cost = uint64(callPrice(function, args))
	}
	return &cost
}

// addEquality replaces the equality operators of a checked expression with functions that have a
// price.
func addEquality(checked *cel.Ast) {
	factory := ast.NewExprFactory()
	visit(checked.NativeRep().Expr(), func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		name := map[string]string{operators.Equals: equal, operators.NotEquals: unequal}[e.AsCall().FunctionName()]
		if name != "" {
			e.SetKindCase(factory.NewCall(e.ID(), name, e.AsCall().Args()...))
			checked.NativeRep().SetReference(e.ID(), ast.NewFunctionReference(name))
		}
	})
}
