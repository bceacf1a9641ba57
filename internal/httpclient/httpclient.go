// Package httpclient makes the HTTP clients of Tasker. All of them refuse answers that no
// deadline could end, and bound the time to connect and the size of a header.
package httpclient

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// ErrSwitched is the error for an answer 101 Switching Protocols.
var ErrSwitched = errors.New("it answered 101 Switching Protocols, and no request of Tasker asks for another protocol")

// maxHeader is the largest header of an answer, in bytes. Answers 1xx before it count.
const maxHeader = 256 << 10

// New returns a client that follows no redirect. It calls change, unless that is nil, to
// adjust the transport.
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

// A Transport turns an answer 101 Switching Protocols into [ErrSwitched]. The body of such an
// answer is the connection itself, and neither a deadline nor a canceled context would end it.
type Transport struct{ http.RoundTripper }

// RoundTrip sends the request. The context of the request ends the body of the answer.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols {
		answer.Body.Close()
		return nil, ErrSwitched
	}
	return answer, err
}

// CloseIdleConnections closes the connections without a request.
func (t Transport) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
