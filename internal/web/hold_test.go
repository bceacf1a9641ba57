package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/postgres"
)

// hold begins a hold.
func (h *harness) hold(s tasker.HoldScope) tasker.Hold {
	h.Helper()
	held, err := hold.New(h.DB, h.Engine, hold.Options{}).Begin(h.Context(), tasker.NewHold{HoldScope: s, For: time.Hour, Owner: "bo", Reason: "PSP outage"})
	h.Must(err)
	return held
}

// goOn does what servers do with holds.
func (h *harness) goOn() {
	h.Helper()
	holds := hold.New(h.DB, h.Engine, hold.Options{})
	for range 3 {
		_, err := holds.ParkSteps(h.Context())
		h.Must(err)
		_, err = holds.AdvanceHolds(h.Context())
		h.Must(err)
	}
}

// A hold is begun on a page, stands on every page while it is open, is probed, extended and
// released, and ends.
func TestHoldFromBeginToEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	h.shows(h.get("/ui/holds"), http.StatusOK, "No holds", "/ui/begin-hold")
	h.shows(h.get("/ui/queues/shop/run"), http.StatusOK, `href="/ui/begin-hold?handler=run&namespace=shop"`)
	h.shows(h.get("/ui/begin-hold?namespace=shop&handler=run"), http.StatusOK, `name="namespace" value="shop"`, `name="handler" value="run"`, "Steps in the scope cannot be claimed",
		"tasker-ctl --server "+h.server.URL+" hold add --namespace shop --handler run --for 1h")
	for _, c := range []struct {
		field, words string
		status       int
	}{
		{"for=soon", "must be a duration", 400}, {"for=30h", "24h0m0s", 400}, {"reason=", "Reason is missing", 400}, {"namespace=", "Namespace is missing", 400}, {"actor=", "Your name is missing", 400},
		{"case=x", "must be the id of a case", 400}, {"case=" + tasker.NewID().String(), "not found", 400},
	} {
		name, _, _ := strings.Cut(c.field, "=")
		fields := []string{c.field}
		for _, f := range []string{"namespace=shop", "handler=run", "for=4h", "reason=PSP outage", "actor=bo"} {
			if !strings.HasPrefix(f, name+"=") {
				fields = append(fields, f)
			}
		}
		r := h.post("/ui/begin-hold", fields...)
		if r.status != c.status || !strings.Contains(r.text, c.words) {
			t.Errorf("%s: %d, want %d and %q: %.300s", c.field, r.status, c.status, c.words, r.text)
		}
	}
	r := h.post("/ui/begin-hold", "namespace=shop", "handler=run", "for=4h", "reason=PSP outage", "actor=bo")
	h.shows(r, http.StatusOK, "Steps in the scope are held.", "Hold of <bdi>shop: handler run</bdi>", "PSP outage", "Extend…", "Release…")
	page := r.url
	h.shows(h.post("/ui/begin-hold", "namespace=shop", "handler=run", "for=4h", "reason=again", "actor=bo"), http.StatusConflict, "already has this scope", ">again</textarea>")
	task, _ := h.Create("order"), h.Create("order")
	h.shows(h.get("/ui/tasks/"+task.String()), http.StatusOK, "is held by bo since")
	h.goOn()
	for _, path := range []string{"/ui/", "/ui/tasks", "/ui/tasks/" + task.String(), "/ui/queues/shop/run", "/ui/operations", "/ui/workers"} {
		h.shows(h.get(path), http.StatusOK, `<a href="`+page+`"><bdi>shop: handler run</bdi> is held</a>: 2 steps, by <bdi>bo</bdi>`)
	}
	h.shows(h.get("/ui/holds?state=open"), http.StatusOK, "2 steps", page)
	h.shows(h.post(page+"/probe", "actor=ann"), http.StatusOK, "A probe is released within a second", "probe requested")
	if r := h.get("/ui/nothing"); r.status != http.StatusNotFound || strings.Contains(r.text, "is held</a>") {
		t.Errorf("a page that is not there asks what is held: %d", r.status)
	}
	h.goOn()
	h.shows(h.get(page), http.StatusOK, "Probes and waves", "pending", "1 step", task.String())
	h.shows(h.post(page+"/probe", "actor=ann"), http.StatusConflict, "already running")
	h.shows(h.post(page+"/extend", "actor=ann", "for=x", "reason=r"), http.StatusBadRequest, "must be a duration")
	h.shows(h.post(page+"/extend", "actor=ann", "for=8h", "owner=ann", "reason=my shift"), http.StatusOK, "The hold was extended.", "my shift")
	h.shows(h.post(page+"/release", "actor=ann", "waves=x", "reason=r"), http.StatusBadRequest, "must be numbers")
	h.shows(h.post(page+"/release", "actor=ann", "waves=all", "reason=PSP is back"), http.StatusOK, "The hold is being released.", "PSP is back")
	h.shows(h.get(page+"/extend"), http.StatusConflict, "being released and cannot be changed")
	h.goOn()
	r = h.get(page)
	h.shows(r, http.StatusOK, "ended", "2 steps")
	if strings.Contains(r.text, "Release…") || strings.Contains(r.text, "is held</a>") {
		t.Error("a hold that has ended can be released, or stands in the banner")
	}
	h.shows(h.get(page+"/release"), http.StatusConflict, "The hold has ended.")
	h.shows(h.get("/ui/holds?state=open"), http.StatusOK, "No open holds")
	h.shows(h.get("/ui/holds?before=x"), http.StatusBadRequest, "must be a UUID")
	h.shows(h.get("/ui/holds/"+tasker.NewID().String()), http.StatusNotFound, "not found")
}

