package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/pgtest"
)

// maxCommands is how many commands it takes at most from the first look at an incident until
// all of it is verified and reported.
const maxCommands = 6

// sandboxCommand is a line of what a drill says to do.
var sandboxCommand = regexp.MustCompile(`(?m)^  [1-9]\. tasker-ctl (.*?)( +#.*)?$`)

// Somebody does exactly what a drill says, and all is proved; the commands are counted.
// Nothing outside of the sandbox has changed.
func TestDrillIsRepairedByItsCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.CheckAtEnd(t)
	server := start(t, nil, program("tasker"), "serve", "--database-url", db.URL, "--listen", "127.0.0.1:0", "--templates", "testdata/templates")
	url := server.url()
	work := startWorker(t, url, "/nowhere")
	awaitStatus(t, newClient(t, url), submit(t, url), tasker.TaskError)
	work.stop()
	await(t, "the case of the others", func() bool { return len(ctlCases(t, url, "order_processing")) == 1 })
	pool := db.Pool(t)
	await(t, "the server to store of which queues it claimed", func() bool { // it does so some seconds later
		var left int
		must(t, pool.QueryRow(t.Context(), `
			SELECT count(*) FROM (
				SELECT namespace, handler FROM tasker.workflow_steps WHERE last_attempted_at IS NOT NULL EXCEPT SELECT namespace, handler FROM tasker.queues
			) x`).Scan(&left))
		return left == 0
	})
	before := outsideOf(t, pool, "drill")

	run := start(t, []string{"TASKER_URL=" + url}, program("tasker-ctl"), "drill", "run", "--tasks", "60", "--interval", "100ms", "-o", "json")
	await(t, "the drill to say what to do", func() bool { return strings.Contains(run.log.String(), "This goes on until all is proved.") })
	commands := sandboxCommand.FindAllStringSubmatch(run.log.String(), -1)
	if n := len(commands); n == 0 || n > maxCommands {
		t.Fatalf("the drill says %d commands, want 1 to %d: %s", n, maxCommands, run.log)
	}
	await(t, "the cases of the drill", func() bool { return len(ctlCases(t, url, "drill")) == 13 })
	reports := ""
	for _, command := range commands {
		args := words(command[1])
		for i, a := range args {
			if a == "CASE" {
				args[i] = ctlCases(t, url, "drill")[0]
			}
		}
		if args[0] == "operation" {
			args = append(args, "--yes") // there is no terminal to say it at
		}
		if args[0] == "drill" {
			await(t, "the drill to end", func() bool {
				select {
				case <-run.done:
					return true
				default:
					return false
				}
			})
		}
		said := ctl(t, url, args...)
		t.Logf("tasker-ctl %s: %d lines", strings.Join(args, " "), strings.Count(said, "\n"))
		if args[0] == "report" {
			reports = said
		}
	}
	said := run.log.String()
	if run.err != nil || !strings.Contains(said, "All has come to its end: 70 of 70 proved") || !strings.Contains(said, "all of them in drill only") || !strings.Contains(said, "to notice") {
		t.Errorf("the drill ended with %v: %s", run.err, said)
	}
	if !strings.Contains(reports, "70 investigations of 13 cases: 70 proved") {
		t.Errorf("the report: %s", reports)
	}
	if after := outsideOf(t, pool, "drill"); after != before {
		t.Errorf("outside of the sandbox there was\n%s\nand is\n%s", before, after)
	}
}

