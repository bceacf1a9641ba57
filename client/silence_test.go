package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

// A muteProxy forwards TCP connections until they are muted: then it takes what is sent on them and
// forwards nothing, as a host that is gone seems to.
type muteProxy struct {
	net.Listener

	target string
	mu     sync.Mutex
	open   map[net.Conn]bool // false: muted
	copies sync.WaitGroup
}

func newMuteProxy(t *testing.T, target string) *muteProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &muteProxy{Listener: l, target: target, open: map[net.Conn]bool{}}
	p.copies.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.copies.Wait()
	})
	return p
}

func (p *muteProxy) accept() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.open[in], p.open[out] = true, true
		p.mu.Unlock()
		p.copies.Go(func() { p.copy(out, in) })
		p.copies.Go(func() { p.copy(in, out) })
	}
}

func (p *muteProxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		heard := p.open[from]
		p.mu.Unlock()
		if heard {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			if heard {
				_ = to.Close()
			}
			return
		}
	}
}

// mute mutes the connections that there are, and returns how many.
func (p *muteProxy) mute() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		p.open[c] = false
	}
	return len(p.open) / 2
}

// A connection of HTTP/2 that died without a word is given up soon, and not when TCP does.
func TestSilentConnectionIsReplaced(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request came with %s", r.Proto)
		}
		fmt.Fprint(w, `{"extended": [], "lost": []}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	proxy := newMuteProxy(t, server.Listener.Addr().String())

	c := dial(t, "https://"+proxy.Addr().String(), WithRetries(0))
	transport := c.http.Transport.(httpclient.Transport).RoundTripper.(*http.Transport)
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	if h := transport.HTTP2; h != nil { // the test does not wait as long as workers do
		h.SendPingTimeout, h.PingTimeout = h.SendPingTimeout/50, h.PingTimeout/50
	}
	beat := func(most time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		_, err := c.Backend().Heartbeat(ctx, tasker.NewID(), nil)
		return err
	}
	if err := beat(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if n := proxy.mute(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	err := beat(5 * time.Second)
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
		err = beat(5 * time.Second)
	}
	if err != nil {
		t.Errorf("no heartbeat arrives any more: %v", err)
	}
}
