package auth

import (
	"context"
	"net/http"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Challenge is the header WWW-Authenticate of an answer to somebody unknown.
const Challenge = `Bearer realm="tasker"`

// local is every caller of a server that asks nobody who they are.
var local = &Caller{Identity: access.Local(), life: context.Background(), end: func() {}}

// Request returns who sends a request, by its header Authorization. Of a nil
// Authenticator everybody is [access.Local]. The error is Unauthorized or Unavailable.
func (a *Authenticator) Request(r *http.Request) (*Caller, error) {
	if a == nil {
		return local, nil
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, tasker.Errorf(tasker.Unauthorized, "this server asks who is calling: send an API key in the header Authorization: Bearer <key>")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return nil, tasker.Errorf(tasker.Unauthorized, "the header Authorization must be there once, as Bearer <key>")
	}
	token = strings.TrimSpace(token)
	if a.Provider != nil && !access.IsToken(token) {
		return a.signed(r.Context(), token)
	}
	return a.Token(r.Context(), token)
}
