package ctl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) taskCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "task",
		Short: "Submit, watch and repair tasks",
		Example: `  tasker-ctl task list --status error
  tasker-ctl task steps $TASK
  tasker-ctl task reset-step $TASK $STEP --reason "gateway is back"`,
	})
	c.AddCommand(
		p.tasksCommand(), p.taskGetCommand(), p.submitCommand(), p.cancelCommand(), p.watchCommand(), p.transitionsCommand(),
		p.stepsCommand(), p.stepCommand(), p.resetCommand(), p.resolveCommand(), p.completeCommand(),
	)
	return c
}

func (p *program) tasksCommand() *cobra.Command {
	var q client.TaskQuery
	var status string
	var deadLettered, ids bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Example: `  tasker-ctl task list --status error --namespace orders
  tasker-ctl task list --dead-lettered
  tasker-ctl task list --status error --quiet | xargs -n1 tasker-ctl task steps`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Status, err = choice("status", status, tasker.TaskStates()); err != nil {
				return err
			}
			if c.Flags().Changed("dead-lettered") {
				q.DeadLettered = &deadLettered
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Tasks(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listTasks(list, ids) })
		},
	}
	c.Flags().StringVarP(&status, "status", "s", "", "only those in this state: "+choices(tasker.TaskStates()))
	c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "only those of this namespace")
	c.Flags().StringVar(&q.Name, "name", "", "only those of this template")
	c.Flags().BoolVar(&deadLettered, "dead-lettered", false, "only those with an open or permanent investigation; =false for those without")
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids only")
	pageFlags(c, &q.Page, 20)
	oneOf(c, "status", tasker.TaskStates())
	return c
}

func (p *program) listTasks(list apiv1.TaskList, ids bool) {
	defer p.more(list.Pagination)
	if ids {
		for _, t := range list.Tasks {
			fmt.Fprintln(p.out, clean(t.TaskUUID))
		}
		return
	}
	if len(list.Tasks) == 0 {
		fmt.Fprintln(p.err, "No tasks.")
		return
	}
	var rows [][]string
	for _, t := range list.Tasks {
		rows = append(rows, []string{
			t.TaskUUID, t.Namespace + "/" + t.Name, t.Version, t.Status, progress(t), or(t.DeadLetterReason, "-"), at(&t.CreatedAt),
		})
	}
	p.table([]string{"task", "template", "version", "state", "steps", "dead letter", "created"}, rows)
}

func progress(t apiv1.Task) string { return fmt.Sprintf("%d/%d", t.CompletedSteps, t.TotalSteps) }

func (p *program) taskGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get TASK",
		Short: "Show a task with its steps",
		Example: `  tasker-ctl task get 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task get $TASK -o json | jq -r .status`,
		Args: named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			t, err := api.Task(c.Context(), id)
			if err != nil {
				return err
			}
			return p.show(t, func() { p.oneTask(t) })
		},
	}
}

func (p *program) oneTask(t apiv1.Task) {
	p.done("Task Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"UUID", t.TaskUUID}, field{"Task", t.Namespace + "/" + t.Name + " " + t.Version},
		field{"State", t.Status}, field{"Since", at(&t.StateSince)},
		field{"Steps", progress(t) + " complete"}, field{"Priority", strconv.Itoa(t.Priority)},
		field{"Context", compact(t.Context)}, field{"Initiator", t.Initiator}, field{"Source system", t.SourceSystem},
		field{"Reason", t.Reason}, field{"Tags", strings.Join(t.Tags, ", ")}, field{"Correlation", t.CorrelationID},
		field{"Replaces", or(t.RecreatedFrom, "")}, field{"Starts", at(t.StartAt)},
		field{"Created", at(&t.CreatedAt)}, field{"Completed", at(t.CompletedAt)},
	)
	if t.DeadLettered {
		p.fields("  ",
			field{"Dead letter", or(t.DeadLetterReason, "") + " since " + at(t.DeadLetteredAt)},
			field{"Investigation", or(t.DLQEntryUUID, "")},
		)
	}
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	var rows [][]string
	for _, s := range t.Steps {
		rows = append(rows, []string{s.Name, s.StepUUID, s.CurrentState, attempts(s), failureText(s.Error)})
	}
	p.table([]string{"step", "uuid", "state", "attempts", "last failure"}, rows)
}

func (p *program) cancelCommand() *cobra.Command {
	var reason, by string
	c := &cobra.Command{
		Use:     "cancel TASK",
		Short:   "Cancel a task and what is left of its steps",
		Example: `  tasker-ctl task cancel $TASK --reason "customer withdrew the order" --cancelled-by "ops-team@example.com"`,
		Args:    named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			actor, err := p.actor("cancelled-by", by)
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			t, err := api.CancelTask(c.Context(), id, reason, actor)
			if err != nil {
				return err
			}
			return p.show(t, func() {
				p.done("Task cancelled!")
				p.fields("  ", field{"New state", t.Status}, field{"Reason", reason}, field{"Cancelled by", actor})
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "cancelled with tasker-ctl", "why, for the history")
	c.Flags().StringVar(&by, "cancelled-by", "", "who does it (default $TASKER_ACTOR, else your name on this machine)")
	return c
}

func (p *program) transitionsCommand() *cobra.Command {
	var step string
	var page client.Page
	c := &cobra.Command{
		Use:   "transitions TASK",
		Short: "Show the history of a task, or of one of its steps, oldest first",
		Example: `  tasker-ctl task transitions $TASK
  tasker-ctl task transitions $TASK --step $STEP -o json | jq -r '.[].to_state'`,
		Args: named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			var list []apiv1.Transition
			if step == "" {
				list, err = api.TaskTransitions(c.Context(), id, page)
			} else {
				var stepID tasker.ID
				if stepID, err = readID("--step", step); err != nil {
					return err
				}
				list, err = api.StepTransitions(c.Context(), id, stepID, page)
			}
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listTransitions(list)
				p.mayGoOn(len(list), page)
			})
		},
	}
	c.Flags().StringVar(&step, "step", "", "the history of this step")
	pageFlags(c, &page, 1000)
	return c
}

func (p *program) listTransitions(list []apiv1.Transition) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "No transitions.")
		return
	}
	var rows [][]string
	for _, t := range list {
		attempt := "-"
		if t.Attempt != nil {
			attempt = strconv.Itoa(*t.Attempt)
		}
		from := t.FromState
		if from == "" {
			from = "-"
		}
		rows = append(rows, []string{at(&t.CreatedAt), from, t.ToState, t.Event, attempt, t.Actor, t.Reason})
	}
	p.table([]string{"time", "from", "to", "event", "attempt", "actor", "reason"}, rows)
}
