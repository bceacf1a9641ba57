package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"tasker.example/tasker"
)

type snapshot struct {
	State            tasker.TaskState `json:"current_state"`
	InStateMinutes   float64          `json:"time_in_state_minutes"`
	ThresholdMinutes float64          `json:"threshold_minutes"`
	AgeMinutes       float64          `json:"task_age_minutes"`
	Thresholds       json.RawMessage  `json:"thresholds"`
	Template         json.RawMessage  `json:"template"`
	MaxDuration      float64          `json:"-"` // minutes; 0 for none
	RedactionFailed  string           `json:"redaction_failed"`
	SnapshotFailed   string           `json:"snapshot_failed"`
	Steps            []snapshotStep   `json:"steps"`
}

// snapshotStep is a step of the snapshot.
type snapshotStep struct {
	UUID          tasker.ID        `json:"step_uuid"`
	Name          string           `json:"name"`
	Type          tasker.StepType  `json:"type"`
	Handler       string           `json:"handler"`
	State         tasker.StepState `json:"state"`
	StateSince    time.Time        `json:"state_since"`
	Attempts      int              `json:"attempts"`
	MaxAttempts   int              `json:"max_attempts"`
	LastFailureAt time.Time        `json:"last_failure_at"`
	NextRetryAt   time.Time        `json:"next_retry_at"`
	Error         json.RawMessage  `json:"error"`
	Open          int              `json:"dependencies_open"` // that were not done
}

// readSnapshot decodes evidence. It ignores members of another type, because any can be hidden.
func readSnapshot(doc json.RawMessage) (s snapshot) {
	_ = json.Unmarshal(doc, &s)
	s.MaxDuration = parseMember[float64](parseMembers(s.Thresholds), "max_duration_minutes")
	return s
}

func (s snapshot) findStep(id tasker.ID) (snapshotStep, bool) {
	for _, st := range s.Steps {
		if st.UUID == id {
			return st, true
		}
	}
	return snapshotStep{}, false
}

func parseMembers(doc json.RawMessage) (m map[string]json.RawMessage) {
	if json.Unmarshal(doc, &m) != nil {
		return nil
	}
	return m
}

// parseMember decodes a member of an object. It returns the zero value if the member is missing or
// has another type.
func parseMember[T any](m map[string]json.RawMessage, name string) (v T) {
	if err := json.Unmarshal(m[name], &v); err != nil {
		var zero T
		return zero
	}
	return v
}

// parseFailure decodes the failure of a step. It uses JSON that is not a failure as the message.
func parseFailure(doc json.RawMessage) (f tasker.StepFailure) {
	_ = json.Unmarshal(doc, &f) // members can be hidden
	if f.Message == "" && string(doc) != "null" {
		f.Message = string(doc)
	}
	return f
}

// narrativeInput is the input of [buildNarrative].
type narrativeInput struct {
	entry tasker.Entry
	task  tasker.Task
	then  snapshot
	steps []tasker.Step // current steps
}

// narrative is the data of the template "narrative".
type narrative struct {
	tasker.Entry
	Namespace, Task string
	Then            snapshot
	Step            snapshotStep // that the investigation is about
	StepNames       []string
	OpenSteps       string              // what the open steps of a stalled task waited for
	First           *tasker.EntryChange // nil without history
	RaisedAt        *time.Time          // when the reason became more severe
	IsFollowUp      bool                // the step failed while an earlier investigation was open
	Repetition      string              // failures since the investigation was opened
}

var narrativeTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"cause": tasker.CauseOf, "words": formatWords, "minutes": formatMinutes, "list": formatList,
		"state": formatState,
		"clip":  truncate, "clock": formatClock,
		"quote": func(doc json.RawMessage) string { return quoteFailure(parseFailure(doc)) },
	}).ParseFS(templateFiles, "templates/narrative.txt"))
})

