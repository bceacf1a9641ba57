package sink

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// defaultSource is the default CloudEvents source.
const defaultSource = "tasker"

// A Sink is a destination of events. It is safe for concurrent use.
type Sink interface {
	// Name returns the kind of the sink, for metrics and messages.
	Name() string

	// Emit delivers an event. It returns nil if the receiver has confirmed it. After an error the
	// event may have arrived nevertheless.
	Emit(ctx context.Context, e tasker.Event) error

	// Close closes the connections. Emit must not be called afterwards.
	Close() error
}

// Repeating is a sink whose receiver considers a subject ended unless notifications about it are
// repeated.
type Repeating interface {
	Sink

	// RepeatEvery returns the interval of repetitions.
	RepeatEvery() time.Duration

	// Repeat resends the last notification about an ongoing subject.
	Repeat(ctx context.Context, e tasker.Event) error
}

// A Batch is a sink that can deliver several events together.
type Batch interface {
	// EmitAll delivers the events in order and returns one error per event, as Emit does. A failure
	// does not stop the later events.
	EmitAll(ctx context.Context, events []tasker.Event) []error
}

// failure is a delivery error with its classification.
type failure struct {
	err     error
	refused bool          // see Refused
	after   time.Duration // see RetryAfter
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// newRefusedError marks err as specific to the event, so that [IsRefused] returns true.
func newRefusedError(err error) error { return &failure{err: err, refused: true} }

// Emit delivers an event to a sink. A panic counts as a refusal, because a retry would panic again.
func Emit(ctx context.Context, s Sink, e tasker.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = newRefusedError(fmt.Errorf("%s: panic: %v\n%s", describe(e), r, debug.Stack()))
		}
	}()
	return s.Emit(ctx, e)
}

// IsRefused reports whether err means that the receiver rejects this particular event, so that a
// retry is useless. Other errors concern all events for the sink.
func IsRefused(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.refused
}

// RetryAfter returns the delay that the receiver requested, at most an hour, or 0.
func RetryAfter(err error) time.Duration {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.after
	}
	return 0
}

// toOneLine returns s as one line of at most limit bytes that can be stored.
func toOneLine(s string, limit int) string {
	return payload.CleanText(joinFields(payload.CleanText(s, 16*limit)), limit)
}

func describe(e tasker.Event) string {
	return fmt.Sprintf("event %s (%.60q)", e.UUID, e.Topic)
}
