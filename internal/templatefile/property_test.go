package templatefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// Bounds of the schema.
const (
	maxWaitMinutes     = 7 * 24 * 60
	maxDurationMinutes = 30 * 24 * 60
	maxTimeoutSeconds  = 7 * 24 * 60 * 60
	minQueueTTLMS      = 1000
	maxQueueTTLMS      = 7 * 24 * 60 * 60 * 1000
	maxAttempts        = 100
	maxBackoffMS       = 24 * 60 * 60 * 1000
)

// TestRoundTrip writes generated templates as YAML and as JSON, reads them
// back, and finds the same meaning.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := aTemplate().Draw(t, "template")
		asJSON, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		if err := asAnEditor(t, asJSON); err != nil {
			t.Fatalf("the schema refuses it: %v\n%s", err, asJSON)
		}
		fromJSON, _, err := ParseJSON(asJSON)
		if err != nil {
			t.Fatalf("%v\n%s", err, asJSON)
		}
		asYAML := toYAML(t, asJSON)
		fromYAML, _, err := Parse(asYAML)
		if err != nil {
			t.Fatalf("%v\n%s", err, asYAML)
		}
		want := Checksum(written)
		if got := Checksum(fromJSON); got != want {
			t.Fatalf("through JSON it became\n%s\nfrom\n%s", encodeMeaning(fromJSON), encodeMeaning(written))
		}
		if got := Checksum(fromYAML); got != want {
			t.Fatalf("through YAML it became\n%s\nfrom\n%s\nby\n%s", encodeMeaning(fromYAML), encodeMeaning(written), asYAML)
		}
		for env := range written.Environments {
			merged := fromYAML.ForEnvironment(env)
			merged.Environments = nil
			again, err := json.Marshal(merged)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := ParseJSON(again); err != nil {
				t.Fatalf("as environment %s has it, it is no template: %v\n%s", env, err, again)
			}
		}
	})
}

// aTemplate generates valid templates.
func aTemplate() *rapid.Generator[tasker.Template] {
	return rapid.Custom(func(t *rapid.T) tasker.Template {
		out := tasker.Template{
			Namespace:   name().Draw(t, "namespace"),
			Name:        name().Draw(t, "name"),
			Version:     rapid.StringMatching(`(0|[1-9][0-9]{0,3})\.[0-9]\.[0-9](-(alpha|rc\.[1-9]))?(\+[0-9a-f]{1,7})?`).Draw(t, "version"),
			Description: text().Draw(t, "description"),
		}
		if rapid.Bool().Draw(t, "has schema") {
			out.InputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"number","minimum":1.50}}}`)
		}
		lifecycle := rapid.IntRange(0, maxWaitMinutes)
		out.Lifecycle = tasker.Lifecycle{
			MaxWaitingForDependenciesMinutes: lifecycle.Draw(t, "dependencies"),
			MaxWaitingForRetryMinutes:        lifecycle.Draw(t, "retry"),
			MaxStepsInProcessMinutes:         lifecycle.Draw(t, "process"),
			MaxDurationMinutes:               rapid.IntRange(0, maxDurationMinutes).Draw(t, "duration"),
		}
		for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z0-9 ~/."-]{1,5}`), 0, 3, rapid.ID).Draw(t, "keys") {
			out.Triage.Keys = append(out.Triage.Keys, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
		}
		names := rapid.SliceOfNDistinct(name(), 1, 8, rapid.ID).Draw(t, "steps")
		for i, n := range names {
			out.Steps = append(out.Steps, aStep(n, names[:i]).Draw(t, n))
		}
		// The order in which steps are written does not matter.
		out.Steps = rapid.Permutation(out.Steps).Draw(t, "order")
		for _, env := range rapid.SliceOfNDistinct(name(), 0, 3, rapid.ID).Draw(t, "environments") {
			if out.Environments == nil {
				out.Environments = map[string]tasker.Override{}
			}
			out.Environments[env] = anOverride(out.Steps).Draw(t, env)
		}
		return out
	})
}

func name() *rapid.Generator[string] {
	return rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.-]{0,12}`).Filter(func(s string) bool { return s != tasker.AllSteps })
}

// text generates what can be stored.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String().Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }),
		rapid.SampledFrom([]string{"yes", "no", "null", "~", "1.0", "010", "1e3", ".inf", "2026-01-01", "<<", "*a", "&a", "!x", "- a", "a: b",
			"a #b", " a ", "\n\n", "\t", "'", `"`, "\u0085", "\u2028", "\ufeff", "😀", "\x7f", "---", "0x1F", "1_000", "", "=", "true"}),
	)
}

