package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) newTreeCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "tree TASK",
		short: "Show parent and child tasks",
		long: `Show a task with its parent tasks and the tasks that its steps started.

The task itself is marked with *. After a step, (waits) means that the step is waiting for the
child task, and (before) that the step was reset and has started another child since.`,
		example: `  tasker-ctl task tree $TASK
  tasker-ctl task tree $TASK -o json | jq -r '.tasks[] | select(.waited_for) | .task.task_uuid'`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.TaskTree, error) {
		return api.TaskTree(ctx, a.id[0])
	}, func(t apiv1.TaskTree) {
		printList(p, t.Tasks, "", "template, task, step, state, steps, dead letter", func(n apiv1.TreeTask) []any {
			name := strings.Repeat(". ", n.Depth) + n.Task.Namespace + "/" + n.Task.Name
			if n.Task.TaskUUID == t.TaskUUID {
				name += " *"
			}
			return []any{name, n.Task.TaskUUID, formatStartedBy(n), formatState(n.Task), formatTaskProgress(n.Task),
				formatDeadLetter(n.Task)}
		})
		for _, n := range t.Tasks {
			if n.MoreChildren {
				p.printHint("tasker-ctl task list --parent %s", n.Task.TaskUUID)
			}
		}
	})
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
