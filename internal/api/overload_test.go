package api_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/overload"
)

// A stalled reader takes nothing of an answer until it is told to.
type stalled struct {
	http.ResponseWriter
	writing, read chan struct{}
}

func (s stalled) Write(b []byte) (int, error) {
	close(s.writing)
	<-s.read
	return s.ResponseWriter.Write(b)
}

// componentStatus answers a request while another one has an answer that nobody reads, until this one is answered.
func componentStatus(answer func(http.ResponseWriter)) *httptest.ResponseRecorder {
	slow := stalled{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(slow)
	}()
	<-slow.writing
	second := httptest.NewRecorder()
	answer(second)
	close(slow.read)
	<-done
	return second
}

// Of two answers one can be made at a time, and one that nobody reads is made.
func TestSlowReadersHoldNoRequestSlot(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Reads: {Running: 1}}})
	handler := api.New(t.Context(), api.Options{DB: e.DB, Engine: e.Engine, DLQ: e.DLQ, Gate: gate})
	second := componentStatus(func(w http.ResponseWriter) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tasks", nil)
		r.Host = "127.0.0.1"
		handler.ServeHTTP(w, r)
	})
	if second.Code != http.StatusOK {
		t.Errorf("beside somebody who does not read their answer: %d %s", second.Code, second.Body)
	}
	for _, c := range gate.Counts() {
		if c.Running != 0 {
			t.Errorf("after all are answered %d of %s are counted", c.Running, c.Class)
		}
	}
}

// Each class is limited by itself: with all others full it is served, and with itself
// full it is refused with the status, the code and the rest that callers understand.
func TestRequestClassesAreLimitedIndependently(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	limits := map[overload.Class]overload.Limit{}
	for _, c := range overload.Classes() {
		limits[c] = overload.Limit{Running: 1}
	}
	delete(limits, overload.Exempt)
	gate := overload.New(overload.Options{Limits: limits})
	h := serve(t, e, func(o *api.Options) { o.Gate = gate })
	id := "0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f"
	requests := map[overload.Class]struct {
		method, path string
		body         any
		usual        int
	}{
		overload.Exempt:      {"GET", "/health/ready", nil, 200},
		overload.Reports:     {"POST", "/v1/workers/" + id + "/heartbeat", `{"leases": []}`, 404},
		overload.Claims:      {"POST", "/v1/workers/" + id + "/claims", `{"max": 1}`, 404},
		overload.Operations:  {"DELETE", "/v1/tasks/" + id, nil, 404},
		overload.Reads:       {"GET", "/v1/tasks", nil, 200},
		overload.Creates:     {"POST", "/v1/tasks", `{"namespace": "n", "name": "none"}`, 404},
		overload.BulkCreates: {"POST", "/v1/tasks/bulk", `[{"namespace": "n", "name": "none"}]`, 404},
		overload.Streams:     {"HEAD", "/v1/dlq/events", nil, 200},
	}
	for _, class := range overload.Classes() {
		t.Run(string(class), func(t *testing.T) {
			for _, full := range overload.Classes() {
				leave, err := gate.Acquire(t.Context(), full, "")
				h.Must(err)
				r := requests[class]
				got := h.send(r.method, r.path, r.body)
				leave()
				switch {
				case full != class || class == overload.Exempt:
					if got.status != r.usual {
						t.Errorf("while %s is full: %d %s, want %d", full, got.status, got.text, r.usual)
					}
				case got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "":
					t.Errorf("full, and the answer is %d %s with Retry-After %q", got.status, got.text, got.header.Get("Retry-After"))
				}
			}
		})
	}
}

// A caller who gives up while waiting for their turn takes none.
func TestCancelledRequestsReleaseTheirSlot(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Reads: {Running: 1, Waiting: 1, Wait: time.Minute}}})
	handler := api.New(t.Context(), api.Options{DB: e.DB, Engine: e.Engine, DLQ: e.DLQ, Gate: gate})
	leave, err := gate.Acquire(t.Context(), overload.Reads, "")
	e.Must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/tasks", nil)
	r.Host = "127.0.0.1"
	handler.ServeHTTP(httptest.NewRecorder(), r)
	leave()
	for _, c := range gate.Counts() {
		if c.Running != 0 || c.Waiting != 0 {
			t.Errorf("%+v is counted", c)
		}
	}
}

// Whoever sends bodies that do not end takes no turn: 16 of two callers keep nobody from a repair.
func TestSlowSendersHoldNoRequestSlot(t *testing.T) {
	t.Parallel()
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Operations: {Running: 16, Waiting: 160, Wait: 20 * time.Millisecond}}})
	h, _ := guarded(t, func(o *api.Options) { o.Gate = gate })
	for _, name := range []string{"slow", "sluggish"} {
		header := h.bearer(name, "operator@shop")
		for range 8 {
			c := h.holdBody("/v1/tasks/cancel", 10, header, "Expect: 100-continue")
			if said, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(said, "100 Continue") { // its body is being read
				t.Fatalf("%q %v", said, err)
			}
		}
	}
	got := h.send("DELETE", "/v1/tasks/0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f", nil, h.bearer("ann", "operator@shop"))
	if got.status != http.StatusNotFound {
		t.Errorf("a repair beside bodies that do not end: %d %s", got.status, got.text)
	}
}

// What would have neither a turn nor a place to wait is refused before its body is read.
func TestBodyOfARejectedRequestIsNotRead(t *testing.T) {
	t.Parallel()
	gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.Operations: {Running: 1}}})
	h := newHarness(t, func(o *api.Options) { o.Gate = gate })
	leave, err := gate.Acquire(t.Context(), overload.Operations, "")
	h.Must(err)
	defer leave()
	c := h.holdBody("/v1/tasks/cancel", 10, "Expect: 100-continue")
	if said, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(said, "503") {
		t.Errorf("%q %v", said, err)
	}
}
