package templatefile

import (
	"encoding/json"
	"math/big"
	"slices"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"tasker.example/tasker/internal/expression"
	"tasker.example/tasker/internal/number"
)

const (
	maxWanted    = 40 // enum members in an error; more are never shown
	failureCost  = 10 // of one error, which the library retains until the end
	formatCost   = 32 // bytes of text per unit when a format is checked
	regexCost    = 60 // units per byte of a text that must be a regular expression
	numberCost   = 32 // written-out digits per unit when a number is compared
	divisionCost = 4  // multiple of the comparison cost for multipleOf
)

// assertions contains the keywords of one schema that check a value on its own. This package
// checks them instead of the library, which compares a value with each enum member in turn, lets
// hashes of items collide, and does not charge for this work.
//
// The keywords that must be checked before the library descends run as a format: type, const, enum,
// format itself and the schema false. The library checks formats first and stops if one fails. The
// rest is an extension, which the library runs last.
type assertions struct {
	meter   *meter
	price   int // of each value
	member  int // additional price per member of the value
	failure int // price of an error

	never  bool // the schema is false
	types  []string
	want   *enumValues
	enum   *enumValues
	format *jsonschema.Format

	schema *jsonschema.Schema // for errors that the library creates itself
	text   bool               // minLength or maxLength is set

	unique                             bool
	minimum, maximum, above, below, of *big.Rat
}

// watch makes every schema that is reachable from s charge the meter.
func (m *meter) watch(s *jsonschema.Schema) {
	all := subschemas(s)
	chain := countChains(all)
	for _, s := range all {
		m.replace(s, chain[s])
	}
}

// replace moves the assertions of a schema from the library to this package.
func (m *meter) replace(s *jsonschema.Schema, chain int) {
	a := &assertions{
		meter: m, schema: s, member: 1 + len(s.PatternProperties), failure: failureCost + 3*chain,
		price: 1 + chain/16 + len(s.AllOf) + len(s.AnyOf) + len(s.OneOf) + len(s.DependentSchemas) + len(s.Dependencies) + len(s.DependentRequired),
		never: s.Bool != nil && !*s.Bool, format: s.Format, unique: s.UniqueItems,
		text:    s.MinLength != nil || s.MaxLength != nil,
		minimum: s.Minimum, maximum: s.Maximum, above: s.ExclusiveMinimum, below: s.ExclusiveMaximum, of: s.MultipleOf,
	}
	if s.Bool != nil && !a.never {
		return // the price of true is part of its parent's
	}
	if s.PropertyNames != nil {
		a.member += 2
	}
	if allowed, ok := s.AdditionalProperties.(bool); (ok && !allowed) || s.Not != nil || s.Contains != nil || s.DynamicRef != nil ||
		len(s.OneOf) > 0 || len(s.Dependencies) > 0 || len(s.DependentRequired) > 0 {
		a.price += 4 // for errors that foresee does not count
	}
	for _, names := range s.DependentRequired {
		a.price += len(names)
	}
	for _, names := range s.Dependencies {
		if names, ok := names.([]string); ok {
			a.price += len(names)
		}
	}
	if s.Types != nil {
		a.types = s.Types.ToStrings()
	}
	if s.Const != nil {
		a.want = newEnumValues([]any{*s.Const}, &kind.Const{Want: *s.Const})
	}
	if s.Enum != nil {
		a.enum = newEnumValues(s.Enum.Values, &kind.Enum{Want: s.Enum.Values[:min(len(s.Enum.Values), maxWanted)]})
	}
	s.Bool, s.Types, s.Const, s.Enum, s.UniqueItems = nil, nil, nil, nil, false
	s.Minimum, s.Maximum, s.ExclusiveMinimum, s.ExclusiveMaximum, s.MultipleOf = nil, nil, nil, nil, nil
	s.Format = &jsonschema.Format{Name: "tasker", Validate: a.firstFailure}
	if a.unique || a.minimum != nil || a.maximum != nil || a.above != nil || a.below != nil || a.of != nil {
		s.Extensions = append(s.Extensions, a)
	}
}

// failure is a violation that this package found, in the format of the library.
type failure struct {
	jsonschema.ErrorKind
}

func (f failure) Error() string { return f.LocalizedString(english) }

// recordFailure returns an error that stops the check of a value, and charges for it.
func (a *assertions) recordFailure(k jsonschema.ErrorKind) error {
	a.fail()
	return failure{k}
}

// fail charges for an error, which contains the path of its location.
func (a *assertions) fail() { a.meter.charge(a.failure + a.meter.depth/2) }

// firstFailure checks the keywords that must be checked before the library descends into the value.
func (a *assertions) firstFailure(v any) error {
	a.meter.charge(a.price + countMembers(v)*a.member)
	switch {
	case a.never:
		return a.recordFailure(&kind.FalseSchema{})
	case a.types != nil && !isOfType(v, a.types):
		return a.recordFailure(&kind.Type{Got: typeName(v), Want: a.types})
	case a.want != nil && !a.want.has(v, a.meter.charge):
		return a.recordFailure(a.want.kind)
	case a.enum != nil && !a.enum.has(v, a.meter.charge):
		return a.recordFailure(a.enum.kind)
	}
	if err := a.checkFormat(v); err != nil {
		return err
	}
	a.estimateCost(v)
	return nil
}

