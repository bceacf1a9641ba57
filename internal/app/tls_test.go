package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
)

// An authority signs certificates of the test.
type authority struct {
	*testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.key = key
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	doc, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(doc); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", doc)
	return a
}

func (a *authority) write(name, kind string, doc []byte) string {
	a.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: doc}), 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

// sign writes a certificate of somebody and its key.
func (a *authority) sign(name string) (cert, key string) {
	a.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	doc, err := x509.CreateCertificate(rand.Reader, form, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	spelled, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", doc), a.write(name+"-key.pem", "EC PRIVATE KEY", spelled)
}

// client returns a client that believes the authority, with a certificate of its own if that
// is named.
func (a *authority) client(cert, key string, change ...func(*tls.Config)) *http.Client {
	a.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			a.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	for _, f := range change {
		f(c)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}, Timeout: patience}
}

func (k *keyTest) status(c *http.Client, method, address, token string) (int, http.Header, error) {
	k.Helper()
	req, err := http.NewRequestWithContext(k.Context(), method, address, strings.NewReader("{}"))
	k.must(err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	k.must(resp.Body.Close())
	return resp.StatusCode, resp.Header, nil
}

var tlsEffects = map[string]func(*keyTest){
	"server.tls_cert_file": func(k *keyTest) {
		a := newAuthority(k.T)
		cert, key := a.sign("server")
		k.set(cert)
		k.also("server.tls_key_file", key)
		s := k.start()
		if !strings.HasPrefix(s.url, "https://127.0.0.1:") {
			k.Errorf("ready at %s", s.url)
		}
		status, header, err := k.status(a.client("", ""), http.MethodGet, s.url+"/v1/tasks", "")
		if err != nil || status != http.StatusOK || header.Get("Strict-Transport-Security") == "" {
			k.Errorf("by HTTPS: %d %v, %v", status, header, err)
		}
		if status, _, err := k.status(a.client("", ""), http.MethodGet, strings.Replace(s.url, "https:", "http:", 1)+"/v1/tasks", ""); err == nil && status != http.StatusBadRequest {
			k.Errorf("by HTTP: %d, %v", status, err)
		}
		old := func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }
		if status, _, err := k.status(a.client("", "", old), http.MethodGet, s.url+"/v1/tasks", ""); err == nil {
			k.Errorf("by TLS 1.1: %d", status)
		}
	},
	"server.tls_key_file": func(k *keyTest) {
		a := newAuthority(k.T)
		cert, key := a.sign("server")
		k.set(key)
		k.also("server.tls_cert_file", cert)
		if status, _, err := k.status(a.client("", ""), http.MethodGet, k.start().url+"/health", ""); err != nil || status != http.StatusOK {
			k.Errorf("by HTTPS: %d, %v", status, err)
		}
	},
	"server.tls_client_ca_file": func(k *keyTest) {
		a, stranger := newAuthority(k.T), newAuthority(k.T)
		cert, key := a.sign("server")
		k.also("server.tls_cert_file", cert)
		k.also("server.tls_key_file", key)
		k.also("auth.mode", config.AuthRequired)
		k.set(filepath.Join(a.dir, "ca.pem"))
		s := k.start()
		token := bootstrap(k.T, k.options.Config.Database.URL)
		workers := s.url + "/v1/workers"
		if status, _, err := k.status(a.client("", ""), http.MethodPost, workers, token); err != nil || status != http.StatusForbidden {
			k.Errorf("a worker without a certificate: %d, %v", status, err)
		}
		if status, _, err := k.status(a.client(a.sign("worker")), http.MethodPost, workers, token); err != nil || status != http.StatusBadRequest {
			k.Errorf("a worker with a certificate: %d, %v; want 400 for its empty body", status, err)
		}
		if status, _, err := k.status(a.client(a.sign("worker")), http.MethodPost, workers, ""); err != nil || status != http.StatusUnauthorized {
			k.Errorf("a certificate without a key: %d, %v", status, err)
		}
		if status, _, err := k.status(a.client(stranger.sign("worker")), http.MethodPost, workers, token); err == nil {
			k.Errorf("a certificate of somebody else: %d", status)
		}
		if status, _, err := k.status(a.client("", ""), http.MethodGet, s.url+"/v1/tasks", token); err != nil || status != http.StatusOK {
			k.Errorf("a person without a certificate: %d, %v", status, err)
		}
	},
	"server.trusted_proxies": func(k *keyTest) {
		k.set("192.0.2.1")
		s := k.start()
		req, err := http.NewRequestWithContext(k.Context(), http.MethodGet, s.url+"/health", http.NoBody)
		k.must(err)
		req.Header.Set("X-Forwarded-Proto", "https")
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(req)
		k.must(err)
		k.must(resp.Body.Close())
		if resp.Header.Get("Strict-Transport-Security") != "" {
			k.Error("a proxy on this machine is believed")
		}
	},
}

