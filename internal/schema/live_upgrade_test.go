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
	dumpTime  = 7 * time.Second
	worstWait = 6 * time.Second
	longTime  = time.Second // that a transaction stays open after the dump
)

// serverStatements are what servers write.
func serverStatements(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/statements.sql")
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

// nextVersion is what another version might add: columns, an index, a constraint, and a view.
var nextVersion = files{
	"migrations/%04d_task_region.sql":  "ALTER TABLE tasker.tasks ADD COLUMN region text;",
	"migrations/%04d_step_region.sql":  "ALTER TABLE tasker.workflow_steps ADD COLUMN region text, ADD CONSTRAINT step_region_is_short CHECK (length(region) < 100) NOT VALID;",
	"migrations/%04d_by_region.sql":    "-- tasker:no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_by_region ON tasker.tasks (region, task_uuid) WHERE region IS NOT NULL;",
	"migrations/%04d_short_region.sql": "-- tasker:no-transaction\nALTER TABLE tasker.workflow_steps VALIDATE CONSTRAINT step_region_is_short;",
	"views/v_regions.sql":              "CREATE OR REPLACE VIEW tasker.v_regions AS SELECT t.region, count(*) AS tasks FROM tasker.tasks t GROUP BY t.region;",
}

// next is this program with what another version might add.
func next(t *testing.T) schema.Program {
	t.Helper()
	all := files(schema.Embedded().Files())
	number := len(schema.Embedded().Migrations())
	for _, name := range []string{"task_region", "step_region", "by_region", "short_region"} {
		number++
		all[fmt.Sprintf("migrations/%04d_%s.sql", number, name)] = nextVersion["migrations/%04d_"+name+".sql"]
	}
	all["views/v_regions.sql"] = nextVersion["views/v_regions.sql"]
	return all.program(t)
}

// A large database is upgraded while servers write, a dump begins, and a transaction stays
// open: nobody waits for long, nothing that servers write fails, and no large table is rewritten.
func TestUpgradeBesideServersAndADump(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	statements := serverStatements(t)
	p.exec(statements["worker"])
	p.exec(statements["template"])
	p.exec(`DO $do$ BEGIN FOR i IN 1..500 LOOP EXECUTE $sql$` + statements["create"] + `$sql$; END LOOP; END $do$`)
	before := p.largeTables()
	end := p.busy(statements)
	p.upgradeBeside(next(t))
	end()
	if diff := cmp.Diff(before, p.largeTables()); diff != "" {
		t.Errorf("large tables were rewritten: %s", diff)
	}
	p.everyStatement(statements)
	p.text(`SELECT string_agg(concat(region, tasks), ' ') FROM tasker.v_regions`)
}

func (p *findPosition) largeTables() string {
	p.Helper()
	return p.text(`SELECT string_agg(format('%s %s', relname, relfilenode), E'\n' ORDER BY relfilenode) FROM (
			SELECT relfilenode, relname
			FROM pg_class
			WHERE relnamespace = 'tasker'::regnamespace AND relkind = 'r'
		) c
		WHERE relname IN ('tasks', 'workflow_steps', 'tasks_dlq', 'tasks_dlq_history', 'task_history', 'step_history', 'outbox')`)
}

// busy has a server write until it is ended, and then says how long it waited at worst.
func (p *findPosition) busy(statements map[string]string) (end func()) {
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
func (p *findPosition) upgradeBeside(program schema.Program) {
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
	p.Must(err)
}

// everyStatement runs what servers write once more.
func (p *findPosition) everyStatement(statements map[string]string) {
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
