package engine_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// joinTable reads the table of docs/reference/states.md: what becomes of a step by its join, for each
// set of what its dependencies have come to.
func joinTable(t *testing.T) map[string]map[tasker.Join]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/states.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]map[tasker.Join]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z, ]+) \| (run|skip|wait|blocked) \| (run|skip|wait|blocked) \| (run|skip|wait|blocked) \|$`).FindAllStringSubmatch(string(text), -1) {
		table[row[1]] = map[tasker.Join]string{tasker.JoinAll: row[2], tasker.JoinNoneFailed: row[3], tasker.JoinAny: row[4]}
	}
	if len(table) != 16 {
		t.Fatalf("the table has %d rows", len(table))
	}
	return table
}

// A combination is a join and the ends of the dependencies of a step, each of one of them.
type combination struct {
	join tasker.Join
	ends []string
}

func (c combination) name() string { return string(c.join) + "-" + strings.Join(c.ends, "-") }

// row is the row of the table that is about the combination.
func (c combination) row() string {
	of := map[string]string{"complete": "succeeded", "resolved": "succeeded", "skipped": "skipped", "failed": "failed", "open": "open"}
	var words []string
	for _, end := range c.ends {
		words = append(words, of[end])
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(words), ", ")
}

// combinations lists every join with every set of ends.
func combinations() (list []combination) {
	all := []string{"complete", "resolved", "skipped", "failed", "open"}
	for _, join := range []tasker.Join{tasker.JoinAll, tasker.JoinNoneFailed, tasker.JoinAny} {
		for set := range 1 << len(all) {
			c := combination{join: join}
			for i, end := range all {
				if set&(1<<i) != 0 {
					c.ends = append(c.ends, end)
				}
			}
			list = append(list, c)
		}
	}
	return list
}

// The engine does with a step what the table of docs/reference/states.md says, for every join and every set
// of complete, resolved, skipped, failed and open dependencies.
func TestEveryCombinationOfTheTable(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	table := joinTable(t)
	tasks := map[tasker.ID]combination{}
	for _, c := range combinations() {
		steps := []tasker.StepTemplate{}
		for _, end := range c.ends {
			s := enginetest.Once(enginetest.Step(end))
			if end == "skipped" {
				s.When = "false"
			}
			steps = append(steps, s)
		}
		last := enginetest.Step("last", c.ends...)
		last.Join = c.join
		h.Template(c.name(), append(steps, last)...)
		tasks[h.Create(c.name())] = c
	}
	h.drive()
	for task, c := range tasks {
		want := map[string]tasker.StepState{"run": tasker.StepInProgress, "skip": tasker.StepSkipped, "wait": tasker.StepPending, "blocked": tasker.StepPending}
		verdict := table[c.row()][c.join]
		if is := h.step(task, "last"); is.State != want[verdict] {
			t.Errorf("join %s, dependencies %s: the step is %s; the table says %s", c.join, fmt.Sprint(c.ends), is.State, verdict)
		}
	}
}

// drive brings steps to the ends that their names say; open ones, and the last, stay with the worker.
func (h *harness) drive() {
	h.Helper()
	for {
		_, err := h.Engine.Tick(h.Context())
		h.Must(err)
		list, err := h.Engine.Claim(h.Context(), h.worker, 50, 0)
		h.Must(err)
		if len(list) == 0 {
			return
		}
		for _, a := range list {
			switch a.Name {
			case "complete":
				_, err = h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{success(a, `{}`)}, 0)
			case "failed", "resolved":
				_, err = h.Engine.Report(h.Context(), h.worker, []tasker.Outcome{failure(a, false)}, 0)
			}
			h.Must(err)
			if a.Name == "resolved" {
				_, err = h.Engine.OperateStep(h.Context(), a.TaskUUID, a.StepUUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "r"})
				h.Must(err)
			}
		}
	}
}
