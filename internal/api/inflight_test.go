package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/overload"
)

// peak samples the memory in use until stop is called, which returns the most.
func peak() (stop func() uint64) {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(context.Background())
	most := make(chan uint64)
	go func() {
		var top uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			runtime.ReadMemStats(&now)
			top = max(top, now.HeapInuse)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		most <- top
	}()
	return func() uint64 {
		cancel()
		return max(<-most, before.HeapInuse) - before.HeapInuse
	}
}

// values is a JSON array of n zeros.
func values(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }

// TestMemoryOfManyLargeBodies sends 12 bodies of 4 MiB at once, once of values that
// make nothing and once of contexts that are as costly as may be: either way the
// server takes at most 256 MiB, and refuses those that it has no room for with Retry-After.
func TestMemoryOfManyLargeBodies(t *testing.T) {
	const size, senders, most = 4 << 20, 12, 256 << 20
	task := `{"namespace":"shop","name":"order","context":{"order":1,"a":` + values(99_000) + `}}`
	long := `{"namespace":"shop","name":"order","context":{"order":1,"a":"` + strings.Repeat("x", 200<<10) + `"}}`
	costly := "[" + strings.Repeat(task+",", 9) + strings.Repeat(long+",", (size-9*len(task))/len(long)-1) + strings.Replace(long, ":1", `:"x"`, 1) + "]" // refused by its schema, after all is decoded
	for name, body := range map[string]string{"zeros": values(size/2 - 1), "contexts": costly} {
		t.Run(name, func(t *testing.T) {
			// As many bulk creates as a server takes.
			gate := overload.New(overload.Options{Limits: map[overload.Class]overload.Limit{overload.BulkCreates: {Running: 3, Waiting: 15, Wait: 5 * time.Second}}})
			h := newHarness(t, func(o *api.Options) { o.Gate = gate })
			h.register(chain)
			stop := peak()
			var wg sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			for range senders {
				wg.Go(func() {
					status := h.sendLarge(body)
					mu.Lock()
					defer mu.Unlock()
					statuses[status]++
				})
			}
			wg.Wait()
			used := stop()
			if status := h.sendLarge(body); status == http.StatusServiceUnavailable {
				t.Error("a body is refused although no other is served")
			}
			t.Logf("%d bodies of %d KiB: %v, +%d MiB", senders, len(body)>>10, statuses, used>>20)
			if used > most {
				t.Errorf("the server took %d MiB more", used>>20)
			}
			done := statuses[http.StatusBadRequest] + statuses[http.StatusCreated]
			if delete(statuses, http.StatusServiceUnavailable); done == 0 || len(statuses) != 1 {
				t.Errorf("answers: %v", statuses)
			}
		})
	}
}

// sendLarge creates tasks and returns the status of the answer.
func (h *harness) sendLarge(body string) int {
	r, _ := http.NewRequestWithContext(h.Context(), "POST", h.server.URL+"/v1/tasks/bulk", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	answer, err := h.server.Client().Do(r)
	if err != nil {
		h.Error(err)
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.StatusCode == http.StatusServiceUnavailable && (err != nil || seconds < 1) {
		h.Errorf("503 with Retry-After %q", answer.Header.Get("Retry-After"))
	}
	return answer.StatusCode
}

// holdBody begins a request whose body does not end, and returns when the server
// has read what was sent of it.
func (h *harness) holdBody(path string, sent int, headers ...string) net.Conn {
	h.Helper()
	c, err := net.Dial("tcp", h.server.Listener.Addr().String())
	h.Must(err)
	h.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", path, sent+1, strings.Join(append(headers, ""), "\r\n"))
	if _, err := c.Write(bytes.Repeat([]byte(" "), sent)); err != nil {
		h.Fatal(err)
	}
	return c
}

// TestBodyIsRejectedWhenBodyMemoryIsFull while others hold the room, and nobody waits for
// ever: not those who wait for each other, not small requests, not heartbeats.
func TestBodyIsRejectedWhenBodyMemoryIsFull(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) {
		o.MaxBodyBytes, o.MaxInflightBytes, o.InflightWait = 1<<20, 1<<20, 500*time.Millisecond
	})
	h.register(chain)
	worker := h.worker()
	large := `{"namespace":"shop","name":"order","context":{"order":1},"reason":"` + strings.Repeat(" ", 600<<10) + `"}`
	var held []net.Conn
	for range 3 { // together more than there is, so that some of them are refused
		held = append(held, h.holdBody("/v1/tasks", 512<<10))
	}
	refused := 0
	for refused == 0 {
		got := h.send("POST", "/v1/tasks", large)
		switch got.status {
		case http.StatusServiceUnavailable:
			refused++
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "max_inflight_bytes") {
				t.Errorf("refused with %v: %s", got.header, got.text)
			}
		case http.StatusBadRequest: // the others have not been read yet
		default:
			t.Fatalf("%d %s", got.status, got.text)
		}
	}
	h.createTask(1)
	leases := `{"leases":[]` + strings.Repeat(" ", 500<<10) + `}`
	if got := h.send("POST", worker+"/heartbeat", leases); got.status != http.StatusOK {
		t.Errorf("a heartbeat beside large bodies: %d %s", got.status, got.text)
	}
	for _, c := range held {
		c.Close()
	}
	for h.send("POST", "/v1/tasks", large).status == http.StatusServiceUnavailable { // until the server knows that they are gone
		if t.Context().Err() != nil {
			t.Fatal("the room is never given back")
		}
	}
}

