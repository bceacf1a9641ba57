package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// lockCase locks a case. It returns NotFound if the case does not exist or is not visible to the
// caller.
func lockCase(ctx context.Context, tx *Tx, id tasker.ID) error {
	namespace, err := collectColumn[string](ctx, tx, statement("lockCase"), id)
	switch {
	case err != nil:
		return fmt.Errorf("lock case %s: %w", id, err)
	case len(namespace) == 0 || !access.ScopeFromContext(ctx).Has(namespace[0]):
		return newCaseNotFoundError(id)
	}
	return nil
}

// lockAndReadCase locks a case and returns it.
func lockAndReadCase(ctx context.Context, tx *Tx, id tasker.ID) (tasker.Case, error) {
	if err := lockCase(ctx, tx, id); err != nil {
		return tasker.Case{}, err
	}
	return findCase(ctx, tx, id)
}

// waitForCases acquires casesLock after checking that the cases are visible to the caller.
func waitForCases(ctx context.Context, tx *Tx, ids ...tasker.ID) error {
	for _, id := range ids {
		if _, err := findCase(ctx, tx, id); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, statement("lockCases"))
	return wrapError(err, "lock the cases")
}

// caseChange is an entry in the history of a case.
type caseChange struct {
	event, actor, notes string
	data                map[string]any
}

// recordCaseChange adds a change to the history of a case and to the audit log.
func recordCaseChange(ctx context.Context, tx *Tx, id tasker.ID, c caseChange) error {
	doc, err := json.Marshal(c.data)
	if err != nil {
		return fmt.Errorf("record a change of a case: %w", err)
	}
	if _, err := tx.Exec(ctx, statement("recordCase"), id, c.event, c.actor, c.notes, string(doc)); err != nil {
		return fmt.Errorf("record a change of case %s: %w", id, err)
	}
	return tx.auditData(ctx, c.actor, "case."+c.event, id, doc)
}

// UpdateCase changes a case, records the change and returns the case. It returns NotFound, or a
// Conflict if the case was merged, has changed since u.IfUnchangedSince, or is resolved and the
// change requires an open case.
func (db *DB) UpdateCase(ctx context.Context, id tasker.ID, u tasker.CaseUpdate) (c tasker.Case, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		was, err := lockAndReadCase(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case was.MergedInto != nil:
			return tasker.Errorf(tasker.Conflict,
				"case %s was merged into %s: update that case instead", id, *was.MergedInto)
		case u.IfUnchangedSince != nil && !was.UpdatedAt.Equal(*u.IfUnchangedSince):
			return tasker.Errorf(tasker.Conflict,
				"case %s was changed at %s and is now %s with owner %s: read it again", id,
				was.UpdatedAt.UTC().Format(time.RFC3339Nano), was.State, cmp.Or(was.Owner, "nobody"))
		case u.Snooze != nil && !u.Snooze.IsZero() && was.State == tasker.CaseResolved:
			return tasker.Errorf(tasker.Conflict, "case %s is resolved: it cannot be snoozed", id)
		case u.Owner != nil && *u.Owner != "" && was.State == tasker.CaseResolved:
			return tasker.Errorf(tasker.Conflict, "case %s is resolved: only an open case can have an owner", id)
		}
		if u.Notes != nil {
			if err := checkNoteQuota(ctx, tx, id); err != nil {
				return err
			}
		}
		var until *time.Time
		if u.Snooze != nil && !u.Snooze.IsZero() {
			until = u.Snooze
		}
		owned := cmp.Or(u.OwnedFor, tasker.DefaultOwnership)
		var state tasker.CaseState
		if err := tx.QueryRow(ctx, statement("updateCase"), id, u.Owner, owned, u.Snooze != nil, until, u.SnoozeThreshold, u.FixedIn, u.Notes != nil).Scan(&state); err != nil {
			return fmt.Errorf("update case %s: %w", id, err)
		}
		if err := recordCaseUpdate(ctx, tx, was, u, owned); err != nil {
			return err
		}
		if state != was.State {
			if err := recordCaseChange(ctx, tx, id, caseChange{"state_changed", u.Actor, "", map[string]any{"from": was.State, "to": state}}); err != nil {
				return err
			}
		}
		c, err = findCase(ctx, tx, id)
		return err
	})
	return c, err
}

// checkNoteQuota returns TooLarge if a case already has the maximum number of notes.
func checkNoteQuota(ctx context.Context, tx *Tx, id tasker.ID) error {
	notes, err := queryValue[int](ctx, tx, statement("countCaseNotes"), id, tasker.MaxCaseNotes)
	switch {
	case err != nil:
		return fmt.Errorf("count the notes of case %s: %w", id, err)
	case notes >= tasker.MaxCaseNotes:
		return tasker.Errorf(tasker.TooLarge,
			"case %s already has %d notes, which is the limit: update it without a note", id, notes)
	}
	return nil
}

