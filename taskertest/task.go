package taskertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"tasker.example/tasker"
)

// Task is one run of a template in a test.
type Task struct {
	UUID tasker.ID
	w    *Workflow
}

// Get returns the current task.
func (t *Task) Get() tasker.Task {
	t.w.t.Helper()
	got, err := t.w.db.Task(t.w.t.Context(), t.UUID)
	t.w.must(err)
	return got
}

// Step returns the current state of a step by its name; refund[17] is an item of the map step
// refund.
func (t *Task) Step(name string) Step {
	t.w.t.Helper()
	if of, isItem := splitItemName(name); isItem {
		return t.findItem(t.Step(of), name)
	}
	var names []string
	for _, s := range t.readSteps() {
		if s.Name == name {
			return Step{Step: s, task: t}
		}
		names = append(names, s.Name)
	}
	t.w.t.Fatalf("the task has no step %q; it has %s", name, strings.Join(names, ", "))
	return Step{}
}

func (t *Task) findItem(of Step, name string) Step {
	t.w.t.Helper()
	ctx := t.w.t.Context()
	id, err := t.w.db.StepNamed(ctx, t.UUID, name)
	if err != nil {
		items := "no items"
		if of.Items != nil {
			items = fmt.Sprintf("%d items", of.Items.Total)
		}
		t.w.t.Fatalf("the task has no item %s: step %s, which is %s, has %s\n%s", name, of.Name, of.State, items, t)
	}
	s, err := t.w.db.Step(ctx, t.UUID, id)
	t.w.must(err)
	return Step{Step: s, task: t}
}

// Steps returns the current state of all steps, in template order.
func (t *Task) Steps() []Step {
	t.w.t.Helper()
	var list []Step
	for _, s := range t.readSteps() {
		list = append(list, Step{Step: s, task: t})
	}
	return list
}

func (t *Task) readSteps() []tasker.Step {
	t.w.t.Helper()
	list, err := t.w.db.Steps(t.w.t.Context(), t.UUID)
	t.w.must(err)
	return list
}

// AssertState fails the test unless the task is in this state.
func (t *Task) AssertState(want tasker.TaskState) {
	t.w.t.Helper()
	if got := t.Get().State; got != want {
		t.w.t.Fatalf("the task is %s, want %s\n%s", got, want, t)
	}
}

// AssertComplete fails the test unless the task is complete.
func (t *Task) AssertComplete() {
	t.w.t.Helper()
	t.AssertState(tasker.TaskComplete)
}

// Answer completes an external step with a result: JSON text, or any value to encode.
func (t *Task) Answer(step string, result any) {
	t.w.t.Helper()
	t.answer(step, tasker.Outcome{Success: true, Result: t.w.encodeDocument("the answer", result)})
}

// AnswerFailure makes an external step fail.
func (t *Task) AnswerFailure(step, message string) {
	t.w.t.Helper()
	t.answer(step, tasker.Outcome{Failure: &tasker.Failure{Message: message, Type: "refused"}})
}

func (t *Task) answer(step string, o tasker.Outcome) {
	t.w.t.Helper()
	if _, err := t.w.engine.CompleteExternal(t.w.t.Context(), t.UUID, t.Step(step).UUID, o, actor); err != nil {
		t.w.t.Fatalf("answer step %s: %v\n%s", step, err, t)
	}
}

// actor is the actor in the histories of tests.
const actor = "taskertest"

// Cancel cancels the task as an operator does.
func (t *Task) Cancel() {
	t.w.t.Helper()
	t.w.must(t.w.engine.CancelTask(t.w.t.Context(), t.UUID, actor, "cancelled by the test"))
}

// Compensate cancels the task and compensates its completed steps.
func (t *Task) Compensate() {
	t.w.t.Helper()
	t.w.must(t.w.engine.CompensateTask(t.w.t.Context(), t.UUID, actor, "compensated by the test"))
}

// ChangeDue changes the due time of the task as an operator.
func (t *Task) ChangeDue(at time.Time) {
	t.w.t.Helper()
	_, err := t.w.engine.ChangeDue(t.w.t.Context(), t.UUID, tasker.DueUpdate{DueAt: &at, Actor: actor, Reason: "changed by the test"})
	t.w.must(err)
}

