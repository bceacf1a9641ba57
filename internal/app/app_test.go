package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/app"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/mqtest"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(mqtest.Run(func() int { return pgtest.Run(m) })) }

// patience bounds everything that a test waits for.
const patience = 3 * time.Minute

// A words is what a server says, whole writes at a time.
type words struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // has a value when something was said
}

func newWords() *words { return &words{more: make(chan struct{}, 1)} }

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// wait returns what was said once it contains what is wanted.
func (w *words) wait(t *testing.T, want string, ended <-chan struct{}) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		if said := w.String(); strings.Contains(said, want) {
			return said
		}
		select {
		case <-w.more:
		case <-ended:
			t.Fatalf("the server ended without %q; it said %q", want, w)
		case <-deadline:
			t.Fatalf("waited in vain for %q; it said %q", want, w)
		}
	}
}

// A server runs beside the test.
type server struct {
	*testing.T
	url      string
	out, log *words
	stop     context.CancelFunc
	ended    chan struct{}
	err      error // to be read after ended
}

// options are those of a server on a database of its own.
func options(database string) app.Options {
	c := config.Default()
	c.Database.URL, c.Server.Listen = database, "127.0.0.1:0"
	return app.Options{Config: c, Version: "1.2.3"}
}

// launch starts a server, which the test ends. It logs to the test, unless the options have a log.
func launch(t *testing.T, o app.Options) *server {
	t.Helper()
	s := &server{T: t, out: newWords(), log: newWords(), ended: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	o.Out = s.out
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(s.log, nil))
	}
	go func() {
		defer close(s.ended)
		s.err = app.Run(ctx, o)
	}()
	t.Cleanup(func() {
		stop()
		<-s.ended
		if t.Failed() {
			t.Logf("the server said:\n%s%s\nand ended with: %v", s.out, s.log, s.err)
		}
	})
	return s
}

// start is launch for a server that is ready.
func start(t *testing.T, o app.Options) *server {
	t.Helper()
	s := launch(t, o)
	said := s.out.wait(t, "\n", s.ended)
	line, _, _ := strings.Cut(said, "\n")
	address, ok := strings.CutPrefix(line, "tasker is ready at ")
	if !ok {
		t.Fatalf("the first line is %q", line)
	}
	s.url = address
	return s
}

// wait returns how the server ended.
func (s *server) wait() error {
	s.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.Fatal("the server did not end")
	}
	return s.err
}

