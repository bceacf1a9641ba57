package payload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// numberNotation describes how PostgreSQL writes a number: as a numeric without an exponent, with
// the original digits after the point.
type numberNotation struct {
	negative bool
	whole    int  // digits before the point
	fraction int  // digits after it
	extreme  bool // its value must be checked to see whether it fits into a float
}

func (n numberNotation) size() int {
	bytes := n.whole + n.fraction
	if n.negative {
		bytes++
	}
	if n.fraction > 0 {
		bytes++
	}
	return bytes
}

// maxExponent is larger than any acceptable exponent, but small enough to avoid overflows.
const maxExponent = 1_000_000

// parseNumber parses a number in JSON syntax.
func parseNumber(text string) numberNotation {
	var n numberNotation
	digits, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		e, err := strconv.Atoi(digits[i+1:])
		if err != nil && digits[i+1] == '-' {
			e = -maxExponent
		} else if err != nil {
			e = maxExponent
		}
		exponent = min(max(e, -maxExponent), maxExponent)
		digits = digits[:i]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	n.fraction = max(len(fraction)-exponent, 0)
	first := strings.IndexFunc(digits, func(r rune) bool { return r != '0' && r != '.' })
	if first < 0 { // zero has no sign
		n.whole = 1
		return n
	}
	if first > len(whole) {
		first-- // do not count the point
	}
	magnitude := len(whole) - first + exponent // 1 for 1 to 9, 0 for 0.1
	n.negative, n.whole = negative, max(magnitude, 1)
	n.extreme = magnitude > floatDigits-1 || magnitude < -floatDigits
	return n
}

// floatDigits is the number of digits of the largest 64-bit float without an exponent.
const floatDigits = 309

// checkLimits returns why a number is rejected, or "". The rule considers the value and the digits
// in PostgreSQL's notation, so that 1e40 is accepted again after it was read back with 41 digits.
func (n numberNotation) checkLimits(text string, l Limits) string {
	if n.extreme && !fitsFloat(text) {
		return fmt.Sprintf("the number %s exceeds the range or precision of a "+
			"64-bit float", CleanText(text, numberShown))
	}
	if digits := n.whole + n.fraction; digits > l.Digits {
		return fmt.Sprintf("a number has %d digits when written out; the limit is %d", digits, l.Digits)
	}
	return ""
}

const numberShown = 40

// fitsFloat reports whether the 64-bit float nearest to a non-zero number is finite and not zero.
func fitsFloat(text string) bool {
	value, err := strconv.ParseFloat(text, 64)
	return !errors.Is(err, strconv.ErrRange) && value != 0
}
