// Command worker is the conformance program of the Go SDK. It registers the handlers that the
// conformance suite expects, see sdk/conformance/README.md.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"tasker.example/tasker/client"
	"tasker.example/tasker/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	concurrency, err := number("CONFORMANCE_CONCURRENCY", 4)
	if err != nil {
		return err
	}
	drain, err := number("CONFORMANCE_DRAIN_MS", 5000)
	if err != nil {
		return err
	}
	key := cmp.Or(os.Getenv("TASKER_API_KEY_FILE"), os.Getenv("TASKER_TOKEN_FILE"))
	server, err := client.New(cmp.Or(os.Getenv("TASKER_URL"), "http://127.0.0.1:8080"), client.WithTokenFile(key))
	if err != nil {
		return err
	}
	w := worker.New(server.Backend(), worker.Options{
		Name:         cmp.Or(os.Getenv("CONFORMANCE_NAME"), "conformance"),
		Namespaces:   []string{cmp.Or(os.Getenv("CONFORMANCE_NAMESPACE"), "conformance")},
		Concurrency:  concurrency,
		DrainTimeout: time.Duration(drain) * time.Millisecond,
		Log:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	register(w)
	return w.Run(ctx)
}

func number(name string, byDefault int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("invalid %s %q: must be a number", name, text)
	}
	return n, nil
}
