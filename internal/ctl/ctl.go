// Package ctl implements the tasker-ctl commands. Commands call the HTTP API and print the response as
// a table or as JSON.
//
// Each file contains the commands of one noun. Most commands are a declaration, [plain] or [list]: an
// operation of the API, its help, and a function that formats the response as text. Their flags come
// from the tags of the query and the body. With -o json the response is printed unchanged. Text from
// payloads is sanitized, so that an error message cannot control the terminal.
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

// Exit codes in addition to those of package cli.
const (
	exitNotFound    = 3
	exitConflict    = 4
	exitUnreachable = 5
	exitInterrupted = 130
)

const defaultServer = "http://127.0.0.1:8080"

// program is one run of tasker-ctl.
type program struct {
	in       io.Reader
	out, err io.Writer
	env      map[string]string

	width int  // maximum width of tables; 0: the width of the terminal
	quiet bool // --quiet of lists

	server    string // --server
	output    string // --output
	tokenFile string // --token-file
	client    *client.Client
	command   *cobra.Command // the running command
}

// Main runs the command line args, which begins with the name of the program, and returns the exit code.
// environ has the form of os.Environ.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the program, which may block in a read
	p := &program{in: stdin, out: stdout, err: stderr, env: map[string]string{}}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		p.env[name] = value
	}
	return p.main(ctx, args)
}

// main runs the command line until ctx is cancelled.
func (p *program) main(ctx context.Context, args []string) int {
	name := "tasker-ctl"
	if len(args) > 0 && strings.TrimSuffix(path.Base(strings.ReplaceAll(args[0], `\`, "/")), ".exe") == "tasker-cli" {
		name = "tasker-cli"
	}
	c, err := cli.Run(ctx, p.newRootCommand(name), args[min(len(args), 1):])
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	p.printError(c.CommandPath(), err)
	return exitCode(err)
}

var errInterrupted = errors.New("interrupted")

func exitCode(err error) int {
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if code := cli.ExitCode(err); code != cli.ExitError || errors.As(err, new(runFailure)) {
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

const programDescription = `Operate tasks on a Tasker server.

A task that cannot make progress gets an investigation. Investigations with the same
cause form a case. Start with cases:

  %[1]s case list                          # what is broken, most costly first
  %[1]s case show CASE                     # error, counts, samples, owner
  %[1]s case changes CASE                  # what differs from successful runs
  %[1]s case own CASE --for 2h             # assign it to yourself
  %[1]s hold add --case CASE --for 1h --reason "gateway down"    # stop more failures

When the cause is fixed, retry everything at once. Steps are released in waves,
and the operation pauses if they fail again:

  %[1]s operation run --case CASE --reset --reason "gateway is back" --watch

Repair a single task:

  %[1]s explain TASK                       # why it is waiting and who acts next
  %[1]s dlq get TASK                       # the evidence
  %[1]s task reset-step TASK STEP --reason "gateway is back"
  %[1]s task watch TASK

JSON flags (--context, --result, --metadata) accept a literal, @FILE, or @- for stdin.

Environment:
  TASKER_URL          server URL, in place of --server
  TASKER_TOKEN        API key
  TASKER_TOKEN_FILE   file that contains the API key, in place of --token-file
  TASKER_ACTOR        name recorded with your actions (default: your login name)
  NO_COLOR            disable colors
  COLUMNS             width of a terminal that does not report it

Exit codes:
  0  success                             4  conflict with the current state
  1  failed or not permitted             5  server unavailable
  2  usage error                         130  interrupted
  3  not found or not visible to you`

func (p *program) newRootCommand(name string) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Operate tasks on a Tasker server",
		Long:  strings.ReplaceAll(programDescription, "%[1]s", name),
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed(tokenFlag) {
				return errTokenFlag
			}
			return cli.RejectEmpty(c)
		},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	server := defaultServer
	if p.env["TASKER_URL"] != "" {
		server = p.env["TASKER_URL"]
	}
	root.PersistentFlags().StringVar(&p.tokenFile, "token-file", "", "file that contains your API key")
	root.PersistentFlags().String(tokenFlag, "", "")
	_ = root.PersistentFlags().MarkHidden(tokenFlag)
	p.output = "table"
	root.PersistentFlags().StringVar(&p.server, "server", server, "server URL")
	root.PersistentFlags().VarP(cli.Choice(&p.output, []string{"table", "json"}), "output", "o", "table or json")
	cli.NewGroup(root)
	cli.AddSection(root, "Incident response:", caseCommand(p), operationCommand(p), holdCommand(p), p.newExplainCommand(),
		entryCommand(p), incidentCommand(p), timeReportCommand(p), drillCommand(p))
	cli.AddSection(root, "Tasks:", taskCommand(p), inboxCommand(p), scheduleCommand(p), templateCommand(p))
	cli.AddSection(root, "Workers and capacity:", workerCommand(p), queueCommand(p), limitCommand(p), namespaceCommand(p))
	cli.AddSection(root, "Administration:", keyCommand(p), sessionCommand(p), auditCommand(p), messageCommand(p),
		p.newHealthCommand(), whoAmICommand(p), p.newVersionCommand())
	fillExamples(root)
	cli.ConfigureRoot(root)
	return root
}

// newClient returns the client, which all requests of a run share.
func (p *program) newClient() (*client.Client, error) {
	if p.client != nil {
		return p.client, nil
	}
	c, err := client.New(p.server, client.WithHeader("User-Agent", "tasker-ctl/"+cli.Version()), p.tokenOption())
	if err != nil {
		return nil, cli.UsageError{Text: err.Error()}
	}
	p.client = c
	return c, nil
}