// Certificates are replaced while the server runs; what cannot be read leaves the one before.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.sign("server")
	said := newWords()
	now := time.Now()
	get, err := app.Certificates(config.Server{TLSCertFile: cert, TLSKeyFile: key}, slog.New(slog.NewTextHandler(said, nil)), now)
	if err != nil {
		t.Fatal(err)
	}
	first := get(now)
	if now = now.Add(time.Minute); get(now) != first {
		t.Error("read again though nothing has changed")
	}
	replace := func(path, text string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	replace(cert, "nonsense", now)
	if now = now.Add(5 * time.Second); get(now) != first {
		t.Error("read again after five seconds")
	}
	if now = now.Add(time.Minute); get(now) != first || !strings.Contains(said.String(), "certificate reload failed") {
		t.Errorf("files that are wrong: %s", said)
	}
	replace(cert, string(good), now)
	now = now.Add(time.Minute)
	if c := get(now); c == first || len(c.Certificates) != 1 {
		t.Error("the new files were not read")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if c := get(now); c == nil || len(c.Certificates) != 1 {
		t.Error("without files the certificate is gone")
	}
}

// A server does not start with files that it cannot use.
func TestCertificatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	cert, key := a.sign("server")
	_, strangers := other.sign("server")
	empty := filepath.Join(a.dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for words, c := range map[string]config.Server{
		"no such file":                {TLSCertFile: cert + "x", TLSKeyFile: key},
		"does not match":              {TLSCertFile: cert, TLSKeyFile: strangers},
		"failed to find":              {TLSCertFile: empty, TLSKeyFile: key},
		"contains no PEM certificate": {TLSCertFile: cert, TLSKeyFile: key, TLSClientCAFile: empty},
	} {
		o := options(pgtest.New(t).URL)
		o.Config.Server.TLSCertFile, o.Config.Server.TLSKeyFile, o.Config.Server.TLSClientCAFile = c.TLSCertFile, c.TLSKeyFile, c.TLSClientCAFile
		if err := launch(t, o).wait(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

func TestBehindProxies(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	seen := app.BehindProxies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr+" "+r.Header.Get("X-Forwarded-Proto"))
	}), trusted)
	for _, c := range []struct{ from, forwarded, want string }{
		{"192.0.2.9:1", "198.51.100.1", "192.0.2.9:1 "},
		{"10.0.0.1:1", "198.51.100.1", "198.51.100.1:0 https"},
		{"[::ffff:10.0.0.1]:1", "198.51.100.1", "198.51.100.1:0 https"},
		{"[::1]:1", "203.0.113.7, 198.51.100.1, 10.1.1.1", "198.51.100.1:0 https"},
		{"10.0.0.1:1", "198.51.100.1, nonsense", "10.0.0.1:1 https"},
		{"10.0.0.1:1", "", "10.0.0.1:1 https"},
		{"10.0.0.1:1", "10.2.2.2", "10.0.0.1:1 https"},
		{"10.0.0.1:1", "2001:db8::1", "[2001:db8::1]:0 https"},
		{"nonsense", "198.51.100.1", "nonsense "},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.from
		r.Header.Set("X-Forwarded-Proto", "https")
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		w := httptest.NewRecorder()
		seen.ServeHTTP(w, r)
		if got := w.Body.String(); got != c.want {
			t.Errorf("from %s for %q: %q, want %q", c.from, c.forwarded, got, c.want)
		}
	}
}
