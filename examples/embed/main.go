// Command embed is a shop with the Tasker engine inside. It keeps its orders and its stock in the
// database of the engine.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"tasker.example/tasker/embedded"
)

//go:embed template.yaml
var template []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, err := embedded.Open(ctx, embedded.Options{Pool: pool, Migrate: true, Log: slog.Default()})
	if err != nil {
		return fmt.Errorf("open the engine: %w", err)
	}
	defer engine.Close()
	if _, err := engine.RegisterTemplate(ctx, template); err != nil {
		return fmt.Errorf("register the template: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return engine.Run(ctx) })
	g.Go(func() error { return newWorker(engine, pool).Run(ctx) })
	return g.Wait()
}
