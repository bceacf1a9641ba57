package postgres

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
)

// MemberFailure describes the newest failure of an investigation that has no case yet.
type MemberFailure struct {
	EntryUUID        tasker.ID
	Revision         int
	Namespace        string
	TaskName         string
	StepName         string
	Reason           tasker.Reason
	DetailCode       string
	ErrorType        string
	ErrorMessage     string
	ErrorFingerprint string // set by the handler; may be empty
	TaskVersion      string
	WorkerName       *string
	WorkerVersion    *string
	OpenedAt         time.Time
	AttemptedAt      *time.Time
	Fresh            bool // had no case before
}

// Fingerprint identifies the cause of a failure.
type Fingerprint struct {
	Key       tasker.ID
	ErrorType string
	Pattern   string
}

// casesLock serializes classification and state changes of cases between servers.
const casesLock = `hashtextextended('tasker.cases', 0)`

const selectUnclassified = `
SELECT m.dlq_entry_uuid AS entry_uuid, m.revision, m.namespace, m.task_name, m.step_name, m.dlq_reason::text AS reason, m.detail_code,
    coalesce(m.error_type, '') AS error_type, coalesce(m.error_message, '') AS error_message, coalesce(m.error_fingerprint, '') AS error_fingerprint,
    m.task_version, coalesce(w.name, m.worker_name) AS worker_name, coalesce(w.version, m.worker_version) AS worker_version, m.opened_at, m.attempted_at,
    m.fingerprint IS NULL AS fresh
FROM (
    SELECT * FROM tasker.case_members
    WHERE ended_at IS NULL AND fingerprint_version < $1
    ORDER BY fingerprint_version, opened_at
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED -- the next call classifies locked ones
) m
LEFT JOIN tasker.workers w ON w.worker_uuid = CASE WHEN m.worker_uuid ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN m.worker_uuid::uuid END`

const selectRefinements = `
SELECT fingerprint, case_id, field, literal
FROM tasker.case_refinements
WHERE fingerprint = ANY ($1)
ORDER BY created_at, refinement_id`

// A case that reopened without a regression may still regress unless it has an owner.
const selectKnown = `
SELECT f.fingerprint, f.case_id, c.state, coalesce(c.resolved_at, CASE WHEN r.regressed_at > r.resolved_at THEN NULL ELSE r.resolved_at END) AS resolved_at,
    coalesce(c.fixed_in, '') AS fixed_in
FROM tasker.case_fingerprints f
JOIN tasker.cases c ON c.case_id = f.case_id
CROSS JOIN LATERAL (
    SELECT max(h.changed_at) FILTER (WHERE h.metadata ->> 'to' = 'resolved') AS resolved_at, max(h.changed_at) FILTER (WHERE h.metadata ->> 'to' = 'regressed') AS regressed_at
    FROM tasker.case_history h
    WHERE h.case_id = c.case_id AND h.event = 'state_changed' AND c.state IN ('ongoing', 'escalating') AND coalesce(c.owned_until <= now(), true)
) r
WHERE f.fingerprint = ANY ($1)`

const insertCases = `
WITH found AS (
    SELECT u.*, tasker.uuid_generate_v7() AS case_id
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[], $10::text[])
        AS u (fingerprint, namespace, task_name, step_name, reason, detail_code, error_type, error_pattern, first_seen_at, split_from)
),
cases AS (
    INSERT INTO tasker.cases (case_id, namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state_since, first_seen_at, updated_at)
    SELECT case_id, namespace, task_name, step_name, reason::tasker.dlq_reason, detail_code, error_type, error_pattern, clock_timestamp(), first_seen_at, clock_timestamp()
    FROM found
),
fingerprints AS (
    INSERT INTO tasker.case_fingerprints (fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at)
    SELECT fingerprint, case_id, case_id, $11, error_type, error_pattern, first_seen_at
    FROM found
),
history AS (
    INSERT INTO tasker.case_history (case_id, event, actor, metadata)
    SELECT case_id, 'opened', 'tasker', CASE WHEN split_from <> '' THEN jsonb_build_object('split_from', split_from) END
    FROM found
)
SELECT fingerprint, case_id FROM found`

