package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Emissions lists deliveries, newest event first, and reports whether there are more. A page may
// exceed the limit, so that it contains all deliveries of its last event.
func (db *DB) Emissions(ctx context.Context, f tasker.EmissionFilter) ([]tasker.Emission, bool, error) {
	rows, err := db.listEmissionPage(ctx, f, f.Limit+1)
	if err != nil {
		return nil, false, err
	}
	cut := len(rows)
	if cut > f.Limit {
		cut = f.Limit
		for cut < len(rows) && rows[cut].Position == rows[cut-1].Position {
			cut++
		}
	}
	more := cut < len(rows)
	if !more && cut > f.Limit {
		f.Before = rows[cut-1].Position
		next, err := db.listEmissionPage(ctx, f, 1)
		if err != nil {
			return nil, false, err
		}
		more = len(next) > 0
	}
	return rows[:cut], more, nil
}

// newEmissionQuery returns the statement for a page of the deliveries that the caller may see, and
// its arguments.
func newEmissionQuery(f tasker.EmissionFilter, scope access.Scope, limit int) (sql string, args []any) {
	args = []any{limit, f.Sink, string(f.State), cmp.Or(f.Before, math.MaxInt64)}
	switch {
	case !scope.IncludesAll():
		return statement("emissionsOfNamespaces"), append(args, f.Topic, scope.List())
	case f.Topic != "":
		return statement("emissionsOfTopic"), append(args, f.Topic)
	default:
		return statement("emissions"), args
	}
}

// listEmissionPage returns at least limit rows, unless there are fewer.
func (db *DB) listEmissionPage(ctx context.Context, f tasker.EmissionFilter, limit int) ([]tasker.Emission, error) {
	if f.State != "" && !slices.Contains(tasker.EmissionStates(), f.State) {
		return nil, tasker.Errorf(tasker.Invalid, "invalid emission state %q", f.State)
	}
	sql, args := newEmissionQuery(f, access.ScopeFromContext(ctx), limit)
	rows, err := collect[tasker.Emission](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list emissions: %w", err)
	}
	for i := range rows {
		access.RedactEmission(ctx, &rows[i])
	}
	return rows, nil
}

// Event returns an event, or NotFound.
func (db *DB) Event(ctx context.Context, event tasker.ID) (tasker.Event, error) {
	missing := tasker.Errorf(tasker.NotFound, "event %s not found", event)
	e, err := queryRequired[tasker.Event](ctx, db.pool, missing, "read event",
		statement("event"), event)
	if err != nil {
		return tasker.Event{}, err
	}
	if shown, ok := access.RedactEvent(ctx, e); ok {
		return shown, nil
	}
	return tasker.Event{}, missing
}

// EmissionsOf returns the deliveries of one event.
func (db *DB) EmissionsOf(ctx context.Context, event tasker.ID) ([]tasker.Emission, error) {
	list, err := collect[tasker.Emission](ctx, db.pool, statement("emissionsOf"), event)
	if err != nil {
		return nil, fmt.Errorf("read emissions: %w", err)
	}
	for i := range list {
		access.RedactEmission(ctx, &list[i])
	}
	return list, nil
}

// Sinks lists the names of all known sinks.
func (db *DB) Sinks(ctx context.Context) ([]string, error) {
	return db.listSinks(ctx, statement("sinks"))
}

// EventSinks lists the names of the sinks that receive investigation events.
func (db *DB) EventSinks(ctx context.Context) ([]string, error) {
	return db.listSinks(ctx, statement("eventSinks"))
}

func (db *DB) listSinks(ctx context.Context, sql string) ([]string, error) {
	names, err := collectColumn[string](ctx, db.pool, sql)
	return names, wrapError(err, "list sinks")
}

// OutboxStats describes a range of the outbox.
type OutboxStats struct {
	Events int
	Last   int64  // position of the last event in the range
	Next   *int64 // position of the event after the range, or nil
}

// OutboxStats describes the events in a range of positions, at most limit.
func (db *DB) OutboxStats(ctx context.Context, from, to int64, limit int) (OutboxStats, error) {
	return queryRequired[OutboxStats](ctx, db.pool, nil, "count events", statement("outboxStats"), from, to, limit)
}

// Span is an inclusive range of positions in the outbox.
type Span struct{ From, To int64 }

// ReEmission is an operator's request to redeliver events.
type ReEmission struct {
	Sinks []string
	Of    Span
	By    Operator
	Once  OperatorRequest
}

// ReEmit redelivers up to limit events and returns the number of deliveries. If r repeats an
// earlier request, it returns 0.
func (db *DB) ReEmit(ctx context.Context, r ReEmission, limit int) (n int, err error) {
	subject := fmt.Sprintf("positions %d to %d", r.Of.From, r.Of.To)
	err = db.InTx(ctx, func(tx *Tx) error {
		n = 0
		repeated, err := tx.CheckIdempotency(ctx, r.Once)
		if err != nil || repeated {
			return err
		}
		if err := tx.QueryRow(ctx, statement("reEmit"), r.Sinks, r.Of.From, r.Of.To, limit, r.By.Actor, subject, r.By.Reason).Scan(&n); err != nil {
			return err
		}
		return notifyDue(ctx, tx, "re-emit", 0)
	})
	return n, wrapError(err, "redeliver events")
}

// Audit appends an event to the audit log.
func (db *DB) Audit(ctx context.Context, actor, action, subject string, data json.RawMessage) error {
	_, err := db.pool.Exec(ctx, statement("auditEvent"), actor, action, subject, string(data))
	return wrapError(err, "audit %s", action)
}

// auditData is auditText for a subject that has an id.
func (tx *Tx) auditData(ctx context.Context, actor, action string, subject tasker.ID, doc json.RawMessage) error {
	return tx.auditText(ctx, actor, action, subject.String(), doc)
}

// auditText is [DB.Audit] within the transaction.
func (tx *Tx) auditText(ctx context.Context, actor, action, subject string, doc json.RawMessage) error {
	_, err := tx.Exec(ctx, statement("auditEvent"), actor, action, subject, string(doc))
	return wrapError(err, "audit %s", action)
}

// audit is auditText without data.
func (tx *Tx) audit(ctx context.Context, actor, action, subject string) error {
	_, err := tx.Exec(ctx, statement("auditWithoutData"), actor, action, subject)
	return wrapError(err, "audit %s", action)
}

// AuditEvents lists audit events, newest first, and reports whether there are more. If before is
// not 0, only events with smaller ids are listed.
func (db *DB) AuditEvents(ctx context.Context, action string, before int64, limit int) ([]tasker.AuditEvent, bool, error) {
	sql := statement("auditEvents")
	args := []any{limit + 1, cmp.Or(before, math.MaxInt64)}
	if action != "" {
		sql, args = statement("auditEventsOfAction"), append(args, action)
	}
	rows, err := collect[tasker.AuditEvent](ctx, db.pool, sql, args...)
	rows, more := trimPage(rows, limit)
	return rows, more, wrapError(err, "list audit events")
}
