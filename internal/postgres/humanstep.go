package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

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

// newInboxArgs returns the arguments of the statement inbox. It reads all namespaces if spaces is nil.
func newInboxArgs(f tasker.InboxFilter, spaces []string) []any {
	after, step := &time.Time{}, tasker.ID{}
	if f.After != nil {
		after, step = f.After.DueAt, f.After.Step
	}
	return []any{spaces, after, step, f.Limit + 1, f.Assignees, f.Template, f.DueBefore, f.Overdue}
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
	list, err = collect[tasker.HumanStep](ctx, db.pool, statement("inbox"), newInboxArgs(f, spaces)...)
	if err != nil {
		return nil, false, fmt.Errorf("list the human steps: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	return list, more, nil
}
