package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/query"
)

// Delays between retries.
const (
	minBackoff    = 100 * time.Millisecond // doubles with each retry
	maxBackoff    = 3 * time.Second        // unless the server requests a longer delay
	maxRetryAfter = time.Hour              // maximum delay that a server can request
)

// request is one API call.
type request struct {
	method     string
	path       []string // segments after the base URL
	query      url.Values
	body       any           // encoded as JSON, or nil
	doc        []byte        // raw body, alternative to body
	media      string        // of doc
	repeatable bool          // applying it twice has the same effect as applying it once
	wait       time.Duration // added to the timeout
	key        string        // Idempotency-Key, or empty
}

// none is an absent query or body.
var none endpoint.None

// newRequest returns a request to an endpoint. The parameters of its path are in order.
func newRequest[Q, B, A any](e endpoint.Of[Q, B, A], q Q, b B, path ...any) request {
	r := request{method: e.Method, query: query.Encode(q), repeatable: e.Method == http.MethodGet || e.Repeatable || e.Keyed}
	for element := range strings.SplitSeq(strings.Trim(e.Path, "/"), "/") {
		if strings.HasPrefix(element, "{") {
			element, path = fmt.Sprint(path[0]), path[1:]
		}
		r.path = append(r.path, element)
	}
	if e.Describe().Body != nil {
		r.body = b
	}
	if e.Keyed {
		r.key = tasker.NewID().String()
	}
	return r
}

// call sends a request to an endpoint and decodes the answer.
func call[Q, B, A any](ctx context.Context, c *Client, e endpoint.Of[Q, B, A], q Q, b B, path ...any) (A, error) { //nolint:revive // the parts of a request
	return send[A](ctx, c, newRequest(e, q, b, path...))
}

// Call sends a request to an endpoint of this module's package endpoint, and decodes the answer. It
// serves the programs of Tasker; others use the methods of [Client].
func Call[Q, B, A any](ctx context.Context, c *Client, e endpoint.Of[Q, B, A], q Q, b B, path ...any) (A, error) { //nolint:revive // the parts of a request
	return call(ctx, c, e, q, b, path...)
}

// send sends r and decodes the answer.
func send[A any](ctx context.Context, c *Client, r request) (answer A, err error) {
	if _, empty := any(answer).(endpoint.None); empty {
		return answer, c.do(ctx, r, nil)
	}
	err = c.do(ctx, r, &answer)
	return answer, err
}

// attemptError is a failed attempt.
type attemptError struct {
	err        error
	unsent     bool          // the server did not receive the request
	transient  bool          // a retry may succeed
	retryAfter time.Duration // delay requested by the server
}

// do sends r, retries it if necessary, and decodes the response.
func (c *Client) do(ctx context.Context, r request, answer any) error {
	where, err := c.resolveURL(r)
	if err != nil {
		return err
	}
	if r.body != nil {
		if r.doc, err = json.Marshal(r.body); err != nil {
			return tasker.Errorf(tasker.Invalid, "cannot encode the request as JSON: %v", err)
		}
		r.media = "application/json"
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout+r.wait)
	defer cancel()
	rest := minBackoff
	for try := 0; ; try++ {
		m := c.try(limited, r, where, answer)
		if m == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", r.method, where.Redacted(), ctx.Err())
		}
		again := m.unsent || (m.transient && r.repeatable)
		if !again || try >= c.retries || !sleep(limited, max(m.retryAfter, addJitter(rest))) {
			return m.err
		}
		rest = min(2*rest, maxBackoff)
	}
}

func (c *Client) resolveURL(r request) (*url.URL, error) {
	elements := make([]string, len(r.path))
	for i, e := range r.path {
		if e == "" || e == "." || e == ".." {
			return nil, tasker.Errorf(tasker.Invalid, "invalid path element %q: must not be empty, \".\" or \"..\"", e)
		}
		elements[i] = url.PathEscape(e)
	}
	where := c.base.JoinPath(elements...)
	where.RawQuery = r.query.Encode()
	return where, nil
}