// recordCaseUpdate adds a history entry for each change. The first one contains the note.
func recordCaseUpdate(ctx context.Context, tx *Tx, was tasker.Case, u tasker.CaseUpdate, owned time.Duration) error {
	notes := ""
	if u.Notes != nil {
		notes = *u.Notes
	}
	record := func(event string, data map[string]any) error {
		err := recordCaseChange(ctx, tx, was.ID, caseChange{event, u.Actor, notes, data})
		notes = ""
		return err
	}
	var errs []error
	switch {
	case u.Owner == nil:
	case *u.Owner == "":
		errs = append(errs, record("released", map[string]any{"owner": was.Owner}))
	default:
		errs = append(errs, record("owned", map[string]any{"owner": *u.Owner, "was": was.Owner, "for": owned.String()}))
	}
	switch {
	case u.Snooze == nil:
	case u.Snooze.IsZero():
		errs = append(errs, record("woken", nil))
	default:
		errs = append(errs, record("snoozed", map[string]any{"until": u.Snooze.UTC(), "above": u.SnoozeThreshold}))
	}
	if u.FixedIn != nil {
		errs = append(errs, record("fixed_in", map[string]any{"version": *u.FixedIn}))
	}
	if notes != "" {
		errs = append(errs, record("noted", nil))
	}
	return errors.Join(errs...)
}

// MergeCases moves the fingerprints of one case to another. [DB.UnmergeCase] reverts this. It
// returns Invalid if the cases belong to different namespaces, and a Conflict if one of them is
// already merged or the result would have too many fingerprints.
func (db *DB) MergeCases(ctx context.Context, from, into tasker.ID, actor, reason string) error {
	if from == into {
		return tasker.Errorf(tasker.Invalid, "invalid into %s: a case cannot be merged into itself", into)
	}
	return db.InTx(ctx, func(tx *Tx) error {
		a, b, err := lockTwoCases(ctx, tx, from, into)
		if err != nil {
			return err
		}
		switch {
		case a.Namespace != b.Namespace:
			return tasker.Errorf(tasker.Invalid,
				"invalid into %s: it is in namespace %s, but case %s is in %s", into, b.Namespace, from, a.Namespace)
		case a.MergedInto != nil:
			return tasker.Errorf(tasker.Conflict, "case %s is already merged into %s", from, *a.MergedInto)
		case b.MergedInto != nil:
			return tasker.Errorf(tasker.Conflict,
				"case %s was merged into %s: merge into that case instead", into, *b.MergedInto)
		}
		moved, total := 0, 0
		if err := tx.QueryRow(ctx, statement("moveFingerprints"), from, into).Scan(&moved, &total); err != nil {
			return fmt.Errorf("merge case %s: %w", from, err)
		}
		if total > tasker.MaxCaseMerged {
			return tasker.Errorf(tasker.Conflict,
				"case %s would have %d fingerprints: the limit is %d", into, total, tasker.MaxCaseMerged)
		}
		if _, err := tx.Exec(ctx, statement("mergeCases"), from, into); err != nil {
			return fmt.Errorf("merge case %s: %w", from, err)
		}
		if _, err := tx.Exec(ctx, statement("followIncident"), from, into); err != nil {
			return fmt.Errorf("merge case %s: %w", from, err)
		}
		if err := recordCaseChange(ctx, tx, from, caseChange{"merged", actor, reason, map[string]any{"into": into}}); err != nil {
			return err
		}
		return recordCaseChange(ctx, tx, into, caseChange{"merged", actor, reason, map[string]any{"from": from, "fingerprints": moved}})
	})
}

// lockTwoCases acquires casesLock and then locks both cases in the order of their ids.
func lockTwoCases(ctx context.Context, tx *Tx, one, other tasker.ID) (a, b tasker.Case, err error) {
	if err := waitForCases(ctx, tx, one, other); err != nil {
		return a, b, err
	}
	for _, id := range slices.SortedFunc(slices.Values([]tasker.ID{one, other}), compareIDs) {
		if err := lockCase(ctx, tx, id); err != nil {
			return a, b, err
		}
	}
	if a, err = findCase(ctx, tx, one); err != nil {
		return a, b, err
	}
	b, err = findCase(ctx, tx, other)
	return a, b, err
}

