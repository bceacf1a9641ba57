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

var (
	seed  = flag.Uint64("seed", 0, "seed of the random tasks; 0 selects one")
	tasks = flag.Int("tasks", 1000, "number of random tasks")
)

// world simulates a task: workers, people and timers cause events, and the state is checked after each.
type world struct {
	t     *testing.T
	r     *rand.Rand
	task  *Task
	now   time.Time
	names string // of the events so far
	made  int    // decisions

	called  map[tasker.ID]string
	parents map[tasker.ID][]tasker.ID
}

func (w *world) name(s *Step) string { return w.called[s.ID] }

func newWorld(t *testing.T, r *rand.Rand) *world {
	w := &world{t: t, r: r, called: map[tasker.ID]string{}, parents: map[tasker.ID][]tasker.ID{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.task = &Task{ID: w.newID(), State: tasker.TaskStepsInProcess, Whole: true}
	for n := range 1 + r.IntN(9) {
		w.addStep(n)
	}
	slices.SortFunc(w.task.Steps, func(a, b *Step) int { return slices.Compare(a.ID[:], b.ID[:]) })
	w.apply("start", func(c *Change) {
		for _, s := range w.task.Steps {
			if s.Item == nil && s.OpenParents == 0 {
				c.advance(s)
			}
		}
	})
	return w
}

func (w *world) newID() (id tasker.ID) {
	for i := range id {
		id[i] = byte(w.r.UintN(256))
	}
	return id
}

func (w *world) addStep(n int) {
	r := w.r
	s := &Step{
		ID: w.newID(), State: tasker.StepPending, InputBytes: new(int64),
		Type:  []tasker.StepType{tasker.StandardStep, tasker.StandardStep, tasker.StandardStep, tasker.ExternalStep, tasker.WaitStep, tasker.MapStep}[r.IntN(6)],
		Retry: tasker.Retry{Retryable: r.IntN(4) > 0, MaxAttempts: 1 + r.IntN(3), Backoff: tasker.ExponentialBackoff, BaseMS: 1000, MaxBackoffMS: 30_000},
	}
	w.called[s.ID] = fmt.Sprint("s", n)
	if s.Type == tasker.WaitStep {
		s.Timeout = time.Minute
	}
	for _, p := range w.task.Steps {
		if p.Item == nil && r.IntN(3) == 0 {
			w.parents[s.ID], p.Children = append(w.parents[s.ID], p.ID), append(p.Children, s.ID)
		}
	}
	s.OpenParents = len(w.parents[s.ID])
	if s.Type == tasker.MapStep || r.IntN(3) == 0 {
		s.Join = []tasker.Join{tasker.JoinAll, tasker.JoinAny, tasker.JoinNoneFailed}[r.IntN(3)]
	}
	w.task.Steps = append(w.task.Steps, s)
}

// apply applies an event and checks the state that it leaves.
func (w *world) apply(name string, do func(*Change)) *Change {
	w.names += " " + name
	for _, s := range w.task.Steps {
		s.MarkLoaded()
		s.Stored = Stored{}
	}
	c := Begin(w.task, w.now)
	do(c)
	c.Finish()
	w.made++
	w.check(c)
	return c
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after%s: "+format, append([]any{w.names}, args...)...)
}

// check checks what holds after each event.
func (w *world) check(c *Change) {
	w.t.Helper()
	if err := c.Err(); err != nil {
		w.fatal("%v", err)
	}
	n, known := w.task.Count()
	if !known {
		w.fatal("a task that was loaded whole is not counted")
	}
	w.task.State = n.RestingState(w.task.Phase)
	for _, s := range w.task.Steps {
		if home := w.home(s); home == "" {
			w.fatal("nothing will move step %s, which is %s: %+v", w.name(s), s.State, s)
		}
		if s.Items == nil && s.Item == nil && s.OpenParents != w.openParents(s) {
			w.fatal("step %s has %d open parents, not %d", w.name(s), w.openParents(s), s.OpenParents)
		}
		if s.Items != nil {
			w.checkItems(s)
		}
	}
	w.checkMoves(c)
}

// checkMoves checks that the moves of each step are a legal path from its old to its new state.
func (w *world) checkMoves(c *Change) {
	w.t.Helper()
	at := map[tasker.ID]tasker.StepState{}
	for _, s := range w.task.Steps {
		at[s.ID], _ = s.Was()
	}
	for _, m := range c.Moves {
		if to, err := StepMoves.Next(at[m.Step], m.Event); err != nil || to != m.To || at[m.Step] != m.From {
			w.fatal("illegal move %+v from %s (%v)", m, at[m.Step], err)
		}
		at[m.Step] = m.To
	}
	for _, s := range w.task.Steps {
		was, _ := s.Was()
		if at[s.ID] != s.State && (at[s.ID] != tasker.StepPending || s.State != tasker.StepEnqueued) {
			w.fatal("the moves of step %s end in %s, but it is %s", w.name(s), at[s.ID], s.State)
		}
		if moved := slices.Contains(c.Moved, s); moved != (s.State != was) && !slices.ContainsFunc(c.Moves, func(m Move) bool { return m.Step == s.ID }) {
			w.fatal("step %s was %s and is %s, but moved is %v", w.name(s), was, s.State, moved)
		}
	}
}

func (w *world) openParents(s *Step) (n int) {
	for _, id := range w.parents[s.ID] {
		if !w.task.Find(id).State.Done() {
			n++
		}
	}
	return n
}

func (w *world) checkItems(m *Step) {
	w.t.Helper()
	open, held, waiting := 0, 0, 0
	for _, s := range w.task.Steps {
		if s.Item == nil || s.Item.Map != m.ID {
			continue
		}
		if !s.State.Done() {
			open++
		}
		if s.holdsSlot() {
			held++
		}
		if s.State == tasker.StepPending {
			waiting++
		}
	}
	if open != m.OpenParents && m.State == tasker.StepPending {
		w.fatal("map step %s has %d open items, not %d", w.name(m), open, m.OpenParents)
	}
	if l := m.Items.Limit; l != nil && m.State == tasker.StepPending && (held > *l || held < *l && waiting > 0) {
		w.fatal("map step %s has %d items in progress and %d that wait: the limit is %d", w.name(m), held, waiting, *l)
	}
}

// home names what will move a step; it is empty if nothing will.
func (w *world) home(s *Step) string {
	switch s.State {
	case tasker.StepEnqueued:
		return "queue"
	case tasker.StepInProgress:
		return "lease"
	case tasker.StepEnqueuedForOrchestration:
		return "kept report"
	case tasker.StepError:
		switch {
		case s.RetryAt != nil:
			return "retry timer"
		case s.AwaitsWorker != nil:
			return "worker"
		default:
			return "operator"
		}
	case tasker.StepPending:
		return w.waitsFor(s)
	default:
		return "ended"
	}
}

func (w *world) waitsFor(s *Step) string {
	switch {
	case s.DecideAt != nil:
		return "decision"
	case s.Items != nil && s.OpenParents > 0:
		return "items"
	case s.Item != nil:
		return "slot"
	case s.OpenParents > 0 && s.Items == nil:
		return "parents"
	case s.WaitUntil != nil:
		return "timer"
	case s.Type == tasker.ExternalStep || s.Type == tasker.WaitStep:
		return "answer"
	case s.Join != "" && s.DecidedAt == nil:
		return "parents" // the decision was put off because a parent has failed
	default:
		return ""
	}
}

// step causes a random event that the state allows. It reports false if the task has come to an end.
func (w *world) step() bool {
	if n, _ := w.task.Count(); n.Open == 0 {
		return false
	}
	w.now = w.now.Add(time.Duration(w.r.IntN(20)) * time.Second)
	s := w.task.Steps[w.r.IntN(len(w.task.Steps))]
	if w.r.IntN(50) == 0 {
		w.changeVersion()
		return true
	}
	switch s.State {
	case tasker.StepEnqueued:
		if w.r.IntN(5) == 0 {
			w.expire(s)
			break
		}
		s.State, s.Worker, s.LeaseExpires = tasker.StepInProgress, &tasker.ID{1}, &w.now
		s.Fence++
		w.names += " claim:" + w.name(s)
	case tasker.StepInProgress:
		if w.r.IntN(10) == 0 { // its worker releases it
			s.State, s.Worker, s.LeaseExpires = tasker.StepEnqueued, nil, nil
			s.Fence++
			w.names += " release:" + w.name(s)
			break
		}
		w.report(s)
	case tasker.StepPending:
		w.wake(s)
	case tasker.StepError:
		w.repair(s)
	default: // nothing happens to a step that has ended
	}
	return true
}

func (w *world) report(s *Step) {
	o := Outcome{StepUUID: s.ID, From: s.State, Fence: s.Fence, Worker: s.Worker, Event: Succeed, Body: []byte(`{}`), ResultSize: 2, Digest: []byte{1}}
	switch w.r.IntN(5) {
	case 0:
		o.Event, o.Retryable, o.Jitter = Fail, w.r.IntN(3) > 0, w.r.Float64()
	case 1:
		o.Event, o.Retryable, o.Worker, o.Digest, o.RaiseFence, o.Expired = Lose, true, nil, nil, true, true
	}
	w.refuseOutdated(s, o)
	w.compareParts(s, o)
	c := w.apply(string(o.Event)+":"+w.name(s), func(c *Change) {
		if !c.Conclude(o) {
			w.fatal("the outcome %+v of step %+v was refused", o, s)
		}
	})
	if c.Conclude(o) {
		w.fatal("the same outcome of step %s was applied twice", w.name(s))
	}
	if s.Item != nil && s.State == tasker.StepError {
		w.tolerate(s)
	}
}

// refuseOutdated checks that outcomes of another attempt or worker change nothing.
func (w *world) refuseOutdated(s *Step, o Outcome) {
	w.t.Helper()
	for name, change := range map[string]func(*Outcome){
		"another fence":  func(o *Outcome) { o.Fence-- },
		"another state":  func(o *Outcome) { o.From = tasker.StepEnqueued },
		"another worker": func(o *Outcome) { o.Worker = &tasker.ID{9} },
		"another step":   func(o *Outcome) { o.StepUUID = tasker.ID{9} },
	} {
		outdated, before := o, *s
		change(&outdated)
		c := Begin(w.task, w.now)
		if c.Conclude(outdated) || len(c.Moved)+len(c.Touched)+len(c.Moves) > 0 || !reflect.DeepEqual(before, *s) {
			w.fatal("an outcome with %s changed step %s", name, w.name(s))
		}
	}
}

// compareParts checks that an outcome does the same if only the steps are loaded that it affects.
func (w *world) compareParts(s *Step, o Outcome) {
	w.t.Helper()
	whole := copyTask(w.task, func(*Step) bool { return true })
	part := copyTask(w.task, func(x *Step) bool {
		waits := s.Item != nil && x.Item != nil && x.Item.Map == s.Item.Map && x.State == tasker.StepPending
		return x.ID == s.ID || slices.Contains(s.Children, x.ID) || waits
	})
	all, _ := w.task.Count()
	part.Whole, part.Others = false, new(Counts)
	*part.Others = all.Without(part.Steps)
	for _, t := range []*Task{whole, part} {
		c := Begin(t, w.now)
		if !c.Conclude(o) {
			w.fatal("the outcome %+v was refused", o)
		}
		if c.Finish(); c.Err() != nil {
			w.fatal("%v", c.Err())
		}
	}
	for _, got := range part.Steps {
		if want := whole.Find(got.ID); !reflect.DeepEqual(got, want) {
			w.fatal("loaded with some others, step %s became %+v, not %+v", w.name(got), got, want)
		}
	}
	want, _ := whole.Count()
	if got, known := part.Count(); known && got.RestingState("") != want.RestingState("") {
		w.fatal("loaded with some others, the steps are counted as %+v, not %+v", got, want)
	}
	for _, want := range whole.Steps {
		if part.Find(want.ID) == nil && !reflect.DeepEqual(want, w.task.Find(want.ID)) {
			w.fatal("step %s was changed, but is not among those that an outcome of step %s affects", w.name(want), w.name(s))
		}
	}
}

func copyTask(t *Task, which func(*Step) bool) *Task {
	out := *t
	out.Steps = nil
	for _, s := range t.Steps {
		if !which(s) {
			continue
		}
		c := *s
		if s.Items != nil {
			items := *s.Items
			c.Items = &items
		}
		out.Steps = append(out.Steps, &c)
	}
	return &out
}

func (w *world) wake(s *Step) {
	switch {
	case s.DecideAt != nil && s.Items != nil:
		w.apply("join:"+w.name(s), func(c *Change) { c.Conclude(w.conclusion(s, JoinItems)) })
	case s.DecideAt != nil:
		w.decide(s)
	case s.WaitUntil != nil, s.Type == tasker.ExternalStep && s.OpenParents == 0 && (s.Join == "" || s.DecidedAt != nil):
		w.apply("answer:"+w.name(s), func(c *Change) { c.Conclude(w.conclusion(s, Elapse)) })
	}
}

func (w *world) conclusion(s *Step, e StepEvent) Outcome {
	return Outcome{StepUUID: s.ID, From: s.State, Fence: s.Fence, Event: e, Body: []byte(`{}`), ResultSize: 2, Reason: "r"}
}

func (w *world) decide(s *Step) {
	var standings []Standing
	for _, id := range w.parents[s.ID] {
		p := w.task.Find(id)
		standings = append(standings, StandingOf(p.State, p.RetryAt != nil))
	}
	switch v := ApplyJoin(s.Join, standings); {
	case v == VerdictRun && s.Type == tasker.MapStep:
		w.expand(s)
	case v == VerdictSkip:
		w.apply("skip:"+w.name(s), func(c *Change) { c.Conclude(w.conclusion(s, Skip)) })
	case v == VerdictRun:
		w.apply("run:"+w.name(s), func(c *Change) {
			if !c.Run(s.ID, nil) || c.Run(s.ID, nil) {
				w.fatal("step %s did not run once", w.name(s))
			}
		})
	default:
		w.apply("postpone:"+w.name(s), func(*Change) { s.DecideAt = nil })
	}
}

// expand gives a map step its items.
func (w *world) expand(m *Step) {
	items := make([]*Step, 1+w.r.IntN(6))
	for i := range items {
		items[i] = &Step{ID: w.newID(), InputBytes: new(int64)}
		w.called[items[i].ID] = fmt.Sprint(w.name(m), "[", i, "]")
	}
	var limit *int
	if n := w.r.IntN(4); n > 0 {
		limit = &n
	}
	w.apply("expand:"+w.name(m), func(c *Change) {
		if !c.Expand(m.ID, items, limit) || c.Expand(m.ID, items, limit) {
			w.fatal("step %s did not get its items once", w.name(m))
		}
	})
}

// tolerate skips a failed item if its map step tolerates that.
func (w *world) tolerate(s *Step) {
	left := w.r.IntN(2)
	t := Tolerance{Map: tasker.StepRef{TaskUUID: w.task.ID, StepUUID: s.Item.Map}, Left: left}
	failed := s.FailedForGood() && !s.Unclaimed && w.task.Find(s.Item.Map).State == tasker.StepPending
	w.apply("tolerate:"+w.name(s), func(c *Change) {
		skipped := c.Tolerate(t, []tasker.StepRef{{TaskUUID: w.task.ID, StepUUID: s.ID}})
		if want := failed && left > 0; (len(skipped) == 1) != want || (s.State == tasker.StepSkipped) != want {
			w.fatal("%d items were skipped: item %s is %s", len(skipped), w.name(s), s.State)
		}
	})
}

// expire lets the time of an enqueued step pass without a claim.
func (w *world) expire(s *Step) {
	later, attempts, expiries := w.now.Add(time.Second), s.Attempts, s.QueueExpiries
	q := Queued{StepRef: tasker.StepRef{TaskUUID: w.task.ID, StepUUID: s.ID}, Deadline: &later, Workers: w.r.Int64N(2)}
	before := *s
	if c := Begin(w.task, w.now); c.Expire(q, 2, time.Minute) || len(c.Moved)+len(c.Touched)+len(c.Moves) > 0 || !reflect.DeepEqual(before, *s) {
		w.fatal("step %s has expired too early", w.name(s))
	}
	if q.Deserted = w.r.IntN(2) == 0; !q.Deserted {
		q.Deadline = &w.now
	}
	w.apply("expire:"+w.name(s), func(c *Change) {
		if !c.Expire(q, 2, time.Minute) || c.Expire(q, 2, time.Minute) {
			w.fatal("step %s did not expire once", w.name(s))
		}
	})
	if s.Attempts != attempts-1 || s.QueueExpiries != expiries+int(q.Workers) || (s.AwaitsWorker != nil) != (q.Workers == 0 || s.QueueExpiries < 2) {
		w.fatal("step %s had %d attempts and %d expiries before it expired: %+v", w.name(s), attempts, expiries, s)
	}
}

func (w *world) repair(s *Step) {
	if s.AwaitsWorker != nil && w.r.IntN(2) == 0 {
		w.apply("redispatch:"+w.name(s), func(c *Change) {
			c.Redispatch([]tasker.StepRef{{TaskUUID: w.task.ID, StepUUID: s.ID}})
		})
		return
	}
	if s.RetryAt != nil {
		late := s.RetryAt.After(w.now)
		state := w.task.State
		w.apply("retry:"+w.name(s), func(c *Change) { c.Retry() })
		if enqueued := s.State == tasker.StepEnqueued; enqueued == (late || state == tasker.TaskError) {
			w.fatal("step %s is %s; its backoff is over: %v; its task was %s", w.name(s), s.State, !late, state)
		}
		return
	}
	o := w.conclusion(s, []StepEvent{Reset, Resolve, CompleteByHand}[w.r.IntN(3)])
	o.RaiseFence = true
	fence := s.Fence
	w.apply(string(o.Event)+":"+w.name(s), func(c *Change) {
		c.Conclude(o)
		c.Finish()
		c.Continue([]tasker.StepRef{{TaskUUID: w.task.ID, StepUUID: s.ID}})
	})
	if s.Fence != fence+1 {
		w.fatal("the repair of step %s left the fence %d", w.name(s), s.Fence)
	}
}

// changeVersion adds a step that the task has in another version, and lets the task continue.
func (w *world) changeVersion() {
	if len(w.task.Steps) > 20 || w.task.Phase != "" {
		return
	}
	added := &Step{ID: w.newID(), Type: tasker.StandardStep, State: tasker.StepPending, InputBytes: new(int64), Retry: tasker.Retry{MaxAttempts: 1}}
	w.called[added.ID] = fmt.Sprint("s", len(w.task.Steps))
	for _, p := range w.task.Steps {
		if p.Item == nil && w.r.IntN(3) == 0 {
			w.parents[added.ID], p.Children = append(w.parents[added.ID], p.ID), append(p.Children, added.ID)
		}
	}
	added.OpenParents = w.openParents(added)
	w.task.add([]*Step{added})
	before := copyTask(w.task, func(s *Step) bool { return s != added })
	w.apply("change version", func(c *Change) { c.Resume() })
	if begun := added.State == tasker.StepEnqueued; begun != (added.OpenParents == 0) {
		w.fatal("the new step has %d open parents and is %s", added.OpenParents, added.State)
	}
	for _, was := range before.Steps {
		if s := w.task.Find(was.ID); s.State != was.State || s.Attempts != was.Attempts || s.Items != nil && s.Items.Free != was.Items.Free {
			w.fatal("the change of version changed step %s from %+v to %+v", w.name(s), was, s)
		}
	}
}

// compensate undoes the complete steps of the task.
func (w *world) compensate() {
	var chain []*Step
	open := 0
	for _, s := range w.task.Steps {
		if !s.State.Done() {
			open++
		}
		if s.State != tasker.StepComplete {
			continue
		}
		undo := &Step{ID: w.newID(), Type: tasker.StandardStep, InputBytes: new(int64), Retry: s.Retry}
		w.called[undo.ID], w.parents[undo.ID] = "undo:"+w.name(s), []tasker.ID{s.ID}
		if last := len(chain) - 1; last >= 0 {
			w.parents[undo.ID], chain[last].Children = append(w.parents[undo.ID], chain[last].ID), []tasker.ID{undo.ID}
		}
		chain = append(chain, undo)
	}
	if len(chain) == 0 || open == 0 {
		return
	}
	w.apply("compensate", func(c *Change) { c.Compensate(chain, "ann", "undo it", nil) })
	for i := range chain {
		if waits := chain[i].State == tasker.StepPending; waits != (i > 0) {
			w.fatal("compensation step %d is %s", i, chain[i].State)
		}
	}
	for steps := 0; w.step(); steps++ {
		if steps > 20_000 {
			w.fatal("the compensation does not end: %+v", w.task)
		}
	}
	if w.task.State != tasker.TaskCancelled {
		w.fatal("the task was compensated and is %s", w.task.State)
	}
}

// Workers, timers and operators lead every task to its end, and no step is ever without anything that
// will move it.
func TestRandomTasksComeToTheirEnd(t *testing.T) {
	t.Parallel()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	begun, made := time.Now(), 0
	for n := range *tasks {
		w := newWorld(t, rand.New(rand.NewPCG(from, uint64(n))))
		w.names = fmt.Sprintf(" (seed %d, task %d)", from, n)
		steps := 0
		for w.step() {
			if steps++; steps > 20_000 {
				w.fatal("the task does not end: %+v", w.task)
			}
			if len(w.names) > 3000 {
				w.names = w.names[len(w.names)-2000:]
			}
		}
		made += w.made
		if n%3 == 0 {
			continue
		}
		w = newWorld(t, rand.New(rand.NewPCG(from, uint64(n))))
		for range w.r.IntN(30) {
			w.step()
		}
		if n%3 == 1 {
			w.compensate()
			continue
		}
		w.apply("cancel", func(c *Change) { c.Cancel("ann", "not needed", nil) })
		if n, _ := w.task.Count(); n.Open > 0 {
			w.fatal("%d steps are open after the task was cancelled", n.Open)
		}
	}
	t.Logf("%d decisions, %.0f per second, seed %d", made, float64(made)/time.Since(begun).Seconds(), from)
}
