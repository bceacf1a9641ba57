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
	"tasker.example/tasker/internal/endpoint"
)

var scheduleCommand = group(help{
	use: "schedule", short: "Manage schedules",
	long: `Create tasks on a schedule.

A schedule creates a task of a template at each firing time of a cron expression, at a fixed
rate, or with a fixed delay after the previous task. Each firing time has one firing, with its
task or the reason why none was created.`,
	example: `  tasker-ctl schedule add --namespace billing --name nightly --template settle --cron "30 2 * * *" --zone Europe/Berlin
  tasker-ctl schedule list
  tasker-ctl schedule show $SCHEDULE
  tasker-ctl schedule pause $SCHEDULE --reason "the ledger is closed"`,
},
	(*program).newScheduleAddCommand, (*program).newScheduleChangeCommand, (*program).newScheduleShowCommand,
	list(endpoint.ListSchedules, help{
		use: "list", short: "List schedules", limit: 50, quiet: true,
		example: `  tasker-ctl schedule list --namespace billing
  tasker-ctl schedule list --paused --quiet`,
	}, "No schedules.", "schedule, namespace, name, template, rule?, state, next, failing", func(s apiv1.ListedSchedule) []any {
		rule := formatScheduleRule(s.Schedule)
		return []any{s.ScheduleUUID, s.Namespace, s.Name, s.Template, rule, s.State, orDash(s.NextAt), formatFailing(s)}
	}),
	plain(endpoint.ListFirings, help{
		use: "firings SCHEDULE", short: "List firings, newest first", limit: 50,
		example: `  tasker-ctl schedule firings $SCHEDULE
  tasker-ctl schedule firings $SCHEDULE --outcome missed`,
	}, func(p *program, l apiv1.FiringList) {
		p.printFirings(l.Firings)
		if next := l.Pagination.NextBefore; next != nil {
			before, kind := next.UTC().Format(time.RFC3339Nano), clean(orDefault(l.Pagination.NextKind, ""))
			fmt.Fprintf(p.err, "There are more: --before %s --before-kind %s shows the next.\n", before, kind)
		}
	}),
	plain(endpoint.PauseSchedule, help{
		use: "pause SCHEDULE --reason TEXT", short: "Pause a schedule",
		example: `  tasker-ctl schedule pause $SCHEDULE --reason "the ledger is closed"
  tasker-ctl schedule pause $SCHEDULE --until 2026-01-31T07:30:00Z --reason "audit"`,
	}, (*program).printSchedule),
	plain(endpoint.ResumeSchedule, help{
		use: "resume SCHEDULE", short: "Resume a schedule",
		example: `  tasker-ctl schedule resume $SCHEDULE --reason "the ledger is open again"`,
	}, (*program).printSchedule),
	plain(endpoint.TriggerSchedule, help{
		use: "trigger SCHEDULE", short: "Run a schedule now",
		example: `  tasker-ctl schedule trigger $SCHEDULE --reason "the file came late"`,
	}, func(p *program, f apiv1.Firing) { p.printDone("Task %s was created", clean(orDefault(f.TaskUUID, ""))) }),
	plain(endpoint.DeleteSchedule, help{
		use: "delete SCHEDULE", short: "Delete a schedule but not its tasks",
		example: `  tasker-ctl schedule delete $SCHEDULE --reason "the report is not used"`,
	}, (*program).printSchedule),
	plain(endpoint.BackfillSchedule, help{
		use: "backfill SCHEDULE --from TIME --to TIME", short: "Create tasks for past firing times",
		long: `Create tasks for past firing times that have none, all at once, at most 500. A firing time
never gets a second task, so the command can be repeated.`,
		example: `  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --dry-run
  tasker-ctl schedule backfill $SCHEDULE --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --reason "the export was broken"`,
	}, (*program).printBackfill),
)

func (p *program) printBackfill(r apiv1.Backfill) {
	printList(p, r.Instants, "No firing times.", "instant, task, what?", func(x apiv1.BackfillInstant) []any {
		what := "created"
		if !x.Starts {
			what = orDefault(x.Reason, "")
		} else if r.DryRun {
			what = "would be created"
		}
		return []any{x.NominalAt, orDash(x.TaskUUID), what}
	})
}

