package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
)

// startFlags contains the flags of task submit that concern the start and the due time of the task.
type startFlags struct {
	after, within time.Duration
	key           string
	onConflict    tasker.ConflictPolicy

	dueAfter time.Duration

	debounceKey       string
	debounce, maxWait time.Duration
}

func (s *startFlags) addTo(c *cobra.Command, t *apiv1.CreateTask) {
	f := c.Flags()
	f.Var(cli.Duration(&s.after, 0), "start-after", "delay before the task starts, such as 90m")
	f.Var(cli.Duration(&s.within, 0), "start-within", "expire the task if no step is claimed within this time after its start")
	f.Var(cli.TimeOrSpan(&t.StartBy), "start-by", "expire the task if no step is claimed by this time: 2026-01-31T12:00:00Z, or +90m from now")
	f.Var(cli.TimeOrSpan(&t.DueAt), "due-at", "due time: 2026-01-31T12:00:00Z, or +90m from now")
	f.Var(cli.Duration(&s.dueAfter, 0), "due-after", "due time relative to the start, such as 24h")
	f.StringVar(&s.key, "unique-key", "", "allow only one open task of the template with this key")
	f.Var(cli.Choice(&s.onConflict, tasker.ConflictPolicies()), "on-conflict", "policy if an open task has the key: "+cli.Join(tasker.ConflictPolicies())+" (default fail)")
	f.StringVar(&s.debounceKey, "debounce-key", "", "merge requests with this key into one task of the template")
	f.Var(cli.Duration(&s.debounce, 0), "debounce", "start this long after the last merged request")
	f.Var(cli.Duration(&s.maxWait, 0), "debounce-max", "maximum delay after the first request (default ten times --debounce)")
}

func formatDebounce(t apiv1.Task) string {
	if t.DebounceKey == nil && t.MergedRequests == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d merged", orDefault(t.DebounceKey, ""), t.MergedRequests))
}

// read copies the flags into a request.
func (s *startFlags) read(t *apiv1.CreateTask) error {
	t.StartAfterSeconds, t.StartWithinSeconds = s.after.Seconds(), s.within.Seconds()
	if s.key != "" {
		t.Unique = &apiv1.Unique{Key: s.key, OnConflict: string(s.onConflict)}
	} else if s.onConflict != "" {
		return cli.Usagef("--on-conflict requires --unique-key")
	}
	if s.debounceKey != "" || s.debounce != 0 || s.maxWait != 0 {
		if s.debounceKey == "" || s.debounce <= 0 {
			return cli.Usagef("--debounce-key and --debounce must be used together")
		}
		t.Debounce = &apiv1.Debounce{Key: s.debounceKey, WaitSeconds: s.debounce.Seconds(), MaxWaitSeconds: s.maxWait.Seconds()}
	}
	t.DueAfterSeconds = s.dueAfter.Seconds()
	return nil
}
