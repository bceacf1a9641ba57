package fingerprint

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheTypeCounts(t *testing.T) {
	t.Parallel()
	cause := func(typ string) string { return Normalize(Failure{Type: typ, Message: "disk full"}).Key }
	for _, same := range [][]string{
		{"", "*errors.errorString", "*fmt.wrapError"},
		{"com.example.Worker$$Lambda$512/0x0000000800d3c840@1b2c3d", "com.example.Worker$$Lambda$99/0x0000000800aa1000@aa11bb"},
		{"com.example.Worker$1", "com.example.Worker$12"},
		{"Shop.Billing+<Charge>d__17", "Shop.Billing+<Charge>d__3"},
		{"<class 'shop.DeclinedError'>", "shop.DeclinedError"},
		{" shop.DeclinedError\x1b[2J", "shop.DeclinedError"},
	} {
		for _, typ := range same {
			if cause(typ) != cause(same[0]) {
				t.Errorf("%q and %q are two causes", typ, same[0])
			}
		}
	}
	for _, other := range [][2]string{
		{"", "*url.Error"}, {"*url.Error", "*net.OpError"}, {"x509.HostnameError", "x508.HostnameError"}, {"Http2Error", "Http3Error"},
		{"com.example.Worker$Lambda", "com.example.Worker"},
	} {
		if cause(other[0]) == cause(other[1]) {
			t.Errorf("%q and %q are one cause", other[0], other[1])
		}
	}
}

// A thing may have a number, a UUID or a name for its id: that makes no second cause.
func TestPlaceholdersThatNameAreNotToldApart(t *testing.T) {
	t.Parallel()
	cause := func(message string) string { return Normalize(Failure{Message: message}).Key }
	for _, same := range [][]string{
		{"widget 4711 is broken", "widget 0190a5b2-7c1e-7d3f-9a44-0c8be1f2d6a7 is broken", "widget a@example.com is broken", "widget w-17 is broken", "widget XY-2026-17 is broken"},
		{"widgets 17, 8fK2lQx9 are broken", "widgets 4 are broken"},
	} {
		for _, message := range same {
			if cause(message) != cause(same[0]) {
				t.Errorf("%q and %q are two causes", message, same[0])
			}
		}
	}
	for _, other := range [][2]string{
		{"widget 17 is broken", "widget 17s is broken"}, {"queue orders-17 is full", "queue invoices-17 is full"}, {"widget 17 is broken", "widget is broken"},
		{"a-17 ab-c-17", "a-17 ab-17"}, {"-17", "--17"},
	} {
		if cause(other[0]) == cause(other[1]) {
			t.Errorf("%q and %q are one cause", other[0], other[1])
		}
	}
}

