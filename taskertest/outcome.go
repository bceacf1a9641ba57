package taskertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// Outcome determines how one attempt of a step ends.
type Outcome struct {
	result any
	err    error
	ends   outcomeKind
	call   func(*worker.Call) (any, error)
	saves  []any
}

type outcomeKind int

const (
	returns outcomeKind = iota // with a result or an error
	hangs
	crashes
)

// Succeed ends an attempt with a result: JSON text, or any value to encode.
func Succeed(result any) Outcome { return Outcome{result: result} }

// Fail ends an attempt with a failure that is retried by the policy of the step.
func Fail(message string) Outcome { return FailWith(errors.New(message)) }

// FailPermanently ends an attempt with a failure that is not retried.
func FailPermanently(message string) Outcome { return FailWith(worker.Permanent(errors.New(message))) }

// FailAfter ends an attempt with a failure that requests a minimum delay before the next attempt.
func FailAfter(d time.Duration, message string) Outcome {
	return FailWith(worker.RetryAfter(d, errors.New(message)))
}

// FailWith ends an attempt with an error, such as a [worker.Error].
func FailWith(err error) Outcome { return Outcome{err: err} }

// Call ends an attempt with the values returned by f.
func Call(f func(*worker.Call) (any, error)) Outcome { return Outcome{call: f} }

// Hang makes an attempt run until its timeout, in a live worker.
func Hang() Outcome { return Outcome{ends: hangs} }

// Crash makes the worker unresponsive during the attempt: its lease expires.
func Crash() Outcome { return Outcome{ends: crashes} }

// Saving makes the attempt save checkpoints before it ends: JSON text, or any value to encode.
// Later attempts receive the last one.
func (o Outcome) Saving(checkpoints ...any) Outcome {
	o.saves = slices.Concat(o.saves, checkpoints)
	return o
}

// script is a sequence of outcomes.
type script struct {
	left   []Outcome
	always *Outcome
	played int
}

// Script defines the outcomes of the attempts of a step, of all steps with a handler, or of one
// item of a map step, such as refund[17]. The script of an item takes precedence over that of its
// step. Attempts of all tasks consume a script in order; repeated calls append to it. When it is
// exhausted, the handler of the worker is called, and the test fails if there is none.
func (w *Workflow) Script(stepOrHandler string, outcomes ...Outcome) {
	w.t.Helper()
	s := w.scriptFor(stepOrHandler)
	s.left = append(s.left, outcomes...)
}

// Always defines the outcome of all attempts without a scripted outcome.
func (w *Workflow) Always(stepOrHandler string, o Outcome) {
	w.t.Helper()
	w.scriptFor(stepOrHandler).always = &o
}

func (w *Workflow) scriptFor(name string) *script {
	w.t.Helper()
	of := name
	if step, isItem := splitItemName(name); isItem {
		of = step
	}
	called := func(s tasker.StepTemplate) bool {
		if of != name {
			return s.Name == of && s.Type == tasker.MapStep
		}
		undo, undone := s.Undo()
		return s.HasHandler() && (s.Name == name || s.Handler.Callable == name) || undone && (undo.Name == name || undo.Handler.Callable == name)
	}
	if !slices.ContainsFunc(w.templates, func(t tasker.Template) bool { return slices.ContainsFunc(t.Steps, called) }) {
		w.t.Fatalf("no template has a step or handler %q that a worker executes", name)
	}
	if w.scripts[name] == nil {
		w.scripts[name] = &script{}
	}
	return w.scripts[name]
}

// splitItemName returns the name of the map step of an item.
func splitItemName(name string) (step string, isItem bool) {
	step, _, isItem = strings.Cut(name, "[")
	return step, isItem
}

// scriptNames returns the names of the scripts that apply to an attempt.
func scriptNames(a tasker.Assignment) []string {
	if step, isItem := splitItemName(a.Name); isItem {
		return []string{a.Name, step, a.Handler}
	}
	return []string{a.Name, a.Handler}
}

