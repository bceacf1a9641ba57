package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/loop"
)

var taskCommand = group(help{
	use: "task", short: "Submit, watch and repair tasks",
	example: `  tasker-ctl task list --status error
  tasker-ctl task steps $TASK
  tasker-ctl task reset-step $TASK $STEP --reason "gateway is back"`,
}, slices.Concat(taskViewCommands, taskChangeCommands, stepCommands, humanStepCommands)...)

// taskViewCommands are the commands of group task that show tasks.
var taskViewCommands = []maker{
	plain(endpoint.ListTasks, help{
		use: "list", short: "List tasks, newest first", limit: 20, quiet: true,
		example: `  tasker-ctl task list --status error --namespace orders
  tasker-ctl task list --tag vip --created-after 2026-01-31T00:00:00Z
  tasker-ctl task list --correlation-id "$REQUEST_ID"
  tasker-ctl task list --dead-lettered
  tasker-ctl task list --parent $TASK
  tasker-ctl task list --status error --quiet | xargs -n1 tasker-ctl task steps`,
	}, (*program).printTasks),
	list(endpoint.ListAttributes, help{
		use: "attributes", short: "List search attributes", limit: 100,
		example: `  tasker-ctl task attributes --namespace orders`,
	}, "No attributes.", "attribute, type, namespace, templates", func(a tasker.Attribute) []any {
		return []any{a.Name, string(a.Type), a.Namespace, a.Templates}
	}),
	plain(endpoint.GetTask, help{
		use: "get TASK", short: "Show a task",
		example: `  tasker-ctl task get 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task get $TASK -o json | jq -r .status`,
	}, (*program).printTask),
	plain(endpoint.GetTaskTree, help{
		use: "tree TASK", short: "Show parent and child tasks",
		long: `Show a task with its parent tasks and the tasks that its steps started.

The task itself is marked with *. After a step, (waits) means that the step is waiting for the
child task, and (before) that the step was reset and has started another child since.`,
		example: `  tasker-ctl task tree $TASK
  tasker-ctl task tree $TASK -o json | jq -r '.tasks[] | select(.waited_for) | .task.task_uuid'`,
	}, (*program).printTree),
	list(endpoint.ListTaskRequests, help{
		use: "requests", short: "List tasks that were requested in SQL", limit: 50,
		long: `List tasks that were requested with the SQL function tasker.create_task and are not created:
for a moment because no server has created them yet, and longer because a server refused
them.`,
		example: "  tasker-ctl task requests --refused",
	}, "No requests.", "task, template, requested, refused, error", func(r tasker.TaskRequest) []any {
		text := "-"
		if r.ErrorCode != "" && r.ErrorMessage != "" {
			text = string(r.ErrorCode + ": " + r.ErrorMessage)
		}
		return []any{r.TaskUUID.String(), r.Namespace + "/" + r.Name, r.CreatedAt, orDash(r.RefusedAt), text}
	}),
	plain(endpoint.DeleteTaskRequest, help{use: "dismiss TASK", short: "Delete the request for a task"},
		func(p *program, _ endpoint.None) { p.printDone("Request deleted.") }),
	(*program).newTransitionsCommand,
	(*program).newWatchCommand,
}

func (p *program) printTasks(l apiv1.TaskList) {
	printList(p, l.Tasks, "No tasks.", "task, template, version, state, steps, dead letter, created", func(t tasker.Task) []any {
		return []any{
			t.UUID, t.Namespace + "/" + t.Name, t.Version, formatState(t), formatTaskProgress(t), formatDeadLetter(t), t.CreatedAt,
		}
	})
	page := l.Pagination
	p.quiet = false // the hint is printed in any case
	if printNextPageFlag(p, "before", page.NextBefore); page.NextBefore == nil {
		p.printNextPage(apiv1.Pagination{Offset: page.Offset, Count: page.Count, HasMore: page.HasMore})
	}
}

// formatDeadLetter returns the reason of a task's investigation, followed by the mark if the task
// recovered or failed permanently.
func formatDeadLetter(t tasker.Task) string {
	reason := orDash(t.MarkReason)
	if t.Mark == tasker.MarkPermanentlyFailed || t.Mark == tasker.MarkRecovered {
		reason += " (" + strings.ReplaceAll(string(t.Mark), "_", " ") + ")"
	}
	return reason
}

// formatState returns the state of a task with its phase, if any.
func formatState(t tasker.Task) string {
	if t.Phase != "" {
		return string(t.State) + ", " + string(t.Phase)
	}
	return string(t.State)
}

func formatTaskProgress(t tasker.Task) string {
	return fmt.Sprintf("%d/%d", t.Completed+t.Skipped, t.Total)
}

