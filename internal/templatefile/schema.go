package templatefile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// schemaURL is the URL that identifies an input schema in the library. No URL is ever loaded.
const schemaURL = "https://tasker.invalid/input_schema"

// An Input checks the contexts of tasks against the input schema of their template. It is safe for
// concurrent use. A nil Input accepts everything.
type Input struct {
	namespace string // for fair turns
	schema    json.RawMessage
	spare     chan *checker // each in use by one Check at a time
}

// checker is a compiled schema with its meter.
type checker struct {
	schema *jsonschema.Schema
	meter  *meter
}

// CompileInput compiles the input schema of a template: JSON Schema, draft 2020-12 unless $schema
// names another one. Formats are checked, and $ref must refer to the schema itself. If schema is
// empty, it returns a nil Input. The error is Invalid and has a slice of [tasker.Fault] as details.
func CompileInput(namespace string, schema json.RawMessage) (*Input, error) {
	if len(schema) == 0 {
		return nil, nil
	}
	first, found := compile(schema)
	if len(found) > 0 {
		list := make([]tasker.Fault, len(found))
		for i, v := range found {
			list[i] = tasker.Fault{Path: v.path, Message: v.message}
		}
		return nil, tasker.Errorf(tasker.Invalid, "input_schema has %s", summarize(list, false)).WithDetails(list)
	}
	in := &Input{namespace: namespace, schema: schema, spare: make(chan *checker, checking.size+byTimers.size)}
	in.spare <- first
	return in, nil
}

// Check validates a context, as returned by [payload.Decode]. The error is Invalid and has a slice
// of [tasker.Fault] as details: all mismatches, up to a limit. All checks of one request share a
// budget, and namespaces take turns. If ctx ends first, the error is Unavailable.
func (in *Input) Check(ctx context.Context, budget *Budget, value any) error {
	if in == nil {
		return nil
	}
	if err := budget.turns.enter(ctx, in.namespace); err != nil {
		return wrapContextError(err)
	}
	defer budget.turns.leave()
	c := in.loadChecker()
	defer func() { in.spare <- c }() // never blocks: it has room for all concurrent checks
	err := c.check(ctx, budget, value)
	if err == nil {
		return nil
	}
	if interrupted, ok := errors.AsType[interruptedError](err); ok {
		return wrapContextError(interrupted.error)
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return tasker.Errorf(tasker.Invalid, "cannot check the context: %v", err)
	}
	var list faults
	for _, v := range collectViolations(invalid, value) {
		list.add(tasker.Fault{Path: v.path, Message: v.message})
	}
	return tasker.Errorf(tasker.Invalid, "the context does not match the template's input_schema: %s",
		summarize(list.list, list.more)).WithDetails(list.list)
}

// CheckForm checks the result of a step against the JSON Schema of its form. A step without a form
// accepts any result. It returns the errors of [Input.Check].
func CheckForm(ctx context.Context, namespace string, form, result json.RawMessage) error {
	in, err := CompileInput(namespace, form)
	if err != nil || in == nil {
		return err
	}
	value, _, err := payload.Decode(result, payload.Limits{})
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "cannot decode the result: %v", err)
	}
	err = in.Check(ctx, NewBudget(), value)
	var e *tasker.Error
	if errors.As(err, &e) && e.Code == tasker.Invalid {
		faults, _ := e.Details.([]tasker.Fault)
		return tasker.Errorf(tasker.Invalid,
			"the answer does not match the form of the step: %s", summarize(faults, false)).WithDetails(faults)
	}
	return err
}

// wrapContextError returns the error for a request that ended before its context was checked.
func wrapContextError(err error) error {
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: "the request ended before the context was checked against the template's input_schema: try again",
	}
}

// loadChecker returns a checker that no other call uses.
func (in *Input) loadChecker() *checker {
	select {
	case c := <-in.spare:
		return c
	default:
		c, _ := compile(in.schema) // CompileInput has compiled it without faults
		return c
	}
}

// check validates a document within the budget.
func (c *checker) check(ctx context.Context, budget *Budget, doc any) (err error) {
	c.meter.start(ctx, budget, doc)
	defer func() {
		c.meter.stop()
		switch r := recover().(type) {
		case nil:
		case budgetError:
			err = r
		case interruptedError:
			err = r
		default:
			panic(r)
		}
	}()
	return c.schema.Validate(doc)
}

