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

// OperatorRequest identifies a request by an idempotency key.
type OperatorRequest struct {
	Key     string // optional; without a key, a repeated request is not recognized
	Action  string
	Payload any // content of the request, to detect a reused key
}

// MaxRequestKey is the maximum length of the key of an [OperatorRequest], in characters.
const MaxRequestKey = 255

// CheckIdempotency reports whether a request was executed before, and otherwise records it.
// Concurrent requests with the same key wait. It returns a Conflict if the key belongs to another
// request.
func (tx *Tx) CheckIdempotency(ctx context.Context, r OperatorRequest) (repeated bool, err error) {
	if r.Key == "" {
		return false, nil
	}
	if wrong := payload.TextFault(r.Key, MaxRequestKey); wrong != "" {
		return false, tasker.Errorf(tasker.Invalid, "invalid Idempotency-Key: it %s", wrong)
	}
	doc, err := json.Marshal([]any{r.Action, r.Payload})
	if err != nil {
		return false, fmt.Errorf("hash a request: %w", err)
	}
	sum := sha256.Sum256(doc)
	const insert = `
		WITH old AS (
			DELETE FROM tasker.operator_requests WHERE request_key IN (
				SELECT request_key FROM tasker.operator_requests
				WHERE created_at < clock_timestamp() - interval '7 days' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED
			)
		)
		INSERT INTO tasker.operator_requests (request_key, action, digest) VALUES ($1, $2, $3)
		ON CONFLICT (request_key) DO NOTHING`
	key := scopedKey(ctx, r.Key)
	tag, err := tx.Exec(ctx, insert, key, r.Action, sum[:])
	if err != nil {
		return false, fmt.Errorf("store the key of a request: %w", err)
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

// scopedKey returns the stored form of a request key, which is private to an authenticated caller.
func scopedKey(ctx context.Context, key string) string {
	subject := access.IdentityOf(ctx).Subject
	if subject == "" {
		return key
	}
	sum := sha256.Sum256([]byte(subject + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// Repair describes an operator action on a task, for the history and the audit log.
type Repair struct {
	TaskUUID tasker.ID
	Event    string // history event: step_reset, step_resolved, step_completed, task_cancelled or version_changed
	Action   string // audit action
	Subject  tasker.ID
	Actor    string
	Notes    string
	Data     map[string]any
}

// A repair of a task without an open investigation is only stored in the audit log.
const recordRepairs = `
WITH repair AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS r (task_uuid, event, actor, notes, data, action, subject, place)
),
history AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata)
    SELECT d.dlq_entry_uuid, r.event, r.actor, 'pending', 'pending', r.notes, r.data::jsonb
    FROM repair r
    JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid AND d.resolution_status = 'pending'
    ORDER BY r.place
)
INSERT INTO tasker.audit_events (actor, action, subject, data)
SELECT r.actor, r.action, r.subject, r.data::jsonb FROM repair r ORDER BY r.place`

// RecordRepairs stores operator actions in the history and the audit log.
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
	return exec(ctx, tx, "record repairs", recordRepairs, tasks, events, actors, notes, data, actions, subjects)
}

// Target is the step of an action, with the state that determines whether the action is allowed.
type Target struct {
	tasker.StepRef
	Name       string
	Namespace  string
	Handler    string
	Task       tasker.TaskState
	Step       tasker.StepState
	WrittenOff bool // the task was marked as permanently failed and does not compensate
	Fence      int64
	IsDecision bool
	OpenItems  int // number of open items of a map step
	IsChild    bool
	Child      *tasker.ID // the last child task

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

// RepairedStep contains the variables of expressions about a failed step and its task.
type RepairedStep struct {
	StepUUID      tasker.ID
	TemplateUUID  tasker.ID
	Priority      int
	CorrelationID string
	CreatedAt     time.Time
	Error         json.RawMessage // error of the last failed attempt
	Item          json.RawMessage // input of a map item
}

// RepairedSteps returns the expression variables of steps, by id. The caller holds the task locks.
func (tx *Tx) RepairedSteps(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]RepairedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[RepairedStep](ctx, tx, repairedSteps, tasks, ids)
	return byKey(list, func(s RepairedStep) tasker.ID { return s.StepUUID }), wrap(err, "read steps to repair")
}
