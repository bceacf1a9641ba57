package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/worker"
)

const (
	aToken      = "tsk_abcdefghij_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	anotherText = "tsk_abcdefghij_ZYXWVUTSRQPONMLKJIHGFEDCBA"
)

// A recorder answers with what a claim, a registration and lists need, and keeps the headers
// Authorization of all requests.
type recorder struct{ seen []string }

func (s *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	s.seen = append(s.seen, strings.Join(r.Header.Values("Authorization"), "|"))
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"worker_uuid": "0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f", "steps": []}`)),
	}, nil
}

func recorded(t *testing.T, o ...Option) (*Client, *recorder) {
	t.Helper()
	s := &recorder{}
	c, err := New("http://server", append(o, WithRetries(0), WithHTTPClient(&http.Client{Transport: s}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func (s *recorder) last(t *testing.T) string {
	t.Helper()
	if len(s.seen) == 0 {
		t.Fatal("nothing was sent")
	}
	return s.seen[len(s.seen)-1]
}

func TestEveryRequestHasTheToken(t *testing.T) {
	c, s := recorded(t, WithToken(aToken), WithHeader("Authorization", "Basic eA=="))
	ctx := t.Context()
	_, _ = c.Task(ctx, tasker.NewID())
	_, _ = c.Ready(ctx)
	_, _ = c.WhoAmI(ctx)
	for _, err := range c.WatchEvents(ctx, WatchOptions{}) {
		if err == nil {
			t.Error("an event")
		}
	}
	var backend worker.Backend = c.Backend()
	_, _ = backend.RegisterWorker(ctx, tasker.WorkerSpec{})
	_, _ = backend.Claim(ctx, tasker.NewID(), 1, 0)
	_, _ = backend.Heartbeat(ctx, tasker.NewID(), nil)
	_, _ = backend.Report(ctx, tasker.NewID(), nil, 0)
	_, _, _ = backend.Release(ctx, tasker.NewID(), nil)
	_, _ = backend.StepResult(ctx, tasker.NewID(), tasker.NewID())
	_ = backend.DrainWorker(ctx, tasker.NewID())
	_ = backend.LeaveWorker(ctx, tasker.NewID())
	if len(s.seen) != 12 {
		t.Errorf("%d requests, want 12", len(s.seen))
	}
	for i, got := range s.seen {
		if got != "Bearer "+aToken {
			t.Errorf("request %d has the header %q", i, got)
		}
	}
}

func TestAnEmptyTokenIsNone(t *testing.T) {
	for _, o := range []Option{WithToken(""), WithTokenFile("")} {
		c, s := recorded(t, o)
		if _, err := c.Task(t.Context(), tasker.NewID()); err != nil {
			t.Error(err)
		}
		if got := s.last(t); got != "" {
			t.Errorf("the header is %q", got)
		}
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	for _, token := range []string{"secret one", "secret\none", "sécret", "secret\x00", "secret" + strings.Repeat("x", maxTokenBytes)} {
		_, err := New("http://server", WithToken(token))
		if tasker.CodeOf(err) != tasker.Invalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.10q: %v, want Invalid without the token", token, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A secret that is rotated is used without a restart, however the file is replaced.
func TestTheTokenFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "  "+aToken+"\n")
	c, s := recorded(t, WithTokenFile(path))
	want := func(token string) {
		t.Helper()
		if _, err := c.Task(t.Context(), tasker.NewID()); err != nil {
			t.Fatal(err)
		}
		if got := s.last(t); got != "Bearer "+token {
			t.Errorf("the header is %q, want the token %s", got, token)
		}
	}
	want(aToken)
	write(t, path+".new", anotherText+"\n")
	if err := os.Rename(path+".new", path); err != nil { // as Kubernetes replaces a secret
		t.Fatal(err)
	}
	want(anotherText)
	write(t, path, aToken) // in place, as an editor does
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	want(aToken)
	write(t, path, aToken[:len(aToken)-1])
	want(aToken[:len(aToken)-1])
}

// A file system may have a coarse clock: a change that cannot be seen counts within a minute.
func TestTheTokenFileIsReadEachMinute(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, aToken)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &tokenFile{path: path}
		if got, err := f.readCached(); got != aToken || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		write(t, path, anotherText)
		if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenCacheDuration - time.Second) //nolint:forbidigo // in a bubble
		if got, err := f.readCached(); got != aToken || err != nil {
			t.Errorf("within the minute: %q, %v", got, err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		if got, err := f.readCached(); got != anotherText || err != nil {
			t.Errorf("after the minute: %q, %v", got, err)
		}
	})
}

// A file that is just being replaced may be away for a moment. After a minute that is an error, which says what
// to do, and not what was in the file.
func TestTokenFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ content, want string }{
		"empty":  {" \n", "is empty"},
		"many":   {"secret one\nsecret two\n", "one token"},
		"large":  {"secret" + strings.Repeat("x", maxTokenBytes), "one token"},
		"binary": {"secret\x00\x01", "one token"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, tt.content)
		c, s := recorded(t, WithTokenFile(path))
		_, err := c.Task(t.Context(), tasker.NewID())
		if tasker.CodeOf(err) != tasker.Unauthorized || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.seen) > 0 {
			t.Errorf("%s: a request was sent", name)
		}
		for _, err := range c.WatchEvents(t.Context(), WatchOptions{}) {
			if tasker.CodeOf(err) != tasker.Unauthorized {
				t.Errorf("%s: watching: %v", name, err)
			}
		}
	}
	path := filepath.Join(dir, "token")
	synctest.Test(t, func(t *testing.T) {
		f := &tokenFile{path: path}
		if _, err := f.readCached(); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("no file: %v", err)
		}
		write(t, path, aToken)
		if got, err := f.readCached(); got != aToken || err != nil {
			t.Errorf("as soon as it is there: %q, %v", got, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if got, err := f.readCached(); got != aToken || err != nil {
			t.Errorf("just removed: %q, %v", got, err)
		}
		time.Sleep(tokenCacheDuration) //nolint:forbidigo // in a bubble
		if got, err := f.readCached(); got != "" || err == nil {
			t.Errorf("a minute later: %q, %v", got, err)
		}
	})
}

// What is refused for who is calling is refused again: a caller learns it at once.
func TestARefusedCallerIsNotSentAgain(t *testing.T) {
	for status, code := range map[int]tasker.Code{http.StatusUnauthorized: tasker.Unauthorized, http.StatusForbidden: tasker.Forbidden} {
		var requests atomic.Int32
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error": {"code": %q, "message": "no"}}`, code)
		}, WithToken(aToken))
		_, err := c.Tasks(t.Context(), tasker.TaskFilter{})
		if tasker.CodeOf(err) != code || requests.Load() != 1 {
			t.Errorf("%d: %v after %d requests", status, err, requests.Load())
		}
		requests.Store(0)
		for _, err := range c.WatchEvents(t.Context(), WatchOptions{}) {
			if tasker.CodeOf(err) != code {
				t.Errorf("%d: watching: %v", status, err)
			}
		}
		if requests.Load() != 1 {
			t.Errorf("%d: watching sent %d requests", status, requests.Load())
		}
	}
}

