package auth_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/oidctest"
	"tasker.example/tasker/internal/overload"
)

// A clock is set by the test.
type clock struct {
	mu    sync.Mutex
	still time.Time // what it shows while ahead is 0; zero: the time
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.still.IsZero() {
		return c.still.Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// people returns a bench whose people come from a provider.
func people(t *testing.T, change ...func(*idp.Options)) (*bench, *oidctest.Provider, *clock) {
	t.Helper()
	b, provider, c := newBench(t), oidctest.New(t), &clock{}
	bindings, err := access.ParseBindings("ops=operator@*, payments=developer@payments , payments=worker@payments, a=b=viewer@x")
	b.Must(err)
	o := idp.Options{
		Issuer: provider.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, PublicURL: "https://tasker.example.com/", Now: c.now,
	}
	for _, f := range change {
		f(&o)
	}
	b.auth.Bindings = bindings
	b.auth.Provider, err = idp.New(o)
	b.Must(err)
	return b, provider, c
}

// bearer makes a request of the API with a token.
func (b *bench) bearer(token string) (*auth.Caller, error) {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return b.auth.AuthenticateRequest(r)
}

// The secret of a session is no token: the API takes no cookie, also not as something else.
func TestTheSecretOfASessionIsNoToken(t *testing.T) {
	t.Parallel()
	b, _, _ := people(t)
	_, token := b.key("alice", "operator@shop")
	secret, err := b.auth.SignIn(t.Context(), token, "192.0.2.1")
	b.Must(err)
	_, err = b.auth.AuthenticateSession(t.Context(), secret) // it is remembered
	b.Must(err)
	if who, err := b.bearer(secret); err == nil {
		t.Errorf("the secret of the session is taken for a token of %s", who.Subject)
	}
}

func TestTokensOfTheProvider(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t)
	who, err := b.bearer(provider.Token(map[string]any{"sub": "alice", "groups": []string{"payments", "others", "a=b"}}))
	b.Must(err)
	if who.Subject != "user:alice" || !slices.Equal(who.GrantTexts(), []string{"developer@payments", "worker@payments", "viewer@x"}) {
		t.Errorf("alice is %s with %q", who.Subject, who.GrantTexts())
	}
	if one, err := b.bearer(provider.Token(map[string]any{"groups": "ops"})); err != nil || !one.Scope(access.OperateSteps).IncludesAll() {
		t.Errorf("one group as a text: %+v, %v", one, err)
	}
	if none, err := b.bearer(provider.Token(map[string]any{"groups": 7})); err != nil || !none.VisibleScope().IsEmpty() {
		t.Errorf("no groups: %+v, %v", none, err)
	}
	if key, err := b.bearer(provider.Token(map[string]any{"sub": "key:root"})); err != nil || key.Subject != "user:key:root" {
		t.Errorf("somebody who calls themselves a key: %+v, %v", key, err)
	}
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	b.Must(err)
	forge := func(method jose.SignatureAlgorithm, with any, claims map[string]any) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: method, Key: with}, nil)
		b.Must(err)
		signed, err := signer.Sign(provider.Claims(claims))
		b.Must(err)
		text, err := signed.CompactSerialize()
		b.Must(err)
		return text
	}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := provider.Token(map[string]any{"jti": "1"})
	pieces := strings.Split(good, ".")
	document, err := json.Marshal(map[string]string{"protected": pieces[0], "payload": pieces[1], "signature": pieces[2]})
	b.Must(err)
	now := time.Now()
	for name, c := range map[string]struct{ token, says string }{
		"alg none":              {part(`{"alg":"none"}`) + "." + pieces[1] + ".", "not signed"},
		"alg None":              {part(`{"alg":"None"}`) + "." + pieces[1] + "." + pieces[2], "not signed"},
		"a foreign key":         {forge(jose.RS256, foreign, nil), "not signed"},
		"a foreign key, its id": {forge(jose.RS256, jose.JSONWebKey{Key: foreign, KeyID: "x"}, nil), "not signed"},
		"the public key as HS":  {forge(jose.HS256, []byte(strings.Repeat("public key", 4)), nil), "not signed"},
		"another algorithm":     {forge(jose.PS256, foreign, nil), "not signed"},
		"other claims":          {pieces[0] + "." + part(string(provider.Claims(map[string]any{"sub": "root"}))) + "." + pieces[2], "not signed"},
		"wrong audience":        {provider.Token(map[string]any{"aud": "other"}), "wrong audience"},
		"no audience":           {provider.Token(map[string]any{"aud": nil}), "wrong audience"},
		"wrong issuer":          {provider.Token(map[string]any{"iss": "https://evil.example"}), "wrong issuer"},
		"expired":               {provider.Token(map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}), "expired"},
		"no expiry":             {provider.Token(map[string]any{"exp": nil}), "expired"},
		"not yet valid":         {provider.Token(map[string]any{"nbf": now.Add(10 * time.Minute).Unix()}), "not valid yet"},
		"no subject":            {provider.Token(map[string]any{"sub": ""}), "claim sub"},
		"not a token":           {"x.y.z", "malformed"},
		"the JSON form":         {string(document), "malformed"},
		"expiry as a text":      {provider.Token(map[string]any{"exp": strconv.FormatInt(now.Add(time.Hour).Unix(), 10)}), "claim exp"},
		"too long":              {strings.Repeat("x", 20_000), "token too large"},
	} {
		got, err := b.bearer(c.token)
		if tasker.CodeOf(err) != tasker.Unauthorized || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, c.says)
		}
	}
	// Clocks may differ by a minute.
	for name, claims := range map[string]map[string]any{
		"ended half a minute ago":    {"exp": now.Add(-30 * time.Second).Unix(), "jti": "2"},
		"begins in half a minute":    {"nbf": now.Add(30 * time.Second).Unix(), "jti": "3"},
		"made in half a minute":      {"iat": now.Add(30 * time.Second).Unix(), "jti": "4"},
		"for several, us among them": {"aud": []string{"other", oidctest.ClientID}, "jti": "5"},
	} {
		if _, err := b.bearer(provider.Token(claims)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Strangers cannot have the provider asked again and again, and a key that is new is
// found all the same.
func TestKeysOfTheProvider(t *testing.T) {
	t.Parallel()
	keys := &slowKeys{entered: make(chan struct{}, 10), release: make(chan struct{})}
	b, provider, c := people(t, func(o *idp.Options) { o.HTTP = &http.Client{Transport: keys} })
	c.still = time.Now()
	before := provider.Token(map[string]any{"jti": "before"})
	_, err := b.bearer(before)
	b.Must(err)
	for range 20 {
		forged := strings.Split(provider.Token(map[string]any{"jti": rand.Text()}), ".")
		if _, err := b.bearer(forged[0] + "." + forged[1] + "." + strings.Split(before, ".")[2]); tasker.CodeOf(err) != tasker.Unauthorized {
			t.Fatalf("forged: %v", err)
		}
	}
	if n := provider.CountRequests("/keys"); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
	provider.Rotate(true)
	after := provider.Token(map[string]any{"jti": "after"})
	if _, err := b.bearer(after); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("a key that came within ten seconds: %v", err)
	}
	c.forward(11 * time.Second)
	_, err = b.bearer(provider.Token(map[string]any{"jti": "after it"}))
	b.Must(err)
	for range 20 { // unknown keys
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"`+rand.Text()+`"}`))+"."+strings.Join(strings.Split(before, ".")[1:], "."))
		if _, err := b.auth.AuthenticateRequest(r); tasker.CodeOf(err) != tasker.Unauthorized {
			t.Fatalf("an unknown key: %v", err)
		}
	}
	if n := provider.CountRequests("/keys"); n != 2 {
		t.Errorf("the keys were asked for %d times, want twice", n)
	}
	// A key that was withdrawn is forgotten within the hour.
	old := provider.Token(map[string]any{"jti": "old", "exp": c.now().Add(2 * time.Hour).Unix()})
	provider.Rotate(false)
	c.forward(61 * time.Minute)
	exp := c.now().Add(5 * time.Minute).Unix()
	if _, err := b.bearer(provider.Token(map[string]any{"exp": exp})); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if _, err := b.bearer(old); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("a key that was withdrawn: %v", err)
	}
	// While the provider is away for less than an hour, tokens with a known key are accepted.
	provider.Break(true)
	fresh := func() string { return provider.Token(map[string]any{"exp": c.now().Add(5 * time.Minute).Unix()}) }
	asked := provider.CountRequests("/keys")
	keys.slow.Store(true)
	c.forward(59 * time.Minute)
	if _, err := b.bearer(fresh()); err != nil {
		t.Errorf("while the provider is away: %v", err)
	}
	<-keys.entered // in the background
	keys.slow.Store(false)
	go func() { keys.release <- struct{}{} }()
	// Keys that cannot be read again for an hour may have been withdrawn, also for a token that waits for the
	// request that began before.
	c.forward(2 * time.Minute)
	for range 5 {
		if _, err := b.bearer(fresh()); tasker.CodeOf(err) != tasker.Unavailable {
			t.Errorf("the keys are an hour old: %v", err)
		}
		c.forward(time.Second)
	}
	if n := provider.CountRequests("/keys") - asked; n > 2 {
		t.Errorf("a provider that is away was asked %d times in five seconds, and once before", n)
	}
	provider.Break(false)
	c.forward(11 * time.Second)
	if _, err := b.bearer(fresh()); err != nil {
		t.Errorf("the provider is back: %v", err)
	}
}

// A transport delays requests for the keys of the provider while it is slow.
type slowKeys struct {
	slow    atomic.Bool
	entered chan struct{}
	release chan struct{}
}

func (s *slowKeys) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.slow.Load() && r.URL.Path == "/keys" {
		s.entered <- struct{}{}
		<-s.release
	}
	return http.DefaultTransport.RoundTrip(r)
}

// While the provider answers slowly, tokens with unknown keys wait for it, and new tokens with a
// known key do not, also when it is time to read the keys again.
func TestASlowProviderDelaysNoTokenWithAKnownKey(t *testing.T) {
	t.Parallel()
	keys := &slowKeys{entered: make(chan struct{}, 10), release: make(chan struct{})}
	b, provider, c := people(t, func(o *idp.Options) { o.HTTP = &http.Client{Transport: keys} })
	c.still = time.Now()
	_, err := b.bearer(provider.Token(map[string]any{"jti": "first"}))
	b.Must(err)
	unknown := func() string {
		known := strings.Split(provider.Token(nil), ".")
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"`+rand.Text()+`"}`)) + "." + known[1] + "." + known[2]
	}
	keys.slow.Store(true)
	c.forward(11 * time.Minute)
	var waiting sync.WaitGroup
	for range 40 {
		waiting.Go(func() {
			if _, err := b.bearer(unknown()); tasker.CodeOf(err) != tasker.Unauthorized {
				t.Errorf("an unknown key: %v", err)
			}
		})
	}
	<-keys.entered
	if _, err := b.bearer(provider.Token(map[string]any{"jti": "second", "exp": c.now().Add(time.Minute).Unix()})); err != nil {
		t.Errorf("a known key: %v", err)
	}
	close(keys.release)
	waiting.Wait()
}

