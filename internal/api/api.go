// Package api implements the HTTP API: the /v1 routes, the health endpoints and the OpenAPI document.
// Routes, validation, limits and documentation are all generated from one table (routes.go).
//
// The table determines the mux pattern, the validation of query and body, the limits and the
// documentation of each route. A handler parses the request, calls one method of the engine, of
// package dlq or of the store, and responds. It returns errors, which respondError formats.
//
// A request is rejected as a whole for unknown keys, wrong types and text that cannot be stored. The
// exception are the failures that workers report: they are accepted even if malformed, so that no
// failure is lost.
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

// Default limits of a request, including its body.
const (
	DefaultMaxBodyBytes = 4 << 20
	DefaultTimeout      = 30 * time.Second
)

// Options configures the API. DB, Engine and DLQ are required.
type Options struct {
	DB     *postgres.DB
	Engine *engine.Engine
	DLQ    *dlq.Service
	Cases  *cases.Service // default: a new one, without its loop
	Log    *slog.Logger

	Operations *operation.Service // default: a new one
	Holds      *hold.Service      // default: a new one

	Explain *explain.Service // default: a new one

	Metrics http.Handler // serves /metrics; nil disables it

	Gate *overload.Gate // limits requests; nil disables the limits

	MaxBodyBytes int64 // of one request; default [DefaultMaxBodyBytes]
	// MaxInflightBytes limits the bodies of all requests in memory. Beyond it requests wait for
	// InflightWait, by default two seconds, and then get 503 with Retry-After. The default is
	// [DefaultMaxInflightBytes].
	MaxInflightBytes int64
	InflightWait     time.Duration
	// MaxUnreadBytes limits the responses of all requests that are being written, beyond 64 KiB
	// each. Beyond it requests wait for InflightWait, by default one second, and then get 503. The
	// default is [tasker.MaxUnreadBytes].
	MaxUnreadBytes int64

	Timeout time.Duration // of one request, in addition to the wait of a claim; default [DefaultTimeout]
	Version string

	// Broker returns the state of the message broker for the readiness endpoint. Readiness does not
	// depend on it. nil means that no broker is configured.
	Broker func() (up bool, problem error)

	// Sinks lists the sinks of this server for the readiness endpoint. Readiness does not depend on
	// them.
	Sinks []string

	PublicURL string // base URL for browsers; empty if unknown

	// Teller sends test notifications. The default has no routes.
	Teller *emission.Notifier

	Feed FeedOptions

	// Loops returns the status of the background loops. nil means that none runs.
	Loops func() []loop.Status

	// Templates is the error of template files that could not be registered.
	Templates error

	// Ready is an additional readiness check.
	Ready func(ctx context.Context) error

	// Now is the clock of the readiness cache. The default is [time.Now].
	Now func() time.Time

	// Auth authenticates callers. nil disables authentication.
	Auth *auth.Authenticator
	// WorkerCertificates requires a client certificate of workers, in addition to their key.
	WorkerCertificates bool

	Guard *hostguard.Guard // default: any host, but no cross-site requests
}

// New returns the API as a handler that is safe for concurrent use. When stopping is cancelled,
// waiting claims return and readiness fails; everything else is still served, for a graceful shutdown.
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
		db: o.DB, engine: o.Engine, dlq: o.DLQ, operations: o.Operations, holds: o.Holds, caseService: cmp.Or(o.Cases, cases.New(o.DB, cases.Options{Log: o.Log})), metrics: o.Metrics, log: o.Log, version: cmp.Or(o.Version, "dev"), ready: o.Ready, broker: o.Broker, sinks: o.Sinks, publicURL: o.PublicURL, notifier: cmp.Or(o.Teller, emission.NewNotifier(emission.NotifierOptions{DB: o.DB, Log: o.Log})),
		stopping: stopping, mux: http.NewServeMux(), routesByPattern: map[string]*route{}, methods: map[string]map[string]bool{},
		loops: o.Loops, templates: o.Templates, gate: o.Gate, explain: o.Explain, evidence: evidencefile.New(o.DB, o.Engine),
	}
	s.inflight = newMemoryBudget(&memoryBudget{
		most: cmp.Or(o.MaxInflightBytes, DefaultMaxInflightBytes), largest: o.MaxBodyBytes, free: unmeteredBytes, wait: cmp.Or(o.InflightWait, inflightWait),
	})
	unread := cmp.Or(o.MaxUnreadBytes, tasker.MaxUnreadBytes)
	s.unread = newMemoryBudget(&memoryBudget{
		most: unread, largest: min(tasker.MaxAnswerBytes, unread/2), free: unmeteredResponseBytes, wait: cmp.Or(o.InflightWait, responseWait),
	})
	s.auth, s.certificates = o.Auth, o.WorkerCertificates
	s.checks = s.newDatabaseChecks(o.Now)
	s.feedOptions = o.Feed.complete(o.DB, o.Log)
	s.apiDescription = describeOnce()
	for _, rt := range s.routes() {
		rt.MaxBody = cmp.Or(rt.MaxBody, o.MaxBodyBytes)
		rt.timeout = o.Timeout + rt.Wait
		rt.checkAccess()
		pattern := rt.pattern()
		rt.schema = s.bodies[pattern]
		s.routesByPattern[pattern] = rt
		s.allow(rt)
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.run(w, r, rt) })
	}
	if o.Guard == nil {
		o.Guard = &hostguard.Guard{}
	}
	return &handler{server: s, guard: o.Guard, log: o.Log}
}

// allow records that a path without parameters accepts the method of rt.
func (s *server) allow(rt *route) {
	if strings.Contains(rt.Path, "{") {
		return
	}
	if s.methods[rt.Path] == nil {
		s.methods[rt.Path] = map[string]bool{}
	}
	s.methods[rt.Path][rt.Method] = true
	if rt.Method == http.MethodGet {
		s.methods[rt.Path][http.MethodHead] = true
	}
}

// server contains the dependencies of the handlers.
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
	notifier     *emission.Notifier
	feedOptions  FeedOptions
	lease        atomic.Pointer[leaseKey]
	auth         *auth.Authenticator
	workers      workerNamespaces
	certificates bool // required of workers
	gate         *overload.Gate
	log          *slog.Logger
	version      string
	publicURL    string
	ready        func(context.Context) error
	loops        func() []loop.Status
	templates    error
	checks       databaseChecks
	stopping     context.Context

	mux             *http.ServeMux
	routesByPattern map[string]*route
	methods         map[string]map[string]bool // of the paths without parameters
	inflight        *memoryBudget              // bodies
	unread          *memoryBudget              // answers

	*apiDescription
}
