package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// The weight of a step of the templates is how many places of limit customer it takes: as many as there are at most.
func (s flowStep) weight(p flowPlace) int {
	if s.Name != "heavy" || s.Version == firstVersion || p.limit.ref.Name != "customer" {
		return 1
	}
	weight := 3
	for _, most := range []int{p.limit.value.MaxInProgress, p.limit.value.Burst} {
		if most > 0 {
			weight = min(weight, most)
		}
	}
	return weight
}

// A flowPlace is a key of a limit. A limit that was deleted and set anew is another one.
type flowPlace struct {
	limit *flowLimit
	key   string
}

// A flowLimit is a limit as the model has it. The rate of a key is when as many could begin at once
// as the burst allows: the clock goes on a little while a claim is made, so there is the earliest and the
// latest instant at which it was.
type flowLimit struct {
	ref   tasker.LimitRef
	value tasker.LimitValue
	full  map[string][2]time.Time
}

// room is how many more steps may begin, at least and at most.
func (l *flowLimit) room(key string, held int, between [2]time.Time) (least, most int) {
	least, most = math.MaxInt, math.MaxInt
	if l.value.MaxInProgress > 0 {
		least = max(l.value.MaxInProgress-held, 0)
		most = least
	}
	if l.value.PerSecond > 0 {
		at := func(full, now time.Time, slack float64) int {
			return max(int(math.Floor(float64(l.value.Burst)-max(full.Sub(now).Seconds(), 0)*l.value.PerSecond+slack)), 0)
		}
		full := l.full[key]
		least, most = min(least, at(full[1], between[0], -1e-3)), min(most, at(full[0], between[1], 1e-3))
	}
	return least, most
}

// begin counts a step that was handed out.
func (l *flowLimit) begin(key string, weight int, between [2]time.Time) {
	if l.value.PerSecond == 0 {
		return
	}
	if l.full == nil {
		l.full = map[string][2]time.Time{}
	}
	full := l.full[key]
	for i := range full {
		if full[i].Before(between[i]) {
			full[i] = between[i]
		}
		full[i] = full[i].Add(time.Duration(float64(weight) * float64(time.Second) / l.value.PerSecond))
	}
	l.full[key] = full
}

// A flowStep is a step as the database has it, and the places that it was given with its lease.
type flowStep struct {
	TaskUUID, StepUUID            tasker.ID
	Namespace, Name, Handler, Key string
	Version                       string
	State                         tasker.StepState
	Priority                      int
	StateSince                    time.Time
	Fence                         int64
}

type flowLease struct {
	tasker.Assignment
	worker int
	fence  int64
	places map[flowPlace]int // with how many of each
}

type flowDriver struct {
	*testing.T
	random  *rand.Rand
	clock   *pgtest.Clock
	conn    *pgx.Conn
	engines [2]*engine.Engine
	dbs     [2]*postgres.DB
	workers []flowWorker
	limits  map[tasker.LimitRef]*flowLimit
	leases  map[tasker.ID]flowLease // by step
	steps   map[tasker.ID]flowStep
	told    []string
	did     map[string]int
	open    int
}

type flowWorker struct {
	id                   tasker.ID
	namespaces, handlers []string
}

// The templates of the test give these limits to their steps, by name.
func flowNames(s flowStep) map[string]string {
	switch s.Name {
	case "rated":
		return map[string]string{"customer": s.Key, "rate": "r" + s.Key}
	case "keyed":
		return map[string]string{"customer": s.Key, "all": ""}
	case "heavy":
		return map[string]string{"customer": s.Key}
	case "light":
		if s.Version == firstVersion {
			return nil
		}
		return map[string]string{"customer": s.Key}
	default:
		return nil
	}
}

