package e2e

import (
	"strings"
	"testing"

	"tasker.example/tasker/internal/browsertest"
)

// What somebody does who was woken up: from the queue to the fixed order, in a
// browser, with the program that an operator runs. The pictures of docs/reference/ui.md are of this.
func TestThePageRepairsAnOrder(t *testing.T) {
	t.Parallel()
	dev := start(t, nil, program("tasker"), "dev", "--demo", "--demo-every", "200ms", "--listen", "127.0.0.1:0", "--data-dir", dataDir(t))
	url := dev.url()
	c := newClient(t, url)
	await(t, "some orders to become investigations", func() bool { return len(tasks(t, c, "error")) > 5 })

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
		tab.Accessible()
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
