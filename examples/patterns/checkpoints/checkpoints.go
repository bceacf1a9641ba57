// Package checkpoints demonstrates a long import that saves its progress and resumes in the next
// attempt.
package checkpoints

import (
	"context"

	"tasker.example/tasker/worker"
)

// batch is the number of rows per checkpoint. Each checkpoint is a request to the server.
const batch = 100

// Store provides files and stores their rows. Put must be idempotent, because an attempt may end
// between the rows and their checkpoint.
type Store interface {
	Files(ctx context.Context) ([]string, error)
	Rows(ctx context.Context, file string) (int, error)
	Put(ctx context.Context, file string, from, to int) error
	Publish(ctx context.Context, rows int) error
}

// Register registers the handlers of the template.
func Register(w *worker.Worker, store Store) {
	worker.Handle(w, "list_files", func(ctx context.Context, _ *worker.Step[struct{}]) ([]string, error) { return store.Files(ctx) })
	worker.Handle(w, "import_file", func(ctx context.Context, s *worker.Step[struct{}]) (int, error) {
		var file string
		var done int // stored rows
		if err := s.Element(&file); err != nil {
			return 0, err
		}
		if _, err := s.LastCheckpoint(&done); err != nil {
			return 0, err
		}
		all, err := store.Rows(ctx, file)
		if err != nil {
			return 0, err
		}
		for done < all {
			next := min(done+batch, all)
			if err := store.Put(ctx, file, done, next); err != nil {
				return 0, err
			}
			if err := s.SaveCheckpoint(ctx, next); err != nil {
				return 0, err
			}
			done = next
		}
		return done, nil
	})
	worker.Handle(w, "publish", func(ctx context.Context, s *worker.Step[struct{}]) (int, error) {
		var imported struct{ Results []int } // in the order of the list
		if err := s.Dependency("import", &imported); err != nil {
			return 0, err
		}
		rows := 0
		for _, n := range imported.Results {
			rows += n
		}
		return rows, store.Publish(ctx, rows)
	})
}
