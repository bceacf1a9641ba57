package ctl

import (
	"cmp"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

var incidentCommand = group(help{
	use: "incident", short: "View incidents (cases notified together)",
	long: `View incidents: cases of one namespace whose first notifications were sent within ten minutes
of each other. Notifications are sent per incident; work is done on its cases.`,
	example: `  tasker-ctl incident list --state open
  tasker-ctl incident show $INCIDENT`,
},
	list(endpoint.ListIncidents, help{
		use: "list", short: "List incidents, newest first", limit: 50, quiet: true,
		example: `  tasker-ctl incident list --state open
  tasker-ctl incident list --namespace orders --quiet`,
	}, "No incidents.", "incident, state, severity, where, error?, cases, open, not owned, messages, began, ended", func(i apiv1.Incident) []any {
		return []any{
			i.IncidentID, i.State, i.Severity, formatPlace(i.NamespaceName, i.TaskName, i.StepName),
			orDash(cmp.Or(i.ErrorPattern, i.Label)), i.Cases, i.Entries, i.CasesNotOwned, i.Messages, i.BeganAt, i.EndedAt,
		}
	}),
	plain(endpoint.GetIncident, help{use: "show INCIDENT", short: "Show an incident"}, (*program).printIncident),
	(*program).newIncidentReportCommand,
)

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

var messageCommand = group(help{
	use: "message", short: "Test notifications",
	example: "  tasker-ctl message test --namespace orders --severity high",
},
	plain(endpoint.TryMessage, help{
		use: "test", short: "Send a test notification",
		long: `Send a test notification by the first route that matches the flags, and print its sinks. The
receivers are really notified.`,
		example: `  tasker-ctl message test --namespace orders --severity critical
  tasker-ctl dlq sinks`,
	}, func(p *program, t apiv1.TriedMessage) {
		routes := make([]string, len(t.Routes))
		for i, n := range t.Routes {
			routes[i] = formatInt(n)
		}
		p.printFields("", field{"Sinks", orDash(t.Sinks)}, field{"Matching routes", orDash(routes)})
	}),
)
