package tasker

import (
	"fmt"
	"strconv"
	"strings"
)

// A Tolerance is how many items of a map step may fail for good: so many, so many of a hundred, or
// all but one.
type Tolerance struct {
	Items, Percent int
	AllButOne      bool // any that succeeds is enough
}

const allButOne = "all_but_one"

// Of returns how many of so many items that are.
func (t Tolerance) Of(items int) int {
	if t.AllButOne {
		return max(items-1, 0)
	}
	return t.Items + t.Percent*items/100
}

// MarshalJSON writes a number, a text with a percent sign, or all_but_one.
func (t Tolerance) MarshalJSON() ([]byte, error) {
	switch {
	case t.AllButOne:
		return strconv.AppendQuote(nil, allButOne), nil
	case t.Percent > 0:
		return strconv.AppendQuote(nil, strconv.Itoa(t.Percent)+"%"), nil
	default:
		return strconv.AppendInt(nil, int64(t.Items), 10), nil
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Tolerance) UnmarshalJSON(doc []byte) error {
	*t = Tolerance{}
	of, text := &t.Items, string(doc)
	if text == strconv.Quote(allButOne) {
		t.AllButOne = true
		return nil
	}
	if percent, ok := strings.CutSuffix(text, `%"`); ok {
		of, text = &t.Percent, strings.TrimPrefix(percent, `"`)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("how many items may fail is a number, a text such as \"2%%\", or %s, not %s", allButOne, doc)
	}
	*of = n
	return nil
}
