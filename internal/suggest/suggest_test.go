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
