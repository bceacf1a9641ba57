package httpclient_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/httpclient"
)

// raw serves one hostile answer on each connection. The answer ends when the client closes.
func raw(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				answer(c)
				_, _ = io.Copy(io.Discard, c) // until the client closes
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// forever repeats a text until the client closes.
func forever(c net.Conn, text string) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// fetch reads one answer. The error is that of the request or of its body.
func fetch(ctx context.Context, c *http.Client, method, url string) (int, int64, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		return 0, 0, err
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, n, err
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"

func TestSwitchingProtocolsIsAnError(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"plain": switching, "without Upgrade": "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.0": "HTTP/1.0 101 x\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"with a body": "HTTP/1.1 101 Switching Protocols\r\nContent-Length: 5\r\n\r\nhello", "after 103": "HTTP/1.1 103 Early Hints\r\n\r\n" + switching,
	} {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			closed := make(chan struct{})
			url := raw(t, func(c net.Conn) {
				fmt.Fprint(c, text)
				_, _ = io.Copy(io.Discard, c)
				close(closed)
			})
			if _, _, err := fetch(t.Context(), httpclient.New(nil), method, url); !errors.Is(err, httpclient.ErrSwitched) {
				t.Errorf("%s, %s: %v", name, method, err)
			}
			<-closed // the client closed the connection
		}
	}
}

func TestSwitchingProtocolsAfterARedirectIsAnError(t *testing.T) {
	t.Parallel()
	last := raw(t, func(c net.Conn) { fmt.Fprint(c, switching) })
	first := httptest.NewServer(http.RedirectHandler(last, http.StatusFound))
	t.Cleanup(first.Close)
	c := httpclient.New(nil)
	if status, _, err := fetch(t.Context(), c, "GET", first.URL); err != nil || status != http.StatusFound {
		t.Errorf("a redirect is followed: %d, %v", status, err)
	}
	for name, following := range map[string]*http.Client{"default transport": {}, "own transport": {Transport: &http.Transport{}}} {
		if _, _, err := fetch(t.Context(), httpclient.Guard(following), "GET", first.URL); !errors.Is(err, httpclient.ErrSwitched) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A canceled context ends each answer that does not end.
func TestContextEndsEveryAnswer(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	for name, answer := range map[string]func(net.Conn){
		"no answer":        func(net.Conn) {},
		"half a header":    func(c net.Conn) { fmt.Fprint(c, head) },
		"no body":          func(c net.Conn) { fmt.Fprint(c, head+"\r\n") },
		"too short a body": func(c net.Conn) { fmt.Fprint(c, head+"Content-Length: 1000\r\n\r\nhello") },
		"an endless body":  func(c net.Conn) { fmt.Fprint(c, head+"\r\n"); forever(c, "hello") },
		"a chunk that does not end": func(c net.Conn) {
			fmt.Fprint(c, head+"Transfer-Encoding: chunked\r\n\r\nffff\r\n")
		},
		"a 204 with a body, and more": func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n"); forever(c, "hello") },
		"endless answers 100":         func(c net.Conn) { forever(c, "HTTP/1.1 100 Continue\r\n\r\n") },
		"endless answers 103":         func(c net.Conn) { forever(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n") },
		"an endless header":           func(c net.Conn) { fmt.Fprint(c, head); forever(c, "X: "+strings.Repeat("x", 1000)+"\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				status, _, err := fetch(ctx, httpclient.New(nil), "POST", raw(t, answer))
				if err == nil && status != http.StatusNoContent {
					err = fmt.Errorf("status %d and no error", status)
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err != nil && strings.Contains(err.Error(), "no error") {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it does not end")
			}
		})
	}
}

func TestContextEndsBodiesOfHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := httpclient.New(func(t *http.Transport) {
		t.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := fetch(ctx, c, "GET", server.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the body ended with %v", err)
	}
}

// A header that is too large is an error without a deadline.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"X: " + strings.Repeat("x", 1000) + "\r\n", "\r\nHTTP/1.1 100 Continue\r\n", "\r\nHTTP/1.1 103 Early Hints\r\n"} {
		url := raw(t, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 103 x\r\n"); forever(c, line) })
		if _, _, err := fetch(t.Context(), httpclient.New(nil), "GET", url); err == nil || !strings.Contains(err.Error(), "header") {
			t.Errorf("%.30q: %v", line, err)
		}
	}
}