// nextOutcome returns the scripted outcome of an attempt.
func (w *Workflow) nextOutcome(a tasker.Assignment) (o Outcome, ok bool) {
	for _, name := range scriptNames(a) {
		s := w.scripts[name]
		switch {
		case s == nil:
		case len(s.left) > 0:
			o, s.left = s.left[0], s.left[1:]
			s.played++
			return o, true
		case s.always != nil:
			return *s.always, true
		}
	}
	return Outcome{}, false
}

// execute runs one attempt and reports its outcome.
func (w *Workflow) execute(a tasker.Assignment) {
	w.t.Helper()
	o, scripted := w.nextOutcome(a)
	run := w.run
	for _, checkpoint := range o.saves {
		w.must(w.engine.SaveCheckpoint(w.t.Context(), w.worker, a.Lease(), w.encodeDocument("a checkpoint of step "+a.Name, checkpoint)))
	}
	switch {
	case o.ends == hangs:
		w.held = append(w.held, a.Lease())
		return
	case o.ends == crashes:
		return
	case scripted:
		run = worker.New(nil, worker.Options{})
		run.HandleRaw(a.Handler, o.handle)
	case run == nil || !slices.Contains(run.Handlers(), a.Handler):
		w.t.Fatalf("attempt %d of step %s of task %s: %s\n%s", a.Attempt, a.Name, a.TaskUUID, w.describeMissing(a), w.describe(a.TaskUUID))
	}
	ctx := worker.WithCheckpoints(w.t.Context(), func(value json.RawMessage) error {
		return w.engine.SaveCheckpoint(w.t.Context(), w.worker, a.Lease(), value)
	})
	ctx = worker.WithDocuments(ctx, w.engine)
	w.fetch(&a)
	if a.Deadline != nil { // the handler uses the real clock
		end := time.Now().Add(a.Deadline.Sub(w.Now()))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
		a.Deadline = &end
	}
	out, _ := run.Execute(ctx, a) // the error is in the outcome
	receipt, err := w.engine.Report(w.t.Context(), w.worker, []tasker.Outcome{out}, 0)
	w.must(err)
	for _, r := range receipt.Rejected {
		w.t.Fatalf("the report of step %s, attempt %d, was rejected: %s: %s", a.Name, a.Attempt, r.Code, r.Message)
	}
}

// fetch reads the referenced results of an assignment.
func (w *Workflow) fetch(a *tasker.Assignment) {
	w.t.Helper()
	for name, ref := range a.DependencyRefs {
		doc, err := w.engine.StepResult(w.t.Context(), a.TaskUUID, ref.StepUUID)
		w.must(err)
		a.DependencyResults[name] = doc
	}
	a.DependencyRefs = nil
}

func (w *Workflow) describeMissing(a tasker.Assignment) string {
	for _, name := range scriptNames(a) {
		if s := w.scripts[name]; s != nil {
			return fmt.Sprintf("the script of %s ended after %d outcomes, and no worker has "+
				"handler %s", name, s.played, a.Handler)
		}
	}
	return fmt.Sprintf("the step has no script, and no worker has handler %s", a.Handler)
}

// handle implements [worker.RawHandler] with this outcome.
func (o Outcome) handle(_ context.Context, c *worker.Call) (json.RawMessage, error) {
	if o.call != nil {
		o.result, o.err = o.call(c)
	}
	if o.err != nil {
		return nil, o.err
	}
	return encode(o.result)
}

// encode returns JSON text unchanged and encodes any other value.
func encode(v any) (json.RawMessage, error) {
	var doc []byte
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		doc = []byte(v)
	case []byte:
		doc = v
	case json.RawMessage:
		doc = v
	default:
		return json.Marshal(v)
	}
	if !json.Valid(doc) {
		return nil, fmt.Errorf("%q is not JSON: a string is used as JSON, other values are encoded", doc)
	}
	return doc, nil
}
