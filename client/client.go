// Package client is a Go client for the Tasker HTTP API. It retries requests that are safe to
// repeat and returns server errors as [tasker.Error].
//
// Errors contain the code, message and details of the server, so errors.As and [tasker.CodeOf]
// work as inside the server. An unreachable server is a tasker.Unavailable error.
//
// Idempotent requests are retried a few times if the server is unreachable or unavailable. Other
// requests are retried only if they certainly did not arrive.
//
// [WithToken] and [WithTokenFile] authenticate the caller with an API key.
//
// [Client.Backend] connects a worker of package worker to the server.
package client

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

// Defaults of a [Client].
const (
	DefaultTimeout = 30 * time.Second
	DefaultRetries = 3

	maxResponseBytes = 64 << 20 // bytes; a thousand snapshots fit
	maxConnections   = 64       // idle connections to the server
	// An HTTP/2 connection without traffic is pinged after pingInterval and closed after a further
	// pingTimeout. Together they are shorter than the default heartbeat interval.
	pingInterval     = 5 * time.Second
	pingTimeout      = 3 * time.Second
	defaultUserAgent = "tasker-go-client"
)

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	header  http.Header
	timeout time.Duration
	retries int
	token   func() (string, error) // nil disables the Authorization header
	fault   error                  // invalid option

	maxResponseBytes int64 // bytes
}

// Option configures a [Client].
type Option func(*Client)

// WithTimeout limits the duration of each call, including retries. A claim may take longer by the
// time it waits for steps.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithRetries sets the maximum number of retries; 0 disables them.
func WithRetries(n int) Option { return func(c *Client) { c.retries = n } }

// WithHeader adds a header to all requests, for example for a proxy.
func WithHeader(name, value string) Option {
	return func(c *Client) { c.header.Set(name, value) }
}

// WithHTTPClient replaces the HTTP client, for example to configure TLS. It should not have a
// timeout, because a timeout would abort waiting claims.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// New returns a client for the server at baseURL, such as http://127.0.0.1:8080. It does not
// connect. Errors are Invalid.
func New(baseURL string, options ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base: base, http: httpclient.New(configureTransport), header: http.Header{"User-Agent": {defaultUserAgent}},
		timeout: DefaultTimeout, retries: DefaultRetries, maxResponseBytes: maxResponseBytes,
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

// URL returns the address of the server without a password.
func (c *Client) URL() string { return strings.TrimSuffix(c.base.Redacted(), "/") }

func parseBaseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		return nil, tasker.Errorf(tasker.Invalid,
			"invalid server URL %q: must include a scheme, such as http://127.0.0.1:8080", text)
	}
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, tasker.Errorf(tasker.Invalid, "invalid server URL: %v", err)
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, tasker.Errorf(tasker.Invalid, "invalid server URL %q: must begin with http:// or https://", text)
	case base.Hostname() == "":
		return nil, tasker.Errorf(tasker.Invalid, "invalid server URL %q: must include a host", text)
	case base.RawQuery != "" || base.Fragment != "":
		return nil, tasker.Errorf(tasker.Invalid, "invalid server URL %q: must not contain ? or #", text)
	}
	return base, nil
}

// configureTransport adapts the default transport to many concurrent claims.
func configureTransport(t *http.Transport) {
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout}
	t.MaxIdleConnsPerHost = maxConnections
}
