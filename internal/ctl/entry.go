package ctl

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) entryCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "dlq",
		Short: "Work on investigations: tasks that need a human",
		Long: `Work on investigations: tasks that need a human.

An investigation records why a task is stuck and who looked into it. It moves no
task: repair the step with task reset-step, resolve-step or complete-step, and then
end the investigation with dlq update.`,
		Example: `  tasker-ctl dlq queue
  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq history $ENTRY
  tasker-ctl dlq update $ENTRY --status manually_resolved --notes "pool enlarged"`,
	})
	c.AddCommand(
		p.queueCommand(), p.entriesCommand(), p.entryGetCommand(), p.historyCommand(),
		p.entryUpdateCommand(), p.entryCreateCommand(), p.statsCommand(), p.stalenessCommand(),
		p.followCommand(), p.emissionsCommand(), p.emissionCommand(), p.reEmitCommand(), p.sinksCommand(),
	)
	return c
}

func (p *program) entriesCommand() *cobra.Command {
	var q client.EntryQuery
	var status, reason string
	var ids bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List investigations, newest first",
		Example: `  tasker-ctl dlq list --status pending
  tasker-ctl dlq list --reason max_retries_exceeded -o json | jq -r '.[].task_uuid'`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Status, err = choice("status", status, tasker.ResolutionStatuses()); err != nil {
				return err
			}
			if q.Reason, err = choice("reason", reason, tasker.Reasons()); err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Entries(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listEntries(list, ids)
				if !ids || !c.Flags().Changed("limit") {
					p.mayGoOn(len(list), q.Page)
				}
			})
		},
	}
	c.Flags().StringVarP(&status, "status", "s", "", "only those with this status: "+choices(tasker.ResolutionStatuses()))
	c.Flags().StringVar(&reason, "reason", "", "only those with this reason: "+choices(tasker.Reasons()))
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids only")
	pageFlags(c, &q.Page, 50)
	oneOf(c, "status", tasker.ResolutionStatuses())
	oneOf(c, "reason", tasker.Reasons())
	return c
}

func (p *program) listEntries(list []apiv1.Entry, ids bool) {
	if !ids && len(list) == 0 {
		fmt.Fprintln(p.err, "No investigations.")
		return
	}
	var rows [][]string
	for _, e := range list {
		if ids {
			fmt.Fprintln(p.out, clean(e.DLQEntryUUID))
		}
		rows = append(rows, []string{
			e.DLQEntryUUID, e.TaskUUID, e.DLQReason, e.DetailCode, e.ResolutionStatus, e.CurrentTaskState, at(&e.DLQTimestamp),
		})
	}
	if !ids {
		p.table([]string{"entry", "task", "reason", "detail", "status", "task is", "opened"}, rows, "task")
	}
}

