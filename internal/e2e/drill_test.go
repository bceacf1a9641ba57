package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
)

// down is how long the drill has both buses down; `make drill` takes five minutes.
var down = flag.Duration("drill", 8*time.Second, "how long the drill of the emission has its buses down: 5s to 20m")

const (
	drillRate    = 10 // investigations that are opened in a second
	drillTriage  = 30 // investigations that the operator ends in a second, at most
	queuePage    = 1000
	triageAfter  = time.Second // so that what becomes of an investigation is spread over time
	recoverLimit = 5 * time.Minute
	arriveLimit  = time.Minute // of an event that a sink has confirmed
)

// A plan is a drill's times. All but the outage grow with it.
type plan struct {
	long    bool
	healthy time.Duration // before the outage
	outage  time.Duration
	after   time.Duration // that is measured when all is well again
	handler string        // of the load
	waiting int           // steps of it that wait for a worker, at least
}

func planOf(t *testing.T, outage time.Duration) plan {
	t.Helper()
	if outage < 5*time.Second || outage > 20*time.Minute {
		t.Fatalf("-drill must be from 5s to 20m, not %s", outage)
	}
	if outage < time.Minute {
		return plan{healthy: 4 * time.Second, outage: outage, after: 2 * time.Second, handler: "unhurried", waiting: 40}
	}
	return plan{long: true, healthy: time.Minute, outage: outage, after: 30 * time.Second, handler: "slow", waiting: 200}
}

// A drill is an installation whose buses go down, and what is done with it meanwhile.
type drill struct {
	*testing.T
	plan

	pool     *pgxpool.Pool
	database string
	listen   string // the server's address, the same over all restarts
	env      []string
	server   *process
	client   *client.Client
	broker   *mqtest.Broker
	door     *mqtest.ProxyServer // before the receiver
	hook     *hookConsumer
	bus      *busConsumer

	feeding, working context.Context // ended when no more is created, and when nobody works
	stopFeeding      context.CancelFunc
	stopWorking      context.CancelFunc
	all              sync.WaitGroup
	triage           triage
	times            drillTimes
}

// drillTimes are the moments that figures are about.
type drillTimes struct {
	begun    time.Time // of the measurement before the outage
	cut      time.Time // both buses are down
	restored time.Time // the outage has ended
	drained  time.Time
	ended    time.Time
}

// Both buses go down while investigations are opened all the time; the server is
// killed twice meanwhile. Nothing is lost, each consumer gets all, and in order.
func TestAnOutageOfBothBusesLosesNothing(t *testing.T) {
	t.Parallel()
	d := newDrill(t, planOf(t, *down))
	d.begin()
	rest(t, d.healthy)
	await(t, "an event that comes twice, because its answer was lost", func() bool { return d.hook.count() > d.hook.distinct() })
	d.breakDown()
	d.restore()
	d.end()
	d.check()
}

func newDrill(t *testing.T, p plan) *drill {
	t.Helper()
	db := pgtest.New(t)
	db.CheckAtEnd(t) // every investigation has its history, and all of that its events, …
	d := &drill{T: t, plan: p, pool: db.Pool(t), database: db.URL, listen: freeAddress(t), triage: triage{listed: map[string]bool{}}}
	d.feeding, d.stopFeeding = context.WithCancel(t.Context())
	d.working, d.stopWorking = context.WithCancel(t.Context())
	d.broker = mqtest.Start(t)
	d.bus = newBusConsumer(t, d.broker.URL)
	d.hook = newHookConsumer(t)
	d.door = mqtest.Proxy(t, d.hook.server.URL)
	d.env = []string{
		"TASKER_EMISSION_SINKS=webhook,rabbitmq",
		"TASKER_EMISSION_WEBHOOK_URL=" + d.door.URL + "/events", "TASKER_EMISSION_WEBHOOK_ALLOW_PRIVATE=true",
		"TASKER_EMISSION_RABBITMQ_URL=" + d.broker.URL, "TASKER_EMISSION_RABBITMQ_EXCHANGE=" + eventExchange,
	}
	if !p.long {
		d.env = append(d.env, "TASKER_WORKERS_LEASE_SECONDS=3", "TASKER_WORKERS_HEARTBEAT_INTERVAL_SECONDS=1")
	}
	d.serve()
	d.client = newClient(t, d.server.url())
	for _, doc := range drillTemplates {
		_, err := d.client.RegisterTemplate(t.Context(), []byte(strings.ReplaceAll(doc, "HANDLER", p.handler)), client.YAML)
		must(t, err)
	}
	for _, space := range []string{"load", "orders"} {
		startWorker(t, d.server.url(), "", namespaceEnv+"="+space)
	}
	t.Cleanup(func() { // before the processes end
		d.stopFeeding()
		d.stopWorking()
		d.all.Wait()
	})
	return d
}

