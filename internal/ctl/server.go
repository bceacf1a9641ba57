package ctl

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) healthCommand() *cobra.Command {
	return p.command(help{
		use:   "health",
		short: "Show server health",
		long: `Show whether the server is ready, and what is wrong.

A server is ready when its checks are healthy. Loops are what it does by itself,
such as retrying steps; one that is late makes it not ready. Components are what it
can do without: the broker, sinks, and deferred_work while tasks or steps are
deferred because a timer could not process them.

The exit code is 5 when the server is not ready, or cannot be reached.`,
		example: "  tasker-ctl health\n  tasker-ctl health -o json | jq '.components.deferred_work'",
	}, func(ctx context.Context, _ arguments) error {
		api, err := p.api()
		if err != nil {
			return err
		}
		health, notReady := api.Ready(ctx)
		if notReady != nil && health.Status == "" {
			return notReady
		}
		if err := p.show(health, func() { p.printHealth(health) }); err != nil {
			return err
		}
		return notReady
	})
}

func (p *program) printHealth(h apiv1.Health) {
	fmt.Fprintln(p.out, strings.ToUpper(clean(h.Status)))
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
		rows = append(rows, []string{"check", name, h.Checks[name].Status, ""})
	}
	for _, name := range slices.Sorted(maps.Keys(h.Components)) {
		c := h.Components[name]
		rows = append(rows, []string{"component", name, c.Status, c.LastError})
	}
	for _, name := range slices.Sorted(maps.Keys(h.Loops)) {
		l := h.Loops[name]
		detail := ""
		if l.Failures > 0 {
			detail = fmt.Sprintf("%d passes failed; the last good one ended %s", l.Failures, orDash(at(l.LastGoodAt)))
		}
		rows = append(rows, []string{"loop", name, l.Status, detail})
	}
	p.table([]string{"kind", "name", "status", "detail"}, rows)
}

func (p *program) auditCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "audit",
		Short:   "View the audit log",
		Example: "  tasker-ctl audit list",
	}, p.auditListCommand())
}

func (p *program) auditListCommand() *cobra.Command {
	var q client.AuditQuery
	c := answer(p, help{
		use:   "list",
		short: "List audit events, newest first",
		example: `  tasker-ctl audit list
  tasker-ctl audit list --action dlq.re_emit -o json | jq '.events[] | {actor, data}'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.AuditList, error) {
		return api.Audit(ctx, q)
	}, func(l apiv1.AuditList) {
		header := []string{"number", "at", "actor", "action", "subject", "detail"}
		list(p, l.Events, columns{none: "Nothing in the audit log.", names: header}, func(e tasker.AuditEvent) []string {
			return []string{strconv.FormatInt(e.ID, 10), at(&e.At), e.Actor, e.Action, e.Subject, short(compact(e.Data), maxCell)}
		})
		p.goesOn(l.Pagination)
	})
	c.Flags().StringVar(&q.Action, "action", "", "only events with this action, such as dlq.re_emit")
	limitFlag(c, &q.Limit, 100)
	c.Flags().Var(cli.Number(&q.Before, 1, 0), "before", "only events before this number")
	return c
}

func (p *program) versionCommand() *cobra.Command {
	var remote bool
	c := p.command(help{
		use:     "version",
		short:   "Print the version; with --remote, that of the server too",
		example: "  tasker-ctl version\n  tasker-ctl version --remote -o json",
	}, func(ctx context.Context, _ arguments) error {
		build := cli.ThisBuild()
		v := map[string]string{"client": build.Version, "commit": build.Commit, "date": build.Date, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
		if remote {
			api, err := p.api()
			if err != nil {
				return err
			}
			health, err := api.Health(ctx)
			if err != nil {
				return err
			}
			v["server"], v["server_url"] = health.Version, api.URL()
		}
		return p.show(v, func() {
			fmt.Fprintln(p.out, "tasker-ctl", build)
			if remote {
				fmt.Fprintf(p.out, "server %s at %s\n", clean(v["server"]), v["server_url"])
			}
		})
	})
	c.Flags().BoolVar(&remote, "remote", false, "ask the server too")
	return c
}
