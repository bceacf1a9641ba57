package app_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/testtool"
)

const largeBody = 8_400_000 // more than limits of bodies and buffers of connections together

// sendThenRead sends a whole request before it reads the answer.
func sendThenRead(t *testing.T, c net.Conn, head string) (int, string) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "%s\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", head, c.RemoteAddr(), largeBody); err != nil {
		t.Errorf("%s: send the head: %v", head, err)
	}
	if _, err := io.CopyN(c, zeros{}, largeBody); err != nil {
		t.Errorf("%s: send the body: %v", head, err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Errorf("%s: read the answer: %v", head, err)
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Errorf("%s: read the body of the answer: %v", head, err)
	}
	return answer.StatusCode, string(text)
}

// zeros reads as one digit after the other.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

var earlyAnswers = []struct {
	status int
	head   string // without the token
	known  bool   // it is sent with the token
}{
	{http.StatusRequestEntityTooLarge, "POST /v1/tasks HTTP/1.1\r\nContent-Type: application/json", true},
	{http.StatusRequestEntityTooLarge, "POST /v1/templates HTTP/1.1\r\nContent-Type: application/yaml", true},
	{http.StatusUnsupportedMediaType, "POST /v1/tasks HTTP/1.1\r\nContent-Type: text/plain", true},
	{http.StatusNotFound, "POST /v1/nothing HTTP/1.1", true},
	{http.StatusMethodNotAllowed, "PUT /v1/tasks HTTP/1.1", true},
	{http.StatusUnauthorized, "POST /v1/tasks HTTP/1.1\r\nContent-Type: application/json", false},
	{http.StatusNotFound, "POST /elsewhere HTTP/1.0", false},
}

// An answer that comes before the body was read reaches a client that sends first.
func TestEarlyAnswersReachSlowReaders(t *testing.T) {
	t.Parallel()
	o := options(pgtest.New(t).URL)
	o.Config.Auth.Mode = config.AuthRequired
	s := start(t, o)
	token := bootstrap(t, o.Config.Database.URL)
	expectEarlyAnswers(t, token, func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(s.url, "http://")) })
	for program, script := range map[string]string{"python3": pythonClient, "node": nodeClient} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			path := testtool.Find(t, program, "install "+program)
			flag := map[string]string{"python3": "-c", "node": "-e"}[program]
			out, err := exec.CommandContext(t.Context(), path, flag, script, strings.TrimPrefix(s.url, "http://"), token).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "413 TOO_LARGE") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestEarlyAnswersReachSlowReadersOverTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	o := options(pgtest.New(t).URL)
	o.Config.Auth.Mode = config.AuthRequired
	o.Config.Server.TLSCertFile, o.Config.Server.TLSKeyFile = a.sign("server")
	s := start(t, o)
	token := bootstrap(t, o.Config.Database.URL)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	expectEarlyAnswers(t, token, func() (net.Conn, error) {
		return tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	})
}

func expectEarlyAnswers(t *testing.T, token string, dial func() (net.Conn, error)) {
	t.Helper()
	for _, tt := range earlyAnswers {
		t.Run(tt.head[:strings.Index(tt.head, " HTTP")], func(t *testing.T) {
			t.Parallel()
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			head := tt.head
			if tt.known {
				head += "\r\nAuthorization: Bearer " + token
			}
			if status, text := sendThenRead(t, c, head); status != tt.status || !strings.Contains(text, `"error"`) {
				t.Errorf("%s: %d %s, want %d", tt.head, status, text, tt.status)
			}
		})
	}
}

const pythonClient = `
import http.client, json, sys
c = http.client.HTTPConnection(sys.argv[1])
c.request("POST", "/v1/tasks", b"0" * 8400000, {"Content-Type": "application/json", "Authorization": "Bearer " + sys.argv[2]})
r = c.getresponse()
print(r.status, json.load(r)["error"]["code"])
`

const nodeClient = `
const [host, port] = process.argv[1].split(":")
const r = require("http").request({host, port, method: "POST", path: "/v1/tasks", headers: {"Content-Type": "application/json", "Content-Length": 8400000, "Authorization": "Bearer " + process.argv[2]}}, a => {
  let text = ""
  a.on("data", d => text += d)
  a.on("end", () => { console.log(a.statusCode, JSON.parse(text).error.code); process.exit(0) })
})
r.on("error", e => { console.log("failed:", e.message); process.exit(1) })
r.end(Buffer.alloc(8400000, "0"))
`