func (a *assertions) checkFormat(v any) error {
	if a.format == nil {
		return nil
	}
	if text, ok := v.(string); ok {
		a.meter.charge(1 + len(text)/formatCost)
		if a.format.Name == "regex" {
			a.meter.charge(regexCost * min(len(text), expression.MaxPatternBytes))
		}
	}
	if err := a.format.Validate(v); err != nil {
		return a.recordFailure(&kind.Format{Got: v, Want: a.format.Name, Err: err})
	}
	return nil
}

// estimateCost charges in advance for the errors that the library will create itself.
func (a *assertions) estimateCost(v any) {
	s, errors := a.schema, 0
	count := func(wrong bool) {
		if wrong {
			errors++
		}
	}
	switch v := v.(type) {
	case map[string]any:
		a.meter.charge(len(s.Required))
		count(s.MinProperties != nil && len(v) < *s.MinProperties)
		count(s.MaxProperties != nil && len(v) > *s.MaxProperties)
		count(slices.ContainsFunc(s.Required, func(name string) bool { _, ok := v[name]; return !ok }))
	case []any:
		count(s.MinItems != nil && len(v) < *s.MinItems)
		count(s.MaxItems != nil && len(v) > *s.MaxItems)
	case string:
		if a.text {
			a.meter.charge(1 + len(v)/formatCost)
			n := utf8.RuneCountInString(v)
			count(s.MinLength != nil && n < *s.MinLength)
			count(s.MaxLength != nil && n > *s.MaxLength)
		}
		count(s.Pattern != nil) // assume a mismatch: matching twice would cost more
	}
	for range errors {
		a.fail()
	}
}

// Validate checks the remaining keywords. The library calls it after it has checked everything
// else.
func (a *assertions) Validate(ctx *jsonschema.ValidatorContext, v any) {
	add := func(k jsonschema.ErrorKind) {
		a.fail()
		ctx.AddError(k)
	}
	switch v := v.(type) {
	case []any:
		if !a.unique {
			return
		}
		if i, j, found := findDuplicates(v, a.meter.charge); found {
			add(&kind.UniqueItems{Duplicates: [2]int{i, j}})
		}
	case json.Number:
		a.compare(v, add)
	}
}

// compare checks a number against the numeric limits of the schema.
func (a *assertions) compare(v json.Number, add func(jsonschema.ErrorKind)) {
	d := number.Parse(string(v))
	size := len(d.Digits) + max(d.Exponent, -d.Exponent)
	a.meter.charge(1 + size/numberCost)
	n, ok := new(big.Rat).SetString(string(v))
	if !ok { // unreachable: v is a JSON number
		return
	}
	if a.minimum != nil && n.Cmp(a.minimum) < 0 {
		add(&kind.Minimum{Got: n, Want: a.minimum})
	}
	if a.maximum != nil && n.Cmp(a.maximum) > 0 {
		add(&kind.Maximum{Got: n, Want: a.maximum})
	}
	if a.above != nil && n.Cmp(a.above) <= 0 {
		add(&kind.ExclusiveMinimum{Got: n, Want: a.above})
	}
	if a.below != nil && n.Cmp(a.below) >= 0 {
		add(&kind.ExclusiveMaximum{Got: n, Want: a.below})
	}
	if a.of == nil {
		return
	}
	a.meter.charge(divisionCost * (1 + size/numberCost))
	if q := new(big.Rat).Quo(n, a.of); !q.IsInt() {
		add(&kind.MultipleOf{Got: n, Want: a.of})
	}
}

// enumValues is the set of values that enum or const allows.
type enumValues struct {
	texts   map[string]bool
	longest int
	kind    jsonschema.ErrorKind
}

func newEnumValues(values []any, k jsonschema.ErrorKind) *enumValues {
	w := &enumValues{texts: make(map[string]bool, len(values)), kind: k}
	for _, v := range values {
		text, _ := canonicalize(v, maxCanonical, func(int) {})
		w.texts[text] = true
		w.longest = max(w.longest, len(text))
	}
	return w
}

func (w *enumValues) has(v any, charge func(int)) bool {
	text, ok := canonicalize(v, w.longest, charge)
	return ok && w.texts[text]
}

// findDuplicates returns the indexes of the first two equal items. found is false if all items
// differ.
func findDuplicates(items []any, charge func(int)) (first, second int, found bool) {
	seen := make(map[string]int, len(items))
	for i, item := range items {
		text, _ := canonicalize(item, maxCanonical, charge)
		if j, ok := seen[text]; ok {
			return j, i, true
		}
		seen[text] = i
	}
	return 0, 0, false
}

func isOfType(v any, types []string) bool {
	name := typeName(v)
	if slices.Contains(types, name) {
		return true
	}
	n, ok := v.(json.Number)
	return ok && slices.Contains(types, "integer") && isInteger(n)
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}
