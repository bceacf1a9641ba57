package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const incidentColumns = `
    i.incident_id AS id, i.namespace, i.lead_case_id AS lead, i.dedup_key, i.severity, i.began_at, i.ended_at, i.unowned_since, i.escalation, i.told_at,
    c.task_name, c.step_name, c.dlq_reason::text AS reason, c.detail_code, c.error_type, c.error_pattern,
    n.cases, n.cases_open, n.owned_by, n.cases_not_owned, coalesce(e.entries, 0) AS entries,
    (SELECT count(*) FROM tasker.messages m WHERE m.incident_id = i.incident_id) AS messages`

// Investigations are counted only for open incidents.
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

// Incidents returns a page of the incidents that the caller may see, newest first, and reports
// whether there are more.
func (db *DB) Incidents(ctx context.Context, f tasker.IncidentFilter) (list []tasker.Incident, more bool, err error) {
	where, args := "true", parameters{f.Limit + 1, f.Offset}
	switch f.State {
	case "":
	case tasker.IncidentOpen:
		where = "i.ended_at IS NULL"
	case tasker.IncidentEnded:
		where = "i.ended_at IS NOT NULL"
	default:
		return nil, false, tasker.Errorf(tasker.Invalid, "invalid incident state %q", f.State)
	}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		where += " AND i.namespace = ANY (" + args.add(scope.List()) + ")"
	}
	if f.Namespace != "" {
		where += " AND i.namespace = " + args.add(f.Namespace)
	}
	list, err = collect[tasker.Incident](ctx, db.pool, fmt.Sprintf(selectIncidents, where), args...)
	if err != nil {
		return nil, false, fmt.Errorf("list incidents: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	for i := range list {
		completeIncident(ctx, &list[i])
	}
	return list, more, nil
}

// completeIncident sets the derived fields of an incident and redacts it.
func completeIncident(ctx context.Context, i *tasker.Incident) {
	if i.State = tasker.IncidentOpen; i.EndedAt != nil {
		i.State = tasker.IncidentEnded
	}
	i.Label = tasker.CauseOf(i.Reason, i.DetailCode).Label
	access.RedactPattern(ctx, i.Namespace, &i.ErrorPattern)
}

// Incident returns an incident with its cases and notifications, or NotFound.
func (db *DB) Incident(ctx context.Context, id tasker.ID) (tasker.IncidentDetail, error) {
	found, err := queryOne[tasker.Incident](ctx, db.pool, statement("selectIncident"), id)
	switch {
	case err != nil:
		return tasker.IncidentDetail{}, fmt.Errorf("read incident %s: %w", id, err)
	case found == nil || !access.ScopeFromContext(ctx).Has(found.Namespace):
		return tasker.IncidentDetail{}, tasker.Errorf(tasker.NotFound, "incident %s not found", id)
	}
	completeIncident(ctx, found)
	d := tasker.IncidentDetail{Incident: *found}
	if d.Members, err = collect[tasker.IncidentCase](ctx, db.pool, statement("selectIncidentCases"), id, tasker.MaxIncidentCases); err != nil {
		return d, fmt.Errorf("read the cases of incident %s: %w", id, err)
	}
	for i := range d.Members {
		access.RedactPattern(ctx, d.Namespace, &d.Members[i].ErrorPattern)
	}
	d.Notifications, err = db.listMessages(ctx, id)
	return d, err
}

// listMessages returns the notifications of an incident with their deliveries.
func (db *DB) listMessages(ctx context.Context, incident tasker.ID) ([]tasker.Notification, error) {
	list, err := collect[tasker.Notification](ctx, db.pool, statement("messages"), incident, tasker.MaxIncidentMessages)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	at, positions := make(map[int64]int, len(list)), make([]int64, len(list))
	for i := range list {
		at[list[i].Position], positions[i], list[i].Emissions = i, list[i].Position, []tasker.MessageEmission{}
		access.RedactMessage(ctx, &list[i])
	}
	type emission struct {
		Position int64
		tasker.MessageEmission
	}
	emissions, err := collect[emission](ctx, db.pool, statement("selectMessageEmissions"), positions)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries of messages: %w", err)
	}
	for _, e := range emissions {
		m := &list[at[e.Position]]
		access.RedactLastError(ctx, &e.LastError, m.Namespaces...)
		m.Emissions = append(m.Emissions, e.MessageEmission)
	}
	return list, nil
}
