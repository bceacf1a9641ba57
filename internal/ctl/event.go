package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

func (p *program) newEmissionsCommand() *cobra.Command {
	c := plain(endpoint.ListEmissions, help{
		use: "emissions", short: "List event deliveries, newest first", limit: 100,
		long: `List the deliveries of events to sinks, newest event first.

Each change of an investigation is an event, as is each change of a task to which the
configuration subscribes (emission.task_events). It is sent to every sink until the sink confirms
it: the delivery is pending, then published. After too many rejections it is set_aside. Fix
the event or the receiver, then send it again with dlq re-emit. The list is available while a
sink is down.`,
		example: `  tasker-ctl dlq emissions --state set_aside
  tasker-ctl dlq emissions --state pending --sink webhook -l 10
  tasker-ctl dlq emissions -o json | jq -r '.emissions[] | [.position, .sink, .state] | @tsv'`,
	}, func(p *program, l apiv1.EmissionList) {
		if p.quiet {
			p.printEventIDs(l.Emissions)
		} else {
			p.printEmissions(l.Emissions)
		}
		p.quiet = false // the hint is printed in any case
		printNextPageFlag(p, "before", l.Pagination.NextBefore)
	})(p)
	c.Flags().BoolVarP(&p.quiet, "quiet", "q", false, "print only ids of events")
	return c
}

// printEventIDs prints the id of each event once. The deliveries of an event are adjacent.
func (p *program) printEventIDs(l []apiv1.Emission) {
	last := ""
	for _, e := range l {
		if e.EventUUID != last {
			fmt.Fprintln(p.out, clean(e.EventUUID))
		}
		last = e.EventUUID
	}
}

func (p *program) printEmissions(l []apiv1.Emission) {
	printList(p, l, "No deliveries.", "position, event, topic?, sink, state, attempts, occurred, last failure",
		func(e apiv1.Emission) []any {
			return []any{
				e.Position, e.EventUUID, e.Topic, e.Sink, e.State, e.Attempts,
				e.OccurredAt, orDash(e.LastError),
			}
		})
}

func (p *program) printEvent(e apiv1.EmittedEvent) {
	p.printDone("Event:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"Event UUID", e.EventUUID}, field{"Position", e.Position}, field{"Topic", e.Topic}, field{"Occurred", e.OccurredAt},
		field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID},
	)
	fmt.Fprintln(p.out)
	if len(e.Emissions) == 0 {
		fmt.Fprintln(p.out, "  It was not sent: no sink was configured when it occurred.")
	}
	for _, m := range e.Emissions {
		fmt.Fprintf(p.out, "  %s: %s\n", clean(m.Sink), clean(m.State))
		refused := ""
		if m.Refusals > 0 {
			refused = formatPlural(m.Refusals, "time")
		}
		p.printFields("    ",
			field{"Attempts", m.Attempts}, field{"Refused", refused},
			field{"Last attempt", m.LastAttemptAt},
			field{"Next attempt", m.NextAttemptAt}, field{"Published", m.PublishedAt}, field{"Last failure", m.LastError},
		)
	}
	fmt.Fprintf(p.out, "\n  Data:\n  %s\n", indentJSON(e.Data, "  "))
}

// maxSinkCount is the number of deliveries at which the server stops counting per sink.
const maxSinkCount = 10_000

func (p *program) printSinks(l []tasker.SinkState) {
	number := func(n int64) string { return formatAtLeast(int(n), n >= maxSinkCount) }
	printList(p, l, "No sinks: events are stored but not sent.", "sink, status, pending, oldest, set aside, last success, failing since, last failure",
		func(s tasker.SinkState) []any {
			return []any{
				s.Sink, s.Status, number(s.Pending), orDash(s.OldestPending), number(s.Undeliverable),
				orDash(s.LastSuccessAt),
				orDash(s.FailingSince), orDash(s.LastError),
			}
		})
}

