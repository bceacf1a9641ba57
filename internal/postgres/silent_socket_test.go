//go:build linux || darwin || freebsd || netbsd || openbsd

package postgres

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// pgx may have left a reader that waits for the next message: to look at the connection
// does not wait for it.
func TestAConnectionWithAReaderIsLookedAtWithoutWaiting(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	looked := make(chan bool, 1)
	go func() {
		nothing := true
		for range 1000 { // in some of which the reader waits
			nothing = nothing && isSilent(conn)
			runtime.Gosched()
		}
		looked <- nothing
	}()
	select {
	case nothing := <-looked:
		if !nothing {
			t.Error("nothing has arrived, and it is not silent")
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the reader")
	}
	_ = server.Close()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("the reader got %v", err)
	}
	if isSilent(conn) {
		t.Error("a connection that has ended is silent")
	}
	_ = conn.Close()
}
