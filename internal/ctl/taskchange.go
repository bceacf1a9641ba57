package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

// taskChangeCommands are the commands of group task that create and change tasks.
var taskChangeCommands = []maker{
	(*program).newSubmitCommand, (*program).newCancelCommand, (*program).newCancelAllCommand,
	(*program).newDueCommand,
	plain(endpoint.ChangeVersion, help{
		use: "change-version TASK --to VERSION --reason TEXT", short: "Move a task to another template version",
		long: `Move an open task to another version of its template. Steps that have finished or are claimed
do not change; all others follow the new version. With --dry-run nothing changes: the output
shows the effect on the steps, and the reasons if the move is not possible.`,
		example: `  tasker-ctl task change-version $TASK --to 1.3.0 --dry-run
  tasker-ctl task change-version $TASK --to 1.3.0 --reason "1.2.0 charges twice"`,
	}, (*program).printVersionResult),
}

// submitFlags contains the flags of task submit.
type submitFlags struct {
	task     apiv1.CreateTask
	context  string
	unique   apiv1.Unique
	debounce apiv1.Debounce

	wait     bool
	idOnly   bool
	watching watchFlags
}

func (p *program) newSubmitCommand() *cobra.Command {
	s := submitFlags{task: apiv1.CreateTask{SourceSystem: "tasker-ctl"}}
	c := p.newCommand(help{
		use: "submit --namespace NAME --name NAME", short: "Create a task",
		long: `Create a task from a template.

With --wait, the command follows the task until it finishes and exits with the codes of task
watch. With --idempotency-key, you can repeat the command safely: it returns the same task.`,
		example: `  tasker-ctl task submit --namespace orders --name fulfil --context '{"order_id": 7}' --wait
  tasker-ctl task submit --namespace orders --name fulfil --context @order.json --idempotency-key order-7
  TASK=$(tasker-ctl task submit --namespace orders --name fulfil --quiet)`,
	}, func(ctx context.Context, _ arguments) error { return p.submit(ctx, s) })
	p.addBodyFlags(c, &s.task)
	p.addBodyFlags(c, &s.unique)
	p.addBodyFlags(c, &s.debounce)
	f := c.Flags()
	f.StringVarP(&s.context, "context", "c", "", "input of the task: a JSON object, @file or @-")
	policies := cli.Strings(tasker.ConflictPolicies())
	f.Var(cli.Choice(&s.unique.OnConflict, policies), "on-conflict", "policy if an open task has the key: "+cli.Join(policies)+" (default fail)")
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
	switch {
	case s.unique.Key != "":
		t.Unique = &s.unique
	case s.unique.OnConflict != "":
		return t, cli.Usagef("--on-conflict requires --unique-key")
	}
	if s.debounce != (apiv1.Debounce{}) {
		if s.debounce.Key == "" || s.debounce.WaitSeconds <= 0 {
			return t, cli.Usagef("--debounce-key and --debounce must be used together")
		}
		t.Debounce = &s.debounce
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
	created, err := p.client.CreateTask(ctx, t)
	if err != nil {
		return err
	}
	id, err := parseResponseID("task_uuid", created.UUID.String())
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
			field{"UUID", created.UUID}, field{"Task", created.Namespace + "/" + created.Name + " " + created.Version},
			field{"State", created.State}, field{"Starts", created.StartAt}, field{"Start by", created.StartBy}, field{"Due", formatDue(created.Due)},
		)
	}
	if !s.wait {
		return nil
	}
	return p.watch(ctx, id, s.watching)
}

func (p *program) newCancelCommand() *cobra.Command {
	r := newRequest(endpoint.CancelTask)
	r.query.Reason = "cancelled with tasker-ctl"
	return r.command(p, help{
		use: "cancel TASK", short: "Cancel a task",
		long: `Cancel a task and its unfinished steps.

With --compensate, completed steps are compensated first, in reverse order, by the handlers
that the template declares (on_failure). To stop that, cancel again without --compensate.`,
		example: `  tasker-ctl task cancel $TASK --reason "customer withdrew the order" --cancelled-by "ops-team@example.com"
  tasker-ctl task cancel $TASK --compensate --reason "customer withdrew the order"`,
	}, func(t tasker.Task) {
		if t.Phase == tasker.Compensating {
			p.printDone("Task is being compensated!")
		} else {
			p.printDone("Task cancelled!")
		}
		p.printFields("  ",
			field{"New state", t.State}, field{"Compensation", formatUndo(t)},
			field{"Reason", r.query.Reason}, field{"Cancelled by", r.query.CancelledBy})
	})
}

