package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
)

func (p *program) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count investigations by reason",
		Example: `  tasker-ctl dlq stats
  tasker-ctl dlq stats -o json | jq '[.[].pending] | add'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Stats(c.Context())
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listStats(list) })
		},
	}
}

func (p *program) listStats(list []apiv1.EntryStats) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "No investigations.")
		return
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	var rows [][]string
	for _, s := range list {
		average := "-"
		if s.AvgResolutionTimeMinutes != nil {
			average = minutes(*s.AvgResolutionTimeMinutes)
		}
		rows = append(rows, []string{
			s.DLQReason, count(s.TotalEntries), count(s.Pending), count(s.ManuallyResolved), count(s.PermanentFailures),
			count(s.Cancelled), at(s.OldestEntry), at(s.NewestEntry), average,
		})
	}
	p.table([]string{"reason", "total", "pending", "resolved", "permanent", "cancelled", "oldest", "newest", "average"}, rows)
}

func (p *program) stalenessCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "staleness",
		Short: "List tasks that stand still, those past their threshold first",
		Example: `  tasker-ctl dlq staleness
  tasker-ctl dlq staleness -o json | jq '[.[] | select(.health_status == "warning")] | length'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Staleness(c.Context(), limit)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listStaleness(list)
				p.cutShort(len(list), limit)
			})
		},
	}
	limitFlag(c, &limit, 100)
	return c
}

func (p *program) listStaleness(list []apiv1.StalenessLine) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "No task is in a state with a staleness threshold.")
		return
	}
	var rows [][]string
	for _, l := range list {
		rows = append(rows, []string{
			l.HealthStatus, l.TaskUUID, l.NamespaceName + "/" + l.TaskName, l.CurrentState,
			minutes(l.TimeInStateMinutes), minutes(l.StalenessThresholdMinutes), strconv.Itoa(l.Priority),
		})
	}
	p.table([]string{"health", "task", "template", "state", "in state", "threshold", "priority"}, rows)
}
