package web

import (
	"os/exec"
	"strings"
	"testing"
)

// A real shell takes each line apart into the words that it was made of.
func TestCommandLinesAreQuotedForAShell(t *testing.T) {
	words := []string{
		"plain", "a b", "", "it's", `"double"`, "$HOME", "`id`", "$(id)", "back\\slash", "a\nb", "trailing\n", "!!", "*", "~", "#no", ";", "|", "&",
		"--flag", "x=y", "{a,b}", "é – ☠", "\u202e", "'", "''", "tab\there", `{"a": "it's $5\nnow"}`, strings.Repeat("long ", 50), "<b>", "%s",
	}
	line := formatCommandLine(append([]string{"printf", `%s\0`}, words...))
	got, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if want := strings.Join(words, "\x00") + "\x00"; string(got) != want {
		t.Errorf("the shell read %q, want %q, from\n%s", got, want, line)
	}
}

func TestOnlyWhatNeedsItIsQuoted(t *testing.T) {
	for word, want := range map[string]string{"ann@example.com": "ann@example.com", "/v1/x-y_z": "/v1/x-y_z", "": "''", "it's": `'it'\''s'`, "~x": "'~x'"} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}
