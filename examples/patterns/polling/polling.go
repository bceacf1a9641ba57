// Package polling demonstrates polling an external system with one short attempt per poll, so that no
// worker blocks.
package polling

import (
	"context"
	"errors"
	"fmt"

	"tasker.example/tasker/worker"
)

// Studio renders films. Status returns "" while a film is rendered.
type Studio interface {
	Order(ctx context.Context, key, title string) (job string, err error)
	Status(ctx context.Context, job string) (url string, err error)
}

// ErrUnknownJob is returned by a [Studio] that has lost a job; polling again does not help.
var ErrUnknownJob = errors.New("job not found at the studio")

// Register registers the handlers of the template.
func Register(w *worker.Worker, studio Studio) {
	worker.Handle(w, "order", func(ctx context.Context, s *worker.Step[struct{ Title string }]) (string, error) {
		return studio.Order(ctx, s.StepUUID.String(), s.Input.Title) // idempotency key: each attempt uses the same
	})
	worker.Handle(w, "fetch", func(ctx context.Context, s *worker.Step[struct{}]) (string, error) {
		var job string
		if err := s.Dependency("order", &job); err != nil {
			return "", err
		}
		url, err := studio.Status(ctx, job)
		switch {
		case errors.Is(err, ErrUnknownJob):
			return "", worker.Permanent(err)
		case err == nil && url == "":
			err = &worker.Error{Type: "not_ready", Err: fmt.Errorf("job %s is not ready", job)}
		}
		return url, err
	})
}
