// Command peers runs the benchmark workloads on other Go job and workflow libraries for PostgreSQL,
// and on plain PostgreSQL. It is a separate module so that these libraries never become dependencies
// of Tasker.
//
// README.md describes how to run it and how to read the results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: nothing remains to be stopped
	}
}

func command(ctx context.Context, args []string) error {
	o := options{Out: os.Stderr}
	var output string
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.Tasks, "tasks", 20_000, "one-step tasks to drain")
	flags.IntVar(&o.Workflows, "workflows", 2_000, "workflows of four steps in a row to drain")
	flags.IntVar(&o.Singles, "singles", 200, "workflows to time one after another on an idle system")
	flags.IntVar(&o.Runs, "runs", 5, "runs of everything; each figure is their median")
	flags.DurationVar(&o.CommitsFor, "commits-for", time.Second, "how long one run commits single rows")
	flags.IntVar(&o.River.Workers, "river-workers", 100, "MaxWorkers of River")
	flags.IntVar(&o.River.Conns, "river-conns", 20, "connections in River's pool")
	flags.DurationVar(&o.River.Cooldown, "river-cooldown", time.Millisecond, "FetchCooldown of River")
	flags.DurationVar(&o.River.Poll, "river-poll", time.Millisecond, "FetchPollInterval of River")
	flags.IntVar(&o.DBOS.Workers, "dbos-workers", 100, "worker concurrency of the queue of DBOS")
	flags.IntVar(&o.DBOS.Conns, "dbos-conns", 20, "connections in the pool of DBOS")
	flags.DurationVar(&o.DBOS.Poll, "dbos-poll", time.Millisecond, "base polling interval of the queue of DBOS")
	flags.IntVar(&o.Durable.Workers, "durabletask-workers", 100, "work items of durabletask-go at once, of orchestrations and of activities")
	flags.IntVar(&o.Durable.Conns, "durabletask-conns", 20, "connections in the pool of durabletask-go")
	flags.DurationVar(&o.Durable.Poll, "durabletask-poll", time.Millisecond, "how long durabletask-go waits after a look that found nothing")
	flags.StringVar(&output, "o", "markdown", "output: markdown or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if output != "markdown" && output != "json" {
		return fmt.Errorf("-o %s: choose markdown or json", output)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if output == "json" {
		return r.JSON(os.Stdout)
	}
	return r.Markdown(os.Stdout)
}
