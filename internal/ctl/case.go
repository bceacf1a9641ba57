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
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newCaseCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "case",
		Short: "Manage cases (investigations with the same cause)",
		Long: `Manage cases: all open investigations with the same cause, handled as one.

Investigations belong to the same case if their newest failures have the same fingerprint:
the same step and the same error, except for parts that vary between tasks. These commands
change no task and no investigation.`,
		Example: `  tasker-ctl case list
  tasker-ctl case show $CASE
  tasker-ctl case own $CASE --for 2h`,
	},
		p.newCasesCommand("list", "case"), p.newCaseShowCommand(), p.newCaseReportCommand(), p.newCaseWhyCommand(), p.newCaseChangesCommand(), p.newCaseOwnCommand(), p.newCaseReleaseCommand(), p.newCaseSnoozeCommand(),
		p.newCaseWakeCommand(), p.newCaseNoteCommand(), p.newCaseFixedCommand(), p.newCaseMergeCommand(), p.newCaseUnmergeCommand(), p.newCaseSplitCommand(), p.newFingerprintCommand(),
	)
}

func (p *program) newCasesCommand(use, group string) *cobra.Command {
	var q tasker.CaseFilter
	c := newRequestCommand(p, help{
		use:   use,
		short: "List open cases, most costly first",
		example: strings.ReplaceAll(`  LIST
  LIST --unowned --namespace orders
  LIST --case-state resolved
  tasker-ctl dlq queue --case $(LIST --limit 1 -o json | jq -r '.cases[0].case_id')`, "LIST", "tasker-ctl "+group+" "+use),
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.CaseList, error) {
		return api.Cases(ctx, q)
	}, func(l apiv1.CaseList) {
		printList(p, l.Cases, "No cases.", "case, open, state, where, error?, waiting, proving, failed again, owner, oldest", func(c apiv1.Case) []any {
			return []any{
				c.CaseID, c.Entries, c.State, formatCasePlace(c), orDash(formatCase(c)),
				c.Waiting, c.Proving, c.FailedAgain, orDash(c.Owner), c.Oldest,
			}
		})
		if len(l.Cases) > 0 {
			fmt.Fprintf(p.err, "Cases: %d, open investigations: %d, opened in the last 5 minutes: %d.\n", l.TotalCases, l.TotalEntries, l.TotalRecent)
		}
		if l.Unclassified > 0 {
			fmt.Fprintf(p.err, "%d more investigations will be grouped within seconds.\n", l.Unclassified)
		}
		if l.HasMore {
			p.hintMorePages(len(l.Cases))
		}
	})
	p.addQueryFlags(c, &q, 100)
	return c
}

func formatCasePlace(c apiv1.Case) string {
	return formatPlace(c.NamespaceName, c.TaskName, c.StepName)
}

// formatPlace formats a template and, unless it is empty, a step.
func formatPlace(namespace, template, step string) string {
	place := namespace + "/" + template
	if step != "" {
		place += " > " + step
	}
	return place
}

func formatCase(c apiv1.Case) string { return cmp.Or(c.ErrorPattern, c.Label) }