// Long: go test ./internal/engine -run LimitsAgree -timeout 0 -args -acts=500000, of which a fifth is done
func TestLimitsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	d := newFlowDriver(t, seed)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d; the last acts, the newest at the end:\n%s", seed, strings.Join(d.told[max(0, len(d.told)-30):], "\n"))
		}
	}()
	begun := time.Now()
	for i := range max(*modelActs/5, 150) {
		d.act()
		if t.Failed() {
			t.FailNow()
		}
		if (i+1)%10_000 == 0 {
			t.Logf("%d acts in %s", i+1, time.Since(begun).Round(time.Second))
		}
	}
	d.drain()
	t.Logf("seed %d: %s: %v", seed, time.Since(begun).Round(time.Millisecond), d.did)
}

func newFlowDriver(t *testing.T, seed uint64) *flowDriver {
	t.Helper()
	db := pgtest.New(t)
	d := &flowDriver{
		T: t, random: rand.New(rand.NewPCG(seed, 1)), clock: db.NewClock(t, time.Now()), limits: map[tasker.LimitRef]*flowLimit{},
		leases: map[tasker.ID]flowLease{}, did: map[string]int{},
	}
	db.CheckAtEnd(t)
	var err error
	d.conn, err = pgx.Connect(t.Context(), db.AdminURL)
	d.must(err)
	t.Cleanup(func() { _ = d.conn.Close(context.WithoutCancel(t.Context())) })
	for i := range d.engines {
		d.dbs[i] = enginetest.Open(t, db.URL, postgres.Options{MaxConns: 3, ClockSchema: pgtest.ClockSchema, QueueTTL: 5 * 365 * 24 * time.Hour, PriorityAge: -1})
		d.engines[i] = newEngine(d.dbs[i], engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}})
	}
	for _, n := range []string{"a", "b"} {
		d.register(n, "flow", firstVersion)
		d.register(n, "free", firstVersion)
		for _, l := range flowTemplate(n, "flow", firstVersion).Limits {
			ref := tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: n, Name: l.Name}
			d.limits[ref] = &flowLimit{ref: ref, value: l.Value()}
		}
	}
	for i, w := range []flowWorker{
		{namespaces: []string{"a"}, handlers: []string{"run"}}, {namespaces: []string{"a", "b"}, handlers: []string{"run", "walk"}},
		{namespaces: []string{"b"}, handlers: []string{"run", "walk"}}, {namespaces: []string{"a", "b"}, handlers: []string{"walk"}},
		{namespaces: []string{"a", "b"}, handlers: []string{"go"}}, {namespaces: []string{"a"}, handlers: []string{"go"}}, {namespaces: []string{"b"}, handlers: []string{"go", "run"}},
	} {
		r, err := d.engines[i%2].RegisterWorker(t.Context(), tasker.WorkerSpec{Name: fmt.Sprint("w", i), Namespaces: w.namespaces, Handlers: w.handlers, MaxConcurrency: 100})
		d.must(err)
		w.id = r.WorkerUUID
		d.workers = append(d.workers, w)
	}
	d.read()
	return d
}

// The steps of the first version of the templates take one place each, and those of template free have no limits; in the second,
// which is registered some time or other, one takes several, and one of template free has a limit.
const firstVersion, secondVersion = "1.0.0", "1.1.0"

func flowTemplate(namespace, name, version string) tasker.Template {
	step := func(name, handler string, after ...string) tasker.StepTemplate {
		s := enginetest.Step(name, after...)
		s.Handler.Callable, s.Retry = handler, tasker.Retry{Retryable: true, MaxAttempts: 1000, Backoff: tasker.ConstantBackoff, BaseMS: 7000, MaxBackoffMS: 7000}
		return s
	}
	customer := tasker.LimitTemplate{Name: "customer", Key: "context.customer", MaxInProgress: 3}
	x := tasker.Template{Namespace: namespace, Name: name, Version: version}
	if name == "free" {
		x.Steps = []tasker.StepTemplate{step("light", "go"), step("next", "go", "light")}
		if customer.Steps = []string{"light"}; version != firstVersion {
			x.Limits = []tasker.LimitTemplate{customer}
		}
		return x
	}
	if customer.Steps = []string{"keyed", "rated", "heavy"}; version != firstVersion {
		customer.Weights = map[string]int{"heavy": 3}
	}
	x.Limits = []tasker.LimitTemplate{
		customer, {Name: "all", MaxInProgress: 4, Steps: []string{"keyed"}},
		{Name: "rate", Key: `"r" + context.customer`, PerSecond: 0.05, Burst: 2, Steps: []string{"rated"}},
	}
	x.Steps = []tasker.StepTemplate{step("plain", "run"), step("keyed", "run"), step("rated", "walk"), step("heavy", "walk"), step("last", "walk", "plain", "keyed")}
	return x
}

