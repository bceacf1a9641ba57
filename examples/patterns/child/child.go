// Package child demonstrates a step that starts a task of another template and waits for its result.
package child

import (
	"context"

	"tasker.example/tasker/worker"
)

// Invoice is the context of a task of the template invoice.
type Invoice struct{ Number string }

// Document is the context of a task of the template archive_document.
type Document struct {
	Title   string
	Content string
}

// Register registers the handlers of both templates.
func Register(w *worker.Worker) {
	worker.Handle(w, "pay", func(_ context.Context, s *worker.Step[Invoice]) (string, error) {
		return "receipt of " + s.Input.Number, nil
	})
	worker.Handle(w, "store", func(_ context.Context, s *worker.Step[Document]) (string, error) {
		return "archive/" + s.Input.Title + ": " + s.Input.Content, nil
	})
	worker.Handle(w, "index", func(_ context.Context, s *worker.Step[Document]) (string, error) {
		var at string
		err := s.Dependency("store", &at)
		return at, err
	})
	worker.Handle(w, "close", func(_ context.Context, s *worker.Step[Invoice]) (string, error) {
		var archived struct{ Index string } // results of the last steps of the child, by name
		err := s.Dependency("archive", &archived)
		return archived.Index, err
	})
}