func (p *program) newCaseShowCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "show CASE",
		short:   "Show a case",
		example: `  tasker-ctl case show $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseDetail, error) {
		return api.Case(ctx, a.id[0])
	}, p.printCase)
}

func (p *program) printCase(d apiv1.CaseDetail) {
	p.printCaseFacts(d.Case)
	for _, s := range d.Spread {
		var shares []string
		for _, v := range s.Values {
			shares = append(shares, fmt.Sprintf("%s × %d", v.Value, v.Entries))
		}
		p.printFields("", field{strings.ReplaceAll(s.Fact, "_", " "), strings.Join(shares, ", ")})
	}
	p.printFields("", formatEnded(d.Ended)...)
	for _, e := range d.Elsewhere {
		p.printFields("", field{"The same error", fmt.Sprintf("%s/%s > %s: %d open, case %s", e.Namespace, e.TaskName, e.StepName, e.Entries, e.ID)})
	}
	printList(p, d.Samples, "No open investigation.", "failed, entry, task, worker, error?", func(s tasker.CaseSample) []any {
		return []any{s.At, s.EntryUUID, s.TaskUUID, strings.TrimSpace(s.WorkerName + " " + s.WorkerVersion), orDash(s.ErrorMessage)}
	})
	printList(p, d.History, "No history.", "at, event, by, notes, detail?", func(h apiv1.CaseChange) []any {
		return []any{h.ChangedAt, h.Event, h.Actor, h.Notes, h.Metadata}
	})
}

func (p *program) printCaseFacts(c apiv1.Case) {
	state := c.State + " since " + formatTime(&c.StateSince)
	fields := []field{
		{"Case", c.CaseID}, {"State", state}, {"Where", formatCasePlace(c)}, {"Cause", c.Severity + ": " + c.Label}, {"Error", orDash(c.ErrorPattern)}, {"Error type", orDash(c.ErrorType)},
		{"Open", fmt.Sprintf("%d: %d waiting, %d proving, %d failed again, %d recovered", c.Entries, c.Waiting, c.Proving, c.FailedAgain, c.Recovered)},
		{"First seen", c.FirstSeenAt},
	}
	if c.Owner != "" {
		fields = append(fields, field{"Owner", c.Owner + " until " + formatTime(c.OwnedUntil)})
	}
	if c.SnoozedUntil != nil {
		snooze := formatTime(c.SnoozedUntil)
		if c.SnoozeAbove != nil {
			snooze += fmt.Sprintf(", or until more than %d are open", *c.SnoozeAbove)
		}
		fields = append(fields, field{"Snoozed until", snooze})
	}
	if c.FixedIn != "" {
		fields = append(fields, field{"Fixed in", c.FixedIn})
	}
	if c.MergedInto != "" {
		fields = append(fields, field{"Merged into", c.MergedInto})
	}
	p.printFields("", fields...)
}

func (p *program) newCaseWhyCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "why CASE",
		short: "Explain how a case was grouped",
		long: `Explain how a case was grouped: what its investigations have in common, and which varying
parts of their messages are ignored. To group by such a part, split the case with
tasker-ctl case split.`,
		example: `  tasker-ctl case why $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseWhy, error) {
		return api.WhyCase(ctx, a.id[0])
	}, func(w apiv1.CaseWhy) {
		var fields []field
		for _, part := range w.Parts {
			fields = append(fields, field{part.Name, orDash(part.Value)})
		}
		p.printFields("", append(fields, field{"Rules", orDash(strings.Join(w.Rules, ", "))}, field{"Messages compared", w.Looked})...)
		printList(p, w.Masks, "The messages do not differ.", "ignored, different, most frequent?", func(m tasker.CaseVariable) []any {
			var values []string
			for _, v := range m.Values {
				values = append(values, fmt.Sprintf("%s × %d", v.Value, v.Entries))
			}
			return []any{m.Label, m.Different, strings.Join(values, ", ")}
		})
	})
}

