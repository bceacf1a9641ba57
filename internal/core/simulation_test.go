package core

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"tasker.example/tasker"
)

var seeds = flag.Int("seeds", 300, "number of simulated runs")

// simulation runs servers, workers, timers and operators against one task, as they run against a
// database. A server locks and loads the task, and decides and commits later, or dies before or
// after the commit. Others act in between. A claim does not lock the task.
type simulation struct {
	*world
	queue    map[tasker.ID]bool  // steps that claims find
	reported map[tasker.ID]int64 // fence of the last report that counted, by step
	finished map[attempt]bool    // attempts whose report was committed
	servers  []*request
	locked   bool
	held     []attempt // what workers execute or report
	calm     bool      // nothing fails any more
	actions  int
	conflict int // commits that found a step claimed after it was loaded
}

// attempt is a claim of a step.
type attempt struct {
	step  tasker.ID
	fence int64
}

// request is an event on its way through a server.
type request struct {
	name   string
	apply  func(*Change) bool
	needs  func(*Step) bool // which steps are loaded; nil loads all
	loaded *Task            // nil until the server has locked the task
	report *attempt         // nil if no worker waits for the answer
}

var simulated = tasker.ID{1} // the worker

func newSimulation(t *testing.T, r *rand.Rand) *simulation {
	s := &simulation{world: newWorld(t, r), queue: map[tasker.ID]bool{}, reported: map[tasker.ID]int64{}, finished: map[attempt]bool{}}
	for _, x := range s.task.Steps {
		s.queue[x.ID] = x.State == tasker.StepEnqueued
	}
	return s
}

// act lets a random participant act. It reports false if the task has ended.
func (s *simulation) act() bool {
	if n, _ := s.task.Count(); n.Open == 0 {
		return false
	}
	s.actions++
	s.now = s.now.Add(time.Duration(s.r.IntN(8)) * time.Second)
	switch s.r.IntN(7) {
	case 0, 1:
		s.claim()
	case 2:
		s.send()
	case 6:
		s.extend()
	case 3:
		s.fire()
	default:
		s.serve()
	}
	return true
}

// claim lets the worker claim a step from the queue.
func (s *simulation) claim() {
	x := s.task.Steps[s.r.IntN(len(s.task.Steps))]
	if !s.queue[x.ID] {
		return
	}
	delete(s.queue, x.ID)
	if x.State != tasker.StepEnqueued {
		s.fatal("the queue has step %s, which is %s", s.name(x), x.State)
	}
	lease := s.now.Add(30 * time.Second)
	x.State, x.Worker, x.LeaseExpires = tasker.StepInProgress, &simulated, &lease
	x.Fence++
	s.held = append(s.held, attempt{x.ID, x.Fence})
	s.names += " claim:" + s.name(x)
}

// extend lets the worker extend the lease of an attempt, which does not lock the task.
func (s *simulation) extend() {
	if len(s.held) == 0 {
		return
	}
	a := s.held[s.r.IntN(len(s.held))]
	if x := s.task.Find(a.step); x.State == tasker.StepInProgress && x.Fence == a.fence {
		lease := s.now.Add(30 * time.Second)
		x.LeaseExpires = &lease
	}
}

// send lets the worker report an attempt. It keeps the attempt until a server answers, and may report
// it again before.
func (s *simulation) send() {
	if len(s.held) == 0 {
		return
	}
	a := s.held[s.r.IntN(len(s.held))]
	if s.calm && slices.ContainsFunc(s.servers, func(q *request) bool { return q.report != nil && *q.report == a }) {
		return
	}
	o := Outcome{
		TaskUUID: s.task.ID, StepUUID: a.step, From: tasker.StepInProgress, Fence: a.fence, Worker: &simulated,
		Event: Succeed, Body: []byte(`{}`), ResultSize: 2, Digest: []byte{1},
	}
	if failure := uint64(a.fence) + uint64(a.step[0]); !s.calm && failure%4 == 0 { // the same at each repetition
		o.Event, o.Retryable, o.Jitter = Fail, failure%8 == 0, 0.5
	}
	s.request(&request{name: string(o.Event) + ":" + s.called[a.step], report: &a, needs: s.affected(a.step), apply: func(c *Change) bool {
		c.Worker, c.Takes = simulated, func(x *Step) bool { return x.ID[0]%2 == 0 }
		return c.Conclude(o)
	}})
}