func (d *flowDriver) register(namespace, name, version string) {
	d.Helper()
	d.say("register", "%s %s %s", namespace, name, version)
	_, _, err := d.engines[d.random.IntN(2)].RegisterTemplate(d.Context(), flowTemplate(namespace, name, version), "")
	d.must(err)
}

func (d *flowDriver) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *flowDriver) say(what, format string, args ...any) {
	d.did[what]++
	d.told = append(d.told, what+" "+fmt.Sprintf(format, args...))
}

func (d *flowDriver) now() time.Time {
	at, err := d.clock.Now(d.Context())
	d.must(err)
	return at
}

// read reads the steps that have not ended, and forgets the places of leases that have.
func (d *flowDriver) read() {
	d.Helper()
	rows, err := d.conn.Query(d.Context(), `
		SELECT s.task_uuid, s.step_uuid, s.namespace, s.name, s.handler, t.context ->> 'customer' AS key, t.version, s.state, s.priority, s.state_since, s.fence
		FROM tasker.workflow_steps s JOIN tasker.tasks t USING (task_uuid)
		WHERE s.state IN ('enqueued', 'in_progress') OR t.state NOT IN ('complete', 'cancelled')`)
	d.must(err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[flowStep])
	d.must(err)
	d.steps = make(map[tasker.ID]flowStep, len(list))
	tasks := map[tasker.ID]bool{}
	for _, s := range list {
		d.steps[s.StepUUID] = s
		tasks[s.TaskUUID] = true
	}
	d.open = len(tasks)
	for id, l := range d.leases {
		if s, ok := d.steps[id]; !ok || s.State != tasker.StepInProgress || s.Fence != l.fence {
			delete(d.leases, id)
		}
	}
}

// held is how many places are taken.
func (d *flowDriver) held(p flowPlace) (n int) {
	for _, l := range d.leases {
		n += l.places[p]
	}
	return n
}

// placesOf are the places that a step needs.
func (d *flowDriver) placesOf(s flowStep) (list []flowPlace) {
	refs := map[tasker.LimitRef]string{
		{Kind: tasker.ServerLimit}: "", {Kind: tasker.NamespaceLimit, Namespace: s.Namespace}: "", {Kind: tasker.HandlerLimit, Namespace: s.Namespace, Name: s.Handler}: "",
	}
	for name, key := range flowNames(s) {
		refs[tasker.LimitRef{Kind: tasker.NamedLimit, Namespace: s.Namespace, Name: name}] = key
	}
	for ref, key := range refs {
		if l := d.limits[ref]; l != nil {
			list = append(list, flowPlace{l, key})
		}
	}
	return list
}

func (d *flowDriver) act() {
	d.Helper()
	n := d.random.IntN(20)
	switch {
	case n < 4 && d.open < 14:
		d.create()
	case n < 10:
		d.claim(1)
	case n == 10:
		d.claim(2)
	case n < 15:
		d.end()
	case n == 15:
		d.change()
	case n == 16:
		d.forward(time.Duration(1+d.random.IntN(30)) * time.Second)
	case n == 17 && d.random.IntN(3) == 0:
		d.forward(modelLease + time.Second) // of all workers that are silent
	case n == 18 && d.random.IntN(2) == 0:
		d.cancel()
	case n == 19:
		d.serve()
	default:
		d.end()
	}
	d.compare()
}

