package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

var operationCommand = group(help{
	use: "operation", short: "Repair many steps at once",
	long: `Repair many steps at once.

An operation applies one action to the steps of selected open investigations. A plan freezes
the steps and changes nothing. A dry run applies the action and rolls it back. After the start,
servers release the steps in waves, each after the previous one succeeded, and resolve the
investigations of steps that succeed. An operation pauses automatically when too many steps
fail again. It continues without a terminal.`,
	example: `  tasker-ctl operation run --case $CASE --reset --reason "gateway is back" --watch
  tasker-ctl operation list
  tasker-ctl operation show $OPERATION
  tasker-ctl operation resume $OPERATION --tolerate-cause --watch`,
},
	(*program).newOperationRunCommand, (*program).newOperationPlanCommand, (*program).newOperationDryRunCommand,
	watchable(endpoint.StartOperation, help{
		use: "start OPERATION", short: "Start a planned operation",
		example: `  tasker-ctl operation start $OPERATION --watch --plan-digest $(tasker-ctl operation show $OPERATION -o json | jq -r .plan_digest)`,
	}),
	watchable(endpoint.ResumeOperation, help{
		use: "resume OPERATION", short: "Resume a paused operation",
		example: `  tasker-ctl operation resume $OPERATION --watch
  tasker-ctl operation resume $OPERATION --tolerate-cause --watch
  tasker-ctl operation resume $OPERATION --tolerate 5%`,
	}),
	watchable(endpoint.GetOperation, help{
		use: "show OPERATION", short: "Show the progress of an operation",
		example: `  tasker-ctl operation show $OPERATION
  tasker-ctl operation show $OPERATION --watch
  tasker-ctl operation show $OPERATION -o json | jq .counts`,
	}),
	list(endpoint.ListOperations, help{
		use: "list", short: "List operations, newest first", limit: 50, quiet: true,
		example: `  tasker-ctl operation list
  tasker-ctl operation list --state paused --quiet
  tasker-ctl operation list --namespace payments`,
	}, "No operations.", "operation, state, act, items, verified, failed again, by, planned?, reason", formatOperationRow),
	plain(endpoint.ListOperationItems, help{
		use: "items OPERATION", short: "List the steps and results of an operation", limit: 100,
		example: `  tasker-ctl operation items $OPERATION --state failed_again
  tasker-ctl operation items $OPERATION --limit 1000 -o json | jq -r '.items[].task_uuid'`,
	}, (*program).printOperationItems),
	plain(endpoint.PauseOperation, help{use: "pause OPERATION", short: "Pause an operation; released steps continue"},
		(*program).printOperation),
	plain(endpoint.AbortOperation, help{use: "abort OPERATION", short: "Abort an operation: nothing more is released"},
		(*program).printOperation),
)

func formatOperationRow(o apiv1.Operation) []any {
	verified, failed := o.Counts[string(tasker.ItemVerified)], o.Counts[string(tasker.ItemFailedAgain)]
	return []any{o.OperationUUID, o.State, o.Act.Type, o.Items, verified, failed, o.PlannedBy, o.CreatedAt, o.Reason}
}

func (p *program) printOperationItems(l apiv1.OperationItemList) {
	header := "item, task, step?, state, outcome, wave, released, made task, failed now"
	printList(p, l.Items, "No items.", header, func(i tasker.OperationItem) []any {
		wave := "-"
		if i.Wave != nil {
			wave = formatInt(*i.Wave)
		}
		return []any{
			i.Ordinal, i.TaskUUID, orDash(i.StepUUID), i.State, orDash(i.Outcome), wave,
			orDash(i.ReleasedAt), orDash(i.MadeTask), orDash(i.FailureText),
		}
	})
	printNextPageFlag(p, "after", l.Next)
}

// planFlags contains the flags that describe a plan.
type planFlags struct {
	request  apiv1.PlanOperation
	rate     string
	timeout  time.Duration
	result   string
	metadata string
	key      string
}

// actFlags lists the flags that select the action.
var actFlags = []struct {
	act         tasker.Act
	flag, usage string
}{
	{tasker.ActReset, "reset", "retry each failed step with fresh attempts"},
	{tasker.ActResolve, "resolve", "skip each failed step; its task continues without the result"},
	{tasker.ActComplete, "complete", "complete each failed step with --result or --result-expression"},
	{tasker.ActAnswer, "answer", "answer each waiting external step with --result or --result-expression"},
	{tasker.ActCancel, "cancel", "cancel each task"},
	{tasker.ActCompensate, "compensate", "cancel each task and run its compensation"},
	{tasker.ActRecreate, "recreate", "replace each task with a new one on the latest template version"},
	{tasker.ActEnd, "end", "resolve investigations whose task has finished or recovered, or that an operator opened"},
}

