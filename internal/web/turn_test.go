package web_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/web"
)

// Whoever sends a form slowly takes no turn from others.
func TestSlowFormsBlockNoOtherRequest(t *testing.T) {
	t.Parallel()
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Operations: {Running: 1}}})
	h := newHarness(t, func(o *web.Options) { o.Gate = gate })
	h.Template("order", enginetest.Step("charge"))
	path := "/ui/tasks/" + h.create("order", `{}`).String() + "/cancel"
	h.token() // a page was opened before
	c, err := net.Dial("tcp", h.server.Listener.Addr().String())
	h.Must(err)
	t.Cleanup(func() { c.Close() })
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\nr", path)
	h.Must(err)
	if said, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(said, "100 Continue") { // its form is being read
		t.Fatalf("%q %v", said, err)
	}
	if got := h.post(path, "reason=enough", "operator=ann"); got.status == http.StatusServiceUnavailable {
		t.Errorf("beside a form that does not end: %d %.300s", got.status, got.text)
	}
}
