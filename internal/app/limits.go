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

// newGate returns what decides about requests of too many.
func newGate(c config.Config) *overload.Gate {
	l := c.Limits
	reads := l.Reads
	if reads == 0 {
		reads = max(1, postgres.ForRequests(c.Database.MaxConnections)-1)
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

// A boundedListener closes connections of which there are too many, in all or from one
// address, see [overload.Network].
type boundedListener struct {
	net.Listener
	most    int
	proxies []netip.Prefix // whose connections are those of many
	log     *slog.Logger

	mu     sync.Mutex
	open   int
	of     map[netip.Prefix]int
	logged time.Time
	closed int // since then
}

func bound(l net.Listener, most int, proxies []netip.Prefix, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, most: most, proxies: proxies, log: log, of: map[netip.Prefix]int{}}
}

// Accept returns the next connection that there is room for.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(c)
		if l.take(from) {
			return &boundedConn{Conn: c, end: sync.OnceFunc(func() { l.giveBack(from) })}, nil
		}
		_ = c.Close() // nothing was said yet
		l.tell(from)
	}
}

func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func (l *boundedListener) take(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most || !isIn(l.proxies, from) && l.of[overload.Network(from)] >= overload.Share(l.most) {
		return false
	}
	l.open++
	l.of[overload.Network(from)]++
	return true
}

func (l *boundedListener) giveBack(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	network := overload.Network(from)
	if l.of[network]--; l.of[network] == 0 {
		delete(l.of, network)
	}
}

// tellEvery is how often closed connections are logged.
const tellEvery = 10 * time.Second

func (l *boundedListener) tell(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
	if now := time.Now(); now.Sub(l.logged) >= tellEvery {
		l.log.WarnContext(context.Background(), "connections were closed: there are too many (limits.connections)",
			"limit", l.most, "open", l.open, "from", from, "open_from_there", l.of[overload.Network(from)], "closed", l.closed)
		l.logged, l.closed = now, 0
	}
}

// A boundedConn counts until it is closed. Its closing lingers: a client that sends its whole
// request before it reads would lose the answer if unread bytes reset the connection.
type boundedConn struct {
	net.Conn
	end    func()
	closed atomic.Bool
}

// The bounds of a connection that lingers.
const (
	lingerTime  = 30 * time.Second
	lingerQuiet = 3 * time.Second // between two pieces of what the client sends
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

// CloseWrite ends the answers, and lets the client send what it has begun.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection when the client has closed it, or the bounds are reached. It
// does not wait for that.
func (c *boundedConn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.CloseWrite() != nil { // the client has gone
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