const updateMembers = `
UPDATE tasker.case_members m
SET fingerprint = u.fingerprint, fingerprint_version = $1, worker_name = u.worker_name, worker_version = u.worker_version
FROM unnest($2::uuid[], $3::integer[], $4::uuid[], $5::text[], $6::text[]) AS u (entry, revision, fingerprint, worker_name, worker_version)
WHERE m.dlq_entry_uuid = u.entry AND m.revision = u.revision`

const reopenCases = `
WITH reopened AS (
    UPDATE tasker.cases c
    SET state = u.state, state_since = clock_timestamp(), updated_at = clock_timestamp(), resolved_at = NULL, level = CASE WHEN c.state = 'resolved' THEN 0 ELSE c.level END,
        owner = CASE WHEN c.state <> 'resolved' THEN c.owner END, owned_until = CASE WHEN c.state <> 'resolved' THEN c.owned_until END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS u (case_id, was, state, notes)
    WHERE c.case_id = u.case_id AND c.state = u.was
    RETURNING c.case_id, u.was, c.state, u.notes
)
INSERT INTO tasker.case_history (case_id, event, actor, notes, metadata)
SELECT case_id, 'state_changed', 'tasker', notes, jsonb_build_object('from', was, 'to', state)
FROM reopened`

// Classify assigns cases to up to limit open investigations that were not classified by this
// version of the rules, new and changed failures first. It returns their number, or 0 while another
// server classifies.
//
// A resolved case reopens as regressed if an attempt failed that began after the resolution, unless
// older reports that its worker is older than the version with the fix.
func (db *DB) Classify(ctx context.Context, version, limit int, of func(MemberFailure) Fingerprint, older func(version, than string) bool) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		if free, err := lockCases(ctx, tx); err != nil || !free {
			return err
		}
		list, err := collect[MemberFailure](ctx, tx, selectUnclassified, version, limit)
		if err != nil || len(list) == 0 {
			return err
		}
		n = len(list)
		c := classification{tx: tx, version: version, list: list, older: older, split: map[tasker.ID]tasker.ID{}}
		for _, m := range list {
			c.prints = append(c.prints, of(m))
		}
		return c.write(ctx)
	})
	return n, wrap(err, "classify investigations")
}

// classification is one batch of [DB.Classify].
type classification struct {
	tx      *Tx
	version int
	list    []MemberFailure
	prints  []Fingerprint           // one per failure
	split   map[tasker.ID]tasker.ID // the case that a fingerprint was split from
	older   func(version, than string) bool
}

func (c *classification) write(ctx context.Context) error {
	if err := c.refine(ctx); err != nil {
		return err
	}
	rows, err := collect[knownFingerprint](ctx, c.tx, selectKnown, c.keys())
	if err != nil {
		return err
	}
	known := make(map[tasker.ID]knownFingerprint, len(rows))
	for _, r := range rows {
		known[r.Fingerprint] = r
	}
	if err := c.open(ctx, known); err != nil {
		return err
	}
	if err := c.assign(ctx); err != nil {
		return err
	}
	return c.reopen(ctx, known)
}

// knownFingerprint is a fingerprint that has a case.
type knownFingerprint struct {
	Fingerprint, CaseID tasker.ID
	State               tasker.CaseState
	ResolvedAt          *time.Time // of an open case: the last resolution, if it has not regressed since
	FixedIn             string
}

// open creates cases for new fingerprints.
func (c *classification) open(ctx context.Context, known map[tasker.ID]knownFingerprint) error {
	var texts [9][]string
	var first []time.Time
	seen := map[tasker.ID]int{}
	for i, m := range c.list {
		p := c.prints[i]
		if _, ok := known[p.Key]; ok {
			continue
		}
		if at, ok := seen[p.Key]; ok {
			if m.OpenedAt.Before(first[at]) {
				first[at] = m.OpenedAt
			}
			continue
		}
		seen[p.Key] = len(first)
		first = append(first, m.OpenedAt)
		from := ""
		if id, ok := c.split[p.Key]; ok {
			from = id.String()
		}
		for j, text := range []string{p.Key.String(), m.Namespace, m.TaskName, tasker.TemplateName(m.StepName), string(m.Reason), m.DetailCode, p.ErrorType, p.Pattern, from} {
			texts[j] = append(texts[j], text)
		}
	}
	if len(first) == 0 {
		return nil
	}
	_, err := c.tx.Exec(ctx, insertCases, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], first, texts[8], c.version)
	return wrap(err, "open cases")
}

