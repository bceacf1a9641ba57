// Command tasker runs the Tasker server, creates and migrates its database, and starts a development
// environment.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal stops the program gracefully, the second one at once.
	context.AfterFunc(ctx, stop)
	c, err := cli.Run(ctx, newCommand(), cli.TakeArgs()[1:])
	if err != nil && !errors.As(err, new(cli.Exit)) {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	if cli.IsUsage(err) {
		fmt.Fprintln(os.Stderr, cli.HelpHint(c.CommandPath()))
	}
	return cli.ExitCode(err)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tasker",
		Short: "Run a Tasker server",
		Long: `Tasker is a workflow engine on PostgreSQL in which no task can be silently stuck.

Try it on this machine (no setup; finds or downloads PostgreSQL):
  tasker dev --demo

Run a server:
  tasker migrate up --database-url postgres://…
  tasker serve --database-url postgres://… --templates ./templates

Operate tasks (investigations, cases, repairs):
  tasker-ctl --help

Settings: tasker config keys`,
		Version: cli.Version(),
	}
	cli.NewGroup(root)
	cli.AddSection(root, "Server:", newServeCommand(), newDevCommand(), newConfigCommand())
	cli.AddSection(root, "Database:", newMigrateCommand(), newKeyCommand(), newDoctorCommand())
	cli.AddSection(root, "Other:", newDrillCommand(), newVersionCommand())
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	cli.ConfigureRoot(root)
	return root
}

// serveError returns err, or nil if err only means that the server was stopped before it was ready.
func serveError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.Args,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "tasker", cli.ThisBuild())
			return err
		},
	}
}
