package engine_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

var (
	modelActs = flag.Int("acts", 400, "acts of the model tests")
	modelSeed = flag.Uint64("seed", 0, "seed of the model test; 0: another one each time")
)

// What the model test makes of templates and time. No two spans are multiples of each other.
const (
	modelTemplates = 12
	modelRoots     = 6 // open tasks that no other started
	modelRetry     = 61 * time.Second
	modelLease     = 601 * time.Second
	modelWait      = 3607 // seconds
	modelTimeout   = 7211
	modelMargin    = 2 * time.Second // between an instant and when the clock passes it
)

// A driver does acts to the engine and to the model.
type driver struct {
	*testing.T
	*model
	seed    uint64
	random  *rand.Rand
	clock   *pgtest.Clock
	conn    *pgx.Conn // that compares
	servers [2]server
	workers []tasker.ID
	leases  map[*modelStep]lease
	late    []lateReport
	told    []string
	acts    int
	did     map[string]int
	pair    *[]act // what is done at once; nil: acts are done one by one
	whole   bool   // the next act is not cut
	lost    bool   // a connection was cut during the last act, or its answer was lost
	all     [][]tasker.StepTemplate
}

// A server is an engine with connections that can be cut.
type server struct {
	db     *postgres.DB
	engine *engine.Engine
	dlq    *dlq.Service
	cut    *modelCut
}

// A lease is a worker's hold of a step.
type lease struct {
	tasker.Lease
	worker tasker.ID
}

type lateReport struct {
	worker  tasker.ID
	outcome tasker.Outcome
}

// A modelCut closes the connection at a statement, before or after it was done.
type modelCut struct {
	left  atomic.Int64 // statements until it does; below 1: never
	after atomic.Bool
}

type modelCutKey struct{}

// TraceQueryStart closes the connection before a statement, or has it closed after it.
func (c *modelCut) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if c.left.Load() < 1 || c.left.Add(-1) != 0 {
		return ctx
	}
	if c.after.Load() {
		return context.WithValue(ctx, modelCutKey{}, true)
	}
	_ = conn.PgConn().Conn().Close()
	return ctx
}

// TraceQueryEnd closes the connection after the statement that was chosen.
func (*modelCut) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(modelCutKey{}) != nil {
		_ = conn.PgConn().Conn().Close()
	}
}

// Long: go test ./internal/engine -run EngineAgrees -timeout 0 -args -acts=100000
func TestEngineAgreesWithAModel(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	d := newDriver(t, seed)
	begun := time.Now()
	for d.acts < *modelActs {
		d.acts++
		d.act()
		if t.Failed() {
			t.Fatalf("seed %d, act %d; the last acts, the newest at the end:\n%s", seed, d.acts, strings.Join(d.told[max(0, len(d.told)-40):], "\n"))
		}
		if d.acts%10_000 == 0 {
			t.Logf("%d acts in %s", d.acts, time.Since(begun).Round(time.Second))
		}
	}
	if n := d.count(`SELECT count(*) FROM tasker.tasks`); n != d.made {
		t.Errorf("seed %d: there are %d tasks, and the model has made %d", seed, n, d.made)
	}
	t.Logf("seed %d: %d acts in %s, %d tasks, %d items that were tolerated, %d that waited: %v", seed, d.acts, time.Since(begun).Round(time.Millisecond), d.made, d.tolerated, d.waited, d.did)
}

func newDriver(t *testing.T, seed uint64) *driver {
	t.Helper()
	db := pgtest.New(t)
	clock := db.NewClock(t, time.Now())
	db.CheckAtEnd(t)
	conn, err := pgx.Connect(t.Context(), db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	d := &driver{
		T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), clock: clock, conn: conn, leases: map[*modelStep]lease{}, did: map[string]int{},
		model: &model{lease: modelLease},
	}
	d.undoOrder = d.orderOfSteps
	d.template = func(name string) []tasker.StepTemplate {
		var i int
		_, err := fmt.Sscanf(name, "t%d", &i)
		d.must(err)
		return d.all[i]
	}
	for i := range d.servers {
		s := server{cut: &modelCut{}}
		s.db = enginetest.Open(t, db.URL, postgres.Options{MaxConns: 4, ClockSchema: pgtest.ClockSchema, Tracer: s.cut, QueueTTL: 5 * 365 * 24 * time.Hour})
		s.engine = newEngine(s.db, engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}})
		s.dlq = dlq.New(s.db, dlq.Options{})
		d.servers[i] = s
	}
	for i := range modelTemplates {
		steps := d.randomTemplate(i)
		_, _, err := d.servers[0].engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: enginetest.Namespace, Name: fmt.Sprint("t", i), Version: "1.0.0", Steps: steps}, "")
		d.must(err)
		d.all = append(d.all, steps)
	}
	for i := range 3 {
		r, err := d.servers[i%2].engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: fmt.Sprint("w", i), Namespaces: []string{enginetest.Namespace}, Handlers: []string{"run"}, MaxConcurrency: 100})
		d.must(err)
		d.workers = append(d.workers, r.WorkerUUID)
	}
	return d
}

