package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
)

func (p *program) followCommand() *cobra.Command {
	var o client.WatchOptions
	c := &cobra.Command{
		Use:   "watch",
		Short: "Follow what becomes of investigations, as it happens",
		Long: `Follow what becomes of investigations, with a line for each event as it happens,
until Ctrl-C.

When the connection breaks it is made again, and what happened meanwhile is shown:
no event is lost, and none comes twice. With -o json each line is the event as
sinks get it, a CloudEvent.`,
		Example: `  tasker-ctl dlq watch
  tasker-ctl dlq watch --topic dlq.entry.created
  tasker-ctl dlq watch --from-beginning -o json | jq -r .data.dlq_reason`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, topic := range o.Topics {
				if _, err := choice("topic", topic, tasker.Topics()); err != nil {
					return err
				}
			}
			return p.follow(c.Context(), o)
		},
	}
	c.Flags().StringSliceVar(&o.Topics, "topic", nil, "only events of this topic; may be repeated: "+choices(tasker.Topics()))
	c.Flags().BoolVar(&o.FromBeginning, "from-beginning", false, "all events there are, and then those that come")
	oneOf(c, "topic", tasker.Topics())
	return c
}

// follow prints events until the command is interrupted, which is how it ends.
func (p *program) follow(ctx context.Context, o client.WatchOptions) error {
	api, err := p.api()
	if err != nil {
		return err
	}
	o.Lost = func(err error) { p.warn("%s; trying again.", strings.TrimSuffix(clean(err.Error()), ".")) }
	for e, err := range api.WatchEvents(ctx, o) {
		if err == nil {
			err = p.oneEvent(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneEvent prints an event as one line.
func (p *program) oneEvent(e client.WatchedEvent) error {
	if p.output == "json" {
		doc, err := json.Marshal(e.CloudEvent)
		if err != nil {
			return fmt.Errorf("print the event: %w", err)
		}
		_, err = fmt.Fprintln(p.out, escape(string(doc)))
		return err
	}
	data := readPicture(e.Data)
	words := []string{at(&e.Time), strings.TrimPrefix(e.Type, "tasker."), data.text("dlq_reason"), data.text("namespace") + "/" + data.text("task_name"), e.Subject}
	for i, w := range words {
		words[i] = orDash(clean(w))
	}
	_, err := fmt.Fprintln(p.out, strings.Join(words, gap))
	return err
}
