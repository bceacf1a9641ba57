package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/feed"
)

// live is a feed that looks often.
func live(o *api.Options) { o.Feed.Every = 10 * time.Millisecond }

// A following is a stream of events that is open.
type following struct {
	*testing.T
	answer *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
	id     string // the last one
}

func (h *harness) follow(path string, headers ...string) *following {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	h.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.server.URL+path, http.NoBody)
	h.Must(err)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	answer, err := h.server.Client().Do(r)
	h.Must(err)
	h.Cleanup(func() { answer.Body.Close() })
	f := &following{T: h.T, answer: answer, lines: bufio.NewScanner(answer.Body), cancel: cancel}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		h.Fatalf("status %d: %s %v", answer.StatusCode, text, err)
	}
	return f
}

// block reads up to the next empty line.
func (f *following) block() (fields map[string]string, ok bool) {
	fields = map[string]string{}
	for f.lines.Scan() {
		if f.lines.Text() == "" {
			return fields, true
		}
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		fields[name] = value
		if name == "id" {
			f.id = value
		}
	}
	return nil, false
}

// event reads up to the next event.
func (f *following) event() (topic string, e apiv1.CloudEvent) {
	f.Helper()
	for {
		fields, ok := f.block()
		if !ok {
			f.Fatalf("the stream ended: %v", f.lines.Err())
		}
		if fields["data"] == "" {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(fields["data"]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil {
			f.Fatalf("%v: %s", err, fields["data"])
		}
		return fields["event"], e
	}
}

// investigate opens investigations of n tasks by hand.
func (h *harness) investigate(n int) (entries []string) {
	h.Helper()
	for i := range n {
		task := h.createTask(100 + i)
		e := want[tasker.Entry](h, http.StatusCreated, "POST", "/v1/dlq/task/"+task.UUID.String(), `{"reason":"r","created_by":"c"}`)
		entries = append(entries, e.UUID.String())
	}
	return entries
}

// note adds n notes to the history of an investigation, which makes n events.
func (h *harness) note(entry string, n, size int) {
	h.Helper()
	h.Exec(`INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, actor, event, from_status, to_status, notes)
		SELECT $1, 'ann', 'updated', 'pending', 'pending', repeat('x', $3) FROM generate_series(1, $2::int)`, entry, n, size)
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) { o.Feed.Source = "tasker.example" })
	h.register(chain)
	f := h.follow("/v1/dlq/events")
	for name, value := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := f.answer.Header.Get(name); got != value {
			t.Errorf("%s: %q", name, got)
		}
	}
	first, ok := f.block()
	if !ok || first["retry"] == "" || first["id"] == "" {
		t.Errorf("the stream begins with %v", first)
	}
	begin := f.id
	entry := h.investigate(1)[0]
	topic, e := f.event()
	if topic != "dlq.entry.created" || e.Type != "tasker.dlq.entry.created" || e.Source != "tasker.example" || e.Subject != entry || e.SpecVersion != "1.0" ||
		e.TaskUUID == "" || e.Time.IsZero() || !strings.Contains(string(e.Data), `"manual_dlq"`) {
		t.Errorf("%s %+v", topic, e)
	}
	id := f.id
	want[any](h, http.StatusOK, "PATCH", "/v1/dlq/entry/"+entry, `{"resolution_status":"manually_resolved","resolution_notes":"n","resolved_by":"ann"}`)
	if topic, e := f.event(); topic != "dlq.entry.resolved" || e.Subject != entry {
		t.Errorf("%s %+v", topic, e)
	}

	// The header counts more than the query, which counts more than from.
	for _, tt := range []struct {
		path, header, want string
	}{
		{"?last_event_id=" + id, "X: y", "dlq.entry.resolved"},
		{"?from=beginning&last_event_id=" + begin, "Last-Event-ID: " + id, "dlq.entry.resolved"},
		{"?from=beginning&last_event_id=" + id, "Last-Event-ID: ", "dlq.entry.resolved"},
		{"?from=beginning", "X: y", "dlq.entry.created"},
		{"?from=beginning&topic=dlq.entry.updated,dlq.entry.resolved", "X: y", "dlq.entry.resolved"},
		{"?from=beginning&topic=dlq.entry.resolved", "X: y", "dlq.entry.resolved"},
	} {
		again := h.follow("/v1/dlq/events"+tt.path, tt.header)
		if topic, _ := again.event(); topic != tt.want {
			t.Errorf("%s, %s: %s comes first, want %s", tt.path, tt.header, topic, tt.want)
		}
		again.cancel()
	}
}

