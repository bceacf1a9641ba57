package fingerprint

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	page       = "../../docs/concepts/fingerprints.md"
	tableStart = "<!-- made by: UPDATE_DOCS=1 go test ./internal/fingerprint -->\n"
	tableEnd   = "<!-- end -->\n"
)

// The table of rules in docs/concepts/fingerprints.md is made from them, so that it cannot be wrong.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableStart)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		t.Fatalf("%s has no table of the rules between %q and %q", page, tableStart, tableEnd)
	}
	want := before + tableStart + rulesTable() + tableEnd + after
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Error("docs/concepts/fingerprints.md does not have the rules as they are; run: UPDATE_DOCS=1 go test ./internal/fingerprint")
	}
}

func rulesTable() string {
	var b strings.Builder
	b.WriteString("| rule | shapes | what happens | where | example | why |\n|---|---|---|---|---|---|\n")
	for _, r := range Rules() {
		action := "kept"
		if r.Action == "mask" {
			action = "`" + r.Label + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s |\n", r.ID, strings.Join(r.Shapes, ", "), action, where(r),
			strings.ReplaceAll(r.Examples[0][1], "|", `\|`), r.Why)
	}
	return b.String()
}

// where says in which context a rule applies.
func where(r Rule) string {
	var list []string
	add := func(words string, sets []string) {
		if len(sets) > 0 {
			list = append(list, words+" "+strings.Join(sets, ", "))
		}
	}
	after := "after"
	if r.Near > 1 {
		after = fmt.Sprintf("at most %d words after", r.Near)
	}
	add(after, r.Before)
	add("near", r.Also)
	add("not after", r.Except)
	add("before", r.After)
	add("not before", r.Unless)
	if r.Joined != "" {
		list = append(list, "joined by one of `"+strings.ReplaceAll(r.Joined, " ", "␣")+"`")
	}
	return strings.Join(list, "; ")
}
