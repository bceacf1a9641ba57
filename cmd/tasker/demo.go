package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"tasker"
	"tasker/client"
	"tasker/internal/app"
	"tasker/internal/demo"
	"tasker/internal/engine"
	"tasker/internal/loop"
	"tasker/worker"
)

// demoOptions is what the flags of the demo say.
type demoOptions struct {
	on     bool
	orders int
	every  time.Duration
}

func (o *demoOptions) flags(c *cobra.Command) {
	c.Flags().BoolVar(&o.on, "demo", false, "open a small shop to look at the engine with")
	c.Flags().IntVar(&o.orders, "demo-orders", 0, "orders that the shop gets (0: without end)")
	c.Flags().DurationVar(&o.every, "demo-every", 3*time.Second, "rest between two orders")
}

// switches is where the faults of the demo are switched over HTTP.
const switches = "/demo/faults"

// prepare adds the shop to a server.
func (o *demoOptions) prepare(server *app.Options) error {
	if o.every <= 0 || o.orders < 0 {
		return usageError{"tasker dev", errors.New("--demo-every must be more than nothing, and --demo-orders not negative")}
	}
	faults := demo.NewFaults()
	server.Mount = map[string]http.Handler{switches: faults.Handler(switches)}
	log, out := server.Log, server.Out
	server.Beside = func(ctx context.Context, url string, e *engine.Engine) error {
		return o.run(ctx, url, e, faults, log, out)
	}
	return nil
}

// run is the shop: its worker and its customers.
func (o *demoOptions) run(ctx context.Context, url string, e *engine.Engine, faults *demo.Faults, log *slog.Logger, out io.Writer) error {
	t, err := demo.Template()
	if err != nil {
		return err
	}
	if _, _, err := e.RegisterTemplate(ctx, t, demo.Source); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, demo.Guide(url)); err != nil {
		return err
	}
	w := worker.New(e, worker.Options{Name: "demo shop", Namespaces: []string{demo.Namespace}, Log: log})
	demo.Handlers(w, faults)
	c, err := client.New(url)
	if err != nil {
		return err
	}
	board, number := demo.NewBoard(c, out), demo.FirstOrder
	g := loop.NewGroup(ctx)
	g.Go("demo worker", w.Run)
	g.Go("demo board", board.Run)
	g.Go("demo customers", func(ctx context.Context) error {
		return demo.Generate(ctx, func(ctx context.Context, r tasker.NewTask) (tasker.ID, error) {
			created, err := e.CreateTasks(ctx, []tasker.NewTask{r})
			if err != nil {
				return tasker.ID{}, err
			}
			board.Add(number, created[0].TaskUUID)
			number++
			return created[0].TaskUUID, nil
		}, o.every, o.orders)
	})
	return g.Wait()
}
