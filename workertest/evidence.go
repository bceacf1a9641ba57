package workertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// Evidence contains the inputs of a failed handler, read from an evidence file. Such files are
// exported by `tasker-ctl dlq export`, on the page of an investigation and by the API.
type Evidence struct {
	tasker.EvidenceFile

	name    string
	unknown []string // places without the original value
}

// maxFile limits the size of an evidence file: the maximum response, with room for line breaks.
const maxFile = 4 * tasker.MaxAnswerBytes

// Load reads an evidence file. The test fails if the file is invalid.
//
//	e := workertest.Load(t, "testdata/evidence.json")
//	result, err := e.Run(t, w)
func Load(t testing.TB, name string) *Evidence {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		t.Fatal(err)
	}
	e := &Evidence{name: name}
	if err := e.read(doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return e
}

func (e *Evidence) read(doc []byte) error {
	var head struct {
		Format  string
		Version int
	}
	switch err := json.Unmarshal(doc, &head); {
	case len(doc) > maxFile:
		return fmt.Errorf("not an evidence file: larger than %d bytes", maxFile)
	case err != nil || head.Format != tasker.EvidenceFormat:
		return fmt.Errorf("not an evidence file: create one with tasker-ctl dlq export ENTRY > %s", e.name)
	case head.Version != tasker.EvidenceVersion:
		return fmt.Errorf("unsupported version %d, want %d: use the workertest version of "+
			"the server", head.Version, tasker.EvidenceVersion)
	}
	if err := json.Unmarshal(doc, &e.EvidenceFile); err != nil {
		return fmt.Errorf("cannot decode the file: %w", err)
	}
	if e.Step == nil || e.Input == nil {
		return fmt.Errorf("investigation %s has no step, so there is no handler to run", e.Investigation.EntryUUID)
	}
	e.Input.Context, e.Input.Initialization, e.Input.Item = compact(e.Input.Context), compact(e.Input.Initialization), compact(e.Input.Item)
	for name, doc := range e.Input.DependencyResults {
		e.Input.DependencyResults[name] = compact(doc)
	}
	e.unknown = slices.Clone(e.Redacted)
	for _, o := range e.Omitted {
		e.unknown = append(e.unknown, o.Place)
	}
	return nil
}

// Run calls the handler of the step with its original inputs, as [Run] does, with the timeout of
// the step. The test fails if values are missing because they were redacted or omitted: set them
// with [Evidence.Set], or accept them with [Evidence.AcceptRedacted].
func (e *Evidence) Run(t testing.TB, w *worker.Worker) (json.RawMessage, error) {
	t.Helper()
	if len(e.unknown) > 0 {
		t.Fatalf("%s lacks the handler's input at %s: set the values with Set, or accept the replacements with "+
			"AcceptRedacted", e.name, strings.Join(e.unknown, ", "))
	}
	ctx := t.Context()
	if e.Step.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(e.Step.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	return execute(ctx, w, e.assignment(ctx))
}

// Set replaces a missing value. place is a JSON pointer from redacted or omitted; value is JSON
// as in a [Step]. The test fails if the place is not missing.
func (e *Evidence) Set(t testing.TB, place string, value any) {
	t.Helper()
	e.checkKnown(t, place)
	doc := encodeDocument(t, place, value)
	keys := splitPlace(place)
	switch in := e.Input; {
	case keys[0] == "dependency_results" && len(keys) > 1:
		in.DependencyResults[keys[1]] = replaceValue(t, in.DependencyResults[keys[1]], keys[2:], doc)
	case keys[0] == "context":
		in.Context = replaceValue(t, in.Context, keys[1:], doc)
	case keys[0] == "initialization":
		in.Initialization = replaceValue(t, in.Initialization, keys[1:], doc)
	case keys[0] == "item":
		in.Item = replaceValue(t, in.Item, keys[1:], doc)
	default:
		t.Fatalf("a step's input has no %s", place)
	}
}

// AcceptRedacted accepts the replacement values at some places, such as "[redacted]", because the
// handler does not need the original values. If no place is set, it accepts all of them.
func (e *Evidence) AcceptRedacted(t testing.TB, places ...string) {
	t.Helper()
	if len(places) == 0 {
		e.unknown = nil
	}
	for _, p := range places {
		e.checkKnown(t, p)
	}
}

// checkKnown removes a place from the unknown ones. The test fails if it is not one of them.
func (e *Evidence) checkKnown(t testing.TB, place string) {
	t.Helper()
	i := slices.Index(e.unknown, place)
	if i < 0 {
		t.Fatalf("%s already has the value at %q; missing are %q", e.name, place, e.unknown)
	}
	e.unknown = slices.Delete(e.unknown, i, i+1)
}

func (e *Evidence) assignment(ctx context.Context) tasker.Assignment {
	a := tasker.Assignment{
		StepUUID: e.Step.StepUUID, TaskUUID: e.Task.TaskUUID, Namespace: e.Task.Namespace, TaskName: e.Task.Name, TaskVersion: e.Task.Version,
		Name: e.Step.Name, Handler: e.Step.Handler, Attempt: e.Input.Attempt, MaxAttempts: e.Step.MaxAttempts, Fence: 1,
		CorrelationID: e.Task.CorrelationID, Context: e.Input.Context, Initialization: e.Input.Initialization, DependencyResults: e.Input.DependencyResults,
		Item: e.Input.Item, Index: e.Input.Index,
	}
	if deadline, ok := ctx.Deadline(); ok {
		a.Deadline = &deadline
	}
	return a
}

// compact formats JSON as in the response to a claim.
func compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, doc) != nil {
		return doc // no document
	}
	return b.Bytes()
}

var unescapes = strings.NewReplacer("~1", "/", "~0", "~")

// splitPlace returns the keys of a JSON pointer.
func splitPlace(place string) []string {
	keys := strings.Split(strings.TrimPrefix(place, "/"), "/")
	for i, k := range keys {
		keys[i] = unescapes.Replace(k)
	}
	return keys
}

// replaceValue returns doc with a value at a place.
func replaceValue(t testing.TB, doc json.RawMessage, keys []string, value json.RawMessage) json.RawMessage {
	t.Helper()
	if len(keys) == 0 {
		return value
	}
	var list []json.RawMessage
	if json.Unmarshal(doc, &list) == nil && list != nil {
		i, err := strconv.Atoi(keys[0])
		if err != nil || i < 0 || i >= len(list) {
			t.Fatalf("no element %q in a list of %d", keys[0], len(list))
		}
		list[i] = replaceValue(t, list[i], keys[1:], value)
		return encode(t, list)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil {
		t.Fatalf("no member %q: %v", keys[0], err)
	}
	object[keys[0]] = replaceValue(t, object[keys[0]], keys[1:], value)
	return encode(t, object)
}

// encode encodes a value without escaping HTML in strings.
func encode(t testing.TB, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