// Reset resets a failed step as an operator.
func (t *Task) Reset(step string) {
	t.w.t.Helper()
	t.operate(step, tasker.ActionRequest{Action: tasker.ResetForRetry})
}

// ResetWithoutCheckpoint is like Reset and deletes the checkpoint of the step.
func (t *Task) ResetWithoutCheckpoint(step string) {
	t.w.t.Helper()
	t.operate(step, tasker.ActionRequest{Action: tasker.ResetForRetry, DiscardCheckpoint: true})
}

// Resolve resolves a step without a result as an operator.
func (t *Task) Resolve(step string) {
	t.w.t.Helper()
	t.operate(step, tasker.ActionRequest{Action: tasker.ResolveManually})
}

// CompleteStep completes a step with a result as an operator.
func (t *Task) CompleteStep(step string, result any) {
	t.w.t.Helper()
	t.operate(step, tasker.ActionRequest{Action: tasker.CompleteManually,
		Result: t.w.encodeDocument("the result", result)})
}

func (t *Task) operate(step string, r tasker.ActionRequest) {
	t.w.t.Helper()
	r.Actor, r.Reason = actor, "by the test"
	if _, err := t.w.engine.OperateStep(t.w.t.Context(), t.UUID, t.Step(step).UUID, r); err != nil {
		t.w.t.Fatalf("%s step %s: %v\n%s", r.Action, step, err, t)
	}
}

// Investigation returns the open, or else the latest, investigation of the task. The test fails
// if there is none.
func (t *Task) Investigation() tasker.Entry {
	t.w.t.Helper()
	e, err := t.w.db.EntryOfTask(t.w.t.Context(), t.UUID)
	if err != nil {
		t.w.t.Fatalf("the task has no investigation: %v\n%s", err, t)
	}
	return e
}

// AssertNoInvestigation fails the test if the task has or had an investigation.
func (t *Task) AssertNoInvestigation() {
	t.w.t.Helper()
	e, err := t.w.db.EntryOfTask(t.w.t.Context(), t.UUID)
	switch {
	case err == nil:
		t.w.t.Fatalf("the task has an investigation: %s, %s\n%s", e.Reason, e.DetailCode, t)
	case tasker.CodeOf(err) != tasker.NotFound:
		t.w.t.Fatal(err)
	}
}

// Explain returns why the task is in its state.
func (t *Task) Explain() tasker.Explanation {
	t.w.t.Helper()
	e, err := t.w.explain.Explain(t.w.t.Context(), t.UUID)
	t.w.must(err)
	return e
}

const maxHistory = 1000

// History returns the last 1000 transitions of the task and its steps, oldest first.
func (t *Task) History() []tasker.Transition {
	t.w.t.Helper()
	list, _, err := t.w.db.TaskHistory(t.w.t.Context(), t.UUID, maxHistory)
	t.w.must(err)
	slices.Reverse(list)
	return list
}

// String describes the task, its main condition and its steps with their errors.
func (t *Task) String() string { return t.w.describe(t.UUID) }

