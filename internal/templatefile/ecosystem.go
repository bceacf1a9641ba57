package templatefile

import (
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
)

// Step types of the Tasker ecosystem that are mapped to other types.
const (
	convergence tasker.StepType = "deferred_convergence" // joins branches: standard, with another join
	batchable   tasker.StepType = "batchable"            // returns batches: standard
	batchWorker tasker.StepType = "batch_worker"         // runs once per batch: map
)

// checkConvergence checks a convergence and returns the type to which the type of a step is mapped.
func (v value) checkConvergence(s tasker.StepTemplate) tasker.StepType {
	switch s.Type {
	case batchable:
		return tasker.StandardStep
	case batchWorker:
		return tasker.MapStep
	case convergence:
	default:
		return s.Type
	}
	kind, ok := v.get("type")
	switch {
	case !ok:
	case s.Join != tasker.JoinNoneFailed:
		kind.addFault("implies join: none_failed, but the step has another join: remove that, or set type: standard")
	case len(s.Dependencies) == 0:
		kind.addFault("the step has no dependencies to join")
	}
	return tasker.StandardStep
}

// readJoin returns the join of a step. A convergence that depends only on a batch_worker step is
// skipped if that step is skipped; if there are no batches, that step is complete.
func (v value) readJoin(s tasker.StepTemplate, g graph) tasker.Join {
	_, written := v.get("join")
	if s.Type == convergence && !written && len(s.Dependencies) == 1 && g.steps[s.Dependencies[0]].Type == batchWorker {
		return ""
	}
	return s.Join
}

// addBatches adds the batch_config of a step to the initialization of its handler.
func addBatches(s *tasker.StepTemplate, config json.RawMessage) {
	initialization := map[string]json.RawMessage{}
	if raw := s.Handler.Initialization; len(config) == 0 || len(raw) > 0 && json.Unmarshal(raw, &initialization) != nil {
		return
	}
	if _, duplicate := initialization["batch_config"]; !duplicate {
		initialization["batch_config"] = config
	}
	s.Handler.Initialization, _ = json.Marshal(initialization) // cannot fail: it was just decoded
}

// batchStepName returns the expression for the batches in the result of a batchable step. The
// expression fails if the result contains neither batches nor the outcome no_batches.
func batchStepName(step string) string {
	outcome := fmt.Sprintf("results[%q].batch_processing_outcome", step)
	return outcome + `.type == "no_batches" ? [] : ` + outcome + ".cursor_configs"
}

// checkBatches makes a batch_worker step run over the batches of its dependency, and records a
// fault if the two do not match. written is the type in the document.
func (v value) checkBatches(s *tasker.StepTemplate, written tasker.StepType, g graph, steps []tasker.StepTemplate) {
	kind, _ := v.get("type")
	config, configured := v.get("batch_config")
	switch {
	case written == batchable:
		kind.checkBatchable(s, g, steps)
	case configured && written != batchWorker:
		config.addFault("only a step of type batch_worker can have batch_config")
	}
	if written != batchWorker {
		return
	}
	var from []string
	for _, name := range s.Dependencies {
		if g.steps[name].Type == batchable {
			from = append(from, name)
		}
	}
	if len(from) != 1 {
		kind.addFault("the step must depend on exactly one step of type batchable, which provides its batches; for " +
			"other lists use type: map and over")
		return
	}
	if _, has := v.get("over"); !has {
		s.Over = batchStepName(from[0])
	}
	if undo, ok := v.get("on_failure"); ok {
		undo.addFault("a step of type batch_worker cannot have on_failure: its completed items could not be compensated")
	}
	if !configured {
		return
	}
	if name, ok := config.get("worker_template"); ok && isText(name.node) && name.node.Value != s.Name {
		name.addFault("must be the name of the step, %s, which runs once for each batch", quoteText(s.Name))
	}
	handler, _ := v.get("handler")
	initialization, _ := handler.get("initialization")
	if duplicate, ok := initialization.get("batch_config"); ok {
		duplicate.addFault("conflicts with batch_config of the step: keep only one of them")
	}
}

// checkBatchable records a fault unless exactly one step runs the batches of s.
func (v value) checkBatchable(s *tasker.StepTemplate, g graph, steps []tasker.StepTemplate) {
	workers := 0
	for _, o := range steps {
		if g.steps[o.Name].Type == batchWorker && slices.Contains(o.Dependencies, s.Name) {
			workers++
		}
	}
	switch {
	case workers == 0:
		v.addFault("no step of type batch_worker depends on the step, so its batches would never run")
	case workers > 1:
		v.addFault("%d steps of type batch_worker depend on the step, but each would run all batches", workers)
	}
}
