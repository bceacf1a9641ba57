package client

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

// CreateSchedule creates a schedule. It returns a Conflict if the namespace has a schedule of
// this name.
func (c *Client) CreateSchedule(ctx context.Context, s apiv1.CreateSchedule) (apiv1.Schedule, error) {
	return call(ctx, c, endpoint.CreateSchedule, none, s)
}

// Schedules lists schedules.
func (c *Client) Schedules(ctx context.Context, f tasker.ScheduleFilter) (apiv1.ScheduleList, error) {
	return call(ctx, c, endpoint.ListSchedules, f, none)
}

// Schedule returns a schedule with up to next upcoming firing times.
func (c *Client) Schedule(ctx context.Context, schedule tasker.ID, next int) (apiv1.ScheduleDetail, error) {
	return call(ctx, c, endpoint.GetSchedule, apiv1.ScheduleQuery{Next: &next}, none, schedule)
}

// Firings lists the firings of a schedule.
func (c *Client) Firings(ctx context.Context, schedule tasker.ID, f tasker.FiringFilter) (apiv1.FiringList, error) {
	return call(ctx, c, endpoint.ListFirings, f, none, schedule)
}

// UpdateSchedule replaces the spec of a schedule. It returns a Conflict if the revision is not 0
// and differs from the current one.
func (c *Client) UpdateSchedule(ctx context.Context, schedule tasker.ID, u apiv1.UpdateSchedule) (apiv1.Schedule, error) {
	return call(ctx, c, endpoint.UpdateSchedule, none, u, schedule)
}

// DeleteSchedule deletes a schedule. Its tasks continue.
func (c *Client) DeleteSchedule(ctx context.Context, schedule tasker.ID, d apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	return call(ctx, c, endpoint.DeleteSchedule, apiv1.ChangeQuery(d), none, schedule)
}

// PauseSchedule pauses a schedule until a time or until it is resumed.
func (c *Client) PauseSchedule(ctx context.Context, schedule tasker.ID, p apiv1.PauseSchedule) (apiv1.Schedule, error) {
	return call(ctx, c, endpoint.PauseSchedule, none, p, schedule)
}

// ResumeSchedule resumes a paused schedule.
func (c *Client) ResumeSchedule(ctx context.Context, schedule tasker.ID, r apiv1.ChangeSchedule) (apiv1.Schedule, error) {
	return call(ctx, c, endpoint.ResumeSchedule, none, r, schedule)
}

// TriggerSchedule creates a task of a schedule immediately. Automatic retries of the call create
// only one task.
func (c *Client) TriggerSchedule(ctx context.Context, schedule tasker.ID, t apiv1.ChangeSchedule) (apiv1.Firing, error) {
	return call(ctx, c, endpoint.TriggerSchedule, none, t, schedule)
}

// BackfillSchedule creates the missing tasks of past firing times.
func (c *Client) BackfillSchedule(ctx context.Context, schedule tasker.ID, b apiv1.BackfillSchedule) (apiv1.Backfill, error) {
	return call(ctx, c, endpoint.BackfillSchedule, none, b, schedule)
}
