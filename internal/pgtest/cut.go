package pgtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A Cutter is a proxy in front of PostgreSQL that breaks a connection when it sends a chosen
// message.
type Cutter struct {
	URL string // of the database, through the cutter

	listener net.Listener
	target   string

	mu        sync.Mutex
	text      []byte
	reach     bool
	remaining int
	cut       int
}

// NewCutter returns a cutter in front of the database at databaseURL.
func NewCutter(t testing.TB, databaseURL string) *Cutter {
	t.Helper()
	where, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cutter{listener: listener, target: where.Host}
	where.Host = listener.Addr().String()
	c.URL = where.String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		c.mu.Lock()
		c.remaining = 0
		c.mu.Unlock()
	})
	return c
}

// Cut breaks the next n connections that send a message with the text. If reach is true, it breaks
// them after PostgreSQL has answered, otherwise before the message reaches PostgreSQL.
func (c *Cutter) Cut(n int, text string, reach bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text, c.reach, c.remaining, c.cut = []byte(text), reach, n, 0
}

// Count returns the number of broken connections since [Cutter.Cut].
func (c *Cutter) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// hit reports whether to break the connection at this message, and whether the message must reach
// PostgreSQL first.
func (c *Cutter) hit(message []byte) (cut, reach bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remaining == 0 || !bytes.Contains(message, c.text) {
		return false, false
	}
	c.remaining--
	c.cut++
	return true, c.reach
}

func (c *Cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	answered := make(chan struct{}, 1)
	var swallow sync.Mutex // locked when no further answer may pass
	go func() {
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if !swallow.TryLock() {
				answered <- struct{}{}
				return
			}
			_, err = client.Write(buf[:n])
			swallow.Unlock()
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 256<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		cut, reach := c.hit(buf[:n])
		if cut && !reach {
			return
		}
		if cut {
			swallow.Lock()
		}
		if _, err := io.Copy(server, bytes.NewReader(buf[:n])); err != nil {
			return
		}
		if cut {
			<-answered
			return
		}
	}
}
