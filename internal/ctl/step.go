package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

const stepArgument = "STEP is a UUID or a name, such as refund[17] for an item."

// stepCommands are the commands of group task for steps.
var stepCommands = []maker{
	plain(endpoint.ListSteps, help{
		use: "steps TASK", short: "List the steps of a task",
		example: `  tasker-ctl task steps 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task steps $TASK -o json | jq -r '.[] | select(.current_state == "error") | .step_uuid'`,
	}, (*program).printSteps),
	plain(endpoint.GetStep, help{
		use: "step TASK STEP", short: "Show a step",
		long: "Show a step with its last result or failure. " + stepArgument,
		example: `  tasker-ctl task step $TASK $STEP
  tasker-ctl task step $TASK $STEP -o json | jq .error`,
	}, (*program).printStep),
	plain(endpoint.ListStepItems, help{
		use: "items TASK STEP", short: "List the items of a map step", limit: 100,
		long: "List the items of a map step in order. " + stepArgument,
		example: `  tasker-ctl task items $TASK refund --state error
  tasker-ctl task items $TASK refund --limit 1000 -o json | jq -r '.items[].step_uuid'`,
	}, func(p *program, l apiv1.StepItemList) {
		header := "item, uuid, state, attempts, element, next retry, last failure?"
		printList(p, l.Items, "No items.", header, func(s tasker.Step) []any {
			failure := formatFailure(s.Error)
			return []any{s.Name, s.UUID, s.State, formatAttempts(s), s.Item, orDash(s.NextRetryAt), failure}
		})
		printNextPageFlag(p, "from", l.Next)
	}),
	(*program).newResetCommand, (*program).newCompleteCommand, (*program).newAnswerCommand,
	func(p *program) *cobra.Command {
		return p.newStepActionCommand(stepActions[1], help{
			use: "resolve-step TASK STEP --reason TEXT", short: "Skip a failed step",
			long: "Skip a failed step. The task continues without its result. " + stepArgument,
			example: `  tasker-ctl task resolve-step $TASK $STEP \
    --reason "Non-critical validation, bypassing" --resolved-by "ops-team@example.com"`,
		}, func(*apiv1.StepAction) error { return nil })
	},
}

func (p *program) printSteps(steps []tasker.Step) {
	p.printDone("Found %s:", formatPlural(len(steps), "workflow step"))
	for _, s := range steps {
		fmt.Fprintf(p.out, "\n  Step: %s (%s)\n", clean(s.Name), clean(s.UUID.String()))
		p.printFields("    ",
			field{"State", s.State},
			field{"Dependencies satisfied", s.DependenciesSatisfied},
			field{"Ready for execution", formatReady(s)},
			field{"Attempts", formatAttempts(s) + formatQueued(s)},
			field{"Next retry", s.NextRetryAt},
			field{"Type", formatStepType(s)}, field{"Handler", s.Handler},
		)
		if s.RetryEligible {
			fmt.Fprintf(p.out, "    %s Retry eligible\n", p.paint(p.out, yellow, "⚠"))
		}
	}
}

func formatAttempts(s tasker.Step) string { return fmt.Sprintf("%d/%d", s.Attempts, s.MaxAttempts) }

// formatQueued returns a note for a step whose current attempt has not started, or "".
func formatQueued(s tasker.Step) string {
	if s.State == tasker.StepEnqueued {
		return " (queued)"
	}
	return ""
}

// formatStepType returns the type of a step, or "" for a standard step.
func formatStepType(s tasker.Step) string {
	if s.Type == tasker.StandardStep {
		return ""
	}
	return string(s.Type)
}

// formatReady formats whether a step could run now, and what it waits for.
func formatReady(s tasker.Step) string {
	if s.Type == tasker.ExternalStep && s.State == tasker.StepPending && s.DependenciesSatisfied {
		if s.Assignee != "" {
			return strconv.FormatBool(s.ReadyForExecution) + " (waits for an answer by " + string(s.Assignee) + ")"
		}
		return strconv.FormatBool(s.ReadyForExecution) + " (waits for an external answer)"
	}
	if s.Type == tasker.ChildStep && s.State == tasker.StepPending && s.ChildTaskUUID != nil {
		return strconv.FormatBool(s.ReadyForExecution) + " (waits for its child task " + s.ChildTaskUUID.String() + ")"
	}
	if s.Type == tasker.WaitStep && s.WaitUntil != nil {
		return strconv.FormatBool(s.ReadyForExecution) + " (waits until " + formatTime(s.WaitUntil) + ")"
	}
	return strconv.FormatBool(s.ReadyForExecution)
}

