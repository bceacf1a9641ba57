package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// The result of a decision selects the dependents to run, in one of these forms:
//
//	{"steps": ["ship", "invoice"]}
//	{"decision_point_outcome": {"type": "create_steps", "step_names": ["ship"]}}
//	{"decision_point_outcome": {"type": "no_branches"}}

// maxNamed limits the number of step names in a message about a decision.
const maxNamed = 20

// parseSelectedDependents returns the dependents that a decision result selects. If the result is
// invalid, the error describes why.
func parseSelectedDependents(result json.RawMessage, dependents []string) ([]string, error) {
	named, err := parseNamedSteps(result)
	if err != nil {
		return nil, err
	}
	for _, name := range named {
		if !slices.Contains(dependents, name) {
			return nil, fmt.Errorf("%q does not depend directly on the decision; direct dependents: %s",
				payload.CleanText(name, 128), formatSome(dependents))
		}
	}
	chosen := []string{}
	for _, name := range dependents {
		if slices.Contains(named, name) {
			chosen = append(chosen, name)
		}
	}
	return chosen, nil
}

func parseNamedSteps(result json.RawMessage) ([]string, error) {
	const forms = `it must be {"steps": ["…"]} or {"decision_point_outcome": {"type": "create_steps", "step_names": ["…"]}}`
	var doc map[string]json.RawMessage
	if json.Unmarshal(result, &doc) != nil || doc == nil {
		return nil, errors.New("the result must be an object: " + forms)
	}
	steps, short := doc["steps"]
	outcome, long := doc["decision_point_outcome"]
	switch {
	case short && long:
		return nil, errors.New("the result has both steps and decision_point_outcome: set only one of them")
	case short:
		return parseNameList("steps", steps)
	case !long:
		return nil, errors.New("the result selects no steps: " + forms)
	}
	var o map[string]json.RawMessage
	var kind string
	if json.Unmarshal(outcome, &o) != nil || json.Unmarshal(o["type"], &kind) != nil {
		return nil, errors.New("missing decision_point_outcome.type: must be create_steps or no_branches")
	}
	switch kind {
	case "no_branches":
		return nil, nil
	case "create_steps":
		return parseNameList("decision_point_outcome.step_names", o["step_names"])
	default:
		return nil, fmt.Errorf("invalid decision_point_outcome.type %q: must be create_steps or "+
			"no_branches", payload.CleanText(kind, 128))
	}
}

func parseNameList(key string, doc json.RawMessage) ([]string, error) {
	var names []*string // pointers distinguish null from strings
	if json.Unmarshal(doc, &names) != nil || names == nil || slices.Contains(names, nil) {
		return nil, fmt.Errorf("%s must be a list of names", key)
	}
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = *n
	}
	return list, nil
}

// formatSome joins up to maxNamed names and counts the rest.
func formatSome(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxNamed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	default:
		return strings.Join(names, ", ")
	}
}

// withDecision adds the chosen dependents to the outcome of a decision. An invalid result becomes a
// permanent failure.
func (v outcome) withDecision(d postgres.Decision) (outcome, error) {
	var result tasker.StepResult
	if err := json.Unmarshal(v.Body, &result); err != nil {
		return v, fmt.Errorf("read the result of a decision: %w", err)
	}
	chosen, wrong := parseSelectedDependents(result.Result, d.Dependents)
	if wrong != nil {
		return v.withDecisionError(d, wrong)
	}
	var err error
	result.GoesOn = chosen
	v.Reason = "selected no steps"
	if len(chosen) > 0 {
		v.Reason = payload.CleanText("selected "+formatSome(chosen), maxSkipReason)
	}
	if v.Body, err = json.Marshal(result); err == nil && v.Digest != nil {
		v.Digest = v.computeDigest()
	}
	return v, err
}

