package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/drill"
)

var drillCommand = group(help{
	use: "drill", short: "Practice incident response in a sandbox",
	long: `Practice incident response in a sandbox of a running installation.

A drill starts its own worker and creates tasks that fail with three shared causes, and ten
that fail with a cause of their own. It then guides you until you have repaired them, and
reports how long it took to notice, own, repair and verify them.

Everything happens in the namespace "drill", or in one whose name begins with "drill-".
Your API key needs the roles developer, operator and worker there, such as operator@drill.`,
	example: `  tasker-ctl drill run
  tasker-ctl drill run --tasks 100 --namespace drill-ann
  tasker-ctl drill clean`,
}, (*program).newDrillRunCommand, (*program).newDrillCleanCommand)

// newDrillCommand returns a command that calls do with the options that its flags change.
func newDrillCommand[T any](
	p *program, h help, o *drill.Options, do func(context.Context, drill.Options) (T, error), asText func(T),
) *cobra.Command {
	o.Namespace, o.Program, o.Every = drill.DefaultNamespace, "tasker-ctl", time.Second
	o.Say = func(format string, args ...any) { fmt.Fprintf(p.err, format+"\n", args...) }
	c := newRequestCommand(p, h, func(ctx context.Context, api *client.Client, _ arguments) (T, error) {
		o.Client, o.Every = api, max(o.Every, 10*time.Millisecond)
		return do(ctx, *o)
	}, asText)
	usage := `sandbox: "drill", or a name that begins with "drill-"`
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", o.Namespace, usage)
	return c
}

func (p *program) newDrillRunCommand() *cobra.Command {
	o := drill.Options{Tasks: drill.DefaultTasks}
	c := newDrillCommand(p, help{
		use: "run", short: "Start a practice incident and guide you",
		long: `Start a practice incident and guide you until it is repaired.

Instructions go to standard error; the times at the end go to both. Ctrl-C ends the drill at
any time. The tasks remain until "drill clean".`,
		example: `  tasker-ctl drill run
  tasker-ctl drill run --tasks 10000 --namespace drill-night
  tasker-ctl drill run -o json | jq .report.phases`,
	}, &o, drill.Run, func(r drill.Result) {
		p.printFields("",
			field{"Investigations", r.Report.Counts.Entries}, field{"Proved", r.Report.Counts.Proved},
			field{"Stuck task-minutes", fmt.Sprintf("%.1f", r.Report.StuckTime)}, field{"Digest", r.Report.Digest})
	})
	c.Flags().Var(cli.Number(&o.Tasks, 1, drill.MaxTasks), "tasks", fmt.Sprintf("number of failing tasks (max %d)", drill.MaxTasks))
	c.Flags().Var(cli.Duration(&o.Every, time.Second), "interval", "how often to poll")
	return c
}

func (p *program) newDrillCleanCommand() *cobra.Command {
	return newDrillCommand(p, help{use: "clean", short: "Cancel the remaining tasks of a drill"}, &drill.Options{}, drill.Clean,
		func(drill.Cleaned) { p.printDone("No task of the drill is open.") })
}
