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

// evaluationTime is the timeout of one evaluation. An evaluation reaches its cost limit after
// about 10 ms; the timeout covers work that the cost does not measure and leaves margin on a busy
// machine.
const evaluationTime = time.Second

// Values are the variables of an evaluation.
type Values struct {
	Context json.RawMessage
	Results map[string]json.RawMessage  // of ancestors, by name
	States  map[string]tasker.StepState // of ancestors, by name
	Task    TaskValues
	Error   json.RawMessage // of the failed step
	Item    json.RawMessage // element of a map step's list
}

// TaskValues contains the attributes of the task that expressions can read.
type TaskValues struct {
	ID            tasker.ID
	CreatedAt     time.Time
	Priority      int
	Namespace     string
	CorrelationID string
}

// A Failure describes why an evaluation failed. It contains no values, because they may be secret.
type Failure struct {
	Text   string // of the expression
	Reason string
}

// Error returns the reason and the expression.
func (f *Failure) Error() string { return f.Reason + ", in: " + f.Text }

// Bool evaluates a condition. The error is a [Failure], or the error of ctx.
func (p *Program) Bool(ctx context.Context, v Values) (bool, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return false, err
	}
	if is, ok := out.(types.Bool); ok {
		return bool(is), nil
	}
	return false, p.newFailure("must be true or false, not " + withArticle(out.Type().TypeName()))
}

// Time evaluates an expression that returns a timestamp. It returns the errors of [Program.Bool].
func (p *Program) Time(ctx context.Context, v Values) (time.Time, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return time.Time{}, err
	}
	if at, ok := out.(types.Timestamp); ok {
		return at.Time, nil
	}
	return time.Time{}, p.newFailure("must be a timestamp, not " + withArticle(out.Type().TypeName()))
}

// Object evaluates an expression that returns a JSON object. Timestamps and durations in it become
// strings. It returns the errors of [Program.Bool].
func (p *Program) Object(ctx context.Context, v Values) (json.RawMessage, error) {
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	if _, ok := out.(traits.Mapper); !ok {
		return nil, p.newFailure("must be an object, not " + withArticle(out.Type().TypeName()))
	}
	return p.toJSON(out, tasker.MaxDocumentBytes)
}

// JSON evaluates an expression that returns any JSON value of at most limit bytes. An expression
// that is only a path returns the value byte for byte. It returns the errors of [Program.Bool].
func (p *Program) JSON(ctx context.Context, v Values, limit int) (json.RawMessage, error) {
	if p.path != nil {
		doc, err := p.withNames(v)
		if err == nil && len(doc) > limit {
			err = p.newFailure(newTooLongError(limit).Error())
		}
		return doc, err
	}
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	return p.toJSON(out, limit)
}

// toJSON encodes out as JSON of at most limit bytes.
func (p *Program) toJSON(out ref.Val, limit int) (json.RawMessage, error) {
	w := jsonWriter{free: limit, texts: true}
	if err := w.write(out); err != nil {
		if errors.Is(err, errTooMany) {
			err = newTooLongError(limit)
		}
		return nil, p.newFailure(err.Error())
	}
	return w.out.Bytes(), nil
}

func newTooLongError(limit int) error { return fmt.Errorf("the value is larger than %d bytes", limit) }

// withNames returns the value at the path that the expression consists of.
func (p *Program) withNames(v Values) (json.RawMessage, error) {
	doc, rest := v.Context, p.path[1:]
	switch p.path[0] {
	case nameItem:
		doc = v.Item
	case nameResults:
		doc, rest = v.Results[p.path[1]], p.path[2:]
		if doc == nil {
			return nil, p.newFailure("missing key " + strconv.Quote(p.path[1]))
		}
	}
	for _, name := range rest {
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) != nil || object[name] == nil {
			return nil, p.newFailure("missing key " + strconv.Quote(name))
		}
		doc = object[name]
	}
	return doc, nil
}

// An Outcome is the value of an evaluation or its error. The value is a bool, a string, a time.Time
// or, for a number, a json.Number without an exponent. It is nil for null. If the expression must
// return a string, numbers are converted.
type Outcome struct {
	Value any
	Err   error // a [Failure], or the error of ctx
}

