package tasker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tasker.example/tasker"
)

func graph(edges map[string][]string, order ...string) tasker.Template {
	var t tasker.Template
	for _, name := range order {
		t.Steps = append(t.Steps, tasker.StepTemplate{Name: name, Dependencies: edges[name]})
	}
	return t
}

func TestCycle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		graph tasker.Template
		want  []string
	}{
		{"none", graph(map[string][]string{"b": {"a"}, "c": {"a", "b"}}, "a", "b", "c"), nil},
		{"itself", graph(map[string][]string{"a": {"a"}}, "a"), []string{"a", "a"}},
		{"two", graph(map[string][]string{"a": {"b"}, "b": {"a"}}, "a", "b"), []string{"a", "b", "a"}},
		{"behind a tail", graph(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, "a", "b", "c", "d"), []string{"b", "c", "d", "b"}},
		{"a step that is not there", graph(map[string][]string{"a": {"x"}}, "a"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.graph.Cycle()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A graph whose edges all lead backwards has no cycle; one edge forwards, along a
// way that exists, makes one.
func TestCycleIsFoundWhereverItIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 30).Draw(t, "steps")
		g := tasker.Template{Steps: make([]tasker.StepTemplate, n)}
		for i := range g.Steps {
			g.Steps[i].Name = fmt.Sprint("s", i)
			if i > 0 {
				g.Steps[i].Dependencies = []string{fmt.Sprint("s", i-1)}
			}
		}
		if c := g.Cycle(); c != nil {
			t.Fatalf("a chain has the cycle %v", c)
		}
		to := rapid.IntRange(0, n-2).Draw(t, "to")
		from := rapid.IntRange(to+1, n-1).Draw(t, "from")
		g.Steps[to].Dependencies = append(g.Steps[to].Dependencies, g.Steps[from].Name)
		if c := g.Cycle(); len(c) != from-to+2 || c[0] != c[len(c)-1] {
			t.Fatalf("from s%d to s%d: %v", from, to, c)
		}
	})
}

func TestForEnvironment(t *testing.T) {
	t.Parallel()
	base := tasker.Template{
		Steps: []tasker.StepTemplate{
			{Name: "a", Handler: tasker.Handler{Callable: "a", Initialization: json.RawMessage(`{"x":1,"y":1}`)}, Retry: tasker.DefaultRetry()},
			{Name: "b", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()},
		},
		Environments: map[string]tasker.Override{"test": {Steps: []tasker.StepOverride{
			{Name: tasker.AllSteps, TimeoutSeconds: new(5), Initialization: json.RawMessage(`{"y":2}`)},
			{Name: "a", Retry: &tasker.RetryOverride{MaxAttempts: new(1)}},
		}}},
	}
	got := base.ForEnvironment("test")
	a, b := got.Steps[0], got.Steps[1]
	if string(a.Handler.Initialization) != `{"x":1,"y":2}` || a.TimeoutSeconds != 5 || a.Retry.MaxAttempts != 1 || a.Retry.BaseMS != 1000 {
		t.Errorf("a is %+v", a)
	}
	if b.Handler.Initialization != nil || b.TimeoutSeconds != 0 || b.Retry.MaxAttempts != 3 {
		t.Errorf("b is %+v", b)
	}
	if diff := cmp.Diff(base.Steps, base.ForEnvironment("other").Steps); diff != "" {
		t.Error(diff)
	}
	if base.Steps[0].TimeoutSeconds != 0 {
		t.Error("the template itself was changed")
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		mark  tasker.DeadLetter
		kind  tasker.MarkKind
		label string
	}{
		{tasker.DeadLetter{}, "", ""},
		{tasker.DeadLetter{DeadLettered: true, MarkReason: "max_retries_exceeded", EntryStatus: "pending"}, "under_investigation", "Under investigation: max retries exceeded"},
		{tasker.DeadLetter{DeadLettered: true, MarkReason: "manual_dlq", EntryStatus: "pending"}, "opened_by_hand", "Under investigation, opened by hand"},
		{tasker.DeadLetter{DeadLettered: true, MarkReason: "staleness_timeout", EntryStatus: "pending", RecoveredAt: &now}, "recovered", "Recovered, investigation still open: staleness timeout"},
		{tasker.DeadLetter{DeadLettered: true, MarkReason: "staleness_timeout", EntryStatus: "permanently_failed", RecoveredAt: &now}, "permanently_failed", "Permanently failed: staleness timeout"},
		{tasker.DeadLetter{DeadLettered: true, MarkReason: "manual_dlq", EntryStatus: "permanently_failed"}, "permanently_failed", "Permanently failed: manual dlq"},
	} {
		if tt.mark.Kind() != tt.kind || tt.mark.Label() != tt.label {
			t.Errorf("%+v is %q, %q", tt.mark, tt.mark.Kind(), tt.mark.Label())
		}
		if tt.kind != "" && !slices.Contains(tasker.MarkKinds(), tt.kind) {
			t.Errorf("%s is not listed", tt.kind)
		}
	}
}

func TestCauses(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range tasker.Causes() {
		key := string(c.Reason) + " " + c.Code
		if seen[key] || c.Label == "" || c.Guidance == "" || c.Severity == "" || c.BasePriority == 0 {
			t.Errorf("%s is there twice, or lacks something: %+v", key, c)
		}
		seen[key] = true
		if got := tasker.CauseOf(c.Reason, c.Code); got != c {
			t.Errorf("%s is found as %+v", key, got)
		}
	}
	later := tasker.CauseOf(tasker.WorkerUnavailable, "of_a_newer_program")
	if later.Label != "of_a_newer_program" || later.BasePriority != 50 || later.Severity == "" {
		t.Errorf("an unknown cause is %+v", later)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outside: %w", tasker.Errorf(tasker.Conflict, "step: %w", io.EOF))
	if tasker.CodeOf(err) != tasker.Conflict || !errors.Is(err, io.EOF) || err.Error() != "outside: step: EOF" {
		t.Errorf("%q has code %s", err, tasker.CodeOf(err))
	}
	hidden := &tasker.Error{Code: tasker.Unavailable, Message: "busy", Err: io.EOF}
	if hidden.Error() != "busy: EOF" || hidden.WithDetails(1).Details != 1 || hidden.Details != nil {
		t.Errorf("%q, details %v", hidden, hidden.Details)
	}
	if tasker.CodeOf(nil) != "" || tasker.CodeOf(io.EOF) != tasker.Internal {
		t.Error("codes of nothing and of others")
	}
	if got := (tasker.Fault{Line: 3, Path: "a.b", Message: "is missing"}).String(); got != "line 3: a.b: is missing" {
		t.Error(got)
	}
}
