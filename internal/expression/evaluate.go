package expression

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"tasker.example/tasker"
)

// evaluationTime is how long one evaluation may take. Its cost is bounded to what takes about 10 ms; this is for what the cost does
// not tell, and so long that a machine that is busy does not make a step fail.
const evaluationTime = time.Second

// maxWhole is the largest whole number that a number of JSON is read as exactly.
const maxWhole = 1 << 53

// Values are what an expression is evaluated on.
type Values struct {
	Context json.RawMessage
	Results map[string]json.RawMessage  // of the ancestors that have one, by name
	States  map[string]tasker.StepState // of ancestors, by name
	Task    TaskValues
	Error   json.RawMessage // of the step, which has failed
	Item    json.RawMessage // what an item of a map step is for
}

// TaskValues are what an expression may know of its task.
type TaskValues struct {
	ID            tasker.ID
	CreatedAt     time.Time
	Priority      int
	Namespace     string
	CorrelationID string
}

// A Failure is an evaluation that came to nothing. It tells no values, because these may
// be secret.
type Failure struct {
	Text   string // of the expression
	Reason string
}

// Error returns the reason and the expression.
func (f *Failure) Error() string { return f.Reason + ", in: " + f.Text }

// Bool evaluates a condition. The error is a [Failure], or that of the context.
func (p *Program) Bool(ctx context.Context, v Values) (bool, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return false, err
	}
	if is, ok := out.(types.Bool); ok {
		return bool(is), nil
	}
	return false, p.failure("it is neither true nor false: it is " + article(out.Type().TypeName()))
}

// Time evaluates an expression that gives an instant. The error is as that of Bool.
func (p *Program) Time(ctx context.Context, v Values) (time.Time, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return time.Time{}, err
	}
	if at, ok := out.(types.Timestamp); ok {
		return at.Time, nil
	}
	return time.Time{}, p.failure("it is no instant: it is " + article(out.Type().TypeName()))
}

// Object evaluates an expression that gives an object of JSON. Instants and durations in it
// are texts. The error is as that of Bool.
func (p *Program) Object(ctx context.Context, v Values) (json.RawMessage, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	if _, ok := out.(traits.Mapper); !ok {
		return nil, p.failure("it is no object: it is " + article(out.Type().TypeName()))
	}
	w := writer{left: math.MaxInt, texts: true}
	if err := w.write(out); err != nil {
		return nil, p.failure(err.Error())
	}
	return w.out.Bytes(), nil
}

// JSON evaluates an expression that gives any value of JSON, of so many bytes at most. An
// expression that only names a value gives it as it is written. The error is as that of Bool.
func (p *Program) JSON(ctx context.Context, v Values, most int) (json.RawMessage, error) {
	if p.path != nil {
		doc, err := p.named(v)
		if err == nil && len(doc) > most {
			err = p.failure(errTooLong(most).Error())
		}
		return doc, err
	}
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	w := writer{left: most, texts: true}
	if err := w.write(out); err != nil {
		if errors.Is(err, errTooMany) {
			err = errTooLong(most)
		}
		return nil, p.failure(err.Error())
	}
	return w.out.Bytes(), nil
}

func errTooLong(most int) error { return fmt.Errorf("the value has more than %d bytes", most) }

// named returns the value that the expression only names.
func (p *Program) named(v Values) (json.RawMessage, error) {
	doc, rest := v.Context, p.path[1:]
	switch p.path[0] {
	case nameItem:
		doc = v.Item
	case nameResults:
		doc, rest = v.Results[p.path[1]], p.path[2:]
		if doc == nil {
			return nil, p.failure("there is no " + strconv.Quote(p.path[1]))
		}
	}
	for _, name := range rest {
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) != nil || object[name] == nil {
			return nil, p.failure("there is no " + strconv.Quote(name))
		}
		doc = object[name]
	}
	return doc, nil
}

// An Outcome is what an evaluation came to: a bool, a string, a float64 or a time.Time as the
// kind of the expression says, nil when it gave null, or why it came to nothing.
type Outcome struct {
	Value any
	Err   error // a [Failure], or that of the context
}

// All evaluates expressions on the same values, and says what that cost.
func All(ctx context.Context, programs []*Program, v Values) (list []Outcome, cost int) {
	list = make([]Outcome, len(programs))
	input, err := v.decode()
	for i, p := range programs {
		if err != nil {
			list[i].Err = p.failure(err.Error())
			continue
		}
		out, of, err := p.run(ctx, input)
		cost += of
		if list[i].Err = err; err == nil {
			list[i].Value, list[i].Err = p.native(out)
		}
	}
	return list, cost
}