// formatDue formats a due time with its state. It returns "" for nil.
func formatDue(d *tasker.Deadline) string {
	if d == nil {
		return ""
	}
	var more []string
	if d.State != tasker.DeadlineAhead {
		more = append(more, string(d.State))
	}
	if d.Overdue == tasker.OverdueInvestigate {
		more = append(more, "investigated when overdue")
	}
	if d.SetBy != "" {
		more = append(more, "set by "+string(d.SetBy))
	}
	if len(more) == 0 {
		return formatTime(&d.DueAt)
	}
	return formatTime(&d.DueAt) + " (" + strings.Join(more, ", ") + ")"
}

// formatDueShort is like formatDue but omits details.
func formatDueShort(d *tasker.Deadline) string {
	if d == nil {
		return ""
	}
	return formatDue(&tasker.Deadline{DueAt: d.DueAt, State: d.State})
}

func formatMaxDuration(t tasker.Task) string {
	if t.MaxDurationEndsAt == nil || t.Due == nil || t.FirstDeadline != tasker.ByMaxDuration {
		return formatTime(t.MaxDurationEndsAt)
	}
	return formatTime(t.MaxDurationEndsAt) + " (before it is due)"
}

func formatDebounce(t tasker.Task) string {
	if t.DebounceKey == "" && t.MergedRequests == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d merged", t.DebounceKey, t.MergedRequests))
}

func (p *program) printTask(t tasker.Task) {
	p.printDone("Task Details:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"UUID", t.UUID}, field{"Task", t.Namespace + "/" + t.Name + " " + t.Version},
		field{"State", t.State}, field{"Since", t.StateSince}, field{"Compensation", formatUndo(t)},
		field{"Steps", formatTaskProgress(t) + " complete"}, field{"Priority", t.Priority}, field{"Context", t.Context},
		field{"Initiator", t.Initiator}, field{"Source system", t.SourceSystem}, field{"Reason", t.Reason}, field{"Tags", t.Tags},
		field{"Attributes", t.Attributes}, field{"Correlation", t.CorrelationID}, field{"Replaces", t.RecreatedFrom},
		field{"Parent", t.ParentTaskUUID}, field{"Starts", t.StartAt}, field{"Start by", t.StartBy}, field{"Due", formatDue(t.Due)},
		field{"Max duration", formatMaxDuration(t)}, field{"Unique key", t.UniqueKey}, field{"Debounce", formatDebounce(t)},
		field{"Created", t.CreatedAt}, field{"Completed", t.CompletedAt},
	)
	if t.DeadLettered {
		since := formatDeadLetter(t) + " since " + formatTime(t.DeadLetteredAt)
		p.printFields("  ", field{"Dead letter", since}, field{"Investigation", t.EntryUUID})
	}
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	printList(p, t.Steps, "", "step, uuid, state, attempts, last failure", func(s tasker.Step) []any {
		return []any{s.Name, s.UUID, s.State, formatAttempts(s), formatFailure(s.Error)}
	})
}

func (p *program) printTree(t tasker.TaskTree) {
	printList(p, t.Tasks, "", "template, task, step, state, steps, dead letter", func(n tasker.TreeTask) []any {
		name := strings.Repeat(". ", n.Depth) + n.Task.Namespace + "/" + n.Task.Name
		if n.Task.UUID == t.TaskUUID {
			name += " *"
		}
		progress := formatTaskProgress(n.Task)
		return []any{name, n.Task.UUID, formatStartedBy(n), formatState(n.Task), progress, formatDeadLetter(n.Task)}
	})
	for _, n := range t.Tasks {
		if n.MoreChildren {
			p.printHint("tasker-ctl task list --parent %s", n.Task.UUID)
		}
	}
}

// formatStartedBy returns the step that started a task, with "(waits)" if it waits for the task or
// "(before)" if it has started another one since.
func formatStartedBy(n tasker.TreeTask) string {
	switch name := orDash(n.StepName); {
	case n.WaitedFor:
		return name + " (waits)"
	case n.StepName != "" && !n.Current:
		return name + " (before)"
	default:
		return name
	}
}

func (p *program) newTransitionsCommand() *cobra.Command {
	var step string
	var page apiv1.Page
	c := newRequestCommand(p, help{
		use: "transitions TASK", short: "Show the history of a task or step",
		example: `  tasker-ctl task transitions $TASK
  tasker-ctl task transitions $TASK --step $STEP -o json | jq -r '.[].to_state'`,
	}, func(ctx context.Context, api *client.Client, a arguments) ([]tasker.Transition, error) {
		if step == "" {
			return api.TaskTransitions(ctx, a.id[0], page)
		}
		id, err := parseID("--step", step)
		if err != nil {
			return nil, err
		}
		return api.StepTransitions(ctx, a.id[0], id, page)
	}, func(l []tasker.Transition) {
		printList(p, l, "No transitions.", "time, from, to, event, attempt, actor, reason", func(t tasker.Transition) []any {
			attempt := "-"
			if t.Attempt != nil {
				attempt = formatInt(*t.Attempt)
			}
			return []any{t.CreatedAt, orDash(t.From), t.To, t.Event, attempt, t.Actor, t.Reason}
		})
		p.hintMorePages(len(l))
	})
	c.Flags().StringVar(&step, "step", "", "show the history of this step")
	p.addQueryFlags(c, &page, 1000)
	return c
}

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
	v := taskViewer{program: p, api: api, mute: w.mute || p.output == "json", steps: map[tasker.ID]string{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var c changes
	for first := true; ; first = false {
		begun := time.Now()
		wait := w.nextWait(v.mute, time.Since(start))
		switch {
		case first:
			wait = 0
		case c.live.Load() && v.state != tasker.TaskError: // no event says why it stays in error
			c.await(ctx, w.nextWait(true, time.Since(start)))
			wait = 0
		}
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
			return tasker.Errorf(tasker.Internal, "task %s is %s after %s; it continues unwatched", task, cmp.Or(string(v.state), "not seen"), w.timeout)
		}
		if c.news == nil && err == nil && !v.mute {
			c.follow(ctx, api, task)
		}
		if rest := w.every - time.Since(begun); (!first || err != nil) && rest > 0 && !loop.Sleep(ctx, rest) {
			return ctx.Err()
		}
	}
}

