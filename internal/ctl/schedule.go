package ctl

import (
	"context"
	"encoding/json"
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

func (p *program) scheduleCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "schedule",
		Short: "Manage schedules",
		Long: `Make tasks at the instants of a rule.

A schedule makes a task of a template at each instant of a cron expression, of a fixed rate,
or so long after its task before has ended. Each instant that has come is in one firing: it
has its task, or says why none was made.`,
		Example: `  tasker-ctl schedule add --namespace billing --name nightly --template settle --cron "30 2 * * *" --zone Europe/Berlin
  tasker-ctl schedule list
  tasker-ctl schedule show $SCHEDULE
  tasker-ctl schedule pause $SCHEDULE --reason "the ledger is closed"`,
	}, p.scheduleAddCommand(), p.scheduleChangeCommand(), p.scheduleListCommand(), p.scheduleShowCommand(), p.scheduleFiringsCommand(), p.schedulePauseCommand(),
		p.scheduleResumeCommand(), p.scheduleTriggerCommand(), p.scheduleBackfillCommand(), p.scheduleDeleteCommand())
}

// A ruling is the flags that say what a schedule does.
type ruling struct {
	spec                             apiv1.ScheduleSpec
	context, startAt, endAt          string
	every, afterEnd, jitter, startIn time.Duration
}

func (r *ruling) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.spec.Name, "name", "", "its name, unique within the namespace")
	f.StringVar(&r.spec.Template, "template", "", "the template of which tasks are made")
	f.StringVar(&r.spec.Version, "version", "", "the version of the template (default: the newest at each instant)")
	f.StringVar(&r.context, "context", "", "the context of each task, as a JSON object")
	f.StringVar(&r.spec.NominalKey, "nominal-key", "", "context key that receives the scheduled time")
	f.IntVar(&r.spec.Priority, "priority", 0, "the priority of each task")
	f.StringArrayVar(&r.spec.Tags, "tag", nil, "a tag of each task (may be repeated)")
	f.StringVar(&r.spec.Cron, "cron", "", `instants as a cron expression of five fields, or six with the second first, such as "30 2 * * *"`)
	f.StringVar(&r.spec.DayMatch, "day-match", "", "how to combine day-of-month and day-of-week: any or all")
	f.StringVar(&r.spec.Zone, "zone", "", "the time zone of --cron and --except, such as Europe/Berlin (default UTC)")
	f.Var(cli.Span(&r.every, time.Second, tasker.MaxScheduleInterval), "every", "in place of --cron: a fixed rate, such as 15m")
	f.Var(cli.Span(&r.afterEnd, time.Second, tasker.MaxScheduleInterval), "after-end", "fixed delay after the previous task finishes (instead of --cron)")
	f.StringArrayVar(&r.spec.Except, "except", nil, "days without a task, with commas between them: 2026-12-25, 2026-12-24..2027-01-01 or sat,sun (may be repeated)")
	f.Var(cli.Span(&r.jitter, 0, tasker.MaxScheduleJitter), "jitter", "delay each firing randomly by up to this duration")
	f.StringVar(&r.startAt, "start-at", "", "no instant is before, such as 2026-01-31T07:30:00Z")
	f.StringVar(&r.endAt, "end-at", "", "no instant is after")
	f.StringVar(&r.spec.Overlap, "overlap", "", "while a task of it has not ended: skip, queue, cancel or allow (default skip)")
	f.StringVar(&r.spec.CatchUp, "catch-up", "", "instants that no server handled in time: none, last or all (default last)")
	f.IntVar(&r.spec.CatchUpMax, "catch-up-max", 0, "of --catch-up all: how many of them")
	f.Var(cli.Span(&r.startIn, time.Second, tasker.MaxStartWithin), "start-within", "an instant that is handled later is one to catch up with (default 5m)")
}

// read returns what the flags say, in place of what was there where a flag is given.
func (r *ruling) read(c *cobra.Command, before *apiv1.ScheduleSpec) (apiv1.ScheduleSpec, error) {
	s := r.spec
	if len(s.Except) > 0 {
		s.Except = strings.Split(strings.Join(s.Except, ","), ",")
	}
	if r.context != "" {
		if !json.Valid([]byte(r.context)) {
			return s, cli.Usagef("--context must be a JSON object, not %q", r.context)
		}
		s.Context = json.RawMessage(r.context)
	}
	s.EverySeconds, s.AfterEndSeconds = int64(r.every/time.Second), int64(r.afterEnd/time.Second)
	s.JitterSeconds, s.StartWithinSeconds = int64(r.jitter/time.Second), int64(r.startIn/time.Second)
	for _, at := range []struct {
		flag, text string
		into       **time.Time
	}{{"start-at", r.startAt, &s.StartAt}, {"end-at", r.endAt, &s.EndAt}} {
		if at.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, at.text)
		if err != nil {
			return s, cli.Usagef("--%s must be an instant such as 2026-01-31T07:30:00Z, not %q", at.flag, at.text)
		}
		*at.into = &t
	}
	if before == nil {
		return s, nil
	}
	return overlaid(c, *before, s), nil
}

