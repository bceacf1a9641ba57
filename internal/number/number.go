// Package number parses, compares and formats decimal numbers without losing digits.
package number

import (
	"cmp"
	"strconv"
	"strings"
)

// A Decimal is Digits × 10^Exponent. Digits has no leading or trailing zeros and is empty for zero,
// so equal numbers are equal Go values.
type Decimal struct {
	Negative bool
	Digits   string
	Exponent int
}

// Parse parses a JSON number. The caller must limit its exponent.
func Parse(text string) Decimal {
	text, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(text[i+1:])
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return Decimal{}
	}
	return Decimal{negative, short, exponent - len(fraction) + len(digits) - len(short)}
}

// FromFloat returns the shortest decimal that represents a finite float.
func FromFloat(f float64) Decimal { return Parse(strconv.FormatFloat(f, 'e', -1, 64)) }

// Sign returns "-" or "".
func (d Decimal) Sign() string {
	if d.Negative {
		return "-"
	}
	return ""
}

// String returns the number with all digits and without an exponent.
func (d Decimal) String() string {
	point := len(d.Digits) + d.Exponent
	switch {
	case d.Digits == "":
		return "0"
	case d.Exponent >= 0:
		return d.Sign() + d.Digits + strings.Repeat("0", d.Exponent)
	case point > 0:
		return d.Sign() + d.Digits[:point] + "." + d.Digits[point:]
	default:
		return d.Sign() + "0." + strings.Repeat("0", -point) + d.Digits
	}
}

// Compare returns -1, 0 or 1 if d is less than, equal to or greater than o.
func (d Decimal) Compare(o Decimal) int {
	side := func(d Decimal) int {
		switch {
		case d.Digits == "":
			return 0
		case d.Negative:
			return -1
		}
		return 1
	}
	if a, b := side(d), side(o); a != b || a == 0 {
		return cmp.Compare(a, b)
	}
	order := cmp.Or(cmp.Compare(len(d.Digits)+d.Exponent, len(o.Digits)+o.Exponent), strings.Compare(d.Digits, o.Digits))
	if d.Negative {
		return -order
	}
	return order
}
