package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// EndWait is the kind of timed work that ends waits.
const EndWait = "wait"

// waitOf returns the end of a wait of step s that starts at a time. It is null if the end is not set
// or unknown, and for steps that workers run.
func waitOf(at string) string {
	return `CASE WHEN s.step_type NOT IN ('standard', 'map') THEN ` + at + ` + interval '1 millisecond' * s.timeout_ms END`
}

// remindOf returns the time of the first reminder of step s whose wait starts at a time, or null.
func remindOf(at string) string { return at + ` + interval '1 second' * s.remind_first_s` }

// StepsWithWaitOver returns steps whose wait has ended, oldest first.
func (db *DB) StepsWithWaitOver(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("stepsWithWaitOver"), limit)
}

// WaitingStep is a step whose wait has ended.
type WaitingStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Name         string
	Fence        int64
	TimeoutMS    int64
}

// WaitsOver filters steps for those whose wait has ended. The caller holds the task locks.
func (tx *Tx) WaitsOver(ctx context.Context, steps []tasker.StepRef) ([]WaitingStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[WaitingStep](ctx, tx, stmt("waitsOver"), tasks, ids)
	return list, wrap(err, "read ended waits")
}

// Remind is the kind of timed work that sends reminders about steps.
const Remind = "remind"

// StepsToRemind returns steps with a due reminder, oldest first.
func (db *DB) StepsToRemind(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("stepsToRemind"), limit)
}

// RemindedStep is a step that waits for an answer and has a due reminder.
type RemindedStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Namespace    string
	TaskName     string
	Name         string
	RemindAt     time.Time
	Reminders    int // number of previous reminders
	WaitUntil    *time.Time
	Assignee     string    // optional
	AsOf         time.Time // database time of the query
}

// RemindedSteps filters steps for those with a due reminder. The caller holds the task locks.
func (tx *Tx) RemindedSteps(ctx context.Context, steps []tasker.StepRef) ([]RemindedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[RemindedStep](ctx, tx, stmt("remindedSteps"), tasks, ids)
	return list, wrap(err, "read due reminders")
}

// Reminder is a message about a step.
type Reminder struct {
	RemindedStep
	Sent int        // number of reminders including this one
	Next *time.Time // nil for the last reminder
	Data tasker.NotificationData
}

// SendReminders enqueues and records reminders. The caller holds the task locks.
func (tx *Tx) SendReminders(ctx context.Context, list []Reminder) error {
	refs, sent, next := make([]tasker.StepRef, len(list)), make([]int32, len(list)), make([]*time.Time, len(list))
	for i, r := range list {
		refs[i], sent[i], next[i] = tasker.StepRef{TaskUUID: r.TaskUUID, StepUUID: r.StepUUID}, int32(r.Sent), r.Next
		if _, err := tx.CreateNotification(ctx, NewMessage{
			Topic: tasker.StepReminderTopic, SubjectKind: tasker.StepSubject, SubjectID: r.StepUUID, Namespaces: []string{r.Namespace}, Data: r.Data,
		}); err != nil {
			return err
		}
	}
	tasks, ids := refArrays(refs)
	return exec(ctx, tx, "record reminders", stmt("reminded"), tasks, ids, sent, next)
}
