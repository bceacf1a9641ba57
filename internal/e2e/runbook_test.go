package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/testtool"
	"tasker.example/tasker/worker"
)

// runbookTemplates are what the tasks of the runbooks' situations are made of.
// Nobody works in the namespace shipping until the test does.
var runbookTemplates = map[string]string{
	"charge_card": `
namespace_name: order_processing
name: charge_card
version: 1.0.0
steps:
  - name: charge
    handler: {callable: needs_database}
    retry: {max_attempts: 1}
  - name: tell
    dependencies: [charge]
    handler: {callable: echo}
`,
	"refund_card": `
namespace_name: order_processing
name: refund_card
version: 1.0.0
steps:
  - name: refund
    handler: {callable: needs_database}
    retry: {max_attempts: 1}
`,
	"check_stock": `
namespace_name: order_processing
name: check_stock
version: 1.0.0
lifecycle: {max_waiting_for_retry_minutes: 30}
steps:
  - name: check
    handler: {callable: needs_database}
    retry: {max_attempts: 3, backoff: constant, backoff_base_ms: 3600000, max_backoff_ms: 3600000}
`,
	"approve_order": `
namespace_name: order_processing
name: approve_order
version: 1.0.0
steps:
  - name: approve
    type: external
  - name: tell
    dependencies: [approve]
    handler: {callable: echo}
`,
	"ship_parcel": `
namespace_name: shipping
name: ship_parcel
version: 1.0.0
steps:
  - name: ship
    handler: {callable: echo}
`,
}

// Every command of the runbooks does what the runbook says, exactly as printed.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	t.Run("high-dlq-count", testHighDLQCount)
	t.Run("all of them where little is wrong", testRunbooksOfNothing)
	t.Run("staleness-prevention", testStalenessPrevention)
}

