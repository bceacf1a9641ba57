package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// Limits of the fields of an investigation: characters of text, and bytes of metadata.
const (
	maxNotes    = 20_000
	maxPerson   = 255
	maxMetadata = 64 << 10
)

// Update changes the status, notes, metadata or resolver of an investigation. Ending it requires
// notes and a resolver. If it ends as permanently failed, its task can be compensated in the same
// transaction. An investigation that has ended cannot be changed: Update returns a Conflict unless
// u repeats the request that ended it. The returned warnings list possible oversights.
func (s *Service) Update(ctx context.Context, id tasker.ID, u tasker.EntryUpdate) (tasker.Entry, []string, error) {
	if err := checkUpdate(&u); err != nil {
		return tasker.Entry{}, nil, err
	}
	var done updateResult
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		var err error
		done, err = s.applyUpdate(ctx, tx, id, u)
		return err
	})
	if err != nil {
		return tasker.Entry{}, nil, err
	}
	if done.committed != nil {
		done.committed()
	}
	if e := done.entry; done.ended && e.ResolvedAt != nil {
		s.metrics.Resolved(ctx, e.Reason, e.ResolutionStatus, e.ResolvedAt.Sub(e.At))
	}
	return done.entry, listWarnings(done, u), nil
}

// updateResult is the result of updating an investigation.
type updateResult struct {
	entry tasker.Entry
	ended bool       // this request ended it
	next  *tasker.ID // the investigation that was opened as its successor, or nil

	committed func() // to call after the commit; may be nil
}

// applyUpdate implements Update inside a transaction.
func (s *Service) applyUpdate(ctx context.Context, tx *postgres.Tx, id tasker.ID, u tasker.EntryUpdate) (updateResult, error) {
	known, err := tx.CheckIdempotency(ctx, postgres.OperatorRequest{Key: u.RequestKey, Action: "entry.update", Payload: []any{id, u}})
	if err != nil {
		return updateResult{}, err
	}
	shown, before, err := readForUpdate(ctx, tx, id)
	if err != nil || known {
		return updateResult{entry: shown}, err
	}
	// Lock the task before its investigations, as all other transactions do.
	state, err := tx.TaskState(ctx, before.TaskUUID)
	if err != nil {
		return updateResult{}, err
	}
	if err := checkTransition(before, u); err != nil {
		return updateResult{}, err
	}
	committed, err := s.preparePermanentFailure(ctx, tx, before, state, u)
	if err != nil {
		return updateResult{}, err
	}
	if isRepeat(before, u) {
		return updateResult{entry: shown, committed: committed}, nil
	}
	if u.Status != nil && *u.Status == before.ResolutionStatus {
		u.Status = nil // the status remains pending
	}
	if err := checkGrowth(ctx, tx, id, u); err != nil {
		return updateResult{}, err
	}
	changed, err := tx.UpdateEntry(ctx, id, u)
	if err != nil {
		return updateResult{}, err
	}
	if !changed {
		return resolveConflict(ctx, tx, id, u) // succeeds only if the same request was made concurrently
	}
	if u.Status != nil && (*u.Status == tasker.EntryPermanentlyFailed || *u.Status == tasker.EntryCancelled) {
		detach := tx.StopAutoRecovery
		if *u.Status == tasker.EntryPermanentlyFailed {
			detach = tx.WriteOff
		}
		if err := detach(ctx, []tasker.ID{before.TaskUUID}); err != nil {
			return updateResult{}, err
		}
	}
	next, err := openFollowUp(ctx, tx, before, u, state)
	if err != nil {
		return updateResult{}, err
	}
	entry, err := tx.Entry(ctx, id)
	return updateResult{entry: entry, ended: u.Status != nil, next: next, committed: committed}, err
}

