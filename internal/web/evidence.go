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
	m := parseMembers(doc)
	s := snapshot{
		State:          parseMember[tasker.TaskState](m, "current_state"),
		InStateMinutes: parseMember[float64](m, "time_in_state_minutes"), ThresholdMinutes: parseMember[float64](m, "threshold_minutes"),
		AgeMinutes: parseMember[float64](m, "task_age_minutes"), Thresholds: m["thresholds"], Template: m["template"],
		MaxDuration:     parseMember[float64](parseMembers(m["thresholds"]), "max_duration_minutes"),
		RedactionFailed: parseMember[string](m, "redaction_failed"),
		SnapshotFailed:  parseMember[string](m, "snapshot_failed"),
	}
	for _, doc := range parseMember[[]json.RawMessage](m, "steps") {
		m := parseMembers(doc)
		s.Steps = append(s.Steps, snapshotStep{
			UUID: parseMember[tasker.ID](m, "step_uuid"), Name: parseMember[string](m, "name"),
			Type:    parseMember[tasker.StepType](m, "type"),
			Handler: parseMember[string](m, "handler"), State: parseMember[tasker.StepState](m, "state"), StateSince: parseMember[time.Time](m, "state_since"),
			Attempts: parseMember[int](m, "attempts"), MaxAttempts: parseMember[int](m, "max_attempts"),
			LastFailureAt: parseMember[time.Time](m, "last_failure_at"), NextRetryAt: parseMember[time.Time](m, "next_retry_at"),
			Error: m["error"], Open: parseMember[int](m, "dependencies_open"),
		})
	}
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
func parseFailure(doc json.RawMessage) tasker.StepFailure {
	m := parseMembers(doc)
	f := tasker.StepFailure{
		Message: parseMember[string](m, "message"), Type: parseMember[string](m, "type"),
		Retryable: parseMember[bool](m, "retryable"),
		Attempt:   parseMember[int](m, "attempt"), WorkerUUID: parseMember[string](m, "worker_uuid"), Context: m["context"],
	}
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

// buildNarrative describes in sentences what went wrong with a task, who detected it, and what has
// happened since.
func buildNarrative(ev narrativeInput) []string {
	then := ev.atOpening()
	list := []string{then.describeCause(), then.describeFindings(), then.describeRepetition(), ev.describeReason(),
		ev.describeWait(), ev.describeAge()}
	return slices.DeleteFunc(list, func(sentence string) bool { return sentence == "" })
}

// atOpening returns ev with the cause for which the investigation was opened, which matches the
// snapshot.
func (ev narrativeInput) atOpening() narrativeInput {
	if ev.entry.OriginalReason == "" {
		return ev
	}
	ev.entry.Reason, ev.entry.DetailCode, ev.entry.StepUUID = ev.entry.OriginalReason, ev.entry.OriginalCode, nil
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

// describeReason describes the more severe reason that has replaced the original one, if any.
func (ev narrativeInput) describeReason() string {
	if ev.entry.OriginalReason == "" {
		return ""
	}
	now := "Now"
	for _, c := range ev.entry.History {
		if c.Event == "raised" {
			now = "Since " + formatClock(c.At)
		}
	}
	return fmt.Sprintf("%s the investigation has a more severe reason: %s.", now, tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
}

// describeCause describes what went wrong.
func (ev narrativeInput) describeCause() string {
	switch ev.entry.Reason {
	case tasker.DependencyCycleDetected:
		return fmt.Sprintf("The steps of %s form a dependency cycle (%s), so none of them can run.", ev.investigationKind(), formatList(ev.stepNames()))
	case tasker.MaxRetriesExceeded:
		return ev.describeFailure()
	case tasker.StalenessTimeout:
		return ev.describeStale()
	case tasker.WorkerUnavailable:
		return ev.describeUnclaimed()
	case tasker.ManualDLQ:
		return ev.describeManual()
	default:
		return fmt.Sprintf("Task %s needs an operator: %s.", ev.investigationKind(), tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
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

// describeFailure describes a step that failed and is not retried.
func (ev narrativeInput) describeFailure() string {
	s := ev.findCulprit()
	at, last := "", ""
	if !s.LastFailureAt.IsZero() {
		at = " at " + formatClock(s.LastFailureAt)
		last = ", the last" + at
	}
	text := cmp.Or(failureTexts[ev.entry.DetailCode], "Step %[1]s of %[2]s failed permanently (%[9]s)%[5]s%[6]s.")
	if ev.entry.DetailCode == tasker.RetriesExhausted && s.MaxAttempts == 1 {
		text = "Step %[1]s of %[2]s failed in its only attempt%[5]s%[6]s."
	}
	return fmt.Sprintf(text, s.Name, ev.investigationKind(), s.Attempts, s.MaxAttempts, at,
		quoteFailure(parseFailure(s.Error)), last,
		formatMinutes(ev.then.InStateMinutes), formatWords(ev.entry.DetailCode))
}

// describeStale describes a task that made no progress.
func (ev narrativeInput) describeStale() string {
	t, state := ev.then, formatWords(ev.entry.OriginalState)
	switch ev.entry.DetailCode {
	case tasker.MaxDuration:
		return fmt.Sprintf("Task %s ran for %s (limit %s). Its state was %s: %s.", ev.investigationKind(), formatMinutes(t.AgeMinutes), formatMinutes(t.MaxDuration), state, ev.describeOpen())
	case tasker.Overdue:
		return fmt.Sprintf("Task %s or one of its steps missed its due time. Its state was %s: %s.", ev.investigationKind(), state, ev.describeOpen())
	case tasker.DeferredWork:
		return fmt.Sprintf("The server failed repeatedly to process task %s. Its state was %s: %s.", ev.investigationKind(), state, ev.describeOpen())
	case tasker.UnrecoveredError:
		return fmt.Sprintf("Task %s was in error for %s without a failed step or an open investigation.", ev.investigationKind(), formatMinutes(t.InStateMinutes))
	default:
		return fmt.Sprintf("Task %s was in state %s for %s (limit %s): %s.",
			ev.investigationKind(), state, formatMinutes(t.InStateMinutes), formatMinutes(t.ThresholdMinutes), ev.describeOpen())
	}
}

// describeUnclaimed describes a step that no worker claimed.
func (ev narrativeInput) describeUnclaimed() string {
	text := "Step %s of %s (handler %s, namespace %s) was not claimed before its queue timeout, although workers were online%s. No attempt was used."
	if ev.entry.DetailCode == tasker.NoWorkers {
		text = "No worker for step %s of %s (handler %s, namespace %s) was online before its queue timeout%s. No attempt was used."
	}
	s := ev.findCulprit()
	return fmt.Sprintf(text, s.Name, ev.investigationKind(), s.Handler, ev.task.Namespace,
		quoteFailure(parseFailure(s.Error)))
}

// describeManual describes an investigation that an operator opened.
func (ev narrativeInput) describeManual() string {
	actor, why := "An operator", ""
	if len(ev.entry.History) > 0 {
		first := ev.entry.History[0]
		actor = first.Actor
		if first.Notes != nil {
			why = ": “" + truncate(*first.Notes, 300) + "”"
		}
	}
	return fmt.Sprintf("%s opened this investigation of task %s in state %s%s.", actor, ev.investigationKind(), formatWords(ev.entry.OriginalState), why)
}

// describeFindings describes who detected the problem, and when.
func (ev narrativeInput) describeFindings() string {
	at := formatClock(ev.entry.At) + "."
	switch ev.entry.DetectedBy {
	case tasker.DetectedInline:
		if ev.isFollowUp() {
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
	behind := stepNames(findDependents(ev.steps, about))
	if len(behind) == 0 {
		return ""
	}
	if len(behind) == 1 {
		return "Step " + behind[0] + " is waiting for " + it + "."
	}
	return "Steps " + formatList(behind) + " are waiting for " + it + "."
}

// describeAge describes the current state of the task and of the investigation.
func (ev narrativeInput) describeAge() string {
	e := ev.entry
	now := "The task " + formatState(e.CurrentTaskState)
	if e.RecoveredAt != nil {
		now = "The task continued automatically at " + formatClock(*e.RecoveredAt) + " and " + formatState(e.CurrentTaskState)
	}
	if e.ResolvedAt == nil {
		return now + "."
	}
	by := ""
	if e.ResolvedBy != nil {
		by = " by " + *e.ResolvedBy
	}
	return fmt.Sprintf("%s. The investigation ended as %s%s at %s.", now, formatWords(e.ResolutionStatus), by, formatClock(*e.ResolvedAt))
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

func (ev narrativeInput) investigationKind() string { return ev.task.Namespace + "/" + ev.task.Name }

func (ev narrativeInput) stepNames() (stepNames []string) {
	for _, s := range ev.then.Steps {
		stepNames = append(stepNames, s.Name)
	}
	return stepNames
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