// affected selects the steps that an outcome of a step affects.
func (s *simulation) affected(id tasker.ID) func(*Step) bool {
	named := s.task.Find(id)
	return func(x *Step) bool {
		waits := named.Item != nil && x.Item != nil && x.Item.Map == named.Item.Map && x.State == tasker.StepPending
		return x.ID == id || slices.Contains(named.Children, x.ID) || waits
	}
}

// fire sends the event of a timer or of an operator to a server.
func (s *simulation) fire() {
	x := s.task.Steps[s.r.IntN(len(s.task.Steps))]
	ref := tasker.StepRef{TaskUUID: s.task.ID, StepUUID: x.ID}
	conclude := func(e StepEvent) func(*Change) bool {
		o := s.conclusion(x, e)
		return func(c *Change) bool { return c.Conclude(o) }
	}
	switch {
	case !s.calm && s.r.IntN(200) == 0:
		s.request(&request{name: "cancel", apply: func(c *Change) bool { c.Cancel("ann", "not needed", nil); return true }})
	case x.State == tasker.StepEnqueued && !s.calm && s.r.IntN(3) == 0:
		s.request(&request{name: "expire:" + s.name(x), apply: func(c *Change) bool {
			return c.Expire(Queued{StepRef: ref, Deadline: &c.Now, Workers: 1}, 2, time.Minute)
		}})
	case x.State == tasker.StepInProgress && x.LeaseExpires.Before(s.now):
		o := s.conclusion(x, Lose)
		o.Retryable, o.RaiseFence, o.Expired = true, true, true
		s.request(&request{name: "lose:" + s.name(x), needs: s.affected(x.ID), apply: func(c *Change) bool {
			lease := c.Task.Find(x.ID).LeaseExpires
			if !c.Conclude(o) {
				return false
			}
			if lease.After(c.Now) {
				s.fatal("step %s lost a lease that has not expired", s.name(x))
			}
			return true
		}})
	case x.DecideAt != nil && x.Items != nil:
		s.request(&request{name: "join:" + s.name(x), needs: s.affected(x.ID), apply: conclude(JoinItems)})
	case x.DecideAt != nil:
		s.request(&request{name: "decide:" + s.name(x), apply: func(c *Change) bool { return s.decideIn(c, x.ID) }})
	case x.State == tasker.StepPending && (s.waitsFor(x) == "timer" || s.waitsFor(x) == "answer"):
		s.request(&request{name: "answer:" + s.name(x), needs: s.affected(x.ID), apply: conclude(Elapse)})
	case x.State == tasker.StepError && x.AwaitsWorker != nil:
		s.request(&request{name: "redispatch:" + s.name(x), apply: func(c *Change) bool { c.Redispatch([]tasker.StepRef{ref}); return true }})
	case x.State == tasker.StepError && x.RetryAt != nil && s.task.State != tasker.TaskError:
		s.request(&request{name: "retry:" + s.name(x), apply: func(c *Change) bool {
			c.Retry()
			if c.Task.State == tasker.TaskError && len(c.Moved) > 0 {
				s.fatal("a step of a task in error was retried")
			}
			return true
		}})
	case x.State == tasker.StepError:
		o := s.conclusion(x, []StepEvent{Reset, Resolve, CompleteByHand}[s.r.IntN(3)])
		o.RaiseFence = true
		s.request(&request{name: string(o.Event) + ":" + s.name(x), apply: func(c *Change) bool {
			if !c.Conclude(o) {
				return false
			}
			c.Finish()
			c.Continue([]tasker.StepRef{ref})
			return true
		}})
	}
}

