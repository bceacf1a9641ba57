package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) holdCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "hold",
		Short: "Manage holds (pause steps during an outage)",
		Long: `Hold steps back while what they need is away.

A hold keeps the enqueued steps of a namespace, handler, template, step or case from being
handed out. Tasks are accepted all the same. No attempt is used, and neither the time in
the queue nor staleness runs. Steps that workers have go on. Every hold has an owner and an
end. It lets its steps go in waves, each after the one before has succeeded, and holds
again when one fails.`,
		Example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold list --open
  tasker-ctl hold probe $HOLD
  tasker-ctl hold release $HOLD --reason "PSP is back"`,
	}, p.holdAddCommand(), p.holdListCommand(), p.holdShowCommand(), p.holdProbeCommand(), p.holdExtendCommand(), p.holdReleaseCommand())
}

// An ending is the flags that say when a hold ends.
type ending struct {
	after time.Duration
	until string
}

func (e *ending) flags(c *cobra.Command) {
	c.Flags().Var(cli.Span(&e.after, time.Minute, tasker.MaxHoldTime), "for", "how long it holds, such as 30m or 4h, at most 24h")
	c.Flags().StringVar(&e.until, "until", "", "in place of --for: when it ends, such as 2026-01-31T07:30:00Z")
}

func (e *ending) read() (until *time.Time, seconds int, err error) {
	if (e.until == "") == (e.after == 0) {
		return nil, 0, cli.Usagef("a hold needs an end: give --for or --until, and one of them only")
	}
	if e.until == "" {
		return nil, int(e.after / time.Second), nil
	}
	t, err := time.Parse(time.RFC3339, e.until)
	if err != nil {
		return nil, 0, cli.Usagef("--until must be an instant such as 2026-01-31T07:30:00Z, not %q", e.until)
	}
	return &t, 0, nil
}

// inHoldHistory describes where the reason of an act on a hold is stored.
const inHoldHistory = "it is kept in the history of the hold"

// said requires the reason and the person of an act. The error for a missing reason ends with use.
func (p *program) said(by, reason *string, use string) (err error) {
	if err := need("reason", *reason, use); err != nil {
		return err
	}
	*by, err = p.actor("by", *by)
	return err
}

func (p *program) holdAddCommand() *cobra.Command {
	var b apiv1.BeginHold
	var end ending
	c := answer(p, help{
		use:   "add --reason TEXT",
		short: "Hold the steps of a scope",
		long: `Hold the enqueued steps of a scope from now on.

