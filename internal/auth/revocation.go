package auth

import (
	"context"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// pollRevocations reloads all cached callers if anybody's access was reduced since the last poll.
// Concurrent calls share a poll.
func (a *Authenticator) pollRevocations(ctx context.Context) error {
	_, err, _ := a.one.Do("", func() (any, error) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(withLookupLane(context.WithoutCancel(ctx)), maxUnchecked)
		defer cancel()
		revision, err := a.DB.AccessRevision(ctx)
		if err != nil {
			return nil, err
		}
		a.mu.RLock()
		same := revision == a.revision && !a.polled.IsZero()
		a.mu.RUnlock()
		if !same {
			if err := a.reload(ctx); err != nil {
				return nil, err
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revision, a.polled = revision, began
		return nil, nil
	})
	return err
}

// reloadBatch is the maximum number of callers per query.
const reloadBatch = 1000

// reload reads the access of all cached callers and removes those whose access changed.
func (a *Authenticator) reload(ctx context.Context) error {
	a.mu.Lock()
	a.loads++
	list := slices.Collect(maps.Values(a.known))
	a.mu.Unlock()
	for part := range slices.Chunk(list, reloadBatch) {
		if err := a.reloadCallers(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// reloadCallers reads the access of some cached callers, removes those whose access changed, and
// updates the expiry of the others.
func (a *Authenticator) reloadCallers(ctx context.Context, part []*Caller) error {
	var prefixes []string
	var digests [][]byte
	for _, c := range part {
		switch {
		case c.session != nil:
			digests = append(digests, c.digest[:])
		case c.key != nil:
			prefixes = append(prefixes, c.prefix)
		}
	}
	tokens, err := a.DB.Tokens(ctx, prefixes)
	if err != nil {
		return err
	}
	sessions, err := a.DB.Sessions(ctx, digests, a.SessionIdle)
	if err != nil {
		return err
	}
	now := map[[32]byte]*Caller{}
	for _, c := range slices.Concat(tokens, sessions) {
		n := a.newCaller(c)
		now[n.digest] = n
	}
	for _, c := range part {
		if c.session == nil && c.key == nil {
			continue // a token of the provider remains valid until it expires
		}
		if n := now[c.digest]; n == nil || !n.hasSameAccess(c) {
			a.evict(c)
		} else {
			c.until.Store(n.until.Load())
		}
	}
	return nil
}

// evict removes a caller from the cache and cancels its requests.
func (a *Authenticator) evict(c *Caller) {
	a.mu.Lock()
	if a.known[c.digest] == c {
		delete(a.known, c.digest)
	}
	a.mu.Unlock()
	c.end()
}

// Idle returns the time after which an unused session expires.
func (a *Authenticator) Idle() time.Duration {
	if a == nil {
		return 0
	}
	return a.SessionIdle
}

// PollRevocations polls for revoked access at once. It is called after access was revoked, and does
// not share a poll in progress, which may have read the state before the revocation.
func (a *Authenticator) PollRevocations(ctx context.Context) {
	if a == nil {
		return
	}
	a.one.Forget("")
	if err := a.pollRevocations(ctx); err != nil {
		a.Log.WarnContext(ctx, "access revocation poll failed", "err", err)
	}
}

// Run polls for revoked access, expires cached callers, and records the use of keys and sessions
// until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	tick := time.NewTicker(RevocationInterval)
	defer tick.Stop()
	noted := time.Now()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		list := a.evictExpired(now)
		if len(list) == 0 {
			continue
		}
		err := a.pollRevocations(ctx)
		if err == nil && now.Sub(noted) >= noteEvery {
			noted = now
			err = a.recordLastUse(postgres.WithConnClass(ctx, postgres.Timers), list)
		}
		if err != nil && !failing && ctx.Err() == nil {
			a.Log.WarnContext(ctx, "access revocation poll failed; identity cache disabled", "err", err)
		}
		failing = err != nil
	}
}

// evictExpired removes expired callers from the cache and returns the others.
func (a *Authenticator) evictExpired(now time.Time) []*Caller {
	a.mu.RLock()
	list := slices.Collect(maps.Values(a.known))
	a.mu.RUnlock()
	return slices.DeleteFunc(list, func(c *Caller) bool {
		over := c.hasExpired(now)
		if over {
			a.evict(c)
		}
		return over
	})
}

// recordLastUse records the use of keys and sessions since the last call, and updates the expiry of
// sessions.
func (a *Authenticator) recordLastUse(ctx context.Context, list []*Caller) error {
	var keys, sessions []tasker.ID
	var browsers []*Caller
	for _, c := range list {
		used := c.used.Swap(false)
		switch {
		case c.session != nil && used:
			sessions = append(sessions, *c.session)
		case c.key != nil && used:
			keys = append(keys, *c.key)
		}
		if c.session != nil {
			browsers = append(browsers, c)
		}
	}
	if err := a.DB.RecordUse(ctx, keys, sessions); err != nil {
		return err
	}
	for part := range slices.Chunk(browsers, reloadBatch) {
		if err := a.reloadCallers(ctx, part); err != nil {
			return err
		}
	}
	return nil
}
