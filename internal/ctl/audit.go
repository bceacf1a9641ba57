package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) auditCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "audit",
		Short:   "See what happened to Tasker itself, and who did it",
		Example: "  tasker-ctl audit list",
	})
	c.AddCommand(p.auditListCommand())
	return c
}

func (p *program) auditListCommand() *cobra.Command {
	var q client.AuditQuery
	c := &cobra.Command{
		Use:   "list",
		Short: "List the audit log, newest first: events that could not be sent, and what operators did about it",
		Example: `  tasker-ctl audit list
  tasker-ctl audit list --action dlq.re_emit -o json | jq '.events[] | {actor, data}'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Audit(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listAudit(list.Events)
				p.goesOn(list.Pagination)
			})
		},
	}
	c.Flags().StringVar(&q.Action, "action", "", "only those of this action, such as dlq.re_emit")
	limitFlag(c, &q.Limit, 100)
	c.Flags().Var(position{&q.Before}, "before", "only those before this number")
	return c
}

func (p *program) listAudit(list []apiv1.AuditEvent) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "Nothing in the audit log.")
		return
	}
	var rows [][]string
	for _, e := range list {
		rows = append(rows, []string{strconv.FormatInt(e.AuditID, 10), at(&e.CreatedAt), e.Actor, e.Action, e.Subject, short(compact(e.Data), maxCell)})
	}
	p.table([]string{"number", "at", "actor", "action", "subject", "detail"}, rows)
}