When the command returns, no server hands out a step of the scope. The scope is a namespace,
and each of --handler, --name and --step makes it smaller; --case takes the place of a case
instead.`,
		example: `  tasker-ctl hold add --namespace payments --handler charge --for 4h --reason "PSP outage"
  tasker-ctl hold add --namespace payments --name refund --step notify --until 2026-01-31T07:30:00Z --reason "mail is down"
  tasker-ctl hold add --case $CASE --for 1h --reason "until 1.5.1 is out"`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (h apiv1.Hold, err error) {
		place := b.Namespace + b.Handler + b.TaskName + b.StepName
		if b.CaseID == "" && b.Namespace == "" || b.CaseID != "" && place != "" {
			return h, cli.Usagef("say what to hold: --namespace with --handler, --name or --step, or --case alone")
		}
		if b.CaseID != "" {
			if _, err := readID("--case", b.CaseID); err != nil {
				return h, err
			}
		}
		if b.Until, b.ForSeconds, err = end.read(); err != nil {
			return h, err
		}
		if err := p.said(&b.By, &b.Reason, inHoldHistory); err != nil {
			return h, err
		}
		return api.BeginHold(ctx, b)
	}, p.printHold)
	f := c.Flags()
	f.StringVarP(&b.Namespace, "namespace", "n", "", "hold steps of this namespace")
	f.StringVar(&b.Handler, "handler", "", "only steps with this handler")
	f.StringVar(&b.TaskName, "name", "", "only steps of tasks of this template")
	f.StringVar(&b.StepName, "step", "", "only steps with this name")
	f.StringVar(&b.CaseID, "case", "", "hold the steps of the place of this case")
	end.flags(c)
	f.StringVar(&b.Owner, "owner", "", "who looks after it (default: who begins it)")
	f.StringVar(&b.Reason, "reason", "", "reason, shown in the history (required)")
	actorFlag(c, &b.By, "by")
	return c
}

func (p *program) holdListCommand() *cobra.Command {
	var q client.HoldQuery
	var quiet bool
	c := answer(p, help{
		use:   "list",
		short: "List holds, newest first",
		example: `  tasker-ctl hold list --open
  tasker-ctl hold list --namespace payments --quiet`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.HoldList, error) {
		if q.Before != "" {
			if _, err := readID("--before", q.Before); err != nil {
				return apiv1.HoldList{}, err
			}
		}
		return api.Holds(ctx, q)
	}, func(l apiv1.HoldList) {
		if quiet {
			ids(p, l.Holds, func(h apiv1.Hold) string { return h.HoldUUID })
			return
		}
		header := []string{"hold", "state", "kind", "scope", "held", "owner", "began", "ends", "reason"}
		list(p, l.Holds, columns{none: "No holds.", names: header, spare: "reason"}, func(h apiv1.Hold) []string {
			return []string{h.HoldUUID, h.State, h.Kind, scopeOf(h), heldText(h), h.Owner, at(&h.BeganAt), at(cmp.Or(h.EndedAt, &h.EndsAt)), h.Reason}
		})
		if next := l.Pagination.NextBefore; next != nil {
			fmt.Fprintf(p.err, "There are more: --before %s shows the next.\n", clean(*next))
		}
	})
	f := c.Flags()
	f.StringVarP(&q.Namespace, "namespace", "n", "", "only holds of this namespace")
	f.BoolVar(&q.Open, "open", false, "only holds that have not ended")
	f.StringVar(&q.Before, "before", "", "only holds behind this one")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	limitFlag(c, &q.Limit, 50)
	return c
}

// scopeOf says what a hold holds.
func scopeOf(h apiv1.Hold) string {
	return tasker.HoldScope{Namespace: h.Namespace, Handler: h.Handler, TaskName: h.TaskName, StepName: h.StepName}.String()
}

func heldText(h apiv1.Hold) string { return atLeast(int(h.Held), h.HeldIsAtLeast) }

func (p *program) holdShowCommand() *cobra.Command {
	return answer(p, help{
		use:   "show HOLD",
		short: "Show a hold",
		example: `  tasker-ctl hold show $HOLD
  tasker-ctl hold show $HOLD -o json | jq .held`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.HoldDetail, error) {
		return api.Hold(ctx, a.id[0])
	}, func(d apiv1.HoldDetail) {
		p.printHold(d.Hold)
		list(p, d.Releases, columns{none: "No probes or waves.", names: []string{"let go", "task", "step", "as", "outcome", "failure"}, spare: "failure"}, func(r apiv1.HoldRelease) []string {
			as := "probe"
			if r.Wave > 0 {
				as = fmt.Sprintf("wave %d", r.Wave)
			}
			return []string{at(&r.ReleasedAt), r.TaskUUID, r.StepUUID, as, or(r.Outcome, "awaited"), orDash(or(r.Failure, ""))}
		})
		list(p, d.History, columns{none: "No history.", names: []string{"at", "event", "by", "reason", "more"}, spare: "more"}, func(c apiv1.HoldChange) []string {
			return []string{at(&c.At), c.Event, c.Actor, orDash(or(c.Reason, "")), orDash(strings.Trim(compact(c.Metadata), "{}"))}
		})
	})
}

func (p *program) printHold(h apiv1.Hold) {
	p.done("Hold %s is %s", clean(h.HoldUUID), clean(h.State))
	fields := []field{
		{"Holds", scopeOf(h)}, {"Case", or(h.CaseID, "")}, {"Kind", h.Kind}, {"Cause", h.Cause}, {"Reason", h.Reason}, {"Owner", h.Owner},
		{"Held", heldText(h)}, {"Let go", strconv.FormatInt(h.Released, 10)},
	}
	if h.State == string(tasker.HoldReleasing) {
		fields = append(fields, field{"Wave", holdWaveText(h)})
	}
	if h.InFlight > 0 {
		fields = append(fields, field{"On their way", strconv.FormatInt(h.InFlight, 10)})
	}
	if h.Probes > 0 {
		fields = append(fields, field{"Probes", fmt.Sprintf("%d, of which %d failed", h.Probes, h.FailedProbes)})
	}
	fields = append(fields, field{"Next probe", at(h.NextProbeAt)}, field{"Began", at(&h.BeganAt)})
	if h.State == string(tasker.HoldActive) {
		fields = append(fields, field{"Ends", at(&h.EndsAt)})
	}
	p.fields("  ", append(fields, field{"Ended", at(h.EndedAt)})...)
}

// holdWaveText says how far the release of a hold is.
func holdWaveText(h apiv1.Hold) string {
	if !h.Blocks {
		return "the rest"
	}
	sizes := make([]string, len(h.Waves))
	for i, n := range h.Waves {
		sizes[i] = strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d (%s, rest)", h.Wave, len(h.Waves)+1, strings.Join(sizes, ", "))
}

func (p *program) holdProbeCommand() *cobra.Command {
	var r apiv1.ProbeHold
	c := answer(p, help{
		use:   "probe HOLD",
		short: "Release one held step as a probe",
		long: `Let one step of a hold go, to see whether it succeeds. hold show tells what became of it.
