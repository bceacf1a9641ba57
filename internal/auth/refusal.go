package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// MaxRefusals is the maximum number of refusals per minute and server in the audit log. The log
	// of the server contains all of them.
	MaxRefusals = 60
	// auditTime limits the recording of a refusal.
	auditTime = 2 * time.Second
)

// AuditRefusal records in the audit log that a caller lacks a permission for a request.
func (a *Authenticator) AuditRefusal(ctx context.Context, subject string, data map[string]string) {
	if a == nil || subject == "" || !a.refusals.allow(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if err := a.DB.AuditRefusal(ctx, subject, "access.refused", data); err != nil {
		a.Log.WarnContext(ctx, "could not audit a refusal", "subject", subject, "err", err)
	}
}

// AuditSignIn records a failed sign-in in the audit log. It has its own limit, so that unauthenticated
// callers neither fill the log nor displace other refusals.
func (a *Authenticator) AuditSignIn(ctx context.Context, from string) {
	if !a.strange.allow(time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	if err := a.DB.AuditRefusal(ctx, "unknown", "sign_in.refused", map[string]string{"from": from}); err != nil {
		a.Log.WarnContext(ctx, "could not audit a refused sign-in", "from", from, "err", err)
	}
}

// rateLimiter allows [MaxRefusals] per minute. The zero value is ready to use.
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
