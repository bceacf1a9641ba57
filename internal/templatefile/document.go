package templatefile

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/suggest"
)

// Schema is the JSON Schema of a template document, for editors. [Parse] checks documents against
// it and against the rules in semantics.go, which a schema cannot express. A $comment explains why
// a part has no effect or is rejected, or which key it is an alias of.
//
//go:embed template.schema.json
var Schema []byte

const (
	withoutEffect = "has no effect"
	anotherName   = "another name of "
)

// The compiled schema, and each part of it by its location.
var documentSchema, schemaParts = func() (*jsonschema.Schema, map[string]*jsonschema.Schema) {
	const url = "https://tasker.invalid/template.schema.json"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		panic("templatefile: the schema of templates is not JSON: " + err.Error())
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, doc); err != nil {
		panic("templatefile: " + err.Error())
	}
	schema := c.MustCompile(url)
	parts := map[string]*jsonschema.Schema{}
	for _, part := range subschemas(schema) {
		parts[part.Location] = part
	}
	return schema, parts
}()

// readTemplate checks a document and converts it to a template. If there are faults, the template
// may be incomplete.
func readTemplate(v value) tasker.Template {
	v.prune(documentSchema)
	raw := v.appendJSON(nil)
	v.validate(raw)
	return v.readTemplate(raw)
}

// prune removes null values and keys without effect, for which it adds warnings, and replaces
// aliases of keys. It does not descend into values whose keys the schema does not define. It
// reports whether the value is kept.
func (v value) prune(s *jsonschema.Schema) bool {
	for s.Properties == nil && s.Ref != nil {
		s = s.Ref
	}
	switch {
	case v.node.Kind == yaml.MappingNode && s.AdditionalProperties == false:
		v.pruneMembers(s)
	case v.node.Kind == yaml.SequenceNode && s.Items2020 != nil:
		if s.MaxItems != nil && len(v.node.Content) > *s.MaxItems {
			v.addFault("%d %s; the limit is %d", len(v.node.Content), v.place(), *s.MaxItems)
			v.node.Content, v.faults.incomplete = v.node.Content[:1], true
		}
		for _, item := range v.items() {
			item.prune(s.Items2020)
		}
	case isNumber(v.node) && s.Types != nil && slices.Contains(s.Types.ToStrings(), "integer"):
		if n, err := strconv.Atoi(v.node.Value); err != nil || strconv.Itoa(n) != v.node.Value {
			want := describeExpectation(s) // a schema accepts 1.0 and 0x10 as integers
			if v.node.Tag == "!!int" {
				want += ", in decimal digits"
			}
			v.reportWrongType(want)
			return false
		}
	}
	return true
}

func (v value) pruneMembers(s *jsonschema.Schema) {
	content := v.node.Content[:0]
	first := map[string]value{}
	for key, member := range v.members() {
		property, name, child := s.Properties[key.Value], key.Value, member.node
		if property == nil {
			member.pruneByPattern(name, s)
			content = append(content, key, child)
			continue
		}
		if effect, ok := strings.CutPrefix(property.Comment, withoutEffect); ok {
			if !isEmpty(child) {
				v.faults.warn(tasker.Fault{Path: member.path, Line: key.Line, Column: key.Column, Message: withoutEffect + effect})
			}
			continue
		}
		if isNull(child) {
			continue
		}
		if canonical, ok := strings.CutPrefix(property.Comment, anotherName); ok {
			name = canonical
			v.faults.rename(key, name)
		}
		if before, duplicate := first[name]; duplicate {
			before.reconcile(member)
			continue
		}
		if first[name] = member; member.prune(property) {
			content = append(content, key, child)
		}
	}
	v.node.Content = content
}

// pruneByPattern prunes a member whose key matches a pattern of the schema.
func (v value) pruneByPattern(name string, s *jsonschema.Schema) {
	for pattern, inside := range s.PatternProperties {
		if pattern.MatchString(name) {
			v.prune(inside)
		}
	}
}

// reconcile records a fault for the alias of a key if its value differs from that of the key.
func (v value) reconcile(alias value) {
	a, b := v.node, alias.node
	if a.Kind != yaml.ScalarNode || b.Kind != yaml.ScalarNode || a.Tag != b.Tag || a.Value != b.Value {
		alias.addFault("is an alias of %s, which is also set: keep only one of them", v.path)
	}
}