// decideIn decides a step as the engine does.
func (s *simulation) decideIn(c *Change, id tasker.ID) bool {
	x := c.Task.Find(id)
	if x.State != tasker.StepPending || x.DecideAt == nil || x.Items != nil {
		return false
	}
	var standings []Standing
	for _, parent := range s.parents[id] {
		p := c.Task.Find(parent)
		standings = append(standings, StandingOf(p.State, p.RetryAt != nil))
	}
	switch v := ApplyJoin(x.Join, standings); {
	case v == VerdictRun && x.Type == tasker.MapStep, v == VerdictSkip:
		return c.Conclude(s.conclusion(x, Skip))
	case v == VerdictRun:
		return c.Run(id, nil)
	default:
		x.DecideAt = nil
		c.touch(x)
		return true
	}
}

func (s *simulation) request(q *request) {
	if len(s.servers) < 8 {
		s.servers = append(s.servers, q)
	}
}

// serve lets a server take the next step with one of its requests, or die.
func (s *simulation) serve() {
	if len(s.servers) == 0 {
		return
	}
	i := s.r.IntN(len(s.servers))
	q := s.servers[i]
	dies := !s.calm && s.r.IntN(10) == 0
	switch {
	case q.loaded == nil && s.locked && !dies:
	case q.loaded == nil && !dies:
		s.locked, q.loaded = true, copyTask(s.task, func(*Step) bool { return true })
	case q.loaded != nil && !s.commit(q, dies):
		q.loaded = nil // it tries again
	default:
		s.servers = slices.Delete(s.servers, i, i+1)
	}
}

// commit decides and stores a request, and answers it. It reports false if a step was claimed after
// it was loaded. A server that dies does so before the commit or before the answer.
func (s *simulation) commit(q *request, dies bool) bool {
	s.locked = false
	if dies && s.r.IntN(2) == 0 {
		s.names += " (died)" + q.name
		return true
	}
	c, accepted := s.decideRequest(q)
	for _, x := range c.Moved {
		state, fence := x.Was()
		if now := s.task.Find(x.ID); now.State != state || now.Fence != fence {
			s.conflict++
			return false
		}
	}
	s.names += " " + q.name
	for _, x := range c.Moved {
		s.store(x)
	}
	for _, x := range c.Touched { // a claim may have changed their state
		now := s.task.Find(x.ID)
		x.State, x.Fence, x.Worker, x.LeaseExpires = now.State, now.Fence, now.Worker, now.LeaseExpires
		*now = *x
	}
	s.made++
	s.checkStored()
	if q.report != nil {
		s.answer(q, c, accepted, dies)
	}
	return true
}

// store replaces a step that has moved.
func (s *simulation) store(x *Step) {
	if x.State == tasker.StepInProgress {
		lease := s.now.Add(30 * time.Second)
		x.LeaseExpires = &lease
	}
	if x.Stored.Reported != nil {
		s.reported[x.ID] = *x.Stored.Reported
	}
	x.Stored = Stored{}
	s.queue[x.ID] = x.State == tasker.StepEnqueued
	*s.task.Find(x.ID) = *x
}

// decideRequest decides a request with the whole task and, if it needs only a part, with that. Both
// must do the same.
func (s *simulation) decideRequest(q *request) (*Change, bool) {
	run := func(t *Task) (*Change, bool) {
		for _, x := range t.Steps {
			x.MarkLoaded()
		}
		c := Begin(t, s.now)
		ok := q.apply(c)
		if ok {
			c.Finish()
		}
		if c.Err() != nil {
			s.fatal("%s: %v", q.name, c.Err())
		}
		if !ok && len(c.Moved)+len(c.Touched)+len(c.Moves) > 0 {
			s.fatal("%s was refused and changed the task", q.name)
		}
		return c, ok
	}
	if q.needs == nil {
		return run(q.loaded)
	}
	part := copyTask(q.loaded, q.needs)
	part.Whole = false
	if named := slices.IndexFunc(part.Steps, func(x *Step) bool { return x.Item != nil }); named >= 0 && part.Find(part.Steps[named].Item.Map) == nil {
		s.fatal("%s: the map step is not a child of its item", q.name)
	}
	whole, accepted := run(q.loaded)
	c, same := run(part)
	if accepted != same || !reflect.DeepEqual(ids(whole.Moved), ids(c.Moved)) || !reflect.DeepEqual(whole.Moves, c.Moves) {
		s.fatal("%s moves %v of a whole task and %v of a part", q.name, whole.Moves, c.Moves)
	}
	return c, accepted
}