// try sends a request once. It returns nil on success.
func (c *Client) try(ctx context.Context, r request, where *url.URL, answer any) *attemptError {
	req, err := http.NewRequestWithContext(ctx, r.method, where.String(), bytes.NewReader(r.doc))
	if err != nil {
		return &attemptError{err: tasker.Errorf(tasker.Invalid, "cannot create the request: %v", err)}
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Accept", "application/json")
	if err := c.authorize(req.Header); err != nil {
		return &attemptError{err: err}
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.media != "" {
		req.Header.Set("Content-Type", r.media)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.newUnreachableError(ctx, err)
	}
	defer res.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(res.Body, c.maxResponseBytes+1))
	switch {
	case err != nil:
		return c.newUnreachableError(ctx, err)
	case int64(len(doc)) > c.maxResponseBytes:
		return &attemptError{err: tasker.Errorf(tasker.TooLarge,
			"the response from %s is larger than %d bytes: request less at once, with a "+
				"lower limit", c.URL(), c.maxResponseBytes)}
	case res.StatusCode < 200 || res.StatusCode > 299:
		return &attemptError{
			err: c.readError(res, doc), transient: isTransient(res.StatusCode),
			retryAfter: parseRetryAfter(res.Header.Get("Retry-After")),
		}
	}
	if err := decode(res, doc, answer); err != nil {
		return &attemptError{err: protocolError{tasker.Errorf(tasker.Internal,
			"cannot decode the response from %s: %v; is it a Tasker server of the same version?", c.URL(), err)}}
	}
	return nil
}

// decode decodes a successful response into answer.
func decode(res *http.Response, doc []byte, answer any) error {
	if (answer == nil) != (res.StatusCode == http.StatusNoContent) {
		return fmt.Errorf("unexpected status %s", res.Status)
	}
	switch a := answer.(type) {
	case nil:
		return nil
	case *string:
		*a = string(doc)
		return nil
	case *json.RawMessage: // compressing proxies may change the ETag around the sum
		if !strings.Contains(res.Header.Get("ETag"), apiv1.DocumentTag(doc)) {
			return errors.New("the ETag does not match the document")
		}
	}
	return json.Unmarshal(doc, answer)
}

// newUnreachableError describes err, which occurred because no response arrived.
func (c *Client) newUnreachableError(ctx context.Context, err error) *attemptError {
	if ctx.Err() != nil {
		return &attemptError{err: tasker.Errorf(tasker.Unavailable,
			"no response from %s within %s: the server may be overloaded, and the request may still "+
				"take effect", c.URL(), c.timeout)}
	}
	if errors.Is(err, httpclient.ErrSwitched) {
		return &attemptError{err: protocolError{tasker.Errorf(tasker.Internal,
			"invalid response from %s: %v; is it a Tasker server?", c.URL(), httpclient.ErrSwitched)}}
	}
	cause := err
	if whole, ok := errors.AsType[*url.Error](err); ok {
		cause = whole.Err // the message already contains the URL
	}
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	if unsent {
		cause = op.Err
	}
	return &attemptError{unsent: unsent, transient: true, err: tasker.Errorf(tasker.Unavailable,
		"cannot reach %s: %v; is the server running? start one with: tasker dev", c.URL(), cause)}
}

func isTransient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// parseRetryAfter parses a Retry-After header, which contains seconds or a time. It returns 0 if the
// header is missing or invalid.
func parseRetryAfter(header string) time.Duration {
	var rest time.Duration
	if seconds, err := strconv.Atoi(header); err == nil {
		rest = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		rest = time.Until(at)
	}
	return min(max(rest, 0), maxRetryAfter)
}

// addJitter shortens d by up to a quarter, to spread the retries of clients that failed at the same
// time.
func addJitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// sleep sleeps for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	return loop.Sleep(ctx, d)
}
