package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/pgtest"
)

// maxClicks is how many clicks it takes at most from the first message about an incident until
// all of it is verified; to open the message is one.
const maxClicks = 15

// Somebody who is told of an incident repairs all of it on the pages, in a browser: first the
// cause that the message is about, then everything else at once. The clicks are counted.
func TestADrillIsRepairedOnThePages(t *testing.T) {
	t.Parallel()
	browsertest.Require(t) // a drill that a skip interrupts does not end well
	db := pgtest.New(t)
	db.CheckAtEnd(t)
	url := start(t, nil, program("tasker"), "serve", "--database-url", db.URL, "--listen", "127.0.0.1:0").url()
	run := start(t, []string{"TASKER_URL=" + url}, program("tasker-ctl"), "drill", "run", "--tasks", "60", "--interval", "100ms")
	await(t, "the drill to say what to do", func() bool { return strings.Contains(run.log.String(), "It is your turn") })
	await(t, "the cases of the drill", func() bool { return len(ctlCases(t, url, "drill")) == 13 })
	path := ""
	await(t, "the first message", func() bool {
		must(t, db.Pool(t).QueryRow(t.Context(), `SELECT coalesce((SELECT data ->> 'path' FROM tasker.messages WHERE topic LIKE 'case.%' ORDER BY position LIMIT 1), '')`).Scan(&path))
		return path != ""
	})
	// Which case was the worst when the message was written depends on the machine.
	var first struct {
		Entries      int    `json:"entries"`
		ErrorPattern string `json:"error_pattern"`
	}
	must(t, json.Unmarshal([]byte(ctl(t, url, "case", "show", strings.TrimPrefix(path, "/ui/cases/"), "-o", "json")), &first))

	tab := browsertest.Open(t)
	tab.Go(url + path) // as the message links to it
	clicks := 1
	click := func(selector string) {
		t.Helper()
		tab.Follow(selector)
		clicks++
	}
	repair := func(reason string) {
		t.Helper()
		tab.Type("textarea[name=reason]", reason)
		click("main form button:not(.plain)") // plan
		tab.Sees("would be released.")
		click("main form button:not(.plain)") // start
	}
	failed, _, _ := strings.Cut(first.ErrorPattern, "<")
	tab.Sees(failed)
	click(`main a[data-key=r]`)
	tab.Type("main input[name=actor]", "kim@example.com")
	repair("the gateway is back")
	tab.Sees(fmt.Sprintf("%d verified", first.Entries)) // by itself, when the last wave is proved

	click(`header nav a[href="/ui/"]`)
	click(`td.what a`)
	click(`main dd a[href="/ui/?namespace=drill"]`)
	others := 70 - first.Entries
	tab.Sees(fmt.Sprintf("Retry all %d", others))
	click(`main a[data-key=r]`)
	tab.Sees(fmt.Sprintf("%d open investigations match the filter", others))
	repair("the others as well")
	tab.Sees(fmt.Sprintf("%d verified", others))
	t.Logf("%d clicks", clicks)
	if clicks > maxClicks {
		t.Errorf("%d clicks, want %d at most", clicks, maxClicks)
	}
	var verified int
	must(t, db.Pool(t).QueryRow(t.Context(), `SELECT count(*) FROM tasker.operation_items WHERE state = 'verified'`).Scan(&verified))
	if verified != 70 {
		t.Errorf("%d steps are verified, want 70", verified)
	}
	<-run.done
	if run.err != nil || !strings.Contains(run.log.String(), "70 of 70 proved") {
		t.Errorf("the drill ended with %v: %s", run.err, run.log)
	}
}
