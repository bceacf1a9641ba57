package ctl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker/apiv1"
	"tasker/client"
)

func (p *program) workerCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "worker",
		Short:   "See who executes steps",
		Example: "  tasker-ctl worker list",
	})
	c.AddCommand(p.workersCommand())
	return c
}

func (p *program) workersCommand() *cobra.Command {
	var page client.Page
	c := &cobra.Command{
		Use:   "list",
		Short: "List workers, those heard of last first",
		Example: `  tasker-ctl worker list
  tasker-ctl worker list -o json | jq '[.workers[] | select(.health == "active")] | length'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Workers(c.Context(), page)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listWorkers(list) })
		},
	}
	pageFlags(c, &page, 50)
	return c
}

func (p *program) listWorkers(list apiv1.WorkerList) {
	defer p.more(list.Pagination)
	if len(list.Workers) == 0 {
		fmt.Fprintln(p.err, "No workers.")
		return
	}
	var rows [][]string
	for _, w := range list.Workers {
		rows = append(rows, []string{
			w.WorkerUUID, w.Name, w.Health, fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency),
			strings.Join(w.Namespaces, ","), strconv.Itoa(len(w.Handlers)), w.Version, at(&w.LastHeartbeatAt),
		})
	}
	p.table([]string{"worker", "name", "health", "busy", "namespaces", "handlers", "version", "last heard of"}, rows)
}