func (d *driver) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatalf("act %d, after %q: %v", d.acts, d.told[max(0, len(d.told)-5):], err)
	}
}

func (d *driver) say(format string, args ...any) {
	d.told = append(d.told, fmt.Sprintf("%d ", d.acts)+fmt.Sprintf(format, args...))
}

func (d *driver) count(sql string) (n int) {
	d.Helper()
	d.must(d.conn.QueryRow(d.Context(), sql).Scan(&n))
	return n
}

// one is true once in so many times.
func (d *driver) one(in int) bool { return d.random.IntN(in) == 0 }

func (d *driver) server() server { return d.servers[d.random.IntN(2)] }

// randomTemplate makes a graph; those with a low number have no child steps, and others start
// tasks of them.
func (d *driver) randomTemplate(n int) []tasker.StepTemplate {
	list := make([]tasker.StepTemplate, 1+d.random.IntN(7))
	for i := range list {
		s := enginetest.Step(fmt.Sprint("s", i))
		var decides bool
		for j := range i {
			if d.one(3) {
				s.Dependencies = append(s.Dependencies, list[j].Name)
				decides = decides || list[j].Type == tasker.DecisionStep
			}
		}
		s.Retry = tasker.Retry{Retryable: !d.one(6), MaxAttempts: 1 + d.random.IntN(3), Backoff: tasker.ConstantBackoff, BaseMS: int(modelRetry.Milliseconds()), MaxBackoffMS: int(modelRetry.Milliseconds())}
		switch k := d.random.IntN(5); {
		case k == 0 && len(s.Dependencies) > 0:
			s.Join = tasker.JoinNoneFailed
		case k == 1 && len(s.Dependencies) > 0 && !decides:
			s.Join = tasker.JoinAny
		}
		if d.one(4) {
			s.When = "context.flags." + s.Name
		}
		if d.one(3) {
			s.OnFailure = &tasker.OnFailure{Compensate: "run", Retry: s.Retry}
		}
		d.randomType(n, &s)
		list[i] = s
	}
	// A decision has a step that depends on it, which does not wait for any only.
	for i := range list {
		if list[i].Type != tasker.DecisionStep {
			continue
		}
		if !slices.ContainsFunc(list, func(s tasker.StepTemplate) bool { return slices.Contains(s.Dependencies, list[i].Name) }) {
			list[i].Type = tasker.StandardStep
		}
	}
	return list
}

func (d *driver) randomType(n int, s *tasker.StepTemplate) {
	none, kind := tasker.Handler{}, d.random.IntN(10)
	if n < 2 && s.Name == "s0" { // each run has items
		kind = 3
	}
	switch kind {
	case 0:
		s.Type = tasker.DecisionStep
	case 1:
		s.Type, s.Handler = tasker.ExternalStep, none
		if !d.one(3) {
			s.TimeoutSeconds = modelTimeout
			s.OnTimeout = []tasker.TimeoutOutcome{"", tasker.TimeoutFails, tasker.TimeoutSkips, tasker.TimeoutCompletes}[d.random.IntN(4)]
			if s.OnTimeout == tasker.TimeoutCompletes {
				s.TimeoutResult = json.RawMessage(`{"late": true}`)
			}
		}
	case 2:
		s.Type, s.Handler, s.WaitSeconds, s.OnFailure = tasker.WaitStep, none, modelWait, nil
	case 3:
		s.Type, s.Over, s.OnFailure = tasker.MapStep, "context.list", nil
		s.MaxParallel = d.random.IntN(4) // 0: all
		s.Tolerate = []tasker.FailureTolerance{{}, {Items: 1}, {Percent: 50}, {AllButOne: true}}[d.random.IntN(4)]
	case 4, 5:
		if n < 3 {
			return
		}
		outcomes := []tasker.ChildOutcome{"", tasker.ChildFails, tasker.ChildSkips, tasker.ChildCompletes}
		s.Type, s.Handler = tasker.ChildStep, none
		s.Child.Name = fmt.Sprint("t", d.random.IntN(n)) // each starts only those before it
		s.OnChild.Cancelled, s.OnChild.PermanentlyFailed = outcomes[d.random.IntN(4)], outcomes[d.random.IntN(4)]
		s.ChildResult = json.RawMessage(`{"none": true}`)
	}
}

