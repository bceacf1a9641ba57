// Command conformance tests whether a worker SDK follows the worker protocol. It starts the
// conformance program of the SDK against a scripted server, once per case.
//
//	go run ./sdk/conformance -- python -m conformance_worker
//	go run ./sdk/conformance --real --tasker ./tasker -- python -m conformance_worker
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tasker.example/tasker/sdk/conformance/cases"
	"tasker.example/tasker/sdk/conformance/live"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	list     bool
	pattern  *regexp.Regexp
	parallel int
	verbose  bool
	scale    float64
	command  []string

	real     bool
	polyglot bool
	tasker   string
	tasks    int
	kills    int
	seed     uint64
}

var errCommand = errors.New("the command is missing: add it after --, such as -- python -m conformance_worker")

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	selected := selectCases(o.pattern)
	switch {
	case o.real, o.polyglot:
		return runReal(ctx, o, out)
	case len(selected) == 0:
		return fmt.Errorf("no case matches %q: list all with --list", o.pattern)
	case o.list:
		printCases(out, selected)
		return nil
	case len(o.command) == 0:
		return errCommand
	}
	return report(out, o, runCases(ctx, selected, o))
}

func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.list, "list", false, "list the cases and their rules")
	pattern := flags.String("case", "", "run only the cases that match this regular `expression`")
	flags.IntVar(&o.parallel, "parallel", 4, "number of concurrent cases")
	flags.BoolVar(&o.verbose, "v", false, "print each passed case")
	flags.Float64Var(&o.scale, "scale", 1, "multiply all times, for slow machines")
	flags.BoolVar(&o.real, "real", false, "run the program against a real server behind a faulty proxy")
	flags.BoolVar(&o.polyglot, "polyglot", false, "run workers in several languages against a real server; add -- and a command for each")
	flags.StringVar(&o.tasker, "tasker", "tasker", "`path` of the binary of the server, for --real and --polyglot")
	flags.IntVar(&o.tasks, "tasks", 0, "number of tasks, for --real (default 300) and --polyglot (default 1000)")
	flags.IntVar(&o.kills, "kills", 0, "number of faults of workers, for --real (default 4) and --polyglot (default 60)")
	flags.Uint64Var(&o.seed, "seed", 1, "selects the faults, for --real and --polyglot")
	if err = flags.Parse(args); err != nil {
		return o, err
	}
	o.command = flags.Args()
	o.pattern, err = regexp.Compile(*pattern)
	if err == nil && o.parallel < 1 {
		err = fmt.Errorf("invalid --parallel %d: must be at least 1", o.parallel)
	}
	return o, err
}

func runReal(ctx context.Context, o options, out io.Writer) error {
	if len(o.command) == 0 {
		return errCommand
	}
	log := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	options := live.Options{Tasker: o.tasker, Command: o.command, Tasks: o.tasks, Kills: o.kills, Seed: o.seed, Log: log}
	if o.polyglot {
		commands := split(o.command)
		if slices.ContainsFunc(commands, func(c []string) bool { return len(c) == 0 }) {
			return errCommand
		}
		return live.RunPolyglot(ctx, options, commands)
	}
	return live.Run(ctx, options)
}

// split returns the commands between the words --.
func split(words []string) (commands [][]string) {
	for {
		i := slices.Index(words, "--")
		if i < 0 {
			return append(commands, words)
		}
		commands, words = append(commands, words[:i]), words[i+1:]
	}
}

func selectCases(pattern *regexp.Regexp) (selected []cases.Case) {
	for _, c := range cases.All() {
		if pattern.MatchString(c.Name) {
			selected = append(selected, c)
		}
	}
	return selected
}

func printCases(out io.Writer, list []cases.Case) {
	section := ""
	for _, c := range list {
		if c.Section != section {
			section = c.Section
			fmt.Fprintf(out, "\n%s (%s)\n", section, c.Anchor())
		}
		fmt.Fprintf(out, "  %-44s %s\n", c.Name, c.Rule)
	}
	fmt.Fprintf(out, "\n%d cases\n", len(list))
}

// runCases runs the cases concurrently. The channel delivers their outcomes as they end.
func runCases(ctx context.Context, list []cases.Case, o options) <-chan cases.Outcome {
	next, outcomes := make(chan cases.Case), make(chan cases.Outcome)
	var running sync.WaitGroup
	for range o.parallel {
		running.Go(func() {
			for c := range next {
				outcomes <- cases.Execute(ctx, c, cases.Options{Command: o.command, Scale: o.scale})
			}
		})
	}
	go func() {
		for _, c := range list {
			if ctx.Err() == nil {
				next <- c
			}
		}
		close(next)
		running.Wait()
		close(outcomes)
	}()
	return outcomes
}

// report prints the outcomes and returns an error if a case failed.
func report(out io.Writer, o options, outcomes <-chan cases.Outcome) error {
	began, passed, broken := time.Now(), 0, []string{}
	for x := range outcomes {
		if x.Failure != "" {
			broken = append(broken, x.Name)
			fmt.Fprint(out, describe(x))
			continue
		}
		passed++
		if o.verbose {
			fmt.Fprintf(out, "ok   %-44s %.1f s\n", x.Name, x.Took.Seconds())
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed in %.1f s\n", passed, len(broken), time.Since(began).Seconds())
	if len(broken) > 0 {
		return fmt.Errorf("%d cases failed: %s", len(broken), strings.Join(broken, ", "))
	}
	return nil
}

// describe returns the report of a failed case.
func describe(x cases.Outcome) string {
	return fmt.Sprintf("FAIL %s (%.1f s)\n  rule: %s\n  see: %s\n  observed: %s\n  requests:\n%s  output of the program:\n%s\n",
		x.Name, x.Took.Seconds(), x.Rule, x.Anchor(), x.Failure, indent(x.Transcript), indent(x.Stderr))
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}
