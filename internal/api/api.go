// Package api implements the HTTP API: the /v1 routes, the health endpoints and the OpenAPI document.
// Routes, validation, limits and documentation are all generated from one table (routes.go).
//
// Every route is one line in the table of routes.go. From it come the route, the
// checks of its query and body, its limits and its part of the document, so none
// of them can differ from the others. A handler parses, calls one method of the
// engine, of package dlq or of the store, and answers; what goes wrong it
// returns, and respond.go gives it the one shape that errors have.
//
// Requests are refused as a whole when anything about them is not understood:
// unknown keys, wrong types, text that cannot be stored. Only the failures that
// workers report are taken however they look, because a report of what went
// wrong must not be lost for its form.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/dlq"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/evidencefile"
	"tasker.example/tasker/internal/explain"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
)

// What one request may take, its body included, unless configured otherwise.
const (
	DefaultMaxBodyBytes = 4 << 20
	DefaultTimeout      = 30 * time.Second
)

// Options of the API. DB, Engine and DLQ are needed; zero works for the others.
type Options struct {
	DB     *postgres.DB
	Engine *engine.Engine
	DLQ    *dlq.Service
	Cases  *cases.Service // nil: one of its own, whose loop does not run
	Log    *slog.Logger

	Operations *operation.Service // nil makes one
	Holds      *hold.Service      // nil makes one

	Explain *explain.Service // nil makes one

	Metrics http.Handler // of /metrics; nil means there are none

	Gate *overload.Gate // decides about requests of too many; nil takes all

	MaxBodyBytes int64 // of one request; 0 means [DefaultMaxBodyBytes]
	// MaxInflightBytes bounds the bodies of all requests together that are in memory
	// at once; 0 means [DefaultMaxInflightBytes]. Beyond it requests wait for
	// InflightWait, or two seconds, and are answered with 503 and Retry-After.
	MaxInflightBytes int64
	InflightWait     time.Duration
	// MaxUnreadBytes bounds the answers of all requests together that are being written,
	// beyond 64 KiB of each; 0 means [tasker.MaxUnreadBytes]. Beyond it requests wait for a
	// second, or for InflightWait, and are answered as well with 503.
	MaxUnreadBytes int64

	Timeout time.Duration // of one request, besides what a claim waits; 0 means [DefaultTimeout]
	Version string

	// Broker says whether the message broker can be published to, and what is wrong
	// with it. Readiness tells of it and does not depend on it; nil means that there
	// is none.
	Broker func() (up bool, problem error)

	// Sinks names those to which this server sends events. Readiness tells how they
	// are and does not depend on it.
	Sinks []string

	PublicURL string // where browsers reach the server; empty: nobody knows

	// Teller tries the routes of messages; nil means one without routes.
	Teller *emission.Notifier

	Feed FeedOptions // of the live feed of events

	// Loops says how what the server does by itself is going; nil means that there is
	// nothing of it.
	Loops func() []loop.Status

	// Templates is what is wrong with template files that this server did not register.
	Templates error

	// Ready is one more thing that readiness depends on; nil means none.
	Ready func(ctx context.Context) error

	// Now is the time by which readiness is told again without another look; nil means
	// [time.Now].
	Now func() time.Time

	// Auth knows callers; nil lets everybody do everything.
	Auth *auth.Authenticator
	// WorkerCertificates has workers show a certificate of the listener's CA beside their key.
	WorkerCertificates bool

	Guard *hostguard.Guard // refuses what others make a browser send; nil lets every host and no foreign page
}

