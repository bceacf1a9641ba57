package fingerprint

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestExamplesOfRules(t *testing.T) {
	t.Parallel()
	for _, r := range Rules() {
		if len(r.Examples) < 2 {
			t.Errorf("rule %s has %d examples, must have two", r.ID, len(r.Examples))
		}
		for _, e := range r.Examples {
			if len(e) != 2 {
				t.Fatalf("rule %s: an example is a message and its pattern, not %q", r.ID, e)
			}
			c := Normalize(Failure{Message: e[0]})
			if c.Pattern != e[1] {
				t.Errorf("rule %s: %q\n\tbecomes %q\n\tmust be %q", r.ID, e[0], c.Pattern, e[1])
			}
		}
	}
}

// Without the rule, one of its examples has another pattern.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	doc, err := parse(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range doc.Rules {
		without := doc
		without.Rules = append(append([]Rule(nil), doc.Rules[:i]...), doc.Rules[i+1:]...)
		set, err := compile(without)
		if err != nil {
			t.Fatal(err)
		}
		changed := false
		for _, e := range r.Examples {
			changed = changed || set.computePattern(e[0]).Pattern != e[1]
		}
		if !changed {
			t.Errorf("rule %s: none of its examples changes without it", r.ID)
		}
	}
}

func TestRulesRefuse(t *testing.T) {
	t.Parallel()
	text := string(rulesFile)
	for _, tt := range []struct{ name, old, new, want string }{
		{"an unknown key", `id = "uuid"`, "id = \"uuid\"\ncolour = 1", "colour"},
		{"an unknown shape", `shapes = ["uuid"]`, `shapes = ["uuidd"]`, `unknown shape "uuidd"`},
		{"an unknown set of words", `before = ["port"]`, `before = ["prt"]`, `unknown word set "prt"`},
		{"an unknown action", `action = "mask"`, `action = "hide"`, `invalid action "hide"`},
		{"an unknown label", `label = "<id>"`, `label = "<thing>"`, `invalid label "<thing>"`},
		{"a rule that masks without a label", "label = \"<id>\"\n", "", `invalid label ""`},
		{"two rules with one id", `id = "time"`, `id = "uuid"`, `rule "uuid": must have a unique id`},
		{"words far away", "near = 2", "near = 9", "invalid near 9"},
		{"a rule without a reason", `why = "A UUID identifies one object."`, "", "missing why"},
		{"a rule without shapes", `shapes = ["uuid"]`, `shapes = []`, "missing shapes"},
		{"a word in capitals", `"port ports serverport dport"`, `"Port"`, `word "Port"`},
		{"no fillers", "\nfiller =", "\nfillers =", `missing word set "filler"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(text, tt.old, tt.new, 1)
			if changed == text {
				t.Fatalf("rules.toml does not have %q", tt.old)
			}
			doc, err := parse([]byte(changed))
			if err == nil {
				_, err = compile(doc)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Rules that change without their version would split the cases of a running installation: what
// is open keeps its old fingerprint, and what comes gets another one.
func TestRulesHaveTheirVersion(t *testing.T) {
	const file = "testdata/rules.version"
	got := fmt.Sprintf("%d %x\n", Version, sha256.Sum256(rulesFile))
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := string(stored); got != want {
		wrong := "Version has changed"
		if strings.Fields(want)[0] == fmt.Sprint(Version) {
			wrong = "rules.toml has changed: raise Version if any text has another fingerprint by it"
		}
		t.Errorf("%s; then write into %s: %s", wrong, file, got)
	}
}
