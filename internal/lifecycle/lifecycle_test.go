package lifecycle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
)

var update = flag.Bool("update", false, "write the reports anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", file, diff)
	}
}

func TestReportsOfAcceptedAndRefusedEvents(t *testing.T) {
	golden(t, "task.report", Report(Task, tasker.TaskStates(), TaskEvents()))
	golden(t, "step.report", Report(Step, tasker.StepStates(), StepEvents()))
	golden(t, "entry.report", Report(Entry, tasker.ResolutionStatuses(), EntryEvents()))
}

func TestSettlePathsBetweenRestingStates(t *testing.T) {
	var b strings.Builder
	for _, from := range Resting() {
		for _, to := range Resting() {
			if from == to {
				continue
			}
			if path := SettlePath(from, to); path != nil {
				fmt.Fprintf(&b, "%s -> %s\n", from, to)
				for _, e := range path {
					fmt.Fprintf(&b, "  %-18s %s -> %s\n", e.Event, e.From, e.To)
				}
			}
		}
	}
	golden(t, "paths.report", b.String())
}

func TestFinalStatesAcceptNothing(t *testing.T) {
	for _, s := range []tasker.TaskState{tasker.TaskComplete, tasker.TaskCancelled, tasker.TaskResolvedManually} {
		if got := Task.Accepts(s); got != nil {
			t.Errorf("task %s accepts %v", s, got)
		}
	}
	for _, s := range []tasker.StepState{tasker.StepComplete, tasker.StepCancelled, tasker.StepResolvedManually} {
		if got := Step.Accepts(s); got != nil {
			t.Errorf("step %s accepts %v", s, got)
		}
	}
}

func TestARefusalNamesWhatIsPossible(t *testing.T) {
	_, err := Step.Next(tasker.StepPending, Reset)
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "resolve_manually") {
		t.Errorf("got %v", err)
	}
	_, err = Step.Next(tasker.StepComplete, Reset)
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "final") {
		t.Errorf("got %v", err)
	}
}
