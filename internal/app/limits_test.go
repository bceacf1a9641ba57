package app

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
)

// One address has half of the connections at most, and a proxy all.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	l := boundListener(nil, 6, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, slog.New(slog.DiscardHandler))
	take := func(from string, want bool) {
		t.Helper()
		if got := l.tryAcquire(netip.MustParseAddr(from)); got != want {
			t.Errorf("a connection from %s: %v, want %v", from, got, want)
		}
	}
	for range 3 {
		take("192.0.2.1", true)
	}
	take("192.0.2.1", false) // more than half
	for range 3 {
		take("10.0.0.1", true)
	}
	take("10.0.0.1", false)
	take("192.0.2.2", false)
	l.release(netip.MustParseAddr("10.0.0.1"))
	take("192.0.2.1", false)
	take("192.0.2.2", true)
	for _, from := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "10.0.0.1", "10.0.0.1", "192.0.2.2"} {
		l.release(netip.MustParseAddr(from))
	}
	for i, want := range []bool{true, true, true, false} { // a site of IPv6 is one address
		take(fmt.Sprintf("2001:db8::%d", i+1), want)
	}
	for i := range 3 {
		l.release(netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 9-i)))
	}
	if l.open != 0 || len(l.of) != 0 {
		t.Errorf("all are closed, and %d are counted, of %v", l.open, l.of)
	}
}
