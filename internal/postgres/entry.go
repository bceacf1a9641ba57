package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// NewEntry describes an investigation to open.
type NewEntry struct {
	TaskUUID      tasker.ID
	StepUUID      *tasker.ID
	Reason        tasker.Reason
	DetailCode    string
	DetectedBy    string
	OriginalState tasker.TaskState
	Since         time.Time // when the task entered that state; zero uses its current state
	Actor         string
	Notes         string
	Metadata      json.RawMessage
}

const openEntries = `
SELECT e.task_uuid, e.dlq_entry_uuid, t.namespace
FROM tasker.create_dlq_entries(
    p_tasks => $1, p_reasons => $2::text[]::tasker.dlq_reason[], p_details => $3, p_detected_by => $4, p_states => $5, p_since => $6,
    p_steps => $7, p_actor => $8, p_notes => nullif($9, ''), p_metadata => $10::text[]::jsonb[]) e
JOIN tasker.tasks t ON t.task_uuid = e.task_uuid`

// OpenEntry opens an investigation of a locked task and returns its id, or nil if one is open.
func (tx *Tx) OpenEntry(ctx context.Context, e NewEntry) (*tasker.ID, error) {
	ids, err := tx.OpenEntries(ctx, []NewEntry{e})
	if id, ok := ids[e.TaskUUID]; ok {
		return &id, err
	}
	return nil, err
}

// OpenEntries opens one investigation per task, with one snapshot, and returns the new ones by
// task. Further entries of a task, or all if an investigation is open, are added to its history.
// All entries have the same detector, actor and notes. The caller holds the task locks.
//
// The investigation of a single task is opened without a snapshot if building it takes most of the
// remaining time. Callers with several tasks retry each task alone.
func (tx *Tx) OpenEntries(ctx context.Context, list []NewEntry) (map[tasker.ID]tasker.ID, error) {
	if len(list) == 0 {
		return map[tasker.ID]tasker.ID{}, nil
	}
	n := len(list)
	var (
		tasks, steps             = make([]tasker.ID, n), make([]*tasker.ID, n)
		reasons, details, states = make([]string, n), make([]string, n), make([]string, n)
		since, metadata          = make([]*time.Time, n), make([]*string, n)
		reasonOf                 = make(map[tasker.ID]tasker.Reason, n)
	)
	for i, e := range list {
		tasks[i], steps[i], reasons[i], details[i], states[i] = e.TaskUUID, e.StepUUID, string(e.Reason), e.DetailCode, string(e.OriginalState)
		since[i], metadata[i] = timeOrNil(e.Since), docOrNil(e.Metadata)
		if _, ok := reasonOf[e.TaskUUID]; !ok {
			reasonOf[e.TaskUUID] = e.Reason
		}
	}
	type row struct {
		TaskUUID     tasker.ID
		DlqEntryUUID tasker.ID
		Namespace    string
	}
	args := []any{tasks, reasons, details, list[0].DetectedBy, states, since, steps, list[0].Actor, list[0].Notes, metadata}
	var rows []row
	var err error
	if deadline, ok := ctx.Deadline(); ok && len(reasonOf) == 1 {
		remaining := time.Until(deadline)
		rows, err = collectWithTimeout[row](ctx, tx, remaining-min(remaining/4, time.Second), openEntries, args)
	} else {
		rows, err = collect[row](ctx, tx, openEntries, args...)
	}
	if err != nil {
		if n == 1 {
			return nil, fmt.Errorf("open investigation of task %s: %w", tasks[0], err)
		}
		return nil, fmt.Errorf("open investigations of task %s and others: %w", tasks[0], err)
	}
	ids := make(map[tasker.ID]tasker.ID, len(rows))
	for _, r := range rows {
		ids[r.TaskUUID] = r.DlqEntryUUID
		tx.opened = append(tx.opened, opened{reason: reasonOf[r.TaskUUID], namespace: r.Namespace})
	}
	return ids, nil
}

