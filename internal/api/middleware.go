package api

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/hostguard"
)

// handler serves all requests: it sets the request id, checks host and origin, routes the request,
// recovers from panics and writes the log line.
type handler struct {
	server *server
	guard  *hostguard.Guard
	log    *slog.Logger

	unavailable limiter // limits the log lines for responses 429 and 503
}

// limiter allows linesPerSecond events per second and counts the rest.
type limiter struct {
	mu      sync.Mutex
	second  int64
	passed  int
	skipped int
}

// linesPerSecond limits the log lines for responses 429 and 503: a server without its database
// returns nothing else.
const linesPerSecond = 5

// allow reports whether to allow an event, and how many were skipped since the last allowed one.
func (l *limiter) allow(now time.Time) (ok bool, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.passed = s, 0
	}
	if l.passed == linesPerSecond {
		l.skipped++
		return false, 0
	}
	l.passed++
	skipped, l.skipped = l.skipped, 0
	return true, skipped
}

// requestLog collects the attributes of a log line.
type requestLog struct {
	requestID string
	route     string
	subject   string // the caller
	quiet     bool
	err       error
}

type requestLogKey struct{}

func requestLogFromContext(ctx context.Context) *requestLog {
	if n, ok := ctx.Value(requestLogKey{}).(*requestLog); ok {
		return n
	}
	return &requestLog{}
}

// ServeHTTP implements http.Handler.
func (f *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	n := &requestLog{requestID: readRequestID(r)}
	r = r.WithContext(context.WithValue(r.Context(), requestLogKey{}, n))
	h := w.Header()
	h.Set("X-Request-ID", n.requestID)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	// Slower readers are disconnected. The deadline leaves room for a claim that waits for a
	// minute.
	_ = http.NewResponseController(w).SetWriteDeadline(start.Add(responseTimeout)) // an httptest recorder has none
	m := &responseRecorder{ResponseWriter: w}
	defer func() { f.logRequest(r, n, m, time.Since(start)) }()
	defer f.recoverPanic(m, r, n)
	if status, err := f.guard.Check(r); err != nil {
		n.err = err
		respondError(m, r, statusError{status, err})
		return
	}
	f.server.ServeHTTP(m, r)
}

// responseTimeout limits the time from the header of a request to the last byte of its response.
const responseTimeout = 3 * time.Minute

var validRequestID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// readRequestID returns the id that the caller set, or a new one.
func readRequestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-ID"); validRequestID.MatchString(id) {
		return id
	}
	return tasker.NewID().String()
}

func (f *handler) recoverPanic(m *responseRecorder, r *http.Request, n *requestLog) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares the value itself
		panic(p)
	}
	n.err, n.quiet = fmt.Errorf("panic: %v\n%s", p, debug.Stack()), false
	if m.status == 0 {
		respondError(m, r, n.err)
	}
}

func (f *handler) logRequest(r *http.Request, n *requestLog, m *responseRecorder, took time.Duration) {
	level := slog.LevelInfo
	status := m.status
	switch {
	case status == 0 && r.Context().Err() != nil:
		status = statusClientClosedRequest
	case status == 0:
		status = http.StatusOK
	}
	suppressed := 0
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests: // the caller will retry
		level = slog.LevelWarn
		var logged bool
		if logged, suppressed = f.unavailable.allow(time.Now()); !logged {
			level = slog.LevelDebug
		}
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case n.quiet && status < http.StatusBadRequest:
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("route", n.route), slog.Int("status", status),
		slog.Duration("took", took), slog.Int64("bytes", m.bytes), slog.String("request_id", n.requestID),
	}
	if n.subject != "" {
		attrs = append(attrs, slog.String("subject", n.subject))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("like_it_not_logged", suppressed))
	}
	if n.err != nil {
		attrs = append(attrs, slog.String("err", n.err.Error()))
	}
	f.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// responseRecorder records the status and the size of a response.
type responseRecorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (m *responseRecorder) WriteHeader(status int) {
	if m.status == 0 {
		m.status = status
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (m *responseRecorder) Write(b []byte) (int, error) {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	n, err := m.ResponseWriter.Write(b)
	m.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController access to the connection.
func (m *responseRecorder) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// ServeHTTP serves the requests of known routes, and returns JSON errors for unknown paths and methods.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	clean := path.Clean(r.URL.Path) == r.URL.Path // the mux would redirect
	rt := s.routesByPattern[pattern]
	literal := s.methods[r.URL.Path] != nil && (rt == nil || rt.Path != r.URL.Path) // not a match of {uuid}
	if clean && rt != nil && !literal {
		s.mux.ServeHTTP(w, r)
		return
	}
	plain := &statusRecorder{header: http.Header{}}
	switch {
	case clean && literal:
		plain.status = http.StatusMethodNotAllowed
		plain.header.Set("Allow", strings.Join(slices.Sorted(maps.Keys(s.methods[r.URL.Path])), ", "))
	case clean:
		h.ServeHTTP(plain, r)
	}
	err := error(tasker.Errorf(tasker.NotFound, "no such path: %s; see /api-docs/openapi.json", truncate(r.URL.Path)))
	if allow := plain.header.Get("Allow"); plain.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		err = statusError{http.StatusMethodNotAllowed, tasker.Errorf(tasker.Unsupported,
			"method %s not allowed: use %s", truncate(r.Method), allow)}
	}
	requestLogFromContext(r.Context()).err = err
	respondError(w, r, err)
}

// statusRecorder records the status and the header of a response and discards its body.
type statusRecorder struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (b *statusRecorder) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *statusRecorder) WriteHeader(status int) { b.status = status }

// Write implements http.ResponseWriter.
func (b *statusRecorder) Write(text []byte) (int, error) { return len(text), nil }

// truncate truncates input that is quoted in an error.
func truncate(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
