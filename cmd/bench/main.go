// Command bench measures the engine against plain PostgreSQL in the same run.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"tasker/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: there is nothing left to stop
	}
}

func command() *cobra.Command {
	var o bench.Options
	var output string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the engine against plain PostgreSQL",
		Long: "Measure the engine against plain PostgreSQL, in one run on this machine.\n\n" +
			"It starts a private PostgreSQL, with fsync as in production, and removes it afterwards.\n" +
			"What a figure means is its ratio to the baseline beside it: machines differ, ratios less.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			figures, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, figures)
		},
	}
	c.Flags().StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one")
	c.Flags().IntVar(&o.Tasks, "tasks", 20_000, "one-step tasks to drain")
	c.Flags().IntVar(&o.Workflows, "workflows", 200, "four-step workflows to time")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func show(out io.Writer, output string, figures []bench.Figure) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(figures)
	}
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"figure", "value", "unit", "ratio", "to the baseline"})
	for _, f := range figures {
		ratio := ""
		if f.Ratio != 0 {
			ratio = fmt.Sprintf("%.2f", f.Ratio)
		}
		t.AppendRow(table.Row{f.Name, fmt.Sprintf("%.2f", f.Value), f.Unit, ratio, f.Versus})
	}
	t.Render()
	return nil
}
