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

// schemaURL is the name under which the library knows an input schema. Nothing
// is ever loaded from it, nor from any other place.
const schemaURL = "https://tasker.invalid/input_schema"

// An Input judges the contexts of tasks by the input schema of their template.
// It is safe for concurrent use. A nil Input accepts everything.
type Input struct {
	namespace string // that its checks take turns with
	schema    json.RawMessage
	spare     chan *checker // each in use by one Check at a time
}

// A checker is a compiled schema with the meter that counts its work.
type checker struct {
	schema *jsonschema.Schema
	meter  *meter
}

// CompileInput compiles the input schema of a template of a namespace: JSON Schema, draft
// 2020-12 unless $schema says another. Formats are checked, and $ref reaches no
// further than the schema itself. No schema gives a nil Input. The error is
// Invalid, with a slice of [tasker.Fault] as details.
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
		return nil, tasker.Errorf(tasker.Invalid, "input_schema has %s", summary(list, false)).WithDetails(list)
	}
	in := &Input{namespace: namespace, schema: schema, spare: make(chan *checker, checking.size+byTimers.size)}
	in.spare <- first
	return in, nil
}

// Check returns nil for a context, as [payload.Decode] returns it, that the schema accepts. Otherwise the error
// is Invalid, with a slice of [tasker.Fault] as details: all in which the two
// differ, up to a limit. All checks of one request share a budget. Namespaces take turns.
// When ctx ends the check ends, and the error is Unavailable.
func (in *Input) Check(ctx context.Context, budget *Budget, value any) error {
	if in == nil {
		return nil
	}
	if err := budget.turns.enter(ctx, in.namespace); err != nil {
		return ended(err)
	}
	defer budget.turns.leave()
	c := in.checker()
	defer func() { in.spare <- c }() // there is room: no more checks run at once
	err := c.check(ctx, budget, value)
	if err == nil {
		return nil
	}
	if interrupted, ok := errors.AsType[interrupted](err); ok {
		return ended(interrupted.error)
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return tasker.Errorf(tasker.Invalid, "the context cannot be checked: %v", err)
	}
	var list faults
	for _, v := range violations(invalid, value) {
		list.add(tasker.Fault{Path: v.path, Message: v.message})
	}
	return tasker.Errorf(tasker.Invalid, "the context does not match the template's input_schema, it has %s",
		summary(list.list, list.more)).WithDetails(list.list)
}

// CheckForm returns nil for the result of a step of a namespace that the JSON Schema of its form accepts, or has no
// form. The error is as that of [Input.Check].
func CheckForm(ctx context.Context, namespace string, form, result json.RawMessage) error {
	in, err := CompileInput(namespace, form)
	if err != nil || in == nil {
		return err
	}
	value, _, err := payload.Decode(result, payload.Limits{})
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "the result cannot be read: %v", err)
	}
	err = in.Check(ctx, NewBudget(), value)
	var e *tasker.Error
	if errors.As(err, &e) && e.Code == tasker.Invalid {
		faults, _ := e.Details.([]tasker.Fault)
		return tasker.Errorf(tasker.Invalid, "the answer does not match the form of the step, it has %s", summary(faults, false)).WithDetails(faults)
	}
	return err
}

// ended is the error of a check whose request ended before it.
func ended(err error) error {
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: "the request ended before the context was checked against the template's input_schema; try again",
	}
}

// checker returns a checker that nobody uses.
func (in *Input) checker() *checker {
	select {
	case c := <-in.spare:
		return c
	default:
		again, _ := compile(in.schema) // has no faults, as before
		return again
	}
}

// check validates within the budget.
func (c *checker) check(ctx context.Context, budget *Budget, doc any) (err error) {
	c.meter.start(ctx, budget, doc)
	defer func() {
		c.meter.stop()
		switch r := recover().(type) {
		case nil:
		case exhausted:
			err = r
		case interrupted:
			err = r
		default:
			panic(r)
		}
	}()
	return c.schema.Validate(doc)
}

