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
		health, notReady := p.client.Ready(ctx)
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
		v := map[string]string{
			"client": build.Version, "commit": build.Commit, "date": build.Date,
			"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		}
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

func (p *program) newExplainCommand() *cobra.Command {
	c := plain(endpoint.Explain, help{
		use: "explain ID", short: "Explain why something is not progressing",
		long: `Explain why a task, step, investigation, case, operation or hold is not progressing: the
condition, since when, what would unblock it, and who has to act next.`,
		example: `  tasker-ctl explain $TASK
  tasker-ctl explain $STEP
  tasker-ctl explain queue orders charge`,
	}, (*program).printExplanation)(p)
	c.AddCommand(plain(endpoint.ExplainQueue, help{
		use: "queue NAMESPACE HANDLER", short: "Explain why a queue is waiting",
		example: `  tasker-ctl explain queue orders charge`,
	}, (*program).printExplanation)(p))
	return c
}

func (p *program) printExplanation(e tasker.Explanation) {
	fmt.Fprintln(p.out, clean(e.Message))
	fields := []field{{"Fact", string(e.Reason)}, {"Since", e.Since}, {"Turn", string(e.NextActor)}, {"Unblocks", orDash(e.Remedy)}}
	what := strings.TrimSpace(string(e.Kind) + " " + e.ID.String())
	fields = append(fields, field{"Explained", what + ", " + strings.Join(e.Namespaces, ", ") + " " + e.Name})
	for _, f := range e.Facts {
		fields = append(fields, field{strings.ToUpper(f.Name[:1]) + f.Name[1:], f.Value})
	}
	p.printFields("", fields...)
	if len(e.Steps) > 1 {
		printList(p, e.Steps, "", "step, state, fact, turn, since, why?", func(s tasker.ExplainedStep) []any {
			return []any{s.Name, s.State, s.Reason, s.NextActor, s.Since, s.Message}
		})
	}
	if len(e.Counts) > 1 {
		printList(p, e.Counts, "", "fact, count, one of the tasks",
			func(c tasker.ReasonCount) []any {
				return []any{c.Reason, c.Count, c.Task}
			})
	}
	if e.More {
		fmt.Fprintf(p.err, "More results exist; %d were checked.\n", e.Looked)
	}
}
