package engine

import (
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// checkStart refuses what a request says of the start of its task and cannot be meant.
func checkStart(r tasker.NewTask, fault func(path, format string, args ...any)) {
	for _, at := range []struct {
		path string
		at   time.Time
	}{{"start_at", r.StartAt}, {"start_by", r.StartBy}} {
		if !at.at.IsZero() && (at.at.Year() < 2000 || at.at.Year() > 2200) {
			fault(at.path, "must lie between the years 2000 and 2200")
		}
	}
	for _, d := range []struct {
		path string
		d    time.Duration
	}{{"start_after_seconds", r.StartAfter}, {"start_within_seconds", r.StartWithin}} {
		if d.d < 0 || d.d > tasker.MaxStartDelay {
			fault(d.path, "must be from 0 to %d", int(tasker.MaxStartDelay.Seconds()))
		}
	}
	if !r.StartAt.IsZero() && r.StartAfter != 0 {
		fault("start_after_seconds", "a task has either this or start_at")
	}
	if !r.StartBy.IsZero() && r.StartWithin != 0 {
		fault("start_within_seconds", "a task has either this or start_by")
	}
	if !r.StartBy.IsZero() && !r.StartAt.IsZero() && !r.StartBy.After(r.StartAt) {
		fault("start_by", "must be after start_at")
	}
}

// optionsOf returns what bounds the start of the task of a request; nil when nothing does.
func optionsOf(r tasker.NewTask, t tasker.Template) *postgres.NewOptions {
	if r.StartWithin == 0 && r.StartBy.IsZero() {
		r.StartWithin = time.Duration(t.Start.WithinSeconds) * time.Second
	}
	if r.StartAfter == 0 && r.StartWithin == 0 && r.StartBy.IsZero() {
		return nil
	}
	return &postgres.NewOptions{StartAfter: r.StartAfter, StartBy: r.StartBy, StartWithin: r.StartWithin}
}

// expireTasks ends those of the tasks that nobody works on and of which no step was claimed in time.
func (e *Engine) expireTasks(ctx context.Context, rows []tasker.StepRef) error {
	var ended []tasker.Task
	err := e.db.InTx(ctx, func(tx *postgres.Tx) error {
		ended = nil
		free, err := tx.LockFreeTasks(ctx, tasksOfSteps(rows))
		if err != nil || len(free) == 0 {
			return err
		}
		ended, err = tx.ExpireTasks(ctx, free)
		return err
	})
	if err == nil && len(ended) > 0 {
		e.tasksExpired(ended)
		e.log.InfoContext(ctx, "tasks that nobody began in time were ended", "tasks", len(ended))
	}
	return err
}
