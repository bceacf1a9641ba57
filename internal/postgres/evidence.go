package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// Now returns what the clock of the database says.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := column[time.Time](ctx, db.pool, selectNow)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the database: %w", err)
	}
	return now[0].UTC(), nil
}

// A FailedInput is a step with its stored inputs, unredacted except for errors.
type FailedInput struct {
	Step     tasker.EvidenceStep
	Place    int // of the step in a snapshot of the task
	Attempts []tasker.EvidenceAttempt
	Error    json.RawMessage
	Parents  []ParentResult // in the order of the template
	Item     json.RawMessage
	Index    *int
	Context  json.RawMessage // that an item was given; nil: that of the task
}

// A ParentResult is the result of a step that another one depends on.
type ParentResult struct {
	StepUUID tasker.ID       `json:"step_uuid"`
	Name     string          `json:"name"`
	Place    int             `json:"place"` // of the step in a snapshot of the task
	Bytes    int64           `json:"bytes"`
	Large    bool            `json:"large"` // its result does not come along
	Result   json.RawMessage `json:"result"`
}

// Reads the same results as a claim. Attempts are found by task, like the history.
var selectFailedInput = `
WITH steps AS MATERIALIZED (
    SELECT s.step_uuid, row_number() OVER (ORDER BY s.step_uuid) - 1 AS place
    FROM tasker.workflow_steps s
    WHERE s.task_uuid = $1
)
SELECT s.step_uuid, s.name, s.step_type, s.handler, s.state, s.attempts, s.max_attempts, s.retryable, coalesce(s.timeout_ms, 0) AS timeout_ms, n.place,
    tasker.redact_error(s.error) AS error, s.item, s.item_ordinal AS index, g.context,
    (
        SELECT json_agg(json_build_object('step_uuid', i.step_uuid, 'name', i.name, 'place', i.place, 'bytes', i.bytes,
            'large', NOT i.inline AND i.results IS NOT NULL,
            'result', CASE WHEN i.inline THEN i.results -> 'result' END) ORDER BY i.ordinal)
        FROM (
            SELECT p.step_uuid, p.name, m.place, p.results, b.bytes, o.ordinal,
                NOT b.apart AND sum(b.bytes) FILTER (WHERE NOT b.apart) OVER (ORDER BY o.ordinal) <= ` + maxInlineBytes + ` AS inline
            FROM (
                SELECT q.*, array_position(s.parent_uuids, q.step_uuid) AS ordinal FROM tasker.workflow_steps q WHERE q.task_uuid = s.task_uuid AND q.step_uuid = ANY (s.parent_uuids)
            ) p
            JOIN steps m ON m.step_uuid = p.step_uuid
            CROSS JOIN LATERAL (SELECT p.ordinal) o
            CROSS JOIN LATERAL (
                SELECT coalesce(p.results_bytes, octet_length((p.results -> 'result')::text), 0) AS bytes, coalesce(p.step_uuid = ANY (g.by_reference), false) AS apart
            ) b
        ) i
    ) AS parents,
    (
        SELECT json_agg(json_build_object('attempt', a.attempt, 'began_at', a.claimed_at, 'failed_at', a.created_at, 'worker_uuid', a.worker_uuid,
            'worker_name', coalesce(w.name, l.worker_name, ''), 'worker_version', coalesce(w.version, l.worker_version, ''), 'error', tasker.redact_error(a.detail))
            ORDER BY a.transition_id DESC)
        FROM (
            SELECT h.*
            FROM tasker.step_history h
            WHERE h.task_uuid = $1 AND h.step_uuid = $2 AND h.to_state = 'error'
            ORDER BY h.transition_id DESC
            LIMIT ` + strconv.Itoa(tasker.MaxEvidenceAttempts) + `
        ) a
        LEFT JOIN tasker.workers w ON w.worker_uuid = a.worker_uuid
        LEFT JOIN tasker.case_members l ON l.dlq_entry_uuid = $3 AND l.worker_uuid = a.worker_uuid::text
    ) AS tries
FROM tasker.workflow_steps s
JOIN steps n ON n.step_uuid = s.step_uuid
LEFT JOIN tasker.map_inputs g ON g.task_uuid = s.task_uuid AND g.step_uuid = s.map_step_uuid
WHERE s.task_uuid = $1 AND s.step_uuid = $2`

// FailedInput returns a step of an investigated task with its attempts and inputs.
func (db *DB) FailedInput(ctx context.Context, e tasker.Entry, step tasker.ID) (FailedInput, error) {
	type row struct {
		StepUUID    tasker.ID
		Name        string
		StepType    tasker.StepType
		Handler     string
		State       tasker.StepState
		Attempts    int
		MaxAttempts int
		Retryable   bool
		TimeoutMs   int64
		Place       int
		Error       json.RawMessage
		Item        json.RawMessage
		Index       *int
		Context     json.RawMessage
		Parents     []ParentResult
		Tries       []tasker.EvidenceAttempt
	}
	r, err := one[row](ctx, db.pool, selectFailedInput, e.TaskUUID, step, e.UUID)
	if err != nil {
		return FailedInput{}, fmt.Errorf("read what step %s was given: %w", step, err)
	}
	if r == nil {
		return FailedInput{}, NoStep(e.TaskUUID, step)
	}
	for i, a := range r.Tries {
		r.Tries[i].FailedAt = a.FailedAt.UTC()
		if a.BeganAt != nil {
			began := a.BeganAt.UTC()
			r.Tries[i].BeganAt = &began
		}
	}
	return FailedInput{
		Step: tasker.EvidenceStep{
			StepUUID: r.StepUUID, Name: r.Name, Type: r.StepType, Handler: r.Handler, State: r.State,
			Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, Retryable: r.Retryable, TimeoutMS: r.TimeoutMs,
		},
		Place: r.Place, Attempts: r.Tries, Error: r.Error, Parents: r.Parents, Item: r.Item, Index: r.Index, Context: r.Context,
	}, nil
}

const redactSnapshots = `
SELECT tasker.redact_snapshot(d.doc::jsonb)
FROM unnest($1::text[]) WITH ORDINALITY AS d (doc, place)
ORDER BY d.place`

// RedactSnapshots returns documents of the form of a snapshot as they may be shown.
func (db *DB) RedactSnapshots(ctx context.Context, docs []string) ([]json.RawMessage, error) {
	list, err := column[json.RawMessage](ctx, db.pool, redactSnapshots, docs)
	return list, wrap(err, "redact what a step was given")
}
