package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/fingerprint"
)

const selectCaseFingerprints = `
SELECT fingerprint, home_case_id AS home, version::integer, error_type, error_pattern AS pattern, first_seen_at AS first_seen
FROM tasker.case_fingerprints
WHERE case_id = $1
ORDER BY first_seen_at, fingerprint
LIMIT $2`

const selectCaseHistory = `
SELECT changed_at AS at, event, actor, tasker.redact_note(notes) AS notes, metadata
FROM tasker.case_history
WHERE case_id = $1
ORDER BY history_id DESC
LIMIT $2`

const selectCaseSamples = `
SELECT s.entry_uuid, d.task_uuid, s.at, s.error_type, s.error_message, s.worker_name, s.worker_version, s.task_version
FROM (
    SELECT e.*
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid AS entry_uuid, coalesce(m.failed_again_at, m.opened_at) AS at, coalesce(m.error_type, '') AS error_type,
            coalesce(m.error_message, '') AS error_message, coalesce(m.worker_name, '') AS worker_name,
            coalesce(m.worker_version, '') AS worker_version, m.task_version
        FROM tasker.case_members m
        WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at DESC
        LIMIT $2
    ) e
    WHERE f.case_id = $1
    ORDER BY e.at DESC
    LIMIT $2
) s
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = s.entry_uuid
ORDER BY s.at DESC, s.entry_uuid`

// newestMembers selects the $2 newest open members of case $1, read by fingerprint.
const newestMembers = `(
    SELECT m.*
    FROM tasker.case_fingerprints f
    JOIN tasker.cases c ON c.case_id = f.case_id
    CROSS JOIN LATERAL (
        SELECT m.*
        FROM tasker.case_members m
        WHERE m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        ORDER BY m.opened_at DESC
        LIMIT $2
    ) m
    WHERE f.case_id = $1
    ORDER BY m.opened_at DESC
    LIMIT $2
) m`

// Counts the values that differ among the newest open investigations of a case.
const selectCaseSpread = `
SELECT v.fact, v.value, count(*) AS entries
FROM ` + newestMembers + `
CROSS JOIN LATERAL (VALUES ('worker_version', m.worker_version), ('worker_name', m.worker_name), ('task_version', m.task_version)) AS v (fact, value)
WHERE v.value <> ''
GROUP BY v.fact, v.value
ORDER BY v.fact, count(*) DESC, v.value`

const (
	maxSpreadEntries = 1000 // open investigations compared
	maxSpreadValues  = 20   // values per fact
)

const selectElsewhere = `
SELECT c.case_id AS id, c.namespace, c.task_name, c.step_name, n.entries
FROM tasker.cases h
JOIN tasker.cases c ON c.error_pattern = h.error_pattern AND c.error_type = h.error_type AND c.case_id <> h.case_id AND c.state <> 'resolved'
CROSS JOIN LATERAL (
    SELECT count(*) AS entries
    FROM tasker.case_fingerprints f
    JOIN tasker.case_members m ON m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
    WHERE f.case_id = c.case_id
) n
WHERE h.case_id = $1 AND h.error_pattern <> '' AND ($3 OR c.namespace = ANY ($4))
ORDER BY n.entries DESC, c.case_id
LIMIT $2`

const selectEndedOfCase = `
SELECT d.dlq_entry_uuid AS entry_uuid, d.task_uuid, d.resolution_status::text AS status, d.resolved_at AS at, d.resolved_by AS by,
    tasker.redact_note(d.resolution_notes) AS notes, d.resolved_at - d.dlq_timestamp AS open
FROM (
    SELECT e.*
    FROM tasker.case_fingerprints f
    CROSS JOIN LATERAL (
        SELECT m.dlq_entry_uuid, m.ended_at
        FROM tasker.case_members m
        WHERE m.fingerprint = f.fingerprint AND m.ended_at IS NOT NULL
        ORDER BY m.ended_at DESC
        LIMIT $3
    ) e
    WHERE f.case_id = $1 AND e.dlq_entry_uuid <> $2
    ORDER BY e.ended_at DESC
    LIMIT $3
) m
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
ORDER BY d.resolved_at DESC, d.dlq_entry_uuid`

// CaseDetail returns a case with details of its investigations, or NotFound.
func (db *DB) CaseDetail(ctx context.Context, id tasker.ID) (d tasker.CaseDetail, err error) {
	if d.Case, err = db.Case(ctx, id); err != nil {
		return d, err
	}
	fail := func(err error) (tasker.CaseDetail, error) {
		return tasker.CaseDetail{}, fmt.Errorf("read case %s: %w", id, err)
	}
	if d.Fingerprints, err = db.caseFingerprints(ctx, d.Case); err != nil {
		return tasker.CaseDetail{}, err
	}
	if d.History, err = collect[tasker.CaseChange](ctx, db.pool, selectCaseHistory, id, tasker.MaxCaseHistory); err != nil {
		return fail(err)
	}
	if d.Samples, err = collect[tasker.CaseSample](ctx, db.pool, selectCaseSamples, id, tasker.MaxCaseSamples); err != nil {
		return fail(err)
	}
	if d.Spread, err = db.caseSpread(ctx, id); err != nil {
		return fail(err)
	}
	if d.Ended, d.LastResolved, err = db.endedOfCase(ctx, id, tasker.ID{}, tasker.MaxCaseSamples); err != nil {
		return fail(err)
	}
	scope := access.ScopeOf(ctx)
	if d.RelatedCases, err = collect[tasker.RelatedCase](ctx, db.pool, selectElsewhere, id, tasker.MaxCaseSamples, scope.All(), scope.List()); err != nil {
		return fail(err)
	}
	access.HideCaseHistory(ctx, d.Namespace, d.History)
	for i := range d.Samples {
		d.Samples[i].ErrorMessage = fingerprint.Headline(d.Samples[i].ErrorMessage, maxShownError)
		access.HidePattern(ctx, d.Namespace, &d.Samples[i].ErrorMessage)
	}
	return d, nil
}

