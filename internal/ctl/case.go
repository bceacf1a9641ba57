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
		Long: `Work on cases: open investigations of one cause.

A case gathers the investigations whose newest failure has the same fingerprint: the same
place, and the same error but for what differs from task to task. Nothing here changes a
task or an investigation.`,
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
				c.CaseID, strconv.FormatInt(c.Entries, 10), c.State, where(c), orDash(caseText(c)),
				strconv.FormatInt(c.Waiting, 10), strconv.FormatInt(c.Proving, 10), strconv.FormatInt(c.FailedAgain, 10), orDash(c.Owner), at(c.Oldest),
			}
		})
		if len(l.Cases) > 0 {
			fmt.Fprintf(p.err, "Cases: %d, open investigations: %d, opened in the last 5 minutes: %d.\n", l.TotalCases, l.TotalEntries, l.TotalRecent)
		}
		if l.Unclassified > 0 {
			fmt.Fprintf(p.err, "The cases of %d more investigations are found within seconds.\n", l.Unclassified)
		}
		if l.HasMore {
			p.mayGoOn(len(l.Cases), q.Page)
		}
	})
	investigationFlags(c, &q.InvestigationQuery)
	c.Flags().VarP(cli.Choice(&q.CaseState, tasker.CaseStates()), "case-state", "", "only cases in this state: "+cli.Join(tasker.CaseStates()))
	c.Flags().StringVar(&q.Owner, "owner", "", "only cases of this owner")
	c.Flags().BoolVar(&q.Unowned, "unowned", false, "only cases without an owner")
	c.Flags().BoolVar(&q.FailedAgain, "failed-again", false, "only cases in which a step failed again after a repair")
	return c
}

func where(c apiv1.Case) string { return placeOf(c.NamespaceName, c.TaskName, c.StepName) }

// placeOf names a step of a template, or the template where no step failed.
func placeOf(namespace, template, step string) string {
	place := namespace + "/" + template
	if step != "" {
		place += " > " + step
	}
	return place
}

// caseText is what a case is about, in words.
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
		rest := at(c.SnoozedUntil)
		if c.SnoozeAbove != nil {
			rest += fmt.Sprintf(", or until more than %d are open", *c.SnoozeAbove)
		}
		fields = append(fields, field{"Rests until", rest})
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
		long: `Say why the investigations of a case are one: what they have in common, and what
differs in their messages and does not count. A value that should count splits the case:
tasker-ctl case split.`,
		example: `  tasker-ctl case why $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseWhy, error) {
		return api.WhyCase(ctx, a.id[0])
	}, func(w apiv1.CaseWhy) {
		var fields []field
		for _, part := range w.Parts {
			fields = append(fields, field{part.Name, orDash(part.Value)})
		}
		p.fields("", append(fields, field{"Rules", orDash(strings.Join(w.Rules, ", "))}, field{"Messages looked at", strconv.Itoa(w.Looked)})...)
		list(p, w.Masks, columns{none: "Nothing differs in the messages.", names: []string{"does not count", "different", "most frequent"}, spare: "most frequent"}, func(m tasker.CaseVariable) []string {
			var values []string
			for _, v := range m.Values {
				values = append(values, fmt.Sprintf("%s × %d", v.Value, v.Entries))
			}
			return []string{m.Label, strconv.Itoa(m.Different), strings.Join(values, ", ")}
		})
	})
}

func (p *program) caseChangesCommand() *cobra.Command {
	return answer(p, help{
		use:   "changes CASE",
		short: "Compare failures with successes and show impact",
		long: `Say what differs between the failures of a case and the successes of the same step, who is
