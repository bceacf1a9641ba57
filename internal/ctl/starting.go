package ctl

import (
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
)

// A starting is what the flags of task submit say of the start of the task.
type starting struct {
	after, within time.Duration
	by            string
}

func (s *starting) flags(c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&s.after, "start-after", 0, "not before so long after its creation, such as 90m")
	f.DurationVar(&s.within, "start-within", 0, "end it as expired unless a worker claims a step of it so long after its start, such as 1h")
	f.StringVar(&s.by, "start-by", "", "the same, by a time such as 2026-01-31T12:00:00Z, or +90m from now")
}

// read puts what was typed into a request.
func (s *starting) read(t *apiv1.CreateTask) (err error) {
	t.StartAfterSeconds, t.StartWithinSeconds = s.after.Seconds(), s.within.Seconds()
	t.StartBy, err = instantOrSpan("start-by", s.by)
	return err
}
