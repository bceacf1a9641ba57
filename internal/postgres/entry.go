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
	Since         time.Time // when the task entered the original state; zero uses its current state
	Actor         string
	Notes         string
	Metadata      json.RawMessage
}

// OpenEntry opens an investigation for a locked task. It returns the id, or nil if one is already
// open.
func (tx *Tx) OpenEntry(ctx context.Context, e NewEntry) (*tasker.ID, error) {
	ids, err := tx.OpenEntries(ctx, []NewEntry{e})
	if id, ok := ids[e.TaskUUID]; ok {
		return &id, err
	}
	return nil, err
}

// OpenEntries opens at most one investigation per task, each with a snapshot. It returns the new
// ones by task. Further entries for a task are added to the history of its investigation; this
// applies to all entries if one is already open. All entries must have the same detector, actor and
// notes. The caller must hold the task locks.
//
// If there is only one task and its snapshot would take most of the remaining time, the
// investigation is opened without a snapshot. Callers with several tasks retry with each task
// alone.
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
		since[i], metadata[i] = nilIfZeroTime(e.Since), nilIfEmptyDoc(e.Metadata)
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
		rows, err = collectWithTimeout[row](ctx, tx, remaining-min(remaining/4, time.Second), statement("openEntries"), args)
	} else {
		rows, err = collect[row](ctx, tx, statement("openEntries"), args...)
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
		tx.opened = append(tx.opened, openedEntry{reason: reasonOf[r.TaskUUID], namespace: r.Namespace})
	}
	return ids, nil
}

// Entries lists investigations, newest first. A document that is too large is replaced with a
// [tasker.OmittedDocument].
func (db *DB) Entries(ctx context.Context, f tasker.EntryFilter) ([]tasker.Entry, error) {
	return listEntries(ctx, db.pool, statement("selectEntries"), f.Limit, f.Offset, listBudget, string(f.Status), string(f.Reason),
		access.ScopeFromContext(ctx).List())
}

func listEntries(ctx context.Context, q querier, sql string, args ...any) ([]tasker.Entry, error) {
	list, err := collect[tasker.Entry](ctx, q, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read investigations: %w", err)
	}
	dues, err := findDeadlines(ctx, q, collectValues(list, func(e *tasker.Entry) tasker.ID { return e.TaskUUID }))
	if err != nil {
		return nil, err
	}
	for i := range list {
		access.RedactEntry(ctx, &list[i])
		list[i].TaskDue = dues[list[i].TaskUUID]
	}
	return list, addFailedSteps(ctx, q, list)
}

// Entry returns an investigation with the first page of its history, redacted for the caller. It
// returns NotFound if the investigation does not exist or is not visible.
func (db *DB) Entry(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return findEntry(ctx, db.pool, id)
}

// Entry is [DB.Entry] within the transaction.
func (tx *Tx) Entry(ctx context.Context, id tasker.ID) (tasker.Entry, error) {
	return findEntry(ctx, tx, id)
}

func newEntryNotFoundError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "investigation %s not found", id)
}

func findEntry(ctx context.Context, q querier, id tasker.ID) (tasker.Entry, error) {
	found, err := listEntries(ctx, q, statement("selectEntry"), id)
	if err != nil {
		return tasker.Entry{}, err
	}
	if len(found) == 0 || !access.ScopeFromContext(ctx).Has(found[0].Namespace) {
		return tasker.Entry{}, newEntryNotFoundError(id)
	}
	e := found[0]
	e.History, e.MoreHistory, err = listEntryHistory(ctx, q, id, 0)
	access.RedactEntry(ctx, &e)
	return e, err
}

// EntryFrom is [DB.Entry], but the page of the history starts at an offset.
func (db *DB) EntryFrom(ctx context.Context, id tasker.ID, offset int) (tasker.Entry, error) {
	e, err := findEntry(ctx, db.pool, id)
	if err == nil && offset > 0 {
		e.History, e.MoreHistory, err = listEntryHistory(ctx, db.pool, id, offset)
		access.RedactEntry(ctx, &e)
	}
	return e, err
}

// CountWritten returns how often operators have changed an investigation, and the total size of
// these changes in bytes.
func (tx *Tx) CountWritten(ctx context.Context, id tasker.ID) (changes, bytes int, err error) {
	err = tx.QueryRow(ctx, statement("written"), id).Scan(&changes, &bytes)
	return changes, bytes, wrapError(err, "measure the notes of investigation %s", id)
}