const entryColumns = `
    d.dlq_entry_uuid AS uuid, d.task_uuid, d.step_uuid, d.original_state, d.dlq_reason::text AS reason, d.detail_code, d.detected_by,
    coalesce(d.original_reason::text, '') AS original_reason, coalesce(d.original_detail_code, '') AS original_code,
    d.dlq_timestamp AS at, d.resolution_status::text, d.resolved_at, d.resolved_by, d.recovered_at, d.predecessor_uuid, d.created_at, d.updated_at,
    t.state AS current_task_state, t.namespace, `

// entryDocuments selects the columns that may be large.
func entryDocuments(of string) string {
	return of + ".task_snapshot AS snapshot, tasker.redact_document(" + of + ".metadata) AS metadata, tasker.redact_note(" + of + ".resolution_notes) AS resolution_notes"
}

// Entries lists investigations, newest first, with a [tasker.OmittedDocument] for large documents.
func (db *DB) Entries(ctx context.Context, f tasker.EntryFilter) ([]tasker.Entry, error) {
	where, args := "true", []any{f.Limit, f.Offset, listBudget}
	if f.Status != "" {
		args = append(args, string(f.Status))
		where += fmt.Sprintf(" AND d.resolution_status = $%d::text::tasker.dlq_resolution_status", len(args))
	}
	if f.Reason != "" {
		args = append(args, string(f.Reason))
		where += fmt.Sprintf(" AND d.dlq_reason = $%d::text::tasker.dlq_reason", len(args))
	}
	from := "tasker.tasks_dlq d WHERE " + where
	if scope := access.ScopeOf(ctx); !scope.All() { // reads the newest of each namespace by index
		args = append(args, scope.List())
		from = fmt.Sprintf(`unnest($%d::text[]) AS n (namespace)
			CROSS JOIN LATERAL (
				SELECT d.dlq_entry_uuid, d.dlq_timestamp
				FROM tasker.tasks_dlq d
				WHERE d.namespace = n.namespace AND %s
				ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC LIMIT $1::bigint + $2::bigint
			) d`, len(args), where)
	}
	return entries(ctx, db.pool, `
		WITH page AS MATERIALIZED (
			SELECT d.dlq_entry_uuid AS id, row_number() OVER (ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC) AS place
			FROM `+from+`
			ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC LIMIT $1 OFFSET $2
		)
		SELECT `+entryColumns+entryDocuments("l")+`
		FROM page p
		JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = p.id
		JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
		JOIN tasker.entry_documents(ARRAY(SELECT id FROM page ORDER BY place), $3) l ON l.dlq_entry_uuid = d.dlq_entry_uuid
		ORDER BY p.place`, args...)
}

func entries(ctx context.Context, q querier, sql string, args ...any) ([]tasker.Entry, error) {
	list, err := collect[tasker.Entry](ctx, q, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read investigations: %w", err)
	}
	dues, err := duesOf(ctx, q, valuesOf(list, func(e *tasker.Entry) tasker.ID { return e.TaskUUID }))
	if err != nil {
		return nil, err
	}
	for i := range list {
		access.HideEntry(ctx, &list[i])
		list[i].TaskDue = dues[list[i].TaskUUID]
	}
	return list, addFailedSteps(ctx, q, list)
}

var selectEntry = `
SELECT ` + entryColumns + entryDocuments("d") + `
FROM tasker.tasks_dlq d
JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
WHERE d.dlq_entry_uuid = $1`

// Entry returns an investigation with its first history page, redacted for the caller, or NotFound.
func (db *DB) Entry(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return entry(ctx, db.pool, id)
}

// Entry is [DB.Entry] in a transaction.
func (tx *Tx) Entry(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return entry(ctx, tx, id)
}

func noEntry(id tasker.ID) error { return tasker.Errorf(tasker.NotFound, "no investigation %s", id) }