func TestInvalidStreamRequests(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) { o.Feed.MaxReaders = 1 })
	for path, words := range map[string]string{
		"?topic=dlq.entry.opened":             "dlq.entry.created",
		"?topic=dlq.entry.created,":           "must be a comma-separated list of",
		"?topic=a&topic=b":                    "only once",
		"?from=yesterday":                     "must be one of now, beginning",
		"?last_event_id=7":                    "invalid event id",
		"?last_event_id=1.9000000000000000.0": "belongs to another database",
		"?colour=red":                         "known parameters are topic, from, last_event_id",
	} {
		h.wantError(http.StatusBadRequest, "INVALID", words, "GET", "/v1/dlq/events"+path, nil)
	}
	h.wantError(http.StatusBadRequest, "INVALID", "invalid event id", "GET", "/v1/dlq/events", nil, "Last-Event-ID: x")
	if got := h.send("HEAD", "/v1/dlq/events", nil); got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %+v", got)
	}
	f := h.follow("/v1/dlq/events")
	f.block()
	got := h.send("GET", "/v1/dlq/events", nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "1 readers") {
		t.Errorf("a reader too many: %+v", got)
	}

	// The stream ends with the server, and none is begun any more.
	h.stop()
	if _, ok := f.block(); ok || f.lines.Err() != nil {
		t.Errorf("the stream goes on, or broke: %v", f.lines.Err())
	}
	h.wantError(http.StatusServiceUnavailable, "UNAVAILABLE", "shutting down", "GET", "/v1/dlq/events", nil)
}

// The timeouts of the server are for requests that end.
func TestStreamOutlivesServerTimeouts(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) {
		o.Feed.StillHere = 50 * time.Millisecond
	})
	h.register(chain)
	entry := h.investigate(1)[0]
	h.server.Close()
	h.server = httptest.NewUnstartedServer(h.server.Config.Handler)
	h.server.Config.ReadTimeout, h.server.Config.WriteTimeout = 2*time.Second, 2*time.Second
	h.server.Start()
	t.Cleanup(h.server.Close)
	f := h.follow("/v1/dlq/events")
	still := 0
	for begin := time.Now(); time.Since(begin) < 3*time.Second; still++ {
		if _, ok := f.block(); !ok {
			t.Fatalf("the stream ended after %s: %v", time.Since(begin), f.lines.Err())
		}
	}
	if still < 10 {
		t.Errorf("%d blocks in three seconds", still)
	}
	h.note(entry, 1, 1)
	topic, e := f.event()
	if topic == "dlq.entry.created" { // it was kept back when the stream began, by an older transaction of another test
		topic, e = f.event()
	}
	if topic != "dlq.entry.updated" || e.Subject != entry {
		t.Errorf("%s %+v", topic, e)
	}
	f.cancel()
	h.stop()
}

// Whoever filters learns how far the stream has come.
func TestFilteredStreamAdvancesItsEventID(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) { o.Feed.StillHere = 20 * time.Millisecond })
	h.register(chain)
	f := h.follow("/v1/dlq/events?topic=dlq.entry.resolved")
	f.block()
	begin := f.id
	h.investigate(1)
	for f.id == begin {
		if fields, ok := f.block(); !ok || fields["data"] != "" {
			t.Fatalf("%v, %v", fields, f.lines.Err())
		}
	}
}

// A reader who does not read is disconnected, and holds up nobody.
func TestStalledStreamReaderIsDisconnected(t *testing.T) {
	t.Parallel()
	h := newHarness(t, live, func(o *api.Options) {
		o.Feed = api.FeedOptions{
			Options:   feed.Options{Every: 10 * time.Millisecond, Page: 50, Buffer: 2, MaxReaders: 2, MaxShare: 2, StatementTimeout: 4 * time.Second},
			WriteTime: 2 * time.Second,
		}
	})
	h.register(chain)
	entry := h.investigate(1)[0]
	address := strings.TrimPrefix(h.server.URL, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	h.Must(err)
	defer conn.Close()
	h.Must(conn.(*net.TCPConn).SetReadBuffer(4 << 10))
	fmt.Fprintf(conn, "GET /v1/dlq/events HTTP/1.1\r\nHost: %s\r\n\r\n", address)
	quick := h.follow("/v1/dlq/events?from=beginning")
	quick.event()
	for h.send("HEAD", "/v1/dlq/events", nil).status == http.StatusOK { // the other is not there yet
		if t.Context().Err() != nil {
			t.Fatal("who does not read never came")
		}
	}
	const events = 2000
	h.note(entry, events, 5000)
	seen := map[string]bool{}
	for len(seen) < events {
		_, e := quick.event()
		if seen[e.ID] {
			t.Fatalf("%s comes twice", e.ID)
		}
		seen[e.ID] = true
	}
	for h.send("HEAD", "/v1/dlq/events", nil).status != http.StatusOK { // there is room again
		if t.Context().Err() != nil {
			t.Fatal("who does not read is still there")
		}
	}
}
