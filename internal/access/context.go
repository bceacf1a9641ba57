package access

import "context"

type contextKey int

const (
	identityKey contextKey = iota
	scopeKey
	payloadsKey
)

// WithIdentity returns a context of a request of a caller.
func WithIdentity(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, identityKey, id)
}

// IdentityOf returns the caller of a request; [Local] without one.
func IdentityOf(ctx context.Context) *Identity {
	if id, ok := ctx.Value(identityKey).(*Identity); ok {
		return id
	}
	return local
}

var local = Local()

// WithScope returns a context whose lists are limited to a scope.
func WithScope(ctx context.Context, s Scope) context.Context {
	return context.WithValue(ctx, scopeKey, s)
}

// ScopeOf returns the scope of a context; all namespaces without one.
func ScopeOf(ctx context.Context) Scope {
	if s, ok := ctx.Value(scopeKey).(Scope); ok {
		return s
	}
	return Everywhere()
}

// Within returns the context of a request of a caller that needs a permission: its lists
// have what the caller may see, with the payloads that the caller may read.
func Within(ctx context.Context, id *Identity, needs Permission) context.Context {
	return WithPayloads(WithScope(WithIdentity(ctx, id), id.Scope(needs)), id.Scope(ReadPayloads))
}

// At narrows a context to the namespaces of one resource.
func At(ctx context.Context, namespaces []string) context.Context {
	payloads := PayloadsOf(ctx)
	for _, n := range namespaces {
		if !payloads.Has(n) {
			return WithPayloads(ctx, Scope{})
		}
	}
	return WithPayloads(ctx, Everywhere())
}
