package access

import "context"

type contextKey int

const (
	identityKey contextKey = iota
	scopeKey
	payloadsKey
)

// WithIdentity returns a context with the caller of a request.
func WithIdentity(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, identityKey, id)
}

// IdentityFromContext returns the caller of a request, or [Local] if ctx has none.
func IdentityFromContext(ctx context.Context) *Identity {
	if id, ok := ctx.Value(identityKey).(*Identity); ok {
		return id
	}
	return local
}

var local = Local()

// WithScope returns a context that limits lists to a scope.
func WithScope(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, scopeKey, s)
}

// ScopeFromContext returns the namespaces to which ctx limits lists. The default is all namespaces.
func ScopeFromContext(ctx context.Context) Scope {
	if s, ok := ctx.Value(scopeKey).(Scope); ok {
		return s
	}
	return EverywhereScope()
}

// WithPermissionScope returns a context that limits lists to the namespaces in which the caller has
// a permission, and payloads to those that the caller may read.
func WithPermissionScope(ctx context.Context, id *Identity, needs Permission) context.Context {
	return WithPayloadScope(WithScope(WithIdentity(ctx, id), id.Scope(needs)), id.Scope(ReadPayloads))
}

// WithNamespaces returns a context for a resource in these namespaces. It shows payloads only if
// the caller may read them in all of these namespaces.
func WithNamespaces(ctx context.Context, namespaces []string) context.Context {
	payloads := PayloadScopeFromContext(ctx)
	for _, n := range namespaces {
		if !payloads.Has(n) {
			return WithPayloadScope(ctx, Scope{})
		}
	}
	return WithPayloadScope(ctx, EverywhereScope())
}