// scheduleFlags contains the flags that define a schedule.
type scheduleFlags struct {
	spec                             apiv1.ScheduleSpec
	context                          string
	every, afterEnd, jitter, startIn time.Duration
}

func (r *scheduleFlags) addTo(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.spec.Name, "name", "", "name of the schedule, unique within the namespace")
	f.StringVar(&r.spec.Template, "template", "", "template of the tasks")
	f.StringVar(&r.spec.Version, "version", "", "version of the template (default: the newest at each firing)")
	f.StringVar(&r.context, "context", "", "context of each task, a JSON object")
	f.StringVar(&r.spec.NominalKey, "nominal-key", "", "context key that receives the scheduled time")
	f.IntVar(&r.spec.Priority, "priority", 0, "priority of each task")
	f.StringArrayVar(&r.spec.Tags, "tag", nil, "tag of each task; repeatable")
	f.StringVar(&r.spec.Cron, "cron", "", `cron expression with five fields, or six with seconds first, such as "30 2 * * *"`)
	f.StringVar(&r.spec.DayMatch, "day-match", "", "how to combine day-of-month and day-of-week: any or all")
	f.StringVar(&r.spec.Zone, "zone", "", "time zone of --cron and --except, such as Europe/Berlin (default UTC)")
	f.Var(cli.Span(&r.every, time.Second, tasker.MaxScheduleInterval), "every", "fixed rate, such as 15m (instead of --cron)")
	f.Var(cli.Span(&r.afterEnd, time.Second, tasker.MaxScheduleInterval), "after-end", "fixed delay after the previous task finishes (instead of --cron)")
	f.StringArrayVar(&r.spec.Except, "except", nil, "days to skip: 2026-12-25, 2026-12-24..2027-01-01 or sat,sun; repeatable")
	f.Var(cli.Span(&r.jitter, 0, tasker.MaxScheduleJitter), "jitter", "delay each firing randomly by up to this duration")
	f.Var(cli.Time(&r.spec.StartAt), "start-at", "earliest firing time, such as 2026-01-31T07:30:00Z")
	f.Var(cli.Time(&r.spec.EndAt), "end-at", "latest firing time")
	f.StringVar(&r.spec.Overlap, "overlap", "", "policy while the previous task is open: skip, queue, cancel or allow (default skip)")
	f.StringVar(&r.spec.CatchUp, "catch-up", "", "missed firings to run: none, last or all (default last)")
	f.IntVar(&r.spec.CatchUpMax, "catch-up-max", 0, "maximum number of missed firings with --catch-up all")
	f.Var(cli.Span(&r.startIn, time.Second, tasker.MaxStartWithin), "start-within", "treat a firing that is later than this as missed (default 5m)")
}

// read returns the spec that the flags describe. Fields whose flags are not set have their values
// from before.
func (r *scheduleFlags) read(c *cobra.Command, before *apiv1.ScheduleSpec) (apiv1.ScheduleSpec, error) {
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

	if before == nil {
		return s, nil
	}
	return overlayFlags(c, *before, s), nil
}