func (p *program) printStep(s tasker.Step) {
	p.printDone("Step Details:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"UUID", s.UUID}, field{"Name", s.Name}, field{"State", s.State},
		field{"Type", formatStepType(s)}, field{"Handler", s.Handler}, field{"Child task", s.ChildTaskUUID},
		field{"Assignee", s.Assignee}, field{"Due", formatDue(s.Due)},
		field{"Dependencies satisfied", s.DependenciesSatisfied},
		field{"Ready for execution", formatReady(s)},
		field{"Retry eligible", s.RetryEligible},
		field{"Attempts", formatAttempts(s) + formatQueued(s)},
		field{"Last failure", s.LastFailureAt},
		field{"Next retry", s.NextRetryAt},
		field{"Checkpoint", formatCheckpoint(s.Checkpoint)},
		field{"Error", formatFailure(s.Error)},
		field{"Results", s.Results},
		field{"Worker", s.WorkerUUID},
		field{"Lease expires", s.LeaseExpiresAt},
		field{"Completed", s.CompletedAt},
	)
}

func formatCheckpoint(c *tasker.Checkpoint) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s, by attempt %d, %d bytes: %s", formatTime(&c.SavedAt), c.Attempt, c.Bytes, compact(c.Value))
}

func formatFailure(doc json.RawMessage) string {
	var f tasker.StepFailure
	if compact(doc) == "" {
		return ""
	}
	if json.Unmarshal(doc, &f) != nil || f.Message == "" {
		return compact(doc)
	}
	text := f.Message
	if f.Type != "" {
		text = f.Type + ": " + text
	}
	if !f.Retryable {
		text += " (permanent)"
	}
	return text
}

// stepAction is an action on a step.
type stepAction struct {
	action  tasker.StepAction
	advice  string // the command line
	by      string // flag of the actor
	label   string // of the actor in the output
	success string
}

var stepActions = []stepAction{
	{tasker.ResetForRetry, "reset-step %s %s --reason …", "reset-by", "Reset by", "Step reset successfully!"},
	{tasker.ResolveManually, "resolve-step %s %s --reason …", "resolved-by", "Resolved by", "Step resolved manually!"},
	{tasker.CompleteManually, "complete-step %s %s --result … --reason …", "completed-by", "Completed by", "Step completed manually with results!"},
}

// newStepActionCommand returns the command for an action. more sets the fields that only this action
// has.
func (p *program) newStepActionCommand(s stepAction, h help, more func(*apiv1.StepAction) error) *cobra.Command {
	var actor string
	r := newRequest(endpoint.OperateStep)
	c := newRequestCommand(p, h, func(ctx context.Context, api *client.Client, a arguments) (step tasker.Step, err error) {
		r.body.ActionType = string(s.action)
		if err := more(&r.body); err != nil {
			return step, err
		}
		switch s.action {
		case tasker.ResetForRetry:
			r.body.ResetBy = actor
		case tasker.ResolveManually:
			r.body.ResolvedBy = actor
		case tasker.CompleteManually:
			r.body.CompletedBy = actor
		}
		step, err = r.send(ctx, api, a)
		return step, adviseOnRejection(a.id[0], a.text[1], s.action, err)
	}, func(step tasker.Step) {
		p.printDone("%s", s.success)
		p.printFields("  ", field{"New state", step.State}, field{"Reason", r.body.Reason}, field{s.label, actor})
	})
	p.addBodyFlags(c, &r.body)
	p.addActorFlag(c, &actor, s.by)
	return c
}

func (p *program) newResetCommand() *cobra.Command {
	return p.newStepActionCommand(stepActions[0], help{
		use: "reset-step TASK STEP --reason TEXT", short: "Retry a failed step with fresh attempts",
		long: "Retry a failed step with fresh attempts. " + stepArgument,
		example: `  tasker-ctl task reset-step $TASK $STEP \
    --reason "Database connection pool increased" --reset-by "ops-team@example.com"

  tasker-ctl task reset-step $TASK $STEP --new-child --interrupt --reason "version 1.1.0 of its template is repaired"`,
		switches: map[string]string{
			"discard-checkpoint": "delete the checkpoint of the step: it starts from the beginning",
			"new-child":          "start a new child task; with --interrupt, cancel the current one",
		},
	}, func(a *apiv1.StepAction) error {
		if a.DiscardCheckpoint = p.isSet("discard-checkpoint"); p.isSet("new-child") {
			a.Child = apiv1.NewChild
		}
		return nil
	})
}