func entry(ctx context.Context, q querier, id tasker.ID) (tasker.Entry, error) {
	found, err := entries(ctx, q, selectEntry, id)
	if err != nil {
		return tasker.Entry{}, err
	}
	if len(found) == 0 || !access.ScopeOf(ctx).Has(found[0].Namespace) {
		return tasker.Entry{}, noEntry(id)
	}
	e := found[0]
	e.History, e.MoreHistory, err = entryHistory(ctx, q, id, 0)
	access.HideEntry(ctx, &e)
	return e, err
}

// EntryFrom is [DB.Entry] with the history from an offset.
func (db *DB) EntryFrom(ctx context.Context, id tasker.ID, offset int) (tasker.Entry, error) {
	e, err := entry(ctx, db.pool, id)
	if err == nil && offset > 0 {
		e.History, e.MoreHistory, err = entryHistory(ctx, db.pool, id, offset)
		access.HideEntry(ctx, &e)
	}
	return e, err
}

// Written returns the number of changes of an investigation by operators, and their size in bytes.
func (tx *Tx) Written(ctx context.Context, id tasker.ID) (changes, bytes int, err error) {
	err = tx.QueryRow(ctx, `
		SELECT count(*), coalesce(sum(coalesce(octet_length(notes), 0) + coalesce(octet_length(metadata::text), 0)), 0)
		FROM tasker.tasks_dlq_history
		WHERE dlq_entry_uuid = $1 AND event = 'updated'`, id).Scan(&changes, &bytes)
	return changes, bytes, wrap(err, "measure the notes of investigation %s", id)
}

// OpenedByHand counts the investigations of a task that operators opened, up to limit.
func (tx *Tx) OpenedByHand(ctx context.Context, task tasker.ID, limit int) (int, error) {
	n, err := value[int](ctx, tx, `
		SELECT count(*) FROM (SELECT FROM tasker.tasks_dlq WHERE task_uuid = $1 AND detected_by = $2 LIMIT $3) d`,
		task, tasker.DetectedOperator, limit)
	return n, wrap(err, "count the investigations of task %s", task)
}

// WrittenNotes returns the unredacted notes of an investigation, or nil.
func (tx *Tx) WrittenNotes(ctx context.Context, id tasker.ID) (*string, error) {
	notes, err := value[*string](ctx, tx, `SELECT resolution_notes FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1`, id)
	return notes, wrap(err, "read the notes of investigation %s", id)
}

// EntryOfTask returns the newest investigation of a task, without history, or NotFound.
func (db *DB) EntryOfTask(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	found, err := entries(ctx, db.pool, `
		SELECT `+entryColumns+entryDocuments("d")+`
		FROM tasker.tasks_dlq d
		JOIN tasker.tasks t ON t.task_uuid = d.task_uuid
		WHERE d.task_uuid = $1
		ORDER BY d.dlq_timestamp DESC, d.dlq_entry_uuid DESC LIMIT 1`, task)
	if err == nil && len(found) > 0 {
		return found[0], nil
	}
	if err == nil {
		_, err = db.Task(ctx, task)
	}
	if err != nil {
		return tasker.Entry{}, err
	}
	return tasker.Entry{}, tasker.Errorf(tasker.NotFound, "task %s has no investigation: it was never stuck", task)
}

// maxEntryHistory is the number of history entries per page.
const maxEntryHistory = 500

// Bounds metadata by its stored size: numbers expand, and compressed data has at most 64 KiB.
const selectEntryHistory = `
SELECT changed_at AS at, actor, event, coalesce(from_status::text, '') AS "from", to_status::text AS "to",
    tasker.redact_note(CASE WHEN fits OR length(notes) <= 500 THEN notes ELSE left(notes, 500) || '…' END) AS notes,
    CASE WHEN fits THEN tasker.redact_document(metadata)
        ELSE tasker.omission(metadata, format('/v1/dlq/entry/%s?history_offset=%s', $1::uuid, place - 1)) END AS metadata
FROM (
    SELECT h.*, sum(coalesce(octet_length(notes), 0) + coalesce(least(
        pg_column_size(metadata)::bigint * CASE WHEN pg_column_compression(metadata) IS NULL THEN 32 ELSE 98304 END, 98304), 0)) OVER (ORDER BY place) <= $4 AS fits
    FROM (
        SELECT p.*, row_number() OVER (ORDER BY history_id) AS place
        FROM tasker.tasks_dlq_history p
        WHERE dlq_entry_uuid = $1
        ORDER BY history_id LIMIT $3 OFFSET $2
    ) h
) m
ORDER BY place`

