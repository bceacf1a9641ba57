package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

// A position is the value of a flag that is a place among all events.
type position struct{ n *int64 }

// String returns the number.
func (p position) String() string {
	if *p.n == 0 {
		return ""
	}
	return strconv.FormatInt(*p.n, 10)
}

// Type is what the help calls the value.
func (p position) Type() string { return "N" }

// Set reads the number.
func (p position) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("it must be a number from 1 on")
	}
	*p.n = n
	return nil
}

func (p *program) emissionsCommand() *cobra.Command {
	var q client.EmissionQuery
	var state string
	var ids bool
	c := &cobra.Command{
		Use:   "emissions",
		Short: "List what became of sending events to the sinks, the newest event first",
		Long: `List what became of sending events to the sinks, the newest event first.

Each change of an investigation is an event, stored with the change itself. It is
sent to every sink, again and again until the sink confirms it: until then it is
pending, then published. One that a sink refuses too often is set_aside: the cause
is with the event or the receiver, and dlq re-emit sends it again once that is
mended. The list comes from the database, also while a sink is down.`,
		Example: `  tasker-ctl dlq emissions --state set_aside
  tasker-ctl dlq emissions --state pending --sink webhook -l 10
  tasker-ctl dlq emissions -o json | jq -r '.emissions[] | [.position, .sink, .state] | @tsv'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.State, err = choice("state", state, tasker.EmissionStates()); err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Emissions(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listEmissions(list.Emissions, ids)
				p.goesOn(list.Pagination)
			})
		},
	}
	c.Flags().StringVarP(&state, "state", "s", "", "only those in this state: "+choices(tasker.EmissionStates()))
	c.Flags().StringVar(&q.Sink, "sink", "", "only those to this sink")
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids of events only")
	limitFlag(c, &q.Limit, 100)
	c.Flags().Var(position{&q.Before}, "before", "only events before this position")
	oneOf(c, "state", tasker.EmissionStates())
	return c
}

// goesOn says on stderr how to see the rest of a list.
func (p *program) goesOn(page apiv1.Continuation) {
	if page.NextBefore != nil {
		fmt.Fprintf(p.err, "There are more: --before %d shows the next.\n", *page.NextBefore)
	}
}

func (p *program) listEmissions(list []apiv1.Emission, ids bool) {
	if !ids && len(list) == 0 {
		fmt.Fprintln(p.err, "No such emissions.")
		return
	}
	var rows [][]string
	last := ""
	for _, e := range list {
		if ids && e.EventUUID != last {
			fmt.Fprintln(p.out, clean(e.EventUUID))
		}
		last = e.EventUUID
		rows = append(rows, []string{
			strconv.FormatInt(e.Position, 10), e.EventUUID, e.Topic, e.Sink, e.State, strconv.Itoa(e.Attempts), at(&e.OccurredAt), orDash(or(e.LastError, "")),
		})
	}
	if !ids {
		p.table([]string{"position", "event", "topic", "sink", "state", "tries", "happened", "last failure"}, rows, "topic")
	}
}

func (p *program) emissionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "emission EVENT",
		Short: "Show an event with its data, and what became of it at each sink",
		Example: `  tasker-ctl dlq emission $EVENT
  tasker-ctl dlq emission $EVENT -o json | jq .data`,
		Args: named("EVENT"),
		RunE: func(c *cobra.Command, args []string) error {
			event, err := readID("EVENT", args[0])
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			e, err := api.Emission(c.Context(), event)
			if err != nil {
				return err
			}
			return p.show(e, func() { p.oneEmission(e) })
		},
	}
}

func (p *program) oneEmission(e apiv1.EmittedEvent) {
	p.done("Event:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"Event UUID", e.EventUUID}, field{"Position", strconv.FormatInt(e.Position, 10)}, field{"Topic", e.Topic}, field{"Happened", at(&e.OccurredAt)},
		field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID},
	)
	fmt.Fprintln(p.out)
	if len(e.Emissions) == 0 {
		fmt.Fprintln(p.out, "  It was sent nowhere: there was no sink when it happened.")
	}
	for _, m := range e.Emissions {
		fmt.Fprintf(p.out, "  %s: %s\n", clean(m.Sink), clean(m.State))
		p.fields("    ",
			field{"Tries", strconv.Itoa(m.Attempts)}, field{"Refused", count(m.Refusals)}, field{"Last try", at(m.LastAttemptAt)},
			field{"Next try", at(m.NextAttemptAt)}, field{"Published", at(m.PublishedAt)}, field{"Last failure", or(m.LastError, "")},
		)
	}
	fmt.Fprintf(p.out, "\n  Data:\n  %s\n", indented(e.Data, "  "))
}

// count spells how often something happened; never is nothing.
func count(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "once"
	default:
		return strconv.Itoa(n) + " times"
	}
}

func (p *program) sinksCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sinks",
		Short: "List how the sinks are, to which events are sent",
		Example: `  tasker-ctl dlq sinks
  tasker-ctl dlq sinks -o json | jq -r '.[] | select(.status == "failing") | .last_error'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Sinks(c.Context())
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listSinks(list) })
		},
	}
}

// maxSinkCount is where the server stops counting what a sink has before it.
const maxSinkCount = 10_000

func (p *program) listSinks(list []apiv1.Sink) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "No sinks: events are stored and sent nowhere.")
		return
	}
	number := func(n int64) string { return atLeast(int(n), n >= maxSinkCount) }
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{
			s.Sink, s.Status, number(s.Pending), orDash(at(s.OldestPending)), number(s.SetAside), orDash(at(s.LastSuccessAt)),
			orDash(at(s.FailingSince)), orDash(or(s.LastError, "")),
		})
	}
	p.table([]string{"sink", "status", "pending", "oldest", "set aside", "last success", "failing since", "last failure"}, rows)
}