// Wrong tokens from an address do not lock out a valid token of the provider.
func TestWrongTokensDoNotLockOutAValidOne(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t)
	b.auth.Strangers = overload.NewRate(1, func() time.Time { return time.Unix(0, 0) })
	_, err := b.bearer(provider.Token(nil))
	b.Must(err)
	for range 10 {
		if _, err := b.bearer(access.NewToken().Text); err == nil {
			t.Fatal("a wrong key is accepted")
		}
	}
	if _, err := b.bearer(provider.Token(map[string]any{"jti": "new"})); err != nil {
		t.Errorf("a valid token: %v", err)
	}
}

// An answer 101 has no body that ends: it is an error, and not waited for.
func TestAProviderThatSwitchesProtocols(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { connection.Close() })
		_, _ = connection.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"))
	}))
	t.Cleanup(server.Close)
	b, provider, _ := people(t, func(o *idp.Options) { o.Issuer = server.URL })
	if _, err := b.bearer(provider.Token(nil)); tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), "101") {
		t.Errorf("a token: %v", err)
	}
}

func TestAProviderThatIsAway(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t)
	provider.Break(true)
	token := provider.Token(nil)
	if _, err := b.bearer(token); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("a token: %v", err)
	}
	if _, _, err := b.auth.StartSignIn(t.Context(), "/ui/"); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("a sign-in: %v", err)
	}
	provider.Break(false)
	_, err := b.bearer(token)
	b.Must(err)
	other, _, _ := people(t, func(o *idp.Options) { o.Issuer = provider.URL + "/" })
	if _, err := other.bearer(token); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("a provider of another name: %v", err)
	}
}

