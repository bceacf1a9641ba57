package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

const (
	tokenCacheDuration = time.Minute // maximum age of a cached token
	maxTokenBytes      = 16 << 10    // bytes; tokens of identity providers are long
)

// WithToken authenticates all requests with an API key or a token of an identity provider, in the
// header Authorization: Bearer. An empty token disables it.
//
// Plain HTTP exposes the token to the network: use https except on the same machine.
func WithToken(token string) Option {
	return func(c *Client) {
		if token == "" {
			return
		}
		c.token = func() (string, error) { return token, nil }
		if !isToken(token) {
			c.fault = tasker.Errorf(tasker.Invalid,
				"invalid token: must be one word of at most %d printable ASCII characters", maxTokenBytes)
		}
	}
}

// WithTokenFile is like [WithToken] with the token in a file, such as a mounted secret. The file
// is read again when it changes, and every minute, so that a rotated secret needs no restart.
// Requests fail with Unauthorized while the file cannot be read. An empty path disables it.
func WithTokenFile(path string) Option {
	return func(c *Client) {
		if path != "" {
			c.token = (&tokenFile{path: path}).readCached
		}
	}
}

// isToken reports whether text is a valid token.
func isToken(text string) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	return len(text) <= maxTokenBytes && strings.IndexFunc(text, unfit) < 0
}

// tokenFile caches the token of a file.
type tokenFile struct {
	path string

	mu     sync.Mutex
	text   string      // empty before the first read
	info   os.FileInfo // at the last read
	readAt time.Time
}

// readCached returns the current token. While the file is being replaced, it returns the previous one.
func (f *tokenFile) readCached() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := f.text != "" && time.Since(f.readAt) < tokenCacheDuration
	info, err := os.Stat(f.path)
	if err == nil && fresh && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() {
		return f.text, nil
	}
	var text string
	if err == nil {
		text, err = readToken(f.path)
	}
	switch {
	case err == nil:
		f.text, f.info, f.readAt = text, info, time.Now()
		return text, nil
	case fresh:
		return f.text, nil
	default:
		return "", tasker.Errorf(tasker.Unauthorized,
			"cannot read the token: %v: the token file must contain an API key and be readable by this program", err)
	}
}

// readToken reads a token file. Errors do not contain its content.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	doc, err := io.ReadAll(io.LimitReader(file, maxTokenBytes+2))
	text := string(bytes.TrimSpace(doc))
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", errors.New(path + " is empty")
	case !isToken(text):
		return "", errors.New(path + " must contain exactly one token")
	}
	return text, nil
}

// authorize adds the Authorization header.
func (c *Client) authorize(h http.Header) error {
	if c.token == nil {
		return nil
	}
	token, err := c.token()
	if err == nil {
		h.Set("Authorization", "Bearer "+token)
	}
	return err
}

// redactToken removes the token of the request from text, because proxies may echo request
// headers.
func redactToken(r *http.Request, text string) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token == "" {
		return text
	}
	return strings.ReplaceAll(text, token, "[hidden]")
}

// WhoAmI returns the identity and the permissions of the caller.
func (c *Client) WhoAmI(ctx context.Context) (apiv1.Identity, error) {
	return call(ctx, c, endpoint.WhoAmI, none, none)
}

// Keys lists API keys.
func (c *Client) Keys(ctx context.Context, q apiv1.KeyQuery) (apiv1.KeyList, error) {
	return call(ctx, c, endpoint.ListKeys, q, none)
}

// CreateKey creates an API key. The response contains its token, which cannot be retrieved later.
func (c *Client) CreateKey(ctx context.Context, k apiv1.CreateKey) (apiv1.CreatedKey, error) {
	return call(ctx, c, endpoint.CreateKey, none, k)
}

// RotateKey creates a new token for an API key. The previous one remains valid for r.GraceSeconds.
func (c *Client) RotateKey(ctx context.Context, key tasker.ID, r apiv1.RotateKey) (apiv1.CreatedKey, error) {
	return call(ctx, c, endpoint.RotateKey, none, r, key)
}

// RevokeKey revokes an API key. All servers reject it within five seconds.
func (c *Client) RevokeKey(ctx context.Context, key tasker.ID) (apiv1.Key, error) {
	return call(ctx, c, endpoint.RevokeKey, none, none, key)
}

// Sessions lists signed-in browsers.
func (c *Client) Sessions(ctx context.Context, q apiv1.SessionQuery) (apiv1.SessionList, error) {
	return call(ctx, c, endpoint.ListSessions, q, none)
}

// EndSessions ends a session, or all sessions of a subject. All servers reject them within five
// seconds.
func (c *Client) EndSessions(ctx context.Context, r apiv1.EndSessions) (apiv1.EndedSessions, error) {
	return call(ctx, c, endpoint.EndSessions, none, r)
}