// The place of a case is held from its page.
func TestACaseIsHeld(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.declined(1)
	path := h.casePath("order")
	id := strings.TrimPrefix(path, "/ui/cases/")
	h.shows(h.get(path), http.StatusOK, `href="/ui/begin-hold?case=`+id+`"`)
	h.shows(h.get("/ui/begin-hold?case="+id), http.StatusOK, `name="case" value="`+id+`"`)
	h.shows(h.post("/ui/begin-hold", "case="+id, "for=1h", "reason=r", "actor=bo"), http.StatusOK, "Hold of <bdi>shop: step order > charge</bdi>", path)
}

// A hold, its banner and what a breaker quotes of errors are for those who may see them.
func TestWhoSeesHolds(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	held, err := h.DB.BeginHold(t.Context(), postgres.InsertedHold{
		NewHold: tasker.NewHold{HoldScope: tasker.HoldScope{Namespace: "shop", Handler: "run"}, For: time.Hour, Owner: tasker.SystemActor, Actor: tasker.SystemActor, Reason: "failed with: secret"},
		UUID:    tasker.NewID(), Kind: tasker.BreakerHold, Cause: "secret", CauseKey: "key", NextProbe: time.Hour,
	})
	h.Must(err)
	page := "/ui/holds/" + held.UUID.String()
	viewer, operator, other := h.signedIn("viewer", "viewer@shop"), h.signedIn("operator", "operator@shop"), h.signedIn("other", "operator@bank")
	for _, path := range []string{"/ui/", page, "/ui/holds"} {
		if r := viewer.get(path); strings.Contains(r.text, "secret") || !strings.Contains(r.text, "shop: handler run") || strings.Contains(r.text, "Release…") {
			t.Errorf("%s as a viewer: %.2000s", path, r.text)
		}
		if r := operator.get(path); !strings.Contains(r.text, "secret") {
			t.Errorf("%s as an operator has no reason", path)
		}
		if r := other.get(path); strings.Contains(r.text, "shop") {
			t.Errorf("%s tells of another namespace: %.2000s", path, r.text)
		}
	}
	h.shows(other.get(page), http.StatusNotFound)
	h.shows(viewer.get(page+"/release"), http.StatusForbidden, "steps:operate")
	both := h.signedIn("both", "viewer@shop", "operator@bank")
	h.shows(both.post("/ui/begin-hold", "namespace=shop", "for=1h", "reason=r"), http.StatusForbidden, "steps:operate")
	h.shows(other.post("/ui/begin-hold", "namespace=shop", "for=1h", "reason=r"), http.StatusForbidden, "steps:operate in namespace shop")
}