// preparePermanentFailure begins the compensation of a task or, if none is requested, checks that
// the task can be marked as permanently failed. It does nothing for other updates.
func (s *Service) preparePermanentFailure(ctx context.Context, tx *postgres.Tx, e tasker.Entry, state tasker.TaskState, u tasker.EntryUpdate) (committed func(), err error) {
	switch {
	case u.Status == nil || *u.Status != tasker.EntryPermanentlyFailed:
		return nil, nil
	case !u.Compensate:
		held, err := tx.CountInFlightSteps(ctx, e.TaskUUID)
		if err != nil {
			return nil, err
		}
		return nil, CheckWriteOff(e.TaskUUID, state, held)
	case s.undo == nil:
		return nil, tasker.Errorf(tasker.Invalid, "the investigation cannot be updated: compensation is not available")
	}
	return s.undo(ctx, tx, e.TaskUUID, postgres.Operator{Actor: u.Actor, Reason: "investigation " + e.UUID.String() + " ended as permanently_failed"})
}

// checkGrowth returns TooLarge if the update would exceed the limits for the number of changes of
// an investigation or the total size of its notes and metadata.
func checkGrowth(ctx context.Context, tx *postgres.Tx, id tasker.ID, u tasker.EntryUpdate) error {
	if u.Status != nil {
		return nil
	}
	more := 0
	if u.Notes != nil {
		more = len(*u.Notes)
	}
	if len(u.Metadata) > 0 {
		bytes, err := payload.Measure(u.Metadata, payload.Limits{})
		if err != nil {
			return err
		}
		more += bytes
	}
	changes, have, err := tx.CountWritten(ctx, id)
	if err != nil {
		return err
	}
	if changes >= tasker.MaxEntryChanges {
		return tasker.Errorf(tasker.TooLarge, "investigation %s was changed %d times, which is the limit: end it, "+
			"and open another one if the problem persists",
			id, changes)
	}
	if have+more > tasker.MaxEntryNoteBytes {
		return tasker.Errorf(tasker.TooLarge,
			"investigation %s has %d bytes of notes and metadata, and %d more would exceed the limit of %d: "+
				"store large data elsewhere and link to it, or end the "+
				"investigation", id, have, more, tasker.MaxEntryNoteBytes)
	}
	return nil
}

// CheckWriteOff returns a Conflict if a task cannot be marked as permanently failed. The argument
// held is the number of its steps in flight.
func CheckWriteOff(task tasker.ID, state tasker.TaskState, held int) error {
	if state == tasker.TaskComplete {
		return tasker.Errorf(tasker.Conflict,
			"task %s is complete and cannot be written off: end its investigation as manually_resolved", task)
	}
	if state != tasker.TaskCancelled && (state != tasker.TaskError || held > 0) {
		return tasker.Errorf(tasker.Conflict,
			"task %s is %s with %d steps in flight and may continue automatically: cancel it before "+
				"writing it off", task, state, held)
	}
	return nil
}

// resolveConflict rereads an investigation that was changed concurrently. It returns an error
// unless that change was the same request.
func resolveConflict(ctx context.Context, tx *postgres.Tx, id tasker.ID, u tasker.EntryUpdate) (updateResult, error) {
	shown, written, err := readForUpdate(ctx, tx, id)
	if err != nil {
		return updateResult{}, err
	}
	return updateResult{entry: shown}, checkTransition(written, u)
}

// readForUpdate returns an investigation twice: as the caller may see it, and with its full
// notes for comparisons.
func readForUpdate(ctx context.Context, tx *postgres.Tx, id tasker.ID) (shown, written tasker.Entry, err error) {
	if shown, err = tx.Entry(ctx, id); err != nil {
		return shown, written, err
	}
	written = shown
	written.ResolutionNotes, err = tx.WrittenNotes(ctx, id)
	return shown, written, err
}