// A drill that is interrupted leaves what it planted; another one is refused, and clean ends it.
func TestInterruptedDrillIsCleaned(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.CheckAtEnd(t)
	server := start(t, nil, program("tasker"), "serve", "--database-url", db.URL, "--listen", "127.0.0.1:0")
	url := server.url()
	env := []string{"TASKER_URL=" + url}
	first := start(t, env, program("tasker-ctl"), "drill", "run", "--tasks", "20", "--interval", "100ms", "--namespace", "drill-a")
	await(t, "the drill to say what to do", func() bool { return strings.Contains(first.log.String(), "It is your turn") })
	must(t, first.cmd.Process.Signal(os.Interrupt))
	<-first.done
	if code := first.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("it exits with %d, want 130", code)
	}
	if said := first.log.String(); !strings.Contains(said, "Interrupted: what was planted is still there. To end it: tasker-ctl drill clean --namespace drill-a") {
		t.Errorf("it said %s", said)
	}
	rigs := filepath.Join(t.TempDir(), "rigs.yaml")
	must(t, os.WriteFile(rigs, []byte("namespace: drill-rigs\nname: dig\nversion: 1.0.0\nsteps: [{name: dig, handler: {callable: dig}}]\n"), 0o600))
	ctl(t, url, "template", "register", rigs)
	ctl(t, url, "task", "submit", "--namespace", "drill-rigs", "--name", "dig")
	for args, want := range map[string]string{
		"drill run --tasks 20 --namespace drill-rigs": "has template dig, which does not belong to a drill",
		"drill clean --namespace drill-rigs":          "has template dig, which does not belong to a drill",
		"drill run --tasks 20 --namespace drill-a":    "30 open investigations from an earlier drill",
		"drill run --namespace orders":                "must be drill or begin with drill-",
		"drill clean --namespace orders":              "must be drill or",
		"drill run --tasks 10001":                     "10000",
	} {
		p := start(t, env, program("tasker-ctl"), strings.Fields(args)...)
		<-p.done
		if p.err == nil || !strings.Contains(p.log.String(), want) {
			t.Errorf("%s: %v, %s", args, p.err, p.log)
		}
	}
	ctl(t, url, "drill", "clean", "--namespace", "drill-a")
	ctl(t, url, "drill", "clean", "--namespace", "drill-a") // nothing is left
	var open, unfinished int
	must(t, db.Pool(t).QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'), (SELECT count(*) FROM tasker.tasks WHERE state NOT IN ('cancelled', 'complete') AND namespace <> 'drill-rigs')`).Scan(&open, &unfinished))
	if open != 0 || unfinished != 0 {
		t.Errorf("%d investigations are open, %d tasks have not ended", open, unfinished)
	}
	var others, templates int
	must(t, db.Pool(t).QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM tasker.tasks WHERE namespace = 'drill-rigs' AND state = 'steps_in_process'), (SELECT count(*) FROM tasker.task_templates WHERE namespace = 'drill-rigs')`).Scan(&others, &templates))
	if others != 1 || templates != 1 {
		t.Errorf("of the namespace that is of no drill %d tasks go on, and it has %d templates", others, templates)
	}
}

// outsideOf is what there is of all namespaces but a sandbox: how many rows, and their digest.
func outsideOf(t *testing.T, pool *pgxpool.Pool, sandbox string) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables b USING (table_schema, table_name)
		WHERE c.table_schema = 'tasker' AND c.column_name = 'namespace' AND b.table_type = 'BASE TABLE' ORDER BY 1`)
	must(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	if len(tables) < 8 {
		t.Fatalf("tables with a namespace: %q", tables)
	}
	where := map[string]string{}
	for _, table := range tables {
		where[table] = `x.namespace <> $1`
	}
	for _, table := range []string{"step_history", "task_history"} {
		where[table] = `x.task_uuid IN (SELECT task_uuid FROM tasker.tasks WHERE namespace <> $1)`
	}
	where["tasks_dlq_history"] = `x.dlq_entry_uuid IN (SELECT dlq_entry_uuid FROM tasker.tasks_dlq WHERE namespace <> $1)`
	where["case_history"] = `x.case_id IN (SELECT case_id FROM tasker.cases WHERE namespace <> $1)`
	digests := map[string]string{}
	for table, of := range where {
		var n int
		var digest string
		must(t, pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*), coalesce(md5(string_agg(x::text, '|' ORDER BY x::text)), '') FROM tasker.%s x WHERE %s`, table, of), sandbox).Scan(&n, &digest))
		digests[table] = fmt.Sprint(n, " ", digest)
	}
	doc, err := json.MarshalIndent(digests, "", " ")
	must(t, err)
	return string(doc)
}

// ctlCases are the ids of the open cases of a namespace, as the command line lists them.
func ctlCases(t *testing.T, url, namespace string) (ids []string) {
	t.Helper()
	var l struct {
		Cases []struct {
			CaseID string `json:"case_id"`
		}
	}
	must(t, json.Unmarshal([]byte(ctl(t, url, "case", "list", "--namespace", namespace, "-o", "json")), &l))
	for _, c := range l.Cases {
		ids = append(ids, c.CaseID)
	}
	return ids
}

// words are those of a command line; a word may be in double quotes.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}