// validate records how the document, whose JSON is raw, violates the schema.
func (v value) validate(raw []byte) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil { // unreachable: appendJSON writes valid JSON
		v.addFault("cannot be read as JSON: %v", err)
		return
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(documentSchema.Validate(doc), &invalid) {
		return
	}
	type broken struct {
		at value
		*jsonschema.ValidationError
	}
	var list []broken
	collect(invalid, func(e *jsonschema.ValidationError, _ string) bool {
		list = append(list, broken{v.find(e.InstanceLocation), e})
		return len(list) < maxViolations
	})
	slices.SortStableFunc(list, func(a, b broken) int {
		return cmp.Or(cmp.Compare(a.at.node.Line, b.at.node.Line), cmp.Compare(a.at.node.Column, b.at.node.Column),
			cmp.Compare(a.SchemaURL, b.SchemaURL), cmp.Compare(len(b.Causes), len(a.Causes)))
	})
	for i, b := range list {
		if v.faults.isFull() {
			v.faults.more = true
			return
		}
		if i == 0 || b.at.node != list[i-1].at.node || b.at.node.Kind != yaml.ScalarNode { // one fault per scalar
			b.at.explain(b.ErrorKind, schemaParts[b.SchemaURL])
		}
	}
}

// explain records a fault for a violation of the schema.
func (v value) explain(wrong jsonschema.ErrorKind, s *jsonschema.Schema) {
	switch k := wrong.(type) {
	case *kind.AnyOf: // the schema has only one
		v.reportMissing("namespace_name")
	case *kind.Required:
		for _, name := range k.Missing {
			v.reportMissing(name)
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties[:min(len(k.Properties), maxFaults+1)] {
			v.reportUnknownKey(name, s)
		}
	default:
		v.reportMismatch(wrong, s)
	}
}

// reportMismatch records that a value does not match the schema.
func (v value) reportMismatch(wrong jsonschema.ErrorKind, s *jsonschema.Schema) {
	mistyped, isType := wrong.(*kind.Type)
	switch {
	case s == documentSchema.Properties["version"]:
		v.reportInvalidVersion()
	case isType && v.node.Kind == yaml.ScalarNode && !isNull(v.node) && mistyped.Want[0] == "string":
		v.addFault("must be a string, not %s %s: put it in quotes", v.describeKind(), v.node.Value)
	case isType && mistyped.Want[0] == "string":
		v.reportWrongType("a string")
	case s.Comment != "" && s.Enum == nil:
		v.addFault("%s", s.Comment)
	case s.MinItems != nil && !isType:
		v.addFault("a template requires at least one step")
	case s.Pattern != nil:
		v.addFault("must be %s, not %s", s.Title, quoteText(v.node.Value))
	case s.MaxLength != nil:
		v.addFault("has %d characters; the limit is %d", len([]rune(v.node.Value)), *s.MaxLength)
	default:
		v.reportWrongType(describeExpectation(s))
	}
}

func (v value) reportMissing(name string) {
	if v.path != "" {
		name = v.path + "." + name
	}
	v.path = name
	v.addFault("is missing")
}

// reportUnknownKey records a key that the object must not have.
func (v value) reportUnknownKey(name string, s *jsonschema.Schema) {
	i := v.childIndex(name)
	if i < 0 {
		return
	}
	key := value{node: v.node.Content[i-1], path: v.path, faults: v.faults}
	if len(s.PatternProperties) > 0 {
		want := schemaParts[documentSchema.Location+"/$defs/name"].Title
		if s == documentSchema.Properties["search"] {
			want = "1 to 64 lower-case letters, digits and underscores, beginning with a letter"
		}
		key.addFault("must be %s, not %s", want, quoteText(name))
		return
	}
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(k string) bool {
		p := s.Properties[k]
		return p.Not != nil && p.Ref == nil || strings.HasPrefix(p.Comment, withoutEffect)
	})
	key.path = v.member(key.node, v.node.Content[i]).path
	key.addFault("unknown key%s", suggest.Ending(name, known))
}

// describeExpectation describes the values that a schema allows, for a fault.
func describeExpectation(s *jsonschema.Schema) string {
	switch {
	case s.Enum != nil:
		words := make([]string, len(s.Enum.Values))
		for i, word := range s.Enum.Values {
			words[i] = fmt.Sprint(word)
		}
		return "one of " + formatList(words)
	case s.Types == nil:
		return "something else"
	}
	switch s.Types.ToStrings()[0] {
	case "integer":
		return fmt.Sprintf("a whole number from %s to %s", s.Minimum.RatString(), s.Maximum.RatString())
	case "boolean":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "an object"
	default:
		return "a string"
	}
}

