package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// EndWait is the kind of timed work that ends waits.
const EndWait = "wait"

// StepsWithWaitOver returns steps whose wait is over, oldest first.
func (db *DB) StepsWithWaitOver(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsWithWaitOver"), limit)
}

// WaitingStep is a step whose wait is over.
type WaitingStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Name         string
	Fence        int64
	TimeoutMS    int64
}

// WaitsOver returns those of the steps whose wait is over. The caller must hold the task locks.
func (tx *Tx) WaitsOver(ctx context.Context, steps []tasker.StepRef) ([]WaitingStep, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[WaitingStep](ctx, tx, statement("waitsOver"), tasks, ids)
	return list, wrapError(err, "read ended waits")
}

// Remind is the kind of timed work that sends reminders about steps.
const Remind = "remind"

// StepsToRemind returns steps for which a reminder is due, oldest first.
func (db *DB) StepsToRemind(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsToRemind"), limit)
}

// RemindedStep is a step that waits for an answer and for which a reminder is due.
type RemindedStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Namespace    string
	TaskName     string
	Name         string
	RemindAt     time.Time
	Reminders    int // number of earlier reminders
	WaitUntil    *time.Time
	Assignee     string    // may be empty
	AsOf         time.Time // time of the database when this was read
}

// RemindedSteps returns those of the steps for which a reminder is due. The caller must hold the
// task locks.
func (tx *Tx) RemindedSteps(ctx context.Context, steps []tasker.StepRef) ([]RemindedStep, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[RemindedStep](ctx, tx, statement("remindedSteps"), tasks, ids)
	return list, wrapError(err, "read due reminders")
}

// Reminder is a message that reminds people of a step.
type Reminder struct {
	RemindedStep
	Sent int        // number of reminders, including this one
	Next *time.Time // time of the next reminder, or nil
	Data tasker.NotificationData
}

// SendReminders stores reminders to be sent. The caller must hold the task locks.
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
	tasks, ids := toRefArrays(refs)
	return exec(ctx, tx, "record reminders", statement("reminded"), tasks, ids, sent, next)
}
