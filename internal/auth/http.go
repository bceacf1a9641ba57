package auth

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Challenge is the header WWW-Authenticate of an answer to somebody unknown.
const Challenge = `Bearer realm="tasker"`

// local is every caller of a server that asks nobody who they are.
var local = &Caller{Identity: access.Local(), life: context.Background(), end: func() {}}

// Request returns who sends a request, by its header Authorization. Of a nil
// Authenticator everybody is [access.Local]. The error is Unauthorized or Unavailable, or
// an [overload.Refusal] when too many come from an address of somebody who is not known.
func (a *Authenticator) Request(r *http.Request) (*Caller, error) {
	if a == nil {
		return local, nil
	}
	from := AddressOf(r)
	c, err := a.request(r.WithContext(From(r.Context(), from)))
	if tasker.CodeOf(err) == tasker.Unauthorized {
		if tooMany := a.Strangers.Address(from); tooMany != nil {
			return nil, tooMany
		}
	}
	return c, err
}

func (a *Authenticator) request(r *http.Request) (*Caller, error) {
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

// AddressOf returns where a request comes from.
func AddressOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

type addressKey struct{}

// From returns a context of what is done for somebody at an address. When too many who
// are not known have called from there, nobody else is looked up for it.
func From(ctx context.Context, address netip.Addr) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

func addressIn(ctx context.Context) netip.Addr {
	address, _ := ctx.Value(addressKey{}).(netip.Addr)
	return address
}
