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

// Failure types of this package. Handlers set their own with [Error].
const (
	Panic             = "panic"              // the handler panicked; the failure context contains the stack
	InvalidInput      = "invalid_input"      // the task context or the result of a dependency cannot be decoded
	InputUnavailable  = "input_unavailable"  // the result of a dependency could not be fetched
	InvalidResult     = tasker.InvalidResult // the result of the handler cannot be stored
	InvalidCheckpoint = "invalid_checkpoint" // the checkpoint cannot be stored
	UnknownHandler    = "unknown_handler"    // this worker has no such handler
	HandlerError      = "error"              // any other error
)

// Causes of a cancelled handler context, see [context.Cause].
var (
	ErrLeaseLost   = errors.New("the lease of this attempt is lost; its outcome no longer counts")
	ErrInterrupted = errors.New("the worker is shutting down; the step was released for another worker")
)

// Error is a failure with details. [Permanent], [RetryAfter] and [WithFingerprint] create one
// from any error. Other errors are retried by the policy of the step.
type Error struct {
	Type       string        // for programs and statistics, such as card_declined
	Permanent  bool          // prevents retries
	RetryAfter time.Duration // minimum delay before the next attempt
	Context    any           // JSON-encodable evidence for the investigation
	// Fingerprint groups the failures of the step into cases, regardless of their messages. The
	// default is derived from type and message; {default} inserts it. At most
	// [tasker.MaxFingerprint] characters are used.
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

func (e *Error) Unwrap() error { return e.Err }

// Permanent marks a failure as not retryable: the step fails immediately and an investigation
// opens. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	e := wrapError(err)
	e.Permanent = true
	return e
}

// RetryAfter requests a minimum delay before the next attempt, if the step has attempts left.
// RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	e := wrapError(err)
	e.RetryAfter = max(d, 0)
	return e
}

// WithFingerprint groups failures into one case, for example all failures of one provider, see
// [Error].Fingerprint. WithFingerprint(text, nil) is nil.
func WithFingerprint(text string, err error) error {
	if err == nil {
		return nil
	}
	e := wrapError(err)
	e.Fingerprint = text
	return e
}

// wrapError returns an [Error] that wraps err and copies the fields of the one that err wraps.
func wrapError(err error) *Error {
	e := &Error{}
	if inner := findError(err); inner != nil {
		*e = *inner
	}
	e.Err = err
	return e
}

func findError(err error) (e *Error) {
	ignorePanic(func() { e, _ = errors.AsType[*Error](err) })
	return e
}

// ignorePanic calls f and ignores a panic, because the methods of a handler's error may panic, for
// example on a nil pointer.
func ignorePanic(f func()) {
	defer func() { _ = recover() }()
	f()
}

// Size limits of a reported failure. The backend stores less of a message, but uses all of it to
// distinguish causes.
const (
	maxMessage = 256 << 10
	maxStack   = 16 << 10
	maxContext = 64 << 10
)

// toFailure converts the error of a handler to a failure.
func toFailure(ctx context.Context, err error) *tasker.Failure {
	f := &tasker.Failure{Message: payload.CutMiddle(payload.CleanText(errorMessage(err), math.MaxInt), maxMessage, formatOmitted), Type: HandlerError, Retryable: true}
	timeout := false
	ignorePanic(func() { timeout = errors.Is(err, context.DeadlineExceeded) })
	switch e := findError(err); {
	case e != nil:
		f.Retryable, f.RetryAfter = !e.Permanent, e.RetryAfter
		if e.Type != "" {
			f.Type = e.Type
		}
		f.Context, f.Fingerprint = encodeContext(e.Context), e.Fingerprint
	case timeout && errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Type = tasker.StepTimeout
	}
	return f
}

func formatOmitted(bytes int) string {
	return fmt.Sprintf("\n[… %d bytes are left out …]\n", bytes)
}

// errorMessage returns the text of an error, even if its Error method panics.
func errorMessage(err error) (message string) {
	defer func() {
		if recover() != nil {
			message = fmt.Sprintf("an error of type %T whose Error method panicked", err)
		}
	}()
	return err.Error()
}

func encodeContext(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	doc, err := encode(v)
	if err != nil {
		doc, _ = json.Marshal(map[string]string{"dropped": "the evidence cannot be encoded: " + errorMessage(err)})
	}
	return payload.CleanJSON(doc, payload.Limits{Bytes: maxContext})
}

// encode returns the JSON of a value. It returns an error if a method of the value panics.
func encode(v any) (doc json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			doc, err = nil, fmt.Errorf("encoding %T panicked: %v", v, r)
		}
	}()
	return json.Marshal(v)
}

// newPanicError converts a recovered panic to an error with the stack. The recovering function must
// call it, because the stack exists only there.
func newPanicError(value any) error {
	return &Error{
		Type:    Panic,
		Context: map[string]string{"stack": payload.CleanText(string(debug.Stack()), maxStack)},
		Err:     fmt.Errorf("the handler panicked: %v", value),
	}
}

// newGoexitOutcome returns the outcome for a handler that ended its goroutine instead of returning.
func newGoexitOutcome(a tasker.Assignment) tasker.Outcome {
	return tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{
		Message: "the handler ended its goroutine (runtime.Goexit) instead of returning", Type: Panic, Retryable: true,
	}}
}
