package web_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/web"
)

// A followed is the stream of an open page.
type followed struct {
	mu    sync.Mutex
	text  strings.Builder
	ended chan struct{}
}

func (f *followed) sent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// stream opens the stream as the script of a page does.
func (h *harness) stream() *followed {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), http.MethodGet, h.server.URL+"/ui/events", nil)
	h.Must(err)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := (&http.Client{Jar: h.client.Jar}).Do(r) //nolint:bodyclose // by who reads it, below
	h.Must(err)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		h.Fatalf("the stream is answered with %d, %v", answer.StatusCode, answer.Header)
	}
	f := &followed{ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer answer.Body.Close()
		part := make([]byte, 1000)
		for {
			n, err := answer.Body.Read(part)
			f.mu.Lock()
			f.text.Write(part[:n])
			f.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return f
}

// ends waits until a stream has ended.
func (h *harness) ends(f *followed) time.Time {
	h.Helper()
	select {
	case <-f.ended:
	case <-time.After(time.Minute):
		h.Fatal("the stream does not end")
	}
	return time.Now()
}

// note records something about the investigation of a tenant.
func (h *harness) note(tn *tenant, text string) {
	h.Helper()
	h.update(tn.entry, tasker.EntryUpdate{Notes: &text, Actor: "test"})
}

// withoutComments leaves out what keeps a stream open.
func withoutComments(stream string) string { return strings.ReplaceAll(stream, ": still here\n\n", "") }

// looks looks for changes of access until the test ends, as a server does.
func (h *harness) looks(a *auth.Authenticator) {
	ctx, stop := context.WithCancel(context.WithoutCancel(h.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Run(ctx)
	}()
	h.Cleanup(func() { stop(); <-done })
}

const change = "event: change\ndata: {}\n\n"

// An open page is sent a line for a change that the caller may see, without anything about it, and nothing at all for
// a change in another namespace. It ends with the key.
func TestLiveFeedFollowsNamespaces(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	h.looks(a)
	mine, other := h.tenant("aqz", 1), h.tenant("bqz", 1)
	ann := h.signedIn("ann", "viewer@space-aqz")
	bob := h.signedIn("bob", "viewer@space-bqz")
	page := ann.get("/ui/")
	ann.sees(page, `data-feed="/ui/events"`)
	ofAnn, ofBob := ann.stream(), bob.stream()
	for i := range 4 {
		h.note(other, fmt.Sprint("one ", i))
		h.Eventually("bob's page learns of it", func() bool { return strings.Count(ofBob.sent(), change) > i })
	}
	h.note(mine, "two")
	h.Eventually("ann's page learns of it", func() bool { return strings.Contains(ofAnn.sent(), change) })
	h.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'ann'`)
	revoked := time.Now()
	if took := h.ends(ofAnn).Sub(revoked); took > 30*time.Second {
		t.Errorf("the stream ended %v after the key was revoked", took)
	}
	// One of the note, and one at most of what was there before, which may be told late.
	if got, want := withoutComments(ofAnn.sent()), "retry: 2000\n\n"+change; got != want && got != want+change {
		t.Errorf("ann's page was sent %q, want %q", got, want)
	}
	if got := ann.get("/ui/events", "Accept: text/event-stream"); got.status != http.StatusUnauthorized {
		t.Errorf("the page comes back and is answered with %d", got.status)
	}
	before := strings.Count(ofBob.sent(), change)
	h.note(other, "three")
	h.Eventually("bob's page learns of that, too", func() bool { return strings.Count(ofBob.sent(), change) > before })
	bob.post("/ui/sign-out")
	h.ends(ofBob)
}

// The session goes on while its stream is open, and the stream is no use of the session.
func TestLiveFeedDoesNotExtendTheSession(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	h.looks(a)
	ann := h.signedIn("ann", "viewer@shop")
	h.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '1 hour' + interval '8 s'`) // a loaded machine begins the stream by then
	f := ann.stream()
	h.ends(f)
	r := ann.get("/ui/tasks")
	if r.status != http.StatusSeeOther {
		t.Errorf("after the session was idle for too long: %d", r.status)
	}
}

// A stream whose session ends, or whose server stops, before it has begun is refused in words, and is no error of the server.
func TestLiveFeedThatEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(h *harness, a *auth.Authenticator)
		want int
	}{
		"the session ends": {func(h *harness, a *auth.Authenticator) {
			h.Exec(`UPDATE tasker.sessions SET ended_at = now()`)
			a.PollRevocations(t.Context())
		}, http.StatusUnauthorized},
		"the server stops": {func(h *harness, _ *auth.Authenticator) { h.stop() }, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a *auth.Authenticator
			h := newHarness(t, askingWith(&a), func(o *web.Options) {
				db := enginetest.Open(t, o.DB.Pool().Config().ConnString(), postgres.Options{MaxConns: 1})
				used, err := db.Pool().Acquire(t.Context()) // the only connection
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(used.Release)
				o.Feed = feed.New(db, feed.Options{MaxReaders: 1, MaxShare: 1})
			})
			ann := h.signedIn("ann", "viewer@shop")
			answered := make(chan reply)
			go func() {
				r, _ := http.NewRequestWithContext(h.Context(), http.MethodGet, h.server.URL+"/ui/events", nil)
				r.Header.Set("Accept", "text/event-stream")
				answered <- ann.do(r)
			}()
			h.Eventually("the stream waits for the database", waitsToBegin)
			c.end(h, a)
			if got := <-answered; got.status != c.want {
				t.Errorf("answered with %d, want %d", got.status, c.want)
			}
		})
	}
}

// waitsToBegin reports whether a stream of this process waits for a connection to begin with.
func waitsToBegin() bool {
	buf := make([]byte, 10<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "readFromNow") && strings.Contains(g, "pgxpool.(*Pool).Acquire") {
			return true
		}
	}
	return false
}
