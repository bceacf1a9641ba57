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

// defaultSource says who tells, where the operator gives no other name.
const defaultSource = "tasker"

// A Sink is where events go. It is safe for concurrent use.
type Sink interface {
	// Name is the kind of the sink, for metrics and messages.
	Name() string

	// Emit tells an event. It returns nil only when the other side has confirmed
	// it. After an error it may have arrived nevertheless.
	Emit(ctx context.Context, e tasker.Event) error

	// Close ends the connections. Nothing is told afterwards.
	Close() error
}

// Repeating is a sink whose receiver forgets what goes on unless it is told again.
type Repeating interface {
	Sink

	// RepeatEvery is how often it is told.
	RepeatEvery() time.Duration

	// Repeat tells again what was told last of something that goes on.
	Repeat(ctx context.Context, e tasker.Event) error
}

// A Batch is a sink that is more efficient with many events at once.
type Batch interface {
	// EmitAll tells the events in their order, and says of each what Emit would.
	// One that fails does not keep the later ones from being told.
	EmitAll(ctx context.Context, events []tasker.Event) []error
}

// A failure is why an event was not told.
type failure struct {
	err     error
	refused bool
	after   time.Duration
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// refuse marks err as being about the event itself.
func refuse(err error) error { return &failure{err: err, refused: true} }

// Emit tells a sink of an event. A panic is about the event, and refuses it: it must not end the program, again whenever the event is due.
func Emit(ctx context.Context, s Sink, e tasker.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = refuse(fmt.Errorf("%s: panic: %v\n%s", describe(e), r, debug.Stack()))
		}
	}()
	return s.Emit(ctx, e)
}

// Refused reports whether the receiver rejects this event, so retrying is useless; other errors
// concern the sink.
func Refused(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.refused
}

// RetryAfter returns the delay that the receiver asked for, at most an hour; 0 if none.
func RetryAfter(err error) time.Duration {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.after
	}
	return 0
}

// oneLine returns s in one storable line of at most most bytes.
func oneLine(s string, most int) string {
	return payload.CleanText(joinFields(payload.CleanText(s, 16*most)), most)
}

// describe names an event in an error.
func describe(e tasker.Event) string {
	return fmt.Sprintf("event %s (%.60q)", e.UUID, e.Topic)
}
