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
	c.AddCommand(scaleCommand())
	return c
}

func scaleCommand() *cobra.Command {
	var o bench.ScaleOptions
	var output string
	c := &cobra.Command{
		Use:   "scale",
		Short: "Measure what the sweep and the triage cost as the database grows",
		Long: "Measure what the sweep, the queue, the staleness monitor and the statistics cost as the database grows.\n\n" +
			"It starts a private PostgreSQL, with fsync as in production, and removes it afterwards.\n" +
			"What a figure means is its ratio between the last size and the first.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := bench.Scale(cmd.Context(), o)
			if err != nil {
				return err
			}
			if output == "json" {
				return encode(cmd.OutOrStdout(), report)
			}
			return report.Markdown(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one")
	c.Flags().IntSliceVar(&o.Sizes, "sizes", []int{10_000, 100_000, 1_000_000}, "live tasks to measure at, growing")
	c.Flags().IntVar(&o.Due, "due", 1_000, "tasks past their threshold, of the live ones")
	c.Flags().IntVar(&o.Pending, "pending", 10_000, "open investigations")
	c.Flags().IntVar(&o.Ended, "ended", 100_000, "ended investigations, for the last figure")
	c.Flags().IntVar(&o.Runs, "runs", 7, "runs of each sweep; reads run five times as often")
	c.Flags().BoolVar(&o.Plans, "plans", false, "show the plans at the last size as well")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func encode(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func show(out io.Writer, output string, figures []bench.Figure) error {
	if output == "json" {
		return encode(out, figures)
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
