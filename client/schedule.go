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

// CreateSchedule has tasks made of a template at the instants of a rule. It is a Conflict when
// the namespace has a schedule of this name.
func (c *Client) CreateSchedule(ctx context.Context, s apiv1.CreateSchedule) (apiv1.Schedule, error) {
	return call[apiv1.Schedule](ctx, c, request{method: http.MethodPost, path: []string{"v1", "schedules"}, body: s})
}

// A ScheduleQuery selects and pages schedules, by namespace and name.
type ScheduleQuery struct {
	Namespace string // empty means any
	Name      string // empty means any
	Paused    bool   // only those that are paused
	After     string // the NextAfter of the page before
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

// Schedule returns a schedule with so many of its next instants.
func (c *Client) Schedule(ctx context.Context, schedule tasker.ID, next int) (apiv1.ScheduleDetail, error) {
	return get[apiv1.ScheduleDetail](ctx, c, url.Values{"next": {strconv.Itoa(next)}}, "v1", "schedules", schedule.String())
}

// A FiringQuery selects and pages the firings of a schedule, newest first.
type FiringQuery struct {
	Outcome    string     // empty means any
	Before     *time.Time // the NextBefore of the page before, with
	BeforeKind string     // its NextKind
	Limit      int        // 0 means the server's default
}

// Firings lists what became of the instants of a schedule.
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

// UpdateSchedule gives a schedule another spec. It is a Conflict when the revision is not 0 and
// not that of the schedule.
func (c *Client) UpdateSchedule(ctx context.Context, schedule tasker.ID, u apiv1.UpdateSchedule) (apiv1.Schedule, error) {
	return call[apiv1.Schedule](ctx, c, request{method: http.MethodPut, path: []string{"v1", "schedules", schedule.String()}, body: u})
}

// DeleteSchedule removes a schedule. Its tasks go on.
func (c *Client) DeleteSchedule(ctx context.Context, schedule tasker.ID, d apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	query := url.Values{}
	setText(query, "reason", d.Reason)
	setText(query, "by", d.By)
	return call[apiv1.Schedule](ctx, c, request{method: http.MethodDelete, path: []string{"v1", "schedules", schedule.String()}, query: query})
}

// PauseSchedule has a schedule make no tasks by itself, until an instant or until it is resumed.
func (c *Client) PauseSchedule(ctx context.Context, schedule tasker.ID, p apiv1.PauseSchedule) (apiv1.Schedule, error) {
	return changeSchedule[apiv1.Schedule](ctx, c, schedule, "pause", p)
}

// ResumeSchedule ends the pause of a schedule.
func (c *Client) ResumeSchedule(ctx context.Context, schedule tasker.ID, r apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	return changeSchedule[apiv1.Schedule](ctx, c, schedule, "resume", r)
}

// TriggerSchedule makes a task of a schedule at once. Each call makes one, however often it is sent.
func (c *Client) TriggerSchedule(ctx context.Context, schedule tasker.ID, t apiv1.ChangeSchedule) (apiv1.Firing, error) {
	return call[apiv1.Firing](ctx, c, request{
		method: http.MethodPost, path: []string{"v1", "schedules", schedule.String(), "trigger"}, body: t, key: tasker.NewID().String(), repeatable: true,
	})
}

// BackfillSchedule makes the tasks of instants in the past that have none.
func (c *Client) BackfillSchedule(ctx context.Context, schedule tasker.ID, b apiv1.BackfillSchedule) (apiv1.Backfill, error) {
	return changeSchedule[apiv1.Backfill](ctx, c, schedule, "backfill", b)
}

func changeSchedule[T any](ctx context.Context, c *Client, schedule tasker.ID, verb string, body any) (T, error) {
	return call[T](ctx, c, request{method: http.MethodPost, path: []string{"v1", "schedules", schedule.String(), verb}, body: body})
}
