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
	// RevocationInterval is how often is looked for access that was taken away.
	RevocationInterval = 2 * time.Second
	// maxUnchecked is for how long what is remembered counts without such a look.
	maxUnchecked = 4 * time.Second
	// maxRemembered bounds the memory: of a caller beyond it each request is a query.
	maxRemembered = 20_000
	noteEvery     = time.Minute
	// strangersFor is how long somebody who is not known is not looked up again, and
	// maxStrangers how many are remembered so.
	strangersFor = 2 * time.Second
	maxStrangers = 10_000
	// lookups are made at the same time: strangers must not take all connections.
	lookups      = 4
	maxTokenLife = time.Hour // that a token of the provider is remembered
	// sessionBytes of a secret are random.
	sessionBytes = 24
)

// Options of an [Authenticator]. DB is needed.
type Options struct {
	DB  *postgres.DB
	Log *slog.Logger

	Provider *idp.Provider   // of identities; nil means none
	Bindings access.Bindings // of its groups

	// Strangers is how often somebody who is not known may call from one address; nil
	// means any number.
	Strangers *overload.Rate

	// How long a session lasts, in all and without being used.
	SessionLife, SessionIdle time.Duration
}

// An Authenticator knows callers. It is safe for concurrent use.
type Authenticator struct {
	Options

	mu       sync.RWMutex
	known    map[[32]byte]*Caller
	loads    int       // how often all were asked for again
	revision int64     // as of the last look
	looked   time.Time // when that was; zero before the first
	one      singleflight.Group
	refusals rateLimiter // of callers who are known, that are recorded
	strange  rateLimiter // of sign-ins

	strangers map[[32]byte]negativeCacheEntry
	looking   chan struct{} // one value for each lookup

	valid   map[digestHead]struct{} // valid credentials; replaced as a whole
	validAt time.Time               // when valid was read
}

// A negativeCacheEntry is somebody who was not known a moment ago, and why.
type negativeCacheEntry struct {
	at  time.Time
	err error
}

// New returns an empty authenticator. [Authenticator.Run] must run beside it.
func New(o Options) *Authenticator {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Authenticator{Options: o, known: map[[32]byte]*Caller{}, strangers: map[[32]byte]negativeCacheEntry{}, looking: make(chan struct{}, lookups)}
}

// A Caller is somebody who is known, for as long as that holds.
type Caller struct {
	*access.Identity

	life    context.Context // ends with what is said of the caller
	end     func()
	until   atomic.Pointer[time.Time] // nil means for ever
	prefix  string                    // of the token
	digest  [32]byte
	key     *tasker.ID
	session *tasker.ID
	used    atomic.Bool // since the last note
}

// WhenEnded has f called when the caller is not known any more: the key or the session
// was ended, has other grants or has expired. What it returns takes that back.
func (c *Caller) WhenEnded(f func()) (stop func() bool) { return context.AfterFunc(c.life, f) }

// Session reports whether the caller is a browser that has signed in.
func (c *Caller) Session() bool { return c.session != nil }

// errUnknown is the answer to all credentials that are not valid: why is not for
// strangers.
var errUnknown = tasker.Errorf(tasker.Unauthorized, "the API key is not valid: it is unknown, revoked or expired")

// Token returns the caller of a token, Unauthorized, or Unavailable.
func (a *Authenticator) Token(ctx context.Context, text string) (*Caller, error) {
	token, ok := access.ParseToken(text)
	if !ok {
		return nil, errUnknown
	}
	return used(a.find(ctx, token.Digest, source{slots: a.looking, load: func(ctx context.Context) (*Caller, error) {
		list, err := a.DB.Tokens(lookupLane(ctx), []string{token.Prefix})
		if err != nil {
			return nil, unavailable(err)
		}
		for _, c := range list {
			if subtle.ConstantTimeCompare(c.Digest, token.Digest[:]) == 1 {
				return a.caller(c), nil
			}
		}
		return nil, errUnknown
	}}))
}

// used notes that a caller who was found does something.
func used(c *Caller, err error) (*Caller, error) {
	if err == nil && !c.used.Load() {
		c.used.Store(true)
	}
	return c, err
}

// signed returns the caller whom a token of the provider is about.
func (a *Authenticator) signed(ctx context.Context, token string) (*Caller, error) {
	digest := sha256.Sum256([]byte("provider:" + token)) // the secret of a session is no token, though both are remembered
	return a.find(ctx, digest, source{recognizes: func(context.Context) bool { return a.Provider.Recognizes(token) }, load: func(ctx context.Context) (*Caller, error) {
		who, err := a.Provider.Verify(ctx, token, a.Provider.Audience)
		if err != nil {
			return nil, err
		}
		left := min(who.Expires.Sub(a.Provider.Now()), maxTokenLife)
		return a.caller(postgres.Credential{Digest: digest[:], Subject: who.Subject, Grants: a.Bindings.Grants(who.Groups), Groups: who.Groups, Remaining: &left}), nil
	}})
}

// errNoSession is the answer to all sessions that are not valid.
var errNoSession = tasker.Errorf(tasker.Unauthorized, "the session has ended; sign in again")

// Session returns the caller whose browser has a session.
func (a *Authenticator) Session(ctx context.Context, secret string) (*Caller, error) {
	return used(a.Refresh(ctx, secret))
}

