// Package httpclient creates the HTTP clients that Tasker uses. They reject responses that no
// deadline could end, and limit the time to connect and the size of headers.
package httpclient

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// ErrSwitched is returned for a response 101 Switching Protocols.
var ErrSwitched = errors.New("unexpected response 101 Switching Protocols")

// maxHeader limits the headers of a response, including 1xx responses before it, in bytes.
const maxHeader = 256 << 10

// New returns a client that does not follow redirects. change may adjust the transport; it may be
// nil.
func New(change func(*http.Transport)) *http.Client {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
	if change != nil {
		change(t)
	}
	return &http.Client{
		Transport:     Transport{t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Guard returns a copy of c with its transport wrapped in a [Transport].
func Guard(c *http.Client) *http.Client {
	guarded := *c
	switch t := c.Transport.(type) {
	case nil:
		guarded.Transport = Transport{http.DefaultTransport}
	case Transport:
	default:
		guarded.Transport = Transport{t}
	}
	return &guarded
}

// A Transport converts 101 Switching Protocols into [ErrSwitched]. The body of such a response is
// the connection itself, which neither a deadline nor a canceled context would end.
type Transport struct{ http.RoundTripper }

// RoundTrip sends the request. It returns ErrSwitched for a response 101 Switching Protocols.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols {
		answer.Body.Close()
		return nil, ErrSwitched
	}
	return answer, err
}

// CloseIdleConnections closes idle connections.
func (t Transport) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
