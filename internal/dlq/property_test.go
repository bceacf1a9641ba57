package dlq_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// How many sequences are tried; make soak tries many more.
var sequences = flag.Int("sequences", 40, "random sequences of events")

// Whatever happens, in whatever order, the engine does what the model does, and the invariants
// hold. A sequence that shows otherwise is made as short as it can be.
func TestTheRulesHoldForEverySequence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range *sequences {
		story := make([]event, 10+r.IntN(maxEvents-10))
		for i := range story {
			for j := range story[i] {
				story[i][j] = r.Uint32()
			}
		}
		if err := w.play(story); err != nil {
			story, err = w.shorten(story, err)
			t.Fatalf("seed %d, sequence %d: %v\nafter\n%s", seed, n, err, w.told(story))
		}
	}
}

// An event is the numbers that its choices are made from.
type event [6]uint32

// shorten leaves out what a failure does not need.
func (w *world) shorten(story []event, err error) ([]event, error) {
	for i := range slices.Backward(slices.Clone(story)) {
		shorter := slices.Delete(slices.Clone(story), i, i+1)
		if still := w.play(shorter); still != nil {
			story, err = shorter, still
		}
	}
	return story, err
}

// told says what happened in a story.
func (w *world) told(story []event) string {
	_ = w.play(story)
	return w.tale.String()
}

// A world is a database and the engine on it; one after another, sequences of events happen in it.
type world struct {
	*harness
	why       *explain.Service
	url       string
	complains bytes.Buffer         // what the sweep says went wrong
	snapshots map[tasker.ID]string // of every investigation, when it was first seen
	tale      strings.Builder      // of the last sequence
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := pgtest.New(t)
	w := &world{url: d.URL, snapshots: map[tasker.ID]string{}}
	h := &harness{Harness: enginetest.At(t, d.URL, postgres.Options{})}
	h.Engine = engine.New(h.DB, engine.Options{Leases: engine.LeaseOptions{Duration: modelLease}})
	h.DLQ = dlq.New(h.DB, dlq.Options{Log: slog.New(slog.NewTextHandler(&w.complains, &slog.HandlerOptions{Level: slog.LevelError}))})
	w.why = explain.New(h.DB, explain.Options{})
	h.worker = h.RegisterWorker("run")
	for name, shape := range modelShapes {
		var steps []tasker.StepTemplate
		for _, s := range shape {
			one := oneAttempt(s.name)
			rest := int(modelRetry.Milliseconds())
			one.Retry = tasker.Retry{Retryable: true, MaxAttempts: s.most, Backoff: tasker.ConstantBackoff, BaseMS: rest, MaxBackoffMS: rest}
			if s.external {
				one.Type, one.Handler = tasker.ExternalStep, tasker.Handler{}
			}
			for _, p := range s.parents {
				one.Dependencies = append(one.Dependencies, shape[p].name)
			}
			steps = append(steps, one)
		}
		h.register(name, tasker.Lifecycle{}, steps...)
	}
	w.harness = h
	return w
}

// A sequence is some events, in the model and in the database.
type sequence struct {
	*world
	model   model
	choices []uint32      // that the event which happens now may still make
	began   time.Time     // when the model's time began
	past    time.Duration // how far the database's instants were moved back so far
	steps   map[tasker.ID]spot
	held    []heldLease // what the worker believes to hold
}

// A spot is a step in the model.
type spot struct {
	task *modelTask
	step int
}

type heldLease struct {
	tasker.Assignment
	fence int // of the model
}

const (
	maxEvents = 36
	eventTime = 1500 * time.Millisecond // between two events: no two fall together
)

// play lets a story happen and says where the database and the model part.
func (w *world) play(story []event) (err error) {
	w.clear()
	w.tale.Reset()
	w.complains.Reset()
	s := &sequence{world: w, began: time.Now(), steps: map[tasker.ID]spot{}}
	defer func() {
		if parted, ok := recover().(parting); ok {
			err = errors.New(string(parted))
		}
	}()
	s.choices = []uint32{0}
	s.create()
	happens := []func(){ // as often as it makes for long lives
		s.create, s.claim, s.claim, s.claim, s.report, s.report, s.report, s.report, s.release, s.operate, s.operate, s.answer, s.answer,
		s.cancel, s.end, s.end, s.openByHand, s.advance, s.advance, s.advance, s.sweep, s.sweep,
	}
	for _, e := range story {
		s.pass(eventTime)
		s.choices = e[:]
		happens[s.choose(len(happens))]()
		s.compare()
	}
	found, err := pgtest.Violations(w.Context(), w.url)
	if len(found) > 0 {
		err = errors.New(strings.Join(found, "\n"))
	}
	return err
}

