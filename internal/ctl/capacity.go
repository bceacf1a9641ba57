package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
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
		printList(p, l.Workers, "No workers.", header, func(w tasker.Worker) []any {
			namespaces := strings.Join(w.Namespaces, ",")
			return []any{
				w.UUID, w.Name, w.Health, formatBusy(w), namespaces, len(w.Handlers), w.Version, w.LastHeartbeatAt,
			}
		})
		p.printNextPage(l.Pagination)
		p.warnOfUnserved(p.command.Context())
	}),
	plain(endpoint.DrainWorker, help{
		use: "drain WORKER", short: "Drain a worker",
		example: `  tasker-ctl worker drain $WORKER
  tasker-ctl worker drain $WORKER -o json | jq .in_flight`,
	}, func(p *program, w tasker.Worker) {
		p.printDone("Worker drained!")
		p.printFields("  ",
			field{"UUID", w.UUID}, field{"Name", w.Name}, field{"Health", w.Health}, field{"Draining since", w.DrainingSince},
			field{"Busy", formatBusy(w)}, field{"Next", describeDrained(w)},
		)
	}),
)

func formatBusy(w tasker.Worker) string { return fmt.Sprintf("%d/%d", w.InFlight, w.MaxConcurrency) }

// describeDrained describes what a drained worker does next.
func describeDrained(w tasker.Worker) string {
	silent := w.Health == tasker.WorkerGone || w.Health == tasker.WorkerStale
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

var namespaceCommand = group(help{
	use: "namespace", short: "Manage namespace weights",
	long: `Manage the shares of worker capacity that namespaces get.

Workers that serve several namespaces take turns among them. While both have work, a namespace
with weight 3 gets three steps for each step of a namespace with weight 1.`,
	example: "  tasker-ctl namespace list\n  tasker-ctl namespace weight payments 3",
},
	list(endpoint.ListNamespaces, help{
		use: "list", short: "List namespaces with custom weights",
		example: "  tasker-ctl namespace list -o json | jq '.namespaces[].weight'",
	}, "All namespaces have the weight 1.", "namespace, weight, set by, set at", func(n tasker.NamespaceWeight) []any {
		return []any{n.Namespace, formatWeight(n.Weight), n.SetBy, n.SetAt}
	}),
	plain(endpoint.SetNamespace, help{
		use: "weight NAMESPACE WEIGHT", short: "Set the weight of a namespace",
		example: "  tasker-ctl namespace weight payments 3",
	}, func(p *program, n tasker.NamespaceWeight) {
		p.printDone("Weight set!")
		p.printFields("  ", field{"Namespace", n.Namespace}, field{"Weight", formatWeight(n.Weight)})
	}, func(_ *program, n *apiv1.SetNamespace, a arguments) (err error) {
		if n.Weight, err = strconv.ParseFloat(a.text[1], 64); err != nil {
			return cli.Usagef("WEIGHT must be a number from 0.01 to 1000, not %q", a.text[1])
		}
		return nil
	}),
	(*program).newNamespaceResetCommand,
)

func formatWeight(weight float64) string { return strconv.FormatFloat(weight, 'f', -1, 64) }

func (p *program) newNamespaceResetCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use: "reset NAMESPACE", short: "Reset a namespace to the default weight",
		example: "  tasker-ctl namespace reset payments",
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.SetNamespace, error) {
		return apiv1.SetNamespace{Weight: 1}, api.DeleteNamespace(ctx, a.text[0])
	}, func(apiv1.SetNamespace) { p.printDone("The namespace has the weight 1.") })
}

