package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/fingerprint"
)

const (
	maxSpreadEntries = 1000 // maximum number of open investigations that are compared
	maxSpreadValues  = 20   // maximum number of values per fact
)

// CaseDetail returns a case with details of its investigations, or NotFound.
func (db *DB) CaseDetail(ctx context.Context, id tasker.ID) (d tasker.CaseDetail, err error) {
	if d.Case, err = db.Case(ctx, id); err != nil {
		return d, err
	}
	fail := func(err error) (tasker.CaseDetail, error) {
		return tasker.CaseDetail{}, fmt.Errorf("read case %s: %w", id, err)
	}
	if d.Fingerprints, err = db.findCaseFingerprints(ctx, d.Case); err != nil {
		return tasker.CaseDetail{}, err
	}
	if d.History, err = collect[tasker.CaseChange](ctx, db.pool, statement("selectCaseHistory"), id, tasker.MaxCaseHistory); err != nil {
		return fail(err)
	}
	if d.Samples, err = collect[tasker.CaseSample](ctx, db.pool, statement("selectCaseSamples"), id, tasker.MaxCaseSamples); err != nil {
		return fail(err)
	}
	if d.Spread, err = db.findCaseSpread(ctx, id); err != nil {
		return fail(err)
	}
	if d.Ended, d.LastResolved, err = db.findEndedOfCase(ctx, id, tasker.ID{}, tasker.MaxCaseSamples); err != nil {
		return fail(err)
	}
	scope := access.ScopeFromContext(ctx)
	if d.RelatedCases, err = collect[tasker.RelatedCase](ctx, db.pool, statement("selectElsewhere"), id, tasker.MaxCaseSamples, scope.IncludesAll(), scope.List()); err != nil {
		return fail(err)
	}
	access.RedactCaseHistory(ctx, d.Namespace, d.History)
	for i := range d.Samples {
		d.Samples[i].ErrorMessage = fingerprint.Headline(d.Samples[i].ErrorMessage, maxShownError)
		access.RedactPattern(ctx, d.Namespace, &d.Samples[i].ErrorMessage)
	}
	return d, nil
}

func (db *DB) findCaseSpread(ctx context.Context, id tasker.ID) ([]tasker.CaseDistribution, error) {
	type row struct {
		Fact string
		tasker.ValueCount
	}
	rows, err := collect[row](ctx, db.pool, statement("selectCaseSpread"), id, maxSpreadEntries)
	if err != nil {
		return nil, err
	}
	list := []tasker.CaseDistribution{}
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1].Fact != r.Fact {
			list = append(list, tasker.CaseDistribution{Fact: r.Fact})
		}
		if s := &list[len(list)-1]; len(s.Values) < maxSpreadValues {
			s.Values = append(s.Values, r.ValueCount)
		}
	}
	return list, nil
}

// findEndedOfCase counts the ended investigations of a case by status, excluding one investigation.
// It also returns the few newest.
func (db *DB) findEndedOfCase(ctx context.Context, id, without tasker.ID, few int) (counts map[tasker.ResolutionStatus]int64, last []tasker.EndedEntry, err error) {
	endings, err := collect[tasker.EndedEntry](ctx, db.pool, statement("selectEndedOfCase"), id, without,
		tasker.MaxRelated)
	if err != nil {
		return nil, nil, err
	}
	counts = map[tasker.ResolutionStatus]int64{}
	for _, e := range endings {
		counts[e.Status]++
	}
	return counts, endings[:min(few, len(endings))], nil
}

// RelatedEntries returns the case of an investigation, which is nil if the investigation is not
// classified. It also counts the other open investigations of the case and returns how others
// ended. It returns NotFound if the investigation does not exist.
func (db *DB) RelatedEntries(ctx context.Context, entry tasker.ID, few int) (tasker.RelatedEntries, error) {
	type row struct {
		Case    tasker.OptionalID
		CaseKey tasker.ID
		Open    int64
	}
	found, err := queryRequired[row](ctx, db.pool, newEntryNotFoundError(entry), "read the case of an investigation",
		statement("selectRelated"), entry, tasker.MaxRelated)
	if err != nil {
		return tasker.RelatedEntries{}, err
	}
	k := tasker.RelatedEntries{
		Case: found.Case, CaseKey: found.CaseKey, Open: min(found.Open, tasker.MaxRelated), More: found.Open > tasker.MaxRelated,
		Counts: map[tasker.ResolutionStatus]int64{}, Last: []tasker.EndedEntry{},
	}
	if found.Case.IsZero() {
		return k, nil
	}
	if k.Counts, k.Last, err = db.findEndedOfCase(ctx, found.Case.ID, entry, few); err != nil {
		return tasker.RelatedEntries{}, fmt.Errorf("read the resolutions of similar investigations: %w", err)
	}
	return k, nil
}

// maxCaseMessages limits the number of messages that [DB.CaseMessages] returns.
const maxCaseMessages = 1000

// CaseMessages returns a case with its fingerprints and the newest failures of its open
// investigations, or NotFound. If the caller may not read payloads, the failures are omitted.
func (db *DB) CaseMessages(ctx context.Context, id tasker.ID) (w tasker.CaseGrouping, list []tasker.CaseSample, err error) {
	c, err := db.Case(ctx, id)
	if err != nil {
		return w, nil, err
	}
	w = tasker.CaseGrouping{CaseID: id, Parts: c.Parts(), Rules: []string{}, Masks: []tasker.CaseVariable{}}
	if w.Fingerprints, err = db.findCaseFingerprints(ctx, c); err != nil || !access.PayloadScopeFromContext(ctx).Has(c.Namespace) {
		return w, nil, err
	}
	if list, err = collect[tasker.CaseSample](ctx, db.pool, statement("selectCaseSamples"), id,
		maxCaseMessages); err != nil {
		return w, nil, fmt.Errorf("read the messages of case %s: %w", id, err)
	}
	w.MessagesExamined = len(list)
	return w, list, nil
}

// findCaseFingerprints returns the fingerprints of a case. It redacts patterns that the caller may
// not read.
func (db *DB) findCaseFingerprints(ctx context.Context, c tasker.Case) ([]tasker.CaseFingerprint, error) {
	list, err := collect[tasker.CaseFingerprint](ctx, db.pool, statement("selectCaseFingerprints"), c.ID, tasker.MaxCaseFingerprints)
	if err != nil {
		return nil, fmt.Errorf("read the fingerprints of case %s: %w", c.ID, err)
	}
	for i := range list {
		access.RedactPattern(ctx, c.Namespace, &list[i].Pattern)
	}
	return list, nil
}