// native returns a value as Go has it.
func (p *Program) native(out ref.Val) (any, error) {
	switch x := out.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null
	case types.Bool:
		return bool(x), nil
	case types.String:
		return string(x), nil
	case types.Double:
		return float64(x), nil
	case types.Timestamp:
		return x.Time, nil
	default:
		return nil, p.failure("it is " + article(out.Type().TypeName()))
	}
}

func (p *Program) failure(reason string) error { return &Failure{Text: p.text, Reason: reason} }

func (p *Program) evaluate(ctx context.Context, v Values) (ref.Val, error) {
	input, err := v.decode()
	if err != nil {
		return nil, p.failure(err.Error())
	}
	out, _, err := p.run(ctx, input)
	return out, err
}

// run evaluates the expression, and says what that cost.
func (p *Program) run(ctx context.Context, input map[string]any) (out ref.Val, cost int, err error) {
	limited, cancel := context.WithTimeout(ctx, evaluationTime)
	defer cancel()
	out, details, err := p.program.ContextEval(limited, input)
	if cost = maxCost; details != nil && details.ActualCost() != nil {
		cost = int(min(*details.ActualCost(), maxCost))
	}
	switch {
	case ctx.Err() != nil:
		return nil, cost, ctx.Err()
	case limited.Err() != nil && err != nil:
		return nil, cost, p.failure("it takes longer than " + evaluationTime.String())
	case err != nil:
		return nil, cost, p.failure(p.reason(err))
	default:
		return out, cost, nil
	}
}

// noSuchKey is the error of CEL for a name that an object does not have.
var noSuchKey = regexp.MustCompile(`^no such key: (.*)$`)

// reason tells why an evaluation failed. Of an error of CEL it takes only what cannot
// have values in it.
func (p *Program) reason(err error) string {
	where := ""
	if e, ok := errors.AsType[*types.Err](err); ok {
		where = at(p.parsed.NativeRep().SourceInfo(), e.NodeID())
	}
	text := err.Error()
	switch key := noSuchKey.FindStringSubmatch(text); {
	case key != nil && strings.Contains(p.text, key[1]):
		return where + "there is no " + strconv.Quote(key[1])
	case key != nil:
		return where + "there is no such key"
	case strings.Contains(text, "no such overload"):
		return where + "values of these types cannot be used together like this"
	case strings.Contains(text, "cost limit exceeded"):
		return "it costs more than an evaluation may"
	case strings.Contains(text, errTooLarge):
		return where + errTooLarge
	case strings.Contains(text, "index out of"):
		return where + "the list has no such place"
	case strings.Contains(text, "no matching overload"), strings.Contains(text, "type conversion"):
		return where + "a value cannot be converted"
	default:
		return where + "it cannot be evaluated"
	}
}

// decode reads the values as CEL takes them.
func (v Values) decode() (map[string]any, error) {
	input, err := decode(v.Context)
	if err != nil {
		return nil, errors.New("the context cannot be read")
	}
	results := make(map[string]any, len(v.Results))
	for name, doc := range v.Results {
		if results[name], err = decode(doc); err != nil {
			return nil, errors.New("the result of step " + name + " cannot be read")
		}
	}
	failed, err := decode(v.Error)
	if err != nil {
		return nil, errors.New("the error of the step cannot be read")
	}
	item, err := decode(v.Item)
	if err != nil {
		return nil, errors.New("the item cannot be read")
	}
	states := make(map[string]any, len(v.States))
	for name, s := range v.States {
		states[name] = map[string]any{"state": string(s)}
	}
	return map[string]any{
		nameContext: input, nameResults: results, nameSteps: states, nameError: failed, nameItem: item,
		nameTask: map[string]any{
			"id": v.Task.ID.String(), "created_at": v.Task.CreatedAt, "priority": float64(v.Task.Priority),
			"namespace": v.Task.Namespace, "correlation_id": v.Task.CorrelationID,
		},
	}, nil
}

func decode(doc json.RawMessage) (any, error) {
	if len(doc) == 0 {
		return nil, nil //nolint:nilnil // null
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return plain(v), err
}

const errTooLarge = "a whole number is larger than 2^53 and would not be compared exactly"

// plain makes numbers of the digits of a document. A whole number that a number of JSON
// cannot have exactly is an error for whoever uses it.
func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil && -maxWhole <= n && n <= maxWhole {
			return float64(n)
		}
		n, err := x.Float64()
		if err != nil || !strings.ContainsAny(x.String(), ".eE") {
			return types.NewErr("%s", errTooLarge)
		}
		return n
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = plain(x[k])
		}
	}
	return v
}
