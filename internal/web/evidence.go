package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// A snapshot is what a page reads of the evidence that an investigation keeps.
type snapshot struct {
	State            tasker.TaskState
	InStateMinutes   float64
	ThresholdMinutes float64
	AgeMinutes       float64
	Thresholds       json.RawMessage
	Template         json.RawMessage
	MaxDuration      float64 // minutes; 0 means none
	RedactionFailed  string
	SnapshotFailed   string
	Steps            []snapshotStep
}

// A snapshotStep is a step as it stood.
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

// readSnapshot reads evidence, each member by itself: any of them may be hidden, or
// may not be there.
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

// step is a step by its id.
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

// member is one value of an object; zero when it is something else.
func member[T any](m map[string]json.RawMessage, name string) (v T) {
	if err := json.Unmarshal(m[name], &v); err != nil {
		var zero T
		return zero
	}
	return v
}

// failureOf reads the failure of a step; other JSON is shown as it is.
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

// storyInput is all that a story is told from.
type storyInput struct {
	entry tasker.Entry
	task  tasker.Task
	then  snapshot
	steps []tasker.Step // as they are now
}

// narrative says in sentences what happened to a task: what went wrong and how, who
// found it, and what has become of it since.
func narrative(ev storyInput) []string {
	var told []string
	then := ev.opened()
	for _, sentence := range []string{then.happened(), then.found(), then.again(), ev.raised(), ev.waits(), ev.since()} {
		if sentence != "" {
			told = append(told, sentence)
		}
	}
	return told
}

// opened returns the evidence with the cause that the investigation was opened for,
// which is what its snapshot shows.
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
			break // the first of them has what it was opened for
		}
	}
	return ev
}

