package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// CreateSchedule creates a schedule. It returns a Conflict if the namespace has a schedule of
// this name.
func (c *Client) CreateSchedule(ctx context.Context, s apiv1.CreateSchedule) (apiv1.Schedule, error) {
	return send[apiv1.Schedule](ctx, c, http.MethodPost, s, "v1", "schedules")
}

// ScheduleQuery selects and pages schedules, ordered by namespace and name.
type ScheduleQuery struct {
	Namespace string // empty means any
	Name      string // empty means any
	Paused    bool   // only paused ones
	After     string // NextAfter of the previous page
	Limit     int    // 0 means the server's default
}

// Schedules lists schedules.
func (c *Client) Schedules(ctx context.Context, q ScheduleQuery) (apiv1.ScheduleList, error) {
	query := url.Values{}
	setText(query, "namespace", q.Namespace)
	setText(query, "name", q.Name)
	setText(query, "after", q.After)
	setFlag(query, "paused", q.Paused)
	setNumber(query, "limit", q.Limit)
	return get[apiv1.ScheduleList](ctx, c, query, "v1", "schedules")
}

// Schedule returns a schedule with up to next upcoming firing times.
func (c *Client) Schedule(ctx context.Context, schedule tasker.ID, next int) (apiv1.ScheduleDetail, error) {
	return get[apiv1.ScheduleDetail](ctx, c, url.Values{"next": {strconv.Itoa(next)}}, "v1", "schedules", schedule.String())
}

// FiringQuery selects and pages the firings of a schedule, newest first.
type FiringQuery struct {
	Outcome    string     // empty means any
	Before     *time.Time // NextBefore of the previous page
	BeforeKind string     // NextKind of the previous page
	Limit      int        // 0 means the server's default
}

// Firings lists the firings of a schedule.
func (c *Client) Firings(ctx context.Context, schedule tasker.ID, q FiringQuery) (apiv1.FiringList, error) {
	query := url.Values{}
	setText(query, "outcome", q.Outcome)
	setText(query, "before_kind", q.BeforeKind)
	if q.Before != nil {
		query.Set("before", q.Before.UTC().Format(time.RFC3339Nano))
	}
	setNumber(query, "limit", q.Limit)
	return get[apiv1.FiringList](ctx, c, query, "v1", "schedules", schedule.String(), "firings")
}

// UpdateSchedule replaces the spec of a schedule. It returns a Conflict if the revision is not 0
// and differs from the current one.
func (c *Client) UpdateSchedule(ctx context.Context, schedule tasker.ID, u apiv1.UpdateSchedule) (apiv1.Schedule, error) {
	return send[apiv1.Schedule](ctx, c, http.MethodPut, u, "v1", "schedules", schedule.String())
}

// DeleteSchedule deletes a schedule. Its tasks continue.
func (c *Client) DeleteSchedule(ctx context.Context, schedule tasker.ID, d apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	query := url.Values{}
	setText(query, "reason", d.Reason)
	setText(query, "by", d.By)
	return call[apiv1.Schedule](ctx, c, request{method: http.MethodDelete, path: []string{"v1", "schedules", schedule.String()}, query: query})
}

// PauseSchedule pauses a schedule until a time or until it is resumed.
func (c *Client) PauseSchedule(ctx context.Context, schedule tasker.ID, p apiv1.PauseSchedule) (apiv1.Schedule, error) {
	return changeSchedule[apiv1.Schedule](ctx, c, schedule, "pause", p)
}

// ResumeSchedule resumes a paused schedule.
func (c *Client) ResumeSchedule(ctx context.Context, schedule tasker.ID, r apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	return changeSchedule[apiv1.Schedule](ctx, c, schedule, "resume", r)
}

// TriggerSchedule creates a task of a schedule immediately. Automatic retries of the call create
// only one task.
func (c *Client) TriggerSchedule(ctx context.Context, schedule tasker.ID, t apiv1.ChangeSchedule) (apiv1.Firing, error) {
	return sendKeyed[apiv1.Firing](ctx, c, http.MethodPost, t, "v1", "schedules", schedule.String(), "trigger")
}

// BackfillSchedule creates the missing tasks of past firing times.
func (c *Client) BackfillSchedule(ctx context.Context, schedule tasker.ID, b apiv1.BackfillSchedule) (apiv1.Backfill, error) {
	return changeSchedule[apiv1.Backfill](ctx, c, schedule, "backfill", b)
}

func changeSchedule[T any](ctx context.Context, c *Client, schedule tasker.ID, verb string, body any) (T, error) {
	return send[T](ctx, c, http.MethodPost, body, "v1", "schedules", schedule.String(), verb)
}