hit, and until when. It compares versions and names of workers, versions of the
template, and keys of the context that triage.keys of the template names. It is
evidence, and no verdict.`,
		example: `  tasker-ctl case changes $CASE`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseChanges, error) {
		return api.CaseChanges(ctx, a.id[0])
	}, func(c apiv1.CaseChanges) {
		success := "none in the " + strconv.Itoa(c.LookedAt) + " tasks that were looked at"
		if s := c.LastSuccess; s != nil {
			success = strings.TrimSpace(fmt.Sprintf("%s by %s %s, template %s", at(&s.At), orDash(s.WorkerName), s.WorkerVersion, s.TaskVersion))
		}
		when := "before"
		if c.Since {
			when = "since"
		}
		fields := []field{
			{"First failure", at(c.FirstFailure)}, {"Last success", success}, {"Compared", fmt.Sprintf("%d failures with %d successes %s the first of them", c.Failures, c.Successes, when)},
			{"Tasks that wait", strconv.FormatInt(c.Impact.Tasks, 10)}, {"Steps behind", strconv.FormatInt(c.Impact.Steps, 10)},
		}
		if c.Impact.Deadline != nil {
			fields = append(fields, field{"Next deadline", at(c.Impact.Deadline) + " of task " + c.Impact.DueTask})
		}
		for _, e := range c.Began {
			fields = append(fields, field{"Began with it", fmt.Sprintf("case %s, %s/%s > %s", e.ID, e.Namespace, e.TaskName, e.StepName)})
		}
		p.fields("", fields...)
		list(p, c.Differences, columns{none: "No difference was found.", names: []string{"differs", "value", "failures", "successes", "times as often"}, spare: "value"}, func(d tasker.CaseDifference) []string {
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

// change returns a command that changes a case, by what its flags say.
func (p *program) change(h help, done string, read func(a arguments, actor string) (apiv1.UpdateCase, error)) *cobra.Command {
	var notes, unchanged string
	c := answer(p, h, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		actor, err := p.actor("by", "")
		if err != nil {
			return apiv1.Case{}, err
		}
		u, err := read(a, actor)
		if err != nil {
			return apiv1.Case{}, err
		}
		if u.Actor = actor; notes != "" {
			u.Notes = &notes
		}
		if unchanged != "" {
			since, err := time.Parse(time.RFC3339Nano, unchanged)
			if err != nil {
				return apiv1.Case{}, cli.Usagef("--if-unchanged-since must be a time as updated_at has it, such as 2026-01-31T12:00:00.123456Z, not %q", unchanged)
			}
			u.ExpectedUpdatedAt = &since
		}
		return api.UpdateCase(ctx, a.id[0], u)
	}, func(c apiv1.Case) {
		p.done("%s", done)
		p.printCaseFacts(c)
	})
	c.Flags().StringVarP(&notes, "notes", "n", "", "why, for the history of the case")
	c.Flags().StringVar(&unchanged, "if-unchanged-since", "", "fail if the case changed since this updated_at")
	return c
}

func (p *program) caseOwnCommand() *cobra.Command {
	owner, owned := "", tasker.DefaultOwnership
	c := p.change(help{
		use:   "own CASE",
		short: "Assign a case to an owner",
		example: `  tasker-ctl case own $CASE --for 2h --notes "asking the payment provider"
  tasker-ctl case own $CASE --owner night-shift`,
	}, "Case owned", func(_ arguments, actor string) (apiv1.UpdateCase, error) {
		if owner == "" {
			owner = actor
		}
		return apiv1.UpdateCase{Owner: &owner, OwnedForMinutes: int(owned / time.Minute)}, nil
	})
	c.Flags().StringVar(&owner, "owner", "", "who has it (default: who calls)")
	c.Flags().Var(cli.Minutes(&owned, time.Minute), "for", "how long, in whole minutes, at most 7d")
	return c
}

func (p *program) caseReleaseCommand() *cobra.Command {
	return p.change(help{
		use: "release CASE", short: "Remove the owner of a case", example: `  tasker-ctl case release $CASE --notes "the day shift takes over"`,
	}, "Case released", func(arguments, string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Owner: new("")}, nil })
}

func (p *program) caseSnoozeCommand() *cobra.Command {
	rest, above := 4*time.Hour, int64(-1)
	c := p.change(help{
		use:     "snooze CASE",
		short:   "Snooze a case",
		example: `  tasker-ctl case snooze $CASE --for 8h --above 500 --notes "known, repaired tomorrow"`,
	}, "Case snoozed", func(arguments, string) (apiv1.UpdateCase, error) {
		u := apiv1.UpdateCase{SnoozeUntil: new(time.Now().Add(rest))}
		if above >= 0 {
			u.SnoozeAbove = &above
		}
		return u, nil
	})
	c.Flags().Var(cli.Minutes(&rest, time.Minute), "for", "how long, in whole minutes, at most 7d")
	c.Flags().Var(cli.Number(&above, 0, 1<<31), "above", "wake it when more investigations than this are open")
	return c
}

func (p *program) caseWakeCommand() *cobra.Command {
	return p.change(help{use: "wake CASE", short: "Unsnooze a case", example: `  tasker-ctl case wake $CASE`},
		"Case woken", func(arguments, string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{Wake: true}, nil })
}

func (p *program) caseNoteCommand() *cobra.Command {
	return p.change(help{use: "note CASE", short: "Add a note to a case", example: `  tasker-ctl case note $CASE --notes "the provider confirmed an outage"`},
		"Case noted", func(arguments, string) (apiv1.UpdateCase, error) { return apiv1.UpdateCase{}, nil })
}

func (p *program) caseFixedCommand() *cobra.Command {
	version := ""
	c := p.change(help{
		use:     "fixed CASE",
		short:   "Record the worker version with the fix",
		example: `  tasker-ctl case fixed $CASE --in 1.6.0`,
	}, "Case updated", func(arguments, string) (apiv1.UpdateCase, error) {
		return apiv1.UpdateCase{FixedIn: &version}, need("in", version, "the version that repairs the cause")
	})
	c.Flags().StringVar(&version, "in", "", "the version of the worker")
	return c
}

func (p *program) caseMergeCommand() *cobra.Command {
	var into, reason string
	c := answer(p, help{
		use:     "merge CASE",
		short:   "Merge a case into another",
		example: `  tasker-ctl case merge $CASE --into $OTHER --reason "one outage, two messages"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		if _, err := readID("--into", into); err != nil {
			return apiv1.Case{}, err
		}
		if err := need("reason", reason, "it is in the history of both cases"); err != nil {
			return apiv1.Case{}, err
		}
		actor, err := p.actor("by", "")
		if err != nil {
			return apiv1.Case{}, err
		}
		return api.MergeCase(ctx, a.id[0], apiv1.MergeCase{Into: into, Reason: reason, Actor: actor})
	}, func(c apiv1.Case) {
		p.done("Case merged")
		p.printCaseFacts(c)
	})
	c.Flags().StringVar(&into, "into", "", "the case that they belong to")
	c.Flags().StringVarP(&reason, "reason", "r", "", "why")
	return c
}