// drillTemplates are work that succeeds and a step that fails for good.
var drillTemplates = []string{`
namespace_name: load
name: chain
version: 1.0.0
steps:
  - name: a
    handler: {callable: HANDLER}
    retry: {max_attempts: 10, backoff_base_ms: 20}
  - name: b
    dependencies: [a]
    handler: {callable: HANDLER}
    retry: {max_attempts: 10, backoff_base_ms: 20}
`, `
namespace_name: orders
name: broken
version: 1.0.0
steps:
  - name: ship
    handler: {callable: broken}
`}

// serve starts the server where it was.
func (d *drill) serve() {
	d.Helper()
	d.server = start(d.T, d.env, program("tasker"), "serve", "--database-url", d.database, "--listen", d.listen)
}

// begin starts what goes on through the whole drill.
func (d *drill) begin() {
	d.hook.loses.Store(true) // now and then, until the outage
	d.all.Go(d.bus.run)
	d.Cleanup(d.bus.stop)
	d.all.Go(func() { d.fail(d.feeding) })
	d.all.Go(func() { d.load(d.working) })
	d.all.Go(func() { d.operate(d.feeding) })
	await(d.T, "both consumers to hear of something", func() bool { return d.hook.count() > 0 && d.bus.count() > 0 })
	d.times.begun = time.Now()
}

// fail creates tasks whose step fails for good, at a steady rate; what the server
// could not take while it was away comes after.
func (d *drill) fail(ctx context.Context) {
	begun, made := time.Now(), 0
	each(ctx, 100*time.Millisecond, func() {
		owed := int(time.Since(begun).Seconds()*drillRate) - made
		if owed > 0 && d.create(ctx, "orders", "broken", min(owed, 100)) {
			made += min(owed, 100)
		}
	})
}

// load has always some work that succeeds wait for a worker.
func (d *drill) load(ctx context.Context) {
	each(ctx, 50*time.Millisecond, func() {
		var waiting int
		err := d.pool.QueryRow(ctx, `SELECT count(*) FROM tasker.workflow_steps WHERE state = 'enqueued' AND namespace = 'load'`).Scan(&waiting)
		if err == nil && waiting < d.waiting {
			d.create(ctx, "load", "chain", d.waiting/2)
		}
	})
}

// create reports whether the server has taken the tasks.
func (d *drill) create(ctx context.Context, space, name string, n int) bool {
	list := make([]apiv1.CreateTask, n)
	for i := range list {
		list[i] = apiv1.CreateTask{Namespace: space, Name: name}
	}
	_, err := d.client.CreateTasks(ctx, list)
	return err == nil
}

// triage is what an operator has seen and done.
type triage struct {
	mu     sync.Mutex
	listed map[string]bool // investigations

	opened, unlisted int // investigations of the outage, at its end
}

// operate works from the queue: each investigation gets a note and is ended.
func (d *drill) operate(ctx context.Context) {
	each(ctx, time.Second, func() {
		queue, err := d.readQueue(ctx)
		if err != nil {
			return
		}
		ended := 0
		for _, e := range queue {
			if ended == drillTriage || time.Since(e.At) < triageAfter {
				break
			}
			d.endEntry(ctx, e.EntryUUID.String())
			ended++
		}
	})
}

func (d *drill) readQueue(ctx context.Context) ([]tasker.InvestigationQueueEntry, error) {
	queue, err := d.client.InvestigationQueue(ctx, tasker.InvestigationFilter{Limit: queuePage})
	if err != nil {
		return nil, err
	}
	d.triage.mu.Lock()
	defer d.triage.mu.Unlock()
	for _, e := range queue {
		d.triage.listed[e.EntryUUID.String()] = true
	}
	return queue, nil
}

