package dlq_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// The plain model of the rules: what a task, its steps and its investigations are
// after each event. It knows nothing of SQL, locks or indexes. It is written from
// docs/internals/specification.md and docs/reference/states.md, not from the code.

// Times of the model's world.
const (
	modelLease    = 5 * time.Minute
	modelRetry    = 10 * time.Minute // the rest of a step that failed
	modelStale    = 30 * time.Minute // steps in process, waiting for a retry
	modelWaiting  = time.Hour        // for dependencies
	modelRecovery = time.Hour        // a task in error that nobody looks into
)

type modelStep struct {
	id       tasker.ID
	name     string
	external bool
	parents  []int
	most     int // attempts

	state    tasker.StepState
	attempts int
	retryAt  time.Duration // of an error: when it is tried again; 0 never
	leaseEnd time.Duration
	fence    int // goes up with each claim, and whenever the step is taken away
}

type modelEntry struct {
	reason    tasker.Reason
	detail    string
	status    tasker.ResolutionStatus
	recovered bool
	during    []modelFailure // for good, while it was open
}

type modelFailure struct {
	step   int
	detail string
}

type modelTask struct {
	id      tasker.ID
	steps   []*modelStep
	state   tasker.TaskState
	since   time.Duration
	resting time.Duration // how long it may stand in its state
	attend  time.Duration // when it must be looked into if it is in error and nobody does; 0 not
	entries []*modelEntry
}

// model is the world.
type model struct {
	now   time.Duration // since the beginning
	tasks []*modelTask
}

var modelShapes = map[string][]modelStep{
	"fork": { // two roots and their child
		{name: "a", most: 2}, {name: "b", most: 1}, {name: "c", most: 1, parents: []int{0, 1}},
	},
	"asks": { // an answer from outside, then two in a row
		{name: "a", external: true, most: 1}, {name: "b", most: 2, parents: []int{0}}, {name: "c", most: 1, parents: []int{1}},
	},
	"single": {{name: "a", most: 3}},
}

func (m *model) create(id tasker.ID, shape string) *modelTask {
	t := &modelTask{id: id, since: m.now}
	for _, s := range modelShapes[shape] {
		s.state = tasker.StepPending
		t.steps = append(t.steps, &s)
	}
	m.tasks = append(m.tasks, t)
	m.enqueueReady(t)
	t.state = t.rests()
	t.resting = m.threshold(t)
	return t
}

func done(s *modelStep) bool {
	return s.state == tasker.StepComplete || s.state == tasker.StepResolvedManually
}

func (t *modelTask) ready(s *modelStep) bool {
	return !slices.ContainsFunc(s.parents, func(p int) bool { return !done(t.steps[p]) })
}

func (m *model) enqueueReady(t *modelTask) {
	for _, s := range t.steps {
		if s.state == tasker.StepPending && !s.external && t.ready(s) {
			s.state = tasker.StepEnqueued
			s.attempts++
		}
	}
}

// rests is where a task stands, by where its steps stand.
func (t *modelTask) rests() tasker.TaskState {
	count := func(is func(*modelStep) bool) (n int) {
		for _, s := range t.steps {
			if is(s) {
				n++
			}
		}
		return n
	}
	switch {
	case count(done) == len(t.steps):
		return tasker.TaskComplete
	case count(func(s *modelStep) bool { return s.state == tasker.StepEnqueued || s.state == tasker.StepInProgress }) > 0:
		return tasker.TaskStepsInProcess
	case count(func(s *modelStep) bool { return s.retryAt > 0 }) > 0:
		return tasker.TaskWaitingForRetry
	case count(func(s *modelStep) bool { return s.state == tasker.StepError }) > 0:
		return tasker.TaskError
	default:
		return tasker.TaskWaitingForDependencies
	}
}

func (t *modelTask) ended() bool {
	return t.state == tasker.TaskComplete || t.state == tasker.TaskCancelled
}

func (t *modelTask) open() *modelEntry {
	for _, e := range t.entries {
		if e.status == tasker.EntryPending {
			return e
		}
	}
	return nil
}

func (t *modelTask) writtenOff() bool {
	return slices.ContainsFunc(t.entries, func(e *modelEntry) bool { return e.status == tasker.EntryPermanentlyFailed })
}

