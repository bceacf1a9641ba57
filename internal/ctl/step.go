package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

func (p *program) stepsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "steps TASK",
		Short: "List the steps of a task and where they stand",
		Example: `  tasker-ctl task steps 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f
  tasker-ctl task steps $TASK -o json | jq -r '.[] | select(.current_state == "error") | .step_uuid'`,
		Args: named("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			task, err := readID("TASK", args[0])
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			steps, err := api.Steps(c.Context(), task)
			if err != nil {
				return err
			}
			return p.show(steps, func() { p.listSteps(steps) })
		},
	}
}

// listSteps prints steps as seed 000 shows them.
func (p *program) listSteps(steps []apiv1.Step) {
	noun := "steps"
	if len(steps) == 1 {
		noun = "step"
	}
	p.done("Found %d workflow %s:", len(steps), noun)
	for _, s := range steps {
		fmt.Fprintf(p.out, "\n  Step: %s (%s)\n", clean(s.Name), clean(s.StepUUID))
		p.fields("    ",
			field{"State", s.CurrentState},
			field{"Dependencies satisfied", strconv.FormatBool(s.DependenciesSatisfied)},
			field{"Ready for execution", ready(s)},
			field{"Attempts", attempts(s) + queued(s)},
			field{"Type", special(s)}, field{"Handler", s.Handler},
		)
		if s.RetryEligible {
			fmt.Fprintf(p.out, "    %s Retry eligible\n", p.paint(p.out, yellow, "⚠"))
		}
	}
}

func attempts(s apiv1.Step) string { return fmt.Sprintf("%d/%d", s.Attempts, s.MaxAttempts) }

// queued tells of an attempt that no worker has begun.
func queued(s apiv1.Step) string {
	if s.CurrentState == string(tasker.StepEnqueued) {
		return " (queued)"
	}
	return ""
}

// special is the type of a step that no worker executes.
func special(s apiv1.Step) string {
	if s.Type == string(tasker.ExternalStep) {
		return s.Type
	}
	return ""
}

// ready tells whether a step could go on, and what it then waits for.
func ready(s apiv1.Step) string {
	if s.Type == string(tasker.ExternalStep) && s.CurrentState == string(tasker.StepPending) && s.DependenciesSatisfied {
		return strconv.FormatBool(s.ReadyForExecution) + " (waits for an answer from outside)"
	}
	return strconv.FormatBool(s.ReadyForExecution)
}

func (p *program) stepCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "step TASK STEP",
		Short: "Show one step, with its last result or failure",
		Example: `  tasker-ctl task step $TASK $STEP
  tasker-ctl task step $TASK $STEP -o json | jq .error`,
		Args: named("TASK", "STEP"),
		RunE: func(c *cobra.Command, args []string) error {
			task, step, err := readIDs(args)
			if err != nil {
				return err
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			s, err := api.Step(c.Context(), task, step)
			if err != nil {
				return err
			}
			return p.show(s, func() { p.oneStep(s) })
		},
	}
}

// oneStep prints a step as seed 000 shows it, and then what an investigator
// looks for next.
func (p *program) oneStep(s apiv1.Step) {
	p.done("Step Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"UUID", s.StepUUID}, field{"Name", s.Name}, field{"State", s.CurrentState},
		field{"Type", special(s)}, field{"Handler", s.Handler},
		field{"Dependencies satisfied", strconv.FormatBool(s.DependenciesSatisfied)},
		field{"Ready for execution", ready(s)},
		field{"Retry eligible", strconv.FormatBool(s.RetryEligible)},
		field{"Attempts", attempts(s) + queued(s)},
		field{"Last failure", at(s.LastFailureAt)},
		field{"Next retry", at(s.NextRetryAt)},
		field{"Error", failureText(s.Error)},
		field{"Results", compact(s.Results)},
		field{"Worker", or(s.WorkerUUID, "")},
		field{"Lease expires", at(s.LeaseExpiresAt)},
		field{"Completed", at(s.CompletedAt)},
	)
}

// failureText tells the last failure of a step in a line.
func failureText(doc json.RawMessage) string {
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

// An operation is what the three actions on a step have in common.
type operation struct {
	action    tasker.StepAction
	by        string // the flag for who acts
	label     string // of who acts
	success   string
	reason    string
	actor     string
	interrupt bool
}

func (o *operation) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the history (needed)")
	c.Flags().StringVar(&o.actor, o.by, "", "who does it (default $TASKER_ACTOR, else your name on this machine)")
	c.Flags().BoolVar(&o.interrupt, "interrupt", false, "also when a worker has the step in hands: its result will be refused")
}

