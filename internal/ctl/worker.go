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

func (p *program) workerCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "worker",
		Short:   "See who executes steps",
		Example: "  tasker-ctl worker list\n  tasker-ctl worker drain $WORKER",
	})
	c.AddCommand(p.workersCommand(), p.workerDrainCommand())
	return c
}

func (p *program) workersCommand() *cobra.Command {
	var page client.Page
	c := &cobra.Command{
		Use:   "list",
		Short: "List workers, those heard of last first, and say which queues none of them takes",
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
			return p.show(list, func() {
				p.listWorkers(list)
				p.warnOfUnserved(c.Context(), api)
			})
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

func (p *program) workerDrainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "drain WORKER",
		Short: "Give a worker no new work: it finishes what it holds and leaves",
		Example: `  tasker-ctl worker drain $WORKER
  tasker-ctl worker drain $WORKER -o json | jq .in_flight`,
		Args: named("WORKER"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("WORKER", args[0])
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			w, err := api.DrainWorker(c.Context(), id)
			if err != nil {
				return err
			}
			return p.show(w, func() {
				p.done("Worker drained!")
				p.fields("  ",
					field{"UUID", w.WorkerUUID}, field{"Name", w.Name}, field{"Health", w.Health},
					field{"Draining since", at(w.DrainingSince)}, field{"Busy", fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency)},
					field{"Next", afterDrain(w)},
				)
			})
		},
	}
}

// afterDrain says what a drained worker does next.
func afterDrain(w apiv1.Worker) string {
	silent := w.Health == string(tasker.WorkerGone) || w.Health == string(tasker.WorkerStale)
	switch {
	case silent && w.InFlight > 0:
		return "it has been silent since " + at(&w.LastHeartbeatAt) + "; what it holds is taken back when its leases end"
	case silent:
		return "it has been silent since " + at(&w.LastHeartbeatAt) + "; it gets no work if it comes back"
	case w.InFlight > 0:
		return "it gets no new work, finishes or gives back what it holds, and leaves"
	default:
		return "it gets no new work and leaves once its next heartbeat is answered"
	}
}
