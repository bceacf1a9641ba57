package web_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
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

// follow opens the stream as the script of a page does.
func (h *harness) follow() *followed {
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
	_, _, err := h.DLQ.Update(h.Context(), tn.entry, tasker.EntryUpdate{Notes: &text, Actor: "test"})
	h.Must(err)
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
func TestAnOpenPageFollowsItsNamespaces(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	h.looks(a)
	mine, other := h.tenant("aqz", 1), h.tenant("bqz", 1)
	ann := h.signedIn("ann", "viewer@space-aqz")
	bob := h.signedIn("bob", "viewer@space-bqz")
	page := ann.get("/ui/")
	ann.sees(page, `data-feed="/ui/events"`)
	ofAnn, ofBob := ann.follow(), bob.follow()
	h.note(other, "one")
	h.Eventually("bob's page learns of it", func() bool { return strings.Contains(ofBob.sent(), change) })
	h.note(mine, "two")
	h.Eventually("ann's page learns of it", func() bool { return strings.Contains(ofAnn.sent(), change) })
	h.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'ann'`)
	revoked := time.Now()
	if took := h.ends(ofAnn).Sub(revoked); took > 5*time.Second {
		t.Errorf("the stream ended %v after the key was revoked", took)
	}
	if got, want := withoutComments(ofAnn.sent()), "retry: 2000\n\n"+change; got != want {
		t.Errorf("ann's page was sent %q, want %q", got, want)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.server.URL+"/ui/events", nil)
	h.Must(err)
	r.Header.Set("Accept", "text/event-stream")
	if got := ann.do(r); got.status != http.StatusUnauthorized {
		t.Errorf("the page comes back and is answered with %d", got.status)
	}
	h.note(other, "three")
	h.Eventually("bob's page learns of that, too", func() bool { return strings.Count(ofBob.sent(), change) == 2 })
	bob.post("/ui/sign-out")
	h.ends(ofBob)
}

// The session goes on while its stream is open, and the stream is no use of the session.
func TestAnOpenPageDoesNotKeepTheSession(t *testing.T) {
	t.Parallel()
	var a *auth.Authenticator
	h := newHarness(t, askingWith(&a))
	h.looks(a)
	ann := h.signedIn("ann", "viewer@shop")
	h.Exec(`UPDATE tasker.sessions SET seen_at = clock_timestamp() - interval '1 hour' + interval '2 s'`)
	f := ann.follow()
	h.ends(f)
	r := ann.get("/ui/tasks")
	if r.status != http.StatusSeeOther {
		t.Errorf("after the session was idle for too long: %d", r.status)
	}
}
