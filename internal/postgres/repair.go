package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/payload"
)

// An OperatorRequest is a request of a person under a key that the person chose.
type OperatorRequest struct {
	Key     string // empty means none: the request cannot be recognised
	Action  string
	Payload any // all that the request says, to tell it from another one under its key
}

// MaxRequestKey bounds the key of an [OperatorRequest], in characters.
const MaxRequestKey = 255

// CheckIdempotency reports whether a request has taken effect before, and otherwise records it. Concurrent ones
// wait. Another request under the same key is a Conflict.
func (tx *Tx) CheckIdempotency(ctx context.Context, r OperatorRequest) (repeated bool, err error) {
	if r.Key == "" {
		return false, nil
	}
	if wrong := payload.TextFault(r.Key, MaxRequestKey); wrong != "" {
		return false, tasker.Errorf(tasker.Invalid, "invalid Idempotency-Key: it %s", wrong)
	}
	doc, err := json.Marshal([]any{r.Action, r.Payload})
	if err != nil {
		return false, fmt.Errorf("digest of a request: %w", err)
	}
	sum := sha256.Sum256(doc)
	const note = `
		WITH old AS (
			DELETE FROM tasker.operator_requests WHERE request_key IN (
				SELECT request_key FROM tasker.operator_requests
				WHERE created_at < clock_timestamp() - interval '7 days' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED
			)
		)
		INSERT INTO tasker.operator_requests (request_key, action, digest) VALUES ($1, $2, $3)
		ON CONFLICT (request_key) DO NOTHING`
	key := scopedKey(ctx, r.Key)
	tag, err := tx.Exec(ctx, note, key, r.Action, sum[:])
	if err != nil {
		return false, fmt.Errorf("note the key of a request: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return false, nil
	}
	var digest []byte
	err = tx.QueryRow(ctx, `SELECT digest FROM tasker.operator_requests WHERE request_key = $1`, key).Scan(&digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, tasker.Errorf(tasker.Unavailable, "the key of this request was just forgotten; try again")
	case err != nil:
		return false, fmt.Errorf("find the key of a request: %w", err)
	case !bytes.Equal(digest, sum[:]):
		return false, tasker.Errorf(tasker.Conflict, "Idempotency-Key %q belongs to another request; choose a new key for each request", r.Key)
	}
	return true, nil
}

// scopedKey returns the stored key of a request, which is private to a known caller.
func scopedKey(ctx context.Context, key string) string {
	subject := access.IdentityOf(ctx).Subject
	if subject == "" {
		return key
	}
	sum := sha256.Sum256([]byte(subject + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// A Repair is an action of a person on a task, for its history and the audit log.
type Repair struct {
	TaskUUID tasker.ID
	Event    string // in the history: step_reset, step_resolved, step_completed, task_cancelled or version_changed
	Action   string // in the audit log
	Subject  tasker.ID
	Actor    string
	Notes    string
	Data     map[string]any
}

// A task without an open investigation has the row in the audit log only.
const recordRepairs = `
WITH repair AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS r (task_uuid, event, actor, notes, data, action, subject, place)
),
told AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata)
    SELECT d.dlq_entry_uuid, r.event, r.actor, 'pending', 'pending', r.notes, r.data::jsonb
    FROM repair r
    JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid AND d.resolution_status = 'pending'
    ORDER BY r.place
)
INSERT INTO tasker.audit_events (actor, action, subject, data)
SELECT r.actor, r.action, r.subject, r.data::jsonb FROM repair r ORDER BY r.place`

// RecordRepairs writes down what a person did, in the transaction that does it.
func (tx *Tx) RecordRepairs(ctx context.Context, list []Repair) error {
	n := len(list)
	tasks, events, actors, notes := make([]tasker.ID, n), make([]string, n), make([]string, n), make([]string, n)
	data, actions, subjects := make([]string, n), make([]string, n), make([]string, n)
	for i, r := range list {
		doc, err := json.Marshal(r.Data)
		if err != nil {
			return fmt.Errorf("record a repair: %w", err)
		}
		tasks[i], events[i], actors[i], notes[i] = r.TaskUUID, r.Event, r.Actor, r.Notes
		data[i], actions[i], subjects[i] = string(doc), r.Action, r.Subject.String()
	}
	_, err := tx.Exec(ctx, recordRepairs, tasks, events, actors, notes, data, actions, subjects)
	return wrap(err, "record repairs")
}

// A Target is a step as it stands, with what decides about actions on it.
type Target struct {
	tasker.StepRef
	Name       string
	Namespace  string
	Handler    string
	Task       tasker.TaskState
	Step       tasker.StepState
	WrittenOff bool // an investigation of the task ended as permanently_failed, and it is not undone
	Fence      int64
	IsDecision bool       // its result names which of its dependents go on
	OpenItems  int        // of a map step that waits for its items
	IsChild    bool       // it starts a task
	Child      *tasker.ID // that it started last

	TemplateUUID tasker.ID
}

const lockTargets = `
SELECT s.task_uuid, s.step_uuid, s.name, s.namespace, s.handler, t.state AS task, s.state AS step, s.fence, s.is_decision IS NOT NULL AS is_decision,
    s.step_type = 'child' AS is_child, s.child_task_uuid AS child, t.template_uuid,
    CASE WHEN s.items_total IS NOT NULL AND s.state = 'pending' THEN s.parents_open ELSE 0 END AS open_items,
    t.phase IS NULL AND EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = s.task_uuid AND d.resolution_status = 'permanently_failed'
    ) AS written_off
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
ORDER BY s.task_uuid, s.step_uuid
FOR NO KEY UPDATE OF s`

// LockTargets locks existing steps of locked tasks and returns their states.
func (tx *Tx) LockTargets(ctx context.Context, steps []tasker.StepRef) ([]Target, error) {
	if err := tx.LockEnqueued(ctx, steps); err != nil {
		return nil, err
	}
	tasks, ids := refArrays(steps)
	list, err := collect[Target](ctx, tx, lockTargets, tasks, ids)
	return list, wrap(err, "lock steps")
}

const repairedSteps = `
SELECT s.step_uuid, t.template_uuid, t.priority, t.correlation_id, t.created_at, s.error, s.item
FROM unnest($1::uuid[], $2::uuid[]) AS u (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = u.task_uuid AND s.step_uuid = u.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid`

// A RepairedStep is what an expression may know of a step that has failed, and of its task.
type RepairedStep struct {
	StepUUID      tasker.ID
	TemplateUUID  tasker.ID
	Priority      int
	CorrelationID string
	CreatedAt     time.Time
	Error         json.RawMessage // of its last failed attempt
	Item          json.RawMessage // of a map step: what the item is for
}

// RepairedSteps returns what an expression may know of steps, by their ids. The caller holds the
// locks of the tasks.
func (tx *Tx) RepairedSteps(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]RepairedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[RepairedStep](ctx, tx, repairedSteps, tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("read steps that are repaired: %w", err)
	}
	found := make(map[tasker.ID]RepairedStep, len(list))
	for _, s := range list {
		found[s.StepUUID] = s
	}
	return found, nil
}
