package expression

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	return p.written(out, tasker.MaxDocumentBytes)
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
	return p.written(out, most)
}

// written returns out as JSON of at most most bytes.
func (p *Program) written(out ref.Val, most int) (json.RawMessage, error) {
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

// An Outcome is the value of an evaluation or its error. The value is a bool, a string, a time.Time or,
// for a number, a json.Number without an exponent. It is nil when the expression gave null. Where a text
// is wanted a number is its text.
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
	case types.Double, exact:
		d, finite := decimalOf(x)
		switch {
		case !finite:
			return nil, p.failure("the number is not finite")
		case p.kind == Text:
			return d.String(), nil
		}
		return json.Number(d.String()), nil
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
	if p.fault != nil {
		return nil, 0, p.failure(p.fault.Error())
	}
	limited, cancel := context.WithTimeout(ctx, evaluationTime)
	defer cancel()
	out, cost, err = slots.run(limited, func() (ref.Val, int, error) {
		out, details, err := p.program.ContextEval(limited, input)
		if details == nil || details.ActualCost() == nil {
			return out, maxCost, err
		}
		return out, int(min(*details.ActualCost(), maxCost)), err
	})
	switch {
	case ctx.Err() != nil:
		return nil, cost, ctx.Err()
	case errors.Is(err, errNoSlot):
		return nil, cost, err
	case limited.Err() != nil && err != nil:
		return nil, cost, p.failure("it takes longer than " + evaluationTime.String())
	case err != nil:
		return nil, cost, p.failure(p.reason(err))
	default:
		return out, cost, nil
	}
}

// slots bounds the evaluations that run at once.
var slots = make(evaluationSlots, 32)

// evaluationSlots runs evaluations in goroutines of their own. One that outlasts its time is abandoned and keeps
// its slot until it returns: it holds up neither its caller nor the evaluations in other slots.
type evaluationSlots chan struct{}

var errNoSlot = tasker.Errorf(tasker.Unavailable, "all slots for expressions are busy: try again")

func (s evaluationSlots) run(limited context.Context, evaluate func() (ref.Val, int, error)) (ref.Val, int, error) {
	type outcome struct {
		out  ref.Val
		cost int
		err  error
	}
	select {
	case s <- struct{}{}:
	case <-limited.Done():
		return nil, 0, errNoSlot
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-s }()
		var o outcome
		o.out, o.cost, o.err = evaluate()
		done <- o
	}()
	select {
	case o := <-done:
		return o.out, o.cost, o.err
	case <-limited.Done():
		return nil, maxCost, limited.Err()
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
	for _, known := range []string{errCost, errRange, errArithmetic, errInexact, errPatternTooLong.Error(), errPatternTooLarge.Error(), errPattern} {
		if strings.HasPrefix(text, known) {
			return where + known
		}
	}
	switch key := noSuchKey.FindStringSubmatch(text); {
	case key != nil && strings.Contains(p.text, key[1]):
		return where + "there is no " + strconv.Quote(key[1])
	case key != nil:
		return where + "there is no such key"
	case strings.Contains(text, "no such overload"):
		return where + "values of these types cannot be used together like this"
	case strings.Contains(text, "cost limit exceeded"):
		return errCost
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

// plain makes numbers of the digits of a document.
func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		return numberOf(x.String())
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
