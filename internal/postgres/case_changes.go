package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// caseTask is a task of the template to which a case belongs.
type caseTask struct {
	TaskUUID      tasker.ID
	At            *time.Time // when the step succeeded; nil if it has not
	WorkerName    string
	WorkerVersion string
	TaskVersion   string
}

// Limits for reading context values.
const (
	maxContextValue  = 200      // maximum length of a value, in characters
	maxContextStored = 64 << 10 // maximum stored size of a context that is read
	maxContextValues = 50       // maximum number of values per key
	minContextValue  = 5        // minimum number of failures with the value
)

// ContextValue is a value of a context key that the template declares for triage.
type ContextValue struct {
	Key                 string `db:"-"`
	Value               string
	Failures, Successes int // number of tasks with the value
}

// CaseComparison compares the failures of a case with successes of the same step.
type CaseComparison struct {
	tasker.CaseComparison
	Case      tasker.Case
	Failed    []tasker.CaseSample // newest first
	Succeeded []tasker.CaseSuccess
	Values    []ContextValue // empty unless the caller may read payloads
}

// CompareCase compares the failures of a case with successes of the same step, or returns NotFound.
func (db *DB) CompareCase(ctx context.Context, id tasker.ID) (c CaseComparison, err error) {
	if c.Case, err = db.Case(ctx, id); err != nil {
		return c, err
	}
	c.CaseID, c.Differences = id, []tasker.CaseDifference{}
	fail := func(err error) (CaseComparison, error) {
		return CaseComparison{}, fmt.Errorf("compare case %s with successes: %w", id, err)
	}
	scope := access.ScopeFromContext(ctx)
	if c.CoincidentCases, err = collect[tasker.RelatedCase](ctx, db.pool, statement("selectBegan"), id, tasker.MaxCaseSamples, scope.IncludesAll(), scope.List()); err != nil {
		return fail(err)
	}
	impact, err := queryOne[tasker.CaseImpact](ctx, db.pool, statement("selectImpact"), id, tasker.MaxCaseImpact)
	if err != nil {
		return fail(err)
	}
	c.Impact = *impact
	if c.FirstFailure = c.Case.Oldest; c.FirstFailure == nil || c.Case.EntryUUID.IsZero() {
		return c, nil // the case is resolved
	}
	if c.Failed, err = collect[tasker.CaseSample](ctx, db.pool, statement("selectCaseSamples"), id, tasker.MaxCaseCompared); err != nil {
		return fail(err)
	}
	if c.Case.StepName == "" {
		return c, nil // no step failed
	}
	first, err := queryValue[tasker.ID](ctx, db.pool, statement("taskOfEntry"), c.Case.EntryUUID.ID)
	if err != nil {
		return fail(err)
	}
	args := []any{c.Case.Namespace, c.Case.TaskName, c.Case.StepName, tasker.MaxCaseTasks, first}
	before, err := collect[caseTask](ctx, db.pool, statement("successesBefore"), args...)
	if err != nil {
		return fail(err)
	}
	since, err := collect[caseTask](ctx, db.pool, statement("successesSince"), args...)
	if err != nil {
		return fail(err)
	}
	c.add(before, since, *c.FirstFailure)
	if c.Values, err = db.findContextValues(ctx, &c); err != nil {
		return fail(err)
	}
	return c, nil
}

// findContextValues reads the values of the template's triage keys. It returns nil if the caller
// may not read payloads.
func (db *DB) findContextValues(ctx context.Context, c *CaseComparison) ([]ContextValue, error) {
	if !access.PayloadScopeFromContext(ctx).Has(c.Case.Namespace) {
		return nil, nil
	}
	t, err := db.Template(ctx, c.Case.Namespace, c.Case.TaskName, "")
	switch {
	case tasker.CodeOf(err) == tasker.NotFound:
		return nil, nil
	case err != nil || len(t.Triage.Keys) == 0:
		return nil, err
	}
	paths, err := json.Marshal(t.Triage.Paths())
	if err != nil {
		return nil, fmt.Errorf("encode the triage keys: %w", err)
	}
	failed := collectValues(c.Failed, func(s *tasker.CaseSample) tasker.ID { return s.TaskUUID })
	succeeded := collectValues(c.Succeeded, func(s *tasker.CaseSuccess) tasker.ID { return s.TaskUUID })
	type row struct {
		Ordinal int
		ContextValue
	}
	rows, err := collect[row](ctx, db.pool, statement("selectContextValues"), failed, succeeded, string(paths), maxContextValue, maxContextStored, maxContextValues, minContextValue)
	list := make([]ContextValue, len(rows))
	for i, r := range rows {
		list[i] = r.ContextValue
		list[i].Key = t.Triage.Keys[r.Ordinal-1]
	}
	return list, err
}

// minSuccesses is the minimum number of successes since the first failure. If there are fewer,
// earlier successes are used for the comparison.
const minSuccesses = 30

// add sets the successes to compare and the last success before the first failure.
func (c *CaseComparison) add(before, since []caseTask, first time.Time) {
	var earlier, later []tasker.CaseSuccess
	for _, t := range append(before, since...) {
		if t.At == nil {
			continue
		}
		s := tasker.CaseSuccess{TaskUUID: t.TaskUUID, At: *t.At, WorkerName: t.WorkerName, WorkerVersion: t.WorkerVersion, TaskVersion: t.TaskVersion}
		if !s.At.Before(first) {
			later = append(later, s)
			continue
		}
		if earlier = append(earlier, s); c.LastSuccess == nil || c.LastSuccess.At.Before(s.At) {
			c.LastSuccess = &s
		}
	}
	c.TasksExamined = len(before) + len(since)
	c.Succeeded, c.Since = later, true
	if len(later) < minSuccesses {
		c.Succeeded, c.Since = earlier, false
	}
	c.Failures, c.Successes = len(c.Failed), len(c.Succeeded)
}