func aStep(name string, before []string) *rapid.Generator[tasker.StepTemplate] {
	return rapid.Custom(func(t *rapid.T) tasker.StepTemplate {
		s := tasker.StepTemplate{
			Name: name, Type: rapid.SampledFrom([]tasker.StepType{tasker.StandardStep, tasker.StandardStep, tasker.ExternalStep, tasker.WaitStep}).Draw(t, "type"),
			Description: text().Draw(t, "description"),
			Retry: tasker.Retry{
				Retryable:    rapid.Bool().Draw(t, "retryable"),
				MaxAttempts:  rapid.IntRange(1, maxAttempts).Draw(t, "attempts"),
				Backoff:      backoff().Draw(t, "backoff"),
				BaseMS:       rapid.IntRange(0, 1000).Draw(t, "base"),
				MaxBackoffMS: rapid.IntRange(1000, maxBackoffMS).Draw(t, "max"),
				Jitter:       rapid.Bool().Draw(t, "jitter"),
			},
		}
		for _, d := range before {
			if rapid.Bool().Draw(t, d) {
				s.Dependencies = append(s.Dependencies, d)
			}
		}
		if s.Type == tasker.StandardStep {
			s.TimeoutSeconds = rapid.IntRange(0, maxTimeoutSeconds).Draw(t, "timeout")
			s.WorkerQueueTTLMS = rapid.SampledFrom([]int64{0, minQueueTTLMS, maxQueueTTLMS}).Draw(t, "ttl")
			s.Handler.Callable = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.:/#-]{0,20}`).Draw(t, "callable")
			s.Handler.Initialization = anObject().Draw(t, "initialization")
		} else if s.Retry = tasker.DefaultRetry(); s.Type == tasker.WaitStep {
			s.WaitSeconds = rapid.IntRange(0, 157_680_000).Draw(t, "wait")
			if s.WaitSeconds == 0 {
				s.WaitUntil = "task.created_at"
			}
		} else {
			s.TimeoutSeconds = rapid.IntRange(0, 157_680_000).Draw(t, "wait")
			if s.TimeoutSeconds > 0 {
				s.OnTimeout = rapid.SampledFrom([]tasker.TimeoutOutcome{"", tasker.TimeoutSkips, tasker.TimeoutCompletes}).Draw(t, "outcome")
			}
			if s.OnTimeout == tasker.TimeoutCompletes {
				s.TimeoutResult = json.RawMessage(rapid.SampledFrom([]string{`{"approved":false}`, "[]", "7", `"no"`}).Draw(t, "result"))
			}
		}
		if s.Type == tasker.ExternalStep && (s.TimeoutSeconds == 0 || s.TimeoutSeconds > 300) && rapid.Bool().Draw(t, "reminded") {
			s.RemindAfterSeconds = rapid.SampledFrom([][]int{{1}, {60, 61, 300}}).Draw(t, "reminders")
		}
		if rapid.IntRange(0, 9).Draw(t, "conditional") == 0 { // to compile one takes a while
			s.When = rapid.SampledFrom([]string{"context.?n.orValue(1) > 1", "true", "task.priority == 1 ||\n has(context.b)"}).Draw(t, "when")
		}
		if len(s.Dependencies) > 0 {
			s.Join = rapid.SampledFrom([]tasker.Join{"", tasker.JoinNoneFailed}).Draw(t, "join")
		}
		if len(s.Dependencies) > 1 {
			s.Join = rapid.SampledFrom([]tasker.Join{"", tasker.JoinNoneFailed, tasker.JoinAny}).Draw(t, "join of several")
		}
		return s
	})
}

func backoff() *rapid.Generator[tasker.Backoff] {
	return rapid.SampledFrom([]tasker.Backoff{tasker.ExponentialBackoff, tasker.LinearBackoff, tasker.ConstantBackoff})
}

