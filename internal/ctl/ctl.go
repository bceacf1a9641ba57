package ctl

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
)

// The exit codes, for scripts.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnreachable = 5
	exitInterrupted = 130
)

const defaultServer = "http://127.0.0.1:8080"

// A program is one run of the command.
type program struct {
	in       io.Reader
	out, err io.Writer
	env      map[string]string

	width int // columns that a table may take; 0 means those of the terminal

	server  string // --server
	output  string // --output
	started bool   // the command line was understood
	client  *client.Client
}

// Main runs the command whose name and arguments are args and returns its exit
// code. environ has the form of os.Environ.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &program{in: stdin, out: stdout, err: stderr, env: map[string]string{}}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		p.env[name] = value
	}
	name := "tasker-ctl"
	if len(args) > 0 && strings.TrimSuffix(path.Base(strings.ReplaceAll(args[0], `\`, "/")), ".exe") == "tasker-cli" {
		name = "tasker-cli"
	}
	root := p.root(name)
	root.SetArgs(append([]string{}, args[min(len(args), 1):]...)) // never nil: cobra would take the process's own
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !p.started && !errors.As(err, new(usage)) {
		err = usage{err.Error()}
	}
	if ctx.Err() != nil {
		err = errInterrupted
	}
	p.complain(c.CommandPath(), err)
	return exitCode(err)
}

// A usage is a command line that is wrong.
type usage struct{ text string }

// Error says what is wrong.
func (u usage) Error() string { return u.text }

// silent ends the command with a code when all has been said.
type silent int

// Error is never shown.
func (s silent) Error() string { return "said already" }

var errInterrupted = errors.New("interrupted")

func exitCode(err error) int {
	var quiet silent
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return int(quiet)
	case errors.As(err, new(usage)):
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	switch tasker.CodeOf(err) {
	case tasker.NotFound:
		return exitNotFound
	case tasker.Conflict, tasker.StaleLease:
		return exitConflict
	case tasker.Unavailable:
		return exitUnreachable
	default:
		return exitError
	}
}

const about = `See and steer the tasks of a Tasker server.

A task that cannot go on becomes an investigation. To repair it, fix its step;
the task then goes on by itself:

  %[1]s dlq queue                            # what needs a human, most urgent first
  %[1]s dlq get ENTRY                        # the evidence
  %[1]s task steps TASK                      # which step stands where
  %[1]s task reset-step TASK STEP --reason "gateway is back"
  %[1]s task watch TASK                      # and it goes on to its end
  %[1]s dlq update ENTRY --status manually_resolved --notes "gateway is back"

--result, --context and --metadata take JSON as it is, from a file as @file, or
from standard input as @-.

Exit codes:
  0  done                       3  no such thing
  1  failed                     4  the state of things does not allow it
  2  the command line is wrong  5  the server cannot be reached, or cannot serve now
                                130  interrupted

Environment:
  TASKER_URL     the server, in place of --server
  TASKER_ACTOR   who acts, where a command has no flag that says so; else your name
                 on this machine
  NO_COLOR       no colours, also on a terminal
  COLUMNS        how wide a terminal is that does not tell`

func (p *program) root(name string) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         "See and steer the tasks of a Tasker server",
		Long:          strings.ReplaceAll(about, "%[1]s", name),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := refuseEmpty(c); err != nil {
				return err
			}
			if p.output != "table" && p.output != "json" {
				return usage{"--output must be table or json, not " + quote(p.output)}
			}
			p.started = true
			return nil
		},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetFlagErrorFunc(flagError)
	server := defaultServer
	if p.env["TASKER_URL"] != "" {
		server = p.env["TASKER_URL"]
	}
	root.PersistentFlags().StringVar(&p.server, "server", server, "URL of the server, or TASKER_URL")
	root.PersistentFlags().StringVarP(&p.output, "output", "o", "table", "table, or json for scripts")
	oneOf(root, "output", []string{"table", "json"})
	root.AddCommand(p.taskCommand(), p.entryCommand(), p.templateCommand(), p.workerCommand(), p.queuesCommand(), p.auditCommand(), p.healthCommand(), p.versionCommand())
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			group(c)
		}
	}
	group(root)
	completeNoFiles(root)
	return root
}

// completeNoFiles keeps shells from offering files where a command takes none.
func completeNoFiles(c *cobra.Command) {
	if c.ValidArgsFunction == nil && !strings.Contains(c.Use, "FILE") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range c.Commands() {
		completeNoFiles(below)
	}
}

// group makes c a command that only has others below it. By itself cobra prints
// help and succeeds when the name of one of them is misspelt.
func group(c *cobra.Command) *cobra.Command {
	c.SuggestionsMinimumDistance = 2
	c.FParseErrWhitelist.UnknownFlags = true // they belong to the command that is misspelt
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := quote(args[0]) + " is no command of " + c.CommandPath()
		if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
			text += "; did you mean " + strings.Join(similar, " or ") + "?"
		}
		return usage{text}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		c.SetOut(c.ErrOrStderr())
		if err := c.Help(); err != nil {
			return err
		}
		return silent(exitUsage)
	}
	return c
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage{"there is no help about " + quote(strings.Join(args, " "))}
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// api returns the client of the server that was asked for.
func (p *program) api() (*client.Client, error) {
	if p.client != nil {
		return p.client, nil
	}
	c, err := client.New(p.server, client.WithHeader("User-Agent", "tasker-ctl/"+ownVersion()))
	if err != nil {
		return nil, usage{err.Error()}
	}
	p.client = c
	return c, nil
}
