package ctl

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker/internal/cli"
)

const oneStep = `
namespace_name: orders
name: one
version: 1.0.0
steps:
  - {name: check, handler: {callable: check}}
`

// must runs a command that has to succeed and returns what it prints.
func (h *harness) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := runAt(h.url, stdin, args...)
	if code != cli.ExitOK {
		t.Fatalf("tasker-ctl %s: exit code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return strings.TrimSpace(stdout)
}

// get returns what the API answers, without the client between.
func (h *harness) get(t *testing.T, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	doc, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s: %s (%v)", path, res.Status, doc, err)
	}
	return doc
}

// timeless reads a document and leaves out what is another a moment later.
func timeless(t *testing.T, doc []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	list, _ := v.([]any)
	for _, row := range list {
		for _, age := range []string{"minutes_in_dlq", "priority_score", "time_in_state_minutes", "task_age_minutes"} {
			if fields, ok := row.(map[string]any); ok && fields[age] != nil {
				fields[age] = "a number"
			}
		}
	}
	return v
}

// What -o json prints is what the API answers, field by field.
func TestJSONIsTheAnswerOfTheServer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(t, oneStep, "template", "register", "-")
	submit := []string{"task", "submit", "--namespace", "orders", "--name", "one", "--quiet"}
	task := h.must(t, "", submit...)
	h.must(t, "", submit...) // healthy, without an investigation
	h.must(t, "", "dlq", "create", task, "--reason", "parcel lost", "--metadata", `{"ticket": 12}`)
	entry := h.must(t, "", "dlq", "queue", "--quiet")
	h.must(t, "", "dlq", "update", entry, "--notes", "asking the carrier")
	shown := h.must(t, "", "dlq", "get", entry)
	if then, now := strings.Index(shown, "Task Snapshot, as of 2"), strings.Index(shown, "Steps now:\n\nSTEP"); then < 0 || now < then {
		t.Errorf("dlq get does not tell the evidence from the steps now:\n%s", shown)
	}
	for _, tt := range []struct {
		command string
		path    string
		rows    int
	}{
		{"dlq queue", "/v1/dlq/investigation-queue", 1},
		{"dlq staleness", "/v1/dlq/staleness", 2},
		{"dlq staleness --limit 1 --offset 1", "/v1/dlq/staleness?limit=1&offset=1", 1},
		{"dlq staleness --health-status healthy", "/v1/dlq/staleness?health_status=healthy", 2},
		{"dlq staleness --namespace orders --name other", "/v1/dlq/staleness?namespace=orders&name=other", 0},
		{"dlq stats", "/v1/dlq/stats", 1},
		{"dlq list", "/v1/dlq", 1},
		{"dlq get " + entry, "/v1/dlq/entry/" + entry, 0},
		{"dlq get " + task, "/v1/dlq/entry/" + entry, 0},
		{"task steps " + task, "/v1/tasks/" + task + "/workflow_steps", 1},
	} {
		want := timeless(t, h.get(t, tt.path))
		got := timeless(t, []byte(h.must(t, "", append(strings.Fields(tt.command), "-o", "json")...)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-server +printed):\n%s", tt.command, diff)
		}
		if list, _ := got.([]any); len(list) != tt.rows {
			t.Errorf("%s: %d rows, want %d", tt.command, len(list), tt.rows)
		}
	}
}
