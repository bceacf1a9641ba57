// Package idp verifies OpenID Connect tokens and sign-ins from an identity provider.
package idp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

// CallbackPath is the path to which the provider redirects browsers.
const CallbackPath = "/ui/sign-in/callback"

const (
	// AnswerTime is the timeout of a request to the provider.
	AnswerTime    = 10 * time.Second
	maxDocument   = 1 << 20          // maximum size of a response
	keysFresh     = 10 * time.Minute // older keys are refreshed in the background
	keysTrusted   = time.Hour        // older keys verify no token
	keysRest      = 10 * time.Second // minimum interval between requests for the keys
	verifications = 8                // concurrent; limits the CPU use of invalid tokens
	maxTokenBytes = 16 << 10
	maxGroups     = 500
	// skew is the allowed difference between the clocks of the provider and the server.
	skew = time.Minute
)

// algorithms lists the signature algorithms that use a public key.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Options configures an identity provider. Issuer and ClientID are required.
type Options struct {
	Issuer       string
	ClientID     string
	ClientSecret string   // empty for a public client
	Audience     string   // of tokens for the API; default ClientID
	Algorithms   []string // default RS256 and ES256
	Scopes       []string // in addition to openid
	SubjectClaim string   // default sub
	GroupsClaim  string   // default groups
	PublicURL    string   // base URL for browsers, such as https://tasker.example.com

	HTTP *http.Client     // default: a client with timeouts
	Now  func() time.Time // default: time.Now
}

// Provider verifies tokens of an OpenID Connect provider. It contacts the provider on first use. It is
// safe for concurrent use.
type Provider struct {
	Options

	mu    sync.Mutex
	found *discovery
	one   singleflight.Group
	keys  *keySet
}

type discovery struct {
	endpoint oauth2.Endpoint
}

// New returns a provider. The error is Invalid.
func New(o Options) (*Provider, error) {
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{oidc.RS256, oidc.ES256}
	}
	if wrong := o.validate(); wrong != "" {
		return nil, tasker.Errorf(tasker.Invalid, "%s", wrong)
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(algorithms, a) {
			return nil, tasker.Errorf(tasker.Invalid, "invalid algorithm %q: must be one of %s", a, strings.Join(algorithms, ", "))
		}
	}
	o.SubjectClaim, o.GroupsClaim, o.Audience = cmp.Or(o.SubjectClaim, "sub"), cmp.Or(o.GroupsClaim, "groups"), cmp.Or(o.Audience, o.ClientID)
	if o.HTTP == nil {
		o.HTTP = httpclient.New(nil)
		o.HTTP.Timeout, o.HTTP.CheckRedirect = AnswerTime, nil
	}
	o.HTTP = httpclient.Guard(o.HTTP)
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Provider{Options: o}
	p.keys = &keySet{provider: p, verifying: make(chan struct{}, verifications)}
	return p, nil
}

func (o Options) validate() string {
	for name, text := range map[string]string{"issuer": o.Issuer, "public URL": o.PublicURL} {
		if text == "" && name == "public URL" {
			continue
		}
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return fmt.Sprintf("invalid %s %q: must be a URL without query or user, such as "+
				"https://id.example.com", name, text)
		case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
			return fmt.Sprintf("invalid %s %q: must use https unless it is on this machine", name, text)
		}
	}
	if o.ClientID == "" {
		return "missing client id"
	}
	return ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// requestLog is the part of the discovery document that is used.
type requestLog struct {
	Issuer   string   `json:"issuer"`
	AuthURL  string   `json:"authorization_endpoint"`
	TokenURL string   `json:"token_endpoint"`
	JWKS     string   `json:"jwks_uri"`
	Methods  []string `json:"code_challenge_methods_supported"`
}