// endEntry makes two changes, unless the server is away.
func (d *drill) endEntry(ctx context.Context, text string) {
	var entry tasker.ID
	if err := entry.UnmarshalText([]byte(text)); err != nil {
		d.Error(err)
		return
	}
	note, status, operator := "looked at it", "permanently_failed", "operator"
	_, err := d.client.UpdateEntry(ctx, entry, apiv1.UpdateEntry{ResolutionNotes: &note, UpdatedBy: operator})
	if err == nil { // or it is in the queue again next time, as it is if this fails
		_, _ = d.client.UpdateEntry(ctx, entry, apiv1.UpdateEntry{ResolutionStatus: &status, ResolutionNotes: &note, ResolvedBy: &operator})
	}
}

// breakDown takes both buses away, and kills the server twice.
func (d *drill) breakDown() {
	d.hook.loses.Store(false)
	d.hook.answer(http.StatusServiceUnavailable)
	d.broker.Kill(d.T)
	d.times.cut = time.Now()
	d.restUntil(d.outage / 4)
	d.killServer()
	d.restUntil(d.outage / 2)
	d.door.Cut() // from now on connections are refused
	d.restUntil(d.outage * 5 / 8)
	d.killServer()
	d.restUntil(d.outage)
	opened := d.texts(`SELECT dlq_entry_uuid::text FROM tasker.tasks_dlq WHERE dlq_timestamp >= $1`, d.times.cut)
	_, err := d.readQueue(d.Context())
	must(d.T, err)
	d.countListed(opened)
}

// restUntil rests until some time of the outage has passed.
func (d *drill) restUntil(passed time.Duration) { rest(d.T, time.Until(d.times.cut.Add(passed))) }

// killServer kills the server and starts it again at once.
func (d *drill) killServer() {
	d.Helper()
	d.server.kill()
	d.hurry()
	d.serve()
	d.server.url()
}

// restore brings both buses back and returns when they were told of what had happened before.
func (d *drill) restore() {
	d.times.restored = time.Now()
	d.hook.answer(http.StatusOK)
	d.door.Restore(d.T)
	d.broker.Restart(d.T)
	d.hurry()
	d.await("the backlog to be sent", func() bool { return number(d.T, d.pool, unsent, d.times.restored) == 0 })
	d.times.drained = time.Now()
	rest(d.T, d.after)
	d.times.ended = time.Now()
}

// hurry ends what the short form does not wait for: the half minute in which a
// dead server still has the right to send, and the rests of what failed.
func (d *drill) hurry() {
	d.Helper()
	if d.long {
		return
	}
	for _, sql := range []string{
		`UPDATE tasker.emission_sinks SET held_until = least(held_until, clock_timestamp()), next_try_at = NULL`,
		`UPDATE tasker.emissions SET next_attempt_at = clock_timestamp() WHERE state = 'pending' AND next_attempt_at > clock_timestamp()`,
	} {
		_, err := d.pool.Exec(d.Context(), sql)
		must(d.T, err)
	}
}

// unsent counts what happened before an instant and was not sent to both sinks.
const unsent = `
SELECT count(*) FROM tasker.outbox o
WHERE o.created_at < $1
  AND (SELECT count(*) FROM tasker.emissions e WHERE e.position = o.position AND e.state = 'published') < 2`

// end lets everything come to its end.
func (d *drill) end() {
	d.stopFeeding()
	d.stopWorking()
	d.await("all tasks to end", func() bool {
		return number(d.T, d.pool, `SELECT count(*) FROM tasker.tasks WHERE state NOT IN ('complete', 'error')`) == 0
	})
	d.await("all to be sent", func() bool { return number(d.T, d.pool, unsent, time.Now().Add(time.Hour)) == 0 })
	// What was sent is on its way for a moment; check names what never comes.
	events := number(d.T, d.pool, `SELECT count(*) FROM tasker.outbox`)
	for sent := time.Now(); (d.hook.distinct() < events || d.bus.distinct() < events) && time.Since(sent) < arriveLimit; {
		rest(d.T, 200*time.Millisecond)
	}
}

