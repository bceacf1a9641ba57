package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

var (
	limitClaims   = flag.Int("limit-claims", 400, "how many steps with a limit are claimed")
	limitServers  = flag.Int("limit-servers", 2, "on how many servers, each with a worker")
	workersKilled = flag.Int("worker-kills", 3, "how often one of the workers is killed meanwhile")
	serversKilled = flag.Int("server-kills", 1, "how often one of the servers is killed meanwhile")
)

const (
	limitMost    = 10 // steps in progress
	limitLease   = 3 * time.Second
	stepsOfALoad = 20 // steps of each task
)

// observing has what is in progress counted by each claim that takes places, and by each that finds none: at the end
// of its statement, when it still has the key, with what was committed by then and its own steps. Whatever is
// in progress is only more after a claim, so the greatest count is the most that ever was, if claims come one after
// the other; if they do not, the claims after them count too many. The index is for the test alone.
const observing = `
CREATE SCHEMA observed;
CREATE INDEX observed_in_progress ON tasker.workflow_steps (handler) WHERE state = 'in_progress';
CREATE UNLOGGED TABLE observed.claims (in_progress int NOT NULL);
CREATE FUNCTION observed.count_in_progress() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO observed.claims SELECT count(*) FROM tasker.workflow_steps WHERE handler = 'echo' AND state = 'in_progress';
    RETURN NULL;
END
$$;
CREATE TRIGGER count_in_progress AFTER INSERT ON tasker.limit_slots FOR EACH STATEMENT EXECUTE FUNCTION observed.count_in_progress()`

// A limited is servers, each with a worker, which execute steps that have a limit together.
type limited struct {
	*testing.T
	pool     *pgxpool.Pool
	database string
	env      []string
	servers  []*process
	workers  []*process
	urls     []string // of the servers, the same over all restarts

	made int // steps
}

// Servers and workers are killed and started again, again and again, while they execute steps that have a
// limit. Never are more in progress, and at the end all places can be taken.
func TestLimitHoldsWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	begun := time.Now()
	l.load()
	took := time.Since(begun)
	for _, w := range l.workers {
		w.stop()
	}
	l.wantNeverMore()
	l.wantAllPlaces()
	claims := number(t, l.pool, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event = 'claim'`)
	lost := number(t, l.pool, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE event = 'lose'`)
	if claims < *limitClaims || lost == 0 && *workersKilled > 0 {
		t.Errorf("%d claims, and %d leases ended without a report", claims, lost)
	}
	t.Logf("%d servers, %d claims in %s; %d workers and %d servers killed, %d leases ended without a report", *limitServers, claims, took.Round(time.Second), *workersKilled, *serversKilled, lost)
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	l := &limited{
		T: t, pool: database.Pool(t), database: database.URL,
		env: []string{fmt.Sprint("TASKER_WORKERS_LEASE_SECONDS=", limitLease.Seconds()), "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1", "TASKER_LOG_LEVEL=warn"},
	}
	_, err := l.pool.Exec(t.Context(), observing) // before anybody has locks that it would wait for
	must(t, err)
	for range *limitServers {
		l.servers = append(l.servers, start(t, l.env, program("tasker"), "serve", "--database-url", database.URL, "--listen", freeAddress(t), "--templates", "testdata/templates"))
	}
	for i, s := range l.servers {
		l.urls = append(l.urls, s.url())
		l.workers = append(l.workers, l.startWorker(i))
	}
	c := newClient(t, l.urls[0])
	var template strings.Builder
	template.WriteString("namespace: order_processing\nname: load\nversion: 1.0.0\nsteps:\n")
	for i := range stepsOfALoad {
		fmt.Fprintf(&template, "  - {name: s%d, handler: {callable: echo}, retry: {max_attempts: 50, backoff_base_ms: 20}}\n", i)
	}
	_, err = c.RegisterTemplate(t.Context(), []byte(template.String()), client.YAML)
	must(t, err)
	_, err = c.SetLimit(t.Context(), apiv1.SetLimit{Kind: "handler", Namespace: "order_processing", Name: "echo", MaxInProgress: limitMost, By: "test"})
	must(t, err)
	return l
}

// load has steps claimed until all have ended, and kills evenly meanwhile. Few wait at a time. Some are claimed until
// the last leases of what was killed have ended, too.
func (l *limited) load() {
	l.Helper()
	kills := slices.Concat(slices.Repeat([]func(){l.killWorker}, *workersKilled), slices.Repeat([]func(){l.killServer}, *serversKilled))
	rand.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	backlog := max(min(1000, *limitClaims/5), stepsOfALoad)
	killed, claimed := 0, 0
	moved, lastKill := time.Now(), time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		<-tick.C
		waiting := l.waiting()
		if n := l.made - waiting; n != claimed {
			claimed, moved = n, time.Now()
		}
		if time.Since(moved) > patience {
			l.Fatalf("%d of %d steps were claimed, and no more", claimed, l.made)
		}
		if killed < len(kills) && claimed >= (killed+1)**limitClaims/(len(kills)+1) {
			kills[killed]()
			killed, lastKill = killed+1, time.Now()
		}
		switch done := claimed >= *limitClaims && killed == len(kills) && time.Since(lastKill) > limitLease+time.Second; {
		case l.made < *limitClaims && waiting <= backlog/2:
			l.create((backlog - waiting + stepsOfALoad - 1) / stepsOfALoad)
		case !done && waiting == 0:
			l.create(1)
		case done && count(l.T, l.pool, "state <> 'complete'") == 0:
			return
		}
	}
}

