package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// Listen listens on a TCP address. The error suggests a remedy if the address is in use.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("address %s is in use: stop the other program, or use another address with --listen (port 0 selects a free port)", address)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// baseURL returns the URL under which programs on this machine reach the server at an address.
func baseURL(a net.Addr, c config.Server) string {
	scheme := "http://"
	if c.TLSCertFile != "" {
		scheme = "https://"
	}
	tcp, ok := a.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("%s127.0.0.1:%d", scheme, tcp.Port)
	}
	return scheme + a.String()
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// AsksCallers reports whether a server at an address authenticates callers.
func AsksCallers(c config.Auth, address net.Addr) bool {
	return !isLoopback(address) || c.Mode == config.AuthRequired
}

// newAuth returns the authenticator, or nil for a server on a loopback address unless auth.mode is
// required.
func newAuth(o Options, db *postgres.DB, address net.Addr) (*auth.Authenticator, error) {
	c := o.Config.Auth
	if !AsksCallers(c, address) {
		return nil, nil //nolint:nilnil // no authentication
	}
	strangers := overload.NewRate(float64(o.Config.Limits.UnknownRequestsPerSecond), nil)
	a := auth.Options{DB: db, Log: o.Log, Strangers: strangers, SessionLife: c.SessionLifetime(),
		SessionIdle: c.SessionIdle()}
	if c.OIDC.Issuer == "" {
		return auth.New(a), nil
	}
	var err error
	if a.Bindings, err = access.ParseBindings(c.OIDC.RoleBindings); err != nil {
		return nil, err
	}
	if a.Provider, err = idp.New(c.OIDC.Options()); err != nil {
		return nil, err
	}
	return auth.New(a), nil
}

// warnWithoutKeys logs a warning if authentication is enabled but no key exists.
func (s *starter) warnWithoutKeys(ctx context.Context, db *postgres.DB) error {
	some := false
	err := s.try(ctx, func() (err error) {
		some, err = db.HasKey(ctx)
		return err
	})
	if err == nil && !some {
		s.Log.WarnContext(ctx, "authentication is enabled but no API key exists; "+
			"create the first one with: tasker key bootstrap --database-url …")
	}
	return err
}
