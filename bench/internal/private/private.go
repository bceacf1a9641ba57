// Package private starts and stops the PostgreSQL instance that a benchmark run uses.
package private

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tasker.example/tasker/internal/devpg"
)

// Start starts a durable PostgreSQL, with fsync as in production, in a temporary directory and
// writes its location to out. It returns the URL for a superuser. stop stops it and removes the
// directory.
func Start(ctx context.Context, out io.Writer) (stop func() error, url string, err error) {
	dir, err := os.MkdirTemp("", "tasker-bench-")
	if err != nil {
		return nil, "", err
	}
	pg, err := devpg.Start(ctx, devpg.Options{DataDir: dir})
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	_, _ = fmt.Fprintf(out, "private PostgreSQL in %s, with fsync as in production\n", dir)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return errors.Join(pg.Stop(ctx), os.RemoveAll(dir))
	}, pg.URL(), nil
}