func (d *flowDriver) create() {
	d.Helper()
	namespace, key, priority := []string{"a", "b"}[d.random.IntN(2)], fmt.Sprint(d.random.IntN(3)), d.random.IntN(3)
	name := []string{"flow", "free"}[d.random.IntN(2)]
	if d.random.IntN(20) == 0 {
		d.register(namespace, name, secondVersion)
	}
	d.say("create", "%s of %s %s %d", name, namespace, key, priority)
	_, err := d.engines[d.random.IntN(2)].CreateTasks(d.Context(), []tasker.NewTask{{
		Namespace: namespace, Name: name, Priority: priority, Context: json.RawMessage(`{"customer": "` + key + `"}`),
	}})
	d.must(err)
}

// claim has workers claim at once, and checks what they are given.
func (d *flowDriver) claim(times int) {
	d.Helper()
	d.read()
	before := d.steps
	type claim struct {
		worker, most int
		list         []tasker.Assignment
	}
	claims := make([]claim, times)
	between := [2]time.Time{d.now()}
	var all sync.WaitGroup
	for i := range claims {
		c := &claims[i]
		c.worker, c.most = d.random.IntN(len(d.workers)), 1+d.random.IntN(6)
		e := d.engines[(i+d.random.IntN(2))%2]
		all.Go(func() {
			var err error
			if c.list, err = e.Claim(d.Context(), d.workers[c.worker].id, c.most, 0); err != nil {
				d.Errorf("claim: %v", err)
			}
		})
	}
	all.Wait()
	between[1] = d.now()
	d.read()
	for _, c := range claims {
		d.say("claim", "worker %d, %d of %d", c.worker, len(c.list), c.most)
		for _, a := range c.list {
			s, known := before[a.StepUUID]
			if !known || s.State != tasker.StepEnqueued {
				d.Errorf("handed out step %s (%s), which was %q", a.Name, a.StepUUID, s.State)
				return
			}
			places := map[flowPlace]int{}
			for _, p := range d.placesOf(s) {
				places[p] = s.weight(p)
				if _, most := p.limit.room(p.key, d.held(p), between); most < places[p] {
					d.Errorf("step %s of %s with key %q has %d places of limit %s (%s), of which %d are left", a.Name, s.Namespace, p.key, places[p], p.limit.ref, p.limit.value, most)
				}
				p.limit.begin(p.key, places[p], between)
			}
			d.leases[a.StepUUID] = flowLease{a, c.worker, d.steps[a.StepUUID].Fence, places}
		}
	}
	if times == 1 {
		d.inOrder(before, claims[0].list)
	}
	for _, c := range claims {
		if len(c.list) == 0 {
			d.left(before, d.workers[c.worker], between)
		}
	}
}

// kept reports whether a more urgent step waits for more places of a key that it needs: what is less urgent leaves them.
func (d *flowDriver) kept(before map[tasker.ID]flowStep, s flowStep, p flowPlace) bool {
	for id, o := range before {
		if o.State == tasker.StepEnqueued && d.steps[id].State == tasker.StepEnqueued && o.weight(p) > 1 && slices.Contains(d.placesOf(o), p) &&
			(o.Priority > s.Priority || o.Priority == s.Priority && !o.StateSince.After(s.StateSince)) {
			return true
		}
	}
	return false
}

// inOrder checks that no step was handed out while a more urgent one with the same places waits. Of claims at once
// each passes over what the other has at the moment.
func (d *flowDriver) inOrder(before map[tasker.ID]flowStep, list []tasker.Assignment) {
	d.Helper()
	for _, a := range list {
		given := before[a.StepUUID]
		for id, s := range before {
			if s.State != tasker.StepEnqueued || d.steps[id].State != tasker.StepEnqueued || s.Namespace != given.Namespace || s.Name != given.Name || s.Key != given.Key || s.Version != given.Version {
				continue
			}
			if s.Priority > given.Priority || s.Priority == given.Priority && s.StateSince.Before(given.StateSince) {
				d.Errorf("step %s (priority %d, since %s) was handed out before %s (priority %d, since %s)", given.StepUUID, given.Priority, given.StateSince, id, s.Priority, s.StateSince)
				return
			}
		}
	}
}

