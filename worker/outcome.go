package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// The types of failures that this package gives. A handler names its own with
// [Error].
const (
	Panic             = "panic"              // the handler panicked; the stack is in the failure's context
	InvalidInput      = "invalid_input"      // the task's context or a dependency's result cannot be decoded
	InputUnavailable  = "input_unavailable"  // a dependency's result could not be fetched
	InvalidResult     = tasker.InvalidResult // what the handler returned cannot be stored
	InvalidCheckpoint = "invalid_checkpoint" // what the handler saved cannot be stored
	UnknownHandler    = "unknown_handler"    // this worker has no handler of that name
	HandlerError      = "error"              // any error that has no type
)

// The causes for which the context of a handler ends, see [context.Cause].
var (
	ErrLeaseLost   = errors.New("the lease of this attempt is lost; its outcome no longer counts")
	ErrInterrupted = errors.New("the worker is going down and can wait no longer; the step goes to another worker")
)

// An Error is a failure with everything that a handler can state about it. [Permanent] and
// [RetryAfter] make one from any error; another error is retried by the policy of the
// step.
type Error struct {
	Type       string        // for programs and statistics, such as card_declined
	Permanent  bool          // no retry, whatever the template says
	RetryAfter time.Duration // the shortest backoff before the next attempt
	Context    any           // evidence for the investigator; must be JSON
	// Fingerprint says which failures of the step are one case, whatever their messages say;
	// empty means that type and message tell. At most [tasker.MaxFingerprint] characters count, and
	// {default} stands for what type and message tell.
	Fingerprint string
	Err         error
}

// Error returns the message of the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Type
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Permanent marks a failure that no retry can fix: the step fails at once and
// the task's investigation opens. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.Permanent = true
	return e
}

// RetryAfter asks for a backoff of at least d before the next attempt, if the step has
// attempts left. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.RetryAfter = max(d, 0)
	return e
}

// WithFingerprint says which failures of the step are one case, see [Error].Fingerprint: an
// outage of one provider, say, whatever its messages are. WithFingerprint(text, nil) is nil.
func WithFingerprint(text string, err error) error {
	if err == nil {
		return nil
	}
	e := from(err)
	e.Fingerprint = text
	return e
}

// from returns an [Error] around err with the fields of the one that err wraps.
func from(err error) *Error {
	e := &Error{}
	if inner := errorIn(err); inner != nil {
		*e = *inner
	}
	e.Err = err
	return e
}

// errorIn returns the [Error] that err is or wraps, or nil.
func errorIn(err error) (e *Error) {
	inspect(func() { e, _ = errors.AsType[*Error](err) })
	return e
}

// inspect calls methods of an error of a handler. One that panics, such as that of a nil pointer in
// an interface, tells nothing.
func inspect(f func()) {
	defer func() { _ = recover() }()
	f()
}

// The limits of what is reported of a failure. The backend stores less of a message, and tells causes apart by all
// of it that arrives.
const (
	maxMessage = 256 << 10
	maxStack   = 16 << 10
	maxContext = 64 << 10
)

// failureOf converts the error of a handler to a failure to report.
func failureOf(ctx context.Context, err error) *tasker.Failure {
	f := &tasker.Failure{Message: payload.CutMiddle(payload.CleanText(messageOf(err), math.MaxInt), maxMessage, leftOut), Type: HandlerError, Retryable: true}
	timeout := false
	inspect(func() { timeout = errors.Is(err, context.DeadlineExceeded) })
	switch e := errorIn(err); {
	case e != nil:
		f.Retryable, f.RetryAfter = !e.Permanent, e.RetryAfter
		if e.Type != "" {
			f.Type = e.Type
		}
		f.Context, f.Fingerprint = evidence(e.Context), e.Fingerprint
	case timeout && errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Type = tasker.StepTimeout
	}
	return f
}

func leftOut(bytes int) string { return fmt.Sprintf("\n[… %d bytes are left out …]\n", bytes) }

// messageOf returns the text of an error, also of one whose Error method panics, such as a
// nil pointer in an interface.
func messageOf(err error) (message string) {
	defer func() {
		if recover() != nil {
			message = fmt.Sprintf("an error of type %T that panics when it is read", err)
		}
	}()
	return err.Error()
}

func evidence(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	doc, err := encode(v)
	if err != nil {
		doc, _ = json.Marshal(map[string]string{"dropped": "the evidence cannot be encoded: " + messageOf(err)})
	}
	return payload.CleanJSON(doc, payload.Limits{Bytes: maxContext})
}

// encode returns the JSON of a value, or an error if a method of the value panics.
func encode(v any) (doc json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			doc, err = nil, fmt.Errorf("encoding %T panicked: %v", v, r)
		}
	}()
	return json.Marshal(v)
}

// panicked returns the failure of a panic. It must be called where the panic is recovered,
// while the stack still exists.
func panicked(value any) error {
	return &Error{
		Type:    Panic,
		Context: map[string]string{"stack": payload.CleanText(string(debug.Stack()), maxStack)},
		Err:     fmt.Errorf("the handler panicked: %v", value),
	}
}

// ended is the failure of a handler that ended its goroutine instead of returning.
func ended(a tasker.Assignment) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{
		Message: "the handler ended its goroutine (runtime.Goexit) instead of returning", Type: Panic, Retryable: true,
	}}
}
