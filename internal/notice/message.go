package notice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// Key returns the deduplication key that all notifications about a subject share.
func Key(installation, kind string, id tasker.ID) string {
	return fmt.Sprintf("tasker:%s:%s:%s", installation, kind, id)
}

// Data returns the content of the notification about the incident.
func (d Decision) Data() tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: d.Severity, Namespace: d.Namespace, BeganAt: d.BeganAt.UTC(), UnownedSince: d.UnownedSince, Case: &d.Lead,
		Cases: len(d.Cases), Path: "/ui/cases/" + d.Lead.String(),
	}
	var stuck, small int64
	for _, c := range d.Cases {
		stuck += c.Stuck()
		if c.isActive() && c.isSmall() {
			small++
		}
		addCase(&out, c)
		out.Harm = max(out.Harm, c.Harm)
		if c.State != tasker.CaseResolved {
			out.CasesOpen++
		}
		if c.Owner != "" && len(out.Owners) < tasker.MaxMessageMembers && !slices.Contains(out.Owners, c.Owner) {
			out.Owners = append(out.Owners, c.Owner)
		}
		if c.ID == d.Lead {
			out.Template, out.Step, out.Reason, out.ErrorType = c.TaskName, c.StepName, c.Reason, c.ErrorType
			out.State, out.Text = string(c.State), c.ErrorPattern
		}
	}
	out.Summary = d.formatSummary(out, stuck, small)
	return out
}

// addCase adds a case to the counts and the members of a notification.
func addCase(out *tasker.NotificationData, c Case) {
	out.Entries += c.Entries
	out.Waiting += c.Waiting
	out.Proving += c.Proving
	out.FailedAgain += c.FailedAgain
	out.Recovered += c.Recovered
	if len(out.Members) < tasker.MaxMessageMembers {
		out.Members = append(out.Members, tasker.MessageMember{
			Case: c.ID, State: c.State, Severity: c.Severity, Template: c.TaskName, Step: c.StepName, Text: c.ErrorPattern,
			Entries: c.Entries, Owner: c.Owner,
		})
	}
}

// formatSummary summarizes the notification in one line. stuck is the number of stuck tasks, small
// that of small cases.
func (d Decision) formatSummary(m tasker.NotificationData, stuck, small int64) string {
	what := formatPlace(m.Template, m.Step) + ": " + cmp.Or(m.Text, string(m.Reason))
	i := slices.IndexFunc(d.Cases, func(c Case) bool { return c.ID == d.Lead })
	switch open := int64(m.CasesOpen); {
	case small > 1 && i >= 0 && d.Cases[i].isSmall():
		what = fmt.Sprintf("%s in %s such as %s", formatCount(stuckWeight(d.Cases[i], d.Cases), "task"), formatCount(small, "small case"), what)
		if open > small {
			what += ", and " + formatCount(open-small, "other case")
		}
	case open > 1:
		what += ", and " + formatCount(open-1, "other case")
	case open == 0 && m.Cases > 1:
		what += ", and " + formatCount(int64(m.Cases-1), "other case")
	}
	head, tasks := m.Namespace+": ", formatCount(stuck, "task")
	switch d.Topic {
	case tasker.CaseResolvedTopic:
		return head + "resolved: " + what
	case tasker.CaseOwnedTopic:
		if len(m.Owners) == 0 {
			return head + "no open case needs an operator now: " + what
		}
		return head + "taken by " + strings.Join(m.Owners, ", ") + ": " + what
	case tasker.CaseUnownedTopic:
		return head + tasks + " stuck, unowned since " + m.UnownedSince.UTC().Format("15:04Z") + ": " + what
	case tasker.CaseRegressedTopic:
		return head + tasks + " stuck again: " + what
	case tasker.CaseWokeTopic:
		return head + tasks + " stuck, no longer snoozed: " + what
	case tasker.CaseGrewTopic, tasker.CaseChangedTopic:
		return head + tasks + " stuck by now: " + what
	default:
		return head + tasks + " stuck: " + what
	}
}

func formatPlace(template, step string) string {
	if step == "" {
		return template
	}
	return template + " > " + step
}

// formatCount formats a number with its noun.
func formatCount(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + thing + "s"
}

// NewDigest returns the notification about the small cases of one namespace that have no owner.
// They must be sorted, most harmful first.
func NewDigest(now time.Time, cases []Case) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: highestSeverity(cases), Namespace: cases[0].Namespace, Cases: len(cases), CasesOpen: len(cases),
		BeganAt: now.UTC(),
		Path:    "/ui/?unowned=true",
	}
	for _, c := range cases {
		addCase(&out, c)
		if c.Oldest != nil && c.Oldest.Before(out.BeganAt) {
			out.BeganAt = c.Oldest.UTC()
		}
	}
	out.Summary = fmt.Sprintf("%s: %s with %s without an owner",
		out.Namespace, formatCount(int64(len(cases)), "small case"), formatCount(out.Entries, "stuck task"))
	return out
}

