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

// A starting is what the flags of task submit say of the start of the task.
type starting struct {
	after, within time.Duration
	by            string
	key           string
	onConflict    tasker.ConflictPolicy

	dueAt    string
	dueAfter time.Duration

	debounceKey       string
	debounce, maxWait time.Duration
}

func (s *starting) flags(c *cobra.Command) {
	f := c.Flags()
	f.Var(cli.Duration(&s.after, 0), "start-after", "not before so long after its creation, such as 90m")
	f.Var(cli.Duration(&s.within, 0), "start-within", "end it as expired unless a worker claims a step of it so long after its start, such as 1h")
	f.StringVar(&s.by, "start-by", "", "the same, by a time such as 2026-01-31T12:00:00Z, or +90m from now")
	f.StringVar(&s.dueAt, "due-at", "", "by when it is due: a time such as 2026-01-31T12:00:00Z, or +90m from now")
	f.Var(cli.Duration(&s.dueAfter, 0), "due-after", "the same, so long after its start, such as 24h")
	f.StringVar(&s.key, "unique-key", "", "have one task of the template be open at a time for this key")
	f.Var(cli.Choice(&s.onConflict, tasker.ConflictPolicies()), "on-conflict", "when an open task has the key: "+cli.Join(tasker.ConflictPolicies())+" (default fail)")
	f.StringVar(&s.debounceKey, "debounce-key", "", "merge the requests with this key into one task of the template")
	f.Var(cli.Duration(&s.debounce, 0), "debounce", "start this long after the last merged request")
	f.Var(cli.Duration(&s.maxWait, 0), "debounce-max", "and at most so long after the first (default ten times --debounce)")
}

// debounceText says how many requests were merged into a task.
func debounceText(t apiv1.Task) string {
	if t.DebounceKey == nil && t.MergedRequests == 0 {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d merged", or(t.DebounceKey, ""), t.MergedRequests))
}

// read puts what was typed into a request.
func (s *starting) read(t *apiv1.CreateTask) (err error) {
	t.StartAfterSeconds, t.StartWithinSeconds = s.after.Seconds(), s.within.Seconds()
	if s.key != "" {
		t.Unique = &apiv1.Unique{Key: s.key, OnConflict: string(s.onConflict)}
	} else if s.onConflict != "" {
		return cli.Usagef("--on-conflict needs --unique-key")
	}
	if s.debounceKey != "" || s.debounce != 0 || s.maxWait != 0 {
		if s.debounceKey == "" || s.debounce <= 0 {
			return cli.Usagef("--debounce-key and --debounce go together")
		}
		t.Debounce = &apiv1.Debounce{Key: s.debounceKey, WaitSeconds: s.debounce.Seconds(), MaxWaitSeconds: s.maxWait.Seconds()}
	}
	t.DueAfterSeconds = s.dueAfter.Seconds()
	if t.DueAt, err = instantOrSpan("due-at", s.dueAt); err != nil {
		return err
	}
	t.StartBy, err = instantOrSpan("start-by", s.by)
	return err
}