func (p *program) newCaseChangesCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "changes CASE",
		short: "Compare failures with successes and show impact",
		long: `Compare the failures of a case with successful runs of the same step: worker version, worker
name, template version and the context keys listed in triage.keys. Also show how many steps
are affected and the next deadline. A difference is evidence, not proof.`,
		example: `  tasker-ctl case changes $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseChanges, error) {
		return api.CaseChanges(ctx, a.id[0])
	}, func(c apiv1.CaseChanges) {
		success := "none in " + formatInt(c.LookedAt) + " tasks"
		if s := c.LastSuccess; s != nil {
			success = strings.TrimSpace(fmt.Sprintf("%s by %s %s, template %s", formatTime(&s.At), orDash(s.WorkerName), s.WorkerVersion, s.TaskVersion))
		}
		when := "before"
		if c.Since {
			when = "since"
		}
		fields := []field{
			{"First failure", c.FirstFailure}, {"Last success", success}, {"Compared", fmt.Sprintf("%d failures with %d successes %s the first of them", c.Failures, c.Successes, when)},
			{"Waiting tasks", c.Impact.Tasks}, {"Dependent steps", c.Impact.Steps},
		}
		if c.Impact.Deadline != nil {
			fields = append(fields, field{"Next deadline", formatTime(c.Impact.Deadline) + " of task " + c.Impact.DueTask})
		}
		for _, e := range c.Began {
			fields = append(fields, field{"Started together", fmt.Sprintf("case %s, %s/%s > %s", e.ID, e.Namespace, e.TaskName, e.StepName)})
		}
		p.printFields("", fields...)
		printList(p, c.Differences, "No differences.", "differs, value?, failures, successes, times as often", func(d tasker.CaseDifference) []any {
			fact := d.Fact
			if !strings.HasPrefix(fact, "/") {
				fact = strings.ReplaceAll(fact, "_", " ")
			}
			return []any{
				fact, d.Value, fmt.Sprintf("%d/%d", d.Failures, c.Failures), fmt.Sprintf("%d/%d", d.Successes, c.Successes),
				strconv.FormatFloat(d.Lift, 'f', 1, 64),
			}
		})
	})
}

// newCaseChangeCommand returns a command that changes a case. read returns the change that the flags describe.
func (p *program) newCaseChangeCommand(h help, done string,
	read func(actor string) (apiv1.UpdateCase, error)) *cobra.Command {
	var notes string
	var unchanged *time.Time
	c := newRequestCommand(p, h, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		actor, err := p.resolveActor("")
		if err != nil {
			return apiv1.Case{}, err
		}
		u, err := read(actor)
		if err != nil {
			return apiv1.Case{}, err
		}
		if u.Actor = actor; notes != "" {
			u.Notes = &notes
		}
		u.ExpectedUpdatedAt = unchanged
		return api.UpdateCase(ctx, a.id[0], u)
	}, func(c apiv1.Case) {
		p.printDone("%s", done)
		p.printCaseFacts(c)
	})
	c.Flags().StringVarP(&notes, "notes", "n", "", "note, shown in the history of the case")
	c.Flags().Var(cli.Time(&unchanged), "if-unchanged-since", "fail if the case changed since this updated_at")
	return c
}

func (p *program) newCaseOwnCommand() *cobra.Command {
	owner, owned := "", tasker.DefaultOwnership
	c := p.newCaseChangeCommand(help{
		use:   "own CASE",
		short: "Assign a case to an owner",
		example: `  tasker-ctl case own $CASE --for 2h --notes "asking the payment provider"
  tasker-ctl case own $CASE --owner night-shift`,
	}, "Case owned", func(actor string) (apiv1.UpdateCase, error) {
		owner = cmp.Or(owner, actor)
		return apiv1.UpdateCase{Owner: &owner, OwnedForMinutes: int(owned / time.Minute)}, nil
	})
	c.Flags().StringVar(&owner, "owner", "", "owner of the case (default: the actor)")
	c.Flags().Var(cli.Minutes(&owned, time.Minute), "for", "duration in whole minutes, at most 7d")
	return c
}

func (p *program) newCaseReleaseCommand() *cobra.Command {
	return p.newCaseChangeCommand(help{
		use: "release CASE", short: "Remove the owner of a case", example: `  tasker-ctl case release $CASE --notes "the day shift takes over"`,
	}, "Case released", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Owner: new("")}, nil })
}

func (p *program) newCaseSnoozeCommand() *cobra.Command {
	snooze, above := 4*time.Hour, int64(-1)
	c := p.newCaseChangeCommand(help{
		use:     "snooze CASE",
		short:   "Snooze a case",
		example: `  tasker-ctl case snooze $CASE --for 8h --above 500 --notes "known, repaired tomorrow"`,
	}, "Case snoozed", func(string) (apiv1.UpdateCase, error) {
		u := apiv1.UpdateCase{SnoozeUntil: new(time.Now().Add(snooze))}
		if above >= 0 {
			u.SnoozeAbove = &above
		}
		return u, nil
	})
	c.Flags().Var(cli.Minutes(&snooze, time.Minute), "for", "duration in whole minutes, at most 7d")
	c.Flags().Var(cli.Number(&above, 0, 1<<31), "above", "end the snooze when more investigations than this are open")
	return c
}

func (p *program) newCaseWakeCommand() *cobra.Command {
	return p.newCaseChangeCommand(help{use: "wake CASE", short: "Unsnooze a case",
		example: `  tasker-ctl case wake $CASE`},
		"Case woken", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Wake: true}, nil })
}

func (p *program) newCaseNoteCommand() *cobra.Command {
	return p.newCaseChangeCommand(help{use: "note CASE", short: "Add a note to a case", example: `  tasker-ctl case note $CASE --notes "the provider confirmed an outage"`},
		"Case noted", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{}, nil })
}

func (p *program) newCaseFixedCommand() *cobra.Command {
	version := ""
	c := p.newCaseChangeCommand(help{
		use:     "fixed CASE",
		short:   "Record the worker version with the fix",
		example: `  tasker-ctl case fixed $CASE --in 1.6.0`,
	}, "Case updated", func(string) (apiv1.UpdateCase, error) {
		return apiv1.UpdateCase{FixedIn: &version}, requireValue("in", version, "it is the version with the fix")
	})
	c.Flags().StringVar(&version, "in", "", "worker version with the fix (required)")
	return c
}

func (p *program) newCaseMergeCommand() *cobra.Command {
	var m apiv1.MergeCase
	c := newRequestCommand(p, help{
		use:     "merge CASE",
		short:   "Merge a case into another",
		example: `  tasker-ctl case merge $CASE --into $OTHER --reason "one outage, two messages"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		if _, err := parseID("--into", m.Into); err != nil {
			return apiv1.Case{}, err
		}
		return api.MergeCase(ctx, a.id[0], m)
	}, func(c apiv1.Case) {
		p.printDone("Case merged")
		p.printCaseFacts(c)
	})
	c.Flags().StringVar(&m.Into, "into", "", "target case (required)")
	p.addCaseReasonFlag(c, &m.Reason, &m.Actor)
	return c
}