// reopen reopens resolved cases with new investigations and marks regressions.
func (c *classification) reopen(ctx context.Context, known map[tasker.ID]knownFingerprint) error {
	type move struct {
		from, to tasker.CaseState
		note     string
	}
	moves := map[tasker.ID]move{}
	for i, m := range c.list {
		k, ok := known[c.prints[i].Key]
		if !ok || moves[k.CaseID].to == tasker.CaseRegressed || k.State != tasker.CaseResolved && (k.ResolvedAt == nil || m.AttemptedAt == nil || !m.Fresh) {
			continue
		}
		if to, note := c.reopenState(m, k); k.State == tasker.CaseResolved || to == tasker.CaseRegressed {
			moves[k.CaseID] = move{k.State, to, note}
		}
	}
	if len(moves) == 0 {
		return nil
	}
	ids := slices.SortedFunc(maps.Keys(moves), compareIDs)
	was, list, why := make([]string, len(ids)), make([]string, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		was[i], list[i], why[i] = string(moves[id].from), string(moves[id].to), moves[id].note
	}
	_, err := c.tx.Exec(ctx, reopenCases, ids, was, list, why)
	return wrap(err, "reopen resolved cases")
}

func compareIDs(a, b tasker.ID) int { return bytes.Compare(a[:], b[:]) }

func (c *classification) keys() []tasker.ID {
	return valuesOf(c.prints, func(p *Fingerprint) tasker.ID { return p.Key })
}

// reopenState returns the new state of a resolved case with a new failure, and the reason.
func (c *classification) reopenState(m MemberFailure, k knownFingerprint) (tasker.CaseState, string) {
	switch {
	case k.ResolvedAt != nil && m.AttemptedAt != nil && !m.AttemptedAt.After(*k.ResolvedAt):
		return tasker.CaseOngoing, "an attempt that had begun before the case was resolved failed"
	case k.FixedIn != "" && m.WorkerVersion != nil && c.older(*m.WorkerVersion, k.FixedIn):
		return tasker.CaseOngoing, fmt.Sprintf("a worker of version %s failed, before %s", *m.WorkerVersion, k.FixedIn)
	default:
		return tasker.CaseRegressed, "failed again after the case was resolved"
	}
}

// assign stores the fingerprints of members whose failure has not changed.
func (c *classification) assign(ctx context.Context) error {
	n := len(c.list)
	entries, revisions := make([]tasker.ID, n), make([]int, n)
	names, versions := make([]*string, n), make([]*string, n)
	for i, m := range c.list {
		entries[i], revisions[i], names[i], versions[i] = m.EntryUUID, m.Revision, m.WorkerName, m.WorkerVersion
	}
	_, err := c.tx.Exec(ctx, updateMembers, c.version, entries, revisions, c.keys(), names, versions)
	return wrap(err, "store the cases of investigations")
}

// refinement is a split of a fingerprint.
type refinement struct {
	Fingerprint, CaseID tasker.ID
	Field, Literal      string
}

// refine replaces the fingerprints of failures that were split from their case, repeatedly.
func (c *classification) refine(ctx context.Context) error {
	for range tasker.MaxRefinements {
		rows, err := collect[refinement](ctx, c.tx, selectRefinements, c.keys())
		if err != nil || !c.refineBy(rows) {
			return err
		}
	}
	return nil
}

// refineBy applies at most one split to each failure and reports whether it applied any.
func (c *classification) refineBy(rows []refinement) (some bool) {
	for i, m := range c.list {
		p := &c.prints[i]
		for _, r := range rows {
			if r.Fingerprint == p.Key && refines(m, r.Field, r.Literal) {
				sum := md5.Sum([]byte(strings.Join([]string{p.Key.String(), r.Field, r.Literal}, "\x1f")))
				p.Key, some = sum, true
				c.split[p.Key] = r.CaseID
				break
			}
		}
	}
	return some
}