func itemName(step string, i int) string { return fmt.Sprintf("%s[%d]", step, i) }

// An act is something done to the engine, and what the model makes of it.
type act struct {
	name string
	do   func(context.Context, server) error
	then func()      // in the model, unless it was refused
	ok   func() bool // the model allows it

	task   *modelTask // of those of which two are done at once
	claims bool       // it may take steps for a worker, also when it fails otherwise
}

// act does one act, at times to a server that dies in the middle.
func (d *driver) act() {
	d.Helper()
	var err error
	if d.now, err = d.clock.Now(d.Context()); err != nil {
		d.Fatal(err)
	}
	d.moment++
	switch n := d.random.IntN(100); {
	case n < 16:
		d.createOne()
	case n < 38:
		d.claim()
	case n < 70:
		d.report()
	case n < 73:
		d.reportLate()
	case n < 75:
		d.giveBack()
	case n < 81:
		d.advance()
	case n < 91:
		d.operateOne()
	case n < 95:
		d.answer()
	case n < 96:
		d.endTask()
	case n < 97:
		d.endEntry()
	case n < 98:
		d.restart()
	default:
		d.twoAtOnce()
	}
	d.quiet()
	d.drop()
}

// perform does an act. Of one during which the server has lost its connection nobody knows
// whether it was done: the database says.
func (d *driver) perform(a act) {
	d.Helper()
	if d.pair != nil {
		// What tasks have to tell each other is told some time later.
		if p := *d.pair; len(p) == 0 || p[0].task == a.task || p[0].task.root() != a.task.root() {
			*d.pair = append(*d.pair, a)
		}
		return
	}
	s, ok := d.server(), a.ok()
	cut := d.one(12) && !d.whole
	if cut {
		s.cut.after.Store(d.one(2))
		s.cut.left.Store(int64(1 + d.random.IntN(8)))
	}
	err := a.do(d.Context(), s)
	s.cut.left.Store(0)
	if cut {
		d.calm()
	}
	d.lost = cut || err != nil
	d.say("%s: allowed %t, cut %t: %v", a.name, ok, cut, err)
	d.did[strings.Fields(a.name)[0]]++
	known := err == nil || slices.Contains([]tasker.Code{tasker.Conflict, tasker.NotFound, tasker.Invalid}, tasker.CodeOf(err))
	switch {
	case !known && !postgres.IsUnavailable(err) && !cut:
		d.Errorf("%s: %v", a.name, err)
	case !known: // the connection may have been cut by what was before
		d.did["cut"]++
		d.catchUp()
		if a.claims {
			d.adopt()
		}
		diff := d.differs()
		if !ok || diff == "" {
			return // it was not done
		}
		d.say("it was done all the same: %s", diff)
		a.then()
	case ok != (err == nil):
		d.Errorf("%s: the model allows it: %t; the engine: %v", a.name, ok, err)
	case ok:
		a.then()
	}
}

func always() bool { return true }

// A saved is what a model was.
type saved struct {
	model model
	tasks map[*modelTask]modelTask
	steps map[*modelStep]modelStep
}

func (m *model) save() saved {
	s := saved{*m, map[*modelTask]modelTask{}, map[*modelStep]modelStep{}}
	s.model.tasks = slices.Clone(m.tasks)
	for _, t := range m.tasks {
		s.tasks[t] = *t
		for _, x := range t.all() {
			s.steps[x] = *x
		}
	}
	return s
}

func (m *model) restore(s saved) {
	*m = s.model
	m.tasks = slices.Clone(s.model.tasks)
	for t, was := range s.tasks {
		*t = was
		t.steps = slices.Clone(was.steps)
	}
	for x, was := range s.steps {
		*x = was
	}
}

// twoAtOnce does two acts at once, each with a server of its own. What became of it must be what
// one after the other comes to, in some order; what follows from the first may have followed before the
// second.
func (d *driver) twoAtOnce() {
	d.Helper()
	pair := []act{}
	d.pair = &pair
	for range 20 {
		if len(pair) < 2 {
			[]func(){d.report, d.operateOne, d.operateOne, d.answer, d.endTask}[d.random.IntN(5)]()
		}
	}
	d.pair = nil
	if len(pair) < 2 {
		return
	}
	var errs [2]error
	var both sync.WaitGroup
	for i, s := range d.servers {
		both.Go(func() {
			errs[i] = pair[i].do(d.Context(), s)
			for n := 0; n < 8 && postgres.IsUnavailable(errs[i]); n++ { // of a connection that was cut before: nothing is done yet
				errs[i] = pair[i].do(d.Context(), s)
			}
		})
	}
	both.Wait()
	d.say("at once %s: %v; and %s: %v", pair[0].name, errs[0], pair[1].name, errs[1])
	d.did["two at once"]++
	d.catchUp()
	before := d.save()
	var diffs []string
	for _, first := range []int{0, 1} {
		for _, follows := range []bool{false, true} {
			diff := d.inOrder(pair, errs, first, follows)
			if diff == "" {
				return
			}
			diffs = append(diffs, fmt.Sprintf("%s first, followed up %t: %s", pair[first].name, follows, diff))
			d.restore(before)
		}
	}
	d.Errorf("two acts at once came to what neither order comes to:\n%s", strings.Join(diffs, "\n"))
}