func (p *program) newCompleteCommand() *cobra.Command {
	var result, metadata string
	c := p.newStepActionCommand(stepActions[2], help{
		use: "complete-step TASK STEP --result JSON --reason TEXT", short: "Complete a step with a given result",
		long: "Complete a step with a given result instead of running its handler. " + stepArgument,
		example: `  tasker-ctl task complete-step $TASK $STEP \
    --result '{"validated": true, "score": 95}' --metadata '{"verification_method": "manual_review"}' \
    --reason "Manual verification after infrastructure fix" --completed-by "ops-team@example.com"

  tasker-ctl task complete-step $TASK $STEP --result @result.json --reason "done by hand"
  make-result | tasker-ctl task complete-step $TASK $STEP --result @- --reason "done by hand"`,
	}, func(a *apiv1.StepAction) (err error) {
		if err := requireValue("result", result, "dependent steps receive it"); err != nil {
			return err
		}
		a.CompletionData = &apiv1.CompletionData{}
		if a.CompletionData.Result, err = p.readJSON("result", result); err != nil {
			return err
		}
		a.CompletionData.Metadata, err = p.readJSONObject("metadata", metadata)
		return err
	})
	c.Flags().StringVar(&result, "result", "", "result: JSON, @file or @- (required)")
	c.Flags().StringVar(&metadata, "metadata", "", "metadata of the result: a JSON object, @file or @-")
	return c
}

func (p *program) newAnswerCommand() *cobra.Command {
	var result, metadata, failure string
	r := newRequest(endpoint.CompleteExternalStep)
	r.prepare = func(context.Context, arguments) (err error) {
		if (result == "") == (failure == "") {
			return cli.Usagef("set either --result or --failure")
		}
		if r.body.Success = failure == ""; !r.body.Success {
			r.body.Error = &apiv1.ResultError{Message: failure}
		} else if r.body.Result, err = p.readJSON("result", result); err != nil {
			return err
		}
		r.body.Metadata, err = p.readJSONObject("metadata", metadata)
		return err
	}
	c := r.command(p, help{
		use: "answer-step TASK NAME", short: "Complete an external step",
		long: `Complete an external step with a result or a failure. NAME is the name or the UUID of the step.

Sending the same outcome again is allowed; a different one is rejected. Use complete-step for
other steps, and for external steps that no longer wait.`,
		example: `  tasker-ctl task answer-step $TASK approve --result '{"approved": true}' --source "ann@example.com"
  tasker-ctl task answer-step $TASK approve --result @answer.json
  tasker-ctl task answer-step $TASK payment --failure "card declined"`,
	}, func(step tasker.Step) {
		p.printDone("Step answered.")
		p.printFields("  ", field{"Step", step.Name}, field{"New state", step.State}, field{"Source", r.body.Source})
	})
	c.Flags().StringVar(&result, "result", "", "result: JSON, @file or @-")
	c.Flags().StringVar(&failure, "failure", "", "failure message (instead of --result)")
	c.Flags().StringVar(&metadata, "metadata", "", "metadata of the result: a JSON object, @file or @-")
	return c
}

// adviseOnRejection adds the commands of the allowed actions to a rejection.
func adviseOnRejection(task tasker.ID, step string, action tasker.StepAction, refusal error) error {
	var known *tasker.Error
	var r tasker.StepRefusal
	if !errors.As(refusal, &known) || !decodeDetails(known.Details, &r) || r.AllowedActions == nil {
		return refusal
	}
	lines := []string{}
	if r.StepState == tasker.StepEnqueued && len(r.AllowedActions) > 0 {
		lines = append(lines, "the step waits for a worker: tasker-ctl worker list")
	}
	if r.NeedsInterrupt && slices.Contains(r.AllowedActions, action) {
		return advisedError{refusal, append(lines, "to interrupt the worker, add --interrupt")}
	}
	interrupt := ""
	if r.NeedsInterrupt {
		interrupt = " --interrupt"
	}
	for _, s := range stepActions {
		if slices.Contains(r.AllowedActions, s.action) {
			lines = append(lines, fmt.Sprintf("tasker-ctl task "+s.advice, task, step)+interrupt)
		}
	}
	return advisedError{refusal, lines}
}

func decodeDetails(details, v any) bool {
	doc, err := json.Marshal(details)
	return err == nil && json.Unmarshal(doc, v) == nil
}

var inboxCommand = list(endpoint.ListInbox, help{
	use: "inbox", short: "List human steps, earliest due first", limit: 100,
	long: `List human steps, earliest due first.

An external step is listed while it waits, if its template names an assignee or a form, or if
it was assigned. --mine, --assignee and --unassigned can be combined.`,
	example: `  tasker-ctl inbox --mine
  tasker-ctl inbox --assignee group:finance --unassigned --namespace billing
  tasker-ctl inbox --template refund --due-before 2026-01-31T07:30:00Z`,
}, "No human steps.", "step, task, namespace, template, assignee, waits since, due", func(s tasker.HumanStep) []any {
	return []any{s.StepName, s.TaskUUID, s.Namespace, s.TaskName, orDash(s.Assignee), s.WaitingSince, orDash(s.DueAt)}
})