func (db *DB) caseSpread(ctx context.Context, id tasker.ID) (list []tasker.CaseDistribution, err error) {
	type row struct {
		Fact string
		tasker.ValueCount
	}
	rows, err := collect[row](ctx, db.pool, selectCaseSpread, id, maxSpreadEntries)
	if err != nil {
		return nil, err
	}
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

// endedOfCase counts ended investigations of a case, except one, by status and returns the newest.
func (db *DB) endedOfCase(ctx context.Context, id, without tasker.ID, few int) (counts map[tasker.ResolutionStatus]int64, last []tasker.EndedEntry, err error) {
	endings, err := collect[tasker.EndedEntry](ctx, db.pool, selectEndedOfCase, id, without, tasker.MaxRelated)
	if err != nil {
		return nil, nil, err
	}
	counts = map[tasker.ResolutionStatus]int64{}
	for _, e := range endings {
		counts[e.Status]++
	}
	return counts, endings[:min(few, len(endings))], nil
}

const selectRelated = `
SELECT f.case_id AS "case", d.case_key, (
    SELECT count(*)
    FROM (
        SELECT
        FROM tasker.case_fingerprints g
        JOIN tasker.case_members o ON o.namespace = m.namespace AND o.fingerprint = g.fingerprint AND o.ended_at IS NULL
        WHERE g.case_id = f.case_id AND o.dlq_entry_uuid <> $1
        LIMIT $2 + 1
    ) o
) AS open
FROM tasker.tasks_dlq d
LEFT JOIN tasker.case_members m ON m.dlq_entry_uuid = d.dlq_entry_uuid
LEFT JOIN tasker.case_fingerprints f ON f.fingerprint = m.fingerprint
WHERE d.dlq_entry_uuid = $1`

// RelatedEntries returns the case of an investigation (nil if unclassified) with the number of
// other open investigations and the endings of others, or NotFound.
func (db *DB) RelatedEntries(ctx context.Context, entry tasker.ID, few int) (tasker.RelatedEntries, error) {
	type row struct {
		Case    *tasker.ID
		CaseKey tasker.ID
		Open    int64
	}
	found, err := required[row](ctx, db.pool, noEntry(entry), "read the case of an investigation",
		selectRelated, entry, tasker.MaxRelated)
	if err != nil {
		return tasker.RelatedEntries{}, err
	}
	k := tasker.RelatedEntries{Case: found.Case, CaseKey: found.CaseKey, Open: min(found.Open, tasker.MaxRelated), More: found.Open > tasker.MaxRelated, Counts: map[tasker.ResolutionStatus]int64{}}
	if found.Case == nil {
		return k, nil
	}
	if k.Counts, k.Last, err = db.endedOfCase(ctx, *found.Case, entry, few); err != nil {
		return tasker.RelatedEntries{}, fmt.Errorf("read the endings of similar investigations: %w", err)
	}
	return k, nil
}

// maxCaseMessages bounds the messages that [DB.CaseMessages] returns.
const maxCaseMessages = 1000

// CaseMessages returns a case with its fingerprints and the newest failures of its open
// investigations, or NotFound. The failures are omitted if the caller may not read payloads.
func (db *DB) CaseMessages(ctx context.Context, id tasker.ID) (w tasker.CaseGrouping, list []tasker.CaseSample, err error) {
	if w.Case, err = db.Case(ctx, id); err != nil {
		return w, nil, err
	}
	if w.Fingerprints, err = db.caseFingerprints(ctx, w.Case); err != nil || !access.PayloadsOf(ctx).Has(w.Case.Namespace) {
		return w, nil, err
	}
	if list, err = collect[tasker.CaseSample](ctx, db.pool, selectCaseSamples, id, maxCaseMessages); err != nil {
		return w, nil, fmt.Errorf("read the messages of case %s: %w", id, err)
	}
	w.MessagesExamined = len(list)
	return w, list, nil
}

// caseFingerprints returns the fingerprints of a case, with the patterns redacted for the caller.
func (db *DB) caseFingerprints(ctx context.Context, c tasker.Case) ([]tasker.CaseFingerprint, error) {
	list, err := collect[tasker.CaseFingerprint](ctx, db.pool, selectCaseFingerprints, c.ID, tasker.MaxCaseFingerprints)
	if err != nil {
		return nil, fmt.Errorf("read the fingerprints of case %s: %w", c.ID, err)
	}
	for i := range list {
		access.HidePattern(ctx, c.Namespace, &list[i].Pattern)
	}
	return list, nil
}
