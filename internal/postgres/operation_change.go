package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
)

// StartOperation starts a planned operation, which must be locked.
func (tx *Tx) StartOperation(ctx context.Context, operation tasker.ID, actor string) error {
	err := tx.changeOperation(ctx, operationChange{"operation.started", operation, actor, nil}, statement("startOperation"), actor)
	if err != nil {
		return err
	}
	return tx.notifyOperation(ctx, operation, tasker.OperationStartedTopic, actor)
}

// PauseOperation pauses a running operation, which must be locked. The message is stored later by
// [DB.NotifyPauses].
func (tx *Tx) PauseOperation(ctx context.Context, operation tasker.ID, p tasker.OperationPause) error {
	details, err := json.Marshal(pauseDetails{Failures: p.Failures, Text: p.FailureText, TaskUUID: p.TaskUUID, Causes: p.Causes})
	if err != nil {
		return fmt.Errorf("pause an operation: %w", err)
	}
	return tx.changeOperation(ctx, operationChange{"operation.paused", operation, p.By, map[string]any{"paused_for": p.For}}, statement("pauseOperation"), string(p.For), p.By, details)
}

// ResumeOperation resumes a paused operation, which must be locked, with the guards of o. It
// restarts the current wave.
func (tx *Tx) ResumeOperation(ctx context.Context, o tasker.Operation, actor string) error {
	tolerated := append([]string{}, o.Tolerated...)
	data := map[string]any{"tolerate": o.Guards.Tolerate.String(), "tolerated_causes": tolerated}
	err := tx.changeOperation(ctx, operationChange{"operation.resumed", o.UUID, actor, data}, statement("resumeOperation"), o.Guards.Tolerate.String(), tolerated)
	if err != nil {
		return err
	}
	return tx.notifyOperation(ctx, o.UUID, tasker.OperationStartedTopic, actor)
}

// AbortOperation aborts an operation, which must be locked, and returns how many items it aborted.
func (tx *Tx) AbortOperation(ctx context.Context, operation tasker.ID, actor, outcome string) (int, error) {
	tag, err := tx.Exec(ctx, statement("abortItems"), operation, outcome)
	if err != nil {
		return 0, fmt.Errorf("abort the items of an operation: %w", err)
	}
	n := int(tag.RowsAffected())
	err = tx.changeOperation(ctx, operationChange{"operation.aborted", operation, actor, map[string]any{"outcome": outcome, "items": n}}, statement("abortOperation"))
	if err != nil {
		return 0, err
	}
	return n, tx.notifyOperation(ctx, operation, tasker.OperationDoneTopic, actor)
}

// operationChange describes a state change for the audit log.
type operationChange struct {
	action    string
	operation tasker.ID
	actor     string
	data      map[string]any
}

// changeOperation applies a state change and records it in the audit log. The first parameter of
// sql is the id of the operation.
func (tx *Tx) changeOperation(ctx context.Context, c operationChange, sql string, args ...any) error {
	tag, err := tx.Exec(ctx, sql, append([]any{c.operation}, args...)...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("operation %s is locked but was not updated", c.operation)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.action, err)
	}
	return tx.AuditOperation(ctx, c.action, c.operation, c.actor, c.data)
}

// AuditOperation records an action on an operation in the audit log.
func (tx *Tx) AuditOperation(ctx context.Context, action string, operation tasker.ID, actor string, data map[string]any) error {
	if data == nil {
		data = map[string]any{}
	}
	doc, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return tx.auditData(ctx, actor, action, operation, doc)
}
