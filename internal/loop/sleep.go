package loop

import (
	"context"
	"time"
)

// Sleep waits for d, and returns false when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Wake wakes whoever waits for c, which has room for one value. It does not wait: if the
// value is there, they are awake.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
