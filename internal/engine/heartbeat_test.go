package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func TestHeartbeatDoesNotWaitForAReport(t *testing.T) {
	const failing = 50
	h := newHarness(t)
	var steps []tasker.StepTemplate
	for i := range failing {
		steps = append(steps, enginetest.Step(fmt.Sprintf("s%d", i)))
	}
	h.Template("big", steps...)
	h.Template("single", enginetest.Step("bystander"))
	task, other := h.Create("big"), h.Create("single")
	claimed := h.ClaimAs(h.Worker, failing+1)
	require(t, len(claimed) == failing+1, "claimed %d steps", len(claimed))
	h.Exec(`UPDATE tasker.workflow_steps SET lease_expires_at = lease_expires_at - $1::interval`, enginetest.Lease/2)
	leases := make([]tasker.Lease, len(claimed))
	for i, a := range claimed {
		leases[i] = a.Lease()
	}
	bystander := h.Step(other, "bystander").UUID
	lost := slices.IndexFunc(leases, func(l tasker.Lease) bool { return l.TaskUUID == task })
	leases[lost].Fence-- // it went to another

	report, err := h.Admin().Begin(t.Context())
	h.Must(err)
	defer func() { _ = report.Rollback(t.Context()) }()
	_, err = report.Exec(t.Context(), `SELECT FROM tasker.workflow_steps WHERE task_uuid = $1 FOR NO KEY UPDATE`, task)
	h.Must(err)

	beat, err := h.Engine.Heartbeat(wrapPath(t, 15*time.Second), h.Worker, leases) // one that waits for a lock ends with an error before
	h.Must(err)
	check(t, len(beat.Lost) == 1 && beat.Lost[0] == leases[lost].StepUUID,
		"%d leases are lost, want the one of %s", len(beat.Lost), leases[lost].StepUUID)
	extended := func() (list []tasker.ID) {
		for _, x := range beat.Extended {
			if time.Until(x.ExpiresAt) > enginetest.Lease/2 {
				list = append(list, x.StepUUID)
			}
		}
		return list
	}
	if got := extended(); len(beat.Extended) != failing || len(got) != 1 || got[0] != bystander {
		t.Errorf("%d leases are held, of which %d are longer; want %d and that of %v", len(beat.Extended), len(got), failing, bystander)
	}
	h.Must(report.Rollback(t.Context()))
	beat, err = h.Engine.Heartbeat(t.Context(), h.Worker, leases)
	h.Must(err)
	if got := extended(); len(got) != failing || len(beat.Lost) != 1 {
		t.Errorf("afterwards %d leases are longer and %d lost, want %d and 1", len(got), len(beat.Lost), failing)
	}
}

func TestWorkerKeepsThePromisedLease(t *testing.T) {
	h := newSingle(t)
	const long, short = 10 * engine.DefaultLease, engine.DefaultLease
	server := func(lease time.Duration) *engine.Engine {
		return newEngine(h.DB, engine.Options{Leases: engine.LeaseOptions{Duration: lease}})
	}
	lasts := func(end time.Time, lease time.Duration) bool {
		rest := time.Until(end)
		return rest > lease/2 && rest < lease+time.Minute
	}
	for _, tt := range []struct{ promised, now, want time.Duration }{
		{long, short, long}, {short, long, long}, {short, short, short},
	} {
		r, err := server(tt.promised).RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{enginetest.Namespace}, Handlers: []string{"run"}})
		h.Must(err)
		h.Create("single")
		list, err := server(tt.now).Claim(t.Context(), r.WorkerUUID, 1, 0)
		h.Must(err)
		if len(list) != 1 || !lasts(list[0].LeaseExpiresAt, tt.want) {
			t.Fatalf("promised %v, claimed %+v at a server with %v", tt.promised, list, tt.now)
		}
		beat, err := server(tt.now).Heartbeat(t.Context(), r.WorkerUUID, []tasker.Lease{list[0].Lease()}) // it has not heard of the worker
		h.Must(err)
		if len(beat.Extended) != 1 || !lasts(beat.Extended[0].ExpiresAt, tt.want) {
			t.Errorf("promised %v, extended %+v at a server with %v", tt.promised, beat.Extended, tt.now)
		}
	}
}