func (p *program) caseUnmergeCommand() *cobra.Command {
	var reason string
	c := answer(p, help{
		use:     "unmerge CASE",
		short:   "Undo a merge",
		example: `  tasker-ctl case unmerge $CASE --reason "they are two after all"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Case, error) {
		if err := need("reason", reason, "it is in the history of both cases"); err != nil {
			return apiv1.Case{}, err
		}
		actor, err := p.actor("by", "")
		if err != nil {
			return apiv1.Case{}, err
		}
		return api.UnmergeCase(ctx, a.id[0], apiv1.UnmergeCase{Reason: reason, Actor: actor})
	}, func(c apiv1.Case) {
		p.done("Merge taken back")
		p.printCaseFacts(c)
	})
	c.Flags().StringVarP(&reason, "reason", "r", "", "why")
	return c
}

func (p *program) caseSplitCommand() *cobra.Command {
	var s apiv1.SplitCase
	in := caseFields[0]
	c := answer(p, help{
		use:   "split CASE",
		short: "Split a case by a field value",
		long: `Take the failures out of a case that have a text in a field, now and from now on. They are
a case of their own within seconds. To take it back, merge that case into this one.`,
		example: `  tasker-ctl case split $CASE --literal "status 404" --reason "gone is not the outage"
  tasker-ctl case split $CASE --field worker_version --literal 1.5.0 --reason "the old release has another bug"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CaseSplit, error) {
		if err := need("literal", s.Literal, "the text that tells them apart"); err != nil {
			return apiv1.CaseSplit{}, err
		}
		if err := need("reason", s.Reason, "it is in the history of the case"); err != nil {
			return apiv1.CaseSplit{}, err
		}
		var err error
		if s.Actor, err = p.actor("by", ""); err != nil {
			return apiv1.CaseSplit{}, err
		}
		s.Field = string(in)
		return api.SplitCase(ctx, a.id[0], s)
	}, func(s apiv1.CaseSplit) {
		p.done("Case split")
		p.fields("  ", field{"Open investigations that leave it", strconv.FormatInt(s.Entries, 10)})
	})
	c.Flags().Var(cli.Choice(&in, caseFields), "field", "where the text stands: "+cli.Join(caseFields))
	c.Flags().StringVar(&s.Literal, "literal", "", "the text, as it stands there")
	c.Flags().StringVarP(&s.Reason, "reason", "r", "", "why")
	return c
}

// A caseField is what a case may be split by.
type caseField string

var caseFields = []caseField{"error_message", "error_type", "worker_version", "task_version"}
