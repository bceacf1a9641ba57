package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/payload"
)

const reportDescription = `

The report shows how long tasks were stuck (undetected, unowned, in repair, verifying), who
acted, the operations and their waves, the outcomes, and a timeline. It is Markdown; -o json
prints the same data with a digest.`

func (p *program) newCaseReportCommand() *cobra.Command {
	return p.newReportCommandFor(help{
		use: "report CASE", short: "Print the report of a case", long: "Print the report of a case." + reportDescription,
		example: `  tasker-ctl case report $CASE > report.md
  tasker-ctl case report $CASE --from 2026-01-31T00:00:00Z -o json | jq .phases`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Case = id }, nil)
}

func (p *program) newIncidentReportCommand() *cobra.Command {
	return p.newReportCommandFor(help{
		use: "report INCIDENT", short: "Print the report of an incident",
		long: "Print the report of an incident: the investigations of its cases that were open during it." +
			reportDescription,
		example: `  tasker-ctl incident report $INCIDENT > report.md`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Incident = id }, nil)
}

func (p *program) newReportCommand() *cobra.Command {
	return p.newReportCommandFor(help{
		use: "report", short: "Print the report of a time range",
		long: "Print the report of the investigations that were opened in a time range." + reportDescription,
		example: `  tasker-ctl report --namespace orders --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z
  tasker-ctl report --from 2026-01-31T00:00:00Z -o json | jq .stuck_task_minutes`,
	}, func(*tasker.IncidentReportQuery, *tasker.ID) {}, func(c *cobra.Command, q *tasker.IncidentReportQuery) {
		addNamespaceFlag(c, &q.Namespace)
	})
}

// newReportCommandFor returns a command that prints an incident report. subject sets the case or
// incident in the query.
func (p *program) newReportCommandFor(h help, subject func(*tasker.IncidentReportQuery, *tasker.ID), flags func(*cobra.Command, *tasker.IncidentReportQuery)) *cobra.Command {
	var q tasker.IncidentReportQuery
	c := p.newCommand(h, func(ctx context.Context, a arguments) (err error) {
		if len(a.id) > 0 {
			subject(&q, &a.id[0])
		}
		api := p.client
		return p.printReport(ctx, api, q)
	})
	c.Flags().Var(cli.Time(&q.From), "from", "start of the time range, such as 2026-01-31T02:10:00Z")
	c.Flags().Var(cli.Time(&q.To), "to", "end of the time range, exclusive")
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
		return p.printJSON(r)
	}
	text, err := api.IncidentReportMarkdown(ctx, q)
	if err == nil {
		_, err = fmt.Fprint(p.out, payload.CleanText(text, maxDocumentBytes))
	}
	return err
}