// browse goes where a sign-in sends the browser, and returns what it comes back with.
func (b *bench) browse(address string) url.Values {
	b.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Get(address)
	b.Must(err)
	answer.Body.Close()
	back, err := answer.Location()
	b.Must(err)
	if !strings.HasPrefix(back.String(), "https://tasker.example.com"+idp.CallbackPath+"?") {
		b.Fatalf("the browser is sent to %s", back)
	}
	return back.Query()
}

func TestSignInAtTheProvider(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t)
	provider.User("alice", "ops")
	address, secret, err := b.auth.StartSignIn(t.Context(), "/ui/tasks")
	b.Must(err)
	if strings.Contains(address, secret) {
		t.Error("the secret of the browser is in the address")
	}
	answer := b.browse(address)
	// Failures from the same address lock out no sign-in that was begun.
	office := auth.WithAddress(t.Context(), netip.MustParseAddr("192.0.2.1"))
	b.auth.Strangers = overload.NewRate(1, func() time.Time { return time.Unix(0, 0) })
	for b.auth.Strangers.TakeAddress(netip.MustParseAddr("192.0.2.1")) == nil {
	}
	if _, _, err := b.auth.FinishSignIn(office, "made up", answer, "192.0.2.1"); err == nil || tasker.CodeOf(err) == tasker.Unauthorized {
		t.Errorf("a sign-in that was never begun: %v", err)
	}
	session, back, err := b.auth.FinishSignIn(office, secret, answer, "192.0.2.1")
	b.Must(err)
	who, err := b.auth.AuthenticateSession(t.Context(), session)
	b.Must(err)
	if who.Subject != "user:alice" || back != "/ui/tasks" || !who.Scope(access.OperateSteps).IncludesAll() {
		t.Errorf("%s is sent to %s with %q", who.Subject, back, who.GrantTexts())
	}
	refused := func(name, secret string, answer url.Values) {
		t.Helper()
		if s, _, err := b.auth.FinishSignIn(t.Context(), secret, answer, ""); tasker.CodeOf(err) != tasker.Unauthorized {
			t.Errorf("%s: %q, %v", name, s, err)
		}
	}
	refused("the same again", secret, answer)
	begin := func() (string, url.Values) {
		t.Helper()
		address, secret, err := b.auth.StartSignIn(t.Context(), "/ui/")
		b.Must(err)
		return secret, b.browse(address)
	}
	change := func(v url.Values, name, value string) url.Values { v.Set(name, value); return v }
	mine, answer := begin()
	other, others := begin()
	refused("another browser's answer", mine, others)
	refused("no cookie", "", answer)
	refused("the sign-in that was tried with another's answer", mine, answer)
	refused("a code of another sign-in under our state", other, change(change(url.Values{}, "state", others.Get("state")), "code", answer.Get("code")))
	provider.Nonce("of another sign-in")
	s, v := begin()
	refused("a token of another sign-in", s, v)
	provider.Nonce("")
	s, v = begin()
	refused("no state", s, change(v, "state", ""))
	s, v = begin()
	refused("another code", s, change(v, "code", "x"))
	s, v = begin()
	refused("refused by the provider", s, change(v, "error", "access_denied"))
	s, v = begin()
	b.Exec(`UPDATE tasker.sign_ins SET created_at = clock_timestamp() - interval '11 min'`)
	refused("after eleven minutes", s, v)
	// A code is good once: used by somebody else first, it is not for the browser.
	s, v = begin()
	if n := b.Count(`SELECT count(*) FROM tasker.sign_ins`); n > 2 {
		t.Errorf("%d sign-ins are kept", n)
	}
	_, _, err = b.auth.FinishSignIn(t.Context(), s, v, "")
	b.Must(err)
	s, again := begin()
	refused("a code that was used", s, change(again, "code", v.Get("code")))
	provider.User("mallory", "strangers")
	s, v = begin()
	if _, _, err := b.auth.FinishSignIn(t.Context(), s, v, ""); tasker.CodeOf(err) != tasker.Forbidden || !strings.Contains(err.Error(), "user:mallory") {
		t.Errorf("somebody without a role: %v", err)
	}
	// Who is bound to fewer roles by a new configuration has fewer at once.
	b.auth.Bindings = access.Bindings{}
	other2 := auth.New(auth.Options{DB: b.DB, Provider: b.auth.Provider, Bindings: b.auth.Bindings, SessionIdle: time.Hour})
	if who, err := other2.AuthenticateSession(t.Context(), session); err != nil || !who.VisibleScope().IsEmpty() {
		t.Errorf("after the configuration has changed: %+v, %v", who, err)
	}
}