// entryHistory returns a page of a history, oldest first, and reports whether there is more.
func entryHistory(ctx context.Context, q querier, id tasker.ID, offset int) ([]tasker.EntryChange, bool, error) {
	list, err := collect[tasker.EntryChange](ctx, q, selectEntryHistory, id, offset, maxEntryHistory+1, listBudget)
	list, more := page(list, maxEntryHistory)
	return list, more, wrap(err, "read the history of investigation %s", id)
}

// Changes the status only from pending, so that one of two concurrent updates finds no row.
const updateEntry = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks_dlq d
    SET resolution_status = coalesce($2::text::tasker.dlq_resolution_status, d.resolution_status),
        resolution_notes = coalesce($3::text, d.resolution_notes),
        resolved_by = coalesce($4::text, d.resolved_by),
        metadata = CASE WHEN $5::text IS NULL THEN d.metadata ELSE coalesce(d.metadata, '{}') || $5::text::jsonb END,
        resolved_at = CASE WHEN $2::text IS NULL THEN d.resolved_at ELSE c.at END,
        updated_at = c.at
    FROM clock c
    WHERE d.dlq_entry_uuid = $1 AND ($2::text IS NULL OR d.resolution_status = 'pending')
      AND ($7::timestamptz IS NULL OR d.updated_at = $7)
    RETURNING d.dlq_entry_uuid, d.resolution_status, d.updated_at
)
INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
SELECT m.dlq_entry_uuid, CASE WHEN $2::text IS NULL THEN 'updated' ELSE 'resolved' END, $6,
    CASE WHEN $2::text IS NULL THEN m.resolution_status ELSE 'pending' END, m.resolution_status, $3, $5::text::jsonb, m.updated_at