// left checks that a claim that handed out nothing left nothing behind that could begin.
func (d *flowDriver) left(before map[tasker.ID]flowStep, w flowWorker, between [2]time.Time) {
	d.Helper()
	for id, s := range before {
		if s.State != tasker.StepEnqueued || d.steps[id].State != tasker.StepEnqueued || !slices.Contains(w.namespaces, s.Namespace) || !slices.Contains(w.handlers, s.Handler) {
			continue
		}
		blocked := slices.ContainsFunc(d.placesOf(s), func(p flowPlace) bool {
			least, _ := p.limit.room(p.key, d.held(p), between)
			return least < s.weight(p) || d.kept(before, s, p)
		})
		if !blocked {
			d.Errorf("nothing was handed out, and step %s of %s with key %q could begin", s.Name, s.Namespace, s.Key)
			return
		}
	}
}

// end ends some leases of a worker: by success, failure, or by giving steps back.
func (d *flowDriver) end() {
	d.Helper()
	d.read()
	if len(d.leases) == 0 {
		return
	}
	ids := slices.SortedFunc(func(yield func(tasker.ID) bool) {
		for id := range d.leases {
			if !yield(id) {
				return
			}
		}
	}, func(a, b tasker.ID) int { return strings.Compare(a.String(), b.String()) })
	worker := d.leases[ids[d.random.IntN(len(ids))]].worker
	var outcomes []tasker.Outcome
	var back []tasker.Lease
	for _, id := range ids {
		l := d.leases[id]
		if l.worker != worker || d.random.IntN(3) == 0 {
			continue
		}
		switch n := d.random.IntN(10); {
		case n < 7:
			outcomes = append(outcomes, success(l.Assignment, `1`))
		case n < 9:
			outcomes = append(outcomes, failure(l.Assignment, true))
		default:
			back = append(back, l.Lease())
		}
	}
	e := d.engines[d.random.IntN(2)]
	if len(back) > 0 {
		_, lost, err := e.Release(d.Context(), d.workers[worker].id, back)
		d.must(err)
		if len(lost) > 0 {
			d.Errorf("%d leases are lost", len(lost))
		}
	}
	if len(outcomes) > 0 {
		r, err := e.Report(d.Context(), d.workers[worker].id, outcomes, 0)
		d.must(err)
		if len(r.Accepted) != len(outcomes) {
			d.Errorf("the receipt is %+v", r)
		}
	}
	d.say("end", "worker %d: %d reports, %d given back", worker, len(outcomes), len(back))
	d.due()
}

// change sets a limit, or deletes one, or gives a namespace another weight.
func (d *flowDriver) change() {
	d.Helper()
	e, by := d.engines[d.random.IntN(2)], engine.LimitChange{Actor: "ann", Reason: "a test"}
	namespace := []string{"a", "b"}[d.random.IntN(2)]
	ref := []tasker.LimitRef{
		{Kind: tasker.ServerLimit}, {Kind: tasker.NamespaceLimit, Namespace: namespace}, {Kind: tasker.HandlerLimit, Namespace: namespace, Name: []string{"run", "go"}[d.random.IntN(2)]},
		{Kind: tasker.NamedLimit, Namespace: namespace, Name: "customer"}, {Kind: tasker.NamedLimit, Namespace: namespace, Name: "all"}, {Kind: tasker.NamedLimit, Namespace: namespace, Name: "rate"},
	}[d.random.IntN(6)]
	if d.random.IntN(4) == 0 {
		_, err := e.SetNamespaceWeight(d.Context(), namespace, float64(1+d.random.IntN(9))/3, "ann")
		d.must(err)
	}
	if l := d.limits[ref]; l != nil && ref.Kind != tasker.NamedLimit && d.random.IntN(2) == 0 {
		d.say("delete", "%s", ref)
		d.must(e.DeleteLimit(d.Context(), ref, by))
		delete(d.limits, ref)
		d.back() // a loop of servers does it within a second
		return
	}
	var v tasker.LimitValue
	if d.random.IntN(3) > 0 {
		v.MaxInProgress = 1 + d.random.IntN(6)
	}
	if v.MaxInProgress == 0 || d.random.IntN(3) == 0 {
		v.PerSecond, v.Burst = []float64{0.02, 0.1, 1, 3}[d.random.IntN(4)], 1+d.random.IntN(4)
	}
	set, err := e.SetLimit(d.Context(), ref, v, by)
	d.must(err)
	d.say("set", "%s to %+v", ref, set.LimitValue)
	if d.limits[ref] == nil {
		d.limits[ref] = &flowLimit{ref: ref}
	}
	d.limits[ref].value = set.LimitValue
}

