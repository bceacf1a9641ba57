package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/postgres"
)

// late is the delay of due work from which a server counts as late.
const late = 10 * time.Second

func newExplanation(next tasker.NextActor, since *time.Time, remedy, format string, args ...any) explanation {
	return explanation{Condition: tasker.Condition{NextActor: next, Since: since, Remedy: remedy, Message: fmt.Sprintf(format, args...)}}
}

func (s explanation) forTask() explanation {
	s.ofTask = true
	return s
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func formatOptionalTime(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return formatTime(*t)
}

func (v view) formatAgo(t time.Time) string { return v.now.Sub(t).Round(time.Second).String() }

// isLate reports whether a server should have processed a due time.
func (v view) isLate(t time.Time) bool { return v.now.Sub(t) > late }

func formatCount(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (v view) describeEnded() explanation {
	t := v.task
	switch {
	case t.TaskState == tasker.TaskComplete:
		return newExplanation(tasker.NextNone, &t.TaskSince, "", "is complete since %s", formatTime(t.TaskSince)).forTask()
	case t.TaskState == tasker.TaskCancelled && t.MovedBy == string(core.ExpireTask):
		return newExplanation(tasker.NextNone, &t.TaskSince, "", "ended as expired at %s: no step of it was claimed in time", formatTime(t.TaskSince)).forTask()
	case t.TaskState == tasker.TaskCancelled:
		return newExplanation(tasker.NextNone, &t.TaskSince, "", "was cancelled at %s%s", formatTime(t.TaskSince), formatActor(t.MovedActor)).forTask()
	case v.step != nil && isOver(v.step.StepState):
		words := map[tasker.StepState]string{
			tasker.StepComplete: "is complete since", tasker.StepResolvedManually: "was resolved by hand at", tasker.StepCancelled: "was cancelled at",
			tasker.StepSkipped: "was skipped at",
		}
		why := ""
		if v.step.SkipReason != "" {
			why = ": " + v.step.SkipReason
		}
		return newExplanation(tasker.NextNone, &v.step.StepSince, "", "%s %s%s", words[v.step.StepState], formatTime(v.step.StepSince), why)
	default:
		return newExplanation(tasker.NextNone, t.WrittenOffAt, "", "was written off at %s%s: no repair is possible", formatOptionalTime(t.WrittenOffAt), formatActor(t.WrittenOffBy)).forTask()
	}
}

func formatActor(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + actor
}

func (v view) describeNotStarted() explanation {
	t := v.task
	start := t.CreatedAt
	if t.StartAt != nil {
		start = *t.StartAt
	}
	if !v.isLate(start) && t.Debounced {
		return newExplanation(tasker.NextTimer, &t.CreatedAt, "It starts by itself when no request with its debounce key comes for a while.",
			"waits for more requests to merge and starts at %s; %s merged so far", formatTime(start), formatCount(int64(t.MergedRequests), "request")).forTask()
	}
	if !v.isLate(start) {
		return newExplanation(tasker.NextTimer, &t.CreatedAt, "It starts by itself at its start time.", "starts at %s", formatTime(start)).forTask()
	}
	return newExplanation(tasker.NextServer, &start, "A server must start it: tasker-ctl health shows which loop is late.",
		"was to start at %s, %s ago, and no server has started it%s", formatTime(start), v.formatAgo(start), describeDeferral(t.TaskFailures, t.TaskRetryAt)).forTask()
}

// describeDeferral describes how often a server failed to do the work, and when it retries. It
// returns "" for no failure.
func describeDeferral(failures int, again *time.Time) string {
	if failures == 0 {
		return ""
	}
	return "; that " + describeRetries(failures, again)
}

func describeRetries(failures int, again *time.Time) string {
	return fmt.Sprintf("failed %s and is tried again at %s", formatTimes(failures), formatOptionalTime(again))
}

func formatTimes(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (v view) describeCycle() explanation {
	reason := "its steps depend on each other in a cycle"
	if v.shows.payloads && v.task.MovedReason != "" {
		reason = v.task.MovedReason
	}
	return newExplanation(tasker.NextOperator, &v.task.TaskSince, tasker.CauseOf(tasker.DependencyCycleDetected, tasker.DependencyCycle).Guidance,
		"can never run: %s", reason).forTask()
}

func (v view) describeOperation() explanation {
	s := v.step
	of := fmt.Sprintf("operation %s%s", s.OperationUUID, formatActor(s.PlannedBy))
	switch tasker.OperationState(s.OperationState) {
	case tasker.OperationPaused:
		return newExplanation(tasker.NextOperator, s.PausedAt, "Resume the operation, or abort it.",
			"is planned in %s, which is paused since %s: %s", of, formatOptionalTime(s.PausedAt), s.PausedFor)
	case tasker.OperationRunning:
		return newExplanation(tasker.NextServer, s.PlannedAt, "The operation releases it by itself, in its wave.",
			"is planned in %s, whose wave %d is under way", of, s.OperationWave+1)
	default:
		return newExplanation(tasker.NextOperator, s.PlannedAt, "Start the operation, or abort it; a plan that is not started expires at "+formatOptionalTime(s.PlanExpires)+".",
			"is planned in %s, which is not started", of)
	}
}

func (v view) describePendingResult() explanation {
	return newExplanation(tasker.NextServer, &v.step.StepSince, "A server stores it automatically; otherwise see its log.",
		"has delivered its result, and a server could not store what follows from it since %s%s", formatTime(v.step.StepSince), describeDeferral(v.step.StepFailures, v.step.StepRetryAt))
}

func (v view) describeDecision() explanation {
	return newExplanation(tasker.NextServer, v.step.DecideAt,
		"A server decides it within a second; otherwise see its log.",
		"is about to be decided since %s%s", formatTime(*v.step.DecideAt),
		describeDeferral(v.step.StepFailures, v.step.StepRetryAt))
}

// failureText describes the final failure of a step.
func (v view) failureText() string {
	s := v.step
	text := "failed for good at " + formatTime(s.StepSince)
	if s.Attempts > 0 {
		text += fmt.Sprintf(" after %d of %s", s.Attempts, formatCount(int64(s.MaxAttempts), "attempt"))
	}
	if s.WorkerName != "" {
		text += ", on " + v.workerText()
	}
	return text + v.problemText()
}

// problemText returns the part of the step's error that the caller may see.
func (v view) problemText() string {
	s := v.step
	text := ": " + s.ErrorType
	if s.ErrorType == "" {
		text = ""
	}
	if v.shows.payloads && s.ErrorMessage != "" {
		text += ": " + fingerprint.Headline(s.ErrorMessage, 500)
	}
	return text
}

func (v view) workerText() string {
	if v.step.WorkerVersion == "" {
		return v.step.WorkerName
	}
	return v.step.WorkerName + " (" + v.step.WorkerVersion + ")"
}

func (v view) describeFailed() explanation {
	return newExplanation(tasker.NextOperator, &v.step.StepSince, "Repair the cause and reset the step, or complete or resolve it by hand.", "%s", v.failureText())
}

func (v view) describeUnattended() explanation {
	t := v.task
	switch {
	case t.AttendBy != nil && v.isLate(*t.AttendBy):
		return newExplanation(tasker.NextServer, &v.step.StepSince, "Wait for the sweep, open an investigation or repair the step. tasker-ctl health shows whether the sweep is late.",
			"%s; the sweep was to open an investigation at %s", v.failureText(), formatTime(*t.AttendBy))
	case t.AttendBy != nil:
		return newExplanation(tasker.NextTimer, &v.step.StepSince, "The sweep opens an investigation; the step may be repaired before.",
			"%s; the sweep opens an investigation at %s", v.failureText(), formatTime(*t.AttendBy))
	case t.EntryUUID != nil:
		return newExplanation(tasker.NextOperator, &v.step.StepSince, "Repair the step, or open an investigation.",
			"%s; the investigation of the task ended as %s%s, and no other is open", v.failureText(), t.EntryStatus, formatActor(t.EntryEndedBy))
	default:
		return newExplanation(tasker.NextOperator, &v.step.StepSince, "Repair the step, or open an investigation.", "%s; no investigation is open", v.failureText())
	}
}

func (v view) describeNoWorker() explanation {
	s, q := v.step, v.queue
	start := fmt.Sprintf("Start a worker with handler %s for namespace %s.", s.Handler, v.task.Namespace)
	switch {
	case s.AwaitsWorkerSince == nil:
		return newExplanation(tasker.NextOperator, &s.StepSince, strings.TrimSuffix(start, ".")+"; without one the step fails within "+formatTimeLeft(v.now, s.ExpiresAt)+".",
			"waits for a worker since %s: %s", formatTime(s.StepSince), v.describeWorkers())
	case q != nil && q.Live > 0:
		return newExplanation(tasker.NextServer, s.AwaitsWorkerSince, "A server puts it back into the queue by itself, unless message_queue.auto_recover is off.",
			"was taken by no worker in time at %s; %s alive now", formatTime(*s.AwaitsWorkerSince), formatAre(q.Live, "worker"))
	default:
		return newExplanation(tasker.NextOperator, s.AwaitsWorkerSince, start+" The step goes back into the queue by itself then, unless message_queue.auto_recover is off.",
			"was taken by no worker in time at %s: %s", formatTime(*s.AwaitsWorkerSince), v.describeWorkers())
	}
}

func formatAre(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return formatCount(n, thing) + " are"
}

func formatTimeLeft(now time.Time, t *time.Time) string {
	if t == nil || t.Before(now) {
		return "moments"
	}
	return t.Sub(now).Round(time.Second).String()
}

// describeWorkers describes the workers for a step that no online worker claims.
func (v view) describeWorkers() string {
	text := fmt.Sprintf("none with handler %s of namespace %s is alive", v.step.Handler, v.task.Namespace)
	q := v.queue
	switch {
	case q == nil:
		return text
	case q.Draining > 0:
		return text + fmt.Sprintf("; %s draining", formatAre(q.Draining, "worker"))
	case q.LastHeard != nil:
		text += fmt.Sprintf("; the last heartbeat of %s was at %s", q.LastName, formatTime(*q.LastHeard))
	}
	if q.Elsewhere > 0 {
		text += fmt.Sprintf("; %s registered for other namespaces", formatAre(q.Elsewhere, "worker"))
	}
	return text
}

func (v view) describeSaturated() explanation {
	return newExplanation(tasker.NextWorker, v.queue.SaturatedSince, "A worker claims it when a place is free; more workers do so sooner. It fails if no step of its queue is claimed for as long as its limit.",
		"%s; its limit was over at %s, and it waits on: the workers of its queue are busy since %s%s", v.describeEnqueued(), formatTime(*v.step.ExpiresAt), formatTime(*v.queue.SaturatedSince), formatLastBusy(v.queue))
}

// formatLastBusy describes when a step of the queue was last claimed or all of its workers were
// last busy.
func formatLastBusy(q *postgres.ExplainedQueue) string {
	if q.BusyAt == nil {
		return ""
	}
	return ", last seen so at " + formatTime(*q.BusyAt)
}

func (v view) describeQueue() explanation {
	return newExplanation(tasker.NextWorker, &v.step.StepSince, "A worker with a free place claims it.", "%s",
		v.describeEnqueued())
}

// describeEnqueued describes how long the step has waited in its queue, and why.
func (v view) describeEnqueued() string {
	s, q := v.step, v.queue
	text := fmt.Sprintf("is enqueued for %s", v.formatAgo(s.StepSince))
	if v.before != nil {
		text += ", behind " + formatUpTo(*v.before, "other")
	}
	if q != nil {
		text += "; " + formatAre(q.Live, "worker") + " alive"
		if q.Taken != nil {
			text += fmt.Sprintf(", %d of %s free", max(0, q.Places-*q.Taken), formatCount(q.Places, "place"))
		}
	}
	return text
}

// formatUpTo formats a number for which counting stops at [tasker.MaxExplainedQueue].
func formatUpTo(n int64, thing string) string {
	if n > tasker.MaxExplainedQueue {
		return fmt.Sprintf("more than %d %ss", tasker.MaxExplainedQueue, thing)
	}
	return formatCount(n, thing)
}

func (v view) describeRunning() explanation {
	s := v.step
	since := s.StepSince
	if s.LastAttemptedAt != nil {
		since = *s.LastAttemptedAt
	}
	text := fmt.Sprintf("runs on %s for %s, attempt %d of %d", cmp.Or(v.workerText(), "a worker"), v.formatAgo(since), s.Attempts, s.MaxAttempts)
	switch heard := s.WorkerSeen; {
	case s.LeaseExpiresAt != nil && v.isLate(*s.LeaseExpiresAt):
		return newExplanation(tasker.NextServer, &since,
			"A server must reclaim it: tasker-ctl health shows which loop is late.",
			"%s; its lease ended at %s, and no server has taken it back%s", text, formatTime(*s.LeaseExpiresAt), describeDeferral(s.StepFailures, s.StepRetryAt))
	case heard != nil && s.WorkerHeartbeat > 0 && v.now.Sub(*heard) > 3*s.WorkerHeartbeat:
		text += fmt.Sprintf("; the worker has been silent for %s, and the attempt is lost at %s", v.formatAgo(*heard), formatOptionalTime(s.LeaseExpiresAt))
	}
	return newExplanation(tasker.NextWorker, &since, "The worker reports a result, or loses its lease.", "%s", text)
}

func (v view) describeRetry() explanation {
	s := v.step
	text := fmt.Sprintf("failed at %s in %d of %s%s", formatTime(s.StepSince), s.Attempts, formatCount(int64(s.MaxAttempts), "attempt"), v.problemText())
	switch due := *s.NextRetryAt; {
	case v.task.TaskState == tasker.TaskError:
		return newExplanation(tasker.NextOperator, &v.task.TaskSince, "Reset the step: a task in error retries nothing by itself.", "%s; it is left alone, because the task is in error since %s", text, formatTime(v.task.TaskSince))
	case v.isLate(due):
		return newExplanation(tasker.NextServer, &due, "A server must retry it: tasker-ctl health shows which loop is late.",
			"%s; it is due since %s, %s ago%s", text, formatTime(due), v.formatAgo(due),
			describeDeferral(v.task.TaskFailures, v.task.TaskRetryAt))
	default:
		return newExplanation(tasker.NextTimer, &s.StepSince, "It is tried again by itself; a reset tries it at once.", "%s; it is tried again at %s", text, formatTime(due))
	}
}

func (v view) describeOutside() explanation {
	since := v.step.StepSince
	for _, t := range []*time.Time{v.step.ParentsDoneAt, v.task.StartAt} {
		if t != nil && t.After(since) {
			since = *t
		}
	}
	what := "an outcome from outside"
	if who := v.step.Assignee; who != nil && *who != "" {
		what = "an answer of " + *who
	} else if who != nil {
		what = "a person's answer; it has no assignee"
	}
	if until := v.step.WaitUntil; until != nil && v.isLate(*until) {
		return newExplanation(tasker.NextServer, until,
			"A server must end the wait: tasker-ctl health shows which loop is late.",
			"waits for %s since %s%s", what, formatTime(since), v.formatTimeLeft())
	}
	return newExplanation(tasker.NextExternal, &since, fmt.Sprintf("Its outcome is reported: tasker-ctl task answer-step %[1]s %[2]s, or POST /v1/tasks/%[1]s/workflow_steps/%[2]s/completion; or an operator completes it by hand.", v.task.TaskUUID, v.step.StepName),
		"waits for %s since %s%s", what, formatTime(since), v.formatTimeLeft())
}

func (v view) describeWait() explanation {
	s, until := v.step, *v.step.WaitUntil
	if v.isLate(until) {
		return newExplanation(tasker.NextServer, &until,
			"A server must end the wait: tasker-ctl health shows which loop is late.",
			"waited until %s; that is %s ago%s", formatTime(until), v.formatAgo(until),
			describeDeferral(s.StepFailures, s.StepRetryAt))
	}
	return newExplanation(tasker.NextTimer, &s.StepSince, "It is complete by itself then; an operator can complete or resolve it now.", "waits until %s", formatTime(until))
}

func (v view) describeItems() explanation {
	s, n := v.step, v.step.Items
	if n == nil {
		return newExplanation(tasker.NextWorker, &s.StepSince, "It is enqueued when another item of its step has ended.", "waits for a place: its step has a limit of items that are under way at once (max_parallel)")
	}
	parts := []string{fmt.Sprintf("waits for %d of its %s", n.Open(), formatCount(int64(n.Total), "item"))}
	for _, part := range []struct {
		items int
		are   string
	}{{n.InProgress, "run"}, {n.Enqueued, "are enqueued"}, {n.Pending, "wait for a place"}, {n.Retrying, "are tried again"}, {n.Failed, "have failed for good"}} {
		if part.items > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.items, part.are))
		}
	}
	text := strings.Join(parts, "; ")
	switch {
	case n.Enqueued+n.InProgress > 0:
		return newExplanation(tasker.NextWorker, &s.StepSince, "Workers report the items.", "%s", text)
	case n.Failed > 0:
		return newExplanation(tasker.NextOperator, &s.StepSince, "A reset of the step resets all of its items that have failed; each can be repaired by itself.", "%s", text)
	case n.Retrying > 0:
		return newExplanation(tasker.NextTimer, &s.StepSince, "The items are tried again by themselves.", "%s", text)
	default:
		return newExplanation(tasker.NextServer, &s.StepSince, "A server continues with the items.", "%s", text)
	}
}

