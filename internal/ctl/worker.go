package ctl

import (
	"context"
	"fmt"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

var workerCommand = group(help{
	use: "worker", short: "Manage workers",
	example: "  tasker-ctl worker list\n  tasker-ctl worker drain $WORKER",
},
	plain(endpoint.ListWorkers, help{
		use: "list", short: "List workers and unserved queues",
		example: `  tasker-ctl worker list
  tasker-ctl worker list -o json | jq '[.workers[] | select(.health == "active")] | length'`,
		limit: 50,
	}, func(p *program, l apiv1.WorkerList) {
		header := "worker, name, health, busy, namespaces, handlers, version, last heartbeat"
		printList(p, l.Workers, "No workers.", header, func(w apiv1.Worker) []any {
			namespaces := strings.Join(w.Namespaces, ",")
			return []any{
				w.WorkerUUID, w.Name, w.Health, formatBusy(w), namespaces, len(w.Handlers), w.Version, w.LastHeartbeatAt,
			}
		})
		p.printNextPage(l.Pagination)
		p.warnOfUnserved(p.command.Context())
	}),
	plain(endpoint.DrainWorker, help{
		use: "drain WORKER", short: "Drain a worker",
		example: `  tasker-ctl worker drain $WORKER
  tasker-ctl worker drain $WORKER -o json | jq .in_flight`,
	}, func(p *program, w apiv1.Worker) {
		p.printDone("Worker drained!")
		p.printFields("  ",
			field{"UUID", w.WorkerUUID}, field{"Name", w.Name}, field{"Health", w.Health}, field{"Draining since", w.DrainingSince},
			field{"Busy", formatBusy(w)}, field{"Next", describeDrained(w)},
		)
	}),
)

func formatBusy(w apiv1.Worker) string { return fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency) }

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

var queueCommand = group(help{use: "queue", short: "View queues", example: "  tasker-ctl queue list"},
	plain(endpoint.ListQueues, help{
		use: "list", short: "List queues, unserved first",
		long: `List queues: those without a live worker first, then by age.

A queue contains the waiting steps of one namespace and handler. QUEUED steps can be claimed.
AWAITING steps failed because no worker claimed them in time; they are enqueued again when a
worker for them is live. HELD steps are covered by a hold (tasker-ctl hold list --open).
SATURATED steps exceeded their queue timeout but do not fail, because live workers are busy.`,
		example: `  tasker-ctl queue list --namespace orders
  tasker-ctl queue list -o json | jq -r '.[] | select(.unserved) | .namespace + "/" + .handler'`,
		limit: 100,
	}, func(p *program, l []tasker.Queue) {
		p.printQueues(l)
		p.hintLimitReached(len(l))
	}),
)

func (p *program) printQueues(l []tasker.Queue) {
	header := "namespace, handler, queued, awaiting, held, limited, saturated, live workers, oldest, expires"
	atLeast := func(n int) string { return formatAtLeast(n, n >= tasker.MaxQueueCount) }
	printList(p, l, "No queued steps.", header, func(q tasker.Queue) []any {
		workers := formatInt(q.LiveWorkers)
		if q.Unserved {
			workers = "none"
		}
		return []any{
			q.Namespace, q.Handler, formatAtLeast(q.Queued, q.QueuedIsAtLeast), atLeast(q.AwaitingWorker), atLeast(q.Held),
			atLeast(q.Limited), atLeast(q.Saturated), workers, orDash(q.OldestQueuedAt), orDash(q.NextExpiresAt),
		}
	})
}

// A warning names at most maxNamed queues and counts at most maxCounted.
const maxNamed, maxCounted = 3, 100

// warnOfUnserved warns of queues without a live worker. It prints nothing if the server is too old
// to list queues.
func (p *program) warnOfUnserved(ctx context.Context) {
	all, err := p.client.Queues(ctx, "", maxCounted)
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
