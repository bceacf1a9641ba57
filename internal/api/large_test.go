package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// An omission is what stands for a document in a list that has no room for it.
func omission(t *testing.T, doc json.RawMessage) (tasker.OmittedDocument, bool) {
	t.Helper()
	var o tasker.OmittedDocument
	if json.Unmarshal(doc, &o) != nil || !o.Omitted {
		return o, false
	}
	if o.StoredBytes < 1 || !strings.HasPrefix(o.ReadAt, "/v1/") {
		t.Errorf("omission %+v", o)
	}
	return o, true
}

// wide is a template of one step with many behind it.
func wide(steps int) string {
	var b strings.Builder
	b.WriteString("namespace_name: shop\nname: wide\nversion: 1.0.0\nsteps:\n")
	for i := range steps {
		fmt.Fprintf(&b, "- {name: s%d, handler: {callable: shop.s}}\n", i)
	}
	return b.String()
}

// TestATaskWithLargeResultsCanBeRead: a list of its steps ends within the limit of an
// answer, and what it leaves out is read one by one. Compression makes a megabyte
// small in the database, so the size there says little.
func TestATaskWithLargeResultsCanBeRead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(wide(30))
	task := want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", map[string]any{"namespace": "shop", "name": "wide"})
	h.Exec(`UPDATE tasker.workflow_steps s
		SET results = jsonb_build_object('success', true, 'result', repeat('x', 1000000)),
		    error = jsonb_build_object('message', repeat('m', 8000), 'type', 't', 'retryable', true, 'context', repeat('c', 60000))
		WHERE task_uuid = $1`, task.UUID)
	for _, path := range []string{"/v1/tasks/" + task.UUID.String(), "/v1/tasks/" + task.UUID.String() + "/workflow_steps"} {
		got := h.send("GET", path, nil)
		if got.status != http.StatusOK || len(got.text) > tasker.MaxAnswerBytes {
			t.Fatalf("%s: %d, %d bytes", path, got.status, len(got.text))
		}
		var steps []tasker.Step
		text := got.text
		if strings.HasPrefix(text, "{") {
			var whole tasker.Task
			_ = json.Unmarshal([]byte(text), &whole)
			steps = whole.Steps
		} else if err := json.Unmarshal([]byte(text), &steps); err != nil {
			t.Fatal(err)
		}
		shown, whole := 0, 0
		for _, s := range steps {
			o, is := omission(t, s.Results)
			if !is {
				shown++
				continue
			}
			var failure tasker.StepFailure
			if err := json.Unmarshal(s.Error, &failure); err != nil || len(failure.Message) != 500 || failure.Type != "t" || !failure.Retryable || len(s.Error) > 1000 {
				t.Errorf("the error beside an omission: %v %s", err, s.Error)
			}
			if whole++; whole > 1 {
				continue
			}
			one := want[tasker.Step](h, http.StatusOK, "GET", o.ReadAt, nil)
			if one.UUID != s.UUID || len(one.Results) < 1_000_000 || len(one.Error) < 68_000 {
				t.Errorf("%s: step %s, %d and %d bytes", o.ReadAt, one.UUID, len(one.Results), len(one.Error))
			}
		}
		if len(steps) != 30 || shown == 0 || shown == 30 {
			t.Errorf("%d steps, %d of them with results", len(steps), shown)
		}
	}
}

// TestInvestigationsWithLargeSnapshotsCanBeListed, the default page of them and the longest one.
func TestInvestigationsWithLargeSnapshotsCanBeListed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.stuck(h.worker())
	h.Exec(`
		WITH made AS (
			INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, task_snapshot, resolution_status,
				resolution_notes, resolved_at, resolved_by, namespace, task_name, case_key, priority_at)
			SELECT task_uuid, original_state, dlq_reason, detail_code, detected_by, task_snapshot || jsonb_build_object('x', repeat('y', 1300000)),
				'cancelled', repeat('n', 20000), now(), 'ann', namespace, task_name, case_key, priority_at
			FROM tasker.tasks_dlq, generate_series(1, 199)
			RETURNING dlq_entry_uuid
		)
		INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status)
		SELECT dlq_entry_uuid, e.event, 'ann', e.was, e.became
		FROM made, (VALUES ('created', NULL::tasker.dlq_resolution_status, 'pending'::tasker.dlq_resolution_status), ('resolved', 'pending', 'cancelled')) e (event, was, became)
		ORDER BY e.event`)
	for path, count := range map[string]int{"/v1/dlq": 50, "/v1/dlq?limit=1000": 200} {
		got := h.send("GET", path, nil)
		var list []tasker.Entry
		if err := json.Unmarshal([]byte(got.text), &list); err != nil || len(list) != count || len(got.text) > tasker.MaxAnswerBytes {
			t.Fatalf("%s: %v, %d entries, %d bytes", path, err, len(list), len(got.text))
		}
		shown := 0
		for i, e := range list {
			o, is := omission(t, e.Snapshot)
			if !is {
				shown++
			} else if e.ResolutionNotes != nil && len(*e.ResolutionNotes) > 600 {
				t.Errorf("%d bytes of notes beside an omission", len(*e.ResolutionNotes))
			}
			if is && i == count-2 {
				whole := want[tasker.Entry](h, http.StatusOK, "GET", o.ReadAt, nil)
				if len(whole.Snapshot) < 1_300_000 || len(*whole.ResolutionNotes) != 20_000 {
					t.Errorf("%s: %d bytes", o.ReadAt, len(whole.Snapshot))
				}
			}
		}
		if shown == 0 || shown > 10 {
			t.Errorf("%s: %d snapshots of %d", path, shown, count)
		}
	}
}