func (g *planFlags) addTo(p *program, c *cobra.Command) {
	r := &g.request
	r.Guards, r.Limit = &apiv1.OperationGuards{}, tasker.MaxOperationItems
	for _, part := range []any{r, &r.Act, &r.Select, r.Guards} {
		p.addBodyFlags(c, part)
	}
	f := c.Flags()
	for _, a := range actFlags {
		f.Bool(a.flag, false, a.usage)
	}
	f.StringVar(&g.result, "result", "", "result for all steps (with --complete or --answer): JSON, @file or @-")
	f.StringVar(&g.metadata, "metadata", "", "metadata of the result (with --complete): a JSON object, @file or @-")
	reasons, states := cli.Strings(tasker.Reasons()), cli.Strings(tasker.TaskStates())
	f.Var(cli.Choice(&r.Select.DLQReason, reasons), "dlq-reason", "select by reason: "+cli.Join(reasons))
	f.Var(cli.Choice(&r.Select.CurrentState, states), "state", "select by current state of the task")
	f.StringVar(&g.rate, "rate", "", "maximum rate of releases, such as 200/s or 30/m (default: no limit)")
	f.Var(cli.Duration(&g.timeout, 0), "wave-timeout", "pause if a wave takes longer (default 15m)")
	f.Var(cli.Number(&r.Limit, 1, tasker.MaxOperationItems), "limit", "maximum number of steps, most urgent first")
	f.Bool("skip-overlap", false, "skip steps that belong to another operation")
	f.StringVar(&g.key, "request-key", "", "idempotency key of the request")
}

func (p *program) planOperation(ctx context.Context, g *planFlags, ids []string) (o apiv1.Operation, err error) {
	if err := p.completePlan(g, ids); err != nil {
		return o, err
	}
	return p.client.PlanOperation(ctx, g.request, g.key)
}

// completePlan fills in the request of a plan from the flags and arguments.
func (p *program) completePlan(g *planFlags, ids []string) (err error) {
	r := &g.request
	var chosen []string
	for _, a := range actFlags {
		if p.isSet(a.flag) {
			r.Act.Type, chosen = string(a.act), append(chosen, "--"+a.flag)
		}
	}
	if len(chosen) != 1 {
		return cli.Usagef("set exactly one of --reset, --resolve, --complete, --answer, --cancel, --compensate, --recreate and --end%s", formatChosen(chosen))
	}
	computed := r.Act.ResultExpression != ""
	if g.result != "" && computed {
		return cli.Usagef("set only one of --result and --result-expression")
	}
	if tasker.Act(r.Act.Type).TakesResult() && !computed {
		if err := requireValue("result", g.result, "dependent steps receive it"); err != nil {
			return err
		}
	}
	if r.Act.Result, err = p.readJSON("result", g.result); err != nil {
		return err
	}
	if r.Act.Metadata, err = p.readJSONObject("metadata", g.metadata); err != nil {
		return err
	}
	if r.Select.IDs, err = p.readIDs(ids); err != nil {
		return err
	}
	if r.RatePerMinute, err = readRate(g.rate); err != nil {
		return err
	}
	r.Guards.WaveTimeoutSeconds = int(g.timeout / time.Second)
	if p.isSet("skip-overlap") {
		r.Overlap = "skip"
	}
	return nil
}

func formatChosen(flags []string) string {
	if len(flags) == 0 {
		return ""
	}
	return ", not " + strings.Join(flags, " and ")
}

// readIDs parses ids of investigations or tasks. It reads them from standard input if the only
// argument is "-".
func (p *program) readIDs(args []string) ([]string, error) {
	if !slices.Equal(args, []string{"-"}) {
		for _, text := range args {
			if _, err := parseID("ID", text); err != nil {
				return nil, err
			}
		}
		return args, nil
	}
	doc, err := p.readInput("-")
	if err != nil {
		return nil, err
	}
	ids := []string{}
	lines := bufio.NewScanner(bytes.NewReader(doc))
	for n := 1; lines.Scan(); n++ {
		for text := range strings.FieldsSeq(lines.Text()) {
			if _, err := parseID(fmt.Sprintf("line %d of standard input", n), text); err != nil {
				return nil, err
			}
			ids = append(ids, text)
		}
	}
	if len(ids) == 0 || lines.Err() != nil {
		return nil, cli.Usagef("no ids in standard input: write ids of investigations or tasks")
	}
	return ids, nil
}

// readRate parses a rate and returns steps per minute.
func readRate(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	const most = 60_000
	number, unit, _ := strings.Cut(text, "/")
	each := map[string]int{"s": 60, "sec": 60, "m": 1, "min": 1}[unit]
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || each == 0 || n > most/each {
		return 0, cli.Usagef("--rate must be from 1/m to 1000/s, such as 200/s, not %q", text)
	}
	return n * each, nil
}

