package web

import (
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// historyLine is a state change of a task or a step.
type historyLine struct {
	tasker.Transition
	Step  *stepAnchor // nil for the task itself
	After string      // duration of the previous state, if known and at least a second
}

// selectMoves removes the transitions of steps that are not in steps, which are the items of map
// steps.
func selectMoves(steps []tasker.Step, history []tasker.Transition) []tasker.Transition {
	shown := make(map[tasker.ID]bool, len(steps))
	for _, s := range steps {
		shown[s.UUID] = true
	}
	return slices.DeleteFunc(history, func(t tasker.Transition) bool { return t.StepUUID != nil && !shown[*t.StepUUID] })
}

// newHistoryLines returns the lines of a history, newest first.
func newHistoryLines(history []tasker.Transition, steps []tasker.Step) []historyLine {
	names := make(map[tasker.ID]string, len(steps))
	for _, s := range steps {
		names[s.UUID] = s.Name
	}
	lines := make([]historyLine, len(history))
	before := map[tasker.ID]time.Time{} // by step; zero for the task
	for i, t := range slices.Backward(history) {
		lines[i].Transition = t
		var of tasker.ID
		if t.StepUUID != nil {
			of = *t.StepUUID
			lines[i].Step = &stepAnchor{Name: names[of], Href: "#step-" + of.String()}
		}
		if since, known := before[of]; known && t.CreatedAt.Sub(since) >= time.Second {
			lines[i].After = formatLength(t.CreatedAt.Sub(since))
		}
		before[of] = t.CreatedAt
	}
	return lines
}

// Key returns the element id. Changes of tasks and of steps have separate ids.
func (l historyLine) Key() string {
	kind := "move-t"
	if l.StepUUID != nil {
		kind = "move-s"
	}
	return kind + strconv.FormatInt(l.ID, 10)
}

// Message returns the error of a failure.
func (l historyLine) Message() string {
	if l.To != string(tasker.StepError) {
		return ""
	}
	return truncate(parseFailure(l.Transition.Detail).Message, shownError)
}

// Detail returns the details of the change.
func (l historyLine) Detail() document {
	whole := "/v1/tasks/" + l.TaskUUID.String()
	if l.StepUUID != nil {
		whole += "/workflow_steps/" + l.StepUUID.String()
	}
	return newDocument("Detail", l.Transition.Detail, maxResult, whole+"/transitions").withID("detail-" + l.Key())
}
