package web_test

import (
	"net/http"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// enlist registers a worker, which is alive for as long as a test may take.
func (h *harness) enlist(name string, handlers ...string) tasker.ID {
	h.Helper()
	r, err := h.Engine.RegisterWorker(h.Context(), tasker.WorkerSpec{
		Name: name, Namespaces: []string{enginetest.Namespace}, Handlers: handlers, Version: "1.4.2", MaxConcurrency: 8,
	})
	h.Must(err)
	h.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour' WHERE worker_uuid = $1`, r.WorkerUUID)
	return r.WorkerUUID
}

// served describes a step that a handler takes.
func served(name, handler string) tasker.StepTemplate {
	s := step(name)
	s.Handler.Callable = handler
	return s
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Exec(`DELETE FROM tasker.workers`)
	h.sees(h.get("/ui/workers"), "No workers", "No waiting steps", "data-live")
	id := h.enlist("till-1", "a", "b", "c", "d", "e")
	h.enlist("till-2", "charge")
	h.Template("order", served("pay", "charge"))
	h.Template("parcel", served("pack", "wrap"))
	h.create("order", `{}`)
	h.create("parcel", `{}`)
	r := h.get("/ui/workers")
	h.sees(r, "till-1", "1.4.2", "0 of 8", "5 handlers", `<span class="chip good">active</span>`, "charge", "wrap",
		"1 queue without a live worker", "unserved", "/ui/workers/"+id.String()+"/drain")
	h.refused(h.get("/ui/workers?offset=x"), http.StatusBadRequest, "Invalid offset")
}

func TestDrainingAWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	id := h.enlist("till-1", "run")
	path := "/ui/workers/" + id.String() + "/drain"
	r := h.get(path)
	h.sees(r, "What will happen", "The worker claims no more steps.", "worker drain "+id.String(),
		"-X POST "+h.server.URL+"/v1/workers/"+id.String()+"/drain")
	r = h.post(path)
	h.at(r, "/ui/workers")
	h.sees(r, "Worker till-1 is draining", `<span class="chip warn">draining</span>`)
	h.lacks(r, path)
	h.sees(h.get(path), "Already draining")
	h.Must(h.Engine.LeaveWorker(t.Context(), id))
	h.refused(h.post(path), http.StatusConflict, "no longer exists", "What will happen")
	h.refused(h.get("/ui/workers/none/drain"), http.StatusNotFound, "must be a UUID")
	h.refused(h.get("/ui/workers/"+tasker.NewID().String()+"/drain"), http.StatusNotFound)
	h.refused(h.post("/ui/workers/none/drain"), http.StatusNotFound, "must be a UUID")
	h.refused(h.post("/ui/workers/"+tasker.NewID().String()+"/drain"), http.StatusNotFound)
}

func TestASilentWorkerThatIsDrained(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("pay"))
	h.create("order", `{}`)
	if list, err := h.Engine.Claim(t.Context(), h.worker, 1, 0); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	path := "/ui/workers/" + h.worker.String() + "/drain"
	h.sees(h.get(path), "finishes or releases its 1 step")
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - 3.5 * heartbeat_interval, lease = interval '1 hour'`)
	h.sees(h.get(path), "It gets no steps if it reconnects", "its steps are enqueued again when their leases expire", `<span class="chip bad">stale</span>`)
	h.Exec(`UPDATE tasker.workers SET last_heartbeat_at = now() - interval '2 hours'`)
	h.lacks(h.get("/ui/workers"), path)
}

// The row that has the focus stays the same worker's when others come above it.
func TestTheFocusStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tab := h.open("/ui/workers")
	tab.Keys("j")
	tab.Eval(`window.here = document.activeElement.closest("tr").innerText.split(" ")[0]`)
	for _, name := range []string{"a-new-1", "a-new-2", "a-new-3"} {
		h.enlist(name, "run")
	}
	tab.Keys("pp") // stop and go on: now, and not in ten seconds
	tab.Sees("a-new-3")
	if !tab.Is(`document.activeElement.closest("tr").innerText.split(" ")[0] === window.here`) {
		t.Error("the focus is on another worker")
	}
}

// The weight of a namespace is set on the page of workers, which shows it.
func TestSettingTheWeightOfANamespace(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.sees(h.get("/ui/workers"), "All have weight 1.", `href="/ui/set-weight"`)
	h.sees(h.get("/ui/set-weight?namespace=shop"), `value="shop"`, "namespace weight shop 1", h.server.URL+"/v1/namespaces/shop")
	r := h.post("/ui/set-weight", "namespace=shop", "weight=2.5", "actor=ann")
	h.at(r, "/ui/workers")
	h.sees(r, "The weight of namespace shop is 2.5.", "Other namespaces have weight 1.", "<bdi>ann</bdi>")
	h.refused(h.post("/ui/set-weight", "namespace=shop", "weight=heavy", "actor=ann"), http.StatusBadRequest, "must be a number from 0.01 to 1000")
	h.refused(h.post("/ui/set-weight", "namespace=shop", "weight=0", "actor=ann"), http.StatusBadRequest, "must be a number from 0.01 to 1000")
	h.refused(h.post("/ui/set-weight", "namespace=", "weight=2", "actor=ann"), http.StatusBadRequest, "must be 1 to 128 characters long")
}