// discover reads the endpoints of the provider and caches them. The error is Unavailable.
func (p *Provider) discover(ctx context.Context) (*discovery, error) {
	p.mu.Lock()
	found := p.found
	p.mu.Unlock()
	if found != nil {
		return found, nil
	}
	v, err, _ := p.one.Do("discover", func() (any, error) {
		var d requestLog
		if err := p.get(ctx, strings.TrimSuffix(p.Issuer, "/")+"/.well-known/openid-configuration", &d); err != nil {
			return nil, err
		}
		if d.Issuer != p.Issuer || d.JWKS == "" {
			return nil, providerError(fmt.Errorf("issuer is %q, not the configured %q", d.Issuer, p.Issuer))
		}
		found := &discovery{endpoint: oauth2.Endpoint{AuthURL: d.AuthURL, TokenURL: d.TokenURL}}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found, p.keys.url = found, d.JWKS
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*discovery), nil //nolint:forcetypeassert // the function above returns this type
}

// providerError returns an Unavailable error for a failed request to the provider, because the
// caller could not be verified.
func providerError(err error) error {
	return &tasker.Error{Code: tasker.Unavailable, Message: "the identity provider is unavailable or returned an invalid response: try again", Err: err}
}

// OAuth returns the configuration of the authorization code flow.
func (p *Provider) OAuth(ctx context.Context) (*oauth2.Config, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.endpoint,
		RedirectURL: strings.TrimSuffix(p.PublicURL, "/") + CallbackPath, Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...),
	}, nil
}

// get reads a JSON document of the provider.
func (p *Provider) get(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AnswerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return providerError(err)
	}
	answer, err := p.HTTP.Do(r)
	if err != nil {
		return providerError(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return providerError(fmt.Errorf("GET %s: %s", address, answer.Status))
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxDocument)).Decode(into); err != nil {
		return providerError(fmt.Errorf("GET %s: %w", address, err))
	}
	return nil
}

// keySet caches the keys of the provider. It implements [oidc.KeySet]. For a token with an unknown
// key, it reads the keys again, at most once per keysRest; tokens with known keys do not wait for
// that.
type keySet struct {
	provider  *Provider
	url       string // set by discover
	verifying chan struct{}

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	read  time.Time // when the keys were read
	asked time.Time // of the last request for them, successful or not
	one   singleflight.Group
}

var errUnknownKey = errors.New("the token is signed with an unknown key")

// VerifySignature returns the payload of a token that the provider signed.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := k.parse(token)
	if err != nil {
		return nil, err
	}
	id := signed.Signatures[0].Header.KeyID
	now := k.provider.Now()
	keys, age, rest := k.knownKeys(now)
	switch {
	case rest <= keysRest:
	case age > keysTrusted || len(matchingKeys(keys, id)) == 0:
		err = k.fetch(ctx, now)
		keys, age, _ = k.knownKeys(now)
	case age > keysFresh:
		go func() { _ = k.fetch(ctx, now) }()
	}
	if age > keysTrusted {
		return nil, cmp.Or(err, providerError(fmt.Errorf("could not read its keys for more than %s", keysTrusted)))
	}
	usable := matchingKeys(keys, id)
	if len(usable) == 0 {
		return nil, errUnknownKey
	}
	k.verifying <- struct{}{}
	defer func() { <-k.verifying }()
	for _, key := range usable {
		if payload, verifyErr := signed.Verify(&key); verifyErr == nil {
			return payload, nil
		}
	}
	return nil, errors.New("invalid signature")
}

// signatureCheck records the error of a verification, because the library returns only its text.
type signatureCheck struct {
	*keySet
	err error
}

func (c *signatureCheck) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, c.err = c.keySet.VerifySignature(ctx, token)
	return payload, c.err
}

// parse parses a token in compact format, which has one signature.
func (k *keySet) parse(token string) (*jose.JSONWebSignature, error) {
	var allowed []jose.SignatureAlgorithm
	for _, a := range k.provider.Algorithms {
		allowed = append(allowed, jose.SignatureAlgorithm(a))
	}
	return jose.ParseSignedCompact(token, allowed)
}

// knownKeys returns the cached keys, their age, and the time since they were last requested.
func (k *keySet) knownKeys(now time.Time) (keys []jose.JSONWebKey, age, rest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, now.Sub(k.read), now.Sub(k.asked)
}

// Recognizes reports whether a token names a known key of the provider. It does not verify the
// signature.
func (p *Provider) Recognizes(token string) bool {
	if len(token) > maxTokenBytes {
		return false
	}
	signed, err := p.keys.parse(token)
	if err != nil {
		return false
	}
	keys, _, _ := p.keys.knownKeys(p.Now())
	return len(matchingKeys(keys, signed.Signatures[0].Header.KeyID)) > 0
}