// formatTimeLeft describes when the wait of the step times out, or returns "" if it does not.
func (v view) formatTimeLeft() string {
	until := v.step.WaitUntil
	if until == nil {
		return ""
	}
	if v.task.AsOf.After(*until) {
		return fmt.Sprintf(", and its timeout was at %s%s", formatTime(*until),
			describeDeferral(v.step.StepFailures, v.step.StepRetryAt))
	}
	return fmt.Sprintf(", until its timeout at %s", formatTime(*until))
}

func (v view) describeParents() explanation {
	b := v.blocker
	text := fmt.Sprintf("waits for %s, which %s", b.step.StepName, b.why.Message)
	if v.others > 0 {
		text += fmt.Sprintf("; and for %s", formatCount(int64(v.others), "other step"))
	}
	return newExplanation(b.why.NextActor, b.why.Since, b.why.Remedy, "%s", text)
}

func (v view) describeUnknown() explanation {
	s := newExplanation(tasker.NextOperator, &v.task.TaskSince, "This is a defect of Tasker: report it with the task and its history.",
		"stands in state %s for no reason that is known", v.task.TaskState).forTask()
	if v.step != nil {
		s.Message = fmt.Sprintf("stands in state %s for no reason that is known", v.step.StepState)
		s.Since, s.ofTask = &v.step.StepSince, false
	}
	return s
}