// addCaseReasonFlag adds the required flag -r, --reason and sets the actor.
func (p *program) addCaseReasonFlag(c *cobra.Command, reason, actor *string) {
	c.Flags().StringVarP(reason, "reason", "r", "", "reason, shown in the history (required)")
	markRequired(c, "reason", reasonUse)
	addCheck(c, func() (err error) {
		*actor, err = p.resolveActor("")
		return err
	})
}

func (p *program) newCaseUnmergeCommand() *cobra.Command {
	var u apiv1.UnmergeCase
	c := newRequestCommand(p, help{
		use:     "unmerge CASE",
		short:   "Undo a merge",
		example: `  tasker-ctl case unmerge $CASE --reason "they are two after all"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		return api.UnmergeCase(ctx, a.id[0], u)
	}, func(c apiv1.Case) {
		p.printDone("Merge undone")
		p.printCaseFacts(c)
	})
	p.addCaseReasonFlag(c, &u.Reason, &u.Actor)
	return c
}

func (p *program) newCaseSplitCommand() *cobra.Command {
	var s apiv1.SplitCase
	in := caseFields[0]
	c := newRequestCommand(p, help{
		use:   "split CASE",
		short: "Split a case by a field value",
		long: `Split a case: current and future failures with a text in a field get their own case within
seconds. To undo the split, merge that case into this one.`,
		example: `  tasker-ctl case split $CASE --literal "status 404" --reason "gone is not the outage"
  tasker-ctl case split $CASE --field worker_version --literal 1.5.0 --reason "the old release has another bug"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseSplit, error) {
		s.Field = string(in)
		return api.SplitCase(ctx, a.id[0], s)
	}, func(s apiv1.CaseSplit) {
		p.printDone("Case split")
		p.printFields("  ", field{"Moved open investigations", s.Entries})
	})
	c.Flags().Var(cli.Choice(&in, caseFields), "field", "field that contains the text: "+cli.Join(caseFields))
	c.Flags().StringVar(&s.Literal, "literal", "", "exact text (required)")
	markRequired(c, "literal", "it is the text that distinguishes the failures")
	p.addCaseReasonFlag(c, &s.Reason, &s.Actor)
	return c
}

// caseField is a field by which a case can be split.
type caseField string

var caseFields = []caseField{"error_message", "error_type", "worker_version", "task_version"}
