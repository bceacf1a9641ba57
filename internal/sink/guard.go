package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// errPrivate is returned for an address that is not public.
var errPrivate = errors.New("not a public internet address")

// guardedDialer returns a dialer that connects only to public addresses. It checks an address
// after name resolution.
func guardedDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %w", errPrivate, err)
			}
			if !isPublic(to.Addr()) {
				return fmt.Errorf("%s is %w", to.Addr(), errPrivate)
			}
			return nil
		},
	}
}

// notPublic lists the IPv4 and unicast IPv6 networks that are not part of the public internet,
// according to the IANA special-purpose registries, and one more: the address of host services in
// Azure.
var notPublic = mustParsePrefixes(
	"0.0.0.0/8",        // this host, this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; metadata of some clouds
	"127.0.0.0/8",      // loopback
	"169.254.0.0/16",   // link-local; metadata of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocols; metadata of some clouds
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/3",      // multicast, reserved, broadcast
	"2001::/23",        // protocols such as Teredo, which embeds IPv4
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4, which embeds IPv4
	"3fff::/20",        // documentation
	"168.63.129.16/32", // host services in Azure
)

var (
	unicast = netip.MustParsePrefix("2000::/3")     // all public IPv6
	nat64   = netip.MustParsePrefix("64:ff9b::/96") // public IPv4 addresses behind NAT64
)

// isPublic reports whether an address belongs to the public internet.
func isPublic(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if nat64.Contains(a) {
		whole := a.As16()
		a = netip.AddrFrom4([4]byte(whole[12:]))
	}
	if a.Is6() && !unicast.Contains(a) {
		return false
	}
	return a.IsValid() && !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

func mustParsePrefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, p := range list {
		all[i] = netip.MustParsePrefix(p)
	}
	return all
}