FROM moved m`

// UpdateEntry changes an investigation and records the change. It returns false if none exists, it
// has changed since u.IfUnchangedSince or, for a new status, it has ended.
func (tx *Tx) UpdateEntry(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (bool, error) {
	tag, err := tx.Exec(ctx, updateEntry, id, (*string)(u.Status), u.Notes, u.ResolvedBy, docOrNil(u.Metadata), u.Actor, u.IfUnchangedSince)
	return tag.RowsAffected() > 0, wrap(err, "update investigation %s", id)
}

// Reads the reason of a failure from the history of the investigation.
const failuresDuring = `
SELECT h.dlq_entry_uuid AS entry_uuid, (h.metadata ->> 'step_uuid')::uuid AS step_uuid, h.metadata ->> 'dlq_reason' AS reason, h.metadata ->> 'detail_code' AS detail_code
FROM unnest($1::uuid[]) AS e (dlq_entry_uuid)
JOIN tasker.tasks_dlq_history h ON h.dlq_entry_uuid = e.dlq_entry_uuid
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = h.dlq_entry_uuid
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = (h.metadata ->> 'step_uuid')::uuid
WHERE h.event = 'step_failed' AND s.state = 'error' AND s.next_retry_at IS NULL
ORDER BY h.history_id DESC`

// StepFailed is a step that failed without a retry while an investigation was open.
type StepFailed struct {
	EntryUUID  tasker.ID
	StepUUID   tasker.ID
	Reason     tasker.Reason
	DetailCode string
}

// FailuresDuring returns the unrepaired steps that failed while investigations were open, by entry.
func (tx *Tx) FailuresDuring(ctx context.Context, entries []tasker.ID) (map[tasker.ID][]StepFailed, error) {
	rows, err := collect[StepFailed](ctx, tx, failuresDuring, entries)
	if err != nil {
		return nil, fmt.Errorf("find steps that failed during investigations: %w", err)
	}
	out, seen := map[tasker.ID][]StepFailed{}, map[[2]tasker.ID]bool{}
	for _, r := range rows {
		key := [2]tasker.ID{r.EntryUUID, r.StepUUID}
		if !seen[key] {
			seen[key] = true
			out[r.EntryUUID] = append(out[r.EntryUUID], r)
		}
	}
	return out, nil
}

// Ending describes how to end an open investigation.
type Ending struct {
	EntryUUID tasker.ID
	TaskUUID  tasker.ID
	State     tasker.TaskState // of the task
	Status    tasker.ResolutionStatus
	Notes     string
	Metadata  json.RawMessage // JSON object
}

// EndedEntry is an investigation that has just ended.
type EndedEntry struct {
	EntryUUID tasker.ID
	Reason    tasker.Reason
	Status    tasker.ResolutionStatus
	Seconds   float64 // time it was open
}

const endEntries = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.tasks_dlq d
    SET resolution_status = u.status::tasker.dlq_resolution_status, resolution_notes = u.notes, resolved_by = $1, resolved_at = c.at, updated_at = c.at,
        metadata = coalesce(d.metadata, '{}') || u.metadata::jsonb
    FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS u (dlq_entry_uuid, status, notes, metadata)
    CROSS JOIN clock c
    WHERE d.dlq_entry_uuid = u.dlq_entry_uuid AND d.resolution_status = 'pending'
    RETURNING d.dlq_entry_uuid, d.dlq_reason, d.dlq_timestamp, d.resolution_status, d.resolved_at, u.notes, u.metadata
),
log AS (
    INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata, changed_at)
    SELECT m.dlq_entry_uuid, 'resolved', $1, 'pending', m.resolution_status, m.notes, m.metadata::jsonb, m.resolved_at
    FROM moved m
    ORDER BY m.dlq_entry_uuid
)
SELECT m.dlq_entry_uuid AS entry_uuid, m.dlq_reason::text AS reason, m.resolution_status::text AS status, extract(epoch FROM m.resolved_at - m.dlq_timestamp)::float8 AS seconds FROM moved m`

// EndEntries ends the investigations that are open and returns them. It requires the task locks.
func (tx *Tx) EndEntries(ctx context.Context, actor string, list []Ending) ([]EndedEntry, error) {
	entries, statuses := make([]tasker.ID, len(list)), make([]string, len(list))
	notes, metadata := make([]string, len(list)), make([]string, len(list))
	for i, e := range list {
		entries[i], statuses[i], notes[i], metadata[i] = e.EntryUUID, string(e.Status), e.Notes, string(e.Metadata)
	}
	ended, err := collect[EndedEntry](ctx, tx, endEntries, actor, entries, statuses, notes, metadata)
	return ended, wrap(err, "end investigations")
}

// isInFlight is true if step s may continue without an operator: it is enqueued, in progress,
// reported or due to be decided, or waits for a time or a child task.
const isInFlight = `(s.state IN ('enqueued', 'in_progress', 'enqueued_for_orchestration')
        OR s.state = 'pending' AND num_nonnulls(s.decide_at, s.wait_until) > 0)`

const countInFlightSteps = `SELECT count(*) FROM tasker.workflow_steps s WHERE s.task_uuid = $1 AND ` + isInFlight

// CountInFlightSteps counts the steps of a task that may continue without an operator.
func (tx *Tx) CountInFlightSteps(ctx context.Context, task tasker.ID) (int, error) {
	n, err := value[int](ctx, tx, countInFlightSteps, task)
	return n, wrap(err, "count the steps in flight")
}

// WrittenOff reports whether an investigation of the task ended as permanently_failed.
func (tx *Tx) WrittenOff(ctx context.Context, task tasker.ID) (bool, error) {
	is, err := value[bool](ctx, tx, `
		SELECT EXISTS (
			SELECT FROM tasker.tasks_dlq WHERE task_uuid = $1 AND resolution_status = 'permanently_failed'
		)`, task)
	return is, wrap(err, "find a permanent failure of task %s", task)
}