func testHighDLQCount(t *testing.T) {
	t.Parallel()
	s := newSituation(t)
	var charges []tasker.ID
	for range 4 {
		charges = append(charges, s.create("charge_card", "error"))
	}
	refund := s.create("refund_card", "error")
	swept := []tasker.ID{s.create("ship_parcel", "steps_in_process"), s.create("ship_parcel", "steps_in_process")}
	s.stand(31*time.Minute, swept...)
	s.exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 100)`)
	stale := s.create("ship_parcel", "steps_in_process")
	s.stand(32*time.Minute, stale)

	said := s.run("high-dlq-count.md", map[string]func(){
		"7. Repair one": func() {
			must(t, os.WriteFile(s.databaseUp, nil, 0o600))
			s.ship()
			for _, task := range append(swept, stale) {
				awaitStatus(t, s.client, task, "complete")
			}
		},
	}, `RESULT={"validation_status": "passed"}`)
	said.want("2. Find the dominant reason", "7 open investigations, most of them max_retries_exceeded")
	said.want("3. Show the most urgent", `"task_name": "charge_card"`, `"cause": "a step failed in all of its attempts"`)
	said.want("4. List stale tasks", stale.String())
	said.wantNot("4. List stale tasks", swept[0].String())
	said.want("5. Find the common cause", "5\torder_processing\n2\tshipping",
		"4\torder_processing/charge_card\ta step failed in all of its attempts", "2\tshipping/ship_parcel", `"health": "active"`)
	said.want("6. Take action", "database connection timeout", "Fix their cause, then reset the step")
	said.want("7. Repair one", "Step reset successfully!", "Step completed manually with results!", "updated successfully")
	said.want("8. Repair the others with the same cause", "Step reset successfully!")
	said.wantNot("8. Repair the others with the same cause", refund.String(), "left alone")
	said.want("10. Verify", "open investigations: 7 before, 1 now", refund.String())

	byHand := 0
	for _, task := range charges {
		awaitStatus(t, s.client, task, "complete")
		s.wantClosed(task, "the database answers again; reset the step", "done by hand")
		if strings.Contains(string(stepNamed(t, s.client, task, "charge").Results), "passed") {
			byHand++
		}
	}
	if byHand != 1 {
		t.Errorf("%d tasks have the result given by hand, want 1", byHand)
	}
	for _, task := range swept {
		s.wantClosed(task, "continued automatically")
	}
	awaitStatus(t, s.client, refund, "error")
}

// Where nothing has failed and every sink is well the runbooks say so, change nothing, and send nothing.
func testRunbooksOfNothing(t *testing.T) {
	t.Parallel()
	s := newSituation(t)
	said := s.run("high-dlq-count.md", nil, `RESULT={"validation_status": "passed"}`)
	said.want("2. Find the dominant reason", "0 open investigations, most of them none")
	said.want("6. Take action", "nothing is open")
	said.want("10. Verify", "open investigations: 0 before, 0 now")
	said = s.run("steps-without-workers.md", nil)
	said.want("1. Count the waiting steps", `"status": "off"`)
	said.wantNot("2. Find queues without workers", "NO WORKER for")
	said.want("7. Verify", "steps that wait without a worker: 0")

	tasks := []tasker.ID{s.create("ship_parcel", "steps_in_process"), s.create("approve_order", "waiting_for_dependencies")}
	s.stand(2*time.Hour, tasks...)
	s.exec(`SELECT tasker.detect_and_transition_stale_tasks(false, 100)`)
	said = s.run("high-dlq-count.md", nil, `RESULT={"validation_status": "passed"}`, "WAIT=1s")
	said.want("2. Find the dominant reason", "2 open investigations, most of them staleness_timeout")
	said.want("10. Verify", "open investigations: 2 before, 2 now")
	for _, task := range tasks {
		awaitStatus(t, s.client, task, "error")
	}
	await(t, "the events of both", func() bool {
		return s.number(`SELECT count(*) FROM tasker.emissions WHERE state = 'published'`) == s.number(`SELECT count(*) FROM tasker.outbox`)
	})
	said = s.run("emission.md", nil)
	said.want("1. Check the sinks", `"status": "up"`, `tasker_dlq_emission_sink_up{sink="log"} 1`)
	said.want("2. Identify the problem", "the database is healthy", "no work is deferred")
	said.wantNot("2. Identify the problem", " IS ", "HAS REFUSED")
	said.want("Measure the retry envelope", "seconds between the failures of one event: ")
	said.wantNot("Deliver them again", "will be sent again")
	said.wantNot("The database is down as well", "ESCALATE", "NO SERVER")
	said.want("Verify", "sinks that have not got everything: 0", "of the newest events are published")
}

func testStalenessPrevention(t *testing.T) {
	t.Parallel()
	s := newSituation(t)
	approve := s.create("approve_order", "waiting_for_dependencies")
	check := s.create("check_stock", "waiting_for_retry")
	ship := s.create("ship_parcel", "steps_in_process")
	stale := s.create("ship_parcel", "steps_in_process")
	fresh := s.create("ship_parcel", "steps_in_process")
	s.stand(57*time.Minute, approve)
	s.stand(25*time.Minute, check, ship)
	s.stand(31*time.Minute, stale)

	said := s.run("staleness-prevention.md", map[string]func(){
		"5. Intervene": func() { must(t, os.WriteFile(s.databaseUp, nil, 0o600)) },
		"7. Verify": func() {
			s.ship()
			for _, task := range []tasker.ID{ship, stale, fresh, approve, check} {
				awaitStatus(t, s.client, task, "complete")
			}
		},
	}, "WARNING_BASELINE=2")
	said.want("1. Count the warnings", "tasks in warning: 3\n")
	said.want("2. Compare with the baseline", "ATTENTION: 3 tasks stand at 80 % of their threshold or beyond; usual are 2")
	said.want("3. List the tasks", approve.String(), check.String(), ship.String(),
		`"threshold_percentage": 9`, `"threshold_percentage": 8`, "1\torder_processing/check_stock\twaiting_for_retry")
	said.wantNot("3. List the tasks", stale.String(), fresh.String())
	said.want("4. Check the most urgent task", `"type": "external"`, `"dependencies_satisfied": true`)
	said.want("5. Intervene", "no worker for namespace shipping\n", "Step completed manually with results!", "Step reset successfully!")
	said.wantNot("5. Intervene", "no worker for namespace order_processing", "left alone")
	said.want("6. Adjust the thresholds", `"version": "1.1.0"`, `"max_waiting_for_dependencies_minutes": 90`)
	said.want("7. Verify", "{}")

	if got := string(stepNamed(t, s.client, approve, "approve").Results); !strings.Contains(got, "approved") {
		t.Errorf("the result of the external step is %s", got)
	}
	entries := ctl(t, s.url, "dlq", "list", "-o", "json")
	if strings.TrimSpace(entries) != "[]" {
		t.Errorf("there are investigations: %s", entries)
	}
	s.wantThreshold(s.create("approve_order", "waiting_for_dependencies"), 90*time.Minute)
}

// What looks at the alert of a slow sweep, too, does what it says.
func TestRunbookQueries(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	queries := blocks(t, "staleness-prevention.md", "sql")
	if len(queries) == 0 {
		t.Error("the runbook has no queries")
	}
	for _, b := range queries {
		if _, err := pool.Exec(t.Context(), b.text); err != nil {
			t.Errorf("%s: %v\n%s", b.section, err, b.text)
		}
	}
}

// A situation is a server whose tasks need help. Nothing sweeps but the test.
type situation struct {
	t          *testing.T
	url        string
	client     *client.Client
	pool       *pgxpool.Pool
	databaseUp string // exists when the handlers can do their work
}

func newSituation(t *testing.T) *situation {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	s := &situation{t: t, pool: database.Pool(t), databaseUp: filepath.Join(t.TempDir(), "up")}
	s.serve(database.URL, "127.0.0.1:0")
	startWorker(t, s.url, s.databaseUp)
	return s
}

// serve starts the server of the situation.
func (s *situation) serve(database, listen string, env ...string) *process {
	s.t.Helper()
	templates := s.t.TempDir()
	for name, text := range runbookTemplates {
		must(s.t, os.WriteFile(filepath.Join(templates, name+".yaml"), []byte(text), 0o600))
	}
	server := start(s.t, append(env, "TASKER_STALENESS_DETECTION_ENABLED=false"), program("tasker"), "serve", "--database-url", database, "--listen", listen, "--templates", templates)
	s.url = server.url()
	s.client = newClient(s.t, s.url)
	return server
}

// create makes a task and waits until it is in a state.
func (s *situation) create(template string, status tasker.TaskState) tasker.ID {
	s.t.Helper()
	namespace := "order_processing"
	if template == "ship_parcel" {
		namespace = "shipping"
	}
	task := readID(s.t, strings.TrimSpace(ctl(s.t, s.url, "task", "submit", "--namespace", namespace, "--name", template, "--quiet")))
	awaitStatus(s.t, s.client, task, status)
	return task
}

func (s *situation) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	must(s.t, err)
}

// stand makes it so that tasks have stood where they are for a while.
func (s *situation) stand(d time.Duration, list ...tasker.ID) {
	s.t.Helper()
	for _, task := range list {
		s.exec(`UPDATE tasker.tasks SET state_since = state_since - $2::interval, warn_at = warn_at - $2::interval,
			stale_at = stale_at - $2::interval, ends_at = ends_at - $2::interval, created_at = created_at - $2::interval WHERE task_uuid = $1`, task, d)
	}
}

// ship starts a worker for what nobody worked on, until the test ends.
func (s *situation) ship() {
	s.t.Helper()
	w := worker.New(s.client.Backend(), worker.Options{Name: "shipping", Namespaces: []string{"shipping"}})
	worker.Handle(w, "echo", func(context.Context, *worker.Step[map[string]any]) (string, error) { return "shipped", nil })
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Errorf("the worker for shipping: %v", err)
		}
	})
}

// wantClosed checks the newest investigation of a task.
func (s *situation) wantClosed(task tasker.ID, notes ...string) {
	s.t.Helper()
	e, err := s.client.EntryOfTask(s.t.Context(), task)
	must(s.t, err)
	if e.ResolutionStatus != "manually_resolved" || *e.ResolvedBy != "operator@example.com" {
		s.t.Errorf("the investigation of task %s is %s", task, e.ResolutionStatus)
		return
	}
	if !slices.Contains(notes, *e.ResolutionNotes) {
		s.t.Errorf("the investigation of task %s was closed with %q", task, *e.ResolutionNotes)
	}
}

func (s *situation) wantThreshold(task tasker.ID, want time.Duration) {
	s.t.Helper()
	var got time.Duration
	must(s.t, s.pool.QueryRow(s.t.Context(), `SELECT stale_at - state_since FROM tasker.tasks WHERE task_uuid = $1`, task).Scan(&got))
	if got != want {
		s.t.Errorf("the threshold of a new task is %s, want %s", got, want)
	}
}

// A block is a fenced piece of a runbook.
type block struct {
	section string // the heading that it stands under
	text    string
}

// blocks returns the blocks of one language, in order.
func blocks(t *testing.T, runbook, language string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/how-to/runbooks", runbook))
	must(t, err)
	var list []block
	var section, fence string // fence is what the open block began with
	for line := range strings.Lines(string(text)) {
		mark := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(mark, "```"):
			if fence = mark; fence == "```"+language {
				list = append(list, block{section: section})
			}
		case mark == "```":
			fence = ""
		case fence == "```"+language:
			list[len(list)-1].text += line
		case fence == "" && strings.HasPrefix(line, "#"):
			section = strings.Trim(line, "# \n")
		}
	}
	if fence != "" {
		t.Fatalf("%s: the last block has no end", runbook)
	}
	return list
}

