package engine_test

import (
	"slices"
	"time"

	"tasker.example/tasker"
)

// What follows is what becomes of tasks, told plainly: without SQL, locks or servers. It knows
// the rules of the documents, and shares no rule with the engine.

// A modelTask is a task.
type modelTask struct {
	id      tasker.ID // zero until the engine was asked, for a child
	name    string    // of its template
	flags   map[string]bool
	list    int // elements of its list; -1: it has none
	steps   []*modelStep
	parent  *modelStep
	state   tasker.TaskState
	phase   tasker.TaskPhase
	outcome tasker.TaskOutcome
	entries int  // investigations that were opened
	open    bool // one of them is
	givenUp bool // one ended as permanently failed

	undone bool       // somebody asked for that
	leftBy *modelTask // its parent, which is undone and no longer waits for it

	compared bool // it has ended, and the engine had it so
}

// A modelStep is a step of a task, an item of one, or what undoes one.
type modelStep struct {
	tasker.StepTemplate
	task     *modelTask
	id       tasker.ID
	state    tasker.StepState
	attempts int
	decided  bool      // that it runs
	retryAt  time.Time // of a step in error; zero: it has failed for good
	leaseEnd time.Time
	waitEnd  time.Time // zero: it waits without end
	chosen   []string  // of a decision that is complete
	child    *modelTask
	starts   bool // of a child step that was reset: it is to look for its child
	items    []*modelStep
	expanded bool
	parentOf *modelStep // of an item: the map step
	undoes   *modelStep
	after    *modelStep // of a step that undoes another: the one before it
	doneAt   int        // the moment at which it was complete
}

// A model is all tasks that are open.
type model struct {
	now    time.Time
	moment int // goes up with each act: what an act and what follows from it complete has no order here
	lease  time.Duration
	tasks  []*modelTask
	made   int // tasks so far

	waited, tolerated int // items that had to wait for a place, and that failed and were skipped

	// template returns the steps of a template.
	template func(name string) []tasker.StepTemplate
	// undoOrder returns the names of the steps of a task in the order of the engine.
	undoOrder func(task tasker.ID) []string
}

func (m *model) create(name string, flags map[string]bool, list int) *modelTask {
	t := &modelTask{name: name, flags: flags, list: list, state: tasker.TaskStepsInProcess}
	for _, s := range m.template(name) {
		t.steps = append(t.steps, &modelStep{StepTemplate: s, task: t, state: tasker.StepPending})
	}
	m.tasks = append(m.tasks, t)
	m.made++
	return t
}