// A Repair contains the facts about an operation that a notification mentions.
type Repair struct {
	ID          tasker.ID
	State       tasker.OperationState
	Act         tasker.Act
	Namespaces  []string
	PausedFor   tasker.PauseReason
	BeganAt     time.Time
	By          string
	Items       int64
	Verified    int64
	FailedAgain int64
	Skipped     int64
}

// NewOperationData returns the notification about an operation. It does not quote errors.
func NewOperationData(r Repair) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: tasker.Low, Operation: &r.ID, State: string(r.State), BeganAt: r.BeganAt.UTC(), By: r.By,
		Entries: r.Items - r.Verified - r.Skipped, FailedAgain: r.FailedAgain, Path: "/ui/operations/" + r.ID.String(),
	}
	if len(r.Namespaces) == 1 {
		out.Namespace = r.Namespaces[0]
	}
	state := string(r.State)
	if r.State == tasker.OperationPaused {
		out.Severity, state = tasker.High, "paused automatically ("+string(r.PausedFor)+")"
	}
	out.Summary = fmt.Sprintf("%s: operation %s of %s is %s: %d verified, %d failed again, %d left out",
		strings.Join(r.Namespaces, ", "), r.Act, formatCount(r.Items, "item"), state, r.Verified, r.FailedAgain, r.Skipped)
	return out
}

// NewHoldData returns the notification about a hold. It quotes the pattern of the failure, but not
// the reason of the hold.
func NewHoldData(topic string, h tasker.Hold, by string) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: tasker.Medium, Namespace: h.Namespace, Template: h.TaskName, Step: h.StepName, Hold: &h.UUID,
		State: string(h.State), BeganAt: h.BeganAt.UTC(), By: by, Waiting: h.Held, Text: h.Cause, Owners: []string{h.Owner},
		Path: "/ui/holds/" + h.UUID.String(),
	}
	what, until := "the hold of "+formatScope(h.HoldScope), h.EndsAt.UTC().Format("15:04 UTC")
	if h.Kind == tasker.BreakerHold {
		what, out.Owners = "the breaker of "+formatScope(h.HoldScope), nil
	}
	switch topic {
	case tasker.HoldBeganTopic:
		out.Summary = fmt.Sprintf("%s began, until %s; its owner is %s", what, until, h.Owner)
	case tasker.BreakerOpenedTopic:
		out.Severity = tasker.High
		out.Summary = what + " opened: attempts keep failing with one cause, and steps are held until a probe succeeds"
	case tasker.HoldEndingTopic, tasker.BreakerEndingTopic:
		out.Severity = tasker.High
		out.Summary = fmt.Sprintf("%s ends at %s: it holds %s, which are then released in waves", what, until, formatCount(h.Held, "step"))
	case tasker.HoldFailedTopic:
		out.Severity = tasker.High
		if !h.Blocks {
			out.Summary = what + " is over: released steps have failed, and it is too old to hold again, so all others are released"
			break
		}
		out.Summary = fmt.Sprintf("%s holds again, until %s: released steps have failed", what, until)
	default:
		out.Severity, out.Summary = tasker.Low, fmt.Sprintf("%s is over: it let %s go", what, formatCount(h.Released, "step"))
	}
	out.Summary = h.Namespace + ": " + out.Summary
	return out
}

// NewSaturationData returns the notification about a queue that is saturated or no longer so.
func NewSaturationData(topic, namespace, handler string, since time.Time) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: tasker.Medium, Namespace: namespace, Handler: handler, State: "saturated", BeganAt: since.UTC(),
		Path: "/ui/workers#queues", Summary: fmt.Sprintf(
			"%s: the workers of handler %s are busy, and steps wait for them past their limit", namespace, handler),
	}
	if topic == tasker.QueueRelievedTopic {
		out.Severity, out.State = tasker.Low, "relieved"
		out.Summary = fmt.Sprintf("%s: no step waits for handler %s past its limit any more", namespace, handler)
	}
	return out
}

// Waiting describes an external step that waits for an answer.
type Waiting struct {
	TaskUUID  tasker.ID
	Namespace string
	Template  string
	Step      string
	StepUUID  tasker.ID
	Assignee  string // optional
	Since     time.Time
	Until     *time.Time // timeout of the wait
	Number    int        // of the reminder, from 1
	Now       time.Time
}