// buildNarrative describes in sentences what went wrong with a task, who detected it, and what has
// happened since.
func buildNarrative(ev narrativeInput) []string {
	now, then := ev.narrative(), ev.atOpening().narrative()
	list := []string{
		then.sentence("cause"), then.sentence("findings"), then.Repetition, now.sentence("reason"), ev.describeWait(),
		now.sentence("age"),
	}
	return slices.DeleteFunc(list, func(sentence string) bool { return sentence == "" })
}

func (n *narrative) sentence(name string) string {
	var text strings.Builder
	if err := narrativeTemplate().ExecuteTemplate(&text, name, n); err != nil {
		panic(err) // the template does not depend on the data
	}
	return text.String()
}

func (ev narrativeInput) narrative() *narrative {
	n := &narrative{
		Entry: ev.entry, Namespace: ev.task.Namespace, Task: ev.task.Namespace + "/" + ev.task.Name, Then: ev.then,
		Step:      ev.findCulprit(),
		OpenSteps: ev.describeOpen(), Repetition: ev.describeRepetition(), IsFollowUp: ev.isFollowUp(),
	}
	for _, s := range ev.then.Steps {
		n.StepNames = append(n.StepNames, s.Name)
	}
	for i, c := range ev.entry.History {
		if i == 0 {
			n.First = &c
		}
		if c.Event == "raised" {
			n.RaisedAt = &c.At
		}
	}
	return n
}

// atOpening returns ev with the cause for which the investigation was opened, which matches the
// snapshot.
func (ev narrativeInput) atOpening() narrativeInput {
	if ev.entry.OriginalReason == "" {
		return ev
	}
	ev.entry.Reason, ev.entry.DetailCode, ev.entry.StepUUID = tasker.Reason(ev.entry.OriginalReason), string(ev.entry.OriginalCode), nil
	for _, c := range ev.entry.History {
		if step := parseMember[tasker.ID](parseMembers(parseMembers(c.Metadata)["from"]), "step_uuid"); c.Event == "raised" {
			if step != (tasker.ID{}) {
				ev.entry.StepUUID = &step
			}
			break // the first change has the original step
		}
	}
	return ev
}

// soonAfter is the maximum delay between a failure and its investigation.
const soonAfter = 2 * time.Second

// isFollowUp reports whether the step failed while an earlier investigation was open.
func (ev narrativeInput) isFollowUp() bool {
	if ev.entry.PredecessorUUID == nil || ev.entry.StepUUID == nil {
		return false
	}
	failed := ev.findCulprit().LastFailureAt
	return !failed.IsZero() && ev.entry.At.Sub(failed) > soonAfter
}

// describeRepetition describes the failures since the investigation was opened.
func (ev narrativeInput) describeRepetition() string {
	times, others := 0, []string{}
	var last tasker.EntryChange
	for _, c := range ev.entry.History {
		if c.Event != "step_failed" {
			continue
		}
		step := parseMember[tasker.ID](parseMembers(c.Metadata), "step_uuid")
		if ev.entry.StepUUID != nil && step == *ev.entry.StepUUID {
			times, last = times+1, c
			continue
		}
		for _, s := range ev.steps {
			if s.UUID == step {
				others = append(others, fmt.Sprintf("step %s failed at %s", s.Name, formatClock(c.At)))
			}
		}
	}
	var list []string
	if times > 0 {
		often := "failed again"
		if times > 1 {
			often = fmt.Sprintf("failed again %d times, the last", times)
		}
		list = append(list, fmt.Sprintf("it %s at %s%s", often, formatClock(last.At), quoteFailure(parseFailure(parseMembers(last.Metadata)["error"]))))
	}
	if list = append(list, others...); len(list) == 0 {
		return ""
	}
	return "Since then " + formatList(list) + "."
}

// describeWait describes the steps that the failed step blocks.
func (ev narrativeInput) describeWait() string {
	if ev.entry.StepUUID == nil {
		return ""
	}
	about, it := *ev.entry.StepUUID, "it"
	if f := ev.entry.FailedStep; f != nil && f.UUID != about {
		about, it = f.UUID, "step "+f.Name
	}
	done := func(s tasker.Step) bool {
		return s.UUID == about && s.State.Done()
	}
	if slices.ContainsFunc(ev.steps, done) {
		return ""
	}
	switch behind := stepNames(findDependents(ev.steps, about)); len(behind) {
	case 0:
		return ""
	case 1:
		return "Step " + behind[0] + " is waiting for " + it + "."
	default:
		return "Steps " + formatList(behind) + " are waiting for " + it + "."
	}
}