// settle brings a task to rest after its steps have changed.
func (m *model) settle(t *modelTask, operator bool) {
	to := t.rests()
	if t.ended() {
		return
	}
	if t.state == tasker.TaskError && (to == tasker.TaskError || to == tasker.TaskWaitingForRetry && !operator) {
		// What is dead-lettered is not retried by itself; but it is not forgotten.
		if t.attend == 0 && t.open() == nil && !t.writtenOff() {
			t.attend = m.now + modelRecovery
		}
		return
	}
	if to == t.state && to != tasker.TaskStepsInProcess && to != tasker.TaskWaitingForRetry {
		return
	}
	if e := t.open(); t.state == tasker.TaskError && to != tasker.TaskError && !operator && e != nil && e.reason == tasker.StalenessTimeout {
		e.recovered = true
	}
	if to != t.state {
		t.attend = 0
		if e := t.open(); e != nil && to == tasker.TaskError {
			e.recovered = false
		}
		if to == tasker.TaskError && t.open() == nil {
			t.attend = m.now + modelRecovery
		}
	}
	t.state, t.since, t.resting = to, m.now, m.threshold(t)
}

// threshold is how long a task may stand where it rests.
func (m *model) threshold(t *modelTask) time.Duration {
	switch t.rests() {
	case tasker.TaskStepsInProcess:
		return modelStale
	case tasker.TaskWaitingForRetry:
		var next time.Duration
		for _, s := range t.steps {
			if s.retryAt > 0 && (next == 0 || s.retryAt < next) {
				next = s.retryAt
			}
		}
		extra := time.Minute // a rest beyond a minute counts, as a power of two of minutes
		for extra < next-m.now {
			extra *= 2
		}
		if next-m.now <= time.Minute {
			extra = 0
		}
		return modelStale + extra
	case tasker.TaskWaitingForDependencies:
		return modelWaiting
	default:
		return 0
	}
}

// The weights of the reasons.
var modelWeight = map[tasker.Reason]int{tasker.ManualDLQ: 1, tasker.StalenessTimeout: 2, tasker.MaxRetriesExceeded: 3}

// stuck opens an investigation, or notes in the open one what has failed now; a
// weightier reason becomes that of the open one.
func (m *model) stuck(t *modelTask, reason tasker.Reason, detail string, step int) {
	t.attend = 0
	if e := t.open(); e != nil {
		e.recovered = false
		if step >= 0 {
			e.during = append(e.during, modelFailure{step, detail})
		}
		if modelWeight[reason] > modelWeight[e.reason] {
			e.reason, e.detail = reason, detail
		}
		return
	}
	t.entries = append(t.entries, &modelEntry{reason: reason, detail: detail, status: tasker.EntryPending})
}

// fail ends an attempt, and says whether another follows.
func (m *model) fail(t *modelTask, i int, retryable bool, detail string) {
	s := t.steps[i]
	s.state, s.leaseEnd = tasker.StepError, 0
	if retryable && s.attempts < s.most {
		s.retryAt = m.now + modelRetry
	}
	final := s.retryAt == 0
	m.settle(t, false)
	if final && !t.ended() {
		m.stuck(t, tasker.MaxRetriesExceeded, detail, i)
	}
}

func (m *model) succeed(t *modelTask, i int) {
	t.steps[i].state, t.steps[i].leaseEnd = tasker.StepComplete, 0
	m.enqueueReady(t)
	m.settle(t, false)
}

// tick does what is due by the clock: retries, then leases that ran out.
func (m *model) tick() {
	for _, t := range m.tasks {
		due := false
		for _, s := range t.steps {
			if s.retryAt > 0 && s.retryAt <= m.now && t.state != tasker.TaskError && !t.ended() {
				s.state, s.retryAt, due = tasker.StepEnqueued, 0, true
				s.attempts++
			}
		}
		if due {
			m.settle(t, false)
		}
	}
	for _, t := range m.tasks {
		m.reclaim(t)
	}
}

func (m *model) reclaim(t *modelTask) {
	var failed []int
	lost := false
	for i, s := range t.steps {
		if s.state != tasker.StepInProgress || s.leaseEnd > m.now {
			continue
		}
		lost = true
		s.state, s.leaseEnd = tasker.StepError, 0
		s.fence++
		if s.attempts < s.most {
			s.retryAt = m.now + modelRetry
		} else {
			failed = append(failed, i)
		}
	}
	if !lost {
		return
	}
	m.settle(t, false)
	for _, i := range failed {
		m.stuck(t, tasker.MaxRetriesExceeded, tasker.WorkerLost, i)
	}
}

