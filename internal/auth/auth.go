// Package auth authenticates callers: programs by API key, browsers by session. It caches
// identities and polls for revoked access every two seconds; a server that cannot poll stops
// trusting its cache.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

const (
	// RevocationInterval is the interval at which revoked access is polled for.
	RevocationInterval = 2 * time.Second
	// maxUnchecked is the time after the last poll for which the cache is valid.
	maxUnchecked = 4 * time.Second
	// maxRemembered is the maximum number of cached callers. Requests from further callers query
	// the database.
	maxRemembered = 20_000
	noteEvery     = time.Minute
	// Invalid credentials are cached for strangersFor, at most maxStrangers of them.
	strangersFor = 2 * time.Second
	maxStrangers = 10_000
	// lookups limits concurrent lookups, so that invalid credentials cannot use all connections.
	lookups      = 4
	maxTokenLife = time.Hour // of a cached token of the provider
	// sessionBytes is the number of random bytes of a secret.
	sessionBytes = 24
)

// Options configures an [Authenticator]. DB is required.
type Options struct {
	DB  *postgres.DB
	Log *slog.Logger

	Provider *idp.Provider   // nil: none
	Bindings access.Bindings // roles of the provider's groups

	// Strangers limits requests with invalid credentials per address; nil: no limit.
	Strangers *overload.Rate

	// SessionLife is the maximum lifetime of a session; SessionIdle is the time after which an
	// unused one expires.
	SessionLife, SessionIdle time.Duration
}

// Authenticator authenticates callers. It is safe for concurrent use.
type Authenticator struct {
	Options

	mu       sync.RWMutex
	known    map[[32]byte]*Caller
	loads    int       // number of reloads
	revision int64     // of the last poll
	polled   time.Time // time of the last poll; zero before the first
	one      singleflight.Group
	refusals rateLimiter // of audited refusals
	strange  rateLimiter // of audited sign-ins

	strangers map[[32]byte]negativeCacheEntry
	looking   chan struct{} // one value per lookup

	valid   map[digestHead]struct{} // valid credentials, replaced as a whole
	validAt time.Time               // when valid was read
}

// negativeCacheEntry is a recent failed lookup.
type negativeCacheEntry struct {
	at  time.Time
	err error
}

// New returns an authenticator. [Authenticator.Run] must run while it is used.
func New(o Options) *Authenticator {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Authenticator{Options: o, known: map[[32]byte]*Caller{}, strangers: map[[32]byte]negativeCacheEntry{}, looking: make(chan struct{}, lookups)}
}

// Caller is an authenticated caller.
type Caller struct {
	*access.Identity

	life    context.Context // ends with the caller's access
	end     func()
	until   atomic.Pointer[time.Time] // nil: forever
	prefix  string                    // of the token
	digest  [32]byte
	key     *tasker.ID
	session *tasker.ID
	used    atomic.Bool // since the last call of note
}

// OnEnd arranges to call f when the caller's access ends because the key or session was
// revoked, expired or got other grants. stop cancels the call.
func (c *Caller) OnEnd(f func()) (stop func() bool) { return context.AfterFunc(c.life, f) }

// IsSession reports whether the caller is a browser session.
func (c *Caller) IsSession() bool { return c.session != nil }

// errUnknown is the error for all invalid API keys. It does not reveal why the key is invalid.
var errUnknown = tasker.Errorf(tasker.Unauthorized, "invalid API key: unknown, revoked or expired")

// AuthenticateToken authenticates a token. The error is Unauthorized or Unavailable.
func (a *Authenticator) AuthenticateToken(ctx context.Context, text string) (*Caller, error) {
	token, ok := access.ParseToken(text)
	if !ok {
		return nil, errUnknown
	}
	return recordUse(a.findCaller(ctx, token.Digest,
		credentialSource{slots: a.looking, load: func(ctx context.Context) (*Caller, error) {
			list, err := a.DB.Tokens(withLookupLane(ctx), []string{token.Prefix})
			if err != nil {
				return nil, wrapUnavailable(err)
			}
			for _, c := range list {
				if subtle.ConstantTimeCompare(c.Digest, token.Digest[:]) == 1 {
					return a.newCaller(c), nil
				}
			}
			return nil, errUnknown
		}}))
}

