package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// expandChunk limits the items that one transaction creates. Further map steps are left to the next
// one.
const expandChunk = 1000

// itemBytes limits the total size of the item results in the result of a map step. The margin is
// for the rest of the document.
const itemBytes = tasker.MaxDocumentBytes - 1000

// expandItems evaluates the list of a map step. If the list is empty, the step is complete. The
// error may be an [expression.Failure].
func (d *decision) expandItems(ctx context.Context, s postgres.UndecidedStep, of tasker.StepTemplate, p *expression.Program) (stepDecision, error) {
	values, err := d.loadValues(ctx, s, p)
	if err != nil {
		return stepDecision{}, err
	}
	list, err := evaluateOnce(d.known, newEvaluationKey(s, expression.Over, p), values, func(ctx context.Context) ([]json.RawMessage, error) {
		return p.List(ctx, values, expression.ListLimits{Elements: tasker.MaxMapItems, Bytes: tasker.MaxMapBytes, ElementBytes: tasker.MaxDocumentBytes})
	})
	if err != nil {
		return stepDecision{}, err
	}
	if len(list) == 0 {
		return d.newJoinOutcome(s, postgres.ItemResults{Results: json.RawMessage("[]")})
	}
	if of.Chunk > 0 {
		list = splitChunks(list, of.Chunk)
	}
	m := postgres.ExpandedMap{StepRef: tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}, Items: list, Bytes: make([]int32, len(list)), Limit: of.MaxParallel}
	total := 0
	for i, item := range list {
		size, err := payload.Measure(item, payload.Limits{})
		if err != nil {
			what := "element"
			if of.Chunk > 0 {
				what = "chunk"
			}
			return stepDecision{}, &expression.Failure{Text: p.Text(), Reason: fmt.Sprintf("%s %d of the list: %s", what, i, err)}
		}
		if total += size; total > tasker.MaxMapBytes {
			return stepDecision{}, &expression.Failure{Text: p.Text(), Reason: fmt.Sprintf("the list is larger than %d bytes", tasker.MaxMapBytes)}
		}
		m.Bytes[i] = int32(size)
		m.IDs = append(m.IDs, tasker.NewID())
	}
	m.Context, m.Omitted = omitLists(values.Context, p.ListsInContext())
	m.ListedBy = p.ListsInResults()
	slices.SortFunc(m.IDs, func(a, b tasker.ID) int { return slices.Compare(a[:], b[:]) })
	return stepDecision{becomes: core.VerdictRun, expand: &m}, nil
}

// omitLists removes the values at the given paths from a context. It returns the remaining
// context and JSON Pointers to the removed values, or nil for both if it removed none.
func omitLists(doc json.RawMessage, paths [][]string) (without json.RawMessage, omitted []string) {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, path := range paths {
		rest := omitPath(doc, path)
		if rest == nil {
			continue
		}
		names := mapSlice(path, escape.Replace)
		doc, without, omitted = rest, rest, append(omitted, "/"+strings.Join(names, "/"))
	}
	return without, omitted
}

// omitPath removes the value at a path from an object. It returns nil if the object has no such
// value.
func omitPath(doc json.RawMessage, path []string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(doc, &object) != nil || object[path[0]] == nil {
		return nil
	}
	if len(path) == 1 {
		delete(object, path[0])
	} else if object[path[0]] = omitPath(object[path[0]], path[1:]); object[path[0]] == nil {
		return nil
	}
	rest, err := json.Marshal(object)
	if err != nil { // impossible: it was decoded from JSON
		return nil
	}
	return rest
}

// splitChunks groups elements into JSON arrays of the given size. The last one may be shorter.
func splitChunks(list []json.RawMessage, size int) []json.RawMessage {
	out := make([]json.RawMessage, 0, (len(list)+size-1)/size)
	for part := range slices.Chunk(list, size) {
		elements := mapSlice(part, func(doc json.RawMessage) []byte { return doc })
		out = append(out, slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'}))
	}
	return out
}

// expandMap creates the items of a map step.
func (d *decision) expandMap(ctx context.Context, m postgres.ExpandedMap) error {
	namespaces, err := d.tx.ExpandMap(ctx, m)
	d.namespaces = append(d.namespaces, namespaces...)
	d.made += len(m.Items)
	return err
}

// joinItems completes a map step when all its items are done.
func (d *decision) joinItems(ctx context.Context, s postgres.UndecidedStep) (stepDecision, error) {
	if s.ParentsOpen > 0 {
		return stepDecision{becomes: core.VerdictWait}, nil
	}
	r, err := d.tx.ItemResults(ctx, tasker.StepRef{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID}, itemBytes)
	if err != nil {
		return stepDecision{}, err
	}
	return d.newJoinOutcome(s, r)
}

// mapResult is the result of a map step. It contains the results of the items in order or, if they
// are too large, the API path that returns them.
type mapResult struct {
	Items     int             `json:"items"`
	Tolerated json.RawMessage `json:"tolerated,omitempty"`
	Results   json.RawMessage `json:"results,omitempty"`
	Truncated bool            `json:"results_truncated,omitempty"`
	ReadAt    string          `json:"read_at,omitempty"`
}

// newJoinOutcome returns the outcome of a map step whose items are all done.
func (d *decision) newJoinOutcome(s postgres.UndecidedStep, r postgres.ItemResults) (stepDecision, error) {
	result := mapResult{Items: r.Items, Tolerated: r.Tolerated, Results: r.Results}
	body, size, err := encodeMapResult(result)
	if r.Results == nil || err != nil { // the results may also have too many values or be nested too deeply
		result.Results, result.Truncated = nil, true
		result.ReadAt = tasker.ItemResultsPath(s.TaskUUID, s.Name)
		if body, size, err = encodeMapResult(result); err != nil {
			return stepDecision{}, err
		}
	}
	return stepDecision{move: outcome{Outcome: core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepPending, Fence: s.Fence,
		Event: core.JoinItems, Body: body, ResultSize: size,
	}}}, nil
}