// changes reports the changes of a task that its event stream announces.
type changes struct {
	news chan struct{} // contains an element after a change
	live atomic.Bool   // false if the stream was refused or is lost: the caller polls
}

// follow starts the stream. It ends with ctx.
func (c *changes) follow(ctx context.Context, api *client.Client, task tasker.ID) {
	c.news = make(chan struct{}, 1)
	report := func(live bool) {
		c.live.Store(live)
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
	lost := func(error) { report(false) }
	go func() {
		defer report(false)
		for _, err := range api.FollowTask(ctx, task, client.FollowOptions{FromNow: true, Lost: lost}) {
			if err != nil {
				return
			}
			report(true)
		}
	}()
}

// await waits for a change, at most for limit.
func (c *changes) await(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.news:
	case <-timer.C:
	case <-ctx.Done():
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
func (v *taskViewer) poll(ctx context.Context, task tasker.ID, wait time.Duration) (t tasker.Task, over bool, err error) {
	if t, err = v.api.AwaitTask(ctx, task, wait); err != nil {
		return t, false, err
	}
	v.update(t)
	switch t.State {
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
func (v *taskViewer) needsHuman(ctx context.Context, task tasker.ID, t tasker.Task) (bool, error) {
	e, err := v.api.Explain(ctx, task)
	switch {
	case ctx.Err() != nil || tasker.CodeOf(err) == tasker.Unavailable:
		return false, err
	case err != nil:
		return true, nil //nolint:nilerr // an old server explains nothing
	case e.Reason == tasker.ConditionNoWorker, e.Reason == tasker.ConditionOperation && e.NextActor == tasker.NextServer:
		if v.waitReason != e.Message {
			v.waitReason = e.Message
			v.print("task", string(t.State), e.Message)
		}
		return false, nil
	}
	again, err := v.api.Task(ctx, task) // it may have continued between the two requests
	return again.State == t.State && again.StateSince.Equal(t.StateSince), err
}

// printOutcome prints the result of a watch.
func (p *program) printOutcome(t tasker.Task, mute bool) error {
	if p.output == "json" {
		if err := p.printJSON(t); err != nil {
			return err
		}
	}
	switch t.State {
	case tasker.TaskComplete, tasker.TaskResolvedManually:
		if !mute {
			p.printDone("Task %s: %s of %s", clean(string(t.State)), formatTaskProgress(t), formatPlural(t.Total, "step"))
		}
		return nil
	case tasker.TaskError:
		if !mute {
			p.warn("Task %s needs an operator.", t.UUID)
			p.printHints(t)
		}
	default:
		if !mute {
			p.warn("Task %s is %s.", t.UUID, clean(string(t.State)))
		}
	}
	return cli.Exit(cli.ExitError)
}

// printHints suggests the next commands.
func (p *program) printHints(t tasker.Task) {
	if t.EntryUUID != nil {
		p.printHint("tasker-ctl dlq get %s", *t.EntryUUID)
	}
	for _, s := range t.Steps {
		if s.State == tasker.StepError {
			p.printHint("tasker-ctl task reset-step %s %s --reason …", t.UUID, s.UUID)
		}
	}
}

// taskViewer prints the changes between two polls of a task.
type taskViewer struct {
	program    *program
	api        *client.Client
	mute       bool
	state      tasker.TaskState
	waitReason string               // the last printed reason to wait
	steps      map[tasker.ID]string // the last printed line of each
}

func (v *taskViewer) update(t tasker.Task) {
	if t.State != v.state {
		v.state = t.State
		v.print("task", string(t.State), formatTaskProgress(t)+" steps complete")
	}
	for _, s := range t.Steps {
		now := fmt.Sprintf("%s (attempt %s)", s.State, formatAttempts(s))
		before, known := v.steps[s.UUID]
		v.steps[s.UUID] = now
		if now == before || (!known && s.State == tasker.StepPending) {
			continue
		}
		detail := ""
		if s.State == tasker.StepError {
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
