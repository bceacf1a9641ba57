package suggest

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"name", "version", "max_attempts", "depends_on", "ALL"}
	for word, want := range map[string]string{
		"hame": "name", "verzion": "version", "max_attempt": "max_attempts", "depends-on": "depends_on", "all": "ALL",
		"colour": "", "": "", "anme": "name", "xabe": "name", "xyzw": "", "MAX_ATTEMPTS": "max_attempts",
	} {
		if got := Nearest(word, known, 3); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
	if got := Ending("hame", known) + Ending("colour", known); got != "; did you mean name?" {
		t.Errorf("endings %q", got)
	}
}

func TestNearestOfALongWord(t *testing.T) {
	if got := Nearest(string(make([]byte, 1<<20)), []string{"name"}, 3); got != "" {
		t.Error(got)
	}
}

func TestEscapedPlus(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-01T00:00:00 01:00":   "; a + in a query is written %2B: 2026-01-01T00:00:00%2B01:00",
		"2026-01-01T00:00:00.5 05:30": "; a + in a query is written %2B: 2026-01-01T00:00:00.5%2B05:30",
		"2026-01-01 00:00:00":         "", "x y": "", "": "", "2026-01-01T00:00:00Z": "",
	} {
		if got := EscapedPlus(text); got != want {
			t.Errorf("EscapedPlus(%q) = %q, want %q", text, got, want)
		}
	}
}
