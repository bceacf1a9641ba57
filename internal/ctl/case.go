package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/payload"
)

var caseCommand = group(help{
	use: "case", short: "Manage cases (investigations with the same cause)",
	long: `Manage cases: all open investigations with the same cause, handled as one.

Investigations belong to the same case if their newest failures have the same fingerprint:
the same step and the same error, except for parts that vary between tasks. These commands
change no task and no investigation.`,
	example: `  tasker-ctl case list
  tasker-ctl case show $CASE
  tasker-ctl case own $CASE --for 2h`,
},
	casesCommand("list", "case"),
	plain(endpoint.GetCase, help{use: "show CASE", short: "Show a case"}, (*program).printCase),
	plain(endpoint.WhyCase, help{
		use: "why CASE", short: "Explain how a case was grouped",
		long: `Explain how a case was grouped: what its investigations have in common, and which varying
parts of their messages are ignored. To group by such a part, split the case with
tasker-ctl case split.`,
	}, (*program).printCaseWhy),
	plain(endpoint.ChangesOfCase, help{
		use: "changes CASE", short: "Compare failures with successes and show impact",
		long: `Compare the failures of a case with successful runs of the same step: worker version, worker
name, template version and the context keys listed in triage.keys. Also show how many steps
are affected and the next deadline. A difference is evidence, not proof.`,
	}, (*program).printCaseChanges),
	caseReportCommand, (*program).newCaseOwnCommand, (*program).newCaseSnoozeCommand,
	(*program).newCaseFixedCommand, (*program).newCaseSplitCommand, (*program).newFingerprintCommand,
	caseChange(help{
		use: "release CASE", short: "Remove the owner of a case",
		example: `  tasker-ctl case release $CASE --notes "the day shift takes over"`,
	}, "Case released", func(u *apiv1.UpdateCase) { u.Owner = new("") }),
	caseChange(help{use: "wake CASE", short: "Unsnooze a case"}, "Case woken", func(u *apiv1.UpdateCase) { u.Wake = true }),
	caseChange(help{
		use: "note CASE", short: "Add a note to a case",
		example: `  tasker-ctl case note $CASE --notes "the provider confirmed an outage"`,
	}, "Case noted", func(*apiv1.UpdateCase) {}),
	plain(endpoint.MergeCase, help{
		use: "merge CASE", short: "Merge a case into another",
		example: `  tasker-ctl case merge $CASE --into $OTHER --reason "one outage, two messages"`,
	}, printCaseDone("Case merged"), func(_ *program, m *apiv1.MergeCase, _ arguments) error {
		_, err := parseID("--into", m.Into)
		return err
	}),
	plain(endpoint.UnmergeCase, help{
		use: "unmerge CASE", short: "Undo a merge",
		example: `  tasker-ctl case unmerge $CASE --reason "they are two after all"`,
	}, printCaseDone("Merge undone")),
)

func casesCommand(use, group string) maker {
	return plain(endpoint.ListCases, help{
		use: use, short: "List open cases, most costly first", limit: 100,
		example: strings.ReplaceAll(`  LIST
  LIST --unowned --namespace orders
  LIST --case-state resolved
  tasker-ctl dlq queue --case $(LIST --limit 1 -o json | jq -r '.cases[0].case_id')`, "LIST", "tasker-ctl "+group+" "+use),
	}, func(p *program, l apiv1.CaseList) {
		header := "case, open, state, where, error?, waiting, proving, failed again, owner, oldest"
		printList(p, l.Cases, "No cases.", header, func(c tasker.Case) []any {
			return []any{
				c.ID, c.Entries, c.State, formatCasePlace(c), orDash(formatCase(c)),
				c.Waiting, c.Proving, c.FailedAgain, orDash(c.Owner), c.Oldest,
			}
		})
		if len(l.Cases) > 0 {
			fmt.Fprintf(p.err, "Cases: %d, open investigations: %d, opened in the last 5 minutes: %d.\n",
				l.TotalCases, l.TotalEntries, l.TotalRecent)
		}
		if l.Unclassified > 0 {
			fmt.Fprintf(p.err, "%d more investigations will be grouped within seconds.\n", l.Unclassified)
		}
		if l.HasMore {
			p.hintMorePages(len(l.Cases))
		}
	})
}

func formatCasePlace(c tasker.Case) string {
	return formatPlace(c.Namespace, c.TaskName, c.StepName)
}

// formatPlace formats a template and, unless it is empty, a step.
func formatPlace(namespace, template, step string) string {
	place := namespace + "/" + template
	if step != "" {
		place += " > " + step
	}
	return place
}

