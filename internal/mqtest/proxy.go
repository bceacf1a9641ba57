package mqtest

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing" //nolint:depguard // this package is a test's tool

	"tasker.example/tasker/internal/childproc"
)

// ProxyServer is a proxy in front of a broker that fails on demand.
type ProxyServer struct {
	URL    string // URL of the broker with the address of the proxy
	target string // host and port of the broker
	listen string // host and port of the proxy

	mu       sync.Mutex
	listener net.Listener // nil while it is cut
	conns    map[net.Conn]bool
	thawed   chan struct{} // closed unless frozen
	all      sync.WaitGroup
}

// Proxy starts a proxy for the broker at the URL and stops it at the end of the test.
func Proxy(t testing.TB, brokerURL string) *ProxyServer {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal("the URL of the broker is not valid")
	}
	ports, err := childproc.FreePorts(1) // stays free for Restore
	if err != nil {
		t.Fatal(err)
	}
	p := &ProxyServer{
		target: u.Host, listen: fmt.Sprintf("127.0.0.1:%d", ports[0]), conns: map[net.Conn]bool{}, thawed: make(chan struct{}),
	}
	if u.Port() == "" {
		p.target = net.JoinHostPort(u.Hostname(), "5672")
	}
	close(p.thawed)
	p.Restore(t)
	u.Host = p.listen
	p.URL = u.String()
	t.Cleanup(func() {
		p.Thaw()
		p.Cut()
		p.all.Wait()
	})
	return p
}

// Cut closes all connections and refuses new ones until Restore.
func (p *ProxyServer) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Restore accepts connections again at the same address.
func (p *ProxyServer) Restore(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	l, err := net.Listen("tcp", p.listen)
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p.listener, p.listen = l, l.Addr().String()
	p.all.Go(func() { p.accept(l) })
}

// Freeze stops all traffic but leaves the connections open, as an unresponsive broker or network
// does.
func (p *ProxyServer) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default:
	}
}

// Thaw ends a Freeze and passes the delayed traffic on.
func (p *ProxyServer) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

func (p *ProxyServer) accept(l net.Listener) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target) //nolint:noctx // loopback responds at once
		if err != nil {
			_ = near.Close()
			continue
		}
		if !p.addConns(l, near, far) {
			continue
		}
		p.all.Go(func() { p.forward(near, far) })
		p.all.Go(func() { p.forward(far, near) })
	}
}

// addConns registers the connections. It closes them and returns false if the proxy has been cut
// meanwhile.
func (p *ProxyServer) addConns(l net.Listener, both ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range both {
		if p.listener != l {
			_ = conn.Close()
		} else {
			p.conns[conn] = true
		}
	}
	return p.listener == l
}

// forward copies data in one direction until either side ends.
func (p *ProxyServer) forward(from, to net.Conn) {
	defer p.closeConns(from, to)
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		thawed := p.thawed
		p.mu.Unlock()
		<-thawed
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// closeConns closes and unregisters the connections.
func (p *ProxyServer) closeConns(both ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range both {
		_ = conn.Close()
		delete(p.conns, conn)
	}
}
