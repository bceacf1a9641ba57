package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/payload"
)

// maxLimit is the maximum of --limit, which the server has for every list.
const maxLimit = 1000

// help contains the help texts of a command, and the flags that depend on the command.
type help struct {
	use                  string // the usage line, which names the arguments
	short, long, example string // example "": the command with its arguments

	limit   int  // default of --limit
	quiet   bool // add --quiet
	offline bool // needs no server

	switches map[string]string // further flags without a value, and their help
	without  []string          // parameters of the query without a flag
}

type arguments struct {
	text []string
	id   []tasker.ID // zero for arguments that are not ids
}

// parameter returns an argument as a parameter of a path.
func (a arguments) parameter(i int) any {
	if a.id[i] != (tasker.ID{}) {
		return a.id[i]
	}
	return a.text[i]
}

// idArguments are the names of arguments that must be ids.
var idArguments = []string{"TASK", "ENTRY|TASK", "EVENT", "WORKER", "OPERATION", "HOLD", "SCHEDULE", "CASE", "INCIDENT", "ID"}

// newCommand returns a command that parses its arguments and calls run.
func (p *program) newCommand(h help, run func(context.Context, arguments) error) *cobra.Command {
	c := &cobra.Command{
		Use: h.use, Short: h.short, Long: h.long, Example: h.example, Args: cli.Args,
		RunE: func(c *cobra.Command, args []string) error {
			p.command = c
			if _, err := p.newClient(); err != nil && !h.offline {
				return err
			}
			a := arguments{text: args, id: make([]tasker.ID, len(args))}
			names := cli.Arguments(h.use)
			for i := range min(len(args), len(names)) {
				name := strings.Trim(names[i], "[]")
				if !slices.Contains(idArguments, name) {
					continue
				}
				var err error
				if a.id[i], err = parseID(name, args[i]); err != nil {
					return err
				}
			}
			return run(c.Context(), a)
		},
	}
	for name, usage := range h.switches {
		c.Flags().Bool(name, false, usage)
	}
	if h.quiet {
		c.Flags().BoolVarP(&p.quiet, "quiet", "q", false, "print only ids")
	}
	return c
}

// isSet reports whether a switch of the running command is set.
func (p *program) isSet(name string) bool {
	is, _ := p.command.Flags().GetBool(name)
	return is
}

// fillExamples adds an example to each command without one: the command with its arguments.
func fillExamples(c *cobra.Command) {
	for _, below := range c.Commands() {
		fillExamples(below)
	}
	if c.Example != "" || c.HasSubCommands() {
		return
	}
	_, path, _ := strings.Cut(c.CommandPath(), " ")
	c.Example = "  tasker-ctl " + path
	for _, name := range cli.Arguments(c.Use) {
		name, _, _ = strings.Cut(name, "|")
		c.Example += " $" + name
	}
}

// newRequestCommand returns a command that makes a request and prints the response, with asText unless the
// output is JSON.
func newRequestCommand[T any](
	p *program, h help, request func(context.Context, *client.Client, arguments) (T, error), asText func(T),
) *cobra.Command {
	return p.newCommand(h, func(ctx context.Context, a arguments) error {
		v, err := request(ctx, p.client, a)
		if err != nil {
			return err
		}
		return p.show(v, func() { asText(v) })
	})
}

func parseID(name, text string) (tasker.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return tasker.ID{}, cli.Usagef("%s must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f, not %q", name, text)
	}
	return id, nil
}

// parseResponseID parses an id that the server returned.
func parseResponseID(name, text string) (tasker.ID, error) {
	id, err := parseID(name, text)
	if err != nil {
		return id, tasker.Errorf(tasker.Internal, "invalid %s %q in the server's response: must be a UUID", name, text)
	}
	return id, nil
}

// addCheck adds a check that runs before the command and can reject it.
func addCheck(c *cobra.Command, check func() error) {
	previous := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if previous != nil {
			if err := previous(c, args); err != nil {
				return err
			}
		}
		return check()
	}
}

// markRequired makes a flag required. The error for a missing flag explains why.
func markRequired(c *cobra.Command, flag, why string) {
	addCheck(c, func() error { return requireValue(flag, c.Flag(flag).Value.String(), why) })
}

func addLimitFlag(c *cobra.Command, limit *int, defaultLimit int) {
	*limit = defaultLimit
	c.Flags().VarP(cli.Number(limit, 1, maxLimit), "limit", "l", fmt.Sprintf("maximum number of results, at most %d", maxLimit))
}

const actorUsage = "name recorded as the actor (default $TASKER_ACTOR, else your login name)"

