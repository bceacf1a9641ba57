package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/loop"
)

// The exit codes of a watched run. Other errors exit with 1, or with 2 for an invalid command line.
const (
	exitFailedAgain = 3 // some steps failed again
	exitSkipped     = 4 // some were skipped, none failed again
	exitPaused      = 5 // the operation was paused or aborted
)

func (p *program) newOperationRunCommand() *cobra.Command {
	var g planFlags
	var r runFlags
	c := p.newCommand(help{
		use: "run [ID...] --reason TEXT", short: "Plan, confirm and start an operation",
		long: `Plan an operation, show the plan and a dry run, and start it after confirmation. Without a
terminal, --yes is required. Servers continue the operation if this command is interrupted.
The exit code is 0 if it was started, and 1 if not.

` + watchHelp,
		example: `  tasker-ctl operation run --case $CASE --reset --reason "gateway is back" --watch
  tasker-ctl operation run --namespace orders --text "HTTP 503" --reset --reason "gateway is back" --waves 1,50 --rate 20/s --yes
  tasker-ctl operation run --case $CASE --reset --reason "gateway is back" --dry-run`,
	}, func(ctx context.Context, a arguments) error { return wrapRunError(p.runOperation(ctx, &g, r, a.text)) })
	g.addTo(p, c)
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "start without confirmation")
	c.Flags().BoolVar(&r.dry, "dry-run", false, "plan and simulate, then abort")
	r.addTo(c)
	return c
}

// runFlags contains the flags of operation run.
type runFlags struct {
	yes, dry bool
	followFlags
}

// followFlags contains the flags of commands that can follow an operation.
type followFlags struct {
	watch bool
	every time.Duration
}

func (w *followFlags) addTo(c *cobra.Command) {
	c.Flags().BoolVarP(&w.watch, "watch", "w", false, "follow the operation until it ends or pauses")
	c.Flags().Var(cli.Duration(&w.every, time.Second), "interval", "how often to poll with --watch")
}

const watchHelp = `With --watch the command follows the operation until it ends or pauses.

Exit codes with --watch:
  0  all steps are verified
    1  the request or the watch failed
    2  usage error
  3  some steps failed again
  4  some steps were skipped, none failed again
    5  paused or aborted; the output shows the reason and how to resume`

// watchable returns a command that changes or reads an operation and can follow it.
func watchable[B any](e endpoint.Of[endpoint.None, B, apiv1.Operation], h help) maker {
	h.long = h.short + ".\n\n" + watchHelp
	return func(p *program) *cobra.Command {
		var w followFlags
		r := newRequest(e)
		c := p.newCommand(h, func(ctx context.Context, a arguments) error {
			o, err := r.send(ctx, p.client, a)
			switch {
			case err == nil && w.watch:
				return wrapRunError(p.watchOperation(ctx, a.id[0], w.every))
			case err == nil:
				return p.show(o, func() { p.printOperation(o) })
			case w.watch:
				return wrapRunError(err)
			default:
				return err
			}
		})
		p.addBodyFlags(c, &r.body)
		w.addTo(c)
		return c
	}
}

// wrapRunError makes an error exit with 1 if its usual exit code means something else for a watched
// run.
func wrapRunError(err error) error {
	if code := exitCode(err); code != exitNotFound && code != exitConflict && code != exitUnreachable || errors.As(err, new(cli.Exit)) {
		return err
	}
	return runFailure{err}
}

// runFailure is an error for which the program exits with 1.
type runFailure struct{ error }

// Unwrap returns the error.
func (f runFailure) Unwrap() error { return f.error }

