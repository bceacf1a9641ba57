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

// A Guard refuses what web pages of others make a browser send. Its fields are set
// before the first request; it is safe for concurrent use then.
type Guard struct {
	// LoopbackOnly is for a server that listens on loopback addresses only: a
	// request whose Host names anything else than a loopback address, or a name in
	// AllowedHosts (without port), is refused. It keeps web pages that point their
	// own name at 127.0.0.1 from speaking to the server. Where others may reach the
	// server, the names in AllowedHosts are those that it goes by, if there are any.
	LoopbackOnly bool
	AllowedHosts []string // in lower case

	origin http.CrossOriginProtection
}

// Check returns why a request is refused, and the HTTP status that says so; nil for
// one that may pass. The error is a [tasker.Error].
func (g *Guard) Check(r *http.Request) (status int, err error) {
	if g.LoopbackOnly && !g.knows(r.Host) {
		return http.StatusMisdirectedRequest, tasker.Errorf(tasker.Forbidden,
			"this server listens for its own machine only, and host %q is not one of its names; "+
				"use 127.0.0.1 or localhost, or allow the name with server.allowed_hosts", shorten(r.Host))
	}
	if !g.LoopbackOnly && len(g.AllowedHosts) > 0 && !g.knows(r.Host) && !isAddress(r.Host) {
		return http.StatusMisdirectedRequest, tasker.Errorf(tasker.Forbidden,
			"host %q is not allowed; add it to server.allowed_hosts if it is a name of this server", shorten(r.Host))
	}
	if err := g.origin.Check(r); err != nil {
		return http.StatusForbidden, tasker.Errorf(tasker.Forbidden,
			"requests from pages of other sites may not change anything here: %v", err)
	}
	return 0, nil
}

// nameOf is the name in a Host header.
func nameOf(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
}

// isAddress reports whether a Host header has an address: no page can make that its
// own name, and what watches over servers goes by it.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(nameOf(host))
	return err == nil
}

// knows reports whether host, as the Host header has it, is this machine's.
func (g *Guard) knows(host string) bool {
	name := nameOf(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(g.AllowedHosts, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// shorten quotes no more of a stranger's text than helps to find the mistake.
func shorten(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