// openFollowUp opens an investigation for the last step that failed while the ended investigation
// was open, if there is one.
func openFollowUp(ctx context.Context, tx *postgres.Tx, ended tasker.Entry, u tasker.EntryUpdate, state tasker.TaskState) (next *tasker.ID, err error) {
	if u.Status == nil || *u.Status == tasker.EntryPermanentlyFailed {
		return nil, nil // no successor is needed
	}
	opened, err := openFollowUps(ctx, tx, []postgres.Ending{{EntryUUID: ended.UUID, TaskUUID: ended.TaskUUID,
		State: state}})
	if id, ok := opened[ended.TaskUUID]; ok {
		next = &id
	}
	return next, err
}

// openFollowUps is follow for several investigations. It returns the ids of the new investigations
// by task.
func openFollowUps(ctx context.Context, tx *postgres.Tx, ended []postgres.Ending) (map[tasker.ID]tasker.ID, error) {
	ids := make([]tasker.ID, len(ended))
	for i, e := range ended {
		ids[i] = e.EntryUUID
	}
	failed, err := tx.FailuresDuring(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := map[tasker.ID]tasker.ID{}
	for _, e := range ended {
		var entries []postgres.NewEntry
		for _, f := range failed[e.EntryUUID] {
			entries = append(entries, postgres.NewEntry{
				TaskUUID: e.TaskUUID, StepUUID: &f.StepUUID, Reason: f.Reason, DetailCode: f.DetailCode,
				DetectedBy: tasker.DetectedInline, OriginalState: e.State, Actor: tasker.SystemActor,
				Notes: fmt.Sprintf("a step failed while investigation %s was open", e.EntryUUID),
			})
		}
		opened, err := tx.OpenEntries(ctx, entries)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, opened)
	}
	return all, nil
}

// EndEntries ends open investigations. It runs in a transaction of the caller, which has locked the
// tasks. Pass the returned list to [Service.RecordEnded].
func EndEntries(ctx context.Context, tx *postgres.Tx, actor string, list []postgres.Ending) ([]postgres.EndedEntry,
	error) {
	if len(list) == 0 {
		return nil, nil
	}
	ended, err := tx.EndEntries(ctx, actor, list)
	if err != nil {
		return nil, err
	}
	now := make(map[tasker.ID]bool, len(ended))
	for _, e := range ended {
		now[e.EntryUUID] = true
	}
	list = slices.DeleteFunc(slices.Clone(list), func(e postgres.Ending) bool { return !now[e.EntryUUID] })
	var writtenOff []tasker.ID
	var others []postgres.Ending
	for _, e := range list {
		if e.Status == tasker.EntryPermanentlyFailed {
			writtenOff = append(writtenOff, e.TaskUUID)
			continue
		}
		others = append(others, e)
	}
	if len(writtenOff) > 0 {
		if err := tx.WriteOff(ctx, writtenOff); err != nil {
			return nil, err
		}
	}
	_, err = openFollowUps(ctx, tx, others)
	return ended, err
}

// RecordEnded updates the metrics for investigations that [EndEntries] has ended. Call it after the
// commit.
func (s *Service) RecordEnded(ctx context.Context, list []postgres.EndedEntry) {
	for _, e := range list {
		s.metrics.Resolved(ctx, e.Reason, e.Status, time.Duration(e.Seconds*float64(time.Second)))
	}
}

