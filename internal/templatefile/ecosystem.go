package templatefile

import (
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
)

// Types of steps of the Tasker ecosystem that are read as others.
const (
	convergence tasker.StepType = "deferred_convergence" // branches come together in it: standard, with another join
	batchable   tasker.StepType = "batchable"            // its result names batches: standard
	batchWorker tasker.StepType = "batch_worker"         // runs once for each of them: map
)

// checkConvergence returns the type that a step has here.
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
		kind.fault("means join: none_failed, and the step has another join; remove it, or write type: standard")
	case len(s.Dependencies) == 0:
		kind.fault("the step has no dependencies to join")
	}
	return tasker.StandardStep
}

// joinOf returns the join that a step has here. Behind one step of type batch_worker a convergence is
// skipped with that; when there are no batches, that is complete.
func (v value) joinOf(s tasker.StepTemplate, g graph) tasker.Join {
	_, written := v.get("join")
	if s.Type == convergence && !written && len(s.Dependencies) == 1 && g.steps[s.Dependencies[0]].Type == batchWorker {
		return ""
	}
	return s.Join
}

// withBatches has the handler of a step be given its batch_config as well.
func withBatches(s *tasker.StepTemplate, config json.RawMessage) {
	given := map[string]json.RawMessage{}
	if len(config) == 0 || len(s.Handler.Initialization) > 0 && json.Unmarshal(s.Handler.Initialization, &given) != nil {
		return
	}
	if _, twice := given["batch_config"]; !twice {
		given["batch_config"] = config
	}
	s.Handler.Initialization, _ = json.Marshal(given) // of documents that were read a moment ago
}

// batchesOf is the list over which the step runs behind a step that names batches. A result that
// names neither batches nor that there are none is an error of the expression.
func batchesOf(step string) string {
	outcome := fmt.Sprintf("results[%q].batch_processing_outcome", step)
	return outcome + `.type == "no_batches" ? [] : ` + outcome + ".cursor_configs"
}

// checkBatches has a step of type batch_worker run over the batches that the step before it names,
// and notes where the two do not fit. was is the type that is written.
func (v value) checkBatches(s *tasker.StepTemplate, was tasker.StepType, g graph, steps []tasker.StepTemplate) {
	kind, _ := v.get("type")
	config, configured := v.get("batch_config")
	switch {
	case was == batchable:
		kind.checkBatchable(s, g, steps)
	case configured && was != batchWorker:
		config.fault("only a step of type batch_worker has batch_config")
	}
	if was != batchWorker {
		return
	}
	var from []string
	for _, name := range s.Dependencies {
		if g.steps[name].Type == batchable {
			from = append(from, name)
		}
	}
	if len(from) != 1 {
		kind.fault("the step must depend on one step of type batchable, whose result names its batches; for any other list write type: map and over")
		return
	}
	if _, twice := v.get("over"); !twice {
		s.Over = batchesOf(from[0])
	}
	if undo, ok := v.get("on_failure"); ok {
		undo.fault("a step of type batch_worker has no on_failure: what some of its items have done could not be undone")
	}
	if !configured {
		return
	}
	if name, ok := config.get("worker_template"); ok && isText(name.node) && name.node.Value != s.Name {
		name.fault("must be the name of the step, %s, which runs once for each batch", quote(s.Name))
	}
	if handler, ok := v.get("handler"); ok {
		if initialization, ok := handler.get("initialization"); ok {
			if again, twice := initialization.get("batch_config"); twice {
				again.fault("is what the handler is given of batch_config of the step; keep one of them")
			}
		}
	}
}

// checkBatchable notes that no step runs the batches of a step, or that several would.
func (v value) checkBatchable(s *tasker.StepTemplate, g graph, steps []tasker.StepTemplate) {
	workers := 0
	for _, o := range steps {
		for _, name := range o.Dependencies {
			if name == s.Name && g.steps[o.Name].Type == batchWorker {
				workers++
			}
		}
	}
	switch {
	case workers == 0:
		v.fault("no step of type batch_worker depends on the step, so that nothing runs its batches")
	case workers > 1:
		v.fault("%d steps of type batch_worker depend on the step, and each would run all of its batches", workers)
	}
}