// The email address names somebody only when the provider has verified it.
func TestTheSubjectIsAClaim(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t, func(o *idp.Options) { o.SubjectClaim, o.GroupsClaim, o.Audience = "email", "roles", "api" })
	claims := map[string]any{"email": "alice@example.com", "roles": []string{"ops"}, "aud": "api"}
	if _, err := b.bearer(provider.Token(claims)); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("an address that is not verified: %v", err)
	}
	claims["email_verified"] = true
	who, err := b.bearer(provider.Token(claims))
	b.Must(err)
	if who.Subject != "user:alice@example.com" || !who.Scope(access.OperateSteps).IncludesAll() {
		t.Errorf("%s with %q", who.Subject, who.GrantTexts())
	}
	claims["aud"] = oidctest.ClientID // an ID token is no token for the API
	if _, err := b.bearer(provider.Token(claims)); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("an ID token: %v", err)
	}
	delete(claims, "email")
	claims["aud"] = "api"
	if _, err := b.bearer(provider.Token(claims)); tasker.CodeOf(err) != tasker.Unauthorized {
		t.Errorf("without the claim: %v", err)
	}
}

func TestParseBindings(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"": true, "a=viewer@*": true, "a=viewer@*,": true, "viewer@*": false, "=viewer@*": false, "a=root@*": false, "a=viewer": false} {
		if _, err := access.ParseBindings(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := idp.New(idp.Options{Algorithms: []string{"none"}}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("the algorithm none: %v", err)
	}
	if _, err := idp.New(idp.Options{Algorithms: []string{"HS256"}}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("an algorithm with a shared key: %v", err)
	}
}

// A token of the provider counts until it expires, and what is open with it ends then. It is
// remembered for no longer than that, and for an hour at most.
func TestATokenOfTheProviderExpires(t *testing.T) {
	t.Parallel()
	b, provider, _ := people(t)
	const skew = time.Minute
	for name, c := range map[string]struct{ expires, left time.Duration }{
		"in ten minutes": {10 * time.Minute, 10*time.Minute + skew},
		"in three days":  {72 * time.Hour, time.Hour},
	} {
		who, err := b.bearer(provider.Token(map[string]any{"exp": time.Now().Add(c.expires).Unix(), "jti": name}))
		b.Must(err)
		if left := auth.Left(who); left > c.left || left < c.left-30*time.Second {
			t.Errorf("a token that expires %s is known for %v, want %v", name, left, c.left)
		}
	}
	var token string
	var who *auth.Caller
	b.Eventually("a token that ends in a moment is known", func() bool { // a slow machine may take longer than the first counts
		token = provider.Token(map[string]any{"exp": time.Now().Add(3*time.Second - skew).Unix()})
		var err error
		who, err = b.bearer(token)
		return err == nil
	})
	ended, done := make(chan struct{}), make(chan error, 1)
	who.OnEnd(func() { close(ended) })
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- b.auth.Run(ctx) }()
	defer func() { stop(); b.Must(<-done) }()
	b.Eventually("the token counts no more", func() bool {
		_, err := b.bearer(token)
		return tasker.CodeOf(err) == tasker.Unauthorized && strings.Contains(err.Error(), "expired")
	})
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("what was open with the token goes on")
	}
}