// document is a template as written, before defaults are applied.
type document struct {
	tasker.Template
	Steps []struct {
		tasker.StepTemplate
		Retry     json.RawMessage `json:"retry"` // overrides the default
		Batches   json.RawMessage `json:"batch_config"`
		OnFailure *struct {
			tasker.OnFailure
			Retry json.RawMessage `json:"retry"` // overrides the default
		} `json:"on_failure"`
	} `json:"steps"`
	Environments map[string]struct {
		Steps []struct {
			tasker.StepOverride
			Handler tasker.Handler `json:"handler"` // may contain the initialization
		} `json:"steps"`
	} `json:"environments"`
}

// readTemplate converts a document to a template. It skips parts that the schema rejects, so that
// all other faults are found in the same pass.
func (v value) readTemplate(raw []byte) tasker.Template {
	var d document
	_ = json.Unmarshal(raw, &d) // wrong types already have faults
	t := d.Template
	t.Steps = make([]tasker.StepTemplate, len(d.Steps))
	for i, s := range d.Steps {
		t.Steps[i] = s.StepTemplate
		if s.Type == "" {
			t.Steps[i].Type = tasker.StandardStep
		}
		switch {
		case s.Type == convergence && s.Join == "":
			t.Steps[i].Join = tasker.JoinNoneFailed
		case s.Join == tasker.JoinAll:
			t.Steps[i].Join = "" // the default
		}
		if s.OnTimeout == tasker.TimeoutFails {
			t.Steps[i].OnTimeout = "" // the default
		}
		applyChildDefaults(&t.Steps[i])
		t.Steps[i].Retry = tasker.DefaultRetry()
		addBatches(&t.Steps[i], s.Batches)
		_ = json.Unmarshal(s.Retry, &t.Steps[i].Retry) // if it is absent, the default remains
		if s.OnFailure != nil {
			undo := s.OnFailure.OnFailure
			undo.Retry = tasker.DefaultUndoRetry()
			_ = json.Unmarshal(s.OnFailure.Retry, &undo.Retry)
			t.Steps[i].OnFailure = &undo
		}
	}
	for name, o := range d.Environments {
		if t.Environments == nil {
			t.Environments = make(map[string]tasker.Override, len(d.Environments))
		}
		steps := make([]tasker.StepOverride, len(o.Steps))
		for i, s := range o.Steps {
			steps[i] = s.StepOverride
			if len(s.Handler.Initialization) > 0 {
				steps[i].Initialization = s.Handler.Initialization
			}
		}
		t.Environments[name] = tasker.Override{Steps: steps}
	}
	v.checkMeaning(&t)
	return t
}

// applyChildDefaults removes explicit default values of a child step.
func applyChildDefaults(s *tasker.StepTemplate) {
	if s.Child.Version == newestVersion {
		s.Child.Version = ""
	}
	for _, outcome := range []*tasker.ChildOutcome{&s.OnChild.Cancelled, &s.OnChild.PermanentlyFailed} {
		if *outcome == tasker.ChildFails {
			*outcome = ""
		}
	}
}

// newestVersion is the version with which a document refers to the newest version of a template.
const newestVersion = "newest"

// reserved lists the search attributes that every task has.
var reserved = []string{"tag", "correlation_id", "initiator", "source_system", "idempotency_key"}

// kinds maps attribute types to the result types of their expressions.
var kinds = map[tasker.AttributeType]expression.Kind{
	tasker.AttributeText: expression.Text, tasker.AttributeNumber: expression.Number,
	tasker.AttributeTime: expression.Timestamp, tasker.AttributeBool: expression.Bool,
}

// checkSearch checks the search attributes and compiles their expressions.
func (v value) checkSearch(t *tasker.Template, names []string) {
	if len(t.Search) > tasker.MaxSearchAttributes {
		v.addFault("has %d attributes; the limit is %d", len(t.Search), tasker.MaxSearchAttributes)
		return
	}
	scope := expression.Scope{Input: t.InputSchema, Ancestors: names, Steps: names, Search: true}
	for key, place := range v.members() {
		if slices.Contains(reserved, key.Value) {
			place.addFault("%s is a reserved name: choose another name", key.Value)
			continue
		}
		a := t.Search[key.Value]
		place.checkExpression(expression.Source{Key: "from", Text: a.From, Kind: kinds[a.Type]}, scope)
	}
}

