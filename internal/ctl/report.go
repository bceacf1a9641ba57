package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/payload"
)

const aboutReport = `

The report has for how long tasks were stuck (undetected, unowned, in repair, proving),
who did what, operations and waves, what was proved and what was not, and a timeline.
It is Markdown; -o json has the same for programs, with a digest.`

func (p *program) caseReportCommand() *cobra.Command {
	return p.reportCommandOf(help{
		use: "report CASE", short: "Print the report of a case", long: "Report how a case went." + aboutReport,
		example: `  tasker-ctl case report $CASE > report.md
  tasker-ctl case report $CASE --from 2026-01-31T00:00:00Z -o json | jq .phases`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Case = id }, nil)
}

func (p *program) incidentReportCommand() *cobra.Command {
	return p.reportCommandOf(help{
		use: "report INCIDENT", short: "Print the report of an incident",
		long:    "Report how an incident went: the investigations of its cases that were open while it\nwent on." + aboutReport,
		example: `  tasker-ctl incident report $INCIDENT > report.md`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Incident = id }, nil)
}

func (p *program) reportCommand() *cobra.Command {
	return p.reportCommandOf(help{
		use: "report", short: "Print the report of a time range",
		long: "Report how the investigations went that were opened in a time." + aboutReport,
		example: `  tasker-ctl report --namespace orders --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z
  tasker-ctl report --from 2026-01-31T00:00:00Z -o json | jq .stuck_task_minutes`,
	}, func(*tasker.IncidentReportQuery, *tasker.ID) {}, func(c *cobra.Command, q *tasker.IncidentReportQuery) {
		c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "only investigations of this namespace")
	})
}

// reportCommandOf is a command that prints a report. about says in the query what it is of.
func (p *program) reportCommandOf(h help, about func(*tasker.IncidentReportQuery, *tasker.ID), flags func(*cobra.Command, *tasker.IncidentReportQuery)) *cobra.Command {
	var q tasker.IncidentReportQuery
	var from, to string
	c := p.command(h, func(ctx context.Context, a arguments) (err error) {
		if len(a.id) > 0 {
			about(&q, &a.id[0])
		}
		if q.From, err = instant("from", from); err != nil {
			return err
		}
		if q.To, err = instant("to", to); err != nil {
			return err
		}
		api, err := p.api()
		if err != nil {
			return err
		}
		return p.printReport(ctx, api, q)
	})
	c.Flags().StringVar(&from, "from", "", "only investigations opened at this instant or later, such as 2026-01-31T02:10:00Z")
	c.Flags().StringVar(&to, "to", "", "only investigations opened before this instant")
	if flags != nil {
		flags(c, &q)
	}
	return c
}

func (p *program) printReport(ctx context.Context, api *client.Client, q tasker.IncidentReportQuery) error {
	if p.output == "json" {
		r, err := api.IncidentReport(ctx, q)
		if err != nil {
			return err
		}
		return p.json(r)
	}
	text, err := api.IncidentReportMarkdown(ctx, q)
	if err == nil {
		_, err = fmt.Fprint(p.out, payload.CleanText(text, maxDocument))
	}
	return err
}

// instant reads the value of a flag that is an instant; zero when it is not given.
func instant(flag, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return t, cli.Usagef("--%s must be an instant such as 2026-01-31T02:10:00Z, not %q", flag, text)
	}
	return t, nil
}