// recordUse records that a caller was authenticated, for the time of the last use. It returns its
// arguments.
func recordUse(c *Caller, err error) (*Caller, error) {
	if err == nil && !c.used.Load() {
		c.used.Store(true)
	}
	return c, err
}

// authenticateJWT authenticates a token that the identity provider signed.
func (a *Authenticator) authenticateJWT(ctx context.Context, token string) (*Caller, error) {
	digest := sha256.Sum256([]byte("provider:" + token)) // distinct from the digests of session secrets
	return a.findCaller(ctx, digest, credentialSource{recognizes: func(context.Context) bool { return a.Provider.Recognizes(token) }, load: func(ctx context.Context) (*Caller, error) {
		who, err := a.Provider.Verify(ctx, token, a.Provider.Audience)
		if err != nil {
			return nil, err
		}
		left := min(who.Expires.Sub(a.Provider.Now()), maxTokenLife)
		return a.newCaller(postgres.Credential{Digest: digest[:], Subject: who.Subject, Grants: a.Bindings.Grants(who.Groups), Groups: who.Groups, Remaining: &left}), nil
	}})
}

var errNoSession = tasker.Errorf(tasker.Unauthorized, "the session has ended: sign in again")

// AuthenticateSession authenticates a browser by the secret of its session. It counts as use of the
// session.
func (a *Authenticator) AuthenticateSession(ctx context.Context, secret string) (*Caller, error) {
	return recordUse(a.RefreshSession(ctx, secret))
}

// RefreshSession is like [Authenticator.AuthenticateSession] for automatic requests of a page,
// which do not extend an idle session.
func (a *Authenticator) RefreshSession(ctx context.Context, secret string) (*Caller, error) {
	if len(secret) != base64.RawURLEncoding.EncodedLen(sessionBytes) {
		return nil, errNoSession
	}
	digest := sha256.Sum256([]byte(secret))
	return a.findCaller(ctx, digest, credentialSource{slots: a.looking, load: func(ctx context.Context) (*Caller, error) {
		list, err := a.DB.Sessions(withLookupLane(ctx), [][]byte{digest[:]}, a.SessionIdle)
		if err != nil {
			return nil, wrapUnavailable(err)
		}
		if len(list) == 0 {
			return nil, errNoSession
		}
		return a.newCaller(list[0]), nil
	}})
}

// wrapUnavailable converts a database error to Unavailable, to distinguish it from invalid
// credentials.
func wrapUnavailable(err error) error {
	if tasker.CodeOf(err) == tasker.Unavailable {
		return err
	}
	return &tasker.Error{Code: tasker.Unavailable, Message: "authentication is temporarily unavailable: try again", Err: err}
}

func (a *Authenticator) newCaller(c postgres.Credential) *Caller {
	if c.SessionUUID != nil && c.KeyUUID == nil && a.Provider != nil {
		c.Grants = a.Bindings.Grants(c.Groups)
	}
	grants, err := access.ParseGrants(c.Grants)
	if err != nil { // edited manually; it has no grants
		a.Log.Warn("invalid grants of a key", "name", c.Name, "err", err)
	}
	subject := c.Subject
	if c.KeyUUID != nil {
		subject = access.KeySubject(c.Name)
	}
	out := &Caller{
		Identity: access.NewIdentity(subject, grants), prefix: c.Prefix, digest: [32]byte(c.Digest),
		key: c.KeyUUID, session: c.SessionUUID,
	}
	if c.KeyUUID == nil {
		out.Groups = c.Groups
	}
	out.life, out.end = context.WithCancel(context.Background())
	if c.Remaining != nil {
		until := time.Now().Add(*c.Remaining)
		out.until.Store(&until)
	}
	return out
}

// credentialSource defines how to load a caller that is not cached.
type credentialSource struct {
	slots      chan struct{}              // one value per concurrent load; nil: no limit
	recognizes func(context.Context) bool // whether the credential may be valid; nil: check its digest
	load       func(context.Context) (*Caller, error)
}

