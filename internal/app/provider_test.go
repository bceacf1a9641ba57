package app_test

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/oidctest"
	"tasker.example/tasker/internal/pgtest"
)

const publicURL = "https://tasker.example.com"

// provider starts a provider that the server is to believe, everybody from which is a viewer.
func (k *keyTest) provider() *oidctest.Provider {
	k.Helper()
	p := oidctest.New(k.T)
	for name, value := range map[string]string{
		"auth.mode": config.AuthRequired, "auth.oidc.issuer": p.URL, "auth.oidc.client_id": oidctest.ClientID, "auth.oidc.client_secret": oidctest.ClientSecret,
		"auth.oidc.role_bindings": "*=viewer@*", "auth.oidc.public_url": publicURL,
	} {
		if name == k.key.Name {
			k.set(value)
		} else {
			k.also(name, value)
		}
	}
	return p
}

// identity asks the server who has a token.
func (s *server) identity(token string, status int) (id apiv1.Identity) {
	s.Helper()
	got := s.getWith(token, "/v1/whoami")
	if got.status != status {
		s.Fatalf("whoami is answered with %d, want %d: %s", got.status, status, got.text)
	}
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(got.text), &id); err != nil {
			s.Fatal(err)
		}
	}
	return id
}

// signInAtProvider goes the way of a browser, and returns where it is sent and the status of its
// return.
func (k *keyTest) signInAtProvider(s *server) (asked url.Values, status int) {
	k.Helper()
	jar, err := cookiejar.New(nil)
	k.must(err)
	client := http.Client{
		Jar: jar, Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	get := func(address string) (status int, location string) {
		k.Helper()
		req, err := http.NewRequestWithContext(k.Context(), http.MethodGet, address, http.NoBody)
		k.must(err)
		resp, err := client.Do(req)
		k.must(err)
		k.must(resp.Body.Close())
		return resp.StatusCode, resp.Header.Get("Location")
	}
	_, there := get(s.url + "/ui/sign-in/provider?back=/ui/tasks")
	at, err := url.Parse(there)
	k.must(err)
	_, back := get(there)
	back = strings.Replace(back, k.options.Config.Auth.OIDC.PublicURL, s.url, 1)
	status, to := get(back)
	if status == http.StatusSeeOther {
		if to != "/ui/tasks" {
			k.Errorf("sent to %s", to)
		}
		if page, _ := get(s.url + "/ui/tasks"); page != http.StatusOK {
			k.Errorf("the page is answered with %d", page)
		}
		if again, _ := get(back); again != http.StatusUnauthorized {
			k.Errorf("the same return again is answered with %d", again)
		}
	}
	return at.Query(), status
}

var providerEffects = map[string]func(*keyTest){
	"auth.oidc.issuer": func(k *keyTest) {
		p := k.provider()
		s := k.start()
		if id := s.identity(p.Token(nil), http.StatusOK); id.Subject != "user:alice" {
			k.Errorf("alice is %s", id.Subject)
		}
		s.identity(oidctest.New(k.T).Token(nil), http.StatusUnauthorized)
	},
	"auth.oidc.client_id": func(k *keyTest) {
		p := k.provider()
		s := k.start()
		s.identity(p.Token(map[string]any{"aud": oidctest.ClientID}), http.StatusOK)
		s.identity(p.Token(map[string]any{"aud": "other"}), http.StatusUnauthorized)
	},
	"auth.oidc.client_secret": func(k *keyTest) {
		k.provider()
		if _, status := k.signInAtProvider(k.start()); status != http.StatusSeeOther {
			k.Errorf("with the secret: %d", status)
		}
		k.also("auth.oidc.client_secret", "wrong")
		if _, status := k.signInAtProvider(k.start()); status != http.StatusUnauthorized {
			k.Errorf("with another secret: %d", status)
		}
	},
	"auth.oidc.audience": func(k *keyTest) {
		p := k.provider()
		k.set("api")
		s := k.start()
		s.identity(p.Token(map[string]any{"aud": "api"}), http.StatusOK)
		s.identity(p.Token(nil), http.StatusUnauthorized)
	},
	"auth.oidc.algorithms": func(k *keyTest) {
		p := k.provider() // signs with ES256
		k.set("RS256")
		k.start().identity(p.Token(nil), http.StatusUnauthorized)
	},
	"auth.oidc.scopes": func(k *keyTest) {
		k.provider()
		k.set("groups, email")
		if asked, _ := k.signInAtProvider(k.start()); asked.Get("scope") != "openid groups email" {
			k.Errorf("asked for %q", asked.Get("scope"))
		}
	},
	"auth.oidc.subject_claim": func(k *keyTest) {
		p := k.provider()
		k.set("preferred_username")
		if id := k.start().identity(p.Token(map[string]any{"preferred_username": "al"}), http.StatusOK); id.Subject != "user:al" {
			k.Errorf("alice is %s", id.Subject)
		}
	},
	"auth.oidc.groups_claim": func(k *keyTest) {
		p := k.provider()
		k.also("auth.oidc.role_bindings", "ops=operator@shop")
		k.set("roles")
		if id := k.start().identity(p.Token(map[string]any{"roles": "ops"}), http.StatusOK); len(id.Grants) != 1 {
			k.Errorf("ops may %q", id.Grants)
		}
	},
	"auth.oidc.role_bindings": func(k *keyTest) {
		p := k.provider()
		k.set("ops=operator@shop")
		s := k.start()
		if id := s.identity(p.Token(map[string]any{"groups": []string{"ops"}}), http.StatusOK); len(id.Grants) != 1 || id.Grants[0] != "operator@shop" {
			k.Errorf("ops may %q", id.Grants)
		}
		if _, status := k.signInAtProvider(s); status != http.StatusForbidden { // alice is in no group
			k.Errorf("somebody without a role: %d", status)
		}
	},
	"auth.oidc.public_url": func(k *keyTest) {
		k.provider()
		asked, status := k.signInAtProvider(k.start())
		if asked.Get("redirect_uri") != publicURL+"/ui/sign-in/callback" || asked.Get("code_challenge_method") != "S256" || status != http.StatusSeeOther {
			k.Errorf("the browser is sent with %v, and comes back to %d", asked, status)
		}
	},
}

// Where the provider is not configured, its paths lead nowhere.
func TestPagesWithoutAProvider(t *testing.T) {
	t.Parallel()
	k := &keyTest{T: t}
	k.options = options(pgtest.New(t).URL)
	k.also("auth.mode", config.AuthRequired)
	s := k.start()
	for _, path := range []string{"/ui/sign-in/provider", "/ui/sign-in/callback?code=x&state=y"} {
		if status, _, err := s.get(path); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}
}
