// Command tasker is the server: tasker dev for a laptop, tasker serve for the
// rest of the world, tasker migrate for its database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitError  = 1
	exitUsage  = 2 // the command line makes no sense
	exitBehind = 1 // of migrate status
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly stop; from then on the next one ends
	// the program at once.
	context.AfterFunc(ctx, stop)
	err := newCommand().ExecuteContext(ctx)
	var usage usageError
	var quiet exitError1
	switch {
	case err == nil:
		return 0
	case errors.As(err, &quiet):
		return exitBehind
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "tasker: %v\nSee: %s --help\n", err, usage.command)
		return exitUsage
	default:
		fmt.Fprintln(os.Stderr, "tasker:", err)
		return exitError
	}
}

// A usageError is the caller's: the command line does not make sense.
type usageError struct {
	command string
	error
}

// exitError1 ends the program with status 1 after it has said all there is to say.
type exitError1 struct{}

func (exitError1) Error() string { return "" }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tasker",
		Short: "A workflow engine on PostgreSQL in which no task can be silently stuck",
		Long: `A workflow engine on PostgreSQL in which no task can be silently stuck.

Try it:            tasker dev --demo
Run it for real:   tasker migrate up --database-url postgres://…
                   tasker serve --database-url postgres://… --templates ./templates
Look into it:      tasker-ctl --help`,
		SilenceErrors: true, SilenceUsage: true,
		Version: version(),
		// Without these two, cobra takes a misspelled command for a wish for help.
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{c.CommandPath(), err} })
	root.AddCommand(newDev(), newServe(), newMigrate(), newConfig(), newVersion())
	checkArguments(root)
	return root
}

// noSuchCommand refuses what is left of the command line of a group: no command
// has that name.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	var hint string
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("%s has no command %q%s", c.CommandPath(), args[0], hint)
}

// group makes a usage error of a group that is called without a command: a
// script that forgets the word must not go on as if something had been done.
func group(c *cobra.Command) {
	c.Args = noSuchCommand
	c.RunE = func(c *cobra.Command, _ []string) error {
		var names []string
		for _, child := range c.Commands() {
			names = append(names, c.CommandPath()+" "+child.Name())
		}
		return usageError{c.CommandPath(), errors.New("say what to do: " + strings.Join(names, " or "))}
	}
}

// served is the end of a server: nil when it was told to end before it was
// ready, which is no failure.
func served(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// checkArguments makes usage errors of wrong arguments, which cobra does not mark.
func checkArguments(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{c.CommandPath(), err}
			}
			return nil
		}
	}
	for _, child := range c.Commands() {
		checkArguments(child)
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "tasker", version())
			return err
		},
	}
}

// version is what the Go tool recorded when it built the program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}
