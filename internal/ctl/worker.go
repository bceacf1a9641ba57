package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newWorkerCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:     "worker",
		Short:   "Manage workers",
		Example: "  tasker-ctl worker list\n  tasker-ctl worker drain $WORKER",
	}, p.newWorkersCommand(), p.newWorkerDrainCommand())
}

func (p *program) newWorkersCommand() *cobra.Command {
	var page apiv1.Page
	c := p.newCommand(help{
		use:   "list",
		short: "List workers and unserved queues",
		example: `  tasker-ctl worker list
  tasker-ctl worker list -o json | jq '[.workers[] | select(.health == "active")] | length'`,
	}, func(ctx context.Context, _ arguments) error {
		api, err := p.newClient()
		if err != nil {
			return err
		}
		l, err := api.Workers(ctx, page)
		if err != nil {
			return err
		}
		return p.show(l, func() {
			p.printWorkers(l)
			p.warnOfUnserved(ctx, api)
		})
	})
	p.addQueryFlags(c, &page, 50)
	return c
}

func (p *program) printWorkers(l apiv1.WorkerList) {
	printList(p, l.Workers, "No workers.", "worker, name, health, busy, namespaces, handlers, version, last heartbeat", func(w apiv1.Worker) []any {
		return []any{
			w.WorkerUUID, w.Name, w.Health, fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency),
			strings.Join(w.Namespaces, ","), formatInt(len(w.Handlers)), w.Version, w.LastHeartbeatAt,
		}
	})
	p.printNextPage(l.Pagination)
}

func (p *program) newWorkerDrainCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "drain WORKER",
		short: "Drain a worker",
		example: `  tasker-ctl worker drain $WORKER
  tasker-ctl worker drain $WORKER -o json | jq .in_flight`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Worker, error) {
		return api.DrainWorker(ctx, a.id[0])
	}, func(w apiv1.Worker) {
		p.printDone("Worker drained!")
		p.printFields("  ",
			field{"UUID", w.WorkerUUID}, field{"Name", w.Name}, field{"Health", w.Health},
			field{"Draining since", w.DrainingSince},
			field{"Busy", fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency)},
			field{"Next", describeDrained(w)},
		)
	})
}

// describeDrained describes what a drained worker does next.
func describeDrained(w apiv1.Worker) string {
	silent := w.Health == string(tasker.WorkerGone) || w.Health == string(tasker.WorkerStale)
	switch {
	case silent && w.InFlight > 0:
		return "last heartbeat at " + formatTime(&w.LastHeartbeatAt) + "; its steps are retried when their leases expire"
	case silent:
		return "last heartbeat at " + formatTime(&w.LastHeartbeatAt) + "; it gets no steps if it reconnects"
	case w.InFlight > 0:
		return "it gets no new steps, finishes or releases its current steps, and stops"
	default:
		return "it gets no new steps and stops after its next heartbeat"
	}
}

func (p *program) newQueuesCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:     "queue",
		Short:   "View queues",
		Example: "  tasker-ctl queue list",
	}, p.newQueueListCommand())
}

func (p *program) newQueueListCommand() *cobra.Command {
	var namespace string
	var limit int
	c := newRequestCommand(p, help{
		use:   "list",
		short: "List queues, unserved first",
		long: `List queues: those without a live worker first, then by age.

A queue contains the waiting steps of one namespace and handler. QUEUED steps can be claimed.
AWAITING steps failed because no worker claimed them in time; they are enqueued again when a
worker for them is live. HELD steps are covered by a hold (tasker-ctl hold list --open).
SATURATED steps exceeded their queue timeout but do not fail, because live workers are busy.`,
		example: `  tasker-ctl queue list --namespace orders
  tasker-ctl queue list -o json | jq -r '.[] | select(.unserved) | .namespace + "/" + .handler'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) ([]tasker.Queue, error) {
		return api.Queues(ctx, namespace, limit)
	}, func(l []tasker.Queue) {
		p.printQueues(l)
		p.hintLimitReached(len(l), limit)
	})
	addNamespaceFlag(c, &namespace)
	addLimitFlag(c, &limit, 100)
	return c
}

func (p *program) printQueues(l []tasker.Queue) {
	printList(p, l, "No queued steps.", "namespace, handler, queued, awaiting, held, limited, saturated, live workers, oldest, expires", func(q tasker.Queue) []any {
		workers := formatInt(q.LiveWorkers)
		if q.Unserved {
			workers = "none"
		}
		return []any{
			q.Namespace, q.Handler, formatAtLeast(q.Queued, q.QueuedIsAtLeast), formatAtLeast(q.AwaitingWorker, q.AwaitingWorker >= tasker.MaxQueueCount),
			formatAtLeast(q.Held, q.Held >= tasker.MaxQueueCount), formatAtLeast(q.Limited, q.Limited >= tasker.MaxQueueCount), formatAtLeast(q.Saturated, q.Saturated >= tasker.MaxQueueCount), workers, orDash(q.OldestQueuedAt), orDash(q.NextExpiresAt),
		}
	})
}

// A warning names at most maxNamed queues and counts at most maxCounted.
const maxNamed, maxCounted = 3, 100

// warnOfUnserved warns of queues without a live worker. It prints nothing if the server is too old
// to list queues.
func (p *program) warnOfUnserved(ctx context.Context, api *client.Client) {
	all, err := api.Queues(ctx, "", maxCounted)
	if err != nil {
		if tasker.CodeOf(err) != tasker.NotFound {
			p.warn("cannot list queues without a live worker: %s", clean(err.Error()))
		}
		return
	}
	var names []string
	unserved := 0
	for _, q := range all {
		if !q.Unserved {
			break // they come first
		}
		if unserved++; unserved <= maxNamed {
			names = append(names, truncate(q.Namespace+"/"+q.Handler, maxCell))
		}
	}
	if unserved == 0 {
		return
	}
	text := strings.Join(names, ", ")
	if unserved > maxNamed {
		text += " and " + formatAtLeast(unserved-maxNamed, unserved == maxCounted) + " more"
	}
	p.warn("No live worker for %s. For details: tasker-ctl queue list", text)
}