// CountOpenedManually counts investigations of a task that operators opened. It counts at most
// limit.
func (tx *Tx) CountOpenedManually(ctx context.Context, task tasker.ID, limit int) (int, error) {
	n, err := queryValue[int](ctx, tx, statement("openedByHand"),
		task, tasker.DetectedOperator, limit)
	return n, wrapError(err, "count the investigations of task %s", task)
}

// WrittenNotes returns the unredacted notes of an investigation, or nil if it has none.
func (tx *Tx) WrittenNotes(ctx context.Context, id tasker.ID) (*string, error) {
	notes, err := queryValue[*string](ctx, tx, statement("writtenNotes"), id)
	return notes, wrapError(err, "read the notes of investigation %s", id)
}

// EntryOfTask returns the newest investigation of a task without its history, or NotFound.
func (db *DB) EntryOfTask(ctx context.Context, task tasker.ID) (tasker.Entry, error) {
	found, err := listEntries(ctx, db.pool, statement("selectEntryOfTask"), task)
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

// maxEntryHistory is the number of entries on a page of the history.
const maxEntryHistory = 500

// listEntryHistory returns a page of a history, oldest entry first, and reports whether there are
// more.
func listEntryHistory(ctx context.Context, q querier, id tasker.ID, offset int) ([]tasker.EntryChange, bool, error) {
	list, err := collect[tasker.EntryChange](ctx, q, statement("selectEntryHistory"), id, offset, maxEntryHistory+1,
		listBudget)
	list, more := trimPage(list, maxEntryHistory)
	return list, more, wrapError(err, "read the history of investigation %s", id)
}

// UpdateEntry changes an investigation and records the change. It returns false if the
// investigation does not exist, has changed since u.IfUnchangedSince, or has ended although u
// contains a status.
func (tx *Tx) UpdateEntry(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (bool, error) {
	tag, err := tx.Exec(ctx, statement("updateEntry"), id, (*string)(u.Status), u.Notes, u.ResolvedBy, nilIfEmptyDoc(u.Metadata), u.Actor, u.IfUnchangedSince)
	return tag.RowsAffected() > 0, wrapError(err, "update investigation %s", id)
}

// StepFailed describes a step that failed permanently while an investigation was open.
type StepFailed struct {
	EntryUUID  tasker.ID
	StepUUID   tasker.ID
	Reason     tasker.Reason
	DetailCode string
}

// FailuresDuring returns steps that failed while the investigations were open and have not been
// repaired, by investigation.
func (tx *Tx) FailuresDuring(ctx context.Context, entries []tasker.ID) (map[tasker.ID][]StepFailed, error) {
	rows, err := collect[StepFailed](ctx, tx, statement("failuresDuring"), entries)
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

// Ending describes how to resolve an open investigation.
type Ending struct {
	EntryUUID tasker.ID
	TaskUUID  tasker.ID
	State     tasker.TaskState // state of the task
	Status    tasker.ResolutionStatus
	Notes     string
	Metadata  json.RawMessage // a JSON object
}

// EndedEntry is an investigation that has just ended.
type EndedEntry struct {
	EntryUUID tasker.ID
	Reason    tasker.Reason
	Status    tasker.ResolutionStatus
	Seconds   float64 // how long it was open
}

// EndEntries ends those of the investigations that are open and returns them. The caller must hold
// the task locks.
func (tx *Tx) EndEntries(ctx context.Context, actor string, list []Ending) ([]EndedEntry, error) {
	entries, statuses := make([]tasker.ID, len(list)), make([]string, len(list))
	notes, metadata := make([]string, len(list)), make([]string, len(list))
	for i, e := range list {
		entries[i], statuses[i], notes[i], metadata[i] = e.EntryUUID, string(e.Status), e.Notes, string(e.Metadata)
	}
	ended, err := collect[EndedEntry](ctx, tx, statement("endEntries"), actor, entries, statuses, notes, metadata)
	return ended, wrapError(err, "end investigations")
}

// CountInFlightSteps counts the steps of a task that may continue without an operator.
func (tx *Tx) CountInFlightSteps(ctx context.Context, task tasker.ID) (int, error) {
	n, err := queryValue[int](ctx, tx, statement("countInFlightSteps"), task)
	return n, wrapError(err, "count the steps in flight")
}

// IsWrittenOff reports whether an investigation of the task ended as permanently_failed.
func (tx *Tx) IsWrittenOff(ctx context.Context, task tasker.ID) (bool, error) {
	is, err := queryValue[bool](ctx, tx, statement("writtenOff"), task)
	return is, wrapError(err, "find a permanent failure of task %s", task)
}
