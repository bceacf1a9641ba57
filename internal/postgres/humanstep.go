package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const humanStepColumns = `
    a.task_uuid, a.step_uuid, a.namespace, a.task_name, a.step_name, a.assignee, a.assigned_by, a.assigned_at, a.waiting, a.waiting_since,
    nullif(a.due_at, 'infinity') AS due_at, a.escalated_at, s.reminders`

// A NewHumanStep is a step that starts to wait for an answer from a person.
type NewHumanStep struct {
	tasker.StepRef
	Assignee string
}

// BeginHumanSteps stores the assignees of steps and notifies them. The function describe returns
// the data of a notification. The caller must hold the task locks.
func (tx *Tx) BeginHumanSteps(ctx context.Context, steps []NewHumanStep, describe func(tasker.HumanStep) tasker.NotificationData) error {
	if len(steps) == 0 {
		return nil
	}
	refs, assignees := make([]tasker.StepRef, len(steps)), make([]string, len(steps))
	for i, s := range steps {
		refs[i], assignees[i] = s.StepRef, s.Assignee
	}
	tasks, ids := toRefArrays(refs)
	list, err := collect[tasker.HumanStep](ctx, tx, statement("beginHumanSteps"), tasks, ids, assignees)
	if err != nil {
		return fmt.Errorf("store the assignees of steps: %w", err)
	}
	for _, a := range list {
		if err := tx.notifyAssignee(ctx, tasker.StepWaitingTopic, a, describe(a)); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) notifyAssignee(ctx context.Context, topic string, a tasker.HumanStep, data tasker.NotificationData) error {
	_, err := tx.CreateNotification(ctx, NewMessage{Topic: topic, SubjectKind: tasker.StepSubject, SubjectID: a.StepUUID, Namespaces: []string{a.Namespace}, Data: data})
	return err
}

// followHumanSteps updates whether steps wait for people after the steps have changed state.
func (tx *Tx) followHumanSteps(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := toRefArrays(steps)
	_, err := tx.Exec(ctx, statement("followHumanSteps"), tasks, ids)
	return wrapError(err, "update the steps that wait for people")
}

// endHumanSteps ends the wait for people in all steps of the tasks.
func (tx *Tx) endHumanSteps(ctx context.Context, tasks []tasker.ID) error {
	_, err := tx.Exec(ctx, statement("endHumanSteps"), tasks)
	return wrapError(err, "stop waiting for people")
}

func findHumanStep(ctx context.Context, q querier, step tasker.StepRef) (*tasker.HumanStep, error) {
	a, err := queryOne[tasker.HumanStep](ctx, q, statement("selectHumanStep"), step.TaskUUID, step.StepUUID)
	return a, wrapError(err, "read the assignment of step %s", step.StepUUID)
}

// HumanStep returns the assignment of a step, or nil if the step is not a human step.
func (db *DB) HumanStep(ctx context.Context, step tasker.StepRef) (*tasker.HumanStep, error) {
	return findHumanStep(ctx, db.pool, step)
}

// HumanStep is [DB.HumanStep] within the transaction.
func (tx *Tx) HumanStep(ctx context.Context, step tasker.StepRef) (*tasker.HumanStep, error) {
	return findHumanStep(ctx, tx, step)
}

// HumanStepHistory returns the latest changes to an assignment, newest first.
func (db *DB) HumanStepHistory(ctx context.Context, step tasker.StepRef) ([]tasker.HumanStepChange, error) {
	list, err := collect[tasker.HumanStepChange](ctx, db.pool, statement("humanStepHistory"), step.TaskUUID, step.StepUUID, tasker.MaxHumanStepHistory)
	return list, wrapError(err, "read the history of the assignment of step %s", step.StepUUID)
}

// A Reassignment changes the assignee of a waiting step.
type Reassignment struct {
	tasker.StepRef
	tasker.AssignRequest
	Event string // event that the history records
	Audit bool   // whether to record the change in the audit log
}

// Assign changes the assignee of a step. It returns false if the assignee is the same. The caller
// must hold the task lock.
func (tx *Tx) Assign(ctx context.Context, r Reassignment) (bool, error) {
	tag, err := tx.Exec(ctx, statement("assign"), r.TaskUUID, r.StepUUID, r.Assignee, r.Actor, r.Reason, r.Event)
	if err != nil {
		return false, fmt.Errorf("assign step %s: %w", r.StepUUID, err)
	}
	if tag.RowsAffected() == 0 || !r.Audit {
		return tag.RowsAffected() > 0, nil
	}
	data, err := json.Marshal(map[string]any{"task_uuid": r.TaskUUID, "assignee": r.Assignee, "reason": r.Reason})
	if err != nil {
		return false, fmt.Errorf("audit the assignment of step %s: %w", r.StepUUID, err)
	}
	return true, tx.auditData(ctx, r.Actor, "step."+r.Event, r.StepUUID, data)
}

// NotifyAssigned notifies the new assignee of a step.
func (tx *Tx) NotifyAssigned(ctx context.Context, a tasker.HumanStep, data tasker.NotificationData) error {
	return tx.notifyAssignee(ctx, tasker.StepAssignedTopic, a, data)
}

// The namespaces in $1 or, if it is NULL, all namespaces with waiting steps. These are found by an
// index skip scan.
const inboxNamespaces = `
WITH RECURSIVE found AS (
    (SELECT a.namespace FROM tasker.human_steps a WHERE $1::text[] IS NULL AND a.waiting ORDER BY a.namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT a.namespace FROM tasker.human_steps a WHERE a.waiting AND a.namespace > f.namespace ORDER BY a.namespace LIMIT 1)
    FROM found f WHERE f.namespace IS NOT NULL
),
spaces AS (SELECT f.namespace FROM found f WHERE f.namespace IS NOT NULL UNION ALL SELECT unnest($1::text[]))`

// buildInboxQuery returns a statement that selects a page of the inbox, and its arguments. It reads
// one index range per namespace and assignee.
func buildInboxQuery(f tasker.InboxFilter, spaces []string) (string, []any) {
	after, step := &time.Time{}, tasker.ID{}
	if f.After != nil {
		after, step = f.After.DueAt, f.After.Step
	}
	p := parameters{spaces, after, step, f.Limit + 1}
	from, where := "spaces n", "a.waiting AND a.namespace = n.namespace"
	if f.Assignees != nil {
		from += " CROSS JOIN unnest(" + p.add(f.Assignees) + "::text[]) AS w (assignee)"
		where += " AND a.assignee = w.assignee"
	}
	if f.Template != "" {
		where += " AND a.task_name = " + p.add(f.Template)
	}
	if f.DueBefore != nil {
		where += " AND a.due_at < " + p.add(*f.DueBefore)
	}
	if f.Overdue {
		where += " AND a.due_at < now()"
	}
	return inboxNamespaces + `
SELECT ` + humanStepColumns + `
FROM (
    SELECT x.*
    FROM ` + from + `
    CROSS JOIN LATERAL (
        SELECT a.*
        FROM tasker.human_steps a
        WHERE ` + where + ` AND (a.due_at, a.step_uuid) > (coalesce($2::timestamptz, 'infinity'), $3::uuid)
        ORDER BY a.due_at, a.step_uuid
        LIMIT $4
    ) x
    ORDER BY x.due_at, x.step_uuid
    LIMIT $4
) a
JOIN tasker.workflow_steps s ON s.task_uuid = a.task_uuid AND s.step_uuid = a.step_uuid
WHERE s.state = 'pending'
ORDER BY a.due_at, a.step_uuid`, p
}

// Inbox returns a page of the human steps that the caller may see, by due time, and reports whether
// there are more.
func (db *DB) Inbox(ctx context.Context, f tasker.InboxFilter) (list []tasker.HumanStep, more bool, err error) {
	scope := access.ScopeFromContext(ctx)
	spaces := scope.List()
	if f.Namespace != "" {
		if spaces = []string{}; scope.Has(f.Namespace) {
			spaces = []string{f.Namespace}
		}
	}
	sql, args := buildInboxQuery(f, spaces)
	list, err = collect[tasker.HumanStep](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("list the human steps: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	return list, more, nil
}
