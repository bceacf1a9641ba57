// Package cron demonstrates recurring work: each task starts the next day's task.
package cron

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// Day is the context of a task.
type Day struct {
	Day string `json:"day"` // 2030-03-01
}

// Start creates a task: CreateTask of an embedded engine, or of a client.
type Start func(ctx context.Context, n tasker.NewTask) (tasker.ID, error)

// Task returns the task of a day, which starts after the day ends. Its key makes repeated
// requests create it once.
func Task(day time.Time) tasker.NewTask {
	name := day.Format(time.DateOnly)
	doc, _ := json.Marshal(Day{name}) //nolint:errchkjson // a text can be encoded
	return tasker.NewTask{
		Namespace: "patterns", Name: "daily_report", Context: doc, IdempotencyKey: "daily_report:" + name, StartAt: day.AddDate(0, 0, 1),
	}
}

// Register registers the handlers of the template.
func Register(w *worker.Worker, start Start) {
	worker.Handle(w, "next", func(ctx context.Context, s *worker.Step[Day]) (string, error) {
		day, err := time.Parse(time.DateOnly, s.Input.Day)
		if err != nil {
			return "", worker.Permanent(fmt.Errorf("decode context: %w", err))
		}
		id, err := start(ctx, Task(day.AddDate(0, 0, 1)))
		return id.String(), err
	})
	worker.Handle(w, "report", func(_ context.Context, s *worker.Step[Day]) (string, error) {
		return "report of " + s.Input.Day, nil
	})
}
