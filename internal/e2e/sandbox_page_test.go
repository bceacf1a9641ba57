package e2e

import (
	"strings"
	"testing"

	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/pgtest"
)

// maxClicks is how many clicks it takes at most from the list of cases until the three causes
// of an incident are verified.
const maxClicks = 15

// Somebody who was woken up repairs a drill on the pages, in a browser; the clicks are counted.
func TestADrillIsRepairedOnThePages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.CheckAtEnd(t)
	url := start(t, nil, program("tasker"), "serve", "--database-url", db.URL, "--listen", "127.0.0.1:0").url()
	run := start(t, []string{"TASKER_URL=" + url}, program("tasker-ctl"), "drill", "run", "--tasks", "60", "--interval", "100ms")
	await(t, "the drill to say what to do", func() bool { return strings.Contains(run.log.String(), "It is your turn") })
	await(t, "the cases of the drill", func() bool { return len(ctlCases(t, url, "drill")) == 13 })

	tab := browsertest.Open(t)
	tab.Go(url)
	clicks := 0
	click := func(selector string) {
		t.Helper()
		tab.Follow(selector)
		clicks++
	}
	for i, cause := range []struct{ text, items string }{{"HTTP 503", "30 verified"}, {"connection refused", "18 verified"}, {"KeyError", "12 verified"}} {
		if i > 0 {
			click(`main .crumbs a, header nav a[href="/ui/"]`)
		}
		tab.Sees(cause.text)
		click(`td.what a[href="` + pathOfCase(t, tab, cause.text) + `"]`)
		click(`main a[data-key=r]`)
		tab.Type("textarea[name=reason]", "the gateway is back")
		if i == 0 {
			tab.Type("main input[name=actor]", "kim@example.com")
		}
		click("main form button:not(.plain)") // plan
		tab.Sees("would be released.")
		click("main form button:not(.plain)") // start
		tab.Sees(cause.items)                 // by itself, when the last wave is proved
	}
	t.Logf("%d clicks", clicks)
	if clicks > maxClicks {
		t.Errorf("%d clicks, want %d at most", clicks, maxClicks)
	}
	var verified int
	must(t, db.Pool(t).QueryRow(t.Context(), `SELECT count(*) FROM tasker.operation_items WHERE state = 'verified'`).Scan(&verified))
	if verified != 60 {
		t.Errorf("%d steps are verified, want 60", verified)
	}
	ctl(t, url, "operation", "run", "--namespace", "drill", "--reset", "--reason", "the others as well", "--yes") // those that fail each of its own
	<-run.done
	if run.err != nil || !strings.Contains(run.log.String(), "70 of 70 proved") {
		t.Errorf("the drill ended with %v: %s", run.err, run.log)
	}
}

// pathOfCase is where the link of the case leads whose line has a text.
func pathOfCase(t *testing.T, tab *browsertest.Tab, text string) string {
	t.Helper()
	path := tab.Answer(`[...document.querySelectorAll("td.what")].filter(e => e.textContent.includes("` + text + `")).map(e => e.querySelector("a").getAttribute("href"))[0] || ""`)
	if path == "" {
		t.Fatalf("no case is about %q", text)
	}
	return path
}