func (t *modelTask) step(name string) *modelStep {
	for _, s := range t.all() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// all returns the steps of a task with their items.
func (t *modelTask) all() []*modelStep {
	var list []*modelStep
	for _, s := range t.steps {
		list = append(append(list, s), s.items...)
	}
	return list
}

// root returns the task that no other started, and that has started this one in the end.
func (t *modelTask) root() *modelTask {
	for t.parent != nil {
		t = t.parent.task
	}
	return t
}

// waits reports whether a step of the task waits for what comes without anybody's doing.
func (t *modelTask) waits() bool {
	return slices.ContainsFunc(t.steps, func(s *modelStep) bool {
		return s.state == tasker.StepPending && (!s.waitEnd.IsZero() || s.Type == tasker.ChildStep && s.decided)
	})
}

func (t *modelTask) ended() bool {
	return t.state == tasker.TaskComplete || t.state == tasker.TaskCancelled
}

func (s *modelStep) done() bool {
	return s.state == tasker.StepComplete || s.state == tasker.StepResolvedManually || s.state == tasker.StepSkipped
}

func (s *modelStep) failed() bool { return s.state == tasker.StepError && s.retryAt.IsZero() }

// settle has everything follow that follows without a person, a worker or the clock.
func (m *model) settle() {
	for changed := true; changed; {
		changed = false
		for _, t := range slices.Clone(m.tasks) {
			if t.leftBy != nil {
				m.undoLeft(t)
				changed = true
			}
			for _, s := range t.all() {
				if s.state == tasker.StepPending && !t.ended() && m.follow(s) {
					changed = true
				}
			}
			if !t.ended() {
				before := t.state
				m.concluded(t)
				changed = changed || t.state != before
			}
		}
	}
}

// follow has a pending step follow what became of others, and reports whether it moved.
func (m *model) follow(s *modelStep) bool {
	switch {
	case s.undoes != nil:
		if s.after != nil && !s.after.done() {
			return false
		}
		return m.run(s)
	case s.expanded:
		if slices.ContainsFunc(s.items, func(i *modelStep) bool { return !i.done() }) {
			return false
		}
		return m.complete(s)
	case s.starts:
		s.starts = false
		return m.run(s)
	case s.decided && s.child != nil:
		return m.childEnded(s)
	case s.decided:
		return false // it waits
	}
	switch verdictOf(s) {
	case "run":
	case "skip":
		return m.end(s, tasker.StepSkipped)
	default:
		return false
	}
	if s.When != "" {
		holds, known := s.task.flags[s.Name]
		if !known {
			return m.fail(s)
		}
		if !holds {
			return m.end(s, tasker.StepSkipped)
		}
	}
	return m.run(s)
}

// verdictOf is what the dependencies of a step say of it.
func verdictOf(s *modelStep) string {
	var ok, skipped, unsettled, unnamed int
	for _, name := range s.Dependencies {
		switch p := s.task.step(name); {
		case !p.done():
			unsettled++
		case p.state == tasker.StepSkipped:
			skipped++
		case p.Type == tasker.DecisionStep && !slices.Contains(p.chosen, s.Name):
			unnamed++
		default:
			ok++
		}
	}
	switch {
	case s.Join == tasker.JoinAny && ok > 0:
		return "run"
	case unsettled > 0:
		return "wait"
	case unnamed > 0:
		return "skip"
	case skipped == 0 || s.Join == tasker.JoinNoneFailed:
		return "run"
	default:
		return "skip"
	}
}

// run has a pending step begin.
func (m *model) run(s *modelStep) bool {
	switch s.Type {
	case tasker.ExternalStep, tasker.WaitStep:
		s.decided = true
		if n := s.TimeoutSeconds + s.WaitSeconds; n > 0 {
			s.waitEnd = m.now.Add(time.Duration(n) * time.Second)
		}
	case tasker.ChildStep:
		s.decided = true
		if c := s.child; c == nil || c.state == tasker.TaskCancelled || c.givenUp && c.state != tasker.TaskComplete {
			s.child = m.create(s.Child.Name, s.task.flags, s.task.list)
			s.child.parent = s
		}
	case tasker.MapStep:
		if s.task.list < 0 {
			return m.fail(s)
		}
		if s.decided = true; s.task.list == 0 {
			return m.complete(s)
		}
		s.expanded = true
		for i := range s.task.list {
			item := &modelStep{StepTemplate: s.StepTemplate, task: s.task, state: tasker.StepPending, decided: true, parentOf: s}
			item.Type, item.Name = tasker.StandardStep, itemName(s.Name, i)
			s.items = append(s.items, item)
		}
		if m.fill(s); s.MaxParallel > 0 {
			m.waited += max(0, len(s.items)-s.MaxParallel)
		}
	default:
		s.decided, s.state = true, tasker.StepEnqueued
		s.attempts++
	}
	return true
}

// childEnded ends a step whose child has ended.
func (m *model) childEnded(s *modelStep) bool {
	outcome := s.OnChild.PermanentlyFailed
	switch c := s.child; {
	case c.state == tasker.TaskComplete:
		return m.complete(s)
	case c.givenUp:
	case c.state == tasker.TaskCancelled:
		outcome = s.OnChild.Cancelled
	default:
		return false
	}
	switch outcome {
	case tasker.ChildSkips:
		return m.end(s, tasker.StepSkipped)
	case tasker.ChildCompletes:
		return m.complete(s)
	default:
		return m.fail(s)
	}
}

func (m *model) complete(s *modelStep) bool { return m.end(s, tasker.StepComplete) }

// end brings a step to a state; a child task for which it waited is not waited for any more.
func (m *model) end(s *modelStep, to tasker.StepState) bool {
	was := s.state
	s.state, s.retryAt, s.leaseEnd, s.waitEnd, s.doneAt, s.starts = to, time.Time{}, time.Time{}, time.Time{}, m.moment, false
	if c := s.child; c != nil && was == tasker.StepPending && !c.ended() && !c.givenUp {
		m.leave(c, s.task)
	}
	return true
}

// leave ends a task for which nobody waits any more, unless it is being undone. Where its parent is
// undone it is as well, when the engine has done that: in which order is the engine's.
func (m *model) leave(c, parent *modelTask) {
	switch {
	case c.phase != "":
	case parent.undone:
		c.leftBy = parent
	default:
		m.cancel(c)
	}
}

// undoLeft begins to undo a task that was left by one that is undone, unless that was stopped.
func (m *model) undoLeft(c *modelTask) {
	parent := c.leftBy
	c.leftBy = nil
	switch {
	case c.ended() || c.phase != "" || c.givenUp:
	case parent.phase != "" || parent.outcome == tasker.Compensated || parent.outcome == tasker.NothingToCompensate:
		m.compensate(c, m.undoOrder(c.id))
	default:
		m.cancel(c)
	}
}

// fill gives the places that are free among the items of a map step to the first that wait.
func (m *model) fill(s *modelStep) {
	if s.state != tasker.StepPending {
		return
	}
	free := len(s.items)
	if s.MaxParallel > 0 {
		free = s.MaxParallel
	}
	for _, i := range s.items { // one that rests before a retry keeps its place
		if i.state == tasker.StepEnqueued || i.state == tasker.StepInProgress || !i.retryAt.IsZero() {
			free--
		}
	}
	for _, i := range s.items {
		if i.state == tasker.StepPending && free > 0 {
			m.run(i)
			free--
		}
	}
}

// tolerates reports whether a map step tolerates that one more of its items fails for good.
func (s *modelStep) tolerates() bool {
	most := s.Tolerate.Items + len(s.items)*s.Tolerate.Percent/100
	if s.Tolerate.AllButOne {
		most = len(s.items) - 1
	}
	failed := 0
	for _, i := range s.items {
		if i.state == tasker.StepSkipped {
			failed++
		}
	}
	return failed < most
}

// concluded does to a task what is done in the transaction of what was before: items get the
// places that are free, and the task comes to where its steps are.
func (m *model) concluded(t *modelTask) {
	for _, s := range t.steps {
		m.fill(s)
	}
	m.rest(t)
}

// fail has a step fail for good, which is an investigation of its task. An item that is tolerated is
// skipped.
func (m *model) fail(s *modelStep) bool {
	if s.parentOf != nil && s.parentOf.tolerates() {
		m.tolerated++
		return m.end(s, tasker.StepSkipped)
	}
	m.end(s, tasker.StepError)
	if t := s.task; !t.open {
		t.open = true
		t.entries++
	}
	return true
}

// failAttempt ends an attempt without a result.
func (m *model) failAttempt(s *modelStep, retryable bool) {
	if !retryable || !s.Retry.Retryable || s.attempts >= s.Retry.MaxAttempts {
		m.fail(s)
		return
	}
	m.end(s, tasker.StepError)
	s.retryAt = m.now.Add(time.Duration(s.Retry.BaseMS) * time.Millisecond)
}

// rest brings a task to where its steps are.
func (*model) rest(t *modelTask) {
	var open, active, retrying, failed bool
	for _, s := range t.all() {
		if s.done() || s.state == tasker.StepCancelled {
			continue
		}
		open = true
		active = active || s.state == tasker.StepEnqueued || s.state == tasker.StepInProgress
		retrying = retrying || !s.retryAt.IsZero()
		failed = failed || s.failed()
	}
	switch {
	case !open && t.phase == tasker.Compensating:
		t.state, t.phase, t.outcome = tasker.TaskCancelled, "", tasker.Compensated
	case !open:
		t.state = tasker.TaskComplete
	case active:
		t.state = tasker.TaskStepsInProcess
	case retrying:
		t.state = tasker.TaskWaitingForRetry
	case failed:
		t.state = tasker.TaskError
	default:
		t.state = tasker.TaskWaitingForDependencies
	}
}

// giveUp ends the steps of a task that have not ended.
func (m *model) giveUp(t *modelTask) {
	for _, s := range t.all() {
		if !s.done() && s.state != tasker.StepCancelled {
			m.end(s, tasker.StepCancelled)
		}
	}
}

// cancel cancels a task, and reports false where that is refused.
func (m *model) cancel(t *modelTask) bool {
	if t.ended() {
		return t.state == tasker.TaskCancelled
	}
	m.giveUp(t)
	if t.state = tasker.TaskCancelled; t.phase != "" {
		t.phase, t.outcome = "", tasker.CompensationStopped
	}
	return true
}

// compensate begins to undo a task, and reports false where that is refused. The order in
// which steps were completed at one moment is the engine's.
func (m *model) compensate(t *modelTask, order []string) bool {
	switch {
	case t.phase == tasker.Compensating, t.outcome == tasker.Compensated, t.outcome == tasker.NothingToCompensate:
		return true
	case t.ended():
		return false
	}
	t.undone = true
	m.giveUp(t)
	var done []*modelStep
	for _, s := range t.steps {
		if s.OnFailure != nil && s.state == tasker.StepComplete {
			done = append(done, s)
		}
	}
	if len(done) == 0 {
		t.state, t.outcome = tasker.TaskCancelled, tasker.NothingToCompensate
		return true
	}
	slices.SortFunc(done, func(a, b *modelStep) int {
		if a.doneAt != b.doneAt {
			return b.doneAt - a.doneAt
		}
		return slices.Index(order, tasker.UndoPrefix+a.Name) - slices.Index(order, tasker.UndoPrefix+b.Name)
	})
	t.phase = tasker.Compensating
	var last *modelStep
	for _, s := range done {
		undo, _ := s.Undo()
		last = &modelStep{StepTemplate: undo, task: t, state: tasker.StepPending, undoes: s, after: last}
		t.steps = append(t.steps, last)
	}
	return true
}

// pass has the clock do what is due.
func (m *model) pass() {
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(m.now) }
	for _, t := range m.tasks {
		for _, s := range t.all() {
			switch {
			case due(s.retryAt):
				s.state, s.retryAt = tasker.StepEnqueued, time.Time{}
				s.attempts++
			case due(s.leaseEnd):
				m.failAttempt(s, true)
			case !due(s.waitEnd):
			case s.Type == tasker.WaitStep, s.OnTimeout == tasker.TimeoutCompletes:
				m.complete(s)
			case s.OnTimeout == tasker.TimeoutSkips:
				m.end(s, tasker.StepSkipped)
			default:
				m.fail(s)
			}
		}
	}
}

