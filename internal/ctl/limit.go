package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

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
			printList(p, l.Keys, "No step has used it yet.", header, func(k apiv1.LimitKey) []any {
				var oldest apiv1.LimitStep
				if len(k.Holders) > 0 {
					oldest = k.Holders[0]
				}
				return []any{k.Key, k.InProgress, k.Waiting, k.FreeAt, oldest.TaskUUID, oldest.StepName}
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
