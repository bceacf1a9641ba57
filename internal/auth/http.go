package auth

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Challenge is the value of the header WWW-Authenticate in responses to unauthenticated callers.
const Challenge = `Bearer realm="tasker"`

// local is the caller of all requests to a server that does not authenticate.
var local = &Caller{Identity: access.Local(), life: context.Background(), end: func() {}}

// AuthenticateRequest authenticates a request by its header Authorization. If a is nil, it returns
// [access.Local]. The error is Unauthorized, Unavailable, or an [overload.CheckIdentity] after too
// many unauthenticated requests from the address.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*Caller, error) {
	if a == nil {
		return local, nil
	}
	from := RemoteAddress(r)
	c, err := a.authenticateRequest(r.WithContext(WithAddress(r.Context(), from)))
	if tasker.CodeOf(err) == tasker.Unauthorized {
		if tooMany := a.Strangers.TakeAddress(from); tooMany != nil {
			return nil, tooMany
		}
	}
	return c, err
}

func (a *Authenticator) authenticateRequest(r *http.Request) (*Caller, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, tasker.Errorf(tasker.Unauthorized, "authentication required: send an API key in the header Authorization: Bearer <key>")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return nil, tasker.Errorf(tasker.Unauthorized, "invalid header Authorization: must be set once, as Bearer <key>")
	}
	token = strings.TrimSpace(token)
	if a.Provider != nil && !access.IsToken(token) {
		return a.authenticateJWT(r.Context(), token)
	}
	return a.AuthenticateToken(r.Context(), token)
}

// RemoteAddress returns the address of the client, or the zero value if it is unknown.
func RemoteAddress(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

type addressKey struct{}

// WithAddress returns a context with the address of the client. After too many unauthenticated
// requests from an address, unknown credentials from it are not looked up.
func WithAddress(ctx context.Context, address netip.Addr) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

func addressFromContext(ctx context.Context) netip.Addr {
	address, _ := ctx.Value(addressKey{}).(netip.Addr)
	return address
}
