package app

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// behindProxies serves requests as those that proxies which are trusted say they are: from
// the address in X-Forwarded-For, and by HTTPS where X-Forwarded-Proto says so. What
// others say there is removed.
func behindProxies(handler http.Handler, trusted []netip.Prefix) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !isIn(trusted, from.Addr()) {
			r.Header.Del("X-Forwarded-For")
			r.Header.Del("X-Forwarded-Proto")
		} else if client, ok := forwardedFor(r.Header.Values("X-Forwarded-For"), trusted); ok {
			r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		}
		handler.ServeHTTP(w, r)
	})
}

// forwardedFor returns the last address that is none of a proxy: what comes before it, the
// client may have made up.
func forwardedFor(headers []string, trusted []netip.Prefix) (netip.Addr, bool) {
	for _, text := range slices.Backward(strings.Split(strings.Join(headers, ","), ",")) {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return netip.Addr{}, false
		}
		if !isIn(trusted, ip) {
			return ip.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

func isIn(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip.Unmap().WithZone("")) })
}
