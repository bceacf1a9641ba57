package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (p *program) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "history ENTRY|TASK",
		Short: "Show who did what to an investigation, oldest first; of a task, to its newest",
		Example: `  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq history $TASK -o json | jq -r '.[] | "\(.changed_at) \(.actor): \(.notes)"'`,
		Args: named("ENTRY|TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("ENTRY|TASK", args[0])
			if err != nil {
				return err
			}
			e, err := p.entry(c.Context(), id)
			if err != nil {
				return err
			}
			list, err := p.wholeHistory(c.Context(), e)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listHistory(list) })
		},
	}
}

// wholeHistory returns the history of an investigation, page by page.
func (p *program) wholeHistory(ctx context.Context, e apiv1.Entry) ([]apiv1.EntryChange, error) {
	list := append([]apiv1.EntryChange{}, e.History...) // none is [] in JSON
	for e.HistoryHasMore && len(e.History) > 0 {
		id, err := readID("dlq_entry_uuid", e.DLQEntryUUID)
		if err != nil {
			return nil, err
		}
		api, err := p.api()
		if err != nil {
			return nil, err
		}
		if e, err = api.EntryFrom(ctx, id, len(list)); err != nil {
			return nil, err
		}
		list = append(list, e.History...)
	}
	return list, nil
}

func (p *program) listHistory(list []apiv1.EntryChange) {
	if len(list) == 0 {
		fmt.Fprintln(p.err, "No history.")
		return
	}
	var rows [][]string
	for _, h := range list {
		rows = append(rows, []string{at(&h.ChangedAt), h.Event, or(h.FromStatus, "-"), h.ToStatus, h.Actor, said(h)})
	}
	p.table([]string{"time", "event", "from", "to", "actor", "notes"}, rows)
}

// sayChanges tells on stderr what became of an investigation after an instant,
// for somebody whose update was refused because of it.
func (p *program) sayChanges(ctx context.Context, id tasker.ID, since time.Time) {
	e, err := p.entry(ctx, id)
	if err != nil {
		return // the refusal has been told; this only explains it
	}
	for _, h := range e.History {
		if !h.ChangedAt.After(since) {
			continue
		}
		line := fmt.Sprintf("%s: %s by %s, %s", at(&h.ChangedAt), h.Event, h.Actor, h.ToStatus)
		if note := short(said(h), maxNote); note != "" {
			line += ": " + note
		}
		fmt.Fprintln(p.err, "  "+clean(line))
	}
}

// said is the note of a change; of one without, the keys that it set.
func said(h apiv1.EntryChange) string {
	if notes := or(h.Notes, ""); notes != "" {
		return notes
	}
	keys := slices.Sorted(maps.Keys(readPicture(h.Metadata)))
	if len(keys) == 0 {
		return ""
	}
	return "metadata: " + strings.Join(keys, ", ")
}
