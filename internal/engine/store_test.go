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

// cutHere is in the message that stores a task and commits: a test breaks the connection at it.
const cutHere = "the connection breaks here"

func TestCommitWithoutAnswerCreatesOnce(t *testing.T) {
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single") // statements are prepared
	h.Drain()
	for name, tt := range map[string]struct {
		reach bool
		cuts  int
		key   bool
		count int
	}{
		"answer lost":                  {true, 1, false, 1},
		"answer lost, with a key":      {true, 1, true, 1},
		"commit lost":                  {false, 1, false, 1},
		"commit lost, with a key":      {false, 1, true, 1},
		"commit lost three times":      {false, 3, false, 1},
		"answer lost, several at once": {true, 1, false, 20},
		"commit lost, several at once": {false, 2, false, 20},
	} {
		h.each(name, func(h *harness) {
			before := len(h.tasks())
			r := tasker.NewTask{Namespace: h.Space, Name: "single", SourceSystem: cutHere}
			if tt.key {
				r.IdempotencyKey = name
			}
			cutter.Cut(tt.cuts, cutHere, tt.reach)
			created, err := h.Engine.CreateTasks(wrapPath(h.T, 30*time.Second), slices.Repeat([]tasker.NewTask{r}, tt.count))
			h.Must(err)
			n := cutter.Count()
			require(h, n == tt.cuts, "%d connections were broken, want %d", n, tt.cuts)
			stored := map[tasker.ID]bool{}
			for _, s := range h.tasks() {
				stored[s.UUID] = true
			}
			equal(h, "tasks are stored", len(stored), before+tt.count)
			for _, c := range created {
				check(h, c.New && stored[c.TaskUUID], "answered %+v, which is not there or not new", c)
			}
			equal(h, "steps ran", h.Drain(), tt.count)
		})
	}
}

func TestTimedOutCreateNamesItsTasks(t *testing.T) {
	h, cutter := newCutHarness(t)
	h.Template("single", enginetest.Step("one"))
	h.Create("single")
	h.Drain()
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
	check(t, len(ids) == 5 && strings.Contains(known.Message, ids[0]), "details %v, message %s", ids, known.Message)
	if n := len(h.tasks()); n != 1 { // the shared transaction goes on, and is cut again and again
		t.Errorf("%d tasks are stored, want 1", n)
	}
}

func TestCreatedTaskMatchesTheStoredTask(t *testing.T) {
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
		check(t, created[0].IsWhole(), "what was inserted is not whole")
		task := h.Task(created[0].TaskUUID)
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
		h.Cancel(s.UUID)
	}
}