// TestBodyReservesOnlyReceivedBytes: a sender that announces much and sends nothing
// takes no room from others.
func TestBodyReservesOnlyReceivedBytes(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *api.Options) {
		o.MaxBodyBytes, o.MaxInflightBytes = 1<<20, 1<<20
	})
	h.register(chain)
	for range 20 {
		c, err := net.Dial("tcp", h.server.Listener.Addr().String())
		h.Must(err)
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 1<<20)
	}
	body := fmt.Sprintf(`{"namespace":"shop","name":"order","context":{"order":1,"a":[%s"x"]}}`, strings.Repeat(`"`+strings.Repeat("x", 100<<10)+`",`, 8))
	if got := h.send("POST", "/v1/tasks", json.RawMessage(body)); got.status != http.StatusCreated {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestOneCallerCannotUseAllBodyMemory: whoever holds all the room that they may have, and sends no
// more, keeps nobody else from reporting a result.
func TestOneCallerCannotUseAllBodyMemory(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t, func(o *api.Options) {
		o.MaxBodyBytes, o.MaxInflightBytes, o.InflightWait = 256<<10, 1<<20, 500*time.Millisecond
	})
	slow, worker := h.bearer("slow", "developer@shop"), h.bearer("fleet", "worker@shop")
	registered := want[apiv1.RegisteredWorker](h, http.StatusCreated, "POST", "/v1/workers",
		map[string]any{"name": "w", "namespaces": []string{"shop"}, "handlers": []string{"run"}, "max_concurrency": 1}, worker)
	for range 12 {
		h.holdBody("/v1/tasks", 180<<10, slow) // six of them would fill the room
	}
	large := strings.Repeat(" ", 230<<10)
	for h.send("POST", "/v1/tasks", large, slow).status != http.StatusServiceUnavailable { // until the others have been read
		if t.Context().Err() != nil {
			t.Fatal("one caller is never refused")
		}
	}
	report := fmt.Sprintf(`{"results":[{"step_uuid":%q,"lease_token":"x","success":true,"result":%q}]}`, tasker.NewID(), strings.Repeat("x", 100<<10))
	if got := h.send("POST", "/v1/workers/"+registered.WorkerUUID+"/results", report, worker); got.status != http.StatusOK {
		t.Errorf("a result beside the bodies of another caller: %d %s", got.status, got.text)
	}
}

// TestSlowReadersHoldNoBodyMemory: that of a request is given back before its answer is written.
func TestSlowReadersHoldNoBodyMemory(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	handler := api.New(t.Context(), api.Options{
		DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, MaxBodyBytes: 256 << 10, MaxInflightBytes: 256 << 10,
	})
	second := componentStatus(func(w http.ResponseWriter) {
		body := fmt.Sprintf(`{"namespace":"shop","name":"order","context":{"order":1,"a":%q}}`, strings.Repeat("x", 200<<10))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks", strings.NewReader(body))
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(w, r)
	})
	if second.Code != http.StatusCreated {
		t.Errorf("beside somebody who does not read their answer: %d %.300s", second.Code, second.Body)
	}
}