// raised says that a weightier reason has replaced the one it was opened for.
func (ev storyInput) raised() string {
	if ev.entry.OriginalReason == "" {
		return ""
	}
	now := "By now"
	for _, c := range ev.entry.History {
		if c.Event == "raised" {
			now = "Since " + clock(c.At)
		}
	}
	return fmt.Sprintf("%s the investigation is about the weightier reason: %s.", now, tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
}

// happened says what went wrong.
func (ev storyInput) happened() string {
	switch ev.entry.Reason {
	case tasker.DependencyCycleDetected:
		return fmt.Sprintf("The steps of %s depend on each other in a cycle (%s), so that none of them can ever run.", ev.kind(), ev.names())
	case tasker.MaxRetriesExceeded:
		return ev.failed()
	case tasker.StalenessTimeout:
		return ev.describeStale()
	case tasker.WorkerUnavailable:
		return ev.describeUnclaimed()
	case tasker.ManualDLQ:
		return ev.describeManual()
	default:
		return fmt.Sprintf("Task %s needs a human: %s.", ev.kind(), tasker.CauseOf(ev.entry.Reason, ev.entry.DetailCode).Label)
	}
}

// failed tells of a step in which no attempt is left.
func (ev storyInput) failed() string {
	s := ev.culprit()
	where := fmt.Sprintf("Step %s of %s", s.Name, ev.kind())
	failure := failureOf(s.Error)
	at, last := "", ""
	if !s.LastFailureAt.IsZero() {
		at = " at " + clock(s.LastFailureAt)
		last = ", the last" + at
	}
	switch ev.entry.DetailCode {
	case tasker.RetriesExhausted:
		if s.MaxAttempts == 1 {
			return fmt.Sprintf("%s failed in its only attempt%s%s.", where, at, quoted(failure))
		}
		return fmt.Sprintf("%s failed in all of its %d attempts%s%s.", where, s.MaxAttempts, last, quoted(failure))
	case tasker.PermanentFailure:
		return fmt.Sprintf("%s failed in attempt %d of %d%s, and its handler said that trying again is useless%s.",
			where, s.Attempts, s.MaxAttempts, at, quoted(failure))
	case tasker.WorkerLost:
		return fmt.Sprintf("The worker of step %s of %s fell silent in attempt %d of %d%s.", s.Name, ev.kind(), s.Attempts, s.MaxAttempts, last)
	case tasker.StepTimeout:
		return fmt.Sprintf("%s ran longer than its timeout in attempt %d of %d, the last, and was ended%s.", where, s.Attempts, s.MaxAttempts, at)
	case tasker.ExternalFailure:
		return fmt.Sprintf("The system outside reported that step %s of %s failed%s%s.", s.Name, ev.kind(), at, quoted(failure))
	case tasker.ExternalTimeout:
		return fmt.Sprintf("Nobody answered step %s of %s in time%s%s.", s.Name, ev.kind(), at, quoted(failure))
	case tasker.ChildRefused:
		return fmt.Sprintf("The child task of step %s of %s could not be started%s%s.", s.Name, ev.kind(), at, quoted(failure))
	case tasker.ChildFailed:
		return fmt.Sprintf("The child task of step %s of %s ended without a result%s%s.", s.Name, ev.kind(), at, quoted(failure))
	case tasker.ExpressionFailed:
		return fmt.Sprintf("The condition of step %s of %s could not be evaluated%s%s.", s.Name, ev.kind(), at, quoted(failure))
	case tasker.UnrecoveredError:
		return fmt.Sprintf("Step %s of %s failed%s%s, the task stood in error for %s, and nobody had looked into it.",
			s.Name, ev.kind(), at, quoted(failure), minutes(ev.then.InStateMinutes))
	default:
		return fmt.Sprintf("%s failed for good (%s)%s%s.", where, words(ev.entry.DetailCode), at, quoted(failure))
	}
}

// describeStale tells of a task that made no progress.
func (ev storyInput) describeStale() string {
	t := ev.then
	switch ev.entry.DetailCode {
	case tasker.MaxDuration:
		return fmt.Sprintf("Task %s ran for %s; its template allows %s. Then its state was %s: %s.",
			ev.kind(), minutes(t.AgeMinutes), minutes(t.MaxDuration), words(ev.entry.OriginalState), ev.open())
	case tasker.Overdue:
		return fmt.Sprintf("Task %s, or a step of it, was not done when it was due, and its template has that investigated. Then its state was %s: %s.",
			ev.kind(), words(ev.entry.OriginalState), ev.open())
	case tasker.DeferredWork:
		return fmt.Sprintf("Work of the server on task %s failed again and again. Then its state was %s: %s.", ev.kind(), words(ev.entry.OriginalState), ev.open())
	case tasker.UnrecoveredError:
		return fmt.Sprintf("Task %s stood in error for %s, no step of it had failed for good, and nobody had looked into it.",
			ev.kind(), minutes(t.InStateMinutes))
	default:
		return fmt.Sprintf("Task %s made no progress in the state %s for %s, %s longer than its threshold of %s: %s.",
			ev.kind(), words(ev.entry.OriginalState), minutes(t.InStateMinutes), minutes(t.InStateMinutes-t.ThresholdMinutes),
			minutes(t.ThresholdMinutes), ev.open())
	}
}

// describeUnclaimed tells of a step that no worker took.
func (ev storyInput) describeUnclaimed() string {
	s := ev.culprit()
	failure := failureOf(s.Error)
	if ev.entry.DetailCode == tasker.NoWorkers {
		return fmt.Sprintf("No worker for step %s of %s (handler %s, namespace %s) was alive, so nobody took it in time%s. It used no attempt.",
			s.Name, ev.kind(), s.Handler, ev.task.Namespace, quoted(failure))
	}
	return fmt.Sprintf("Workers for step %s of %s (handler %s, namespace %s) were alive, and none took it in time%s. It used no attempt.",
		s.Name, ev.kind(), s.Handler, ev.task.Namespace, quoted(failure))
}

// describeManual tells of a person who wants a look.
func (ev storyInput) describeManual() string {
	who, why := "A person", ""
	if len(ev.entry.History) > 0 {
		first := ev.entry.History[0]
		who = first.Actor
		if first.Notes != nil {
			why = ": “" + clip(*first.Notes, 300) + "”"
		}
	}
	return fmt.Sprintf("%s asked for a look at task %s, whose state was %s then%s.", who, ev.kind(), words(ev.entry.OriginalState), why)
}

// found says who noticed, and when.
func (ev storyInput) found() string {
	at := clock(ev.entry.At) + "."
	switch ev.entry.DetectedBy {
	case tasker.DetectedInline:
		if ev.follows() {
			return "An earlier investigation was open then; this one was opened when that ended, at " + at
		}
		return "It was noticed at once, in the transaction in which it happened, at " + at
	case tasker.DetectedSweep:
		return "The staleness sweep found it at " + at
	case tasker.DetectedBroker:
		return "The message broker reported it at " + at
	case tasker.DetectedOperator:
		return "That was at " + at
	default:
		return "It was found by " + ev.entry.DetectedBy + " at " + at
	}
}

// soonAfter is how long after a failure its own investigation is opened at most.
const soonAfter = 2 * time.Second

// follows reports whether the step failed while an earlier investigation was open.
func (ev storyInput) follows() bool {
	if ev.entry.PredecessorUUID == nil || ev.entry.StepUUID == nil {
		return false
	}
	failed := ev.culprit().LastFailureAt
	return !failed.IsZero() && ev.entry.At.Sub(failed) > soonAfter
}

// again tells of what failed since the investigation was opened, the newest last.
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
				others = append(others, fmt.Sprintf("step %s failed as well at %s", s.Name, clock(c.At)))
			}
		}
	}
	var told []string
	if times > 0 {
		often := "failed again"
		if times > 1 {
			often = fmt.Sprintf("failed again %d times, the last", times)
		}
		told = append(told, fmt.Sprintf("it %s at %s%s", often, clock(last.At), quoted(failureOf(members(last.Metadata)["error"]))))
	}
	if told = append(told, others...); len(told) == 0 {
		return ""
	}
	return "Since then " + listed(told) + "."
}

