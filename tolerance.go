package tasker

import (
	"fmt"
	"strconv"
	"strings"
)

// FailureTolerance limits the permanent failures among the items of a map step or the steps of a
// wave: a number, a percentage, or all but one.
type FailureTolerance struct {
	Items, Percent int
	AllButOne      bool // one success is enough
}

const allButOne = "all_but_one"

// Max returns the number of items that may fail.
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

// ParseTolerance parses the result of [FailureTolerance.String].
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
		return FailureTolerance{}, fmt.Errorf("must be a number such as 5, a percentage such as 2%%, or "+
			"%s, not %q", allButOne, text)
	}
	return t, nil
}

// MarshalJSON encodes t as a number, or as a string with a percentage or all_but_one.
func (t FailureTolerance) MarshalJSON() ([]byte, error) {
	if t.AllButOne || t.Percent > 0 {
		return strconv.AppendQuote(nil, t.String()), nil
	}
	return []byte(t.String()), nil
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (t *FailureTolerance) UnmarshalJSON(doc []byte) (err error) {
	*t, err = ParseTolerance(strings.Trim(string(doc), `"`))
	return err
}
