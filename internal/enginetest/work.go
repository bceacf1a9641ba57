package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// External returns an external step.
func External(name string, dependencies ...string) tasker.StepTemplate {
	s := Step(name, dependencies...)
	s.Type, s.Handler = tasker.ExternalStep, tasker.Handler{}
	return s
}

// Attempts returns the step with n attempts.
func Attempts(n int, s tasker.StepTemplate) tasker.StepTemplate {
	s.Retry.MaxAttempts = n
	return s
}

// Names returns the sorted step names of assignments.
func Names(list []tasker.Assignment) []string {
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// Success returns the successful outcome of an attempt.
func Success(a tasker.Assignment, result string) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Success: true, Result: json.RawMessage(result)}
}

// Failure returns the failed outcome of an attempt.
func Failure(a tasker.Assignment, retryable bool) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "no luck", Type: "luck", Retryable: retryable}}
}

// Operation returns an operator's action. An action that completes a step has a result.
func Operation(a tasker.StepAction) tasker.ActionRequest {
	r := tasker.ActionRequest{Action: a, Actor: "ann@example.org", Reason: "gateway is back"}
	if a == tasker.CompleteManually {
		r.Result, r.Metadata = json.RawMessage(`{"payment": 42}`), json.RawMessage(`{"ticket": "OPS-1"}`)
	}
	return r
}

// Register registers version 1.0.0 of a template in the namespace of the harness.
func (h *Harness) Register(t tasker.Template) {
	h.Helper()
	t.Namespace, t.Version = h.Space, "1.0.0"
	h.RegisterTemplate(t)
}

// RegisterTemplate registers a template.
func (h *Harness) RegisterTemplate(t tasker.Template) {
	h.Helper()
	_, _, err := h.Engine.RegisterTemplate(h.Context(), t, "")
	h.Must(err)
}

// Claim claims up to 100 steps for the worker of the harness, which it registers for the handler
// "run" if there is none.
func (h *Harness) Claim() []tasker.Assignment {
	h.Helper()
	if h.Worker == (tasker.ID{}) {
		h.Worker = h.RegisterWorker("run")
	}
	return h.ClaimAs(h.Worker, 100)
}

// ClaimAs claims up to limit steps for a worker.
func (h *Harness) ClaimAs(worker tasker.ID, limit int) []tasker.Assignment {
	h.Helper()
	list, err := h.Engine.Claim(h.Context(), worker, limit, 0)
	h.Must(err)
	return list
}

// ClaimOne claims and expects only the step with the name.
func (h *Harness) ClaimOne(name string) tasker.Assignment {
	h.Helper()
	list := h.Claim()
	if len(list) != 1 || list[0].Name != name {
		h.Fatalf("claimed %v, want only %s", Names(list), name)
	}
	return list[0]
}

// ClaimNone fails the test if a claim returns a step.
func (h *Harness) ClaimNone() {
	h.Helper()
	if list := h.Claim(); len(list) != 0 {
		h.Fatalf("claimed %v, want nothing", Names(list))
	}
}

// Report reports outcomes of the worker.
func (h *Harness) Report(outcomes ...tasker.Outcome) tasker.Receipt {
	h.Helper()
	r, err := h.Engine.Report(h.Context(), h.Worker, outcomes, 0)
	h.Must(err)
	return r
}

// Accepted reports outcomes that must all be accepted.
func (h *Harness) Accepted(outcomes ...tasker.Outcome) {
	h.Helper()
	r := h.Report(outcomes...)
	if len(r.Accepted) != len(outcomes) || len(r.Rejected) != 0 {
		h.Fatalf("accepted %v, rejected %v", r.Accepted, r.Rejected)
	}
}

// Rejected reports an outcome that must be rejected.
func (h *Harness) Rejected(o tasker.Outcome) {
	h.Helper()
	if r := h.Report(o); len(r.Rejected) != 1 || len(r.Accepted) != 0 {
		h.Fatalf("accepted %v, rejected %v; want one rejection", r.Accepted, r.Rejected)
	}
}

// Succeed reports that attempts succeeded, one after the other, each with the result 1.
func (h *Harness) Succeed(list ...tasker.Assignment) {
	h.Helper()
	for _, a := range list {
		h.Accepted(Success(a, `1`))
	}
}

// Complete claims steps one after the other, each alone, and reports their success.
func (h *Harness) Complete(names ...string) {
	h.Helper()
	for _, name := range names {
		h.Succeed(h.ClaimOne(name))
	}
}

// Release returns steps to the queue.
func (h *Harness) Release(list ...tasker.Assignment) {
	h.Helper()
	leases := make([]tasker.Lease, len(list))
	for i, a := range list {
		leases[i] = a.Lease()
	}
	_, lost, err := h.Engine.Release(h.Context(), h.Worker, leases)
	if h.Must(err); len(lost) > 0 {
		h.Fatalf("the leases of %v were lost", lost)
	}
}

// Drain claims and completes steps until none is left, and returns their number.
func (h *Harness) Drain() int {
	h.Helper()
	n := 0
	for list := h.Claim(); len(list) > 0; list = h.Claim() {
		for _, a := range list {
			h.Accepted(Success(a, fmt.Sprintf(`{"by": %q}`, a.Name)))
			n++
		}
	}
	return n
}