// Nothing that a client says has its token, whatever the server or a proxy answers.
func TestTheTokenIsNotShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, aToken)
	answers := []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) { // a page that shows the request
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintln(w, "you sent", r.Header)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://login/?from="+r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusFound)
		},
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error": {"code": "UNAUTHORIZED", "message": "unknown: %s", "details": {"sent": %[1]q}}}`, r.Header.Get("Authorization"))
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, o := range map[string]Option{"WithToken": WithToken(aToken), "WithTokenFile": WithTokenFile(path)} {
		for i, answer := range answers {
			c := serve(t, answer, o, WithRetries(0))
			_, err := c.Task(t.Context(), tasker.NewID())
			if err == nil {
				t.Fatal("no error")
			}
			said := []string{c.URL(), fmt.Sprintf("%v %+v", err, err)}
			for _, err := range c.WatchEvents(t.Context(), WatchOptions{}) {
				said = append(said, fmt.Sprintf("%v %+v", err, err))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = c.Task(ctx, tasker.NewID())
			said = append(said, err.Error(), fmt.Sprintf("%v %+v %#v", c, c, *c))
			for _, text := range said {
				if strings.Contains(text, aToken) || strings.Contains(text, aToken[15:]) {
					t.Errorf("%s, answer %d: the token is shown: %s", name, i, text)
				}
			}
		}
	}
}

func TestKeysOfTheAPI(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + string(body)
		fmt.Fprint(w, `{"token": "x", "subject": "key:a"}`)
	})
	id := tasker.NewID()
	days := int64(86400)
	for want, call := range map[string]func() error{
		"GET /v1/whoami ": func() error { _, err := c.WhoAmI(t.Context()); return err },
		"GET /v1/keys?limit=5&offset=10&revoked=true&search=deploy ": func() error {
			_, err := c.Keys(t.Context(), apiv1.KeyQuery{Page: apiv1.Page{Limit: 5, Offset: 10}, Search: "deploy", Revoked: true})
			return err
		},
		`POST /v1/keys {"name":"a","grants":["worker@n"],"expires_in_seconds":86400}`: func() error {
			_, err := c.CreateKey(t.Context(), apiv1.CreateKey{Name: "a", Grants: []string{"worker@n"}, ExpiresInSeconds: &days})
			return err
		},
		"POST /v1/keys/" + id.String() + `/rotate {"grace_seconds":3600}`: func() error {
			_, err := c.RotateKey(t.Context(), id, apiv1.RotateKey{GraceSeconds: 3600})
			return err
		},
		"DELETE /v1/keys/" + id.String() + " ": func() error { _, err := c.RevokeKey(t.Context(), id); return err },
	} {
		if err := call(); err != nil || got != want {
			t.Errorf("sent %q, want %q: %v", got, want, err)
		}
	}
}
