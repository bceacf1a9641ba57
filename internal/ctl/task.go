package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/loop"
)

func (p *program) newTaskCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "task",
		Short: "Submit, watch and repair tasks",
		Example: `  tasker-ctl task list --status error
  tasker-ctl task steps $TASK
  tasker-ctl task reset-step $TASK $STEP --reason "gateway is back"`,
	},
		p.newTasksCommand(), p.newAttributesCommand(), p.newTaskGetCommand(), p.newTreeCommand(), p.newTaskRequestsCommand(), p.newDismissCommand(), p.newSubmitCommand(), p.newCancelCommand(), p.newCancelAllCommand(), p.newChangeVersionCommand(), p.newDueCommand(), p.newWatchCommand(), p.newTransitionsCommand(),
		p.newStepsCommand(), p.newStepCommand(), p.newItemsCommand(), p.newResetCommand(), p.newResolveCommand(), p.newCompleteCommand(), p.newAnswerCommand(), p.newAssignCommand(), p.newAssigneeCommand(), p.newAnswerLinkCommand(), p.newAnswerLinksCommand(), p.newRevokeLinkCommand(),
	)
}

func (p *program) newTasksCommand() *cobra.Command {
	var q tasker.TaskFilter

	c := newRequestCommand(p, help{
		use:   "list",
		short: "List tasks, newest first",
		example: `  tasker-ctl task list --status error --namespace orders
  tasker-ctl task list --tag vip --created-after 2026-01-31T00:00:00Z
  tasker-ctl task list --correlation-id "$REQUEST_ID"
  tasker-ctl task list --dead-lettered
  tasker-ctl task list --parent $TASK
  tasker-ctl task list --status error --quiet | xargs -n1 tasker-ctl task steps`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (l apiv1.TaskList, err error) {
		return api.Tasks(ctx, q)
	}, func(l apiv1.TaskList) {
		printList(p, l.Tasks, "No tasks.", "task, template, version, state, steps, dead letter, created", func(t apiv1.Task) []any {
			return []any{t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, formatState(t), formatTaskProgress(t), formatDeadLetter(t), t.CreatedAt}
		})
		if printNextPageFlag(p, "before", l.Pagination.NextBefore); l.Pagination.NextBefore == nil {
			p.printNextPage(apiv1.Pagination{Offset: l.Pagination.Offset, Count: l.Pagination.Count,
				HasMore: l.Pagination.HasMore})
		}
	})
	p.addQueryFlags(c, &q, 20)
	p.addQuietFlag(c)
	return c
}

func (p *program) newAttributesCommand() *cobra.Command {
	var namespace string
	var page apiv1.Page
	c := newRequestCommand(p, help{
		use: "attributes", short: "List search attributes",
		example: `  tasker-ctl task attributes --namespace orders`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.AttributeList, error) {
		return api.Attributes(ctx, namespace, page)
	}, func(l apiv1.AttributeList) {
		printList(p, l.Attributes, "No attributes.", "attribute, type, namespace, templates", func(a apiv1.Attribute) []any {
			return []any{a.Name, a.Type, a.Namespace, strings.Join(a.Templates, ", ")}
		})
		p.printNextPage(l.Pagination)
	})
	p.addQueryFlags(c, &page, 100)
	addNamespaceFlag(c, &namespace)
	return c
}

// formatDeadLetter returns the reason of a task's investigation, followed by the mark if the task
// recovered or failed permanently.
func formatDeadLetter(t apiv1.Task) string {
	switch kind := orDefault(t.DeadLetterMark, ""); tasker.MarkKind(kind) {
	case tasker.MarkPermanentlyFailed, tasker.MarkRecovered:
		return orDefault(t.DeadLetterReason, "") + " (" + strings.ReplaceAll(kind, "_", " ") + ")"
	default:
		return orDefault(t.DeadLetterReason, "-")
	}
}

// formatState returns the state of a task with its phase, if any.
func formatState(t apiv1.Task) string {
	if phase := orDefault(t.Phase, ""); phase != "" {
		return t.Status + ", " + phase
	}
	return t.Status
}

func formatTaskProgress(t apiv1.Task) string {
	return fmt.Sprintf("%d/%d", t.CompletedSteps+t.SkippedSteps, t.TotalSteps)
}

func (p *program) newTaskGetCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "get TASK",
		short: "Show a task",
		example: `  tasker-ctl task get 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task get $TASK -o json | jq -r .status`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Task, error) {
		return api.Task(ctx, a.id[0])
	}, p.printTask)
}

func (p *program) printTask(t apiv1.Task) {
	p.printDone("Task Details:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"UUID", t.TaskUUID}, field{"Task", t.Namespace + "/" + t.Name + " " + t.Version},
		field{"State", t.Status}, field{"Since", t.StateSince}, field{"Compensation", formatUndo(t)},
		field{"Steps", formatTaskProgress(t) + " complete"}, field{"Priority", t.Priority},
		field{"Context", t.Context}, field{"Initiator", t.Initiator}, field{"Source system", t.SourceSystem},
		field{"Reason", t.Reason}, field{"Tags", t.Tags}, field{"Attributes", t.Attributes}, field{"Correlation", t.CorrelationID},
		field{"Replaces", t.RecreatedFrom}, field{"Parent", t.ParentTaskUUID}, field{"Starts", t.StartAt}, field{"Start by", t.StartBy}, field{"Due", formatDue(t.Due)}, field{"Max duration", formatMaxDuration(t)}, field{"Unique key", t.UniqueKey}, field{"Debounce", formatDebounce(t)},
		field{"Created", t.CreatedAt}, field{"Completed", t.CompletedAt},
	)
	if t.DeadLettered {
		p.printFields("  ",
			field{"Dead letter", formatDeadLetter(t) + " since " + formatTime(t.DeadLetteredAt)},
			field{"Investigation", t.DLQEntryUUID},
		)
	}
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	printList(p, t.Steps, "", "step, uuid, state, attempts, last failure", func(s apiv1.Step) []any {
		return []any{s.Name, s.StepUUID, s.CurrentState, formatAttempts(s), formatFailure(s.Error)}
	})
}