// sweep finds what only time shows, and returns how many tasks it moved.
func (m *model) sweep() int {
	moved := 0
	for _, t := range m.tasks {
		e := t.open()
		watched := t.state == tasker.TaskStepsInProcess || t.state == tasker.TaskWaitingForRetry || t.state == tasker.TaskWaitingForDependencies
		switch {
		case watched && m.now >= t.since+t.resting && (e == nil || e.recovered):
			was := t.state
			t.state, t.since = tasker.TaskError, m.now
			m.stuck(t, tasker.StalenessTimeout, string(was), -1)
			moved++
		case t.attend > 0 && m.now >= t.attend:
			reason := tasker.StalenessTimeout
			if slices.ContainsFunc(t.steps, func(s *modelStep) bool { return s.state == tasker.StepError && s.retryAt == 0 }) {
				reason = tasker.MaxRetriesExceeded
			}
			m.stuck(t, reason, tasker.UnrecoveredError, -1)
			moved++
		}
	}
	return moved
}

// operate does what an operator says to a step; false when it may not be done.
func (m *model) operate(t *modelTask, i int, action tasker.StepAction, interrupt bool) bool {
	s := t.steps[i]
	held := s.state == tasker.StepEnqueued || s.state == tasker.StepInProgress
	possible := map[tasker.StepAction][]tasker.StepState{
		tasker.ResetForRetry:    {tasker.StepError, tasker.StepInProgress},
		tasker.ResolveManually:  {tasker.StepPending, tasker.StepEnqueued, tasker.StepInProgress, tasker.StepError},
		tasker.CompleteManually: {tasker.StepPending, tasker.StepEnqueued, tasker.StepInProgress, tasker.StepError},
	}
	if t.ended() || t.writtenOff() || !slices.Contains(possible[action], s.state) || held && !interrupt {
		return false
	}
	s.fence++
	s.retryAt, s.leaseEnd = 0, 0
	switch action {
	case tasker.ResetForRetry:
		s.state, s.attempts = tasker.StepPending, 0
	case tasker.ResolveManually:
		s.state = tasker.StepResolvedManually
	case tasker.CompleteManually:
		s.state = tasker.StepComplete
	}
	m.enqueueReady(t)
	m.settle(t, true)
	return true
}

// answer completes an external step from outside; false when it may not be done.
func (m *model) answer(t *modelTask, i int, success bool) bool {
	s := t.steps[i]
	if !s.external || t.ended() || t.writtenOff() || s.state != tasker.StepPending || !t.ready(s) {
		return false
	}
	if success {
		m.succeed(t, i)
	} else {
		m.fail(t, i, false, tasker.ExternalFailure)
	}
	return true
}

func (m *model) cancel(t *modelTask) bool {
	if t.state == tasker.TaskComplete {
		return false
	}
	t.state, t.attend = tasker.TaskCancelled, 0
	for _, s := range t.steps {
		if !done(s) {
			s.state, s.retryAt, s.leaseEnd = tasker.StepCancelled, 0, 0
			s.fence++
		}
	}
	return true
}

// end ends the open investigation of a task; false when it may not be done.
func (m *model) end(t *modelTask, status tasker.ResolutionStatus) bool {
	e := t.open()
	if e == nil {
		return false
	}
	if status == tasker.EntryPermanentlyFailed {
		held := slices.ContainsFunc(t.steps, func(s *modelStep) bool { return s.state == tasker.StepEnqueued || s.state == tasker.StepInProgress })
		if t.state != tasker.TaskCancelled && (t.state != tasker.TaskError || held) {
			return false
		}
	}
	e.status = status
	if status == tasker.EntryPermanentlyFailed {
		return true
	}
	if t.state == tasker.TaskError && t.attend == 0 && (status == tasker.EntryManuallyResolved || e.reason == tasker.ManualDLQ) {
		t.attend = m.now + modelRecovery
	}
	// What failed meanwhile and still stands so is not forgotten.
	var seen []int
	for _, f := range slices.Backward(e.during) {
		if s := t.steps[f.step]; s.state == tasker.StepError && s.retryAt == 0 && !slices.Contains(seen, f.step) {
			seen = append(seen, f.step)
			m.stuck(t, tasker.MaxRetriesExceeded, f.detail, f.step)
		}
	}
	return true
}

func (m *model) openByHand(t *modelTask) bool {
	if t.open() != nil || t.writtenOff() {
		return false
	}
	m.stuck(t, tasker.ManualDLQ, tasker.OperatorRequest, -1)
	return true
}

// String spells the world as the database is spelled, to be compared.
func (m *model) String() string {
	var b strings.Builder
	for i, t := range m.tasks {
		fmt.Fprintf(&b, "task %d %s", i, t.state)
		for _, s := range t.steps {
			fmt.Fprintf(&b, " | %s %s %d", s.name, s.state, s.attempts)
			if s.retryAt > 0 {
				b.WriteString(" retries")
			}
		}
		for _, e := range t.entries {
			fmt.Fprintf(&b, " # %s %s %s", e.reason, e.detail, e.status)
			if e.recovered {
				b.WriteString(" recovered")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
