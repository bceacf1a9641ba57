package ctl

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) changeVersionCommand() *cobra.Command {
	var r apiv1.ChangeVersion
	c := answer(p, help{
		use:   "change-version TASK --to VERSION --reason TEXT",
		short: "Move a task to another template version",
		long: `Bring an open task to another version of its template. Steps that have ended, or that a
worker has, stay as they are; what has not begun follows the new version. With --dry-run
nothing changes: it says what would become of the steps, and why it cannot be done.`,
		example: `  tasker-ctl task change-version $TASK --to 1.3.0 --dry-run
  tasker-ctl task change-version $TASK --to 1.3.0 --reason "1.2.0 charges twice"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (v tasker.VersionChange, err error) {
		if err := p.saidUnless(r.DryRun, r.ToVersion, &r.By, &r.Reason); err != nil {
			return v, err
		}
		return api.ChangeVersion(ctx, a.id[0], r)
	}, func(v tasker.VersionChange) {
		switch {
		case v.Changed:
			p.done("Task is of version %s!", clean(v.To))
		case len(v.Refusals) > 0:
			p.warn("Task cannot be brought from version %s to %s", clean(v.From), clean(v.To))
		case v.From == v.To:
			p.done("Task was of version %s already", clean(v.To))
		default:
			p.done("Task can be brought from version %s to %s", clean(v.From), clean(v.To))
		}
		p.versionChange("  ", v)
	})
	versionFlags(c, &r.ToVersion, &r.Reason, &r.DryRun)
	c.Flags().StringVar(&r.FromVersion, "from", "", "the version of which it is expected to be")
	actorFlag(c, &r.By, "by")
	return c
}

// versionChange prints what becomes of the steps of a task.
func (p *program) versionChange(indent string, v tasker.VersionChange) {
	p.fields(indent,
		field{"Kept", strings.Join(v.Kept, ", ")}, field{"Redefined", strings.Join(v.Redefined, ", ")}, field{"Added", strings.Join(v.Added, ", ")},
		field{"Removed", strings.Join(v.Removed, ", ")}, field{"Left", strings.Join(v.Left, ", ")},
	)
	for _, r := range v.Refusals {
		p.fields(indent, field{"Refused", string(r.Code) + ": " + r.Message})
	}
}

func versionFlags(c *cobra.Command, to, reason *string, dryRun *bool) {
	c.Flags().StringVar(to, "to", "", "target version (required)")
	c.Flags().StringVar(reason, "reason", "", "why, for the history (needed without --dry-run)")
	c.Flags().BoolVar(dryRun, "dry-run", false, "change nothing, and say what would be done")
}

// saidUnless is said for what needs a reason unless it is a dry run.
func (p *program) saidUnless(dryRun bool, to string, by, reason *string) error {
	switch {
	case to == "":
		return cli.Usagef("--to is missing: the version of which it shall be")
	case dryRun:
		return nil
	default:
		return p.said(by, reason, "it is kept in the history of each task")
	}
}

func (p *program) changeTasksCommand() *cobra.Command {
	var r apiv1.ChangeTasks
	c := answer(p, help{
		use:   "change-tasks NAMESPACE NAME VERSION --to VERSION --reason TEXT",
		short: "Move open tasks to another version",
		long: `Bring the open tasks of a version of a template to another version, part by part, the
newest first. Tasks for which that cannot be done stay as they are and are counted by the
reason. With --dry-run nothing changes. Retire the version first, so that no new tasks are
made of it meanwhile. It may be interrupted, and repeated.`,
		example: `  tasker-ctl template change-tasks orders fulfil 1.2.0 --to 1.3.0 --dry-run
  tasker-ctl template change-tasks orders fulfil 1.3.0 --to 1.2.0 --reason "1.3.0 ships twice"`,
	}, func(ctx context.Context, api *client.Client, a arguments) (all apiv1.ChangedTasks, err error) {
		if err := p.saidUnless(r.DryRun, r.ToVersion, &r.By, &r.Reason); err != nil {
			return all, err
		}
		return p.changeTasks(ctx, api, tasker.TemplateVersion{Namespace: a.text[0], Name: a.text[1], Version: a.text[2]}, r)
	}, func(all apiv1.ChangedTasks) {
		if r.DryRun {
			p.done("%s can be brought to version %s", plural(all.Changed, "task"), r.ToVersion)
		} else {
			p.done("%s brought to version %s!", plural(all.Changed, "task"), r.ToVersion)
		}
		if all.Refused > 0 {
			p.warn("%s refused", plural(all.Refused, "task"))
		}
		for _, code := range slices.Sorted(maps.Keys(all.Reasons)) {
			p.fields("  ", field{code, strconv.Itoa(all.Reasons[code])})
		}
		for _, v := range all.Sample {
			p.fields("  ", field{"Task", v.TaskUUID.String() + ": " + v.Refusals[0].Message})
		}
	})
	versionFlags(c, &r.ToVersion, &r.Reason, &r.DryRun)
	actorFlag(c, &r.By, "by")
	return c
}

// changeTasks asks for one part after the other, and adds up the answers.
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
		p.hint("%d looked at, %d changed, %d refused; there are more", all.Looked, all.Changed, all.Refused)
	}
}