// checkStart checks the start rules and compiles their expressions.
func (v value) checkStart(t *tasker.Template) {
	scope := expression.Scope{Input: t.InputSchema}
	if debounce, ok := v.get("debounce"); ok {
		d := t.Start.Debounce
		debounce.checkExpression(expression.Source{Key: "key", Text: d.Key, Kind: expression.Text}, scope)
		if d.MaxWaitSeconds > 0 && d.MaxWaitSeconds < d.WaitSeconds {
			debounce.addFault("max_wait_seconds must be at least wait_seconds")
		}
		if t.Start.Unique.Key != "" {
			debounce.addFault("conflicts with unique: set only one of them")
		}
	}
	if unique, ok := v.get("unique"); ok {
		unique.checkExpression(expression.Source{Key: "key", Text: t.Start.Unique.Key, Kind: expression.Text}, scope)
	}
}

// checkDue checks a due policy and compiles its expression. If required is true, the policy must
// set a due time; a template may leave that to requests.
func (v value) checkDue(d *tasker.DuePolicy, scope expression.Scope, required bool) {
	v.checkExpression(expression.Source{Key: "at", Text: d.At, Kind: expression.Timestamp}, scope)
	if at, ok := v.get("at"); ok && d.AfterSeconds > 0 {
		at.addFault("conflicts with after_seconds: keep only one of them")
	}
	if required && !d.HasDueTime() {
		v.addFault("missing due time: add after_seconds or at")
	}
	warn, ok := v.get("warn_before_seconds")
	if ok && d.WarnBeforeSeconds != nil && d.AfterSeconds > 0 && *d.WarnBeforeSeconds >= d.AfterSeconds {
		warn.addFault("must be less than after_seconds, which is %d", d.AfterSeconds)
	}
	if d.Overdue == tasker.OverdueNotify {
		d.Overdue = ""
	}
}

// checkLimits checks the concurrency and rate limits of a template whose steps are valid.
func (v value) checkLimits(t *tasker.Template) {
	byName := make(map[string]tasker.StepTemplate, len(t.Steps))
	for _, s := range t.Steps {
		byName[s.Name] = s
	}
	scope := expression.Scope{Input: t.InputSchema, Search: true}
	for i, place := range v.items() {
		l := t.Limits[i]
		if slices.ContainsFunc(t.Limits[:i], func(o tasker.LimitTemplate) bool { return o.Name == l.Name }) {
			place.addFault("duplicate limit %s", quoteText(l.Name))
		}
		limit := l.Value()
		if err := limit.Check(); err != nil {
			place.addFault("%s", err)
		}
		place.checkExpression(expression.Source{Key: "key", Text: l.Key, Kind: expression.Any}, scope)
		limits := func(at value, name string) bool {
			switch s, ok := byName[name]; {
			case !ok:
				at.addFault("the template has no step %s", quoteText(name))
			case !s.HasHandler():
				at.addFault("no worker executes step %s: a limit applies only to steps that workers execute", quoteText(name))
			default:
				return true
			}
			return false
		}
		if steps, has := place.get("steps"); has {
			for n, name := range steps.items() {
				limits(name, l.Steps[n])
			}
		}
		place.checkWeights(l, limits)
	}
}

// checkWeights checks how many slots of a limit each step occupies.
func (v value) checkWeights(l tasker.LimitTemplate, limits func(value, string) bool) {
	weights, has := v.get("weights")
	if !has {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.Weights)) {
		at, _ := weights.get(name)
		switch weight := l.Weights[name]; {
		case !limits(at, name):
		case len(l.Steps) > 0 && !slices.Contains(l.Steps, name):
			at.addFault("step %s is not in the limit's steps", quoteText(name))
		case l.MaxInProgress > 0 && weight > l.MaxInProgress:
			at.addFault("step %s takes %d slots, but max_in_progress is %d", quoteText(name), weight, l.MaxInProgress)
		case l.Burst > 0 && weight > l.Burst:
			at.addFault("step %s takes %d slots, but burst is %d", quoteText(name), weight, l.Burst)
		}
	}
}
