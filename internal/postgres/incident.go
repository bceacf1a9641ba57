package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Incidents returns a page of the incidents that the caller may see, newest first, and reports
// whether there are more.
func (db *DB) Incidents(ctx context.Context, f tasker.IncidentFilter) (list []tasker.Incident, more bool, err error) {
	switch f.State {
	case "", tasker.IncidentOpen, tasker.IncidentEnded:
	default:
		return nil, false, tasker.Errorf(tasker.Invalid, "invalid incident state %q", f.State)
	}
	scope := access.ScopeFromContext(ctx)
	if f.Namespace != "" {
		scope = scope.Intersect(access.NamespaceScope(f.Namespace))
	}
	list, err = collect[tasker.Incident](ctx, db.pool, statement("selectIncidents"), f.Limit+1, f.Offset, string(f.State), scope.List())
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