// addActorFlag adds the flag for the actor in the history, unless its name is empty. Before the command
// runs, actor gets its default.
func (p *program) addActorFlag(c *cobra.Command, actor *string, name string) {
	if name != "" {
		c.Flags().StringVar(actor, name, "", actorUsage)
	}
	addCheck(c, func() (err error) {
		*actor, err = p.resolveActor(*actor)
		return err
	})
}

const reasonUse = "it is shown in the history"

// addReasonFlag adds the required flag --reason.
func addReasonFlag(c *cobra.Command, reason *string, shorthand string) {
	c.Flags().StringVarP(reason, "reason", shorthand, "", "reason, shown in the history (required)")
	markRequired(c, "reason", reasonUse)
}

func addOptionalReasonFlag(c *cobra.Command, reason *string) {
	c.Flags().StringVar(reason, "reason", *reason, "reason, shown in the history")
}

// addDryRunFlags adds the flags --dry-run and --reason. Without --dry-run, --reason is required.
func addDryRunFlags(c *cobra.Command, dryRun *bool, reason *string) {
	c.Flags().BoolVar(dryRun, "dry-run", false, "show the effect without changing anything")
	c.Flags().StringVar(reason, "reason", "", "reason, shown in the history (required without --dry-run)")
	addCheck(c, func() error {
		if *dryRun {
			return nil
		}
		return requireValue("reason", *reason, reasonUse)
	})
}

// printList prints a table with a row for each item, or only the first cell of each row with --quiet.
// header lists the columns; those with "?" are omitted on a narrow terminal. For an empty list, it
// prints empty to stderr.
func printList[T any](p *program, items []T, empty, header string, row func(T) []any) {
	if !p.quiet && len(items) == 0 {
		fmt.Fprintln(p.err, empty)
		return
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		for _, cell := range row(item) {
			rows[i] = append(rows[i], formatValue(cell))
		}
		if p.quiet {
			fmt.Fprintln(p.out, clean(rows[i][0]))
		}
	}
	if !p.quiet {
		p.printTable(strings.Split(header, ", "), rows)
	}
}

// maxDocumentBytes is the maximum size of a file in bytes. Every server rejects larger files.
const maxDocumentBytes = 16 << 20

// requireValue returns an error if the value of a required flag is empty.
func requireValue(flag, value, why string) error {
	if strings.TrimSpace(value) == "" {
		return cli.Usagef("--%s is required: %s", flag, why)
	}
	return nil
}

// readJSON returns the JSON value of a flag, or nil if it is empty. The value is a literal, @file, or
// @- for standard input.
func (p *program) readJSON(flag, value string) (json.RawMessage, error) {
	if value == "" {
		return nil, nil
	}
	doc, from := []byte(value), "--"+flag
	if name, isFile := strings.CutPrefix(value, "@"); isFile {
		var err error
		if doc, err = p.readInput(name); err != nil {
			return nil, fmt.Errorf("--%s: %w; use the path of a file, or @- for standard input", flag, err)
		}
		from += " " + value
	}
	var parsed json.RawMessage
	if err := json.Unmarshal(doc, &parsed); err != nil {
		return nil, cli.Usagef(`invalid JSON in %s: %v; quote it, as in --%s '{"key": "value"}'`, from, err, flag)
	}
	return parsed, nil
}

// readJSONObject is like document but requires a JSON object.
func (p *program) readJSONObject(flag, value string) (json.RawMessage, error) {
	doc, err := p.readJSON(flag, value)
	if err != nil || doc == nil {
		return nil, err
	}
	if strings.TrimSpace(string(doc))[0] != '{' {
		return nil, cli.Usagef(`--%s must be a JSON object such as {"key": "value"}`, flag)
	}
	return doc, nil
}

// readInput returns the content of a file, or of standard input if name is "-". An unreadable file is a
// usage error.
func (p *program) readInput(name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, cli.UsageError{Text: err.Error()}
		}
		defer file.Close()
		in = file
	}
	doc, err := io.ReadAll(io.LimitReader(in, maxDocumentBytes+1))
	if err != nil {
		return nil, cli.UsageError{Text: err.Error()}
	}
	if len(doc) > maxDocumentBytes {
		return nil, tasker.Errorf(tasker.TooLarge, "%s is too large: the limit is %d bytes", name, maxDocumentBytes)
	}
	return payload.TrimBOM(doc), nil
}

// resolveActor returns the name to record as the actor: value if it is set, otherwise TASKER_ACTOR,
// otherwise the login name.
func (p *program) resolveActor(value string) (string, error) {
	if name := cmp.Or(value, p.env["TASKER_ACTOR"]); name != "" {
		return name, nil
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", cli.Usagef("unknown actor: set TASKER_ACTOR")
}
