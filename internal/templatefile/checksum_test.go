package templatefile

import (
	"encoding/json"
	"testing"

	"tasker.example/tasker"
)

func mustParse(t testing.TB, doc string) tasker.Template {
	t.Helper()
	parsed, _, err := Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestChecksumIsOfTheMeaning(t *testing.T) {
	const head = "namespace_name: n\nname: t\nversion: 1.0.0\n"
	one := head + "steps: [{name: a, handler: {callable: h, initialization: {x: 100, y: [1.50, -0.0]}}}, {name: b, handler: {callable: h}}, " +
		"{name: c, handler: {callable: h}, dependencies: [a, b]}]\n"
	for _, tt := range []struct {
		name, other string
		same        bool
	}{
		{"itself", one, true},
		{"other order, defaults written out, numbers spelled otherwise", `
# a comment
steps:
- handler: {initialization: {"y": [1.5, 0], 'x': 1e2}, callable: h}
  name: a
  type: standard
  dependencies: []
  retry: {max_attempts: 3, backoff: exponential}
- {name: b, handler: {callable: "h"}, description: ""}
- {name: c, depends_on: [b, a], handler: {callable: h}, timeout_seconds: null}
version: "1.0.0"
namespace: n
name: t
environments: {}
`, true},
		{"another number", head + "steps: [{name: a, handler: {callable: h, initialization: {x: 101, y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a, b]}]\n", false},
		{"text instead of a number", head + "steps: [{name: a, handler: {callable: h, initialization: {x: '100', y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a, b]}]\n", false},
		{"fewer dependencies", head + "steps: [{name: a, handler: {callable: h, initialization: {x: 100, y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a]}]\n", false},
		{"the join that is the default", head + "steps: [{name: a, handler: {callable: h, initialization: {x: 100, y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a, b], join: all}]\n", true},
		{"another join", head + "steps: [{name: a, handler: {callable: h, initialization: {x: 100, y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a, b], join: any}]\n", false},
		{"a condition more", head + "steps: [{name: a, handler: {callable: h, initialization: {x: 100, y: [1.50, -0.0]}}}, " +
			"{name: b, handler: {callable: h}}, {name: c, handler: {callable: h}, dependencies: [a, b], when: context.x}]\n", false},
		{"an environment more", one + "environments: {test: {steps: []}}\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := mustParse(t, one), mustParse(t, tt.other)
			if same := Checksum(a) == Checksum(b); same != tt.same {
				t.Errorf("same checksum: %v, want %v\n%s\n%s", same, tt.same, encodeMeaning(a), encodeMeaning(b))
			}
		})
	}
}

func TestChecksumDoesNotChangeItsArgument(t *testing.T) {
	parsed := mustParse(t, string(readFile(t, "testdata/valid/everything.yaml")))
	before, err := json.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	Checksum(parsed)
	if after, _ := json.Marshal(parsed); string(after) != string(before) {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

// The checksums of registered templates are kept in databases, so what it is
// computed of may never change.
func TestChecksumStays(t *testing.T) {
	const want = "45e3cc7719260d4e1cb9abd3299702c9a118b786761715b1b9f6610c7e54259d"
	template := mustParse(t, string(readFile(t, "testdata/valid/everything.yaml")))
	template.Triage = tasker.Triage{} // of which templates of before knew nothing
	template.Lifecycle.QueueTTL = ""
	template.Steps[0].OnFailure = nil
	template.Steps[2].When, template.Steps[2].Join = "", ""
	template.Steps[1].TimeoutSeconds = 86400 // of the external step: refused now, kept in templates of before
	if got := Checksum(template); got != want {
		t.Errorf("checksum %s, want %s", got, want)
	}
}

func TestChecksumOfWhatIsNotJSON(t *testing.T) {
	broken := func(raw string) string {
		return Checksum(tasker.Template{InputSchema: json.RawMessage(raw)})
	}
	if broken("{") == broken("[") || broken("{") == broken(`"{"`+"x") || broken("{") == "" {
		t.Error("templates with different broken JSON have the same checksum")
	}
}

func TestCanonicalNumber(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "0e5": "0", "1": "1e0", "-1.0": "-1e0", "100": "1e2", "1E+2": "1e2", "100.10": "1001e-1",
		"0.01": "1e-2", "9007199254740993": "9007199254740993e0", "9007199254740992": "9007199254740992e0",
	} {
		if got := canonicalizeNumber(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