func (p *program) newReEmitCommand() *cobra.Command {
	var r apiv1.ReEmit
	var from, to int64
	c := newRequestCommand(p, help{
		use: "re-emit [EVENT]", short: "Redeliver events",
		long: `Redeliver an event, or all events between two positions.

Use it for undeliverable events once the receiver is fixed, and for receivers that lost data.
It is recorded in the audit log. A receiver may get an event a second time and recognizes it
by its id.`,
		example: `  tasker-ctl dlq re-emit $EVENT --reason "the receiver is fixed"
  tasker-ctl dlq re-emit --from 1200 --to 1350 --sink webhook --reason "restored from a backup of yesterday"
  tasker-ctl audit list --action dlq.re_emit`,
	}, func(ctx context.Context, api *client.Client, a arguments) (all apiv1.ReEmitted, err error) {
		switch {
		case len(a.id) > 0 && (from > 0 || to > 0):
			return all, cli.Usagef("set EVENT, or --from and --to, but not both")
		case len(a.id) > 0:
			r.EventUUID = new(a.id[0].String())
		case from == 0 || to == 0:
			return all, cli.Usagef("no events selected: set EVENT, or both --from and --to")
		case from > to:
			return all, cli.Usagef("invalid --from %d: must not be after --to %d", from, to)
		default:
			r.FromPosition, r.ToPosition = &from, &to
		}
		return reEmit(ctx, api, r)
	}, func(all apiv1.ReEmitted) {
		if all.Events == 0 {
			p.warn("No event has these positions.")
			return
		}
		p.printDone("%s will be redelivered to %s.", formatPlural(all.Events, "event"), clean(strings.Join(all.Sinks, ", ")))
		fmt.Fprintln(p.out, "  Progress: tasker-ctl dlq emissions")
	})
	c.Flags().Var(cli.Number(&from, 1, 0), "from", "position of the first event")
	c.Flags().Var(cli.Number(&to, 1, 0), "to", "last position")
	p.addBodyFlags(c, &r)
	return c
}

// reEmit requests batch after batch and adds up the results.
func reEmit(ctx context.Context, api *client.Client, req apiv1.ReEmit) (all apiv1.ReEmitted, err error) {
	for {
		some, err := api.ReEmit(ctx, req)
		if err != nil && all.Events > 0 {
			return all, fmt.Errorf("%s will be redelivered, then failed at position %d: %w", formatPlural(all.Events, "event"), *req.FromPosition, err)
		}
		if err != nil {
			return all, err
		}
		all.Events += some.Events
		all.Emissions += some.Emissions
		all.Sinks = some.Sinks
		if some.NextFromPosition == nil {
			return all, nil
		}
		req.FromPosition = some.NextFromPosition
	}
}

func (p *program) newFollowCommand() *cobra.Command {
	var o client.WatchOptions
	c := p.newCommand(help{
		use: "watch", short: "Stream events of investigations and tasks",
		long: `Print a line for each event of an investigation or task as it happens, until Ctrl-C.

The command reconnects when the connection breaks; no event is lost or repeated. With -o json
each line is a CloudEvent, as sinks receive it.`,
		example: `  tasker-ctl dlq watch
  tasker-ctl dlq watch --topic dlq.entry.created
  tasker-ctl dlq watch --from-beginning -o json | jq -r .data.dlq_reason`,
	}, func(ctx context.Context, _ arguments) error { return p.follow(ctx, o) })
	c.Flags().Var(cli.Choices(&o.Topics, tasker.Topics()), "topic", "filter by topic; repeatable: "+cli.Join(tasker.Topics()))
	c.Flags().BoolVar(&o.FromBeginning, "from-beginning", false, "start with all stored events")
	return c
}

// follow prints events until the command is interrupted.
func (p *program) follow(ctx context.Context, o client.WatchOptions) error {
	o.Lost = func(err error) { p.warn("%s; reconnecting.", strings.TrimSuffix(clean(err.Error()), ".")) }
	for e, err := range p.client.WatchEvents(ctx, o) {
		if err == nil {
			err = p.printEventLine(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *program) printEventLine(e client.WatchedEvent) error {
	if p.output == "json" {
		doc, err := json.Marshal(e.CloudEvent)
		if err != nil {
			return fmt.Errorf("print event: %w", err)
		}
		_, err = fmt.Fprintln(p.out, escape(string(doc)))
		return err
	}
	data := parseDocument(e.Data)
	template := data.formatText("namespace") + "/" + data.formatText("task_name")
	topic := strings.TrimPrefix(e.Type, "tasker.")
	words := []string{formatTime(&e.Time), topic, data.formatText("dlq_reason"), template, e.Subject}
	for i, w := range words {
		words[i] = orDash(clean(w))
	}
	_, err := fmt.Fprintln(p.out, strings.Join(words, gap))
	return err
}
