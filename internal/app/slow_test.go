package app_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
)

// Connections that say nothing, or say it slowly, and streams that nobody reads delay nobody else.
func TestSlowCallersDelayNobody(t *testing.T) {
	t.Parallel()
	const idle, slow, streams = 1000, 200, 1000
	o := options(pgtest.New(t).URL)
	o.Config.Auth.Mode = config.AuthRequired
	s := start(t, o)
	token := bootstrap(t, o.Config.Database.URL)
	client := http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	measure := func() time.Duration {
		t.Helper()
		var took []time.Duration
		for range 200 {
			begun := time.Now()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/tasks", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("a healthy caller gets %s, %v", resp.Status, err)
			}
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	measure() // connections are made
	before := measure()
	address := strings.TrimPrefix(s.url, "http://")
	open := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	auth := "Host: " + address + "\r\nAuthorization: Bearer " + token + "\r\n"
	for range idle {
		open("")
	}
	begun := open("GET /v1/tasks HTTP/1.1\r\nX-Slow")
	for range slow {
		open("GET /v1/tasks HTTP/1.1\r\nHost: " + address + "\r\nX-Slow")
		open("POST /v1/tasks HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
	}
	answers := map[string]int{}
	for range streams {
		c := open("GET /v1/dlq/events HTTP/1.1\r\n" + auth + "\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		answers[strings.TrimSpace(line)]++
	}
	if ok, full := answers["HTTP/1.1 200 OK"], answers["HTTP/1.1 503 Service Unavailable"]; ok == 0 || full == 0 || ok+full != streams {
		t.Errorf("streams are answered with %v", answers)
	}
	after := measure()
	t.Logf("a request took %v before, %v beside %d connections; streams: %v", before, after, idle+2*slow+streams, answers)
	// Who does not finish the header of a request is given up after ten seconds.
	if err := begun.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(begun); err != nil {
		t.Errorf("a header that is not finished: %v", err)
	}
	// A regression would cost seconds; the machine itself costs a factor.
	if after > 5*before+time.Second {
		t.Errorf("a request takes %v, which took %v before", after, before)
	}
}
