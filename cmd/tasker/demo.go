package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/demo"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/worker"
)

// demoOptions contains the flags of the demo.
type demoOptions struct {
	on     bool
	orders int
	every  time.Duration
}

func (o *demoOptions) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&o.on, "demo", false, "run a sample shop")
	c.Flags().IntVar(&o.orders, "demo-orders", 0, "number of orders (0: unlimited)")
	c.Flags().Var(cli.Duration(&o.every, 3*time.Second), "demo-every", "interval between orders")
}

// switches is the path of the endpoint that turns the demo's simulated faults on and off.
const switches = "/demo/faults"

// check validates the flags.
func (o *demoOptions) check(c *cobra.Command) error {
	switch {
	case !o.on && (c.Flags().Changed("demo-orders") || c.Flags().Changed("demo-every")):
		return cli.Usagef("--demo-orders and --demo-every require --demo")
	case o.every <= 0 || o.orders < 0:
		return cli.Usagef("--demo-every must be more than 0 (got %s), and --demo-orders must not be negative "+
			"(got %d)", o.every, o.orders)
	}
	return nil
}

// prepare makes a server run the demo shop.
func (o *demoOptions) prepare(server *app.Options) {
	s := shop{demoOptions: *o, faults: demo.NewFaults(), log: server.Log, out: server.Out}
	server.Mount = map[string]http.Handler{switches: s.faults.Handler(switches)}
	server.Beside = s.run
}

// shop runs the demo beside a server.
type shop struct {
	demoOptions

	faults *demo.Faults
	log    *slog.Logger
	out    io.Writer
}

// run runs the worker, the order generator and the board that prints what happens to orders.
func (s *shop) run(ctx context.Context, url string, e *engine.Engine) error {
	t, err := demo.LoadTemplate()
	if err != nil {
		return err
	}
	if _, _, err := e.RegisterTemplate(ctx, t, demo.Source); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.out, demo.FormatGuide(url)); err != nil {
		return err
	}
	w := worker.New(e, worker.Options{Name: "demo shop", Namespaces: []string{demo.Namespace}, Log: s.log})
	demo.Handlers(w, s.faults)
	c, err := client.New(url)
	if err != nil {
		return err
	}
	board, number := demo.NewBoard(c, s.out), demo.FirstOrder
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
		}, s.every, s.orders)
	})
	return g.Wait()
}
