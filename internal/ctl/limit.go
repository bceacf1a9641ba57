package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newLimitCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "limit",
		Short: "Manage concurrency and rate limits",
		Long: `Manage how many steps run at once, and how many start per second.

A limit applies to the server, a namespace, a handler, or a name that templates assign to
steps with a key, such as a customer. It covers all servers and workers. A step has a slot
until its lease ends. Steps without a slot wait, and their queue timeout is suspended.`,
		Example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10
  tasker-ctl limit set name --namespace payments --name customer --rate 5 --burst 20
  tasker-ctl limit list
  tasker-ctl limit show --kind handler --namespace payments --name charge`,
	}, p.newLimitListCommand(), p.newLimitShowCommand(), p.newLimitSetCommand(), p.newLimitDeleteCommand())
}

func addLimitRefFlags(c *cobra.Command, ref *tasker.LimitRef) {
	c.Flags().StringVar(&ref.Namespace, "namespace", "", "namespace of the limit; not for server")
	c.Flags().StringVar(&ref.Name, "name", "", "handler, or the name that templates assign")
}

// parseLimitRef returns ref with the kind in the first argument. It returns a usage error if the
// reference is invalid.
func parseLimitRef(ref tasker.LimitRef, a arguments) (tasker.LimitRef, error) {
	ref.Kind = tasker.LimitKind(a.text[0])
	if err := ref.Check(); err != nil {
		return ref, cli.Usagef("%s", err)
	}
	return ref, nil
}

func (p *program) newLimitListCommand() *cobra.Command {
	var q tasker.LimitFilter
	c := newRequestCommand(p, help{
		use:     "list",
		short:   "List limits with usage",
		example: "  tasker-ctl limit list --namespace payments\n  tasker-ctl limit list -o json | jq '.limits[] | select(.waiting > 0)'",
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.LimitList, error) {
		return api.Limits(ctx, q)
	}, func(l apiv1.LimitList) {
		printList(p, l.Limits, "No limits.", "kind, namespace, name, limit, in progress, waiting, changed by", func(l apiv1.Limit) []any {
			by := l.ChangedBy
			if l.ByTemplate {
				by = "template"
			}
			return []any{l.Kind, l.Namespace, l.Name, formatLimit(l), l.InProgress, l.Waiting, by}
		})
		printNextPageFlag(p, "after", l.Pagination.NextAfter)
	})
	p.addQueryFlags(c, &q, 50, "kind", "name", "keys")
	return c
}

func formatLimit(l apiv1.Limit) string {
	var v tasker.LimitValue
	if l.MaxInProgress != nil {
		v.MaxInProgress = *l.MaxInProgress
	}
	if l.PerSecond != nil && l.Burst != nil {
		v.PerSecond, v.Burst = *l.PerSecond, *l.Burst
	}
	return v.String()
}

func (p *program) newLimitShowCommand() *cobra.Command {
	var q tasker.LimitFilter
	c := newRequestCommand(p, help{
		use:     "show",
		short:   "Show the slots of a limit",
		example: "  tasker-ctl limit show --kind name --namespace payments --name customer",
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.LimitList, error) {
		q.Keys = true
		return api.Limits(ctx, q)
	}, func(all apiv1.LimitList) {
		if len(all.Limits) == 0 {
			p.printDone("No limits.")
		}
		for _, l := range all.Limits {
			p.printFields("", field{"Kind", l.Kind}, field{"Namespace", l.Namespace}, field{"Name", l.Name}, field{"Limit", formatLimit(l)},
				field{"In progress", l.InProgress}, field{"Waiting", l.Waiting})
			printList(p, l.Keys, "No step has used it yet.", "key, in progress, waiting, free at, oldest task, step", formatKeyRow)
		}
		printNextPageFlag(p, "after", all.Pagination.NextAfter)
	})
	p.addQueryFlags(c, &q, 50, "keys")
	return c
}

func formatKeyRow(k apiv1.LimitKey) []any {
	task, step := "", ""
	if len(k.Holders) > 0 {
		task, step = k.Holders[0].TaskUUID, k.Holders[0].StepName
	}
	return []any{k.Key, k.InProgress, k.Waiting, k.FreeAt, task, step}
}

func (p *program) newLimitSetCommand() *cobra.Command {
	var ref tasker.LimitRef
	var s apiv1.SetLimit
	c := newRequestCommand(p, help{
		use:   "set KIND",
		short: "Create or change a limit",
		example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10 --reason "the provider allows 10"
  tasker-ctl limit set server --max 500`,
	}, func(ctx context.Context, api *client.Client, a arguments) (l apiv1.Limit, err error) {
		of, err := parseLimitRef(ref, a)
		if err != nil {
			return l, err
		}
		if s.MaxInProgress == 0 && s.PerSecond == 0 {
			return l, cli.Usagef("missing limit: set --max, --rate or both")
		}
		s.Kind, s.Namespace, s.Name = string(of.Kind), of.Namespace, of.Name
		return api.SetLimit(ctx, s)
	}, func(l apiv1.Limit) {
		p.printDone("Limit set!")
		p.printFields("  ", field{"Kind", l.Kind}, field{"Namespace", l.Namespace}, field{"Name", l.Name}, field{"Limit", formatLimit(l)})
	})
	addLimitRefFlags(c, &ref)
	c.Flags().IntVar(&s.MaxInProgress, "max", 0, "maximum number of running steps per key, from 1 to 10000")
	c.Flags().Float64Var(&s.PerSecond, "rate", 0, "maximum number of steps started per second and key")
	c.Flags().IntVar(&s.Burst, "burst", 0, "burst size for --rate")
	addOptionalReasonFlag(c, &s.Reason)
	p.addActorFlag(c, &s.By, "by")
	return c
}

func (p *program) newLimitDeleteCommand() *cobra.Command {
	var ref tasker.LimitRef
	var reason, by string
	c := newRequestCommand(p, help{
		use:     "delete KIND",
		short:   "Delete a limit",
		example: "  tasker-ctl limit delete handler --namespace payments --name charge",
	}, func(ctx context.Context, api *client.Client, a arguments) (r tasker.LimitRef, err error) {
		if r, err = parseLimitRef(ref, a); err != nil {
			return r, err
		}
		return r, api.DeleteLimit(ctx, r, reason, by)
	}, func(tasker.LimitRef) { p.printDone("Limit deleted.") })
	addLimitRefFlags(c, &ref)
	addOptionalReasonFlag(c, &reason)
	p.addActorFlag(c, &by, "by")
	return c
}
