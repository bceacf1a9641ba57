package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const emissionColumns = `e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at,
    e.last_attempt_at, e.last_error, e.published_at, ` + eventColumns

// Each sink and visible namespace is read by index. A page never divides the deliveries of an
// event.
const selectEmissionPage = `
WITH page AS MATERIALIZED (
    SELECT e.*
    FROM tasker.emission_sinks s %s
    CROSS JOIN LATERAL (
        SELECT e.*
        FROM %s tasker.emissions e
        WHERE e.sink = s.sink %s
        ORDER BY %s e.position DESC
        LIMIT $1
    ) e
    WHERE $2 = '' OR s.sink = $2
    ORDER BY e.position DESC
    FETCH FIRST $1 ROWS WITH TIES
)
SELECT ` + emissionColumns + `
FROM page e
JOIN tasker.outbox o ON o.position = e.position
ORDER BY e.position DESC, e.sink`

// eventsOfTopic reads the events of a topic by index. Events of one topic may be rare.
const eventsOfTopic = `(
            SELECT o.topic, o.position
            FROM tasker.outbox o
            WHERE (o.topic, o.position) >= ($%[1]d, 0) AND (o.topic, o.position) < ($%[1]d, $%[2]d)
            ORDER BY o.topic DESC, o.position DESC
            OFFSET 0
        ) o CROSS JOIN`

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

// buildEmissionQuery selects a page of deliveries in the namespaces that the caller may see. Because of
// its row comparison, the planner uses one index range per namespace.
func buildEmissionQuery(f tasker.EmissionFilter, scope access.Scope, limit int) (sql string, args []any, err error) {
	from, source, where, order, args := "", "", "", "", []any{limit, f.Sink}
	columns, values := "e.namespace, e.sink, ", "n.namespace, s.sink, "
	if f.State != "" {
		if !slices.Contains(tasker.EmissionStates(), f.State) {
			return "", nil, tasker.Errorf(tasker.Invalid, "invalid emission state %q", f.State)
		}
		// The state is a literal, so that its partial index is used.
		where += " AND e.state = '" + string(f.State) + "' AND e.position > 0"
		if f.State != tasker.EmissionPublished {
			columns, values = columns+"e.state, ", values+"'"+string(f.State)+"', "
		}
	}
	if f.Topic != "" {
		args = append(args, f.Topic)
		if scope.IncludesAll() {
			args = append(args, cmp.Or(f.Before, math.MaxInt64))
			source = fmt.Sprintf(eventsOfTopic, len(args)-1, len(args))
			where, order = where+" AND e.position = o.position", "o.topic DESC, o.position DESC,"
		} else {
			where += fmt.Sprintf(" AND (SELECT o.topic FROM tasker.outbox o WHERE o.position = e.position OFFSET 0) = $%d", len(args))
		}
	}
	if f.Before > 0 {
		args = append(args, f.Before)
		where += fmt.Sprintf(" AND e.position < $%d", len(args))
	}
	if !scope.IncludesAll() {
		args = append(args, scope.List(), cmp.Or(f.Before, math.MaxInt64))
		from = fmt.Sprintf("CROSS JOIN unnest($%d::text[]) AS n (namespace)", len(args)-1)
		where += fmt.Sprintf(" AND (%[1]se.position) < (%[2]s$%[3]d) AND (%[1]se.position) >= (%[2]s0) AND e.namespace > ''", columns, values, len(args))
		order = strings.ReplaceAll(columns, ",", " DESC,")
	}
	return fmt.Sprintf(selectEmissionPage, from, source, where, order), args, nil
}

// listEmissionPage returns at least limit rows, unless there are fewer.
func (db *DB) listEmissionPage(ctx context.Context, f tasker.EmissionFilter, limit int) ([]tasker.Emission, error) {
	sql, args, err := buildEmissionQuery(f, access.ScopeFromContext(ctx), limit)
	if err != nil {
		return nil, err
	}
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
	where, args := "WHERE true", []any{limit + 1}
	if action != "" {
		args = append(args, action)
		where += fmt.Sprintf(" AND action = $%d", len(args))
	}
	if before > 0 {
		args = append(args, before)
		where += fmt.Sprintf(" AND audit_id < $%d", len(args))
	}
	rows, err := collect[tasker.AuditEvent](ctx, db.pool, `
		SELECT audit_id AS id, actor, action, subject, data, created_at AS at
		FROM tasker.audit_events `+where+`
		ORDER BY audit_id DESC
		LIMIT $1`, args...)
	rows, more := trimPage(rows, limit)
	return rows, more, wrapError(err, "list audit events")
}