// UnmergeCase reverts the merge of a case. It returns a Conflict if the case is not merged.
func (db *DB) UnmergeCase(ctx context.Context, id tasker.ID, actor, reason string) error {
	return db.InTx(ctx, func(tx *Tx) error {
		if err := waitForCases(ctx, tx, id); err != nil {
			return err
		}
		c, err := lockAndReadCase(ctx, tx, id)
		if err != nil {
			return err
		}
		if c.MergedInto == nil {
			return tasker.Errorf(tasker.Conflict, "case %s is not merged into another case", id)
		}
		if _, err := tx.Exec(ctx, statement("restoreFingerprints"), id); err != nil {
			return fmt.Errorf("unmerge case %s: %w", id, err)
		}
		if _, err := tx.Exec(ctx, statement("unmergeCase"), id); err != nil {
			return fmt.Errorf("unmerge case %s: %w", id, err)
		}
		if err := recordCaseChange(ctx, tx, id, caseChange{"unmerged", actor, reason, map[string]any{"from": *c.MergedInto}}); err != nil {
			return err
		}
		return recordCaseChange(ctx, tx, *c.MergedInto, caseChange{"unmerged", actor, reason, map[string]any{"case": id}})
	})
}

// SplitCase records a split of a case and returns the number of open failures that match.
// [DB.ApplySplit] moves them later. It returns a Conflict if none or all of the open failures
// match.
func (db *DB) SplitCase(ctx context.Context, id tasker.ID, s tasker.CaseSplit) (n int64, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		if err := waitForCases(ctx, tx, id); err != nil {
			return err
		}
		c, err := lockAndReadCase(ctx, tx, id)
		if err != nil {
			return err
		}
		n = 0
		prints, err := collectColumn[tasker.ID](ctx, tx, statement("fingerprintsOfCase"), id)
		if err != nil {
			return fmt.Errorf("read the fingerprints of case %s: %w", id, err)
		}
		for _, p := range prints {
			found, err := queryValue[int64](ctx, tx, statement("countSplitMembers"), p, s.Field, s.Literal)
			if err != nil {
				return fmt.Errorf("split case %s: %w", id, err)
			}
			if n += found; found == 0 {
				continue
			}
			if err := addRefinement(ctx, tx, id, p, s); err != nil {
				return err
			}
		}
		switch n {
		case 0:
			return tasker.Errorf(tasker.Conflict, "no open investigation of case %s has %q in its %s: there is "+
				"nothing to split off", id, s.Literal, s.Field)
		case c.Entries:
			return tasker.Errorf(tasker.Conflict, "all %d open investigations of case %s have %q in their %s: "+
				"splitting would leave the case empty", n, id, s.Literal, s.Field)
		}
		return recordCaseChange(ctx, tx, id, caseChange{"split", s.Actor, s.Reason, map[string]any{"field": s.Field, "literal": s.Literal, "entries": n}})
	})
	return n, err
}

func addRefinement(ctx context.Context, tx *Tx, id, fingerprint tasker.ID, s tasker.CaseSplit) error {
	tag, err := tx.Exec(ctx, statement("insertRefinement"), id, fingerprint, s.Field, s.Literal, s.Actor, s.Reason)
	if err != nil {
		return fmt.Errorf("split case %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return tasker.Errorf(tasker.Conflict, "case %s is already being split by %q in its %s", id, s.Literal, s.Field)
	}
	splits, err := queryValue[int](ctx, tx, statement("countRefinements"), fingerprint)
	if err != nil {
		return fmt.Errorf("split case %s: %w", id, err)
	}
	if splits > tasker.MaxRefinements {
		return tasker.Errorf(tasker.Conflict,
			"case %s has been split %d times, which is the limit", id, tasker.MaxRefinements)
	}
	depth, err := queryValue[int](ctx, tx, statement("selectSplitDepth"), fingerprint, tasker.MaxRefinements)
	if err == nil && depth >= tasker.MaxRefinements {
		return tasker.Errorf(tasker.Conflict,
			"case %s is the result of %d nested splits and cannot be split again", id, depth)
	}
	return wrapError(err, "split case %s", id)
}

// ApplySplit marks up to limit investigations that match a split, so that Classify assigns them
// again. It returns 0 if no split is pending.
func (db *DB) ApplySplit(ctx context.Context, limit int) (n int, err error) {
	type split struct {
		RefinementID, Fingerprint tasker.ID
		Field, Literal            string
	}
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		next, err := queryOne[split](ctx, tx, statement("selectRefinementToApply"))
		if err != nil || next == nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement("reclassifySplitMembers"),
			next.Fingerprint, next.Field, next.Literal, limit)
		if err != nil {
			return err
		}
		if n = int(tag.RowsAffected()); n == limit {
			return nil
		}
		_, err = tx.Exec(ctx, statement("refinementApplied"), next.RefinementID)
		n = max(n, 1) // there may be another split
		return err
	})
	return n, wrapError(err, "apply a split of a case")
}