func (p *program) runOperation(ctx context.Context, g *planFlags, r runFlags, ids []string) error {
	if !r.yes && !r.dry && (!p.isTerminal() || len(ids) == 1 && ids[0] == "-") {
		return cli.Usagef("no terminal for confirmation: add --yes or --dry-run")
	}
	o, err := p.planOperation(ctx, g, ids)
	if err != nil {
		return err
	}
	id, err := parseResponseID("operation_uuid", o.OperationUUID)
	if err != nil {
		return err
	}
	by := g.request.PlannedBy
	yes, err := p.confirmRun(ctx, r, o, id)
	if err != nil || !yes {
		return p.abandon(ctx, id, by, err)
	}
	switch o, err = p.client.StartOperation(ctx, id, apiv1.StartOperation{PlanDigest: o.PlanDigest, By: by}); {
	case err != nil && wasRefused(err):
		return p.abandon(ctx, id, by, err)
	case err != nil:
		return p.warnIfInterrupted(ctx, fmt.Errorf("%w; operation %s may have started: check it with tasker-ctl operation show %s", err, id, id))
	}
	if !r.watch {
		return p.show(o, func() { p.printOperation(o) })
	}
	return p.watchOperation(ctx, id, r.every)
}

// confirmRun reports whether to start a plan. Unless --yes is set, it shows the plan and a dry run and
// asks for confirmation.
func (p *program) confirmRun(ctx context.Context, r runFlags, o apiv1.Operation, id tasker.ID) (bool, error) {
	if r.yes && !r.dry {
		return true, nil
	}
	tried, err := p.dryRun(ctx, id)
	if err != nil {
		return false, err
	}
	if err := p.showRun(r, o, tried); err != nil || r.dry {
		return false, err
	}
	if !p.confirm(ctx, fmt.Sprintf("Start it for %s?", formatPlural(o.Items, "step"))) {
		return false, tasker.Errorf(tasker.Invalid, "not started")
	}
	return true, nil
}

// abortTimeout limits the abort of a plan that is not started, even after an interruption.
const abortTimeout = 5 * time.Second

// abandon aborts a plan that is not started, to free its steps for other plans. It returns why, or
// the error of the abort.
func (p *program) abandon(ctx context.Context, id tasker.ID, by string, why error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, err := p.client.AbortOperation(limited, id, by)
	switch {
	case why == nil:
		return err
	case err == nil:
		return fmt.Errorf("%w; the plan was aborted", why)
	default:
		return p.warnIfInterrupted(ctx, fmt.Errorf("%w; operation %s is still planned: %w", why, id, err))
	}
}

// wasRefused reports whether err means that the server rejected a request. After other errors, the
// request may have succeeded.
func wasRefused(err error) bool {
	refusals := []tasker.Code{tasker.Invalid, tasker.NotFound, tasker.Conflict, tasker.Unauthorized, tasker.Forbidden}
	return slices.Contains(refusals, tasker.CodeOf(err))
}

// warnIfInterrupted returns err. If ctx is cancelled, it also prints err, because the program will
// report only that it was interrupted.
func (p *program) warnIfInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		p.warn("%s", clean(err.Error()))
	}
	return err
}

// showRun prints a plan and its dry run. With -o json, it prints them only if --dry-run is set.
func (p *program) showRun(r runFlags, o apiv1.Operation, tried tasker.DryRun) error {
	if p.output == "json" {
		if !r.dry {
			return nil
		}
		return p.printJSON(struct {
			Operation apiv1.Operation `json:"operation"`
			DryRun    tasker.DryRun   `json:"dry_run"`
		}{o, tried})
	}
	p.printOperation(o)
	p.printDryRun(tried)
	return nil
}

func (p *program) isTerminal() bool {
	file, ok := p.in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks a yes-or-no question. It returns false if ctx is cancelled.
func (p *program) confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(p.err, "%s [y/N] ", question)
	line, err := cli.ReadLine(ctx, p.in)
	if err != nil {
		fmt.Fprintln(p.err)
		return false
	}
	line = strings.ToLower(line)
	return line == "y" || line == "yes"
}