A probe that succeeds releases the hold of a breaker; that of a person is theirs to release.`,
		example: `  tasker-ctl hold probe $HOLD
  tasker-ctl hold show $HOLD -o json | jq '.releases[0].outcome'`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		if r.By, err = p.actor("by", r.By); err != nil {
			return h, err
		}
		return api.ProbeHold(ctx, a.id[0], r)
	}, p.printHold)
	c.Flags().StringVar(&r.Reason, "reason", "", "why")
	actorFlag(c, &r.By, "by")
	return c
}

func (p *program) holdExtendCommand() *cobra.Command {
	var r apiv1.ExtendHold
	var end ending
	c := answer(p, help{
		use:   "extend HOLD --reason TEXT",
		short: "Extend or reassign a hold",
		example: `  tasker-ctl hold extend $HOLD --for 2h --reason "the provider needs longer"
  tasker-ctl hold extend $HOLD --for 8h --owner anna --reason "my shift ends"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		if r.Until, r.ForSeconds, err = end.read(); err != nil {
			return h, err
		}
		if err := p.said(&r.By, &r.Reason, inHoldHistory); err != nil {
			return h, err
		}
		return api.ExtendHold(ctx, a.id[0], r)
	}, p.printHold)
	end.flags(c)
	c.Flags().StringVar(&r.Owner, "owner", "", "who looks after it from now on")
	c.Flags().StringVar(&r.Reason, "reason", "", "why, for its history (needed)")
	actorFlag(c, &r.By, "by")
	return c
}

func (p *program) holdReleaseCommand() *cobra.Command {
	var r apiv1.ReleaseHold
	var waves string
	c := answer(p, help{
		use:   "release HOLD --reason TEXT",
		short: "Release held steps in waves",
		long: `Let the steps of a hold go, in waves, each after the one before has succeeded. When a tenth
of a wave fails, the hold holds again. The command returns at once; hold show tells how far
it is.`,
		example: `  tasker-ctl hold release $HOLD --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves 5,50,500 --reason "PSP is back"
  tasker-ctl hold release $HOLD --waves all --reason "it was a false alarm"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (h apiv1.Hold, err error) {
		if r.Waves, err = readWaves(waves); err != nil {
			return h, err
		}
		if err := p.said(&r.By, &r.Reason, inHoldHistory); err != nil {
			return h, err
		}
		return api.ReleaseHold(ctx, a.id[0], r)
	}, p.printHold)
	c.Flags().StringVar(&waves, "waves", "1,10,100", "how many steps each wave lets go; the rest follows. all: all at once")
	c.Flags().StringVar(&r.Reason, "reason", "", "why, for its history (needed)")
	actorFlag(c, &r.By, "by")
	return c
}
