package e2e

import (
	"strings"
	"testing"

	"tasker.example/tasker/internal/browsertest"
)

// The demo that a newcomer starts has orders that fail, and an operator repairs one in a browser: from
// the queue to the shipped order. The pictures of docs/reference/ui.md are of this.
func TestDemoOrderIsRepairedOnThePages(t *testing.T) {
	t.Parallel()
	browsertest.Require(t)
	dev := start(t, nil, program("tasker"), "dev", "--demo", "--demo-every", "200ms", "--listen", "127.0.0.1:0", "--data-dir", dataDir(t))
	url := dev.url()
	c := newClient(t, url)
	await(t, "an order to complete", func() bool { return len(tasks(t, c, "complete")) > 0 })
	await(t, "some orders to become investigations", func() bool { return len(tasks(t, c, "error")) > 5 })
	if said := ctl(t, url, "dlq", "queue"); !strings.Contains(said, "max_retries_exceeded") {
		t.Errorf("tasker-ctl dlq queue said %s", said)
	}

	tab := browsertest.Open(t)
	tab.Go(url)
	tab.Sees("orders/order_fulfillment › charge_card")
	tab.View("queue")
	tab.Follow("table tbody a")
	tab.Sees("Newest investigations")
	tab.View("case")
	tab.KeysAway("r")
	tab.Sees("What will happen")
	tab.View("plan")
	tab.Follow("main form a.button.plain")
	tab.KeysAway("s")
	tab.Sees("on this page")
	tab.View("queue-entries")
	tab.Keys("p") // what is under way meanwhile does not move the rows
	tab.Keys("j")
	tab.KeysAway("\r")
	tab.Sees("What happened")
	tab.View("investigation")
	investigation := tab.Address()

	tab.KeysAway("c")
	tab.Sees("What will happen")
	tab.Type("textarea[name=result]", `{"payment_id": "BY-HAND-1", "amount_cents": 1}`)
	tab.Type("textarea[name=reason]", "charged by telephone")
	tab.Type("main input[name=actor]", "kim@example.com")
	tab.View("complete")
	tab.Follow("main form button:not(.plain)")
	if got := tab.Address(); got != investigation {
		t.Fatalf("the form leads to %s", got)
	}
	await(t, "the order to complete", func() bool { return strings.Contains(tab.Text("#main"), "task complete") })
	entry, err := c.Entry(t.Context(), readID(t, investigation[strings.LastIndex(investigation, "/")+1:]))
	must(t, err)
	if ship := stepNamed(t, c, entry.TaskUUID, "ship_order"); !strings.Contains(string(ship.Results), "BY-HAND-1") {
		t.Errorf("shipping knows nothing of the payment: %s", ship.Results)
	}

	tab.KeysAway("e")
	tab.View("end")
	tab.Click("input[name=status][value=manually_resolved]")
	tab.Type("textarea[name=notes]", "gateway outage, order fixed")
	tab.Follow("main form button:not(.plain)")
	tab.Sees("investigation manually resolved")
	tab.View("investigation-ended")

	for name, path := range map[string]string{
		"tasks": "/ui/tasks", "staleness": "/ui/staleness", "dashboard": "/ui/dashboard", "workers": "/ui/workers", "emissions": "/ui/emissions", "audit": "/ui/audit",
	} {
		tab.Go(url + path)
		tab.View(name)
	}
	tab.Go(url + "/ui/tasks?state=error")
	tab.Keys("p")
	tab.Follow("table tbody a")
	tab.View("task")
	tab.Dark(true)
	tab.View("task-dark")
	tab.Go(url + "/ui/")
	tab.Size(390, 844)
	tab.View("queue-narrow")
}