// TestLongHistoriesCanBeRead of tasks and of steps.
func TestLongHistoriesCanBeRead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.createTask(1)
	step := task.Steps[0].UUID
	h.Exec(`INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, reason, detail, created_at)
		SELECT $1::uuid, $2::uuid, s.state, s.state, 'reset', 1, repeat('r', 20000), jsonb_build_object('message', repeat('m', 70000)), clock_timestamp()
		FROM tasker.workflow_steps s, generate_series(1, 600) WHERE s.step_uuid = $2::uuid`, task.UUID, step)
	defer h.Exec(`DELETE FROM tasker.step_history WHERE event = 'reset'`) // moves that no step makes
	path := "/v1/tasks/" + task.UUID.String() + "/workflow_steps/" + step.String() + "/transitions"
	got := h.send("GET", path, nil)
	var list []tasker.Transition
	if err := json.Unmarshal([]byte(got.text), &list); err != nil || len(list) < 600 || len(got.text) > tasker.MaxAnswerBytes {
		t.Fatalf("%v, %d lines, %d bytes", err, len(list), len(got.text))
	}
	last := list[len(list)-1]
	o, is := omission(t, last.Detail)
	if !is || len(last.Reason) > 600 {
		t.Fatalf("the last line has its detail, and a reason of %d bytes", len(last.Reason))
	}
	one := want[[]tasker.Transition](h, http.StatusOK, "GET", o.ReadAt, nil)
	if len(one) != 1 || !one[0].CreatedAt.Equal(last.CreatedAt) || len(one[0].Detail) < 70_000 || len(one[0].Reason) != 20_000 {
		t.Errorf("%s: %d lines", o.ReadAt, len(one))
	}
}

// TestTheNotesOfAnInvestigationHaveALimit, all of them together; it can be ended
// when there is no room for more, and its history is read in parts.
func TestTheNotesOfAnInvestigationHaveALimit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	entry := "/v1/dlq/entry/" + h.stuck(h.worker()).EntryUUID.String()
	long := func(i int) map[string]any {
		return map[string]any{"metadata": map[string]string{fmt.Sprint("k", i): strings.Repeat("m", 60_000)}, "updated_by": "ann"}
	}
	for i := range tasker.MaxEntryNoteBytes / 60_100 {
		want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", entry, long(i))
	}
	h.wantError(http.StatusRequestEntityTooLarge, "TOO_LARGE", "would exceed the limit", "PATCH", entry, long(100))
	h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes)
		SELECT dlq_entry_uuid, 'step_failed', 'engine', 'pending', 'pending', 'n' || n FROM tasker.tasks_dlq, generate_series(1, 700) n`)
	first := want[tasker.Entry](h, http.StatusOK, "GET", entry, nil)
	rest := want[tasker.Entry](h, http.StatusOK, "GET", entry+fmt.Sprintf("?history_offset=%d", len(first.History)), nil)
	if len(first.History) != 500 || !first.MoreHistory || rest.MoreHistory || *rest.History[len(rest.History)-1].Notes != "n700" {
		t.Errorf("%d lines, %v, then %d, %v", len(first.History), first.MoreHistory, len(rest.History), rest.MoreHistory)
	}
	want[apiv1.UpdatedEntry](h, http.StatusOK, "PATCH", entry,
		map[string]any{"resolution_status": "cancelled", "resolution_notes": strings.Repeat("e", 20_000), "resolved_by": "ann"})
}