func formatCase(c tasker.Case) string { return cmp.Or(c.ErrorPattern, c.Label) }

// formatShares formats the frequencies of values.
func formatShares(values []tasker.ValueCount) string {
	shares := make([]string, len(values))
	for i, v := range values {
		shares[i] = fmt.Sprintf("%s × %d", v.Value, v.Entries)
	}
	return strings.Join(shares, ", ")
}

func (p *program) printCase(d tasker.CaseDetail) {
	p.printCaseFacts(d.Case)
	for _, s := range d.Spread {
		p.printFields("", field{strings.ReplaceAll(s.Fact, "_", " "), formatShares(s.Values)})
	}
	p.printFields("", formatEnded(d.Ended)...)
	for _, e := range d.RelatedCases {
		text := fmt.Sprintf("%s/%s > %s: %d open, case %s", e.Namespace, e.TaskName, e.StepName, e.Entries, e.ID)
		p.printFields("", field{"The same error", text})
	}
	header := "failed, entry, task, worker, error?"
	printList(p, d.Samples, "No open investigation.", header, func(s tasker.CaseSample) []any {
		worker := strings.TrimSpace(s.WorkerName + " " + s.WorkerVersion)
		return []any{s.At, s.EntryUUID, s.TaskUUID, worker, orDash(s.ErrorMessage)}
	})
	printList(p, d.History, "No history.", "at, event, by, notes, detail?", func(h tasker.CaseChange) []any {
		return []any{h.At, h.Event, h.Actor, h.Notes, h.Metadata}
	})
}

func (p *program) printCaseFacts(c tasker.Case) {
	counts := fmt.Sprintf("%d: %d waiting, %d proving, %d failed again, %d recovered",
		c.Entries, c.Waiting, c.Proving, c.FailedAgain, c.Recovered)
	snooze := formatTime(c.SnoozedUntil)
	if c.SnoozeThreshold != nil {
		snooze += fmt.Sprintf(", or until more than %d are open", *c.SnoozeThreshold)
	}
	p.printFields("",
		field{"Case", c.ID}, field{"State", string(c.State) + " since " + formatTime(&c.StateSince)}, field{"Where", formatCasePlace(c)},
		field{"Cause", string(c.Severity) + ": " + c.Label}, field{"Error", orDash(c.ErrorPattern)}, field{"Error type", orDash(c.ErrorType)},
		field{"Open", counts}, field{"First seen", c.FirstSeen},
		field{"Owner", when(c.Owner != "", c.Owner+" until "+formatTime(c.OwnedUntil))},
		field{"Snoozed until", when(c.SnoozedUntil != nil, snooze)}, field{"Fixed in", c.FixedIn}, field{"Merged into", c.MergedInto},
	)
}

func (p *program) printCaseWhy(w tasker.CaseGrouping) {
	for _, part := range w.Parts {
		p.printFields("", field{part.Name, orDash(part.Value)})
	}
	p.printFields("", field{"Rules", orDash(w.Rules)}, field{"Messages compared", w.MessagesExamined})
	header := "ignored, different, most frequent?"
	printList(p, w.Masks, "The messages do not differ.", header, func(m tasker.CaseVariable) []any {
		return []any{m.Label, m.Different, formatShares(m.Values)}
	})
}

func (p *program) printCaseChanges(c tasker.CaseComparison) {
	success := "none in " + formatInt(c.TasksExamined) + " tasks"
	if s := c.LastSuccess; s != nil {
		worker := orDash(s.WorkerName) + " " + s.WorkerVersion
		success = strings.TrimSpace(fmt.Sprintf("%s by %s, template %s", formatTime(&s.At), worker, s.TaskVersion))
	}
	period := "before"
	if c.Since {
		period = "since"
	}
	p.printFields("",
		field{"First failure", c.FirstFailure}, field{"Last success", success},
		field{"Compared", fmt.Sprintf("%d failures with %d successes %s the first of them", c.Failures, c.Successes, period)},
		field{"Waiting tasks", c.Impact.Tasks}, field{"Dependent steps", c.Impact.Steps},
		field{"Next deadline", when(c.Impact.Deadline != nil, formatTime(c.Impact.Deadline)+" of task "+c.Impact.DueTask.String())},
	)
	for _, e := range c.CoincidentCases {
		p.printFields("", field{"Started together", fmt.Sprintf("case %s, %s/%s > %s", e.ID, e.Namespace, e.TaskName, e.StepName)})
	}
	header := "differs, value?, failures, successes, times as often"
	printList(p, c.Differences, "No differences.", header, func(d tasker.CaseDifference) []any {
		fact := d.Fact
		if !strings.HasPrefix(fact, "/") {
			fact = strings.ReplaceAll(fact, "_", " ")
		}
		failures, successes := fmt.Sprintf("%d/%d", d.Failures, c.Failures), fmt.Sprintf("%d/%d", d.Successes, c.Successes)
		return []any{fact, d.Value, failures, successes, strconv.FormatFloat(d.Lift, 'f', 1, 64)}
	})
}