// get asks the server, over a connection of its own.
func (s *server) get(path string) (int, string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// awaitClosed waits until the server takes no more connections.
func (s *server) awaitClosed() {
	s.Helper()
	deadline := time.After(patience)
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-deadline:
			s.Fatal("the server still takes connections")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestServesFromItsOneLineToItsEnd(t *testing.T) {
	database := pgtest.New(t)
	before := goleak.IgnoreCurrent()
	s := start(t, options(database.URL))
	if status, body, err := s.get("/health/ready"); err != nil || status != http.StatusOK || !strings.Contains(body, `"version":"1.2.3"`) {
		t.Errorf("ready: %d %s, %v", status, body, err)
	}
	if status, _, err := s.get("/v1/tasks"); err != nil || status != http.StatusOK {
		t.Errorf("tasks: %d, %v", status, err)
	}
	if status, body, err := s.get("/metrics"); err != nil || status != http.StatusOK ||
		!strings.Contains(body, "\ntasker_dlq_pending_investigations 0\n") || !strings.Contains(body, `tasker_build_info{version="1.2.3"} 1`) {
		t.Errorf("metrics: %d %s, %v", status, body, err)
	}
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if said, want := s.out.String(), "tasker is ready at "+s.url+"\n"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	s.awaitClosed()
	goleak.VerifyNone(t, before)
}

// What the configuration says of thresholds and secrets holds in the database,
// where every server and psql find it.
func TestTheDatabaseGetsWhatTheConfigurationSays(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	o := options(database.URL)
	o.Config.StalenessDetection.Thresholds = config.Thresholds{
		WaitingForDependenciesMinutes: 7, WaitingForRetryMinutes: 8, StepsInProcessMinutes: 9, ErrorRecoveryMinutes: 10,
	}
	o.Config.Redaction.Keys, o.Config.Redaction.Paths = "colour", "$.task.context.mail"
	start(t, o)
	var got string
	err := database.Pool(t).QueryRow(t.Context(), `
		SELECT concat_ws(' ', waiting_for_dependencies_minutes, waiting_for_retry_minutes, steps_in_process_minutes, error_recovery_minutes,
			key_pattern, cardinality(key_words), cardinality(text_patterns), paths)
		FROM tasker.staleness_thresholds, tasker.redaction`).Scan(&got)
	if want := `7 8 9 10 (?:)(?: c ?o ?l ?o ?u ?r ) 1 14 [["task", "context", "mail"]]`; err != nil || got != want {
		t.Errorf("the database has %s, %v; want %s", got, err, want)
	}
}

// slow is a handler that tells when it was entered, and answers when it may.
type slow struct{ entered, release chan struct{} }

func (h slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.entered <- struct{}{}
	select {
	case <-h.release:
		_, _ = io.WriteString(w, "finished")
	case <-r.Context().Done():
	}
}

func newSlow() slow { return slow{make(chan struct{}, 1), make(chan struct{})} }

func TestRequestsUnderWayFinish(t *testing.T) {
	t.Parallel()
	h, o := newSlow(), options(pgtest.New(t).URL)
	o.Mount = map[string]http.Handler{"/slow": h}
	s := start(t, o)
	answers := make(chan string, 1)
	go func() {
		status, body, err := s.get("/slow")
		answers <- fmt.Sprintf("%d %s, %v", status, body, err)
	}()
	<-h.entered
	s.stop()
	s.awaitClosed()
	close(h.release)
	if got := <-answers; got != "200 finished, <nil>" {
		t.Errorf("the request got %s", got)
	}
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestNothingIsReadBehindAChunkedBody: where a request says its length twice, what
// follows on its connection may be a request that nobody else has seen.
func TestNothingIsReadBehindAChunkedBody(t *testing.T) {
	s := start(t, options(pgtest.New(t).URL))
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	const request = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"2\r\n{}\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("the connection is kept: %v", err)
	}
	if n := strings.Count(string(all), "HTTP/1.1 "); n != 1 || !strings.Contains(string(all), "Connection: close") {
		t.Errorf("%d answers:\n%s", n, all)
	}
}

func TestRequestsAreCutOffAtTheEndOfTheTimeout(t *testing.T) {
	t.Parallel()
	h, o := newSlow(), options(pgtest.New(t).URL)
	o.Mount = map[string]http.Handler{"/slow": h}
	o.Config.Server.ShutdownTimeoutSeconds = 1
	s := start(t, o)
	cut := make(chan error, 1)
	go func() {
		_, _, err := s.get("/slow")
		cut <- err
	}()
	<-h.entered
	s.stop()
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(s.log.String(), "requests aborted") {
		t.Error("the log does not tell")
	}
}

// A claim that waits for work would hold up the end for a minute.
func TestClaimsThatWaitAreAnsweredAtTheEnd(t *testing.T) {
	t.Parallel()
	taken := make(chan struct{})
	o := options(pgtest.New(t).URL)
	o.Config.Server.ShutdownTimeoutSeconds = 600
	s := start(t, o)
	transport := &telling{Transport: http.Transport{ExpectContinueTimeout: patience}, path: "/claims", taken: sync.OnceFunc(func() { close(taken) })}
	defer transport.CloseIdleConnections()
	c, err := client.New(s.url, client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Backend().RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "w", Namespaces: []string{"n"}, Handlers: []string{"h"}, MaxConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		_, err := c.Backend().Claim(t.Context(), w.WorkerUUID, 1, time.Minute)
		claimed <- err
	}()
	<-taken
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if err := <-claimed; err != nil {
		t.Errorf("the claim got %v", err)
	}
}

// telling tells when the server has taken a request to the path, and asks for its body. That it was
// sent would not do: a server that stops drops connections that it has not accepted.
type telling struct {
	http.Transport

	path  string
	taken func()
}

func (tr *telling) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, tr.path) {
		r = r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: tr.taken}))
		r.Header.Set("Expect", "100-continue")
	}
	return tr.Transport.RoundTrip(r)
}

