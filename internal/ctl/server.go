package ctl

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

func (p *program) newHealthCommand() *cobra.Command {
	return p.newCommand(help{
		use: "health", short: "Show server health",
		long: `Show whether the server is ready, and its problems.

A server is ready when all checks are healthy and no loop is late. Loops are background work,
such as retries. Components are optional: the broker, sinks, and deferred_work, which is
unhealthy while a timer cannot process tasks or steps.

The exit code is 5 if the server is not ready or cannot be reached.`,
		example: "  tasker-ctl health\n  tasker-ctl health -o json | jq '.components.deferred_work'",
	}, func(ctx context.Context, _ arguments) error {
		api, err := p.newClient()
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
			detail = fmt.Sprintf("%d passes failed; last success %s", l.Failures, orDash(formatTime(l.LastGoodAt)))
		}
		rows = append(rows, []string{"loop", name, l.Status, detail})
	}
	p.printTable([]string{"kind", "name", "status", "detail"}, rows)
}

var auditCommand = group(help{use: "audit", short: "View the audit log", example: "  tasker-ctl audit list"},
	list(endpoint.ListAudit, help{
		use: "list", short: "List audit events, newest first", limit: 100,
		example: `  tasker-ctl audit list
  tasker-ctl audit list --action dlq.re_emit -o json | jq '.events[] | {actor, data}'`,
	}, "No audit events.", "number, at, actor, action, subject, detail", func(e tasker.AuditEvent) []any {
		return []any{e.ID, e.At, e.Actor, e.Action, e.Subject, e.Data}
	}),
)

func (p *program) newVersionCommand() *cobra.Command {
	var remote bool
	c := p.newCommand(help{
		use: "version", offline: true,
		short:   "Print client and server versions",
		example: "  tasker-ctl version\n  tasker-ctl version --remote -o json",
	}, func(ctx context.Context, _ arguments) error {
		build := cli.ThisBuild()
		v := map[string]string{"client": build.Version, "commit": build.Commit, "date": build.Date, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
		if remote {
			api, err := p.newClient()
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
	c.Flags().BoolVar(&remote, "remote", false, "include the version of the server")
	return c
}
