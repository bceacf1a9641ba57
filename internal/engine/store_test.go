package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

func (h *harness) tasks() []tasker.Task {
	h.Helper()
	list, _, err := h.DB.Tasks(h.Context(), tasker.TaskFilter{Limit: 1000})
	h.Must(err)
	return list
}

// cutHere is in the message that stores a task and commits: a test breaks the connection
// at it.
const cutHere = "the connection breaks here"

// The connection breaks at the commit: before PostgreSQL has it, after it has, and
// both in turn. One request is one task.
func TestACommitWithoutAnAnswerCreatesOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reach bool
		cuts  int
		key   string
		count int
	}{
		"answer lost":                  {true, 1, "", 1},
		"answer lost, with a key":      {true, 1, "k", 1},
		"commit lost":                  {false, 1, "", 1},
		"commit lost, with a key":      {false, 1, "k", 1},
		"commit lost three times":      {false, 3, "", 1},
		"answer lost, several at once": {true, 1, "", 20},
		"commit lost, several at once": {false, 2, "", 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, cutter := newCutHarness(t)
			h.Template("single", enginetest.Step("one"))
			r := tasker.NewTask{Namespace: enginetest.Namespace, Name: "single", IdempotencyKey: tt.key, SourceSystem: cutHere}
			h.Create("single") // statements are prepared
			h.drain()
			cutter.Cut(tt.cuts, cutHere, tt.reach)
			created, err := h.Engine.CreateTasks(within(t, 30*time.Second), slices.Repeat([]tasker.NewTask{r}, tt.count))
			h.Must(err)
			if n := cutter.Count(); n != tt.cuts {
				t.Fatalf("%d connections were broken, want %d", n, tt.cuts)
			}
			stored := map[tasker.ID]bool{}
			for _, s := range h.tasks() {
				stored[s.UUID] = true
			}
			if len(stored) != tt.count+1 {
				t.Errorf("%d tasks are stored, want %d", len(stored), tt.count+1)
			}
			for _, c := range created {
				if !c.New || !stored[c.TaskUUID] {
					t.Errorf("answered %+v, which is not there or not new", c)
				}
			}
			if n := h.drain(); n != tt.count {
				t.Errorf("%d steps ran, want %d", n, tt.count)
			}
		})
	}
}

// A request whose time ends before that is known names what it may have created.
func TestARequestThatGivesUpNamesItsTasks(t *testing.T) {
	t.Parallel()
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	h.drain()
	cutter.Cut(1000, cutHere, false)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := h.Engine.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{{Namespace: enginetest.Namespace, Name: "single", SourceSystem: cutHere}}, 5))
	h.WantCode(err, tasker.Unavailable, "may have created task", "and 2 more", "GET /v1/tasks/")
	var known *tasker.Error
	if !errors.As(err, &known) {
		t.Fatal(err)
	}
	ids := known.Details.(map[string][]string)["task_uuids"]
	if len(ids) != 5 || !strings.Contains(known.Message, ids[0]) {
		t.Errorf("details %v, message %s", ids, known.Message)
	}
	if n := len(h.tasks()); n != 1 { // the shared transaction goes on, and is cut again and again
		t.Errorf("%d tasks are stored, want 1", n)
	}
}

// What is answered of a task that cannot be read is what can be read.
func TestWhatWasInsertedIsWhatIsRead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("mixed", enginetest.Step("a"), enginetest.Step("b", "a"), external("c"), external("d", "b", "c"))
	first := h.Create("mixed")
	for _, r := range []tasker.NewTask{
		{Namespace: enginetest.Namespace, Name: "mixed"},
		{
			Namespace: enginetest.Namespace, Name: "mixed", Version: "1.0.0", Context: json.RawMessage(`{"b":[1e2], "a":"\u00e4"}`), Initiator: "i", SourceSystem: "s", Reason: "r", Priority: 7,
			Tags: []string{"x"}, CorrelationID: "c", ParentCorrelationID: "p", IdempotencyKey: "k", RecreatedFrom: first,
		},
		{Namespace: enginetest.Namespace, Name: "mixed", StartAt: time.Now().Add(time.Hour)},
	} {
		created, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{r})
		h.Must(err)
		gotTask, gotSteps := created[0].Inserted()
		if !created[0].IsWhole() {
			t.Error("what was inserted is not whole")
		}
		task := h.taskOf(created[0].TaskUUID)
		steps, err := h.DB.Steps(t.Context(), task.UUID)
		h.Must(err)
		if diff := cmp.Diff(task, gotTask, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("task (-read +inserted):\n%s", diff)
		}
		if diff := cmp.Diff(steps, gotSteps, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("steps (-read +inserted):\n%s", diff)
		}
	}
	for _, s := range h.tasks() {
		h.Must(h.Engine.CancelTask(t.Context(), s.UUID, "ann", "seen"))
	}
}
