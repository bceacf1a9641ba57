package measure

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/schema"
)

// What a step may cost at most. These are counted and not timed, so they are the
// same on every machine; who needs more says why here.
var budget = map[string]float64{
	"rows inserted":        1.7,   // its moves; the time in the queue of the first of four, and of those that a busy machine reports too few at a time to hand over
	"rows deleted":         0.55,  // the same
	"rows updated":         2.4,   // claimed, done; the task of the last is settled; beside the tasks' progress
	"WAL":                  1_600, // bytes
	"database round trips": 1,     // a report takes the next work along; batches share one
	"allocations":          250,   // of engine and worker
}

// walOfProgress is how many bytes of WAL it takes to note the progress of a task: its row, and an entry in each index.
const walOfProgress = 1_200

// Four steps in a row, a hundred times. Not parallel: WAL is counted by the server. A busy machine
// only adds to a cost, by reports of fewer steps: one measurement of three is within the budget.
func TestAStepKeepsWithinItsBudget(t *testing.T) {
	var over []string
	for range 3 {
		if over = overBudget(t); len(over) == 0 {
			return
		}
		t.Logf("over the budget: %q", over)
	}
	t.Errorf("over the budget: %q", over)
}

// overBudget measures what a step costs, and returns what is more than it may be.
func overBudget(t *testing.T) (over []string) {
	t.Helper()
	db := pgtest.New(t)
	makeRoom(t, db.AdminURL)
	report, err := Run(t.Context(), Options{
		DatabaseURL: db.AdminURL, Runs: 1, Workflows: 100, Only: regexp.MustCompile("^cost$"), Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range report.Figures {
		got[f.Name] = f.Max
	}
	if inPlace := got["rows updated in place (HOT) per step"]; inPlace < 1.9 {
		over = append(over, fmt.Sprintf("rows updated in place per step: %g, want at least 1.9: all but the task's", inPlace))
	}
	// How often progress was noted depends on how long the tasks took.
	progress := got["progress of tasks, at most, per step"]
	got["rows updated per step"] -= progress
	got["WAL per step"] -= progress * walOfProgress
	for name, most := range budget {
		t.Logf("%s per step: %g", name, got[name+" per step"])
		cost, ok := got[name+" per step"]
		if !ok || cost <= 0 || cost > most {
			over = append(over, fmt.Sprintf("%s per step: %g, want at most %g", name, cost, most))
		}
	}
	return over
}

// makeRoom leaves room in each page for all versions of its rows. An update is in
// place when no index has to change and its page has room. The test counts the
// first. The second depends on time: a page is pruned only of versions that no
// open transaction sees, and on a busy machine some transaction is open for long.
func makeRoom(t *testing.T, adminURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), adminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := schema.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `ALTER TABLE tasker.workflow_steps SET (fillfactor = 15)`); err != nil {
		t.Fatal(err)
	}
}