// withDecisionError converts the outcome into a failure that describes the invalid result.
func (v outcome) withDecisionError(d postgres.Decision, wrong error) (outcome, error) {
	f := tasker.Failure{Type: tasker.InvalidDecision, Message: "the result does not select the next steps: " + wrong.Error()}
	worker := ""
	if v.Worker != nil {
		worker = v.Worker.String()
	}
	var err error
	v.Event, v.ResultSize = core.Fail, 0
	v.setFailure(f)
	v.unstorable = tasker.Errorf(tasker.Invalid, "step %s: %s", d.Name, f.Message)
	if v.Body, err = encodeFailure(f, worker); err == nil && v.Digest != nil {
		v.Digest = v.computeDigest()
	}
	return v, err
}

// decisionReader reads decisions. Databases and transactions implement it.
type decisionReader interface {
	Decisions(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]postgres.Decision, error)
}

// readDecisions adds the chosen dependents to successful decisions among the outcomes and returns
// the indexes of these.
func readDecisions(ctx context.Context, from decisionReader, list []outcome) ([]int, error) {
	var steps []tasker.StepRef
	for _, v := range list {
		if v.To() == tasker.StepComplete {
			steps = append(steps, tasker.StepRef{TaskUUID: v.TaskUUID, StepUUID: v.StepUUID})
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	found, err := from.Decisions(ctx, steps)
	if err != nil {
		return nil, err
	}
	var read []int
	for i, v := range list {
		d, is := found[v.StepUUID]
		if !is || v.To() != tasker.StepComplete {
			continue
		}
		if list[i], err = v.withDecision(d); err != nil {
			return nil, err
		}
		read = append(read, i)
	}
	return read, nil
}

// reportDecisions applies the decisions among the outcomes separately. It returns the outcomes that
// remain to be applied: those of other steps, and decisions that did not apply.
func (e *Engine) reportDecisions(ctx context.Context, list []outcome, receipt *tasker.Receipt) ([]outcome, error) {
	var read []int
	err := retryTransient(ctx, func() (err error) {
		read, err = readDecisions(ctx, e.db, list)
		return err
	})
	if err != nil || len(read) == 0 {
		return list, err
	}
	decisions := pick(list, read)
	moved, _, err := e.concludeOrKeep(ctx, decisions, nil)
	if err != nil {
		return list, err
	}
	var remaining []outcome
	for i, v := range list {
		n := slices.Index(read, i)
		switch {
		case n < 0:
			remaining = append(remaining, v)
		case slices.Contains(moved, n):
			v.addTo(receipt)
		case decisions[n].undecided:
			receipt.Rejected = append(receipt.Rejected, newUnansweredRejection(v.StepUUID))
		default:
			remaining = append(remaining, v)
		}
	}
	return remaining, nil
}

// readDecisions returns the decisions among the steps that an operator completes.
func (a Action) readDecisions(ctx context.Context, tx *postgres.Tx, targets []postgres.Target) (map[tasker.ID]postgres.Decision, error) {
	var steps []tasker.StepRef
	for _, t := range targets {
		if t.IsDecision && a.op.Action == tasker.CompleteManually {
			steps = append(steps, t.StepRef)
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	return tx.Decisions(ctx, steps)
}

// decide returns the result to store when an operator completes a decision step. It returns a
// refusal if the action does not select the steps to run.
func (a Action) decide(t postgres.Target, d postgres.Decision) (json.RawMessage, error) {
	switch a.op.Action {
	case tasker.ResolveManually:
		return nil, toCoreTarget(t).Refusal("step %s is a decision and requires a result that selects the next steps: "+
			"complete it (complete_manually) with {\"steps\": [\"…\"]}", t.Name)
	case tasker.CompleteManually:
		chosen, wrong := parseSelectedDependents(a.op.Result, d.Dependents)
		if wrong != nil {
			return nil, toCoreTarget(t).Refusal("step %s is a decision, but the result does not select the next "+
				"steps: %w", t.Name, wrong)
		}
		return json.Marshal(tasker.StepResult{Success: true, Result: a.op.Result, Metadata: a.op.Metadata, GoesOn: chosen})
	default:
		return nil, nil
	}
}
