package ctl

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) limitCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "limit",
		Short: "Manage concurrency and rate limits",
		Long: `Limit how many steps are in progress, or begin in a second.

A limit is of the server, a namespace, a handler of a namespace, or of a name that templates
give to their steps with a key, such as a customer. It holds over all servers and workers. A
step that is in progress has a place until its lease ends, however it ends. Steps without a
place wait, and their time in the queue does not run.`,
		Example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10
  tasker-ctl limit set name --namespace payments --name customer --rate 5 --burst 20
  tasker-ctl limit list
  tasker-ctl limit show --kind handler --namespace payments --name charge`,
	}, p.limitListCommand(), p.limitShowCommand(), p.limitSetCommand(), p.limitDeleteCommand())
}

func limitFlags(c *cobra.Command, ref *tasker.LimitRef) {
	c.Flags().StringVar(&ref.Namespace, "namespace", "", "whose steps are limited; not for server")
	c.Flags().StringVar(&ref.Name, "name", "", "the handler, or the name that templates give")
}

// limitOf reads the kind of a limit.
func limitOf(ref tasker.LimitRef, a arguments) (tasker.LimitRef, error) {
	ref.Kind = tasker.LimitKind(a.text[0])
	if err := ref.Check(); err != nil {
		return ref, cli.Usagef("%s", err)
	}
	return ref, nil
}

func (p *program) limitListCommand() *cobra.Command {
	var q client.LimitQuery
	c := answer(p, help{
		use:     "list",
		short:   "List limits with usage",
		example: "  tasker-ctl limit list --namespace payments\n  tasker-ctl limit list -o json | jq '.limits[] | select(.waiting > 0)'",
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.LimitList, error) {
		return api.Limits(ctx, q)
	}, func(l apiv1.LimitList) {
		header := []string{"kind", "namespace", "name", "limit", "in progress", "waiting", "changed by"}
		list(p, l.Limits, columns{none: "No limits.", names: header}, func(l apiv1.Limit) []string {
			by := l.ChangedBy
			if l.ByTemplate {
				by = "template"
			}
			return []string{l.Kind, l.Namespace, l.Name, limitText(l), strconv.FormatInt(l.InProgress, 10), strconv.FormatInt(l.Waiting, 10), by}
		})
		p.moreLimits(l.Pagination)
	})
	c.Flags().StringVar(&q.Namespace, "namespace", "", "filter by namespace")
	afterFlag(c, &q)
	limitFlag(c, &q.Limit, 50)
	return c
}

func afterFlag(c *cobra.Command, q *client.LimitQuery) {
	c.Flags().StringVar(&q.After, "after", "", "page cursor: next_after of the previous page")
}

// moreLimits prints on stderr how to see the next page.
func (p *program) moreLimits(page apiv1.LimitPage) {
	if page.NextAfter != nil {
		fmt.Fprintf(p.err, "There are more: --after %s shows the next.\n", clean(*page.NextAfter))
	}
}

func limitText(l apiv1.Limit) string {
	var v tasker.LimitValue
	if l.MaxInProgress != nil {
		v.MaxInProgress = *l.MaxInProgress
	}
	if l.PerSecond != nil && l.Burst != nil {
		v.PerSecond, v.Burst = *l.PerSecond, *l.Burst
	}
	return v.String()
}

func (p *program) limitShowCommand() *cobra.Command {
	var q client.LimitQuery
	c := answer(p, help{
		use:     "show",
		short:   "Show the slots of a limit",
		example: "  tasker-ctl limit show --kind name --namespace payments --name customer",
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.LimitList, error) {
		q.Keys = true
		return api.Limits(ctx, q)
	}, func(all apiv1.LimitList) {
		if len(all.Limits) == 0 {
			p.done("No limits.")
		}
		for _, l := range all.Limits {
			p.fields("", field{"Kind", l.Kind}, field{"Namespace", l.Namespace}, field{"Name", l.Name}, field{"Limit", limitText(l)},
				field{"In progress", strconv.FormatInt(l.InProgress, 10)}, field{"Waiting", strconv.FormatInt(l.Waiting, 10)})
			header := []string{"key", "in progress", "waiting", "free at", "oldest task", "step"}
			list(p, l.Keys, columns{none: "No step has asked for it yet.", names: header}, keyRow)
		}
		p.moreLimits(all.Pagination)
	})
	afterFlag(c, &q)
	c.Flags().StringVar(&q.Kind, "kind", "", "only those of this kind: server, namespace, handler or name")
	c.Flags().StringVar(&q.Namespace, "namespace", "", "filter by namespace")
	c.Flags().StringVar(&q.Name, "name", "", "only those of this handler or name")
	return c
}

func keyRow(k apiv1.LimitKey) []string {
	task, step := "", ""
	if len(k.Holders) > 0 {
		task, step = k.Holders[0].TaskUUID, k.Holders[0].StepName
	}
	return []string{k.Key, strconv.FormatInt(k.InProgress, 10), strconv.FormatInt(k.Waiting, 10), at(k.FreeAt), task, step}
}

func (p *program) limitSetCommand() *cobra.Command {
	var ref tasker.LimitRef
	var s apiv1.SetLimit
	c := answer(p, help{
		use:   "set KIND",
		short: "Create or change a limit",
		example: `  tasker-ctl limit set handler --namespace payments --name charge --max 10 --reason "the provider allows 10"
  tasker-ctl limit set server --max 500`,
	}, func(ctx context.Context, api *client.Client, a arguments) (l apiv1.Limit, err error) {
		of, err := limitOf(ref, a)
		if err != nil {
			return l, err
		}
		if s.MaxInProgress == 0 && s.PerSecond == 0 {
			return l, cli.Usagef("say what the limit is: --max, --rate, or both")
		}
		s.Kind, s.Namespace, s.Name = string(of.Kind), of.Namespace, of.Name
		if s.By, err = p.actor("by", s.By); err != nil {
			return l, err
		}
		return api.SetLimit(ctx, s)
	}, func(l apiv1.Limit) {
		p.done("Limit set!")
		p.fields("  ", field{"Kind", l.Kind}, field{"Namespace", l.Namespace}, field{"Name", l.Name}, field{"Limit", limitText(l)})
	})
	limitFlags(c, &ref)
	c.Flags().IntVar(&s.MaxInProgress, "max", 0, "how many steps of one key may be in progress at a time, 1 to 10000")
	c.Flags().Float64Var(&s.PerSecond, "rate", 0, "how many steps of one key may begin in a second")
	c.Flags().IntVar(&s.Burst, "burst", 0, "burst size for --rate")
	c.Flags().StringVar(&s.Reason, "reason", "", "why, for the audit log")
	c.Flags().StringVar(&s.By, "by", "", "who, for the audit log")
	return c
}

func (p *program) limitDeleteCommand() *cobra.Command {
	var ref tasker.LimitRef
	var reason, by string
	c := answer(p, help{
		use:     "delete KIND",
		short:   "Delete a limit",
		example: "  tasker-ctl limit delete handler --namespace payments --name charge",
	}, func(ctx context.Context, api *client.Client, a arguments) (r tasker.LimitRef, err error) {
		if r, err = limitOf(ref, a); err != nil {
			return r, err
		}
		if by, err = p.actor("by", by); err != nil {
			return r, err
		}
		return r, api.DeleteLimit(ctx, r, reason, by)
	}, func(tasker.LimitRef) { p.done("The limit is gone.") })
	limitFlags(c, &ref)
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	c.Flags().StringVar(&by, "by", "", "who, for the audit log")
	return c
}
