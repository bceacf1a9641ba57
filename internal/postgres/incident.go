package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const incidentColumns = `
    i.incident_id AS id, i.namespace, i.lead_case_id AS lead, i.dedup_key, i.severity, i.began_at, i.ended_at, i.unowned_since, i.escalation, i.told_at,
    c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type, c.error_pattern,
    n.cases, n.cases_open, n.owned_by, n.cases_not_owned, coalesce(e.entries, 0) AS entries,
    (SELECT count(*) FROM tasker.messages m WHERE m.incident_id = i.incident_id) AS messages`

// What is open is counted of incidents that go on only.
const incidentCounts = `
JOIN tasker.cases c ON c.case_id = i.lead_case_id
CROSS JOIN LATERAL (
    SELECT count(*) AS cases, count(*) FILTER (WHERE k.state <> 'resolved') AS cases_open,
        coalesce(array_agg(DISTINCT k.owner) FILTER (WHERE k.state <> 'resolved' AND k.owned_until > now()), '{}') AS owned_by,
        count(*) FILTER (WHERE k.state <> 'resolved' AND coalesce(k.owned_until <= now(), true)) AS cases_not_owned
    FROM tasker.incident_cases ic
    JOIN tasker.cases k ON k.case_id = ic.case_id
    WHERE ic.incident_id = i.incident_id
) n
LEFT JOIN LATERAL (
    SELECT count(*) AS entries
    FROM tasker.incident_cases ic
    JOIN tasker.case_fingerprints f ON f.case_id = ic.case_id
    JOIN tasker.case_members m ON m.namespace = i.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
    WHERE ic.incident_id = i.incident_id
) e ON i.ended_at IS NULL`

const selectIncidents = `SELECT ` + incidentColumns + `
FROM (
    SELECT i.* FROM tasker.incidents i
    WHERE %s
    ORDER BY i.began_at DESC, i.incident_id DESC
    LIMIT $1 OFFSET $2
) i ` + incidentCounts + `
ORDER BY i.began_at DESC, i.incident_id DESC`

const selectIncident = `SELECT ` + incidentColumns + ` FROM tasker.incidents i ` + incidentCounts + ` WHERE i.incident_id = $1`

const selectIncidentCases = `
SELECT c.case_id AS id, ic.joined_at, c.state, c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type, c.error_pattern,
    CASE WHEN c.owned_until > now() THEN c.owner ELSE '' END AS owner, c.resolved_at, (
        SELECT count(*)
        FROM tasker.case_fingerprints f
        JOIN tasker.case_members m ON m.namespace = c.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        WHERE f.case_id = c.case_id
    ) AS entries
FROM (SELECT * FROM tasker.incident_cases ic WHERE ic.incident_id = $1 ORDER BY ic.joined_at, ic.case_id LIMIT $2) ic
JOIN tasker.cases c ON c.case_id = ic.case_id
ORDER BY ic.joined_at, ic.case_id`

// Incidents returns the incidents of a filter, newest first, and says whether there are more.
func (db *DB) Incidents(ctx context.Context, f tasker.IncidentFilter) (list []tasker.Incident, more bool, err error) {
	sql, args, err := incidentsQuery(ctx, f)
	if err != nil {
		return nil, false, err
	}
	list, err = collect[tasker.Incident](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("list incidents: %w", err)
	}
	list, more = page(list, f.Limit)
	for i := range list {
		access.HidePattern(ctx, list[i].Namespace, &list[i].ErrorPattern)
	}
	return list, more, nil
}

func incidentsQuery(ctx context.Context, f tasker.IncidentFilter) (sql string, args []any, err error) {
	where, args := []string{"true"}, []any{f.Limit + 1, f.Offset}
	switch f.State {
	case "":
	case tasker.IncidentOpen:
		where = append(where, "i.ended_at IS NULL")
	case tasker.IncidentEnded:
		where = append(where, "i.ended_at IS NOT NULL")
	default:
		return "", nil, tasker.Errorf(tasker.Invalid, "%q is no state of an incident", f.State)
	}
	if scope := access.ScopeOf(ctx); !scope.All() {
		args = append(args, scope.List())
		where = append(where, fmt.Sprintf("i.namespace = ANY ($%d)", len(args)))
	}
	if f.Namespace != "" {
		args = append(args, f.Namespace)
		where = append(where, fmt.Sprintf("i.namespace = $%d", len(args)))
	}
	return fmt.Sprintf(selectIncidents, strings.Join(where, " AND ")), args, nil
}

