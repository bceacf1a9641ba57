package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func (d *driver) roots() (n int) {
	for _, t := range d.tasks {
		if t.parent == nil {
			n++
		}
	}
	return n
}

func (d *driver) createOne() {
	d.Helper()
	if d.roots() >= modelRoots {
		if d.one(6) {
			d.endTask()
		} else {
			d.operateOne()
		}
		return
	}
	name := fmt.Sprint("t", d.random.IntN(modelTemplates))
	flags, list := map[string]bool{}, max(0, d.random.IntN(7)-1)
	for i := range 7 {
		if !d.one(12) {
			flags[fmt.Sprint("s", i)] = !d.one(3)
		}
	}
	doc := map[string]any{"flags": flags}
	if d.one(8) {
		list = -1
	} else {
		doc["list"] = make([]int, list)
	}
	body, err := json.Marshal(doc)
	d.must(err)
	key := tasker.NewID().String()
	var made tasker.ID
	request := tasker.NewTask{Namespace: enginetest.Namespace, Name: name, Context: body, IdempotencyKey: key}
	d.perform(act{
		name: "create " + name + " " + string(body), ok: always,
		do: func(ctx context.Context, s server) error {
			created, err := s.engine.CreateTasks(ctx, []tasker.NewTask{request})
			if err == nil {
				made = created[0].TaskUUID
			}
			return err
		},
		then: func() { d.create(name, flags, list).id = made },
	})
	if made == (tasker.ID{}) { // whoever asked asks again
		created, err := d.servers[0].engine.CreateTasks(d.Context(), []tasker.NewTask{request})
		d.must(err)
		made = created[0].TaskUUID
		d.create(name, flags, list).id = made
	}
}

// byID returns the step of an id.
func (d *driver) byID(task, step tasker.ID) *modelStep {
	for _, t := range d.tasks {
		if t.id != task {
			continue
		}
		for _, s := range t.all() {
			if s.id == step {
				return s
			}
		}
	}
	return nil
}