func (d *flowDriver) forward(by time.Duration) {
	d.Helper()
	d.say("forward", "by %s", by)
	d.must(d.clock.Forward(d.Context(), by))
	d.due()
}

// due has the engine do what is due, until nothing is.
func (d *flowDriver) due() {
	d.Helper()
	for range 100 {
		look, err := d.dbs[0].DueWork(d.Context(), 0, time.Hour)
		d.must(err)
		did := false
		for _, k := range look.Kinds {
			if k.Due {
				one, err := d.engines[d.random.IntN(2)].Pass(d.Context(), k.Kind)
				d.must(err)
				did = did || one
			}
		}
		if !did {
			return
		}
	}
	d.Error("the engine does not come to rest")
}

func (d *flowDriver) cancel() {
	d.Helper()
	d.read()
	for _, s := range d.steps {
		err := d.engines[0].CancelTask(d.Context(), s.TaskUUID, "ann", "a test")
		if tasker.CodeOf(err) != tasker.Conflict {
			d.must(err)
		}
		d.say("cancel", "%s", s.TaskUUID)
		d.due()
		return
	}
}

// serve has a server begin anew, and do what its loops do for limits.
func (d *flowDriver) serve() {
	d.Helper()
	i := d.random.IntN(2)
	d.engines[i] = newEngine(d.dbs[i], engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}})
	d.say("restart", "%d", i)
	d.back()
	_, err := d.dbs[i].PruneLimitKeys(d.Context(), time.Second, 0, 100)
	d.must(err)
}

// back puts steps back into the queue that need not wait for a limit any more.
func (d *flowDriver) back() {
	d.Helper()
	back, err := d.dbs[d.random.IntN(2)].UnparkLimited(d.Context(), 100, 0)
	d.must(err)
	if len(back.Namespaces) > 0 {
		d.say("back", "%v", back.Namespaces)
	}
}

// compare compares how many places are taken.
func (d *flowDriver) compare() {
	d.Helper()
	d.read()
	list, more, err := d.engines[0].Limits(d.Context(), tasker.LimitFilter{Limit: 100})
	d.must(err)
	if more || len(list) != len(d.limits) {
		d.Errorf("there are %d limits, and the model has %d", len(list), len(d.limits))
	}
	for _, l := range list {
		want := 0
		for _, lease := range d.leases {
			for p, n := range lease.places {
				if p.limit == d.limits[l.LimitRef] {
					want += n
				}
			}
		}
		if int(l.InProgress) != want {
			d.Errorf("limit %s has %d steps in progress, and the model has %d", l.LimitRef, l.InProgress, want)
		}
	}
}

// drain lets everything come to its end: no place is lost, and nothing is left behind.
func (d *flowDriver) drain() {
	d.Helper()
	for range 2000 {
		for i := range d.workers {
			list, err := d.engines[i%2].Claim(d.Context(), d.workers[i].id, 100, 0)
			d.must(err)
			var outcomes []tasker.Outcome
			for _, a := range list {
				outcomes = append(outcomes, success(a, `1`))
			}
			if len(outcomes) > 0 {
				_, err = d.engines[i%2].Report(d.Context(), d.workers[i].id, outcomes, 0)
				d.must(err)
			}
		}
		d.must(d.clock.Forward(d.Context(), 61*time.Second))
		d.due()
		d.read()
		if d.open == 0 {
			d.compare()
			return
		}
	}
	d.Errorf("%d tasks do not come to their end", d.open)
}
