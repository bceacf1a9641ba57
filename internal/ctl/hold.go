package ctl

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

var holdCommand = group(help{
	use: "hold", short: "Manage holds (pause steps during an outage)",
	long: `Manage holds, which pause steps during an outage.

A hold keeps workers from claiming the enqueued steps of a namespace, handler, template, step
or case. Tasks are still accepted and claimed steps continue. Held steps use no attempts, and
their queue timeout and staleness are suspended. Every hold has an owner and an end. It
releases its steps in waves, and becomes active again if a wave fails.`,
	example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold list --open
  tasker-ctl hold probe $HOLD
  tasker-ctl hold release $HOLD --reason "PSP is back"`,
},
	plain(endpoint.BeginHold, help{
		use: "add --reason TEXT", short: "Hold the steps of a scope",
		long: `Hold the enqueued steps of a scope.

When the command returns, no server assigns steps of the scope. The scope is a namespace,
narrowed by --handler, --name and --step, or with --case the scope of that case.`,
		example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold add --namespace payments --name refund --step notify --until 2026-01-31T07:30:00Z --reason "mail is down"
  tasker-ctl hold add --case $CASE --for 1h --reason "until 1.5.1 is out"`,
	}, (*program).printHold, checkHold),
	list(endpoint.ListHolds, help{
		use: "list", short: "List holds, newest first", limit: 50, quiet: true,
		example: `  tasker-ctl hold list --open
  tasker-ctl hold list --namespace payments --quiet`,
	}, "No holds.", "hold, state, kind, scope, held, owner, began, ends, reason?", func(h tasker.Hold) []any {
		end := cmp.Or(h.EndedAt, &h.EndsAt)
		return []any{h.UUID, h.State, h.Kind, h.String(), formatHeld(h), h.Owner, h.BeganAt, end, h.Reason}
	}),
	plain(endpoint.GetHold, help{
		use: "show HOLD", short: "Show a hold",
		example: `  tasker-ctl hold show $HOLD
  tasker-ctl hold show $HOLD -o json | jq .held`,
	}, (*program).printHoldDetail),
	plain(endpoint.ProbeHold, help{
		use: "probe HOLD", short: "Release one held step as a probe",
		long: `Release one held step to test whether it succeeds. "hold show" prints the outcome. If a
circuit breaker created the hold, a successful probe releases it; otherwise you release it.`,
		example: `  tasker-ctl hold probe $HOLD
  tasker-ctl hold show $HOLD -o json | jq '.releases[0].outcome'`,
	}, (*program).printHold),
	plain(endpoint.ExtendHold, help{
		use: "extend HOLD --reason TEXT", short: "Extend or reassign a hold",
		example: `  tasker-ctl hold extend $HOLD --for 2h --reason "the provider needs longer"
  tasker-ctl hold extend $HOLD --for 8h --owner anna --reason "my shift ends"`,
	}, (*program).printHold, func(_ *program, b *apiv1.ExtendHold, _ arguments) error {
		return checkEnd(b.Until, b.ForSeconds)
	}),
	plain(endpoint.ReleaseHold, help{
		use: "release HOLD --reason TEXT", short: "Release held steps in waves",
		long: `Release held steps in waves. Each wave starts after the previous one succeeded; if a tenth of
a wave fails, the hold becomes active again. The command returns at once; "hold show" prints
the progress.`,
		example: `  tasker-ctl hold release $HOLD --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves 5,50,500 --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves all --reason "it was a false alarm"`,
	}, (*program).printHold),
)

func checkHold(_ *program, b *apiv1.BeginHold, _ arguments) error {
	place := b.Namespace + b.Handler + b.TaskName + b.StepName
	if b.CaseID == "" && b.Namespace == "" || b.CaseID != "" && place != "" {
		return cli.Usagef("missing scope: set --namespace with --handler, --name or --step, or --case alone")
	}
	if b.CaseID != "" {
		if _, err := parseID("--case", b.CaseID); err != nil {
			return err
		}
	}
	return checkEnd(b.Until, b.ForSeconds)
}

// checkEnd returns an error unless exactly one of --until and --for sets the end of a hold.
func checkEnd(until *time.Time, seconds int) error {
	if (until == nil) == (seconds == 0) {
		return cli.Usagef("missing end: set either --for or --until")
	}
	return nil
}

func formatHeld(h tasker.Hold) string { return formatAtLeast(int(h.Held), h.HeldIsAtLeast) }

func (p *program) printHoldDetail(d tasker.HoldDetail) {
	p.printHold(d.Hold)
	header := "released, task, step, as, outcome, failure?"
	printList(p, d.Releases, "No probes or waves.", header, func(r tasker.HoldRelease) []any {
		as := "probe"
		if r.Wave > 0 {
			as = fmt.Sprintf("wave %d", r.Wave)
		}
		return []any{r.ReleasedAt, r.TaskUUID, r.StepUUID, as, cmp.Or(string(r.Outcome), "awaited"), orDash(r.Failure)}
	})
	printList(p, d.History, "No history.", "at, event, by, reason, more?", func(c tasker.HoldChange) []any {
		return []any{c.At, c.Event, c.Actor, orDash(c.Reason), orDash(strings.Trim(compact(c.Metadata), "{}"))}
	})
}

func (p *program) printHold(h tasker.Hold) {
	p.printDone("Hold %s is %s", h.UUID, clean(string(h.State)))
	p.printFields("  ",
		field{"Holds", h.String()}, field{"Case", h.CaseID}, field{"Kind", h.Kind}, field{"Cause", h.Cause},
		field{"Reason", h.Reason}, field{"Owner", h.Owner}, field{"Held", formatHeld(h)}, field{"Released", h.Released},
		field{"Wave", when(h.State == tasker.HoldReleasing, formatHoldWave(h))},
		field{"In progress", when(h.InFlight > 0, h.InFlight)},
		field{"Probes", when(h.Probes > 0, fmt.Sprintf("%d, of which %d failed", h.Probes, h.FailedProbes))},
		field{"Next probe", h.NextProbeAt}, field{"Began", h.BeganAt},
		field{"Ends", when(h.State == tasker.HoldActive, h.EndsAt)}, field{"Ended", h.EndedAt},
	)
}

func formatHoldWave(h tasker.Hold) string {
	if !h.Blocks {
		return "the rest"
	}
	sizes := make([]string, len(h.Waves))
	for i, n := range h.Waves {
		sizes[i] = formatInt(n)
	}
	return fmt.Sprintf("%d of %d (%s, rest)", h.Wave, len(h.Waves)+1, strings.Join(sizes, ", "))
}
