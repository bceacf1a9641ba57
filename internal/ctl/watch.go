package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/loop"
)

// patience is how long a watch waits for a server that does not answer: long enough
// for a restart.
const patience = time.Minute

// A watching has the flags of watching a task.
type watching struct {
	every   time.Duration // between two polls
	timeout time.Duration // 0 means never
	mute    bool          // no progress, only the exit code
}

func (w *watching) flags(c *cobra.Command) {
	c.Flags().DurationVar(&w.every, "interval", 500*time.Millisecond, "how often to poll while waiting")
	c.Flags().DurationVar(&w.timeout, "timeout", 0, "give up waiting after this long, with exit code 1 (default: never)")
}

func (p *program) watchCommand() *cobra.Command {
	var w watching
	c := p.command(help{
		use:   "watch TASK",
		short: "Follow a task until it ends",
		long: `Follow a task until it ends, with a line for each change.

Exit code 0 means that it is complete, 1 that it was cancelled, that it needs a
human, or that --timeout has passed. With -o json only the task, as it is in the
end, is printed.`,
		example: `  tasker-ctl task watch $TASK
  tasker-ctl task watch $TASK --timeout 5m -o json | jq .status`,
	}, func(ctx context.Context, a arguments) error { return p.watch(ctx, a.id[0], w) })
	w.flags(c)
	return c
}

// watch polls a task until it ends.
func (p *program) watch(ctx context.Context, task tasker.ID, w watching) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	w.every = max(w.every, 10*time.Millisecond)
	start := time.Now()
	answered := start
	v := viewer{program: p, mute: w.mute || p.output == "json", steps: map[string]string{}}
	for {
		t, err := api.Task(ctx, task)
		switch {
		case err == nil:
			answered = time.Now()
			v.update(t)
		case tasker.CodeOf(err) != tasker.Unavailable || v.state == "" || time.Since(answered) > patience:
			return err
		}
		if ended(t.Status) {
			return p.outcome(t, v.mute)
		}
		if w.timeout > 0 && time.Since(start) >= w.timeout {
			return tasker.Errorf(tasker.Internal, "task %s is %s after %s; it continues unwatched", task, v.state, w.timeout)
		}
		if !loop.Sleep(ctx, w.every) {
			return ctx.Err()
		}
	}
}

// ended reports whether a task will not change by itself. One in error can go on,
// but only when a human does something.
func ended(state string) bool {
	switch tasker.TaskState(state) {
	case tasker.TaskComplete, tasker.TaskResolvedManually, tasker.TaskCancelled, tasker.TaskError:
		return true
	default:
		return false
	}
}

// outcome prints how a watch ended.
func (p *program) outcome(t apiv1.Task, mute bool) error {
	if p.output == "json" {
		if err := p.json(t); err != nil {
			return err
		}
	}
	switch tasker.TaskState(t.Status) {
	case tasker.TaskComplete, tasker.TaskResolvedManually:
		if !mute {
			p.done("Task %s: %s of %s", clean(t.Status), progress(t), plural(t.TotalSteps, "step"))
		}
		return nil
	case tasker.TaskError:
		if !mute {
			p.warn("Task %s needs a human.", clean(t.TaskUUID))
			p.printHints(t)
		}
	default:
		if !mute {
			p.warn("Task %s is %s.", clean(t.TaskUUID), clean(t.Status))
		}
	}
	return cli.Exit(cli.ExitError)
}

// printHints prints the commands that help next.
func (p *program) printHints(t apiv1.Task) {
	if t.DLQEntryUUID != nil {
		p.hint("tasker-ctl dlq get %s", *t.DLQEntryUUID)
	}
	for _, s := range t.Steps {
		if s.CurrentState == string(tasker.StepError) {
			p.hint("tasker-ctl task reset-step %s %s --reason …", t.TaskUUID, s.StepUUID)
		}
	}
}

// A viewer prints what changed between two polls of a task.
type viewer struct {
	program *program
	mute    bool
	state   string
	steps   map[string]string // what was printed of each
}

func (v *viewer) update(t apiv1.Task) {
	if t.Status != v.state {
		v.state = t.Status
		v.print("task", t.Status, progress(t)+" steps complete")
	}
	for _, s := range t.Steps {
		now := fmt.Sprintf("%s (attempt %s)", s.CurrentState, attempts(s))
		before, known := v.steps[s.StepUUID]
		v.steps[s.StepUUID] = now
		if now == before || (!known && s.CurrentState == string(tasker.StepPending)) {
			continue
		}
		detail := ""
		if s.CurrentState == string(tasker.StepError) {
			detail = failureText(s.Error)
		}
		v.print("  "+clean(s.Name), now, detail)
	}
}

// print writes one line about the task or one of its steps.
func (v *viewer) print(who, what, detail string) {
	if v.mute {
		return
	}
	line := fmt.Sprintf("%s  %s: %s", time.Now().UTC().Format("15:04:05"), who, clean(what))
	if detail = clean(detail); detail != "" {
		line += ", " + detail
	}
	fmt.Fprintln(v.program.out, line)
}