// operate sends an action and prints what the documents show.
func (p *program) operate(c *cobra.Command, args []string, o operation, data *apiv1.CompletionData) error {
	task, step, err := readIDs(args)
	if err != nil {
		return err
	}
	if err := need("reason", o.reason, "it is kept in the history of the step"); err != nil {
		return err
	}
	actor, err := p.actor(o.by, o.actor)
	if err != nil {
		return err
	}
	a := apiv1.StepAction{ActionType: string(o.action), Reason: o.reason, CompletionData: data, Interrupt: o.interrupt}
	switch o.action {
	case tasker.ResetForRetry:
		a.ResetBy = actor
	case tasker.ResolveManually:
		a.ResolvedBy = actor
	case tasker.CompleteManually:
		a.CompletedBy = actor
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	s, err := api.ActOnStep(c.Context(), task, step, a)
	if err != nil {
		return advise(task, step, o.action, err)
	}
	return p.show(s, func() {
		p.done("%s", o.success)
		p.fields("  ", field{"New state", s.CurrentState}, field{"Reason", o.reason}, field{o.label, actor})
	})
}

// commands are the step actions on the command line.
var commands = map[tasker.StepAction]string{
	tasker.ResetForRetry:    "reset-step %s %s --reason …",
	tasker.ResolveManually:  "resolve-step %s %s --reason …",
	tasker.CompleteManually: "complete-step %s %s --result … --reason …",
}

// advise adds to the refusal of an action the commands for the actions that the
// refusal lists as allowed.
func advise(task, step tasker.ID, action tasker.StepAction, refusal error) error {
	var known *tasker.Error
	var r tasker.StepRefusal
	if !errors.As(refusal, &known) || !decode(known.Details, &r) || r.AllowedActions == nil {
		return refusal
	}
	lines := []string{}
	if r.StepState == tasker.StepEnqueued && len(r.AllowedActions) > 0 {
		lines = append(lines, "it waits for a worker: tasker-ctl worker list")
	}
	if r.NeedsInterrupt && slices.Contains(r.AllowedActions, action) {
		return advised{refusal, append(lines, "to take it away all the same, add --interrupt")}
	}
	interrupt := ""
	if r.NeedsInterrupt {
		interrupt = " --interrupt"
	}
	for _, a := range r.AllowedActions {
		if command, ok := commands[a]; ok {
			lines = append(lines, fmt.Sprintf("tasker-ctl task "+command, task, step)+interrupt)
		}
	}
	return advised{refusal, lines}
}

// decode reads the details of an error into v.
func decode(details, v any) bool {
	doc, err := json.Marshal(details)
	return err == nil && json.Unmarshal(doc, v) == nil
}

func (p *program) resetCommand() *cobra.Command {
	o := operation{action: tasker.ResetForRetry, by: "reset-by", label: "Reset by", success: "Step reset successfully!"}
	c := &cobra.Command{
		Use:   "reset-step TASK STEP --reason TEXT",
		Short: "Give a failed step its attempts back; it runs again by itself",
		Example: `  tasker-ctl task reset-step $TASK $STEP \
    --reason "Database connection pool increased" --reset-by "ops-team@example.com"`,
		Args: named("TASK", "STEP"),
		RunE: func(c *cobra.Command, args []string) error { return p.operate(c, args, o, nil) },
	}
	o.flags(c)
	return c
}

func (p *program) resolveCommand() *cobra.Command {
	o := operation{action: tasker.ResolveManually, by: "resolved-by", label: "Resolved by", success: "Step resolved manually!"}
	c := &cobra.Command{
		Use:   "resolve-step TASK STEP --reason TEXT",
		Short: "Pass over a step: the task goes on without its result",
		Example: `  tasker-ctl task resolve-step $TASK $STEP \
    --reason "Non-critical validation, bypassing" --resolved-by "ops-team@example.com"`,
		Args: named("TASK", "STEP"),
		RunE: func(c *cobra.Command, args []string) error { return p.operate(c, args, o, nil) },
	}
	o.flags(c)
	return c
}

func (p *program) completeCommand() *cobra.Command {
	o := operation{
		action: tasker.CompleteManually, by: "completed-by", label: "Completed by",
		success: "Step completed manually with results!",
	}
	var result, metadata string
	c := &cobra.Command{
		Use:   "complete-step TASK STEP --result JSON --reason TEXT",
		Short: "Give a step the result that its handler should have had",
		Example: `  tasker-ctl task complete-step $TASK $STEP \
    --result '{"validated": true, "score": 95}' --metadata '{"verification_method": "manual_review"}' \
    --reason "Manual verification after infrastructure fix" --completed-by "ops-team@example.com"

  tasker-ctl task complete-step $TASK $STEP --result @result.json --reason "done by hand"
  make-result | tasker-ctl task complete-step $TASK $STEP --result @- --reason "done by hand"`,
		Args: named("TASK", "STEP"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := need("result", result, "steps that depend on this one receive it"); err != nil {
				return err
			}
			doc, err := p.document("result", result)
			if err != nil {
				return err
			}
			data := apiv1.CompletionData{Result: doc}
			if data.Metadata, err = p.object("metadata", metadata); err != nil {
				return err
			}
			return p.operate(c, args, o, &data)
		},
	}
	o.flags(c)
	c.Flags().StringVar(&result, "result", "", "the result: JSON, @file or @- (needed)")
	c.Flags().StringVar(&metadata, "metadata", "", "about the result: a JSON object, @file or @-")
	return c
}
