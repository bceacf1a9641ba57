package templatefile

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	maxPattern     = 1000      // bytes of one regular expression
	maxPatternSize = 2000      // instructions of its compiled form
	maxCheckCost   = 2_000_000 // see meter; under a second
)

// exhausted is what a meter panics with.
type exhausted struct{}

func (exhausted) Error() string {
	return "the input_schema takes too much work for this context; make the schema or the context simpler"
}

// A meter bounds the work of one validation. Schemas that refer to themselves
// or to each other can ask for work that doubles with every level, and no
// limit on the size of the schema or of the document prevents that.
//
// One unit is one subschema met by one value, or a regular expression's look at
// a few bytes. When the budget is spent the meter panics with exhausted,
// because the library has no other way out of the middle of a validation.
type meter struct {
	left int
}

func (m *meter) start() { m.left = maxCheckCost }

func (m *meter) charge(cost int) {
	if m.left -= cost; m.left < 0 {
		panic(exhausted{})
	}
}

// watch makes every subschema that can be reached from s charge the meter. The
// format is what the library looks at first, before it goes deeper.
func (m *meter) watch(s *jsonschema.Schema) {
	eachSubschema(reflect.ValueOf(s), map[*jsonschema.Schema]bool{}, func(s *jsonschema.Schema) {
		format := jsonschema.Format{Validate: func(any) error { return nil }}
		if s.Format != nil {
			format = *s.Format
		}
		validate := format.Validate
		branches := 1 + len(s.AllOf) + len(s.AnyOf) + len(s.OneOf) + len(s.DependentSchemas) + len(s.Dependencies)
		format.Validate = func(v any) error {
			m.charge(branches + members(v)*(1+len(s.PatternProperties)))
			return validate(v)
		}
		s.Format = &format
	})
}

// members counts what is directly inside a value.
func members(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	default:
		return 0
	}
}

// eachSubschema visits every schema that can be reached from a value, once.
func eachSubschema(v reflect.Value, seen map[*jsonschema.Schema]bool, visit func(*jsonschema.Schema)) {
	switch v.Kind() {
	case reflect.Interface:
		eachSubschema(v.Elem(), seen, visit)
	case reflect.Slice:
		for i := range v.Len() {
			eachSubschema(v.Index(i), seen, visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			eachSubschema(v.MapIndex(key), seen, visit)
		}
	case reflect.Pointer:
		eachBehind(v, seen, visit)
	default:
	}
}

func eachBehind(v reflect.Value, seen map[*jsonschema.Schema]bool, visit func(*jsonschema.Schema)) {
	switch pointer := v.Interface().(type) {
	case *jsonschema.DynamicRef:
		if pointer != nil {
			eachBehind(reflect.ValueOf(pointer.Ref), seen, visit)
		}
	case *jsonschema.Schema:
		if pointer == nil || seen[pointer] {
			return
		}
		seen[pointer] = true
		for i := range v.Elem().NumField() {
			if v.Elem().Type().Field(i).IsExported() {
				eachSubschema(v.Elem().Field(i), seen, visit)
			}
		}
		visit(pointer)
	}
}

// A pattern is a regular expression that charges a meter. Go's take time in
// proportion to the text and to their own size, never more.
type pattern struct {
	*regexp.Regexp
	size  int
	meter *meter
}

// regexp compiles a regular expression for the library.
func (m *meter) regexp(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression of %d bytes; %d is the limit", len(text), maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w (regular expressions are those of RE2: no look-around, no backreferences)", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxPatternSize {
		return nil, errors.New("a regular expression that is too large once its repetitions are written out")
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{Regexp: compiled, size: len(program.Inst), meter: m}, nil
}

// MatchString reports whether the expression matches, at its price.
func (p *pattern) MatchString(s string) bool {
	if p.meter.left > 0 { // otherwise a schema is being compiled
		p.meter.charge(len(s) * p.size / 32)
	}
	return p.Regexp.MatchString(s)
}
