package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
)

func (p *program) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Say whether the server can do its work, and what is wrong",
		Long: `Say whether the server can do its work, and what is wrong.

A server is ready when its checks are healthy. Loops are what it does by itself,
such as retrying steps; one that is late makes it not ready. Components are what it
can do without: the broker, sinks, and deferred_work while tasks or steps are set
aside because work on them failed.

The exit code is 5 when the server is not ready, or cannot be reached.`,
		Example: "  tasker-ctl health\n  tasker-ctl health -o json | jq '.components.deferred_work'",
		Args:    named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			health, notReady := api.Ready(c.Context())
			if notReady != nil && health.Status == "" {
				return notReady
			}
			if err := p.show(health, func() { p.showHealth(health) }); err != nil {
				return err
			}
			return notReady
		},
	}
}

func (p *program) showHealth(h apiv1.Health) {
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
