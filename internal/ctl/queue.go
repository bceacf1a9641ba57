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
)

func (p *program) queuesCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "queue",
		Short:   "See what waits for workers",
		Example: "  tasker-ctl queue list",
	})
	c.AddCommand(p.queueListCommand())
	return c
}

func (p *program) queueListCommand() *cobra.Command {
	var namespace string
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List what waits for workers: first what no live worker takes, then the oldest",
		Long: `List what waits for workers: first what no live worker takes, then the oldest.

A queue is the steps of one namespace and handler; one in which nothing waits is
not listed. QUEUED steps can be claimed. AWAITING steps waited for too long and
failed; they go back into the queue by themselves once a worker for them lives.`,
		Example: `  tasker-ctl queue list --namespace orders
  tasker-ctl queue list -o json | jq -r '.[] | select(.unserved) | .namespace + "/" + .handler'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Queues(c.Context(), namespace, limit)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listQueues(list)
				p.cutShort(len(list), limit)
			})
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only those of this namespace")
	limitFlag(c, &limit, 100)
	return c
}

func (p *program) listQueues(list []apiv1.Queue) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "Nothing waits for a worker.")
		return
	}
	var rows [][]string
	for _, q := range list {
		workers := strconv.Itoa(q.LiveWorkers)
		if q.Unserved {
			workers = "none"
		}
		rows = append(rows, []string{
			q.Namespace, q.Handler, atLeast(q.Queued, q.QueuedIsAtLeast), atLeast(q.AwaitingWorker, q.AwaitingWorker >= tasker.MaxQueueCount),
			workers, orDash(at(q.OldestQueuedAt)), orDash(at(q.NextExpiresAt)),
		})
	}
	p.table([]string{"namespace", "handler", "queued", "awaiting", "live workers", "oldest", "expires"}, rows)
}

// atLeast spells a number that may be larger.
func atLeast(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

// orDash spells nothing as a cell that awk can count.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// How many queues a warning names, and counts.
const (
	maxNamed   = 3
	maxCounted = 100
)

// warnOfUnserved says which queues no live worker takes. A server that is too old
// to tell says nothing of it.
func (p *program) warnOfUnserved(ctx context.Context, api *client.Client) {
	list, err := api.Queues(ctx, "", maxCounted)
	if err != nil {
		if tasker.CodeOf(err) != tasker.NotFound {
			p.warn("Which queues have no live worker is not known: %s", clean(err.Error()))
		}
		return
	}
	var names []string
	unserved := 0
	for _, q := range list {
		if !q.Unserved {
			break // they come first
		}
		if unserved++; unserved <= maxNamed {
			names = append(names, short(q.Namespace+"/"+q.Handler, maxCell))
		}
	}
	if unserved == 0 {
		return
	}
	text := strings.Join(names, ", ")
	if unserved > maxNamed {
		text += " and " + atLeast(unserved-maxNamed, unserved == maxCounted) + " more"
	}
	p.warn("No live worker takes what waits in %s. tasker-ctl queue list says more.", text)
}
