package web_test

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/engine"
)

// looksGood checks a page in a wide and in a narrow window, in light and in dark.
func looksGood(tab *browsertest.Tab) {
	tab.Helper()
	tab.Accessible()
	tab.Fits()
	tab.Size(390, 844)
	tab.Fits()
	tab.Dark(true)
	tab.Readable()
	tab.Dark(false)
	tab.Size(1280, 900)
}

// Every kind of page is accessible, and no wider than its window. Keys lead from page to page.
func TestPagesAreAccessibleAndFollowKeys(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tab := h.open("/ui/")
	tab.Sees("No open investigations")
	tab.Until(`document.getElementById("fresh").textContent.includes("Europe/Berlin")`)
	looksGood(tab)
	tab.Keys("?")
	tab.Until(`document.querySelector("dialog[open]") !== null`)
	tab.Accessible()

	st, pages := h.everyPage()
	for _, page := range pages {
		tab.Go(h.server.URL + page)
		looksGood(tab)
	}
	task := pageOf(st.task)
	for _, tt := range []struct{ from, keys, to string }{
		{"/ui/tasks", "gd", "/ui/dashboard"}, {"/ui/dashboard", "ge", "/ui/emissions"}, {"/ui/emissions", "gw", "/ui/workers"}, {"/ui/workers", "gt", "/ui/tasks"},
		{"/ui/tasks", "gq", "/ui/"}, {"/ui/emissions", "l", "/ui/audit"}, {"/ui/audit", "u", "/ui/emissions"}, {"/ui/staleness", "w", "/ui/staleness?health=warning"},
		{"/ui/workers", "jd", "/drain"}, {st.page(), "r", st.action("reset") + "?entry=" + st.entry.String()},
		{st.page(), "m", st.action("resolve") + "?entry=" + st.entry.String()}, {st.page(), "o", st.page() + "/own"}, {st.page(), "e", st.page() + "/update?end=1"},
		{task, "x", task + "/cancel"}, {task, "o", st.page()}, {pageOf(h.create("order", `{}`)), "i", "/investigate"},
	} {
		tab.Go(h.server.URL + tt.from)
		tab.Keys(tt.keys[:len(tt.keys)-1])
		tab.KeysAway(tt.keys[len(tt.keys)-1:])
		if at := tab.Address(); !strings.HasSuffix(at, tt.to) {
			t.Errorf("%s on %s leads to %s, want %s", tt.keys, tt.from, at, tt.to)
		}
	}
}

// everyPage fills the database with something for every page, and returns the pages and a stuck task.
func (h *harness) everyPage() (st *stuck, pages []string) {
	h.Helper()
	h.sinks("log", "webhook")
	items, _ := h.lists(3, 1)
	looks := h.everyLook()
	for _, look := range []string{"error", "complete", "waiting for retry"} {
		pages = append(pages, pageOf(looks[look]))
	}
	st = &stuck{harness: h, task: looks["error"]}
	e := h.Entry(st.task)
	st.entry, st.step = e.UUID, *e.StepUUID
	running, question, poll := pageOf(looks["steps in process"]), pageOf(looks["waiting for dependencies"]), h.watch("order", 66)
	h.watch("order", 52)
	h.enlist("till-1", "authorize_payment", "capture_payment", "refund_payment", "send_receipt", "ship_order", "cancel_order")
	h.Template("parcel", served("pack", "wrap_parcel"))
	h.create("parcel", `{}`)
	answer := question + "/steps/" + h.stepNamed(looks["waiting for dependencies"], "answer") + "/answer"
	_, err := h.DB.TakeEvents(h.Context(), "webhook", 100)
	h.Must(err)
	h.Exec(`UPDATE tasker.emission_sinks SET failing_since = now(), last_error = 'dial tcp 192.0.2.7:443: connection refused' WHERE sink = 'webhook'`)
	h.audit("ann@example.com", "dlq.re_emit", "positions 1 to 8", `{"to": 7, "from": 1, "sinks": ["webhook", "rabbitmq"], "reason": "the receiver is back"}`)
	held := h.hold(tasker.HoldScope{Namespace: "shop", Handler: "away"})
	nightly, err := h.Engine.CreateSchedule(h.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "nightly", Template: "order", ScheduleRule: tasker.ScheduleRule{Every: time.Hour},
	}, engine.ScheduleChange{Actor: "ann"})
	h.Must(err)
	h.post("/ui/set-limit", "actor=bo", "reason=the provider asks", "kind=handler", "namespace=shop", "name=pay/card", "max=3")
	aCase, operation := h.casePath("order"), "/ui/operations/"+h.planned("order").String()
	emission := "/ui/emissions/" + h.firstEvent().String()
	return st, append(pages, "/ui/", "/ui/?view=entries", aCase, aCase+"/run", aCase+"/merge", st.page(), st.page()+"/update",
		st.action("reset"), st.action("complete"), running+"/cancel", pageOf(items), "/ui/tasks/"+poll, answer,
		pageOf(items)+"/steps/"+h.stepNamed(items, "refund")+"/items", "/ui/tasks", "/ui/staleness", "/ui/dashboard?over=day",
		"/ui/workers", "/ui/workers/"+h.worker.String()+"/drain", "/ui/queues/shop/run", "/ui/emissions", emission, emission+"/re-emit", "/ui/audit", "/ui/operations", operation,
		operation+"/start", "/ui/holds", "/ui/holds/"+held.UUID.String(), "/ui/begin-hold?namespace=shop&handler=run", "/ui/schedules", "/ui/schedules/"+nightly.UUID.String(),
		"/ui/new-schedule", "/ui/templates", "/ui/templates/shop/order/1.0.0", "/ui/limits", "/ui/inbox", "/ui/nowhere")
}