// EvaluateAll evaluates expressions with the same values. It returns their outcomes, in order, and
// the total cost.
func EvaluateAll(ctx context.Context, programs []*Program, v Values) (list []Outcome, cost int) {
	list = make([]Outcome, len(programs))
	input, err := v.decode()
	for i, p := range programs {
		if err != nil {
			list[i].Err = p.newFailure(err.Error())
			continue
		}
		out, of, err := p.run(ctx, input)
		cost += of
		if list[i].Err = err; err == nil {
			list[i].Value, list[i].Err = p.toNative(out)
		}
	}
	return list, cost
}

// toNative converts a CEL value to a Go value.
func (p *Program) toNative(out ref.Val) (any, error) {
	switch x := out.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null
	case types.Bool:
		return bool(x), nil
	case types.String:
		return string(x), nil
	case types.Double, exactNumber:
		d, finite := toDecimal(x)
		switch {
		case !finite:
			return nil, p.newFailure("the number must be finite")
		case p.kind == Text:
			return d.String(), nil
		}
		return json.Number(d.String()), nil
	case types.Timestamp:
		return x.Time, nil
	default:
		return nil, p.newFailure("must not be " + withArticle(out.Type().TypeName()))
	}
}

func (p *Program) newFailure(reason string) error { return &Failure{Text: p.text, Reason: reason} }

func (p *Program) evaluate(ctx context.Context, v Values) (ref.Val, error) {
	input, err := v.decode()
	if err != nil {
		return nil, p.newFailure(err.Error())
	}
	out, _, err := p.run(ctx, input)
	return out, err
}

// run evaluates the expression and returns the result and the cost.
func (p *Program) run(ctx context.Context, input map[string]any) (out ref.Val, cost int, err error) {
	if p.fault != nil {
		return nil, 0, p.newFailure(p.fault.Error())
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
		return nil, cost, p.newFailure("evaluation took longer than " + evaluationTime.String())
	case err != nil:
		return nil, cost, p.newFailure(p.describeError(err))
	default:
		return out, cost, nil
	}
}

// slots limits concurrent evaluations.
var slots = make(evaluationSlots, 32)

// evaluationSlots runs each evaluation in its own goroutine. An evaluation that exceeds its
// timeout is abandoned and occupies its slot until it returns, but blocks neither its caller nor
// other slots.
type evaluationSlots chan struct{}

var errNoSlot = tasker.Errorf(tasker.Unavailable, "all expression evaluation slots are busy: try again")

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

// noSuchKey matches CEL's error for a missing key.
var noSuchKey = regexp.MustCompile(`^no such key: (.*)$`)

// describeError describes a CEL error without the parts that may contain values.
func (p *Program) describeError(err error) string {
	where := ""
	if e, ok := errors.AsType[*types.Err](err); ok {
		where = formatPosition(p.parsed.NativeRep().SourceInfo(), e.NodeID())
	}
	text := err.Error()
	for _, known := range []string{
		errCost, errRange, errArithmetic, errInexact, errPatternTooLong.Error(), errPatternTooLarge.Error(), errPattern,
	} {
		if strings.HasPrefix(text, known) {
			return where + known
		}
	}
	switch key := noSuchKey.FindStringSubmatch(text); {
	case key != nil && strings.Contains(p.text, key[1]):
		return where + "missing key " + strconv.Quote(key[1])
	case key != nil:
		return where + "missing key"
	case strings.Contains(text, "no such overload"):
		return where + "the operator or function does not support these types"
	case strings.Contains(text, "cost limit exceeded"):
		return errCost
	case strings.Contains(text, "index out of"):
		return where + "list index out of range"
	case strings.Contains(text, "no matching overload"), strings.Contains(text, "type conversion"):
		return where + "type conversion failed"
	default:
		return where + "evaluation failed"
	}
}

// decode converts the values to CEL variables.
func (v Values) decode() (map[string]any, error) {
	input, err := decode(v.Context)
	if err != nil {
		return nil, errors.New("cannot decode the context")
	}
	results := make(map[string]any, len(v.Results))
	for name, doc := range v.Results {
		if results[name], err = decode(doc); err != nil {
			return nil, errors.New("cannot decode the result of step " + name)
		}
	}
	failed, err := decode(v.Error)
	if err != nil {
		return nil, errors.New("cannot decode the step's error")
	}
	item, err := decode(v.Item)
	if err != nil {
		return nil, errors.New("cannot decode the item")
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
	return toPlain(v), err
}

// toPlain converts decoded numbers to CEL numbers.
func toPlain(v any) any {
	switch x := v.(type) {
	case json.Number:
		return parseNumber(x.String())
	case []any:
		for i := range x {
			x[i] = toPlain(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = toPlain(x[k])
		}
	}
	return v
}
