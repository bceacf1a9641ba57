package schema_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/schema"
)

// A dump holds its locks so long while an upgrade begins. Servers may wait as long as
// the upgrade waits for one lock, which is two seconds, and some more on a loaded
// machine, but not until the dump ends.
const (
	dumpTime  = 12 * time.Second
	worstWait = 10 * time.Second
	longTime  = time.Second // that a transaction stays open after the dump
)

// previousStatements are what servers of the release at migration 0009 write.
func previousStatements(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/statements_0009.sql")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for i, text := range strings.Split(string(b), "-- section ") {
		if name, sql, _ := strings.Cut(text, "\n"); i > 0 {
			all[name] = sql
		}
	}
	return all
}

// A large database is upgraded while servers of the previous release write, a dump
// begins, and a transaction stays open: nobody waits for long, nothing that they write
// fails, and no large table is rewritten. From the release at 0009, and from the last one.
func TestUpgradeBesideServersAndADump(t *testing.T) {
	t.Parallel()
	program := schema.Embedded()
	for _, from := range []int{9, 30} {
		t.Run(fmt.Sprintf("from %04d", from), func(t *testing.T) {
			t.Parallel()
			p := empty(t)
			p.up(program.Through(from))
			statements := previousStatements(t)
			p.exec(statements["worker"])
			p.exec(statements["template"])
			p.exec(`DO $do$ BEGIN FOR i IN 1..3000 LOOP EXECUTE $sql$` + statements["create"] + `$sql$; END LOOP; END $do$`)
			before := p.largeTables()
			end := p.busy(statements)
			p.upgradeBeside(program)
			end()
			if diff := cmp.Diff(before, p.largeTables()); diff != "" {
				t.Errorf("large tables were rewritten: %s", diff)
			}
			p.everyStatement(statements)
		})
	}
}

func (p *place) largeTables() string {
	p.Helper()
	return p.text(`SELECT string_agg(format('%s %s', relname, relfilenode), E'\n' ORDER BY relfilenode) FROM (
			SELECT relfilenode, CASE relname WHEN 'task_transitions' THEN 'task_history' WHEN 'workflow_step_transitions' THEN 'step_history' ELSE relname END AS relname
			FROM pg_class
			WHERE relnamespace = 'tasker'::regnamespace AND relkind = 'r'
		) c
		WHERE relname IN ('tasks', 'workflow_steps', 'tasks_dlq', 'tasks_dlq_history', 'task_history', 'step_history', 'outbox')`)
}

// busy has a server write until it is ended, and then says how long it waited at worst.
func (p *place) busy(statements map[string]string) (end func()) {
	var servers sync.WaitGroup
	ended := make(chan struct{})
	for _, turn := range [][]string{{"create", "reject", "audit"}, {"claim", "report", "investigate"}} {
		conn := p.connect()
		servers.Go(func() {
			var worst time.Duration
			tick, count := time.NewTicker(10*time.Millisecond), 0
			defer tick.Stop()
			for ; ; count++ {
				select {
				case <-ended:
					p.Logf("%s: %d statements, the slowest took %s", turn, count, worst.Round(time.Millisecond))
					if worst > worstWait {
						p.Errorf("%s: a statement took %s", turn, worst)
					}
					return
				case <-tick.C:
				}
				began := time.Now()
				name := turn[count%len(turn)]
				if _, err := conn.Exec(p.Context(), statements[name], pgx.QueryExecModeSimpleProtocol); err != nil {
					p.Errorf("%s: %v", name, err)
					<-ended
					return
				}
				worst = max(worst, time.Since(began))
			}
		})
	}
	return func() {
		close(ended)
		servers.Wait()
	}
}

// upgradeBeside upgrades while a dump has locked all tables, and a transaction is open.
func (p *place) upgradeBeside(program schema.Program) {
	p.Helper()
	long := p.connect()
	if _, err := long.Exec(p.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()`, pgx.QueryExecModeSimpleProtocol); err != nil {
		p.Fatal(err)
	}
	endOfDump := p.holding(p.text(`SELECT string_agg(format('tasker.%I', tablename), ', ') FROM pg_tables WHERE schemaname = 'tasker'`))
	released := make(chan struct{})
	time.AfterFunc(dumpTime, func() {
		endOfDump()
		time.AfterFunc(longTime, func() { // an index that is made meanwhile waits for it
			if _, err := long.Exec(p.Context(), `ROLLBACK`); err != nil {
				p.Error(err)
			}
			close(released)
		})
	})
	began, tries := time.Now(), 0
	_, err := program.UpPatiently(p.Context(), p.conn, func(string) { tries++ })
	p.Logf("upgraded in %s, after %d attempts that were taken back", time.Since(began).Round(time.Millisecond), tries)
	<-released
	if err != nil {
		p.Fatal(err)
	}
}

// everyStatement runs what servers of the previous release write, once more.
func (p *place) everyStatement(statements map[string]string) {
	p.Helper()
	for _, name := range []string{"worker", "template", "create", "claim", "report", "reject", "investigate", "emit", "audit"} {
		if statements[name] == "" {
			p.Fatalf("there is no statement %s", name)
		}
		if _, err := p.conn.Exec(p.Context(), statements[name], pgx.QueryExecModeSimpleProtocol); err != nil {
			p.Errorf("%s: %v", name, err)
		}
	}
	if got := p.text(`SELECT count(*)::text FROM tasker.workflow_steps WHERE state = 'complete'`); got == "0" {
		p.Error("no step was completed")
	}
	if got := p.text(`SELECT count(*)::text FROM tasker.tasks_dlq`); got == "0" {
		p.Error("no investigation was opened")
	}
}

// Events of before there was the column have their namespace after the upgrade, also those
// that a server of the previous version writes after it.
func TestEventsOfBeforeHaveTheirNamespace(t *testing.T) {
	t.Parallel()
	program := schema.Embedded()
	p := empty(t)
	p.up(program.Through(30))
	p.exec(`
		INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1', '{}', '', ''), ('c', 'b', '1', '{}', '', '');
		INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
		SELECT tasker.uuid_generate_v7(), template_uuid, namespace, 'b', '1', 'complete', now(), '{}', '', now(), now() FROM tasker.task_templates;
		INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, namespace, task_name, case_key)
		SELECT task_uuid, 'error', 'manual_dlq', 'x', 'operator', now(), '{}', namespace, name, template_uuid FROM tasker.tasks;
		INSERT INTO tasker.emission_sinks (sink) VALUES ('log'), ('webhook');`)
	const events = `
		INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data) SELECT 'dlq.entry.updated', task_uuid, dlq_entry_uuid, '{}' FROM tasker.tasks_dlq, generate_series(1, %[1]d);
		INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid) SELECT s.sink, o.position, o.event_uuid, o.task_uuid FROM tasker.outbox o, tasker.emission_sinks s
		ON CONFLICT DO NOTHING;`
	p.exec(fmt.Sprintf(events, 2100)) // more than a batch
	p.up(program)
	p.exec(fmt.Sprintf(events, 1))
	for table, want := range map[string]string{"outbox": "4202 2", "emissions": "8404 2"} {
		got := p.text(`SELECT count(*) || ' ' || count(DISTINCT e.namespace) FROM tasker.` + table + ` e JOIN tasker.tasks t ON t.task_uuid = e.task_uuid AND t.namespace = e.namespace`)
		if got != want {
			t.Errorf("%s has %s rows and namespaces that are those of their tasks, want %s", table, got, want)
		}
	}
}
