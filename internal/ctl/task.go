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

func (p *program) taskCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "task",
		Short: "Submit, watch and repair tasks",
		Example: `  tasker-ctl task list --status error
  tasker-ctl task steps $TASK
  tasker-ctl task reset-step $TASK $STEP --reason "gateway is back"`,
	},
		p.tasksCommand(), p.attributesCommand(), p.taskGetCommand(), p.treeCommand(), p.submitCommand(), p.cancelCommand(), p.cancelAllCommand(), p.changeVersionCommand(), p.dueCommand(), p.watchCommand(), p.transitionsCommand(),
		p.stepsCommand(), p.stepCommand(), p.itemsCommand(), p.resetCommand(), p.resolveCommand(), p.completeCommand(), p.answerCommand(), p.assignCommand(), p.assigneeCommand(), p.answerLinkCommand(), p.answerLinksCommand(), p.revokeLinkCommand(),
	)
}

func (p *program) tasksCommand() *cobra.Command {
	var q taskQuery

	c := answer(p, help{
		use:   "list",
		short: "List tasks, newest first",
		example: `  tasker-ctl task list --status error --namespace orders
  tasker-ctl task list --tag vip --created-after 2026-01-31T00:00:00Z
  tasker-ctl task list --correlation-id "$REQUEST_ID"
  tasker-ctl task list --dead-lettered
  tasker-ctl task list --parent $TASK
  tasker-ctl task list --status error --quiet | xargs -n1 tasker-ctl task steps`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (l apiv1.TaskList, err error) {
		if err := q.read(); err != nil {
			return l, err
		}
		return api.Tasks(ctx, q.TaskQuery)
	}, func(l apiv1.TaskList) {
		header := []string{"task", "template", "version", "state", "steps", "dead letter", "created"}
		list(p, l.Tasks, columns{none: "No tasks.", names: header}, func(t apiv1.Task) []string {
			return []string{t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, stateText(t), progress(t), deadLetter(t), at(&t.CreatedAt)}
		})
		if nextPage(p, "before", l.Pagination.NextBefore); l.Pagination.NextBefore == nil {
			p.more(apiv1.Pagination{Offset: l.Pagination.Offset, Count: l.Pagination.Count, HasMore: l.Pagination.HasMore})
		}
	})
	q.flags(c)
	c.Flags().StringVar(&q.Before, "before", "", "page cursor: id of the last task")
	p.quietFlag(c)
	pageFlags(c, &q.Page, 20)
	return c
}

func (p *program) attributesCommand() *cobra.Command {
	var namespace string
	var page client.Page
	c := answer(p, help{
		use: "attributes", short: "List search attributes",
		example: `  tasker-ctl task attributes --namespace orders`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.AttributeList, error) {
		return api.Attributes(ctx, namespace, page)
	}, func(l apiv1.AttributeList) {
		list(p, l.Attributes, columns{none: "No attributes.", names: []string{"attribute", "type", "namespace", "templates"}}, func(a apiv1.Attribute) []string {
			return []string{a.Name, a.Type, a.Namespace, strings.Join(a.Templates, ", ")}
		})
		p.more(l.Pagination)
	})
	pageFlags(c, &page, 100)
	namespaceFlag(c, &namespace)
	return c
}

// deadLetter returns the reason of a task's investigation, followed by the mark if the task
// recovered or failed permanently.
func deadLetter(t apiv1.Task) string {
	switch kind := or(t.DeadLetterMark, ""); tasker.MarkKind(kind) {
	case tasker.MarkPermanentlyFailed, tasker.MarkRecovered:
		return or(t.DeadLetterReason, "") + " (" + strings.ReplaceAll(kind, "_", " ") + ")"
	default:
		return or(t.DeadLetterReason, "-")
	}
}

// stateText returns the state of a task with its phase, if any.
func stateText(t apiv1.Task) string {
	if phase := or(t.Phase, ""); phase != "" {
		return t.Status + ", " + phase
	}
	return t.Status
}

func progress(t apiv1.Task) string {
	return fmt.Sprintf("%d/%d", t.CompletedSteps+t.SkippedSteps, t.TotalSteps)
}

func (p *program) taskGetCommand() *cobra.Command {
	return answer(p, help{
		use:   "get TASK",
		short: "Show a task",
		example: `  tasker-ctl task get 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task get $TASK -o json | jq -r .status`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Task, error) {
		return api.Task(ctx, a.id[0])
	}, p.printTask)
}

func (p *program) printTask(t apiv1.Task) {
	p.done("Task Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"UUID", t.TaskUUID}, field{"Task", t.Namespace + "/" + t.Name + " " + t.Version},
		field{"State", t.Status}, field{"Since", at(&t.StateSince)}, field{"Compensation", undoText(t)},
		field{"Steps", progress(t) + " complete"}, field{"Priority", num(t.Priority)},
		field{"Context", compact(t.Context)}, field{"Initiator", t.Initiator}, field{"Source system", t.SourceSystem},
		field{"Reason", t.Reason}, field{"Tags", strings.Join(t.Tags, ", ")}, field{"Attributes", strings.Join(t.Attributes, ", ")}, field{"Correlation", t.CorrelationID},
		field{"Replaces", or(t.RecreatedFrom, "")}, field{"Parent", or(t.ParentTaskUUID, "")}, field{"Starts", at(t.StartAt)}, field{"Start by", at(t.StartBy)}, field{"Due", dueText(t.Due)}, field{"Max duration", maxDurationText(t)}, field{"Unique key", or(t.UniqueKey, "")}, field{"Debounce", debounceText(t)},
		field{"Created", at(&t.CreatedAt)}, field{"Completed", at(t.CompletedAt)},
	)
	if t.DeadLettered {
		p.fields("  ",
			field{"Dead letter", deadLetter(t) + " since " + at(t.DeadLetteredAt)},
			field{"Investigation", or(t.DLQEntryUUID, "")},
		)
	}
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	list(p, t.Steps, columns{none: "", names: []string{"step", "uuid", "state", "attempts", "last failure"}}, func(s apiv1.Step) []string {
		return []string{s.Name, s.StepUUID, s.CurrentState, attempts(s), failureText(s.Error)}
	})
}

func (p *program) transitionsCommand() *cobra.Command {
	var step string
	var page client.Page
	c := answer(p, help{
		use:   "transitions TASK",
		short: "Show the history of a task or step",
		example: `  tasker-ctl task transitions $TASK
  tasker-ctl task transitions $TASK --step $STEP -o json | jq -r '.[].to_state'`,
	}, func(ctx context.Context, api *client.Client, a arguments) ([]tasker.Transition, error) {
		if step == "" {
			return api.TaskTransitions(ctx, a.id[0], page)
		}
		id, err := readID("--step", step)
		if err != nil {
			return nil, err
		}
		return api.StepTransitions(ctx, a.id[0], id, page)
	}, func(l []tasker.Transition) {
		list(p, l, columns{none: "No transitions.", names: []string{"time", "from", "to", "event", "attempt", "actor", "reason"}}, func(t tasker.Transition) []string {
			attempt := "-"
			if t.Attempt != nil {
				attempt = num(*t.Attempt)
			}
			return []string{at(&t.CreatedAt), orDash(t.From), t.To, t.Event, attempt, t.Actor, t.Reason}
		})
		p.mayGoOn(len(l), page)
	})
	c.Flags().StringVar(&step, "step", "", "show the history of this step")
	pageFlags(c, &page, 1000)
	return c
}

// submission contains the flags of task submit.
type submission struct {
	task    apiv1.CreateTask
	context string

	starting starting
	wait     bool
	idOnly   bool
	watching watching
}

func (p *program) submitCommand() *cobra.Command {
	var s submission
	c := p.command(help{
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
	requireFlag(c, "namespace", "it selects the template")
	requireFlag(c, "name", "it selects the template")
	f.StringVar(&s.task.Version, "version", "", "version of the template (default: the newest)")
	f.StringVarP(&s.context, "context", "c", "", "input of the task: a JSON object, @file or @-")
	f.IntVarP(&s.task.Priority, "priority", "p", 0, "higher runs first")
	f.StringArrayVar(&s.task.Tags, "tag", nil, "tag for searching; repeatable")
	p.actorFlag(c, &s.task.Initiator, "initiator")
	f.StringVar(&s.task.SourceSystem, "source-system", "tasker-ctl", "system that creates the task")
	optionalReasonFlag(c, &s.task.Reason)
	f.StringVar(&s.task.CorrelationID, "correlation-id", "", "id that links the task to a request (default: a new one)")
	f.StringVar(&s.task.ParentCorrelationID, "parent-correlation-id", "", "correlation id of the parent request")
	f.StringVar(&s.task.IdempotencyKey, "idempotency-key", "", "return the existing task with this key, if any")
	f.Var(cli.TimeOrSpan(&s.task.StartAt), "start-at", "earliest start: 2026-01-31T12:00:00Z, or +90m from now")
	s.starting.flags(c, &s.task)
	f.StringVar(&s.task.RecreatedFrom, "recreated-from", "", "task that this one replaces")
	f.BoolVarP(&s.idOnly, "quiet", "q", false, "print only the id")
	f.BoolVarP(&s.wait, "wait", "w", false, "wait until the task finishes")
	s.watching.flags(c)
	return c
}

// request returns the task to create.
func (p *program) request(s submission) (t apiv1.CreateTask, err error) {
	t = s.task
	if t.Context, err = p.object("context", s.context); err != nil {
		return t, err
	}

	if err := s.starting.read(&t); err != nil {
		return t, err
	}
	if t.RecreatedFrom != "" {
		_, err = readID("--recreated-from", t.RecreatedFrom)
	}
	return t, err
}

func (p *program) submit(ctx context.Context, s submission) error {
	t, err := p.request(s)
	if err != nil {
		return err
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	created, err := api.CreateTask(ctx, t)
	if err != nil {
		return err
	}
	id, err := responseID("task_uuid", created.TaskUUID)
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
		return p.json(created)
	case s.idOnly:
		fmt.Fprintln(p.out, id)
		s.watching.mute = true
	default:
		p.done("Task submitted!")
		p.fields("  ",
			field{"UUID", created.TaskUUID}, field{"Task", created.Namespace + "/" + created.Name + " " + created.Version},
			field{"State", created.Status}, field{"Starts", at(created.StartAt)}, field{"Start by", at(created.StartBy)}, field{"Due", dueText(created.Due)},
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

// watching contains the flags of commands that watch a task.
type watching struct {
	every   time.Duration // between two polls
	timeout time.Duration // 0: no timeout
	mute    bool          // print no progress
	reached bool          // the server has responded before
}

func (w *watching) flags(c *cobra.Command) {
	c.Flags().Var(cli.Duration(&w.every, 500*time.Millisecond), "interval", "how often to poll while waiting")
	c.Flags().Var(cli.Duration(&w.timeout, 0), "timeout", "stop waiting after this time, with exit code 1 (default: never)")
}

func (p *program) watchCommand() *cobra.Command {
	var w watching
	c := p.command(help{
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
	w.flags(c)
	return c
}

func (p *program) watch(ctx context.Context, task tasker.ID, w watching) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	w.every = max(w.every, 10*time.Millisecond)
	start := time.Now()
	answered := start
	v := viewer{program: p, api: api, mute: w.mute || p.output == "json", steps: map[string]string{}}
	for {
		t, over, err := v.poll(ctx, task)
		switch {
		case err == nil:
			answered = time.Now()
		case tasker.CodeOf(err) != tasker.Unavailable || v.state == "" && !w.reached || time.Since(answered) > watchTimeout:
			return err
		}
		if over {
			return p.outcome(t, v.mute)
		}
		if w.timeout > 0 && time.Since(start) >= w.timeout {
			return tasker.Errorf(tasker.Internal, "task %s is %s after %s; it continues unwatched", task, cmp.Or(v.state, "not seen"), w.timeout)
		}
		if !loop.Sleep(ctx, w.every) {
			return ctx.Err()
		}
	}
}

// poll prints the changes of a task, and reports whether it is final or needs an operator.
func (v *viewer) poll(ctx context.Context, task tasker.ID) (t apiv1.Task, over bool, err error) {
	if t, err = v.api.Task(ctx, task); err != nil {
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
func (v *viewer) needsHuman(ctx context.Context, task tasker.ID, t apiv1.Task) (bool, error) {
	e, err := v.api.Explain(ctx, task)
	switch {
	case ctx.Err() != nil || tasker.CodeOf(err) == tasker.Unavailable:
		return false, err
	case err != nil:
		return true, nil //nolint:nilerr // an old server explains nothing
	case e.Fact == string(tasker.ConditionNoWorker), e.Fact == string(tasker.ConditionOperation) && e.Turn == string(tasker.NextServer):
		if v.waits != e.Sentence {
			v.waits = e.Sentence
			v.print("task", t.Status, e.Sentence)
		}
		return false, nil
	}
	again, err := v.api.Task(ctx, task) // it may have continued between the two requests
	return again.Status == t.Status && again.StateSince.Equal(t.StateSince), err
}

// outcome prints the result of a watch.
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
		p.hint("tasker-ctl dlq get %s", *t.DLQEntryUUID)
	}
	for _, s := range t.Steps {
		if s.CurrentState == string(tasker.StepError) {
			p.hint("tasker-ctl task reset-step %s %s --reason …", t.TaskUUID, s.StepUUID)
		}
	}
}

// viewer prints the changes between two polls of a task.
type viewer struct {
	program *program
	api     *client.Client
	mute    bool
	state   string
	waits   string            // the last printed reason to wait
	steps   map[string]string // the last printed line of each
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