// waiting is how many steps wait for a place.
func (l *limited) waiting() int {
	l.Helper()
	return number(l.T, l.pool, `SELECT (SELECT count(*) FROM tasker.ready_steps) + (SELECT count(*) FROM tasker.held_steps)`)
}

// create creates so many tasks.
func (l *limited) create(n int) {
	l.Helper()
	_, err := newClient(l.T, l.urls[rand.IntN(len(l.urls))]).CreateTasks(l.Context(),
		slices.Repeat([]apiv1.CreateTask{{Namespace: "order_processing", Name: "load"}}, n))
	must(l.T, err)
	l.made += n * stepsOfALoad
}

// killWorker kills a worker that has had steps for a moment: it is stopped before, so that it reports none of them.
// One that has none when it is stopped goes on, with steps to ask for, and is stopped again.
func (l *limited) killWorker() {
	l.Helper()
	i := rand.IntN(len(l.workers))
	w := l.workers[i]
	await(l.T, "a worker that is stopped to have a step", func() bool {
		must(l.T, w.cmd.Process.Signal(syscall.SIGSTOP))
		if l.keepsAStep(w) {
			return true
		}
		must(l.T, w.cmd.Process.Signal(syscall.SIGCONT))
		if l.waiting() == 0 {
			l.create(1)
		}
		return false
	})
	w.kill()
	l.workers[i] = l.startWorker(i)
}

// keepsAStep says whether a worker that is stopped has a step that it will not report: what it had sent before has
// long been read. It may also have been stopped before it asked for steps.
func (l *limited) keepsAStep(w *process) bool {
	l.Helper()
	keeps := false
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !keeps && time.Since(begun) < time.Second; <-tick.C {
		keeps = number(l.T, l.pool, `
			SELECT count(*) FROM tasker.workers w
			JOIN tasker.workflow_steps s ON s.worker_uuid = w.worker_uuid AND s.handler = 'echo' AND s.state = 'in_progress'
			WHERE w.name = $1 AND s.state_since < clock_timestamp() - interval '100 milliseconds'`, workerName(w.cmd.Process.Pid)) > 0
	}
	return keeps
}

// startWorker starts the worker of a server: all together would execute some more than the limit lets them.
func (l *limited) startWorker(server int) *process {
	l.Helper()
	return startWorker(l.T, l.urls[server], "", fmt.Sprint(concurrencyEnv, "=", max(2, 16 / *limitServers)))
}

func (l *limited) killServer() {
	l.Helper()
	i := rand.IntN(len(l.servers))
	l.servers[i].kill()
	l.servers[i] = start(l.T, l.env, program("tasker"), "serve", "--database-url", l.database, "--listen", strings.TrimPrefix(l.urls[i], "http://"))
	l.servers[i].url()
}

// wantNeverMore checks that as many steps were in progress as the limit lets be, and never more: at each claim, and by
// the history.
func (l *limited) wantNeverMore() {
	l.Helper()
	atClaims := number(l.T, l.pool, `SELECT max(in_progress) FROM observed.claims`)
	history := number(l.T, l.pool, `
		SELECT max(n) FROM (
			SELECT sum(x.more) OVER (ORDER BY x.at, x.more ROWS UNBOUNDED PRECEDING) AS n
			FROM tasker.workflow_step_transitions h
			CROSS JOIN LATERAL (SELECT h.created_at AS at, CASE WHEN h.to_state = 'in_progress' THEN 1 ELSE -1 END AS more) x
			WHERE 'in_progress' IN (h.from_state, h.to_state)
		) s`)
	if atClaims != limitMost || history > limitMost {
		l.Errorf("of a limit of %d, %d were in progress at a claim, %d by the history", limitMost, atClaims, history)
	}
	for _, drop := range []string{"TRIGGER count_in_progress ON tasker.limit_slots", "SCHEMA observed CASCADE", "INDEX tasker.observed_in_progress"} {
		_, err := l.pool.Exec(l.Context(), "DROP "+drop) // one lock at a time: the servers still run
		must(l.T, err)
	}
}

// wantAllPlaces checks that nobody has a place, and that all can be taken, twice.
func (l *limited) wantAllPlaces() {
	l.Helper()
	if n := number(l.T, l.pool, `
		SELECT count(*) FROM tasker.limit_slots h
		JOIN tasker.workflow_steps s ON s.task_uuid = h.task_uuid AND s.step_uuid = h.step_uuid AND s.fence = h.fence AND s.state = 'in_progress'`); n != 0 {
		l.Errorf("%d steps have a place although all have ended", n)
	}
	l.create(1)
	b := newClient(l.T, l.urls[0]).Backend()
	r, err := b.RegisterWorker(l.Context(), tasker.WorkerSpec{Name: "last", Namespaces: []string{"order_processing"}, Handlers: []string{"echo"}, MaxConcurrency: stepsOfALoad})
	must(l.T, err)
	list, err := b.Claim(l.Context(), r.WorkerUUID, stepsOfALoad, 0)
	must(l.T, err)
	for more := stepsOfALoad; len(list) > 0; {
		if len(list) != limitMost {
			l.Fatalf("%d of %d places can be taken", len(list), limitMost)
		}
		var out []tasker.Outcome
		for _, a := range list {
			out = append(out, tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage("1")})
		}
		more -= len(list)
		receipt, err := b.Report(l.Context(), r.WorkerUUID, out, more)
		must(l.T, err)
		list = receipt.Next
	}
	code, out, errs := run(l.T, nil, "doctor", "--database-url", l.database)
	if code != 0 {
		l.Errorf("the doctor says:\n%s%s", out, errs)
	}
}
