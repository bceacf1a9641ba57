package ctl

import (
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

// A taskQuery is what tasks are found by, as typed.
type taskQuery struct {
	client.TaskQuery
	after, before, parent, due string
	attributes                 []string
}

// flags adds the flags of what tasks are found by.
func (q *taskQuery) flags(c *cobra.Command) {
	c.Flags().VarP(cli.Choice(&q.Status, tasker.TaskStates()), "status", "s", "only tasks in this state: "+cli.Join(tasker.TaskStates()))
	c.Flags().Var(cli.Choice(&q.Phase, []tasker.TaskPhase{tasker.Compensating}), "phase", "only tasks in this phase: compensating")
	c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "only tasks of this namespace")
	c.Flags().StringVar(&q.Name, "name", "", "only tasks of this template")
	c.Flags().StringVar(&q.parent, "parent", "", "only tasks that steps of this task started")
	c.Flags().BoolVar(&q.Overdue, "overdue", false, "only overdue tasks, longest overdue first")
	c.Flags().StringVar(&q.due, "due-before", "", "only open tasks that are due before this instant, such as 2026-01-31T12:00:00Z, those that are due first before the others")
	cli.Optional(c, &q.DeadLettered, "dead-lettered", "only tasks with an open or permanent investigation; =false for those without")
	c.Flags().StringArrayVar(&q.Tags, "tag", nil, "only tasks with this tag; may be repeated")
	c.Flags().StringVar(&q.CorrelationID, "correlation-id", "", "only tasks with this correlation id")
	c.Flags().StringVar(&q.IdempotencyKey, "idempotency-key", "", "only the task with this key")
	c.Flags().StringVar(&q.Initiator, "initiator", "", "only tasks with this initiator")
	c.Flags().StringVar(&q.SourceSystem, "source-system", "", "only tasks of this system")
	c.Flags().StringArrayVar(&q.attributes, "attribute", nil, "only tasks with this attribute: customer:4711, or of a number or time 'risk:>0.5'; may be repeated")
	c.Flags().StringVar(&q.after, "created-after", "", "only tasks created at this instant or later, such as 2026-01-31T02:10:00Z")
	c.Flags().StringVar(&q.before, "created-before", "", "only tasks created before this instant")
}

// read reads what was typed.
func (q *taskQuery) read() (err error) {
	if q.Attributes, err = attributeFilters(q.attributes); err != nil {
		return err
	}
	if q.CreatedAfter, err = instant("created-after", q.after); err != nil {
		return err
	}
	if q.CreatedBefore, err = instant("created-before", q.before); err != nil {
		return err
	}
	if q.DueBefore, err = instant("due-before", q.due); err != nil {
		return err
	}
	if q.parent != "" {
		q.Parent, err = readID("--parent", q.parent)
	}
	return err
}

// attributeFilters reads conditions on attributes.
func attributeFilters(texts []string) (list []tasker.AttributeFilter, err error) {
	for _, text := range texts {
		a, err := tasker.ParseAttributeFilter(text)
		if err != nil {
			return nil, cli.Usagef("--attribute: %v", err)
		}
		list = append(list, a)
	}
	return list, nil
}
