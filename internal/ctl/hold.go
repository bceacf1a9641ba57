package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newHoldCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "hold",
		Short: "Manage holds (pause steps during an outage)",
		Long: `Manage holds, which pause steps during an outage.

A hold keeps workers from claiming the enqueued steps of a namespace, handler, template, step
or case. Tasks are still accepted and claimed steps continue. Held steps use no attempts, and
their queue timeout and staleness are suspended. Every hold has an owner and an end. It
releases its steps in waves, and becomes active again if a wave fails.`,
		Example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold list --open
  tasker-ctl hold probe $HOLD
  tasker-ctl hold release $HOLD --reason "PSP is back"`,
	}, p.newHoldAddCommand(), p.newHoldListCommand(), p.newHoldShowCommand(), p.newHoldProbeCommand(), p.newHoldExtendCommand(), p.newHoldReleaseCommand())
}

// holdEndFlags contains the flags that set the end of a hold.
type holdEndFlags struct {
	after time.Duration
	until *time.Time
}

func (e *holdEndFlags) addTo(c *cobra.Command) {
	c.Flags().Var(cli.Span(&e.after, time.Minute, tasker.MaxHoldTime), "for", "duration of the hold, such as 30m or 4h, at most 24h")
	c.Flags().Var(cli.Time(&e.until), "until", "end of the hold, such as 2026-01-31T07:30:00Z (instead of --for)")
}

func (e *holdEndFlags) read() (until *time.Time, seconds int, err error) {
	if (e.until == nil) == (e.after == 0) {
		return nil, 0, cli.Usagef("missing end: set either --for or --until")
	}
	return e.until, int(e.after / time.Second), nil
}

func (p *program) newHoldAddCommand() *cobra.Command {
	var b apiv1.BeginHold
	var end holdEndFlags
	c := newRequestCommand(p, help{
		use:   "add --reason TEXT",
		short: "Hold the steps of a scope",
		long: `Hold the enqueued steps of a scope.

When the command returns, no server assigns steps of the scope. The scope is a namespace,
narrowed by --handler, --name and --step, or with --case the scope of that case.`,
		example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold add --namespace payments --name refund --step notify --until 2026-01-31T07:30:00Z --reason "mail is down"
  tasker-ctl hold add --case $CASE --for 1h --reason "until 1.5.1 is out"`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (h apiv1.Hold, err error) {
		place := b.Namespace + b.Handler + b.TaskName + b.StepName
		if b.CaseID == "" && b.Namespace == "" || b.CaseID != "" && place != "" {
			return h, cli.Usagef("missing scope: set --namespace with --handler, --name or --step, or --case alone")
		}
		if b.CaseID != "" {
			if _, err := parseID("--case", b.CaseID); err != nil {
				return h, err
			}
		}
		if b.Until, b.ForSeconds, err = end.read(); err != nil {
			return h, err
		}
		return api.BeginHold(ctx, b)
	}, p.printHold)
	f := c.Flags()
	f.StringVarP(&b.Namespace, "namespace", "n", "", "hold steps of this namespace")
	f.StringVar(&b.Handler, "handler", "", "hold only steps with this handler")
	f.StringVar(&b.TaskName, "name", "", "hold only steps of this template")
	f.StringVar(&b.StepName, "step", "", "hold only steps with this name")
	f.StringVar(&b.CaseID, "case", "", "hold the steps in the scope of this case")
	end.addTo(c)
	f.StringVar(&b.Owner, "owner", "", "owner of the hold (default: the actor)")
	addReasonFlag(c, &b.Reason, "")
	p.addActorFlag(c, &b.By, "by")
	return c
}

func (p *program) newHoldListCommand() *cobra.Command {
	var q tasker.HoldFilter

	c := newRequestCommand(p, help{
		use:   "list",
		short: "List holds, newest first",
		example: `  tasker-ctl hold list --open
  tasker-ctl hold list --namespace payments --quiet`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.HoldList, error) {
		return api.Holds(ctx, q)
	}, func(l apiv1.HoldList) {

		printList(p, l.Holds, "No holds.", "hold, state, kind, scope, held, owner, began, ends, reason?",
			func(h apiv1.Hold) []any {
				return []any{h.HoldUUID, h.State, h.Kind, formatScope(h), formatHeld(h), h.Owner, h.BeganAt, formatTime(cmp.Or(h.EndedAt, &h.EndsAt)), h.Reason}
			})
		if !p.quiet {
			printNextPageFlag(p, "before", l.Pagination.NextBefore)
		}
	})
	p.addQueryFlags(c, &q, 50)
	p.addQuietFlag(c)
	return c
}

func formatScope(h apiv1.Hold) string {
	return tasker.HoldScope{Namespace: h.Namespace, Handler: h.Handler, TaskName: h.TaskName, StepName: h.StepName}.String()
}

func formatHeld(h apiv1.Hold) string { return formatAtLeast(int(h.Held), h.HeldIsAtLeast) }

