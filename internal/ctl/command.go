package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
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
var idArguments = []string{"TASK", "STEP", "ENTRY|TASK", "EVENT", "WORKER"}

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

// actorFlag names the person who acts.
func actorFlag(c *cobra.Command, actor *string, name, usage string) {
	c.Flags().StringVar(actor, name, "", usage+" (default $TASKER_ACTOR, else your name on this machine)")
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