func (p *program) newTransitionsCommand() *cobra.Command {
	var step string
	var page apiv1.Page
	c := newRequestCommand(p, help{
		use:   "transitions TASK",
		short: "Show the history of a task or step",
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

// submitFlags contains the flags of task submit.
type submitFlags struct {
	task    apiv1.CreateTask
	context string

	starting startFlags
	wait     bool
	idOnly   bool
	watching watchFlags
}

func (p *program) newSubmitCommand() *cobra.Command {
	var s submitFlags
	c := p.newCommand(help{
		use:   "submit --namespace NAME --name NAME",
		short: "Create a task",
		long: `Create a task from a template.

With --wait, the command follows the task until it finishes and exits with the codes of task
watch. With --idempotency-key, you can repeat the command safely: it returns the same task.`,
		example: `  tasker-ctl task submit --namespace orders --name fulfil --context '{"order_id": 7}' --wait
  tasker-ctl task submit --namespace orders --name fulfil --context @order.json --idempotency-key order-7
  TASK=$(tasker-ctl task submit --namespace orders --name fulfil --quiet)`,
	}, func(ctx context.Context, _ arguments) error { return p.submit(ctx, s) })
	f := c.Flags()
	f.StringVarP(&s.task.Namespace, "namespace", "n", "", "namespace of the template (required)")
	f.StringVar(&s.task.Name, "name", "", "name of the template (required)")
	markRequired(c, "namespace", "it selects the template")
	markRequired(c, "name", "it selects the template")
	f.StringVar(&s.task.Version, "version", "", "version of the template (default: the newest)")
	f.StringVarP(&s.context, "context", "c", "", "input of the task: a JSON object, @file or @-")
	f.IntVarP(&s.task.Priority, "priority", "p", 0, "higher runs first")
	f.StringArrayVar(&s.task.Tags, "tag", nil, "tag for searching; repeatable")
	p.addActorFlag(c, &s.task.Initiator, "initiator")
	f.StringVar(&s.task.SourceSystem, "source-system", "tasker-ctl", "system that creates the task")
	addOptionalReasonFlag(c, &s.task.Reason)
	f.StringVar(&s.task.CorrelationID, "correlation-id", "", "id that links the task to a request (default: a new one)")
	f.StringVar(&s.task.ParentCorrelationID, "parent-correlation-id", "", "correlation id of the parent request")
	f.StringVar(&s.task.IdempotencyKey, "idempotency-key", "", "return the existing task with this key, if any")
	f.Var(cli.TimeOrSpan(&s.task.StartAt), "start-at", "earliest start: 2026-01-31T12:00:00Z, or +90m from now")
	s.starting.addTo(c, &s.task)
	f.StringVar(&s.task.RecreatedFrom, "recreated-from", "", "task that this one replaces")
	f.BoolVarP(&s.idOnly, "quiet", "q", false, "print only the id")
	f.BoolVarP(&s.wait, "wait", "w", false, "wait until the task finishes")
	s.watching.addTo(c)
	return c
}

// newCreateTask returns the task to create.
func (p *program) newCreateTask(s submitFlags) (t apiv1.CreateTask, err error) {
	t = s.task
	if t.Context, err = p.readJSONObject("context", s.context); err != nil {
		return t, err
	}

	if err := s.starting.read(&t); err != nil {
		return t, err
	}
	if t.RecreatedFrom != "" {
		_, err = parseID("--recreated-from", t.RecreatedFrom)
	}
	return t, err
}

func (p *program) submit(ctx context.Context, s submitFlags) error {
	t, err := p.newCreateTask(s)
	if err != nil {
		return err
	}
	api := p.client
	created, err := api.CreateTask(ctx, t)
	if err != nil {
		return err
	}
	id, err := parseResponseID("task_uuid", created.TaskUUID)
	if err != nil {
		return err
	}
	s.watching.reached = true
	for _, w := range created.Warnings {
		p.warn("%s", clean(w.String()))
	}
	switch {
	case p.output == "json" && s.wait:
		return p.watch(ctx, id, s.watching)
	case p.output == "json":
		return p.printJSON(created)
	case s.idOnly:
		fmt.Fprintln(p.out, id)
		s.watching.mute = true
	default:
		p.printDone("Task submitted!")
		p.printFields("  ",
			field{"UUID", created.TaskUUID}, field{"Task", created.Namespace + "/" + created.Name + " " + created.Version},
			field{"State", created.Status}, field{"Starts", created.StartAt}, field{"Start by", created.StartBy}, field{"Due", formatDue(created.Due)},
		)
	}
	if !s.wait {
		return nil
	}
	return p.watch(ctx, id, s.watching)
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
		use:   "watch TASK",
		short: "Follow a task until it finishes",
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