// NewReminderData returns the notification about a step that waits for an answer.
func NewReminderData(w Waiting) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: tasker.Low, Namespace: w.Namespace, Template: w.Template, Step: w.Step, Task: &w.TaskUUID,
		State: string(tasker.StepPending), Waiting: 1, BeganAt: w.Since.UTC(), Assignee: w.Assignee,
		Path: "/ui/tasks/" + w.TaskUUID.String(),
	}
	out.Summary = fmt.Sprintf("%s: step %s of %s has waited for an answer%s for %s",
		w.Namespace, w.Step, w.Template, formatAssignee(w.Assignee), formatDuration(w.Now.Sub(w.Since)))

	if w.Assignee != "" {
		out.Path = AnswerPath(tasker.StepRef{TaskUUID: w.TaskUUID, StepUUID: w.StepUUID})
	}
	if w.Until != nil {
		out.Summary += "; its timeout is at " + w.Until.UTC().Format("2006-01-02 15:04 UTC")
	}
	return out
}

// A Deadline describes a task or step with a due time.
type Deadline struct {
	TaskUUID  tasker.ID
	Namespace string
	Template  string
	Step      string // empty for the task
	State     string // of the task or step
	DueAt     time.Time
	CreatedAt time.Time // of the task
	Now       time.Time
}

// NewDeadlineData returns the notification about something that is due soon or overdue.
func NewDeadlineData(d Deadline) tasker.NotificationData {
	out := tasker.NotificationData{
		Severity: tasker.Low, Namespace: d.Namespace, Template: d.Template, Step: d.Step, Task: &d.TaskUUID, State: d.State,
		BeganAt: d.CreatedAt.UTC(), Path: "/ui/tasks/" + d.TaskUUID.String(),
	}
	what := "a task of " + d.Template
	if d.Step != "" {
		what = "step " + d.Step + " of " + what
	}
	due := d.DueAt.UTC().Format("2006-01-02 15:04:05 UTC")
	if d.Now.Before(d.DueAt) {
		out.Summary = fmt.Sprintf("%s: %s is due in %s, at %s", d.Namespace, what, formatDuration(d.DueAt.Sub(d.Now)), due)
		return out
	}
	out.Severity = tasker.Medium
	out.Summary = fmt.Sprintf("%s: %s is overdue for %s; it was due at %s", d.Namespace, what, formatDuration(d.Now.Sub(d.DueAt)), due)
	return out
}

// NewAnswerRequestData returns the notification about a step that starts to wait for a person's
// answer.
func NewAnswerRequestData(a tasker.HumanStep) tasker.NotificationData {
	out := newAssignmentData(a)
	out.Summary = fmt.Sprintf("%s: step %s of %s waits for an answer%s", a.Namespace, a.StepName, a.TaskName, formatAssignee(string(a.Assignee)))
	if a.DueAt != nil {
		out.Summary += "; its timeout is at " + a.DueAt.UTC().Format("2006-01-02 15:04 UTC")
	}
	return out
}

// NewAssignedData returns the notification about a step that was assigned to another person.
func NewAssignedData(a tasker.HumanStep, by string) tasker.NotificationData {
	out := newAssignmentData(a)
	out.By = by
	out.Summary = fmt.Sprintf("%s: step %s of %s was assigned to %s by %s",
		a.Namespace, a.StepName, a.TaskName, cmp.Or(string(a.Assignee), "nobody"), by)
	return out
}

func newAssignmentData(a tasker.HumanStep) tasker.NotificationData {
	return tasker.NotificationData{
		Severity: tasker.Low, Namespace: a.Namespace, Template: a.TaskName, Step: a.StepName, Task: &a.TaskUUID,
		State: string(tasker.StepPending), Waiting: 1, BeganAt: a.WaitingSince.UTC(), Assignee: string(a.Assignee),
		Path: AnswerPath(a.StepRef),
	}
}

// AnswerPath returns the path of the page on which a step is answered.
func AnswerPath(s tasker.StepRef) string {
	return "/ui/tasks/" + s.TaskUUID.String() + "/steps/" + s.StepUUID.String() + "/answer"
}

func formatAssignee(assignee string) string {
	if assignee == "" {
		return ""
	}
	return " of " + assignee
}

// formatDuration formats a duration in its largest whole unit.
func formatDuration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return formatCount(int64(d/(24*time.Hour)), "day")
	case d >= 2*time.Hour:
		return formatCount(int64(d/time.Hour), "hour")
	case d >= 2*time.Minute:
		return formatCount(int64(d/time.Minute), "minute")
	default:
		return formatCount(int64(d/time.Second), "second")
	}
}

// formatScope describes the scope of a hold within its namespace.
func formatScope(s tasker.HoldScope) string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"handler", s.Handler}, {"template", s.TaskName}, {"step", s.StepName},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "all steps")
}

// NewTestData returns a notification to try out the routes.
func NewTestData(namespace, by string, now time.Time) tasker.NotificationData {
	return tasker.NotificationData{
		Summary:   namespace + ": a test of the routes by " + by + "; nothing has happened",
		Namespace: namespace, By: by, BeganAt: now.UTC(), Path: "/ui/",
	}
}
