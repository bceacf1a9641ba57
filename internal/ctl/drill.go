package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/drill"
)

func (p *program) newDrillCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "drill",
		Short: "Practice incident response in a sandbox",
		Long: `Practice incident response in a sandbox of a running installation.

A drill starts its own worker and creates tasks that fail with three shared causes, and ten
that fail with a cause of their own. It then guides you until you have repaired them, and
reports how long it took to notice, own, repair and verify them.

Everything happens in the namespace "drill", or in one whose name begins with "drill-".
Your API key needs the roles developer, operator and worker there, such as operator@drill.`,
		Example: `  tasker-ctl drill run
  tasker-ctl drill run --tasks 100 --namespace drill-ann
  tasker-ctl drill clean`,
	}, p.newDrillRunCommand(), p.newDrillCleanCommand())
}

func (p *program) newDrillOptions() (drill.Options, error) {
	api, err := p.newClient()
	return drill.Options{
		Client: api, Program: "tasker-ctl", Every: time.Second,
		Say: func(format string, args ...any) { fmt.Fprintf(p.err, format+"\n", args...) },
	}, err
}

func (p *program) newDrillRunCommand() *cobra.Command {
	namespace, tasks := drill.DefaultNamespace, drill.DefaultTasks
	var every time.Duration
	c := p.newCommand(help{
		use: "run", short: "Start a practice incident and guide you",
		long: `Start a practice incident and guide you until it is repaired.

Instructions go to standard error; the times at the end go to both. Ctrl-C ends the drill at
any time. The tasks remain until "drill clean".`,
		example: `  tasker-ctl drill run
  tasker-ctl drill run --tasks 10000 --namespace drill-night
  tasker-ctl drill run -o json | jq .report.phases`,
	}, func(ctx context.Context, _ arguments) error {
		o, err := p.newDrillOptions()
		if err != nil {
			return err
		}
		o.Namespace, o.Tasks, o.Every = namespace, tasks, max(every, 10*time.Millisecond)
		r, err := drill.Run(ctx, o)
		if err != nil {
			return err
		}
		return p.show(r, func() {
			p.printFields("", field{"Investigations", fmt.Sprint(r.Report.Counts.Entries)}, field{"Proved", fmt.Sprint(r.Report.Counts.Proved)},
				field{"Stuck task-minutes", fmt.Sprintf("%.1f", r.Report.StuckTime)}, field{"Digest", r.Report.Digest})
		})
	})
	addDrillFlags(c, &namespace)
	c.Flags().Var(cli.Number(&tasks, 1, drill.MaxTasks), "tasks", fmt.Sprintf("number of failing tasks (max %d)", drill.MaxTasks))
	c.Flags().Var(cli.Duration(&every, time.Second), "interval", "how often to poll")
	return c
}

func (p *program) newDrillCleanCommand() *cobra.Command {
	namespace := drill.DefaultNamespace
	c := p.newCommand(help{
		use: "clean", short: "Cancel the remaining tasks of a drill",
		example: `  tasker-ctl drill clean`,
	}, func(ctx context.Context, _ arguments) error {
		o, err := p.newDrillOptions()
		if err != nil {
			return err
		}
		o.Namespace = namespace
		cleaned, err := drill.Clean(ctx, o)
		if err != nil {
			return err
		}
		return p.show(cleaned, func() { p.printDone("No task of the drill is open.") })
	})
	addDrillFlags(c, &namespace)
	return c
}

func addDrillFlags(c *cobra.Command, namespace *string) {
	c.Flags().StringVarP(namespace, "namespace", "n", *namespace, `sandbox: "drill", or a name that begins with "drill-"`)
}