// Tick does what is due.
func (h *Harness) Tick() {
	h.Helper()
	_, err := h.Engine.Tick(h.Context())
	h.Must(err)
}

// Operate performs an operator's action on a step and returns the step.
func (h *Harness) Operate(task tasker.ID, step string, r tasker.ActionRequest) tasker.Step {
	h.Helper()
	s, err := h.Engine.OperateStep(h.Context(), task, h.Step(task, step).UUID, r)
	h.Must(err)
	return s
}

// Answer completes an external step.
func (h *Harness) Answer(task tasker.ID, step string, o tasker.Outcome) {
	h.Helper()
	_, err := h.Engine.CompleteExternal(h.Context(), task, h.Step(task, step).UUID, o, "desk")
	h.Must(err)
}

// Cancel cancels a task.
func (h *Harness) Cancel(task tasker.ID) {
	h.Helper()
	h.Must(h.Engine.CancelTask(h.Context(), task, "ann", "not wanted"))
}

// Abandon ends the investigation of a task as permanently failed.
func (h *Harness) Abandon(task tasker.ID) {
	h.Helper()
	status, notes, by := tasker.EntryPermanentlyFailed, "no way", "ann"
	_, _, err := h.DLQ.Update(h.Context(), h.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by})
	h.Must(err)
}

// Task returns a task.
func (h *Harness) Task(id tasker.ID) tasker.Task {
	h.Helper()
	t, err := h.DB.Task(h.Context(), id)
	h.Must(err)
	return t
}

// Steps returns the steps of a task.
func (h *Harness) Steps(task tasker.ID) []tasker.Step {
	h.Helper()
	list, err := h.DB.Steps(h.Context(), task)
	h.Must(err)
	return list
}

// Step returns a step of a task.
func (h *Harness) Step(task tasker.ID, name string) tasker.Step {
	h.Helper()
	list := h.Steps(task)
	i := slices.IndexFunc(list, func(s tasker.Step) bool { return s.Name == name })
	if i < 0 {
		h.Fatalf("task has no step %s", name)
	}
	return list[i]
}

// Moves returns the transitions of a task.
func (h *Harness) Moves(task tasker.ID) []tasker.Transition {
	h.Helper()
	list, _, err := h.DB.TaskTransitions(h.Context(), task, 1000, 0)
	h.Must(err)
	return list
}

// StepMoves returns the transitions of a step.
func (h *Harness) StepMoves(task tasker.ID, name string) []tasker.Transition {
	h.Helper()
	list, _, err := h.DB.StepTransitions(h.Context(), task, h.Step(task, name).UUID, 1000, 0)
	h.Must(err)
	return list
}

// History returns the states of a task in order.
func (h *Harness) History(task tasker.ID) string {
	h.Helper()
	states := []string{"pending"}
	for _, x := range h.Moves(task) {
		states = append(states, x.To)
	}
	return strings.Join(states, " ")
}

// WantHistory compares the states of a task.
func (h *Harness) WantHistory(task tasker.ID, want string) {
	h.Helper()
	if got := h.History(task); got != want {
		h.Errorf("history %s\nwant    %s", got, want)
	}
}

// WantState fails the test unless the task has the state.
func (h *Harness) WantState(task tasker.ID, want tasker.TaskState) {
	h.Helper()
	if got := h.State(task); got != want {
		h.Fatalf("task is %s, want %s", got, want)
	}
}

// WantStep fails the test unless the step has the state after the number of attempts.
func (h *Harness) WantStep(task tasker.ID, name string, want tasker.StepState, attempts int) {
	h.Helper()
	if s := h.Step(task, name); s.State != want || s.Attempts != attempts {
		h.Fatalf("step %s is %s after %d attempts, want %s after %d", name, s.State, s.Attempts, want, attempts)
	}
}

// WantFailed fails the test unless the step is in error and its error contains the words.
func (h *Harness) WantFailed(task tasker.ID, name, words string) {
	h.Helper()
	if s := h.Step(task, name); s.State != tasker.StepError || !strings.Contains(string(s.Error), words) {
		h.Errorf("step %s is %s: %s, want error: %s", name, s.State, s.Error, words)
	}
}

// WantDetail compares the detail code of a task's investigation.
func (h *Harness) WantDetail(task tasker.ID, want string) {
	h.Helper()
	if e := h.Entry(task); e.DetailCode != want {
		h.Errorf("the investigation is %s, want %s", e.DetailCode, want)
	}
}

// WantResult compares the result of a step.
func (h *Harness) WantResult(task tasker.ID, name, want string) {
	h.Helper()
	doc, err := h.Engine.StepResult(h.Context(), task, h.Step(task, name).UUID)
	if h.Must(err); string(doc) != want {
		h.Errorf("the result of step %s is %.200s, want %s", name, doc, want)
	}
}

// WantCount compares the number that a query returns.
func (h *Harness) WantCount(want int, sql string, args ...any) {
	h.Helper()
	if got := h.Count(sql, args...); got != want {
		h.Errorf("got %d, want %d: %s %v", got, want, sql, args)
	}
}
