package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// MaxRefusals are recorded in the audit log by one server in a minute: whoever is
	// refused all the time must not fill it. The server's log has each of them.
	MaxRefusals = 60
	// auditTime bounds the record of a refusal.
	auditTime = 2 * time.Second
)

// AuditRefusal records in the audit log that a caller may not do what they asked for,
// with what that was.
func (a *Authenticator) AuditRefusal(ctx context.Context, subject string, data map[string]string) {
	if a == nil || subject == "" || !a.refusals.allow(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if err := a.DB.AuditRefusal(ctx, subject, "access.refused", data); err != nil {
		a.Log.WarnContext(ctx, "a refusal is not in the audit log", "subject", subject, "err", err)
	}
}

// AuditSignIn records in the audit log that somebody at an address could not sign in. It has
// a budget of its own: strangers must not fill the log, nor keep it from having the others.
func (a *Authenticator) AuditSignIn(ctx context.Context, from string) {
	if !a.strange.allow(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if err := a.DB.AuditRefusal(ctx, "unknown", "sign_in.refused", map[string]string{"from": from}); err != nil {
		a.Log.WarnContext(ctx, "a refused sign-in is not in the audit log", "from", from, "err", err)
	}
}

// A rateLimiter allows [MaxRefusals] a minute. The zero budget is ready.
type rateLimiter struct {
	mu     sync.Mutex
	minute int64
	spent  int
}

func (b *rateLimiter) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := now.Unix() / 60; m != b.minute {
		b.minute, b.spent = m, 0
	}
	b.spent++
	return b.spent <= MaxRefusals
}
