package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// An OperatorRequest is a request of a person under a key that the person chose.
type OperatorRequest struct {
	Key    string // empty means none: the request cannot be recognised
	Action string
	Said   any // all that the request says, to tell it from another one under its key
}

// MaxRequestKey bounds the key of an [OperatorRequest], in characters, as a constraint
// of tasker.operator_requests does.
const MaxRequestKey = 255

// Once reports whether a request has taken effect before, and otherwise notes that
// it does, with the transaction. Of two at once the second waits for the first.
// Another request under the same key is a Conflict.
func (tx *Tx) Once(ctx context.Context, r OperatorRequest) (repeated bool, err error) {
	if r.Key == "" {
		return false, nil
	}
	if !utf8.ValidString(r.Key) || strings.ContainsRune(r.Key, 0) || utf8.RuneCountInString(r.Key) > MaxRequestKey {
		return false, tasker.Errorf(tasker.Invalid, "invalid Idempotency-Key: must be text of at most %d characters", MaxRequestKey)
	}
	doc, err := json.Marshal([]any{r.Action, r.Said})
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
	key := ownKey(ctx, r.Key)
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
		return false, fmt.Errorf("look for the key of a request: %w", err)
	case !bytes.Equal(digest, sum[:]):
		return false, tasker.Errorf(tasker.Conflict, "Idempotency-Key %q belongs to another request; choose a new key for each request", r.Key)
	}
	return true, nil
}

// ownKey returns under which key a request is stored. Where callers are known, each has
// their own: two may choose the same.
func ownKey(ctx context.Context, key string) string {
	subject := access.IdentityOf(ctx).Subject
	if subject == "" {
		return key
	}
	sum := sha256.Sum256([]byte(subject + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// A Repair is what a person did to a task, for the history of its investigation
// and the audit log.
type Repair struct {
	TaskUUID tasker.ID
	Event    string // in the history: step_reset, step_resolved, step_completed or task_cancelled
	Action   string // in the audit log
	Subject  tasker.ID
	Actor    string
	Notes    string
	Data     map[string]any
}

// A task without an open investigation has the row in the audit log only.
const recordRepair = `
WITH told AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata)
    SELECT d.dlq_entry_uuid, $2, $3, 'pending', 'pending', $4, $5::text::jsonb
    FROM tasker.tasks_dlq d
    WHERE d.task_uuid = $1 AND d.resolution_status = 'pending'
)
INSERT INTO tasker.audit_events (actor, action, subject, data) VALUES ($3, $6, $7, $5::text::jsonb)`

// RecordRepair writes down what a person did, in the transaction that does it.
func (tx *Tx) RecordRepair(ctx context.Context, r Repair) error {
	data, err := json.Marshal(r.Data)
	if err != nil {
		return fmt.Errorf("record a repair: %w", err)
	}
	if _, err := tx.Exec(ctx, recordRepair, r.TaskUUID, r.Event, r.Actor, r.Notes, string(data), r.Action, r.Subject.String()); err != nil {
		return fmt.Errorf("record a repair: %w", err)
	}
	return nil
}
