package app

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

func newGate(c config.Config) *overload.Gate {
	l := c.Limits
	reads := l.Reads
	if reads == 0 {
		reads = max(1, postgres.RequestConns(c.Database.MaxConnections)-1)
	}
	return overload.New(overload.Options{
		Rate: float64(l.RequestsPerSecond),
		Limits: map[overload.Class]overload.Limit{
			overload.Reports:     {Running: l.Reports, Waiting: 10 * l.Reports, Wait: 10 * time.Second},
			overload.Claims:      {Running: l.Claims},
			overload.Operations:  {Running: l.Operations, Waiting: 10 * l.Operations, Wait: 5 * time.Second},
			overload.Reads:       {Running: reads, Waiting: 50 * reads, Wait: 2 * time.Second},
			overload.Creates:     {Running: l.Creates, Waiting: l.Creates, Wait: time.Second},
			overload.BulkCreates: {Running: l.BulkCreates, Waiting: 5 * l.BulkCreates, Wait: 5 * time.Second},
		},
	})
}

// boundedListener limits the number of open connections, in total and per address, see
// [overload.Network]. It closes connections beyond the limits.
type boundedListener struct {
	net.Listener
	most    int
	proxies []netip.Prefix // not limited per address
	log     *slog.Logger

	mu     sync.Mutex
	open   int
	of     map[netip.Prefix]int
	logged time.Time
	closed int // closed since the last log line
}

func boundListener(l net.Listener, most int, proxies []netip.Prefix, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, most: most, proxies: proxies, log: log, of: map[netip.Prefix]int{}}
}

// Accept returns the next connection within the limits.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := remoteAddress(c)
		if l.tryAcquire(from) {
			return &boundedConn{Conn: c, end: sync.OnceFunc(func() { l.release(from) })}, nil
		}
		_ = c.Close()
		l.logClosed(from)
	}
}

func remoteAddress(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func (l *boundedListener) tryAcquire(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most || !isInNetworks(l.proxies, from) && l.of[overload.Network(from)] >= overload.Share(l.most) {
		return false
	}
	l.open++
	l.of[overload.Network(from)]++
	return true
}

func (l *boundedListener) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	network := overload.Network(from)
	if l.of[network]--; l.of[network] == 0 {
		delete(l.of, network)
	}
}

// logInterval is the minimum interval between log lines about closed connections.
const logInterval = 10 * time.Second

func (l *boundedListener) logClosed(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
	if now := time.Now(); now.Sub(l.logged) >= logInterval {
		l.log.WarnContext(context.Background(), "connections closed: limit reached (limits.connections)",
			"limit", l.most, "open", l.open, "from", from, "open_from_there", l.of[overload.Network(from)], "closed", l.closed)
		l.logged, l.closed = now, 0
	}
}

// boundedConn counts against the limits until it is closed. Its Close lingers: if a client sends
// its whole request before it reads the response, unread bytes would reset the connection and lose
// the response.
type boundedConn struct {
	net.Conn
	end    func()
	closed atomic.Bool
}

// The limits of a lingering connection.
const (
	lingerTime  = 30 * time.Second
	lingerQuiet = 3 * time.Second // without data from the client
	lingerBytes = 64 << 20
)

// Read returns net.ErrClosed after Close.
func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// CloseWrite closes the sending side; the client can finish its request.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the sending side at once. In the background, it closes the connection when the
// client has closed it or a limit is reached.
func (c *boundedConn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.CloseWrite() != nil { // the client has disconnected
		defer c.end()
		return c.Conn.Close()
	}
	go func() {
		defer c.end()
		defer c.Conn.Close()
		defer time.AfterFunc(lingerTime, func() { _ = c.Conn.Close() }).Stop()
		piece := make([]byte, 16<<10)
		for left := lingerBytes; left > 0; {
			_ = c.SetReadDeadline(time.Now().Add(lingerQuiet))
			n, err := c.Conn.Read(piece)
			if err != nil {
				return
			}
			left -= n
		}
	}()
	return nil
}
