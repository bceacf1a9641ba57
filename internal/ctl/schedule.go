package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
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

// completeSpec completes the spec of a schedule, whose context is a flag of its own.
func completeSpec(s *apiv1.ScheduleSpec, document string) error {
	if len(s.Except) > 0 {
		s.Except = strings.Split(strings.Join(s.Except, ","), ",")
	}
	if document == "" {
		return nil
	}
	s.Context = json.RawMessage(document)
	if !json.Valid(s.Context) {
		return cli.Usagef("--context must be a JSON object, not %q", document)
	}
	return nil
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
	if given("context") {
		out.Context = s.Context
	}
	from, to := reflect.ValueOf(s), reflect.ValueOf(&out).Elem()
	for i := range to.NumField() {
		if flag := to.Type().Field(i).Tag.Get("flag"); flag != "" && given(flag) {
			to.Field(i).Set(from.Field(i))
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

const contextUsage = "context of each task, a JSON object"

func (p *program) newScheduleAddCommand() *cobra.Command {
	var taskContext string
	r := newRequest(endpoint.CreateSchedule)
	r.prepare = func(context.Context, arguments) error { return completeSpec(&r.body.ScheduleSpec, taskContext) }
	c := r.command(p, help{
		use: "add --namespace NAMESPACE --name NAME --template TEMPLATE", short: "Create a schedule",
		example: `  tasker-ctl schedule add --namespace billing --name nightly --template settle --cron "30 2 * * *" --zone Europe/Berlin --except sat,sun
  tasker-ctl schedule add --namespace billing --name poll --template fetch --every 15m --overlap queue --jitter 30s
  tasker-ctl schedule add --namespace billing --name tidy --template tidy --after-end 10m`,
	}, p.printSchedule)
	c.Flags().StringVarP(&r.body.Namespace, "namespace", "n", "", "namespace of the schedule and its template (required)")
	c.Flags().StringVar(&taskContext, "context", "", contextUsage)
	for _, flag := range []string{"namespace", "name", "template"} {
		markRequired(c, flag, "it selects the template")
	}
	return c
}

func (p *program) newScheduleChangeCommand() *cobra.Command {
	var taskContext string
	r := newRequest(endpoint.UpdateSchedule)
	r.prepare = func(ctx context.Context, a arguments) error {
		before, err := p.client.Schedule(ctx, a.id[0], 0)
		if err != nil {
			return err
		}
		err = completeSpec(&r.body.ScheduleSpec, taskContext)
		r.body.ScheduleSpec = overlayFlags(p.command, before.ScheduleSpec, r.body.ScheduleSpec)
		r.body.Revision = before.Revision
		return err
	}
	c := r.command(p, help{
		use: "change SCHEDULE", short: "Update a schedule",
		long: `Update the settings of a schedule whose flags are set. Firing times until now follow the
previous rule.`,
		example: `  tasker-ctl schedule change $SCHEDULE --cron "0 3 * * *" --reason "the export is later now"
  tasker-ctl schedule change $SCHEDULE --overlap queue`,
	}, p.printSchedule)
	c.Flags().StringVar(&taskContext, "context", "", contextUsage)
	c.Flag("except").Usage += `; "none" removes them`
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
