// Command bench compares Tasker with plain PostgreSQL on the same machine, in the same run.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker/bench/internal/bulk"
	"tasker.example/tasker/bench/internal/measure"
	"tasker.example/tasker/bench/internal/overload"
	"tasker.example/tasker/bench/internal/scale"
	"tasker.example/tasker/bench/internal/triage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: nothing remains to be stopped
	}
}

func command() *cobra.Command {
	var o measure.Options
	var output, only string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the engine against plain PostgreSQL",
		Long: "Measure the engine against plain PostgreSQL, in one run on this machine.\n\n" +
			"It starts a private PostgreSQL, with fsync as in production, and removes it afterwards.\n" +
			"What a figure means is its ratio to the baseline beside it: machines differ, ratios less.\n\n" +
			"The groups of figures are commit, drain, workflows, latency, transports, create, cost, history, find, map, tenants and limits;\n" +
			"transports compares steps announced by a RabbitMQ, which must be named, with steps asked for;\n" +
			"profile is one more, of one drain in process, when a file for a profile is given.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			o.BrokerURL = cmp.Or(o.BrokerURL, os.Getenv(measure.BrokerEnv)) // not the flag's default, which help would show
			var err error
			if o.Only, err = regexp.Compile(only); err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			report, err := measure.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	f := c.Flags()
	f.StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one, as a superuser")
	f.StringVar(&o.BrokerURL, "amqp-url", "", "a RabbitMQ for the group transports (default what "+measure.BrokerEnv+" says)")
	f.IntVar(&o.Runs, "runs", 5, "runs of each figure, of which the median is told")
	f.IntVar(&o.Tasks, "tasks", 20_000, "one-step tasks to drain")
	f.IntVar(&o.Workflows, "workflows", 2_000, "workflows of each shape to drain")
	f.IntVar(&o.Backlog, "backlog", 100_000, "tasks of one tenant that wait beside those of another")
	f.IntVar(&o.Places, "places", 100, "steps that each of the four workers of a drain executes at once")
	f.IntVar(&o.Single, "single", 200, "workflows of each shape to time one by one, and to create one by one")
	f.StringVar(&only, "only", "", "measure only the groups of figures that match this regular expression")
	f.StringVar(&o.CPUProfile, "cpuprofile", "", "write a CPU profile of a drain in process to this file")
	f.StringVar(&o.MemProfile, "memprofile", "", "write a profile of its allocations to this file")
	f.StringVarP(&output, "output", "o", "markdown", "markdown or json")
	c.AddCommand(scaleCommand(), growthCommand(), overloadCommand(), triageCommand(), operationCommand(), outageCommand(), incidentCommand())
	return c
}