// overlayFlags returns out with the fields of s whose flags are set.
func overlayFlags(c *cobra.Command, out, s apiv1.ScheduleSpec) apiv1.ScheduleSpec {
	given := c.Flags().Changed
	if given("cron") || given("every") || given("after-end") { // one rule replaces another
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

func (p *program) newScheduleAddCommand() *cobra.Command {
	var b apiv1.CreateSchedule
	var r scheduleFlags
	var c *cobra.Command
	c = newRequestCommand(p, help{
		use: "add --namespace NAMESPACE --name NAME --template TEMPLATE", short: "Create a schedule",
		example: `  tasker-ctl schedule add --namespace billing --name nightly --template settle --cron "30 2 * * *" --zone Europe/Berlin --except sat,sun
  tasker-ctl schedule add --namespace billing --name poll --template fetch --every 15m --overlap queue --jitter 30s
  tasker-ctl schedule add --namespace billing --name tidy --template tidy --after-end 10m`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (s apiv1.Schedule, err error) {
		namespace := b.Namespace
		if b.ScheduleSpec, err = r.read(c, nil); err != nil {
			return s, err
		}
		b.Namespace = namespace

		return api.CreateSchedule(ctx, b)
	}, p.printSchedule)
	c.Flags().StringVarP(&b.Namespace, "namespace", "n", "", "namespace of the schedule and its template (required)")
	for _, flag := range []string{"namespace", "name", "template"} {
		markRequired(c, flag, "it selects the template")
	}
	r.addTo(c)
	addOptionalReasonFlag(c, &b.Reason)
	p.addActorFlag(c, &b.By, "by")
	return c
}

func (p *program) newScheduleChangeCommand() *cobra.Command {
	var b apiv1.UpdateSchedule
	var r scheduleFlags
	var c *cobra.Command
	c = newRequestCommand(p, help{
		use: "change SCHEDULE", short: "Update a schedule",
		long: `Update the settings of a schedule whose flags are set. Firing times until now follow the
previous rule.`,
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
		return api.UpdateSchedule(ctx, a.id[0], b)
	}, p.printSchedule)
	r.addTo(c)
	c.Flag("except").Usage += `; "none" removes them`
	addOptionalReasonFlag(c, &b.Reason)
	p.addActorFlag(c, &b.By, "by")
	return c
}

// formatFailing returns how many of the latest tasks of a schedule failed.
func formatFailing(s apiv1.ListedSchedule) string {
	switch {
	case s.Refused:
		return "refused"
	case s.Failing == 0:
		return "-"
	default:
		return "last " + formatAtLeast(s.Failing, s.FailingAtLeast)
	}
}

func formatScheduleRule(s apiv1.Schedule) string {
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

func (p *program) newScheduleShowCommand() *cobra.Command {
	r := newRequest(endpoint.GetSchedule)
	next := 5
	r.query.Next = &next
	c := r.command(p, help{
		use: "show SCHEDULE", short: "Show a schedule", without: []string{"next"},
		example: `  tasker-ctl schedule show $SCHEDULE
  tasker-ctl schedule show $SCHEDULE --next 20 -o json | jq '.next[]'`,
	}, func(d apiv1.ScheduleDetail) {
		p.printSchedule(d.Schedule)
		printList(p, d.Next, "No future firing times.", "next", func(t time.Time) []any { return []any{t} })
		p.printFirings(d.Firings)
		printList(p, d.History, "No history.", "at, event, by, reason, more?", func(c apiv1.ScheduleChange) []any {
			return []any{c.At, c.Event, c.Actor, orDash(c.Reason), orDash(strings.Trim(compact(c.Metadata), "{}"))}
		})
	})
	c.Flags().Var(cli.Number(&next, 0, tasker.MaxScheduleNext), "next", "number of future firing times")
	return c
}

func (p *program) printSchedule(s apiv1.Schedule) {
	p.printDone("Schedule %s (%s) is %s", clean(s.ScheduleUUID), clean(s.Namespace+"/"+s.Name), clean(s.State))
	template := s.Template
	if s.Version != "" {
		template += " " + s.Version
	}
	p.printFields("  ",
		field{"Template", template}, field{"Rule", formatScheduleRule(s)}, field{"Except", s.Except}, field{"Overlap", s.Overlap},
		field{"Catch-up", formatCatchUp(s)}, field{"Next", s.NextAt}, field{"Awaits task", s.AwaitsTask}, field{"Paused by", s.PausedBy},
		field{"Paused for", s.PausedReason}, field{"Paused until", s.PausedUntil}, field{"Revision", s.Revision})
}

func formatCatchUp(s apiv1.Schedule) string {
	if s.CatchUpMax > 0 {
		return fmt.Sprintf("%s, at most %d", s.CatchUp, s.CatchUpMax)
	}
	return s.CatchUp
}

func (p *program) printFirings(firings []apiv1.Firing) {
	printList(p, firings, "No firings.", "instant, instants, kind, outcome, task, task state, late, reason?", func(f apiv1.Firing) []any {
		return []any{
			f.NominalAt, f.Instants, f.Kind, f.Outcome, orDash(f.TaskUUID),
			orDash(f.TaskState),
			strconv.FormatFloat(f.LateSeconds, 'f', 1, 64) + "s", orDash(f.Reason),
		}
	})
}
