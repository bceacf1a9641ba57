package api_test

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

// computed returns a token as anyone can make it who does not have the key.
func computed(task string, fence int64) string {
	id := uuid.MustParse(task)
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(id[:], uint64(fence)), make([]byte, 16)...))
}

func leaseOf(step apiv1.ClaimedStep, token string) map[string]any {
	return map[string]any{"step_uuid": step.StepUUID, "lease_token": token}
}

func resultOf(step apiv1.ClaimedStep, token string) map[string]any {
	r := leaseOf(step, token)
	r["success"], r["result"] = true, map[string]any{"paid": "by whom"}
	return map[string]any{"results": []any{r}}
}

// taken reports a result and says whether it was accepted; a refused one must be a stale lease.
func (h *harness) taken(worker string, step apiv1.ClaimedStep, token string) bool {
	h.Helper()
	got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", resultOf(step, token))
	if len(got.Rejected) == 1 && got.Rejected[0].Code != "STALE_LEASE" {
		h.Errorf("rejected %+v", got.Rejected)
	}
	return len(got.Accepted) == 1
}

func TestALeaseTokenCannotBeComputedAndIsBoundToItsWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker, other := h.worker(), h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	forged := computed(step.TaskUUID, 1)
	raw, err := base64.RawURLEncoding.DecodeString(step.LeaseToken)
	h.Must(err)
	raw[len(raw)-1] ^= 1
	changed := base64.RawURLEncoding.EncodeToString(raw)
	for _, token := range []string{forged, changed} {
		if h.taken(worker, step, token) || h.taken(other, step, token) {
			t.Fatalf("a result under the token %s was accepted", token)
		}
		leases := map[string]any{"leases": []any{leaseOf(step, token), leaseOf(step, step.LeaseToken)}}
		beat := want[apiv1.HeartbeatAnswer](h, http.StatusOK, "POST", worker+"/heartbeat", leases)
		if len(beat.Lost) > 1 || len(beat.Extended) != 1 {
			t.Errorf("heartbeat %+v", beat)
		}
		released := want[apiv1.Released](h, http.StatusOK, "POST", worker+"/release", map[string]any{"leases": []any{leaseOf(step, token)}})
		if len(released.Released) != 0 || len(released.Lost) != 1 {
			t.Errorf("release %+v", released)
		}
	}
	if h.taken(other, step, step.LeaseToken) {
		t.Error("another worker used the token")
	}
	var onRecord int
	if err := h.Admin().QueryRow(t.Context(), `SELECT count(*) FROM tasker.rejected_reports`).Scan(&onRecord); err != nil || onRecord != 5 {
		t.Errorf("%d refusals are on record, want 5: %v", onRecord, err)
	}
	if !h.taken(worker, step, step.LeaseToken) {
		t.Error("the worker's own token was refused")
	}
}

// Base64 ignores the last bits of an unpadded text, so that 16 texts could spell one token.
func TestALeaseTokenHasOneSpelling(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	h.createTask(1)
	worker := h.worker()
	step := h.claim(worker, map[string]any{"max": 1})[0]
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	body, last := step.LeaseToken[:len(step.LeaseToken)-1], step.LeaseToken[len(step.LeaseToken)-1:]
	for digit := range strings.SplitSeq(digits, "") {
		if digit == last {
			continue
		}
		got := want[apiv1.ReportAnswer](h, http.StatusOK, "POST", worker+"/results", resultOf(step, body+digit))
		if len(got.Accepted) != 0 {
			t.Errorf("the token that ends in %s instead of %s was accepted", digit, last)
		}
	}
	if !h.taken(worker, step, step.LeaseToken) {
		t.Error("the worker's own token was refused")
	}
}

// A server that has just started answers heartbeats while requests occupy all connections
// that they may have: who the caller is, where the worker works and the key of its leases are looked up beside them.
func TestFirstHeartbeatDoesNotWaitForRequests(t *testing.T) {
	t.Parallel()
	before, _ := guarded(t)
	key := before.bearer("w", "worker@shop")
	before.Space = "shop"
	before.Template("order", enginetest.Step("charge"))
	before.Create("order")
	w := want[apiv1.RegisteredWorker](before, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 1}, key)
	claimed := want[apiv1.ClaimedSteps](before, http.StatusOK, "POST", "/v1/workers/"+w.WorkerUUID+"/claims", map[string]any{"max": 1}, key)
	e := enginetest.At(t, before.URL, postgres.Options{MaxConns: 20})
	h := serve(t, e, func(o *api.Options) { o.Auth = auth.New(auth.Options{DB: e.DB}) })
	release := make(chan struct{})
	var holding, done sync.WaitGroup
	defer done.Wait()
	defer close(release)
	for range postgres.RequestConns(20) {
		holding.Add(1)
		done.Go(func() {
			h.Must(e.DB.InTx(t.Context(), func(*postgres.Tx) error {
				holding.Done()
				<-release
				return nil
			}))
		})
	}
	holding.Wait()
	beat := want[apiv1.HeartbeatAnswer](h, http.StatusOK, "POST", "/v1/workers/"+w.WorkerUUID+"/heartbeat", apiv1.Leases{
		Leases: []apiv1.Lease{{StepUUID: claimed.Steps[0].StepUUID, LeaseToken: claimed.Steps[0].LeaseToken}},
	}, key)
	if len(beat.Extended) != 1 {
		t.Errorf("got %+v", beat)
	}
}
