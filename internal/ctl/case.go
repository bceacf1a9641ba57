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

func (p *program) caseCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
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
		p.casesCommand("list", "case"), p.caseShowCommand(), p.caseReportCommand(), p.caseWhyCommand(), p.caseChangesCommand(), p.caseOwnCommand(), p.caseReleaseCommand(), p.caseSnoozeCommand(),
		p.caseWakeCommand(), p.caseNoteCommand(), p.caseFixedCommand(), p.caseMergeCommand(), p.caseUnmergeCommand(), p.caseSplitCommand(), p.fingerprintCommand(),
	)
}

func (p *program) casesCommand(use, group string) *cobra.Command {
	var q client.CaseQuery
	c := answer(p, help{
		use:   use,
		short: "List open cases, most costly first",
		example: strings.ReplaceAll(`  LIST
  LIST --unowned --namespace orders
  LIST --case-state resolved
  tasker-ctl dlq queue --case $(LIST --limit 1 -o json | jq -r '.cases[0].case_id')`, "LIST", "tasker-ctl "+group+" "+use),
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.CaseList, error) {
		return api.Cases(ctx, q)
	}, func(l apiv1.CaseList) {
		header := []string{"case", "open", "state", "where", "error", "waiting", "proving", "failed again", "owner", "oldest"}
		list(p, l.Cases, columns{none: "No cases.", names: header, spare: "error"}, func(c apiv1.Case) []string {
			return []string{
				c.CaseID, num(c.Entries), c.State, where(c), orDash(caseText(c)),
				num(c.Waiting), num(c.Proving), num(c.FailedAgain), orDash(c.Owner), at(c.Oldest),
			}
		})
		if len(l.Cases) > 0 {
			fmt.Fprintf(p.err, "Cases: %d, open investigations: %d, opened in the last 5 minutes: %d.\n", l.TotalCases, l.TotalEntries, l.TotalRecent)
		}
		if l.Unclassified > 0 {
			fmt.Fprintf(p.err, "%d more investigations will be grouped within seconds.\n", l.Unclassified)
		}
		if l.HasMore {
			p.mayGoOn(len(l.Cases), q.Page)
		}
	})
	investigationFlags(c, &q.InvestigationQuery)
	filterFlag(c, &q.CaseState, "case-state", "", tasker.CaseStates())
	c.Flags().StringVar(&q.Owner, "owner", "", "filter by owner")
	c.Flags().BoolVar(&q.Unowned, "unowned", false, "only cases without an owner")
	c.Flags().BoolVar(&q.FailedAgain, "failed-again", false, "only cases with a step that failed again after a repair")
	return c
}

func where(c apiv1.Case) string { return placeOf(c.NamespaceName, c.TaskName, c.StepName) }

// placeOf formats a template and, unless it is empty, a step.
func placeOf(namespace, template, step string) string {
	place := namespace + "/" + template
	if step != "" {
		place += " > " + step
	}
	return place
}

func caseText(c apiv1.Case) string { return cmp.Or(c.ErrorPattern, c.Label) }

