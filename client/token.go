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
)

const (
	tokenAge = time.Minute // for how long what was read of a token file counts
	maxToken = 16 << 10    // bytes; those of identity providers are long
)

// WithToken has every request say who is calling, with an API key or with a token of an
// identity provider, in the header Authorization: Bearer. An empty token is none.
//
// Over plain HTTP everybody on the way can read it: beyond this machine use https.
func WithToken(token string) Option {
	return func(c *Client) {
		if token == "" {
			return
		}
		c.token = func() (string, error) { return token, nil }
		if !isToken(token) {
			c.fault = tasker.Errorf(tasker.Invalid, "the token must be one word of at most %d printable ASCII characters", maxToken)
		}
	}
}

// WithTokenFile is [WithToken] with the token in a file, such as a mounted secret. It is
// read again when the file changes, and each minute at the latest, so that a rotated
// secret is used without a restart. A request fails with Unauthorized while the file
// cannot be read. An empty path is none.
func WithTokenFile(path string) Option {
	return func(c *Client) {
		if path != "" {
			c.token = (&tokenFile{path: path}).token
		}
	}
}

// isToken reports whether a text can be sent as a token.
func isToken(text string) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	return len(text) <= maxToken && strings.IndexFunc(text, unfit) < 0
}

// A tokenFile is a file with a token.
type tokenFile struct {
	path string

	mu   sync.Mutex
	text string      // empty before it was read
	info os.FileInfo // when it was read
	read time.Time
}

// token returns what the file says. A file that is away for a moment, because it is
// being replaced, says what it said before.
func (f *tokenFile) token() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := f.text != "" && time.Since(f.read) < tokenAge
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
		f.text, f.info, f.read = text, info, time.Now()
		return text, nil
	case fresh:
		return f.text, nil
	default:
		return "", tasker.Errorf(tasker.Unauthorized, "no token: %v; give a file with an API key that this program may read", err)
	}
}

// readToken reads a file with a token. Its error does not say what is in the file.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	doc, err := io.ReadAll(io.LimitReader(file, maxToken+2))
	text := string(bytes.TrimSpace(doc))
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", errors.New(path + " is empty")
	case !isToken(text):
		return "", errors.New(path + " must have one token and nothing else")
	}
	return text, nil
}

// authorize adds who is calling to the header of a request.
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

// withoutToken returns a text of an answer without the token of its request: proxies
// have pages that show what they got.
func withoutToken(r *http.Request, text string) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token == "" {
		return text
	}
	return strings.ReplaceAll(text, token, "[hidden]")
}

// WhoAmI returns who the server takes the caller for, and what they may do.
func (c *Client) WhoAmI(ctx context.Context) (apiv1.Identity, error) {
	return get[apiv1.Identity](ctx, c, nil, "v1", "whoami")
}

// A KeyQuery selects and pages API keys, the newest first.
type KeyQuery struct {
	Search  string // a name, or how a token begins; empty means any
	Revoked bool   // also those that are revoked
	Page
}

// Keys lists API keys.
func (c *Client) Keys(ctx context.Context, q KeyQuery) (apiv1.KeyList, error) {
	query := q.values()
	setText(query, "search", q.Search)
	setFlag(query, "revoked", q.Revoked)
	return get[apiv1.KeyList](ctx, c, query, "v1", "keys")
}

// CreateKey creates an API key. The answer has its token, which cannot be had again.
func (c *Client) CreateKey(ctx context.Context, k apiv1.CreateKey) (apiv1.CreatedKey, error) {
	return call[apiv1.CreatedKey](ctx, c, request{method: http.MethodPost, path: []string{"v1", "keys"}, body: k})
}

// RotateKey gives an API key a new token. The one before stays valid for r.GraceSeconds.
func (c *Client) RotateKey(ctx context.Context, key tasker.ID, r apiv1.RotateKey) (apiv1.CreatedKey, error) {
	return call[apiv1.CreatedKey](ctx, c, request{method: http.MethodPost, path: []string{"v1", "keys", key.String(), "rotate"}, body: r})
}

// RevokeKey ends an API key: within five seconds no server takes it any more.
func (c *Client) RevokeKey(ctx context.Context, key tasker.ID) (apiv1.Key, error) {
	return call[apiv1.Key](ctx, c, request{method: http.MethodDelete, path: []string{"v1", "keys", key.String()}, repeatable: true})
}

// A SessionQuery selects and pages sessions, the newest first.
type SessionQuery struct {
	Subject string // such as user:ann; empty means everybody's
	Page
}

// Sessions lists the browsers that are signed in.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) (apiv1.SessionList, error) {
	query := q.values()
	setText(query, "subject", q.Subject)
	return get[apiv1.SessionList](ctx, c, query, "v1", "sessions")
}

// EndSessions ends a session, or all of a subject: within five seconds no server takes them any more.
func (c *Client) EndSessions(ctx context.Context, r apiv1.EndSessions) (apiv1.EndedSessions, error) {
	return call[apiv1.EndedSessions](ctx, c, request{method: http.MethodPost, path: []string{"v1", "sessions", "end"}, body: r, repeatable: true})
}