// overlaid is a spec with what flags say in place of what it has.
func overlaid(c *cobra.Command, out, s apiv1.ScheduleSpec) apiv1.ScheduleSpec {
	given := c.Flags().Changed
	if given("cron") || given("every") || given("after-end") { // a rule takes the place of the one before
		if given("after-end") {
			out.Overlap, out.CatchUp, out.CatchUpMax = "", "", 0
		}
		out.Cron, out.DayMatch, out.EverySeconds, out.AfterEndSeconds = s.Cron, s.DayMatch, s.EverySeconds, s.AfterEndSeconds
	}
	if given("catch-up") {
		out.CatchUpMax = 0
	}
	for flag, set := range map[string]func(){
		"name": func() { out.Name = s.Name }, "template": func() { out.Template = s.Template }, "version": func() { out.Version = s.Version },
		"context": func() { out.Context = s.Context }, "nominal-key": func() { out.NominalKey = s.NominalKey }, "priority": func() { out.Priority = s.Priority },
		"tag": func() { out.Tags = s.Tags }, "day-match": func() { out.DayMatch = s.DayMatch }, "zone": func() { out.Zone = s.Zone },
		"except": func() { out.Except = s.Except }, "jitter": func() { out.JitterSeconds = s.JitterSeconds }, "start-at": func() { out.StartAt = s.StartAt },
		"end-at": func() { out.EndAt = s.EndAt }, "overlap": func() { out.Overlap = s.Overlap }, "catch-up": func() { out.CatchUp = s.CatchUp },
		"catch-up-max": func() { out.CatchUpMax = s.CatchUpMax }, "start-within": func() { out.StartWithinSeconds = s.StartWithinSeconds },
	} {
		if given(flag) {
			set()
		}
	}
	if len(out.Except) == 1 && out.Except[0] == "none" {
		out.Except = nil
	}
	if out.Cron == "" && len(out.Except) == 0 && !given("zone") {
		out.Zone = ""
	}
	return out
}