func (p *program) caseShowCommand() *cobra.Command {
	return answer(p, help{
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
		p.fields("", field{strings.ReplaceAll(s.Fact, "_", " "), strings.Join(shares, ", ")})
	}
	p.fields("", endedFields(d.Ended)...)
	for _, e := range d.Elsewhere {
		p.fields("", field{"The same error", fmt.Sprintf("%s/%s > %s: %d open, case %s", e.Namespace, e.TaskName, e.StepName, e.Entries, e.ID)})
	}
	list(p, d.Samples, columns{none: "No open investigation.", names: []string{"failed", "entry", "task", "worker", "error"}, spare: "error"}, func(s tasker.CaseSample) []string {
		return []string{at(&s.At), s.EntryUUID.String(), s.TaskUUID.String(), strings.TrimSpace(s.WorkerName + " " + s.WorkerVersion), orDash(s.ErrorMessage)}
	})
	list(p, d.History, columns{none: "No history.", names: []string{"at", "event", "by", "notes", "detail"}, spare: "detail"}, func(h apiv1.CaseChange) []string {
		return []string{at(&h.ChangedAt), h.Event, h.Actor, h.Notes, string(h.Metadata)}
	})
}

func (p *program) printCaseFacts(c apiv1.Case) {
	state := c.State + " since " + at(&c.StateSince)
	fields := []field{
		{"Case", c.CaseID}, {"State", state}, {"Where", where(c)}, {"Cause", c.Severity + ": " + c.Label}, {"Error", orDash(c.ErrorPattern)}, {"Error type", orDash(c.ErrorType)},
		{"Open", fmt.Sprintf("%d: %d waiting, %d proving, %d failed again, %d recovered", c.Entries, c.Waiting, c.Proving, c.FailedAgain, c.Recovered)},
		{"First seen", at(&c.FirstSeenAt)},
	}
	if c.Owner != "" {
		fields = append(fields, field{"Owner", c.Owner + " until " + at(c.OwnedUntil)})
	}
	if c.SnoozedUntil != nil {
		snooze := at(c.SnoozedUntil)
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
	p.fields("", fields...)
}

func (p *program) caseWhyCommand() *cobra.Command {
	return answer(p, help{
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
		p.fields("", append(fields, field{"Rules", orDash(strings.Join(w.Rules, ", "))}, field{"Messages compared", num(w.Looked)})...)
		list(p, w.Masks, columns{none: "The messages do not differ.", names: []string{"ignored", "different", "most frequent"}, spare: "most frequent"}, func(m tasker.CaseVariable) []string {
			var values []string
			for _, v := range m.Values {
				values = append(values, fmt.Sprintf("%s × %d", v.Value, v.Entries))
			}
			return []string{m.Label, num(m.Different), strings.Join(values, ", ")}
		})
	})
}

func (p *program) caseChangesCommand() *cobra.Command {
	return answer(p, help{
		use:   "changes CASE",
		short: "Compare failures with successes and show impact",
		long: `Compare the failures of a case with successful runs of the same step: worker version, worker
name, template version and the context keys listed in triage.keys. Also show how many steps
are affected and the next deadline. A difference is evidence, not proof.`,
		example: `  tasker-ctl case changes $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseChanges, error) {
		return api.CaseChanges(ctx, a.id[0])
	}, func(c apiv1.CaseChanges) {
		success := "none in " + num(c.LookedAt) + " tasks"
		if s := c.LastSuccess; s != nil {
			success = strings.TrimSpace(fmt.Sprintf("%s by %s %s, template %s", at(&s.At), orDash(s.WorkerName), s.WorkerVersion, s.TaskVersion))
		}
		when := "before"
		if c.Since {
			when = "since"
		}
		fields := []field{
			{"First failure", at(c.FirstFailure)}, {"Last success", success}, {"Compared", fmt.Sprintf("%d failures with %d successes %s the first of them", c.Failures, c.Successes, when)},
			{"Waiting tasks", num(c.Impact.Tasks)}, {"Dependent steps", num(c.Impact.Steps)},
		}
		if c.Impact.Deadline != nil {
			fields = append(fields, field{"Next deadline", at(c.Impact.Deadline) + " of task " + c.Impact.DueTask})
		}
		for _, e := range c.Began {
			fields = append(fields, field{"Started together", fmt.Sprintf("case %s, %s/%s > %s", e.ID, e.Namespace, e.TaskName, e.StepName)})
		}
		p.fields("", fields...)
		list(p, c.Differences, columns{none: "No differences.", names: []string{"differs", "value", "failures", "successes", "times as often"}, spare: "value"}, func(d tasker.CaseDifference) []string {
			fact := d.Fact
			if !strings.HasPrefix(fact, "/") {
				fact = strings.ReplaceAll(fact, "_", " ")
			}
			return []string{
				fact, d.Value, fmt.Sprintf("%d/%d", d.Failures, c.Failures), fmt.Sprintf("%d/%d", d.Successes, c.Successes),
				strconv.FormatFloat(d.Lift, 'f', 1, 64),
			}
		})
	})
}

// change returns a command that changes a case. read returns the change that the flags describe.
func (p *program) change(h help, done string, read func(actor string) (apiv1.UpdateCase, error)) *cobra.Command {
	var notes string
	var unchanged *time.Time
	c := answer(p, h, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		actor, err := p.actor("")
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
		p.done("%s", done)
		p.printCaseFacts(c)
	})
	c.Flags().StringVarP(&notes, "notes", "n", "", "note, shown in the history of the case")
	c.Flags().Var(cli.Time(&unchanged), "if-unchanged-since", "fail if the case changed since this updated_at")
	return c
}

func (p *program) caseOwnCommand() *cobra.Command {
	owner, owned := "", tasker.DefaultOwnership
	c := p.change(help{
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

func (p *program) caseReleaseCommand() *cobra.Command {
	return p.change(help{
		use: "release CASE", short: "Remove the owner of a case", example: `  tasker-ctl case release $CASE --notes "the day shift takes over"`,
	}, "Case released", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Owner: new("")}, nil })
}

func (p *program) caseSnoozeCommand() *cobra.Command {
	snooze, above := 4*time.Hour, int64(-1)
	c := p.change(help{
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

func (p *program) caseWakeCommand() *cobra.Command {
	return p.change(help{use: "wake CASE", short: "Unsnooze a case", example: `  tasker-ctl case wake $CASE`},
		"Case woken", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Wake: true}, nil })
}

func (p *program) caseNoteCommand() *cobra.Command {
	return p.change(help{use: "note CASE", short: "Add a note to a case", example: `  tasker-ctl case note $CASE --notes "the provider confirmed an outage"`},
		"Case noted", func(string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{}, nil })
}

func (p *program) caseFixedCommand() *cobra.Command {
	version := ""
	c := p.change(help{
		use:     "fixed CASE",
		short:   "Record the worker version with the fix",
		example: `  tasker-ctl case fixed $CASE --in 1.6.0`,
	}, "Case updated", func(string) (apiv1.UpdateCase, error) {
		return apiv1.UpdateCase{FixedIn: &version}, need("in", version, "it is the version with the fix")
	})
	c.Flags().StringVar(&version, "in", "", "worker version with the fix (required)")
	return c
}

func (p *program) caseMergeCommand() *cobra.Command {
	var m apiv1.MergeCase
	c := answer(p, help{
		use:     "merge CASE",
		short:   "Merge a case into another",
		example: `  tasker-ctl case merge $CASE --into $OTHER --reason "one outage, two messages"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		if _, err := readID("--into", m.Into); err != nil {
			return apiv1.Case{}, err
		}
		return api.MergeCase(ctx, a.id[0], m)
	}, func(c apiv1.Case) {
		p.done("Case merged")
		p.printCaseFacts(c)
	})
	c.Flags().StringVar(&m.Into, "into", "", "target case (required)")
	p.caseReasonFlag(c, &m.Reason, &m.Actor)
	return c
}

// caseReasonFlag adds the required flag -r, --reason and sets the actor.
func (p *program) caseReasonFlag(c *cobra.Command, reason, actor *string) {
	c.Flags().StringVarP(reason, "reason", "r", "", "reason, shown in the history (required)")
	requireFlag(c, "reason", reasonUse)
	before(c, func() (err error) {
		*actor, err = p.actor("")
		return err
	})
}

func (p *program) caseUnmergeCommand() *cobra.Command {
	var u apiv1.UnmergeCase
	c := answer(p, help{
		use:     "unmerge CASE",
		short:   "Undo a merge",
		example: `  tasker-ctl case unmerge $CASE --reason "they are two after all"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		return api.UnmergeCase(ctx, a.id[0], u)
	}, func(c apiv1.Case) {
		p.done("Merge undone")
		p.printCaseFacts(c)
	})
	p.caseReasonFlag(c, &u.Reason, &u.Actor)
	return c
}

func (p *program) caseSplitCommand() *cobra.Command {
	var s apiv1.SplitCase
	in := caseFields[0]
	c := answer(p, help{
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
		p.done("Case split")
		p.fields("  ", field{"Moved open investigations", num(s.Entries)})
	})
	c.Flags().Var(cli.Choice(&in, caseFields), "field", "field that contains the text: "+cli.Join(caseFields))
	c.Flags().StringVar(&s.Literal, "literal", "", "exact text (required)")
	requireFlag(c, "literal", "it is the text that distinguishes the failures")
	p.caseReasonFlag(c, &s.Reason, &s.Actor)
	return c
}

// caseField is a field by which a case can be split.
type caseField string

var caseFields = []caseField{"error_message", "error_type", "worker_version", "task_version"}