func (p *program) newHoldShowCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "show HOLD",
		short: "Show a hold",
		example: `  tasker-ctl hold show $HOLD
  tasker-ctl hold show $HOLD -o json | jq .held`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.HoldDetail, error) {
		return api.Hold(ctx, a.id[0])
	}, func(d apiv1.HoldDetail) {
		p.printHold(d.Hold)
		printList(p, d.Releases, "No probes or waves.", "released, task, step, as, outcome, failure?", func(r apiv1.HoldRelease) []any {
			as := "probe"
			if r.Wave > 0 {
				as = fmt.Sprintf("wave %d", r.Wave)
			}
			return []any{r.ReleasedAt, r.TaskUUID, r.StepUUID, as, orDefault(r.Outcome, "awaited"),
				orDash(r.Failure)}
		})
		printList(p, d.History, "No history.", "at, event, by, reason, more?", func(c apiv1.HoldChange) []any {
			return []any{c.At, c.Event, c.Actor, orDash(c.Reason), orDash(strings.Trim(compact(c.Metadata), "{}"))}
		})
	})
}

func (p *program) printHold(h apiv1.Hold) {
	p.printDone("Hold %s is %s", clean(h.HoldUUID), clean(h.State))
	fields := []field{
		{"Holds", formatScope(h)}, {"Case", h.CaseID}, {"Kind", h.Kind}, {"Cause", h.Cause}, {"Reason", h.Reason}, {"Owner", h.Owner},
		{"Held", formatHeld(h)}, {"Released", h.Released},
	}
	if h.State == string(tasker.HoldReleasing) {
		fields = append(fields, field{"Wave", formatHoldWave(h)})
	}
	if h.InFlight > 0 {
		fields = append(fields, field{"In progress", h.InFlight})
	}
	if h.Probes > 0 {
		fields = append(fields, field{"Probes", fmt.Sprintf("%d, of which %d failed", h.Probes, h.FailedProbes)})
	}
	fields = append(fields, field{"Next probe", h.NextProbeAt}, field{"Began", h.BeganAt})
	if h.State == string(tasker.HoldActive) {
		fields = append(fields, field{"Ends", h.EndsAt})
	}
	p.printFields("  ", append(fields, field{"Ended", h.EndedAt})...)
}

func formatHoldWave(h apiv1.Hold) string {
	if !h.Blocks {
		return "the rest"
	}
	sizes := make([]string, len(h.Waves))
	for i, n := range h.Waves {
		sizes[i] = formatInt(n)
	}
	return fmt.Sprintf("%d of %d (%s, rest)", h.Wave, len(h.Waves)+1, strings.Join(sizes, ", "))
}

func (p *program) newHoldProbeCommand() *cobra.Command {
	var r apiv1.ProbeHold
	c := newRequestCommand(p, help{
		use:   "probe HOLD",
		short: "Release one held step as a probe",
		long: `Release one held step to test whether it succeeds. "hold show" prints the outcome. If a
circuit breaker created the hold, a successful probe releases it; otherwise you release it.`,
		example: `  tasker-ctl hold probe $HOLD
  tasker-ctl hold show $HOLD -o json | jq '.releases[0].outcome'`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		return api.ProbeHold(ctx, a.id[0], r)
	}, p.printHold)
	addOptionalReasonFlag(c, &r.Reason)
	p.addActorFlag(c, &r.By, "by")
	return c
}

func (p *program) newHoldExtendCommand() *cobra.Command {
	var r apiv1.ExtendHold
	var end holdEndFlags
	c := newRequestCommand(p, help{
		use:   "extend HOLD --reason TEXT",
		short: "Extend or reassign a hold",
		example: `  tasker-ctl hold extend $HOLD --for 2h --reason "the provider needs longer"
  tasker-ctl hold extend $HOLD --for 8h --owner anna --reason "my shift ends"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		if r.Until, r.ForSeconds, err = end.read(); err != nil {
			return h, err
		}
		return api.ExtendHold(ctx, a.id[0], r)
	}, p.printHold)
	end.addTo(c)
	c.Flags().StringVar(&r.Owner, "owner", "", "new owner of the hold")
	addReasonFlag(c, &r.Reason, "")
	p.addActorFlag(c, &r.By, "by")
	return c
}

func (p *program) newHoldReleaseCommand() *cobra.Command {
	var r apiv1.ReleaseHold
	var waves string
	c := newRequestCommand(p, help{
		use:   "release HOLD --reason TEXT",
		short: "Release held steps in waves",
		long: `Release held steps in waves. Each wave starts after the previous one succeeded; if a tenth of
a wave fails, the hold becomes active again. The command returns at once; "hold show" prints
the progress.`,
		example: `  tasker-ctl hold release $HOLD --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves 5,50,500 --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves all --reason "it was a false alarm"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		if r.Waves, err = readWaves(waves); err != nil {
			return h, err
		}
		return api.ReleaseHold(ctx, a.id[0], r)
	}, p.printHold)
	c.Flags().StringVar(&waves, "waves", "1,10,100", `wave sizes, then the rest; "all" releases everything at once`)
	addReasonFlag(c, &r.Reason, "")
	p.addActorFlag(c, &r.By, "by")
	return c
}