// watchOperation follows an operation until all of its items are settled or it pauses.
func (p *program) watchOperation(ctx context.Context, id tasker.ID, every time.Duration) error {
	answered, last := time.Now(), ""
	for {
		o, err := p.client.Operation(ctx, id)
		switch {
		case err == nil:
			answered = time.Now()
		case tasker.CodeOf(err) != tasker.Unavailable || time.Since(answered) > watchTimeout:
			return err
		}
		if line := formatProgress(o); err == nil && line != last && p.output != "json" {
			fmt.Fprintln(p.out, line)
			last = line
		}
		if err == nil && (o.SettledAt != nil || o.State == string(tasker.OperationPaused)) {
			return p.finishRun(o)
		}
		if !loop.Sleep(ctx, max(every, 10*time.Millisecond)) {
			return ctx.Err()
		}
	}
}

func formatProgress(o apiv1.Operation) string {
	parts := []string{fmt.Sprintf("wave %s", formatWave(o))}
	for _, state := range tasker.ItemStates() {
		if n := o.Counts[string(state)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(state), "_", " ")))
		}
	}
	return clean(o.State) + ": " + strings.Join(parts, ", ")
}

// finishRun prints the result of a run and returns its exit code.
func (p *program) finishRun(o apiv1.Operation) error {
	if err := p.show(o, func() { p.printOperation(o) }); err != nil {
		return err
	}
	switch {
	case o.State != string(tasker.OperationDone):
		return cli.Exit(exitPaused)
	case o.Counts[string(tasker.ItemFailedAgain)] > 0:
		return cli.Exit(exitFailedAgain)
	case o.Counts[string(tasker.ItemVerified)] < int64(o.Items):
		return cli.Exit(exitSkipped)
	default:
		return nil
	}
}

func (p *program) newOperationDryRunCommand() *cobra.Command {
	return newRequestCommand(p, help{use: "dry-run OPERATION", short: "Simulate an operation"},
		func(ctx context.Context, _ *client.Client, a arguments) (tasker.DryRun, error) {
			return p.dryRun(ctx, a.id[0])
		}, p.printDryRun)
}

// dryRun requests batch after batch and adds up the results.
func (p *program) dryRun(ctx context.Context, operation tasker.ID) (tasker.DryRun, error) {
	all := tasker.DryRun{Refused: []tasker.DryRunRefusal{}, Enqueues: map[string]int{}}
	for next := new(int); next != nil; {
		part, err := p.client.DryRunOperation(ctx, operation, apiv1.DryRunOperation{After: *next})
		if err != nil {
			return all, err
		}
		all.LookedAt, all.WouldRelease, all.Busy = all.LookedAt+part.LookedAt, all.WouldRelease+part.WouldRelease, all.Busy+part.Busy
		for name, n := range part.Enqueues {
			all.Enqueues[name] += n
		}
		for _, f := range part.Refused {
			i := slices.IndexFunc(all.Refused, func(known tasker.DryRunRefusal) bool { return known.Outcome == f.Outcome })
			if i < 0 {
				all.Refused = append(all.Refused, f)
				continue
			}
			all.Refused[i].Items += f.Items
		}
		if len(all.Results) == 0 {
			all.Results = part.Results
		}
		all.Limitations, next = part.Limitations, part.Next
	}
	return all, nil
}

func (p *program) printDryRun(r tasker.DryRun) {
	p.printDone("Of %s, %d would be released", formatPlural(r.LookedAt, "item"), r.WouldRelease)
	fields := []field{{"Busy, retried later", r.Busy}}
	for _, f := range r.Refused {
		sample := make([]string, len(f.Sample))
		for i, task := range f.Sample {
			sample[i] = task.String()
		}
		fields = append(fields, field{"Would be skipped as " + f.Outcome, fmt.Sprintf("%d, such as %s", f.Items, strings.Join(sample, ", "))})
		if f.Reason != "" {
			fields = append(fields, field{"  such as", f.Reason})
		}
	}
	for _, d := range r.Results {
		text := string(d.Result)
		if text == "" {
			text = fmt.Sprintf("%d bytes", d.Bytes)
		}
		fields = append(fields, field{"Result of task " + d.TaskUUID.String(), text})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Enqueues)) {
		fields = append(fields, field{"Would become ready: " + name, formatInt(r.Enqueues[name])})
	}
	p.printFields("  ", append(fields, field{"Not simulated", strings.Join(r.Limitations, "; ")})...)
}