func TestEssence(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("{\"sku\": \"green\"}, ", 200)
	for _, tt := range []struct{ name, message, want string }{
		{"causes of Java", "step failed\n\tat a.B.c(B.java:17)\n\t... 17 more\nCaused by: java.io.IOException: disk full\n\tat a.B.d(B.java:3)", "step failed Caused by: java.io.IOException: disk full"},
		{"a traceback", "Traceback (most recent call last):\n  File \"/app/pay.py\", line 88, in charge\n    raise X()\nshop.X: declined", "shop.X: declined at pay.py charge"},
		{
			"the cause of a traceback",
			"Traceback (most recent call last):\n  File \"/app/a.py\", line 8, in f\n    g()\nKeyError: 'a'\n\nThe above exception was the direct cause of the following exception:\n\n" +
				"Traceback (most recent call last):\n  File \"/app/b.py\", line 9, in h\n    f()\nshop.X: declined",
			"KeyError: 'a' shop.X: declined at b.py h",
		},
		{"a panic", "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 17 [running]:\nmain.(*Service).charge(0xc000123456, 0x5)\n\t/app/main.go:88 +0x1d5", "panic: runtime error: index out of range [<n>] with length <n> at main.(*Service).charge"},
		{"an exception without a text", "java.lang.NullPointerException\n\tat a.B.c(B.java:17)\n\tat a.B.d(B.java:3)", "java.lang.NullPointerException at a.B.c"},
		{"hints", "ERROR: no such column\nHINT:  Perhaps you meant x.\nLINE 1: SELECT y\n               ^", "ERROR: no such column"},
		{"nothing but frames", "\tat a.B.c(B.java:17)", "at a.B.c(<val>)"},
		{"colours", "\x1b[31mdisk\x1b[0m full\r\n", "disk full"},
		{"blanks", "  disk \t  full \n\n", "disk full"},
		{"nothing", "", ""},
		{"a cause far behind", "cannot store " + long + "\n" + strings.Repeat("x", 8000) + "\nCaused by: disk full", "Caused by: disk full"},
		{"a cause at the end of a line", "cannot store " + strings.Repeat("green ", 2000) + ": disk full", ": disk full"},
	} {
		got := Normalize(Failure{Message: tt.message}).Pattern
		if got != tt.want && (len(tt.message) < 2000 || !strings.HasSuffix(got, tt.want)) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPatternsAreCutInTheMiddle(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("green blue ", 100)
	full := Normalize(Failure{Message: "begin " + words + "disk full"}).Pattern
	if utf8.RuneCountInString(full) != MaxPattern || !strings.HasPrefix(full, "begin green") || !strings.HasSuffix(full, "disk full") {
		t.Errorf("%q", full)
	}
	if utf8.RuneCountInString(Normalize(Failure{Message: strings.Repeat("ü ", 1000)}).Pattern) > MaxPattern {
		t.Error("characters of several bytes are not counted as one")
	}
}

func TestMaskedIsBounded(t *testing.T) {
	t.Parallel()
	c := Normalize(Failure{Message: strings.Repeat("row 17 of lot 4711: ", 100) + "Key (a)=(" + strings.Repeat("ü", 200) + ")"})
	if len(c.Masked) != maxMasked {
		t.Errorf("%d masks, want %d", len(c.Masked), maxMasked)
	}
	c = Normalize(Failure{Message: "Key (a)=(" + strings.Repeat("ü", 200) + ")"})
	if len(c.Masked) != 1 || len(c.Masked[0].Text) > maxMask || !utf8.ValidString(c.Masked[0].Text) {
		t.Errorf("masks %q", c.Masked)
	}
}

func TestRulesAreListedInTheirOrder(t *testing.T) {
	t.Parallel()
	c := Normalize(Failure{Message: "gateway answered 503 in 17ms and then in 18ms"})
	if want := []string{"http-status", "duration"}; !slices.Equal(c.Rules, want) {
		t.Errorf("rules %q, want %q", c.Rules, want)
	}
	if want := []Mask{{"<dur>", "17ms", "duration"}, {"<dur>", "18ms", "duration"}}; !slices.Equal(c.Masked, want) {
		t.Errorf("masks %q, want %q", c.Masked, want)
	}
}

func TestGiven(t *testing.T) {
	t.Parallel()
	computed := Normalize(Failure{Type: "*url.Error", Message: "order 4711: EOF"})
	other := Normalize(Failure{Type: "*url.Error", Message: "order 4711: disk full"})
	mine := ApplyOverride("gateway down", computed)
	if mine.Pattern != "gateway down" || mine.Key != ApplyOverride(" gateway\n down ", other).Key || mine.Key == computed.Key || len(mine.Masked) > 0 {
		t.Errorf("a text of its own: %+v", mine)
	}
	both := ApplyOverride("shard 7: {default}", computed)
	if both.Pattern != "shard 7: order <id>: EOF" || both.Key == ApplyOverride("shard 8: {default}", computed).Key || both.Key == ApplyOverride("shard 7: {default}", other).Key {
		t.Errorf("with the computed cause: %+v", both)
	}
	if want := append([]string{"handler"}, computed.Rules...); !slices.Equal(both.Rules, want) || !slices.Equal(both.Masked, computed.Masked) {
		t.Errorf("rules %q and masks %q, want %q and %q", both.Rules, both.Masked, want, computed.Masked)
	}
	if long := ApplyOverride(strings.Repeat("ü", 1000), computed); utf8.RuneCountInString(long.Pattern) != MaxGiven {
		t.Errorf("%d characters", utf8.RuneCountInString(long.Pattern))
	}
	if ApplyOverride("order <id>: EOF", computed).Key == computed.Key {
		t.Error("a given text has the key of a computed cause")
	}
}