// formatState returns a state as the predicate of a sentence about a task.
func formatState(s tasker.TaskState) string {
	switch s {
	case tasker.TaskError:
		return "is in error"
	case tasker.TaskStepsInProcess:
		return "has steps in progress"
	default:
		return "is " + formatWords(s)
	}
}

// findCulprit returns the step that the investigation is about, from the snapshot or else its
// current state.
func (ev narrativeInput) findCulprit() snapshotStep {
	if ev.entry.StepUUID == nil {
		return ev.findFailed()
	}
	if s, ok := ev.then.findStep(*ev.entry.StepUUID); ok {
		return s
	}
	for _, s := range ev.steps {
		if s.UUID == *ev.entry.StepUUID {
			return snapshotStep{Name: s.Name, Handler: s.Handler, State: s.State, Attempts: s.Attempts, MaxAttempts: s.MaxAttempts, Error: s.Error}
		}
	}
	return snapshotStep{Name: "?"}
}

func (ev narrativeInput) findFailed() snapshotStep {
	for _, s := range ev.then.Steps {
		if s.State == tasker.StepError {
			return s
		}
	}
	return snapshotStep{Name: "?"}
}

// describeOpen describes the steps that a stalled task was waiting for.
func (ev narrativeInput) describeOpen() string {
	var waiting []string
	for _, s := range ev.then.Steps {
		switch {
		case s.State == tasker.StepError && !s.NextRetryAt.IsZero():
			waiting = append(waiting, fmt.Sprintf("step %s had a retry due at %s", s.Name, formatClock(s.NextRetryAt)))
		case s.State == tasker.StepPending && s.Type == tasker.ExternalStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for an external result", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.ChildStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for its child task", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.WaitStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for a time", s.Name))
		case s.State == tasker.StepEnqueued:
			waiting = append(waiting, fmt.Sprintf("step %s waited for a worker", s.Name))
		case s.State == tasker.StepInProgress || s.State == tasker.StepEnqueuedForOrchestration || s.State == tasker.StepError:
			waiting = append(waiting, fmt.Sprintf("step %s was %s in attempt %d of %d", s.Name, formatWords(s.State), s.Attempts, s.MaxAttempts))
		}
	}
	if len(waiting) == 0 {
		return "no step was open"
	}
	return formatList(waiting)
}

// findDependents returns the pending steps that depend on a step, directly or indirectly.
func findDependents(steps []tasker.Step, of tasker.ID) []tasker.Step {
	reached := map[tasker.ID]bool{of: true}
	var out []tasker.Step
	for range steps { // the steps are not in dependency order
		before := len(out)
		for _, s := range steps {
			if !reached[s.UUID] && s.State == tasker.StepPending && slices.ContainsFunc(s.Parents, func(p tasker.ID) bool { return reached[p] }) {
				reached[s.UUID] = true
				out = append(out, s)
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}

func stepNames(steps []tasker.Step) []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	return names
}

// formatList joins names for a sentence. It names at most five and counts the rest.
func formatList(names []string) string {
	const most = 5
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), fmt.Sprintf("%d more", len(names)-most+1))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// quoteFailure returns the error message, quoted, to append to a sentence, or "" if it is empty or
// hidden.
func quoteFailure(f tasker.StepFailure) string {
	text := truncate(strings.Join(strings.Fields(f.Message), " "), 300)
	if text == "" || cleanText(strings.Trim(text, `"`)) == "" {
		return ""
	}
	return ": “" + text + "”"
}

// formatClock formats a time inside a sentence.
func formatClock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// parseAssignee returns the assignee in the metadata of an investigation.
func parseAssignee(metadata json.RawMessage) string {
	return parseMember[string](parseMembers(metadata), "assignee")
}
