package core

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

// report prints, for each state, the events it accepts and those it refuses. A
// new edge shows up in review as a difference of this print.
func report[S, E ~string](t Table[S, E], states []S, events []E) string {
	var b strings.Builder
	for _, s := range states {
		fmt.Fprintf(&b, "%s\n", s)
		var refused []string
		for _, e := range events {
			if to, ok := t[cause[S, E]{s, e}]; ok {
				fmt.Fprintf(&b, "  %-22s -> %s\n", e, to)
			} else {
				refused = append(refused, string(e))
			}
		}
		fmt.Fprintf(&b, "  refused: %s\n", strings.Join(refused, " "))
	}
	return b.String()
}

// taskEvents lists the events of a task.
func taskEvents() []TaskEvent {
	return []TaskEvent{
		Initialize, EnqueueSteps, Start, Evaluate, AwaitRetry, Await, Finish,
		Block, GiveUp, Reject, DeclareStale, MergeRequest, CancelTask, ExpireTask, Compensate, FinishCompensation, ChangeVersion, ChangeDue,
	}
}

// stepEvents lists the events of a step.
func stepEvents() []StepEvent {
	return []StepEvent{
		Enqueue, Claim, Succeed, Fail, Keep, Release, Lose, TimeOut, Expire, RejectInputs, Retry, Redispatch,
		Reset, Resolve, CompleteByHand, CompleteExternal, FailExternal, Cancel, Elapse, Skip, FailDecision, CompleteChild, FailChild, JoinItems, Tolerate,
	}
}

// entryEvents lists the events of an entry.
func entryEvents() []EntryEvent { return []EntryEvent{SettleEntry, FailEntry, CancelEntry} }

func TestReportsOfAcceptedAndRefusedEvents(t *testing.T) {
	golden(t, "task.report", report(TaskMoves, tasker.TaskStates(), taskEvents()))
	golden(t, "step.report", report(StepMoves, tasker.StepStates(), stepEvents()))
	golden(t, "entry.report", report(EntryMoves, tasker.ResolutionStatuses(), entryEvents()))
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
		if got := TaskMoves.Accepts(s); got != nil {
			t.Errorf("task %s accepts %v", s, got)
		}
	}
	for _, s := range []tasker.StepState{tasker.StepComplete, tasker.StepCancelled, tasker.StepResolvedManually} {
		if got := StepMoves.Accepts(s); got != nil {
			t.Errorf("step %s accepts %v", s, got)
		}
	}
}

func TestARefusalNamesWhatIsPossible(t *testing.T) {
	_, err := StepMoves.Next(tasker.StepPending, Reset)
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "resolve_manually") {
		t.Errorf("got %v", err)
	}
	_, err = StepMoves.Next(tasker.StepComplete, Reset)
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "final") {
		t.Errorf("got %v", err)
	}
}
