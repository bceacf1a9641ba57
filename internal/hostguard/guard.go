// Package hostguard rejects cross-site browser requests by their Host and Origin headers. It does not
// authenticate.
package hostguard

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// Guard rejects cross-site requests of browsers. It is safe for concurrent use if its fields are set
// before the first request.
type Guard struct {
	// LoopbackOnly is set for a server that listens only on loopback addresses. Requests whose Host is
	// neither a loopback address nor in AllowedHosts (without port) are rejected, which prevents DNS
	// rebinding. Otherwise, if AllowedHosts is set, it lists the names of the server.
	LoopbackOnly bool
	AllowedHosts []string // in lower case

	origin http.CrossOriginProtection
}

// Check returns a nil error for a request that is allowed. For one that must be rejected, it
// returns the HTTP status and a [tasker.Error].
func (g *Guard) Check(r *http.Request) (status int, err error) {
	if g.LoopbackOnly && !g.isKnownHost(r.Host) {
		return http.StatusMisdirectedRequest, tasker.Errorf(tasker.Forbidden,
			"host %q is not allowed on a loopback address: "+
				"use 127.0.0.1 or localhost, or add the name to server.allowed_hosts", truncate(r.Host))
	}
	if !g.LoopbackOnly && len(g.AllowedHosts) > 0 && !g.isKnownHost(r.Host) && !isAddress(r.Host) {
		return http.StatusMisdirectedRequest, tasker.Errorf(tasker.Forbidden,
			"host %q is not allowed: add it to server.allowed_hosts if it is a name of this server", truncate(r.Host))
	}
	if err := g.origin.Check(r); err != nil {
		return http.StatusForbidden, tasker.Errorf(tasker.Forbidden,
			"cross-site requests are not allowed: %v", err)
	}
	return 0, nil
}

func hostname(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
}

// isAddress reports whether a Host header is an IP address. Monitoring uses addresses, and no web page
// can claim one as its name.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(hostname(host))
	return err == nil
}

// isKnownHost reports whether a Host header contains an allowed name or a loopback address.
func (g *Guard) isKnownHost(host string) bool {
	name := hostname(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(g.AllowedHosts, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// truncate truncates input that is quoted in an error.
func truncate(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
