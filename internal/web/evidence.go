package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// snapshot is the part of an investigation's evidence that a page shows.
type snapshot struct {
	State            tasker.TaskState
	InStateMinutes   float64
	ThresholdMinutes float64
	AgeMinutes       float64
	Thresholds       json.RawMessage
	Template         json.RawMessage
	MaxDuration      float64 // minutes; 0 for none
	RedactionFailed  string
	SnapshotFailed   string
	Steps            []snapshotStep
}

// snapshotStep is a step of the snapshot.
type snapshotStep struct {
	UUID          tasker.ID
	Name          string
	Type          tasker.StepType
	Handler       string
	State         tasker.StepState
	StateSince    time.Time
	Attempts      int
	MaxAttempts   int
	LastFailureAt time.Time
	NextRetryAt   time.Time
	Error         json.RawMessage
	Open          int // dependencies that were not done
}

// readSnapshot decodes evidence. It decodes each member separately, because any member can be
// hidden or missing.
func readSnapshot(doc json.RawMessage) snapshot {
	m := members(doc)
	s := snapshot{
		State:          member[tasker.TaskState](m, "current_state"),
		InStateMinutes: member[float64](m, "time_in_state_minutes"), ThresholdMinutes: member[float64](m, "threshold_minutes"),
		AgeMinutes: member[float64](m, "task_age_minutes"), Thresholds: m["thresholds"], Template: m["template"],
		MaxDuration:     member[float64](members(m["thresholds"]), "max_duration_minutes"),
		RedactionFailed: member[string](m, "redaction_failed"), SnapshotFailed: member[string](m, "snapshot_failed"),
	}
	for _, doc := range member[[]json.RawMessage](m, "steps") {
		m := members(doc)
		s.Steps = append(s.Steps, snapshotStep{
			UUID: member[tasker.ID](m, "step_uuid"), Name: member[string](m, "name"), Type: member[tasker.StepType](m, "type"),
			Handler: member[string](m, "handler"), State: member[tasker.StepState](m, "state"), StateSince: member[time.Time](m, "state_since"),
			Attempts: member[int](m, "attempts"), MaxAttempts: member[int](m, "max_attempts"),
			LastFailureAt: member[time.Time](m, "last_failure_at"), NextRetryAt: member[time.Time](m, "next_retry_at"),
			Error: m["error"], Open: member[int](m, "dependencies_open"),
		})
	}
	return s
}

func (s snapshot) step(id tasker.ID) (snapshotStep, bool) {
	for _, st := range s.Steps {
		if st.UUID == id {
			return st, true
		}
	}
	return snapshotStep{}, false
}

func members(doc json.RawMessage) (m map[string]json.RawMessage) {
	if json.Unmarshal(doc, &m) != nil {
		return nil
	}
	return m
}

// member decodes a member of an object. It returns the zero value if the member is missing or has
// another type.
func member[T any](m map[string]json.RawMessage, name string) (v T) {
	if err := json.Unmarshal(m[name], &v); err != nil {
		var zero T
		return zero
	}
	return v
}

// failureOf decodes the failure of a step. It uses JSON that is not a failure as the message.
func failureOf(doc json.RawMessage) tasker.StepFailure {
	m := members(doc)
	f := tasker.StepFailure{
		Message: member[string](m, "message"), Type: member[string](m, "type"), Retryable: member[bool](m, "retryable"),
		Attempt: member[int](m, "attempt"), WorkerUUID: member[string](m, "worker_uuid"), Context: m["context"],
	}
	if f.Message == "" && string(doc) != "null" {
		f.Message = string(doc)
	}
	return f
}

// storyInput is the input of [narrative].
type storyInput struct {
	entry tasker.Entry
	task  tasker.Task
	then  snapshot
	steps []tasker.Step // current steps
}

// narrative describes in sentences what went wrong with a task, who detected it, and what has
// happened since.
func narrative(ev storyInput) []string {
	then := ev.opened()
	list := []string{then.happened(), then.found(), then.again(), ev.raised(), ev.waits(), ev.since()}
	return slices.DeleteFunc(list, func(sentence string) bool { return sentence == "" })
}

