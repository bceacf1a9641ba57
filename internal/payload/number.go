package payload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A spelling says how the database writes a number out: as a numeric, without an
// exponent, with the digits after the point that it was sent with.
type spelling struct {
	negative bool
	whole    int  // digits before the point
	fraction int  // digits after it
	extreme  bool // so large or so small that only the value itself tells whether it fits
}

func (n spelling) bytes() int {
	bytes := n.whole + n.fraction
	if n.negative {
		bytes++
	}
	if n.fraction > 0 {
		bytes++
	}
	return bytes
}

// maxExponent is beyond every exponent whose number can be accepted, and small
// enough to calculate with.
const maxExponent = 1_000_000

// spell reads a number that follows JSON's grammar.
func spell(text string) spelling {
	var n spelling
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
	if first < 0 { // zero, which has no sign
		n.whole = 1
		return n
	}
	if first > len(whole) {
		first-- // the point is no digit
	}
	magnitude := len(whole) - first + exponent // 1 for 1 to 9, 0 for 0.1
	n.negative, n.whole = negative, max(magnitude, 1)
	n.extreme = magnitude > floatDigits-1 || magnitude < -floatDigits
	return n
}

// floatDigits is how many digits the largest 64-bit float has.
const floatDigits = 309

// fault says why a number of this spelling is refused. The rule is one on the
// value and on the digits that the database writes, not on how the number was
// sent, so that 1e40 is accepted again after it was read back with 41 digits.
func (n spelling) fault(text string, l Limits) string {
	if n.extreme && !fitsFloat(text) {
		return fmt.Sprintf("the number %s is larger or finer than a 64-bit float can hold", CleanText(text, numberShown))
	}
	if digits := n.whole + n.fraction; digits > l.Digits {
		return fmt.Sprintf("a number of %d digits when it is written out; %d is the limit", digits, l.Digits)
	}
	return ""
}

const numberShown = 40

// fitsFloat reports whether the nearest 64-bit float of a number that is not
// zero is neither infinite nor zero.
func fitsFloat(text string) bool {
	value, err := strconv.ParseFloat(text, 64)
	return !errors.Is(err, strconv.ErrRange) && value != 0
}