func TestWhatRunsBeside(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t).URL
	t.Run("learns the address, and ends with the server", func(t *testing.T) {
		t.Parallel()
		o := options(database)
		told := make(chan string, 1)
		o.Beside = func(ctx context.Context, url string, e *engine.Engine) error {
			if e == nil {
				return errors.New("no engine")
			}
			told <- url
			<-ctx.Done()
			return nil
		}
		s := start(t, o)
		if got := <-told; got != s.url {
			t.Errorf("was told %s, and the server is at %s", got, s.url)
		}
		s.stop()
		if err := s.wait(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("ends the server with its error", func(t *testing.T) {
		t.Parallel()
		o := options(database)
		o.Beside = func(context.Context, string, *engine.Engine) error { return errors.New("shop burnt down") }
		s := launch(t, o)
		if err := s.wait(); err == nil || !strings.Contains(err.Error(), "shop burnt down") {
			t.Errorf("ended with %v", err)
		}
	})
}

// A database that starts together with the server is waited for.
func TestWaitsForADatabaseThatIsJustStarting(t *testing.T) {
	t.Parallel()
	target, err := url.Parse(pgtest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	// The port is ours all the time, so that nobody else can answer on it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	var proxy sync.WaitGroup
	t.Cleanup(func() { listener.Close(); proxy.Wait() })
	proxy.Go(func() { relay(listener, target.Host, up, &proxy) })
	early := *target
	early.Host = listener.Addr().String()
	s := launch(t, options(early.String()))
	said := s.log.wait(t, "database unavailable", s.ended)
	if password, _ := target.User.Password(); password != "" && strings.Contains(said, password) {
		t.Error("the log shows the password")
	}
	if said := s.out.String(); said != "" {
		t.Errorf("said %q before it was ready", said)
	}
	close(up)
	s.out.wait(t, "tasker is ready", s.ended)
	s.stop()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// relay drops connections until up is closed, and connects them to the target from then on.
func relay(l net.Listener, target string, up <-chan struct{}, wg *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case <-up:
		default:
			conn.Close()
			continue
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			conn.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{conn, server}, {server, conn}} {
			wg.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // either side may go first
				way[0].Close()
				way[1].Close()
			})
		}
	}
}

func TestEndsAtOnceWhileItWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := launch(t, options("postgres://tasker@"+closed.Addr().String()+"/tasker"))
	s.log.wait(t, "database unavailable", s.ended)
	s.stop()
	if err := s.wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

const template = "namespace: n\nname: greet\nversion: 1.0.0\nsteps:\n  - name: one\n    handler: {callable: h}\n"

func TestStartsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, o *app.Options)
		want   []string
	}{
		{"an address that is taken", func(t *testing.T, o *app.Options) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			o.Config.Server.Listen = l.Addr().String()
		}, []string{"is in use", "--listen"}},
		{"a database without a schema", func(t *testing.T, o *app.Options) {
			execute(t, pgtest.AdminURL(o.Config.Database.URL), "DROP SCHEMA tasker CASCADE")
		}, []string{"tasker migrate up"}},
		{"a database of another version", func(t *testing.T, o *app.Options) {
			execute(t, pgtest.AdminURL(o.Config.Database.URL), "UPDATE tasker.schema_migrations SET checksum = 'x' WHERE version = 1")
		}, []string{"edited"}},
		{"a database that is not there", func(t *testing.T, o *app.Options) {
			o.Config.Database.URL = edit(t, o.Config.Database.URL, func(u *url.URL) { u.Path = "/nowhere" })
		}, []string{"cannot connect to the database", "create the database"}},
		{"a wrong password", func(t *testing.T, o *app.Options) {
			o.Config.Database.URL = edit(t, o.Config.Database.URL, func(u *url.URL) { u.User = url.UserPassword("stranger", "guessed") })
		}, []string{"cannot connect to the database", "check the user and password"}},
		{"a template that is wrong", func(t *testing.T, o *app.Options) {
			o.StrictTemplates = true
			o.Config.Server.Templates = folder(t, strings.Replace(template, "callable", "colable", 1))
		}, []string{"greet.yaml", "line 6"}},
		{"a template that is used and was changed", func(t *testing.T, o *app.Options) {
			o.StrictTemplates = true
			useTemplate(t, *o)
			o.Config.Server.Templates = folder(t, template+"  - name: two\n    handler: {callable: h}\n")
		}, []string{"greet.yaml", "n/greet 1.0.0 is used by tasks", "as a new version"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(pgtest.New(t).URL)
			tt.change(t, &o)
			s := launch(t, o)
			err := s.wait()
			if err == nil {
				t.Fatal("was not refused")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("says %q, which lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "guessed") {
				t.Errorf("shows a password: %v", err)
			}
			if said := s.out.String(); said != "" {
				t.Errorf("said %q", said)
			}
		})
	}
}

// useTemplate has a server register the template, and makes a task from it. The
// same templates again are no news.
func useTemplate(t *testing.T, o app.Options) {
	t.Helper()
	o.Config.Server.Templates = folder(t, template)
	o.Beside = func(ctx context.Context, _ string, e *engine.Engine) error {
		_, err := e.CreateTasks(ctx, []tasker.NewTask{{Namespace: "n", Name: "greet"}})
		return errors.Join(err, errDone)
	}
	for range 2 {
		s := launch(t, o)
		if err := s.wait(); !errors.Is(err, errDone) || tasker.CodeOf(err) != tasker.Internal {
			t.Fatalf("ended with %v", err)
		}
	}
}

var errDone = errors.New("done")

func folder(t *testing.T, doc string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greet.yaml"), []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func edit(t *testing.T, text string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func execute(t *testing.T, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), sql)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}
