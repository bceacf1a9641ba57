package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
)

// The rests of a worker whose backend does not answer.
const (
	firstRest   = 100 * time.Millisecond
	longRest    = 5 * time.Second
	longestRest = time.Minute // that the backend may ask for, and of an outcome that it refuses
)

// A backoff is the rest after a failure: it doubles from one to the next, and is
// spread, so that workers that failed together do not come back together. The zero
// value begins anew.
type backoff struct{ next time.Duration }

// rest waits, and returns false when ctx ended before. The backend may have asked
// for a longer rest with err.
func (b *backoff) rest(ctx context.Context, err error) bool {
	return loop.Sleep(ctx, max(b.step(longRest), min(askedRest(err), longestRest)))
}

// step returns the next rest, of at most limit.
func (b *backoff) step(limit time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstRest), limit)
	return b.next - time.Duration(rand.Int64N(int64(b.next)/2+1))
}

func (b *backoff) reset() { b.next = 0 }

// askedRest returns the rest that a backend asks for.
func askedRest(err error) time.Duration {
	if e, ok := errors.AsType[*tasker.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// refused reports whether the backend itself refuses a request for what it is, so that
// sending the same again is useless. All else may be better at the next try.
func refused(err error) bool {
	return slices.Contains([]tasker.Code{tasker.Invalid, tasker.TooLarge, tasker.Unsupported}, tasker.CodeOf(err))
}

// keyRefused reports whether the backend refuses a request for who sends it. That may
// pass: a key is just being replaced, or was revoked by mistake.
func keyRefused(err error) bool {
	code := tasker.CodeOf(err)
	return code == tasker.Unauthorized || code == tasker.Forbidden
}

// forgotten reports whether the backend says that it does not know worker id. That
// something else was not found, such as a path, says nothing of the worker.
func forgotten(err error, id tasker.ID) bool {
	return tasker.CodeOf(err) == tasker.NotFound && strings.Contains(err.Error(), id.String())
}