// answers are what the blocks of each section have printed.
type answers struct {
	t         *testing.T
	bySection map[string]string
}

func (a answers) want(section string, words ...string) {
	a.t.Helper()
	for _, w := range words {
		if !strings.Contains(a.bySection[section], w) {
			a.t.Errorf("%q does not say %q but\n%s", section, w, a.bySection[section])
		}
	}
}

func (a answers) wantNot(section string, words ...string) {
	a.t.Helper()
	for _, w := range words {
		if strings.Contains(a.bySection[section], w) {
			a.t.Errorf("%q says %q:\n%s", section, w, a.bySection[section])
		}
	}
}

// run runs every block of a runbook in one shell. A function in before is called
// before the first block of the section that it is named for.
func (s *situation) run(runbook string, before map[string]func(), env ...string) answers {
	t := s.t
	t.Helper()
	for _, name := range []string{"bash", "curl", "jq"} {
		testtool.Find(t, name, "install the package "+name)
	}
	said := answers{t, map[string]string{}}
	sh := startShell(t, append(env, "TASKER_URL="+s.url, "TASKER_ACTOR=operator@example.com"))
	for i, b := range blocks(t, runbook, "sh") {
		if do := before[b.section]; do != nil {
			do()
			delete(before, b.section)
		}
		out, err := sh.do(i, b.text)
		if err != nil {
			t.Fatalf("%s, %q: %v\n%s\nsaid\n%s", runbook, b.section, err, b.text, out)
		}
		said.bySection[b.section] += out
	}
	for section := range before {
		t.Errorf("%s has no section %q with a block", runbook, section)
	}
	return said
}