func (p *program) queueCommand() *cobra.Command {
	var q client.QueueQuery
	var reason, state string
	var ids, recovered bool
	c := &cobra.Command{
		Use:   "queue",
		Short: "List what needs a human, the most urgent first",
		Example: `  tasker-ctl dlq queue --limit 10
  tasker-ctl dlq queue --recovered --state complete --quiet
  tasker-ctl dlq get $(tasker-ctl dlq queue --limit 1 --quiet)`,
		Args: named(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Reason, err = choice("reason", reason, tasker.Reasons()); err != nil {
				return err
			}
			if q.State, err = choice("state", state, tasker.TaskStates()); err != nil {
				return err
			}
			if c.Flags().Changed("recovered") {
				q.Recovered = &recovered
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.QueuePage(c.Context(), q)
			if err != nil {
				return err
			}
			return p.show(list, func() {
				p.listQueue(list, ids)
				if !ids || !c.Flags().Changed("limit") {
					p.mayGoOn(len(list), q.Page)
				}
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "only those with this reason: "+choices(tasker.Reasons()))
	c.Flags().StringVar(&q.Namespace, "namespace", "", "only those of this namespace")
	c.Flags().StringVar(&q.Name, "name", "", "only those of this template")
	c.Flags().StringVar(&state, "state", "", "only those whose task is in this state now")
	c.Flags().BoolVar(&recovered, "recovered", false, "only those whose task went on by itself; --recovered=false: only the others")
	oneOf(c, "reason", tasker.Reasons())
	oneOf(c, "state", tasker.TaskStates())
	pageFlags(c, &q.Page, 100)
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print ids only")
	return c
}

func (p *program) listQueue(list []apiv1.QueueEntry, ids bool) {
	if !ids && len(list) == 0 {
		fmt.Fprintln(p.err, "Nothing needs a human.")
		return
	}
	var rows [][]string
	for _, q := range list {
		if ids {
			fmt.Fprintln(p.out, clean(q.DLQEntryUUID))
		}
		rows = append(rows, []string{
			q.DLQEntryUUID, q.TaskUUID, q.NamespaceName + "/" + q.TaskName, q.DLQReason, q.DetailCode,
			q.CurrentState, number(q.PriorityScore), minutes(q.MinutesInDLQ), orDash(failedNow(q.FailedStep)),
		})
	}
	if !ids {
		p.table([]string{"entry", "task", "template", "reason", "detail", "task is", "priority", "waiting", "failed now"}, rows, "task")
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

// minutes spells a span that is told in minutes.
func minutes(f float64) string {
	d := time.Duration(f * float64(time.Minute)).Round(time.Second)
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	return d.String()
}

func (p *program) entryGetCommand() *cobra.Command {
	var whole bool
	c := &cobra.Command{
		Use:   "get ENTRY|TASK",
		Short: "Show an investigation with its evidence; of a task, the newest",
		Example: `  tasker-ctl dlq get $ENTRY
  tasker-ctl dlq get $ENTRY --snapshot
  tasker-ctl dlq get $TASK -o json | jq .task_snapshot`,
		Args: named("ENTRY|TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := readID("ENTRY|TASK", args[0])
			if err != nil {
				return err
			}
			e, err := p.entry(c.Context(), id)
			if err != nil {
				return err
			}
			return p.show(e, func() {
				p.oneEntry(e, whole)
				if !whole {
					p.stepsNow(c.Context(), e)
				}
			})
		},
	}
	c.Flags().BoolVar(&whole, "snapshot", false, "the whole snapshot, as JSON")
	return c
}

// entry returns the investigation with this id, or else the newest of the task
// with this id, in both cases with its history.
func (p *program) entry(ctx context.Context, id tasker.ID) (apiv1.Entry, error) {
	api, err := p.api()
	if err != nil {
		return apiv1.Entry{}, err
	}
	e, err := api.Entry(ctx, id)
	if tasker.CodeOf(err) != tasker.NotFound {
		return e, err
	}
	ofTask, otherwise := api.EntryOfTask(ctx, id)
	if tasker.CodeOf(otherwise) == tasker.NotFound {
		return e, tasker.Errorf(tasker.NotFound, "%s is no investigation, and no task that has one", id)
	}
	if otherwise != nil {
		return e, otherwise
	}
	newest, err := readID("dlq_entry_uuid", ofTask.DLQEntryUUID)
	if err != nil {
		return e, tasker.Errorf(tasker.Internal, "the server answered without the id of the investigation")
	}
	return api.Entry(ctx, newest) // only by its own id it comes with its history
}

func (p *program) oneEntry(e apiv1.Entry, whole bool) {
	p.done("DLQ Entry Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID}, field{"Step UUID", or(e.StepUUID, "")},
		field{"Reason", e.DLQReason}, field{"Detail", e.DetailCode},
	)
	p.fields("  ", what(e)...)
	p.fields("  ", field{"Failed now", failedNow(e.FailedStep)})
	p.fields("  ",
		field{"Severity", e.Severity}, field{"What it means", e.Label}, field{"What to do", e.Guidance}, field{"Detected by", e.DetectedBy},
		field{"Original state", e.OriginalState}, field{"Current task state", e.CurrentTaskState},
		field{"DLQ timestamp", at(&e.DLQTimestamp)}, field{"Resolution status", e.ResolutionStatus},
		field{"Resolution notes", or(e.ResolutionNotes, "")}, field{"Resolved at", at(e.ResolvedAt)},
		field{"Resolved by", resolver(e)}, field{"Recovered at", at(e.RecoveredAt)},
		field{"Predecessor", or(e.PredecessorUUID, "")}, field{"Metadata", compact(e.Metadata)},
	)
	if len(e.History) > 0 {
		fmt.Fprintln(p.out)
		p.listHistory(e.History)
	}
	p.oneSnapshot(e, whole)
}

// failedNow says which step has failed, and since when.
func failedNow(f *apiv1.FailedStep) string {
	if f == nil {
		return ""
	}
	return f.Name + " failed since " + at(&f.FailedSince)
}

// resolver is who ended an investigation; nobody did while it is open, even if
// somebody is noted.
func resolver(e apiv1.Entry) string {
	if e.ResolutionStatus == string(tasker.EntryPending) {
		return ""
	}
	return or(e.ResolvedBy, "")
}

func (p *program) entryCreateCommand() *cobra.Command {
	var reason, by, metadata string
	c := &cobra.Command{
		Use:     "create TASK --reason TEXT",
		Short:   "Open an investigation of a task by hand; the task goes on as it did",
		Example: `  tasker-ctl dlq create $TASK --reason "customer says the parcel never came" --created-by "support@example.com"`,
		Args:    named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			task, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			if err := need("reason", reason, "it tells the investigator what to look for"); err != nil {
				return err
			}
			o := apiv1.OpenEntry{Reason: reason}
			if o.CreatedBy, err = p.actor("created-by", by); err != nil {
				return err
			}
			if o.Metadata, err = p.object("metadata", metadata); err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			e, err := api.OpenEntry(c.Context(), task, o)
			if err != nil {
				return notATask(c.Context(), api, task, err)
			}
			return p.show(e, func() {
				p.done("Investigation opened!")
				p.fields("  ",
					field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID},
					field{"Reason", reason}, field{"Created by", o.CreatedBy},
				)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why a person should look at it (needed)")
	c.Flags().StringVar(&by, "created-by", "", "who opens it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().StringVar(&metadata, "metadata", "", "for programs: a JSON object, @file or @-")
	return c
}

// notATask is the refusal to open an investigation of a task that is not there; it
// says so when the id is that of an investigation.
func notATask(ctx context.Context, api *client.Client, id tasker.ID, refusal error) error {
	if tasker.CodeOf(refusal) != tasker.NotFound {
		return refusal
	}
	e, err := api.Entry(ctx, id)
	if err != nil {
		return refusal
	}
	return tasker.Errorf(tasker.NotFound, "%s is no task but an investigation, of task %s; it is %s", id, e.TaskUUID, e.ResolutionStatus)
}