var limitCommand = group(help{
	use: "limit", short: "Manage concurrency and rate limits",
	long: `Manage how many steps run at once, and how many start per second.

A limit applies to the server, a namespace, a handler, or a name that templates assign to
steps with a key, such as a customer. It covers all servers and workers. A step has a slot
until its lease ends. Steps without a slot wait, and their queue timeout is suspended.`,
	example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10
  tasker-ctl limit set name --namespace payments --name customer --rate 5 --burst 20
  tasker-ctl limit list
  tasker-ctl limit show --kind handler --namespace payments --name charge`,
},
	list(endpoint.ListLimits, help{
		use: "list", short: "List limits with usage", limit: 50, without: []string{"kind", "name", "keys"},
		example: `  tasker-ctl limit list --namespace payments
  tasker-ctl limit list -o json | jq '.limits[] | select(.waiting > 0)'`,
	}, "No limits.", "kind, namespace, name, limit, in progress, waiting, changed by", func(l apiv1.Limit) []any {
		by := l.ChangedBy
		if l.ByTemplate {
			by = "template"
		}
		return []any{l.Kind, l.Namespace, l.Name, formatLimit(l), l.InProgress, l.Waiting, by}
	}),
	plain(endpoint.SetLimit, help{
		use: "set KIND", short: "Create or change a limit",
		example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10 --reason "the provider allows 10"
  tasker-ctl limit set server --max 500`,
	}, func(p *program, l apiv1.Limit) {
		p.printDone("Limit set!")
		p.printFields("  ", describeLimit(l)...)
	}, func(_ *program, s *apiv1.SetLimit, a arguments) error {
		s.Kind = a.text[0]
		ref := tasker.LimitRef{Kind: tasker.LimitKind(s.Kind), Namespace: s.Namespace, Name: s.Name}
		if err := checkLimit(ref); err != nil {
			return err
		}
		if s.MaxInProgress == 0 && s.PerSecond == 0 {
			return cli.Usagef("missing limit: set --max, --rate or both")
		}
		return nil
	}),
	(*program).newLimitShowCommand, (*program).newLimitDeleteCommand,
)

func formatLimit(l apiv1.Limit) string {
	return tasker.LimitValue{
		MaxInProgress: orDefault(l.MaxInProgress, 0), PerSecond: orDefault(l.PerSecond, 0), Burst: orDefault(l.Burst, 0),
	}.String()
}

func (p *program) newLimitShowCommand() *cobra.Command {
	r := newRequest(endpoint.ListLimits)
	r.query.Keys = true
	return r.command(p, help{
		use: "show", short: "Show the slots of a limit",
		example: "  tasker-ctl limit show --kind name --namespace payments --name customer",
		limit:   50, without: []string{"keys"},
	}, func(all apiv1.LimitList) {
		if len(all.Limits) == 0 {
			p.printDone("No limits.")
		}
		for _, l := range all.Limits {
			p.printFields("", append(describeLimit(l), field{"In progress", l.InProgress}, field{"Waiting", l.Waiting})...)
			header := "key, in progress, waiting, free at, oldest task, step"
			printList(p, l.Keys, "No step has used it yet.", header, func(k tasker.LimitKey) []any {
				var oldest tasker.LimitStep
				if len(k.Holders) > 0 {
					oldest = k.Holders[0]
				}
				return []any{k.Key, k.InProgress, k.Waiting, k.FreeAt, tasker.OptionalID{ID: oldest.TaskUUID}, oldest.Step}
			})
		}
		printNextPageFlag(p, "after", all.Pagination.NextAfter)
	})
}

func describeLimit(l apiv1.Limit) []field {
	return []field{{"Kind", l.Kind}, {"Namespace", l.Namespace}, {"Name", l.Name}, {"Limit", formatLimit(l)}}
}

// checkLimit returns a usage error if the reference is invalid.
func checkLimit(ref tasker.LimitRef) error {
	if err := ref.Check(); err != nil {
		return cli.Usagef("%s", err)
	}
	return nil
}

func (p *program) newLimitDeleteCommand() *cobra.Command {
	var ref tasker.LimitRef
	var reason, by string
	c := newRequestCommand(p, help{
		use: "delete KIND", short: "Delete a limit",
		example: "  tasker-ctl limit delete handler --namespace payments --name charge",
	}, func(ctx context.Context, api *client.Client, a arguments) (tasker.LimitRef, error) {
		ref.Kind = tasker.LimitKind(a.text[0])
		if err := checkLimit(ref); err != nil {
			return ref, err
		}
		return ref, api.DeleteLimit(ctx, ref, reason, by)
	}, func(tasker.LimitRef) { p.printDone("Limit deleted.") })
	c.Flags().StringVar(&ref.Namespace, "namespace", "", "namespace of the limit; not for server")
	c.Flags().StringVar(&ref.Name, "name", "", "handler, or the name that templates assign")
	addOptionalReasonFlag(c, &reason)
	p.addActorFlag(c, &by, "by")
	return c
}
