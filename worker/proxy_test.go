package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/worker"
)

var badFor = flag.Duration("bad-for", 4*time.Second, "how long a proxy misbehaves in the tests that have one")

// A badProxy is a reverse proxy between workers and a server that misbehaves with
// some of the requests.
type badProxy struct {
	*httptest.Server

	forward *httputil.ReverseProxy
	share   atomic.Int64 // of the requests with which it misbehaves, in percent
	worst   atomic.Int64 // the same, of reports
	moods   []mood
	counts  []atomic.Int64 // by mood
	next    atomic.Int64   // the moods take turns
}

// A mood is a way to answer a request otherwise than the server did, or would.
type mood struct {
	name string
	do   func(p *badProxy, w http.ResponseWriter, r *http.Request)
}

// page answers in the server's place.
func page(status int, body string) func(*badProxy, http.ResponseWriter, *http.Request) {
	return func(_ *badProxy, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// after has the request carried out and changes its answer, unless that hands out
// work: what nobody hears of costs an attempt, as the protocol says.
func after(change func(w http.ResponseWriter, answer *httptest.ResponseRecorder)) func(*badProxy, http.ResponseWriter, *http.Request) {
	return func(p *badProxy, w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		p.forward.ServeHTTP(answer, r)
		if bytes.Contains(answer.Body.Bytes(), []byte("lease_token")) {
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		change(w, answer)
	}
}

const html = "<!DOCTYPE html><html><title>Sorry</title><h1>Something is wrong</h1></html>"

func moods() []mood {
	list := []mood{
		{"an empty answer", page(200, "")},
		{"a login page", page(200, html)},
		{"JSON of somebody else", page(200, `{"ok": true}`)},
		{"an error of somebody else", page(404, `{"error": {"message": "no route to the backend"}}`)},
		{"a redirect", func(_ *badProxy, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/", http.StatusFound)
		}},
		{"a cut connection", func(*badProxy, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"a slow answer", func(p *badProxy, w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(700 * time.Millisecond):
			}
			p.forward.ServeHTTP(w, r)
		}},
		{"a page after the deed", after(func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { page(502, html)(nil, w, nil) })},
		{"half of the answer", after(func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		})},
		{"a cut connection after the deed", after(func(http.ResponseWriter, *httptest.ResponseRecorder) { panic(http.ErrAbortHandler) })},
	}
	for _, status := range []int{400, 403, 404, 413, 422, 429, 500, 502, 503} {
		list = append(list, mood{fmt.Sprintf("a page with status %d", status), page(status, html)})
	}
	return list
}

func newBadProxy(t *testing.T, server string) *badProxy {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &badProxy{forward: httputil.NewSingleHostReverseProxy(target), moods: moods()}
	p.forward.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.counts = make([]atomic.Int64, len(p.moods))
	p.Server = httptest.NewUnstartedServer(p)
	p.Config.ErrorLog = p.forward.ErrorLog
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func (p *badProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	share := p.share.Load()
	if strings.HasSuffix(r.URL.Path, "/results") {
		share = p.worst.Load()
	}
	if rand.Int64N(100) >= share {
		p.forward.ServeHTTP(w, r)
		return
	}
	i := int(p.next.Add(1)) % len(p.moods)
	p.counts[i].Add(1)
	p.moods[i].do(p, w, r)
}

// A tally counts what handlers did, by step and attempt.
type tally struct {
	until chan struct{} // work goes on until it is closed, if there is one
	mu    sync.Mutex
	begun int
	runs  map[string]int
}

// busy reports whether so many have begun at least, and just so many of them are under way.
func (y *tally) busy(begun, underWay int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.begun >= begun && y.begun-len(y.runs) == underWay
}

func (y *tally) handle(_ context.Context, c *worker.Call) (json.RawMessage, error) {
	y.mu.Lock()
	y.begun++
	y.mu.Unlock()
	if y.until != nil {
		<-y.until
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs[fmt.Sprintf("%s/%d", c.StepUUID, c.Attempt)]++
	c.Metadata["worked"] = true // on a map that the handler did not make
	return json.Marshal(map[string]any{"step": c.StepUUID, "attempt": c.Attempt})
}

// A crowd is several workers that execute many tasks of a chain of two steps.
type crowd struct {
	*enginetest.Harness
	tally   tally
	tasks   []tasker.ID
	log     *lockedBuffer
	stop    context.CancelFunc
	results chan error
	workers int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newCrowd(t *testing.T, o engine.Options) (*crowd, *badProxy) {
	t.Helper()
	h := newEngine(t, o)
	p := newBadProxy(t, serve(h).URL)
	// A single attempt reveals each attempt that is lost.
	h.Template("pair", enginetest.Once(enginetest.Step("one")), enginetest.Once(enginetest.Step("two", "one")))
	c := &crowd{Harness: h, tally: tally{runs: map[string]int{}}, log: &lockedBuffer{}, results: make(chan error, 10)}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		said := c.log.String()
		t.Logf("the workers said at the end:\n%s", said[max(0, len(said)-8<<10):])
		var failed string
		err := c.DB.Pool().QueryRow(context.WithoutCancel(t.Context()), `
			SELECT coalesce(string_agg(to_jsonb(f)::text, E'\n'), '')
			FROM (SELECT h.created_at, h.step_uuid, h.event, h.claimed_at, h.detail FROM tasker.step_history h WHERE h.to_state = 'error' ORDER BY h.created_at LIMIT 10) f`).Scan(&failed)
		t.Logf("steps failed: %s %v", failed, err)
	})
	return c, p
}

func (c *crowd) start(n int, server string) {
	c.Helper()
	ctx, stop := context.WithCancel(c.Context())
	c.stop, c.workers = stop, n
	for i := range n {
		cl, err := client.New(server, client.WithTimeout(10*time.Second))
		c.Must(err)
		w := worker.New(cl.Backend(), worker.Options{
			Name: fmt.Sprint("worker ", i), Namespaces: []string{"n"}, Concurrency: 20, Log: slog.New(slog.NewTextHandler(c.log, nil)),
		})
		w.HandleRaw("run", c.tally.handle)
		go func() { c.results <- w.Run(ctx) }()
	}
}

func (c *crowd) create(n int) {
	c.Helper()
	for range n {
		c.tasks = append(c.tasks, c.Create("pair"))
	}
}

// keepBusy creates tasks for a while.
func (c *crowd) keepBusy(d time.Duration) {
	c.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // a load
		c.create(5)
	}
}

// check waits for the tasks and fails the test if a result was lost, an attempt was
// executed twice, a worker ended or an investigation was opened.
func (c *crowd) check() {
	c.Helper()
	for _, id := range c.tasks {
		waitFor(c.Harness, id, tasker.TaskComplete)
	}
	if len(c.results) > 0 {
		c.Errorf("a worker ended by itself: %v", <-c.results)
		c.workers--
	}
	c.stop()
	for range c.workers {
		if err := <-c.results; err != nil {
			c.Errorf("a worker ended with %v", err)
		}
	}
	if len(c.tally.runs) != 2*len(c.tasks) {
		c.Errorf("%d attempts were executed for %d steps", len(c.tally.runs), 2*len(c.tasks))
	}
	for attempt, n := range c.tally.runs {
		if n != 1 {
			c.Errorf("attempt %s was executed %d times", attempt, n)
		}
	}
	var bad, entries, rejected int
	err := c.DB.Pool().QueryRow(c.Context(), `
		SELECT (SELECT count(*) FROM tasker.workflow_steps WHERE results -> 'result' ->> 'step' IS DISTINCT FROM step_uuid::text),
			(SELECT count(*) FROM tasker.tasks_dlq), (SELECT count(*) FROM tasker.rejected_reports)`).Scan(&bad, &entries, &rejected)
	c.Must(err)
	if bad != 0 || entries != 0 || rejected != 0 {
		c.Errorf("%d steps have another result than their handler returned, %d investigations were opened, %d reports refused", bad, entries, rejected)
	}
	for _, word := range []string{"dropped an outcome", "registering again", "lease lost", "level=ERROR"} {
		if strings.Contains(c.log.String(), word) {
			c.Errorf("a worker's log says %q", word)
		}
	}
}

// Whatever a proxy makes of requests and answers, for a third of all requests and
// two thirds of the reports, the work is done as if it were not there.
func TestAProxyThatMisbehaves(t *testing.T) {
	c, p := newCrowd(t, engine.Options{})
	p.share.Store(30)
	p.worst.Store(65)
	c.start(3, p.URL)
	c.create(100)
	c.keepBusy(*badFor)
	c.Eventually("each mood has had a turn", func() bool {
		c.keepBusy(100 * time.Millisecond)
		for i := range p.counts {
			if p.counts[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	p.share.Store(0)
	p.worst.Store(0)
	c.check()
	for i, m := range p.moods {
		if n := p.counts[i].Load(); n == 0 {
			t.Errorf("no request had %s", m.name)
		} else {
			t.Logf("%s: %d requests", m.name, n)
		}
	}
}

// A proxy that answers every report with one and the same page for a while.
func TestAProxyThatAnswersEveryReport(t *testing.T) {
	for _, status := range []int{404, 413, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { // one at a time: leaked goroutines are looked for
			c, p := newCrowd(t, engine.Options{})
			p.moods = []mood{{"a page", page(status, html)}}
			p.worst.Store(100)
			c.start(2, p.URL)
			c.create(100)
			c.keepBusy(*badFor)
			c.Eventually("a report is answered with the page", func() bool { return p.counts[0].Load() > 0 })
			p.worst.Store(0)
			c.check()
		})
	}
}
