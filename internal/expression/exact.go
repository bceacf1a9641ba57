package expression

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"tasker.example/tasker/internal/number"
)

// Errors for numbers.
const (
	errRange      = "a number exceeds the range or precision of a 64-bit float"
	errArithmetic = "a number has too many digits for arithmetic: it can only be compared, converted to a string " +
		"or passed on"
	errInexact = "the result is a whole number with too many digits for arithmetic"
)

// exactNumber is a number that a 64-bit float cannot represent. CEL treats it as a double: the
// functions of [newBaseEnv] compare and convert it and reject arithmetic with it. No double equals
// it.
type exactNumber struct{ number.Decimal }

// shortNumber is the length, in characters, up to which a 64-bit float represents every number
// without an exponent.
const shortNumber = 15

// parseNumber converts a JSON number to a double if that preserves its digits, otherwise to an
// exact number.
func parseNumber(text string) ref.Val {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return types.NewErr(errRange)
	}
	if len(text) <= shortNumber && !strings.ContainsAny(text, "eE") {
		return types.Double(f + 0) // a negative zero is zero
	}
	d := number.Parse(text)
	switch {
	case number.FromFloat(f) == d:
		return types.Double(f + 0)
	case f == 0:
		return types.NewErr(errRange)
	default:
		return exactNumber{d}
	}
}

// toDecimal returns the digits of a finite number, or false for other values.
func toDecimal(v ref.Val) (number.Decimal, bool) {
	switch x := v.(type) {
	case exactNumber:
		return x.Decimal, true
	case types.Double:
		if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
			return number.Decimal{}, false
		}
		return number.FromFloat(float64(x)), true
	case types.Int:
		return number.Parse(strconv.FormatInt(int64(x), 10)), true
	case types.Uint:
		return number.Parse(strconv.FormatUint(uint64(x), 10)), true
	default:
		return number.Decimal{}, false
	}
}

// ConvertToNative always returns an error: exact numbers cannot be converted to Go values.
func (exactNumber) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New("type conversion error from a number")
}

// ConvertToType returns the number as a string, or as an integer without its fraction.
func (e exactNumber) ConvertToType(to ref.Type) ref.Val {
	whole, _, _ := strings.Cut(e.String(), ".")
	switch to {
	case types.StringType:
		return types.String(e.String())
	case types.DoubleType:
		return e
	case types.TypeType:
		return types.DoubleType
	case types.IntType:
		if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
			return types.Int(n)
		}
	case types.UintType:
		if n, err := strconv.ParseUint(whole, 10, 64); err == nil {
			return types.Uint(n)
		}
	}
	return types.NewErr("type conversion error")
}

// Equal compares the digits.
func (e exactNumber) Equal(other ref.Val) ref.Val {
	d, ok := toDecimal(other)
	return types.Bool(ok && d == e.Decimal)
}

// Type returns the type double.
func (exactNumber) Type() ref.Type { return types.DoubleType }

// Value returns the number as JSON.
func (e exactNumber) Value() any { return json.Number(e.String()) }

func isExact(v ref.Val) bool {
	_, is := v.(exactNumber)
	return is
}

// toText formats a number in decimal notation without an exponent. It returns nil for other values.
func toText(args []ref.Val) ref.Val {
	if d, ok := toDecimal(args[0]); ok {
		return types.String(d.String())
	}
	return nil
}

// toNumber converts CEL integers and numeric strings to numbers. It returns nil for other values.
func toNumber(args []ref.Val) ref.Val {
	switch x := args[0].(type) {
	case types.Int, types.Uint, exactNumber:
		d, _ := toDecimal(x)
		return parseNumber(d.String())
	case types.String:
		text := string(x)
		digit := text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9')
		if digit && json.Valid(json.RawMessage(text)) {
			return parseNumber(strings.TrimSpace(text))
		}
	}
	return nil
}

// newComparison returns a function that reports whether the comparison of two numbers yields one of
// wanted. The function returns nil unless one of the numbers is exact.
func newComparison(wanted ...int) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		if !isExact(args[0]) && !isExact(args[1]) {
			return nil
		}
		a, ok := toDecimal(args[0])
		b, okToo := toDecimal(args[1])
		if !ok || !okToo {
			return types.MaybeNoSuchOverloadErr(args[1])
		}
		return types.Bool(slices.Contains(wanted, a.Compare(b)))
	}
}

// newArithmetic returns a function that rejects exact numbers and integer results that would be
// rounded. The function returns nil if CEL can compute the result. roundingError returns the exact
// rounding error of the operation on 64-bit floats.
func newArithmetic(roundingError func(a, b float64) float64) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		if slices.ContainsFunc(args, isExact) {
			return types.NewErr(errArithmetic)
		}
		a, ok := args[0].(types.Double)
		b, okToo := args[len(args)-1].(types.Double)
		whole := ok && okToo && math.Trunc(float64(a)) == float64(a) && math.Trunc(float64(b)) == float64(b)
		if whole && roundingError != nil && roundingError(float64(a), float64(b)) != 0 {
			return types.NewErr(errInexact)
		}
		return nil
	}
}

func roundingErrorOfSum(a, b float64) float64 {
	sum := a + b
	if math.IsInf(sum, 0) {
		return 0
	}
	part := sum - a
	return (a - (sum - part)) + (b - part)
}

func roundingErrorOfProduct(a, b float64) float64 {
	product := a * b
	if math.IsInf(product, 0) {
		return 0
	}
	return math.FMA(a, b, -product)
}