func encodeMapResult(r mapResult) (body json.RawMessage, size int, err error) {
	doc, err := json.Marshal(r)
	if err != nil {
		return nil, 0, fmt.Errorf("encode the result of a map step: %w", err)
	}
	return encodeResult(doc, nil)
}

// tolerateFailures skips failed items that their map steps tolerate. It returns the outcomes that
// remain. Because it runs in the transaction of the failure, a tolerated failure is not announced.
func (e *Engine) tolerateFailures(ctx context.Context, tx *postgres.Tx, list []outcome, done postgres.Concluded) (postgres.Concluded, error) {
	failed := mapSlice(done.FailedForGood, func(i int) tasker.StepRef { return list[i].Ref() })
	maps, err := tx.FailedMaps(ctx, failed)
	if err != nil {
		return done, err
	}
	var tolerances []core.Tolerance
	for _, m := range maps {
		left, err := e.remainingTolerance(ctx, tx, m)
		if err != nil {
			return done, err
		}
		if left > 0 {
			tolerances = append(tolerances, core.Tolerance{Map: m.StepRef, Name: m.Name, Left: left})
		}
	}
	if len(tolerances) == 0 {
		return done, nil
	}
	skipped, err := tx.TolerateItems(ctx, failed, tolerances)
	if err != nil {
		return done, err
	}
	done.FailedForGood = slices.DeleteFunc(done.FailedForGood, func(i int) bool { return skipped.Steps[list[i].StepUUID] })
	done.Enqueued = append(done.Enqueued, skipped.Enqueued...)
	done.Namespaces = append(done.Namespaces, skipped.Namespaces...)
	done.ToDecide = append(done.ToDecide, skipped.ToDecide...)
	return done, nil
}

// remainingTolerance returns how many more items of a map step may fail.
func (e *Engine) remainingTolerance(ctx context.Context, tx *postgres.Tx, m postgres.FailedMap) (int, error) {
	g, err := e.loadGraphByID(ctx, tx, m.TemplateUUID)
	if err != nil {
		return 0, err
	}
	place, ok := g.byName[m.Name]
	if !ok {
		return 0, nil
	}
	most := g.stored.Steps[place].Tolerate.Max(m.Total)
	if most == 0 {
		return 0, nil
	}
	n, err := tx.ToleratedItems(ctx, m.StepRef)
	return most - n, err
}

// applyToItems applies the action to a map step that waits for its items. A reset applies to all
// failed items. Other actions end the open items and then the map step itself.
func (a Action) applyToItems(ctx context.Context, tx *postgres.Tx, target postgres.Target) (acted ActionResult,
	err error) {
	if _, err := toCoreTarget(target).Next(a.op.Action, a.op.Interrupt); err != nil {
		return ActionResult{}, err
	}
	if a.computes != nil {
		return ActionResult{}, toCoreTarget(target).Refusal("step %s is waiting for its items: complete the items "+
			"individually by expression", target.StepUUID)
	}
	reset := a.op.Action == tasker.ResetForRetry
	refs, err := tx.OpenItems(ctx, target.StepRef, reset)
	if err != nil {
		return ActionResult{}, err
	}
	if len(refs) == 0 {
		return ActionResult{}, toCoreTarget(target).Refusal("step %s is waiting for %d of its items, none of which "+
			"has failed", target.StepUUID, target.OpenItems)
	}
	items, err := tx.LockTargets(ctx, refs)
	if err != nil {
		return ActionResult{}, err
	}
	onItem := a
	if !reset {
		onItem.event, onItem.body, onItem.size = core.Resolve, nil, 0
	}
	list := make([]core.Outcome, len(items))
	for i, item := range items {
		list[i] = onItem.newOutcome(item, onItem.body)
	}
	acted.Steps = []StepActionResult{{Target: target, Fence: target.Fence}}
	r := a.newRepair(target)
	r.Data["items"] = len(items)
	concluded, err := tx.ConcludeSteps(ctx, list)
	if err != nil {
		return acted, err
	}
	if len(concluded.Moved) != len(list) {
		return acted, fmt.Errorf("only %d of %d locked items moved", len(concluded.Moved), len(list))
	}
	if !reset {
		acted.Steps[0].Fence++
		if concluded, err = tx.ConcludeSteps(ctx, []core.Outcome{a.newOutcome(target, a.body)}); err != nil {
			return acted, err
		}
	}
	return a.applyFollowUp(ctx, tx, acted, followUp{concluded, append(refs, target.StepRef), []postgres.Repair{r}, target.StepRef})
}