// printCaseDone returns a function that prints a case after a change.
func printCaseDone(done string) func(*program, tasker.Case) {
	return func(p *program, c tasker.Case) {
		p.printDone("%s", done)
		p.printCaseFacts(c)
	}
}

// caseChange returns a command that changes a case. change sets what the command changes.
func caseChange(h help, done string, change func(*apiv1.UpdateCase)) maker {
	return func(p *program) *cobra.Command {
		var notes string
		c := plain(endpoint.UpdateCase, h, printCaseDone(done), func(_ *program, u *apiv1.UpdateCase, _ arguments) error {
			if notes != "" {
				u.Notes = &notes
			}
			change(u)
			return nil
		})(p)
		c.Flags().StringVarP(&notes, "notes", "n", "", "note, shown in the history of the case")
		return c
	}
}

func (p *program) newCaseOwnCommand() *cobra.Command {
	owner, owned := "", tasker.DefaultOwnership
	c := caseChange(help{
		use: "own CASE", short: "Assign a case to an owner",
		example: `  tasker-ctl case own $CASE --for 2h --notes "asking the payment provider"
  tasker-ctl case own $CASE --owner night-shift`,
	}, "Case owned", func(u *apiv1.UpdateCase) {
		u.Owner, u.OwnedForMinutes = new(cmp.Or(owner, u.Actor)), int(owned/time.Minute)
	})(p)
	c.Flags().StringVar(&owner, "owner", "", "owner of the case (default: the actor)")
	c.Flags().Var(cli.Minutes(&owned, time.Minute), "for", "duration in whole minutes, at most 7d")
	return c
}

func (p *program) newCaseSnoozeCommand() *cobra.Command {
	snooze, above := 4*time.Hour, int64(-1)
	c := caseChange(help{
		use: "snooze CASE", short: "Snooze a case",
		example: `  tasker-ctl case snooze $CASE --for 8h --above 500 --notes "known, repaired tomorrow"`,
	}, "Case snoozed", func(u *apiv1.UpdateCase) {
		if u.SnoozeUntil = new(time.Now().Add(snooze)); above >= 0 {
			u.SnoozeAbove = &above
		}
	})(p)
	c.Flags().Var(cli.Minutes(&snooze, time.Minute), "for", "duration in whole minutes, at most 7d")
	c.Flags().Var(cli.Number(&above, 0, 1<<31), "above", "end the snooze when more investigations than this are open")
	return c
}

func (p *program) newCaseFixedCommand() *cobra.Command {
	version := ""
	c := caseChange(help{
		use: "fixed CASE", short: "Record the worker version with the fix",
		example: `  tasker-ctl case fixed $CASE --in 1.6.0`,
	}, "Case updated", func(u *apiv1.UpdateCase) { u.FixedIn = &version })(p)
	c.Flags().StringVar(&version, "in", "", "worker version with the fix (required)")
	markRequired(c, "in", "it is the version with the fix")
	return c
}

func (p *program) newCaseSplitCommand() *cobra.Command {
	r := newRequest(endpoint.SplitCase)
	r.body.Field = caseFields[0]
	c := r.command(p, help{
		use: "split CASE", short: "Split a case by a field value",
		long: `Split a case: current and future failures with a text in a field get their own case within
seconds. To undo the split, merge that case into this one.`,
		example: `  tasker-ctl case split $CASE --literal "status 404" --reason "gone is not the outage"
  tasker-ctl case split $CASE --field worker_version --literal 1.5.0 --reason "the old release has another bug"`,
	}, func(s apiv1.CaseSplit) {
		p.printDone("Case split")
		p.printFields("  ", field{"Moved open investigations", s.Entries})
	})
	c.Flags().Var(cli.Choice(&r.body.Field, caseFields), "field", "field that contains the text: "+cli.Join(caseFields))
	return c
}

