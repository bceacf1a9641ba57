package app_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/pgtest"
)

// A cutter stands between a server and its database and cuts the connection once, at
// one message of the server's.
type cutter struct {
	net.Listener
	target string
	at     int64 // the message; counted over all connections
	seen   atomic.Int64
	wg     sync.WaitGroup
}

func newCutter(t *testing.T, database string, at int64) (c *cutter, through string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = &cutter{Listener: l, target: u.Host, at: at}
	c.wg.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.wg.Wait()
	})
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return c, u.String()
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		closing := sync.OnceFunc(func() { _, _ = client.Close(), server.Close() })
		c.wg.Go(func() {
			defer closing()
			_, _ = io.Copy(client, server)
		})
		c.wg.Go(func() {
			defer closing()
			for first := true; c.forward(client, server, first); first = false {
			}
		})
	}
}

// forward passes one message on, unless it is the one to cut at.
func (c *cutter) forward(client io.Reader, server io.Writer, first bool) bool {
	head := make([]byte, 5) // type and length; the first message has no type
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(client, head); err != nil {
		return false
	}
	body := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return false
	}
	if c.seen.Add(1) == c.at {
		return false
	}
	_, err := server.Write(append(head, body...))
	return err == nil
}

// A connection that breaks at whatever message of the start keeps no server from starting.
func TestAServerStartsThoughItsConnectionBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server for each message")
	}
	t.Parallel()
	database := pgtest.New(t)
	dir := t.TempDir()
	text := "namespace_name: n\nname: one\nversion: 1.0.0\nsteps:\n  - name: only\n    handler: {callable: run}\n"
	if err := os.WriteFile(filepath.Join(dir, "one.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const step = 2 // of two messages that follow each other, one is enough
	for at := int64(1); ; at += step {
		var during int64
		t.Run(fmt.Sprint("message ", at), func(t *testing.T) {
			c, through := newCutter(t, database.URL, at)
			o := options(through)
			o.Config.Server.Templates = dir
			s := start(t, o)
			during = c.seen.Load()
			s.stop()
			if err := s.wait(); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
		if t.Failed() || during < at {
			t.Logf("the start is %d messages", during)
			break
		}
	}
}

// A pass that does not end keeps the server from ending only so long.
func TestAPassThatHangsDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	o := options(database.URL)
	o.Config.Server.ShutdownTimeoutSeconds = 1
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	shortest := time.Hour
	for round := 0; round < 5 && shortest > 4*time.Second; round++ { // one of which a loaded machine does not hold up
		shortest = min(shortest, endsBesidePass(t, start(t, o), conn))
	}
	if shortest > 4*time.Second {
		t.Errorf("it took %v to end", shortest)
	}
}

// endsBesidePass returns how long a server takes to end while a pass of it waits for a lock.
func endsBesidePass(t *testing.T, s *server, conn *pgx.Conn) time.Duration {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE tasker.workflow_steps, tasker.tasks IN ACCESS EXCLUSIVE MODE`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	await(t, "a pass that waits", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tasker.tasks'::regclass`).Scan(&n)
		return err == nil && n > 0
	})
	begun := time.Now()
	s.stop()
	err := s.wait()
	took := time.Since(begun)
	if err != nil && !strings.Contains(err.Error(), "did not end in time") {
		t.Errorf("ended with %v", err)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	return took
}
