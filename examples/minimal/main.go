// Command minimal is a complete worker with two handlers.
package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"tasker.example/tasker/client"
	"tasker.example/tasker/worker"
)

type guest struct{ Who string } // the task's context: {"who": "you"}

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	server, err := client.New(cmp.Or(os.Getenv("TASKER_URL"), "http://127.0.0.1:8080"), client.WithTokenFile(os.Getenv("TASKER_TOKEN_FILE")))
	if err == nil {
		w := worker.New(server.Backend(), worker.Options{Name: "minimal", Namespaces: []string{"greetings"}, Log: log})
		worker.Handle(w, "compose", func(_ context.Context, s *worker.Step[guest]) (string, error) {
			return "Hello, " + s.Input.Who + "!", nil
		})
		worker.Handle(w, "deliver", func(_ context.Context, s *worker.Step[guest]) (map[string]string, error) {
			var text string
			err := s.Dependency("compose", &text)
			return map[string]string{"delivered": text}, err
		})
		err = w.Run(ctx)
	}
	if err != nil {
		log.Error("worker stopped", "err", err)
		os.Exit(1)
	}
}
