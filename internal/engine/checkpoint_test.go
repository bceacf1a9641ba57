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
	return h.Engine.SaveCheckpoint(h.Context(), h.Worker, a.Lease(), json.RawMessage(doc))
}

// discard resets a step, which begins anew.
func (h *harness) discard(task tasker.ID, name string) tasker.Step {
	h.Helper()
	left, err := h.Engine.OperateStep(h.Context(), task, h.Step(task, name).UUID, tasker.ActionRequest{
		Action: tasker.ResetForRetry, Reason: "r", Actor: "ann", DiscardCheckpoint: true,
	})
	h.Must(err)
	return left
}

func TestNextAttemptReceivesTheCheckpoint(t *testing.T) {
	h := newHarness(t)
	h.Template("import", attempts(2, enginetest.Step("rows")))
	task := h.Create("import")
	a := h.ClaimOne("rows")
	check(t, a.Checkpoint == nil, "the first attempt is given %s", a.Checkpoint)
	h.Must(h.save(a, `{"row": 10}`))
	h.Must(h.save(a, `{"row": 20}`))
	h.Accepted(failure(a, true))
	h.WantCode(h.save(a, `{"row": 30}`), tasker.StaleLease, "not saved")
	h.pass()
	b := h.ClaimOne("rows")
	check(t, string(b.Checkpoint) == `{"row": 20}` && b.Attempt == 2,
		"attempt %d is given %s", b.Attempt, b.Checkpoint)
	h.Accepted(failure(b, false))
	step := h.Step(task, "rows")
	if c := step.Checkpoint; c == nil || c.Attempt != 1 || c.Bytes != 11 || c.SavedAt.IsZero() {
		t.Errorf("the step shows %+v", c)
	}
	left := h.discard(task, "rows")
	check(t, left.Checkpoint == nil, "the reset answers %+v", left.Checkpoint)
	c := h.ClaimOne("rows")
	check(t, c.Checkpoint == nil, "after a reset that discards it %s is given", c.Checkpoint)
	h.Must(h.save(c, `1`))
	h.Accepted(success(c, `1`))
	if c := h.Step(task, "rows").Checkpoint; c != nil {
		t.Errorf("the complete step shows %+v", c)
	}
}

func TestCheckpointOutlivesItsWorker(t *testing.T) {
	h := newHarness(t)
	h.Template("import", attempts(3, enginetest.Step("rows")))
	task := h.Create("import")
	lost := h.ClaimOne("rows")
	h.Must(h.save(lost, `{"row": 10}`))
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = clock_timestamp() - interval '1 minute' WHERE task_uuid = $1`, task)
	h.pass()
	h.WantCode(h.save(lost, `{"row": 11}`), tasker.StaleLease, "not saved")
	h.due()
	h.pass()
	a := h.ClaimOne("rows")
	check(t, string(a.Checkpoint) == `{"row": 10}` && a.Attempt == 2,
		"attempt %d is given %s", a.Attempt, a.Checkpoint)
	h.WantCode(h.save(lost, `{"row": 12}`), tasker.StaleLease, "not saved")
	h.Must(h.save(a, `{"row": 20}`))
	h.Release(a)
	b := h.ClaimOne("rows")
	check(t, string(b.Checkpoint) == `{"row": 20}` && b.Attempt == 2,
		"after it was given back attempt %d has %s", b.Attempt, b.Checkpoint)
	other := h.RegisterWorker("rows")
	h.WantCode(h.Engine.SaveCheckpoint(t.Context(), other, b.Lease(), json.RawMessage(`1`)), tasker.StaleLease, "not saved")
	h.Accepted(success(b, `1`))
}

func TestCheckpointsAreBounded(t *testing.T) {
	h := newHarness(t)
	h.Template("import", attempts(2, enginetest.Step("rows")))
	h.Create("import")
	a := h.ClaimOne("rows")
	full := `"` + strings.Repeat("x", tasker.MaxCheckpointBytes-2) + `"`
	h.Must(h.save(a, full))
	h.WantCode(h.save(a, full[:1]+"x"+full[1:]), tasker.TooLarge, "checkpoint", "16385 bytes", "the limit is 16384")
	for doc, words := range map[string]string{``: "checkpoint", `{`: "checkpoint", `"\u0000"`: "checkpoint", `1e999`: "checkpoint"} {
		h.WantCode(h.save(a, doc), tasker.Invalid, words)
	}
	h.Accepted(failure(a, true))
	h.pass()
	b := h.ClaimOne("rows")
	check(t, string(b.Checkpoint) == full, "the next attempt is given %d bytes", len(b.Checkpoint))
	h.Accepted(success(b, `1`))
}

func TestEachItemHasItsOwnCheckpoint(t *testing.T) {
	h := newHarness(t)
	task, items := h.expanded(3)
	for i, doc := range []string{`"a"`, `"b"`, `"c"`} {
		h.Must(h.save(items[i], doc))
	}
	h.Accepted(success(items[0], `0`), failure(items[1], true), failure(items[2], false))
	h.pass()
	again := h.ClaimOne("refund[1]")
	check(t, string(again.Checkpoint) == `"b"`, "item 1 is given %s", again.Checkpoint)
	h.Accepted(failure(again, false))
	h.discard(task, "refund")
	h.WantCount(1, `SELECT count(*) FROM tasker.step_checkpoints WHERE task_uuid = $1`, task)
	for _, a := range h.claimItems() {
		check(t, a.Checkpoint == nil, "%s is given %s", a.Name, a.Checkpoint)
		h.Accepted(success(a, `1`))
	}
}

func TestCheckpointValueNeedsPayloadAccess(t *testing.T) {
	h := newHarness(t)
	h.Template("import", enginetest.Step("rows"))
	task := h.Create("import")
	a := h.ClaimOne("rows")
	h.Must(h.save(a, `{"row": "secret"}`))
	if v := h.Step(task, "rows").Checkpoint.Value; v != nil {
		t.Errorf("the list shows %s", v)
	}
	seen, err := h.DB.Step(t.Context(), task, a.StepUUID)
	h.Must(err)
	check(t, string(seen.Checkpoint.Value) == `{"row": "secret"}`, "the value is %s", seen.Checkpoint.Value)
	viewer := access.WithPermissionScope(t.Context(), access.NewIdentity("key:v", []access.Grant{{Role: access.Viewer, Namespace: enginetest.Namespace}}), access.ReadTasks)
	hidden, err := h.DB.Step(viewer, task, a.StepUUID)
	h.Must(err)
	if c := hidden.Checkpoint; c.Bytes != 17 || strings.Contains(string(c.Value), "secret") {
		t.Errorf("without payloads:read it shows %+v %s", c, c.Value)
	}
}

func TestOnlyAResetDiscardsCheckpoints(t *testing.T) {
	h := newHarness(t)
	task := h.broken()
	_, err := h.Engine.OperateStep(t.Context(), task, h.Steps(task)[0].UUID, tasker.ActionRequest{
		Action: tasker.ResolveManually, Reason: "r", Actor: "ann", DiscardCheckpoint: true,
	})
	h.WantCode(err, tasker.Invalid, "discard_checkpoint", "only allowed with reset_for_retry")
}
