package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tasker"
	"tasker/internal/loop"
)

// The rests of a worker whose engine does not answer.
const (
	firstRest = 100 * time.Millisecond
	longRest  = 5 * time.Second
)

// A backoff is the rest after a failure: it doubles from one to the next. The
// zero value begins anew.
type backoff struct{ next time.Duration }

// rest waits, and returns false when ctx ended before.
func (b *backoff) rest(ctx context.Context) bool {
	b.next = min(max(2*b.next, firstRest), longRest)
	jitter := time.Duration(rand.Int64N(int64(b.next)/5 + 1))
	return loop.Sleep(ctx, b.next-jitter)
}

func (b *backoff) reset() { b.next = 0 }

// refused tells whether an engine has answered and said no, so that asking the
// same again may be useless. Everything else is weather.
func refused(err error) bool {
	var e *tasker.Error
	return errors.As(err, &e) && e.Code != tasker.Unavailable
}
