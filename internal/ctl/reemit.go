package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
)

// A reEmission is what the command line asks to have sent again.
type reEmission struct {
	from, to int64
	sinks    []string
	reason   string
	actor    string
}

func (p *program) reEmitCommand() *cobra.Command {
	var r reEmission
	c := &cobra.Command{
		Use:   "re-emit [EVENT]",
		Short: "Send an event, or those from one position to another, again",
		Long: `Send an event, or those from one position to another, again.

For events that were set aside, once the receiver is mended, and for a receiver
that lost what it had. It is recorded in the audit log. Receivers get an event that
they have a second time, and know it by its id.`,
		Example: `  tasker-ctl dlq re-emit $EVENT --reason "the receiver takes it now"
  tasker-ctl dlq re-emit --from 1200 --to 1350 --sink webhook --reason "restored from a backup of yesterday"
  tasker-ctl audit list --action dlq.re_emit`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return named("EVENT")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			req, err := p.readReEmission(args, r)
			if err != nil {
				return err
			}
			return p.reEmit(c.Context(), req)
		},
	}
	c.Flags().Var(position{&r.from}, "from", "the first position")
	c.Flags().Var(position{&r.to}, "to", "the last position")
	c.Flags().StringSliceVar(&r.sinks, "sink", nil, "only to this sink; may be repeated (default: to all)")
	c.Flags().StringVar(&r.reason, "reason", "", "why, for the audit log (needed)")
	c.Flags().StringVar(&r.actor, "actor", "", "who does it (default $TASKER_ACTOR, else your name on this machine)")
	return c
}

func (p *program) readReEmission(args []string, r reEmission) (apiv1.ReEmit, error) {
	req := apiv1.ReEmit{Sinks: r.sinks, Reason: r.reason}
	switch {
	case len(args) > 0 && (r.from > 0 || r.to > 0):
		return req, usage{"give EVENT, or --from and --to, not both"}
	case len(args) > 0:
		event, err := readID("EVENT", args[0])
		if err != nil {
			return req, err
		}
		text := event.String()
		req.EventUUID = &text
	case r.from == 0 || r.to == 0:
		return req, usage{"what to send again is not said: give EVENT, or both --from and --to"}
	case r.from > r.to:
		return req, usage{fmt.Sprintf("--from %d is after --to %d", r.from, r.to)}
	default:
		req.FromPosition, req.ToPosition = &r.from, &r.to
	}
	if err := need("reason", r.reason, "it is kept in the audit log"); err != nil {
		return req, err
	}
	var err error
	req.Actor, err = p.actor("actor", r.actor)
	return req, err
}

// reEmit asks as often as a range needs. The answers are added up.
func (p *program) reEmit(ctx context.Context, req apiv1.ReEmit) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	var all apiv1.ReEmitted
	for {
		some, err := api.ReEmit(ctx, req)
		if err != nil && all.Events > 0 {
			return fmt.Errorf("%s will be sent again; from position %d on: %w", plural(all.Events, "event"), *req.FromPosition, err)
		}
		if err != nil {
			return err
		}
		all.Events += some.Events
		all.Emissions += some.Emissions
		all.Sinks = some.Sinks
		if some.NextFromPosition == nil {
			break
		}
		req.FromPosition = some.NextFromPosition
	}
	return p.show(all, func() {
		if all.Events == 0 {
			p.warn("There is no event at these positions.")
			return
		}
		p.done("%s will be sent again, to %s.", plural(all.Events, "event"), clean(strings.Join(all.Sinks, ", ")))
		fmt.Fprintln(p.out, "  tasker-ctl dlq emissions shows how it goes.")
	})
}