func (w *Workflow) describe(id tasker.ID) string {
	ctx := w.t.Context()
	task, err := w.db.Task(ctx, id)
	if err != nil {
		return fmt.Sprintf("task %s cannot be read: %v", id, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "task %s %s (%s) is %s\n", task.Name, task.Version, id, task.State)
	if why, err := w.explain.Explain(ctx, id); err == nil {
		fmt.Fprintf(&b, "%s: %s\n", why.Reason, why.Message)
	}
	steps, err := w.db.Steps(ctx, id)
	if err != nil {
		fmt.Fprintf(&b, "its steps cannot be read: %v\n", err)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range steps {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", s.Name, s.State, formatAttempts(s), formatNote(s))
	}
	_ = table.Flush() // to memory
	return b.String()
}

func formatAttempts(s tasker.Step) string {
	if s.Attempts == 0 {
		return ""
	}
	return fmt.Sprintf("attempt %d of %d", s.Attempts, s.MaxAttempts)
}

// formatNote returns further details of a step.
func formatNote(s tasker.Step) string {
	const layout = "2006-01-02 15:04:05"
	var f tasker.StepFailure
	switch {
	case s.SkipReason != "":
		return string(s.SkipReason)
	case s.WaitUntil != nil:
		return "waits until " + s.WaitUntil.Format(layout)
	case s.State == tasker.StepError && json.Unmarshal(s.Error, &f) == nil:
		text := cmp.Or(f.Type, "error") + ": " + f.Message
		if s.NextRetryAt != nil {
			text += "; retry at " + s.NextRetryAt.Format(layout)
		}
		return text
	}
	return ""
}

// Step is the state of a step when it was read.
type Step struct {
	tasker.Step
	task *Task
}

// AssertState fails the test unless the step was in this state.
func (s Step) AssertState(want tasker.StepState) {
	s.task.w.t.Helper()
	if s.State != want {
		s.task.w.t.Fatalf("step %s is %s, want %s\n%s", s.Name, s.State, want, s.task)
	}
}

// Result decodes the result of the step. The test fails if it has none.
func (s Step) Result(into any) {
	s.task.w.t.Helper()
	var r tasker.StepResult
	err := json.Unmarshal(s.Results, &r)
	if err == nil {
		err = json.Unmarshal(r.Result, into)
	}
	if err != nil {
		s.task.w.t.Fatalf("the result of step %s, which is %s: %v: %s\n%s", s.Name, s.State, err, s.Results, s.task)
	}
}

// AssertResult fails the test unless the result of the step equals this JSON, regardless of key
// order.
func (s Step) AssertResult(want string) {
	s.task.w.t.Helper()
	var got, wanted any
	s.Result(&got)
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		s.task.w.t.Fatalf("the wanted result is not JSON: %v", err)
	}
	if a, b := canonicalize(got), canonicalize(wanted); a != b {
		s.task.w.t.Fatalf("the result of step %s is %s, want %s", s.Name, a, b)
	}
}

// ItemResults returns the results of all items of a map step in the order of its list, with null
// for an item without a result. The test fails if the step has no items.
func (s Step) ItemResults() []json.RawMessage {
	s.task.w.t.Helper()
	var all []json.RawMessage
	for from, next := 0, 1; next > 0; from = next {
		page, err := s.task.w.engine.ItemResults(s.task.w.t.Context(), s.TaskUUID, s.Name, from)
		s.task.w.must(err)
		all, next = append(all, page.Results...), page.Next
	}
	return all
}

// AssertCheckpoint fails the test unless the checkpoint of an unfinished step equals this JSON. An
// empty string means that there is none.
func (s Step) AssertCheckpoint(want string) {
	s.task.w.t.Helper()
	full, err := s.task.w.db.Step(s.task.w.t.Context(), s.TaskUUID, s.UUID)
	s.task.w.must(err)
	got := ""
	if full.Checkpoint != nil {
		got = canonicalizeText(full.Checkpoint.Value)
	}
	if want != "" && !json.Valid([]byte(want)) {
		s.task.w.t.Fatalf("the wanted checkpoint is not JSON: %s", want)
	}
	if want = canonicalizeText([]byte(want)); got != want {
		s.task.w.t.Fatalf("the checkpoint of step %s is %s, want %s", s.Name, cmp.Or(got, "missing"), cmp.Or(want, "none"))
	}
}

// Failure returns the last failure of the step. The test fails if it has none.
func (s Step) Failure() tasker.StepFailure {
	s.task.w.t.Helper()
	var f tasker.StepFailure
	if err := json.Unmarshal(s.Error, &f); err != nil {
		s.task.w.t.Fatalf("step %s, which is %s, has no failure: %v\n%s", s.Name, s.State, err, s.task)
	}
	return f
}

// canonicalizeText formats JSON canonically. It returns "" for an empty document.
func canonicalizeText(doc []byte) string {
	var v any
	if json.Unmarshal(doc, &v) != nil {
		return ""
	}
	return canonicalize(v)
}

func canonicalize(v any) string {
	doc, _ := json.Marshal(v) //nolint:errchkjson // it was decoded from JSON
	return string(doc)
}

// Child returns the latest task that the step started. The test fails if there is none.
func (s Step) Child() *Task {
	s.task.w.t.Helper()
	if s.ChildTaskUUID == nil {
		s.task.w.t.Fatalf("step %s, which is %s, has started no task\n%s", s.Name, s.State, s.task)
	}
	return &Task{UUID: *s.ChildTaskUUID, w: s.task.w}
}