// nextDue returns the first instant at which something is due; zero: nothing ever is.
func (m *model) nextDue() (next time.Time) {
	for _, at := range m.instants() {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (m *model) instants() (list []time.Time) {
	for _, t := range m.tasks {
		for _, s := range t.all() {
			for _, at := range []time.Time{s.retryAt, s.leaseEnd, s.waitEnd} {
				if !at.IsZero() {
					list = append(list, at)
				}
			}
		}
	}
	return list
}

// operate does what an operator does to a step, and reports false where that is refused.
// chosen are the dependents that a result names which completes a decision.
func (m *model) operate(s *modelStep, a tasker.StepAction, interrupt bool, chosen []string) bool {
	t := s.task
	if t.ended() || t.givenUp && t.phase == "" {
		return false
	}
	if s.expanded && s.state == tasker.StepPending && slices.ContainsFunc(s.items, func(i *modelStep) bool { return !i.done() }) {
		return m.operateItems(s, a, interrupt)
	}
	held := s.state == tasker.StepEnqueued || s.state == tasker.StepInProgress
	if held && !interrupt || s.done() || s.state == tasker.StepCancelled {
		return false
	}
	switch a {
	case tasker.ResetForRetry:
		if s.state != tasker.StepError && s.state != tasker.StepInProgress {
			return false
		}
		m.end(s, tasker.StepPending)
		s.attempts = 0
		if s.starts = s.decided && s.Type == tasker.ChildStep; s.decided && !s.starts && s.parentOf == nil { // an item waits for a place
			m.run(s)
		}
	case tasker.ResolveManually:
		if s.Type == tasker.DecisionStep {
			return false
		}
		m.end(s, tasker.StepResolvedManually)
	default:
		s.chosen = chosen
		m.complete(s)
	}
	return true
}

// newChild resets a child step, which then starts another task.
func (m *model) newChild(s *modelStep, interrupt bool) bool {
	t, was := s.task, s.child
	if t.ended() || t.givenUp && t.phase == "" || s.Type != tasker.ChildStep {
		return false
	}
	open := was != nil && !was.ended() && !was.givenUp
	waits := s.state == tasker.StepPending && was != nil
	if waits && open && !interrupt {
		return false
	}
	s.child = nil
	if !waits && !m.operate(s, tasker.ResetForRetry, interrupt, nil) {
		s.child = was
		return false
	}
	if open {
		m.leave(was, t)
	}
	s.starts = s.starts || waits
	return true
}

// operateItems does what an operator does to a map step that is waiting for its items.
func (m *model) operateItems(s *modelStep, a tasker.StepAction, interrupt bool) bool {
	if a == tasker.ResetForRetry {
		reset := false
		for _, i := range s.items {
			if i.failed() {
				reset = m.operate(i, a, false, nil) || reset
			}
		}
		return reset
	}
	if !interrupt {
		return false
	}
	for _, i := range s.items {
		if !i.done() {
			m.end(i, tasker.StepResolvedManually)
		}
	}
	if a == tasker.ResolveManually {
		return m.end(s, tasker.StepResolvedManually)
	}
	return m.complete(s)
}
