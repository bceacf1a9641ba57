package tasker

import (
	"fmt"
	"strconv"
	"strings"
)

// A FailureTolerance bounds how many items of a map step, or steps of a wave of an operation, may fail for
// good: a number, a percentage, or all but one.
type FailureTolerance struct {
	Items, Percent int
	AllButOne      bool // any that succeeds is enough
}

const allButOne = "all_but_one"

// Max returns the number of items that may fail of this many items.
func (t FailureTolerance) Max(items int) int {
	if t.AllButOne {
		return max(items-1, 0)
	}
	return t.Items + t.Percent*items/100
}

// String returns a number, a percentage or all_but_one.
func (t FailureTolerance) String() string {
	switch {
	case t.AllButOne:
		return allButOne
	case t.Percent > 0:
		return strconv.Itoa(t.Percent) + "%"
	default:
		return strconv.Itoa(t.Items)
	}
}

// ParseTolerance reads what String returns.
func ParseTolerance(text string) (t FailureTolerance, err error) {
	if text == allButOne {
		return FailureTolerance{AllButOne: true}, nil
	}
	of := &t.Items
	number, isPercent := strings.CutSuffix(text, "%")
	if isPercent {
		of = &t.Percent
	}
	if *of, err = strconv.Atoi(number); err != nil {
		return FailureTolerance{}, fmt.Errorf("must be a number such as 5, a percentage such as 2%%, or %s, not %q", allButOne, text)
	}
	return t, nil
}

// MarshalJSON writes a number, or a string with a percentage or all_but_one.
func (t FailureTolerance) MarshalJSON() ([]byte, error) {
	if t.AllButOne || t.Percent > 0 {
		return strconv.AppendQuote(nil, t.String()), nil
	}
	return []byte(t.String()), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *FailureTolerance) UnmarshalJSON(doc []byte) (err error) {
	*t, err = ParseTolerance(strings.Trim(string(doc), `"`))
	return err
}