// humanStepCommands are the commands of group task for human steps.
var humanStepCommands = []maker{
	plain(endpoint.AssignStep, help{
		use: "assign-step TASK STEP --to NAME", short: "Assign a human step",
		long: `Assign an external step that waits to a person, by their sign-in name, or to group:NAME.
` + stepArgument,
		example: `  tasker-ctl task assign-step $TASK approve --to ann@example.com --reason "bob is away"
  tasker-ctl task assign-step $TASK approve --to group:finance
  tasker-ctl task assign-step $TASK approve --nobody`,
		switches: map[string]string{"nobody": "remove the assignee"},
	}, func(p *program, h tasker.HumanStep) {
		p.printDone("Step assigned.")
		p.printFields("  ", field{"Step", h.StepName}, field{"Assignee", cmp.Or(string(h.Assignee), "none")}, field{"Due", h.DueAt})
	}, func(p *program, a *apiv1.AssignStep, _ arguments) error {
		if (a.Assignee == "") != p.isSet("nobody") {
			return cli.Usagef("set either --to NAME or --nobody")
		}
		return nil
	}),
	plain(endpoint.GetAssignee, help{
		use: "assignee TASK STEP", short: "Show the assignee of a human step",
		long:    "Show the assignee, the form and the assignment history of a human step. " + stepArgument,
		example: `  tasker-ctl task assignee $TASK approve`,
	}, func(p *program, d tasker.HumanStepDetail) {
		p.printFields("",
			field{"Step", d.StepName}, field{"Assignee", cmp.Or(string(d.Assignee), "none")}, field{"Assigned by", d.AssignedBy},
			field{"Waits since", d.WaitingSince}, field{"Due", d.DueAt}, field{"Escalated", d.EscalatedAt}, field{"Form", d.Form})
		for _, c := range d.History {
			more := addPrefix(": ", string(c.Assignee)) + addPrefix(": ", string(c.Reason))
			fmt.Fprintf(p.out, "\n%s %s by %s%s\n", formatTime(&c.At), clean(c.Event), clean(c.Actor), more)
		}
	}),
	plain(endpoint.CreateAnswerLink, help{
		use: "answer-link TASK STEP", short: "Create a one-time answer link",
		long: `Create a link with which the assignee answers an external step without signing in.

The link is valid for one answer, until it expires, while the step waits and its assignee does
not change. Anyone with the link can answer, so keep it secret. It is printed once, on standard
output. ` + stepArgument,
		example: `  tasker-ctl task answer-link $TASK approve
  tasker-ctl task answer-link $TASK approve --expires-in 4h | mail -s "Please answer" ann@example.com`,
	}, func(p *program, made apiv1.NewAnswerLink) {
		p.printHint("For %s, valid until %s. Anyone with this link can answer.", made.Assignee, formatTime(&made.ExpiresAt))
		fmt.Fprintln(p.out, clean(orDefault(made.URL, strings.TrimSuffix(p.client.URL(), "/")+made.Path)))
	}),
	plain(endpoint.ListAnswerLinks, help{
		use: "answer-links TASK STEP", short: "List answer links of a step",
		long:    "List the current and former answer links of an external step, newest first. " + stepArgument,
		example: `  tasker-ctl task answer-links $TASK approve`,
	}, func(p *program, l apiv1.AnswerLinks) {
		header := "link, assignee, state, made by, made, expires"
		printList(p, l.Links, "The step has no answer links.", header, func(l tasker.AnswerLink) []any {
			return []any{l.UUID, l.Assignee, l.State, l.CreatedBy, l.CreatedAt, l.ExpiresAt}
		})
	}),
	plain(endpoint.RevokeAnswerLink, help{
		use: "revoke-answer-link TASK STEP LINK", short: "Revoke an answer link",
		long:    "Revoke an answer link. " + stepArgument,
		example: `  tasker-ctl task revoke-answer-link $TASK approve $LINK`,
	}, func(p *program, l tasker.AnswerLink) {
		p.printDone("The link for %s is %s.", clean(l.Assignee), clean(string(l.State)))
	}, func(_ *program, _ *endpoint.None, a arguments) error {
		if err := a.id[2].UnmarshalText([]byte(a.text[2])); err != nil {
			return cli.Usagef("LINK must be a UUID from answer-links, not %q", a.text[2])
		}
		return nil
	}),
}

// addPrefix returns text with a prefix, or "" if text is empty.
func addPrefix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + clean(text)
}
