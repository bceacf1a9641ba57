package live

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Probabilities of faults, for each connection or each piece of a request or a response.
const (
	refuseShare = 0.03 // of connections: reset at once
	delayShare  = 0.20 // of pieces: delayed by up to maxDelay
	cutShare    = 0.03 // of pieces: the connection is closed instead, or in the middle
	pageShare   = 0.02 // of requests: a page of the proxy instead of the response
	maxDelay    = 150 * time.Millisecond
	pieceBytes  = 16 << 10
)

// proxy forwards TCP connections to a server and disturbs them at random.
type proxy struct {
	listener net.Listener
	target   atomic.Value // address of the server, a string
	faults   atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
	conns  map[net.Conn]bool
}

// newProxy listens on a free port of the loopback interface. The seed selects the faults.
func newProxy(seed uint64) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, random: rand.New(rand.NewPCG(seed, seed)), conns: map[net.Conn]bool{}}
	p.target.Store("")
	go p.serve()
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// chance returns true with a probability, and counts it as a fault.
func (p *proxy) chance(probability float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random.Float64() >= probability {
		return false
	}
	p.faults.Add(1)
	return true
}

// number returns a random number below n.
func (p *proxy) number(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n)
}

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns[c] = true
		p.mu.Unlock()
		go p.forward(c)
	}
}

// forward connects a worker with the server until one of them, or a fault, ends the connection.
func (p *proxy) forward(worker net.Conn) {
	defer p.end(worker)
	target, _ := p.target.Load().(string)
	if p.chance(refuseShare) || target == "" {
		if tcp, ok := worker.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closing it sends a reset
		}
		return
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	both := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{worker, server}, {server, worker}} {
		go func() {
			p.copy(pair[0], pair[1])
			both <- struct{}{}
		}()
	}
	<-both
}

func (p *proxy) end(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// copy forwards pieces until the connection ends or a fault ends it.
func (p *proxy) copy(from, to net.Conn) {
	buffer := make([]byte, pieceBytes)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		piece := buffer[:n]
		if p.chance(delayShare) {
			time.Sleep(time.Duration(p.number(int(maxDelay)))) //nolint:forbidigo // the delay is the fault
		}
		if isRequest(piece) && p.chance(pageShare) {
			p.sendPage(from)
			return
		}
		if p.chance(cutShare) {
			_, _ = to.Write(piece[:p.number(n+1)]) // the connection ends anyway
			return
		}
		if _, err := to.Write(piece); err != nil {
			return
		}
	}
}

// isRequest reports whether a piece begins with an HTTP request.
func isRequest(piece []byte) bool {
	return bytes.HasPrefix(piece, []byte("POST /")) || bytes.HasPrefix(piece, []byte("GET /")) || bytes.HasPrefix(piece, []byte("DELETE /"))
}

// sendPage sends an HTML page with a random status.
func (p *proxy) sendPage(worker net.Conn) {
	statuses := []int{200, 404, 413, 500, 502}
	const page = "<html><body>Bad gateway</body></html>"
	fmt.Fprintf(worker, "HTTP/1.1 %d Page\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		statuses[p.number(len(statuses))], len(page), page)
}