func scaleCommand() *cobra.Command {
	var o scale.Options
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
			report, err := scale.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	c.Flags().StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one")
	c.Flags().IntSliceVar(&o.Sizes, "sizes", []int{10_000, 100_000, 1_000_000}, "live tasks to measure at, growing")
	c.Flags().IntVar(&o.Due, "due", 1_000, "tasks past their threshold, of the live ones")
	c.Flags().IntVar(&o.Pending, "pending", 10_000, "open investigations")
	c.Flags().IntVar(&o.Ended, "ended", 100_000, "ended investigations, for the last figure")
	c.Flags().IntVar(&o.History, "history", 0, "times as many finished tasks and ended investigations to add at the end, and to measure with")
	c.Flags().IntVar(&o.Runs, "runs", 7, "runs of each sweep; reads run five times as often")
	c.Flags().BoolVar(&o.Plans, "plans", false, "show the plans at the last size as well")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func triageCommand() *cobra.Command {
	var o triage.Options
	var output string
	c := &cobra.Command{
		Use:   "triage",
		Short: "Measure what cases cost when a step fails, when they are found, and when they are read",
		Long: "Measure what cases cost when a step fails, when they are found, and when they are read.\n\n" +
			"It starts a private PostgreSQL, with fsync as in production, and removes it afterwards.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := triage.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	c.Flags().StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one, as a superuser")
	c.Flags().IntVar(&o.Entries, "entries", 100_000, "open investigations")
	c.Flags().IntVar(&o.Large, "large", 10_000, "of them in one case")
	c.Flags().IntVar(&o.Single, "single", 200, "of them alone in their case")
	c.Flags().IntVar(&o.Runs, "runs", 7, "runs of each figure, of which the median is told")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func growthCommand() *cobra.Command {
	var o measure.Options
	var g measure.GrowthOptions
	var output, only string
	c := &cobra.Command{
		Use:   "growth",
		Short: "Measure what a step costs as tasks, payloads, backlogs and fleets grow",
		Long: "Measure what a step costs as tasks, payloads, the backlog, the number of waiting workers and of queues grow,\n" +
			"and while a transaction stays open.\n\n" +
			"It starts a private PostgreSQL, with fsync as in production, and removes it afterwards.\n" +
			"Each figure is compared with the same one at the smallest size: a ratio of 1 says that it does not grow.\n\n" +
			"The groups of figures are tasks, payloads, backlog, waiting workers, namespaces and handlers, servers, open transaction.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			var err error
			if o.Only, err = regexp.Compile(only); err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			report, err := measure.Growth(cmd.Context(), o, g)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	f := c.Flags()
	f.StringVar(&o.DatabaseURL, "database-url", "", "an empty database to use instead of a private one, as a superuser")
	f.IntVar(&o.Runs, "runs", 3, "runs of each figure, of which the median is reported")
	f.IntVar(&o.Tasks, "tasks", 20_000, "one-step tasks; a tenth of them is drained at a time beside an open transaction")
	f.IntSliceVar(&g.Steps, "steps", []int{10, 100, 1_000}, "steps of a task, growing")
	f.IntVar(&g.TotalSteps, "total-steps", 2_000, "steps of all tasks of one shape together")
	f.IntSliceVar(&g.Payloads, "payloads", []int{1_000, 10_000, 100_000, 1_000_000}, "bytes of a result, growing")
	f.IntSliceVar(&g.Backlog, "backlog", []int{10_000, 1_000_000}, "enqueued steps, growing")
	f.IntSliceVar(&g.Waiting, "waiting", []int{1, 1_000}, "workers that wait for work, growing")
	f.IntSliceVar(&g.Servers, "servers", []int{1, 2, 4, 8}, "servers on the database, growing")
	f.IntVar(&g.Namespaces, "namespaces", 100, "namespaces, with as many handlers in each")
	f.DurationVar(&g.Hold, "hold", measure.DefaultHold, "how long a transaction is held open")
	f.StringVar(&only, "only", "", "measure only the groups of figures that match this regular expression")
	f.StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func incidentCommand() *cobra.Command {
	var o bulk.IncidentOptions
	var output string
	c := &cobra.Command{
		Use:   "incident",
		Short: "Measure what people wait for while failures keep coming in",
		Long: "Measure what the list of cases and an act on a step take while failures keep coming in and an operation\n" +
			"repairs what came before, and what the operation adds to the report of a failure.\n\n" +
			"It starts two real servers as processes of their own on a private PostgreSQL, with fsync as in production,\n" +
			"and removes them afterwards.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := bulk.RunIncident(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	c.Flags().IntVar(&o.Items, "items", 10_000, "stuck tasks that the operation repairs")
	c.Flags().IntVar(&o.PerMinute, "failures", 10_000, "failures that come in a minute")
	c.Flags().DurationVar(&o.For, "for", time.Minute, "how long each of the two phases takes")
	c.Flags().IntVar(&o.Workers, "workers", 20, "steps that workers execute at once")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func outageCommand() *cobra.Command {
	var o bulk.OutageOptions
	var output string
	c := &cobra.Command{
		Use:   "outage",
		Short: "Measure what an outage costs while a breaker is on",
		Long: "Measure how many probes and investigations an outage of what steps need costs while a breaker is on,\n" +
			"and how long the tasks take that came meanwhile when it is over.\n\n" +
			"It starts two real servers as processes of their own on a private PostgreSQL, with fsync as in production,\n" +
			"and removes them afterwards. The outage takes as long as it says.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := bulk.RunOutage(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	c.Flags().IntVar(&o.Tasks, "tasks", 4_000, "tasks that come during the outage")
	c.Flags().DurationVar(&o.For, "for", time.Hour, "how long the outage takes")
	c.Flags().IntVar(&o.Workers, "workers", 20, "steps that workers execute at once")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func operationCommand() *cobra.Command {
	var o bulk.Options
	var output string
	c := &cobra.Command{
		Use:   "operation",
		Short: "Measure the repair of thousands of tasks by one operation",
		Long: "Measure what an operation takes to freeze, try, release and prove, what a repair that does not help\n" +
			"touches, and what is lost when servers are killed and the database is restarted in the middle.\n\n" +
			"It starts two real servers as processes of their own on a private PostgreSQL, with fsync as in production,\n" +
			"and removes them afterwards.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := bulk.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	c.Flags().IntVar(&o.Items, "items", 10_000, "stuck tasks")
	c.Flags().IntVar(&o.Workers, "workers", 200, "steps that workers execute at once")
	c.Flags().StringVarP(&output, "output", "o", "markdown", "markdown or json")
	return c
}

func overloadCommand() *cobra.Command {
	var o overload.Options
	var output string
	c := &cobra.Command{
		Use:   "overload",
		Short: "Measure what a flood of creates does to everybody else",
		Long: "Measure what a flood of creates, three times as many as the server can take, does to heartbeats, reports,\n" +
			"operators and other callers, and how long it is felt afterwards.\n\n" +
			"It starts the real server as a process of its own on a private PostgreSQL, with fsync as in production, and\n" +
			"removes both afterwards. The flood comes from a process of low priority: in production it is on other machines.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.ErrOrStderr()
			report, err := overload.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, report)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Idle, "idle", 30*time.Second, "how long is measured without the flood")
	f.DurationVar(&o.For, "for", time.Minute, "how long the flood lasts")
	f.DurationVar(&o.After, "after", 30*time.Second, "how long is measured after it")
	f.Float64Var(&o.Factor, "factor", 3, "times as many creates as the server can take")
	f.IntVar(&o.Bulk, "bulk", 1, "tasks that each request of the flood creates")
	f.Float64Var(&o.Capacity, "capacity", 0, "requests of the flood a second that the server can take (measured by default)")
	f.StringArrayVar(&o.Server, "env", nil, "a variable of the environment of the server, as NAME=value; repeat it for more")
	f.StringVarP(&output, "output", "o", "markdown", "markdown or json")
	c.AddCommand(&cobra.Command{
		Use: overload.FloodCommand, Hidden: true, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return overload.SendFlood(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	})
	return c
}

// show writes a report as JSON or as Markdown.
func show(out io.Writer, output string, report interface{ Markdown(io.Writer) error }) error {
	switch output {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(report)
	case "markdown":
		return report.Markdown(out)
	default:
		return fmt.Errorf("--output %s: give markdown or json", output)
	}
}
