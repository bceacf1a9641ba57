package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
)

// save saves a checkpoint of an attempt.
func (h *harness) save(a tasker.Assignment, doc string) error {
	return h.Engine.SaveCheckpoint(h.Context(), h.worker, a.Lease(), json.RawMessage(doc))
}

// discard resets a step, which begins anew.
func (h *harness) discard(task tasker.ID, name string) tasker.Step {
	h.Helper()
	left, err := h.Engine.OperateStep(h.Context(), task, h.step(task, name).UUID, tasker.ActionRequest{
		Action: tasker.ResetForRetry, Reason: "r", Actor: "ann", DiscardCheckpoint: true,
	})
	h.Must(err)
	return left
}

// A checkpoint is given to the attempt after the one that saved it, until a reset discards it.
func TestACheckpointIsHandedOut(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("import", attempts(2, enginetest.Step("rows")))
	task := h.Create("import")
	a := h.claimOne("rows")
	if a.Checkpoint != nil {
		t.Errorf("the first attempt is given %s", a.Checkpoint)
	}
	h.Must(h.save(a, `{"row": 10}`))
	h.Must(h.save(a, `{"row": 20}`))
	h.accepted(failure(a, true))
	h.WantCode(h.save(a, `{"row": 30}`), tasker.StaleLease, "not saved")
	h.pass()
	b := h.claimOne("rows")
	if string(b.Checkpoint) != `{"row": 20}` || b.Attempt != 2 {
		t.Errorf("attempt %d is given %s", b.Attempt, b.Checkpoint)
	}
	h.accepted(failure(b, false))
	step := h.step(task, "rows")
	if c := step.Checkpoint; c == nil || c.Attempt != 1 || c.Bytes != 11 || c.SavedAt.IsZero() {
		t.Errorf("the step shows %+v", c)
	}
	if left := h.discard(task, "rows"); left.Checkpoint != nil {
		t.Errorf("the reset answers %+v", left.Checkpoint)
	}
	c := h.claimOne("rows")
	if c.Checkpoint != nil {
		t.Errorf("after a reset that discards it %s is given", c.Checkpoint)
	}
	h.Must(h.save(c, `1`))
	h.accepted(success(c, `1`))
	if c := h.step(task, "rows").Checkpoint; c != nil {
		t.Errorf("the complete step shows %+v", c)
	}
}

// A worker that falls silent leaves its checkpoint behind, and changes it no more: the attempt that
// follows owns it, also when it has saved nothing yet. A step that is given back keeps it as well.
func TestACheckpointOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("import", attempts(3, enginetest.Step("rows")))
	task := h.Create("import")
	lost := h.claimOne("rows")
	h.Must(h.save(lost, `{"row": 10}`))
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() - interval '1 minute' WHERE task_uuid = $1`, task)
	h.pass()
	h.WantCode(h.save(lost, `{"row": 11}`), tasker.StaleLease, "not saved")
	h.due()
	h.pass()
	a := h.claimOne("rows")
	if string(a.Checkpoint) != `{"row": 10}` || a.Attempt != 2 {
		t.Errorf("attempt %d is given %s", a.Attempt, a.Checkpoint)
	}
	h.WantCode(h.save(lost, `{"row": 12}`), tasker.StaleLease, "not saved")
	h.Must(h.save(a, `{"row": 20}`))
	_, _, err := h.Engine.Release(t.Context(), h.worker, []tasker.Lease{a.Lease()})
	h.Must(err)
	b := h.claimOne("rows")
	if string(b.Checkpoint) != `{"row": 20}` || b.Attempt != 2 {
		t.Errorf("after it was given back attempt %d has %s", b.Attempt, b.Checkpoint)
	}
	other := h.RegisterWorker("rows")
	h.WantCode(h.Engine.SaveCheckpoint(t.Context(), other, b.Lease(), json.RawMessage(`1`)), tasker.StaleLease, "not saved")
	h.accepted(success(b, `1`))
}

// What cannot be stored is refused and leaves the checkpoint before it.
func TestCheckpointsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("import", attempts(2, enginetest.Step("rows")))
	h.Create("import")
	a := h.claimOne("rows")
	full := `"` + strings.Repeat("x", tasker.MaxCheckpointBytes-2) + `"`
	h.Must(h.save(a, full))
	h.WantCode(h.save(a, full[:1]+"x"+full[1:]), tasker.TooLarge, "checkpoint", "16385 bytes", "the limit is 16384")
	for doc, words := range map[string]string{``: "checkpoint", `{`: "checkpoint", `"\u0000"`: "checkpoint", `1e999`: "checkpoint"} {
		h.WantCode(h.save(a, doc), tasker.Invalid, words)
	}
	h.accepted(failure(a, true))
	h.pass()
	b := h.claimOne("rows")
	if string(b.Checkpoint) != full {
		t.Errorf("the next attempt is given %d bytes", len(b.Checkpoint))
	}
	h.accepted(success(b, `1`))
}

// Each item of a map step has a checkpoint of its own, and a reset of the step discards those of
// the items that are not done.
func TestItemsHaveCheckpoints(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task, items := h.expanded(3)
	for i, doc := range []string{`"a"`, `"b"`, `"c"`} {
		h.Must(h.save(items[i], doc))
	}
	h.accepted(success(items[0], `0`), failure(items[1], true), failure(items[2], false))
	h.pass()
	again := h.claimOne("refund[1]")
	if string(again.Checkpoint) != `"b"` {
		t.Errorf("item 1 is given %s", again.Checkpoint)
	}
	h.accepted(failure(again, false))
	h.discard(task, "refund")
	if n := h.Count(`SELECT count(*) FROM tasker.step_checkpoints WHERE task_uuid = $1`, task); n != 1 {
		t.Errorf("%d checkpoints are left, want that of the item that is complete", n)
	}
	for _, a := range h.claimItems() {
		if a.Checkpoint != nil {
			t.Errorf("%s is given %s", a.Name, a.Checkpoint)
		}
		h.accepted(success(a, `1`))
	}
}

// Who may not read payloads sees that there is a checkpoint, and not what it says; a list has none
// of the values.
func TestACheckpointIsHidden(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("import", enginetest.Step("rows"))
	task := h.Create("import")
	a := h.claimOne("rows")
	h.Must(h.save(a, `{"row": "secret"}`))
	if v := h.step(task, "rows").Checkpoint.Value; v != nil {
		t.Errorf("the list shows %s", v)
	}
	seen, err := h.DB.Step(t.Context(), task, a.StepUUID)
	h.Must(err)
	if string(seen.Checkpoint.Value) != `{"row": "secret"}` {
		t.Errorf("the value is %s", seen.Checkpoint.Value)
	}
	viewer := access.Within(t.Context(), access.NewIdentity("key:v", []access.Grant{{Role: access.Viewer, Namespace: enginetest.Namespace}}), access.ReadTasks)
	hidden, err := h.DB.Step(viewer, task, a.StepUUID)
	h.Must(err)
	if c := hidden.Checkpoint; c.Bytes != 17 || strings.Contains(string(c.Value), "secret") {
		t.Errorf("without payloads:read it shows %+v %s", c, c.Value)
	}
}

func TestOnlyAResetDiscardsCheckpoints(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.broken()
	_, err := h.Engine.OperateStep(t.Context(), task, h.stepsOf(task)[0].UUID, tasker.ActionRequest{
		Action: tasker.ResolveManually, Reason: "r", Actor: "ann", DiscardCheckpoint: true,
	})
	h.WantCode(err, tasker.Invalid, "discard_checkpoint", "only allowed with reset_for_retry")
}
