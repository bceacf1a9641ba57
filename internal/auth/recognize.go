package auth

import (
	"context"
	"time"
)

// digestHead contains the first bytes of a digest, which suffice to distinguish valid credentials
// from guesses.
type digestHead [8]byte

// admitLookup refuses a lookup from an address that has sent too many wrong credentials, unless the
// credential is recognized. So further wrong credentials from the address do not reach the
// database, and valid ones are not locked out.
func (a *Authenticator) admitLookup(ctx context.Context, recognized func(context.Context) bool) error {
	err := a.Strangers.CheckAddress(addressFromContext(ctx))
	if err != nil && recognized(ctx) {
		return nil
	}
	return err
}

// recognizesDigest reports whether a digest belongs to a valid key, session or sign-in. It may miss
// a credential that was created within the last RevocationInterval.
func (a *Authenticator) recognizesDigest(ctx context.Context, digest [32]byte) bool {
	a.mu.RLock()
	valid, fresh := a.valid, time.Since(a.validAt) < RevocationInterval
	a.mu.RUnlock()
	if !fresh {
		valid = a.loadValidDigests(ctx)
	}
	_, ok := valid[digestHead(digest[:])]
	return ok
}

// loadValidDigests reads the digests of all valid credentials. Concurrent callers share one query.
// If it fails, the digests of the last successful query stay in use.
func (a *Authenticator) loadValidDigests(ctx context.Context) map[digestHead]struct{} {
	v, _, _ := a.one.Do("valid", func() (any, error) {
		ctx, cancel := context.WithTimeout(withLookupLane(context.WithoutCancel(ctx)), maxUnchecked)
		defer cancel()
		began := time.Now()
		digests, err := a.DB.ValidDigests(ctx, a.SessionIdle, maxRemembered)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.validAt = began
		if err != nil {
			a.Log.WarnContext(ctx, "cannot read the digests of valid credentials", "err", err)
			return a.valid, nil
		}
		a.valid = make(map[digestHead]struct{}, len(digests))
		for _, d := range digests {
			a.valid[digestHead(d)] = struct{}{}
		}
		return a.valid, nil
	})
	return v.(map[digestHead]struct{}) //nolint:forcetypeassert // the function above returns this type
}