// opened returns ev with the cause for which the investigation was opened, which matches the
// snapshot.
func (ev storyInput) opened() storyInput {
	if ev.entry.OriginalReason == "" {
		return ev
	}
	ev.entry.Reason, ev.entry.DetailCode, ev.entry.StepUUID = ev.entry.OriginalReason, ev.entry.OriginalCode, nil
	for _, c := range ev.entry.History {
		if step := member[tasker.ID](members(members(c.Metadata)["from"]), "step_uuid"); c.Event == "raised" {
			if step != (tasker.ID{}) {
				ev.entry.StepUUID = &step
			}
			break // the first change has the original step
		}
	}
	return ev
}

// raised describes the more severe reason that has replaced the original one, if any.
func (ev storyInput) raised() string {
	if ev.entry.OriginalReason == "" {
		return ""
	}
	now := "Now"
	for _, c := range ev.entry.History {
		if c.Event == "raised" {
			now = "Since " + clock(c.At)
		}
	}
	return fmt.Sprintf("%s the investigation has a more severe reason: %s.", now, tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
}

// happened describes what went wrong.
func (ev storyInput) happened() string {
	switch ev.entry.Reason {
	case tasker.DependencyCycleDetected:
		return fmt.Sprintf("The steps of %s form a dependency cycle (%s), so none of them can run.", ev.kind(), listed(ev.names()))
	case tasker.MaxRetriesExceeded:
		return ev.failed()
	case tasker.StalenessTimeout:
		return ev.describeStale()
	case tasker.WorkerUnavailable:
		return ev.describeUnclaimed()
	case tasker.ManualDLQ:
		return ev.describeManual()
	default:
		return fmt.Sprintf("Task %s needs an operator: %s.", ev.kind(), tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
	}
}

// failureTexts are sentences about a failed step, by detail code. Their arguments are the step,
// the task, the attempt, the maximum number of attempts, the time, the error, the time of the last
// attempt, the time in state error and the detail code.
var failureTexts = map[string]string{
	tasker.RetriesExhausted: "Step %[1]s of %[2]s failed in all %[4]d attempts%[7]s%[6]s.",
	tasker.PermanentFailure: "Step %[1]s of %[2]s failed in attempt %[3]d of %[4]d%[5]s with an error that is not retryable%[6]s.",
	tasker.WorkerLost:       "The worker of step %[1]s of %[2]s stopped sending heartbeats in attempt %[3]d of %[4]d%[7]s.",
	tasker.StepTimeout:      "Step %[1]s of %[2]s exceeded its timeout in its last attempt, %[3]d of %[4]d%[5]s.",
	tasker.ExternalFailure:  "The external system reported that step %[1]s of %[2]s failed%[5]s%[6]s.",
	tasker.ExternalTimeout:  "Step %[1]s of %[2]s received no external result before its timeout%[5]s%[6]s.",
	tasker.ChildRefused:     "The child task of step %[1]s of %[2]s could not be started%[5]s%[6]s.",
	tasker.ChildFailed:      "The child task of step %[1]s of %[2]s ended without a result%[5]s%[6]s.",
	tasker.ExpressionFailed: "The condition of step %[1]s of %[2]s could not be evaluated%[5]s%[6]s.",
	tasker.UnrecoveredError: "Step %[1]s of %[2]s failed%[5]s%[6]s. The task was in error for %[8]s without an open investigation.",
}

// failed describes a step that failed and is not retried.
func (ev storyInput) failed() string {
	s := ev.culprit()
	at, last := "", ""
	if !s.LastFailureAt.IsZero() {
		at = " at " + clock(s.LastFailureAt)
		last = ", the last" + at
	}
	text := cmp.Or(failureTexts[ev.entry.DetailCode], "Step %[1]s of %[2]s failed permanently (%[9]s)%[5]s%[6]s.")
	if ev.entry.DetailCode == tasker.RetriesExhausted && s.MaxAttempts == 1 {
		text = "Step %[1]s of %[2]s failed in its only attempt%[5]s%[6]s."
	}
	return fmt.Sprintf(text, s.Name, ev.kind(), s.Attempts, s.MaxAttempts, at, quoted(failureOf(s.Error)), last,
		minutes(ev.then.InStateMinutes), words(ev.entry.DetailCode))
}

// describeStale describes a task that made no progress.
func (ev storyInput) describeStale() string {
	t, state := ev.then, words(ev.entry.OriginalState)
	switch ev.entry.DetailCode {
	case tasker.MaxDuration:
		return fmt.Sprintf("Task %s ran for %s (limit %s). Its state was %s: %s.", ev.kind(), minutes(t.AgeMinutes), minutes(t.MaxDuration), state, ev.open())
	case tasker.Overdue:
		return fmt.Sprintf("Task %s or one of its steps missed its due time. Its state was %s: %s.", ev.kind(), state, ev.open())
	case tasker.DeferredWork:
		return fmt.Sprintf("The server failed repeatedly to process task %s. Its state was %s: %s.", ev.kind(), state, ev.open())
	case tasker.UnrecoveredError:
		return fmt.Sprintf("Task %s was in error for %s without a failed step or an open investigation.", ev.kind(), minutes(t.InStateMinutes))
	default:
		return fmt.Sprintf("Task %s was in state %s for %s (limit %s): %s.",
			ev.kind(), state, minutes(t.InStateMinutes), minutes(t.ThresholdMinutes), ev.open())
	}
}

// describeUnclaimed describes a step that no worker claimed.
func (ev storyInput) describeUnclaimed() string {
	text := "Step %s of %s (handler %s, namespace %s) was not claimed before its queue timeout, although workers were online%s. No attempt was used."
	if ev.entry.DetailCode == tasker.NoWorkers {
		text = "No worker for step %s of %s (handler %s, namespace %s) was online before its queue timeout%s. No attempt was used."
	}
	s := ev.culprit()
	return fmt.Sprintf(text, s.Name, ev.kind(), s.Handler, ev.task.Namespace, quoted(failureOf(s.Error)))
}

// describeManual describes an investigation that an operator opened.
func (ev storyInput) describeManual() string {
	actor, why := "An operator", ""
	if len(ev.entry.History) > 0 {
		first := ev.entry.History[0]
		actor = first.Actor
		if first.Notes != nil {
			why = ": “" + clip(*first.Notes, 300) + "”"
		}
	}
	return fmt.Sprintf("%s opened this investigation of task %s in state %s%s.", actor, ev.kind(), words(ev.entry.OriginalState), why)
}

// found describes who detected the problem, and when.
func (ev storyInput) found() string {
	at := clock(ev.entry.At) + "."
	switch ev.entry.DetectedBy {
	case tasker.DetectedInline:
		if ev.follows() {
			return "An earlier investigation was open at that time. This one was opened when it ended, at " + at
		}
		return "It was detected immediately, in the same transaction, at " + at
	case tasker.DetectedSweep:
		return "The staleness sweep detected it at " + at
	case tasker.DetectedBroker:
		return "The message broker reported it at " + at
	case tasker.DetectedOperator:
		return "It was opened at " + at
	default:
		return "It was detected by " + ev.entry.DetectedBy + " at " + at
	}
}

// soonAfter is the maximum delay between a failure and its investigation.
const soonAfter = 2 * time.Second

// follows reports whether the step failed while an earlier investigation was open.
func (ev storyInput) follows() bool {
	if ev.entry.PredecessorUUID == nil || ev.entry.StepUUID == nil {
		return false
	}
	failed := ev.culprit().LastFailureAt
	return !failed.IsZero() && ev.entry.At.Sub(failed) > soonAfter
}

// again describes the failures since the investigation was opened.
func (ev storyInput) again() string {
	times, others := 0, []string{}
	var last tasker.EntryChange
	for _, c := range ev.entry.History {
		if c.Event != "step_failed" {
			continue
		}
		step := member[tasker.ID](members(c.Metadata), "step_uuid")
		if ev.entry.StepUUID != nil && step == *ev.entry.StepUUID {
			times, last = times+1, c
			continue
		}
		for _, s := range ev.steps {
			if s.UUID == step {
				others = append(others, fmt.Sprintf("step %s failed at %s", s.Name, clock(c.At)))
			}
		}
	}
	var list []string
	if times > 0 {
		often := "failed again"
		if times > 1 {
			often = fmt.Sprintf("failed again %d times, the last", times)
		}
		list = append(list, fmt.Sprintf("it %s at %s%s", often, clock(last.At), quoted(failureOf(members(last.Metadata)["error"]))))
	}
	if list = append(list, others...); len(list) == 0 {
		return ""
	}
	return "Since then " + listed(list) + "."
}

// waits describes the steps that the failed step blocks.
func (ev storyInput) waits() string {
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
	behind := namesOf(dependents(ev.steps, about))
	if len(behind) == 0 {
		return ""
	}
	if len(behind) == 1 {
		return "Step " + behind[0] + " is waiting for " + it + "."
	}
	return "Steps " + listed(behind) + " are waiting for " + it + "."
}

// since describes the current state of the task and of the investigation.
func (ev storyInput) since() string {
	e := ev.entry
	now := "The task " + statePhrase(e.CurrentTaskState)
	if e.RecoveredAt != nil {
		now = "The task continued automatically at " + clock(*e.RecoveredAt) + " and " + statePhrase(e.CurrentTaskState)
	}
	if e.ResolvedAt == nil {
		return now + "."
	}
	by := ""
	if e.ResolvedBy != nil {
		by = " by " + *e.ResolvedBy
	}
	return fmt.Sprintf("%s. The investigation ended as %s%s at %s.", now, words(e.ResolutionStatus), by, clock(*e.ResolvedAt))
}

// statePhrase returns a state as the predicate of a sentence about a task.
func statePhrase(s tasker.TaskState) string {
	switch s {
	case tasker.TaskError:
		return "is in error"
	case tasker.TaskStepsInProcess:
		return "has steps in progress"
	default:
		return "is " + words(s)
	}
}

// culprit returns the step that the investigation is about, from the snapshot or else its current
// state.
func (ev storyInput) culprit() snapshotStep {
	if ev.entry.StepUUID == nil {
		return ev.anyFailed()
	}
	if s, ok := ev.then.step(*ev.entry.StepUUID); ok {
		return s
	}
	for _, s := range ev.steps {
		if s.UUID == *ev.entry.StepUUID {
			return snapshotStep{Name: s.Name, Handler: s.Handler, State: s.State, Attempts: s.Attempts, MaxAttempts: s.MaxAttempts, Error: s.Error}
		}
	}
	return snapshotStep{Name: "?"}
}

func (ev storyInput) anyFailed() snapshotStep {
	for _, s := range ev.then.Steps {
		if s.State == tasker.StepError {
			return s
		}
	}
	return snapshotStep{Name: "?"}
}

func (ev storyInput) kind() string { return ev.task.Namespace + "/" + ev.task.Name }

func (ev storyInput) names() (names []string) {
	for _, s := range ev.then.Steps {
		names = append(names, s.Name)
	}
	return names
}

// open describes the steps that a stalled task was waiting for.
func (ev storyInput) open() string {
	var waiting []string
	for _, s := range ev.then.Steps {
		switch {
		case s.State == tasker.StepError && !s.NextRetryAt.IsZero():
			waiting = append(waiting, fmt.Sprintf("step %s had a retry due at %s", s.Name, clock(s.NextRetryAt)))
		case s.State == tasker.StepPending && s.Type == tasker.ExternalStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for an external result", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.ChildStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for its child task", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.WaitStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for a time", s.Name))
		case s.State == tasker.StepEnqueued:
			waiting = append(waiting, fmt.Sprintf("step %s waited for a worker", s.Name))
		case s.State == tasker.StepInProgress || s.State == tasker.StepEnqueuedForOrchestration || s.State == tasker.StepError:
			waiting = append(waiting, fmt.Sprintf("step %s was %s in attempt %d of %d", s.Name, words(s.State), s.Attempts, s.MaxAttempts))
		}
	}
	if len(waiting) == 0 {
		return "no step was open"
	}
	return listed(waiting)
}

// dependents returns the pending steps that depend on a step, directly or indirectly.
func dependents(steps []tasker.Step, of tasker.ID) []tasker.Step {
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

func namesOf(steps []tasker.Step) []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	return names
}

// listed joins names for a sentence. It names at most five and counts the rest.
func listed(names []string) string {
	const most = 5
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), fmt.Sprintf("%d more", len(names)-most+1))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// quoted returns the error message, quoted, to append to a sentence, or "" if it is empty or
// hidden.
func quoted(f tasker.StepFailure) string {
	text := clip(strings.Join(strings.Fields(f.Message), " "), 300)
	if text == "" || shown(strings.Trim(text, `"`)) == "" {
		return ""
	}
	return ": “" + text + "”"
}

// clock formats a time inside a sentence.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// assigneeOf returns the assignee in the metadata of an investigation.
func assigneeOf(metadata json.RawMessage) string {
	return member[string](members(metadata), "assignee")
}
