package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// A submission is what the flags of task submit say.
type submission struct {
	task     apiv1.CreateTask
	context  string
	startAt  string
	wait     bool
	idOnly   bool
	watching watching
}

func (p *program) submitCommand() *cobra.Command {
	var s submission
	c := &cobra.Command{
		Use:   "submit --namespace NAME --name NAME",
		Short: "Create a task and, with --wait, see it through",
		Long: `Create a task of a template.

With --wait it stays until the task ends, as task watch does, with the same exit
codes. With --idempotency-key the same submission can be repeated safely: it leads
to the same task.`,
		Example: `  tasker-ctl task submit --namespace orders --name fulfil --context '{"order_id": 7}' --wait
  tasker-ctl task submit --namespace orders --name fulfil --context @order.json --idempotency-key order-7
  TASK=$(tasker-ctl task submit --namespace orders --name fulfil --quiet)`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error { return p.submit(c, s) },
	}
	f := c.Flags()
	f.StringVarP(&s.task.Namespace, "namespace", "n", "", "namespace of the template (needed)")
	f.StringVar(&s.task.Name, "name", "", "name of the template (needed)")
	f.StringVar(&s.task.Version, "version", "", "version of the template (default the newest)")
	f.StringVarP(&s.context, "context", "c", "", "input of the task: a JSON object, @file or @-")
	f.IntVarP(&s.task.Priority, "priority", "p", 0, "higher runs first")
	f.StringSliceVar(&s.task.Tags, "tag", nil, "a word to find the task by; may be repeated")
	f.StringVar(&s.task.Initiator, "initiator", "", "who asks for it (default $TASKER_ACTOR, else your name on this machine)")
	f.StringVar(&s.task.SourceSystem, "source-system", "tasker-ctl", "the system that asks for it")
	f.StringVar(&s.task.Reason, "reason", "", "why it is asked for")
	f.StringVar(&s.task.CorrelationID, "correlation-id", "", "ties the task to its request (default: a new one)")
	f.StringVar(&s.task.ParentCorrelationID, "parent-correlation-id", "", "ties the task to what it is a part of")
	f.StringVar(&s.task.IdempotencyKey, "idempotency-key", "", "the same key leads to the same task")
	f.StringVar(&s.startAt, "start-at", "", "not before: a time such as 2026-01-31T12:00:00Z, or +90m from now")
	f.StringVar(&s.task.RecreatedFrom, "recreated-from", "", "the task that this one replaces")
	f.BoolVarP(&s.idOnly, "quiet", "q", false, "print the id only")
	f.BoolVarP(&s.wait, "wait", "w", false, "stay until the task ends")
	s.watching.flags(c)
	return c
}

func (p *program) submit(c *cobra.Command, s submission) error {
	t := s.task
	if err := need("namespace", t.Namespace, "it says which template"); err != nil {
		return err
	}
	if err := need("name", t.Name, "it says which template"); err != nil {
		return err
	}
	var err error
	if t.Context, err = p.object("context", s.context); err != nil {
		return err
	}
	if t.StartAt, err = startTime(s.startAt); err != nil {
		return err
	}
	if t.RecreatedFrom != "" {
		if _, err := readID("--recreated-from", t.RecreatedFrom); err != nil {
			return err
		}
	}
	if t.Initiator, err = p.actor("initiator", t.Initiator); err != nil {
		return err
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	created, err := api.CreateTask(c.Context(), t)
	if err != nil {
		return err
	}
	id, err := readID("task_uuid", created.TaskUUID)
	if err != nil {
		return tasker.Errorf(tasker.Internal, "the server answered without the id of the task")
	}
	switch {
	case p.output == "json" && s.wait:
		return p.watch(c.Context(), id, s.watching)
	case p.output == "json":
		return p.json(created)
	case s.idOnly:
		fmt.Fprintln(p.out, id)
		s.watching.mute = true
	default:
		p.done("Task submitted!")
		p.fields("  ",
			field{"UUID", created.TaskUUID}, field{"Task", created.Namespace + "/" + created.Name + " " + created.Version},
			field{"State", created.Status}, field{"Starts", at(created.StartAt)},
		)
	}
	if !s.wait {
		return nil
	}
	return p.watch(c.Context(), id, s.watching)
}

// startTime reads an instant, or a span from now; empty is none.
func startTime(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if span, relative := strings.CutPrefix(text, "+"); relative {
		if d, err := time.ParseDuration(span); err == nil && d >= 0 {
			t := time.Now().Add(d).UTC()
			return &t, nil
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usage{"--start-at must be a time such as 2026-01-31T12:00:00Z, or +90m from now, not " + quote(text)}
	}
	return &t, nil
}