// A parting is how the database and the model differ.
type parting string

func (s *sequence) partf(format string, args ...any) { panic(parting(fmt.Sprintf(format, args...))) }

// choose takes one of n.
func (s *sequence) choose(n int) int {
	c := s.choices[0]
	s.choices = s.choices[1:]
	return int(c) % n
}

func oneOf[T any](s *sequence, list ...T) T { return list[s.choose(len(list))] }

func (s *sequence) tell(format string, args ...any) { fmt.Fprintf(&s.tale, format+"\n", args...) }

// clear removes what happened before, past the triggers that forbid it.
func (w *world) clear() {
	w.Helper()
	w.Exec(`
		DO $$
		BEGIN
			SET LOCAL session_replication_role = replica;
			TRUNCATE tasker.tasks, tasker.workflow_steps, tasker.ready_steps, tasker.claims, tasker.task_history, tasker.step_history,
				tasker.rejected_reports, tasker.tasks_dlq, tasker.case_members, tasker.tasks_dlq_history, tasker.dlq_totals, tasker.emissions, tasker.outbox;
		END
		$$`)
	clear(w.snapshots)
}

func (s *sequence) ok(err error) {
	if err != nil {
		s.partf("%v", err)
	}
}

// agree checks that what the model allows succeeds, and what it does not is a
// conflict, or changes nothing.
func (s *sequence) agree(allowed bool, err error) {
	if allowed && err != nil || err != nil && tasker.CodeOf(err) != tasker.Conflict {
		s.partf("the model allows it: %v; the engine says %v", allowed, err)
	}
}

// pass lets time go by: the instants of the database are moved back, so that its
// clock is where the model's is.
func (s *sequence) pass(d time.Duration) {
	s.model.now += d
	back := s.model.now - time.Since(s.began) - s.past
	if back <= 0 { // it took longer than the model thinks
		s.model.now -= back
		return
	}
	s.past += back
	var tasks []tasker.ID
	for _, t := range s.model.tasks {
		tasks = append(tasks, t.id)
	}
	_, err := s.Admin().Exec(s.Context(), `
		WITH t AS (
			UPDATE tasker.tasks SET state_since = state_since - $1::interval, warn_at = warn_at - $1::interval, stale_at = stale_at - $1::interval,
				attend_by = attend_by - $1::interval, created_at = created_at - $1::interval
			WHERE task_uuid = ANY ($2)
		)
		UPDATE tasker.workflow_steps SET state_since = state_since - $1::interval, lease_expires_at = lease_expires_at - $1::interval,
			next_retry_at = next_retry_at - $1::interval
		WHERE task_uuid = ANY ($2)`, back, tasks)
	s.ok(err)
}

func (s *sequence) create() {
	if len(s.model.tasks) == 3 {
		return
	}
	shape := oneOf(s, slices.Sorted(maps.Keys(modelShapes))...)
	s.tell("%s: create %s", s.model.now, shape)
	c, err := s.Engine.CreateTasks(s.Context(), []tasker.NewTask{{Namespace: "shop", Name: shape}})
	s.ok(err)
	t := s.model.create(c[0].TaskUUID, shape)
	list, err := s.DB.Steps(s.Context(), t.id)
	s.ok(err)
	for _, step := range list {
		i := slices.IndexFunc(t.steps, func(m *modelStep) bool { return m.name == step.Name })
		t.steps[i].id = step.UUID
		s.steps[step.UUID] = spot{t, i}
	}
}

func (s *sequence) claim() {
	enqueued := 0
	for _, p := range s.steps {
		if p.task.steps[p.step].state == tasker.StepEnqueued {
			enqueued++
		}
	}
	list, err := s.Engine.Claim(s.Context(), s.worker, 1, 0)
	s.ok(err)
	if len(list) != min(enqueued, 1) {
		s.partf("%d steps are enqueued, and %d were handed out", enqueued, len(list))
	}
	for _, a := range list {
		p := s.steps[a.StepUUID]
		step := p.task.steps[p.step]
		if step.state != tasker.StepEnqueued || a.Attempt != step.attempts {
			s.partf("step %s, which is %s after %d attempts, was handed out as attempt %d", step.name, step.state, step.attempts, a.Attempt)
		}
		step.state, step.leaseEnd = tasker.StepInProgress, s.model.now+modelLease
		step.fence++
		s.held = append(s.held, heldLease{a, step.fence})
		s.tell("%s: claim %s", s.model.now, a.Name)
	}
}

