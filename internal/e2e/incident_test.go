package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/browsertest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/worker"
)

// The incident of a night: how many tasks each of its causes has stopped.
const (
	databaseTasks = 80 // one database is dead
	gatewayTasks  = 60 // of which one fails once more
	unknownTasks  = 6  // 404: their step is to be skipped
	singleTasks   = 8  // each of a cause of its own
	awaitedTasks  = 5  // external steps without an answer, opened by hand
	brokenTasks   = databaseTasks + gatewayTasks + singleTasks
	incidentTasks = brokenTasks + unknownTasks + awaitedTasks
)

// An incident is one that has begun, and whose causes are repaired.
type incident struct {
	url     string
	db      *pgtest.DB
	message string // the path to which the first message links
}

// A failing is the context of a task: what fails it.
type failing struct {
	Order int    `json:"order"`
	Kind  string `json:"kind"`
}

const incidentTemplate = `
namespace_name: %s
name: %s
version: 1.0.0
steps:
  - name: %s
    type: %s
`

// beginIncident starts a server and a worker, has the tasks fail, and repairs the causes when people
// have been told of them.
func beginIncident(t *testing.T) incident {
	t.Helper()
	in := incident{db: pgtest.New(t)}
	in.db.CheckAtEnd(t)
	in.url = start(t, nil, program("tasker"), "serve", "--database-url", in.db.URL, "--listen", "127.0.0.1:0").url()
	c := newClient(t, in.url)
	once := "    handler: {callable: night}\n    retry: {retryable: true, max_attempts: 1}\n"
	for _, x := range [][]any{{"ledger", "post", "write", "standard"}, {"payments", "pay", "charge", "standard"}, {"payments", "refund", "find", "standard"}, {"exports", "export", "approve", "external"}} {
		doc := fmt.Sprintf(incidentTemplate, x...)
		if x[3] == "standard" {
			doc += once
		}
		_, err := c.RegisterTemplate(t.Context(), []byte(doc), client.YAML)
		must(t, err)
	}
	repaired := in.worker(t, c)
	var tasks []apiv1.CreateTask
	add := func(namespace, name, kind string, n int) {
		for range n {
			doc, err := json.Marshal(failing{Order: 40_000 + len(tasks), Kind: kind})
			must(t, err)
			tasks = append(tasks, apiv1.CreateTask{Namespace: namespace, Name: name, Context: doc})
		}
	}
	add("ledger", "post", "database", databaseTasks)
	add("payments", "pay", "gateway", gatewayTasks)
	add("payments", "pay", "single", singleTasks)
	add("payments", "refund", "unknown", unknownTasks)
	add("exports", "export", "awaited", awaitedTasks)
	made, err := c.CreateTasks(t.Context(), tasks)
	must(t, err)
	for _, m := range made.Tasks[len(tasks)-awaitedTasks:] {
		_, err := c.OpenEntry(t.Context(), readID(t, m.TaskUUID.String()), apiv1.OpenEntry{Reason: "no answer", CreatedBy: "kim"})
		must(t, err)
	}
	await(t, "all to have failed", func() bool {
		l, err := c.Cases(t.Context(), tasker.CaseFilter{})
		must(t, err)
		return l.TotalEntries == incidentTasks
	})
	await(t, "the first message", func() bool {
		must(t, in.db.Pool(t).QueryRow(t.Context(), `SELECT coalesce((SELECT data ->> 'path' FROM tasker.messages WHERE topic LIKE 'case.%' AND 'ledger' = ANY (namespaces) ORDER BY position LIMIT 1), '')`).Scan(&in.message))
		return in.message != ""
	})
	var cases, messages int
	pool := in.db.Pool(t)
	must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.cases WHERE namespace = 'ledger'`).Scan(&cases))
	must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM tasker.messages WHERE 'ledger' = ANY (namespaces)`).Scan(&messages))
	if cases != 1 || messages != 1 {
		t.Errorf("a dead database is %d cases and %d messages, want 1 and 1", cases, messages)
	}
	repaired.Store(true)
	return in
}

