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

// The delays before retries while the backend does not answer.
const (
	firstRest   = 100 * time.Millisecond
	longRest    = 5 * time.Second
	longestRest = time.Minute // the longest Retry-After that is obeyed, and the longest delay of an outcome that is refused
)

// A backoff is the delay before the next retry. It doubles with each failure and has
// jitter, so that workers that failed at the same time do not retry at the same time. The
// zero value starts with the shortest delay.
type backoff struct{ next time.Duration }

// rest waits for the next delay, or for the longer one that the backend asked for with
// err. It returns false if ctx ended first.
func (b *backoff) rest(ctx context.Context, err error) bool {
	return loop.Sleep(ctx, max(b.step(longRest), min(retryAfter(err), longestRest)))
}

// step returns the next delay, at most limit.
func (b *backoff) step(limit time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstRest), limit)
	return b.next - time.Duration(rand.Int64N(int64(b.next)/2+1))
}

func (b *backoff) reset() { b.next = 0 }

// retryAfter returns the delay that the backend asks for.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*tasker.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// refused reports whether the backend rejects a request because of its content, so that
// retrying it is useless. Every other failure may be temporary.
func refused(err error) bool {
	return slices.Contains([]tasker.Code{tasker.Invalid, tasker.TooLarge, tasker.Unsupported}, tasker.CodeOf(err))
}

// isAuthError reports whether the backend rejects the worker's key. That may be temporary:
// the key is being rotated, or was revoked by mistake.
func isAuthError(err error) bool {
	code := tasker.CodeOf(err)
	return code == tasker.Unauthorized || code == tasker.Forbidden
}

// isUnknownWorker reports whether the backend does not know what has the id, such as this worker. An error
// that something else was not found, such as a path with the id in it, does not count.
func isUnknownWorker(err error, id tasker.ID) bool {
	return tasker.CodeOf(err) == tasker.NotFound && names(err.Error(), id.String())
}

// names reports whether a text has the id otherwise than in a path.
func names(text, id string) bool {
	for {
		before, after, found := strings.Cut(text, id)
		if !found || !strings.HasSuffix(before, "/") {
			return found
		}
		text = after
	}
}