// take takes one of the worker's leases, which it may have lost, and says where
// it is and whether it still counts.
func (s *sequence) take() (h heldLease, at spot, counts bool) {
	i := s.choose(len(s.held))
	h = s.held[i]
	s.held = slices.Delete(s.held, i, i+1)
	at = s.steps[h.StepUUID]
	step := at.task.steps[at.step]
	return h, at, step.state == tasker.StepInProgress && step.fence == h.fence
}

func (s *sequence) report() {
	if len(s.held) == 0 {
		return
	}
	h, at, counts := s.take()
	o := tasker.Outcome{Lease: h.Lease()}
	switch s.choose(3) {
	case 0:
		o.Success, o.Result = true, json.RawMessage(`1`)
		if counts {
			s.model.succeed(at.task, at.step)
		}
	case 1:
		o.Failure = &tasker.Failure{Message: "no", Retryable: true}
		if counts {
			s.model.fail(at.task, at.step, true, tasker.RetriesExhausted)
		}
	default:
		o.Failure = &tasker.Failure{Message: "never"}
		if counts {
			s.model.fail(at.task, at.step, false, tasker.PermanentFailure)
		}
	}
	s.tell("%s: report %s, which counts: %v; success %v, %+v", s.model.now, h.Name, counts, o.Success, o.Failure)
	for range oneOf(s, 1, 1, 1, 2) {
		receipt, err := s.Engine.Report(s.Context(), s.worker, []tasker.Outcome{o}, 0)
		s.ok(err)
		if counts != (len(receipt.Accepted) == 1) {
			s.partf("the report counts: %v; the receipt is %+v", counts, receipt)
		}
	}
}

func (s *sequence) release() {
	if len(s.held) == 0 {
		return
	}
	h, at, counts := s.take()
	s.tell("%s: release %s, which counts: %v", s.model.now, h.Name, counts)
	released, _, err := s.Engine.Release(s.Context(), s.worker, []tasker.Lease{h.Lease()})
	s.ok(err)
	if counts != (len(released) == 1) {
		s.partf("the lease counts: %v; %d were given back", counts, len(released))
	}
	if counts {
		step := at.task.steps[at.step]
		step.state, step.leaseEnd = tasker.StepEnqueued, 0
		step.fence++
	}
}

func (s *sequence) anyTask() *modelTask { return oneOf(s, s.model.tasks...) }

func (s *sequence) anyStep() (*modelTask, int) {
	t := s.anyTask()
	return t, s.choose(len(t.steps))
}

func (s *sequence) operate() {
	t, i := s.anyStep()
	op := tasker.ActionRequest{Actor: "ann", Reason: "r", Interrupt: oneOf(s, true, false)}
	op.Action = oneOf(s, tasker.ResetForRetry, tasker.ResolveManually, tasker.CompleteManually)
	s.tell("%s: %s of step %s, interrupt %v", s.model.now, op.Action, t.steps[i].name, op.Interrupt)
	if op.Action == tasker.CompleteManually {
		op.Result = json.RawMessage(`2`)
	}
	_, err := s.Engine.OperateStep(s.Context(), t.id, t.steps[i].id, op)
	allowed := s.model.operate(t, i, op.Action, op.Interrupt)
	if s.agree(allowed, err); !allowed && err == nil {
		s.partf("%s was done, although step %s is %s", op.Action, t.steps[i].name, t.steps[i].state)
	}
}

func (s *sequence) answer() {
	t, i := s.anyStep()
	o := tasker.Outcome{Success: oneOf(s, true, false)}
	s.tell("%s: answer %s, success %v", s.model.now, t.steps[i].name, o.Success)
	if !o.Success {
		o.Failure = &tasker.Failure{Message: "refused"}
	}
	_, err := s.Engine.CompleteExternal(s.Context(), t.id, t.steps[i].id, o, "bank")
	s.agree(s.model.answer(t, i, o.Success), err)
}

func (s *sequence) cancel() {
	t := s.anyTask()
	s.tell("%s: cancel", s.model.now)
	err := s.Engine.CancelTask(s.Context(), t.id, "ann", "r")
	s.agree(s.model.cancel(t), err)
}

func (s *sequence) end() {
	t := s.anyTask()
	if len(t.entries) == 0 {
		return
	}
	status := oneOf(s, tasker.EntryManuallyResolved, tasker.EntryManuallyResolved, tasker.EntryCancelled, tasker.EntryPermanentlyFailed)
	s.tell("%s: end as %s", s.model.now, status)
	e, err := s.DB.EntryOfTask(s.Context(), t.id)
	s.ok(err)
	_, _, err = s.DLQ.Update(s.Context(), e.UUID, tasker.EntryUpdate{Status: &status, Notes: new("n"), ResolvedBy: new("ann")})
	s.agree(s.model.end(t, status), err)
}

