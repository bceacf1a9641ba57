package auth

import (
	"context"
	"time"

	"tasker.example/tasker/internal/access"
)

// Note notes the use of all who are remembered, as Run does each minute.
func (a *Authenticator) Note(ctx context.Context) error {
	return a.recordLastUse(ctx, a.evictExpired(time.Now()))
}

// TokenWhile is Token of a token that is read before something happens, and remembered after it.
func (a *Authenticator) TokenWhile(ctx context.Context, text string, happens func()) (*Caller, error) {
	token, _ := access.ParseToken(text)
	return a.findCaller(ctx, token.Digest, credentialSource{slots: a.looking,
		load: func(ctx context.Context) (*Caller, error) {
			list, err := a.DB.Tokens(ctx, []string{token.Prefix})
			happens()
			if err != nil || len(list) == 0 {
				return nil, errUnknown
			}
			return a.newCaller(list[0]), nil
		}})
}

// LookWhile is a look that has asked before something happens, and ends after it.
func (a *Authenticator) LookWhile(happens func()) {
	_, _, _ = a.one.Do("", func() (any, error) { happens(); return nil, nil })
}

// Age makes the last look for changes older.
func (a *Authenticator) Age(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.polled = a.polled.Add(-d)
}

// AgeValid makes the digests of valid credentials older.
func (a *Authenticator) AgeValid(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.validAt = a.validAt.Add(-d)
}

// Left returns how long what is remembered of a caller still counts.
func Left(c *Caller) time.Duration { return time.Until(*c.until.Load()) }
