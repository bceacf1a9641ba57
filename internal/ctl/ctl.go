// Package ctl implements the tasker-ctl commands. Commands call the HTTP API and print the response as
// a table or as JSON.
//
// Each file has the commands of one noun. A command is an [answer]: the request
// that it makes, and how the answer is printed as text; with -o json the answer is
// printed as it is. Text of a payload is cleaned before it reaches a terminal: no
// handler's error message can move the cursor.
//
// [Main] takes everything it needs as arguments, so that tests run it as it is.
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
	"tasker.example/tasker/internal/cli"
)

// The exit codes that scripts get besides those of package cli.
const (
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

	server    string // --server
	output    string // --output
	tokenFile string // --token-file
	client    *client.Client
}

// Main runs the command whose name and arguments are args and returns its exit
// code. environ has the form of os.Environ.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends the program, which may be in a read that does not end
	p := &program{in: stdin, out: stdout, err: stderr, env: map[string]string{}}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		p.env[name] = value
	}
	return p.main(ctx, args)
}

// main is [Main] until ctx ends, which interrupts it.
func (p *program) main(ctx context.Context, args []string) int {
	name := "tasker-ctl"
	if len(args) > 0 && strings.TrimSuffix(path.Base(strings.ReplaceAll(args[0], `\`, "/")), ".exe") == "tasker-cli" {
		name = "tasker-cli"
	}
	c, err := cli.Run(ctx, p.root(name), args[min(len(args), 1):])
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	p.complain(c.CommandPath(), err)
	return exitCode(err)
}

var errInterrupted = errors.New("interrupted")

func exitCode(err error) int {
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if code := cli.ExitCode(err); code != cli.ExitError || errors.As(err, new(failedRun)) {
		return code
	}
	switch tasker.CodeOf(err) {
	case tasker.NotFound:
		return exitNotFound
	case tasker.Conflict, tasker.StaleLease:
		return exitConflict
	case tasker.Unavailable:
		return exitUnreachable
	default:
		return cli.ExitError
	}
}

const about = `Inspect and operate the tasks of a Tasker server.

A task that cannot progress gets an investigation. To repair it, fix its step;
the task then goes on by itself:

  %[1]s dlq queue                            # open investigations, most urgent first
  %[1]s dlq get ENTRY                        # the evidence
  %[1]s task steps TASK                      # the steps and their states
  %[1]s explain TASK                         # why it stands where it stands, and whose turn it is
  %[1]s task reset-step TASK STEP --reason "gateway is back"
  %[1]s task watch TASK                      # follow it to its end
  %[1]s dlq update ENTRY --status manually_resolved --notes "gateway is back"

--result, --context and --metadata take JSON as it is, from a file as @file, or
from standard input as @-.

Exit codes:
  0  done                       3  not found, or not visible for your API key
  1  failed, or not permitted   4  the state of things does not allow it
  2  the command line is wrong  5  the server cannot be reached, or cannot serve now
                                130  interrupted

Environment:
  TASKER_URL         the server, in place of --server
  TASKER_TOKEN       your API key, where the server asks who is calling
  TASKER_TOKEN_FILE  a file with it, in place of --token-file
  TASKER_ACTOR       the person who acts, where no flag names one; else your name
                     on this machine
  NO_COLOR           no colours, even on a terminal
  COLUMNS            the width of a terminal that does not report it`

func (p *program) root(name string) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Inspect and operate the tasks of a Tasker server",
		Long:  strings.ReplaceAll(about, "%[1]s", name),
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed(tokenFlag) {
				return errTokenFlag
			}
			return cli.RefuseEmpty(c)
		},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	server := defaultServer
	if p.env["TASKER_URL"] != "" {
		server = p.env["TASKER_URL"]
	}
	root.PersistentFlags().StringVar(&p.tokenFile, "token-file", "", "file with your API key, or TASKER_TOKEN_FILE; TASKER_TOKEN has the key itself")
	root.PersistentFlags().String(tokenFlag, "", "")
	_ = root.PersistentFlags().MarkHidden(tokenFlag) // it is there
	p.output = "table"
	root.PersistentFlags().StringVar(&p.server, "server", server, "URL of the server, or TASKER_URL")
	root.PersistentFlags().VarP(cli.Choice(&p.output, []string{"table", "json"}), "output", "o", "table, or json for scripts")
	cli.Group(root, p.taskCommand(), p.inboxCommand(), p.explainCommand(), p.caseCommand(), p.incidentCommand(), p.messageCommand(), p.entryCommand(), p.operationCommand(), p.holdCommand(), p.scheduleCommand(), p.reportCommand(), p.drillCommand(), p.templateCommand(), p.workerCommand(), p.queuesCommand(), p.namespaceCommand(), p.limitCommand(),
		p.whoAmICommand(), p.keyCommand(), p.sessionCommand(), p.auditCommand(), p.healthCommand(), p.versionCommand())
	cli.Root(root)
	return root
}

// api returns the client of the server.
func (p *program) api() (*client.Client, error) {
	if p.client != nil {
		return p.client, nil
	}
	c, err := client.New(p.server, client.WithHeader("User-Agent", "tasker-ctl/"+cli.Version()), p.token())
	if err != nil {
		return nil, cli.UsageError{Text: err.Error()}
	}
	p.client = c
	return c, nil
}
