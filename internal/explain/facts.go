package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
)

func (f match) listFacts() (list []tasker.ExplainedFact) {
	add := func(name, format string, args ...any) {
		list = append(list, tasker.ExplainedFact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	t, s := f.task, f.step
	add("task", "%s since %s", t.TaskState, formatTime(t.TaskSince))
	switch {
	case t.Phase != "":
		add("phase", "%s: %d of %s undone", t.Phase, t.Undone, formatCount(int64(t.UndoSteps), "step"))
	case t.Outcome != "":
		add("outcome", "%s: %d of %s undone", strings.ReplaceAll(string(t.Outcome), "_", " "), t.Undone, formatCount(int64(t.UndoSteps), "step"))
	}
	f.addStartFacts(add)
	if t.EntryUUID != nil && f.shows.investigations {
		status := string(t.EntryStatus)
		if t.EntryRecovered != nil && t.EntryStatus == tasker.EntryPending {
			status += ", and the task went on by itself at " + formatTime(*t.EntryRecovered)
		}
		add("investigation", "%s: %s, %s, opened at %s: %s", t.EntryUUID, t.EntryReason, t.EntryCode, formatOptionalTime(t.EntryOpened), status)
		if t.CaseID != nil && t.EntryStatus == tasker.EntryPending {
			owner := "no owner"
			if t.CaseOwner != "" {
				owner = "taken by " + t.CaseOwner
			}
			if t.CaseEntries != nil {
				owner = formatUpTo(*t.CaseEntries, "open investigation") + ", " + owner
			}
			add("case", "%s: %s", t.CaseID, owner)
		}
	}
	list = append(list, f.listParents()...)
	if s == nil || isOver(s.StepState) {
		return list
	}
	add("step", "%s since %s", s.StepState, formatTime(s.StepSince))
	for _, instant := range []struct {
		name string
		at   *time.Time
	}{{"expires", s.ExpiresAt}, {"heartbeat", f.lastSeen()}, {"lease ends", s.LeaseExpiresAt}, {"times out", s.TimeoutAt}, {"next attempt", s.NextRetryAt}} {
		if instant.at != nil && (instant.name != "expires" || s.HoldUUID == nil && s.LimitKind == "") { // the expiry is suspended then
			add(instant.name, "%s", formatTime(*instant.at))
		}
	}
	if c := s.Checkpoint; c != nil {
		add("checkpoint", "saved at %s by attempt %d, %d bytes", formatTime(c.SavedAt), c.Attempt, c.Bytes)
	}
	if c := f.child; c != nil {
		add("child", "%s: %s since %s", c.task.TaskUUID, c.task.TaskState, formatTime(c.task.TaskSince))
		if c.task.EntryUUID != nil && c.shows.investigations {
			add("investigation of the child", "%s: %s, %s: %s", c.task.EntryUUID, c.task.EntryReason, c.task.EntryCode, c.task.EntryStatus)
		}
	}
	if s.HoldUUID != nil {
		add("hold", "%s of %s, %s", s.HoldUUID, s.HoldOwner, s.HoldState)
	}
	if s.LimitKind != "" {
		add("limit", "%s, %s", formatLimit(s.LimitOfStep), f.formatSlots())
	}
	if s.OperationUUID != nil && f.shows.investigations {
		add("operation", "%s: %s, the step is %s", s.OperationUUID, s.OperationState, strings.ReplaceAll(s.ItemState, "_", " "))
	}
	return list
}

// listParents describes the ancestors of the task, and whether their steps wait for it.
func (f match) listParents() (list []tasker.ExplainedFact) {
	for i, a := range f.above {
		name, below := "parent", "this task"
		if i > 0 {
			name, below = "above", a.ChildUUID.String()
		}
		does := "started " + below + ", and no longer waits for it"
		if a.Waits {
			does = "waits for " + below
		}
		list = append(list, tasker.ExplainedFact{Name: name, Value: fmt.Sprintf("%s: step %s of %s/%s %s", a.TaskUUID, cmp.Or(a.Step, "(removed)"), a.Namespace, a.Name, does)})
	}
	if f.task.ParentUUID != nil && len(f.above) == 0 {
		list = append(list, tasker.ExplainedFact{Name: "parent", Value: f.task.ParentUUID.String() + ": a step of it started this task"})
	}
	return list
}

// lastSeen returns the last heartbeat of the worker that executes the step, or nil if none does.
func (f match) lastSeen() *time.Time {
	if f.step.StepState != tasker.StepInProgress {
		return nil
	}
	return f.step.WorkerSeen
}

// addStartFacts adds facts about the due times and the start of the task.
func (f match) addStartFacts(add func(name, format string, args ...any)) {
	f.addDeadlines(add)
	if id := f.task.ScheduleUUID; id != nil {
		how := map[tasker.FiringKind]string{
			tasker.ClockFiring: "made at its instant", tasker.ManualFiring: "triggered at", tasker.BackfillFiring: "made later for its instant",
		}
		add("schedule", "%s (%s), %s %s", f.task.Schedule, id, how[f.task.Firing], formatOptionalTime(f.task.NominalAt))
	}
	if by := f.task.StartBy; by != nil {
		add("start by", "%s: it ends as expired unless a step of it was claimed by then", formatTime(*by))
	}
}

// addDeadlines adds the due times of the task and the step, and the maximum duration.
func (f match) addDeadlines(add func(name, format string, args ...any)) {
	t := f.task
	ends := t.TaskState == tasker.TaskComplete || t.TaskState == tasker.TaskCancelled
	first, _ := tasker.FirstDeadline(t.Due, t.EndsAt)
	if d := t.Due; d != nil {
		add("due", "%s", f.formatDue(d))
	}
	if t.EndsAt != nil && !ends {
		before := ""
		if t.Due != nil && first == tasker.ByMaxDuration {
			before = ", which is before it is due"
		}
		add("max duration", "until %s%s", formatTime(*t.EndsAt), before)
	}
	if f.step != nil && f.step.StepDue != nil {
		add("step due", "%s", f.formatDue(f.step.StepDue))
	}
}

func (f match) formatDue(d *tasker.Deadline) string {
	text := formatTime(d.DueAt)
	switch d.State {
	case tasker.DeadlineOverdue:
		text += ", overdue for " + f.now.Sub(d.DueAt).Truncate(time.Second).String()
	case tasker.DeadlineSoon:
		text += ", soon: in " + d.DueAt.Sub(f.now).Truncate(time.Second).String()
	case tasker.DeadlineMissed:
		text += ", and was late"
	case tasker.DeadlineAhead, tasker.DeadlineMet, tasker.DeadlineEnded:
	}
	if d.Overdue == tasker.OverdueInvestigate {
		text += "; what is overdue is investigated"
	}
	if d.SetBy != "" {
		text += "; set by " + string(d.SetBy)
	}
	return text
}
