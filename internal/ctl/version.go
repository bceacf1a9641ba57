package ctl

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) newChangeVersionCommand() *cobra.Command {
	var r apiv1.ChangeVersion
	c := newRequestCommand(p, help{
		use:   "change-version TASK --to VERSION --reason TEXT",
		short: "Move a task to another template version",
		long: `Move an open task to another version of its template. Steps that have finished or are claimed
do not change; all others follow the new version. With --dry-run nothing changes: the output
shows the effect on the steps, and the reasons if the move is not possible.`,
		example: `  tasker-ctl task change-version $TASK --to 1.3.0 --dry-run
  tasker-ctl task change-version $TASK --to 1.3.0 --reason "1.2.0 charges twice"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (v tasker.VersionChange, err error) {
		return api.ChangeVersion(ctx, a.id[0], r)
	}, func(v tasker.VersionChange) {
		switch {
		case v.Changed:
			p.printDone("Task is on version %s!", clean(v.To))
		case len(v.Refusals) > 0:
			p.warn("Task cannot be moved from version %s to %s", clean(v.From), clean(v.To))
		case v.From == v.To:
			p.printDone("Task is already on version %s", clean(v.To))
		default:
			p.printDone("Task can be moved from version %s to %s", clean(v.From), clean(v.To))
		}
		p.printVersionChange("  ", v)
	})
	addVersionFlags(c, &r.ToVersion, &r.Reason, &r.DryRun)
	c.Flags().StringVar(&r.FromVersion, "from", "", "expected current version")
	p.addActorFlag(c, &r.By, "by")
	return c
}

// printVersionChange prints the effect of a version change on the steps.
func (p *program) printVersionChange(indent string, v tasker.VersionChange) {
	p.printFields(indent,
		field{"Kept", v.Kept}, field{"Redefined", v.Redefined}, field{"Added", v.Added},
		field{"Removed", v.Removed}, field{"Left", v.Left},
	)
	for _, r := range v.Refusals {
		p.printFields(indent, field{"Refused", string(r.Code) + ": " + r.Message})
	}
}

func addVersionFlags(c *cobra.Command, to, reason *string, dryRun *bool) {
	c.Flags().StringVar(to, "to", "", "target version (required)")
	markRequired(c, "to", "it is the target version")
	addDryRunFlags(c, dryRun, reason)
}

func (p *program) newChangeTasksCommand() *cobra.Command {
	var r apiv1.ChangeTasks
	c := newRequestCommand(p, help{
		use:   "change-tasks NAMESPACE NAME VERSION --to VERSION --reason TEXT",
		short: "Move open tasks to another version",
		long: `Move the open tasks of one template version to another, in batches, newest first. Tasks that
cannot be moved do not change; they are counted by reason. Retire the version first, so that
no new tasks use it. The command can be interrupted and repeated.`,
		example: `  tasker-ctl template change-tasks orders fulfil 1.2.0 --to 1.3.0 --dry-run
  tasker-ctl template change-tasks orders fulfil 1.3.0 --to 1.2.0 --reason "1.3.0 ships twice"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (all apiv1.ChangedTasks, err error) {

		return p.changeTasks(ctx, api, tasker.TemplateVersion{Namespace: a.text[0], Name: a.text[1], Version: a.text[2]}, r)
	}, func(all apiv1.ChangedTasks) {
		if r.DryRun {
			p.printDone("%s can be moved to version %s", formatPlural(all.Changed, "task"), r.ToVersion)
		} else {
			p.printDone("%s moved to version %s!", formatPlural(all.Changed, "task"), r.ToVersion)
		}
		if all.Refused > 0 {
			p.warn("%s refused", formatPlural(all.Refused, "task"))
		}
		for _, code := range slices.Sorted(maps.Keys(all.Reasons)) {
			p.printFields("  ", field{code, formatInt(all.Reasons[code])})
		}
		for _, v := range all.Sample {
			p.printFields("  ", field{"Task", v.TaskUUID.String() + ": " + v.Refusals[0].Message})
		}
	})
	addVersionFlags(c, &r.ToVersion, &r.Reason, &r.DryRun)
	p.addActorFlag(c, &r.By, "by")
	return c
}

// changeTasks requests batch after batch and adds up the results.
func (p *program) changeTasks(ctx context.Context, api *client.Client, v tasker.TemplateVersion, r apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	all := apiv1.ChangedTasks{Reasons: map[string]int{}, Sample: []tasker.VersionChange{}}
	for {
		part, err := api.ChangeTasks(ctx, v, r)
		if err != nil {
			return all, err
		}
		all.Looked, all.Changed, all.Refused = all.Looked+part.Looked, all.Changed+part.Changed, all.Refused+part.Refused
		for code, n := range part.Reasons {
			all.Reasons[code] += n
		}
		all.Sample = append(all.Sample, part.Sample[:min(len(part.Sample), tasker.MaxVersionSample-len(all.Sample))]...)
		if part.Next == nil {
			return all, nil
		}
		r.Before = *part.Next
		p.printHint("%d checked, %d changed, %d refused so far", all.Looked, all.Changed, all.Refused)
	}
}
