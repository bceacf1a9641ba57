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

// OperatorRequest identifies a request of an operator by an idempotency key.
type OperatorRequest struct {
	Key     string // if empty, a repeated request is not recognized
	Action  string
	Payload any // content of the request, which reveals that a key was reused
}

// MaxRequestKey is the maximum length of OperatorRequest.Key, in characters.
const MaxRequestKey = 255

// CheckIdempotency reports whether a request was executed before. If it was not, it is recorded.
// Concurrent requests with the same key wait for each other. It returns a Conflict if the key
// belongs to a different request.
func (tx *Tx) CheckIdempotency(ctx context.Context, r OperatorRequest) (repeated bool, err error) {
	if r.Key == "" {
		return false, nil
	}
	if wrong := payload.CheckText(r.Key, MaxRequestKey); wrong != "" {
		return false, tasker.Errorf(tasker.Invalid, "invalid Idempotency-Key: %s", wrong)
	}
	doc, err := json.Marshal([]any{r.Action, r.Payload})
	if err != nil {
		return false, fmt.Errorf("hash a request: %w", err)
	}
	sum := sha256.Sum256(doc)
	key := scopedKey(ctx, r.Key)
	tag, err := tx.Exec(ctx, statement("insert"), key, r.Action, sum[:])
	if err != nil {
		return false, fmt.Errorf("store the key of a request: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return false, nil
	}
	var digest []byte
	err = tx.QueryRow(ctx, statement("requestDigest"), key).Scan(&digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, tasker.Errorf(tasker.Unavailable, "the Idempotency-Key expired during this request: try again")
	case err != nil:
		return false, fmt.Errorf("find the key of a request: %w", err)
	case !bytes.Equal(digest, sum[:]):
		return false, tasker.Errorf(tasker.Conflict,
			"Idempotency-Key %q was used for a different request: use a new key for each request", r.Key)
	}
	return true, nil
}

// scopedKey returns the stored form of an idempotency key. For an authenticated caller, it is a
// hash of the subject and the key, so that the keys of two callers cannot collide.
func scopedKey(ctx context.Context, key string) string {
	subject := access.IdentityFromContext(ctx).Subject
	if subject == "" {
		return key
	}
	sum := sha256.Sum256([]byte(subject + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// Repair describes an operator's action on a task for the history and the audit log.
type Repair struct {
	TaskUUID tasker.ID
	Event    string // event in the history, such as step_reset or task_cancelled
	Action   string // action in the audit log
	Subject  tasker.ID
	Actor    string
	Notes    string
	Data     map[string]any
}

// RecordRepairs records operators' actions in the history and the audit log.
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
	return exec(ctx, tx, "record repairs", statement("recordRepairs"), tasks, events, actors, notes, data, actions,
		subjects)
}

// Target is a step on which an action is to be performed, with the state that determines whether
// the action is allowed.
type Target struct {
	tasker.StepRef
	Name       string
	Namespace  string
	Handler    string
	Task       tasker.TaskState
	Step       tasker.StepState
	WrittenOff bool // the task was marked as permanently failed and is not being compensated
	Fence      int64
	IsDecision bool
	OpenItems  int // number of open items, for a map step
	IsChild    bool
	Child      *tasker.ID // the step's last child task, or nil

	TemplateUUID tasker.ID
}

// LockTargets locks those of the steps that exist and returns their states. Their tasks must be
// locked.
func (tx *Tx) LockTargets(ctx context.Context, steps []tasker.StepRef) ([]Target, error) {
	if err := tx.LockEnqueued(ctx, steps); err != nil {
		return nil, err
	}
	tasks, ids := toRefArrays(steps)
	list, err := collect[Target](ctx, tx, statement("lockTargets"), tasks, ids)
	return list, wrapError(err, "lock steps")
}

// RepairedStep contains the values about a failed step and its task that a result expression can
// use.
type RepairedStep struct {
	StepUUID      tasker.ID
	TemplateUUID  tasker.ID
	Priority      int
	CorrelationID string
	CreatedAt     time.Time
	Error         json.RawMessage // error of the last failed attempt
	Item          json.RawMessage // input, for a map item
}

// RepairedSteps returns the values that result expressions can use, by step. The caller must hold
// the task locks.
func (tx *Tx) RepairedSteps(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]RepairedStep, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[RepairedStep](ctx, tx, statement("repairedSteps"), tasks, ids)
	return groupByKey(list, func(s RepairedStep) tasker.ID { return s.StepUUID }), wrapError(err, "read steps to repair")
}