// refines reports whether a failure matches a split, like splitMembers in SQL.
func refines(m MemberFailure, field, literal string) bool {
	switch field {
	case "error_message":
		return strings.Contains(m.ErrorMessage, literal)
	case "error_type":
		return m.ErrorType == literal
	case "worker_version":
		return m.WorkerVersion != nil && *m.WorkerVersion == literal
	case "task_version":
		return m.TaskVersion == literal
	}
	return false
}

// lockCases acquires casesLock within a second and reports whether it did.
func lockCases(ctx context.Context, tx *Tx) (free bool, err error) {
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(`+casesLock+`)`).Scan(&free); err != nil || free {
		return free, wrap(err, "lock the cases")
	}
	err = pgx.BeginFunc(ctx, tx, func(waiting pgx.Tx) error {
		if _, err := waiting.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		if _, err := waiting.Exec(ctx, `SELECT pg_advisory_xact_lock(`+casesLock+`)`); err != nil {
			return err
		}
		_, err := waiting.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT`)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55P03" { // lock timeout
		return false, nil
	}
	return err == nil, wrap(err, "lock the cases")
}

const updateCaseStates = `
WITH ` + openHead + openMembers + `true` + openTail + `,
evaluated AS (
    SELECT c.case_id, c.state AS was, coalesce(o.entries, 0) AS entries, coalesce(o.recent, 0) AS recent,
        greatest(c.level, tasker.case_level(coalesce(o.entries, 0))) AS level, CASE WHEN c.owned_until > now() THEN c.owner END AS owner,
        tasker.case_state(c.state, c.state_since, c.first_seen_at, c.level, c.snoozed_until, c.snooze_above,
            coalesce(c.owned_until > now(), false) OR coalesce(o.acted > CASE WHEN c.state = 'regressed' THEN c.state_since ELSE '-infinity' END, false), coalesce(o.entries, 0), coalesce(o.recent, 0), coalesce(o.earlier, 0), now()) AS state
    FROM tasker.cases c
    LEFT JOIN open o ON o.case_id = c.case_id
    WHERE c.state <> 'resolved'
),
moved AS (
    UPDATE tasker.cases c
    SET state = j.state, level = CASE WHEN j.state = 'resolved' THEN 0 ELSE j.level END,
        state_since = CASE WHEN j.state = j.was THEN c.state_since ELSE clock_timestamp() END,
        resolved_at = CASE WHEN j.state = 'resolved' THEN clock_timestamp() END,
        snoozed_until = CASE WHEN j.state <> 'resolved' AND (j.was <> 'resting' OR j.state = 'resting') THEN c.snoozed_until END,
        snooze_above = CASE WHEN j.state <> 'resolved' AND (j.was <> 'resting' OR j.state = 'resting') THEN c.snooze_above END,
        owner = CASE WHEN j.state <> 'resolved' THEN c.owner END, owned_until = CASE WHEN j.state <> 'resolved' THEN c.owned_until END,
        updated_at = clock_timestamp()
    FROM evaluated j
    WHERE c.case_id = j.case_id AND c.state = j.was AND (j.state <> j.was OR j.level > c.level)
    RETURNING c.case_id, c.namespace, j.was, c.state, j.entries, j.recent, j.owner
),
history AS (
    INSERT INTO tasker.case_history (case_id, event, actor, metadata)
    SELECT case_id, 'state_changed', 'tasker', jsonb_build_object('from', was, 'to', state, 'open', entries, 'recent', recent)
        || CASE WHEN state = 'resolved' AND owner IS NOT NULL THEN jsonb_build_object('owner', owner) ELSE '{}' END
    FROM moved
    WHERE state <> was
    ORDER BY case_id
)
SELECT case_id, namespace, was AS "from", state AS "to", entries
FROM moved
WHERE state <> was
ORDER BY case_id`

// CaseMove describes a change of the state of a case.
type CaseMove struct {
	CaseID    tasker.ID
	Namespace string
	From, To  tasker.CaseState
	Entries   int64
}

// UpdateCaseStates updates the states of unresolved cases and returns the changes.
func (db *DB) UpdateCaseStates(ctx context.Context) (moved []CaseMove, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		moved = nil
		if free, err := lockCases(ctx, tx); err != nil || !free {
			return err
		}
		moved, err = collect[CaseMove](ctx, tx, updateCaseStates)
		return err
	})
	return moved, wrap(err, "update the states of cases")
}
