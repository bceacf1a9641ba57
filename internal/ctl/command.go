package ctl

import (
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

// Bounds of every list, as the server has them.
const (
	maxLimit  = 1000
	maxOffset = 10_000_000
)

// A help is what a command says about itself. The usage line names its arguments.
type help struct{ use, short, long, example string }

// arguments are those of one run of a command.
type arguments struct {
	text []string
	id   []tasker.ID // of the arguments that are ids
}

// idArguments are the names of the arguments that are ids.
var idArguments = []string{"TASK", "ENTRY|TASK", "EVENT", "WORKER", "OPERATION", "HOLD", "SCHEDULE", "CASE", "INCIDENT", "ID"}

// command returns a command that reads its arguments and runs.
func (p *program) command(h help, run func(context.Context, arguments) error) *cobra.Command {
	return &cobra.Command{
		Use: h.use, Short: h.short, Long: h.long, Example: h.example, Args: cli.Args,
		RunE: func(c *cobra.Command, args []string) error {
			a := arguments{text: args, id: make([]tasker.ID, len(args))}
			names := cli.Arguments(h.use)
			for i := range min(len(args), len(names)) {
				name := strings.Trim(names[i], "[]")
				if !slices.Contains(idArguments, name) {
					continue
				}
				var err error
				if a.id[i], err = readID(name, args[i]); err != nil {
					return err
				}
			}
			return run(c.Context(), a)
		},
	}
}

// answer returns a command that makes a request and prints the answer.
func answer[T any](p *program, h help, request func(context.Context, *client.Client, arguments) (T, error), asText func(T)) *cobra.Command {
	return p.command(h, func(ctx context.Context, a arguments) error {
		api, err := p.api()
		if err != nil {
			return err
		}
		v, err := request(ctx, api, a)
		if err != nil {
			return err
		}
		return p.show(v, func() { asText(v) })
	})
}

// readID reads an id.
func readID(name, text string) (tasker.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return tasker.ID{}, cli.Usagef("%s must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f, not %q", name, text)
	}
	return id, nil
}

// answeredID reads an id from an answer of the server.
func answeredID(name, text string) (tasker.ID, error) {
	id, err := readID(name, text)
	if err != nil {
		return id, tasker.Errorf(tasker.Internal, "the answer of the server has an invalid %s: %q", name, text)
	}
	return id, nil
}

// limitFlag bounds the length of a list.
func limitFlag(c *cobra.Command, limit *int, defaultLimit int) {
	*limit = defaultLimit
	c.Flags().VarP(cli.Number(limit, 1, maxLimit), "limit", "l", fmt.Sprintf("how many to show, at most %d", maxLimit))
}

// pageFlags are those of every list that has pages.
func pageFlags(c *cobra.Command, page *client.Page, limit int) {
	limitFlag(c, &page.Limit, limit)
	c.Flags().Var(cli.Number(&page.Offset, 0, maxOffset), "offset", "skip the first N")
}

// actorFlag adds the flag for the actor in the history.
func actorFlag(c *cobra.Command, actor *string, name string) {
	c.Flags().StringVar(actor, name, "", "name recorded as the actor (default $TASKER_ACTOR, else your login name)")
}

// columns are those of a list.
type columns struct {
	none  string // printed in place of an empty table
	names []string
	spare string // the column that a narrow terminal does without
}

// list prints a table with a row for each item, or on stderr that there are none.
func list[T any](p *program, items []T, c columns, row func(T) []string) {
	if len(items) == 0 {
		fmt.Fprintln(p.err, c.none)
		return
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		rows[i] = row(item)
	}
	p.table(c.names, rows, c.spare)
}

// ids prints the id of each item on a line of its own.
func ids[T any](p *program, items []T, id func(T) string) {
	for _, item := range items {
		fmt.Fprintln(p.out, clean(id(item)))
	}
}

// maxDocument bounds what is read of a file: more than any server takes.
const maxDocument = 16 << 20

// need refuses an empty value of a flag.
func need(flag, value, why string) error {
	if strings.TrimSpace(value) == "" {
		return cli.Usagef("--%s is needed: %s", flag, why)
	}
	return nil
}

// document reads the JSON in the value of a flag: itself, @file, or @- for
// standard input. No value is no document.
func (p *program) document(flag, value string) (json.RawMessage, error) {
	if value == "" {
		return nil, nil
	}
	doc, from := []byte(value), "--"+flag
	if name, isFile := strings.CutPrefix(value, "@"); isFile {
		var err error
		if doc, err = p.read(name); err != nil {
			return nil, fmt.Errorf("--%s: %w; give the path of a file, or @- for standard input", flag, err)
		}
		from += " " + value
	}
	var parsed json.RawMessage
	if err := json.Unmarshal(doc, &parsed); err != nil {
		return nil, cli.Usagef(`%s is not valid JSON: %v; put it into single quotes, as in --%s '{"key": "value"}'`, from, err, flag)
	}
	return parsed, nil
}

// object is document for a flag that takes a JSON object.
func (p *program) object(flag, value string) (json.RawMessage, error) {
	doc, err := p.document(flag, value)
	if err != nil || doc == nil {
		return nil, err
	}
	if strings.TrimSpace(string(doc))[0] != '{' {
		return nil, cli.Usagef(`--%s must be a JSON object such as {"key": "value"}`, flag)
	}
	return doc, nil
}

// read reads a file; - is standard input. A file that cannot be read is an error
// of the command line, which names it.
func (p *program) read(name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, cli.UsageError{Text: err.Error()}
		}
		defer file.Close()
		in = file
	}
	doc, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, cli.UsageError{Text: err.Error()}
	}
	if len(doc) > maxDocument {
		return nil, tasker.Errorf(tasker.TooLarge, "%s has more than %d bytes", name, maxDocument)
	}
	doc = payload.TrimBOM(doc)
	return doc, nil
}

// actor returns the person who acts: the value of the flag, else TASKER_ACTOR,
// else the user's name on this machine.
func (p *program) actor(flag, value string) (string, error) {
	if value != "" {
		return value, nil
	}
	if name := p.env["TASKER_ACTOR"]; name != "" {
		return name, nil
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", cli.Usagef("the person who acts is not known: give --%s or set TASKER_ACTOR", flag)
}
