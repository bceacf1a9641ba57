package ctl

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newIncidentCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "incident",
		Short: "View incidents (cases notified together)",
		Long: `View incidents: cases of one namespace whose first notifications were sent within ten minutes
of each other. Notifications are sent per incident; work is done on its cases.`,
		Example: `  tasker-ctl incident list --state open
  tasker-ctl incident show $INCIDENT`,
	}, p.newIncidentListCommand(), p.newIncidentShowCommand(), p.newIncidentReportCommand())
}

func (p *program) newIncidentListCommand() *cobra.Command {
	var q tasker.IncidentFilter

	c := newRequestCommand(p, help{
		use:   "list",
		short: "List incidents, newest first",
		example: `  tasker-ctl incident list --state open
  tasker-ctl incident list --namespace orders --quiet`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.IncidentList, error) {
		return api.Incidents(ctx, q)
	}, func(l apiv1.IncidentList) {

		printList(p, l.Incidents, "No incidents.", "incident, state, severity, where, error?, cases, open, not owned, messages, began, ended",
			func(i apiv1.Incident) []any {
				return []any{
					i.IncidentID, i.State, i.Severity, formatPlace(i.NamespaceName, i.TaskName, i.StepName), orDash(cmp.Or(i.ErrorPattern, i.Label)), i.Cases, i.Entries,
					i.CasesNotOwned, i.Messages, i.BeganAt, i.EndedAt,
				}
			})
		if !p.quiet {
			p.printNextPage(l.Pagination)
		}
	})
	p.addQueryFlags(c, &q, 50)
	p.addQuietFlag(c)
	return c
}

func (p *program) newIncidentShowCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "show INCIDENT",
		short:   "Show an incident",
		example: `  tasker-ctl incident show $INCIDENT`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.IncidentDetail, error) {
		return api.Incident(ctx, a.id[0])
	}, p.printIncident)
}

func (p *program) printIncident(d apiv1.IncidentDetail) {
	p.printFields("", field{"Incident", d.IncidentID}, field{"State", d.State}, field{"Severity", d.Severity}, field{"Where", formatPlace(d.NamespaceName, d.TaskName, d.StepName)},
		field{"Error", cmp.Or(d.ErrorPattern, d.Label)}, field{"Open investigations", d.Entries}, field{"Owners", d.OwnedBy},
		field{"Began", d.BeganAt}, field{"Ended", d.EndedAt}, field{"Not owned since", d.UnownedSince}, field{"Key of its messages", d.DedupKey})
	printList(p, d.Members, "No cases.", "case, open, state, step, error?, owner, joined", func(c tasker.IncidentCase) []any {
		return []any{c.ID, c.Entries, c.State, orDash(c.TaskName + " > " + c.StepName), orDash(c.ErrorPattern), orDash(c.Owner), c.JoinedAt}
	})
	printList(p, d.Told, "No messages.", "told, message, topic, sinks?", func(m apiv1.Message) []any {
		return []any{m.CreatedAt, m.MessageUUID, m.Topic, orDash(formatSinks(m))}
	})
}

// formatSinks returns the delivery state of a notification at each sink.
func formatSinks(m apiv1.Message) string {
	var list []string
	for _, e := range m.Emissions {
		list = append(list, e.Sink+" "+string(e.State))
	}
	return strings.Join(list, ", ")
}

func (p *program) newMessageCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use: "message", Short: "Test notifications",
		Example: "  tasker-ctl message test --namespace orders --severity high",
	}, p.newMessageTestCommand())
}

func (p *program) newMessageTestCommand() *cobra.Command {
	var m apiv1.TryMessage
	c := newRequestCommand(p, help{
		use:   "test",
		short: "Send a test notification",
		long: `Send a test notification by the first route that matches the flags, and print its sinks. The
receivers are really notified.`,
		example: `  tasker-ctl message test --namespace orders --severity critical
  tasker-ctl dlq sinks`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.TriedMessage, error) {
		return api.TryMessage(ctx, m)
	}, func(t apiv1.TriedMessage) {
		routes := make([]string, len(t.Routes))
		for i, n := range t.Routes {
			routes[i] = formatInt(n)
		}
		p.printFields("", field{"Sinks", orDash(strings.Join(t.Sinks, ", "))}, field{"Matching routes", orDash(strings.Join(routes, ", "))})
	})
	c.Flags().StringVarP(&m.Namespace, "namespace", "n", "", "namespace of the notification (required)")
	markRequired(c, "namespace", "it selects the routes")
	c.Flags().StringVar(&m.Template, "template", "", "template")
	c.Flags().StringVar(&m.Severity, "severity", "", "severity: critical, high, medium or low")
	c.Flags().StringVar(&m.Reason, "reason", "", "investigation reason, such as max_retries_exceeded")
	c.Flags().StringVar(&m.Cause, "cause", "", "error text")
	p.addActorFlag(c, &m.By, "by")
	return c
}
