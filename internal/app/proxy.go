package app

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// behindProxies sets the client address of requests from trusted proxies from X-Forwarded-For. It removes
// X-Forwarded-For and X-Forwarded-Proto from other requests.
func behindProxies(handler http.Handler, trusted []netip.Prefix) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !isInNetworks(trusted, from.Addr()) {
			r.Header.Del("X-Forwarded-For")
			r.Header.Del("X-Forwarded-Proto")
		} else if client, ok := forwardedFor(r.Header.Values("X-Forwarded-For"), trusted); ok {
			r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		}
		handler.ServeHTTP(w, r)
	})
}

// forwardedFor returns the last address that is not a proxy. Earlier addresses may be forged.
func forwardedFor(headers []string, trusted []netip.Prefix) (netip.Addr, bool) {
	for _, text := range slices.Backward(strings.Split(strings.Join(headers, ","), ",")) {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return netip.Addr{}, false
		}
		if !isInNetworks(trusted, ip) {
			return ip.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

func isInNetworks(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip.Unmap().WithZone("")) })
}