// Refresh is [Authenticator.Session] for what a page asks for by itself, which does not
// keep a session from ending that nobody uses.
func (a *Authenticator) Refresh(ctx context.Context, secret string) (*Caller, error) {
	if len(secret) != base64.RawURLEncoding.EncodedLen(sessionBytes) {
		return nil, errNoSession
	}
	digest := sha256.Sum256([]byte(secret))
	return a.find(ctx, digest, source{slots: a.looking, load: func(ctx context.Context) (*Caller, error) {
		list, err := a.DB.Sessions(lookupLane(ctx), [][]byte{digest[:]}, a.SessionIdle)
		if err != nil {
			return nil, unavailable(err)
		}
		if len(list) == 0 {
			return nil, errNoSession
		}
		return a.caller(list[0]), nil
	}})
}

// unavailable keeps a database that does not answer from looking like a wrong key.
func unavailable(err error) error {
	if tasker.CodeOf(err) == tasker.Unavailable {
		return err
	}
	return &tasker.Error{Code: tasker.Unavailable, Message: "who is calling cannot be looked up now; try again", Err: err}
}

// caller makes a caller of what is stored.
func (a *Authenticator) caller(c postgres.Credential) *Caller {
	if c.SessionUUID != nil && c.KeyUUID == nil && a.Provider != nil {
		c.Grants = a.Bindings.Grants(c.Groups)
	}
	grants, err := access.ParseGrants(c.Grants)
	if err != nil { // somebody wrote it by hand; it gives nothing
		a.Log.Warn("the grants of a key cannot be read", "name", c.Name, "err", err)
	}
	subject := c.Subject
	if c.KeyUUID != nil {
		subject = access.Subject(c.Name)
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

// A source finds a caller who is not remembered.
type source struct {
	slots      chan struct{}              // one value for each load at the same time; nil means any number
	recognizes func(context.Context) bool // whether the credential may be valid; nil means by its digest
	load       func(context.Context) (*Caller, error)
}

// lookupLane has a lookup wait for no flood of requests: a heartbeat may need it.
func lookupLane(ctx context.Context) context.Context {
	return postgres.WithConnClass(ctx, postgres.Heartbeats)
}

// find returns who is remembered under a digest, or else who a source finds.
func (a *Authenticator) find(ctx context.Context, digest [32]byte, from source) (*Caller, error) {
	now := time.Now()
	a.mu.RLock()
	c, fresh, loads := a.known[digest], now.Sub(a.looked) < maxUnchecked, a.loads
	a.mu.RUnlock()
	if c != nil && !fresh {
		if err := a.pollRevocations(ctx); err != nil {
			return nil, unavailable(err)
		}
		a.mu.RLock()
		c, loads = a.known[digest], a.loads
		a.mu.RUnlock()
	}
	if c != nil && !c.over(now) {
		return c, nil
	}
	c, err := a.resolve(ctx, digest, from)
	if err != nil {
		return nil, err
	}
	return a.remember(c, loads), nil
}

// resolve asks a source for somebody who is not remembered, and for nobody again at once
// who was not found.
func (a *Authenticator) resolve(ctx context.Context, digest [32]byte, from source) (*Caller, error) {
	a.mu.RLock()
	before, known := a.strangers[digest]
	a.mu.RUnlock()
	if known && time.Since(before.at) < strangersFor {
		return nil, before.err
	}
	if from.recognizes == nil {
		from.recognizes = func(ctx context.Context) bool { return a.recognizes(ctx, digest) }
	}
	if err := a.admit(ctx, from.recognizes); err != nil {
		return nil, err
	}
	if from.slots != nil {
		select {
		case from.slots <- struct{}{}:
			defer func() { <-from.slots }()
		case <-ctx.Done():
			return nil, unavailable(ctx.Err())
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

// remember caches a caller unless the cache was invalidated since it was read, and returns the
// cached one: the first of two concurrent look-ups. An uncached caller expires soon, because its
// revocation is not noticed.
func (a *Authenticator) remember(c *Caller, loads int) *Caller {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.known[c.digest]
	switch {
	case a.loads != loads || before == nil && len(a.known) >= maxRemembered:
		time.AfterFunc(maxUnchecked, c.end)
		return c
	case before != nil && before.same(c):
		before.until.Store(c.until.Load())
		return before
	case before != nil:
		before.end()
	}
	a.known[c.digest] = c
	return c
}

// same reports whether two lookups found somebody who may do the same. When that ends may
// differ: a session goes on while it is used.
func (c *Caller) same(other *Caller) bool {
	return c.Subject == other.Subject && slices.Equal(c.Grants, other.Grants) && slices.Equal(c.Groups, other.Groups)
}

// over reports whether the time of a caller is over.
func (c *Caller) over(now time.Time) bool {
	until := c.until.Load()
	return until != nil && !now.Before(*until)
}

// SignIn starts a session by token and returns its secret, or Unauthorized.
func (a *Authenticator) SignIn(ctx context.Context, text, from string) (secret string, err error) {
	c, err := a.Token(ctx, text)
	if err != nil {
		return "", err
	}
	return a.begin(ctx, postgres.NewSession{Subject: c.Subject, KeyUUID: c.key, From: from})
}

// begin stores a session.
func (a *Authenticator) begin(ctx context.Context, s postgres.NewSession) (secret string, err error) {
	secret = randomText()
	s.UUID, s.Digest, s.Life = tasker.NewID(), sha256.Sum256([]byte(secret)), a.SessionLife
	return secret, a.DB.AddSession(ctx, s)
}

// SignOut ends a session.
func (a *Authenticator) SignOut(ctx context.Context, secret string) error {
	if err := a.DB.EndSession(ctx, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	a.Look(ctx)
	return nil
}
