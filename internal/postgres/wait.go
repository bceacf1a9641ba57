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

var stepsWithWaitOver = stepsDueBy("wait_until", EndWait)

// StepsWithWaitOver returns steps whose wait has ended, oldest first.
func (db *DB) StepsWithWaitOver(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsWithWaitOver, limit)
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

const waitsOver = `
SELECT s.task_uuid, s.step_uuid, t.template_uuid, s.name, s.fence, coalesce(s.timeout_ms, 0) AS timeout_ms
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = 'pending' AND s.wait_until <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid`

// WaitsOver filters steps for those whose wait has ended. The caller holds the task locks.
func (tx *Tx) WaitsOver(ctx context.Context, steps []tasker.StepRef) ([]WaitingStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[WaitingStep](ctx, tx, waitsOver, tasks, ids)
	return list, wrap(err, "read ended waits")
}

// Remind is the kind of timed work that sends reminders about steps.
const Remind = "remind"

var stepsToRemind = stepsDueBy("remind_at", Remind)

// StepsToRemind returns steps with a due reminder, oldest first.
func (db *DB) StepsToRemind(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsToRemind, limit)
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

const remindedSteps = `
SELECT s.task_uuid, s.step_uuid, t.template_uuid, t.namespace, t.name AS task_name, s.name, s.remind_at, s.reminders, s.wait_until, coalesce(a.assignee, '') AS assignee, now() AS as_of
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
LEFT JOIN tasker.human_steps a ON a.task_uuid = s.task_uuid AND a.step_uuid = s.step_uuid
WHERE s.state = 'pending' AND s.remind_at <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid`

// RemindedSteps filters steps for those with a due reminder. The caller holds the task locks.
func (tx *Tx) RemindedSteps(ctx context.Context, steps []tasker.StepRef) ([]RemindedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[RemindedStep](ctx, tx, remindedSteps, tasks, ids)
	return list, wrap(err, "read due reminders")
}

const reminded = `
UPDATE tasker.workflow_steps s
SET reminders = u.reminders, remind_at = u.remind_at
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::timestamptz[]) AS u (task_uuid, step_uuid, reminders, remind_at)
WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'pending' AND s.remind_at IS NOT NULL`

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
	return exec(ctx, tx, "record reminders", reminded, tasks, ids, sent, next)
}
