package operation_test

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
)

// An operation whose steps a hold would keep from workers is not started, and its dry run says
// so; one whose act enqueues none of them is.
func TestHeldStepsAreNotReset(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	begin := func(s tasker.HoldScope) tasker.Hold {
		t.Helper()
		s.Namespace = enginetest.Namespace
		held, err := holds.Begin(t.Context(), tasker.NewHold{HoldScope: s, For: time.Hour, Owner: "bo", Reason: "PSP outage"})
		h.Must(err)
		return held
	}
	plan := func(act tasker.Act, task tasker.ID) tasker.Operation {
		t.Helper()
		o, _, err := h.ops.Plan(t.Context(), tasker.OperationPlan{Act: act, Actor: "ann", Reason: "r", Selection: tasker.OperationSelection{IDs: []tasker.ID{task}}})
		h.Must(err)
		return o
	}
	tasks := h.stuck(2)
	other := begin(tasker.HoldScope{StepName: "ship"}) // another step
	reset, resolve := plan(tasker.ActReset, tasks[0]), plan(tasker.ActResolve, tasks[1])
	_ = h.dryRun(reset, 10)
	for _, s := range []tasker.HoldScope{{}, {Handler: "run"}, {TaskName: "order"}, {StepName: "charge"}} {
		held := begin(s)
		_, err := h.ops.Start(t.Context(), reset.UUID, reset.PlanDigest, "ann")
		h.WantCode(err, tasker.Conflict, held.UUID.String(), "(owner bo) covers 1 of the steps")
		_, err = h.ops.DryRun(t.Context(), reset.UUID, 0, 10)
		h.WantCode(err, tasker.Conflict, held.UUID.String())
		_ = h.dryRun(resolve, 10)
		_, err = holds.Release(t.Context(), held.UUID, []int{}, hold.Change{Actor: "bo", Reason: "r"})
		h.Must(err)
		for range 3 {
			_, err := holds.AdvanceHolds(t.Context())
			h.Must(err)
		}
	}
	held := begin(tasker.HoldScope{})
	h.start(resolve)
	for _, id := range []tasker.ID{held.UUID, other.UUID} {
		_, err := holds.Release(t.Context(), id, []int{}, hold.Change{Actor: "bo", Reason: "r"})
		h.Must(err)
	}
	for range 3 {
		_, err := holds.AdvanceHolds(t.Context())
		h.Must(err)
	}
	o, err := h.ops.Start(t.Context(), reset.UUID, reset.PlanDigest, "ann")
	h.Must(err)
	if o.State != tasker.OperationRunning {
		t.Errorf("the operation is %s", o.State)
	}
}
