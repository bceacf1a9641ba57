package number_test

import (
	"math/big"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"tasker.example/tasker/internal/number"
)

func TestTextsHaveAllDigitsAndNoExponent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "1e6": "1000000", "-1.50": "-1.5", "1e21": "1000000000000000000000", "1.25e-3": "0.00125", "12.5e1": "125",
		"3544790567247868102": "3544790567247868102", "-0.1": "-0.1", "100": "100", "10.10": "10.1",
	} {
		if got := number.Parse(text).String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := number.FromFloat(1e21).String(); got != "1"+"000000000000000000000" {
		t.Errorf("1e21 is %s", got)
	}
}

// Numbers have the order and the equality of fractions of whole numbers.
func TestOrderIsExact(t *testing.T) {
	t.Parallel()
	texts := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		if rapid.Bool().Draw(t, "same digits") {
			b = a + "0"
			if _, err := strconv.ParseInt(a, 10, 64); err == nil {
				b = a + ".0"
			}
		}
		x, _ := new(big.Rat).SetString(a)
		y, ok := new(big.Rat).SetString(b)
		if !ok || x == nil {
			t.Skip()
		}
		p, q := number.Parse(a), number.Parse(b)
		if got, want := p.Compare(q), x.Cmp(y); got != want || (p == q) != (want == 0) {
			t.Fatalf("%s and %s: %d, want %d", a, b, got, want)
		}
		if back, _ := new(big.Rat).SetString(p.String()); back == nil || back.Cmp(x) != 0 {
			t.Fatalf("%s is written as %s", a, p)
		}
	})
}