// A shell is one bash that runs block after block.
type shell struct {
	dir string
	in  io.Writer
	out *bufio.Reader
	end *time.Timer // of a block that takes too long, and of its shell
}

// blockPatience bounds one block of a runbook, which may wait as well: on a busy machine
// each call of rabbitmqctl takes a minute.
const blockPatience = 10 * time.Minute

func startShell(t *testing.T, env []string) *shell {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "bash", "--norc", "--noprofile")
	cmd.Dir = t.TempDir()
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH")
	for _, v := range env {
		if first, ok := strings.CutPrefix(v, "PATH="); ok {
			path = first + string(os.PathListSeparator) + path
		}
	}
	cmd.Env = append(os.Environ(), append(env, "PATH="+path, "NO_PROXY=127.0.0.1", "TMPDIR="+cmd.Dir)...)
	cmd.WaitDelay = 10 * time.Second
	in, err := cmd.StdinPipe()
	must(t, err)
	out, writer, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	must(t, cmd.Start())
	must(t, writer.Close())
	t.Cleanup(func() {
		// Its end is the end of its input, or a failure that do has told.
		_ = in.Close()
		_ = cmd.Wait()
		cancel()
		_ = out.Close()
	})
	_, err = io.WriteString(in, "set -euo pipefail\n")
	must(t, err)
	sh := &shell{dir: cmd.Dir, in: in, out: bufio.NewReader(out), end: time.AfterFunc(blockPatience, cancel)}
	t.Cleanup(func() { sh.end.Stop() })
	return sh
}

// do runs one block and returns what it prints. The error says that the shell
// ended in it: a command failed. The block comes from a file, so that no command
// of it reads the next block as its input.
func (sh *shell) do(i int, text string) (string, error) {
	sh.end.Reset(blockPatience)
	file := filepath.Join(sh.dir, fmt.Sprintf("block%d.sh", i))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	end := fmt.Sprintf("--- end of block %d ---\n", i)
	if _, err := fmt.Fprintf(sh.in, ". '%s' </dev/null\nprintf '%%s\\n' '%s'\n", file, strings.TrimSpace(end)); err != nil {
		return "", err
	}
	var said strings.Builder
	for {
		line, err := sh.out.ReadString('\n')
		if before, ok := strings.CutSuffix(line, end); ok {
			said.WriteString(before)
			return said.String(), nil
		}
		said.WriteString(line)
		if err != nil {
			return said.String(), fmt.Errorf("the shell ended: %w", err)
		}
	}
}
