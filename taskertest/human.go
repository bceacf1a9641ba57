package taskertest

import (
	"cmp"
	"encoding/json"
	"slices"

	"tasker.example/tasker"
)

// ScriptAnswers defines the answers to human steps with this name, in the order in which the steps
// of all tasks start to wait. A step is answered by its assignee as soon as it waits. [Succeed]
// provides the result; [FailPermanently] is an external failure. Steps without a scripted answer
// keep waiting.
func (w *Workflow) ScriptAnswers(step string, answers ...Outcome) {
	w.t.Helper()
	asks := func(s tasker.StepTemplate) bool { return s.Name == step && s.ForPerson() }
	if !slices.ContainsFunc(w.templates, func(t tasker.Template) bool { return slices.ContainsFunc(t.Steps, asks) }) {
		w.t.Fatalf("no template has a step %q that a person answers (type external with an assignee or a form)", step)
	}
	for _, o := range answers {
		if o.call != nil || o.ends != 0 || len(o.saves) > 0 {
			w.t.Fatalf("the answers to step %q must be Succeed or FailPermanently", step)
		}
	}
	w.answers[step] = append(w.answers[step], answers...)
}

// answerSteps applies scripted answers to waiting steps and returns their number.
func (w *Workflow) answerSteps() (given int) {
	w.t.Helper()
	if len(w.answers) == 0 {
		return 0
	}
	list, _, err := w.engine.Inbox(w.t.Context(), tasker.InboxFilter{Limit: maxAttempts})
	w.must(err)
	slices.SortStableFunc(list, func(a, b tasker.HumanStep) int { return a.WaitingSince.Compare(*b.WaitingSince) })
	for _, h := range list {
		left := w.answers[h.StepName]
		if len(left) == 0 {
			continue
		}
		w.answers[h.StepName] = left[1:]
		o := tasker.Outcome{Success: true}
		if err := left[0].err; err != nil {
			o = tasker.Outcome{Failure: &tasker.Failure{Message: err.Error(), Type: "refused"}}
		} else {
			var doc json.RawMessage
			doc, err = encode(left[0].result)
			w.must(err)
			o.Result = doc
		}
		if _, err := w.engine.CompleteExternal(w.t.Context(), h.TaskUUID, h.StepUUID, o, cmp.Or(string(h.Assignee), actor)); err != nil {
			w.t.Fatalf("answer step %s: %v\n%s", h.StepName, err, w.describe(h.TaskUUID))
		}
		given++
	}
	return given
}

// Assign changes the assignee of a waiting step to a person, or to group: followed by the name of
// a group. An empty string removes the assignee.
func (t *Task) Assign(step, to string) {
	t.w.t.Helper()
	_, err := t.w.engine.Assign(t.w.t.Context(), tasker.StepRef{TaskUUID: t.UUID, StepUUID: t.Step(step).UUID}, tasker.AssignRequest{Assignee: to, Actor: actor})
	if err != nil {
		t.w.t.Fatalf("assign step %s: %v\n%s", step, err, t)
	}
}

// AssertAssignee fails the test unless the step had this assignee. An empty string means none.
func (s Step) AssertAssignee(want string) {
	s.task.w.t.Helper()
	if string(s.Assignee) != want {
		s.task.w.t.Fatalf("step %s is assigned to %q, want %q\n%s", s.Name, s.Assignee, want, s.task)
	}
}