// withLookupLane returns a context that uses the connections of heartbeats: they never wait for
// other requests, and heartbeats themselves need lookups.
func withLookupLane(ctx context.Context) context.Context {
	return postgres.WithConnClass(ctx, postgres.Heartbeats)
}

// findCaller returns the cached caller whose credential has this digest, or loads it.
func (a *Authenticator) findCaller(ctx context.Context, digest [32]byte, from credentialSource) (*Caller, error) {
	now := time.Now()
	a.mu.RLock()
	c, fresh, loads := a.known[digest], now.Sub(a.polled) < maxUnchecked, a.loads
	a.mu.RUnlock()
	if c != nil && !fresh {
		if err := a.pollRevocations(ctx); err != nil {
			return nil, wrapUnavailable(err)
		}
		a.mu.RLock()
		c, loads = a.known[digest], a.loads
		a.mu.RUnlock()
	}
	if c != nil && !c.hasExpired(now) {
		return c, nil
	}
	c, err := a.resolve(ctx, digest, from)
	if err != nil {
		return nil, err
	}
	return a.cacheCaller(c, loads), nil
}

// resolve loads a caller that is not cached, and caches failures.
func (a *Authenticator) resolve(ctx context.Context, digest [32]byte, from credentialSource) (*Caller, error) {
	a.mu.RLock()
	before, known := a.strangers[digest]
	a.mu.RUnlock()
	if known && time.Since(before.at) < strangersFor {
		return nil, before.err
	}
	if from.recognizes == nil {
		from.recognizes = func(ctx context.Context) bool { return a.recognizesDigest(ctx, digest) }
	}
	if err := a.admitLookup(ctx, from.recognizes); err != nil {
		return nil, err
	}
	if from.slots != nil {
		select {
		case from.slots <- struct{}{}:
			defer func() { <-from.slots }()
		case <-ctx.Done():
			return nil, wrapUnavailable(ctx.Err())
		}
	}
	c, err := from.load(ctx)
	if tasker.CodeOf(err) == tasker.Unauthorized {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.strangers) >= maxStrangers {
			clear(a.strangers)
		}
		a.strangers[digest] = negativeCacheEntry{at: time.Now(), err: err}
	}
	return c, err
}

// cacheCaller caches a caller, unless the cache was invalidated or is full, and returns the cached
// caller. After concurrent lookups, that is the first one. A caller that is not cached expires
// soon, because polls do not notice its revocation.
func (a *Authenticator) cacheCaller(c *Caller, loads int) *Caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.known[c.digest]
	switch {
	case a.loads != loads || before == nil && len(a.known) >= maxRemembered:
		time.AfterFunc(maxUnchecked, c.end)
		return c
	case before != nil && before.hasSameAccess(c):
		before.until.Store(c.until.Load())
		return before
	case before != nil:
		before.end()
	}
	a.known[c.digest] = c
	return c
}

// hasSameAccess reports whether two lookups returned the same access. The expiry may differ,
// because sessions are extended while they are used.
func (c *Caller) hasSameAccess(other *Caller) bool {
	return c.Subject == other.Subject && slices.Equal(c.Grants, other.Grants) && slices.Equal(c.Groups, other.Groups)
}

// hasExpired reports whether the caller has expired.
func (c *Caller) hasExpired(now time.Time) bool {
	until := c.until.Load()
	return until != nil && !now.Before(*until)
}

// SignIn starts a session with a token and returns its secret. The error is Unauthorized.
func (a *Authenticator) SignIn(ctx context.Context, text, from string) (secret string, err error) {
	c, err := a.AuthenticateToken(ctx, text)
	if err != nil {
		return "", err
	}
	return a.beginSession(ctx, postgres.NewSession{Subject: c.Subject, KeyUUID: c.key, From: from})
}

func (a *Authenticator) beginSession(ctx context.Context, s postgres.NewSession) (secret string, err error) {
	secret = newRandomText()
	s.UUID, s.Digest, s.Life = tasker.NewID(), sha256.Sum256([]byte(secret)), a.SessionLife
	return secret, a.DB.AddSession(ctx, s)
}

// SignOut ends a session.
func (a *Authenticator) SignOut(ctx context.Context, secret string) error {
	if err := a.DB.EndSession(ctx, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	a.PollRevocations(ctx)
	return nil
}