// compile returns a checker, or the faults of the schema.
func compile(raw json.RawMessage) (*checker, []violation) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, []violation{{message: "invalid JSON: " + err.Error()}}
	}
	m := &meter{}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.UseRegexpEngine(m.compileRegexp)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, findViolations(err, doc)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, findViolations(err, doc)
	}
	if types := schema.Types; types != nil && !types.IsEmpty() && !slices.Contains(types.ToStrings(), "object") {
		return nil, []violation{{tokens: []string{"type"}, path: "type",
			message: "must accept an object: a task's context is an object"}}
	}
	m.watch(schema)
	return &checker{schema: schema, meter: m}, nil
}

// findViolations explains why a schema does not compile.
func findViolations(err error, doc any) []violation {
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &details) {
		return collectViolations(details, doc)
	}
	if unreachable, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return []violation{{message: fmt.Sprintf("refers to %s, which is outside this document: only local "+
			"references are supported",
			quoteText(strings.TrimPrefix(unreachable.URL, "https://tasker.invalid/")))}}
	}
	return []violation{{message: strings.ReplaceAll(err.Error(), schemaURL, "")}}
}

// checkInputSchema records the faults in a JSON Schema, with their lines.
func (v value) checkInputSchema(raw json.RawMessage) {
	if v.checkEnumSizes() {
		return
	}
	_, found := compile(raw)
	for _, violation := range found {
		v.find(violation.tokens).addFault("%s", violation.message)
	}
}

// checkPerson records a fault for each contradiction in an external step that a person answers.
func (v value) checkPerson(s tasker.StepTemplate) {
	from, both := v.get("assignee_from")
	to, escalates := v.get("escalate_to")
	after, counts := v.get("escalate_after")
	form, hasForm := v.get("form")
	for _, key := range []string{"assignee", "escalate_to"} {
		if name, ok := v.get(key); ok && isText(name.node) && name.node.Value == tasker.GroupPrefix {
			name.addFault("missing group name")
		}
	}
	switch {
	case both && s.Assignee != "":
		from.addFault("conflicts with assignee: keep only one of them")
	case escalates && len(s.RemindAfterSeconds) == 0:
		to.addFault("missing reminder: add remind_after_seconds")
	case counts && !escalates:
		after.addFault("missing new assignee: add escalate_to")
	case counts && s.EscalateAfter > len(s.RemindAfterSeconds):
		after.addFault("must be at most %d, the number of elements in remind_after_seconds", len(s.RemindAfterSeconds))
	}
	if !hasForm || form.node.Kind != yaml.MappingNode {
		return
	}
	before := len(v.faults.list)
	form.checkInputSchema(s.Form)
	if result, ok := v.get("timeout_result"); ok && len(v.faults.list) == before {
		if err := CheckForm(context.Background(), "", s.Form, s.TimeoutResult); err != nil {
			result.addFault("%s", err)
		}
	}
}

// maxEnumDocuments limits the lists and objects in an enum. Drafts before 2019 require unique
// members, which the library compares pairwise.
const maxEnumDocuments = 500

// checkEnumSizes records a fault for each enum that would take too long to compile. It reports
// whether there is one.
func (v value) checkEnumSizes() (refused bool) {
	if v.node.Kind == yaml.SequenceNode {
		for _, item := range v.items() {
			refused = item.checkEnumSizes() || refused
		}
		return refused
	}
	for key, member := range v.members() {
		if n := member.countDocuments(); key.Value == "enum" && n > maxEnumDocuments {
			member.addFault("has %d lists and objects; the limit is %d", n, maxEnumDocuments)
			refused = true
			continue
		}
		refused = member.checkEnumSizes() || refused
	}
	return refused
}

// countDocuments returns the number of lists and objects in a list.
func (v value) countDocuments() int {
	n := 0
	if v.node.Kind == yaml.SequenceNode {
		for _, item := range v.node.Content {
			if item.Kind != yaml.ScalarNode {
				n++
			}
		}
	}
	return n
}

// find returns the value at a path of keys and indexes, or the deepest existing one.
func (v value) find(tokens []string) value {
	for _, token := range tokens {
		i := v.childIndex(token)
		if i < 0 {
			return v
		}
		if v.node.Kind == yaml.MappingNode {
			v = v.member(v.node.Content[i-1], v.node.Content[i])
		} else {
			v = v.element(i, v.node.Content[i])
		}
	}
	return v
}

// childIndex returns the index of a key's value or of an item in the node's content, or -1.
func (v value) childIndex(token string) int {
	n := v.node
	switch n.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			if v.faults.nameOf(n.Content[i-1]) == token {
				return i
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.Content) {
			return i
		}
	default:
	}
	return -1
}
