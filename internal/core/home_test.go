package core

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// homes names, for each situation of an open step, the rows that will move it and the index by which
// they are found. docs/concepts/how-it-works.md has the same table for users.
var homes = map[string][]string{ // by the results of world.home
	"queue":       {"ready_steps", "held_steps", "ready_steps_by_expiry"},
	"lease":       {"claims", "claims_to_look_at"},
	"kept report": {"workflow_steps.kept_report", "steps_with_kept_report"},
	"retry timer": {"workflow_steps.next_retry_at", "steps_to_retry"},
	"worker":      {"workflow_steps.awaits_worker_since", "steps_awaiting_worker"},
	"operator":    {"tasks_dlq", "tasks.attend_by", "tasks_unattended"},
	"decision":    {"workflow_steps.decide_at", "steps_to_decide"},
	"timer":       {"workflow_steps.wait_until", "steps_by_wait"},
	"answer":      {"human_steps", "tasks_of_parent"},
	"items":       {"steps_by_map"},
	"slot":        {"steps_by_map"},
	"parents":     {"workflow_steps"},
}

// Each open step waits for a row: every one is in the schema and in the table for users.
func TestEveryOpenStepWaitsForARow(t *testing.T) {
	t.Parallel()
	schema, page := read(t, "../schema/testdata/schema.sql"), read(t, "../../docs/concepts/how-it-works.md")
	for home, rows := range homes {
		for _, row := range slices.Concat(rows, []string{"tasks.stale_at", "tasks_by_threshold"}) {
			if !strings.Contains(page, "`"+row+"`") {
				t.Errorf("%s: docs/concepts/how-it-works.md does not name %s", home, row)
			}
			table, column, ok := strings.Cut(row, ".")
			_, definition, found := strings.Cut(schema, "CREATE TABLE tasker."+table+" (")
			definition, _, _ = strings.Cut(definition, "\n);")
			if !found && !strings.Contains(schema, " INDEX "+table+" ON tasker.") || ok && !strings.Contains(definition, "\n    "+column+" ") {
				t.Errorf("%s: the schema has no %s", home, row)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