func (p *program) scheduleAddCommand() *cobra.Command {
	var b apiv1.CreateSchedule
	var r ruling
	var c *cobra.Command
	c = answer(p, help{
		use:   "add --namespace NAMESPACE --name NAME --template TEMPLATE",
		short: "Create a schedule",
		example: `  tasker-ctl schedule add --namespace billing --name nightly --template settle --cron "30 2 * * *" --zone Europe/Berlin --except sat,sun
  tasker-ctl schedule add --namespace billing --name poll --template fetch --every 15m --overlap queue --jitter 30s
  tasker-ctl schedule add --namespace billing --name tidy --template tidy --after-end 10m`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (s apiv1.Schedule, err error) {
		namespace := b.Namespace
		if b.ScheduleSpec, err = r.read(c, nil); err != nil {
			return s, err
		}
		b.Namespace = namespace
		for flag, value := range map[string]string{"namespace": b.Namespace, "name": b.Name, "template": b.Template} {
			if err := need(flag, value, "it says of what tasks are made"); err != nil {
				return s, err
			}
		}
		if b.By, err = p.actor("by", b.By); err != nil {
			return s, err
		}
		return api.CreateSchedule(ctx, b)
	}, p.printSchedule)
	c.Flags().StringVarP(&b.Namespace, "namespace", "n", "", "the namespace of the schedule and of the template")
	r.flags(c)
	c.Flags().StringVar(&b.Reason, "reason", "", "why, for its history")
	actorFlag(c, &b.By, "by")
	return c
}

func (p *program) scheduleChangeCommand() *cobra.Command {
	var b apiv1.UpdateSchedule
	var r ruling
	var c *cobra.Command
	c = answer(p, help{
		use:   "change SCHEDULE",
		short: "Update a schedule",
		long: `Change what the flags name of a schedule, and nothing else. Instants until now are those of
the rule before.`,
		example: `  tasker-ctl schedule change $SCHEDULE --cron "0 3 * * *" --reason "the export is later now"
  tasker-ctl schedule change $SCHEDULE --overlap queue`,
	}, func(ctx context.Context, api *client.Client, a arguments) (s apiv1.Schedule, err error) {
		before, err := api.Schedule(ctx, a.id[0], 0)
		if err != nil {
			return s, err
		}
		if b.ScheduleSpec, err = r.read(c, &before.ScheduleSpec); err != nil {
			return s, err
		}
		b.Revision = before.Revision
		if b.By, err = p.actor("by", b.By); err != nil {
			return s, err
		}
		return api.UpdateSchedule(ctx, a.id[0], b)
	}, p.printSchedule)
	r.flags(c)
	c.Flag("except").Usage += "; none: no such days any more"
	c.Flags().StringVar(&b.Reason, "reason", "", "why, for its history")
	actorFlag(c, &b.By, "by")
	return c
}

func (p *program) scheduleListCommand() *cobra.Command {
	var q client.ScheduleQuery
	var quiet bool
	c := answer(p, help{
		use:   "list",
		short: "List schedules",
		example: `  tasker-ctl schedule list --namespace billing
  tasker-ctl schedule list --paused --quiet`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.ScheduleList, error) {
		if q.After != "" {
			if _, err := readID("--after", q.After); err != nil {
				return apiv1.ScheduleList{}, err
			}
		}
		return api.Schedules(ctx, q)
	}, func(l apiv1.ScheduleList) {
		if quiet {
			ids(p, l.Schedules, func(s apiv1.ListedSchedule) string { return s.ScheduleUUID })
			return
		}
		header := []string{"schedule", "namespace", "name", "template", "rule", "state", "next", "failing"}
		list(p, l.Schedules, columns{none: "No schedules.", names: header, spare: "rule"}, func(s apiv1.ListedSchedule) []string {
			return []string{s.ScheduleUUID, s.Namespace, s.Name, s.Template, scheduleRule(s.Schedule), s.State, orDash(at(s.NextAt)), failingText(s)}
		})
		if next := l.Pagination.NextAfter; next != nil {
			fmt.Fprintf(p.err, "There are more: --after %s shows the next.\n", clean(*next))
		}
	})
	f := c.Flags()
	f.StringVarP(&q.Namespace, "namespace", "n", "", "only schedules of this namespace")
	f.StringVar(&q.Name, "name", "", "only schedules of this name")
	f.BoolVar(&q.Paused, "paused", false, "only schedules that are paused")
	f.StringVar(&q.After, "after", "", "only schedules behind this one")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	limitFlag(c, &q.Limit, 50)
	return c
}

// failingText says how the last tasks of a schedule went.
func failingText(s apiv1.ListedSchedule) string {
	switch {
	case s.Refused:
		return "refused"
	case s.Failing == 0:
		return "-"
	default:
		return "last " + atLeast(s.Failing, s.FailingAtLeast)
	}
}

// scheduleRule says when a schedule makes tasks.
func scheduleRule(s apiv1.Schedule) string {
	switch {
	case s.EverySeconds > 0:
		return "every " + (time.Duration(s.EverySeconds) * time.Second).String()
	case s.AfterEndSeconds > 0:
		return (time.Duration(s.AfterEndSeconds) * time.Second).String() + " after the end"
	case s.Zone != "":
		return s.Cron + " " + s.Zone
	default:
		return s.Cron + " UTC"
	}
}

func (p *program) scheduleShowCommand() *cobra.Command {
	next := 5
	c := answer(p, help{
		use:   "show SCHEDULE",
		short: "Show a schedule",
		example: `  tasker-ctl schedule show $SCHEDULE
  tasker-ctl schedule show $SCHEDULE --next 20 -o json | jq '.next[]'`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.ScheduleDetail, error) {
		return api.Schedule(ctx, a.id[0], next)
	}, func(d apiv1.ScheduleDetail) {
		p.printSchedule(d.Schedule)
		list(p, d.Next, columns{none: "No instant is to come that anybody knows.", names: []string{"next"}}, func(t time.Time) []string { return []string{at(&t)} })
		p.printFirings(d.Firings)
		list(p, d.History, columns{none: "No history.", names: []string{"at", "event", "by", "reason", "more"}, spare: "more"}, func(c apiv1.ScheduleChange) []string {
			return []string{at(&c.At), c.Event, c.Actor, orDash(or(c.Reason, "")), orDash(strings.Trim(compact(c.Metadata), "{}"))}
		})
	})
	c.Flags().Var(cli.Number(&next, 0, tasker.MaxScheduleNext), "next", "how many of the next instants")
	return c
}

func (p *program) printSchedule(s apiv1.Schedule) {
	p.done("Schedule %s (%s) is %s", clean(s.ScheduleUUID), clean(s.Namespace+"/"+s.Name), clean(s.State))
	template := s.Template
	if s.Version != "" {
		template += " " + s.Version
	}
	p.fields("  ",
		field{"Template", template}, field{"Rule", scheduleRule(s)}, field{"Except", strings.Join(s.Except, ", ")}, field{"Overlap", s.Overlap},
		field{"Catch-up", catchUpText(s)}, field{"Next", at(s.NextAt)}, field{"Awaits task", or(s.AwaitsTask, "")}, field{"Paused by", or(s.PausedBy, "")},
		field{"Paused for", or(s.PausedReason, "")}, field{"Paused until", at(s.PausedUntil)}, field{"Revision", strconv.Itoa(s.Revision)})
}

func catchUpText(s apiv1.Schedule) string {
	if s.CatchUpMax > 0 {
		return fmt.Sprintf("%s, at most %d", s.CatchUp, s.CatchUpMax)
	}
	return s.CatchUp
}

func (p *program) printFirings(firings []apiv1.Firing) {
	list(p, firings, columns{none: "No firings.", names: []string{"instant", "instants", "kind", "outcome", "task", "task state", "late", "reason"}, spare: "reason"}, func(f apiv1.Firing) []string {
		return []string{
			at(&f.NominalAt), strconv.FormatInt(f.Instants, 10), f.Kind, f.Outcome, orDash(or(f.TaskUUID, "")), orDash(or(f.TaskState, "")),
			strconv.FormatFloat(f.LateSeconds, 'f', 1, 64) + "s", orDash(or(f.Reason, "")),
		}
	})
}