// compile makes a checker, or says what is wrong with the schema.
func compile(raw json.RawMessage) (*checker, []violation) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, []violation{{message: "not JSON: " + err.Error()}}
	}
	m := &meter{}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.UseRegexpEngine(m.regexp)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, schemaViolations(err, doc)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaViolations(err, doc)
	}
	if types := schema.Types; types != nil && !types.IsEmpty() && !slices.Contains(types.ToStrings(), "object") {
		return nil, []violation{{tokens: []string{"type"}, path: "type",
			message: "accepts no context at all: a task's context is an object"}}
	}
	m.watch(schema)
	return &checker{schema: schema, meter: m}, nil
}

// schemaViolations explains why a schema does not compile.
func schemaViolations(err error, doc any) []violation {
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &details) {
		return violations(details, doc)
	}
	if unreachable, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return []violation{{message: fmt.Sprintf("refers to %s, which is not part of this document; nothing is loaded from elsewhere",
			quote(strings.TrimPrefix(unreachable.URL, "https://tasker.invalid/")))}}
	}
	return []violation{{message: strings.ReplaceAll(err.Error(), schemaURL, "")}}
}

// checkInputSchema notes what is wrong with a JSON Schema, in its lines.
func (v value) checkInputSchema(raw json.RawMessage) {
	if v.refuseLargeEnums() {
		return
	}
	_, found := compile(raw)
	for _, violation := range found {
		v.find(violation.tokens).fault("%s", violation.message)
	}
}

// checkPerson notes what contradicts itself of a step that a person answers.
func (v value) checkPerson(s tasker.StepTemplate) {
	from, both := v.get("assignee_from")
	to, escalates := v.get("escalate_to")
	after, counts := v.get("escalate_after")
	form, hasForm := v.get("form")
	for _, key := range []string{"assignee", "escalate_to"} {
		if name, ok := v.get(key); ok && isText(name.node) {
			if name.node.Value == tasker.GroupPrefix {
				name.fault("names no group")
			}
		}
	}
	switch {
	case both && s.Assignee != "":
		from.fault("is given beside assignee; keep one of them")
	case escalates && len(s.RemindAfterSeconds) == 0:
		to.fault("nobody is reminded of the step: add remind_after_seconds")
	case counts && !escalates:
		after.fault("the step does not say to whom it is given: add escalate_to")
	case counts && s.EscalateAfter > len(s.RemindAfterSeconds):
		after.fault("must be at most %d, as many as there are in remind_after_seconds", len(s.RemindAfterSeconds))
	}
	if !hasForm || form.node.Kind != yaml.MappingNode {
		return
	}
	before := len(v.faults.list)
	form.checkInputSchema(s.Form)
	if result, ok := v.get("timeout_result"); ok && len(v.faults.list) == before {
		if err := CheckForm(context.Background(), "", s.Form, s.TimeoutResult); err != nil {
			result.fault("%s", err)
		}
	}
}

// maxEnumDocuments is how many lists and objects an enum may have. Drafts before
// 2019 want its members to be unique, and the library compares them one by one.
const maxEnumDocuments = 500

// refuseLargeEnums notes each enum that would take too long to compile, and reports
// whether there is one.
func (v value) refuseLargeEnums() (refused bool) {
	if v.node.Kind == yaml.SequenceNode {
		for _, item := range v.items() {
			refused = item.refuseLargeEnums() || refused
		}
		return refused
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, member := v.node.Content[i], v.member(v.node.Content[i], v.node.Content[i+1])
		if n := member.documents(); key.Value == "enum" && n > maxEnumDocuments {
			member.fault("has %d lists and objects; %d is the limit", n, maxEnumDocuments)
			refused = true
			continue
		}
		refused = member.refuseLargeEnums() || refused
	}
	return refused
}

// documents counts the lists and objects of a list.
func (v value) documents() int {
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

// find returns the value at the end of a path of keys and indexes, or the last
// one on the way that is there.
func (v value) find(tokens []string) value {
	for _, token := range tokens {
		i := v.childIndex(token)
		if i < 0 {
			return v
		}
		if v.node.Kind == yaml.MappingNode {
			v = v.member(v.node.Content[i-1], v.node.Content[i])
		} else {
			v = v.at(i, v.node.Content[i])
		}
	}
	return v
}

// childIndex returns where among the node's content a key's value or an item is.
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