// some returns a step that fits, by chance; nil when none does.
func (d *driver) some(fits func(*modelStep) bool) *modelStep {
	var list []*modelStep
	for _, t := range d.tasks {
		for _, s := range t.all() {
			if fits(s) {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[d.random.IntN(len(list))]
}

func (d *driver) someTask(fits func(*modelTask) bool) *modelTask {
	var list []*modelTask
	for _, t := range d.tasks {
		if fits(t) {
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[d.random.IntN(len(list))]
}

func (d *driver) claim() {
	d.Helper()
	worker, limit := d.workers[d.random.IntN(len(d.workers))], 1+d.random.IntN(4)
	waiting := d.some(func(s *modelStep) bool { return s.state == tasker.StepEnqueued })
	if waiting == nil && !d.one(10) {
		if d.nextDue().IsZero() || d.one(2) {
			d.createOne()
		} else {
			d.advance()
		}
		return
	}
	var list []tasker.Assignment
	d.perform(act{
		name: "claim", ok: always,
		do: func(ctx context.Context, s server) (err error) {
			list, err = s.engine.Claim(ctx, worker, limit, 0)
			return err
		},
		then: func() {},
	})
	if len(list) == 0 && (waiting == nil || d.lost) {
		d.adopt()
		return
	}
	if len(list) == 0 { // a server leaves alone for a while what it could not measure when it lost its connection; another one does not
		var err error
		list, err = newEngine(d.servers[0].db, engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}}).Claim(d.Context(), worker, limit, 0)
		d.must(err)
	}
	if len(list) == 0 {
		d.Errorf("no step is claimed; step %s of task %s waits for a worker: %d are ready", waiting.Name, waiting.task.id, d.count(`SELECT count(*) FROM tasker.ready_steps`))
	}
	d.receive(worker, list)
	if d.lost {
		d.adopt()
	}
}

// receive has a worker hold what it was given.
func (d *driver) receive(worker tasker.ID, list []tasker.Assignment) {
	d.Helper()
	for _, a := range list {
		s := d.byID(a.TaskUUID, a.StepUUID)
		if s == nil || s.attempts != a.Attempt || s.state != tasker.StepEnqueued && !d.adopted(s) {
			d.Errorf("claimed %s of task %s in attempt %d, and the model has %+v", a.Name, a.TaskUUID, a.Attempt, s)
			return
		}
		d.take(s)
		d.leases[s] = lease{a.Lease(), worker}
	}
}

// adopted reports whether a step was taken over during the last act: a receipt may tell of a report that
// could not be recorded, and hand out steps all the same.
func (d *driver) adopted(s *modelStep) bool {
	_, held := d.leases[s]
	return d.lost && s.state == tasker.StepInProgress && !held
}

func (d *driver) take(s *modelStep) { s.state, s.leaseEnd = tasker.StepInProgress, d.now.Add(d.lease) }

// adopt takes over which steps a claim took whose answer was lost: nobody works on them.
func (d *driver) adopt() {
	for _, t := range d.tasks {
		rows := d.read([]tasker.ID{t.id})
		for _, s := range t.all() {
			if is := rows[t.id].step(s.Name); s.state == tasker.StepEnqueued && is.State == tasker.StepInProgress {
				d.take(s)
				delete(d.leases, s)
			}
		}
	}
}

// report reports what became of some attempts of a worker, which may ask for more work.
func (d *driver) report() {
	d.Helper()
	first := d.some(func(s *modelStep) bool { _, held := d.leases[s]; return held && s.state == tasker.StepInProgress })
	if first == nil {
		if d.pair == nil {
			d.claim()
		}
		return
	}
	worker, most, more := d.leases[first].worker, 1+d.random.IntN(3), d.random.IntN(3)
	if d.pair != nil {
		most, more = 1, 0
	}
	var outcomes []tasker.Outcome
	var then []func()
	var targets []*modelStep
	var names []string
	for _, t := range d.tasks {
		for _, s := range t.all() {
			if l, held := d.leases[s]; held && l.worker == worker && s.state == tasker.StepInProgress && (s == first || len(outcomes) < most-1) {
				o, f := d.outcome(s, l)
				outcomes, then, targets, names = append(outcomes, o), append(then, f), append(targets, s), append(names, fmt.Sprintf("%s of %s: %t %s", s.Name, t.id, o.Success, o.Result))
				d.late = append(d.late, lateReport{worker, o})
			}
		}
	}
	if len(outcomes) > 1 { // of several some may be taken when the connection is cut: that is not tried
		d.whole = true
		defer func() { d.whole = false }()
	}
	var receipt tasker.Receipt
	d.perform(act{
		name: "report " + strings.Join(names, ", "), ok: always, claims: more > 0, task: first.task,
		do: func(ctx context.Context, v server) (err error) {
			receipt, err = v.engine.Report(ctx, worker, outcomes, more)
			if err == nil && len(receipt.Accepted)+len(receipt.Rejected) != len(outcomes) {
				d.Errorf("the receipt is %+v", receipt)
			}
			for _, r := range receipt.Rejected {
				if r.Code == tasker.Unavailable {
					return tasker.Errorf(tasker.Unavailable, "%s", r.Message)
				}
			}
			return err
		},
		then: func() {
			for i, f := range then {
				if targets[i].state == tasker.StepInProgress {
					f()
				}
			}
		},
	})
	if more > 0 && d.pair == nil {
		d.settle()
		d.receive(worker, receipt.Next)
		if d.lost {
			d.catchUp()
			d.adopt()
		}
	}
}

// outcome chooses what becomes of an attempt.
func (d *driver) outcome(s *modelStep, l lease) (tasker.Outcome, func()) {
	o := tasker.Outcome{Lease: l.Lease}
	switch n := d.random.IntN(10); {
	case n < 7:
		o.Success, o.Result = true, json.RawMessage(`{"ok": true}`)
		if s.Type != tasker.DecisionStep {
			return o, func() { d.complete(s) }
		}
		if d.one(8) { // which says nothing
			return o, func() { d.failAttempt(s, false) }
		}
		var chosen []string
		chosen, o.Result = d.choose(s)
		return o, func() { s.chosen = chosen; d.complete(s) }
	default:
		retryable := n < 9
		o.Failure = &tasker.Failure{Message: "no", Type: "Declined", Retryable: retryable}
		return o, func() { d.failAttempt(s, retryable) }
	}
}

// choose chooses which dependents of a decision go on.
func (d *driver) choose(s *modelStep) ([]string, json.RawMessage) {
	chosen := []string{}
	for _, x := range s.task.steps {
		if slices.Contains(x.Dependencies, s.Name) && d.one(2) {
			chosen = append(chosen, x.Name)
		}
	}
	doc, err := json.Marshal(map[string]any{"steps": chosen})
	d.must(err)
	return chosen, doc
}

// reportLate sends a report that was sent before, or of an attempt that is over. It changes
// nothing, unless the attempt is not.
func (d *driver) reportLate() {
	d.Helper()
	if len(d.late) == 0 {
		return
	}
	i := d.random.IntN(len(d.late))
	r := d.late[i]
	d.late = slices.Delete(d.late, i, i+1)
	if s := d.byID(r.outcome.TaskUUID, r.outcome.StepUUID); s != nil && s.state == tasker.StepInProgress && d.leases[s].Fence == r.outcome.Fence {
		return // it was not taken, and so would be now
	}
	d.perform(act{
		name: "late report of " + r.outcome.StepUUID.String(), ok: always,
		do: func(ctx context.Context, v server) error {
			_, err := v.engine.Report(ctx, r.worker, []tasker.Outcome{r.outcome}, 0)
			return err
		},
		then: func() {},
	})
}

func (d *driver) giveBack() {
	d.Helper()
	s := d.some(func(s *modelStep) bool { _, held := d.leases[s]; return held && s.state == tasker.StepInProgress })
	if s == nil {
		return
	}
	l := d.leases[s]
	d.late = append(d.late, lateReport{l.worker, tasker.Outcome{Lease: l.Lease, Success: true}})
	d.perform(act{
		name: "release " + s.Name + " of " + s.task.id.String(), ok: always,
		do: func(ctx context.Context, v server) error {
			_, _, err := v.engine.Release(ctx, l.worker, []tasker.Lease{l.Lease})
			return err
		},
		then: func() { s.state, s.leaseEnd = tasker.StepEnqueued, time.Time{} },
	})
}

// advance moves the clock to the next instant at which something is due, or not as far.
func (d *driver) advance() {
	d.Helper()
	next := d.nextDue()
	at := d.now.Add(time.Duration(1+d.random.IntN(50)) * time.Second)
	if !next.IsZero() && !d.one(3) {
		at = next.Add(modelMargin)
	}
	for near := true; near; {
		near = false
		for _, x := range d.instants() {
			if x.Sub(at).Abs() < modelMargin {
				at, near = x.Add(2*modelMargin), true
			}
		}
	}
	d.late = append(d.late, d.leaves()...)
	d.did["advance"]++
	d.say("advance by %s", at.Sub(d.now))
	d.must(d.clock.Forward(d.Context(), at.Sub(d.now)))
	d.now = at
	d.catchUp()
	d.pass()
}

// leaves are late reports of attempts that may be over soon.
func (d *driver) leaves() (list []lateReport) {
	for _, s := range slices.SortedFunc(maps.Keys(d.leases), func(a, b *modelStep) int { return strings.Compare(a.id.String(), b.id.String()) }) {
		if s.state == tasker.StepInProgress && d.one(4) {
			list = append(list, lateReport{d.leases[s].worker, tasker.Outcome{Lease: d.leases[s].Lease, Success: true}})
		}
	}
	return list
}

func (d *driver) operateOne() {
	d.Helper()
	kind := d.random.IntN(8)
	s := d.some(func(s *modelStep) bool {
		switch kind {
		case 0: // where it may be refused
			return true
		case 1:
			return s.expanded && s.state == tasker.StepPending
		default: // where there is something to repair
			return s.state == tasker.StepError
		}
	})
	if s == nil {
		return
	}
	request := tasker.ActionRequest{
		Action: []tasker.StepAction{tasker.ResetForRetry, tasker.ResetForRetry, tasker.ResolveManually, tasker.CompleteManually}[d.random.IntN(4)],
		Actor:  "ann", Reason: "r", Interrupt: d.one(2),
	}
	if request.Action == tasker.ResetForRetry && (s.Type == tasker.ChildStep && d.one(2) || d.one(30)) {
		request.NewChild = true
	}
	var chosen []string
	if request.Action == tasker.CompleteManually {
		if chosen, request.Result = d.choose(s); s.Type != tasker.DecisionStep {
			request.Result = json.RawMessage(`{"by": "hand"}`)
		}
	}
	if l, held := d.leases[s]; held && s.state == tasker.StepInProgress {
		d.late = append(d.late, lateReport{l.worker, tasker.Outcome{Lease: l.Lease, Success: true}})
	}
	d.perform(act{
		name: fmt.Sprintf("%s %s (%s %s) of %s, interrupt %t, new child %t", request.Action, s.Name, s.Type, s.state, s.task.id, request.Interrupt, request.NewChild),
		ok:   func() bool { return d.allows(s, request, chosen) }, task: s.task,
		do: func(ctx context.Context, v server) error {
			_, err := v.engine.OperateStep(ctx, s.task.id, s.id, request)
			return err
		},
		then: func() { d.operateAs(s, request, chosen) },
	})
}

// allows reports whether the model allows an action; it is tried on a copy of the task.
func (d *driver) allows(s *modelStep, r tasker.ActionRequest, chosen []string) bool {
	t := *s.task
	t.steps = nil
	var mine *modelStep
	copied := map[*modelStep]*modelStep{}
	for _, x := range s.task.all() {
		c := *x
		c.task, c.items, copied[x] = &t, nil, &c
		if x == s {
			mine = &c
		}
		if c.child != nil {
			child := *c.child
			child.steps = nil
			c.child = &child
		}
	}
	for _, x := range s.task.steps {
		c := copied[x]
		for _, i := range x.items {
			c.items = append(c.items, copied[i])
			copied[i].parentOf = c
		}
		t.steps = append(t.steps, c)
	}
	m := &model{now: d.now, lease: d.lease, template: d.template, undoOrder: d.orderOfSteps}
	return m.operateAs(mine, r, chosen)
}

// operateAs does what a request says.
func (m *model) operateAs(s *modelStep, r tasker.ActionRequest, chosen []string) bool {
	if r.NewChild {
		return m.newChild(s, r.Interrupt)
	}
	return m.operate(s, r.Action, r.Interrupt, chosen)
}

// answer answers an external step, from outside.
func (d *driver) answer() {
	d.Helper()
	s := d.some(func(s *modelStep) bool { return s.Type == tasker.ExternalStep && s.state == tasker.StepPending })
	if s == nil {
		return
	}
	o := tasker.Outcome{Success: true, Result: json.RawMessage(`{"answer": "` + tasker.NewID().String() + `"}`)}
	if d.one(3) {
		o = tasker.Outcome{Failure: &tasker.Failure{Message: "no: " + tasker.NewID().String(), Type: "Refused", Retryable: true}}
	}
	d.perform(act{
		name: fmt.Sprintf("answer %s of %s: %t", s.Name, s.task.id, o.Success), task: s.task, ok: func() bool {
			return s.state == tasker.StepPending && s.decided && !s.task.ended() && (!s.task.givenUp || s.task.phase != "")
		},
		do: func(ctx context.Context, v server) error {
			_, err := v.engine.CompleteExternal(ctx, s.task.id, s.id, o, "outside")
			return err
		},
		then: func() {
			if o.Success {
				d.complete(s)
			} else {
				d.fail(s)
			}
		},
	})
}

// endTask cancels a task, or has it undone.
func (d *driver) endTask() {
	d.Helper()
	if t := d.someTask(func(t *modelTask) bool { return true }); t != nil && d.one(2) {
		d.perform(act{
			name: "cancel task " + t.id.String(), task: t, ok: func() bool { return t.state != tasker.TaskComplete },
			do:   func(ctx context.Context, v server) error { return v.engine.CancelTask(ctx, t.id, "ann", "r") },
			then: func() { d.cancel(t) },
		})
		return
	}
	t := d.someTask(func(t *modelTask) bool { return true })
	if t == nil {
		return
	}
	d.perform(act{
		name: "compensate task " + t.id.String(), task: t, ok: func() bool {
			return !t.ended() || t.outcome == tasker.Compensated || t.outcome == tasker.NothingToCompensate
		},
		do:   func(ctx context.Context, v server) error { return v.engine.CompensateTask(ctx, t.id, "ann", "r") },
		then: func() { d.compensate(t, d.orderOfSteps(t.id)) },
	})
}

func (d *driver) orderOfSteps(task tasker.ID) (order []string) {
	d.Helper()
	if task == (tasker.ID{}) {
		return nil // it was started and left before anything of it was done
	}
	for _, s := range d.read([]tasker.ID{task})[task].Steps {
		order = append(order, s.Name)
	}
	return order
}

// endEntry ends an investigation.
func (d *driver) endEntry() {
	d.Helper()
	t := d.someTask(func(t *modelTask) bool { return t.open })
	if t == nil {
		return
	}
	status, notes := tasker.EntryManuallyResolved, "n"
	if t.state == tasker.TaskError && d.one(2) && t.phase == "" {
		status = tasker.EntryPermanentlyFailed
	} else if !t.ended() {
		return
	}
	var entry tasker.ID
	d.must(d.conn.QueryRow(d.Context(), `SELECT dlq_entry_uuid FROM tasker.tasks_dlq WHERE task_uuid = $1 AND resolution_status = 'pending'`, t.id).Scan(&entry))
	d.perform(act{
		name: fmt.Sprintf("end the investigation of %s as %s", t.id, status), ok: func() bool { return status != tasker.EntryPermanentlyFailed || !t.waits() },
		do: func(ctx context.Context, v server) error {
			_, _, err := v.dlq.Update(ctx, entry, tasker.EntryUpdate{Status: &status, Notes: &notes, Actor: "ann"})
			return err
		},
		then: func() {
			if !t.open {
				return
			}
			t.open = false
			t.givenUp = status == tasker.EntryPermanentlyFailed
		},
	})
}

// drop forgets tasks that have ended, with all that they started.
func (d *driver) drop() {
	for _, t := range slices.Clone(d.tasks) {
		if t.parent != nil {
			continue
		}
		tree := []*modelTask{t}
		for i := 0; i < len(tree); i++ {
			for _, c := range d.tasks {
				if c.parent != nil && c.parent.task == tree[i] {
					tree = append(tree, c)
				}
			}
		}
		if slices.ContainsFunc(tree, func(x *modelTask) bool { return !x.ended() }) || !d.one(6) {
			continue
		}
		for _, x := range tree {
			x.compared = false
		}
		if diff := d.differs(); diff != "" {
			d.Errorf("what has ended has changed since:\n%s", diff)
		}
		d.tasks = slices.DeleteFunc(d.tasks, func(x *modelTask) bool { return slices.Contains(tree, x) })
		for s := range d.leases {
			if slices.Contains(tree, s.task) {
				delete(d.leases, s)
			}
		}
	}
	d.late = d.late[max(0, len(d.late)-100):]
}

// What is compared of a task, and of its steps.
type (
	seenTask struct {
		State         tasker.TaskState
		Phase         tasker.TaskPhase
		Outcome       tasker.TaskOutcome
		Entries, Open int
		Steps         []seenStep
	}
	seenStep struct {
		Name     string
		ID       tasker.ID `json:"id"`
		State    tasker.StepState
		Attempts int
		Retries  bool
		Waits    bool
		Child    *tasker.ID
	}
)

func (t seenTask) step(name string) (found seenStep) {
	for _, s := range t.Steps {
		if s.Name == name {
			found = s
		}
	}
	return found
}

// read reads tasks as the engine has them.
func (d *driver) read(ids []tasker.ID) map[tasker.ID]seenTask {
	d.Helper()
	rows, err := d.conn.Query(d.Context(), `
		SELECT t.task_uuid, json_build_object('state', t.state, 'phase', coalesce(t.phase, ''), 'outcome', coalesce(t.outcome, ''),
			'entries', (SELECT count(*) FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid),
			'open', (SELECT count(*) FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending'),
			'steps', (SELECT json_agg(json_build_object('name', s.name, 'id', s.step_uuid, 'state', s.state, 'attempts', s.attempts,
				'retries', s.next_retry_at IS NOT NULL, 'waits', s.wait_until IS NOT NULL AND s.step_type <> 'child', 'child', s.child_task_uuid) ORDER BY s.step_uuid)
				FROM tasker.workflow_steps s WHERE s.task_uuid = t.task_uuid))
		FROM tasker.tasks t WHERE t.task_uuid = ANY ($1)`, ids)
	d.must(err)
	found := map[tasker.ID]seenTask{}
	var id tasker.ID
	var doc []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &doc}, func() error {
		var t seenTask
		err := json.Unmarshal(doc, &t)
		found[id] = t
		return err
	})
	d.must(err)
	return found
}

// differs says where the engine and the model differ; empty: nowhere. It learns the ids of steps
// and children.
func (d *driver) differs() string {
	d.Helper()
	var ids []tasker.ID
	for _, t := range d.tasks {
		if t.id != (tasker.ID{}) && !t.compared {
			ids = append(ids, t.id)
		}
	}
	found := d.read(ids)
	for i := 0; i < len(d.tasks); i++ { // a parent comes before its children
		t := d.tasks[i]
		if t.compared {
			continue
		}
		is, known := found[t.id]
		if !known && t.id != (tasker.ID{}) {
			is, known = d.read([]tasker.ID{t.id})[t.id], true
		}
		if diff := cmp.Diff(d.wanted(t, is), seenText(is)); diff != "" || !known {
			return fmt.Sprintf("task %s of %s, flags %v, list %d:\n%s", t.id, t.name, t.flags, t.list, diff)
		}
		t.compared = t.ended() && !t.open // and stays so, until it is compared once more at the end
	}
	return ""
}

// wanted is a task as the model has it, in the words of seenText.
func (d *driver) wanted(t *modelTask, is seenTask) string {
	open := 0
	if t.open {
		open = 1
	}
	w := seenTask{State: t.state, Phase: t.phase, Outcome: t.outcome, Entries: t.entries, Open: open}
	for _, s := range t.all() {
		seen := is.step(s.Name)
		if s.id == (tasker.ID{}) {
			s.id = seen.ID
		}
		x := seenStep{Name: s.Name, State: s.state, Attempts: s.attempts, Retries: !s.retryAt.IsZero(), Waits: !s.waitEnd.IsZero(), Child: seen.Child}
		if c := s.child; c != nil {
			if c.id == (tasker.ID{}) && seen.Child != nil {
				c.id = *seen.Child
			}
			x.Child = &c.id
		}
		w.Steps = append(w.Steps, x)
	}
	return seenText(w)
}

// seenText spells a task line by line.
func seenText(t seenTask) string {
	var lines []string
	for _, s := range t.Steps {
		child := ""
		if s.Child != nil {
			child = " child " + s.Child.String()
		}
		lines = append(lines, fmt.Sprintf("%s: %s, %d attempts, retries %t, waits %t%s", s.Name, s.State, s.Attempts, s.Retries, s.Waits, child))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %s %s, %d investigations, %d open\n%s\n", t.State, t.Phase, t.Outcome, t.Entries, t.Open, strings.Join(lines, "\n"))
}
