package ctl

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/loop"
)

// watchTimeout is the time after which a watch gives up if the server does not respond. It is long
// enough for a restart.
const watchTimeout = time.Minute

// longWait limits the wait of one request if no progress is printed.
const longWait = 30 * time.Second

// watchFlags contains the flags of commands that watch a task.
type watchFlags struct {
	every   time.Duration // between two polls
	timeout time.Duration // 0: no timeout
	mute    bool          // print no progress
	reached bool          // the server has responded before
}

func (w *watchFlags) addTo(c *cobra.Command) {
	c.Flags().Var(cli.Duration(&w.every, 500*time.Millisecond), "interval", "how often to print changes while waiting")
	c.Flags().Var(cli.Duration(&w.timeout, 0), "timeout", "stop waiting after this time, with exit code 1 (default: never)")
}

func (p *program) newWatchCommand() *cobra.Command {
	var w watchFlags
	c := p.newCommand(help{
		use: "watch TASK", short: "Follow a task until it finishes",
		long: `Follow a task until it finishes, with a line for each change.

The exit code is 0 if the task is complete, and 1 if it was cancelled, needs an operator, or
--timeout has passed. A task in error is followed while it continues automatically: while its
step waits for a worker or for a running operation. With -o json only the final task is
printed.`,
		example: `  tasker-ctl task watch $TASK
  tasker-ctl task watch $TASK --timeout 5m -o json | jq .status`,
	}, func(ctx context.Context, a arguments) error { return p.watch(ctx, a.id[0], w) })
	w.addTo(c)
	return c
}

func (p *program) watch(ctx context.Context, task tasker.ID, w watchFlags) error {
	api := p.client
	w.every = max(w.every, 10*time.Millisecond)
	start := time.Now()
	answered := start
	v := taskViewer{program: p, api: api, mute: w.mute || p.output == "json", steps: map[string]string{}}
	for wait := time.Duration(0); ; wait = w.nextWait(v.mute, time.Since(start)) {
		begun := time.Now()
		t, over, err := v.poll(ctx, task, wait)
		switch {
		case err == nil:
			answered = time.Now()
		case tasker.CodeOf(err) != tasker.Unavailable || v.state == "" && !w.reached || time.Since(answered) > watchTimeout:
			return err
		}
		if over {
			return p.printOutcome(t, v.mute)
		}
		if w.timeout > 0 && time.Since(start) >= w.timeout {
			return tasker.Errorf(tasker.Internal, "task %s is %s after %s; it continues unwatched", task, cmp.Or(v.state, "not seen"), w.timeout)
		}
		if rest := w.every - time.Since(begun); (wait > 0 || err != nil) && rest > 0 && !loop.Sleep(ctx, rest) {
			return ctx.Err()
		}
	}
}

// nextWait returns how long the server may wait for the task in the next request. To print changes
// of steps, it must not be longer than the interval.
func (w *watchFlags) nextWait(mute bool, elapsed time.Duration) time.Duration {
	wait := w.every
	if mute {
		wait = max(wait, longWait)
	}
	if w.timeout > 0 {
		wait = min(wait, max(w.timeout-elapsed, 0))
	}
	return wait
}

// poll prints the changes of a task, and reports whether it is final or needs an operator. The
// server may wait for the task to be settled.
func (v *taskViewer) poll(ctx context.Context, task tasker.ID, wait time.Duration) (t apiv1.Task, over bool, err error) {
	if t, err = v.api.AwaitTask(ctx, task, wait); err != nil {
		return t, false, err
	}
	v.update(t)
	switch tasker.TaskState(t.Status) {
	case tasker.TaskComplete, tasker.TaskResolvedManually, tasker.TaskCancelled:
		return t, true, nil
	case tasker.TaskError:
		over, err = v.needsHuman(ctx, task, t)
		return t, over, err
	default:
		return t, false, nil
	}
}

// needsHuman reports whether a task in error continues only after an operator acts. Unclaimed steps
// are enqueued again when a worker is live, and a running operation releases its steps.
func (v *taskViewer) needsHuman(ctx context.Context, task tasker.ID, t apiv1.Task) (bool, error) {
	e, err := v.api.Explain(ctx, task)
	switch {
	case ctx.Err() != nil || tasker.CodeOf(err) == tasker.Unavailable:
		return false, err
	case err != nil:
		return true, nil //nolint:nilerr // an old server explains nothing
	case e.Fact == string(tasker.ConditionNoWorker), e.Fact == string(tasker.ConditionOperation) && e.Turn == string(tasker.NextServer):
		if v.waitReason != e.Sentence {
			v.waitReason = e.Sentence
			v.print("task", t.Status, e.Sentence)
		}
		return false, nil
	}
	again, err := v.api.Task(ctx, task) // it may have continued between the two requests
	return again.Status == t.Status && again.StateSince.Equal(t.StateSince), err
}

// printOutcome prints the result of a watch.
func (p *program) printOutcome(t apiv1.Task, mute bool) error {
	if p.output == "json" {
		if err := p.printJSON(t); err != nil {
			return err
		}
	}
	switch tasker.TaskState(t.Status) {
	case tasker.TaskComplete, tasker.TaskResolvedManually:
		if !mute {
			p.printDone("Task %s: %s of %s", clean(t.Status), formatTaskProgress(t), formatPlural(t.TotalSteps, "step"))
		}
		return nil
	case tasker.TaskError:
		if !mute {
			p.warn("Task %s needs an operator.", clean(t.TaskUUID))
			p.printHints(t)
		}
	default:
		if !mute {
			p.warn("Task %s is %s.", clean(t.TaskUUID), clean(t.Status))
		}
	}
	return cli.Exit(cli.ExitError)
}

// printHints suggests the next commands.
func (p *program) printHints(t apiv1.Task) {
	if t.DLQEntryUUID != nil {
		p.printHint("tasker-ctl dlq get %s", *t.DLQEntryUUID)
	}
	for _, s := range t.Steps {
		if s.CurrentState == string(tasker.StepError) {
			p.printHint("tasker-ctl task reset-step %s %s --reason …", t.TaskUUID, s.StepUUID)
		}
	}
}

// taskViewer prints the changes between two polls of a task.
type taskViewer struct {
	program    *program
	api        *client.Client
	mute       bool
	state      string
	waitReason string            // the last printed reason to wait
	steps      map[string]string // the last printed line of each
}

func (v *taskViewer) update(t apiv1.Task) {
	if t.Status != v.state {
		v.state = t.Status
		v.print("task", t.Status, formatTaskProgress(t)+" steps complete")
	}
	for _, s := range t.Steps {
		now := fmt.Sprintf("%s (attempt %s)", s.CurrentState, formatAttempts(s))
		before, known := v.steps[s.StepUUID]
		v.steps[s.StepUUID] = now
		if now == before || (!known && s.CurrentState == string(tasker.StepPending)) {
			continue
		}
		detail := ""
		if s.CurrentState == string(tasker.StepError) {
			detail = formatFailure(s.Error)
		}
		v.print("  "+clean(s.Name), now, detail)
	}
}

func (v *taskViewer) print(who, what, detail string) {
	if v.mute {
		return
	}
	line := fmt.Sprintf("%s  %s: %s", time.Now().UTC().Format("15:04:05"), who, clean(what))
	if detail = clean(detail); detail != "" {
		line += ", " + detail
	}
	fmt.Fprintln(v.program.out, line)
}
