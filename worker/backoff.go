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
	minBackoff    = 100 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = time.Minute // maximum Retry-After, and maximum delay of a rejected outcome
)

// backoff computes the delay between retries. The delay doubles with each failure. Jitter prevents
// workers that failed at the same time from retrying at the same time.
type backoff struct{ next time.Duration }

// sleep sleeps for the next delay, or for the longer one requested by err. It returns false if ctx
// ended first.
func (b *backoff) sleep(ctx context.Context, err error) bool {
	return loop.Sleep(ctx, max(b.advance(maxBackoff), min(retryAfter(err), maxRetryAfter)))
}

// advance returns the next delay, at most limit.
func (b *backoff) advance(limit time.Duration) time.Duration {
	b.next = min(max(2*b.next, minBackoff), limit)
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

// isRejected reports whether err means that the backend rejects the content of a request, so that a
// retry is useless. All other errors may be temporary.
func isRejected(err error) bool {
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
	return tasker.CodeOf(err) == tasker.NotFound && containsID(err.Error(), id.String())
}

// containsID reports whether text contains id outside of a path.
func containsID(text, id string) bool {
	for {
		before, after, found := strings.Cut(text, id)
		if !found || !strings.HasSuffix(before, "/") {
			return found
		}
		text = after
	}
}
