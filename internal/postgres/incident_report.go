package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// ReadReport returns a report without its digest. It returns NotFound, or TooLarge if there are
// more than [tasker.MaxReportEntries] investigations.
func (db *DB) ReadReport(ctx context.Context, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	r := tasker.IncidentReport{Format: tasker.ReportFormat, Version: tasker.ReportVersion}
	args, err := db.newReportArgs(ctx, q, &r)
	if err != nil {
		return r, err
	}
	// An operation is visible only to callers who may see all its namespaces.
	found, err := collectColumn[json.RawMessage](ctx, db.pool, statement("readReport"), append(args, access.ScopeFromContext(ctx).List())...)
	if err != nil {
		return r, fmt.Errorf("read a report: %w", err)
	}
	if err := json.Unmarshal(found[0], &r); err != nil {
		return r, fmt.Errorf("read a report: %w", err)
	}
	if r.Counts.Entries > tasker.MaxReportEntries {
		return r, tasker.Errorf(tasker.TooLarge, "the report would cover more than %d investigations: set from "+
			"and to, or a namespace", tasker.MaxReportEntries)
	}
	for i := range r.Cases { // error patterns are payloads
		access.RedactPattern(ctx, r.Cases[i].Namespace, &r.Cases[i].Cause)
	}
	return r, nil
}

// newReportArgs returns the arguments of a report, except the namespaces of the caller. It also sets
// the subject of r.
func (db *DB) newReportArgs(ctx context.Context, q tasker.IncidentReportQuery, r *tasker.IncidentReport) ([]any, error) {
	from, to := time.Unix(0, 0).UTC(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if !q.From.IsZero() {
		from = q.From.UTC()
		r.Subject.From = &from
	}
	if !q.To.IsZero() {
		to = q.To.UTC()
		r.Subject.To = &to
	}
	if !from.Before(to) {
		return nil, tasker.Errorf(tasker.Invalid, "invalid from and to: from must be before to")
	}
	switch {
	case q.Case != nil:
		c, err := db.Case(ctx, *q.Case)
		if err != nil {
			return nil, err
		}
		r.Subject.Kind, r.Subject.ID, r.Subject.Namespace = "case", q.Case, c.Namespace
		return []any{"case", q.Case, from, to, nil}, nil
	case q.Incident != nil:
		i, err := db.Incident(ctx, *q.Incident)
		if err != nil {
			return nil, err
		}
		r.Subject.Kind, r.Subject.ID, r.Subject.Namespace = "incident", q.Incident, i.Namespace
		return []any{"incident", q.Incident, from, to, nil}, nil
	}
	r.Subject.Kind, r.Subject.Namespace = "range", q.Namespace
	scope := access.ScopeFromContext(ctx)
	if q.Namespace != "" { // an invisible namespace is treated like an empty one
		scope = scope.Intersect(access.NamespaceScope(q.Namespace))
	}
	return []any{"range", nil, from, to, scope.List()}, nil
}
