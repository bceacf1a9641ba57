// Package oidctest provides an OpenID Connect provider for tests. It can also issue invalid tokens.
package oidctest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Credentials of the provider's only client.
const (
	ClientID     = "tasker"
	ClientSecret = "between us"
)

// A Provider runs until the test ends. It is safe for concurrent use.
type Provider struct {
	URL string // the issuer

	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	keys   []key // the last one signs
	user   map[string]any
	codes  map[string]grant
	asked  map[string]int // requests by path
	broken bool
	nonce  string // overrides the requested nonce
}

type key struct {
	id      string
	private any
	public  any
	method  jose.SignatureAlgorithm
}

// grant contains the data behind an authorization code.
type grant struct {
	nonce, challenge, redirect string
	user                       map[string]any
}

// New starts a provider with the user alice, who is in no group.
func New(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, codes: map[string]grant{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.serveDiscovery)
	mux.HandleFunc("GET /keys", p.servePublicKeys)
	mux.HandleFunc("GET /authorize", p.serveAuthorize)
	mux.HandleFunc("POST /token", p.serveToken)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked[r.URL.Path]++
		broken := p.broken
		p.mu.Unlock()
		if broken {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	p.URL = p.server.URL
	p.Rotate(false)
	p.User("alice")
	return p
}

// User sets the user of later sign-ins.
func (p *Provider) User(subject string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = map[string]any{"sub": subject, "groups": append([]string{}, groups...)}
}

// Break makes all requests fail, or succeed again if broken is false.
func (p *Provider) Break(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

// Nonce makes ID tokens contain a wrong nonce. An empty string restores the right one.
func (p *Provider) Nonce(other string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nonce = other
}

// CountRequests returns the number of requests for a path so far.
func (p *Provider) CountRequests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

// Rotate adds a signing key. It removes the earlier ones unless keep is true.
func (p *Provider) Rotate(keep bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key{id: rand.Text()}
	if len(p.keys)%2 == 0 {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			p.t.Fatal(err)
		}
		k.private, k.public, k.method = private, &private.PublicKey, jose.ES256
	} else {
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			p.t.Fatal(err)
		}
		k.private, k.public, k.method = private, &private.PublicKey, jose.RS256
	}
	if !keep {
		p.keys = nil
	}
	p.keys = append(p.keys, k)
}

func (p *Provider) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	p.respond(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri":                 p.URL + "/keys",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256", "RS256"}, "code_challenge_methods_supported": []string{"S256"},
	})
}

func (p *Provider) servePublicKeys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range p.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.id, Use: "sig", Algorithm: string(k.method)})
	}
	p.respond(w, http.StatusOK, set)
}

// serveAuthorize redirects immediately, as if the user were signed in already.
func (p *Provider) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("response_type") != "code" ||
		q.Get("code_challenge_method") != "S256" {
		http.Error(w, "the request is not one of a client that is known", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	code := rand.Text()
	p.codes[code] = grant{
		nonce: q.Get("nonce"), challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri"), user: p.user,
	}
	p.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if id != ClientID || secret != url.QueryEscape(ClientSecret) && secret != ClientSecret {
		p.respond(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	p.mu.Lock()
	code := r.PostFormValue("code")
	g, ok := p.codes[code]
	nonce := cmp.Or(p.nonce, g.nonce)
	delete(p.codes, code) // a code is valid once
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) || g.redirect != r.PostFormValue("redirect_uri") {
		p.respond(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"nonce": nonce}
	maps.Copy(claims, g.user)
	p.respond(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 300, "id_token": p.Token(claims),
	})
}

// Token returns a token for [ClientID] that is valid for five minutes. claims overrides the
// default claims; a nil value removes a claim.
func (p *Provider) Token(claims map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	k := p.keys[len(p.keys)-1]
	p.mu.Unlock()
	signing := jose.SigningKey{Algorithm: k.method, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}}
	signer, err := jose.NewSigner(signing, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := signer.Sign(p.Claims(claims))
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Claims returns the payload that [Provider.Token] signs.
func (p *Provider) Claims(claims map[string]any) []byte {
	p.t.Helper()
	now := time.Now()
	all := map[string]any{
		"iss": p.URL, "aud": ClientID, "sub": "alice", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
	for k, v := range claims {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	doc, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	return doc
}

func (p *Provider) respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		p.t.Error(err)
	}
}