// checkUpdate validates an update and sets the defaults for its resolver and actor.
func checkUpdate(u *tasker.EntryUpdate) error {
	var faults []tasker.Fault
	fault := func(path, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if u.Status == nil && u.Notes == nil && u.ResolvedBy == nil && len(u.Metadata) == 0 {
		fault("", "nothing to change: set resolution_status, resolution_notes, resolved_by or metadata")
	}
	if u.Status != nil && !slices.Contains(tasker.ResolutionStatuses(), *u.Status) {
		fault("resolution_status", "must be manually_resolved, permanently_failed or cancelled, not %q", *u.Status)
	}
	if u.Status != nil && *u.Status != tasker.EntryPending && u.ResolvedBy == nil && u.Actor != "" {
		u.ResolvedBy = &u.Actor
	}
	if u.Compensate && (u.Status == nil || *u.Status != tasker.EntryPermanentlyFailed) {
		fault("compensate", "is only allowed with resolution_status permanently_failed")
	}
	ends := u.Status != nil && *u.Status != tasker.EntryPending
	for _, f := range []struct {
		path string
		text *string
		most int
	}{{"resolution_notes", u.Notes, maxNotes}, {"resolved_by", u.ResolvedBy, maxPerson}} {
		switch {
		case f.text == nil && ends:
			fault(f.path, "is missing: set it to the findings when an investigation ends")
		case f.text == nil:
		case payload.IsBlank(*f.text):
			fault(f.path, "is empty")
		default:
			if wrong := payload.CheckText(*f.text, f.most); wrong != "" {
				fault(f.path, "%s", wrong)
			}
		}
	}
	if wrong := checkObject(u.Metadata); wrong != "" {
		fault("metadata", "%s", wrong)
	}
	if len(faults) > 0 {
		return tasker.Errorf(tasker.Invalid, "the investigation cannot be updated: %s", faults[0]).WithDetails(faults)
	}
	if u.Actor == "" {
		u.Actor = "unknown"
		if u.ResolvedBy != nil {
			u.Actor = *u.ResolvedBy
		}
	}
	return nil
}

// checkObject describes what is wrong with metadata, or returns "".
func checkObject(doc json.RawMessage) string {
	if len(doc) == 0 {
		return ""
	}
	if err := payload.Check(doc, payload.Limits{Bytes: maxMetadata}); err != nil {
		return err.Error()
	}
	if !strings.HasPrefix(strings.TrimLeft(string(doc), " \t\r\n"), "{") {
		return "must be a JSON object"
	}
	return ""
}

// checkTransition returns a Conflict if an investigation has ended or was changed since the caller
// read it, unless the request only repeats the one that ended it.
func checkTransition(e tasker.Entry, u tasker.EntryUpdate) error {
	if u.IfUnchangedSince != nil && !u.IfUnchangedSince.Equal(e.UpdatedAt) && !isRepeat(e, u) {
		return tasker.Errorf(tasker.Conflict, "investigation %s was changed at %s, after you read it: read it again",
			e.UUID, e.UpdatedAt.Format(time.RFC3339Nano)).WithDetails(map[string]string{"updated_at": e.UpdatedAt.Format(time.RFC3339Nano)})
	}
	if u.Status == nil || *u.Status == e.ResolutionStatus &&
		(e.ResolutionStatus == tasker.EntryPending || isRepeat(e, u)) {
		return nil
	}
	if _, err := core.EntryMoves.Next(e.ResolutionStatus, core.EntryEvent(*u.Status)); err != nil {
		return tasker.Errorf(tasker.Conflict,
			"investigation %s ended as %s and cannot be reopened: open a new investigation for a new "+
				"problem", e.UUID, e.ResolutionStatus)
	}
	return nil
}

// isRepeat reports whether the update is the same as the one that ended the investigation.
func isRepeat(e tasker.Entry, u tasker.EntryUpdate) bool {
	return u.Status != nil && e.ResolutionStatus != tasker.EntryPending && *u.Status == e.ResolutionStatus &&
		sameOrUnset(u.Notes, e.ResolutionNotes) && sameOrUnset(u.ResolvedBy, e.ResolvedBy)
}

func sameOrUnset(asked, is *string) bool { return asked == nil || is != nil && *asked == *is }

// listWarnings lists what the operator may have overlooked.
func listWarnings(done updateResult, u tasker.EntryUpdate) []string {
	e := done.entry
	if done.next != nil {
		return []string{fmt.Sprintf("a step of task %s failed while this investigation was open; a new one was opened for it: %s", e.TaskUUID, *done.next)}
	}
	if u.Status == nil || e.CurrentTaskState != tasker.TaskError {
		return nil
	}
	var why string
	switch *u.Status {
	case tasker.EntryManuallyResolved:
		why = "ending its investigation does not repair it, and without a repair a new one will be opened"
	case tasker.EntryCancelled:
		why = "it will not be retried or reported again"
	default:
		return nil
	}
	return []string{fmt.Sprintf("task %s is still in error: %s; repair its steps, or write it off as "+
		"permanently_failed", e.TaskUUID, why)}
}

// Open opens an investigation for an operator without stopping the task. If one is already open, it
// returns a Conflict with its id. A repeated request returns the newest investigation of the task.
func (s *Service) Open(ctx context.Context, task tasker.ID, o tasker.NewEntry) (tasker.Entry, error) {
	u := tasker.EntryUpdate{Notes: &o.Reason, ResolvedBy: &o.Actor, Metadata: o.Metadata}
	if err := checkUpdate(&u); err != nil {
		return tasker.Entry{}, renameConstraint(err)
	}
	var entry tasker.Entry
	repeated := false
	err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
		var err error
		repeated, err = tx.CheckIdempotency(ctx, postgres.OperatorRequest{Key: o.RequestKey, Action: "entry.open", Payload: []any{task, u}})
		if err != nil || repeated {
			return err
		}
		state, err := tx.TaskState(ctx, task)
		if err != nil {
			return err
		}
		writtenOff, err := tx.IsWrittenOff(ctx, task)
		if err != nil {
			return err
		}
		if writtenOff {
			return core.NewWrittenOffError(task)
		}
		byHand, err := tx.CountOpenedManually(ctx, task, tasker.MaxEntriesByHand)
		if err != nil {
			return err
		}
		if byHand >= tasker.MaxEntriesByHand {
			return tasker.Errorf(tasker.TooLarge,
				"%d investigations of task %s were opened manually, which is the limit: add notes to an open one, "+
					"or create a new task", byHand, task)
		}
		id, err := tx.OpenEntry(ctx, postgres.NewEntry{
			TaskUUID: task, Reason: tasker.ManualDLQ, DetailCode: tasker.OperatorRequest, DetectedBy: tasker.DetectedOperator,
			OriginalState: state, Actor: o.Actor, Notes: o.Reason, Metadata: o.Metadata,
		})
		if err != nil {
			return err
		}
		if id == nil {
			return errOpenAlready
		}
		entry, err = tx.Entry(ctx, *id)
		return err
	})
	if errors.Is(err, errOpenAlready) {
		return tasker.Entry{}, s.checkNotOpen(ctx, task)
	}
	if err == nil && repeated {
		return s.db.EntryOfTask(ctx, task)
	}
	return entry, err
}

var errOpenAlready = errors.New("an investigation is already open")

func (s *Service) checkNotOpen(ctx context.Context, task tasker.ID) error {
	e, err := s.db.EntryOfTask(ctx, task)
	if err != nil {
		return err
	}
	return tasker.Errorf(tasker.Conflict, "task %s already has an open investigation: %s, opened at %s",
		task, e.UUID, e.At.Format(time.RFC3339)).WithDetails(map[string]string{"dlq_entry_uuid": e.UUID.String()})
}

// renameConstraint replaces the field names of an update by those of a request to open an
// investigation.
func renameConstraint(err error) error {
	var known *tasker.Error
	if !errors.As(err, &known) {
		return err
	}
	faults, ok := known.Details.([]tasker.Fault)
	if !ok {
		return err
	}
	words := map[string]string{"resolution_notes": "reason", "resolved_by": "created_by"}
	out := slices.Clone(faults)
	for i, f := range faults {
		if w, ok := words[f.Path]; ok {
			out[i].Path = w
		}
	}
	return tasker.Errorf(tasker.Invalid, "the investigation cannot be opened: %s", out[0]).WithDetails(out)
}
