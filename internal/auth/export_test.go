package auth

import (
	"context"
	"time"
)

// Note notes the use of all who are remembered, as Run does each minute.
func (a *Authenticator) Note(ctx context.Context) error { return a.note(ctx, a.expire(time.Now())) }

// Age makes the last look for changes older.
func (a *Authenticator) Age(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looked = a.looked.Add(-d)
}
