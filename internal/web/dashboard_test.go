package web_test

import (
	"net/http"
	"strings"
	"testing"

	"tasker"
)

func TestADashboardOfNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sees(h.get("/ui/dashboard"), "No investigation yet", "No sink is known", "In the last 24 hours, 0 opened, 0 ended", "In the last 30 days, 0 opened, 0 ended")
}

func TestTheDashboard(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.sinks("webhook")
	h.register("order", step("charge"))
	tasks := h.fail("order", "charge", "declined", 5)
	for _, task := range tasks[:2] {
		e, err := h.db.EntryOfTask(t.Context(), task)
		h.must(err)
		status, notes, by := tasker.EntryCancelled, "x", "Kim"
		_, _, err = h.dlq.Update(t.Context(), e.UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: by})
		h.must(err)
	}
	h.register("refund", step("pay"))
	h.create("refund", `{}`)
	h.exec(`UPDATE tasker.workers SET left_at = now()`)
	r := h.get("/ui/dashboard")
	h.sees(r, `<div class="big">3</div>open`, `<div class="big">2</div>ended`, "max retries exceeded", "/ui/?reason=max_retries_exceeded",
		"In the last 24 hours, 5 opened, 2 ended", "In the last 30 days, 5 opened, 2 ended", "No worker is alive for 1 queue", "shop/run (1 step)", "webhook")

	tab := h.open("/ui/dashboard")
	tab.Accessible()
	tab.Picture("dashboard-light")
	tab.Dark(true)
	tab.Accessible()
	tab.Picture("dashboard-dark")
	tab.Size(390, 844)
	tab.Fits()
	tab.Picture("dashboard-narrow")
	tab.Size(1280, 900)
	tab.Keys("j")
	tab.KeysAway("\r")
	tab.Sees("3 investigations in 1 case")
}

func TestADashboardWithoutADatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.db.Close()
	r := h.get("/ui/dashboard")
	if r.status != http.StatusInternalServerError && r.status != http.StatusServiceUnavailable || strings.Contains(r.text, "pool") {
		t.Errorf("%d\n%s", r.status, r.text)
	}
}
