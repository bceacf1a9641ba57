package api_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// What waits is in the list, and whether anybody could take it.
func TestQueues(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if got := h.send("GET", "/v1/queues", nil); got.status != http.StatusOK || got.text != "[]\n" {
		t.Errorf("nothing waits, yet %d %s", got.status, got.text)
	}
	h.register(chain)
	h.register(strings.NewReplacer("shop", "depot", "callable: run", "callable: load").Replace(chain))
	h.createTask(1)
	h.createTask(2)
	want[any](h, http.StatusCreated, "POST", "/v1/tasks", `{"namespace":"depot","name":"order","context":{"order":1}}`)
	worker := h.worker() // of namespace shop, handler run
	list := want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues", nil)
	if len(list) != 2 {
		t.Fatalf("queues %+v", list)
	}
	depot, shop := list[0], list[1] // what nobody takes comes first
	if depot.Namespace != "depot" || depot.Handler != "load" || depot.Queued != 1 || depot.LiveWorkers != 0 || !depot.Unserved {
		t.Errorf("queue %+v", depot)
	}
	if shop.Namespace != "shop" || shop.Handler != "run" || shop.Queued != 2 || shop.LiveWorkers != 1 || shop.Unserved || shop.QueuedIsAtLeast ||
		shop.AwaitingWorker != 0 || shop.OldestQueuedAt == nil || shop.NextExpiresAt == nil || !shop.NextExpiresAt.After(*shop.OldestQueuedAt) {
		t.Errorf("queue %+v", shop)
	}
	if got := want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues?limit=1", nil); len(got) != 1 || got[0].Namespace != "depot" {
		t.Errorf("the first queue is %+v", got)
	}
	if got := want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues?namespace=shop&limit=1000", nil); len(got) != 1 || got[0].Namespace != "shop" {
		t.Errorf("queues of shop: %+v", got)
	}

	// What is taken does not wait; who drains takes nothing.
	h.claim(worker, map[string]any{"max": 1})
	want[any](h, http.StatusOK, "POST", worker+"/drain", nil)
	if got := want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues?namespace=shop", nil); len(got) != 1 || got[0].Queued != 1 || !got[0].Unserved {
		t.Errorf("queues of shop: %+v", got)
	}

	// No worker took it in time, and it waits for one.
	h.Exec(`UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() - interval '1 hour' WHERE state = 'enqueued'`)
	if _, err := h.Engine.ExpireSteps(t.Context()); err != nil {
		t.Fatal(err)
	}
	list = want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues?namespace=depot", nil)
	if len(list) != 1 || list[0].Queued != 0 || list[0].AwaitingWorker != 1 || !list[0].Unserved || list[0].OldestQueuedAt != nil || list[0].NextExpiresAt != nil {
		t.Errorf("queues of depot: %+v", list)
	}
	h.worker()
	if got := want[[]tasker.Queue](h, http.StatusOK, "GET", "/v1/queues?namespace=depot", nil); len(got) != 1 || !got[0].Unserved {
		t.Errorf("a worker of shop serves depot: %+v", got)
	}

	for query, words := range map[string]string{
		"limit=0": "from 1 to 1000", "limit=1001": "from 1 to 1000", "limit=all": "must be a number", "offset=1": "unknown parameter",
		"namespace=" + strings.Repeat("n", 129): "128", "namespace=%00": "namespace", "namespace=a&namespace=b": "only once",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", words, "GET", "/v1/queues?"+query, nil)
	}
}

// Namespaces have weights, which are listed, set and removed.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if got := want[apiv1.NamespaceList](h, http.StatusOK, "GET", "/v1/namespaces", nil); got.Namespaces == nil || len(got.Namespaces) != 0 {
		t.Errorf("none has a weight, yet %+v", got)
	}
	set := want[tasker.NamespaceWeight](h, http.StatusOK, "PUT", "/v1/namespaces/shop", apiv1.SetNamespace{Weight: 3})
	if set.Namespace != "shop" || set.Weight != 3 || set.SetBy == "" || set.SetAt.IsZero() {
		t.Errorf("set %+v", set)
	}
	if got := want[apiv1.NamespaceList](h, http.StatusOK, "GET", "/v1/namespaces", nil); len(got.Namespaces) != 1 || got.Namespaces[0] != set {
		t.Errorf("listed %+v, want %+v", got, set)
	}
	for _, weight := range []float64{0, -1, 0.009, 1001} {
		h.wantError(http.StatusBadRequest, "INVALID", "must be a number from 0.01 to 1000", "PUT", "/v1/namespaces/shop", apiv1.SetNamespace{Weight: weight})
	}
	h.wantError(http.StatusBadRequest, "INVALID", "128", "PUT", "/v1/namespaces/"+strings.Repeat("n", 129), apiv1.SetNamespace{Weight: 1})
	if got := h.send("DELETE", "/v1/namespaces/shop", nil); got.status != http.StatusNoContent {
		t.Errorf("deleted with %d %s", got.status, got.text)
	}
	h.wantError(http.StatusNotFound, "NOT_FOUND", "has no weight of its own", "DELETE", "/v1/namespaces/shop", nil)
}
