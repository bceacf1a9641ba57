package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/endpoint"
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
	}, "No attributes.", "attribute, type, namespace, templates", func(a apiv1.Attribute) []any {
		return []any{a.Name, a.Type, a.Namespace, a.Templates}
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
	}, "No requests.", "task, template, requested, refused, error", func(r apiv1.TaskRequest) []any {
		text := "-"
		if r.ErrorCode != nil && r.ErrorMessage != nil {
			text = *r.ErrorCode + ": " + *r.ErrorMessage
		}
		return []any{r.TaskUUID, r.Namespace + "/" + r.Name, r.CreatedAt, orDash(r.RefusedAt), text}
	}),
	plain(endpoint.DeleteTaskRequest, help{use: "dismiss TASK", short: "Delete the request for a task"},
		func(p *program, _ endpoint.None) { p.printDone("Request deleted.") }),
	(*program).newTransitionsCommand,
	(*program).newWatchCommand,
}

func (p *program) printTasks(l apiv1.TaskList) {
	printList(p, l.Tasks, "No tasks.", "task, template, version, state, steps, dead letter, created", func(t apiv1.Task) []any {
		return []any{
			t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, formatState(t), formatTaskProgress(t), formatDeadLetter(t), t.CreatedAt,
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

// formatDue formats a due time with its state. It returns "" for nil.
func formatDue(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	var more []string
	if d.State != string(tasker.DeadlineAhead) {
		more = append(more, d.State)
	}
	if d.Overdue == string(tasker.OverdueInvestigate) {
		more = append(more, "investigated when overdue")
	}
	if d.SetBy != nil {
		more = append(more, "set by "+*d.SetBy)
	}
	if len(more) == 0 {
		return formatTime(&d.DueAt)
	}
	return formatTime(&d.DueAt) + " (" + strings.Join(more, ", ") + ")"
}

// formatDueShort is like formatDue but omits details.
func formatDueShort(d *apiv1.Deadline) string {
	if d == nil {
		return ""
	}
	return formatDue(&apiv1.Deadline{DueAt: d.DueAt, State: d.State})
}

func formatMaxDuration(t apiv1.Task) string {
	if t.MaxDurationEndsAt == nil || t.Due == nil || orDefault(t.FirstDeadline, "") != tasker.ByMaxDuration {
		return formatTime(t.MaxDurationEndsAt)
	}
	return formatTime(t.MaxDurationEndsAt) + " (before it is due)"
}

func formatDebounce(t apiv1.Task) string {
	if t.DebounceKey == nil && t.MergedRequests == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d merged", orDefault(t.DebounceKey, ""), t.MergedRequests))
}

func (p *program) printTask(t apiv1.Task) {
	p.printDone("Task Details:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"UUID", t.TaskUUID}, field{"Task", t.Namespace + "/" + t.Name + " " + t.Version},
		field{"State", t.Status}, field{"Since", t.StateSince}, field{"Compensation", formatUndo(t)},
		field{"Steps", formatTaskProgress(t) + " complete"}, field{"Priority", t.Priority}, field{"Context", t.Context},
		field{"Initiator", t.Initiator}, field{"Source system", t.SourceSystem}, field{"Reason", t.Reason}, field{"Tags", t.Tags},
		field{"Attributes", t.Attributes}, field{"Correlation", t.CorrelationID}, field{"Replaces", t.RecreatedFrom},
		field{"Parent", t.ParentTaskUUID}, field{"Starts", t.StartAt}, field{"Start by", t.StartBy}, field{"Due", formatDue(t.Due)},
		field{"Max duration", formatMaxDuration(t)}, field{"Unique key", t.UniqueKey}, field{"Debounce", formatDebounce(t)},
		field{"Created", t.CreatedAt}, field{"Completed", t.CompletedAt},
	)
	if t.DeadLettered {
		since := formatDeadLetter(t) + " since " + formatTime(t.DeadLetteredAt)
		p.printFields("  ", field{"Dead letter", since}, field{"Investigation", t.DLQEntryUUID})
	}
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	printList(p, t.Steps, "", "step, uuid, state, attempts, last failure", func(s apiv1.Step) []any {
		return []any{s.Name, s.StepUUID, s.CurrentState, formatAttempts(s), formatFailure(s.Error)}
	})
}

func (p *program) printTree(t apiv1.TaskTree) {
	printList(p, t.Tasks, "", "template, task, step, state, steps, dead letter", func(n apiv1.TreeTask) []any {
		name := strings.Repeat(". ", n.Depth) + n.Task.Namespace + "/" + n.Task.Name
		if n.Task.TaskUUID == t.TaskUUID {
			name += " *"
		}
		progress := formatTaskProgress(n.Task)
		return []any{name, n.Task.TaskUUID, formatStartedBy(n), formatState(n.Task), progress, formatDeadLetter(n.Task)}
	})
	for _, n := range t.Tasks {
		if n.MoreChildren {
			p.printHint("tasker-ctl task list --parent %s", n.Task.TaskUUID)
		}
	}
}

// formatStartedBy returns the step that started a task, with "(waits)" if it waits for the task or
// "(before)" if it has started another one since.
func formatStartedBy(n apiv1.TreeTask) string {
	switch name := orDefault(n.StepName, "-"); {
	case n.WaitedFor:
		return name + " (waits)"
	case n.StepName != nil && !n.Current:
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
