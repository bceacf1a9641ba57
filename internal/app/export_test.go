package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"tasker.example/tasker/internal/config"
)

// BehindProxies is behindProxies.
func BehindProxies(handler http.Handler, trusted []netip.Prefix) http.Handler {
	return behindProxies(handler, trusted)
}

// Certificates returns what gives the configuration for a connection at some time.
func Certificates(c config.Server, log *slog.Logger, now time.Time) (func(now time.Time) *tls.Config, error) {
	files := &certificates{Server: c, log: log}
	if err := files.read(now); err != nil {
		return nil, err
	}
	return func(now time.Time) *tls.Config { return files.currentConfig(context.Background(), now) }, nil
}