// inOrder does two acts to the model, one after the other, and says where that differs from the engine.
func (d *driver) inOrder(pair []act, errs [2]error, first int, follows bool) string {
	d.Helper()
	for n, i := range []int{first, 1 - first} {
		ok := pair[i].ok()
		if ok != (errs[i] == nil) {
			return fmt.Sprintf("%s: the model allows it: %t; the engine: %v", pair[i].name, ok, errs[i])
		}
		if ok {
			pair[i].then()
		}
		for _, t := range d.tasks { // a transaction brings its own task to rest
			if !t.ended() {
				d.concluded(t)
			}
		}
		if n == 0 && follows {
			d.settle()
		}
	}
	d.settle()
	return d.differs()
}

// restart has a server die, and another one take its place.
func (d *driver) restart() {
	i := d.random.IntN(2)
	d.say("restart server %d", i)
	d.did["restart"]++
	d.servers[i].engine = newEngine(d.servers[i].db, engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}})
}

// catchUp has both servers do what is due, until nothing is.
func (d *driver) catchUp() {
	d.Helper()
	var last []string // what was due in the last round
	for range 200 {
		last = nil
		look, err := d.servers[0].db.DueWork(d.Context(), 0, time.Hour)
		due := d.away(err)
		for _, k := range look.Kinds {
			if !k.Due {
				continue
			}
			var both sync.WaitGroup
			var did [2]bool
			var failed [2]error
			if d.one(20) {
				s := d.server()
				s.cut.after.Store(d.one(2))
				s.cut.left.Store(int64(1 + d.random.IntN(12)))
				if _, err := s.engine.Pass(d.Context(), k.Kind); err != nil {
					d.did["cut timer"]++
				}
				s.cut.left.Store(0)
				d.calm()
			}
			one := d.random.IntN(2)
			for i, s := range d.servers {
				if i != one && !d.one(3) {
					continue
				}
				both.Go(func() { did[i], failed[i] = s.engine.Pass(d.Context(), k.Kind) })
			}
			both.Wait()
			if k.Kind == postgres.ReclaimLease { // a lease that was found and not taken back is found again after a second
				_, err := d.conn.Exec(d.Context(), `UPDATE tasker.claims c SET look_at = test_clock.clock_timestamp()
					WHERE c.look_at <= test_clock.clock_timestamp() + interval '1100 milliseconds' AND EXISTS (
						SELECT FROM tasker.workflow_steps s
						WHERE s.step_uuid = ANY (c.steps) AND s.task_uuid = ANY (c.tasks) AND s.state = 'in_progress' AND s.lease_expires_at <= test_clock.clock_timestamp()
					)`)
				d.must(err)
			}
			if did[0] || did[1] || d.away(failed[0]) || d.away(failed[1]) {
				due, last = true, append(last, k.Kind)
			}
		}
		if !due {
			return
		}
	}
	d.Fatalf("seed %d, act %d: the engine does not come to rest, it goes on with %v; the last acts:\n%s", d.seed, d.acts, last, strings.Join(d.told[max(0, len(d.told)-10):], "\n"))
}

// calm waits until no statement runs any more of a connection that was cut.
func (d *driver) calm() {
	d.Helper()
	for n := 1; n > 0; {
		n = d.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`)
	}
}

// away reports whether an error is of a connection that was cut; any other fails the test.
func (d *driver) away(err error) bool {
	d.Helper()
	if err != nil && !postgres.IsUnavailable(err) {
		d.must(err)
	}
	return err != nil
}

// aside tells what the engine has set aside.
func (d *driver) aside() (text string) {
	d.Helper()
	d.must(d.conn.QueryRow(d.Context(), `SELECT coalesce(string_agg(kind || ' ' || last_error, '; '), 'nothing') FROM tasker.deferred_work`).Scan(&text))
	return text
}

// quiet has the engine and the model do what follows, and compares them.
func (d *driver) quiet() {
	d.Helper()
	d.catchUp()
	d.settle()
	if diff := d.differs(); diff != "" {
		d.Errorf("the engine (+) and the model (-) differ:\n%s\nset aside: %s", diff, d.aside())
	}
}
