package explain

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
)

const (
	document    = "../../docs/reference/explain.md"
	tableBegins = "<!-- made by: UPDATE_DOCS=1 go test ./internal/explain -run TestTheTableOfFacts -->\n"
	tableEnds   = "<!-- end -->\n"
)

// The table of facts in the documents is that of the rules.
func TestTheTableOfFacts(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(doc), tableBegins)
	is, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", document)
	}
	var table strings.Builder
	table.WriteString("| fact | when | turn |\n|---|---|---|\n")
	for _, r := range rules {
		var turns []string
		for _, turn := range r.turns {
			turns = append(turns, "`"+string(turn)+"`")
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", r.fact, r.when, strings.Join(turns, ", "))
	}
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(document, []byte(before+tableBegins+table.String()+tableEnds+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is != table.String() {
		t.Errorf("%s does not have the table of the rules: run UPDATE_DOCS=1 go test ./internal/explain", document)
	}
}

// Each fact but that of an empty queue has one rule, in the order in which they are listed.
func TestEachFactHasARule(t *testing.T) {
	t.Parallel()
	var have []tasker.ConditionReason
	for _, r := range rules {
		have = append(have, r.fact)
	}
	want := slices.DeleteFunc(tasker.ConditionReasons(), func(f tasker.ConditionReason) bool { return f == tasker.ConditionEmpty })
	if !slices.Equal(have, want) {
		t.Errorf("rules of %v, want %v", have, want)
	}
}
