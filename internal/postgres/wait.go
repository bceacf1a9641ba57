package postgres

import (
	"context"
	"time"

	"tasker.example/tasker"
)

// EndWait is the kind of work of steps whose wait is over.
const EndWait = "wait"

// waitOf is when the wait of a step s ends that begins at an instant: null when it has no
// end, or none that is known yet, and of steps that workers execute.
func waitOf(at string) string {
	return `CASE WHEN s.step_type NOT IN ('standard', 'map') THEN ` + at + ` + interval '1 millisecond' * s.timeout_ms END`
}

// remindOf is when people are first reminded of a step s whose wait begins at an instant; null
// when they are not.
func remindOf(at string) string { return at + ` + interval '1 second' * s.remind_first_s` }

var stepsWithWaitOver = stepsDueBy("wait_until", EndWait)

// StepsWithWaitOver returns steps whose wait is over, oldest first.
func (db *DB) StepsWithWaitOver(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsWithWaitOver, limit)
}

// A WaitingStep is a step whose wait is over.
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

// WaitsOver returns those of the steps whose wait is still over, under the task locks.
func (tx *Tx) WaitsOver(ctx context.Context, steps []tasker.StepRef) ([]WaitingStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[WaitingStep](ctx, tx, waitsOver, tasks, ids)
	return list, wrap(err, "read waits that are over")
}

// Remind is the kind of work of steps of which people are to be reminded.
const Remind = "remind"

var stepsToRemind = stepsDueBy("remind_at", Remind)

// StepsToRemind returns steps with a due reminder, oldest first.
func (db *DB) StepsToRemind(ctx context.Context, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsToRemind, limit)
}

// A RemindedStep is a step that waits for an answer, and of which people are to be reminded.
type RemindedStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	TemplateUUID tasker.ID
	Namespace    string
	TaskName     string
	Name         string
	RemindAt     time.Time
	Reminders    int // that were sent before
	WaitUntil    *time.Time
	Assignee     string    // empty: nobody in particular
	AsOf         time.Time // when it was read, by the database's clock
}

const remindedSteps = `
SELECT s.task_uuid, s.step_uuid, t.template_uuid, t.namespace, t.name AS task_name, s.name, s.remind_at, s.reminders, s.wait_until, coalesce(a.assignee, '') AS assignee, now() AS as_of
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
LEFT JOIN tasker.human_steps a ON a.task_uuid = s.task_uuid AND a.step_uuid = s.step_uuid
WHERE s.state = 'pending' AND s.remind_at <= now() AND t.state NOT IN ('pending', 'complete', 'cancelled')
ORDER BY s.task_uuid, s.step_uuid`

// RemindedSteps returns those of the steps with a reminder still due, under the task locks.
func (tx *Tx) RemindedSteps(ctx context.Context, steps []tasker.StepRef) ([]RemindedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[RemindedStep](ctx, tx, remindedSteps, tasks, ids)
	return list, wrap(err, "read steps to remind people of")
}

const reminded = `
UPDATE tasker.workflow_steps s
SET reminders = u.reminders, remind_at = u.remind_at
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::timestamptz[]) AS u (task_uuid, step_uuid, reminders, remind_at)
WHERE s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid AND s.state = 'pending' AND s.remind_at IS NOT NULL`

// A Reminder is a message about a step, and when the next one follows.
type Reminder struct {
	RemindedStep
	Sent int        // reminders of this wait, with this one
	Next *time.Time // nil: it was the last
	Data tasker.NotificationData
}

// SendReminders enqueues and records reminders, under the task locks.
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
	_, err := tx.Exec(ctx, reminded, tasks, ids, sent, next)
	return wrap(err, "note reminders")
}
