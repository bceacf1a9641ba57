// Package scripted implements a Tasker server for the tests of worker SDKs. It speaks the worker
// protocol from memory, on loopback, and records every request. A test enqueues steps, scripts the
// faults that it wants to see handled, and waits for the state that a conformant worker reaches.
package scripted

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxBody limits the body of a request, in bytes.
const maxBody = 64 << 20

// Server is a scripted server. Set its exported fields before the first worker starts.
type Server struct {
	Heartbeat        time.Duration // interval in the response to a registration
	Lease            time.Duration // duration of a lease
	ClaimIsHeartbeat bool          // in the response to a registration
	ClockAhead       time.Duration // how far the clock of the server is ahead of the worker's
	ExtraKeys        bool          // adds unknown keys to all objects of all responses

	began    time.Time
	listener *unreliable
	http     *http.Server

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced on every change
	log        []*Request
	rules      []*rule
	keys       []string // accepted keys; empty accepts all requests
	workers    map[string]*Worker
	steps      []*Step
	tokens     int
	violations []string
	conns      map[net.Conn]bool
}

// New starts a server on a free port of the loopback interface. The caller must close it.
func New(heartbeat, lease time.Duration) (*Server, error) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		Heartbeat: heartbeat, Lease: lease, began: time.Now(), listener: &unreliable{Listener: inner},
		changed: make(chan struct{}), workers: map[string]*Worker{}, conns: map[net.Conn]bool{},
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ConnState: s.track}
	go func() { _ = s.http.Serve(s.listener) }()
	return s, nil
}

// URL returns the base URL of the server.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends the server and all of its connections.
func (s *Server) Close() error { return s.http.Close() }

// SetKeys sets the accepted API keys. Without keys, the server accepts all requests.
func (s *Server) SetKeys(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

// SetDown makes the server refuse connections with a reset, or accept them again. It also resets
// the existing connections.
func (s *Server) SetDown(down bool) {
	s.listener.down.Store(down)
	if !down {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		reset(c)
	}
}

// Refused returns the number of connections that were refused while the server was down.
func (s *Server) Refused() int { return int(s.listener.refused.Load()) }

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	default:
	}
}

// ServeHTTP records a request and answers it by the first rule that matches, or by the protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the worker has gone
	}
	q := s.record(r, body)
	x := &Exchange{Request: q, server: s, writer: w, ctx: r.Context()}
	if act := s.match(q); act != nil {
		act(x)
		return
	}
	x.Send(x.Apply())
}

// Wait waits until so returns true, at most for d. It calls so after every change, without a lock.
func (s *Server) Wait(d time.Duration, so func() bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		changed := s.change()
		if so() {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return so()
		}
	}
}

// Notify makes [Server.Wait] check its condition.
func (s *Server) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify()
}

// notify is like Notify for a caller that holds the mutex.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) change() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// later calls f with the mutex after d, then notifies.
func (s *Server) later(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		s.notify()
	})
}

// violate records that a request breaks the protocol. The caller holds the mutex.
func (s *Server) violate(text string) { s.violations = append(s.violations, text) }

// Violations returns the descriptions of requests that break the protocol.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.violations...)
}

// unreliable is a listener that can refuse connections.
type unreliable struct {
	net.Listener
	down    atomic.Bool
	refused atomic.Int64
}

// Accept waits for the next connection that is not refused.
func (u *unreliable) Accept() (net.Conn, error) {
	for {
		c, err := u.Listener.Accept()
		if err != nil || !u.down.Load() {
			return c, err
		}
		u.refused.Add(1)
		reset(c)
	}
}

// reset closes a connection with a TCP reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// rest waits for d or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
