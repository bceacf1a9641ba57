// Package client is a Go client for the Tasker HTTP API. It retries requests that are safe to repeat
// and returns server errors as [tasker.Error].
//
// What the server refuses comes back as a [tasker.Error] with the server's code,
// message and details, so errors.As and [tasker.CodeOf] work as they do inside
// the server. A server that cannot be reached is tasker.Unavailable.
//
// A request that may be sent twice is sent again, a few times, when the server
// cannot be reached or says that it cannot serve now. Any other is sent again
// only when it certainly never arrived.
//
// [WithToken] and [WithTokenFile] say who is calling, with an API key. A caller who is not
// known, or may not do something, learns it at once: Unauthorized, Forbidden.
//
// [Client.Backend] lets a worker of package worker run its steps over HTTP.
package client

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

// The defaults of a [Client].
const (
	DefaultTimeout = 30 * time.Second
	DefaultRetries = 3

	maxAnswer    = 64 << 20        // bytes; a thousand snapshots fit
	connections  = 64              // kept open to the server
	pingAfter    = 5 * time.Second // of silence on an HTTP/2 connection; with pingTimeout it is less than the default interval of heartbeats
	pingTimeout  = 3 * time.Second
	defaultAgent = "tasker-go-client"
)

// A Client speaks to one server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	header  http.Header
	timeout time.Duration
	retries int
	token   func() (string, error) // nil: no header Authorization
	fault   error                  // of an option

	maxAnswer int64 // bytes
}

// An Option changes a default of a [Client].
type Option func(*Client)

// WithTimeout bounds each call, its repetitions included. A claim may take as
// much longer as it waits for work.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithRetries says how often a request is sent again; 0 means never.
func WithRetries(n int) Option { return func(c *Client) { c.retries = n } }

// WithHeader adds a header to every request, such as what a proxy before the
// server wants to see.
func WithHeader(name, value string) Option {
	return func(c *Client) { c.header.Set(name, value) }
}

// WithHTTPClient replaces the HTTP client: for TLS settings or a transport of
// your own. It should not have a timeout, which would end claims that wait.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// New returns a client of the server at baseURL, such as http://127.0.0.1:8080.
// It sends nothing yet. The error is Invalid.
func New(baseURL string, options ...Option) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base: base, http: httpclient.New(tune), header: http.Header{"User-Agent": {defaultAgent}},
		timeout: DefaultTimeout, retries: DefaultRetries, maxAnswer: maxAnswer,
	}
	for _, o := range options {
		o(c)
	}
	if c.fault != nil {
		return nil, c.fault
	}
	c.http = httpclient.Guard(c.http)
	return c, nil
}

// URL returns the address of the server, without a password.
func (c *Client) URL() string { return strings.TrimSuffix(c.base.Redacted(), "/") }

func parseBase(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		return nil, tasker.Errorf(tasker.Invalid, "the server's URL %q has no scheme; write it as http://127.0.0.1:8080", text)
	}
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, tasker.Errorf(tasker.Invalid, "the server's URL cannot be read: %v", err)
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, tasker.Errorf(tasker.Invalid, "the server's URL %q must begin with http:// or https://", text)
	case base.Hostname() == "":
		return nil, tasker.Errorf(tasker.Invalid, "the server's URL %q names no host", text)
	case base.RawQuery != "" || base.Fragment != "":
		return nil, tasker.Errorf(tasker.Invalid, "the server's URL %q must end with its path: no ? and no #", text)
	}
	return base, nil
}

// tune adjusts the default transport to many claims at once.
func tune(t *http.Transport) {
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	t.MaxIdleConnsPerHost = connections
}