// Incident returns an incident with its cases and messages, or NotFound.
func (db *DB) Incident(ctx context.Context, id tasker.ID) (tasker.IncidentDetail, error) {
	found, err := one[tasker.Incident](ctx, db.pool, selectIncident, id)
	switch {
	case err != nil:
		return tasker.IncidentDetail{}, fmt.Errorf("read incident %s: %w", id, err)
	case found == nil || !access.ScopeOf(ctx).Has(found.Namespace):
		return tasker.IncidentDetail{}, tasker.Errorf(tasker.NotFound, "no incident %s", id)
	}
	d := tasker.IncidentDetail{Incident: *found}
	access.HidePattern(ctx, d.Namespace, &d.ErrorPattern)
	if d.Members, err = collect[tasker.IncidentCase](ctx, db.pool, selectIncidentCases, id, tasker.MaxIncidentCases); err != nil {
		return d, fmt.Errorf("read the cases of incident %s: %w", id, err)
	}
	for i := range d.Members {
		access.HidePattern(ctx, d.Namespace, &d.Members[i].ErrorPattern)
	}
	d.Notifications, err = db.messages(ctx, selectMessagesOfIncident, id, tasker.MaxIncidentMessages)
	return d, err
}

const messageColumns = `m.position, m.message_uuid AS uuid, m.topic, m.subject_kind, m.subject_id, m.incident_id, m.namespaces, coalesce(m.dedup_key, '') AS dedup_key,
    m.escalation, m.data, m.created_at AS at, m.routed_at`

const selectMessagesOfIncident = `
SELECT ` + messageColumns + ` FROM tasker.messages m WHERE m.incident_id = $1 ORDER BY m.position LIMIT $2`

const selectMessageEmissions = `
SELECT e.position, e.sink, e.state, e.attempts, e.refusals, CASE WHEN e.state = 'pending' THEN e.next_attempt_at END AS next_attempt_at, e.last_error, e.published_at
FROM tasker.message_emissions e
WHERE e.position = ANY ($1)
ORDER BY e.position, e.sink`

// A messageRow is a message without its emissions.
type messageRow struct {
	Position    int64
	UUID        tasker.ID
	Topic       string
	SubjectKind string
	SubjectID   tasker.ID
	IncidentID  *tasker.ID
	Namespaces  []string
	DedupKey    string
	Escalation  int
	Data        []byte
	At          time.Time
	RoutedAt    *time.Time
}

func (r messageRow) message() tasker.Notification {
	return tasker.Notification{
		UUID: r.UUID, Position: r.Position, Topic: r.Topic, SubjectKind: r.SubjectKind, SubjectID: r.SubjectID, IncidentID: r.IncidentID,
		Namespaces: r.Namespaces, DedupKey: r.DedupKey, Escalation: r.Escalation, Data: r.Data, At: r.At, RoutedAt: r.RoutedAt,
	}
}

// messages reads messages with what became of them at each sink.
func (db *DB) messages(ctx context.Context, sql string, args ...any) ([]tasker.Notification, error) {
	rows, err := collect[messageRow](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	list, at, positions := make([]tasker.Notification, len(rows)), make(map[int64]int, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		list[i], at[r.Position], positions[i] = r.message(), i, r.Position
		access.HideMessage(ctx, &list[i])
	}
	type emission struct {
		Position int64
		tasker.MessageEmission
	}
	emissions, err := collect[emission](ctx, db.pool, selectMessageEmissions, positions)
	if err != nil {
		return nil, fmt.Errorf("read what became of messages: %w", err)
	}
	for _, e := range emissions {
		m := &list[at[e.Position]]
		access.HideLastError(ctx, &e.LastError, m.Namespaces...)
		m.Emissions = append(m.Emissions, e.MessageEmission)
	}
	return list, nil
}