// caseFields lists the fields by which a case can be split.
var caseFields = []string{"error_message", "error_type", "worker_version", "task_version"}

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
	}, "No incidents.", "incident, state, severity, where, error?, cases, open, not owned, messages, began, ended", func(i tasker.Incident) []any {
		return []any{
			i.ID, i.State, i.Severity, formatPlace(i.Namespace, i.TaskName, i.StepName),
			orDash(cmp.Or(i.ErrorPattern, i.Label)), i.Cases, i.Entries, i.UnownedCases, i.Messages, i.BeganAt, i.EndedAt,
		}
	}),
	plain(endpoint.GetIncident, help{use: "show INCIDENT", short: "Show an incident"}, (*program).printIncident),
	incidentReportCommand,
)

func (p *program) printIncident(d tasker.IncidentDetail) {
	p.printFields("",
		field{"Incident", d.ID.String()}, field{"State", d.State}, field{"Severity", d.Severity},
		field{"Where", formatPlace(d.Namespace, d.TaskName, d.StepName)}, field{"Error", cmp.Or(d.ErrorPattern, d.Label)},
		field{"Open investigations", d.Entries}, field{"Owners", d.Owners}, field{"Began", d.BeganAt}, field{"Ended", d.EndedAt},
		field{"Not owned since", d.UnownedSince}, field{"Key of its messages", d.DedupKey})
	printList(p, d.Members, "No cases.", "case, open, state, step, error?, owner, joined", func(c tasker.IncidentCase) []any {
		place := c.TaskName + " > " + c.StepName
		return []any{c.ID, c.Entries, c.State, place, orDash(c.ErrorPattern), orDash(c.Owner), c.JoinedAt}
	})
	printList(p, d.Notifications, "No messages.", "told, message, topic, sinks?", func(m tasker.Notification) []any {
		return []any{m.At, m.UUID, m.Topic, orDash(formatSinks(m))}
	})
}

// formatSinks returns the delivery state of a notification at each sink.
func formatSinks(m tasker.Notification) string {
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

var (
	caseReportCommand = reportCommand(help{
		use: "report CASE", short: "Print the report of a case", long: "Print the report of a case.",
		example: `  tasker-ctl case report $CASE > report.md
  tasker-ctl case report $CASE --from 2026-01-31T00:00:00Z -o json | jq .phases`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Case = id })
	incidentReportCommand = reportCommand(help{
		use: "report INCIDENT", short: "Print the report of an incident",
		long:    "Print the report of an incident: the investigations of its cases that were open during it.",
		example: `  tasker-ctl incident report $INCIDENT > report.md`,
	}, func(q *tasker.IncidentReportQuery, id *tasker.ID) { q.Incident = id })
	timeReportCommand = reportCommand(help{
		use: "report", short: "Print the report of a time range",
		long: "Print the report of the investigations that were opened in a time range.",
		example: `  tasker-ctl report --namespace orders --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z
  tasker-ctl report --from 2026-01-31T00:00:00Z -o json | jq .stuck_task_minutes`,
	}, nil)
)

// reportCommand returns a command that prints an incident report. subject sets the case or incident in
// the query; if it is nil, a flag selects the namespace.
func reportCommand(h help, subject func(*tasker.IncidentReportQuery, *tasker.ID)) maker {
	h.long += `

The report shows how long tasks were stuck (undetected, unowned, in repair, verifying), who
acted, the operations and their waves, the outcomes, and a timeline. It is Markdown; -o json
prints the same data with a digest.`
	return func(p *program) *cobra.Command {
		var q tasker.IncidentReportQuery
		c := p.newCommand(h, func(ctx context.Context, a arguments) error {
			if subject != nil {
				subject(&q, &a.id[0])
			}
			return p.printReport(ctx, q)
		})
		if subject == nil {
			c.Flags().StringVarP(&q.Namespace, "namespace", "n", "", "filter by namespace")
		}
		c.Flags().Var(cli.Time(&q.From), "from", "start of the time range, such as 2026-01-31T02:10:00Z")
		c.Flags().Var(cli.Time(&q.To), "to", "end of the time range, exclusive")
		return c
	}
}

func (p *program) printReport(ctx context.Context, q tasker.IncidentReportQuery) error {
	if p.output == "json" {
		r, err := p.client.IncidentReport(ctx, q)
		if err != nil {
			return err
		}
		return p.printJSON(r)
	}
	text, err := p.client.IncidentReportMarkdown(ctx, q)
	if err == nil {
		_, err = fmt.Fprint(p.out, payload.CleanText(text, maxDocumentBytes))
	}
	return err
}
