package templatefile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected faults")

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	doc, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func files(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return names
}

// faultsOf returns the faults of an error that Parse may return, and complains about any other.
func faultsOf(t testing.TB, err error) []tasker.Fault {
	t.Helper()
	if err == nil {
		return nil
	}
	var e *tasker.Error
	if !errors.As(err, &e) || e.Code != tasker.Invalid {
		t.Fatalf("error %v is not Invalid", err)
	}
	list, ok := e.Details.([]tasker.Fault)
	if !ok || len(list) == 0 {
		t.Fatalf("error %v has no faults", err)
	}
	return list
}

func parseFile(name string, doc []byte) (tasker.Template, error) {
	read := Parse
	if strings.HasSuffix(name, ".json") {
		read = ParseJSON
	}
	t, _, err := read(doc)
	return t, err
}

// TestFaults reads each document of testdata/faults and compares its faults
// with the file of the same name that ends in .faults.
func TestFaults(t *testing.T) {
	for _, name := range append(files(t, "testdata/faults/*.yaml"), files(t, "testdata/faults/*.json")...) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			parsed, err := parseFile(name, readFile(t, name))
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tasker.Template{}, parsed); diff != "" {
				t.Errorf("a refused document gave a template:\n%s", diff)
			}
			var b strings.Builder
			for _, fault := range faultsOf(t, err) {
				fmt.Fprintln(&b, fault)
			}
			golden := strings.TrimSuffix(name, filepath.Ext(name)) + ".faults"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(readFile(t, golden)), b.String()); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	const head = "namespace_name: n\nname: t\nversion: 1.0.0\nsteps:\n"
	steps := func(n, dependencies int) string {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			fmt.Fprintf(&b, "- {name: s%d, handler: {callable: h}, depends_on: [", i)
			for d := range min(i, dependencies) {
				fmt.Fprintf(&b, "s%d,", d)
			}
			b.WriteString("]}\n")
		}
		return b.String()
	}
	deep := func(open, inner, shut string, n int) string {
		return head + "- {name: a, handler: {callable: a, initialization: {x: " +
			strings.Repeat(open, n) + inner + strings.Repeat(shut, n) + "}}}\n"
	}
	for _, tt := range []struct {
		name, doc string
		code      tasker.Code
		message   string // in the error's
	}{
		{"1000 steps", steps(1000, 0), "", ""},
		{"1001 steps", steps(1001, 0), tasker.Invalid, "line 5: steps: 1001 steps; the limit is 1000"},
		{"10000 steps", head[:len(head)-1] + " [" + strings.Repeat("{},", 10_000) + "]", tasker.Invalid, "10000 steps; the limit is 1000"},
		{"9991 edges", steps(1000, 10), "", ""},
		{"more than 10000 edges", steps(1000, 11), tasker.Invalid, "dependencies; the limit is 10000"},
		{"chain of 1000", chain(1000, false), "", ""},
		{"cycle of 1000", chain(1000, true), tasker.Invalid, "steps form a dependency cycle: s0 -> s999 -> s998"},
		{"262144 bytes", head + "- {name: a, handler: {callable: a}}\n#" + strings.Repeat("x", tasker.MaxTemplateBytes-len(head)-38) + "\n", "", ""},
		{"50 MB", strings.Repeat("x", 50<<20), tasker.TooLarge, "the template has 52428800 bytes; the limit is 262144"},
		{"60 deep", deep("[", "1", "]", 58), "", ""},
		{"deep lists", deep("[", "1", "]", 65), tasker.Invalid, "nested more than 64 levels deep"},
		{"deep objects", deep("{a: ", "1", "}", 65), tasker.Invalid, "nested more than 64 levels deep"},
		{"far too deep", strings.Repeat("[", 200_000), tasker.Invalid, "invalid YAML"},
		{"far too deep blocks", strings.Repeat("- ", 100_000), tasker.Invalid, "invalid YAML"},
		{"far too deep keys", strings.Repeat("? ", 100_000), tasker.Invalid, "invalid YAML"},
		{"many faults", strings.Repeat("- x\n", 10) + head, tasker.Invalid, "invalid YAML"},
		{"many unknown keys", head + "- {name: a, handler: {callable: a}}\n" + numbered("k%d: 1\n", 25_000), tasker.Invalid, "more than 100 errors"},
		{"many environments", head + "- {name: a, handler: {callable: a}}\nenvironments:\n" + numbered("  e%d:\n", 20_000), tasker.Invalid, "more than 100 errors"},
		{"many dependencies", head + "- {name: a, handler: {callable: a}, depends_on: [" + strings.Repeat("1,", 100_000) + "1]}\n", tasker.Invalid, "more than 100 errors"},
		{"more faults than listed", head + strings.Repeat("- {}\n", 900), tasker.Invalid, "more than 100 errors"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Parse([]byte(tt.doc))
			if code := tasker.CodeOf(err); code != tt.code {
				t.Fatalf("code %q, want %q: %v", code, tt.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("error %q, want it to contain %q", err, tt.message)
			}
			if err != nil && len(err.Error()) > 20_000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

// numbered repeats a line with a number in it.
func numbered(line string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

// chain is a template of steps that each depend on the one before.
func chain(n int, closed bool) string {
	var b strings.Builder
	b.WriteString("namespace_name: n\nname: t\nversion: 1.0.0\nsteps:\n")
	for i := range n {
		before := fmt.Sprintf("s%d", i-1)
		switch {
		case i == 0 && closed:
			before = fmt.Sprintf("s%d", n-1)
		case i == 0:
			before = ""
		}
		fmt.Fprintf(&b, "- {name: s%d, handler: {callable: h}, depends_on: [%s]}\n", i, before)
	}
	return b.String()
}

func TestJSONLimits(t *testing.T) {
	for name, doc := range map[string]string{
		"deep":     strings.Repeat("[", 200_000),
		"deep end": `{"steps": ` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}",
	} {
		if _, _, err := ParseJSON([]byte(doc)); err == nil || !strings.Contains(err.Error(), "nested more than 64 levels deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ParseJSON(make([]byte, 50<<20)); tasker.CodeOf(err) != tasker.TooLarge {
		t.Errorf("50 MB: %v", err)
	}
}

func TestEverythingIsRead(t *testing.T) {
	fromYAML, _, err := Parse(readFile(t, "testdata/valid/everything.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lie, ten, sixty, none, constant := false, 10, 60, 0, tasker.ConstantBackoff
	want := tasker.Template{
		Namespace: "orders", Name: "fulfil", Version: "1.2.0-rc.1+build.7", Description: "Fulfils an order.",
		InputSchema: []byte(`{"type":"object","required":["order_id"],"properties":` +
			`{"order_id":{"type":"string","minLength":1},"total":{"type":"number","minimum":0}}}`),
		Lifecycle: tasker.Lifecycle{
			MaxWaitingForDependenciesMinutes: 120, MaxWaitingForRetryMinutes: 45,
			MaxStepsInProcessMinutes: 60, MaxDurationMinutes: 1440, QueueTTL: tasker.ExpireAlways,
		},
		Triage: tasker.Triage{Keys: []string{"/customer/country", "/items~1total"}},
		Steps: []tasker.StepTemplate{{
			Name: "validate", Type: tasker.StandardStep, Description: "Looks at the order.",
			Handler: tasker.Handler{Callable: "orders/validate", Initialization: []byte(
				`{"strict":true,"limits":[1,2.50,1e3],"day":"2026-01-31","time":"12:30","nothing":null}`)},
			Retry: tasker.DefaultRetry(), TimeoutSeconds: 30, WorkerQueueTTLMS: 60000,
			OnFailure: &tasker.OnFailure{Compensate: "orders/forget", Retry: tasker.DefaultUndoRetry(), TimeoutSeconds: 20},
		}, {
			Name: "approval", Type: tasker.ExternalStep, Dependencies: []string{"validate"},
			Retry: tasker.DefaultRetry(),
		}, {
			Name: "ship", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "Orders::Ship#call"},
			Dependencies: []string{"approval", "validate"}, When: `context.order_id != "" && results.validate.ok`, Join: tasker.JoinNoneFailed,
			Retry: tasker.Retry{Retryable: true, MaxAttempts: 5, Backoff: tasker.LinearBackoff,
				BaseMS: 500, MaxBackoffMS: 60000, Jitter: true},
		}},
		Environments: map[string]tasker.Override{
			"production": {Steps: []tasker.StepOverride{
				{Name: "ALL", TimeoutSeconds: &sixty},
				{Name: "ship", Initialization: []byte(`{"carrier":"fast"}`), Retry: &tasker.RetryOverride{MaxAttempts: &ten}},
			}},
			"test": {Steps: []tasker.StepOverride{{
				Name: "ship", Initialization: []byte(`{"carrier":"none"}`),
				Retry: &tasker.RetryOverride{Backoff: &constant, BaseMS: &none, Jitter: &lie, Retryable: &lie},
			}}},
		},
	}
	if diff := cmp.Diff(want, fromYAML); diff != "" {
		t.Errorf("template differs (-want +got):\n%s", diff)
	}
	fromJSON, _, err := ParseJSON(readFile(t, "testdata/valid/everything.json"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := Checksum(fromYAML), Checksum(fromJSON); a != b {
		t.Errorf("the same in YAML and JSON has checksums %s and %s:\n%s\n%s", a, b, encodeMeaning(fromYAML),
			encodeMeaning(fromJSON))
	}
	jsonAsYAML, _, err := Parse(readFile(t, "testdata/valid/everything.json"))
	if err != nil || Checksum(jsonAsYAML) != Checksum(fromJSON) {
		t.Errorf("JSON read as YAML differs (%v)", err)
	}
}

// A document of another engine is a template when it asks for nothing more.
func TestForeignTemplate(t *testing.T) {
	foreign := mustParse(t, string(readFile(t, "testdata/valid/foreign.yaml")))
	if len(foreign.Steps) != 2 || foreign.ForEnvironment("test").Steps[1].TimeoutSeconds != 10 || foreign.Lifecycle.MaxDurationMinutes != 30 {
		t.Errorf("%+v", foreign)
	}
	nothing := strings.NewReplacer("    timeout_seconds: 30\n", "    timeout_seconds: 30\n    result_schema: null\n").
		Replace(string(readFile(t, "testdata/valid/foreign.yaml")))
	if diff := cmp.Diff(foreign, mustParse(t, nothing)); diff != "" {
		t.Error(diff)
	}
}

// Keys that have no effect anywhere are warnings, which the author may refuse; what asks
// for nothing is not even that. Metadata is kept, and is no part of the meaning.
func TestKeysWithoutEffectAreWarnings(t *testing.T) {
	source := string(readFile(t, "testdata/valid/foreign.yaml"))
	source = strings.NewReplacer(
		"domain_events: []", "domain_events: [{name: x}]\ncomposition: {}",
		"  max_duration_minutes: 30", "  max_duration_minutes: 30\n  staleness_action: dlq",
		`    system_dependency: ""`, "    step_type: standard\n    system_dependency: gateway\n    result_schema: {type: object}\n    lifecycle: {}",
		"max_backoff_ms: 30000}\n    timeout_seconds: 30\n    publishes_events:\n", "max_backoff_ms: 30000, initial_delay: 1}\n    timeout_seconds: 30\n",
	).Replace(source)
	got, warnings, err := Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, w := range warnings {
		text.WriteString(w.String() + "\n")
	}
	const want = `line 6: loaded_from: has no effect
line 12: system_dependencies: has no effect
line 15: domain_events: has no effect
line 26: lifecycle.staleness_action: has no effect
line 43: steps[1].system_dependency: has no effect; a step depends on other steps only
line 44: steps[1].result_schema: has no effect; results are not checked against a schema, only contexts by input_schema
line 47: steps[1].retry.initial_delay: has no effect; the first pause is backoff_base_ms, in milliseconds
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	if err := WarningsAsError(warnings); tasker.CodeOf(err) != tasker.Invalid ||
		!strings.Contains(err.Error(), "7 errors") {
		t.Errorf("strict: %v", err)
	}
	if err := WarningsAsError(nil); err != nil {
		t.Errorf("strict without a warning: %v", err)
	}
	plain := mustParse(t, string(readFile(t, "testdata/valid/foreign.yaml")))
	if !strings.Contains(string(got.Metadata), `"pattern:linear"`) || Checksum(got) != Checksum(plain) {
		t.Errorf("metadata %s; the checksum depends on what has no effect", got.Metadata)
	}
	plain.Metadata = nil
	if Checksum(got) != Checksum(plain) {
		t.Error("the checksum depends on the metadata")
	}
}