// New returns the API as a handler that is safe for concurrent use. When stopping
// ends, claims that wait for work answer at once and readiness says no; all else
// is served as before, so that a server can shut down gracefully.
func New(stopping context.Context, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	if o.Operations == nil {
		o.Operations = operation.New(o.DB, o.Engine, o.DLQ, operation.Options{Log: o.Log})
	}
	if o.Holds == nil {
		o.Holds = hold.New(o.DB, o.Engine, hold.Options{Log: o.Log})
	}
	if o.Explain == nil {
		o.Explain = explain.New(o.DB, explain.Options{Log: o.Log})
	}
	s := &server{
		db: o.DB, engine: o.Engine, dlq: o.DLQ, operations: o.Operations, holds: o.Holds, caseService: cmp.Or(o.Cases, cases.New(o.DB, cases.Options{Log: o.Log})), metrics: o.Metrics, log: o.Log, version: cmp.Or(o.Version, "dev"), ready: o.Ready, broker: o.Broker, sinks: o.Sinks, publicURL: o.PublicURL, teller: cmp.Or(o.Teller, emission.NewNotifier(emission.NotifierOptions{DB: o.DB, Log: o.Log})),
		stopping: stopping, mux: http.NewServeMux(), byPattern: map[string]*route{}, methods: map[string]map[string]bool{},
		loops: o.Loops, templates: o.Templates, gate: o.Gate, explain: o.Explain, evidence: evidencefile.New(o.DB, o.Engine),
	}
	s.inflight = newInflight(&inflight{
		most: cmp.Or(o.MaxInflightBytes, DefaultMaxInflightBytes), largest: o.MaxBodyBytes, free: freeBytes, wait: cmp.Or(o.InflightWait, inflightWait),
	})
	unread := cmp.Or(o.MaxUnreadBytes, tasker.MaxUnreadBytes)
	s.unread = newInflight(&inflight{
		most: unread, largest: min(tasker.MaxAnswerBytes, unread/2), free: freeAnswer, wait: cmp.Or(o.InflightWait, answerWait),
	})
	s.auth, s.certificates = o.Auth, o.WorkerCertificates
	s.found = s.newFound(o.Now)
	s.live = o.Feed.complete(o.DB, o.Log)
	s.description = described()
	for _, rt := range s.routes() {
		rt.maxBody = cmp.Or(rt.maxBody, o.MaxBodyBytes)
		rt.timeout = o.Timeout + rt.wait
		rt.checkAccess()
		pattern := rt.pattern()
		rt.schema = s.bodies[pattern]
		s.byPattern[pattern] = rt
		s.allow(rt)
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.run(w, r, rt) })
	}
	if o.Guard == nil {
		o.Guard = &hostguard.Guard{}
	}
	return &handler{server: s, guard: o.Guard, log: o.Log}
}

// allow notes the method of a path that has no parameters.
func (s *server) allow(rt *route) {
	if strings.Contains(rt.path, "{") {
		return
	}
	if s.methods[rt.path] == nil {
		s.methods[rt.path] = map[string]bool{}
	}
	s.methods[rt.path][rt.method] = true
	if rt.method == http.MethodGet {
		s.methods[rt.path][http.MethodHead] = true
	}
}

// A server holds what the handlers need.
type server struct {
	db           *postgres.DB
	engine       *engine.Engine
	dlq          *dlq.Service
	operations   *operation.Service
	holds        *hold.Service
	caseService  *cases.Service
	explain      *explain.Service
	evidence     *evidencefile.Service
	metrics      http.Handler
	broker       func() (up bool, problem error)
	sinks        []string
	teller       *emission.Notifier
	live         FeedOptions
	lease        atomic.Pointer[leaseKey]
	auth         *auth.Authenticator
	fleet        workerNamespaces
	certificates bool // workers need one
	gate         *overload.Gate
	log          *slog.Logger
	version      string
	publicURL    string
	ready        func(context.Context) error
	loops        func() []loop.Status
	templates    error // what is wrong with template files
	found        found
	stopping     context.Context

	mux       *http.ServeMux
	byPattern map[string]*route
	methods   map[string]map[string]bool // of the paths without parameters
	inflight  *inflight                  // bodies
	unread    *inflight                  // answers

	*description
}