// worker fails steps until the causes are repaired; one fails once more after that.
func (incident) worker(t *testing.T, c *client.Client) *atomic.Bool {
	t.Helper()
	var repaired, again atomic.Bool
	w := worker.New(c.Backend(), worker.Options{Name: "night", Version: "1.0.0", Namespaces: []string{"ledger", "payments"}, Concurrency: 50})
	worker.Handle(w, "night", func(_ context.Context, s *worker.Step[failing]) (string, error) {
		n := s.Input.Order
		switch unlucky := n == 40_000+databaseTasks+5 && repaired.Load() && again.CompareAndSwap(false, true); {
		case s.Input.Kind == "unknown":
			return "", &worker.Error{Type: "NotFound", Err: fmt.Errorf("HTTP 404: no payment of order %d", n)}
		case repaired.Load() && !unlucky:
			return "done", nil
		case s.Input.Kind == "database":
			return "", &worker.Error{Type: "ConnectionError", Err: fmt.Errorf("posting entry %d: connection refused to 10.0.3.7:5432 (local port %d, backend 0x%x)", 89_147_000+n, 32_768+n*7%28_000, n*4096)}
		case s.Input.Kind == "single":
			words := []string{"alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"}
			word := words[n%len(words)]
			return "", &worker.Error{Type: "AccountError", Err: fmt.Errorf("account %q is closed in %s books", word, word)}
		default:
			return "", &worker.Error{Type: "GatewayError", Err: fmt.Errorf("HTTP 503 from https://pay.example/charge/ORDER-%06d: Service Unavailable", n)}
		}
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &repaired
}

// wantRepaired checks that nothing is open, and how each investigation ended.
func (in incident) wantRepaired(t *testing.T) {
	t.Helper()
	var open, verified int
	must(t, in.db.Pool(t).QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'), (SELECT count(*) FROM tasker.operation_items WHERE state = 'verified')`).Scan(&open, &verified))
	if open != 0 || verified != incidentTasks {
		t.Errorf("%d investigations are open and %d items are verified, want 0 and %d", open, verified, incidentTasks)
	}
}

// maxNightClicks is the most clicks that repair the incident, with the one that opens the message.
const maxNightClicks = 20

// A whole incident is repaired on the pages: several causes by one operation, what failed once more,
// a step to skip, and steps to answer.
func TestAnIncidentIsRepairedOnThePages(t *testing.T) {
	t.Parallel()
	browsertest.Require(t)
	in := beginIncident(t)
	tab := browsertest.Open(t)
	tab.Go(in.url + in.message)
	clicks := 1
	follow := func(selector string) {
		t.Helper()
		tab.Follow(selector)
		clicks++
	}
	named := false
	run := func(reason string, verified string) {
		t.Helper()
		if !named {
			tab.Type("main input[name=actor]", "kim@example.com")
			named = true
		}
		tab.Type("textarea[name=reason]", reason)
		follow("main form button:not(.plain)") // create the plan
		tab.Sees("would be released.")
		follow("main form button:not(.plain)") // start
		tab.Sees(verified)
	}
	tab.Sees("posting entry")
	cases := `header nav a[href="/ui/"]`

	follow(cases)
	follow(`td.what a` + caseLinkOf(t, in.url, "refund"))
	follow(`main a[data-key=t]`) // another act: skip the step
	run("the orders were never paid", fmt.Sprintf("%d verified", unknownTasks))

	follow(cases)
	tab.Click("#filters summary")
	clicks++
	tab.ChooseAway("select[name=reason]", string(tasker.MaxRetriesExceeded))
	clicks++
	tab.Sees(fmt.Sprintf("Retry all %d", brokenTasks))
	follow(`main a[data-key=r]`)
	run("database and gateway are back", fmt.Sprintf("%d verified", brokenTasks-1))
	tab.Sees("1 failed again")
	follow(`#items-failed_again ~ p a.button`)
	run("once more", "1 verified")

	follow(cases)
	follow(`td.what a`)
	tab.Sees(fmt.Sprintf("Answer %d", awaitedTasks))
	follow(`main a[data-key=r]`)
	tab.Type("#result", `{"approved": true}`)
	run("approved by Ann", fmt.Sprintf("%d verified", awaitedTasks))
	t.Logf("%d clicks", clicks)
	if clicks > maxNightClicks {
		t.Errorf("%d clicks, want %d at most", clicks, maxNightClicks)
	}
	in.wantRepaired(t)
}

// caseLinkOf selects the link to the case of a template.
func caseLinkOf(t *testing.T, url, template string) string {
	t.Helper()
	l, err := newClient(t, url).Cases(t.Context(), tasker.CaseFilter{})
	must(t, err)
	for _, c := range l.Cases {
		if c.TaskName == template {
			return fmt.Sprintf(`[href="/ui/cases/%s"]`, c.ID.String())
		}
	}
	t.Fatalf("no case of %s", template)
	return ""
}

// maxNightCommands is the most commands that repair the incident, from the first look to the last.
const maxNightCommands = 7

// The same incident is repaired from a terminal.
func TestAnIncidentIsRepairedByCommands(t *testing.T) {
	t.Parallel()
	in := beginIncident(t)
	commands := 0
	say := func(args ...string) string {
		t.Helper()
		commands++
		return ctl(t, in.url, args...)
	}
	run := func(args ...string) string {
		t.Helper()
		return say(append([]string{"operation", "run", "--yes", "--watch", "--interval", "200ms", "--by", "kim"}, args...)...)
	}
	if said := say("case", "list"); !strings.Contains(said, "posting entry") {
		t.Errorf("the cases: %s", said)
	}
	run("--resolve", "--name", "refund", "--reason", "the orders were never paid")
	commands++
	said, err := exec.CommandContext(t.Context(), program("tasker-ctl"), "--server", in.url, "operation", "run", "--yes", "--watch", "--interval", "200ms", "--by", "kim",
		"--reset", "--dlq-reason", string(tasker.MaxRetriesExceeded), "--reason", "database and gateway are back").CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 3 { // some steps failed again
		t.Errorf("the operation ends with %v: %s", err, said)
	}
	run("--reset", "--dlq-reason", string(tasker.MaxRetriesExceeded), "--reason", "once more")
	run("--answer", "--name", "export", "--result", `{"approved": true}`, "--reason", "approved by Ann")
	if said := say("case", "list"); strings.Contains(said, "posting entry") {
		t.Errorf("the cases at the end: %s", said)
	}
	t.Logf("%d commands", commands)
	if commands > maxNightCommands {
		t.Errorf("%d commands, want %d at most", commands, maxNightCommands)
	}
	in.wantRepaired(t)
}
