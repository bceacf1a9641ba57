package ctl

import (
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

// taskQueryFlags contains the flags that select tasks.
type taskQueryFlags struct {
	client.TaskQuery
	parent     string
	attributes []string
}

func (q *taskQueryFlags) addTo(c *cobra.Command) {
	addFilterFlag(c, &q.Status, "status", "s", tasker.TaskStates())
	addFilterFlag(c, &q.Phase, "phase", "", []tasker.TaskPhase{tasker.Compensating})
	addNamespaceFlag(c, &q.Namespace)
	c.Flags().StringVar(&q.Name, "name", "", "filter by template")
	c.Flags().StringVar(&q.parent, "parent", "", "filter by parent task")
	c.Flags().BoolVar(&q.Overdue, "overdue", false, "only overdue tasks, longest overdue first")
	c.Flags().Var(cli.Time(&q.DueBefore), "due-before", "only tasks due before this time, earliest first")
	cli.Optional(c, &q.DeadLettered, "dead-lettered", "filter by open or permanent investigation (true or false)")
	c.Flags().StringArrayVar(&q.Tags, "tag", nil, "filter by tag; repeatable")
	c.Flags().StringVar(&q.CorrelationID, "correlation-id", "", "filter by correlation id")
	c.Flags().StringVar(&q.IdempotencyKey, "idempotency-key", "", "filter by idempotency key")
	c.Flags().StringVar(&q.Initiator, "initiator", "", "filter by initiator")
	c.Flags().StringVar(&q.SourceSystem, "source-system", "", "filter by source system")
	c.Flags().StringArrayVar(&q.attributes, "attribute", nil, "filter by attribute, such as customer:4711, or 'risk:>0.5' for numbers and times; repeatable")
	c.Flags().Var(cli.Time(&q.CreatedAfter), "created-after", "filter by creation time, inclusive, such as 2026-01-31T02:10:00Z")
	c.Flags().Var(cli.Time(&q.CreatedBefore), "created-before", "filter by creation time, exclusive")
}

// read parses the flags that cobra does not parse.
func (q *taskQueryFlags) read() (err error) {
	if q.Attributes, err = parseAttributeFilters(q.attributes); err != nil {
		return err
	}
	if q.parent != "" {
		q.Parent, err = parseID("--parent", q.parent)
	}
	return err
}

func parseAttributeFilters(texts []string) (list []tasker.AttributeFilter, err error) {
	for _, text := range texts {
		a, err := tasker.ParseAttributeFilter(text)
		if err != nil {
			return nil, cli.Usagef("--attribute: %v", err)
		}
		list = append(list, a)
	}
	return list, nil
}