func (s *sequence) openByHand() {
	t := s.anyTask()
	s.tell("%s: open by hand", s.model.now)
	_, err := s.DLQ.Open(s.Context(), t.id, tasker.NewEntry{Actor: "ann", Reason: "odd"})
	s.agree(s.model.openByHand(t), err)
}

func (s *sequence) advance() {
	minutes := oneOf(s, 1, 4, 6, 11, 24, 31, 47, 61)
	s.tell("%s: %d minutes pass", s.model.now, minutes)
	s.pass(time.Duration(minutes) * time.Minute)
	_, err := s.Engine.Tick(s.Context())
	s.ok(err)
	s.model.tick()
}

func (s *sequence) sweep() {
	s.tell("%s: sweep", s.model.now)
	n, err := s.DLQ.Sweep(s.Context())
	s.ok(err)
	if want := s.model.sweep(); n != want {
		s.partf("the sweep moved %d tasks, the model %d", n, want)
	}
	if s.complains.Len() > 0 {
		s.partf("the sweep complains: %s", &s.complains)
	}
}

// compare holds the database against the model.
func (s *sequence) compare() {
	var b strings.Builder
	for i, t := range s.model.tasks {
		task, err := s.DB.Task(s.Context(), t.id)
		s.ok(err)
		fmt.Fprintf(&b, "task %d %s", i, task.State)
		list, err := s.DB.Steps(s.Context(), t.id)
		s.ok(err)
		for _, m := range t.steps {
			step := list[slices.IndexFunc(list, func(step tasker.Step) bool { return step.UUID == m.id })]
			fmt.Fprintf(&b, " | %s %s %d", step.Name, step.State, step.Attempts)
			if step.NextRetryAt != nil {
				b.WriteString(" retries")
			}
			if step.Attempts > step.MaxAttempts {
				s.partf("step %s has used %d of %d attempts", step.Name, step.Attempts, step.MaxAttempts)
			}
		}
		s.entries(t, &b)
		b.WriteString("\n")
		s.explained(t)
	}
	if diff := cmp.Diff(strings.Split(s.model.String(), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		s.partf("at %s the database (+) differs from the model (-):\n%s", s.model.now, diff)
	}
}

// explained checks that some fact explains the task and its last step, and that the fact of
// the step is that of its state.
func (s *sequence) explained(t *modelTask) {
	last := t.steps[len(t.steps)-1]
	facts := map[tasker.StepState][]tasker.ConditionReason{
		tasker.StepPending:          {tasker.ConditionParents, tasker.ConditionExternal, tasker.ConditionEnded},
		tasker.StepEnqueued:         {tasker.ConditionQueue, tasker.ConditionSaturated, tasker.ConditionNoWorker},
		tasker.StepInProgress:       {tasker.ConditionRunning},
		tasker.StepError:            {tasker.ConditionFailed, tasker.ConditionNotInvestigated, tasker.ConditionRetry, tasker.ConditionEnded},
		tasker.StepComplete:         {tasker.ConditionEnded},
		tasker.StepCancelled:        {tasker.ConditionEnded},
		tasker.StepResolvedManually: {tasker.ConditionEnded},
	}
	for _, id := range []tasker.ID{t.id, last.id} {
		e, err := s.why.Explain(s.Context(), id)
		s.ok(err)
		if e.Reason == tasker.ConditionUnknown || id == last.id && !slices.Contains(facts[last.state], e.Reason) {
			s.partf("at %s %s %s, whose last step is %s, is explained by %s: %s", s.model.now, e.Kind, id, last.state, e.Reason, e.Message)
		}
	}
}

// entries spells the investigations of a task, and checks that their evidence is as it was.
func (s *sequence) entries(t *modelTask, b *strings.Builder) {
	rows, err := s.Admin().Query(s.Context(), `
		SELECT dlq_entry_uuid, dlq_reason::text, detail_code, resolution_status::text, recovered_at IS NOT NULL, task_snapshot::text
		FROM tasker.tasks_dlq WHERE task_uuid = $1 ORDER BY dlq_timestamp`, t.id)
	s.ok(err)
	var id tasker.ID
	var reason, detail, status, snapshot string
	var recovered bool
	_, err = pgx.ForEachRow(rows, []any{&id, &reason, &detail, &status, &recovered, &snapshot}, func() error {
		fmt.Fprintf(b, " # %s %s %s", reason, detail, status)
		if recovered {
			b.WriteString(" recovered")
		}
		if first, ok := s.snapshots[id]; ok && first != snapshot {
			return fmt.Errorf("the evidence of investigation %s has changed", id)
		}
		s.snapshots[id] = snapshot
		return nil
	})
	s.ok(err)
}