func anOverride(steps []tasker.StepTemplate) *rapid.Generator[tasker.Override] {
	return rapid.Custom(func(t *rapid.T) tasker.Override {
		o := tasker.Override{Steps: []tasker.StepOverride{}}
		for _, s := range append([]tasker.StepTemplate{{Name: tasker.AllSteps, Type: tasker.ExternalStep}}, steps...) {
			if !rapid.Bool().Draw(t, s.Name) {
				continue
			}
			c := tasker.StepOverride{Name: s.Name}
			if s.Type == tasker.StandardStep || s.Name == tasker.AllSteps {
				c.TimeoutSeconds = rapid.Ptr(rapid.IntRange(1, maxTimeoutSeconds), true).Draw(t, "timeout")
			}
			if s.Type == tasker.StandardStep {
				c.Initialization = anObject().Draw(t, "initialization")
			}
			if (s.Type == tasker.StandardStep || s.Name == tasker.AllSteps) && rapid.Bool().Draw(t, "retry") {
				c.Retry = &tasker.RetryOverride{
					Retryable:    rapid.Ptr(rapid.Bool(), true).Draw(t, "retryable"),
					MaxAttempts:  rapid.Ptr(rapid.IntRange(1, maxAttempts), true).Draw(t, "attempts"),
					Backoff:      rapid.Ptr(backoff(), true).Draw(t, "backoff"),
					BaseMS:       rapid.Ptr(rapid.IntRange(0, 1000), true).Draw(t, "base"),
					MaxBackoffMS: rapid.Ptr(rapid.IntRange(1000, maxBackoffMS), true).Draw(t, "max"),
					Jitter:       rapid.Ptr(rapid.Bool(), true).Draw(t, "jitter"),
				}
			}
			o.Steps = append(o.Steps, c)
		}
		return o
	})
}

// anObject generates a JSON object, or nothing.
func anObject() *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		doc, err := json.Marshal(rapid.MapOfN(text(), anyJSON(3), 0, 4).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		return doc
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	number := rapid.OneOf(
		rapid.Map(rapid.StringMatching(`-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?([eE][-+]?[0-9]{1,2})?`), func(s string) any { return json.Number(s) }),
		rapid.Map(rapid.Int64(), func(n int64) any { return json.Number(fmt.Sprint(n)) }),
	)
	kinds := []*rapid.Generator[any]{
		number, text().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) }), 0, 3).AsAny(),
			rapid.MapOfN(text(), rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) }), 0, 3).AsAny())
	}
	return rapid.OneOf(kinds...)
}

// toYAML writes JSON as YAML, in one of the many ways to do so.
func toYAML(t *rapid.T, doc []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(yamlNode(t, v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func yamlNode(t *rapid.T, v any) *yaml.Node {
	style := rapid.SampledFrom([]yaml.Style{0, yaml.FlowStyle}).Draw(t, "style")
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Style: style}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range rapid.Permutation(keys).Draw(t, "keys") {
			n.Content = append(n.Content, yamlText(key), yamlNode(t, v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: style}
		for _, item := range v {
			n.Content = append(n.Content, yamlNode(t, item))
		}
		return n
	case string:
		return yamlText(v)
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(map[any]string{true: "true", false: "false", nil: "null"}[v])}
	}
}

func yamlText(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	n.Style = yaml.DoubleQuotedStyle
	return n
}

// FuzzParse reads anything as YAML and as JSON. What is accepted has to survive
// a trip through JSON.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/faults/*.yaml", "testdata/faults/*.json", "testdata/valid/*", "testdata/specification/*.yaml"} {
		for _, name := range files(f, pattern) {
			f.Add(readFile(f, name))
		}
	}
	for _, doc := range []string{"? ", "%YAML 1.1\n---\na", "\xef\xbb\xbfname: a", "[[[", "{a: {b: ", "- - - ? -", "'", "\"\\ud83d", "|\n a", "a: b: c",
		"!!map {}", "--- |", "...\n...", "\x00", "{}\n...\n{}", "<<: {<<: {}}", "? {a: b}\n: c", "{\"a\":\"\\ud800\\udc00\"}"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, read := range []func([]byte) (tasker.Template, []tasker.Fault, error){Parse, ParseJSON} {
			parsed, _, err := read(doc)
			if err != nil {
				if code := tasker.CodeOf(err); code != tasker.Invalid && code != tasker.TooLarge {
					t.Fatalf("code %s: %v", code, err)
				}
				if payload.CleanText(err.Error(), 1<<20) != err.Error() {
					t.Fatalf("an error that cannot be shown: %q", err)
				}
				continue
			}
			again, err := json.Marshal(parsed)
			if err != nil {
				t.Fatal(err)
			}
			second, _, err := ParseJSON(again)
			if len(again) <= tasker.MaxTemplateBytes && (err != nil || Checksum(second) != Checksum(parsed)) {
				t.Fatalf("%v: %s", err, again)
			}
		}
	})
}