func (p *program) newOperationPlanCommand() *cobra.Command {
	var g planFlags
	c := newRequestCommand(p, help{
		use: "plan [ID...] --reason TEXT", short: "Create an operation without starting it",
		long: `Create an operation without starting it. Its steps are frozen; nothing else changes.

The failed step of each selected open investigation becomes an item. Arguments narrow the
selection to these investigations or tasks; "-" reads them from standard input. A plan that is
not started within 30 minutes is aborted.`,
		example: `  tasker-ctl operation plan --case $CASE --reset --reason "gateway is back"
  tasker-ctl operation plan --case $CASE --complete --result-expression '{"paid": context.amount}' --reason "paid by hand"
  tasker-ctl operation plan --namespace orders --failed-on 1.5.0 --failed-since 2026-01-31T02:10:00Z --reset --reason "1.5.1 is out"
  tasker-ctl dlq queue --text "HTTP 503" --quiet | tasker-ctl operation plan - --resolve --reason "not needed any more"`,
	}, func(ctx context.Context, _ *client.Client, a arguments) (apiv1.Operation, error) {
		return p.planOperation(ctx, &g, a.text)
	}, p.printOperation)
	g.addTo(p, c)
	return c
}

func (p *program) printOperation(o apiv1.Operation) {
	mark := p.paint(p.out, green, "✓")
	if o.Paused != nil {
		mark = p.paint(p.out, yellow, "⚠")
	}
	fmt.Fprintf(p.out, "%s Operation %s is %s\n", mark, clean(o.OperationUUID), clean(o.State))
	items := formatInt(o.Items) + ", complete"
	if !o.Complete {
		items = formatInt(o.Items) + ", cut at the limit"
	}
	fields := []field{
		{"Act", o.Act.Type}, {"Result", o.Act.ResultExpression}, {"Reason", o.Reason}, {"Planned by", o.PlannedBy},
		{"Started by", o.StartedBy}, {"Namespaces", o.Namespaces}, {"Items", items},
	}
	for _, state := range tasker.ItemStates() {
		n := o.Counts[string(state)]
		fields = append(fields, field{"  " + string(state), when(n > 0, n)})
	}
	fields = append(fields, field{"Without a failed step", when(o.WithoutStep > 0, o.WithoutStep)})
	for _, other := range o.Overlapping {
		text := fmt.Sprintf("%d, by %s of %s", other.Items, other.OperationUUID, other.PlannedBy)
		fields = append(fields, field{"In another operation", text})
	}
	arrived := orDefault(o.ArrivedSince, 0)
	planned := o.State == string(tasker.OperationPlanned)
	resume := "tasker-ctl operation resume " + o.OperationUUID
	tolerable := o.Paused != nil && len(o.Paused.Causes) > 0
	p.printFields("  ", append(fields,
		field{"New since the plan", when(arrived > 0, formatInt(arrived)+", not included")},
		field{"Wave", formatWave(o)}, field{"Rate", formatRate(o.RatePerMinute)},
		field{"Workers", when(o.Guards.WorkerAtLeast != "", o.Guards.WorkerAtLeast+" or newer")},
		field{"Tolerates", formatTolerance(o)}, field{"Paused", formatPause(o.Paused)},
		field{"Expires", when(planned, o.ExpiresAt)}, field{"Plan digest", when(planned, o.PlanDigest)},
		field{"Resume", when(o.Paused != nil, resume+" --watch")},
		field{"Resume and tolerate this cause", when(tolerable, resume+" --tolerate-cause --watch")},
		field{"Started", o.StartedAt}, field{"Ended", o.EndedAt},
	)...)
}

func formatWave(o apiv1.Operation) string {
	texts := make([]string, 0, len(o.Waves)+1)
	for _, n := range o.Waves {
		texts = append(texts, formatInt(n))
	}
	texts = append(texts, "rest")
	return fmt.Sprintf("%d of %d (%s)", o.Wave, len(texts), strings.Join(texts, ", "))
}

func formatTolerance(o apiv1.Operation) string {
	text := o.Guards.Tolerate + " of a wave"
	if n := len(o.Tolerated); n > 0 {
		text += ", and all failures of " + formatPlural(n, "cause")
	}
	return text
}

func formatRate(perMinute int) string {
	switch {
	case perMinute == 0:
		return ""
	case perMinute%60 == 0:
		return fmt.Sprintf("%d/s", perMinute/60)
	default:
		return fmt.Sprintf("%d/m", perMinute)
	}
}

// pauseTexts describes the failures for which a guard pauses an operation.
var pauseTexts = map[tasker.PauseReason]string{
	tasker.PausedSameCause: "failed with one cause", tasker.PausedNewCause: "failed with a cause that was not selected",
	tasker.PausedWaveFailed: "failed in the wave", tasker.PausedWaveTimeout: "did not succeed in time",
}

func formatPause(pause *tasker.OperationPause) string {
	if pause == nil {
		return ""
	}
	text := string(pause.For)
	switch reason := pause.For; {
	case reason == tasker.PausedByOperator:
		text = "by " + pause.By
	case reason == tasker.PausedNoWorker:
		text = "no live worker for the steps"
	case pauseTexts[reason] != "":
		text = formatPlural(pause.Failures, "step") + " " + pauseTexts[reason]
	}
	if pause.FailureText != "" {
		text += ", such as " + strconv.Quote(pause.FailureText)
	}
	if pause.TaskUUID != nil {
		text += " (task " + pause.TaskUUID.String() + ")"
	}
	return text + ", at " + formatTime(&pause.At)
}