func (p *program) newCancelAllCommand() *cobra.Command {
	r := newRequest(endpoint.CancelTasks)
	c := p.newCommand(help{
		use: "cancel-all --namespace NAMESPACE --reason TEXT", short: "Cancel all matching tasks",
		long: `Cancel the open tasks that match a filter, in batches of one transaction each. Filters with
only a status and times are rejected. Tasks that are being compensated do not change. With
--dry-run the first matching tasks are shown. The command can be interrupted and repeated.
The exit code is 1 if matching tasks remain.

With --compensate, completed steps are compensated before the tasks are cancelled.`,
		example: `  tasker-ctl task cancel-all --namespace orders --name fulfil --tag campaign-7 --dry-run
  tasker-ctl task cancel-all --namespace orders --attribute customer:4711 --reason "the customer has left"`,
	}, func(ctx context.Context, _ arguments) error {
		all, err := p.cancelAll(ctx, r.query.TaskFilter, r.body)
		if err != nil {
			return err
		}
		return p.showCancelled(all, r.body.DryRun)
	})
	p.addQueryFlags(c, &r.query, 0)
	p.addBodyFlags(c, &r.body)
	return c
}

// cancelAll requests batches until one cancels no task. The next batch contains tasks again that
// could not be cancelled.
func (p *program) cancelAll(ctx context.Context, f tasker.TaskFilter, r apiv1.CancelTasks) (tasker.CancelBatch, error) {
	var all tasker.CancelBatch
	for {
		part, err := p.client.CancelTasks(ctx, f, r)
		if err != nil && all.Cancelled > 0 {
			return all, fmt.Errorf("stopped after cancelling %s: %w", formatPlural(all.Cancelled, "task"), err)
		}
		if err != nil {
			return all, err
		}
		all.Cancelled, all.Failed, all.HasMore = all.Cancelled+part.Cancelled, part.Failed, part.HasMore
		if all.Sample == nil {
			all.Sample = part.Sample
		}
		if r.DryRun || !part.HasMore || part.Cancelled == 0 {
			return all, nil
		}
		p.printHint("%d cancelled so far", all.Cancelled)
	}
}

// showCancelled prints the result. If matching tasks remain, it returns an error with an exit code.
func (p *program) showCancelled(all tasker.CancelBatch, dry bool) error {
	err := p.show(all, func() { p.printCancelled(all, dry) })
	if err == nil && !dry && (all.Failed > 0 || all.HasMore) {
		err = cli.Exit(cli.ExitError)
	}
	return err
}

func (p *program) printCancelled(all tasker.CancelBatch, dry bool) {
	if dry {
		text := formatPlural(all.Cancelled, "task")
		if all.HasMore {
			text += " and more"
		}
		p.printDone("%s would be cancelled", text)
		printList(p, all.Sample, "No tasks.", "task, template, version, state, created", func(t tasker.Task) []any {
			return []any{t.UUID, t.Namespace + "/" + t.Name, t.Version, formatState(t), t.CreatedAt}
		})
		return
	}
	p.printDone("%s cancelled!", formatPlural(all.Cancelled, "task"))
	if all.Failed > 0 {
		p.warn("%s could not be cancelled: see the log of the server", formatPlural(all.Failed, "task"))
	}
	if all.HasMore {
		p.warn("More tasks match the filter, but no task of the next batch could be cancelled")
	}
}

// formatUndo describes the compensation of a task, or returns "" if none was requested.
func formatUndo(t tasker.Task) string {
	switch t.Outcome {
	case tasker.Compensated:
		return "completed"
	case tasker.CompensationStopped:
		return "stopped before the end"
	case tasker.NothingToCompensate:
		return "no step to compensate"
	}
	if t.Phase == "" {
		return ""
	}
	var done, all int
	for _, s := range t.Steps {
		if s.Undoes != "" {
			all++
		}
		if s.Undoes != "" && s.State.Done() {
			done++
		}
	}
	return fmt.Sprintf("%d of %d steps compensated", done, all)
}

