package terminal

import (
	"strings"
	"testing"
	"time"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                   "",
		"plain é 支付 Û":                       "plain é 支付 Û",
		"\x1b[31mpayment\x1b[0m failed":      "payment failed",
		"\x1b[1;38;5;196mstock\x1b[m failed": "stock failed",
		"\x1b[38:2::255:0:0mred\x1b[0K":      "red",
		"\u009b31mpayment\u009b0m failed":    "payment failed",
		"\x9b31mpayment\x9b0m failed":        "payment failed",
		"\x1b[31mERROR\x1b[0m \x1b]0;title\x07dbt \x1b[1;33mcompile\x1b[0m failed": "ERROR dbt compile failed",
		"\x1b]0;title\x1b\\dbt":  "dbt",
		"\u009d0;title\u009cdbt": "dbt",
		"\x9d0;title\x9cdbt":     "dbt",
		"\x1b]8;;https://a.example\x1b\\log\x1b]8;;\x1b\\ failed":                 "log failed",
		"\x1bP1;2|data\x1b\\a \x1b_data\x1b\\b \x1b^data\x1b\\c \x1bXdata\x1b\\d": "a b c d",
		"\u0090data\u009ca \u009fdata\u009cb \u009edata\u009cc \u0098data\u009cd": "a b c d",
		"\x1b(Ba\x1b)0b\x1bMc\x1b7d\x1b8e\x1b=f\x1b#8g\x1b%Gh":                    "abcdefgh",
		"\x1b[?25lspin\x1b[?25h\x1b[2J\x1b[1A\x1b[!p":                             "spin",
		"a\x1b]0;title without an end":                                            "a0;title without an end",
		"a\x1bPdata without an end\npayment failed\x1b\\":                         "adata without an end\npayment failed",
		"a\x1b]0;one\x1b]0;two\x07b":                                              "a0;oneb",
		"a\x1b[31":                                                                "a",
		"a\x1b[31\npayment failed":                                                "a\npayment failed",
		"a\x1b[31é payment failed":                                                "aé payment failed",
		"a\x1b[" + strings.Repeat("1", 100) + "m":                                 "a" + strings.Repeat("1", 100) + "m",
		"a\x1b":               "a\x1b",
		"a\x1bb\x1bcd":        "a\x1bbd",
		"a\x1b\nb":            "a\x1b\nb",
		"a\x00b\x07c\x7f\xff": "a\x00b\x07c\x7f\xff",
	} {
		if got := Plain(in); got != want {
			t.Errorf("Plain(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPlainTakesLinearTime(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"\x1b]", "\x1b]0;title", "\x1b[", "\x1b[1;", "\x1b", "\x9d", "\u009d", "\x1bP\x1b[", "\x1b]" + strings.Repeat("a", 1000)} {
		began := time.Now()
		Plain(strings.Repeat(part, 4<<20/len(part)))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("4 MiB of %.10q take %s", part, took)
		}
	}
}