// check is what must be true in the end.
func (d *drill) check() {
	d.Helper()
	if n := number(d.T, d.pool, `SELECT count(*) FROM tasker.tasks t WHERE t.namespace = 'orders' AND (SELECT count(*) FROM tasker.tasks_dlq e WHERE e.task_uuid = t.task_uuid) <> 1`); n != 0 {
		d.Errorf("%d tasks that failed do not have one investigation", n)
	}
	if n := number(d.T, d.pool, `SELECT count(*) FROM tasker.tasks_dlq`); n == 0 || n != number(d.T, d.pool, `SELECT count(*) FROM tasker.outbox WHERE topic = 'dlq.entry.created'`) {
		d.Errorf("%d investigations, not with as many events", n)
	}
	events := d.events()
	for name, c := range map[string]*consumer{"webhook": &d.hook.consumer, "rabbitmq": &d.bus.consumer} {
		c.check(d.T, name, events)
	}
	if n := number(d.T, d.pool, `SELECT count(*) FROM tasker.emissions WHERE state <> 'published'`); n != 0 {
		d.Errorf("%d are set aside or still to be sent", n)
	}
	sinks, err := d.client.Sinks(d.Context())
	must(d.T, err)
	for _, s := range sinks {
		if s.Status != "up" || s.Pending != 0 || s.Undeliverable != 0 || s.FailingSince != nil {
			d.Errorf("in the end sink %s is %+v", s.Sink, s)
		}
	}
	if len(sinks) != 2 {
		d.Errorf("there are %d sinks", len(sinks))
	}
	if d.triage.opened == 0 || d.triage.unlisted != 0 {
		d.Errorf("of %d investigations that were opened while the buses were down, %d were not listed", d.triage.opened, d.triage.unlisted)
	}
	if d.hook.count() == d.hook.distinct() {
		d.Error("nothing came twice, although answers were lost")
	}
	if number(d.T, d.pool, `SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.emit_failed'`) == 0 {
		d.Error("nothing says that events could not be sent")
	}
	least := 0.05 // of a second or two on a machine on which much else may happen: whether any are done
	if d.long {
		least = 0.8
	}
	before, during := d.pace(d.times.begun, d.times.cut), d.pace(d.times.cut, d.times.restored)
	if during < least*before {
		d.Errorf("%.1f steps a second were completed during the outage, and %.1f before", during, before)
	}
	d.Logf("outage of %s; %d events, %d lost; steps completed in a second: %.1f before, %.1f in the outage, %.1f after; backlog sent %s after both buses were back",
		d.times.restored.Sub(d.times.cut).Round(time.Second), len(events), d.hook.missing(events)+d.bus.missing(events), before, during, d.pace(d.times.drained, d.times.ended),
		d.times.drained.Sub(d.times.restored).Round(10*time.Millisecond))
}

// countListed counts the investigations that were opened in the outage, and those of them that the
// operator has not seen.
func (d *drill) countListed(opened []string) {
	d.Helper()
	d.triage.mu.Lock()
	defer d.triage.mu.Unlock()
	d.triage.opened = len(opened)
	for _, e := range opened {
		if !d.triage.listed[e] {
			d.triage.unlisted++
		}
	}
}

// await looks now and then, so that looking costs little, until it is so.
func (d *drill) await(what string, so func() bool) {
	d.Helper()
	begun := time.Now()
	for !so() {
		if time.Since(begun) > recoverLimit {
			d.Fatalf("waited %s in vain for %s", recoverLimit, what)
		}
		rest(d.T, 200*time.Millisecond)
	}
}

// each does something again and again until ctx ends.
func each(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// rest lets time pass: the drill is about what happens meanwhile.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.Context().Done():
		t.Fatal(fmt.Errorf("the drill was broken off: %w", t.Context().Err()))
	case <-timer.C:
	}
}

// pace returns how many steps were completed in a second.
func (d *drill) pace(from, to time.Time) float64 {
	d.Helper()
	steps := number(d.T, d.pool, `SELECT count(*) FROM tasker.workflow_step_transitions WHERE to_state = 'complete' AND created_at >= $1 AND created_at < $2`, from, to)
	return float64(steps) / max(to.Sub(from).Seconds(), 0.001)
}
