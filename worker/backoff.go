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

// Delays between retries.
const (
	firstRest   = 100 * time.Millisecond
	longRest    = 5 * time.Second
	longestRest = time.Minute // maximum Retry-After, and maximum delay of a rejected outcome
)

// backoff computes the delay between retries. The delay doubles with each failure. Jitter prevents
// workers that failed at the same time from retrying at the same time.
type backoff struct{ next time.Duration }

// rest sleeps for the next delay, or for the longer one requested by err. It returns false if ctx
// ended first.
func (b *backoff) rest(ctx context.Context, err error) bool {
	return loop.Sleep(ctx, max(b.step(longRest), min(retryAfter(err), longestRest)))
}

// step returns the next delay, at most limit.
func (b *backoff) step(limit time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstRest), limit)
	return b.next - time.Duration(rand.Int64N(int64(b.next)/2+1))
}

func (b *backoff) reset() { b.next = 0 }

// retryAfter returns the delay that the backend requested with err, or 0.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*tasker.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// refused reports whether err means that the backend rejects the content of a request, so that a
// retry is useless. All other errors may be temporary.
func refused(err error) bool {
	return slices.Contains([]tasker.Code{tasker.Invalid, tasker.TooLarge, tasker.Unsupported}, tasker.CodeOf(err))
}

// isAuthError reports whether err means that the backend rejects the worker's API key. That may be
// temporary, for example while the key is rotated.
func isAuthError(err error) bool {
	code := tasker.CodeOf(err)
	return code == tasker.Unauthorized || code == tasker.Forbidden
}

// isUnknownWorker reports whether err means that the backend does not know the worker with this
// id. It ignores errors about other objects, which contain the id only as part of a path.
func isUnknownWorker(err error, id tasker.ID) bool {
	return tasker.CodeOf(err) == tasker.NotFound && names(err.Error(), id.String())
}

// names reports whether text contains id outside of a path.
func names(text, id string) bool {
	for {
		before, after, found := strings.Cut(text, id)
		if !found || !strings.HasSuffix(before, "/") {
			return found
		}
		text = after
	}
}