// matchingKeys returns the public signature keys with this id, or all of them if id is empty.
func matchingKeys(keys []jose.JSONWebKey, id string) []jose.JSONWebKey {
	var list []jose.JSONWebKey
	for _, key := range keys {
		if (id == "" || key.KeyID == id) && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			list = append(list, key)
		}
	}
	return list
}

// fetch reads the keys. Concurrent callers share one request.
func (k *keySet) fetch(ctx context.Context, now time.Time) error {
	_, err, _ := k.one.Do("", func() (any, error) {
		var set jose.JSONWebKeySet
		err := k.provider.get(ctx, k.url, &set)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.asked = now
		if err == nil {
			k.keys, k.read = set.Keys, now
		}
		return nil, err
	})
	return err
}

// Person is the subject of a token.
type Person struct {
	Subject string // "user:" and the subject claim
	Groups  []string
	Nonce   string // of the sign-in, in an ID token
	Expires time.Time
}

// Verify verifies a token and returns the person that it identifies. The error is Unauthorized, or
// Unavailable if the provider is unreachable.
func (p *Provider) Verify(ctx context.Context, token, audience string) (Person, error) {
	if len(token) > maxTokenBytes {
		return Person{}, tasker.Errorf(tasker.Unauthorized, "token too large: the limit is %d bytes", maxTokenBytes)
	}
	if _, err := p.discover(ctx); err != nil {
		return Person{}, err
	}
	// The clock is set back for the expiry. The library allows five minutes for the beginning.
	config := &oidc.Config{ClientID: audience, SupportedSigningAlgs: p.Algorithms, Now: func() time.Time { return p.Now().Add(-skew) }}
	check := &signatureCheck{keySet: p.keys}
	verified, err := oidc.NewVerifier(p.Issuer, check, config).Verify(ctx, token)
	if tasker.CodeOf(check.err) == tasker.Unavailable {
		return Person{}, check.err
	}
	if err != nil {
		return Person{}, &tasker.Error{Code: tasker.Unauthorized, Message: "invalid token: " + describeError(err), Err: err}
	}
	var claims map[string]json.RawMessage
	if err := verified.Claims(&claims); err != nil {
		return Person{}, tasker.Errorf(tasker.Unauthorized, "invalid token: cannot decode the claims")
	}
	for _, name := range []string{"exp", "nbf", "iat"} { // the library also accepts numbers in strings
		if strings.HasPrefix(string(claims[name]), `"`) {
			return Person{}, tasker.Errorf(tasker.Unauthorized, "invalid claim %s in the token: must be a number", name)
		}
	}
	who := Person{Groups: parseStrings(claims[p.GroupsClaim]), Nonce: verified.Nonce, Expires: verified.Expiry.Add(skew)}
	var name string
	if json.Unmarshal(claims[p.SubjectClaim], &name) != nil || name == "" {
		return Person{}, tasker.Errorf(tasker.Unauthorized,
			"invalid claim %s in the token: must be a non-empty string", p.SubjectClaim)
	}
	if verifiedEmail := claims["email_verified"]; p.SubjectClaim == "email" && string(verifiedEmail) != "true" {
		return Person{}, tasker.Errorf(tasker.Unauthorized, "the email address in the token is not verified")
	}
	who.Subject = "user:" + name
	return who, nil
}

// describeError describes why the library rejects a token, without revealing the content of the
// token.
func describeError(err error) string {
	text := err.Error()
	switch _, expired := errors.AsType[*oidc.TokenExpiredError](err); {
	case expired:
		return "expired"
	case strings.Contains(text, "audience"):
		return "wrong audience"
	case strings.Contains(text, "issued by a different provider"):
		return "wrong issuer"
	case strings.Contains(text, "nbf"):
		return "not valid yet"
	default:
		return "malformed or not signed by the provider"
	}
}

// parseStrings decodes a claim that is a string or a list of strings.
func parseStrings(doc json.RawMessage) []string {
	var list []string
	if json.Unmarshal(doc, &list) != nil {
		var one string
		if json.Unmarshal(doc, &one) != nil || one == "" {
			return nil
		}
		list = []string{one}
	}
	return list[:min(len(list), maxGroups)]
}