func ids(steps []*Step) (list []tasker.ID) {
	for _, x := range steps {
		list = append(list, x.ID)
	}
	return list
}

// answer lets the worker drop an attempt whose report was answered, and execute the steps that it
// took. A report counts once, however often it is sent.
func (s *simulation) answer(q *request, c *Change, accepted, lost bool) {
	if accepted {
		if s.finished[*q.report] {
			s.fatal("the report %+v counted twice", *q.report)
		}
		s.finished[*q.report] = true
	}
	if !accepted && s.reported[q.report.step] == q.report.fence && !s.finished[*q.report] {
		s.fatal("a report of attempt %+v that never counted is called a repetition", *q.report)
	}
	if lost {
		s.names += " (unanswered)"
		return // it reports again; the leases of what it took expire
	}
	s.held = slices.DeleteFunc(s.held, func(a attempt) bool { return a == *q.report })
	for _, x := range c.Moved {
		if was, _ := x.Was(); was != tasker.StepInProgress && s.task.Find(x.ID).State == tasker.StepInProgress {
			s.held = append(s.held, attempt{x.ID, x.Fence})
		}
	}
}

// checkStored checks what holds after each commit: each open step has a row that will move it.
func (s *simulation) checkStored() {
	s.t.Helper()
	n, _ := s.task.Count()
	s.task.State = n.RestingState("")
	for _, x := range s.task.Steps {
		switch {
		case s.home(x) != "ended" && homes[s.home(x)] == nil:
			s.fatal("no row will move step %s, which is %s: %+v", s.name(x), x.State, x)
		case s.queue[x.ID] != (x.State == tasker.StepEnqueued):
			s.fatal("step %s is %s; the queue has it: %v", s.name(x), x.State, s.queue[x.ID])
		case (x.LeaseExpires != nil) != (x.State == tasker.StepInProgress):
			s.fatal("step %s is %s with a lease until %v", s.name(x), x.State, x.LeaseExpires)
		case x.Items == nil && x.Item == nil && x.OpenParents != s.openParents(x):
			s.fatal("step %s has %d open parents, not %d", s.name(x), s.openParents(x), x.OpenParents)
		case x.Items != nil:
			s.checkItems(x)
		}
	}
}

// Servers die, answers are lost and reports are repeated. Each report counts once, every open step has
// a row that will move it, and the task ends once the failures stop.
func TestSimulatedServersLoseNothing(t *testing.T) {
	t.Parallel()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	begun, made, conflicts := time.Now(), 0, 0
	for n := range *seeds {
		s := newSimulation(t, rand.New(rand.NewPCG(from, uint64(n))))
		s.names = fmt.Sprintf(" (seed %d, run %d)", from, n)
		for range s.r.IntN(300) {
			if !s.act() {
				break
			}
		}
		s.calm, s.actions = true, 0
		for s.act() {
			if s.actions > 100_000 {
				s.fatal("the task does not end: %+v", s.task)
			}
			if len(s.names) > 4000 {
				s.names = s.names[len(s.names)-2000:]
			}
		}
		made, conflicts = made+s.made, conflicts+s.conflict
	}
	if *seeds >= 100 && conflicts == 0 {
		t.Error("no step was claimed between load and commit: the simulation shows too little")
	}
	t.Logf("%d runs, %d decisions, %d conflicts, %.0f decisions per second, seed %d", *seeds, made, conflicts, float64(made)/time.Since(begun).Seconds(), from)
}