func (p *program) newDueCommand() *cobra.Command {
	r := newRequest(endpoint.ChangeDue)
	r.prepare = func(context.Context, arguments) error {
		if (r.body.DueAt == nil) != p.isSet("none") {
			return cli.Usagef("set either --at TIME or --none")
		}
		return nil
	}
	return r.command(p, help{
		use: "due TASK --at TIME", short: "Set a due time",
		long: `Set the due time of a task or of one of its steps. It replaces the due time of the request
or the template. The change is recorded in the history of the task.`,
		example: `  tasker-ctl task due $TASK --at 2026-01-31T12:00:00Z --reason "agreed with the customer"
  tasker-ctl task due $TASK --step approve --at +2h
  tasker-ctl task due $TASK --none`,
		switches: map[string]string{"none": "remove the due time"},
	}, func(t tasker.Task) {
		p.printDone("Due time changed.")
		due, step := t.Due, r.body.Step
		for _, s := range t.Steps {
			if step == s.Name || step == s.UUID.String() {
				due = s.Due
			}
		}
		p.printFields("  ", field{"Task", t.UUID}, field{"Step", step}, field{"Due", cmp.Or(formatDue(due), "none")})
	})
}

func (p *program) printVersionResult(v tasker.VersionChange) {
	switch {
	case v.Changed:
		p.printDone("Task is on version %s!", clean(v.To))
	case len(v.Refusals) > 0:
		p.warn("Task cannot be moved from version %s to %s", clean(v.From), clean(v.To))
	case v.From == v.To:
		p.printDone("Task is already on version %s", clean(v.To))
	default:
		p.printDone("Task can be moved from version %s to %s", clean(v.From), clean(v.To))
	}
	p.printFields("  ",
		field{"Kept", v.Kept}, field{"Redefined", v.Redefined}, field{"Added", v.Added},
		field{"Removed", v.Removed}, field{"Left", v.Left})
	for _, r := range v.Refusals {
		p.printFields("  ", field{"Refused", string(r.Code) + ": " + r.Message})
	}
}

func (p *program) newChangeTasksCommand() *cobra.Command {
	var r apiv1.ChangeTasks
	c := newRequestCommand(p, help{
		use:   "change-tasks NAMESPACE NAME VERSION --to VERSION --reason TEXT",
		short: "Move open tasks to another version",
		long: `Move the open tasks of one template version to another, in batches, newest first. Tasks that
cannot be moved do not change; they are counted by reason. Retire the version first, so that
no new tasks use it. The command can be interrupted and repeated.`,
		example: `  tasker-ctl template change-tasks orders fulfil 1.2.0 --to 1.3.0 --dry-run
  tasker-ctl template change-tasks orders fulfil 1.3.0 --to 1.2.0 --reason "1.3.0 ships twice"`,
	}, func(ctx context.Context, _ *client.Client, a arguments) (apiv1.ChangedTasks, error) {
		return p.changeTasks(ctx, tasker.TemplateVersion{Namespace: a.text[0], Name: a.text[1], Version: a.text[2]}, r)
	}, func(all apiv1.ChangedTasks) {
		if r.DryRun {
			p.printDone("%s can be moved to version %s", formatPlural(all.Changed, "task"), r.ToVersion)
		} else {
			p.printDone("%s moved to version %s!", formatPlural(all.Changed, "task"), r.ToVersion)
		}
		if all.Refused > 0 {
			p.warn("%s refused", formatPlural(all.Refused, "task"))
		}
		for _, code := range slices.Sorted(maps.Keys(all.Reasons)) {
			p.printFields("  ", field{code, formatInt(all.Reasons[code])})
		}
		for _, v := range all.Sample {
			p.printFields("  ", field{"Task", v.TaskUUID.String() + ": " + v.Refusals[0].Message})
		}
	})
	p.addBodyFlags(c, &r)
	return c
}

// changeTasks requests batch after batch and adds up the results.
func (p *program) changeTasks(ctx context.Context, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	all := apiv1.ChangedTasks{Reasons: map[string]int{}, Sample: []tasker.VersionChange{}}
	for {
		part, err := p.client.ChangeTasks(ctx, v, r)
		if err != nil {
			return all, err
		}
		all.Looked, all.Changed, all.Refused = all.Looked+part.Looked, all.Changed+part.Changed, all.Refused+part.Refused
		for code, n := range part.Reasons {
			all.Reasons[code] += n
		}
		all.Sample = append(all.Sample, part.Sample[:min(len(part.Sample), tasker.MaxVersionSample-len(all.Sample))]...)
		if part.Next == nil {
			return all, nil
		}
		r.Before = *part.Next
		p.printHint("%d checked, %d changed, %d refused so far", all.Looked, all.Changed, all.Refused)
	}
}
