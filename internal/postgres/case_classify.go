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
	ErrorFingerprint string // supplied by the handler; may be empty
	TaskVersion      string
	WorkerName       *string
	WorkerVersion    *string
	OpenedAt         time.Time
	AttemptedAt      *time.Time
	Fresh            bool // the investigation had no case before
}

// Fingerprint identifies the cause of a failure.
type Fingerprint struct {
	Key       tasker.ID
	ErrorType string
	Pattern   string
}

// Classify assigns up to limit open investigations to cases: those that this version of the rules
// has not classified, starting with new and changed failures. The function of computes
// fingerprints. Classify returns how many it assigned, or 0 while another server classifies.
//
// A resolved case is reopened. It has regressed if the failed attempt began after the resolution,
// unless older reports that the worker's version is older than the one that contains the fix.
func (db *DB) Classify(ctx context.Context, version, limit int, of func(MemberFailure) Fingerprint, older func(version, than string) bool) (n int, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		if free, err := lockCases(ctx, tx); err != nil || !free {
			return err
		}
		list, err := collect[MemberFailure](ctx, tx, statement("selectUnclassified"), version, limit)
		if err != nil || len(list) == 0 {
			return err
		}
		n = len(list)
		c := classification{tx: tx, version: version, list: list, older: older, split: map[tasker.ID]tasker.ID{}}
		for _, m := range list {
			c.prints = append(c.prints, of(m))
		}
		return c.store(ctx)
	})
	return n, wrapError(err, "classify investigations")
}

// classification holds the state of one batch of [DB.Classify].
type classification struct {
	tx      *Tx
	version int
	list    []MemberFailure
	prints  []Fingerprint           // one per failure
	split   map[tasker.ID]tasker.ID // case from which a fingerprint was split
	older   func(version, than string) bool
}

func (c *classification) store(ctx context.Context) error {
	if err := c.refineCases(ctx); err != nil {
		return err
	}
	rows, err := collect[knownFingerprint](ctx, c.tx, statement("selectKnown"), c.caseKeys())
	if err != nil {
		return err
	}
	known := make(map[tasker.ID]knownFingerprint, len(rows))
	for _, r := range rows {
		known[r.Fingerprint] = r
	}
	if err := c.openCases(ctx, known); err != nil {
		return err
	}
	if err := c.assignMembers(ctx); err != nil {
		return err
	}
	return c.reopenCases(ctx, known)
}

// knownFingerprint is a fingerprint that already has a case.
type knownFingerprint struct {
	Fingerprint, CaseID tasker.ID
	State               tasker.CaseState
	ResolvedAt          *time.Time // for an open case: the last resolution, unless it has regressed since
	FixedIn             string
}

// openCases creates cases for fingerprints that have none.
func (c *classification) openCases(ctx context.Context, known map[tasker.ID]knownFingerprint) error {
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
	_, err := c.tx.Exec(ctx, statement("insertCases"), texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], first, texts[8], c.version)
	return wrapError(err, "open cases")
}

// reopenCases reopens resolved cases that have new investigations and marks regressions.
func (c *classification) reopenCases(ctx context.Context, known map[tasker.ID]knownFingerprint) error {
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
	_, err := c.tx.Exec(ctx, statement("reopenCases"), ids, was, list, why)
	return wrapError(err, "reopen resolved cases")
}

func compareIDs(a, b tasker.ID) int { return bytes.Compare(a[:], b[:]) }

func (c *classification) caseKeys() []tasker.ID {
	return collectValues(c.prints, func(p *Fingerprint) tasker.ID { return p.Key })
}

// reopenState returns the new state of a resolved case after another failure, and the reason.
func (c *classification) reopenState(m MemberFailure, k knownFingerprint) (tasker.CaseState, string) {
	switch {
	case k.ResolvedAt != nil && m.AttemptedAt != nil && !m.AttemptedAt.After(*k.ResolvedAt):
		return tasker.CaseOngoing, "an attempt that began before the case was resolved has failed"
	case k.FixedIn != "" && m.WorkerVersion != nil && c.older(*m.WorkerVersion, k.FixedIn):
		return tasker.CaseOngoing, fmt.Sprintf("a worker of version %s failed, which is "+
			"before %s", *m.WorkerVersion, k.FixedIn)
	default:
		return tasker.CaseRegressed, "failed again after the case was resolved"
	}
}

// assignMembers stores the fingerprints of members whose failures have not changed since they were
// read.
func (c *classification) assignMembers(ctx context.Context) error {
	n := len(c.list)
	entries, revisions := make([]tasker.ID, n), make([]int, n)
	names, versions := make([]*string, n), make([]*string, n)
	for i, m := range c.list {
		entries[i], revisions[i], names[i], versions[i] = m.EntryUUID, m.Revision, m.WorkerName, m.WorkerVersion
	}
	_, err := c.tx.Exec(ctx, statement("updateMembers"), c.version, entries, revisions, c.caseKeys(), names, versions)
	return wrapError(err, "store the cases of investigations")
}

// refinement describes a split of a fingerprint.
type refinement struct {
	Fingerprint, CaseID tasker.ID
	Field, Literal      string
}

// refineCases replaces the fingerprints of failures that match a split of their case. It repeats
// this for splits of splits.
func (c *classification) refineCases(ctx context.Context) error {
	for range tasker.MaxRefinements {
		rows, err := collect[refinement](ctx, c.tx, statement("selectRefinements"), c.caseKeys())
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
			if r.Fingerprint == p.Key && isRefinedBy(m, r.Field, r.Literal) {
				sum := md5.Sum([]byte(strings.Join([]string{p.Key.String(), r.Field, r.Literal}, "\x1f")))
				p.Key, some = sum, true
				c.split[p.Key] = r.CaseID
				break
			}
		}
	}
	return some
}

// isRefinedBy reports whether a failure matches a split. The SQL statement for split members
// implements the same rule.
func isRefinedBy(m MemberFailure, field, literal string) bool {
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

// lockCases tries to acquire casesLock for at most one second and reports whether it succeeded.
func lockCases(ctx context.Context, tx *Tx) (free bool, err error) {
	if err := tx.QueryRow(ctx, statement("tryLockCases")).Scan(&free); err != nil || free {
		return free, wrapError(err, "lock the cases")
	}
	err = pgx.BeginFunc(ctx, tx, func(waiting pgx.Tx) error {
		if _, err := waiting.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		if _, err := waiting.Exec(ctx, statement("lockCases")); err != nil {
			return err
		}
		_, err := waiting.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT`)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55P03" { // lock timeout
		return false, nil
	}
	return err == nil, wrapError(err, "lock the cases")
}

// CaseMove describes a state change of a case.
type CaseMove struct {
	CaseID    tasker.ID
	Namespace string
	From, To  tasker.CaseState
	Entries   int64
}

// UpdateCaseStates updates the states of unresolved cases and returns the changes. It does nothing
// while another server holds casesLock.
func (db *DB) UpdateCaseStates(ctx context.Context) (moved []CaseMove, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		moved = nil
		if free, err := lockCases(ctx, tx); err != nil || !free {
			return err
		}
		moved, err = collect[CaseMove](ctx, tx, statement("updateCaseStates"))
		return err
	})
	return moved, wrapError(err, "update the states of cases")
}