// waits says what cannot go on now.
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
		return "Step " + behind[0] + " waits for " + it + " now."
	}
	return "Steps " + listed(behind) + " wait for " + it + " now."
}

// since says where things stand by now.
func (ev storyInput) since() string {
	e := ev.entry
	now := "The task " + statePhrase(e.CurrentTaskState) + " now"
	if e.RecoveredAt != nil {
		now = "It went on by itself at " + clock(*e.RecoveredAt) + " and " + statePhrase(e.CurrentTaskState) + " now"
	}
	if e.ResolvedAt == nil {
		return now + "."
	}
	by := ""
	if e.ResolvedBy != nil {
		by = " by " + *e.ResolvedBy
	}
	return fmt.Sprintf("%s; the investigation was ended as %s%s at %s.", now, words(e.ResolutionStatus), by, clock(*e.ResolvedAt))
}

// statePhrase says where a task stands, to follow "the task".
func statePhrase(s tasker.TaskState) string {
	switch s {
	case tasker.TaskError:
		return "is in error"
	case tasker.TaskStepsInProcess:
		return "has steps in process"
	default:
		return "is " + words(s)
	}
}

// culprit is the step that the investigation is about, as it stood; of one that the
// evidence does not show, as it stands.
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

// anyFailed is the first step in error, where no step was named.
func (ev storyInput) anyFailed() snapshotStep {
	for _, s := range ev.then.Steps {
		if s.State == tasker.StepError {
			return s
		}
	}
	return snapshotStep{Name: "?"}
}

func (ev storyInput) kind() string { return ev.task.Namespace + "/" + ev.task.Name }

func (ev storyInput) names() string {
	names := make([]string, len(ev.then.Steps))
	for i, s := range ev.then.Steps {
		names[i] = s.Name
	}
	return listed(names)
}

// open says which steps a task that stood still was waiting for.
func (ev storyInput) open() string {
	var waiting []string
	for _, s := range ev.then.Steps {
		switch {
		case s.State == tasker.StepError && !s.NextRetryAt.IsZero():
			waiting = append(waiting, fmt.Sprintf("step %s was to be tried again at %s", s.Name, clock(s.NextRetryAt)))
		case s.State == tasker.StepPending && s.Type == tasker.ExternalStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for an answer from outside", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.ChildStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for its child task", s.Name))
		case s.State == tasker.StepPending && s.Type == tasker.WaitStep && s.Open == 0:
			waiting = append(waiting, fmt.Sprintf("step %s waited for an instant", s.Name))
		case s.State == tasker.StepEnqueued:
			waiting = append(waiting, fmt.Sprintf("step %s waited for a worker", s.Name))
		case s.State == tasker.StepInProgress || s.State == tasker.StepEnqueuedForOrchestration || s.State == tasker.StepError:
			waiting = append(waiting, fmt.Sprintf("step %s was %s in attempt %d of %d", s.Name, words(s.State), s.Attempts, s.MaxAttempts))
		}
	}
	if len(waiting) == 0 {
		return "no step of it was open"
	}
	return listed(waiting)
}

// dependents are the steps that cannot run before one has ended, and have not.
func dependents(steps []tasker.Step, of tasker.ID) []tasker.Step {
	reached := map[tasker.ID]bool{of: true}
	var out []tasker.Step
	for range steps { // steps need not be in the order of the graph
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

// listed joins names as a sentence does; of many it says how many more there are.
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

// quoted is what a failure said, to be put behind what happened.
func quoted(f tasker.StepFailure) string {
	text := clip(strings.Join(strings.Fields(f.Message), " "), 300)
	if text == "" || shown(strings.Trim(text, `"`)) == "" {
		return ""
	}
	return ", with “" + text + "”"
}

// clock spells an instant inside a sentence.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// assigneeOf is who has taken an investigation, as its metadata says.
func assigneeOf(metadata json.RawMessage) string {
	return member[string](members(metadata), "assignee")
}
